"""The rows of a sweep that are held in memory: as a data frame, as data and in a sentence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from roofline.advice.columns import Column, ColumnKind
from roofline.base.units import format_count
from roofline.questions.sweep.columns import columns_data, columns_for
from roofline.questions.sweep.encoding import missing_mask
from roofline.questions.sweep.frames import Frame
from roofline.questions.sweep.plan import SweepPlan
from roofline.questions.sweep.run import SCHEMA, Renderers, acceptances_of, warnings_of
from roofline.questions.sweep.store import JournalEntry
from roofline.render.blocks import Answer, Paragraph, Tone
from roofline.render.notices import notes_by_text

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["as_answer", "data", "rows", "to_frame"]


def as_answer(
    plan: SweepPlan,
    frames: Sequence[Frame],
    entries: Sequence[JournalEntry],
    renderers: Renderers,
) -> Answer:
    """Return a sweep in every form: how many rows there are, the rows, what to know of them."""
    says = headline(plan, frames)
    codes = warnings_of(entries, renderers)
    return Answer(
        headlines=lambda: [says],
        blocks=lambda: [Paragraph(says, tone=Tone.HEADLINE)],
        notes=notes_by_text(codes),
        data=lambda: data(plan, frames, entries, renderers),
        rows=lambda: rows(plan, frames),
    )


def headline(plan: SweepPlan, frames: Sequence[Frame]) -> str:
    """Return how many rows there are, and how many of them fit in memory."""
    count, fitting = (sum(getattr(frame, name) for frame in frames) for name in ("rows", "fitting"))
    combinations = sum(1 for _ in plan.combinations())
    return (
        f"{format_count(count, 'row')} of {format_count(combinations, 'combination')} of options; "
        f"{fitting} can be run."
    )


def data(
    plan: SweepPlan,
    frames: Sequence[Frame],
    entries: Sequence[JournalEntry],
    renderers: Renderers,
) -> dict[str, Any]:
    """Return the grid, its columns, its rows and where they come from, as JSON-ready data."""
    warnings = warnings_of(entries, renderers)
    sources = sorted({source for entry in entries for source in entry.sources})
    return {
        "schema": SCHEMA,
        "grid": plan.as_data(),
        "columns": columns_data(columns_for(plan.extra, priced=plan.priced)),
        "rows": rows(plan, frames),
        "acceptance": [asdict(each) for each in acceptances_of(entries)],
        "warnings": [*warnings],
        "sources": [json.loads(source) for source in sources],
    }


def rows(plan: SweepPlan, frames: Sequence[Frame]) -> list[dict[str, Any]]:
    """Return a row for every point; None is missing."""
    columns = columns_for(plan.extra, priced=plan.priced)
    arrays = [_array(frames, column) for column in columns]
    listed = [
        [None if gone else value for value, gone in zip(values.tolist(), mask, strict=True)]
        for values, mask in arrays
    ]
    names = [column.key for column in columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*listed, strict=True)]


def to_frame(plan: SweepPlan, frames: Sequence[Frame]) -> pd.DataFrame:
    """Return the rows as a data frame: a missing number is NaN, a missing whole number is NA."""
    import pandas as pd

    columns: dict[str, Any] = {}
    for column in columns_for(plan.extra, priced=plan.priced):
        values, mask = _array(frames, column)
        if column.kind is ColumnKind.INTEGER and mask.any():
            columns[column.key] = pd.arrays.IntegerArray(values, mask)
        else:
            columns[column.key] = values
    return pd.DataFrame(columns)


_TYPES: dict[ColumnKind, tuple[Any, Any]] = {
    ColumnKind.TEXT: (object, None),
    ColumnKind.INTEGER: (np.int64, 0),
    ColumnKind.NUMBER: (np.float64, np.nan),
    ColumnKind.BOOLEAN: (np.bool_, False),
}


def _array(frames: Sequence[Frame], column: Column) -> tuple[np.ndarray[Any, Any], Any]:
    """Return the values of a column over all rows, and which of them are missing."""
    dtype, nothing = _TYPES[column.kind]
    values, masks = [], []
    for frame in frames:
        stored = frame.columns.get(column.key)
        if stored is None:
            same = frame.shared.get(column.key)
            same = " ".join(map(str, same)) if isinstance(same, tuple) else same
            part = np.full(frame.rows, nothing if same is None else same, dtype=dtype)
            mask = np.full(frame.rows, same is None)
        elif column.key in frame.words:
            words = [None if word is None else str(word) for word in frame.words[column.key]]
            part = np.array(words, dtype=object)[stored]
            mask = np.array([word is None for word in words])[stored]
        else:
            part, found = stored.astype(dtype), missing_mask(stored)
            mask = np.zeros(frame.rows, dtype=bool) if found is None else found
        values.append(part)
        masks.append(mask)
    return np.concatenate(values), np.concatenate(masks)
