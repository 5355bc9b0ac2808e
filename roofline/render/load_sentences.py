"""The sentences of an answer over a load."""

from __future__ import annotations

import math

from roofline.advice.decide import TIE
from roofline.advice.readings import is_ambiguous
from roofline.base.errors import InputError
from roofline.base.notices import Notice
from roofline.base.units import format_pace, format_size
from roofline.questions.load.answer import LoadAnswer
from roofline.render.notices import capitalised, sentence
from roofline.render.schedule import rise_line
from roofline.render.why import DO_NOT_SPECULATE, NOT_MEASURED, as_conditional

__all__ = [
    "headline",
    "marks",
    "other_headlines",
    "overloaded",
    "reading",
    "schedule_line",
    "schedule_notices",
    "where",
]


def _load_named(answer: LoadAnswer) -> str:
    load = answer.load
    if load.rps is None:
        shares = ", ".join(f"{load.share[b]:.0%} at {b}" for b in sorted(load.histogram or ()))
        return f"Over batches ({shares})"
    return (
        f"At {load.rps:g} requests/s of {load.input_tokens} tokens in and {load.output_tokens} out"
    )


def where(answer: LoadAnswer) -> str:
    """Return the context that the answer is for."""
    return f"mean context {format_size(answer.load.length)}"


def headline(answer: LoadAnswer) -> str:
    """Return the advice in one sentence."""
    best, plain = answer.advised, answer.plain
    if best.draft_length == 0:
        return f"{_load_named(answer)}: {DO_NOT_SPECULATE}."
    start = f"{_load_named(answer)}: run draft length {best.draft_length} "
    question = answer.question
    start += f"({question.deployment.engine.name_of_length(question.deployment.drafter.kind)})"
    if not plain.usable:
        unmeasured = f" ({NOT_MEASURED})" if question.acceptance.unknown else ""
        return f"{start}: plain decoding cannot carry this load{unmeasured}."
    gain, unmeasured = _gain(answer)
    if answer.load.rps is None:
        return (
            f"{start}: {gain} plain decoding, {format_pace(plain.tokens_per_s)} -> "
            f"{format_pace(best.tokens_per_s)} tokens/s{unmeasured}."
        )
    return (
        f"{start}: {gain} the pace of plain decoding, {format_pace(1 / plain.tpot)} -> "
        f"{format_pace(1 / best.tpot)} tokens/s per user{unmeasured}."
    )


def _gain(answer: LoadAnswer) -> tuple[str, str]:
    """Return the gain, and what to add; the range where nobody measured the acceptance."""
    if answer.gain_range is None:
        return f"{answer.advised.gain:.2f}x", ""
    low, high = answer.gain_range
    said = f"{low:.2f}x to {high:.2f}x" if math.isfinite(high) else f"at least {low:.2f}x"
    return said, f" ({NOT_MEASURED})"


def other_headlines(answer: LoadAnswer) -> list[str]:
    """Return the first sentence under the other reading of the acceptance, where it differs."""
    other = answer.other_reading
    if other is None or not is_ambiguous(answer.notices):
        return []
    return [
        as_conditional(f"{other.problem}." if isinstance(other, InputError) else headline(other))
    ]


def reading(answer: LoadAnswer) -> str:
    """Say how many sequences run, and what a gap is."""
    best, plain = answer.advised, answer.plain
    runs = ""
    if answer.load.rps is not None:
        runs = f"On average {best.running:.1f} sequences run at draft length {best.draft_length}"
        if plain.usable and best.draft_length:
            runs += f", {plain.running:.1f} without speculation"
        runs += ". "
    riding = ""
    if answer.chunks.most:
        riding = (
            f" {best.with_prompt:.1%} of the steps also read a prompt, "
            f"{answer.chunks.each:.0f} tokens of it each."
        )
    return (
        f"{runs}A gap is one step, the time between two bursts of tokens that a user sees; TPOT is "
        f"the mean time per token.{riding}"
    )


def marks(answer: LoadAnswer) -> str:
    """Say what the marks in front of the table's rows mean, for those that there are."""
    graphs = answer.question.deployment.engine.graphs
    if graphs is None or not any(policy.past for policy in answer.policies):
        return "*: advised."
    return (
        f"*: advised. !: not advised: some steps have more than the {graphs.largest} rows that "
        f"{answer.question.deployment.engine.name} captures CUDA graphs for, and can take several "
        "times as long as shown."
    )


def overloaded(answer: LoadAnswer) -> list[str]:
    """Say which policies cannot carry the load, and how much each could."""
    policies = [policy for policy in answer.policies if not policy.usable]
    if not policies:
        return []
    arrivals = answer.load.rps is not None
    why = "overloaded: at most" if arrivals else "do not fit: at most"
    shown = [
        f"{'the schedule' if policy.draft_length is None else f'D = {policy.draft_length}'} "
        + (f"{policy.most_rps:.3g} requests/s" if arrivals else f"{policy.slots} sequences")
        for policy in policies
    ]
    return [f"Left out, {why} {', '.join(shown)}."]


def schedule_notices(answer: LoadAnswer) -> tuple[Notice, ...]:
    """Return why there is no schedule, or what to know about the one there is."""
    if answer.no_schedule is not None:
        return (answer.no_schedule,)
    return () if answer.schedule is None else tuple(answer.schedule.notes)


def schedule_line(answer: LoadAnswer) -> str:
    """Say what the schedule gains, or why there is none."""
    gained = answer.schedule_gain
    if answer.no_schedule is not None:
        return capitalised(sentence(answer.no_schedule))
    if gained is None:
        return "A schedule by running batch cannot carry this load."
    if not answer.schedule_pays:
        carries = answer.schedule_carries
        gains = "nothing" if gained < 0.001 else f"{gained:.1%}"
        serves = f"; at the most requests it serves {carries:.0%} more" if carries >= TIE else ""
        return (
            f"A schedule by running batch gains {gains} over the fixed draft length at this load: "
            f"not worth its upkeep{serves}."
        )
    gains = (
        f"A schedule by running batch gains {gained:.1%} more than the fixed draft length, so it "
        "stands below."
    )
    reasons = () if answer.schedule is None else answer.schedule.rises
    return " ".join([gains, *map(rise_line, reasons)])
