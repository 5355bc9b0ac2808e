"""The answer of ``compare``: its blocks, its rows and its data."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from roofline.advice.columns import printed
from roofline.base.errors import Option
from roofline.base.units import format_size, listed
from roofline.questions.compare import (
    ComparedDrafter,
    advice_of,
    compare_notices,
    in_other_reading,
)
from roofline.render.blocks import Answer, Block, Note, Paragraph, Table, Tone, table
from roofline.render.data import acceptance_data, other_points_data
from roofline.render.deployment import deployment_data, gpus_named, set_column, set_data, set_line
from roofline.render.notices import notes, notes_data
from roofline.render.refusals import (
    drafts_without_room,
    refused_blocks,
    refused_data,
    refused_details,
    room_columns,
)
from roofline.render.why import NOT_MEASURED, as_conditional
from roofline.specs.overrides import AppliedOverride

__all__ = ["answer_blocks", "as_answer", "data", "rows"]

SCHEMA = "roofline.compare/1"
WIDTH = 14  # characters of a drafter's name
NO_ROOM = "does not fit"  # in place of a drafter's speedup
#: The drafters of every batch and context.
Points = Sequence[Sequence[ComparedDrafter]]


def as_answer(points: Points, *, left_out: Sequence[str] = ()) -> Answer:
    """Return the comparison in every form.

    ``left_out`` are heads that are bundled, but whose acceptance is not known.
    """
    answer = points[0][0].answer
    named = _left_out(left_out)
    notices = compare_notices(points)
    return Answer(
        headlines=lambda: [line for pair in _both_headlines(points) for line in pair],
        blocks=lambda: answer_blocks(points),
        notes=(*named, *notes(notices)),
        more=lambda: refused_details(answer.deployment, answer.refused),
        data=lambda: (
            data(points) | {"notes": [*(n._asdict() for n in named), *notes_data(notices)]}
        ),
        rows=lambda: rows(points),
    )


def _left_out(heads: Sequence[str]) -> list[Note]:
    """Return the note of the heads that are not compared."""
    if not heads:
        return []
    text = (
        f"no acceptance is known for {listed(heads)}, so the comparison is without; with it: "
        f"{Option('drafter', f'{heads[0]}=0.7')}, and the same for each drafter to compare"
    )
    return [Note(code="drafters-left-out", text=text)]


def answer_blocks(points: Points) -> list[Block]:
    """Return which drafter is the fastest at every point, and how they compare."""
    blocks, headlines = list[Block](), _both_headlines(points)
    for n, entries in enumerate(points):
        first, *others = headlines[n]
        blocks.append(Paragraph(first, tone=Tone.HEADLINE))
        blocks += map(Paragraph, others)
        if n == 0:
            answer = entries[0].answer
            blocks += refused_blocks(answer.deployment, answer.refused)
            blocks.append(Paragraph(_setting(entries)))
        blocks += [
            Paragraph(f"Does not fit: {drafts_without_room(e.answer.memory, **_place(e))}")
            for e in entries
            if not e.fits
        ]
        columns = _COLUMNS if all(e.fits for e in entries) else _COLUMNS_BESIDE
        blocks.append(table(columns, map(_shown, entries), align="l"))
        if n == 0:
            blocks += [Paragraph(_LEGEND, tone=Tone.QUIET, close=True), _acceptances(entries)]
    return blocks


def _both_headlines(points: Points) -> list[list[str]]:
    """Return the verdict at every point; where it differs also under the other reading."""
    own, others = _headlines(points), in_other_reading(points)
    if others is None:
        return [[line] for line in own]
    return [
        [line, *([as_conditional(other)] if advice_of(now) != advice_of(then) else [])]
        for line, other, now, then in zip(own, _headlines(others), points, others, strict=True)
    ]


def _headlines(points: Points) -> list[str]:
    """Return the verdict at every point, with its place if there are several."""
    several = len(points) + len(points[0][0].answer.refused) > 1
    return [
        f"{_at(entries).capitalize()}: {_verdict(entries)}" if several else _verdict(entries)
        for entries in points
    ]


def _at(entries: Sequence[ComparedDrafter]) -> str:
    point = entries[0].point
    return f"batch {point.batch}, context {format_size(point.context)}"


def _place(entry: ComparedDrafter) -> dict[str, int]:
    return {"batch": entry.point.batch, "context": entry.point.context}


def data(points: Points) -> dict[str, Any]:
    """Return the whole comparison as JSON-ready data."""
    answer = points[0][0].answer
    return {
        "schema": SCHEMA,
        "inputs": deployment_data(answer.deployment),
        "set": set_data(_changes(points)),
        "acceptance": [
            {"drafter": entry.answer.deployment.drafter.name}
            | acceptance_data(entry.answer.question)
            | other_points_data(entry.answer)
            for entry in points[0]
        ],
        "points": [_point(entries) for entries in points],
        "other_reading": _other_reading(points),
        "refused": refused_data(answer.refused),
    }


def _other_reading(points: Points) -> list[dict[str, Any]] | None:
    """Return the fastest drafter at every point under the other reading; None without one."""
    others = in_other_reading(points)
    if others is None:
        return None
    return [
        {
            "batch": entries[0].point.batch,
            "context": entries[0].point.context,
            "drafter": entries[0].answer.deployment.drafter.name,
            "draft_length": entries[0].point.draft_length,
            "headline": headline,
        }
        for entries, headline in zip(others, _headlines(others), strict=True)
    ]


def _changes(points: Points) -> list[AppliedOverride]:
    """Return what was set, for all drafters and for single ones, each once."""
    changes = (c for entries in points for e in entries for c in e.answer.deployment.changes)
    return list(dict.fromkeys(changes))


def _point(entries: Sequence[ComparedDrafter]) -> dict[str, Any]:
    first = entries[0]
    return {
        "batch": first.point.batch,
        "context": first.point.context,
        "drafters": [_row(entry) for entry in entries],
    }


def _row(entry: ComparedDrafter) -> dict[str, Any]:
    """Return one drafter, as JSON and CSV have it."""
    answer, point, i = entry.answer, entry.point, entry.judged
    length = point.draft_lengths[i]
    row = {
        "drafter": answer.deployment.drafter.name,
        "drafter_kind": answer.deployment.drafter.kind,
        "draft_length": point.draft_length,
        "best_draft_length": length,
        "fits": entry.fits,
        "speedup": float(point.speedup[i]),
        "speedup_low": float(point.low[i]),
        "speedup_high": float(point.high[i]),
        "confidence": point.confidence.value,
        "verify_ms": 1e3 * float(point.verify[i]),
        "draft_ms": 1e3 * float(point.draft[i]),
        "overhead_ms": 1e3 * float(point.overhead[i]),
        "tokens_per_step": float(point.tokens_per_step[i]),
        "break_even_tokens_per_step": float(point.cost_ratio[i]),
        "draft_weights_bytes": answer.memory.draft_weights,
        "slots_lost": entry.slots.lost,
        "acceptance": answer.question.acceptance.label,
        "acceptance_source": answer.question.acceptance.source,
        "flag": answer.question.deployment.launch.flags(length, running=answer.largest_batch),
    }
    return row if entry.fits else row | dict.fromkeys(_FIGURES)


#: What a drafter that does not fit has no value of.
_FIGURES = (
    *("best_draft_length", "speedup", "speedup_low", "speedup_high", "confidence", "verify_ms"),
    *("draft_ms", "overhead_ms", "tokens_per_step", "break_even_tokens_per_step", "slots_lost"),
    "flag",
)


_COLUMNS = (
    printed("name", "drafter"),
    printed("marked", "D"),
    printed("speedup", "speedup", "{value:.2f}x"),
    printed("speedup_low", "low-high", "{value:.2f}-{speedup_high:.2f}"),
    printed("step_ms", "step\nms", "{value:.2f}"),
    printed("split", "split %"),
    printed("tokens_per_step", "AL", "{value:.2f}"),
    printed("break_even_tokens_per_step", "AL\nneeded", "{value:.2f}"),
    printed("draft_weights_gb", "GB", "{value:.1f}"),
    printed("slots_lost", "slots\nlost", "{value:.0%}"),
)
#: The same where one does not fit: what it says needs the room of two columns.
_COLUMNS_BESIDE = (
    *_COLUMNS[:2],
    printed("range", "speedup and range"),
    *_COLUMNS[4:],
)
_LEGEND = (
    "Each drafter at its own best D; *: it beats plain decoding. Split: verify/draft/engine. AL: "
    "tokens per step; needed: to break even. GB: the drafter's weights on one GPU."
)


def _shown(entry: ComparedDrafter) -> dict[str, Any]:
    """Return one drafter with what its row of the table shows beside the data."""
    row = _row(entry)
    if not entry.fits:
        nothing = dict.fromkeys(("marked", "step_ms", "split"))
        weights = row["draft_weights_bytes"] / 1e9
        return (
            row | nothing | {"name": _short(entry), "range": NO_ROOM, "draft_weights_gb": weights}
        )
    parts = [row["verify_ms"], row["draft_ms"], row["overhead_ms"]]
    advised = row["draft_length"] == row["best_draft_length"] > 0
    return row | {
        "name": _short(entry),
        "marked": f"{'*' if advised else ''}{row['best_draft_length']}",
        "range": "{speedup:.2f}x {speedup_low:.2f}-{speedup_high:.2f}".format(**row),
        "step_ms": sum(parts),
        "split": "/".join(f"{100 * part / sum(parts):.0f}" for part in parts),
        "draft_weights_gb": row["draft_weights_bytes"] / 1e9,
    }


def _short(entry: ComparedDrafter) -> str:
    """Return the drafter's name without the target's in front, cut to its column."""
    deployment = entry.answer.deployment
    name = deployment.drafter.name.removeprefix(f"{deployment.target.model.id}-")
    return name[:WIDTH]


def _setting(entries: Sequence[ComparedDrafter]) -> str:
    deployment = entries[0].answer.deployment
    return (
        f"{deployment.target.model.name} on {gpus_named(deployment)}, {_at(entries)}, "
        f"{deployment.engine.name}.{set_line(_changes([entries]))}"
    )


def _acceptances(entries: Sequence[ComparedDrafter]) -> Table:
    """Return what was assumed to be accepted of each drafter."""
    cells = tuple(
        (_short(e), f"{e.answer.question.acceptance.label} ({e.answer.question.acceptance.source})")
        for e in entries
    )
    return Table(headings=("", ""), cells=cells, align="ll", title="Acceptance")


def _verdict(entries: Sequence[ComparedDrafter]) -> str:
    """Say which drafter is the fastest, and which do not fit."""
    fitting = [entry for entry in entries if entry.fits]
    unfit = [_short(entry) for entry in entries if not entry.fits]
    if not fitting:
        return f"Decode plainly; {_do_not_fit(unfit)} beside the model."
    return _fastest(fitting) + (f" {_do_not_fit(unfit)}." if unfit else "")


def _do_not_fit(names: Sequence[str]) -> str:
    return f"{listed(names)} {NO_ROOM if len(names) == 1 else 'do not fit'}"


def _fastest(entries: Sequence[ComparedDrafter]) -> str:
    best = entries[0]
    if best.point.best == 0:
        return "None of these drafters beats plain decoding here."
    inside = [
        _short(e) for e in entries[1:] if e.point.high[e.judged] >= best.point.low[best.point.best]
    ]
    speedup = best.point.speedup[best.point.best]
    at = best.point.best
    gain, unknown = f"{speedup:.2f}x", best.answer.question.acceptance.unknown
    if unknown:
        gain = f"{best.point.low[at]:.2f}x to {best.point.high[at]:.2f}x"
    fastest = f"{_short(best)} is fastest, {gain} at D = {best.point.draft_length}"
    if unknown:
        fastest += f" ({NOT_MEASURED})"
    if not inside:
        return f"{fastest}."
    return f"{fastest}; by the model's error, {listed(inside, 'or')} may be as fast."


#: Of JSON, by the column that says the same of other answers.
_COLUMN_OF = {
    "draft_length": "recommended_draft_length",
    "break_even_tokens_per_step": "cost_ratio",
}


def _csv_row(entry: ComparedDrafter) -> dict[str, Any]:
    """Return one drafter under the columns of the catalogue."""
    own = ((key, value) for key, value in _row(entry).items() if key != "fits")
    row = {_COLUMN_OF.get(key, key): value for key, value in own}
    return row | {"acceptance": entry.answer.question.columns["acceptance"]}


def rows(points: Points) -> list[dict[str, Any]]:
    """Return a row for every batch, context and drafter, without figures if it does not fit."""
    changes = set_column(_changes(points))
    found = []
    for entries in points:
        for entry in entries:
            at = _place(entry)
            length = entry.point.draft_lengths[entry.judged if entry.fits else 1]
            room = room_columns(entry.answer.memory, **at, draft_length=length)
            found.append(at | _csv_row(entry) | room | changes)
    for refused, entry in product(points[0][0].answer.refused, points[0]):
        at, row = {"batch": refused.batch, "context": refused.context}, _csv_row(entry)
        empty = dict.fromkeys(row) | {key: row[key] for key in ("drafter", "drafter_kind")}
        room = room_columns(entry.answer.memory, **at, draft_length=refused.draft_length)
        found.append(at | empty | room | changes)
    return found
