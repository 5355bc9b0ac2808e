"""The answer of ``explore``: its blocks, its rows and its data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from roofline.advice.readings import is_ambiguous
from roofline.base.errors import Option
from roofline.base.notices import Code, Notice
from roofline.base.units import format_size
from roofline.questions.explore import Exploration, Variant
from roofline.render.blocks import Answer, Block, Paragraph, Table, Tone
from roofline.render.data import acceptance_data, inputs_data, other_reading_data
from roofline.render.deployment import drafting, fixed_changes, gpus_named, set_data, set_line
from roofline.render.notices import notes, notes_data, warnings
from roofline.render.refusals import refused_data, refused_lines, room_columns
from roofline.render.why import as_conditional

__all__ = ["answer_blocks", "as_answer", "data", "rows"]

SCHEMA = "roofline.explore/1"
_WIDTH = 80
MOST_REFUSED = 3  # variants that do not fit and are explained


def as_answer(exploration: Exploration, *, explain: bool = False) -> Answer:
    """Return the exploration in every form."""
    return Answer(
        headlines=lambda: [_headline(exploration)],
        blocks=lambda: answer_blocks(exploration, explain=explain),
        notes=notes(_notices(exploration)),
        data=lambda: data(exploration),
        rows=lambda: rows(exploration),
    )


def _notices(exploration: Exploration) -> list[Notice]:
    """Return what is to know of the exploration, and of each of its variants."""
    of_variants = (
        n
        for variant in exploration.variants
        for n in variant.question.notices
        if n.code is not Code.READ_AS_SURVIVAL  # said of all variants together
    )
    return list(dict.fromkeys((*exploration.notices, *of_variants)))


def answer_blocks(exploration: Exploration, *, explain: bool = False) -> list[Block]:
    """Return how the answer moves, what does not fit, and every variant."""
    table = Table(
        headings=(*_names(exploration), *_HEADERS),
        cells=tuple((*variant.values, *_cells(variant)) for variant in exploration.variants),
    )
    return [
        Paragraph(_headline(exploration), tone=Tone.HEADLINE),
        *map(Paragraph, other_headlines(exploration)),
        *(Paragraph(line, tone=Tone.WARNING, close=True) for line in _refused(exploration)),
        Paragraph(_setting(exploration)),
        table,
        *(Paragraph(line, tone=Tone.QUIET, close=True) for line in _legend(exploration)),
        *(_curves(exploration) if explain else ()),
    ]


def data(exploration: Exploration) -> dict[str, Any]:
    """Return the whole exploration as JSON-ready data."""
    question = exploration.variants[0].question
    return {
        "schema": SCHEMA,
        "inputs": inputs_data(question)
        | {
            "batch": exploration.batch,
            "context": exploration.context,
            "batches": list(question.workload.batches),
            "set": set_data(fixed_changes(question.deployment)),
        },
        "acceptance": acceptance_data(question) | _other_reading(exploration),
        "vary": [
            {"path": axis.path, "values": list(map(axis.read, axis.values))}
            for axis in exploration.axes
        ],
        "variants": [_variant(exploration, variant) for variant in exploration.variants],
        "warnings": warnings(exploration.notices),
        "notes": notes_data(_notices(exploration)),
    }


def _other_reading(exploration: Exploration) -> dict[str, Any]:
    """Return the other reading of the acceptance, with what it advises."""
    other = exploration.other_reading
    if other is None:
        return other_reading_data(None, ())
    variants = [
        {
            "values": _values(exploration, variant),
            "draft_length": variant.draft_length,
            "speedup": _numbers(variant)["speedup"],
        }
        for variant in other.variants
    ]
    return other_reading_data(
        other.variants[0].question.acceptance,
        exploration.notices,
        headline=_headline(other),
        variants=variants,
    )


def other_headlines(exploration: Exploration) -> list[str]:
    """Return the first sentence under the other reading of the acceptance, where it differs."""
    other = exploration.other_reading
    if other is None or not is_ambiguous(exploration.notices):
        return []
    return [as_conditional(_headline(other))]


def _values(exploration: Exploration, variant: Variant) -> dict[str, Any]:
    """Return the values that were varied, as they were read: numbers are numbers."""
    return {
        axis.path: axis.read(text)
        for axis, text in zip(exploration.axes, variant.values, strict=True)
    }


def _variant(exploration: Exploration, variant: Variant) -> dict[str, Any]:
    return {
        "values": _values(exploration, variant),
        **_numbers(variant),
        "by_draft_length": [
            {
                "draft_length": d,
                "tokens_per_step": float(variant.tokens_per_step[i]),
                "step_ms": 1e3 * float(variant.step[i]),
                "cost_ratio": float(variant.cost_ratio[i]),
                "speedup": float(variant.speedup[i]),
            }
            for i, d in enumerate(variant.draft_lengths)
            if math.isfinite(variant.speedup[i])
        ],
        "by_batch": [
            {"batch": batch, "draft_length": d}
            for batch, d in zip(variant.batches, variant.by_batch, strict=True)
        ],
        "refused": refused_data(variant.refused),
    }


def _numbers(variant: Variant) -> dict[str, Any]:
    """Return one variant's figures, as JSON and CSV have them."""
    fits = variant.draft_length is not None
    at = variant.best if fits else 0

    def number(value: float) -> float | None:
        return float(value) if fits else None

    return {
        "parameters": variant.parameters,
        "kv_bytes_per_token": variant.kv_per_token,
        "kv_bytes_per_token_gpu": variant.kv_per_token_gpu,
        "kv_copied": variant.kv_copied,
        "largest_batch": variant.largest_batch,
        "draft_length": variant.draft_length,
        "speedup": number(variant.speedup[at]),
        "cost_ratio": number(variant.cost_ratio[at]),
        "tpot_ms": number(1e3 * variant.step[at] / variant.tokens_per_step[at]),
        "plain_tpot_ms": number(1e3 * variant.step[0]),
        "falls_from_batch": variant.falls_from,
        "stops_from_batch": variant.stops_from,
    }


def rows(exploration: Exploration) -> list[dict[str, Any]]:
    """Return a row for every variant."""
    lengths = sorted({d for variant in exploration.variants for d in variant.draft_lengths if d})
    found = []
    for variant in exploration.variants:
        entry = _variant(exploration, variant)
        by_length = {row["draft_length"]: row for row in entry["by_draft_length"]}
        curves = {
            f"{name}_{d}": by_length.get(d, {}).get(name)
            for name in ("speedup", "cost_ratio")
            for d in lengths
        }
        room = room_columns(
            variant.question.deployment.memory,
            batch=exploration.batch,
            context=exploration.context,
            draft_length=variant.draft_length or 0,
        )
        found.append(entry["values"] | _numbers(variant) | curves | room)
    return found


_HEADERS = (
    "params\nB",
    "KV kB\na token",
    "D",
    "speedup",
    "ms per\ntoken",
    "D falls\nfrom",
    "stops\nfrom",
    "fits",
)


def _names(exploration: Exploration) -> list[str]:
    """Return the axes' names: the last word of each path, on two lines where it is long."""
    return [axis.path.rsplit(".", 1)[-1].replace("_", "\n", 1) for axis in exploration.axes]


def _cells(variant: Variant) -> list[str]:
    row = _numbers(variant)
    beyond = f">{variant.batches[-1]}" if variant.batches else "-"
    knees = [row["falls_from_batch"], row["stops_from_batch"]]
    fits = row["draft_length"] is not None
    return [
        f"{row['parameters'] / 1e9:.1f}",
        f"{row['kv_bytes_per_token_gpu'] / 1e3:.1f}{'c' if variant.kv_copied else ''}",
        f"{row['draft_length']}" if fits else "-",
        f"{row['speedup']:.2f}x" if fits else "-",
        f"{row['tpot_ms']:.2f}" if fits else "-",
        *(beyond if knee is None else f"{knee}" for knee in knees),
        f"{row['largest_batch']}",
    ]


def _curves(exploration: Exploration) -> list[Block]:
    """Return the speedup and cost ratio of every draft length, in tables as wide as a terminal."""
    lengths = sorted({d for variant in exploration.variants for d in variant.draft_lengths if d})
    room = _WIDTH - sum(2 + max(map(len, [*axis.values, axis.path])) for axis in exploration.axes)
    across = max(room // 7, 1)  # a column has seven characters
    blocks = list[Block]()
    for title, name in (("Speedup", "speedup"), ("Cost ratio (= break-even)", "cost_ratio")):
        for start in range(0, len(lengths), across):
            part = lengths[start : start + across]
            blocks.append(
                Table(
                    headings=(*_names(exploration), *(f"D = {d}" for d in part)),
                    cells=tuple((*v.values, *_curve(v, name, part)) for v in exploration.variants),
                    title=f"{title} at batch {exploration.batch} by draft length",
                )
            )
    return blocks


def _curve(variant: Variant, name: str, lengths: Sequence[int]) -> list[str]:
    values = dict(zip(variant.draft_lengths, getattr(variant, name), strict=True))
    cells = (values.get(d, math.nan) for d in lengths)
    return ["-" if math.isnan(value) else f"{value:.3f}" for value in cells]


def _refused(exploration: Exploration) -> list[str]:
    """Say what is missing and what helps, for the first variants that do not fit."""
    unfit = [variant for variant in exploration.variants if variant.refused]
    lines = [
        f"{_label(exploration, variant)}: {line}"
        for variant in unfit[:MOST_REFUSED]
        for line in refused_lines(variant.question.deployment, variant.refused)
    ]
    more = len(unfit) - MOST_REFUSED
    if more > 0:
        lines.append(f"{more} more do not fit, which {Option('format', 'json')} has.")
    return lines


def _headline(exploration: Exploration) -> str:
    priced = [variant for variant in exploration.variants if variant.draft_length is not None]
    if all(variant.draft_lengths == (0,) for variant in priced):
        fastest, slowest = (pick(priced, key=lambda v: float(v.step[0])) for pick in (min, max))
        return (
            f"Nothing is drafted; ms per token: {1e3 * fastest.step[0]:.2f} at "
            f"{_label(exploration, fastest)} to {1e3 * slowest.step[0]:.2f} at "
            f"{_label(exploration, slowest)}."
        )
    low, high = (pick(priced, key=lambda v: float(v.speedup[v.best])) for pick in (min, max))
    lengths = sorted({variant.draft_length or 0 for variant in priced})
    span = f"{lengths[0]} to {lengths[-1]}" if len(lengths) > 1 else f"{lengths[0]} everywhere"
    return (
        f"Best draft length {span}; speedup {low.speedup[low.best]:.2f}x at "
        f"{_label(exploration, low)} to {high.speedup[high.best]:.2f}x at "
        f"{_label(exploration, high)}."
    )


def _label(exploration: Exploration, variant: Variant) -> str:
    named = zip(exploration.axes, variant.values, strict=True)
    return ", ".join(f"{axis.path} = {value}" for axis, value in named)


def _setting(exploration: Exploration) -> str:
    question = exploration.variants[0].question
    return (
        f"{question.deployment.target.model.name} on {gpus_named(question.deployment)}; "
        f"batch {exploration.batch}, context {format_size(exploration.context)}; "
        f"{'; '.join(drafting(question))}; {question.deployment.engine.name}."
        f"{set_line(fixed_changes(question.deployment))}"
    )


def _legend(exploration: Exploration) -> list[str]:
    smallest = exploration.variants[0].question.workload.batches[0]
    columns = (
        "KV: one GPU's share of a token. Fits: the most sequences without drafts. D falls from: "
        f"from this batch on the best D is below that of batch {smallest}. Stops from: from this "
        "batch on no drafts are best (D = 0). >N: not up to batch N, the last that fits with "
        "drafts."
    )
    lines = [columns]
    if any(variant.kv_copied for variant in exploration.variants):
        cards = exploration.variants[0].question.deployment.cards
        lines.append(
            f"c: fewer KV heads than GPUs. Each of the {cards} GPUs then holds a copy, so neither "
            "its cache nor its attention changes further."
        )
    lines.append(
        "Acceptance is held as given: measure it again for a changed architecture. Speedups are "
        f"expected values; recommend with {Option('set')} gives their range."
    )
    return lines
