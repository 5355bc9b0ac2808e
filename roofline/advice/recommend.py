"""From a question to an answer for every batch and context, and what to know beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofline.acceptance.models import decay_share, drawn_tokens_per_step
from roofline.advice.configuration import Notices
from roofline.advice.decide import (
    CONFIDENCES,
    TIE,
    Decision,
    Point,
    decide,
    near_best,
    smallest_within_tie,
    speedups,
    time_at_odds,
)
from roofline.advice.deployment import Deployment, PricedGrid, deploy
from roofline.advice.question import Question, ending_value
from roofline.base.notices import Code, Notice, notice
from roofline.kernels.matrices import used_components
from roofline.kernels.ops import AttentionShape
from roofline.specs.formats import LAYER_LINEARS, DType, bytes_per_element
from roofline.specs.paths import Basis
from roofline.specs.placement import Grid, VerifyAttention
from roofline.specs.priors import priors
from roofline.timing.laws.attention import WARP_ROWS, WARPS
from roofline.timing.machine import OpTime, converts_cache
from roofline.timing.memory import Memory
from roofline.timing.step import StepTimes, past_graphs
from roofline.timing.uncertainty import speedup_range

if TYPE_CHECKING:
    from roofline.advice.remedies import Refused

__all__ = [
    "Recommendation",
    "answer_at",
    "converted_cache_notices",
    "decide_grid",
    "drawn_tokens",
    "edge_notices",
    "law_limit_notices",
    "recommend",
    "require_fit",
    "shipped_format_notices",
    "slow_format_notices",
    "verify_path_notices",
]

#: A plain step with narrow weights may take this many times as long before a notice says so.
MUCH_SLOWER = 1.02
#: A speedup that moves by this share with how attention runs is said, though D stays.
MUCH_MOVED = 0.15
#: From this factor between two draft lengths on, a verify pass jumps.
JUMP = 1.5
#: What scales of blocks take at most beside an element [B].
SCALES = 0.1
#: Up to this draft length one rate at all positions is off by less than the model itself.
SHORT_DRAFT = 3


def law_limit_notices(times: StepTimes) -> list[Notice]:
    """Return the notices of the kernels that run outside what their tables covered."""
    passes = (*times.verify_ops, *times.first_pass_ops)
    limits = (time.chosen.limit for time in passes if time.chosen.limit is not None)
    return list(dict.fromkeys(limits))


def slow_format_notices(
    deployment: Deployment, *, batch: int, context: int, times: StepTimes | None = None
) -> list[Notice]:
    """Return the notices of formats that make a plain step longer, or that are not as shipped.

    A format that was asked for in place of one that the checkpoint ships with comes first; without
    such, weights that are slower than the model's own wide format, and a KV cache that is no faster
    than one in it. ``times`` are those of a grid
    that begins with the plain step at this batch and context, where it is priced already.
    """
    own = times or _plain_step(deployment, batch, context)
    shipped = [
        _shipped_is_better(deployment, each, own, _plain_step(each.deployment, batch, context))
        for each in _in_shipped_formats(deployment)
    ]
    found = [each for each in shipped if each is not None]
    return found or [
        *_slow_narrow_weights(deployment, own, batch, context),
        *_slow_narrow_cache(deployment, own, batch, context),
    ]


def verify_path_notices(question: Question, points: Sequence[Point]) -> list[Notice]:
    """Say where another way to read the cache in verify passes would change the advice.

    The other way is to read it once for all rows, or for every row where once is only assumed. The
    first point is named where another draft length is better by more than a tie, or where the
    advised one gains much more or less.
    """
    deployment = question.deployment
    path, mode = deployment.path, deployment.target.placement.verify_attention
    assumed = path is not None and path.basis is Basis.ASSUMED
    if path is None or question.draft_lengths[-1] == 0:
        return []
    if mode is VerifyAttention.KV_ONCE and not assumed:
        return []
    once = mode is not VerifyAttention.KV_ONCE
    other = VerifyAttention.KV_ONCE if once else VerifyAttention.KV_PER_QUERY
    batches, contexts = (
        tuple(dict.fromkeys(getattr(point, name) for point in points))
        for name in ("batch", "context")
    )
    elsewhere = replace(question, deployment=_verifying_by(deployment, other))
    priced = elsewhere.price(batches, contexts)
    tokens = question.tokens_on(priced.grid)
    gain = speedups(tokens, priced.times.total)
    best, _ = smallest_within_tie(np.where(priced.candidates, gain, np.nan))
    for point in points:
        at = batches.index(point.batch), contexts.index(point.context)
        found = int(best[at])
        own = float(point.speedup[point.best])
        other_length_wins = gain[at][found] * (1 - TIE) > gain[at][point.best]
        if other_length_wins or abs(gain[at][point.best] / own - 1) > MUCH_MOVED:
            found = found if other_length_wins else point.best
            return [
                notice(
                    Code.VERIFY_PATH_DECIDES,
                    engine=deployment.engine.name,
                    version=deployment.engine.runs_version,
                    backend=path.backend,
                    gpu=deployment.gpu.id,
                    assumed=assumed,
                    mode=mode,
                    other=other,
                    batch=point.batch,
                    context=point.context,
                    length=point.draft_length,
                    speedup=own,
                    other_length=question.draft_lengths[found],
                    other_speedup=float(gain[at][found]),
                )
            ]
    return []


def _verifying_by(deployment: Deployment, mode: VerifyAttention) -> Deployment:
    """Return a deployment whose verify passes read the cache in another way."""
    target, drafter = deployment.target, deployment.drafter
    return replace(
        deployment,
        target=target._replace(placement=replace(target.placement, verify_attention=mode)),
        drafter=replace(drafter, placement=replace(drafter.placement, verify_attention=mode)),
    )


def shipped_format_notices(
    deployment: Deployment, *, at: tuple[int, int] | None = None
) -> list[Notice]:
    """Return the notices of formats that are not as shipped, without times.

    ``at`` is the batch and context at which the formats are priced; None compares widths alone.

    >>> from roofline.advice.configuration import Configuration
    >>> asked = Configuration(model="deepseek-v3", gpu="h200-sxm", tp=8, weights=DType.FP8)
    >>> [n.values["shipped"] for n in shipped_format_notices(deploy(asked)[0])]
    [(<DType.FP8_BLOCK: 'fp8-block'>,)]
    """
    shipped = _in_shipped_formats(deployment)
    if at is None or not shipped:
        return [_ships_as(deployment, each) for each in shipped if each.same_width]
    own = _plain_step(deployment, *at)
    return [
        _ships_as(deployment, each)
        for each in shipped
        if _shipped_is_better(deployment, each, own, _plain_step(each.deployment, *at))
    ]


class _Shipped(NamedTuple):
    """What a format was asked for in place of, and the deployment without asking."""

    field: str
    asked: DType
    formats: tuple[DType, ...]
    deployment: Deployment

    @property
    def same_width(self) -> bool:
        """Whether a format asked for takes as many bytes as the narrowest in its place."""
        narrowest = min(map(bytes_per_element, self.formats))
        return abs(narrowest - bytes_per_element(self.asked)) <= SCALES


def _in_shipped_formats(deployment: Deployment) -> list[_Shipped]:
    """Return the deployment as shipped for each format that was asked for in place of another.

    A wider format that ships is left out: it is compared with `_slow_narrow_weights`. So is a
    format that the model's name asks for, and one that the engine does not serve.
    """
    configuration, model = deployment.configuration, deployment.target.model
    precision, used, found = deployment.target.precision, used_components(model), list[_Shipped]()
    for field in ("weights", "kv"):
        asked = None if configuration is None else getattr(configuration, field)
        if configuration is None or asked is None:
            continue
        own = deployment.engine.default_kv or model.kv_dtype or precision.base
        pairs = [(own, precision.kv)]
        if field == "weights":
            pairs = [(model.stored()[part], precision.weights[part]) for part in sorted(used)]
        formats = tuple(dict.fromkeys(before for before, now in pairs if before != now))
        if not formats or min(map(bytes_per_element, formats)) > bytes_per_element(asked) + SCALES:
            continue
        generation = deployment.gpu.generation
        if not all(deployment.engine.serves(field, each, generation) for each in formats):
            continue  # the engine cannot run it as it ships
        left_out: dict[str, Any] = {field: None}
        as_shipped, _ = deploy(replace(configuration, **left_out), drop_unused=True)
        if getattr(as_shipped.configuration, field) is None:
            found.append(_Shipped(field, asked, formats, as_shipped))
    return found


def _shipped_is_better(
    deployment: Deployment, shipped: _Shipped, own: StepTimes, plain: StepTimes
) -> Notice | None:
    """Return the notice of a format that is slower than the shipped one, or as wide."""
    asked_ms, shipped_ms = (1e3 * float(each.total.flat[0]) for each in (own, plain))
    if asked_ms > MUCH_SLOWER * shipped_ms:
        return notice(
            Code.SHIPPED_IS_FASTER,
            model=deployment.target.model.name,
            field=shipped.field,
            asked=shipped.asked,
            shipped=shipped.formats,
            asked_ms=asked_ms,
            shipped_ms=shipped_ms,
        )
    return _ships_as(deployment, shipped) if shipped.same_width else None


def _ships_as(deployment: Deployment, shipped: _Shipped) -> Notice:
    """Return the notice that a model ships in another format of the same width."""
    return notice(
        Code.SHIPS_AS,
        model=deployment.target.model.name,
        field=shipped.field,
        asked=shipped.asked,
        shipped=shipped.formats,
    )


def _slow_narrow_weights(
    deployment: Deployment, own: StepTimes, batch: int, context: int
) -> list[Notice]:
    """Return the notice that a plain step would be shorter with weights in a wider format.

    Wider are the model's own format and, for weights of about 4 bits, FP8 where the accelerator
    multiplies it: kernels for narrow weights can be slow where an engine has no tuned ones for a
    part, or launches their quantisation by itself. The fastest one is named.
    """
    precision = deployment.target.precision
    width = bytes_per_element(precision.base)
    narrow = {d for d in precision.weights.values() if bytes_per_element(d) < width}
    if not narrow:
        return []
    steps = (
        (wide, _plain_step(_with_weights(deployment, wide), batch, context))
        for wide in _wider(deployment)
    )
    wide, plain = min(steps, key=lambda pair: float(pair[1].total.flat[0]))
    narrow_ms, wide_ms = (1e3 * float(step.total.flat[0]) for step in (own, plain))
    if narrow_ms <= MUCH_SLOWER * wide_ms:
        return []
    kernel = _largest_loss(own, plain)
    chosen = next(time.chosen for time in own.verify_ops if time.op.name == kernel)
    return [
        notice(
            Code.SLOWER_THAN_WIDE,
            dtypes=tuple(sorted(narrow)),
            base=wide,
            own_ms=narrow_ms,
            wide_ms=wide_ms,
            kernel=kernel,
            provenance=chosen.provenance,
            detail=chosen.detail,
            error=chosen.evidence.median_error if chosen.evidence else None,
        )
    ]


def _slow_narrow_cache(
    deployment: Deployment, own: StepTimes, batch: int, context: int
) -> list[Notice]:
    """Return the notice that a plain step is no shorter with a cache that kernels convert."""
    target, gpu = deployment.target, deployment.gpu
    kv, base = target.precision.kv, target.precision.base
    if not converts_cache(kv, gpu):
        return []
    wide = replace(deployment, target=target._replace(precision=replace(target.precision, kv=base)))
    own_ms, wide_ms = (
        1e3 * float(step.total.flat[0]) for step in (own, _plain_step(wide, batch, context))
    )
    if MUCH_SLOWER * own_ms < wide_ms:
        return []
    return [
        notice(Code.KV_SAVES_NO_TIME, kv=kv, base=base, gpu=gpu.id, own_ms=own_ms, wide_ms=wide_ms)
    ]


def _wider(deployment: Deployment) -> list[DType]:
    """Return the formats to compare narrow weights with: the model's own, and FP8 if it is wider.

    FP8 is compared only where the accelerator multiplies it and all narrow weights take less.
    """
    precision = deployment.target.precision
    widest = max(
        bytes_per_element(precision.weights[part])
        for part in used_components(deployment.target.model)
        if part in LAYER_LINEARS
    )
    eight = "fp8" in deployment.gpu.rates and widest + SCALES < bytes_per_element(DType.FP8)
    return [precision.base, *([DType.FP8] if eight else [])]


def _with_weights(deployment: Deployment, wide: DType) -> Deployment:
    """Return a deployment with every layer's weights stored and multiplied in one format."""
    target, precision = deployment.target, deployment.target.precision
    formats = {
        part: wide if part in LAYER_LINEARS else precision.base for part in precision.weights
    }
    changed = replace(precision, weights=formats, activations=formats)
    return replace(deployment, target=target._replace(precision=changed))


def _plain_step(deployment: Deployment, batch: int, context: int) -> StepTimes:
    """Return the times of a plain step."""
    return deployment.price(deployment.grid((batch,), (context,), (0,))).times


def _largest_loss(times: StepTimes, plain: StepTimes) -> str:
    """Return the kernel that loses most against ``plain``."""
    before, after = _by_name(plain.verify_ops), _by_name(times.verify_ops)
    lost = {name: seconds - before.get(name, 0.0) for name, seconds in after.items()}
    return max(lost, key=lambda name: lost[name])


def _by_name(times: Sequence[OpTime]) -> dict[str, float]:
    """Return the seconds of each kernel at the first point [s]."""
    seconds: dict[str, float] = {}
    for time in times:
        first = float(np.asarray(time.total).flat[0])
        seconds[time.op.name] = seconds.get(time.op.name, 0.0) + first
    return seconds


def converted_cache_notices(answer: Recommendation, points: Sequence[Point]) -> list[Notice]:
    """Say at which draft length more warps convert the cache, where a verify pass jumps there.

    The first point is named at which it takes much more than with one draft token less.
    """
    deployment = answer.deployment
    shapes = (time.op.shape for time in answer.times.verify_ops)
    own_warps = [s for s in shapes if isinstance(s, AttentionShape) and s.own_warps]
    if not own_warps or not converts_cache(deployment.target.precision.kv, deployment.gpu):
        return []
    lengths = np.array(answer.question.draft_lengths)
    rows = own_warps[0].group * np.ravel(deployment.grid((1,), (1,), lengths.tolist()).rows)
    beyond = (np.diff(lengths) == 1) & (rows[:-1] <= WARP_ROWS) & (rows[1:] > WARP_ROWS)
    for point in points:
        factors = point.verify[1:] / point.verify[:-1]
        jumps = np.flatnonzero(beyond & point.feasible[1:] & (factors > JUMP))
        if jumps.size:
            return [
                notice(
                    Code.KV_CONVERTED_BY_WARPS,
                    kv=deployment.target.precision.kv,
                    batch=point.batch,
                    context=point.context,
                    length=point.draft_lengths[jumps[0] + 1],
                    factor=float(factors[jumps[0]]),
                    rows=WARP_ROWS,
                    warps=WARPS,
                )
            ]
    return []


def edge_notices(question: Question, points: Sequence[Point]) -> list[Notice]:
    """Return the notices of answers at the edge of what was looked at or of what fits in memory."""
    deployment, drafter = question.deployment, question.deployment.drafter
    notices = []
    longest, end = question.draft_lengths[-1], question.ending
    given = ending_value(deployment, end)
    at_the_end = any(point.draft_length == longest for point in points)
    if longest and (at_the_end or given is not None):
        code = Code.LONGEST_IS_BEST if at_the_end else Code.LENGTHS_END
        notices.append(notice(code, drafter=drafter.name, longest=longest, ending=end, given=given))
    advised = max((point.draft_length for point in points), default=0)
    if question.acceptance.unlimited and advised > SHORT_DRAFT:
        notices.append(notice(Code.ONE_RATE_IN_LONG_DRAFTS, drafter=drafter.name, longest=advised))
    for point in points:
        unfit = [d for d, ok in zip(point.draft_lengths, point.feasible, strict=True) if not ok]
        if unfit:
            notices.append(
                notice(
                    Code.DRAFTS_DO_NOT_FIT,
                    batch=point.batch,
                    context=point.context,
                    lengths=tuple(unfit),
                )
            )
    return notices


Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Recommendation:
    """The answers, what was refused, and what the reader must know about them."""

    question: Question
    points: tuple[Point, ...]
    priced: PricedGrid
    notices: tuple[Notice, ...]
    refused: tuple[Refused, ...] = ()  # batches and contexts that do not fit
    #: Whether no more sequences than those of a point may run: a goal is met with them.
    capped: bool = False
    #: The answers if a list of rates that was typed without a word is conditional, not survival.
    other_reading: Recommendation | None = None

    @property
    def deployment(self) -> Deployment:
        """What the question is about."""
        return self.question.deployment

    @property
    def times(self) -> StepTimes:
        """The step times of the whole grid."""
        return self.priced.times

    @property
    def memory(self) -> Memory:
        """Where the bytes of one accelerator go."""
        return self.deployment.memory

    @property
    def largest_batch(self) -> int:
        """The largest batch that is answered: what the engine has to run at once."""
        return max(point.batch for point in self.points)

    def running(self, point: Point) -> int:
        """Return how many sequences the engine has to run at once for a point."""
        return point.batch if self.capped else self.largest_batch

    @property
    def ambiguous(self) -> list[tuple[Point, Point]]:
        """The points whose advice depends on the reading: as survival, and as conditional rates."""
        if self.other_reading is None:
            return []
        others = {(point.batch, point.context): point for point in self.other_reading.points}
        pairs = [(point, others[point.batch, point.context]) for point in self.points]
        return [pair for pair in pairs if pair[0].draft_length != pair[1].draft_length]


def _with_reading(answer: Recommendation, notices: Notices) -> Notices:
    """Return the notices, that of a list with two readings saying whether they agree."""
    if answer.other_reading is None:
        return notices
    from roofline.advice.readings import Advice, with_reading

    others = {(point.batch, point.context): point for point in answer.other_reading.points}
    pairs = [
        (
            (("batch", point.batch), ("context", point.context)),
            Advice(draft_length=point.draft_length),
            Advice(draft_length=others[point.batch, point.context].draft_length),
        )
        for point in answer.points
    ]
    return with_reading(notices, answer.question.acceptance, pairs)


def require_fit(priced: PricedGrid) -> PricedGrid:
    """Return a priced grid; raise DoesNotFitError when no point of it fits the memory."""
    if not priced.fits[..., 0].any():
        batch, context = int(priced.grid.batch.flat[0]), int(priced.grid.context.flat[0])
        from roofline.advice.remedies import does_not_fit

        raise does_not_fit(priced.deployment, batch=batch, context=context)
    return priced


def decide_grid(question: Question, priced: PricedGrid, tokens: Array) -> Decision:
    """Decide at every batch and context of what was priced, ``tokens`` per step on its grid."""
    low, high = speedup_range(priced.drawn, drawn_tokens(question, tokens, grid=priced.grid))
    if question.acceptance.unlimited and len(question.draft_lengths) > 1:
        low = low * decay_share(
            rate=tokens[:, 1] - 1,
            ratio=priors().acceptance_effects.one_rate_fall,
            draft_lengths=question.draft_lengths,
        )
    return decide(priced.times.total, tokens, priced.candidates, (low, high), priced.timed)


def drawn_tokens(
    question: Question,
    tokens_per_step: Array,
    *,
    grid: Grid | None = None,
    contexts: Sequence[int] = (),
) -> Array:
    """Return tokens per step in the joint draws of what is not known of the acceptance.

    ``tokens_per_step`` has shape (contexts or 1, draft lengths), at the contexts of ``grid`` or at
    ``contexts``; the result has shape (DRAWS or 1, 1, contexts or 1, draft lengths).
    """
    lengths = question.draft_lengths
    at = contexts if grid is None else grid.context.ravel().astype(int).tolist()
    spread = question.acceptance.spread_over_contexts(at, lengths)
    if spread is None or len(lengths) == 1:
        return drawn_tokens_per_step(lengths, tokens_per_step, question.rounds)
    drawn = (tokens_per_step - 1) * spread
    np.clip(drawn, 0, np.array(lengths), out=drawn)
    drawn += 1
    return drawn[:, None]


def recommend(question: Question) -> Recommendation:
    """Answer a question; raise DoesNotFitError when no requested point fits the memory."""
    priced = require_fit(question.price())
    unfit = [
        (batch, context)
        for i, batch in enumerate(question.workload.batches)
        for j, context in enumerate(question.workload.contexts)
        if not priced.fits[i, j, 0]
    ]
    answer = Recommendation(
        question=question,
        points=_points(question, priced),
        priced=priced,
        refused=_refused(question, unfit),
        notices=(),
    )
    answer = replace(answer, other_reading=_in_other_reading(answer))
    return answer_at(answer, answer.points)


def _in_other_reading(answer: Recommendation) -> Recommendation | None:
    """Return the answer to the other reading of a list of rates, decided on the same prices."""
    if answer.question.acceptance.other_reading is None:
        return None
    from roofline.advice.readings import in_other_reading

    question = in_other_reading(answer.question) or answer.question
    return replace(answer, question=question, points=_points(question, answer.priced))


def _points(question: Question, priced: PricedGrid) -> tuple[Point, ...]:
    """Return the answer for every batch and context that fits."""
    tokens = question.tokens_on(priced.grid)
    decision = decide_grid(question, priced, tokens)
    speed = drawn_tokens(question, tokens, grid=priced.grid) / priced.drawn.steps()
    odds = near_best(np.where(priced.candidates, speed, np.nan))
    faster = np.asarray((speed > speed[..., :1]).mean(axis=0))
    step = priced.times.total
    sure = time_at_odds(1 / speed, step / tokens)
    rows, columns, _ = priced.grid.shape
    return tuple(
        _point(
            question,
            priced,
            decision,
            step=step[at],
            tokens_per_step=tokens[at[1] % len(tokens)],
            odds=odds[at],
            faster=faster[at],
            sure=sure[at],
            at=at,
        )
        for at in np.ndindex(rows, columns)
        if priced.fits[(*at, 0)]
    )


def answer_at(
    answer: Recommendation, points: Sequence[Point], extra: Sequence[Notice] = ()
) -> Recommendation:
    """Return the answer at these of its points alone, with what is to know about them."""
    question = answer.question
    answer = replace(answer, points=tuple(points))
    first, workload = answer.points[0], question.workload
    priced_first = (first.batch, first.context) == (workload.batches[0], workload.contexts[0])
    notices = (
        *_with_reading(answer, question.notices),
        *law_limit_notices(answer.times),
        *slow_format_notices(
            question.deployment,
            batch=first.batch,
            context=first.context,
            times=answer.times if priced_first else None,
        ),
        *past_graphs(
            question.deployment.engine,
            {p.batch: (p.draft_lengths, p.captured.tolist(), p.pass_rows.tolist()) for p in points},
        ),
        *verify_path_notices(question, points),
        *converted_cache_notices(answer, points),
        *edge_notices(question, points),
        *_experimental_notices(question),
        *extra,
    )
    return replace(answer, notices=notices)


def _experimental_notices(question: Question) -> Notices:
    """Return what is to know of watts and of pools, where they are asked for."""
    notices: Notices = ()
    if question.workload.watts:
        from roofline.advice.energy import energy_notices

        notices = tuple(energy_notices(question.deployment))
    if question.workload.pools is not None:
        asked = question.deployment.configuration
        given = None if asked is None else asked.internode
        rate = priors().pipeline.internode if given is None else given
        said = notice(Code.EXPERIMENTAL_POOLS, rate=rate, assumed=given is None)
        notices = (*notices, said)
    return notices


def _refused(question: Question, unfit: Sequence[tuple[int, int]]) -> tuple[Refused, ...]:
    """Return what does not fit, with what helps."""
    if not unfit:
        return ()
    from roofline.advice.remedies import refuse

    return refuse(question.deployment, unfit)


def _point(
    question: Question,
    priced: PricedGrid,
    decision: Decision,
    *,
    step: Array,
    tokens_per_step: Array,
    odds: Array,
    faster: Array,
    sure: Array,
    at: tuple[int, int],
) -> Point:
    times = priced.times
    return Point(
        batch=question.workload.batches[at[0]],
        context=question.workload.contexts[at[1]],
        draft_lengths=question.draft_lengths,
        feasible=priced.fits[at],
        tokens_per_step=tokens_per_step,
        step=step,
        verify=times.verify[at],
        draft=times.draft[at],
        overhead=times.overhead[at],
        parts={name: part[at] for name, part in times.parts.items()},
        speedup=decision.speedup[at],
        low=decision.low[at],
        high=decision.high[at],
        tie=decision.tie[at],
        near_best=odds,
        faster=faster,
        sure_time_per_token=sure,
        pass_rows=times.launches.rows[at],
        captured=times.launches.captured[at],
        by_hand=times.launches.by_hand[at],
        best=int(decision.best[at]),
        confidence=CONFIDENCES[decision.confidence[at]],
    )
