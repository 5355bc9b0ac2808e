"""Families of kernels: the time that a law, and the textbook roofline, predict for measured rows.

A row times one call that a benchmark repeats, so that small weights, caches and states lie in L2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.calibrate.fit.core import Columns, Label
from roofline.calibrate.fit.tiles import product_scored, product_seconds, product_textbook
from roofline.kernels.ops import AttentionShape, CollectiveShape, MoeShape
from roofline.specs.formats import DType, bytes_per_element
from roofline.specs.gpu import HardwareProfile
from roofline.specs.laws import AttentionLaw, CollectiveLaw, MoeLaw, StateLaw
from roofline.timing.laws.attention import attention_time
from roofline.timing.laws.moe import moe_time
from roofline.timing.laws.simple import Device, collective_time, state_time
from roofline.timing.machine import device_of

__all__ = [
    "EXPERT_FORMATS",
    "FAMILIES",
    "KV_BYTES",
    "ExpertFormat",
    "KernelFamily",
    "attention_shape",
    "by_ranks",
    "call_seconds",
    "expert_device",
    "expert_shape",
    "latent_shape",
    "link_bandwidth",
    "state_seconds",
]

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelFamily:
    """How the rows of one kind of kernel are predicted and scored. Times in s."""

    seconds: Callable[[Columns, Label, Any, HardwareProfile], Array]  # by a law
    textbook: Callable[[Columns, Label, HardwareProfile], Array]  # by datasheet figures
    scored: Callable[[Columns], NDArray[np.bool_]]  # the rows that count when a law is scored


def _all_rows(columns: Columns) -> NDArray[np.bool_]:
    return np.ones(len(next(iter(columns.values()))), dtype=bool)


KV_BYTES = {"bf16": 2.0, "fp8": 1.0}  # of a cached element [B], by a block's dtype
#: The attention law is scored on groups up to this size.
MAX_GROUP = 32


#: FlashAttention 2, which gives a query head blocks of its own, 64 rows each over the whole cache,
#: unless a sequence has one row, a whole context and fewer KV heads (vllm-project/flash-attention
#: 617264c1, csrc/flash_attn/flash_api.cpp, mha_varlen_fwd; the tables time one row).
HEAD_TILED = ("vllm_flash_attn", "vllm_flash_attn_fa2")
TILE = 64


def attention_shape(columns: Columns, label: Label) -> AttentionShape:
    """Return batch, KV heads, query heads for each, tokens cached and window as a shape."""
    context, window, group = columns["context"], columns["window"], columns["group"]
    width = 2 * label["head_dim"]  # keys and values
    alone = (window > 0) | (group == 1) if label["kernel"] in HEAD_TILED else np.zeros_like(group)
    return AttentionShape(
        pairs=columns["batch"] * columns["kv_heads"],
        rows=columns["group"],
        length=np.where(window > 0, np.minimum(context, window), context),
        context=context,
        kv_width=width,
        mac_width=width,
        kv=KV_BYTES[label["dtype"]],
        work=np.where(alone, TILE * group, 0),
        blocks=np.where(alone, group, 0),
    )


KEY_WIDTH, VALUE_WIDTH = 576, 512  # the latent with its rotary part, and what of it is the value


def latent_shape(columns: Columns, label: Label) -> AttentionShape:
    """Return absorbed MLA as a shape: one latent per cached token, read by all heads."""
    return AttentionShape(
        pairs=columns["batch"],
        rows=columns["heads"],
        length=columns["context"],
        context=columns["context"],
        kv_width=KEY_WIDTH,
        mac_width=KEY_WIDTH + VALUE_WIDTH,
        kv=KV_BYTES[label["dtype"]],
    )


def call_seconds(shape: AttentionShape, law: AttentionLaw, gpu: HardwareProfile) -> Array:
    """Predict attention calls of a benchmark that repeats them: a small cache is in L2 [s]."""
    device = device_of(gpu, "fp8" if law.fp8_math else "bf16")
    return np.asarray(attention_time(shape, device, law, warm=True).total)


def _attention_textbook(shape: AttentionShape, gpu: HardwareProfile) -> Array:
    """Return max(bytes / bandwidth, FLOP / bf16 peak): the cache once, Q and O in two bytes [s]."""
    pairs, rows, length = (np.asarray(x) for x in (shape.pairs, shape.rows, shape.length))
    moved = pairs * (length * shape.kv_width * shape.kv + 2 * rows * shape.mac_width)
    flops = 2 * pairs * rows * length * shape.mac_width
    return np.asarray(np.maximum(moved / gpu.bandwidth, flops / gpu.peak("bf16")))


@dataclass(frozen=True, slots=True)
class ExpertFormat:
    """How experts' weights are stored, and the peak their products run at."""

    storage: DType
    rate: str


#: By the dtype of a law's block.
EXPERT_FORMATS = {
    "bf16": ExpertFormat(DType.BF16, "bf16"),
    "fp8": ExpertFormat(DType.FP8, "fp8"),
    "fp8-block": ExpertFormat(DType.FP8_BLOCK, "fp8"),
    "int4-wo": ExpertFormat(DType.INT4_G128, "bf16"),
    "nvfp4": ExpertFormat(DType.NVFP4, "fp4"),
    "mxfp4-wo": ExpertFormat(DType.MXFP4, "bf16"),
    "mxfp4": ExpertFormat(DType.MXFP4, "fp8"),
}


def expert_shape(columns: Columns, label: Label) -> MoeShape:
    """Return each row's shape as the law of routed experts takes it."""
    fields = {name: column for name, column in columns.items() if name not in ("alpha", "resident")}
    return MoeShape(**fields, weight=bytes_per_element(EXPERT_FORMATS[label["dtype"]].storage))


def expert_device(label: Label, gpu: HardwareProfile) -> Device:
    """Return the datasheet figures at the rate of a block's format."""
    return device_of(gpu, EXPERT_FORMATS[label["dtype"]].rate)


def _expert_seconds(columns: Columns, label: Label, law: MoeLaw, gpu: HardwareProfile) -> Array:
    shape, device = expert_shape(columns, label), expert_device(label, gpu)
    return np.asarray(moe_time(shape, device, law, resident=columns["resident"]).total)


def _expert_textbook(columns: Columns, label: Label, gpu: HardwareProfile) -> Array:
    """Return max(bytes / bandwidth, FLOP / peak): awake experts' weights, tokens in and out [s]."""
    shape, device = expert_shape(columns, label), expert_device(label, gpu)
    size = shape.matrices * shape.hidden * shape.width
    moved = shape.distinct * size * shape.weight + 4 * shape.tokens * shape.hidden
    return np.maximum(moved / device.bandwidth, 2 * size * shape.rows / device.peak)


def by_ranks(columns: Columns) -> Iterator[tuple[int, NDArray[np.bool_]]]:
    """Yield each number of GPUs and the mask of its rows."""
    for ranks in np.unique(columns["ranks"]):
        yield int(ranks), columns["ranks"] == ranks


def link_bandwidth(gpu: HardwareProfile) -> float:
    """Return what one GPU sends over its link [B/s]."""
    return gpu.interconnect.per_direction.value


def _collective_seconds(
    columns: Columns,
    label: Label,  # noqa: ARG001
    law: CollectiveLaw,
    gpu: HardwareProfile,
) -> Array:
    """Predict an all-reduce inside a CUDA graph [s]."""
    device = device_of(gpu, "bf16")
    predicted = np.empty_like(columns["payload"])
    for ranks, rows in by_ranks(columns):
        shape = CollectiveShape(payload=columns["payload"][rows], ranks=ranks)
        predicted[rows] = collective_time(shape, device, law).total
    return predicted


def _collective_textbook(columns: Columns, label: Label, gpu: HardwareProfile) -> Array:  # noqa: ARG001
    """Return the ring's bound, 2 (n - 1) / n bytes over the link's bandwidth [s]."""
    ranks = columns["ranks"]
    return np.asarray(2 * (ranks - 1) / ranks * columns["payload"] / link_bandwidth(gpu))


def state_seconds(columns: Columns, law: StateLaw, gpu: HardwareProfile) -> Array:
    """Predict a step of the benchmark, which finds a small recurrent state in L2 [s]."""
    time = state_time(
        moved=columns["moved"],
        device=device_of(gpu, "bf16"),
        law=law,
        resident=columns["resident"],
    )
    return np.asarray(time.total)


#: By the kind of a law's block.
FAMILIES = {
    "gemm": KernelFamily(seconds=product_seconds, textbook=product_textbook, scored=product_scored),
    "attention": KernelFamily(
        seconds=lambda columns, label, law, gpu: call_seconds(
            attention_shape(columns, label), law, gpu
        ),
        textbook=lambda columns, label, gpu: _attention_textbook(
            attention_shape(columns, label), gpu
        ),
        scored=lambda columns: np.asarray(columns["group"] <= MAX_GROUP),
    ),
    "mla": KernelFamily(
        seconds=lambda columns, label, law, gpu: call_seconds(
            latent_shape(columns, label), law, gpu
        ),
        textbook=lambda columns, label, gpu: _attention_textbook(latent_shape(columns, label), gpu),
        scored=_all_rows,
    ),
    "moe": KernelFamily(seconds=_expert_seconds, textbook=_expert_textbook, scored=_all_rows),
    "allreduce": KernelFamily(
        seconds=_collective_seconds, textbook=_collective_textbook, scored=_all_rows
    ),
    "ssm": KernelFamily(
        seconds=lambda columns, _, law, gpu: state_seconds(columns, law, gpu),
        # the update is about one FLOP per byte
        textbook=lambda columns, _, gpu: np.asarray(columns["moved"] / gpu.bandwidth),
        scored=_all_rows,
    ),
}
