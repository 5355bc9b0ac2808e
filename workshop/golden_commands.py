"""The commands whose outputs two trees are compared by, and the small files that they read."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

#: Commands as they are typed, by name. ``{vllm}`` and the like is the address of a server that
#: answers with the recorded pages of SERVERS; a name of INPUTS or COPIES is a file beside the
#: command; ``< FILE`` at the end is standard input.
COMMANDS: Mapping[str, str] = {
    # recommend: models, engines, formats
    "recommend-dense": "recommend llama-3.1-8b --gpu h100-sxm --batch 32 --context 2k",
    "recommend-dense-json": "recommend llama-3.1-8b --batch 1,8,64 --context 1k,8k --format json",
    "recommend-dense-csv": "recommend llama-3.1-8b --batch 8 --gpu-hour 2.5 --format csv",
    "recommend-markdown": "recommend llama-3.1-70b --gpu h200-sxm --tp 4 --draft-tp 1"
    " --acceptance 0.7 -o answer.md",
    "recommend-sglang-fp8": "recommend llama-3.1-8b --weights fp8 --kv fp8 --engine sglang"
    " --explain",
    "recommend-trtllm": "recommend llama-3.1-8b --drafter llama-3.2-1b --acceptance 0.75"
    " --engine trtllm",
    "recommend-era": "recommend qwen3-8b --gpu a100-sxm-80gb --engine vllm@2025 --batch 4"
    " --acceptance-rounds 200",
    "recommend-int4": "recommend llama-3.1-8b --gpu a100-sxm-80gb --weights int4-g128"
    " --acceptance survival:0.8,0.7,0.6",
    "recommend-tree": "recommend llama-3.1-8b --engine sglang --tree-topk 4 --verify-width 16"
    " --batch 4",
    "recommend-windows": "recommend gpt-oss-120b --gpu b200-hgx --acceptance 0.8 --context 1k,32k"
    " --batch 8",
    "recommend-moe": "recommend qwen3-30b-a3b --gpu b200-hgx --batch 16",
    "recommend-moe-explain-json": "recommend qwen3-30b-a3b --gpu h200-sxm --drafter ngram"
    " --acceptance 0.6 --routing-skew 0.5 --explain --format json",
    "recommend-mla": "recommend deepseek-v3 --gpu h200-sxm --tp 8 --drafter mtp --batch 16"
    " --explain",
    "recommend-mla-parallel": "recommend deepseek-r1 --gpu b200-hgx --tp 8 --ep 8 --dp-attention 8"
    " --engine sglang --batch 64 --drafter mtp --max-draft-length 3 --acceptance 0.8",
    "recommend-sparse-mla": "recommend deepseek-v3.2 --gpu b200-hgx --tp 8 --drafter mtp --batch 4"
    " --context 64k --acceptance 0.75 --format json",
    "recommend-hybrid": "recommend qwen3-next-80b-a3b-instruct --gpu h200-sxm --tp 4 --batch 8",
    "recommend-hybrid-replay": "recommend qwen3-next-80b-a3b-instruct --gpu h200-sxm --tp 4"
    " --batch 8 --state-handling replay --drafter mtp --acceptance 0.7 --explain",
    "recommend-block": "recommend qwen3-8b --drafter dflash --acceptance 0.8 --batch 2"
    " --draft-block 8",
    # llama.cpp: GGUF, experts beside the processor, two cards
    "recommend-gguf": "recommend small.gguf --gpu rtx-4090 --engine llamacpp --drafter ngram"
    " --acceptance 0.5",
    # experimental: stages, links, nodes, watts, pools
    "recommend-stages": "recommend qwen3.5-35b-a3b --gpu a100-sxm-80gb --weights fp8 --drafter mtp"
    " --pp 4 --link pcie2x4 --acceptance 0.9 --max-draft-length 2 --explain",
    "recommend-stages-json": "recommend llama-3.1-70b --gpu h100-sxm --tp 2 --pp 4 --nodes 2"
    " --pp-in-flight 4 --batch 32 --drafter-on own --acceptance 0.7 --format json",
    "recommend-nodes": "recommend llama-3.1-70b --tp 16 --nodes 2 --internode 25GB/s --batch 8",
    "recommend-power-cap": "recommend llama-3.1-8b --gpu h200-sxm --batch 64 --power-cap 500",
    "recommend-watts-csv": "recommend llama-3.1-8b --watts --batch 8 --format csv",
    "recommend-pools": "recommend llama-3.1-8b --batch 32 --pools 2k:256 --acceptance 0.7",
    "memory-stages": "memory llama-3.1-70b --gpu a100-sxm-80gb --pp 4 --context 8k",
    "recommend-cpu-experts": "recommend qwen3-30b-a3b --gpu rtx-4090 --engine llamacpp"
    " --weights q8_0 --cpu-experts 16 --drafter ngram --acceptance 0.6 --max-draft-length 4"
    " --host workstation-ddr5",
    "recommend-two-cards": "recommend qwen3.6-27b --gpu rtx-3090 --engine llamacpp --gpus 2"
    " --weights q8_0 --drafter mtp --acceptance qwen3.8-27b-mtp-thc --context 8k",
    "recommend-two-cards-tensor": "recommend qwen3.6-27b --gpu rtx-3090 --engine llamacpp"
    " --gpus 2 --split tensor --weights q8_0 --drafter mtp --acceptance qwen3.8-27b-mtp-thc"
    " --format json",
    "recommend-two-cards-uneven": "recommend llama-3.1-8b --gpu rtx-3090 --engine llamacpp"
    " --gpus 2 --tensor-split 3,1 --drafter llama-3.2-1b --acceptance 0.7 --explain",
    # loads and goals
    "recommend-load": "recommend llama-3.1-8b --rps 8 --input-tokens 1k --output-tokens 400"
    " --gpu-hour 2.5",
    "recommend-request": "recommend llama-3.1-8b --gpu h100-sxm --batch 8 --input-tokens 4k"
    " --output-tokens 200 --acceptance 0.7",
    "recommend-request-json": "recommend glm-5-fp8 --gpu h200-sxm --tp 8 --batch 4,16"
    " --input-tokens 16k --output-tokens 500 --prefix-tokens 8k --prefill-chunk 2k --format json",
    "recommend-trace": "recommend qwen3.5-397b-a17b --gpu b200-hgx --tp 8 --batch 8 --trace"
    " trace.csv",
    "recommend-load-json": "recommend qwen3-30b-a3b --gpu h200-sxm --rps 4 --input-tokens 2k"
    " --output-tokens 500 --max-batch 128 --prefill-chunk 2k --format json",
    "recommend-load-two-cards": "recommend llama-3.1-8b --gpu rtx-3090 --engine llamacpp --gpus 2"
    " --drafter ngram --acceptance 0.5 --rps 0.1 --input-tokens 1k --output-tokens 200"
    " --max-batch 4",
    "recommend-histogram": "recommend llama-3.1-8b --acceptance survival:0.6,0.5,0.4,0.3"
    " --context 1k --batches-histogram histogram.csv",
    "recommend-clients": "recommend llama-3.1-8b --concurrency 32 --think-time 2 --input-tokens 1k"
    " --output-tokens 400",
    "recommend-limits": "recommend llama-3.1-8b --rps 100 --input-tokens 1k --output-tokens 400"
    " --slo-ttft 500 --slo-tpot 12 --slo-percentile 95 --gpu-hour 2.5",
    "recommend-limits-json": "recommend llama-3.1-8b --concurrency 16 --input-tokens 1k"
    " --output-tokens 400 --slo-e2e 2500 --format json",
    "recommend-context-mix": "recommend llama-3.1-8b --batches-histogram 8:0.5,32:0.5"
    " --context-mix 1k:0.9,32k:0.1 --acceptance 0.6",
    "recommend-rollouts": "recommend llama-3.1-8b --rollouts 64 --input-tokens 1k"
    " --output-lengths 200:0.5,1k:0.4,8k:0.1 --gpu-hour 2",
    "recommend-goal": "recommend llama-3.1-8b --gpu h200-sxm --context 2k --slo-tpot 6",
    "recommend-goal-throughput": "recommend llama-3.1-8b --target-tokens-per-s 4000"
    " --batch 1,8,64,256 --gpu-hour 2 --format json",
    "recommend-objective": "recommend llama-3.1-8b --batch 1..64 --objective throughput",
    # acceptance, files and overrides
    "recommend-by-context": "recommend llama-3.1-8b --batch 8 --context 1k,8k,32k"
    " --acceptance by-context.yaml",
    "recommend-mix": "recommend llama-3.1-8b --acceptance"
    " 'mix:0.7*llama-3.1-8b-eagle3-specforge#gsm8k,0.3*llama-3.1-8b-eagle3-specforge#mtbench'",
    "recommend-page": "recommend llama-3.1-8b --acceptance vllm-0.33.0.prom --batch 4",
    "recommend-set": "recommend llama-3.1-8b --set group_size=8 --set drafter.layers=2"
    " --set gpu.memory.bandwidth='4 TB/s' --format json",
    "recommend-own-files": "recommend config.json --gpu card.yaml --engine engine.yaml"
    " --drafter ngram --acceptance curve.yaml",
    "recommend-overheads": "recommend llama-3.1-8b --overhead-ms 0.5,0.7,0.15"
    " --prefill-tokens-per-step 256 --first-pass-rows 2 --memory-fraction 0.8 --batch 16",
    # refusals
    "refuse-nothing": "recommend",
    "refuse-model": "recommend lama-3.1-8b",
    "refuse-option": "recommend llama-3.1-8b --contxt 4k",
    "refuse-number": "recommend llama-3.1-8b --tp two",
    "refuse-batch": "recommend llama-3.1-8b --batch 0",
    "refuse-path": "recommend llama-3.1-8b --set attention.kv_heads=4",
    "refuse-group": "recommend llama-3.1-8b --set group_size=3",
    "refuse-engine": "recommend llama-3.1-8b --engine vlm",
    "refuse-idle-option": "recommend llama-3.1-8b --cpu-experts 4",
    "refuse-vocabulary": "recommend qwen2.5-7b --drafter qwen2.5-0.5b --acceptance 0.7",
    "refuse-acceptance": "recommend llama-3.1-8b --acceptance 1.7",
    "refuse-memory": "recommend llama-3.1-70b",
    "refuse-memory-host": "recommend qwen3-235b-a22b --gpu rtx-4090 --engine llamacpp"
    " --weights q4_k_m --cpu-experts all --drafter ngram --acceptance 0.6",
    "refuse-limits": "recommend llama-3.1-8b --input-tokens 1k --output-tokens 400 --slo-ttft 5",
    "refuse-clients": "recommend llama-3.1-8b --concurrency 0 --input-tokens 1k --output-tokens 9",
    "refuse-load": "recommend llama-3.1-8b --rps 50 --input-tokens 1k --output-tokens 400",
    "refuse-goal": "recommend llama-3.1-8b --gpu h200-sxm --context 2k --batch 1 --acceptance 0.2"
    " --slo-tpot 2.5",
    "refuse-yaml": "recommend llama-3.1-8b --gpu broken.yaml",
    "refuse-output": "recommend llama-3.1-8b -o answer.docx",
    "refuse-measure": "calibrate measure --device tpu -o run.csv",
    # schedule, in each engine's words
    "schedule-table": "schedule llama-3.1-8b --gpu h200-sxm --contexts 1k,16k --tie 2",
    "schedule-vllm": "schedule llama-3.1-8b --gpu h200-sxm --contexts 1k --format vllm",
    "schedule-vllm-proposed": "schedule qwen3-30b-a3b --gpu h200-sxm --contexts 1k,8k --batches"
    " 1..128 --proposed --format vllm",
    "schedule-sglang": "schedule llama-3.1-8b --gpu h200-sxm --contexts 1k --tie 3"
    " --format sglang --candidate-sets -o slots.json",
    "schedule-trtllm": "schedule llama-3.1-8b --gpu h200-sxm --contexts 1k --tie 2"
    " --format trtllm --gate",
    "schedule-trtllm-old": "schedule gpt-oss-120b --gpu b200-hgx --acceptance 0.8 --contexts 1k"
    " --batches 1..128 --format trtllm --engine-version 1.2",
    "schedule-llamacpp": "schedule llama-3.1-8b --drafter llama-3.2-1b --acceptance 0.7"
    " --batches 1..4 --contexts 1k --format llamacpp",
    "schedule-json": "schedule deepseek-v3 --gpu h200-sxm --tp 8 --drafter mtp --batches 1..64"
    " --mix 1:0.2,32:0.8 --format json",
    "schedule-csv": "schedule llama-3.1-8b --gpu h200-sxm --batches 1,8,64 --format csv",
    # compare, memory, explore, diagnose
    "compare-table": "compare qwen3-8b --gpu h200-sxm --batch 8 --drafter eagle3=0.7"
    " --drafter ngram=0.4 --drafter qwen3-0.6b=0.65",
    "compare-json": "compare llama-3.1-8b --batch 1,32 --drafter eagle3 --drafter ngram=0.5"
    " --format json",
    "compare-csv": "compare qwen3-next-80b-a3b-instruct --gpu h200-sxm --tp 4 --drafter mtp=0.7"
    " --drafter ngram=0.4 --format csv",
    "compare-markdown": "compare qwen3-30b-a3b --gpu b200-hgx --drafter eagle3 --drafter suffix=0.5"
    " --format markdown",
    "memory-table": "memory qwen3-14b --gpu h200-sxm --context 2k,32k --drafter qwen3-1.7b"
    " --acceptance 0.75",
    "memory-mla-json": "memory deepseek-v3 --gpu h200-sxm --tp 8 --drafter mtp --batch 16"
    " --draft-length 2 --format json",
    "memory-hybrid": "memory qwen3-next-80b-a3b-instruct --gpu h200-sxm --tp 4 --context 32k",
    "memory-two-cards": "memory qwen3-30b-a3b --gpu rtx-4090 --engine llamacpp --weights q8_0"
    " --gpus 2 --cpu-experts 12 --drafter ngram --acceptance 0.6 --context 8k",
    "memory-refused": "memory llama-3.1-8b --context 128k --batch 4 --drafter none",
    "explore-table": "explore llama-3.1-70b --gpu h200-sxm --tp 8 --batch 8 --context 8k"
    " --vary group_size=1,2,4,8,16 --explain",
    "explore-moe-json": "explore qwen3-30b-a3b --gpu h200-sxm --batch 4 --acceptance 0.7"
    " --vary experts=64,128 --vary top_k=4,8 --format json",
    "explore-csv": "explore llama-3.1-8b --batch 4 --vary drafter.layers=1,2,3 --format csv",
    "explore-markdown-chart": "explore llama-3.1-8b --vary group_size=1,4,8 --batches 1,4,16,64"
    " --plot explore.png --format markdown",
    "diagnose-points": "diagnose llama-3.1-8b --drafter eagle3 --batch 8"
    " --measured 0:7.9ms,3:5.5ms:2.66",
    "diagnose-file-json": "diagnose llama-3.1-8b --measured steps.csv --format json",
    "diagnose-host": "diagnose qwen3-235b-a22b --gpu rtx-4090 --engine llamacpp --weights q4_k_m"
    " --cpu-experts all --drafter none --tpot 150ms",
    "diagnose-two-cards": "diagnose llama-3.1-8b --gpu rtx-3090 --engine llamacpp --gpus 2"
    " --drafter none --tokens-per-s 40",
    # servers with recorded pages
    "live-vllm": "live {vllm} --gpu h100-sxm --interval 7s",
    "live-vllm-json": "live {vllm-dev} --interval 7s --format json",
    "live-vllm-copies": "live {vllm-dp2} --gpu h100-sxm --interval 7s",
    "live-vllm-off": "live {vllm-off} --gpu h100-sxm --interval 0 --acceptance 0.7",
    "live-sglang": "live {sglang} --gpu h100-sxm --interval 5s",
    "live-trtllm": "live {trtllm} --gpu b200-hgx --interval 4s",
    "live-refused": "live {sglang} --interval 0",
    "live-missing": "live {empty} --interval 0",
    "recommend-live": "recommend --live {vllm} --gpu h100-sxm --interval 7s",
    "acceptance-read-server": "acceptance read {vllm}/metrics --interval 30s --format json",
    # files, sweeps
    "report-dense": "report llama-3.1-8b --gpu h100-sxm --batch 32 --context 2k -o report.html",
    "report-two-cards": "report llama-3.1-8b --gpu rtx-3090 --engine llamacpp --gpus 2"
    " --drafter llama-3.2-1b --acceptance 0.7 --batches 1,2,4 --contexts 1k,4k -o report.html",
    "sweep-grid": "sweep --grid grid.yaml --format jsonl",
    "sweep-refusals": "sweep llama-3.1-70b,qwen3-8b --gpu h100-sxm,rtx-4090 --tp 1,2 --batch 1,64",
    "sweep-parquet": "sweep llama-3.1-8b --batch 1..8 -o sweep.parquet --jobs 2",
    "sweep-dense": "sweep llama-3.1-8b,qwen3-8b --gpu h100-sxm,h200-sxm,b200-hgx"
    " --engine vllm,sglang,trtllm --batch 1..256*2 --context 1k..32k*2 -o sweep.csv",
    "sweep-moe": "sweep qwen3-30b-a3b --gpu h200-sxm,b200-hgx --tp 1,2 --weights bf16,fp8"
    " --acceptance 0.6 --acceptance 0.8 --batch 1..512*2 --context 1k..32k*2 -o sweep.csv",
    "sweep-mla": "sweep deepseek-v3 --gpu h200-sxm,b200-hgx --tp 8 --ep 1,8 --drafter mtp,ngram"
    " --acceptance 0.7 --batch 1..256*2 --context 1k..64k*4 -o sweep.csv",
    "sweep-hybrid": "sweep qwen3-next-80b-a3b-instruct --gpu h200-sxm,b200-hgx --tp 2,4"
    " --state-handling snapshots,replay --batch 1..128*2 --context 1k..64k*4 -o sweep.csv",
    "sweep-llamacpp": "sweep llama-3.1-8b --gpu rtx-3090,rtx-4090 --engine llamacpp --gpus 2"
    " --split layer,tensor --drafter none,ngram,llama-3.2-1b --weights q4_k_m,q8_0"
    " --acceptance 0.6 --acceptance 0.8 --batch 1..8 --context 1k..16k*4 -o sweep.csv",
    # charts
    "plot-speedup": "plot speedup llama-3.1-8b --gpu h200-sxm -o chart.png --data chart.csv",
    "plot-heatmap": "plot heatmap qwen3-8b --drafter qwen3-0.6b --acceptance 0.6 -o chart.svg"
    " --data chart.csv",
    "plot-breakdown": "plot breakdown qwen3-30b-a3b --gpu b200-hgx --acceptance 0.6 -o chart.png"
    " --data chart.csv --size 7x5 --dpi 80",
    "plot-frontier": "plot frontier llama-3.1-8b --gpu rtx-3090 --engine llamacpp --gpus 2"
    " --drafter llama-3.2-1b --acceptance 0.7 -o chart.pdf --data chart.csv",
    "plot-roofline": "plot roofline llama-3.1-8b --gpu h200-sxm -o chart.png --data chart.csv",
    "plot-cost-ratio": "plot cost-ratio llama-3.1-8b -o chart.png --data chart.csv",
    "plot-tokens-per-step": "plot tokens-per-step llama-3.1-8b -o chart.png --data chart.csv",
    "plot-attention": "plot attention llama-3.1-8b --gpu h200-sxm -o chart.png --data chart.csv",
    "plot-parity": "plot parity kernels --gpu h200-sxm --engine vllm -o chart.png --data chart.csv",
    # what there is
    "hardware-list": "hardware list",
    "hardware-show": "hardware show h200-sxm",
    "hardware-show-json": "hardware show b200-hgx --format json",
    "hardware-check": "hardware check card.yaml",
    "hardware-diff": "hardware diff h100-sxm h200-sxm",
    "models-list": "models list",
    "models-show": "models show deepseek-v3",
    "models-show-json": "models show qwen3-next-80b-a3b-instruct --format json",
    "models-check": "models check config.json",
    "models-check-drafter": "models check drafter.json --target qwen3-8b --format json",
    "models-import": "models import config.json -o spec.yaml",
    "models-import-gguf": "models import small.gguf",
    "acceptance-list": "acceptance list --match specforge",
    "acceptance-show": "acceptance show kimi-k2.5-eagle3-coding --models",
    "acceptance-explain": "acceptance explain llama-3.1-8b --domain code --format json",
    "acceptance-convert": "acceptance convert 0.885,0.740 --from survival --to conditional",
    "acceptance-convert-refused": "acceptance convert 2.53 --from tokens-per-step --to survival"
    " --draft-length 3",
    "acceptance-read-since": "acceptance read vllm-0.33.0-later.prom --since vllm-0.33.0.prom"
    " -o read.yaml",
    "acceptance-read-sglang": "acceptance read sglang-0.5.23.log --format json",
    "acceptance-read-trtllm": "acceptance read trtllm-stats.jsonl --draft-length 3",
    "acceptance-read-llamacpp": "acceptance read - < llamacpp-newer.log",
    # fits and scores
    "calibrate-fit": "calibrate fit measured.csv -o cpu.yaml --plot parity.png",
    "calibrate-fit-steps": "calibrate fit-steps steps.csv llama-3.1-8b --drafter eagle3"
    " -o fitted.yaml",
    "validate-kernels": "validate kernels",
    "validate-decode": "validate decode --format markdown",
    "validate-transfer": "validate transfer --gpu h200-sxm --format json",
    "validate-steps": "validate steps --format json",
    "validate-acceptance": "validate acceptance --format json",
    "validate-held-out": "validate held-out --format json",
    "validate-requests": "validate requests --format json",
    "validate-advice": "validate advice --plot regrets.png",
    "validate-tune": "validate tune --help",  # its replay takes a minute or two
    # tune
    "tune-start": "tune start qwen3-8b --gpu h100-sxm --batch 8,64 --domain chat -o new.yaml",
    "tune-status": "tune status tuning.yaml --format json",
    "tune-add": "tune add tuning.yaml --draft-length 2 --tokens-per-s 1720 --tokens-per-step 1.95",
    "tune-held": "tune start qwen3-8b --gpu h100-sxm --hold-acceptance -o held.yaml",
    "recommend-tuned": "recommend --tuned tuning.yaml --format json",
    "schedule-tuned": "schedule --tuned tuning.yaml --batches 1..64",
    "sweep-tuned": "sweep --tuned tuning.yaml --batch 8,16",
    "diagnose-tuned": "diagnose --tuned tuning.yaml",
    "tune-run": "tune run tuning.yaml --server no-such-program",
    # the program itself
    "version": "--version",
    "help": "--help",
    "help-recommend": "recommend --help",
    "help-topic": "help plot speedup",
    "help-sweep": "sweep --help",
    "help-plot": "plot --help",
}

#: Pages of each server: files of the base tree's tests/data/servers, in turn, by path.
SERVERS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "vllm": {
        "/metrics": ["vllm.prom", "vllm-later.prom"],
        "/version": ["vllm-version.json"],
        "/v1/models": ["vllm-models.json"],
    },
    "vllm-dev": {
        "/metrics": ["vllm.prom", "vllm-later.prom"],
        "/version": ["vllm-version.json"],
        "/v1/models": ["vllm-models.json"],
        "/server_info": ["vllm-server-info.json"],
    },
    "vllm-dp2": {
        "/metrics": ["vllm-dp2.prom", "vllm-dp2-later.prom"],
        "/version": ["vllm-version.json"],
        "/v1/models": ["vllm-models.json"],
    },
    "vllm-off": {"/metrics": ["vllm-off.prom"], "/v1/models": ["vllm-models.json"]},
    "sglang": {
        "/metrics": ["sglang.prom", "sglang-later.prom"],
        "/server_info": ["sglang-server-info.json"],
    },
    "trtllm": {
        "/metrics": ["trtllm.json", "trtllm-later.json"],
        "/prometheus/metrics": ["trtllm.prom", "trtllm-later.prom"],
        "/v1/models": ["trtllm-models.json"],
        "/version": ["trtllm-version.json"],
    },
    "empty": {},
}

#: Input files and folders that are copied from the base tree.
COPIES: Mapping[str, str] = {
    "config.json": "model_configs/Qwen--Qwen3-8B.json",
    "drafter.json": "model_configs/drafter--specforge--qwen3-8b-eagle3.json",
    "measured.csv": "roofline/data/measured/cpu-epyc-2-cores-numpy.csv",
    "vllm-0.33.0.prom": "tests/data/pages/vllm-0.33.0.prom",
    "vllm-0.33.0-later.prom": "tests/data/pages/vllm-0.33.0-later.prom",
    "sglang-0.5.23.log": "tests/data/pages/sglang-0.5.23.log",
    "trtllm-stats.jsonl": "tests/data/pages/trtllm-stats.jsonl",
    "llamacpp-newer.log": "tests/data/pages/llamacpp-newer.log",
}

#: A card with round figures.
CARD = """\
schema: 1
id: roundcard
name: Round Card
vendor: Nobody
architecture: Round
generation: hopper
release_year: 2025
form_factor: card
memory:
  kind: HBM
  capacity: {value: 64 GB, source: here}
  bandwidth: {value: 1 TB/s, source: here}
compute:
  peaks:
    bf16: {value: 100 TFLOP/s, source: here}
    fp8: {value: 200 TFLOP/s, source: here}
  peak_basis: invented
interconnect:
  kind: link
  per_direction: {value: 100 GB/s, source: here}
  domain_size: 8
sources:
  here: {cite: invented for a comparison, confidence: from-memory}
"""

ENGINE = """\
schema: 1
id: example-engine
name: Example engine
overhead:
  per_step: 0.5 ms
  per_spec_round: 0.7 ms
  per_draft_pass: 0.15 ms
  source: assumed
memory:
  fraction: 0.9
  reserve: 1.5 GB
  kv_block: 16
  caps_windows: true
  prefill_chunk: 8192
  source: assumed
draft_length_name: draft_tokens
flags:
  none: leave --draft out
  ngram: --draft ngram --draft-tokens $draft_length
flags_source: Example engine 1.0, its command-line reference
"""

BY_CONTEXT = """\
schema: 1
source: invented for a comparison
curves:
- {context: 1024, tokens_per_step: {1: 1.8, 2: 2.4, 3: 2.8}}
- {context: 32768, tokens_per_step: {1: 1.3, 2: 1.4, 3: 1.4}}
"""

CURVE = """\
schema: 1
source: invented for a comparison
dataset: chat
tokens_per_step: {1: 1.74, 2: 2.26, 3: 2.61}
"""

GRID = """\
schema: 1
gpu: [h100-sxm, h200-sxm]
batch: [1, 16, 256]
context: [1k, 16k]
cases:
- {model: llama-3.1-8b, acceptance: [0.6, "survival:0.8,0.7,0.6"]}
- {model: qwen3-8b, drafter: ngram, acceptance: 0.4, tp: [1, 2]}
"""

STEPS = """\
batch,context,draft_length,step_ms
1,4096,0,7.1
8,4096,0,8.05
32,4096,0,10.2
8,4096,3,10.1
32,4096,3,12.9
"""


def small_gguf() -> bytes:
    """Return the header of a GGUF file of a small Llama in Q4_K and Q6_K (version 3).

    Layout, after ggml's GGUF specification, little endian: magic, version, numbers of tensors and
    of keys; each key as name, type, value; each tensor as name, number of dimensions, dimensions
    (innermost first), type and offset. A text is its length in 64 bits and its bytes.
    """
    uint32, string, f32, q4_k, q6_k = 4, 8, 0, 12, 14
    hidden, wide, vocabulary, layers, kv_width = 1024, 2816, 32_000, 8, 256

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    numbers = {
        "llama.block_count": layers,
        "llama.context_length": 32_768,
        "llama.embedding_length": hidden,
        "llama.feed_forward_length": wide,
        "llama.attention.head_count": 16,
        "llama.attention.head_count_kv": 4,
    }
    of_a_layer: dict[str, tuple[tuple[int, ...], int]] = {
        "attn_norm": ((hidden,), f32),
        "attn_q": ((hidden, hidden), q4_k),
        "attn_k": ((hidden, kv_width), q4_k),
        "attn_v": ((hidden, kv_width), q6_k),
        "attn_output": ((hidden, hidden), q4_k),
        "ffn_norm": ((hidden,), f32),
        "ffn_gate": ((hidden, wide), q4_k),
        "ffn_up": ((hidden, wide), q4_k),
        "ffn_down": ((wide, hidden), q6_k),
    }
    tensors: dict[str, tuple[tuple[int, ...], int]] = {
        "token_embd.weight": ((hidden, vocabulary), q4_k),
        "output_norm.weight": ((hidden,), f32),
        "output.weight": ((hidden, vocabulary), q6_k),
    }
    for layer in range(layers):
        tensors |= {f"blk.{layer}.{name}.weight": entry for name, entry in of_a_layer.items()}
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), 1 + len(numbers))]
    parts += [text("general.architecture"), struct.pack("<I", string), text("llama")]
    for name, value in numbers.items():
        parts += [text(name), struct.pack("<II", uint32, value)]
    for name, (dimensions, kind) in tensors.items():
        parts += [text(name), struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)]
        parts += [struct.pack("<IQ", kind, 0)]
    return b"".join(parts)


TUNING = """\
schema: 1
roofline: 0.1.0
engine: vllm
question: {batch: '8', domain: chat, gpu: h100-sxm, model: qwen3-8b}
timings:
- {draft_length: 4, batch: 8, tokens_per_s: 1790.0, tokens_per_step: 2.35}
"""

#: Input files that are written for a command that names them.
INPUTS: Mapping[str, bytes] = {
    "small.gguf": small_gguf(),
    "card.yaml": CARD.encode(),
    "broken.yaml": CARD.replace("1 TB/s", "1 terabyte").encode(),
    "engine.yaml": ENGINE.encode(),
    "by-context.yaml": BY_CONTEXT.encode(),
    "curve.yaml": CURVE.encode(),
    "grid.yaml": GRID.encode(),
    "steps.csv": STEPS.encode(),
    "tuning.yaml": TUNING.encode(),
    "trace.csv": b"input,output,time,prefix\n900,200,0,0\n12000,350,1.5,4096\n4000,90,4,0\n",
    "histogram.csv": b"batch,share\n1,0.7\n8,0.2\n64,0.1\n",
}
