#!/usr/bin/env bash
# One GPU in under ten minutes: the kernels of a dense model and of one with experts, their laws,
# and real steps against what the laws say.
#
#   pip install '.[gpu]'
#   benchmarks/gpu_run.sh OUT
#
# OUT gets the CSVs, the profiles, parity plots and what each command printed. A stage that fails or
# takes too long is named, and the next one goes on. Any setting below can come from the environment:
# DEVICE=cpu LIBRARY=numpy BUDGET=20s MOE_BUDGET=20s ... is the same run on a CPU.
set -u
out=${1:?usage: benchmarks/gpu_run.sh OUT}
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
device=${DEVICE:-cuda} library=${LIBRARY:-torch}
dense=${DENSE:-llama-3.1-8b} moe=${MOE:-qwen3-30b-a3b}
budget=${BUDGET:-200s} moe_budget=${MOE_BUDGET:-100s} # 300 s of 600
layers=${LAYERS:-4} batches=${BATCHES:-1,8,32} contexts=${CONTEXTS:-1024,4096}
longest=${LONGEST:-90} # seconds that each fit, and each set of steps, may take
total=${TOTAL:-580}    # seconds after which no stage goes on
mkdir -p "$out"

stage() { # name, seconds, command: what it prints goes to OUT/name.txt and the terminal
    local name=$1 limit=$2 begin=$SECONDS
    shift 2
    [ "$limit" -lt $((total - SECONDS)) ] || limit=$((total - SECONDS))
    [ "$limit" -gt 0 ] || { echo "$name: left out, $total s are over" && return; }
    echo "== $name: $*"
    timeout "$limit" "$@" > >(tee "$out/$name.txt") 2>&1
    local code=$?
    [ $code -eq 0 ] || echo "$name: FAILED with $code (124: over $limit s)"
    echo "== $name: $((SECONDS - begin)) s"
}

measured() { # name, model, budget
    local name=$1 model=$2
    stage "$name-measure" $((${3%s} + 100)) "$python" -m roofline calibrate measure \
        --device "$device" --library "$library" --model "$model" --budget "$3" -o "$out/$name.csv"
    stage "$name-fit" "$longest" "$python" -m roofline calibrate fit "$out/$name.csv" \
        -o "$out/$name.yaml" --plot "$out/$name.png"
    stage "$name-steps" "$longest" "$python" "$here/verify_step.py" "$out/$name.yaml" \
        --model "$model" --device "$device" --library "$library" \
        --layers "$layers" --batch "$batches" --context "$contexts"
}

measured dense "$dense" "$budget"
measured moe "$moe" "$moe_budget"
stage recommend "$longest" "$python" -m roofline recommend "$moe" --gpu "$out/moe.yaml" \
    --drafter ngram --acceptance 0.7 --batch 8 --context 1024
echo "== all: $SECONDS s"
