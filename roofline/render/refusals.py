"""What does not fit, as sentences and as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofline.advice.deployment import Deployment
from roofline.advice.remedies import Refused, explain, phrase
from roofline.base.errors import Option
from roofline.base.units import format_bytes, format_size
from roofline.render.columns import listed
from roofline.timing.memory import Memory

__all__ = ["drafts_without_room", "refused_data", "refused_lines", "room_columns"]

MOST_NAMED = 8  # batches of one context; of more, the first and the last


def refused_lines(deployment: Deployment, refused: Sequence[Refused]) -> list[str]:
    """Return a paragraph for each context: what does not fit, what is missing and what helps."""
    memory, lines = deployment.memory, []
    for context, drafts in dict.fromkeys((each.context, each.draft_length) for each in refused):
        alike = (context, drafts)
        batches = [each for each in refused if (each.context, each.draft_length) == alike]
        last = max(batches, key=lambda each: each.batch)
        told = f"{explain(memory, last)}; {phrase(last)}."
        if len(batches) == 1:
            lines.append(f"Does not fit: {told}")
            continue
        lines.append(
            f"Do not fit at context {format_size(context)}: {_named(batches)}. "
            f"{told[0].upper()}{told[1:]}"
        )
    return lines


def drafts_without_room(memory: Memory, *, batch: int, context: int) -> str:
    """Say what one draft needs beside plain decoding, what is free, and what would help."""
    short, cards = memory.short_of_draft(batch=batch, context=context), len(memory.cards)
    remedies = [f"a narrower {Option('draft_weights')}"] if memory.draft_weights else []
    remedies.append(f"a shorter {Option('context')}")
    if short.layers_split:
        remedies.append(f"another {Option('tensor_split')}")
    where = f" on card {short.card + 1} of {cards}" if cards > 1 else ""
    drafter = memory.drafter.name
    name = drafter if memory.draft_weights else f"draft length 1 of {drafter}"
    return (
        f"{name} needs {format_bytes(short.needed)} more{where}, where plain decoding leaves "
        f"{format_bytes(short.free)} free of {format_bytes(memory.available)} usable. Try "
        f"{', '.join(remedies[:-1])}{' or ' if remedies[:-1] else ''}{remedies[-1]}."
    )


def _named(refused: Sequence[Refused]) -> str:
    """Return batches of one context with the bytes that each needs."""
    ranked = sorted(refused, key=lambda each: each.batch)
    named = [f"{each.batch} ({format_bytes(each.needed)})" for each in ranked]
    if len(named) > MOST_NAMED:
        return f"the {len(named)} batches from {named[0]} to {named[-1]}"
    return f"batches {listed(named)}"


def room_columns(
    memory: Memory, *, batch: int, context: int, draft_length: int
) -> dict[str, bool | float]:
    """Return the columns of a CSV that say whether a row can be run, as a sweep names them."""
    return {
        "fits": bool(memory.has_room(batch, context, draft_length)),
        "memory_needed_bytes": float(memory.needed(batch, context, draft_length)),
        "memory_available_bytes": memory.available,
    }


def refused_data(refused: Sequence[Refused]) -> list[dict[str, Any]]:
    """Return the same as JSON-ready data."""
    return [
        {
            "batch": each.batch,
            "context": each.context,
            "draft_length": each.draft_length,
            "needed_bytes": each.needed,
            "available_bytes": each.available,
            "memory_of": "host" if each.on_host else "gpu",
            "largest_batch": each.largest_batch,
            "remedies": [
                {
                    "option": str(Option(remedy.field)),
                    "value": remedy.value,
                    "largest_batch": remedy.largest_batch,
                }
                for remedy in each.remedies
            ],
        }
        for each in refused
    ]
