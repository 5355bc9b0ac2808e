"""Rows in columns: what a block shares, what every row has, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.acceptance import Acceptance
from roofline.advice.decide import CONFIDENCES
from roofline.advice.question import Question
from roofline.kernels.ops import Part
from roofline.questions.sweep.plan import Block, Scalar, Unit
from roofline.specs.formats import Component

__all__ = ["FITS", "REASONS", "Frame", "Values", "blank", "clear", "keys", "refused", "shared"]

FITS, TOO_LARGE, DRAFTER_TOO_LARGE, HOST_TOO_SMALL = range(4)
REASONS = (
    None,
    "does not fit in memory",
    "does not fit in memory beside the drafter",
    "its experts do not fit in the host's memory",
)
Values = NDArray[Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """Rows of one combination of options: what they share, and a column for the rest.

    A column of words holds their positions in ``words``.
    """

    shared: dict[str, Scalar]
    columns: dict[str, Values]
    words: dict[str, tuple[str | None, ...]]

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.columns["batch"])

    @property
    def fitting(self) -> int:
        """How many of them can be run."""
        return int(self.columns["fits"].sum())

    @property
    def refusal(self) -> str:
        """Why all of it is refused, whatever the memory; empty where it is not."""
        reasons = self.words["reason"]
        return "" if reasons is REASONS else reasons[0] or ""


def blank(shape: tuple[int, int, int]) -> dict[str, Values]:
    """Return every column but the keys, yet to be filled."""
    numbers = (
        "memory_needed_bytes",
        "memory_available_bytes",
        "tokens_per_step",
        "step_s",
        "verify_s",
        "draft_s",
        "overhead_s",
        *(f"{part.value}_s" for part in Part),
        "cost_ratio",
        "speedup",
        "speedup_low",
        "speedup_high",
        "tokens_per_s_user",
        "tokens_per_s_batch",
    )
    columns: dict[str, Values] = {name: np.empty(shape) for name in numbers}
    columns |= {name: np.empty(shape, dtype=bool) for name in ("fits", "captured", "tie", "best")}
    columns["best_draft_length"] = np.empty(shape, dtype=np.int16)
    columns |= {name: np.empty(shape, dtype=np.int8) for name in ("reason", "confidence")}
    return columns


def keys(
    batches: Sequence[int], contexts: Sequence[int], lengths: Sequence[int]
) -> dict[str, Values]:
    """Return the columns that say which point a row is."""
    shape = (len(batches), len(contexts), len(lengths))
    axes: dict[str, Values] = {
        "batch": np.asarray(batches, dtype=np.int64)[:, None, None],
        "context_tokens": np.asarray(contexts, dtype=np.int64)[None, :, None],
        "draft_length": np.asarray(lengths, dtype=np.int16)[None, None, :],
    }
    return {name: np.broadcast_to(axis, shape) for name, axis in axes.items()}


def clear(tile: dict[str, Values], fits: NDArray[np.bool_], *, host_is_short: bool) -> None:
    """Take the numbers out of what cannot be run, and say why."""
    lost, nothing = ~fits, ~fits[..., :1]
    whole = HOST_TOO_SMALL if host_is_short else TOO_LARGE
    np.copyto(tile["reason"], np.where(nothing, whole, DRAFTER_TOO_LARGE), "unsafe", lost)
    np.copyto(tile["best_draft_length"], -1, where=nothing)
    np.copyto(tile["confidence"], len(CONFIDENCES), where=nothing)
    for name, column in tile.items():
        if column.dtype == bool and name not in ("fits", "captured"):
            np.logical_and(column, fits, out=column)
        elif column.dtype == np.float64 and not name.startswith("memory"):
            np.copyto(column, np.nan, where=lost)


def refused(unit: Unit, contexts: Sequence[int], reason: str) -> Frame:
    """Return rows that say why nothing of this can be priced."""
    block = unit.block
    plain = block.configuration.drafter == "none"
    longest = 0 if plain else block.workload.max_draft_length
    found = keys(unit.batches, contexts, range(longest + 1))
    columns = blank(found["batch"].shape)
    for column in columns.values():
        column[...] = np.nan if column.dtype == np.float64 else 0
    columns["best_draft_length"][...] = -1
    columns |= found
    return Frame(
        shared=shared(unit.block, None),
        columns={name: column.reshape(-1) for name, column in columns.items()},
        words={"reason": (reason,), "confidence": (None,)},
    )


def shared(block: Block, question: Question | None) -> dict[str, Scalar]:
    """Return what all rows of a block have in common."""
    named, asked = block.configuration, _label(block.workload.acceptance)
    found: dict[str, Scalar] = {
        "model": str(named.model),
        "gpu": str(named.gpu),
        "engine": str(named.engine),
        "tp": named.tp,
        "ep": named.ep,
        "drafter": named.drafter,
        "acceptance": asked,
        "weights": named.weights,
        "kv": named.kv,
        **dict(block.extra),
    }
    if question is None:
        return found
    deployment = question.deployment
    precision = deployment.target.precision
    mixture = deployment.target.model.num_expert_layers > 0
    return found | {
        "model": deployment.target.model.id,
        "gpu": deployment.gpu.id,
        "drafter": deployment.drafter.name,
        "acceptance": asked or question.acceptance.label,
        "weights": precision.weights[Component.EXPERTS if mixture else Component.MLP].value,
        "kv": precision.kv.value,
    }


def _label(acceptance: str | Acceptance | None) -> str | None:
    return acceptance.label if isinstance(acceptance, Acceptance) else acceptance
