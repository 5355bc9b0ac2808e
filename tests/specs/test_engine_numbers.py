"""Engine numbers: eras, a user's own, captured graphs, and fitting them to measured steps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from roofline.advice.configuration import Configuration
from roofline.base import resources
from roofline.base.errors import InputError
from roofline.calibrate.steps import fit_steps
from roofline.kernels.ops import GemmShape, MoeShape
from roofline.questions.measured import read_steps
from roofline.specs.engine import Graphs, load_engine
from roofline.specs.formats import DType
from roofline.specs.gpu import load_hardware
from roofline.specs.laws import SimpleLaw, VectorKernels
from roofline.specs.network import load_model
from roofline.timing.laws.simple import by_pairs, row_work
from roofline.timing.machine import vector_time
from roofline.timing.step import StepTimes
from tests.physics import priced
from tests.support import ENGINE, Cli, write

JSON = ("--format", "json")
COMMAND = ("recommend", "llama-3.1-8b", "--acceptance", "0.7", "--max-draft-length", "3")


def overheads(cli: Cli, *options: str) -> list[float]:
    rows = cli(*COMMAND, *options, *JSON).by_draft_length()
    return [row["overhead_ms"] for row in rows.values()]


def test_the_users_own_milliseconds(cli: Cli) -> None:
    """0.5 a step, 20 a round, 0.3 a pass: 0.5, 20.8, 21.1, 21.4 ms."""
    assert overheads(cli, "--overhead-ms", "0.5,20,0.3") == pytest.approx([0.5, 20.8, 21.1, 21.4])


def test_an_engine_of_ones_own(cli: Cli, tmp_path: Path) -> None:
    """The invented engine: 0.5 ms a step, 0.7 a round, 0.15 a pass."""
    path = write(tmp_path, "engine.yaml", ENGINE)
    assert overheads(cli, "--engine", path) == pytest.approx([0.5, 1.35, 1.5, 1.65])


def test_an_era_spends_more_on_a_pass_than_today() -> None:
    """vLLM of 2025 spends about a millisecond per EAGLE-3 pass, kernels included (issue 20780)."""
    old, new = load_engine("vllm@2025").overhead, load_engine("vllm").overhead
    assert 0.3e-3 < old.draft_pass("eagle3") < 0.7e-3
    assert old.draft_pass("eagle3") > 2 * new.draft_pass("eagle3")
    assert old.draft_pass("eagle1") < old.draft_pass("eagle3")
    assert (old.floor_scale, old.per_layer) == (new.floor_scale, new.per_layer)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "llamacpp"])
def test_every_engine_stays_near_the_generic_one(engine: str) -> None:
    """0.5 ms a step, 0.7 a round, 0.15 a pass, each with a deviation of about its own size."""
    overhead = load_engine(engine).overhead
    assert 0.3e-3 <= overhead.per_step <= 1.2e-3
    assert 0.1e-3 <= overhead.per_spec_round <= 1.5e-3
    assert 0.1e-3 <= overhead.per_draft_pass <= 0.3e-3


@pytest.mark.parametrize(
    ("command", "milliseconds"),
    [
        ("qwen3-30b-a3b --gpu rtx-4090 --weights q4_0 --context 2048", 4.86),
        ("gpt-oss-20b --gpu rtx-3090 --weights mxfp4_moe --context 2048", 5.37),
        ("gpt-oss-20b --gpu dgx-spark --weights mxfp4_moe --context 16", 11.89),
        ("gpt-oss-120b --gpu dgx-spark --weights mxfp4_moe --context 16", 16.94),
        ("qwen3-coder-30b-a3b --gpu dgx-spark --weights q8_0 --context 16", 16.42),
    ],
)
def test_llamacpp_plain_steps_of_mixtures_without_a_state(
    cli: Cli, command: str, milliseconds: float
) -> None:
    """Published llama-bench rows to 12 %; the family's constants know all but the second.

    llama.cpp pull request 15631, one row a microbatch over 4,096 tokens: 205.87 and 186.29
    tokens/s; its benches/dgx-spark.md at build 6918, tg32: 84.10, 59.02 and 60.92 tokens/s.
    """
    outcome = cli(
        "recommend", *command.split(), "--engine", "llamacpp", "--drafter", "ngram",
        "--acceptance", "0.6", *JSON,
    )  # fmt: skip
    assert outcome.by_draft_length()[0]["step_ms"] == pytest.approx(milliseconds, rel=0.12)


def test_llamacpp_verifies_sequences_with_a_state_one_by_one(cli: Cli) -> None:
    """Rollback of a recurrent state takes a pass for each sequence.

    llama.cpp, src/llama-memory-hybrid.cpp at 05ad75c: ``split_seq`` where ``n_rs_seq > 0``, which
    ``common.h`` sets for drafters with weights and not for n-grams. Pull request 25004: "the
    recurrent graph ran once per sequence".
    """

    def verify(model: str, drafter: str, batch: int, draft_length: int) -> float:
        outcome = cli(
            "recommend", model, "--gpu", "rtx-5090", "--engine", "llamacpp", "--drafter", drafter,
            "--acceptance", "0.7", "--context", "512", "--batch", str(batch), "--weights",
            "q4_k_m", *JSON,
        )  # fmt: skip
        return float(outcome.by_draft_length()[draft_length]["verify_ms"])

    for model in ("qwen3.6-27b", "qwen3.5-9b"):
        one, two = (verify(model, "mtp", batch, 2) for batch in (1, 2))
        assert two == pytest.approx(2 * one, rel=0.02)
        assert verify(model, "mtp", 2, 0) < 1.3 * verify(model, "mtp", 1, 0)
        assert verify(model, "ngram", 2, 2) < 1.9 * verify(model, "ngram", 1, 2)
    assert verify("qwen3-8b", "qwen3-0.6b", 2, 2) < 1.9 * verify("qwen3-8b", "qwen3-0.6b", 1, 2)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_a_replayed_graph_lengthens_no_floor(engine: str) -> None:
    """Floors were timed kernel by kernel: a graph hides a part of them and adds nothing."""
    overhead = load_engine(engine).overhead
    assert overhead.fitted_rows
    assert overhead.floor_scale <= 1
    assert overhead.expert_floor_scale <= 1


@pytest.mark.parametrize("engine", ["sglang", "llamacpp"])
def test_what_a_hybrid_mixture_costs_is_no_cost_of_other_mixtures(engine: str) -> None:
    """SGLang was served with Qwen3.5-397B-A17B alone, llama.cpp with Qwen3.6-35B-A3B alone.

    Qwen3.5-397B-A17B has 60 layers, 45 of them with a recurrent state, as its config.json says.
    """
    overhead = load_engine(engine).overhead
    assert overhead.per_expert_layer < 2e-6
    assert overhead.per_state_layer > 20e-6
    hybrid, mixture, dense = (
        load_model(name) for name in ("qwen3.5-397b-a17b", "gpt-oss-120b", "qwen3.6-27b")
    )
    assert hybrid.num_hybrid_layers == 45
    assert (mixture.num_hybrid_layers, dense.num_hybrid_layers) == (0, 0)
    assert dense.num_state_layers == 48


GRAPHS = Graphs.model_validate_json(
    '{"steps": [[2, 1], [4, 2], [256, 8], [512, 16]], "eager_launch": "40 us", "source": "vLLM"}'
)


def test_rows_are_padded_to_captured_graphs() -> None:
    """vLLM captures 1, 2, 4, then multiples of 8 to 256 and of 16 to 512."""
    rows = np.array([1, 2, 3, 5, 8, 9, 250, 257, 500, 512, 513], dtype=float)
    assert np.asarray(GRAPHS.padded(rows)).tolist() == [1, 2, 4, 8, 8, 16, 256, 272, 512, 512, 513]
    assert GRAPHS.largest == 512


def test_the_cliff_past_the_captured_graphs_is_named_and_priced(cli: Cli) -> None:
    """128 x (1 + 3) = 512 rows are captured, 128 x 5 are not; every pass finds a draft."""
    outcome = cli(
        "recommend", "llama-3.2-1b", "--batch", "128", "--context", "256", "--drafter", "ngram",
        "--acceptance", "0.7", "--hit-rate", "1", "--max-draft-length", "4", *JSON,
    )  # fmt: skip
    assert "draft length 4 needs more than the 512 rows" in outcome.said
    rows = outcome.by_draft_length()
    assert rows[4]["overhead_ms"] - rows[3]["overhead_ms"] > 1.0


def test_llamacpp_rows_up_to_eight_and_beyond() -> None:
    """thc1006, Qwen3.8-27B: widths 2 to 8 rise by a constant, width 9 is below their line.

    A tile of 16 rows costs no less than the 8 rows that engines leave to the other kernels; three
    tiles of 3.5 rows are more.
    """
    kernels = VectorKernels(narrow=5.0, byte=2.0)
    work = np.asarray(row_work(np.arange(1.0, 34.0), kernels))
    assert np.diff(work)[:7].tolist() == [1.0] * 7
    assert work[8:32].tolist() == [8.0] * 24
    assert work[32] == 10.5


def test_llamacpp_rows_hide_under_the_weights_at_first() -> None:
    """By hand on an RTX 3090 (936.2 GB/s, fp32 35.6 T, two thirds for integer-heavy code).

    4096 x 4096 at 4.5 bits is 9.44 MB: 11.45 us at 0.88 of the bandwidth; a row at 5 FLOP a weight
    is 3.534 us. One row takes sqrt(11.45^2 + 3.53^2) = 11.99 us, six sqrt(11.45^2 + 21.2^2) = 24.1,
    beside floor 2 us and 64 K-steps of 20 ns. More rows cost more than the ones before them.
    """
    gpu, kernels = load_hardware("rtx-3090"), VectorKernels(narrow=5.0, byte=2.0)
    law = SimpleLaw(floor=2e-6, mem_eff=0.88, serial=20e-9, overlap=4.0)
    shape = GemmShape(m=np.array([1.0, 6.0]), n=4096, k=4096, weight=0.5625, activation=2.0)
    times = vector_time(shape, 4096 * 4096 * 0.5625, gpu, law, kernels).total
    assert 1e6 * times == pytest.approx([3.28 + 11.99, 3.28 + 24.10], abs=0.02)


def test_llamacpp_experts_compute_every_pair() -> None:
    """Two tokens of two experts each: four rows of 3 x 100 x 10 weights at 5 FLOP are 60 kFLOP."""
    shape = MoeShape(
        tokens=2.0, top_k=2, experts=8, ranks=1, hidden=100, width=10, matrices=3, weight=0.6,
        distinct=3.5, awake=3.5, rows=4.0, hottest=2.0, padded=64.0,
    )  # fmt: skip
    flops, moved = by_pairs(shape, VectorKernels(narrow=5.0, byte=2.0))
    assert (float(flops), float(moved)) == pytest.approx((60e3, 4 * 3000 * 0.6))


def test_prompt_tokens_ride_in_the_step(cli: Cli) -> None:
    """They pass every layer beside the decoding rows, and make no logits."""
    lookup = ("--drafter", "ngram", "--hit-rate", "1", "--batch", "8")
    quiet = cli(*COMMAND, *lookup, *JSON, "--explain")
    busy = cli(
        *COMMAND, *lookup, "--prefill-tokens-per-step", "100", *JSON,
        "--explain",
    )  # fmt: skip
    rows = 8 * (1 + quiet.point()["draft_length"])
    assert quiet.ops("verify")["o_proj"]["rows"] == rows
    busy_rows = 8 * (1 + busy.point()["draft_length"])
    assert busy.ops("verify")["o_proj"]["rows"] == busy_rows + 100
    assert busy.ops("verify")["lm_head"]["rows"] == busy_rows


STEPS = """\
batch,context,draft_length,step_ms
1,400,0,7.07
1,400,2,10.195
1,400,3,11.411
1,400,4,12.474
1,400,5,13.712
1,400,6,14.532
1,400,7,15.187
"""


def test_fitting_to_a_few_steps(cli: Cli, tmp_path: Path) -> None:
    """vLLM issue 20780, EAGLE-3: a plain step and six draft lengths; about 1 ms a pass.

    Its tokens per step are the acceptance: 2.79, 3.08 and 3.32 at D = 3, 4 and 5 are 244.5, 246.9
    and 242.1 tokens per second.
    """
    path = write(tmp_path, "steps.csv", STEPS)
    target = tmp_path / "engine.yaml"
    outcome = cli(
        "calibrate", "fit-steps", path, "llama-3.1-8b", "--drafter", "eagle3", "-o", str(target)
    )
    assert outcome.code == 0
    answer = cli(
        "recommend", "llama-3.1-8b", "--engine", str(target), "--context", "400",
        "--acceptance", "llama-3.1-8b-eagle3", *JSON,
    )  # fmt: skip
    rows = answer.by_draft_length()
    for line in STEPS.splitlines()[1:]:
        length, milliseconds = line.split(",")[2:]
        assert rows[int(length)]["step_ms"] == pytest.approx(float(milliseconds), rel=0.05)
    assert answer.point()["draft_length"] == 4  # the measured best


def test_a_number_that_no_row_tells_stays_generic(tmp_path: Path) -> None:
    """A plain step says nothing of drafting: the generic engine's 0.7 ms and 0.15 ms are left."""
    path = Path(write(tmp_path, "plain.csv", "batch,context,draft_length,step_ms\n1,400,0,7.07\n"))
    fitted = fit_steps(Configuration(model="llama-3.1-8b", drafter="eagle3"), read_steps(path))
    assert fitted.numbers["per_spec_round"] == pytest.approx(0.7e-3)
    assert fitted.numbers["per_draft_pass"] == pytest.approx(0.15e-3)


def test_a_fit_leaves_the_rest_of_the_file(tmp_path: Path) -> None:
    """Numbers of the same name outside the overhead, as idle speculation's, are not its own."""
    fitted = fit_steps(
        Configuration(model="llama-3.1-8b", drafter="eagle3"),
        read_steps(Path(write(tmp_path, "steps.csv", STEPS))),
    )
    own = load_engine(write(tmp_path, "own.yaml", fitted.text))
    bundled = load_engine("vllm")
    assert own.idle_speculation == bundled.idle_speculation
    assert own.overhead.per_step != bundled.overhead.per_step


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("batch,context\n1,2\n", "columns batch,context,draft_length,step_ms"),
        ("batch,context,draft_length,step_ms\n", "at least a row"),
        ("batch,context,draft_length,step_ms\n1,400,0,x\n", "line 2"),
        ("batch,context,draft_length,step_ms\n1,400,0,7\n0,400,0,7\n", "line 3"),
        ("batch,context,draft_length,step_ms\n1,400,99,7\n", "0 to 64"),
        ("batch,context,draft_length,step_ms\n1,400,0,nan\n", "line 2"),
    ],
)
def test_bad_step_files(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        read_steps(Path(write(tmp_path, "steps.csv", text)))


def test_a_missing_step_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_steps(tmp_path / "none.csv")


def test_a_plain_draft_model_under_llama_cpp_costs_no_more_than_on_its_own(cli: Cli) -> None:
    """Found by a user: a 1B drafter's pass was charged 1.9 times its own plain step.

    The dear pass was measured on drafters with recurrent layers (qwen3.5-0.8b); one without runs
    llama_decode as a plain step does, so a pass costs that step, within its longer context.
    """
    on = ("--gpu", "rtx-4090", "--engine", "llamacpp", "--format", "json")
    alone = cli("recommend", "llama-3.2-1b", *on, "--weights", "q8_0", "--drafter", "none")
    drafted = cli(
        "recommend", "llama-3.1-8b", *on, "--weights", "q4_k_m", "--drafter", "llama-3.2-1b",
        "--draft-weights", "q8_0", "--acceptance", "0.8",
    ).by_draft_length()  # fmt: skip
    step = alone.by_draft_length()[0]["step_ms"]
    more = [drafted[3][key] - drafted[2][key] for key in ("draft_ms", "overhead_ms")]
    assert sum(more) == pytest.approx(step, rel=0.1)
    recurrent = cli(
        "recommend", "qwen3.6-27b", *on, "--weights", "q4_k_m", "--acceptance", "0.8",
        "--drafter", "roofline/data/validation/models/qwen3.5-0.8b.yaml", "--context", "1k",
    ).by_draft_length()  # fmt: skip
    assert recurrent[2]["overhead_ms"] - recurrent[1]["overhead_ms"] > 2.0


def test_an_empty_name_of_an_engine() -> None:
    with pytest.raises(InputError, match="engine: expected an engine's name"):
        load_engine("@2025")


#: llama.cpp b11434, one AVX2 thread, gemma-3-270m Q4_K_M, `llama-bench -p 1..16 -d 512`, 15 repeats
#: on a quiet machine (2026-11-30): the time of so many rows in plain steps. Not fitted on. The
#: program asks for the last token's logits alone (common_batch_get_one), so the head has one row.
OF_A_PROCESSOR = {3: 1.55, 5: 1.67, 6: 1.84, 7: 2.08, 12: 2.99}
GEMMA_270M = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "hidden_size": 640,
    "intermediate_size": 2048,
    "num_hidden_layers": 18,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "vocab_size": 262144,
    "sliding_window": 512,
    "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 3,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}


def of_a_processor(config: str, weights: DType, lengths: Sequence[int]) -> StepTimes:
    """Return the steps of a model under llama.cpp on the calibrated processor."""
    file = resources.data_file("measured").joinpath("cpu-epyc-2-cores-numpy.yaml")
    return priced(
        config, contexts=[512], draft_lengths=lengths, gpu=str(file), engine="llamacpp",
        weights=weights, drafter="ngram",
    ).times  # fmt: skip


def test_each_row_of_a_processor_costs_its_own_arithmetic(tmp_path: Path) -> None:
    """On another processor, so R within 15 % and no time."""
    config = write(tmp_path, "config.json", json.dumps(GEMMA_270M))
    lengths = [0, *(rows - 1 for rows in OF_A_PROCESSOR)]
    step = of_a_processor(config, DType.Q4_K_M, lengths)
    head = [np.ravel(op.total) for op in step.verify_ops if op.op.name in ("lm_head", "sampling")]
    found = np.ravel(step.verify) - np.sum(head, axis=0) + sum(op[0] for op in head)
    assert found[1:] / found[0] == pytest.approx(list(OF_A_PROCESSOR.values()), rel=0.15)


def test_narrower_weights_are_no_slower_on_a_processor(tmp_path: Path) -> None:
    """On one thread of an EPYC: fp32 88 ms, q8_0 36, q4_0 27 (workshop/proof/processor.csv)."""
    config = write(tmp_path, "config.json", json.dumps(GEMMA_270M))
    fp32, q8_0, q4_0 = (
        np.ravel(of_a_processor(config, weights, range(8)).verify)
        for weights in (DType.FP32, DType.Q8_0, DType.Q4_0)
    )
    assert (q4_0 < q8_0).all()
    assert q8_0[0] < fp32[0]


def test_a_part_without_a_16_bit_rate_keeps_narrow_weights(cli: Cli) -> None:
    """gpt-oss-20b in GGUF has mxfp4 experts and q8_0 beside them; only 16 bits become fp32."""
    processor = str(resources.data_file("measured").joinpath("cpu-epyc-2-cores-numpy.yaml"))
    asked = ("gpt-oss-20b", "--gpu", processor, "--engine", "llamacpp", "--drafter", "ngram")
    weights = cli("recommend", *asked, "--acceptance", "0.6", *JSON).data()["inputs"]["weights"]
    assert (weights["experts"], weights["attention"]) == ("mxfp4", "q8_0")
    assert weights["router"] == "fp32"
