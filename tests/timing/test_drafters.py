"""What each kind of drafter costs: passes, rows, heads and memory, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from roofline.importers.references import open_drafter
from roofline.kernels.footprint import parameters_total
from roofline.specs.formats import resolve_precision
from roofline.specs.network import DrafterSpec, derived_head, load_drafter, load_model
from roofline.specs.placement import Grid
from roofline.timing.drafters import Drafter, deepest, draft_passes, launches
from tests.support import Cli, assert_refused

LLAMA = load_model("llama-3.1-8b")
QWEN = load_model("qwen3-8b")
RATES = {"fp32", "bf16", "fp16", "fp8"}


def placed(network: DrafterSpec, **options: object) -> Drafter:
    precision, _ = resolve_precision(
        stored=network.stored(), base=network.dtype, kv_stored=None, available=RATES, gpu="any"
    )
    return Drafter(
        kind=network.kind,
        name=network.id,
        network=network,
        precision=precision,
        **options,  # type: ignore[arg-type]
    )


def rows_of(ops: list, name: str) -> list[float]:  # type: ignore[type-arg]
    (op,) = [op for op in ops if op.name == name]
    return [float(x) for x in np.ravel(op.rows)]


def test_eagle1_is_one_layer_behind_a_joint_and_the_targets_head() -> None:
    """SafeAILab/EAGLE README: 0.25 B for an 8B target (fc, one layer, no head of its own)."""
    head = derived_head("eagle1", LLAMA)
    assert head.shares_head
    assert head.fusion.taps == 2
    assert parameters_total(head) / 1e9 == pytest.approx(0.25, abs=0.01)
    first, further = draft_passes(placed(head), Grid.of((4,), (1024,), (0, 3)))
    assert rows_of(first, "fc") == [4.0, 16.0]  # 4 x (1 + D): padded, as vLLM does by default
    assert rows_of(further, "fc") == [4.0]  # joined again in every pass
    assert rows_of(further, "lm_head") == [4.0]
    (product,) = [op for op in further if op.name == "lm_head"]
    assert np.ravel(product.flops)[0] == 4 * 2 * 128_256 * 4096  # the whole vocabulary, each pass


def test_eagle3_fuses_once() -> None:
    first, further = draft_passes(
        placed(load_drafter("llama-3.1-8b-eagle3")), Grid.of((1,), (1024,), (0, 3))
    )
    assert "fc" in {op.name for op in first}
    assert "fc" not in {op.name for op in further}


def test_a_tree_runs_its_branches_in_each_further_pass() -> None:
    drafter = placed(load_drafter("llama-3.1-8b-eagle3"), topk=4)
    grid = Grid.of((2,), (1024,), (0, 5), verify_width=16)
    assert grid.rows.ravel().tolist() == [1.0, 16.0]
    first, further = draft_passes(drafter, grid)
    assert rows_of(further, "o_proj") == [8.0]  # 2 sequences x 4 branches
    assert rows_of(first, "o_proj") == [2.0, 12.0]  # the path that was accepted, padded to 1 + D


def test_engines_that_run_only_the_accepted_rows() -> None:
    drafter = placed(load_drafter("llama-3.1-8b-eagle3"), first_rows=2.5)
    first, _ = draft_passes(drafter, Grid.of((4,), (1024,), (0, 7)))
    assert rows_of(first, "o_proj") == [10.0, 10.0]  # 4 sequences x 2.5 rows, whatever D is


def test_a_block_is_paid_whole_however_few_drafts_are_verified() -> None:
    """README of the table: Domino b8 verifies 8 of 16 positions, the backbone is not shortened."""
    head = load_drafter("qwen3-8b-dflash")
    assert head.block_size == 16
    first, further = draft_passes(placed(head), Grid.of((2,), (1024,), (1, 7, 15)))
    assert rows_of(first, "o_proj") == [32.0, 32.0, 32.0]
    assert further == []
    assert deepest(head) == 15  # the block holds the token it starts from
    first, _ = draft_passes(placed(head, block=8), Grid.of((2,), (1024,), (1, 7)))
    assert rows_of(first, "o_proj") == [16.0, 16.0]


def test_dspark_runs_a_markov_head_for_each_token() -> None:
    """Its second factor, vocabulary x 256, is read for every token: 151,936 x 256 x 2 B."""
    head = load_drafter("qwen3-8b-dspark")
    assert deepest(head) == 7
    first, further = draft_passes(placed(head), Grid.of((1,), (1024,), (7,)))
    (side,) = [op for op in further if op.name == "side_head"]
    assert float(np.ravel(side.flops)[0]) == 2 * 151_936 * 256
    assert "side_head" in {op.name for op in first}  # the first token's
    assert "fc" not in {op.name for op in further}


def test_medusa_has_a_head_for_each_draft() -> None:
    """medusa-vicuna-7b-v1.3: a residual block H x H and a vocabulary for each head."""
    head = derived_head("medusa", QWEN)
    assert deepest(head) == 5
    first, further = draft_passes(placed(head), Grid.of((3,), (1024,), (0, 4)))
    for kernels in (first, further):
        assert rows_of(kernels, "medusa_block") == [3.0]
        assert rows_of(kernels, "lm_head") == [3.0]


@pytest.mark.parametrize(
    ("kind", "passes"),
    [("none", 0), ("ngram", 0), ("suffix", 0), ("eagle1", 6), ("eagle3", 6), ("mtp", 6),
     ("model", 6), ("dflash", 1), ("dspark", 1), ("peagle", 1), ("medusa", 1)],
)  # fmt: skip
def test_passes_that_the_engine_launches(kind: str, passes: int) -> None:
    assert np.asarray(launches(kind, np.array([0.0, 6.0]))).tolist() == [0.0, float(passes)]


def test_mtp_follows_its_target() -> None:
    """Dense in Qwen3.5-9B, a mixture in DeepSeek-V3; both use the target's head."""
    for name, kind in (("qwen3.5-9b", "dense"), ("deepseek-v3", "moe")):
        _, head = open_drafter("mtp", load_model(name))
        assert isinstance(head, DrafterSpec)
        assert head.layers[0].mlp.kind == kind
        assert head.shares_head


def test_a_derived_head_is_called_assumed(cli: Cli) -> None:
    out = cli("recommend", "qwen3-4b", "--drafter", "peagle", "--acceptance", "0.6").out
    assert "Assumed: peagle head for qwen3-4b, derived" in " ".join(out.split())


def test_the_head_is_read_in_the_targets_format(cli: Cli) -> None:
    """A GGUF file's head has 6.5625 bits, and MTP reads the same one: 248,320 x 5,120."""
    kernels = cli(
        "recommend", "qwen3.6-27b", "--gpu", "rtx-5090", "--engine", "llamacpp",
        "--weights", "4.7bpw", "--drafter", "mtp", "--acceptance", "0.9", "--context", "512",
        "--format", "json",
        "--explain",
    ).ops("draft")  # fmt: skip
    weights = 248_320 * 5_120 * 6.5625 / 8
    assert kernels["lm_head"]["bytes"] == pytest.approx(weights, rel=0.001)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--verify-width", "1"], ["--verify-width 1", "2 to 1024"]),
        (["--tree-topk", "4"], ["--tree-topk", "--verify-width"]),
        (["--tree-topk", "0"], ["--tree-topk 0"]),
        (["--draft-block", "1"], ["--draft-block 1"]),
        (["--first-pass-rows", "0.5"], ["--first-pass-rows 0.5"]),
        (["--prefill-tokens-per-step", "-1"], ["--prefill-tokens-per-step -1"]),
        (["--overhead-ms", "a"], ["--overhead-ms a", "0.5,0.7,0.15"]),
        (["--overhead-ms", "1,2,3,4"], ["--overhead-ms", "one to three"]),
        (["--engine", "vllm@1999"], ["vllm@1999", "vllm@2025"]),
        (["--weights", "99bpw"], ["99bpw"]),
    ],
)
def test_refused(cli: Cli, options: list[str], words: list[str]) -> None:
    assert_refused(cli("recommend", "llama-3.1-8b", *options), *words)


def test_a_tree_cannot_be_deeper_than_it_is_wide(cli: Cli) -> None:
    lengths = cli(
        "recommend", "llama-3.1-8b", "--verify-width", "4", "--acceptance", "0.7",
        "--engine", "sglang", "--tree-topk", "4", "--format", "json",
    ).by_draft_length()  # fmt: skip
    assert list(lengths) == [0, 1, 2, 3]
