"""The sentences of an answer over a load."""

from __future__ import annotations

import math

from roofline.advice.decide import TIE
from roofline.advice.readings import is_ambiguous
from roofline.base.errors import InputError
from roofline.base.notices import Notice
from roofline.base.units import format_count, format_pace, format_size
from roofline.questions.load.answer import LoadAnswer
from roofline.questions.load.goodput import Goodput
from roofline.render.notices import capitalised, sentence
from roofline.render.schedule import rise_line
from roofline.render.why import DO_NOT_SPECULATE, NOT_MEASURED, as_conditional

__all__ = [
    "format_time",
    "goodput_headline",
    "goodput_lines",
    "headline",
    "limits_named",
    "listed",
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
    if load.histogram is not None:
        shares = ", ".join(f"{load.share[b]:.0%} at {b}" for b in sorted(load.histogram or ()))
        return f"Over batches ({shares})"
    lengths = f"{load.input_tokens} tokens in and {load.output_tokens} out"
    if load.rps is not None:
        return f"At {load.rps:g} requests/s of {lengths}"
    thought = f" that think {load.think_time:g} s," if load.think_time else ""
    return f"With {format_count(load.clients, 'client')}{thought} of {lengths}"


def where(answer: LoadAnswer) -> str:
    """Return the context that the answer is for."""
    return f"mean context {format_size(answer.load.length)}"


def headline(answer: LoadAnswer) -> str:
    """Return the advice in one sentence."""
    best, plain = answer.advised, answer.plain
    if answer.goodput is not None:
        return goodput_headline(answer, answer.goodput)
    if best.draft_length == 0:
        return f"{_load_named(answer)}: {DO_NOT_SPECULATE}."
    start = f"{_load_named(answer)}: run draft length {best.draft_length} "
    question = answer.question
    start += f"({question.deployment.engine.name_of_length(question.deployment.drafter.kind)})"
    if not plain.usable:
        unmeasured = f" ({NOT_MEASURED})" if question.acceptance.unknown else ""
        return f"{start}: plain decoding cannot carry this load{unmeasured}."
    gain, unmeasured = _gain(answer)
    if answer.load.histogram is not None:
        return (
            f"{start}: {gain} plain decoding, {format_pace(plain.tokens_per_s)} -> "
            f"{format_pace(best.tokens_per_s)} tokens/s{unmeasured}."
        )
    return (
        f"{start}: {gain} the pace of plain decoding, {format_pace(1 / plain.tpot)} -> "
        f"{format_pace(1 / best.tpot)} tokens/s per user{unmeasured}."
    )


def limits_named(goodput: Goodput) -> str:
    """Return the limits in words.

    >>> from roofline.questions.load.latency import Limits
    >>> limits_named(Goodput(limits=Limits(ttft=1.0, tpot=0.025), held=(1.0,), best=0,
    ...     ranges=((1.0, 1.0), (1.0, 1.0))))
    'p95 TTFT 1 s and TPOT 25 ms'
    """
    limits = goodput.limits
    named = {"TTFT": limits.ttft, "TPOT": limits.tpot, "time to the last token": limits.e2e}
    each = [f"{name} {format_time(limit)}" for name, limit in named.items() if math.isfinite(limit)]
    return f"p{100 * limits.share:g} {listed(each)}"


def format_time(seconds: float) -> str:
    """Return a time of people: ms below a second.

    >>> format_time(0.025), format_time(1.5)
    ('25 ms', '1.5 s')
    """
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def listed(words: list[str]) -> str:
    """Return the words with commas and an and."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def goodput_headline(answer: LoadAnswer, goodput: Goodput) -> str:
    """Return what holds the limits in one sentence, the largest load first."""
    best = answer.advised
    clients = answer.load.concurrency is not None
    what = "clients" if clients else "requests/s"
    (held, low, high), plain = goodput.most, goodput.held[0]
    run = "do not speculate"
    if answer.schedule_pays:
        run = "run the schedule below"
    elif best.draft_length:
        run = f"run draft length {best.draft_length}"
    if goodput.wanted is not None:
        gpus = answer.question.deployment.cards
        run = f"For {goodput.wanted:g} requests/s, {run} on "
        run += format_count((goodput.replicas or 1) * gpus, "GPU")
    each = " each replica" if (goodput.replicas or 1) > 1 else ""
    start = f"{run[0].upper()}{run[1:]}: {_held(held, clients=clients)} {what}{each} "
    start += f"({_held(low, clients=clients)} to {_held(high, clients=clients)} given the model's "
    start += f"error) hold {limits_named(goodput)}"
    if not best.draft_length and not answer.schedule_pays:
        return f"{start}."
    low, high = goodput.ranges[1]
    if plain == 0:
        return f"{start}, plain decoding holds none."
    return (
        f"{start}, plain decoding holds {_held(plain, clients=clients)} "
        f"({_held(low, clients=clients)} to {_held(high, clients=clients)})."
    )


def _held(load: float, *, clients: bool) -> str:
    return f"{load:.0f}" if clients else f"{load:.3g}"


def goodput_lines(answer: LoadAnswer) -> list[str]:
    """Return what requests wait for, the replicas and their price, and what was left out."""
    goodput = answer.goodput
    lines = []
    latency = answer.latencies[answer.best] if answer.latencies else None
    if latency is not None:
        share = f"p{100 * latency.share:g}"
        lines.append(
            f"At draft length {answer.advised.draft_length} the first token takes "
            f"{format_time(latency.ttft)} on average ({share} {format_time(latency.ttft_most)}): "
            "the wait for a slot, the steps that read the prompt, and what the server does around "
            "them. The answer is there after "
            f"{format_time(latency.e2e_most)} ({share})."
        )
    if goodput is None:
        return lines
    last = answer.policies[-1]
    if last.draft_length is None and goodput.scheduled:
        more = goodput.schedule_adds(len(answer.policies))
        gains = f"{more:.1%} more" if more >= TIE else "no more"
        lines.append(f"A schedule by running batch holds {gains} than this draft length.")
    if goodput.wanted is not None and goodput.replicas is not None:
        lines.append(_replicas(answer, goodput))
    return lines


def _replicas(answer: LoadAnswer, goodput: Goodput) -> str:
    """Say how many copies a rate takes, and what they cost."""
    cards, price = answer.question.deployment.cards, answer.question.workload.gpu_hour

    def needed(count: int | None) -> str:
        if count is None:
            return "no number of GPUs"
        text = format_count(count * cards, "GPU")
        return text if price is None else f"{text} (${count * cards * price:.4g} per hour)"

    advice = f"draft length {answer.advised.draft_length}"
    if answer.schedule_pays:
        advice = "the schedule"
    sure = ""
    if goodput.sure_replicas != goodput.replicas:
        sure = f", {needed(goodput.sure_replicas)} at the low end of the range"
    return (
        f"{goodput.wanted:g} requests/s take {needed(goodput.replicas)} with "
        f"{advice}{sure}; {needed(goodput.plain_replicas)} without "
        f"speculation. The table shows one replica at {answer.load.rps or 0:.3g} requests/s."
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
    if answer.load.histogram is None:
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
