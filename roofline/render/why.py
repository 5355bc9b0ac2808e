"""The answer in one sentence, and why it is so; a page that moves fills in the same words."""

from __future__ import annotations

from typing import assert_never

from roofline.advice.decide import Confidence, Point
from roofline.advice.recommend import Recommendation
from roofline.advice.why import (
    Bound,
    Outcome,
    PlainPass,
    Sharing,
    beyond,
    deciding,
    host_share,
    outcome,
    plain_pass,
    trained_context_passed,
    waits_for,
)
from roofline.base.units import format_bytes, format_size
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
#: The first sentence of an answer where that is all it says.
_NO_DRAFTS = (
    f"{DO_NOT_SPECULATE.capitalize()}: plain decoding gives {{plain:.0f}} tokens/s per user"
)
#: The first sentence of an answer, by what it says.
HEADLINES = {
    Outcome.ALONE: "Plain decoding: {plain:.0f} tokens/s per user.",
    Outcome.NO_ROOM: f"{_NO_DRAFTS}, and no draft length fits in memory beside it.",
    Outcome.PAST_GRAPHS: (
        f"{_NO_DRAFTS}, and every draft length needs more rows than the engine captures CUDA "
        "graphs for."
    ),
    Outcome.PLAIN: (
        f"{_NO_DRAFTS}; the best draft length, {{length:d}}, would give {{speedup:.2f}}x "
        "({verdict})."
    ),
    Outcome.DRAFTS: (
        "Run draft length {length:d} ({flag}): {speedup:.2f}x plain decoding, {plain:.0f} -> "
        "{fast:.0f} tokens/s per user ({verdict})."
    ),
}
#: Below so many tokens/s of plain decoding a headline gives them with a decimal.
SLOW = 9.95
#: How sure that is, by first sentence and confidence.
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
#: Where every draft length leaves the captured graphs.
PAST = "No CUDA graph covers a step with drafts, and without one it can cost several times more."
#: What another draft length would give; ``flag`` begins with ``: add `` where there is one.
BEYOND = (
    "Draft length {length:d} would give {speedup:.2f}x with its {rows:.0f} rows captured; "
    "{engine} captures CUDA graphs for up to {largest:d}{flag}."
)
CAVEAT = " The drafter's config ends at {trained} positions: acceptance at {context} may be lower."
NOTHING_DRAFTED = "Nothing is drafted, so there is nothing to decide."


def headline(answer: Recommendation, point: Point) -> str:
    """Return the answer in one sentence."""
    found, shown = outcome(point), deciding(point)
    plain, fast = (1 / point.time_per_token[i] for i in (0, point.best))
    words = HEADLINES[found] if plain >= SLOW else HEADLINES[found].replace(":.0f}", ":.1f}")
    if shown is None:
        return words.format(plain=plain)
    verdict = VERDICTS[found][point.confidence]
    return words.format(
        length=point.draft_lengths[shown],
        flag=answer.deployment.engine.name_of_length(answer.deployment.drafter.kind),
        speedup=point.speedup[shown],
        plain=plain,
        fast=fast,
        verdict=verdict.format(low=point.low[shown], high=point.high[shown]),
    )


def caveat(answer: Recommendation, point: Point) -> str:
    """Return what to add to the first sentence where the context is beyond the drafter's own."""
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
    """Say what a draft length past the captured graphs would give, where it would be the best."""
    found, graphs = beyond(answer, point), answer.deployment.engine.graphs
    if found is None or graphs is None:
        return ""
    return " " + BEYOND.format(
        length=found.draft_length,
        speedup=found.speedup,
        rows=found.rows,
        engine=answer.deployment.engine.name,
        largest=graphs.largest,
        flag=f": add {found.flag}" if found.flag else "",
    )


def opening(answer: Recommendation, point: Point, draft_length: int) -> str:
    """Return what a plain step waits for, and which experts a verify pass wakes."""
    found = plain_pass(answer, point, draft_length)
    said = _what_it_waits_for(answer, point, found)
    if found.woken is not None:
        said += (
            f" A plain pass wakes {found.woken.plain:.1f} experts in each layer, the verify pass "
            f"{found.woken.verify:.1f}, and reads the weights of all of them."
        )
    if found.cards_in_turn > 1:
        said += f" The {found.cards_in_turn} cards work one after the other."
    if found.host is not None:
        said += (
            f" The processor computes the experts of {found.host.layers} layers from its "
            f"{found.host.memory} in {host_share(answer, point):.0%} of a plain pass."
        )
    return said


_SHARED = {
    Sharing.ALL: ", which all rows of a verify pass share",
    Sharing.WEIGHTS: ("; the rows of a verify pass share the weights, but each reads the KV again"),
    Sharing.SOME_WEIGHTS: "",
}


def _what_it_waits_for(answer: Recommendation, point: Point, found: PlainPass) -> str:
    main, share = waits_for(answer, point)
    weights, cache = format_bytes(found.weight_bytes), format_bytes(found.cache_bytes)
    match main:
        case Bound.MEMORY:
            return (
                f"A plain pass spends {share:.0%} of its time reading {weights} of weights "
                f"and {cache} of KV{_SHARED[found.sharing]}."
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
