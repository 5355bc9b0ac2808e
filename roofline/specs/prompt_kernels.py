"""Kernels that read prompts: five-number laws by GPU, engine, kernel, head size and format."""

from __future__ import annotations

from functools import cache
from typing import Literal

from pydantic import Field

from roofline.base import resources
from roofline.base.schema import Document, Duration, Schema
from roofline.specs.laws import SimpleLaw

__all__ = ["PromptBlock", "PromptKernels", "prompt_kernels"]


class PromptLaw(Schema):
    """A law as the file writes it: ``serial`` is the time of 64 keys of the longest row."""

    floor: Duration
    serial: Duration = 0.0
    mem_eff: float = Field(ge=0.3, le=1.05)
    compute_eff: float = Field(gt=0, le=1.05)
    overlap: float = Field(ge=1, le=8)

    def law(self) -> SimpleLaw:
        """Return the law with these constants."""
        return SimpleLaw(**self.model_dump())


class PromptBlock(Schema):
    """One kernel on one GPU, with the errors on shapes that it was not fitted on."""

    gpu: str
    engine: str
    version: str
    kernel: str
    op: Literal["attention", "recurrence"]
    dtype: Literal["bf16", "fp8"]  # of the cache
    head_dim: int
    law: PromptLaw
    rows_fitted: int
    median_error: float  # of |predicted / measured - 1| on held-out shapes
    p90_error: float
    bias: float


class AssumedShares(Schema):
    """Shares of the peak of kernels that no table times by themselves, with their source."""

    sparse: float = Field(gt=0, le=1)
    indexer: float = Field(gt=0, le=1)
    error: float = Field(gt=0, le=2)  # of the logarithm of the time
    source: str


class PromptKernels(Document):
    """All kernels that read prompts."""

    source: str
    assumed: AssumedShares
    kernels: tuple[PromptBlock, ...]

    def of(self, gpu: str, *, op: str) -> tuple[PromptBlock, ...]:
        """Return the blocks of one GPU."""
        return tuple(block for block in self.kernels if (block.gpu, block.op) == (gpu, op))


@cache
def prompt_kernels() -> PromptKernels:
    """Return the shipped laws."""
    return PromptKernels.load(resources.data_file("prompt_kernels.yaml"))
