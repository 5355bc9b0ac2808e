"""NumPy on a CPU, in fp32: the kernels of a decoder and the clock that times them."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.calibrate.measure.backend import Status, Timed
from roofline.calibrate.measure.cases import Menu

__all__ = [
    "KERNELS",
    "NumpyBackend",
    "cache_bytes",
    "cpu_facts",
    "machine_load",
    "run_experts",
    "thread_clock",
    "time_calls",
]

Array = NDArray[np.float32]
Activation = Callable[[Array], Array]
KERNELS = ("sorted", "padded")  # of experts
TILE = 32  # query rows that the attention kernel called "tile" pads to
POOL_BYTES = 2**28
FEWEST = 3  # samples


def run_experts(  # noqa: PLR0917
    x: Array, choice: NDArray[np.intp], up: Array, down: Array, activation: Activation, kernel: str
) -> Array:
    """Return the mean of each row's chosen experts.

    ``sorted``: one product for each awake expert on its own rows. ``padded``: one batched product
    over the awake experts, each padded to the rows of the busiest; their weights are gathered
    unless all are awake. x (tokens, hidden), choice (tokens, top k), up (experts, inner, hidden),
    down (experts, hidden, width).
    """
    tokens, top_k = choice.shape
    order = np.argsort(choice, axis=None, kind="stable")
    count = np.bincount(choice.ravel(), minlength=len(up))
    rows = x[order // top_k]
    by_expert = (_padded if kernel == "padded" else _sorted)(rows, count, up, down, activation)
    out = np.empty_like(by_expert)
    out[order] = by_expert
    return np.asarray(out.reshape(tokens, top_k, -1).mean(axis=1))


def _sorted(
    rows: Array,
    count: NDArray[np.intp],
    up: Array,
    down: Array,
    activation: Activation,
) -> Array:
    out = np.empty((len(rows), down.shape[1]), dtype=rows.dtype)
    end = 0
    for expert in np.flatnonzero(count):
        start, end = end, end + int(count[expert])
        inner = activation(rows[start:end] @ up[expert].T)
        np.matmul(inner, down[expert].T, out=out[start:end])
    return out


def _padded(
    rows: Array,
    count: NDArray[np.intp],
    up: Array,
    down: Array,
    activation: Activation,
) -> Array:
    awake = np.flatnonzero(count)
    place = np.repeat(np.arange(len(awake)), count[awake])
    slot = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
    boxes = np.zeros((len(awake), int(count.max()), rows.shape[1]), dtype=rows.dtype)
    boxes[place, slot] = rows
    if len(awake) < len(up):
        up, down = up[awake], down[awake]
    inner = activation(np.matmul(boxes, up.swapaxes(1, 2)))
    return np.asarray(np.matmul(inner, down.swapaxes(1, 2))[place, slot])


def cache_bytes() -> int:
    """Return the size of the last-level cache [B], 32 MiB where the system does not say."""
    file = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
    try:
        text = file.read_text("ascii").strip()
    except OSError:
        return 32 * 2**20
    return int(text[:-1]) * {"K": 2**10, "M": 2**20}.get(text[-1], 1)


def cpu_facts() -> dict[str, Any]:
    """Return the processor's name, its cores and the memory of the machine [B]."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        name = next(
            line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        pass
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        memory = 0
    return {
        "device": f"{name}, {os.cpu_count()} cores",
        "memory": memory,
        "cache": cache_bytes(),
        "python": platform.python_version(),
        "system": platform.platform(),
    }


def machine_load() -> str:
    """Return the load of the machine, empty where the system does not say."""
    try:
        return f"load {os.getloadavg()[0]:.2f}"
    except (OSError, AttributeError):
        return ""


def thread_clock(threads: int) -> tuple[Callable[[], float], str]:
    """Return the clock for a kernel on so many threads, and its name.

    One thread: the time the core spent on it, which other processes do not stretch. Several: wall
    time, since the caller's own clock would miss the others.
    """
    return (time.thread_time, "cpu") if threads == 1 else (time.perf_counter, "wall")


def time_calls(call: Callable[[int], Any], *, repeats: int, seconds: float, threads: int) -> Timed:
    """Time calls one by one after two to warm up; at least three."""
    clock, name = thread_clock(threads)
    call(0)
    call(1)
    samples: list[float] = []
    begin, begin_cpu = time.perf_counter(), time.thread_time()
    for i in range(repeats):
        start = clock()
        call(i + 2)
        samples.append(clock() - start)
        if len(samples) >= FEWEST and time.perf_counter() - begin > seconds:
            break
    wall, cpu = time.perf_counter() - begin, time.thread_time() - begin_cpu
    waited = max(wall / max(cpu, 1e-9) - 1, 0.0) if threads == 1 else 0.0
    return tuple(samples), name, waited


class NumpyBackend:
    """NumPy and the BLAS behind it."""

    name = "numpy"

    def __init__(self, *, threads: int = 1, pool_bytes: int = POOL_BYTES) -> None:
        self._threads = threads
        self._pool_bytes = pool_bytes

    @cached_property
    def _pool(self) -> Array:
        """Random values that every operand is a window of; never zeros."""
        draw = np.random.default_rng(0)
        block = draw.random(2**22, dtype=np.float32) - np.float32(0.5)
        return np.tile(block, max(-(-self._pool_bytes // block.nbytes), 1))

    def facts(self) -> dict[str, Any]:
        """Return the processor, and NumPy with its BLAS."""
        blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return cpu_facts() | {
            "kind": "cpu",
            "library": f"NumPy {np.__version__}, {blas['name']} {blas['version']}",
            "threads": self._threads,
        }

    def menu(self) -> Menu:
        """Return fp32, and the three ways to read a cache."""
        return Menu(
            base="fp32",
            products=("fp32",),
            caches=("fp32",),
            attention=("packed", "per_query", "tile"),
            experts=tuple(("fp32", kernel) for kernel in KERNELS),
            large=False,
        )

    def operand(self, shape: tuple[int, ...], dtype: str, index: int) -> Array:
        """Return a window of the pool."""
        assert dtype == "fp32", dtype
        count = int(np.prod(shape))
        if count > self._pool.size:
            self._pool_bytes = 4 * count
            del self._pool
        start = index * count % (self._pool.size - count + 1)
        return self._pool[start : start + count].reshape(shape)

    def copy(self, array: Array) -> Array:
        """Return a copy."""
        return array.copy()

    def cold_copies(self, count: int, dtype: str) -> int:  # noqa: ARG002
        """Return how many windows together are over twice the cache."""
        wanted = int(np.ceil(2 * cache_bytes() / (4 * count))) + 1
        return max(min(wanted, self._pool.size // count), 1)

    def packed(self, matrix: Array, dtype: str) -> Array:  # noqa: ARG002
        """Return the matrix: it is taken as it lies."""
        return matrix

    def linear(self, x: Array, weight: Array, dtype: str) -> Array:  # noqa: ARG002
        """Return x times the transposed weight."""
        return np.asarray(np.matmul(x, weight.T))

    def embedding(self, table: Array, ids: NDArray[np.intp]) -> Array:
        """Return the rows of the table."""
        return np.asarray(table[ids])

    def norm(self, x: Array, residual: Array, gain: Array) -> tuple[Array, Array]:
        """Return the normalised sum of both, and the sum."""
        total = x + residual
        return self._scaled(total, gain), total

    def qk_norm(self, heads: Array, gain: Array) -> Array:
        """Return each head normalised."""
        return self._scaled(heads, gain)

    def _scaled(self, x: Array, gain: Array) -> Array:
        square = np.einsum("...i,...i->...", x, x)[..., None]
        scale = 1 / np.sqrt(square / np.float32(x.shape[-1]) + np.float32(1e-6))
        return np.asarray(x * scale * gain)

    def rope_write(self, qkv: Array, cache: Any, angles: Any, sizes: dict[str, int]) -> Array:
        """Rotate queries and keys, write keys and values, return packed queries."""
        batch, q, head = sizes["batch"], sizes["q"], sizes["head_dim"]
        heads, kv_heads, end = sizes["heads"], sizes["kv_heads"], sizes["context"]
        rows = qkv.reshape(batch, q, heads + 2 * kv_heads, head)
        half, (cos, sin) = head // 2, angles
        turned = np.empty((batch, q, heads + kv_heads, head), dtype=np.float32)
        low, high = rows[:, :, : heads + kv_heads, :half], rows[:, :, : heads + kv_heads, half:]
        turned[..., :half] = low * cos - high * sin
        turned[..., half:] = high * cos + low * sin
        cache[0][:, :, end - q : end] = turned[:, :, heads:].swapaxes(1, 2)
        cache[1][:, :, end - q : end] = rows[:, :, heads + kv_heads :].swapaxes(1, 2)
        packed = turned[:, :, :heads].reshape(batch, q, kv_heads, -1, head)
        return packed.transpose(0, 2, 3, 1, 4).reshape(batch, kv_heads, -1, head)

    def attention(
        self, queries: Array, keys: Array, values: Array, *, q: int, kernel: str
    ) -> Array:
        """Return attention: all rows over the cache once, row by row, or in whole tiles."""
        batch, kv_heads, rows, head = queries.shape
        split = queries.reshape(batch, kv_heads, rows // q, q, head)
        if kernel == "per_query":
            length = keys.shape[2]
            parts = [
                _attend(
                    split[:, :, :, i],
                    keys[:, :, : length - q + i + 1],
                    values[:, :, : length - q + i + 1],
                    1,
                )
                for i in range(q)
            ]
            out = np.stack(parts, axis=3)
        else:
            padded = queries
            if kernel == "tile" and rows % TILE:
                padded = np.resize(queries, (batch, kv_heads, -(-rows // TILE) * TILE, head))
                padded[:, :, :rows] = queries
            out = _attend(padded, keys, values, q)[:, :, :rows].reshape(split.shape)
        return out.transpose(0, 3, 1, 2, 4).reshape(batch * q, -1)

    def activation(self, gate_up: Array) -> Array:
        """Return silu of the first half times the second."""
        half = gate_up.shape[-1] // 2
        gate = gate_up[..., :half]
        return np.asarray(gate / (1 + np.exp(-gate)) * gate_up[..., half:])

    def sampling(self, logits: Array) -> NDArray[np.intp]:
        """Return the most likely token of each row."""
        return np.asarray(logits.argmax(axis=1))

    def top_k(self, logits: Array, count: int) -> NDArray[np.intp]:
        """Return the ``count`` highest of each row, after a softmax over all."""
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        return np.asarray(np.argpartition(shares, -count, axis=1)[:, -count:])

    def indices(self, array: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the numbers as they are."""
        return array

    def experts(
        self, x: Array, choice: NDArray[np.intp], up: Array, down: Array, *, kernel: str
    ) -> Array:
        """Return the mean of the chosen experts of each row."""
        return run_experts(x, choice, up, down, self.activation, kernel)

    def ids(self, count: int, below: int) -> NDArray[np.intp]:
        """Return random whole numbers."""
        return np.random.default_rng(1).integers(0, below, count)

    def extra(self, op: str, count: int, index: int) -> Callable[[], Any]:
        """Return a copy, a read (a product with a vector) or an addition of one number."""
        if op == "copy":
            source = self.operand((count // 2,), "fp32", index)
            target = np.ones(count // 2, dtype=np.float32)

            def copy_twice() -> None:
                np.copyto(target, source)
                np.copyto(target, source)

            return copy_twice
        if op == "read":
            matrix = self.operand((count // 4096, 4096), "fp32", index)
            vector = self.operand((4096,), "fp32", 7)
            return lambda: matrix @ vector
        one = self.operand((1,), "fp32", index)
        return lambda: one + one

    def to_float64(self, array: Any) -> NDArray[np.float64]:
        """Return a copy in fp64."""
        return np.asarray(array, dtype=np.float64)

    def time(
        self,
        call: Callable[[int], Any],
        *,
        repeats: int,
        seconds: float,
        graph: bool = True,  # noqa: ARG002
    ) -> Timed:
        """Time calls with rising index."""
        return time_calls(call, repeats=repeats, seconds=seconds, threads=self._threads)

    def state(self) -> str:
        """Return the load of the machine."""
        return machine_load()

    def failure(self, error: BaseException) -> Status | None:
        """Return the status of an expected failure."""
        return Status.OOM if isinstance(error, MemoryError) else None


def _attend(queries: Array, keys: Array, values: Array, q: int) -> Array:
    """Return softmax attention; the q rows of a head lie together, each blind to later tokens."""
    scores = np.matmul(queries * np.float32(queries.shape[-1] ** -0.5), keys.swapaxes(2, 3))
    if q > 1:
        late = np.triu(np.full((q, q), -np.inf, dtype=np.float32), 1)
        scores[..., -q:] += np.resize(late, (scores.shape[2], q))
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return np.asarray(np.matmul(scores, values))
