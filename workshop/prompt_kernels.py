"""``python -m workshop.prompt_kernels``: fit the laws of the kernels that read prompts.

The rows are those of the public tables ``context_attention_perf`` (causal attention of whole
prompts, no window) and ``gdn_perf`` (phase ``context``). A law is fitted by bounded least squares
on log error on four fifths of the shapes (heads and KV heads; of a recurrence, value heads), judged
on the rest. ``roofline/data/prompt_kernels.yaml`` is written anew, but for what stands above
``kernels:``. Prompts below 64 tokens are left out: their time is a launch.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from roofline.base.resources import data_file
from roofline.kernels.attention import PROMPT_TILE
from roofline.specs.gpu import load_hardware
from workshop.tables.parquet import FOLDERS, Table, data_folder, find_tables, kinds, read

__all__ = ["main"]

Array = NDArray[np.float64]
FEWEST = 100  # rows of a block
HEADS = (64, 128, 192, 256)
LOW = (1e-6, 0.05, 0.3, 1.0, 1e-10)
START = (6e-6, 0.6, 0.6, 1.5, 1e-8)
HIGH = (2e-4, 1.0, 1.0, 8.0, 1e-5)
HEADER = "kernels:\n"
SIZES = ("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim")


def main() -> None:
    """Fit every table and write the file."""
    path = data_file("prompt_kernels.yaml")
    text = path.read_text("utf-8").partition(HEADER)[0] + HEADER
    for block in sorted(_blocks(), key=str):
        text += "".join(f"- {block}\n")
    path.write_text(text, "utf-8")  # type: ignore[attr-defined]


def _blocks() -> Iterator[str]:
    for table in find_tables(
        data_folder(), gpus=tuple(FOLDERS), engines=("vllm", "sglang", "trtllm")
    ):
        if table.name == "context_attention_perf":
            yield from _attention(table)
        elif table.name == "gdn_perf":
            yield from _recurrence(table)


def _attention(table: Table) -> Iterator[str]:
    raw = read(
        table, ("kernel_source", "kv_cache_dtype", "latency", *SIZES), optional=("window_size",)
    )
    gpu = load_hardware(table.gpu)
    seconds = np.asarray(raw["latency"], dtype=np.float64) * 1e-3
    window = np.asarray(raw.get("window_size", np.zeros(len(seconds))), dtype=np.float64)
    batch, prompt, heads, kv_heads, width = (np.asarray(raw[n], dtype=np.float64) for n in SIZES)
    flops = 2 * batch * heads * width * prompt * (prompt + PROMPT_TILE)
    moved = 4 * batch * prompt * width * (heads + kv_heads)
    for cache, head_dim, kernel in kinds(raw, ("kv_cache_dtype", "head_dim", "kernel_source")):
        inside = (raw["kv_cache_dtype"] == cache) & (width == float(head_dim)) & (window == 0)
        inside &= (raw["kernel_source"] == kernel) & (prompt >= 64) & (seconds > 0)
        if inside.sum() < FEWEST or int(head_dim) not in HEADS:
            continue
        yield _fitted(
            table,
            str(kernel),
            "attention",
            "fp8" if cache == "fp8" else "bf16",
            int(head_dim),
            flops=flops[inside],
            moved=moved[inside],
            keys=prompt[inside],
            seconds=seconds[inside],
            group=(heads * 1000 + kv_heads)[inside],
            peak=gpu.peak("bf16"),
            bandwidth=gpu.bandwidth,
        )


def _recurrence(table: Table) -> Iterator[str]:
    names = ("kernel_source", "phase", "batch_size", "seq_len", "num_v_heads", "latency")
    raw = read(table, names)
    gpu = load_hardware(table.gpu)
    units = gpu.compute.units.value if gpu.compute.units else 1
    seconds = np.asarray(raw["latency"], dtype=np.float64) * 1e-3
    batch, length, heads = (
        np.asarray(raw[n], dtype=np.float64) for n in ("batch_size", "seq_len", "num_v_heads")
    )
    kernel = np.array([str(word) for word in raw["kernel_source"]])
    chunked = np.char.startswith(kernel, "chunk_") & (raw["phase"] == "context") & (length >= 64)
    if chunked.sum() < FEWEST:
        return
    keys = length * np.maximum(1.0, batch * heads / units)
    width = 128.0  # keys and values of a head: the state and its rows
    yield _fitted(
        table,
        str(kernel[chunked][0]),
        "recurrence",
        "bf16",
        128,
        flops=np.zeros(chunked.sum()),
        moved=(8 * batch * heads * length * width)[chunked],
        keys=keys[chunked],
        seconds=seconds[chunked],
        group=heads[chunked],
        peak=gpu.peak("bf16"),
        bandwidth=gpu.bandwidth,
    )


def _fitted(
    table: Table,
    kernel: str,
    op: str,
    dtype: str,
    head_dim: int,
    *,
    flops: Array,
    moved: Array,
    keys: Array,
    seconds: Array,
    group: Array,
    peak: float,
    bandwidth: float,
) -> str:
    """Return one block as YAML."""
    from scipy.optimize import least_squares

    shapes = np.unique(group)
    held = np.isin(group, shapes[2::5])

    def predicted(x: Array, rows: NDArray[np.bool_]) -> Array:
        floor, compute, memory, power, serial = np.exp(x)
        t_comp, t_mem = flops[rows] / (peak * compute), moved[rows] / (bandwidth * memory)
        body = (t_comp**power + t_mem**power) ** (1 / power)
        return np.asarray(floor + serial * keys[rows] / 64 + body)

    def off(x: Array) -> Array:
        return np.asarray(np.log(predicted(x, ~held) / seconds[~held]))

    best = least_squares(off, np.log(START), bounds=(np.log(LOW), np.log(HIGH)), loss="soft_l1").x
    errors = predicted(best, held) / seconds[held] - 1
    floor, compute, memory, power, serial = np.exp(best)
    law = (
        f"{{floor: {1e6 * floor:.4g} us, serial: {1e9 * serial:.4g} ns, mem_eff: {memory:.4g}, "
        f"compute_eff: {compute:.4g}, overlap: {power:.4g}}}"
    )
    size = np.abs(errors)
    return (
        f"{{gpu: {table.gpu}, engine: {table.engine}, version: '{table.version}', "
        f"kernel: {kernel}, op: {op}, dtype: {dtype}, head_dim: {head_dim},\n   law: {law},\n"
        f"   rows_fitted: {int((~held).sum())}, median_error: {np.median(size):.3f}, "
        f"p90_error: {np.quantile(size, 0.9):.3f}, bias: {np.median(errors):.3f}}}"
    )


if __name__ == "__main__":
    main()
