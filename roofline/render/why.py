"""The sentences of an answer: the headline, why, odds, costs. The page fills in the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from roofline.advice.belief_prior import FirstTiming
from roofline.advice.decide import Confidence, Point
from roofline.advice.recommend import Recommendation
from roofline.advice.why import (
    Bound,
    Growth,
    Outcome,
    PlainPass,
    Sharing,
    assumed_share,
    best_uncaptured,
    dearest_growth,
    deciding,
    deciding_limit,
    dominant_bound,
    host_share,
    outcome,
    plain_pass,
    shortest_unknown,
    trained_context_passed,
)
from roofline.advice.worth_measuring import WorthMeasuring
from roofline.base.errors import Option
from roofline.base.notices import Code
from roofline.base.numbers import DRAWS
from roofline.base.units import SLOW_PACE, format_bytes, format_count, format_size, listed

__all__ = [
    "BEYOND",
    "DO_NOT_SPECULATE",
    "HEADLINES",
    "NOTHING_DRAFTED",
    "NOT_MEASURED",
    "NO_GAIN",
    "PAST",
    "REASON",
    "VERDICTS",
    "as_conditional",
    "caveat",
    "counting_line",
    "dollars",
    "experimental",
    "headline",
    "headline_template",
    "likely_line",
    "marks_line",
    "names_taken",
    "of_all_points",
    "opening",
    "other_headlines",
    "reason",
    "reason_template",
    "without_acceptance",
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
        Outcome.UNKNOWN: (
            f"Plain decoding gives {plain} tokens/s per user. Whether drafts pay is not known: "
            "there is no acceptance for the draft lengths that fit in memory and in the captured "
            "CUDA graphs."
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
        Confidence.INSIDE_ERROR: "the difference is inside the error",
        Confidence.LOSS: "it is slower",
    },
    Outcome.DRAFTS: {
        Confidence.WIN: "likely {low:.2f}x to {high:.2f}x",
        Confidence.INSIDE_ERROR: "a gain inside the error, {low:.2f}x to {high:.2f}x",
    },
}
#: What the first sentence says of an acceptance that nobody measured: the width goes before it.
NOT_MEASURED = "acceptance not measured"
_UNMEASURED_VERDICTS = {
    Outcome.PLAIN: {
        Confidence.INSIDE_ERROR: f"the difference is inside the error; {NOT_MEASURED}",
        Confidence.LOSS: f"it is slower; {NOT_MEASURED}",
    },
    Outcome.DRAFTS: {
        Confidence.WIN: NOT_MEASURED,
        Confidence.INSIDE_ERROR: f"a gain inside the error; {NOT_MEASURED}",
    },
}
#: How sure it is where the advised length gains on the mean and plain decoding wins more often.
_RARELY_FASTER = "a gain only on the mean: plain decoding is faster more often than not"
#: Why, after what the plain pass waits for.
REASON = (
    "{opening} Verifying {rows:.3g} rows per sequence takes {growth:.2f}x a plain pass; drafting "
    "adds {drafting:.0%} of a plain step, the engine {engine:.0%}. D = {length:d} breaks even at "
    "{break_even:.2f} tokens per step; this acceptance gives {tokens:.2f}."
)
#: What is added where drafts would lose without the limit that keeps them out as well.
NO_GAIN = {
    Outcome.NO_ROOM: "With room for them at this batch, drafts would not gain either.",
    Outcome.PAST_GRAPHS: "With their rows captured, drafts would not gain either.",
    Outcome.UNKNOWN: "Even the most tokens per step that it can have would not make it faster.",
}
#: Why, if every draft length leaves the captured graphs.
PAST = "No CUDA graph covers a step with drafts, and without one it can cost several times more."
#: What a draft length past the graphs would give; ``flag`` is empty or begins with ``: add ``.
BEYOND = (
    "Draft length {length:d} would give {speedup:.2f}x with its {rows:.0f} rows captured; "
    "{engine} captures CUDA graphs for up to {largest:d}{flag}."
)
CAVEAT = " The drafter's config ends at {trained} positions: acceptance at {context} may be lower."
#: The same where the acceptance is an expected one, which counts with it.
CAVEAT_EXPECTED = (
    " The drafter's config ends at {trained} positions: less is expected at {context}, by few runs."
)
MEANS = " ({name} means {taken}.)"
NOTHING_DRAFTED = "Nothing is drafted, so there is nothing to decide."


def headline(answer: Recommendation, point: Point) -> str:
    """Return the answer in one sentence."""
    said = _headline(answer, point)
    return f"Experimental: {said[:1].lower()}{said[1:]}" if experimental(answer) else said


def experimental(answer: Recommendation) -> bool:
    """Return whether something was asked for that no run confirms."""
    workload = answer.question.workload
    return answer.deployment.experimental or workload.watts or workload.pools is not None


def _headline(answer: Recommendation, point: Point) -> str:
    shown = deciding(point)
    plain, fast = (1 / point.time_per_token[i] for i in (0, point.best))
    sentence = headline_template(
        outcome(answer, point),
        point.confidence,
        plain=plain,
        measured=not answer.question.acceptance.unknown,
        rarely_faster=point.rarely_faster,
    )
    if shown is None:
        return sentence.format(plain=plain)
    return sentence.format(
        length=point.draft_lengths[shown],
        flag=answer.deployment.engine.name_of_length(answer.deployment.drafter.kind),
        speedup=point.speedup[shown],
        plain=plain,
        fast=fast,
        low=point.low[shown],
        high=point.high[shown],
    )


def as_conditional(headline: str) -> str:
    """Return the first sentence of an answer under the other reading of its acceptance."""
    return f"As conditional rates, not survival: {headline[:1].lower()}{headline[1:]}"


def other_headlines(answer: Recommendation, point: Point) -> list[str]:
    """Return the first sentence under the other reading of the acceptance, where it differs."""
    if answer.other_reading is None:
        return []
    place = point.batch, point.context
    sentences = [
        headline(answer.other_reading, other)
        for own, other in answer.ambiguous
        if (own.batch, own.context) == place
    ]
    return list(map(as_conditional, sentences))


def headline_template(
    kind: Outcome,
    confidence: Confidence,
    *,
    plain: float,
    measured: bool = True,
    rarely_faster: bool = False,
) -> str:
    """Return the first sentence before its numbers are filled in; ``plain`` in tokens/s per user.

    Where the acceptance was not ``measured``, it holds the width of the speedup in its place.
    ``rarely_faster`` is `Point.rarely_faster`, which is said of those alone.

    >>> headline_template(Outcome.ALONE, Confidence.LOSS, plain=5.0)
    'Plain decoding: {plain:.1f} tokens/s per user.'
    """
    sentence = (HEADLINES if plain >= SLOW_PACE else _SLOW_HEADLINES)[kind]
    verdicts = VERDICTS if measured else _UNMEASURED_VERDICTS
    if not measured:
        sentence = sentence.replace("{speedup:.2f}x", "{low:.2f}x to {high:.2f}x")
    verdict = verdicts.get(kind, {}).get(confidence, "")
    if rarely_faster and not measured and kind is Outcome.DRAFTS:
        verdict = f"{_RARELY_FASTER}; {NOT_MEASURED}"
    return sentence.replace("{verdict}", verdict)


def names_taken(answer: Recommendation) -> str:
    """Return what names mean, to add to the first sentence of all."""
    return "".join(
        MEANS.format(name=item.values["name"], taken=item.values["taken"])
        for item in answer.notices
        if item.code is Code.NAME_TAKEN
    )


def of_all_points(answer: Recommendation) -> str:
    """Return what names mean and why nothing is drafted, to add to the first sentence of all."""
    said = names_taken(answer)
    for item in answer.notices:
        if item.code is Code.PLAIN_ASSUMED:
            from roofline.render.notices import capitalised, sentence

            said += f" {capitalised(sentence(item))}"
    return said


def caveat(answer: Recommendation, point: Point) -> str:
    """Return what to add to the first sentence of a point: a context beyond training."""
    trained = trained_context_passed(answer, point)
    if trained is None:
        return ""
    caveat = CAVEAT_EXPECTED if answer.question.acceptance.unknown else CAVEAT
    return caveat.format(trained=trained, context=format_size(point.context))


def reason(answer: Recommendation, point: Point) -> str:
    """Return why: what a plain step waits for, what drafts add, what they must yield."""
    looked_at = deciding(point)
    if looked_at is not None:
        return f"{_costs(answer, point, looked_at)}{_beyond(answer, point)}"
    kind = outcome(answer, point)
    match kind:
        case Outcome.NO_ROOM:
            from roofline.render.refusals import drafts_without_room

            why = drafts_without_room(answer.memory, batch=point.batch, context=point.context)
        case Outcome.PAST_GRAPHS:
            why = f"{PAST}{_beyond(answer, point)}"
        case Outcome.UNKNOWN:
            why = f"{without_acceptance(answer, point)}{_beyond(answer, point)}"
        case _:
            return NOTHING_DRAFTED
    return f"{why} {NO_GAIN[kind]}" if deciding_limit(answer, point) is None else why


def without_acceptance(answer: Recommendation, point: Point) -> str:
    """Say which draft length could be run if its acceptance were known."""
    unknown = shortest_unknown(answer, point)
    if unknown is None:
        return ""
    return (
        f"Draft length {unknown.draft_length} makes {unknown.rows:.0f} rows a pass and could run; "
        "the shortest one of known acceptance cannot. Measure its tokens per step N and give "
        f"{Option('acceptance', f'al:{unknown.draft_length}=N')}."
    )


def reason_template(hit_rate: float | tuple[float, ...]) -> str:
    """Return the template of the reason; rows are a mean where some sequences have no drafts."""
    return REASON if hit_rate == 1 else REASON.replace("Verifying ", "Verifying a mean of ")


def _costs(answer: Recommendation, point: Point, at: int) -> str:
    """Say what the draft length at a position costs, and what it yields."""
    length = point.draft_lengths[at]
    return reason_template(answer.deployment.hit_rate).format(
        opening=opening(answer, point, length),
        rows=answer.deployment.grid((1,), (1,), (length,)).rows.item(),
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
    """Return what a plain step waits for, which experts a verify pass wakes, what it adds to."""
    plain = plain_pass(answer, point, draft_length)
    text = _what_it_waits_for(answer, point, plain)
    if (experts := plain.active_experts) is not None:
        text += (
            f" Of the experts of a layer a plain pass uses {experts.plain:.1f}, the verify pass "
            f"{experts.verify:.1f}."
        )
    if (waits := plain.stage_waits) is not None:
        text += (
            f" The {plain.cards_in_turn} stages work one after the other; launches and "
            f"synchronisation between them take {1e3 * waits.plain:.3g} ms of a plain step and "
            f"{1e3 * waits.drafting:.3g} ms of one with drafts (assumed)."
        )
    elif plain.cards_in_turn > 1:
        text += f" The {plain.cards_in_turn} cards work one after the other."
    if plain.host is not None:
        text += (
            f" The processor computes the experts of {format_count(plain.host.layers, 'layer')} "
            f"from its {plain.host.memory} in {host_share(answer, point):.0%} of a plain pass."
        )
    return text + _what_grows(answer, point, draft_length)


def _what_grows(answer: Recommendation, point: Point, draft_length: int) -> str:
    """Name the kernel that makes a verify pass much dearer, where it is one above the others."""
    at = point.draft_lengths.index(draft_length)
    growth = dearest_growth(answer, point, draft_length)
    if growth is None or point.verify[at] < MUCH_DEARER * point.verify[0] or growth.share < MOST:
        return ""
    return (
        f" The kernel {growth.op} takes {growth.share:.0%} of what a verify pass adds "
        f"({1e3 * growth.plain:.3g} ms to {1e3 * growth.verify:.3g} ms){_blocks(growth)}."
    )


def _blocks(growth: Growth) -> str:
    """Say why a kernel grows that gives every query head a block of its own."""
    blocks = growth.head_blocks
    if blocks is None:
        return ""
    on = f" on {blocks.units} SMs" if blocks.units else ""
    return (
        f": with several rows, each query head is a block of its own of {blocks.rows} rows, which "
        f"goes through the whole cache alone ({format_count(blocks.blocks, 'block')}{on})"
    )


#: From this many plain passes on, an answer names the kernel that adds this share to a verify pass.
MUCH_DEARER, MOST = 1.25, 0.5


_SHARED = {
    Sharing.ALL: ", which all rows of a verify pass share",
    Sharing.READ_ONCE: "; the rows of a verify pass share the weights",
    Sharing.PER_TILE: (
        "; the rows of a verify pass share the weights, but each tile of rows reads the KV again"
    ),
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
                f"A plain pass computes for {share:.0%} of its time "
                f"({format_count(point.batch, 'row')}), so every further row costs its full time."
            )
        case Bound.LINK:
            return f"A plain pass waits on the links between the GPUs for {share:.0%} of its time."
        case Bound.LATENCY:
            return (
                f"A plain pass spends {share:.0%} of its time on the fixed costs of its kernels "
                f"(launch and latency); it reads {weights} of weights and {cache} of KV."
            )
        case _:
            assert_never(main)


#: An answer says that it rests on assumed laws from this share of a plain pass on.
MUCH_ASSUMED = 0.5
#: Odds that are too small to name.
SHOWN = 0.05
#: The share of a loss that is called most of it.
MOST = 0.8
#: A share of speed that is too small to name.
WORTH_SAYING = 0.0005


def likely_line(
    point: Point, unmeasured: Sequence[int] = (), first: FirstTiming | None = None
) -> str:
    """Return how probable it is that each draft length is within 1 % of the best.

    ``unmeasured`` are the next lengths, if the acceptance ends with the longest one; ``first`` is
    what a timing of the advice is worth, where that was computed.
    """
    if len(point.draft_lengths) == 1:
        return "One draft length was looked at, so there is nothing to time."
    if not point.feasible[1:].any():
        return "Only plain decoding fits, so there is nothing to time."
    if not point.candidates[1:].any():
        return (
            "No draft length of known acceptance stays in captured graphs, so there is nothing to "
            "time."
        )
    ranked = point.by_odds
    likeliest = ranked[:4] if point.best in ranked[:4] else [*ranked[:3], point.best]
    shown = [
        f"{_odds(float(point.near_best[i]))} for D = {point.draft_lengths[i]}"
        for i in likeliest
        if point.near_best[i] >= SHOWN or i == point.best
    ]
    surest = ""
    if point.near_best[ranked[0]] > point.near_best[point.best]:
        surest = (
            f" D = {point.draft_length} is the shortest within 1 % of the highest expected speed, "
            f"which the advice goes by; D = {point.draft_lengths[ranked[0]]} has the best odds."
        )
    if point.rarely_faster:
        surest += (
            f" Plain decoding is faster than D = {point.draft_length} with odds of "
            f"{1 - point.faster[point.best]:.0%}, but by less than it loses otherwise."
        )
    ends = " (the acceptance ends there)" if unmeasured else ""
    return (
        f"Odds of being within 1 % of the fastest of {_compared(point)}{ends}, given the errors of "
        f"model and acceptance: {listed(shown)}.{surest} {_what_next(point, unmeasured, first)}."
    )


def counting_line(worth: WorthMeasuring | None) -> str:
    """Return which count of the acceptance would raise the odds; empty where none does by much."""
    count = None if worth is None else worth.proposed
    if worth is None or count is None:
        return ""
    return (
        f"Count your acceptance: {count.passes} passes of {count.requests} requests at D = "
        f"{worth.draft_length} would raise the odds of the advised length from {worth.odds:.0%} to "
        f"about {count.odds:.0%}."
    )


def _compared(point: Point) -> str:
    """Return the draft lengths that the odds are about: those that may be advised."""
    lengths = [d for d, may in zip(point.draft_lengths, point.candidates, strict=True) if may]
    if len(lengths) > 2 and lengths == list(range(lengths[0], lengths[-1] + 1)):
        return f"D = {lengths[0]} to {lengths[-1]}"
    return f"D = {listed(list(map(str, lengths)))}"


def _what_next(point: Point, unmeasured: Sequence[int], first: FirstTiming | None) -> str:
    """Return what to time first and what that is worth, or where to measure acceptance."""
    length = point.draft_length if first is None else first.draft_length
    timed = f"Time D = {length} first"
    if first is not None:
        timed += f": its expected loss is {_percent(first.expected_loss)}"
        if first.worth >= MOST * first.expected_loss >= WORTH_SAYING:
            timed += ", and a timing there is worth most of that"
        elif first.worth >= WORTH_SAYING:
            timed += f", a timing there is worth {_percent(first.worth)}"
        timed += "; 'roofline tune start' keeps score"
    if unmeasured and point.draft_length == point.draft_lengths[-1]:
        known = listed([str(d) for d in unmeasured])
        return f"{timed}. Measure acceptance at D = {known}, where none is known"
    return timed


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= WORTH_SAYING else "under 0.1 %"


def _odds(share: float) -> str:
    """Return a share of the draws as a percentage, never 100 %: all draws are no certainty.

    >>> _odds(0.5), _odds(1.0)
    ('50%', 'at least 98%')
    """
    most = 1 - 1 / DRAWS
    return f"at least {most:.0%}" if share > most else f"{share:.0%}"


def marks_line(answer: Recommendation, point: Point) -> str:
    """Say what the marks in front of the table's rows mean, and what a price is for."""
    graphs, said = answer.deployment.engine.graphs, ["*: advised."]
    if graphs is not None and not point.captured[point.feasible].all():
        past = "can take several times as long as shown"
        if point.captured[0]:
            past += ", so none of them is advised"
        said.append(
            f"!: more rows than the {graphs.largest} that {answer.deployment.engine.name} captures "
            f"CUDA graphs for; such steps {past}."
        )
    share = assumed_share(answer, point)
    if share > MUCH_ASSUMED:
        said.append(
            f"{share:.0%} of a plain pass is priced by laws that are assumed for this GPU, not "
            "measured on it."
        )
    price = answer.question.workload.gpu_hour
    if price is not None:
        said.append(f"$/M tokens: {answer.deployment.cards} x {dollars(price)} per hour.")
    return " ".join(said)


def dollars(amount: float) -> str:
    """Print an amount with cents, or with three digits where it is small.

    >>> dollars(2.5), dollars(0.01234)
    ('$2.50', '$0.0123')
    """
    return f"${amount:.2f}" if amount >= 1 else f"${amount:.3g}"
