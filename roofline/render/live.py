"""What a running server was found to do and should change, as text or JSON."""

from __future__ import annotations

import json
from typing import Any, assert_never

from roofline.base.errors import Option
from roofline.base.notices import Notice
from roofline.base.units import format_size
from roofline.engines.server_facts import Read, Unread
from roofline.questions.live import Change, Gap, Live, Used
from roofline.questions.schedule.plan import Plan
from roofline.questions.schedule.written import Written, best_fixed, gain, pays
from roofline.render.columns import wrap
from roofline.render.deployment import deployment_data
from roofline.render.forms import TableOrJson
from roofline.render.notices import assumptions, sentence, warnings
from roofline.render.refusals import refused_data, refused_lines
from roofline.render.schedule import as_data, schedule_blocks

__all__ = ["gap_lines", "render_live"]

SCHEMA = "roofline.live/1"
WORDS = {
    "version": "version",
    "model": "model",
    "gpu": "accelerator",
    "tp": "tensor parallel",
    "data_parallel": "data parallel",
    "expert_parallel": "expert parallel",
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
#: Where a prediction this far from the measured speed should be looked into first.
FAR = 0.15


def render_live(
    live: Live, plan: Plan, written: Written, found: Change | None, how: TableOrJson
) -> str:
    """Return the reading, the change and the schedule, ending in a newline."""
    if how is TableOrJson.JSON:
        data = _data(live, plan, written, found)
        return json.dumps(data, indent=2, allow_nan=False) + "\n"
    blocks = [wrap(_headline(live, plan, written, found)), _facts(live)]
    if live.gaps:
        blocks.append(_gaps(live))
    if found is not None:
        blocks.append(wrap(_now(live, plan, written, found)))
    blocks += (
        schedule_blocks(plan, written)
        if pays(plan, written)
        else _fixed(live, plan, written, found)
    )
    return "\n\n".join(blocks) + "\n"


def _data(live: Live, plan: Plan, written: Written, found: Change | None) -> dict[str, Any]:
    serving, named = live.serving, live.configuration
    return {
        "schema": SCHEMA,
        "server": {
            "address": serving.where,
            "engine": serving.engine,
            "reading": serving.how,
            "copies": live.copies,
            "facts": {name: _fact(fact) for name, fact in serving.facts.items() if name in WORDS},
        },
        "used": {
            **deployment_data(plan.question.deployment),
            "engine": live.configuration.engine,
            "dp_attention": named.dp_attention,
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
        if found is None
        else {
            "draft_length": found.draft_length,
            "advised_draft_length": found.advised,
            "gain": found.gain,
            "step_ms": None if found.step is None else 1e3 * found.step,
            "tokens_per_step": found.tokens_per_step,
            "predicted_tokens_per_s": found.before,
            "advised_tokens_per_s": found.after,
            "measured_tokens_per_s": found.measured,
        },
        "refused": refused_data(plan.refused),
        "schedule": as_data(plan, written),
        "warnings": warnings(serving.notices),
    }


def _fact(fact: Read | Unread) -> dict[str, Any]:
    if isinstance(fact, Unread):
        return {"value": None, "reason": fact.reason}
    return {"value": fact.value, "source": fact.source}


def _headline(live: Live, plan: Plan, written: Written, found: Change | None) -> str:
    what = "schedule" if pays(plan, written) else "draft length"
    if found is None and live.batch is not None:
        return (
            f"The running batch of {live.batch} does not fit beside the drafter by this account, "
            f"so here is the {what} up to {plan.batches}."
        )
    if found is None:
        return f"The running batch is not known, so here is the {what} for every batch."
    where = f"at the running batch of {live.batch}"
    if found.gain is None:
        return f"Run draft length {found.advised} {where}; what the server gains cannot be said."
    if found.advised == found.draft_length:
        said = f"Keep draft length {found.advised} {where}: nothing else is over 1 % faster."
    else:
        said = (
            f"Change draft length {found.draft_length} to {found.advised}: {found.gain:+.1%} "
            f"expected speed {where}."
        )
    if found.advised == plan.draft_lengths[-1] > 0:
        said += (
            f" Drafts beyond {found.advised} were not looked at: the acceptance ends there. Run "
            f"the server with a longer draft for a while, or give {Option('extrapolate')}."
        )
    return said


def _facts(live: Live) -> str:
    """Return what was read, each with its place; a place that is too long wraps below."""
    serving = live.serving
    lines = [f"{serving.name} at {serving.where}, {serving.how}:"]
    if live.era is not None:
        priced = f"{live.configuration.engine} <- its version: {live.era.builds}"
        lines.append(_indented(f"{'priced as':<16} {priced}"))
    for name, word in WORDS.items():
        fact = serving.facts[name]
        if isinstance(fact, Unread) or (name.endswith("_parallel") and fact.value in (0, 1)):
            continue
        value = _value(fact)
        lines.append(_indented(f"{word:<16} {value} <- {fact.source}"))
    return "\n".join(lines)


def _indented(text: str) -> str:
    """Break a line of a list at the terminal's edge; a server's own words may be long ones."""
    import textwrap

    return textwrap.fill(text, width=80, initial_indent="  ", subsequent_indent=" " * 6)


def _value(fact: Read) -> str:
    """Return a fact's value with four digits, or whole where it is large."""
    if not isinstance(fact.value, float):
        return str(fact.value)
    return f"{fact.value:.0f}" if fact.value >= 1000 else f"{fact.value:.4g}"


def gap_lines(live: Live) -> list[str]:
    """Return what could not be read of a server, a line each, and how its version is priced."""
    where = live.serving.where
    gaps = [
        f"{where}: {gap.what} not read ({_reason(gap)}): used {_used(gap)}; give {_flag(gap)}"
        for gap in live.gaps
    ]
    if live.era is not None:
        version = live.serving.value("version")
        builds = f"{live.configuration.engine} ({live.era.builds})"
        gaps.append(
            f"{where}: its version {version} is priced as {builds}; {Option('engine')} wins"
        )
    return gaps


def _reason(gap: Gap) -> str:
    return sentence(gap.reason) if isinstance(gap.reason, Notice) else gap.reason


def _used(gap: Gap) -> str:
    match gap.used:
        case Used.FORMAT:
            return str(gap.value)
        case Used.ONE_GPU:
            return "1 GPU"
        case Used.CONTEXT:
            return f"{format_size(int(gap.value or 0))} tokens"
        case Used.EVERY_BATCH:
            return "every batch"
        case Used.BUNDLED_HEAD:
            return "the bundled head"
        case Used.BUNDLED_CURVE:
            return "a bundled curve"
        case Used.ONE_RATE:
            return f"a rate of {gap.value:.3f} at every position"
        case _:
            assert_never(gap.used)


def _flag(gap: Gap) -> str:
    return str(Option(gap.field))


def _gaps(live: Live) -> str:
    said = [
        f"{WORDS.get(gap.what, gap.what)}: {_reason(gap)}; used {_used(gap)} (give {_flag(gap)})"
        for gap in live.gaps
    ]
    return "\n".join(["Not read:", *map(_indented, said)])


def _fixed(live: Live, plan: Plan, written: Written, found: Change | None) -> list[str]:
    """Say that one draft length is as good as bands, and what to paste if it is another."""
    fixed, _ = best_fixed(plan)
    more = gain(plan, written.bands)
    length = fixed if found is None else found.advised
    gains = "nothing" if more < 0.001 else f"{more:.1%}"
    against = f"D = {fixed} at every batch" if fixed else "no speculation at all"
    blocks = [
        wrap(
            f"A schedule by running batch gains {gains} over {against}: not worth its upkeep, so "
            "there is none to paste."
            if written.text
            else f"A schedule by batch would gain {gains} over {against}; "
            f"{sentence(written.notes[0])}."
        )
    ]
    if found is None or found.draft_length != length:
        text = plan.question.deployment.launch.flags(length, running=plan.batches * live.copies)
        blocks.append(f"{plan.question.deployment.engine.name}:\n{text}")
    blocks += map(wrap, refused_lines(plan.question.deployment, plan.refused))
    return [*blocks, *(wrap(f"Assumed: {text}") for text in assumptions(plan.question.notices))]


def _now(live: Live, plan: Plan, written: Written, found: Change) -> str:
    context = format_size(live.workload.contexts[0])
    copies = live.copies
    load = f"batch {live.batch}" + (f" in each of {copies} copies" if copies > 1 else "")
    if found.before is None or found.step is None:
        why = (
            "the server's draft length is not known"
            if found.draft_length is None
            else f"nothing is known of its draft length {found.draft_length}"
        )
        return f"Now: {load}, context {context}; {why}. Expected: {found.after:.0f} tokens/s."
    other = f"; {found.after:.0f} with "
    other += "the schedule" if pays(plan, written) else f"D = {found.advised}"
    kept = found.advised == found.draft_length and abs(found.after / found.before - 1) < 5e-4
    said = (
        f"Now: {load}, context {context}, D = {found.draft_length}: {1e3 * found.step:.2f} ms a "
        f"step for {found.tokens_per_step:.2f} tokens, so {found.before:.0f} tokens/s of all "
        f"users predicted{'' if kept else other}."
    )
    if not found.measured:
        return said
    off = found.measured / found.before - 1
    said += f" Measured: {found.measured:.0f} tokens/s ({off:+.1%})."
    if abs(off) > FAR:
        said += (
            " That is far off: prefills, idle time or a wrong fact above; see 'roofline diagnose'."
        )
    return said
