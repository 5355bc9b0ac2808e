"""One table of columns: what each is called in a file and above a table, and what it means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from roofline.kernels.ops import Part

__all__ = ["CATALOGUE", "Column", "ColumnKind", "cells", "columns"]


class ColumnKind(StrEnum):
    """The type of a column's values; any of them may be missing."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"


class Column(NamedTuple):
    """One column. Its key ends in the unit of its values where they have one."""

    key: str  # of JSON, CSV, Parquet and data frames
    kind: ColumnKind = ColumnKind.NUMBER
    meaning: str = ""
    heading: str = ""  # above a table; a newline may break it
    form: str = "{value}"  # of a cell in a table; it may name other keys of the row

    def cell(self, row: Mapping[str, Any]) -> str:
        """Return a row's cell, a dash where its value is missing.

        >>> Column(key="speedup", form="{value:.2f}x").cell({"speedup": 1.5})
        '1.50x'
        """
        value = row[self.key]
        return "-" if value is None else self.form.format(value=value, **row)


def cells(chosen: Iterable[Column], row: Mapping[str, Any]) -> list[str]:
    """Return a row's cells under these columns."""
    return [column.cell(row) for column in chosen]


#: What one step spends its time on, key and meaning; in milliseconds and in seconds.
_TIMES = {
    "step": "time of one step: verify + draft + overhead",
    "verify": "kernels of the target's pass over 1 + D rows per sequence",
    "draft": "kernels of the drafter's passes",
    "overhead": "the engine's time around the kernels",
}
_PARTS = {
    Part.LINEAR: "dense matrix products, verify and draft",
    Part.ATTENTION: "attention, indexers and recurrent states",
    Part.MOE: "router, experts and shared experts",
    Part.LM_HEAD: "vocabulary projections",
    Part.COMMUNICATION: "collectives between the GPUs",
    Part.OTHER: "norms, activations, sampling and the engine's overhead",
}


def _column(
    key: str, kind: ColumnKind, meaning: str, heading: str = "", form: str = "{value}"
) -> Column:
    return Column(key=key, kind=kind, meaning=meaning, heading=heading, form=form)


_TEXT, _INTEGER, _NUMBER, _BOOLEAN = ColumnKind
_COLUMNS = (
    _column("model", _TEXT, "id of the model, or the path given where it was refused"),
    _column("gpu", _TEXT, "id of the accelerator, as `model`"),
    _column("engine", _TEXT, "serving engine as asked, era included"),
    _column("tp", _INTEGER, "tensor-parallel GPUs"),
    _column("gpus", _INTEGER, "GPUs in all: tensor-parallel, or the cards of a machine"),
    _column("ep", _INTEGER, "groups of those GPUs that experts are placed on"),
    _column("drafter", _TEXT, "drafter; the one chosen where none was asked for"),
    _column("acceptance", _TEXT, "acceptance as asked; the curve chosen where none was"),
    _column("weights", _TEXT, "format of the MLP's (else the experts') weights"),
    _column("kv", _TEXT, "format of the KV cache"),
    _column("batch", _INTEGER, "sequences decoded together"),
    _column("context_tokens", _INTEGER, "tokens in the KV cache of each sequence"),
    _column(
        "draft_length",
        _INTEGER,
        "tokens drafted per target pass, D; 0 is plain decoding",
        "D",
        "{value:d}",
    ),
    _column("fits", _BOOLEAN, "whether it can be run; numbers below are missing where not"),
    _column("reason", _TEXT, "why it cannot; missing where it can"),
    _column("captured", _BOOLEAN, "whether the engine's CUDA graphs cover the pass"),
    _column("memory_needed_bytes", _NUMBER, "bytes needed on one GPU"),
    _column("memory_available_bytes", _NUMBER, "bytes that the engine can use of one GPU"),
    _column(
        "tokens_per_step",
        _NUMBER,
        "mean tokens emitted per target pass, AL",
        "tokens\nper step",
        "{value:.2f}",
    ),
    *(_column(f"{name}_s", _NUMBER, meaning) for name, meaning in _TIMES.items()),
    *(
        _column(f"{name}_ms", _NUMBER, meaning, f"{name}\nms", "{value:.2f}")
        for name, meaning in _TIMES.items()
    ),
    *(
        _column(f"{part.value}_s", _NUMBER, f"part of `step_s`: {meaning}")
        for part, meaning in _PARTS.items()
    ),
    *(
        _column(f"{part.value}_ms", _NUMBER, f"part of `step_ms`: {meaning}")
        for part, meaning in _PARTS.items()
    ),
    _column(
        "cost_ratio",
        _NUMBER,
        "step time over that of D = 0; AL breaks even here",
        "cost ratio =\nbreak-even",
        "{value:.3f}",
    ),
    _column("speedup", _NUMBER, "tokens per second over those of D = 0", "speedup", "{value:.2f}x"),
    _column("speedup_low", _NUMBER, "10th percentile of the speedup under the laws' errors"),
    _column("speedup_high", _NUMBER, "90th percentile"),
    _column("tokens_per_s_user", _NUMBER, "tokens per second of one sequence"),
    _column("tokens_per_s_batch", _NUMBER, "tokens per second of all sequences"),
    _column(
        "tokens_per_s",
        _NUMBER,
        "tokens per second of all sequences",
        "tokens/s\nbatch",
        "{value:.0f}",
    ),
    _column(
        "dollars_per_million_tokens",
        _NUMBER,
        "price of a million output tokens of all sequences, at `gpu_hour`",
        "$/M\ntokens",
        "{value:#.3g}",
    ),
    _column("tie", _BOOLEAN, "within 1 % of the fastest D of this batch and context"),
    _column("best", _BOOLEAN, "the recommended D: the smallest in the tie"),
    _column("best_draft_length", _INTEGER, "the recommended D of this batch and context"),
    _column("confidence", _TEXT, "win, inside_error or loss, of this batch and context"),
)
#: Every column that several answers have, by key.
CATALOGUE: Mapping[str, Column] = {column.key: column for column in _COLUMNS}


def columns(*keys: str) -> tuple[Column, ...]:
    """Return the columns of these keys.

    >>> [column.heading for column in columns("draft_length", "speedup")]
    ['D', 'speedup']
    """
    return tuple(CATALOGUE[key] for key in keys)
