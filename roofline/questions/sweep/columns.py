"""The columns of a sweep: their names with units, their types, and what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from roofline.kernels.ops import Part

__all__ = ["ASKED", "COLUMNS", "COST", "Column", "ColumnKind", "columns_for", "columns_table"]


class ColumnKind(StrEnum):
    """The type of a column's values; any of them may be missing."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One column. Times are in seconds, sizes in bytes."""

    name: str
    kind: ColumnKind
    meaning: str


def _column(name: str, kind: ColumnKind, meaning: str) -> Column:
    return Column(name=name, kind=kind, meaning=meaning)


_PARTS = {
    Part.LINEAR: "dense matrix products, verify and draft",
    Part.ATTENTION: "attention, indexers and recurrent states",
    Part.MOE: "router, experts and shared experts",
    Part.LM_HEAD: "vocabulary projections",
    Part.COMMUNICATION: "collectives between the GPUs",
    Part.OTHER: "norms, activations, sampling and the engine's overhead",
}

#: What was asked; the first columns of every sweep.
ASKED = (
    _column("model", ColumnKind.TEXT, "id of the model, or the path given where it was refused"),
    _column("gpu", ColumnKind.TEXT, "id of the accelerator, as `model`"),
    _column("engine", ColumnKind.TEXT, "serving engine as asked, era included"),
    _column("tp", ColumnKind.INTEGER, "tensor-parallel GPUs"),
    _column("gpus", ColumnKind.INTEGER, "GPUs in all: tensor-parallel, or the cards of a machine"),
    _column("ep", ColumnKind.INTEGER, "groups of those GPUs that experts are placed on"),
    _column("drafter", ColumnKind.TEXT, "drafter; the one chosen where none was asked for"),
    _column("acceptance", ColumnKind.TEXT, "acceptance as asked; the curve chosen where none was"),
    _column("weights", ColumnKind.TEXT, "format of the MLP's (else the experts') weights"),
    _column("kv", ColumnKind.TEXT, "format of the KV cache"),
)

COLUMNS = (
    *ASKED,
    _column("batch", ColumnKind.INTEGER, "sequences decoded together"),
    _column("context_tokens", ColumnKind.INTEGER, "tokens in the KV cache of each sequence"),
    _column(
        "draft_length", ColumnKind.INTEGER, "tokens drafted per target pass, D; 0 is plain decoding"
    ),
    _column(
        "fits", ColumnKind.BOOLEAN, "whether it can be run; numbers below are missing where not"
    ),
    _column("reason", ColumnKind.TEXT, "why it cannot; missing where it can"),
    _column("captured", ColumnKind.BOOLEAN, "whether the engine's CUDA graphs cover the pass"),
    _column("memory_needed_bytes", ColumnKind.NUMBER, "bytes needed on one GPU"),
    _column(
        "memory_available_bytes", ColumnKind.NUMBER, "bytes that the engine can use of one GPU"
    ),
    _column("tokens_per_step", ColumnKind.NUMBER, "mean tokens emitted per target pass, AL"),
    _column("step_s", ColumnKind.NUMBER, "time of one step: verify + draft + overhead"),
    _column(
        "verify_s", ColumnKind.NUMBER, "kernels of the target's pass over 1 + D rows per sequence"
    ),
    _column("draft_s", ColumnKind.NUMBER, "kernels of the drafter's passes"),
    _column("overhead_s", ColumnKind.NUMBER, "the engine's time around the kernels"),
    *(
        _column(f"{part.value}_s", ColumnKind.NUMBER, f"part of `step_s`: {meaning}")
        for part, meaning in _PARTS.items()
    ),
    _column("cost_ratio", ColumnKind.NUMBER, "step time over that of D = 0; AL breaks even here"),
    _column("speedup", ColumnKind.NUMBER, "tokens per second over those of D = 0"),
    _column(
        "speedup_low", ColumnKind.NUMBER, "10th percentile of the speedup under the laws' errors"
    ),
    _column("speedup_high", ColumnKind.NUMBER, "90th percentile"),
    _column("tokens_per_s_user", ColumnKind.NUMBER, "tokens per second of one sequence"),
    _column("tokens_per_s_batch", ColumnKind.NUMBER, "tokens per second of all sequences"),
    _column("tie", ColumnKind.BOOLEAN, "within 1 % of the fastest D of this batch and context"),
    _column("best", ColumnKind.BOOLEAN, "the recommended D: the smallest in the tie"),
    _column("best_draft_length", ColumnKind.INTEGER, "the recommended D of this batch and context"),
    _column("confidence", ColumnKind.TEXT, "win, inside_error or loss, of this batch and context"),
)


#: The column of a grid with the price of a GPU.
COST = _column(
    "dollars_per_million_tokens",
    ColumnKind.NUMBER,
    "price of a million output tokens of all sequences, at `gpu_hour`",
)


def columns_for(extra: Sequence[Column], *, priced: bool) -> tuple[Column, ...]:
    """Return all columns, those of further options of the grid after what was asked.

    The last one is the cost where the grid has a price.
    """
    return (*ASKED, *extra, *COLUMNS[len(ASKED) :], *([COST] if priced else []))


def columns_table() -> str:
    """Return the columns as the Markdown table that docs/sweep.md shows."""
    rows = [f"| `{c.name}` | {c.kind.value} | {c.meaning} |" for c in COLUMNS]
    return "\n".join(["| column | type | meaning |", "|---|---|---|", *rows])
