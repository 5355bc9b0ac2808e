"""The answer of ``live``: what a server does now, and what to change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, assert_never

from roofline.base.errors import Option
from roofline.base.notices import Notice
from roofline.base.units import format_size
from roofline.engines.server_facts import Read, Unread
from roofline.questions.live import AdvisedChange, Gap, LiveQuestion, Substitute
from roofline.questions.schedule.plan import SchedulePlan
from roofline.questions.schedule.written import (
    WrittenSchedule,
    best_fixed,
    gain,
    pays,
    schedule_notices,
)
from roofline.render.blocks import Answer, Block, Code, Paragraph, Table, Tone
from roofline.render.deployment import deployment_data
from roofline.render.notices import notes, notes_data, sentence, warnings
from roofline.render.refusals import refused_blocks, refused_data, refused_details
from roofline.render.schedule import answer_blocks as schedule_blocks
from roofline.render.schedule import data as schedule_data
from roofline.render.schedule import fixed_length_name, other_headlines

__all__ = ["answer_blocks", "as_answer", "data", "gap_lines", "rows"]

SCHEMA = "roofline.live/1"
FACT_NAMES = {
    "version": "version",
    "model": "model",
    "gpu": "accelerator",
    "tp": "tensor parallel",
    "data_parallel": "data parallel",
    "expert_parallel": "expert parallel",
    "weights": "weights",
    "kv": "KV cache",
    "method": "drafter",
    "draft_model": "draft weights",
    "draft_length": "draft length",
    "acceptance": "tokens per step",
    "batch": "running batch",
    "waiting": "waiting",
    "context": "context",
    "tokens_per_s": "tokens/s",
}
#: A prediction this far from the measured speed should be looked into first.
FAR = 0.15


def as_answer(
    live: LiveQuestion, plan: SchedulePlan, written: WrittenSchedule, change: AdvisedChange | None
) -> Answer:
    """Return the reading, the change and the schedule in every form."""
    notices = _notices(live, plan, written)
    return Answer(
        headlines=lambda: [_headline(live, plan, written, change)],
        blocks=lambda: answer_blocks(live, plan, written, change),
        notes=notes(notices),
        more=lambda: refused_details(plan.question.deployment, plan.refused),
        data=lambda: data(live, plan, written, change),
        rows=lambda: rows(live),
    )


def _notices(live: LiveQuestion, plan: SchedulePlan, written: WrittenSchedule) -> list[Notice]:
    """Return what is to know of the reading, and of a schedule if one is printed."""
    told = schedule_notices(plan, written)
    left_out = () if pays(plan, written) else written.notes
    return [*live.serving.notices, *(each for each in told if each not in left_out)]


def answer_blocks(
    live: LiveQuestion, plan: SchedulePlan, written: WrittenSchedule, change: AdvisedChange | None
) -> list[Block]:
    """Return what to change, what was read of the server, and the schedule or the draft length."""
    others = other_headlines(plan, written)
    blocks: list[Block] = [
        Paragraph(_headline(live, plan, written, change), tone=Tone.HEADLINE),
        *(Paragraph(line) for line in others),
        *refused_blocks(plan.question.deployment, plan.refused),
    ]
    if change is not None:
        blocks.append(Paragraph(_now(live, plan, written, change)))
    blocks.append(_facts(live))
    if live.gaps:
        blocks.append(_gaps(live))
    if not pays(plan, written):
        return [*blocks, *_fixed(live, plan, written, change)]
    own = replace(plan, refused=(), other_reading=None)  # said above
    return [*blocks, *schedule_blocks(own, replace(written, other_reading=None), tone=Tone.PLAIN)]


def data(
    live: LiveQuestion, plan: SchedulePlan, written: WrittenSchedule, change: AdvisedChange | None
) -> dict[str, Any]:
    """Return the whole answer as JSON-ready data."""
    serving = live.serving
    return {
        "schema": SCHEMA,
        "server": {
            "address": serving.where,
            "engine": serving.engine,
            "reading": serving.how,
            "copies": live.copies,
            "facts": {
                name: _fact(fact) for name, fact in serving.facts.items() if name in FACT_NAMES
            },
        },
        "used": {
            **deployment_data(plan.question.deployment),
            "engine": live.configuration.engine,
            "dp_attention": live.configuration.dp_attention,
            "batch": live.batch,
            "context": live.workload.contexts[0],
            "drafter": plan.question.deployment.drafter.name,
            "acceptance": plan.question.acceptance.label,
        },
        "not_read": [
            {"what": gap.what, "reason": _reason(gap), "used": _used(gap), "flag": _flag(gap)}
            for gap in live.gaps
        ],
        "change": None
        if change is None
        else {
            "draft_length": change.draft_length,
            "advised_draft_length": change.advised,
            "gain": change.gain,
            "step_ms": None if change.step is None else 1e3 * change.step,
            "tokens_per_step": change.tokens_per_step,
            "predicted_tokens_per_s": change.before,
            "advised_tokens_per_s": change.after,
            "measured_tokens_per_s": change.measured,
        },
        "refused": refused_data(plan.refused),
        "schedule": schedule_data(plan, written),
        "warnings": warnings(serving.notices),
        "notes": notes_data(_notices(live, plan, written)),
    }


def _fact(fact: Read | Unread) -> dict[str, Any]:
    if isinstance(fact, Unread):
        return {"value": None, "reason": fact.reason}
    return {"value": fact.value, "source": fact.source}


def _headline(
    live: LiveQuestion, plan: SchedulePlan, written: WrittenSchedule, change: AdvisedChange | None
) -> str:
    kind = "schedule" if _scheduled(plan, written) else "draft length"
    if change is None and live.batch is not None:
        return (
            f"The running batch of {live.batch} does not fit beside the drafter by this account, "
            f"so here is the {kind} up to {plan.batches}."
        )
    if change is None:
        return f"The running batch is not known, so here is the {kind} for every batch."
    where = f"at the running batch of {live.batch}"
    if change.gain is None:
        return f"Run draft length {change.advised} {where}; how much that gains is not known."
    if change.advised == change.draft_length:
        advice = (
            f"Keep draft length {change.advised} {where}: no other is faster by more than the "
            "model can tell."
        )
    else:
        advice = (
            f"Change draft length {change.draft_length} to {change.advised}: {change.gain:+.1%} "
            f"expected speed {where}."
        )
    if change.advised == plan.draft_lengths[-1] > 0:
        ended = bool(plan.question.unmeasured)
        advice += f" Drafts beyond {change.advised} were not looked at: " + (
            "the acceptance ends there. Run the server with a longer draft for a while."
            if ended
            else f"raise {Option('max_draft_length')} to look further."
        )
    return advice


def _scheduled(plan: SchedulePlan, written: WrittenSchedule) -> bool:
    """Return whether a schedule is printed, and not one draft length for every batch."""
    return pays(plan, written) and written.only_length is None


def _era(live: LiveQuestion) -> str:
    """Return the older builds that are priced, as they are asked for."""
    return live.serving.engine if live.era is None else f"{live.serving.engine}@{live.era.id}"


def _facts(live: LiveQuestion) -> Table:
    """Return what was read, a row each, with its source."""
    serving = live.serving
    title = f"{serving.name} at {serving.where}, {serving.how}"
    return Table(headings=("", "", ""), cells=tuple(_fact_cells(live)), align="lll", title=title)


def _fact_cells(live: LiveQuestion) -> Iterator[tuple[str, str, str]]:
    if live.era is not None:
        yield "priced as", _era(live), f"its version: {live.era.builds}"
    for name, label in FACT_NAMES.items():
        fact = live.serving.facts[name]
        if isinstance(fact, Unread) or (name.endswith("_parallel") and fact.value in (0, 1)):
            continue
        yield label, _value(fact), fact.source


def rows(live: LiveQuestion) -> list[dict[str, Any]]:
    """Return a row for everything that was looked for: its value and source, or why it is not."""
    found = []
    for name in FACT_NAMES:
        fact = live.serving.facts[name]
        found.append(
            {
                "fact": name,
                "value": str(fact.value) if isinstance(fact, Read) else None,
                "source": fact.source if isinstance(fact, Read) else None,
                "reason": fact.reason if isinstance(fact, Unread) else None,
            }
        )
    return found


def _value(fact: Read) -> str:
    """Return a fact's value with four digits, or whole where it is large."""
    if not isinstance(fact.value, float):
        return str(fact.value)
    return f"{fact.value:.0f}" if fact.value >= 1000 else f"{fact.value:.4g}"


def gap_lines(live: LiveQuestion) -> list[str]:
    """Return what could not be read of a server, a line each, and how its version is priced."""
    where = live.serving.where
    lines = [
        f"{where}: {gap.what} not read ({_reason(gap)}): used {_used(gap)}; give {_flag(gap)}"
        for gap in live.gaps
    ]
    if live.era is not None:
        version = live.serving.value("version")
        priced = f"{_era(live)} ({live.era.builds})"
        lines.append(
            f"{where}: its version {version} is priced as {priced}; {Option('engine')} wins"
        )
    return lines


def _reason(gap: Gap) -> str:
    return sentence(gap.reason) if isinstance(gap.reason, Notice) else gap.reason


def _used(gap: Gap) -> str:
    match gap.substitute:
        case Substitute.FORMAT:
            return str(gap.value)
        case Substitute.OWN_FORMAT:
            return "the model's own format"
        case Substitute.ONE_GPU:
            return "1 GPU"
        case Substitute.CONTEXT:
            return f"{format_size(int(gap.value or 0))} tokens"
        case Substitute.EVERY_BATCH:
            return "every batch"
        case Substitute.BUNDLED_HEAD:
            return "the bundled head"
        case Substitute.BUNDLED_CURVE:
            return "what public runs lead to expect"
        case Substitute.ONE_RATE:
            return f"a rate of {gap.value:.3f} at every position"
        case _:
            assert_never(gap.substitute)


def _flag(gap: Gap) -> str:
    return str(Option(gap.field))


def _gaps(live: LiveQuestion) -> Table:
    cells = tuple(
        (
            FACT_NAMES.get(gap.what, gap.what),
            f"{_reason(gap)}; used {_used(gap)} (give {_flag(gap)})",
        )
        for gap in live.gaps
    )
    return Table(headings=("", ""), cells=cells, align="ll", title="Not read")


def _fixed(
    live: LiveQuestion, plan: SchedulePlan, written: WrittenSchedule, change: AdvisedChange | None
) -> list[Block]:
    """Say that one draft length is as good as bands, and how to set it if it is another."""
    deployment = plan.question.deployment
    fixed, _ = best_fixed(plan)
    gained = gain(plan, written.bands)
    length = fixed if change is None else change.advised
    gains = "nothing" if gained < 0.001 else f"{gained:.1%}"
    against = fixed_length_name(fixed)
    if written.text:
        comparison = (
            f"A schedule by running batch gains {gains} over {against}: not worth its upkeep, so "
            "there is none to paste."
        )
    else:
        comparison = (
            f"A schedule by batch would gain {gains} over {against}; {sentence(written.notes[0])}."
        )
    blocks: list[Block] = [Paragraph(comparison)]
    if change is None or change.draft_length != length:
        flags = deployment.launch.flags(length, running=plan.batches * live.copies)
        blocks.append(Code(flags, of=deployment.engine.name))
    return blocks


def _now(
    live: LiveQuestion, plan: SchedulePlan, written: WrittenSchedule, change: AdvisedChange
) -> str:
    context = format_size(live.workload.contexts[0])
    copies = live.copies
    load = f"batch {live.batch}" + (f" in each of {copies} copies" if copies > 1 else "")
    if change.before is None or change.step is None:
        fact = live.serving.facts["draft_length"]
        why = f"nothing is known of its draft length {change.draft_length}"
        if isinstance(fact, Unread):
            why = f"the server's draft length is not known ({fact.reason})"
        return f"Now: {load}, context {context}; {why}. Expected: {change.after:.0f} tokens/s."
    kept = change.advised == change.draft_length and abs(change.after / change.before - 1) < 5e-4
    after = ""
    if not kept:
        advised = "the schedule" if _scheduled(plan, written) else f"D = {change.advised}"
        after = f"; {change.after:.0f} with {advised}"
    text = (
        f"Now: {load}, context {context}, D = {change.draft_length}: {1e3 * change.step:.2f} ms a "
        f"step for {change.tokens_per_step:.2f} tokens, so {change.before:.0f} tokens/s of all "
        f"users predicted{after}."
    )
    if not change.measured:
        return text
    off = change.measured / change.before - 1
    text += f" Measured: {change.measured:.0f} tokens/s ({off:+.1%})."
    if abs(off) > FAR:
        text += (
            " That is far off: prefills, idle time or a wrong fact above; see 'roofline diagnose'."
        )
    return text
