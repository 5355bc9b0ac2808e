"""The answer in one sentence, and why. The page fills in the same sentences by script."""

from __future__ import annotations

from typing import assert_never

from roofline.advice.decide import Confidence, Point
from roofline.advice.recommend import Recommendation
from roofline.advice.why import (
    Bound,
    Outcome,
    PlainPass,
    Sharing,
    best_uncaptured,
    deciding,
    dominant_bound,
    host_share,
    outcome,
    plain_pass,
    trained_context_passed,
)
from roofline.base.units import SLOW_PACE, format_bytes, format_size
from roofline.render.refusals import drafts_without_room

__all__ = [
    "BEYOND",
    "DO_NOT_SPECULATE",
    "HEADLINES",
    "NOTHING_DRAFTED",
    "PAST",
    "REASON",
    "VERDICTS",
    "caveat",
    "headline",
    "opening",
    "reason",
]

#: What an answer says where drafts do not pay.
DO_NOT_SPECULATE = "do not speculate"


def _headlines(*, plain: str, fast: str) -> dict[Outcome, str]:
    """Return the first sentence of an answer, by what it says, with these forms of its rates."""
    no_drafts = f"{DO_NOT_SPECULATE.capitalize()}: plain decoding gives {plain} tokens/s per user"
    return {
        Outcome.ALONE: f"Plain decoding: {plain} tokens/s per user.",
        Outcome.NO_ROOM: f"{no_drafts}, and no draft length fits in memory beside it.",
        Outcome.PAST_GRAPHS: (
            f"{no_drafts}, and every draft length needs more rows than the engine captures CUDA "
            "graphs for."
        ),
        Outcome.PLAIN: (
            f"{no_drafts}; the best draft length, {{length:d}}, would give {{speedup:.2f}}x "
            "({verdict})."
        ),
        Outcome.DRAFTS: (
            f"Run draft length {{length:d}} ({{flag}}): {{speedup:.2f}}x plain decoding, {plain} "
            f"-> {fast} tokens/s per user ({{verdict}})."
        ),
    }


HEADLINES = _headlines(plain="{plain:.0f}", fast="{fast:.0f}")
#: The same where plain decoding gives less than ``SLOW_PACE``.
_SLOW_HEADLINES = _headlines(plain="{plain:.1f}", fast="{fast:.1f}")
#: How sure the first sentence is, by what it says and the confidence.
VERDICTS = {
    Outcome.PLAIN: {
        Confidence.INSIDE_ERROR: "the difference is inside the model's error",
        Confidence.LOSS: "it is slower",
    },
    Outcome.DRAFTS: {
        Confidence.WIN: "model error {low:.2f}x to {high:.2f}x",
        Confidence.INSIDE_ERROR: "a gain inside the model's error, {low:.2f}x to {high:.2f}x",
    },
}
#: Why, after what the plain pass waits for.
REASON = (
    "{opening} Verifying {rows:d} rows per sequence costs {growth:.2f}x a plain pass, drafting "
    "adds {drafting:.0%} and the engine {engine:.0%} of a plain step: draft length {length:d} must "
    "yield {break_even:.2f} tokens per step to break even, and this acceptance yields "
    "{tokens:.2f}."
)
#: Why, if every draft length leaves the captured graphs.
PAST = "No CUDA graph covers a step with drafts, and without one it can cost several times more."
#: What a draft length past the graphs would give; ``flag`` is empty or begins with ``: add ``.
BEYOND = (
    "Draft length {length:d} would give {speedup:.2f}x with its {rows:.0f} rows captured; "
    "{engine} captures CUDA graphs for up to {largest:d}{flag}."
)
CAVEAT = " The drafter's config ends at {trained} positions: acceptance at {context} may be lower."
NOTHING_DRAFTED = "Nothing is drafted, so there is nothing to decide."


def headline(answer: Recommendation, point: Point) -> str:
    """Return the answer in one sentence."""
    kind, shown = outcome(point), deciding(point)
    plain, fast = (1 / point.time_per_token[i] for i in (0, point.best))
    sentence = (HEADLINES if plain >= SLOW_PACE else _SLOW_HEADLINES)[kind]
    if shown is None:
        return sentence.format(plain=plain)
    verdict = VERDICTS[kind][point.confidence]
    return sentence.format(
        length=point.draft_lengths[shown],
        flag=answer.deployment.engine.name_of_length(answer.deployment.drafter.kind),
        speedup=point.speedup[shown],
        plain=plain,
        fast=fast,
        verdict=verdict.format(low=point.low[shown], high=point.high[shown]),
    )


def caveat(answer: Recommendation, point: Point) -> str:
    """Return what to add to the first sentence if the context is beyond the drafter's own."""
    trained = trained_context_passed(answer, point)
    if trained is None:
        return ""
    return CAVEAT.format(trained=trained, context=format_size(point.context))


def reason(answer: Recommendation, point: Point) -> str:
    """Return why: what a plain step waits for, what drafts add, what they must yield."""
    looked_at = deciding(point)
    if looked_at is not None:
        return f"{_costs(answer, point, looked_at)}{_beyond(answer, point)}"
    match outcome(point):
        case Outcome.NO_ROOM:
            return drafts_without_room(answer.memory, batch=point.batch, context=point.context)
        case Outcome.PAST_GRAPHS:
            return f"{PAST}{_beyond(answer, point)}"
        case _:
            return NOTHING_DRAFTED


def _costs(answer: Recommendation, point: Point, at: int) -> str:
    """Say what the draft length at a position costs, and what it yields."""
    length = point.draft_lengths[at]
    return REASON.format(
        opening=opening(answer, point, length),
        rows=length + 1,
        growth=point.verify[at] / point.verify[0],
        drafting=point.draft[at] / point.step[0],
        engine=(point.overhead[at] - point.overhead[0]) / point.step[0],
        length=length,
        break_even=point.cost_ratio[at],
        tokens=point.tokens_per_step[at],
    )


def _beyond(answer: Recommendation, point: Point) -> str:
    """Say what a draft length past the captured graphs would give, if it would be the best."""
    past, graphs = best_uncaptured(answer, point), answer.deployment.engine.graphs
    if past is None or graphs is None:
        return ""
    return " " + BEYOND.format(
        length=past.draft_length,
        speedup=past.speedup,
        rows=past.rows,
        engine=answer.deployment.engine.name,
        largest=graphs.largest,
        flag=f": add {past.flag}" if past.flag else "",
    )


def opening(answer: Recommendation, point: Point, draft_length: int) -> str:
    """Return what a plain step waits for, and which experts a verify pass wakes."""
    plain = plain_pass(answer, point, draft_length)
    text = _what_it_waits_for(answer, point, plain)
    if (experts := plain.active_experts) is not None:
        text += (
            f" A plain pass wakes {experts.plain:.1f} experts in each layer, the verify pass "
            f"{experts.verify:.1f}, and reads the weights of all of them."
        )
    if plain.cards_in_turn > 1:
        text += f" The {plain.cards_in_turn} cards work one after the other."
    if plain.host is not None:
        text += (
            f" The processor computes the experts of {plain.host.layers} layers from its "
            f"{plain.host.memory} in {host_share(answer, point):.0%} of a plain pass."
        )
    return text


_SHARED = {
    Sharing.ALL: ", which all rows of a verify pass share",
    Sharing.WEIGHTS: "; the rows of a verify pass share the weights, but each reads the KV again",
    Sharing.SOME_WEIGHTS: "",
}


def _what_it_waits_for(answer: Recommendation, point: Point, plain: PlainPass) -> str:
    main, share = dominant_bound(answer, point)
    weights, cache = format_bytes(plain.weight_bytes), format_bytes(plain.cache_bytes)
    match main:
        case Bound.MEMORY:
            return (
                f"A plain pass spends {share:.0%} of its time reading {weights} of weights "
                f"and {cache} of KV{_SHARED[plain.sharing]}."
            )
        case Bound.COMPUTE:
            return (
                f"A plain pass computes for {share:.0%} of its time ({point.batch} rows), "
                "so every further row is paid for in full."
            )
        case Bound.LINK:
            return f"A plain pass waits on the links between the GPUs for {share:.0%} of its time."
        case Bound.LATENCY:
            return (
                f"A plain pass spends {share:.0%} of its time in launches and latencies that "
                f"neither traffic nor arithmetic explains (it reads {weights} of weights and "
                f"{cache} of KV)."
            )
        case _:
            assert_never(main)
