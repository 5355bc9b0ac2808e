"""The answer of ``schedule``: its blocks, its rows and its data."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from roofline.advice.columns import cells, printed
from roofline.advice.readings import is_ambiguous
from roofline.base.errors import Option
from roofline.base.notices import Code as NoticeCode
from roofline.base.notices import Notice
from roofline.base.units import format_size
from roofline.engines.writing import Band
from roofline.kernels.ops import Part
from roofline.questions.schedule.plan import SchedulePlan, plain_value, table_value
from roofline.questions.schedule.rises import Rise
from roofline.questions.schedule.written import (
    WrittenSchedule,
    as_run,
    best_fixed,
    captured_gain,
    gain,
    gain_range,
    plain_faster,
    schedule_notices,
)
from roofline.render.blocks import Answer, Block, Code, Paragraph, Table, Tone
from roofline.render.data import acceptance_data, other_reading_data, prompts_data
from roofline.render.deployment import deployment_data, gpus_named, set_column, set_data, set_line
from roofline.render.notices import notes, notes_data, warnings
from roofline.render.refusals import refused_blocks, refused_data, refused_details
from roofline.render.why import NOT_MEASURED, as_conditional

__all__ = [
    "BAND_HEADERS",
    "answer_blocks",
    "as_answer",
    "band_cells",
    "capture_line",
    "data",
    "fixed_length_name",
    "other_headlines",
    "plain_line",
    "rise_line",
    "rows",
    "schedule_headline",
    "schedule_losses",
]

SCHEMA = "roofline.schedule/2"


_COLUMNS = (
    printed("batches_shown", "batches"),
    printed("contexts_shown", "context"),
    printed("draft_length", "D"),
    printed("smallest_speedup", "smallest\nspeedup", "{value:.2f}x"),
    printed("largest_speedup", "largest\nspeedup", "{value:.2f}x"),
    printed("largest_loss", "most lost\nto best", "{value:.1%}"),
)
BAND_HEADERS = tuple(column.heading for column in _COLUMNS)


def as_answer(plan: SchedulePlan, written: WrittenSchedule) -> Answer:
    """Return the schedule in every form."""
    notices = schedule_notices(plan, written)
    return Answer(
        headlines=lambda: [schedule_headline(plan, written)],
        blocks=lambda: answer_blocks(plan, written),
        notes=notes(notices),
        said=frozenset(
            {NoticeCode.SCHEDULE_GAINS_NOTHING}  # the headline is it
            | ({NoticeCode.BATCHES_DO_NOT_FIT} if plan.refused else set())
        ),
        more=lambda: refused_details(plan.question.deployment, plan.refused),
        data=lambda: data(plan, written),
        rows=lambda: rows(plan, written),
    )


def _mix(plan: SchedulePlan) -> str:
    """Say how the time is shared among batches."""
    if plan.mix is None:
        return "as much time in each doubling of the batch"
    return f"time spent: {', '.join(f'{share:.0%} at {batch}' for batch, share in plan.mix)}"


def data(plan: SchedulePlan, written: WrittenSchedule) -> dict[str, Any]:
    """Return the whole schedule as JSON-ready data."""
    question, other = plan.question, plan.other_reading
    notices = schedule_notices(plan, written)
    fixed, _ = best_fixed(plan)
    plain = plain_faster(plan, written.bands)
    return {
        "schema": SCHEMA,
        "inputs": {
            **deployment_data(question.deployment),
            "drafter": question.deployment.drafter.name,
            "acceptance": question.acceptance.label,
            "acceptance_source": question.acceptance.source,
            **prompts_data(question),
            "context": list(plan.contexts),
            "batches": plan.batches,
            "mix": _mix(plan),
            "tie": plan.tie,
            "odds": plan.odds,
            "set": set_data(question.deployment.changes),
        },
        "acceptance": acceptance_data(question)
        | other_reading_data(
            None if other is None else other.question.acceptance,
            notices,
            **_other_advice(plan, written),
        ),
        "bands": _band_rows(plan, written),
        "refused": refused_data(plan.refused),
        "best_fixed_draft_length": fixed,
        "gain_over_fixed": gain(plan, written.bands),
        "gain_over_fixed_range": list(gain_range(plan, written.bands, against=fixed)),
        "gain_over_plain": _gain_over_plain(plan, written),
        "gain_over_plain_range": list(gain_range(plan, written.bands, against=0)),
        "loss": written.loss,
        "form_loss": written.form_loss,
        "largest_loss": written.largest_loss,
        "worst_batch": written.worst_batch,
        "rises": [asdict(rise) for rise in written.rises],
        "idle_ms": 1e3 * as_run(plan, written.bands).idle,
        "plain_faster": None if plain is None else asdict(plain),
        "text": written.text,
        "warnings": warnings(notices),
        "notes": notes_data(notices),
    }


def _other_advice(plan: SchedulePlan, written: WrittenSchedule) -> dict[str, Any]:
    """Return what the other reading advises, as JSON-ready data."""
    other, other_written = plan.other_reading, written.other_reading
    if other is None or other_written is None:
        return {}
    return {
        "headline": schedule_headline(other, other_written),
        "bands": _band_rows(other, other_written),
    }


def other_headlines(plan: SchedulePlan, written: WrittenSchedule) -> list[str]:
    """Return the first sentence under the other reading of the acceptance, where it differs."""
    other, other_written = plan.other_reading, written.other_reading
    if other is None or other_written is None:
        return []
    if not is_ambiguous(schedule_notices(plan, written)):
        return []
    return [as_conditional(schedule_headline(other, other_written))]


def _band_rows(plan: SchedulePlan, written: WrittenSchedule) -> list[dict[str, Any]]:
    """Return the rows of all bands."""
    run = as_run(plan, written.bands)
    return [row for band in written.bands for row in _rows(run, band)]


def _rows(plan: SchedulePlan, band: Band) -> list[dict[str, Any]]:
    """Return a row for each context of a band, or one for all if it has one draft length."""
    joint = len(band.draft_lengths) == 1
    contexts = [list(plan.contexts)] if joint else [[context] for context in plan.contexts]
    inside = slice(band.first - 1, band.last)
    found = []
    for position, row_contexts in enumerate(contexts):
        length = band.draft_lengths[position]
        columns = slice(None) if joint else slice(position, position + 1)
        speed = plan.speed[inside, columns]
        batches_that_fit = int(np.isfinite(speed).any(axis=(1, 2)).sum())  # the smallest ones
        if not batches_that_fit:
            continue
        chosen = speed[..., plan.draft_lengths.index(length)]
        speedup = chosen / plan.plain[inside, columns]
        lost = 1 - chosen / np.where(np.isnan(speed), -np.inf, speed).max(axis=-1)
        usable = np.isfinite(speedup)
        found.append(
            {
                "batch_start": band.first,
                "batch_end": band.first + batches_that_fit - 1,
                "context": row_contexts,
                "draft_length": length,
                "smallest_speedup": float(speedup[usable].min()) if usable.any() else None,
                "largest_speedup": float(speedup[usable].max()) if usable.any() else None,
                "largest_loss": float(lost[usable].max()) if usable.any() else None,
            }
        )
    return found


def answer_blocks(
    plan: SchedulePlan, written: WrittenSchedule, *, tone: Tone = Tone.HEADLINE
) -> list[Block]:
    """Return what the bands gain in this tone, the bands, and the engine's own text of them."""
    question = plan.question
    deployment = question.deployment
    contexts = ", ".join(map(format_size, plan.contexts))
    bands = _band_rows(plan, written)
    joined = f" (one table for all: geometric mean over contexts {contexts})"
    setting = (
        f"{deployment.target.model.name} on {gpus_named(deployment)}, contexts {contexts}; "
        f"drafter {deployment.drafter.name}; acceptance: {question.acceptance.label}."
        + (joined if len(plan.contexts) > 1 and len(bands) == len(written.bands) else "")
        + set_line(question.deployment.changes)
    )
    refused = refused_blocks(deployment, plan.refused)
    others = [Paragraph(line) for line in other_headlines(plan, written)]
    blocks: list[Block] = [
        Paragraph(schedule_headline(plan, written), tone=tone),
        *others,
        *refused,
        Paragraph(setting),
        Table(headings=BAND_HEADERS, cells=tuple(map(tuple, band_cells(plan, written)))),
        Paragraph(schedule_losses(plan, written)),
        *map(Paragraph, plain_line(plan, written)),
        *map(Paragraph, capture_line(plan)),
        *(Paragraph(rise_line(rise)) for rise in written.rises),
    ]
    idle = deployment.engine.idle_speculation
    lengths = {row["draft_length"] for row in bands}
    if idle is not None and 0 in lengths and any(lengths):
        cost = (
            f"At D = 0 speculation stays configured and costs {1e3 * plan.idle:.2f} ms a step "
            f"({idle.source})."
        )
        blocks.append(Paragraph(cost))
    name = deployment.engine.name
    if written.only_length is not None:
        flags = written.text if written.static else _static_flags(plan, written.only_length)
        left_out = deployment.launch.left_out
        pasted = Paragraph(f"{name}: {flags}.") if flags == left_out else Code(flags, of=name)
        blocks.insert(1 + len(others) + len(refused), pasted)
    if written.static:
        return blocks
    return [*blocks, Code(written.text, of=name)]


def band_cells(plan: SchedulePlan, written: WrittenSchedule) -> list[list[str]]:
    """Return the table of bands, under ``BAND_HEADERS``."""
    return [cells(_COLUMNS, _shown(row)) for row in _band_rows(plan, written)]


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Return a band with its batches and contexts as the table shows them."""
    start, end, context = row["batch_start"], row["batch_end"], row["context"]
    return row | {
        "batches_shown": f"{start}-{end}" if end > start else f"{start}",
        "contexts_shown": "all" if len(context) > 1 else format_size(context[0]),
    }


def fixed_length_name(draft_length: int) -> str:
    """Name the best fixed draft length, that a schedule is compared with."""
    return f"D = {draft_length} at every batch" if draft_length else "no speculation at all"


def schedule_headline(plan: SchedulePlan, written: WrittenSchedule) -> str:
    """Return in one sentence what the bands gain."""
    fixed, _ = best_fixed(plan)
    lengths = {d for band in written.bands for d in band.draft_lengths}
    rises = any(
        b.draft_lengths[0] > a.draft_lengths[0]
        for a, b in zip(written.bands, written.bands[1:], strict=False)
    )
    shape = "; D rises again with batch" if rises else ""
    gained = gain(plan, written.bands)
    against, over = fixed_length_name(fixed), _over(plan)
    nothing = _note(written, NoticeCode.SCHEDULE_GAINS_NOTHING)
    if nothing is not None:
        gained = nothing.values["gain"]
        return f"Bands gain nothing ({gained:.1%} tokens) over {against}: run that ({over})."
    if lengths == {0} and _note(written, NoticeCode.SCHEDULE_NOT_WORTH) is not None:
        return "Do not configure speculation: a schedule gains less than its graph mode costs."
    if lengths == {0}:
        wins = bool((plan.speed > (1 + plan.tie) * plan.plain[..., None]).any())
        where = f"over all batches together ({_over(plan)})" if wins else "at any batch"
        return f"Do not configure speculation: no draft length wins {where}."
    if len(lengths) == 1:
        gained = _gain_over_plain(plan, written)
        why = "the engine takes no schedule" if no_form(written) else "no schedule needed"
        return (
            f"One draft length for batches 1 to {plan.batches}: {why}. D = "
            f"{lengths.pop()} gives {_gained(plan, written, gained, against=0)} tokens against "
            f"{fixed_length_name(0)} ({over})."
        )
    verdict = f"{_gained(plan, written, gained, against=fixed)} tokens against {against}"
    return (
        f"{len(written.bands)} bands, D from {min(lengths)} to {max(lengths)}{shape}: {verdict} "
        f"({over})."
    )


def _gain_over_plain(plan: SchedulePlan, written: WrittenSchedule) -> float:
    """Return what the bands gain over plain decoding without speculation configured."""
    return table_value(plan, plan.positions(written.bands)) / plain_value(plan) - 1


def _gained(plan: SchedulePlan, written: WrittenSchedule, gained: float, *, against: int) -> str:
    """Return what the bands gain over a fixed D; the range where nobody measured the acceptance."""
    if not plan.question.acceptance.unknown:
        return f"{gained:+.1%}"
    low, high = gain_range(plan, written.bands, against=against)
    return f"{low:+.1%} to {high:+.1%}"


def _over(plan: SchedulePlan) -> str:
    """Say over which batches a sentence holds, and that nobody measured the acceptance."""
    unknown = plan.question.acceptance.unknown
    return f"{_mix(plan)}; {NOT_MEASURED}" if unknown else _mix(plan)


def _note(written: WrittenSchedule, code: NoticeCode) -> Notice | None:
    return next((each for each in written.notes if each.code is code), None)


def no_form(written: WrittenSchedule) -> bool:
    """Return whether the engine takes no schedule, so that one draft length is for all."""
    return _note(written, NoticeCode.NO_SCHEDULE) is not None


def schedule_losses(plan: SchedulePlan, written: WrittenSchedule) -> str:
    """Return in one or two sentences what the bands lose to the best everywhere."""
    if written.largest_loss < 0.0005:
        return "Against the best D at each batch this loses nothing."
    lost = f"Against the best D at each batch this loses {written.loss:.2%} of all tokens"
    if written.form_loss > 0:
        lost += f" ({written.form_loss:.2%} because the engine's form cannot say it)"
    joined = len(plan.contexts) > 1 and all(len(band.draft_lengths) == 1 for band in written.bands)
    over = " on the mean over the contexts" if joined else ""
    worst, where = f"{written.largest_loss:.1%}", f"at batch {written.worst_batch}{over}"
    limit = Option("tie", f"{100 * plan.tie:g}")
    if written.largest_loss <= plan.tie:
        return f"{lost} (at most {worst}, {where}): within {limit}."
    reasons = []
    if no_form(written):
        reasons.append("the engine takes one D for all")
    elif _note(written, NoticeCode.SCHEDULE_GAINS_NOTHING) is not None:
        reasons.append("bands lose more than that at other batches")
    elif plan.odds > 0:
        reasons.append(
            "the batches get another D only where that gains more than the tie with odds of "
            f"{plan.odds:.0%}"
        )
    if written.form_loss > 0:
        reasons.append("the engine's form cannot say every table")
    return f"{lost}; {where} it loses {worst}, more than {limit}: {', and '.join(reasons)}."


def plain_line(plan: SchedulePlan, written: WrittenSchedule) -> list[str]:
    """Say at which batches plain decoding without a drafter is faster; nothing where nowhere."""
    found = plain_faster(plan, written.bands)
    if found is None or not any(d for band in written.bands for d in band.draft_lengths):
        return []
    first, last = found.ranges[0][0], found.ranges[-1][-1]
    count = sum(b - a + 1 for a, b in found.ranges)
    batches = f"batches {first} to {last}" if last > first else f"batch {first}"
    if len(found.ranges) > 1:
        batches = f"{count} of the {batches}"
    most = f"up to {found.gain:.1%} at batch {found.batch}"
    if len(plan.contexts) > 1:
        most += f", context {format_size(found.context)}"
    idle = plan.question.deployment.engine.idle_speculation
    cost = f" (D = 0 in a schedule costs {1e3 * found.idle:.2g} ms a step there)" if idle else ""
    return [f"Plain decoding with no drafter configured is faster at {batches}, by {most}{cost}."]


def capture_line(plan: SchedulePlan) -> list[str]:
    """Say what graphs for more rows would gain at most; nothing where no more than a tie."""
    found = captured_gain(plan)
    if found is None:
        return []
    at = f"batch {found.batch}"
    if len(plan.contexts) > 1:
        at += f", context {format_size(found.context)}"
    by = f" ({found.flag})" if found.flag else ""
    would = f"D = {found.draft_length} would be {found.gain:.1%} faster than the best D at {at}"
    return [f"With graphs for its {found.rows:.0f} rows{by}, {would}."]


#: The part of the step to which a longer draft adds less from a batch on.
_PARTS = {
    Part.LINEAR: "the linear layers, whose time rises in steps of rows",
    Part.ATTENTION: "attention",
    Part.MOE: "the experts, most of which are read already",
    Part.LM_HEAD: "the output layer, whose time rises in steps of rows",
    Part.COMMUNICATION: "the links between the GPUs",
    Part.OTHER: "the engine's own work and small kernels",
}


#: A share of a step that rounds to 0.0 %.
NOTHING = 0.0005


def rise_line(rise: Rise) -> str:
    """Return why the draft length rises with the batch."""
    where = "" if rise.context is None else f" at context {format_size(rise.context)}"
    start = f"D rises from {rise.shorter} to {rise.longer} at batch {rise.batch}{where}"
    if rise.part is None:
        return (
            f"{start}: plain decoding leaves the captured CUDA graphs there as well, so drafts "
            "that leave them are no longer slower for it."
        )
    after = rise.after or 0
    adds = f"{after:.1%} of a step" if after >= NOTHING else "nothing"
    return (
        f"{start}: the longer draft adds {adds} to {_PARTS[Part(rise.part)]}; "
        f"in the band before it adds {max(rise.before or 0, 0):.1%}."
    )


def _static_flags(plan: SchedulePlan, draft_length: int) -> str:
    return plan.question.deployment.launch.flags(draft_length, running=plan.batches)


def rows(plan: SchedulePlan, written: WrittenSchedule) -> list[dict[str, Any]]:
    """Return a row for every band, and for each context where they differ."""
    changes = set_column(plan.question.deployment.changes)
    return [
        {
            "batch_start": row["batch_start"],
            "batch_end": row["batch_end"],
            "contexts": " ".join(map(str, row["context"])),
            "draft_length": row["draft_length"],
            "smallest_speedup": row["smallest_speedup"],
            "largest_speedup": row["largest_speedup"],
            "largest_loss": row["largest_loss"],
            **changes,
        }
        for row in _band_rows(plan, written)
    ]
