"""The answer of ``recommend``: its blocks, its rows and its data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import product
from typing import TYPE_CHECKING, Any

from roofline.advice.belief_prior import FirstTiming, first_timing
from roofline.advice.columns import Column, columns, printed
from roofline.advice.decide import Point
from roofline.advice.question import MAX_DRAFT_LENGTH, Ending, Question
from roofline.advice.recommend import Recommendation
from roofline.advice.why import Outcome, outcome
from roofline.advice.worth_measuring import worth_measuring
from roofline.base.notices import Code as NoticeCode
from roofline.base.units import format_bytes, format_count, format_ms, format_pace, format_size
from roofline.kernels.ops import Part
from roofline.render.blocks import Answer, Block, Code, Paragraph, Table, Tone, table
from roofline.render.data import (
    acceptance_data,
    benchmark_rows,
    engine_data,
    explain_rows,
    inputs_data,
    other_points_data,
    point_data,
    provenance,
    summary,
)
from roofline.render.deployment import drafting, gpus_named, set_column, set_line, stored_as
from roofline.render.notices import notes, notes_data, warnings
from roofline.render.why import (
    caveat,
    counting_line,
    experimental,
    headline,
    likely_line,
    marks_line,
    names_taken,
    of_all_points,
    other_headlines,
)

if TYPE_CHECKING:
    from roofline.questions.goals import Goal, OperatingPoint

__all__ = [
    "COLUMNS",
    "COST",
    "Met",
    "answer_blocks",
    "as_answer",
    "columns_of",
    "data",
    "engine_blocks",
    "headline_blocks",
    "rows",
    "setting",
]

SCHEMA = "roofline.recommend/1"
#: Lines of a terminal that the answer for one point keeps to, at the default longest draft.
HEIGHT = 40
COLUMNS = columns(
    "draft_length",
    "tokens_per_step",
    "step_ms",
    "verify_ms",
    "draft_ms",
    "overhead_ms",
    "cost_ratio",
    "speedup",
    "tokens_per_s",
)
#: One column more where a GPU has a price.
(COST,) = columns("dollars_per_million_tokens")
#: And two where watts are asked for.
ENERGY = columns("watts", "joules_per_token")
_NARROW = {"overhead_ms": "over-\nhead ms", "cost_ratio": "cost\nratio"}
_NARROWER = _NARROW | {"overhead_ms": "over-\nhead", "tokens_per_s": "tok/s\nbatch"}
#: A goal with the choices that meet it.
Met = tuple["Goal", Sequence["OperatingPoint"]]


def as_answer(answer: Recommendation, *, explain: bool = False, met: Met | None = None) -> Answer:
    """Return the answer in every form; ``met`` is a goal with the choices that meet it."""
    short = answer.question.workload.max_draft_length <= MAX_DRAFT_LENGTH
    # what an experimental answer rests on is always shown
    sure = not experimental(answer)
    return Answer(
        headlines=lambda: _short_headlines(answer, met),
        blocks=lambda: answer_blocks(answer, explain=explain, met=met),
        notes=notes(answer.notices),
        said=frozenset(_said(answer)),
        more=lambda: _more(answer, explain=explain),
        height=HEIGHT if len(answer.points) == 1 and short and not explain and sure else None,
        data=lambda: data(answer, explain=explain, met=met),
        rows=lambda: rows(answer),
    )


def answer_blocks(
    answer: Recommendation, *, explain: bool = False, met: Met | None = None
) -> list[Block]:
    """Return the answer first, what was refused, then how each point comes about."""
    blocks, question = list[Block](), answer.question
    headlines = _headlines(answer, met)
    choices = [None] * len(answer.points) if met is None else met[1]
    past_explained = False
    for n, (point, choice) in enumerate(zip(answer.points, choices, strict=True)):
        entry = point_data(answer, point)
        blocks += _first_blocks(answer, n, headlines[n], met)
        if met is not None and choice is not None:
            from roofline.render.goals import goal_lines

            lines = (*goal_lines(met[0], choice), entry["headline"])
            blocks += [Paragraph(line, close=True) for line in lines]
        if n == 0:
            blocks.append(Paragraph(setting(question, where=_at(point))))
        blocks.append(_table(question, entry))
        marks = marks_line(answer, point)
        if n == 0 or ("!" in marks and not past_explained):
            blocks.append(Paragraph(marks, tone=Tone.QUIET, close=True))
        past_explained |= "!" in marks
        blocks += [
            Paragraph(f"Why: {entry['reason']}"),
            Paragraph(likely_line(point, question.unmeasured, _first_timing(answer)), close=True),
            *_to_count(answer),
            *_pools(answer, point),
            *engine_blocks(
                question, point.draft_length, running=answer.running(point), most=answer.capped
            ),
        ]
        if explain:
            blocks += _explained(answer, point)
    return blocks


def _pools(answer: Recommendation, point: Point) -> list[Block]:
    """Return what one prefill instance feeds, if that is asked."""
    if answer.question.workload.pools is None:
        return []
    from roofline.questions.pools import pools_of

    found, best = pools_of(answer, point), point.best
    gpus = format_count(found.gpus, "GPU")
    without = f"; without drafts {found.instances[0]:.2g}" if best else ""
    return [
        Paragraph(
            f"Pools (experimental): a prefill instance of {gpus} reads a prompt of "
            f"{format_size(found.prompt)} in {format_ms(1e3 * found.prefill)} ms, and feeds "
            f"{found.instances[best]:.2g} decode instances like it at D = {point.draft_length} "
            f"(likely {found.low[best]:.2g} to {found.high[best]:.2g}){without}. Handing its "
            f"{format_bytes(found.cache)} of KV over takes {format_ms(1e3 * found.handover)} ms."
        )
    ]


def _first_timing(answer: Recommendation) -> FirstTiming | None:
    """Return what to time first, where one point is answered."""
    return first_timing(answer, answer.points[0]) if len(answer.points) == 1 else None


def _to_count(answer: Recommendation) -> list[Block]:
    """Return which count of the acceptance would raise the odds, where one point is answered."""
    if len(answer.points) > 1:
        return []
    line = counting_line(worth_measuring(answer, answer.points[0]))
    return [Paragraph(line, close=True)] if line else []


def _counts_data(answer: Recommendation) -> dict[str, Any] | None:
    """Return what counts of the acceptance would change, where one point is answered."""
    if len(answer.points) > 1:
        return None
    worth = worth_measuring(answer, answer.points[0])
    return None if worth is None else asdict(worth)


def headline_blocks(answer: Recommendation) -> list[Block]:
    """Return the answer of every point in its first sentence, and what was refused."""
    headlines = _headlines(answer, None)
    return [block for n, said in enumerate(headlines) for block in _first_blocks(answer, n, said)]


def _first_blocks(answer: Recommendation, n: int, said: str, met: Met | None = None) -> list[Block]:
    """Return the first sentence of the nth point; below that of the first what was refused."""
    point = answer.points[n]
    added = (of_all_points(answer) if n == 0 else "") + caveat(answer, point)
    blocks: list[Block] = [Paragraph(said + added, tone=Tone.HEADLINE)]
    blocks += map(Paragraph, _others(answer, point, met, None if met is None else met[1][n]))
    if n == 0 and answer.refused:
        from roofline.render.refusals import refused_blocks

        blocks += refused_blocks(answer.deployment, answer.refused)
    return blocks


def _short_headlines(answer: Recommendation, met: Met | None) -> list[str]:
    """Return the answer of every point in a line, and in another one where readings differ.

    The first one says what names mean.
    """
    first, *others = _headlines(answer, met)
    said = [first + names_taken(answer), *others]
    choices = [None] * len(said) if met is None else met[1]
    return [
        line
        for of_point, point, choice in zip(said, answer.points, choices, strict=True)
        for line in (of_point, *_others(answer, point, met, choice))
    ]


def _others(
    answer: Recommendation, point: Point, met: Met | None, choice: OperatingPoint | None
) -> list[str]:
    """Return the first sentence under the other reading of the acceptance, where it differs."""
    if answer.other_reading is None or met is None or choice is None:
        return other_headlines(answer, point)
    from roofline.questions.goals import choices_in_other_reading
    from roofline.render.goals import other_goal_headlines

    return other_goal_headlines(met[0], choice, choices_in_other_reading(answer, met[0]) or ())


def _headlines(answer: Recommendation, met: Met | None) -> list[str]:
    """Return the answer of every point in a sentence, with its place if there are several."""
    if met is not None:
        from roofline.render.goals import goal_headline

        measured = not answer.question.acceptance.unknown
        return [goal_headline(met[0], choice, measured=measured) for choice in met[1]]
    several = len(answer.points) + len(answer.refused) > 1
    return [
        f"{_at(point).capitalize()}: {said}" if several else said
        for point in answer.points
        for said in [headline(answer, point)]
    ]


def _at(point: Point) -> str:
    return f"batch {point.batch}, context {format_size(point.context)}"


def setting(question: Question, *, where: str) -> str:
    """Say what was asked: model, formats, GPUs, where, drafter and acceptance."""
    deployment = question.deployment
    target = deployment.target
    era = deployment.engine.era
    builds = [] if era is None else [f"{deployment.engine.name} {era.builds}"]
    named = (
        f"{target.model.name} ({stored_as(deployment)}, {target.precision.kv} KV) on "
        f"{gpus_named(deployment)}"
    )
    parts = "; ".join([named, where, *builds, *drafting(question)])
    return f"{parts}.{set_line(deployment.changes)}"


def columns_of(question: Question) -> tuple[Column, ...]:
    """Return the columns of the table of draft lengths: the cost where GPUs have a price."""
    if question.workload.gpu_hour is None:
        return (*COLUMNS, *ENERGY) if question.workload.watts else COLUMNS
    return (*COLUMNS, COST, ENERGY[-1]) if question.workload.watts else (*COLUMNS, COST)


def _table(question: Question, entry: Mapping[str, Any]) -> Table:
    """Return the draft lengths of a point, the advised one and those past the graphs marked."""
    shown = columns_of(question)
    if len(shown) > len(COLUMNS):  # which needs their room in a terminal
        names = _NARROW if ENERGY[-1] not in shown else _NARROWER
        shown = tuple(c._replace(heading=names.get(c.key, c.heading)) for c in shown)
    lengths = entry["by_draft_length"]
    whole = table(shown, lengths)
    cells = []
    for row, line in zip(lengths, whole.cells, strict=True):
        length = row["draft_length"]
        mark = "*" if length == entry["draft_length"] else " " if row["captured"] else "!"
        named = zip(shown[1:], line[1:], strict=True)
        cells.append((f"{mark} {line[0]}", *(_narrow(c.key, row, cell) for c, cell in named)))
    return whole._replace(cells=tuple(cells))


def _narrow(key: str, row: Mapping[str, Any], cell: str) -> str:
    """Return a cell, of times and paces with no more digits than a terminal has room for."""
    if key == "tokens_per_s":
        return format_pace(row[key])
    return format_ms(row[key]) if key.endswith("_ms") else cell


def engine_blocks(
    question: Question, draft_length: int, *, running: int, most: bool = False
) -> list[Block]:
    """Return the flags of a draft length to paste, and which flag is left out without drafts."""
    launch, name = question.deployment.launch, question.deployment.engine.name
    flags = launch.flags(draft_length, running=running, most=most)
    if draft_length:
        share, ranks = launch.share_of_requests(running, most=most), launch.placement.dp
        if share is None:
            return [Code(flags, of=name)]
        said = f"(Each of the {ranks} data-parallel ranks runs {share} requests at once.)"
        return [Code(flags, of=name), Paragraph(said, close=True)]
    if flags == launch.left_out:
        return [Paragraph(f"{name}: {flags}.")]
    return [Code(flags, of=name), Paragraph(f"({launch.left_out})", close=True)]


def _said(answer: Recommendation) -> set[NoticeCode]:
    """Return the notices that the answer's own blocks say: none of them stands there twice."""
    points = answer.points
    # where the marks of the table are explained; beside the headline
    said = {NoticeCode.PAST_GRAPHS, NoticeCode.NAME_TAKEN, NoticeCode.PLAIN_ASSUMED}
    if any(caveat(answer, point) for point in points):
        said.add(NoticeCode.BEYOND_TRAINED_CONTEXT)
    if all(outcome(answer, point) is Outcome.NO_ROOM for point in points):
        said.add(NoticeCode.DRAFTS_DO_NOT_FIT)
    for each in answer.notices:
        if each.code is NoticeCode.LONGEST_IS_BEST and each.values["ending"] is Ending.ACCEPTANCE:
            said.add(each.code)  # what to measure stands beside the odds
    return said


def _more(answer: Recommendation, *, explain: bool) -> list[Block]:
    """Return what stands below all notes: bytes of what was refused, and the constants."""
    blocks = list[Block]()
    if answer.refused:
        from roofline.render.refusals import refused_details

        blocks += refused_details(answer.deployment, answer.refused)
    if not explain:  # which ends with them
        blocks.append(Paragraph(summary(answer.question, answer.times)))
    return blocks


_EXPLAINED = (
    printed("op", "op", "{value}"),
    printed("count", "count", "{value}"),
    printed("rows_shown", "rows", "{value}"),
    printed("gflop", "GFLOP", "{value:.3g}"),
    printed("megabytes", "MB", "{value:.4g}"),
    printed("intensity", "FLOP/B", "{value:.1f}"),
    printed("total_ms", "ms", "{value:.3f}"),
    printed("bound", "bound", "{value}"),
    printed("share", "share", "{value:.1%}"),
)
_PASSES = {
    "verify": "Verify pass",
    "draft": "First draft pass",
    "draft, further": "Further draft passes",
}


def _explained(answer: Recommendation, point: Point) -> list[Block]:
    """Return every kernel of the recommended step, its formulas, and how to time it."""
    from roofline.render.formulas import formulas
    from roofline.render.rules import rule_lines

    passes: dict[str, list[dict[str, Any]]] = {}
    for row in explain_rows(answer, point):
        count = row["rows"]
        shown = {
            "rows_shown": f"{count:.0f}" if count < 1e6 else f"{count:.1e}",
            "gflop": row["flops"] / 1e9,
            "megabytes": row["bytes"] / 1e6,
        }
        passes.setdefault(_PASSES[row["pass"]], []).append(row | shown)
    lines = [*formulas(answer, point), *rule_lines(answer, point)]
    return [
        *(
            table(
                _EXPLAINED,
                kernels,
                align="l",
                title=f"{title} (GFLOP and MB of one launch, ms of all)",
            )
            for title, kernels in passes.items()
        ),
        *map(Paragraph, lines),
        *_to_time(answer, point),
        Paragraph(summary(answer.question, answer.times)),
    ]


def _to_time(answer: Recommendation, point: Point) -> list[Block]:
    """Return the flags that time the likely best draft lengths with acceptance held fixed."""
    lengths, name = benchmark_rows(answer, point), answer.deployment.engine.name
    if all(row["flag"] is None for row in lengths if row["draft_length"]):
        return [Paragraph(f"{name} cannot hold acceptance fixed while timing.")]
    flags = "\n".join(row["flag"] for row in lengths if row["flag"])
    return [Code(flags, of=f"To time them with acceptance held fixed, {name}")]


def data(
    answer: Recommendation, *, explain: bool = False, met: Met | None = None
) -> dict[str, Any]:
    """Return the whole answer as JSON-ready data."""
    from roofline.render.refusals import refused_data

    question, first = answer.question, _first_timing(answer)
    whole: dict[str, Any] = {
        "schema": SCHEMA,
        "inputs": inputs_data(question),
        "acceptance": acceptance_data(question) | other_points_data(answer),
        "points": [point_data(answer, point) for point in answer.points],
        "first_timing": None if first is None else first._asdict(),
        "worth_measuring": _counts_data(answer),
        "refused": refused_data(answer.refused),
        "engine": engine_data(question),
        "warnings": warnings(answer.notices),
        "notes": notes_data(answer.notices),
        "provenance": provenance(question, answer.times),
    }
    if explain:
        from roofline.render.rules import rule_rows

        whole["explain"] = [
            {
                "batch": point.batch,
                "context": point.context,
                "ops": explain_rows(answer, point),
                "rules": rule_rows(answer, point),
            }
            for point in answer.points
        ]
    if met is not None:
        from roofline.questions.goals import choices_in_other_reading
        from roofline.render.goals import goal_data

        whole["goal"] = goal_data(*met, choices_in_other_reading(answer, met[0]))
    return whole


def rows(answer: Recommendation) -> list[dict[str, Any]]:
    """Return a row for every batch, context and draft length, without numbers if it cannot fit."""
    from roofline.render.refusals import room_columns

    question = answer.question
    points = {(p.batch, p.context): point_data(answer, p) for p in answer.points}
    first = next(iter(points.values()))["by_draft_length"][0]
    # JSON names the cost ratio twice
    names = [name for name in first if name not in ("breakdown_ms", "break_even_tokens_per_step")]
    longest = question.draft_lengths[-1]
    ending = question.ending.value if longest else None
    found = []
    for batch, context, length in product(
        question.workload.batches, question.workload.contexts, question.draft_lengths
    ):
        point = points.get((batch, context), {"by_draft_length": []})
        by_length = {entry["draft_length"]: entry for entry in point["by_draft_length"]}
        entry = by_length.get(length, {"draft_length": length})
        parts = entry.get("breakdown_ms", {})
        found.append(
            {
                **question.columns,
                "batch": batch,
                "context": context,
                **{name: entry.get(name) for name in names},
                **{f"{part}_ms": parts.get(part) for part in Part},
                "confidence": point.get("confidence"),
                "recommended": length == point.get("draft_length"),
                "recommended_draft_length": point.get("draft_length"),
                "limited_by": ending if point.get("draft_length") == longest else None,
                **room_columns(answer.memory, batch=batch, context=context, draft_length=length),
                **set_column(answer.deployment.changes),
            }
        )
    return found
