"""PyTorch on a GPU (CUDA or ROCm) or a CPU: the kernels of a decoder and the clock for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from importlib import metadata
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.base.resources import how_to_install
from roofline.calibrate.measure.backend import CaseError, Status, Timed
from roofline.calibrate.measure.cases import Menu
from roofline.calibrate.measure.numpy_backend import (
    cache_bytes,
    cpu_facts,
    machine_load,
    time_calls,
)
from roofline.calibrate.measure.torch_kernels import (
    attention_kernels,
    expert_kernels,
    run_attention,
    run_experts,
)
from roofline.calibrate.measure.torch_timing import nvidia_smi, time_on_device

__all__ = ["TorchBackend"]

POOL_BYTES = 2**28
PRIMITIVES = 32  # that vLLM keeps of a product, one for each number of rows


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise CaseError(
            Status.UNSUPPORTED, f"PyTorch is not installed: {how_to_install('gpu')}"
        ) from None
    return torch


def _vllm_version() -> str:
    """Return the version of the package that brings vLLM: ``vllm``, or a build for processors."""
    names = metadata.packages_distributions().get("vllm", ["vllm"])
    return metadata.version(names[0])


class TorchBackend:
    """One PyTorch device."""

    name = "torch"

    def __init__(self, *, device: str, threads: int = 1, pool_bytes: int = POOL_BYTES) -> None:
        self._torch = torch = _torch()
        if device == "cuda" and not torch.cuda.is_available():
            raise CaseError(Status.UNSUPPORTED, "PyTorch sees no CUDA or ROCm device")
        self._device, self._gpu, self._threads = device, device == "cuda", threads
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        torch.manual_seed(0)
        self._pool_bytes = max(pool_bytes, 4 * self._cache)
        self._attention_state: dict[Any, Any] = {}

    @cached_property
    def _properties(self) -> Any:
        return self._torch.cuda.get_device_properties(0)

    @cached_property
    def _cache(self) -> int:
        """Size of the cache before memory [B]."""
        if not self._gpu:
            return cache_bytes()
        size = getattr(self._properties, "L2_cache_size", 0)
        return int(size) if size else 64 * 2**20

    def dtype(self, name: str) -> Any:
        """Return PyTorch's type for a format."""
        torch = self._torch
        kinds = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
        if name == "fp8":
            return torch.float8_e4m3fn
        if name not in kinds:
            raise CaseError(Status.UNSUPPORTED, f"no PyTorch type for {name}")
        return kinds[name]

    def facts(self) -> dict[str, Any]:
        """Return the device, its driver, and the library."""
        torch = self._torch
        library = f"torch {torch.__version__}"
        if not self._gpu:
            if self._served_products is not None:
                library += f", products of vLLM {_vllm_version()}"
            return cpu_facts() | {"kind": "cpu", "library": library, "threads": self._threads}
        gpu, version = self._properties, torch.version
        return {
            "kind": "gpu",
            "device": gpu.name,
            "memory": gpu.total_memory,
            "units": gpu.multi_processor_count,
            "cache": self._cache,
            "capability": f"{gpu.major}.{gpu.minor}",
            "devices": torch.cuda.device_count(),
            "library": library,
            "runtime": f"CUDA {version.cuda}" if version.cuda else f"HIP {version.hip}",
            "driver": nvidia_smi("driver_version"),
            "threads": self._threads,
        }

    def menu(self) -> Menu:
        """Return bf16 on a GPU (and fp8 where it multiplies it), fp32 on a CPU."""
        if not self._gpu:
            return Menu(
                base="fp32",
                products=("fp32",),
                caches=("fp32",),
                attention=("packed", "gqa", "per_query"),
                large=False,
                experts=expert_kernels(self._torch, base="fp32", fp8=False),
            )
        capability = (self._properties.major, self._properties.minor)
        narrow = capability >= (8, 9) and hasattr(self._torch, "_scaled_mm")
        hopper = self._properties.major == 9 and bool(self._torch.version.cuda)
        kernels = attention_kernels(self._torch)
        products = ("bf16", "fp8", "int4-wo") if narrow else ("bf16", "int4-wo")
        return Menu(
            base="bf16",
            products=products,
            attention=kernels,
            caches=("bf16", "fp8") if "flashinfer" in kernels and narrow else ("bf16",),
            experts=expert_kernels(self._torch, base="bf16", fp8=hopper),
            graphs=True,
            ranks=self._torch.cuda.device_count(),
        )

    @cached_property
    def _served_products(self) -> Any:
        """The module of vLLM's own products on a processor, None where they are not to be had.

        vLLM's CPU build multiplies fp32 by oneDNN with weights packed beforehand
        (`dispatch_cpu_unquantized_gemm` of 0.32.0), which costs other rows than PyTorch's product.
        """
        if self._gpu or find_spec("vllm") is None:
            return None
        try:
            from vllm import _custom_ops
        except ImportError:
            return None
        return _custom_ops if getattr(_custom_ops, "_supports_onednn", False) else None

    @cached_property
    def _pool(self) -> Any:
        """Random values that every operand is a window of; never zeros."""
        kind = self.dtype("bf16" if self._gpu else "fp32")
        count = self._pool_bytes // (2 if self._gpu else 4)
        pool = self._torch.empty(count, dtype=kind, device=self._device)
        return pool.uniform_(-0.5, 0.5)

    def operand(self, shape: tuple[int, ...], dtype: str, index: int) -> Any:
        """Return a window of the pool, converted where the format is not the pool's."""
        count = int(np.prod(shape))
        if count > self._pool.numel():
            self._pool_bytes = 5 * count if not self._gpu else 3 * count
            del self._pool
        start = index * count % (self._pool.numel() - count + 1)
        start -= start % 64
        window = self._pool[start : start + count].view(shape)
        return window if window.dtype == self.dtype(dtype) else window.to(self.dtype(dtype))

    def copy(self, array: Any) -> Any:
        """Return a copy."""
        return array.clone()

    def cold_copies(self, count: int, dtype: str) -> int:
        """Return how many windows together are over twice the cache."""
        width = {"fp32": 4.0, "fp8": 1.0, "int8-wo": 1.0, "int4-wo": 0.5}.get(dtype, 2.0)
        wanted = int(np.ceil(2 * self._cache / (width * count))) + 1
        return max(min(wanted, int(self._pool.numel()) // count), 1)

    def packed(self, matrix: Any, dtype: str) -> Any:
        """Return a matrix in the form that the product of the format takes."""
        if dtype == "fp8":
            return matrix.to(self.dtype("fp8"))
        if dtype == "int4-wo":
            return self._int4(matrix)
        if self._served_products is not None:
            return self._served_products.create_onednn_mm(matrix.t(), PRIMITIVES)
        return matrix

    def _int4(self, weight: Any) -> Any:
        """Return packed 4-bit weights with a scale and zero for 128 of K (tinygemm's format)."""
        torch = self._torch
        n, k = weight.shape
        groups = weight.float().reshape(n, k // 128, 128)
        low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
        scale = ((high - low) / 15).clamp(min=1e-6)
        codes = ((groups - low) / scale).round().clamp(0, 15).to(torch.int32).reshape(n, k)
        pairs = (codes[:, ::2] << 4 | codes[:, 1::2]).to(torch.uint8)
        packed = torch.ops.aten._convert_weight_to_int4pack(pairs, 8)
        zero = low + 8 * scale
        scales = torch.stack([scale[..., 0], zero[..., 0]], dim=-1).transpose(0, 1)
        return packed, scales.contiguous().to(torch.bfloat16)

    def linear(self, x: Any, weight: Any, dtype: str) -> Any:
        """Return x times the transposed weight."""
        torch = self._torch
        if dtype == "fp8":
            one = torch.ones((), dtype=torch.float32, device=self._device)
            return torch._scaled_mm(
                x.to(weight.dtype),
                weight.t(),
                scale_a=one,
                scale_b=one,
                out_dtype=torch.bfloat16,
            )
        if dtype == "int4-wo":
            return torch.ops.aten._weight_int4pack_mm(x, weight[0], 128, weight[1])
        if self._served_products is not None:
            return self._served_products.onednn_mm(weight, x, None)
        return torch.nn.functional.linear(x, weight)

    def embedding(self, table: Any, ids: Any) -> Any:
        """Return the rows of the table."""
        return table[ids]

    def norm(self, x: Any, residual: Any, gain: Any) -> tuple[Any, Any]:
        """Return the normalised sum of both, and the sum."""
        total = x + residual
        return self.qk_norm(total, gain), total

    def qk_norm(self, heads: Any, gain: Any) -> Any:
        """Return each head (or row) normalised."""
        return self._torch.nn.functional.rms_norm(heads, (heads.shape[-1],), gain, 1e-6)

    def rope_write(self, qkv: Any, cache: Any, angles: Any, sizes: dict[str, int]) -> Any:
        """Rotate queries and keys, write keys and values, return packed queries."""
        batch, q, head = sizes["batch"], sizes["q"], sizes["head_dim"]
        heads, kv_heads, end = sizes["heads"], sizes["kv_heads"], sizes["context"]
        rows = qkv.view(batch, q, heads + 2 * kv_heads, head)
        turning, (cos, sin) = rows[:, :, : heads + kv_heads], angles
        low, high = turning.chunk(2, dim=-1)
        turned = self._torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)
        cache[0][:, :, end - q : end] = turned[:, :, heads:].transpose(1, 2)
        cache[1][:, :, end - q : end] = rows[:, :, heads + kv_heads :].transpose(1, 2)
        packed = turned[:, :, :heads].reshape(batch, q, kv_heads, -1, head)
        return packed.permute(0, 2, 3, 1, 4).reshape(batch, kv_heads, -1, head)

    def attention(self, queries: Any, keys: Any, values: Any, *, q: int, kernel: str) -> Any:
        """Return attention by one of the kernels on the menu."""
        return run_attention(
            self._torch, self._attention_state, queries, keys, values, q=q, kernel=kernel
        )

    def activation(self, gate_up: Any) -> Any:
        """Return silu of the first half times the second."""
        gate, up = gate_up.chunk(2, dim=-1)
        return self._torch.nn.functional.silu(gate) * up

    def sampling(self, logits: Any) -> Any:
        """Return the most likely token of each row, of logits in fp32 as engines make them."""
        return logits.float().argmax(dim=-1)

    def top_k(self, logits: Any, count: int) -> Any:
        """Return the ``count`` highest of each row, after a softmax over all."""
        return logits.float().softmax(dim=-1).topk(count, dim=-1).indices

    def indices(self, array: NDArray[np.intp]) -> Any:
        """Return the numbers on the device."""
        return self._torch.as_tensor(array, device=self._device)

    def experts(self, x: Any, choice: Any, up: Any, down: Any, *, kernel: str) -> Any:
        """Return the mean of the chosen experts of each row."""
        return run_experts(self._torch, x, choice, up, down, self.activation, kernel)

    def ids(self, count: int, below: int) -> Any:
        """Return random whole numbers."""
        return self._torch.randint(0, below, (count,), device=self._device)

    def extra(self, op: str, count: int, index: int) -> Callable[[], Any]:
        """Return a copy, a read, an addition of one number, or an all-reduce."""
        base = self.menu().base
        if op == "copy":
            source = self.operand((count // 2,), base, index)
            target = self._torch.empty_like(source)
            return lambda: (target.copy_(source), target.copy_(source))
        if op == "read":
            matrix = self.operand((count // 8192, 8192), base, index)
            vector = self.operand((8192,), base, 7)
            return lambda: matrix @ vector
        if op == "all_reduce":
            return self._all_reduce(count)
        one = self.operand((1,), base, index)
        return lambda: one + one

    def _all_reduce(self, payload: int) -> Callable[[], Any]:
        torch = self._torch
        parts = [
            torch.full((payload // 2,), 0.5, dtype=torch.bfloat16, device=f"cuda:{i}")
            for i in range(torch.cuda.device_count())
        ]
        return lambda: torch.cuda.nccl.all_reduce(parts)

    def to_float64(self, array: Any) -> NDArray[np.float64]:
        """Return a copy in fp64 on the host."""
        if isinstance(array, np.ndarray):
            return array.astype(np.float64)
        return np.asarray(array.detach().to(self._torch.float64).cpu().numpy())

    def time(
        self, call: Callable[[int], Any], *, repeats: int, seconds: float, graph: bool = True
    ) -> Timed:
        """Time calls: device events on a GPU, in a captured graph where launches would show."""
        if not self._gpu:
            return time_calls(call, repeats=repeats, seconds=seconds, threads=self._threads)
        return time_on_device(self._torch, call, repeats=repeats, seconds=seconds, graph=graph)

    def state(self) -> str:
        """Return the GPU's clocks, temperature and power, empty where nothing tells them."""
        if not self._gpu:
            return machine_load()
        return nvidia_smi("clocks.sm,clocks.mem,temperature.gpu,power.draw")

    def failure(self, error: BaseException) -> Status | None:
        """Return the status of an expected failure; a device error ends the process it is in."""
        text = str(error).lower()
        if isinstance(error, MemoryError | self._torch.OutOfMemoryError):
            self._release()
            return Status.OOM
        if isinstance(error, ImportError):  # of a kernel's library; of this package it is a bug
            package = (error.name or "").partition(".")[0]
            return None if package == "roofline" else Status.UNSUPPORTED
        if isinstance(error, RuntimeError | ValueError):
            lost = "cuda error" in text or "hip error" in text
            return Status.CRASHED if lost else Status.UNSUPPORTED
        return None

    def _release(self) -> None:
        if self._gpu:
            self._torch.cuda.empty_cache()
