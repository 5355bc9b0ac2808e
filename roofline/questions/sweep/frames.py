"""Rows of a sweep as columns: what a combination shares, what each row has, what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.acceptance import Acceptance
from roofline.advice.columns import ColumnKind
from roofline.advice.decide import CONFIDENCES
from roofline.advice.question import Question
from roofline.questions.sweep.columns import FIGURES
from roofline.questions.sweep.plan import Combination, OptionValue, Rectangle

__all__ = [
    "FITS",
    "NO_LENGTH",
    "REASONS",
    "Frame",
    "Values",
    "blank",
    "clear",
    "key_columns",
    "refused",
    "shared",
]

#: How figures are held: whole numbers are draft lengths, and words are positions.
_STORED: dict[ColumnKind, type[np.generic]] = {
    ColumnKind.NUMBER: np.float64,
    ColumnKind.INTEGER: np.int16,
    ColumnKind.BOOLEAN: np.bool_,
    ColumnKind.TEXT: np.int8,
}
#: Why a row has no numbers, as positions in REASONS.
FITS, TOO_LARGE, DRAFTER_TOO_LARGE, HOST_TOO_SMALL = range(4)
REASONS = (
    None,
    "does not fit in memory",
    "does not fit in memory beside the drafter",
    "its experts do not fit in the host's memory",
)
NO_LENGTH = -1  # in a column of draft lengths, where there is none
Values = NDArray[Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """Rows of one combination of options: what they share, and a column for the rest.

    A column of words holds their positions in ``words``.
    """

    shared: dict[str, OptionValue]
    columns: dict[str, Values]
    words: dict[str, tuple[str | None, ...]]
    refusal: str = ""  # why all of it is refused, whatever the memory; empty where it is not

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.columns["batch"])

    @property
    def fitting(self) -> int:
        """How many of them can be run."""
        return int(self.columns["fits"].sum())


def blank(shape: tuple[int, int, int]) -> dict[str, Values]:
    """Return every column but the keys, yet to be filled."""
    return {column.key: np.empty(shape, dtype=_STORED[column.kind]) for column in FIGURES}


def key_columns(
    batches: Sequence[int], contexts: Sequence[int], lengths: Sequence[int]
) -> dict[str, Values]:
    """Return the columns that say which point a row is."""
    shape = (len(batches), len(contexts), len(lengths))
    axes: dict[str, Values] = {
        "batch": np.asarray(batches, dtype=np.int64)[:, None, None],
        "context": np.asarray(contexts, dtype=np.int64)[None, :, None],
        "draft_length": np.asarray(lengths, dtype=np.int16)[None, None, :],
    }
    return {name: np.broadcast_to(axis, shape) for name, axis in axes.items()}


def clear(tile: dict[str, Values], fits: NDArray[np.bool_], *, host_is_short: bool) -> None:
    """Take the numbers out of what cannot be run, and say why."""
    unfit, plain_unfit = ~fits, ~fits[..., :1]
    plain = HOST_TOO_SMALL if host_is_short else TOO_LARGE
    np.copyto(tile["reason"], np.where(plain_unfit, plain, DRAFTER_TOO_LARGE), "unsafe", unfit)
    np.copyto(tile["recommended_draft_length"], NO_LENGTH, where=plain_unfit)
    np.copyto(tile["limited_by"], 0, where=plain_unfit)
    np.copyto(tile["confidence"], len(CONFIDENCES), where=plain_unfit)
    for name, column in tile.items():
        if column.dtype == bool and name not in ("fits", "captured"):
            np.logical_and(column, fits, out=column)
        elif column.dtype == np.float64 and not name.startswith("memory"):
            np.copyto(column, np.nan, where=unfit)


def refused(rectangle: Rectangle, contexts: Sequence[int], reason: str) -> Frame:
    """Return rows that say why nothing of this can be priced."""
    combination = rectangle.combination
    plain = combination.configuration.drafter == "none"
    longest = 0 if plain else combination.workload.max_draft_length
    key = key_columns(rectangle.batches, contexts, range(longest + 1))
    columns = blank(key["batch"].shape)
    for column in columns.values():
        column[...] = np.nan if column.dtype == np.float64 else 0
    columns["recommended_draft_length"][...] = NO_LENGTH
    columns |= key
    return Frame(
        shared=shared(rectangle.combination, None),
        columns={name: column.reshape(-1) for name, column in columns.items()},
        words={"reason": (reason,), "limited_by": (None,), "confidence": (None,)},
        refusal=reason,
    )


def shared(combination: Combination, question: Question | None) -> dict[str, OptionValue]:
    """Return what all rows of a combination have in common."""
    asked, acceptance = combination.configuration, combination.workload.acceptance
    label = acceptance.label if isinstance(acceptance, Acceptance) else acceptance
    values: dict[str, OptionValue] = {
        "model": str(asked.model),
        "gpu": str(asked.gpu),
        "engine": str(asked.engine),
        "tp": asked.tp,
        "gpus": max(asked.tp, asked.gpus),
        "ep": asked.ep,
        "drafter": asked.drafter,
        "acceptance": label,
        "weights": asked.weights,
        "kv": asked.kv,
        **dict(combination.extra),
    }
    return values if question is None else {**values, **question.columns}
