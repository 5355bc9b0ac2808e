"""Execution paths: what an engine's own dispatch runs, by version, accelerator, cache and rows.

Expected values are read in the engines' code: vLLM 0.24.0, 0.28.0 and 0.33.0 (sdists), SGLang
0.5.23 (wheel) and flash-attention 01afd16d; measured ones say from where.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from roofline.advice.configuration import Configuration
from roofline.advice.deployment import Deployment, deploy
from roofline.advice.question import question_of
from roofline.advice.recommend import recommend
from roofline.base.notices import Code
from roofline.kernels.forward import decode
from roofline.kernels.ops import AttentionShape
from roofline.render.notices import sentence
from roofline.specs.engine import load_engine
from roofline.specs.formats import DType
from roofline.specs.network import load_model
from roofline.specs.overrides import parse_override
from roofline.specs.paths import (
    AttentionKind,
    GraphMode,
    Serving,
    attention_kinds,
    execution_paths,
)
from roofline.specs.placement import StateHandling, VerifyAttention
from workshop.execution_paths import cited_share

LLAMA = "llama-3.1-8b"


def serving(engine: str, version: str, generation: str, kv: DType) -> Serving:
    return Serving(
        engine=engine, version=version, generation=generation, role="target", model="m", kv=kv
    )


# Rows are (version, generation, cache, several rows): backend, graph, whether the host waits.
# platforms/cuda.py _get_backend_priorities, flash_attn.py supports_kv_cache_dtype, flashinfer.py
# _init_reorder_batch_threshold and get_cudagraph_support, config/compilation.py
# resolve_cudagraph_mode_and_sizes.
@pytest.mark.parametrize(
    ("version", "generation", "kv", "several", "backend", "graph", "waits"),
    [
        ("0.24.0", "ampere", DType.FP8, True, "FLASHINFER", GraphMode.PIECEWISE, True),
        ("0.24.0", "ampere", DType.FP8, False, "FLASHINFER", GraphMode.FULL, True),
        ("0.24.0", "ampere", DType.BF16, True, "FLASH_ATTN", GraphMode.FULL, False),
        ("0.28.0", "ada", DType.FP8, True, "FLASHINFER", GraphMode.PIECEWISE, True),
        ("0.33.0", "ada", DType.FP8, True, "FLASHINFER", GraphMode.FULL, True),
        ("", "ampere-consumer", DType.FP8, True, "FLASHINFER", GraphMode.FULL, True),
        ("0.24.0", "blackwell-consumer", DType.FP8, True, "FLASHINFER", GraphMode.PIECEWISE, True),
        ("0.28.0", "blackwell-consumer", DType.FP8, True, "FLASHINFER", GraphMode.FULL, False),
        ("0.24.0", "hopper", DType.FP8, True, "FLASH_ATTN", GraphMode.FULL, False),
        ("0.24.0", "blackwell", DType.BF16, True, "FLASHINFER", GraphMode.FULL, False),
    ],
)
def test_what_vllm_picks(  # noqa: PLR0917
    version: str,
    generation: str,
    kv: DType,
    several: bool,
    backend: str,
    graph: GraphMode,
    waits: bool,
) -> None:
    path = execution_paths().of(
        serving("vllm", version, generation, kv), AttentionKind.GROUPED, several=several
    )
    assert path is not None
    assert (path.backend, path.graph, path.waits) == (backend, graph, waits)


def test_chunked_layers_leave_the_full_graph_in_every_pass() -> None:
    """chunked_local_attention.py: its builder's CUDA graph support is NEVER."""
    paths = [
        execution_paths().of(
            serving("vllm", version, "hopper", DType.BF16), AttentionKind.CHUNKED, several=several
        )
        for version in ("0.24.0", "0.33.0")
        for several in (False, True)
    ]
    assert all(path is not None and path.graph is GraphMode.PIECEWISE for path in paths)


def test_what_kind_of_attention_layers_have() -> None:
    """By the configs: gpt-oss alternates 128-token windows, Scout has chunks in 36 of 48."""
    assert set(attention_kinds(load_model("gpt-oss-20b"))) == {
        AttentionKind.WINDOWED,
        AttentionKind.GROUPED,
    }
    scout = attention_kinds(load_model("llama-4-scout-17b-16e-instruct"))
    assert (scout.count(AttentionKind.CHUNKED), len(scout)) == (36, 48)
    assert set(attention_kinds(load_model("deepseek-v3"))) == {AttentionKind.LATENT}
    assert AttentionKind.SPARSE in attention_kinds(load_model("deepseek-v3.2"))
    assert AttentionKind.STATE in attention_kinds(load_model("qwen3-next-80b-a3b-instruct"))


def test_most_decode_time_rests_on_a_source_or_a_measurement() -> None:
    assert cited_share() >= 0.8


def deployed(gpu: str, engine: str, kv: str | None = None, **more: object) -> Deployment:
    given = {"model": LLAMA, "drafter": "eagle3"} | more
    dtype = None if kv is None else DType(kv)
    return deploy(Configuration(gpu=gpu, engine=engine, kv=dtype, **given))[0]  # type: ignore[arg-type]


def steps(deployment: Deployment, batch: int = 1, context: int = 450) -> tuple[float, float]:
    """Return the plain step and that of D = 5 [s]."""
    times = deployment.price(deployment.grid((batch,), (context,), (0, 5))).times.total[0, 0]
    return float(times[0]), float(times[1])


@pytest.mark.parametrize("gpu", ["a100-sxm-80gb", "rtx-3090", "l40s"])
def test_an_fp8_cache_makes_a_step_with_drafts_dearer_where_the_engine_leaves_its_graph(
    gpu: str,
) -> None:
    """Measured on an A100: 22.3 ms against 13.95, and 0.7 ms more for a plain step (vLLM 0.24).

    Manojarulmurugan, SpecDecoding-Study-vLLM-SGLang, phase 3; the other parts have the same path.
    """
    wide, narrow = (steps(deployed(gpu, "vllm==0.24", kv)) for kv in (None, "fp8"))
    now = steps(deployed(gpu, "vllm", "fp8"))
    assert narrow[0] - wide[0] < 1e-3
    assert narrow[1] - wide[1] > 5e-3
    assert now[1] < narrow[1] - 3e-3
    if gpu.startswith("a100"):
        assert narrow[1] >= 1.4 * wide[1]


def test_an_fp8_cache_costs_nothing_where_the_engine_has_a_kernel_for_it() -> None:
    for gpu in ("h100-sxm", "b200-hgx"):
        wide, narrow = (steps(deployed(gpu, "vllm==0.24", kv)) for kv in (None, "fp8"))
        assert narrow[1] < 1.05 * wide[1]


def test_what_a_user_states_wins_over_the_registry() -> None:
    registry = deployed("a100-sxm-80gb", "vllm==0.24", "fp8").engine.overhead
    own = deployed("a100-sxm-80gb", "vllm==0.24", "fp8", overhead_ms=(0.5, 0.7, 0.15))
    assert own.engine.overhead.per_spec_round == 0.7e-3 < registry.per_spec_round
    asked = deployed("a100-sxm-80gb", "vllm", verify_attention=VerifyAttention.KV_ONCE)
    read = deployed("a100-sxm-80gb", "vllm")
    assert asked.target.placement.verify_attention is VerifyAttention.KV_ONCE
    assert read.target.placement.verify_attention is VerifyAttention.HEAD_TILE


def test_one_row_of_a_window_has_a_block_for_every_query_head() -> None:
    """FlashAttention 2 packs the heads of a group into a tile only over a whole context.

    gpt-oss-20b, 64 query and 8 KV heads, windows of 128 in every other layer: by hand 8 blocks for
    each cache of a windowed layer, and of either layer with two rows (flash_api.cpp,
    mha_varlen_fwd: seqlenq_ngroups_swapped).
    """
    target = deployed("l40s", "vllm", model="gpt-oss-20b").target
    for rows, whole, windowed in ((1.0, 0.0, 8.0), (2.0, 8.0, 8.0), (65.0, 16.0, 16.0)):
        ops = decode(
            target.model,
            target.precision,
            target.placement,
            batch=np.array(4.0),
            context=np.array(4096.0),
            rows=np.array(rows),
        )
        blocks = {op.name: op.shape.blocks for op in ops if isinstance(op.shape, AttentionShape)}
        assert blocks == {"attention": whole, "sliding_attention": windowed}
        # useful work is that of the rows; what is computed fills tiles of 64
        padding = next(op.padding for op in ops if op.name == "attention")
        assert padding == pytest.approx(64 * np.ceil(rows / 64) / rows if rows > 1 else 1)


@pytest.mark.parametrize(
    ("engine", "code"),
    [("vllm==0.24", Code.OUTSIDE_GRAPH), ("vllm", Code.HOST_WAITS), ("sglang", None)],
)
def test_the_answer_names_the_path_where_it_costs(engine: str, code: Code | None) -> None:
    configuration = Configuration(
        model=LLAMA, gpu="rtx-4090", engine=engine, drafter="eagle3", kv=DType.FP8
    )
    codes = {notice.code for notice in deploy(configuration)[1]}
    assert codes & {Code.OUTSIDE_GRAPH, Code.HOST_WAITS} == ({code} if code else set())


# vllm/config/vllm.py _set_cudagraph_sizes: 1,024 on capability 10.x since 0.28, 512 in 0.24 and
# 0.26; models/config.py GptOssForCausalLMConfig: 1,024 everywhere.
@pytest.mark.parametrize(
    ("model", "gpu", "engine", "largest"),
    [
        ("qwen3-8b", "b200-hgx", "vllm", 1024),
        ("qwen3-8b", "gb300", "vllm==0.28", 1024),
        ("qwen3-8b", "b200-hgx", "vllm==0.24", 512),
        ("qwen3-8b", "h100-sxm", "vllm", 512),
        ("qwen3-8b", "rtx-5090", "vllm", 512),
        ("gpt-oss-20b", "h100-sxm", "vllm", 1024),
    ],
)
def test_rows_that_vllm_captures(model: str, gpu: str, engine: str, largest: int) -> None:
    deployment, _ = deploy(Configuration(model=model, gpu=gpu, engine=engine, drafter="ngram"))
    graphs = deployment.engine.graphs
    assert graphs is not None
    assert graphs.largest == largest
    assert replace_most(graphs, 256) == 256


def replace_most(graphs: object, most: int) -> int:
    """Return the rows captured where a pass has at most so many (max_num_batched_tokens)."""
    limited = graphs.model_copy(update={"most_tokens": most})  # type: ignore[attr-defined]
    return int(limited.largest)


def test_a_users_own_number_of_captured_rows_wins() -> None:
    configuration = Configuration(
        model="qwen3-8b",
        gpu="b200-hgx",
        drafter="ngram",
        overrides=(parse_override("engine.graphs.up_to=2048"),),
    )
    graphs = deploy(configuration)[0].engine.graphs
    assert graphs is not None
    assert graphs.largest == 2048


def test_a_release_is_kept_and_an_era_ends_with_its_last_version() -> None:
    assert load_engine("vllm==0.24").runs_version == "0.24"
    assert load_engine("vllm==0.10").runs_version == "0.11"
    assert not load_engine("vllm").runs_version


@pytest.mark.parametrize("model", ["qwen2.5-7b", LLAMA])
def test_flash_attention_2_pads_the_rows_of_every_head_once_it_verifies(model: str) -> None:
    """flash_fwd_launch_template.h: kBlockM = 64 rows of a query head; one row shares its block."""
    deployment = deployed("a100-sxm-80gb", "vllm", model=model)
    times = deployment.price(deployment.grid((8,), (2048,), (0, 1, 5, 31))).times
    attention = next(t for t in times.verify_ops if t.op.name == "attention")
    flops = np.ravel(attention.op.computed_flops)
    assert flops[1:] == pytest.approx(64 * flops[0])
    assert np.ravel(attention.op.flops) == pytest.approx(flops[0] * np.array([1, 2, 6, 32]))


def test_equal_work_of_a_verify_pass_takes_about_as_long_until_blocks_run_out() -> None:
    """qwen3-32b on two L40S, three rows of 32,768 tokens in all, by hand from the tables' rows.

    64 and 8 sequences fill the 142 SMs with 64-row blocks at 18 to 22 ns a key and 4 us a block:
    64 x 32 blocks of 512 keys are 15 waves of 4 + 7.5 us; 8 x 32 of 4,096 two waves of 77 us. One
    sequence has 32 blocks for them, each 32,768 keys in turn: 604.8 us measured for one head.
    """
    deployment = deployed("l40s", "vllm", model="qwen3-32b", tp=2)

    def microseconds(batch: int, context: int) -> float:
        times = deployment.price(deployment.grid((batch,), (context,), (0, 2))).times
        attention = next(t for t in times.verify_ops if t.op.name == "attention")
        return 1e6 * float(np.ravel(attention.each)[1])

    assert microseconds(64, 512) == pytest.approx(15 * (4 + 7.5), rel=0.2)
    assert microseconds(8, 4096) == pytest.approx(2 * 77, rel=0.2)
    assert microseconds(1, 32768) == pytest.approx(604.8, rel=0.2)


def test_several_rows_of_a_state_take_turns_in_sglang() -> None:
    """By hand: 48 layers, q turns of 12 us, and (3 + q) states of 1.57 MB at 0.9 TB/s.

    Qwen3.6-27B has 48 value heads of 128 x 128 in fp32, half of them on each of two cards.
    """
    configuration = Configuration(
        model="qwen3.6-27b", gpu="a100-sxm-80gb", tp=2, engine="sglang", drafter="ngram"
    )
    deployment = deploy(configuration)[0]
    times = deployment.price(deployment.grid((32,), (1500,), (0, 7))).times
    update = next(t for t in times.verify_ops if t.op.name == "delta_rule")
    state = 24 * 128 * 128 * 4
    assert float(np.ravel(update.op.bytes)[1]) == 32 * state * (3 + 8)
    by_hand = 8 * 12e-6 + 32 * state * 11 / 0.9e12
    assert float(np.ravel(update.time.total)[1] - update.time.floor) == pytest.approx(by_hand)
    replayed = replace(deployment.target.placement, state_handling=StateHandling.REPLAY)
    other = replace(deployment, target=deployment.target._replace(placement=replayed))
    kept = other.price(deployment.grid((32,), (1500,), (0, 7))).times.total[0, 0]
    assert kept[1] < times.total[0, 0, 1]


@pytest.mark.parametrize("model", ["deepseek-v3.2", "glm-5", "minimax-m3", "deepseek-v4-flash"])
@pytest.mark.parametrize("gpu", ["b200-hgx", "h200-sxm"])
def test_sparse_attention_stays_within_the_bandwidth(model: str, gpu: str) -> None:
    """Every row gathers its own entries: the bytes counted are the bytes priced, at every D."""
    configuration = Configuration(model=model, gpu=gpu, tp=8, drafter="ngram")
    deployment = deploy(configuration)[0]
    times = deployment.price(deployment.grid((1, 128), (4096, 32768), (0, 1, 3, 7))).times
    for time in times.verify_ops:
        if time.op.name.endswith("attention") or time.op.name == "indexer":
            used = time.op.bytes / np.asarray(time.each) / deployment.gpu.bandwidth
            assert np.max(used) <= 1.0, time.op.name


A100_FP8 = {
    "model": "llama-3.1-8b",
    "gpu": "a100-sxm-80gb",
    "kv": DType.FP8,
    "acceptance": "0.8",
    "batches": (32,),
    "contexts": (4096,),
}


@pytest.mark.parametrize(
    ("engine", "jumps"),
    [("vllm==0.24", True), ("vllm", True), ("sglang", True), ("trtllm", False)],
)
def test_more_warps_convert_an_fp8_cache_in_flashinfer_alone(engine: str, *, jumps: bool) -> None:
    """4 heads share a KV head: 16 rows with three drafts, and 20 with four, by four warps.

    FlashInfer, attention/prefill.cuh; its decode wrapper runs that kernel too (decode.py). 24 rows
    took 1.9 times as long as with a cache of 16 bits in vLLM 0.24 (SpecDecoding-Study).
    """
    answer = recommend(question_of(**A100_FP8, engine=engine))
    (point,) = answer.points
    factors = point.verify[1:] / point.verify[:-1]
    assert [d + 1 for d in np.flatnonzero(factors > 1.5)] == ([4] if jumps else [])
    found = [n for n in answer.notices if n.code is Code.KV_CONVERTED_BY_WARPS]
    assert [n.values["length"] for n in found] == ([4] if jumps else [])
    for each in found:
        assert each.values["factor"] == pytest.approx(factors[3])
        assert "at D = 4 a verify pass takes 2." in sentence(each)


def test_a_cache_that_trtllm_converts_widens_the_range() -> None:
    """Nobody has published how XQA converts it, so that it is converted once is assumed."""
    assumed, stated = (
        recommend(question_of(**A100_FP8, engine="trtllm", **more)).points[0]
        for more in ({}, {"verify_attention": VerifyAttention.KV_ONCE})
    )
    assert assumed.low[3] < stated.low[3] < stated.high[3] < assumed.high[3]


@pytest.mark.parametrize(
    ("gpu", "kv", "said"),
    [
        ("a100-sxm-80gb", DType.FP8, True),
        ("rtx-3090", DType.FP8, True),
        ("a100-sxm-80gb", None, False),
        ("h100-sxm", DType.FP8, False),
        ("l40s", DType.FP8, False),
    ],
)
def test_an_fp8_cache_that_saves_no_time_is_said(gpu: str, kv: DType | None, *, said: bool) -> None:
    """Ampere multiplies no FP8: 14.8 ms with it and 14.5 without (SpecDecoding-Study, A100)."""
    asked = A100_FP8 | {"gpu": gpu, "kv": kv, "batches": (4,)}
    answer = recommend(question_of(**asked))
    found = [n for n in answer.notices if n.code is Code.KV_SAVES_NO_TIME]
    assert len(found) == said
    for each in found:
        assert each.values["own_ms"] == pytest.approx(each.values["wide_ms"], rel=0.02)
        assert "fp8 KV saves memory, not time" in sentence(each)
