"""Whether it fits: weights, drafter and KV cache against the bytes of one accelerator."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from roofline.drafters import Drafter, resident_bytes
from roofline.hardware import HardwareProfile
from roofline.layers import kv_bytes_per_token, weight_bytes
from roofline.quantization import Component
from roofline.step import Target, Times
from roofline.units import format_bytes
from roofline.workload import Grid

__all__ = ["Memory", "memory_needed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Bytes on one accelerator. ``needed`` has the grid's shape [B]."""

    available: float
    weights: float
    weights_read: float  # by one pass: all but the embedding
    draft_weights: float
    kv_per_token: float
    draft_kv_per_token: float
    needed: Times

    @property
    def fits(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """True where the step fits."""
        return self.needed <= self.available

    def largest_batch(self, *, context: float, draft_length: int) -> int:
        """Return the largest batch that fits, drafter included where D > 0; 0 if none does."""
        drafting = draft_length > 0
        spare = self.available - self.weights - (self.draft_weights if drafting else 0.0)
        per_token = self.kv_per_token + (self.draft_kv_per_token if drafting else 0.0)
        return max(math.floor(spare / (per_token * (context + draft_length + 1))), 0)

    def explain(self, *, batch: int, context: int, tp: int) -> str:
        """Say in one line what plain decoding needs, what there is, and what would fit."""
        weights, kv = format_bytes(self.weights), format_bytes(self.kv_per_token * (context + 1))
        need = self.weights + batch * self.kv_per_token * (context + 1)
        largest = self.largest_batch(context=context, draft_length=0)
        remedy = (
            f"the largest batch that fits is {largest}"
            if largest
            else "not even one sequence fits: use more GPUs (--tp), narrower --weights or --kv"
        )
        each = "the GPU has" if tp == 1 else f"each of the {tp} GPUs has"
        return (
            f"batch {batch} at {context} tokens needs {format_bytes(need)} "
            f"({weights} of weights and {batch} x {kv} of KV) but {each} "
            f"{format_bytes(self.available)}; {remedy}"
        )


def memory_needed(target: Target, drafter: Drafter, grid: Grid, gpu: HardwareProfile) -> Memory:
    """Return the bytes that every point of the grid needs on its fullest accelerator.

    Weights, and the drafter's where D > 0, and for each sequence a KV slot for every token of the
    context, each draft token and the bonus token: context + D + 1.
    """
    model, precision, tp = target.model, target.precision, target.placement.tp
    by_component = weight_bytes(model, precision, tp=tp)
    weights = sum(by_component.values())
    per_token = kv_bytes_per_token(model, precision.kv, tp=tp)
    draft_weights, draft_per_token = resident_bytes(drafter)
    drafting = grid.draft_length > 0
    slots = grid.batch * (grid.context + grid.draft_length + 1)
    needed = weights + np.where(drafting, draft_weights, 0.0)
    needed = needed + slots * (per_token + np.where(drafting, draft_per_token, 0.0))
    return Memory(
        available=gpu.memory_bytes,
        weights=weights,
        weights_read=weights - by_component.get(Component.EMBEDDING, 0.0),
        draft_weights=draft_weights,
        kv_per_token=per_token,
        draft_kv_per_token=draft_per_token,
        needed=np.broadcast_to(needed, grid.shape),
    )
