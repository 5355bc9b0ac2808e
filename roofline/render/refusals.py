"""What does not fit, as sentences and as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from roofline.advice.deployment import Deployment
from roofline.base.errors import Option
from roofline.base.units import format_bytes, format_size, format_unlike, listed
from roofline.render.blocks import Paragraph, Tone
from roofline.timing.memory import Memory

if TYPE_CHECKING:
    from roofline.advice.remedies import Refused

__all__ = [
    "drafts_without_room",
    "refused_blocks",
    "refused_data",
    "refused_details",
    "refused_lines",
    "room_columns",
]

MOST_NAMED = 8  # batches of one context; of more, the first and the last


def refused_lines(deployment: Deployment, refused: Sequence[Refused]) -> list[str]:
    """Return a paragraph for each context: what does not fit, what is missing and what helps."""
    memory = deployment.memory
    lines = []
    for context, points in _alike(refused):
        last = max(points, key=lambda point: point.batch)
        if len(points) == 1:
            begins = f"Does not fit: {_missing(memory, last)}"
        else:
            begins = (
                f"Do not fit at context {format_size(context)}: {_batches_named(points)}. "
                f"The largest: {_missing(memory, last)}"
            )
        lines.append(f"{begins}. {_what_fits(last)}")
    return lines


def refused_blocks(deployment: Deployment, refused: Sequence[Refused]) -> list[Paragraph]:
    """Return what does not fit, right below the headline."""
    return [
        Paragraph(line, tone=Tone.WARNING, close=True)
        for line in refused_lines(deployment, refused)
    ]


def refused_details(deployment: Deployment, refused: Sequence[Refused]) -> list[Paragraph]:
    """Return where the bytes go of what does not fit, for those who ask for all notes."""
    from roofline.advice.remedies import explain_refusal

    return [
        Paragraph(
            "Bytes: "
            f"{explain_refusal(deployment.memory, max(points, key=lambda point: point.batch))}."
        )
        for _, points in _alike(refused)
    ]


def _alike(refused: Sequence[Refused]) -> list[tuple[int, list[Refused]]]:
    """Return the refused points of each context, those that the drafter has no room for apart."""
    alike: dict[tuple[int, int], list[Refused]] = {}
    for point in refused:
        alike.setdefault((point.context, point.draft_length), []).append(point)
    return [(context, points) for (context, _), points in alike.items()]


def _missing(memory: Memory, refused: Refused) -> str:
    """Say what a refused batch needs, and what there is."""
    if refused.on_host:
        from roofline.advice.remedies import explain_refusal

        return explain_refusal(memory, refused)
    cards = memory.target.placement.cards
    there = "of the GPU, which has" if cards == 1 else f"of each of the {cards} GPUs, which have"
    drafts = f" with draft length {refused.draft_length}" if refused.draft_length else ""
    needed, available = format_unlike(refused.needed, refused.available)
    return (
        f"batch {refused.batch} at {format_size(refused.context)} tokens{drafts} needs "
        f"{needed} {there} {available} usable of {format_bytes(memory.total)}"
    )


def _what_fits(refused: Refused) -> str:
    """Say the largest batch that fits as asked, and with each remedy."""
    from roofline.advice.remedies import spelled_remedy

    fits = [f"batch {refused.largest_batch} as asked"] if refused.largest_batch else []
    if fits and refused.largest_with_drafts < refused.largest_batch:
        fits[0] += f" ({refused.largest_with_drafts} with drafts)"
    for n, remedy in enumerate(refused.remedies):
        batch = f"{remedy.largest_batch}" if fits or n else f"batch {remedy.largest_batch}"
        fits.append(f"{batch} with {spelled_remedy(remedy)}")
    if fits:
        drafts = " without drafts" if refused.largest_with_drafts < refused.largest_batch else ""
        return f"What fits{drafts}: {', '.join(fits)}."
    if refused.on_host:
        return f"Use narrower {Option('weights')} or another {Option('host')}."
    return "Use more or larger GPUs."


def drafts_without_room(memory: Memory, *, batch: int, context: int) -> str:
    """Say what one draft needs beside plain decoding, what is free, and what would help."""
    short, cards = memory.short_of_draft(batch=batch, context=context), len(memory.cards)
    remedies = [f"a narrower {Option('draft_weights')}"] if memory.draft_weights else []
    remedies.append(f"a shorter {Option('context')}")
    largest = memory.largest_batch(context=context, draft_length=1)
    if 0 < largest < batch:
        remedies.insert(0, f"{Option('batch', largest)} or less")
    if short.layers_split:
        remedies.append(f"another {Option('tensor_split')}")
    where = f" on card {short.card + 1} of {cards}" if cards > 1 else ""
    drafter = memory.drafter.name
    name = drafter if memory.draft_weights else f"draft length 1 of {drafter}"
    needed, free = format_unlike(short.needed, short.free)
    return (
        f"{name} needs {needed} more{where}, where plain decoding leaves "
        f"{free} free of {format_bytes(memory.available)} usable. Try "
        f"{listed(remedies, 'or')}."
    )


def _batches_named(refused: Sequence[Refused]) -> str:
    """Return batches of one context with the bytes that each needs."""
    rising = sorted(refused, key=lambda point: point.batch)
    named = [f"{point.batch} ({format_bytes(point.needed)})" for point in rising]
    if len(named) > MOST_NAMED:
        return f"the {len(named)} batches from {named[0]} to {named[-1]}"
    return f"batches {listed(named)}"


def room_columns(
    memory: Memory, *, batch: int, context: int, draft_length: int
) -> dict[str, bool | int]:
    """Return the columns of a CSV that say whether a row fits in memory, as a sweep names them."""
    return {
        "fits": bool(memory.has_room(batch, context, draft_length)),
        "memory_needed_bytes": round(float(memory.needed(batch, context, draft_length))),
        "memory_available_bytes": round(memory.available),
    }


def refused_data(refused: Sequence[Refused]) -> list[dict[str, Any]]:
    """Return what does not fit as JSON-ready data."""
    return [
        {
            "batch": each.batch,
            "context": each.context,
            "draft_length": each.draft_length,
            "needed_bytes": each.needed,
            "available_bytes": each.available,
            "memory_of": "host" if each.on_host else "gpu",
            "largest_batch": each.largest_batch,
            "largest_batch_with_drafts": each.largest_with_drafts,
            "remedies": [
                {
                    "option": str(Option(remedy.field)),
                    "value": remedy.value,
                    "largest_batch": remedy.largest_batch,
                    "beside": [
                        {"option": str(Option(field)), "value": value}
                        for field, value in remedy.beside
                    ],
                }
                for remedy in each.remedies
            ],
        }
        for each in refused
    ]
