"""Timings chosen one by one, replayed on every published sweep of draft lengths.

A timing and the speed that is scored are the published one with independent noise. Step times are
predicted by engine numbers that were fitted without the sweep's group, their deviations are fitted
without it as well, and acceptance is that of a prior which never saw its drafter, or the sweep's
own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.acceptance.curve import fill_gaps
from roofline.acceptance.prior import tokens_of_rates
from roofline.advice.belief import JointBelief, Timing, joint_prior
from roofline.advice.belief_prior import deviations_of, logits_of
from roofline.base.progress import tracked
from roofline.calibrate.engine.spec_pricing import deployment_of
from roofline.calibrate.engine.spec_rows import SpecRow, drafter_of, target_of
from roofline.calibrate.fit.deviations import SweptSteps, fit_deviations
from roofline.specs.engine import load_engine
from roofline.specs.placement import Grid, Routing
from roofline.specs.priors import priors
from roofline.timing.timed import GROWTH, Deviations
from roofline.validation.acceptance import left_out_rates, sweep_labels
from roofline.validation.advice import grouped_sweeps
from roofline.validation.held_out import load_held_out
from roofline.validation.steps import published_runs

__all__ = [
    "ACCEPTANCES",
    "AFTER",
    "AL",
    "LONG",
    "MEASURED",
    "NOTHING",
    "PRIORS_ONLY",
    "RULES",
    "SURVIVAL",
    "TimedSweep",
    "deviations_without",
    "timed_sweeps",
    "tune_rows",
]

Array = NDArray[np.float64]
#: Scatter of a timing and of the scored speed [log].
NOISE = 0.015
#: Noisy copies of each sweep.
COPIES = 10
#: Numbers of timings after which choices are scored, and the most that a stop may take.
AFTER, MOST = (1, 2, 3), 8
#: Lengths from which on a sweep is scored apart as well.
LONG = 6
ACCEPTANCES = ("expected", "own")
#: What an engine prints beside a speed: AL, AL of all shorter drafts as well, or neither.
AL, SURVIVAL, NOTHING = "AL", "survival", "nothing"
#: What is known of the accelerator.
MEASURED, PRIORS_ONLY = "measured kernels", "priors only"
RULES = ("ours", "golden section", "hill climb", "two and a line", "random")
GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True, kw_only=True, eq=False)
class TimedSweep:
    """One published sweep, and what is believed of it before any timing."""

    group: str
    name: str
    lengths: tuple[int, ...]
    speed: Array
    tokens: Array | None  # its own tokens per step
    parts: tuple[Array, Array, Array]  # verify, draft, overhead, each its share of the step
    step: Array  # predicted
    curves: dict[str, tuple[Array, Array]]  # logits and their covariance, by acceptance
    priors_only: bool  # no kernel of its part was measured

    def prior(self, acceptance: str, deviations: Deviations, *, prints_tokens: bool) -> JointBelief:
        """Return the belief before any timing; ``deviations`` are those of measured kernels."""
        logits, covariance = self.curves[acceptance]
        verify, draft, overhead = (self.step * part for part in self.parts)
        return joint_prior(
            draft_lengths=self.lengths,
            verify=verify,
            draft=draft,
            overhead=overhead,
            logits=logits,
            logit_covariance=covariance,
            prints_tokens=prints_tokens,
            deviations=deviations.priors_only() if self.priors_only else deviations,
        )

    @property
    def swept(self) -> SweptSteps | None:
        """The measured steps over the predicted ones; None without tokens per step of its own."""
        if self.tokens is None:
            return None
        verify, draft, overhead = self.parts
        return SweptSteps(
            group=self.group,
            draft_lengths=self.lengths,
            misses=np.log(self.tokens / self.speed / self.step),
            verify=verify,
            draft=draft,
            overhead=overhead,
            priors_only=self.priors_only,
        )


def deviations_without(group: str, sweeps: Sequence[TimedSweep]) -> Deviations:
    """Return the deviations fitted on these sweeps without a group's; empty leaves none out."""
    every = [swept for sweep in sweeps if (swept := sweep.swept) is not None]
    return fit_deviations([swept for swept in every if swept.group != group])


@cache
def timed_sweeps() -> tuple[TimedSweep, ...]:
    """Return every published sweep of two or more draft lengths that can be replayed."""
    published, found = published_runs(), list[TimedSweep]()
    for pick, own in tracked(grouped_sweeps(), "sweeps"):
        rows = [published.rows[i] for i in pick]
        predicted = published.predicted
        plain = float(predicted.plain[pick[0]])
        found += _sweep(rows, np.array([plain, *predicted.step[pick]]), own=own)
    for rows in _held_out():
        found += _sweep(rows, None, own=True)
    return tuple(found)


def _held_out() -> list[list[SpecRow]]:
    """Return the sweeps among the runs that no number was fitted on; prompts are not inside."""
    members: dict[tuple[object, ...], dict[int, SpecRow]] = {}
    for row in load_held_out():
        run = row.run
        if not row.prompt:
            key = (run.group, run.model, run.kind, run.batch, run.context, run.dataset)
            members.setdefault(key, {})[run.draft_length] = run
    return [[runs[d] for d in sorted(runs)] for runs in members.values() if len(runs) >= 2]


def _sweep(rows: Sequence[SpecRow], step: Array | None, *, own: bool) -> list[TimedSweep]:
    """Return a sweep; none where nothing is known of its acceptance. D = 0 only if measured."""
    first, last = rows[0], rows[-1]
    lengths = [0, *(row.draft_length for row in rows)]
    base = first.base_speed or (1.0 if first.speedup and not first.speed else np.nan)
    speeds = np.array([base, *(row.speed or row.speedup or np.nan for row in rows)])
    routing = priors().routing
    target = target_of(last, Routing(skew=routing.skew, correlation=routing.correlation))
    overhead = load_engine(last.engine).overhead
    deployment = deployment_of(last, target, drafter_of(last, target), overhead)
    times = deployment.price(Grid.of((last.batch,), (last.context,), lengths)).times
    total = times.total[0, 0]
    start = 0 if np.isfinite(speeds[0]) else 1
    tokens = np.array([1.0, *(row.tokens_per_step or np.nan for row in rows)]) if own else None
    curves = _curves(rows, lengths, tokens)
    if not curves:
        return []
    parts = [part[0, 0][start:] / total[start:] for part in (times.verify, times.draft)]
    return [
        TimedSweep(
            group=first.group,
            name=f"{first.model} {first.kind} {first.gpu} b{first.batch} {first.dataset}".strip(),
            lengths=tuple(lengths[start:]),
            speed=speeds[start:],
            tokens=None if tokens is None else tokens[start:],
            parts=(parts[0], parts[1], 1 - parts[0] - parts[1]),
            step=(total if step is None else step)[start:],
            curves=curves,
            priors_only=deviations_of(times) is not GROWTH,
        )
    ]


def _curves(
    rows: Sequence[SpecRow], lengths: Sequence[int], tokens: Array | None
) -> dict[str, tuple[Array, Array]]:
    curves, depth = dict[str, tuple[Array, Array]](), max(lengths)
    labelled = sweep_labels(rows)
    if labelled is not None:
        drawn = tokens_of_rates(rates=left_out_rates(*labelled, depth))
        curves["expected"] = logits_of(mean=drawn.mean(axis=0), drawn=drawn)
    if tokens is not None:
        full = fill_gaps(dict(zip(lengths, tokens.tolist(), strict=True)))
        curves["own"] = logits_of(mean=np.array([full[d] for d in sorted(full)]), own=True)
    return curves


class _Bench:
    """One noisy copy of a sweep: what a timing of each length gives, and what a choice loses."""

    def __init__(self, sweep: TimedSweep, copy: int, printed: str) -> None:
        rng = np.random.default_rng(
            (20261202, copy, *map(int, 1e6 * sweep.speed / sweep.speed[-1]))
        )
        self.sweep, self.printed = sweep, printed
        noise = rng.normal(scale=NOISE, size=(2 + MOST, len(sweep.lengths)))
        self.true = sweep.speed * np.exp(noise[0])
        self.given = sweep.speed * np.exp(noise[1:])
        self.asked = np.zeros(len(sweep.lengths), dtype=int)
        self.order = rng.permutation(len(sweep.lengths))

    def time(self, at: int) -> float:
        """Return the speed of a timing; a further one of the same length differs."""
        self.asked[at] += 1
        return float(self.given[self.asked[at] - 1, at])

    def timing(self, at: int) -> Timing:
        """Return a timing as the belief takes it."""
        lengths, tokens = self.sweep.lengths, self.sweep.tokens
        seen = dict[int, float]()
        if tokens is not None and self.printed != NOTHING:
            first = at if self.printed == AL else 0
            seen = {lengths[i]: float(tokens[i]) for i in range(first, at + 1) if lengths[i]}
        return Timing(0, lengths[at], self.time(at), seen)

    def loss(self, at: int) -> float:
        """Return what a choice loses against the best of the scored speeds."""
        return float(1 - self.true[at] / self.true.max())


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """One copy of a sweep: losses after each of AFTER; ours also when it stopped."""

    losses: tuple[float, ...]
    timings: int = 0
    stopped: float = 0.0
    promised: float = 0.0
    bound: float = 0.0


def _ours(bench: _Bench, prior: JointBelief) -> Outcome:
    """Return what the belief's own timings lose."""
    belief, losses, stop = prior, list[float](), Outcome(losses=())
    for count in range(1, MOST + 1):
        at = prior.draft_lengths.index(belief.next_timing().candidate.draft_length)
        belief = belief.after([bench.timing(at)])
        chosen = int(belief.chosen[0])
        losses.append(bench.loss(chosen))
        if not stop.timings and (belief.enough or count == MOST):
            promise = belief.promise()
            stop = Outcome(
                losses=(),
                timings=count,
                stopped=losses[-1],
                promised=promise.regret,
                bound=promise.bound,
            )
        if stop.timings and count >= max(AFTER):
            break
    return replace(stop, losses=tuple(losses[k - 1] for k in AFTER))


def _best_timed(bench: _Bench, order: Iterator[int]) -> Outcome:
    """Return what the best of those timed in an order loses; the last stays where it ends."""
    speeds, losses = dict[int, float](), list[float]()
    for _ in range(max(AFTER)):
        at = next(order, None)
        if at is not None:
            speeds[at] = bench.time(at)
        losses.append(bench.loss(max(speeds, key=lambda i: speeds[i])))
    return Outcome(losses=tuple(losses))


def _golden(bench: _Bench, prior: JointBelief) -> Outcome:
    """Golden section over the lengths in their order; the best timed is chosen."""
    del prior
    seen = dict[int, float]()

    def order() -> Iterator[int]:
        low, high = 0, len(bench.sweep.lengths) - 1
        while high > low:
            left = round(high - GOLDEN * (high - low))
            right = max(round(low + GOLDEN * (high - low)), left + 1)
            for at in (left, right):
                if at not in seen:
                    seen[at] = bench.given[0, at]
                    yield at
            if seen[left] >= seen[right]:
                high = right - 1 if right - 1 > low or left == low else left
            else:
                low = left + 1 if left + 1 < high or right == high else right
        if low not in seen:
            yield low

    return _best_timed(bench, order())


def _hill(bench: _Bench, prior: JointBelief) -> Outcome:
    """Start at the prior's choice and step to the better neighbour; the best timed is chosen."""
    seen = dict[int, float]()

    def order() -> Iterator[int]:
        at = int(prior.chosen[0])
        while at not in seen:
            seen[at] = bench.given[0, at]
            yield at
            for near in (at + 1, at - 1):
                if 0 <= near < len(bench.sweep.lengths) and near not in seen:
                    seen[near] = bench.given[0, near]
                    yield near
                if seen.get(near, 0.0) > seen[at]:
                    at = near
                    break
            else:
                return
            del seen[at]

    return _best_timed(bench, order())


def _line(bench: _Bench, prior: JointBelief) -> Outcome:
    """Time the longest and the shortest, T on a line between them; then the choice itself.

    Tokens per step are the prior's, moved by one number of logits to what was printed; survival
    tells all of them.
    """
    lengths = np.array(bench.sweep.lengths, dtype=float)
    first, last = 0, len(lengths) - 1
    shortest, longest = bench.time(first), bench.time(last)
    tokens = prior.tokens_per_step
    if bench.printed == SURVIVAL and bench.sweep.tokens is not None:
        tokens = bench.sweep.tokens  # of the longest draft: all
    elif bench.printed == AL and bench.sweep.tokens is not None:
        tokens = _moved_to(prior, int(lengths[last]), float(bench.sweep.tokens[last]))
    ends = np.array([tokens[first] / shortest, tokens[last] / longest])
    time = ends[0] + (ends[1] - ends[0]) * (lengths - lengths[0]) / (lengths[-1] - lengths[0])
    speed = tokens / time
    chosen = int(np.argmax(speed))
    speed[chosen] = bench.time(chosen)
    third = int(np.argmax(speed))
    return Outcome(losses=(bench.loss(last), bench.loss(chosen), bench.loss(third)))


def _moved_to(prior: JointBelief, length: int, tokens: float) -> Array:
    """Return AL with all logits moved by one number so that AL(length) is ``tokens``."""
    depth = max(prior.draft_lengths)
    logits = prior.mean[-depth:]
    low, high = -12.0, 12.0
    for _ in range(60):
        shift = (low + high) / 2
        rates = 1 / (1 + np.exp(-(logits + shift)))
        made = tokens_of_rates(rates=rates)
        low, high = (shift, high) if made[length] < tokens else (low, shift)
    return np.asarray(made[list(prior.draft_lengths)])


def _random(bench: _Bench, prior: JointBelief) -> Outcome:
    """Time lengths in a random order; the best timed is chosen."""
    del prior
    return _best_timed(bench, iter(bench.order.tolist()))


_POLICIES: dict[str, Callable[[_Bench, JointBelief], Outcome]] = {
    "ours": _ours,
    "golden section": _golden,
    "hill climb": _hill,
    "two and a line": _line,
    "random": _random,
}


def _replay(
    sweep: TimedSweep,
    acceptance: str,
    rule: str,
    deviations: Deviations,
    *,
    printed: str,
    copies: int,
) -> tuple[list[Outcome], list[float]]:
    """Return the outcomes of every noisy copy, and what a full sweep timed once loses in it."""
    prior = sweep.prior(acceptance, deviations, prints_tokens=printed != NOTHING)
    outcomes, full = list[Outcome](), list[float]()
    for copy in range(copies):
        bench = _Bench(sweep, copy, printed)
        outcomes.append(_POLICIES[rule](bench, prior))
        full.append(bench.loss(int(np.argmax(bench.given[0]))))
    return outcomes, full


def tune_rows(
    sweeps: Sequence[TimedSweep] | None = None,
    *,
    rules: Sequence[str] = RULES,
    printed: Sequence[str] = (SURVIVAL, AL, NOTHING),
    copies: int = COPIES,
) -> list[dict[str, Any]]:
    """Return the losses of each rule after each number of timings, and of the stop."""
    every = timed_sweeps()
    groups = sorted({sweep.group for sweep in sweeps or every})
    told = {sweep.group for sweep in every if sweep.swept is not None}
    whole = deviations_without("", every)
    fitted = {
        group: deviations_without(group, every) if group in told else whole
        for group in tracked(groups, "fits")
    }
    rows = list[dict[str, Any]]()
    for acceptance in ACCEPTANCES:
        for told_by in printed:
            usable = [
                sweep
                for sweep in sweeps or every
                if acceptance in sweep.curves and (sweep.tokens is not None or told_by == NOTHING)
            ]
            for part, members in (
                (MEASURED, [s for s in usable if not s.priors_only]),
                (PRIORS_ONLY, [s for s in usable if s.priors_only]),
            ):
                if members:
                    rows += _scores(
                        members,
                        acceptance,
                        fitted,
                        printed=told_by,
                        rules=rules,
                        copies=copies,
                        part=part,
                    )
    return rows


def _scores(
    sweeps: Sequence[TimedSweep],
    acceptance: str,
    fitted: Mapping[str, Deviations],
    *,
    printed: str,
    part: str,
    rules: Sequence[str],
    copies: int,
) -> Iterator[dict[str, Any]]:
    common = {
        "suite": "tune",
        "acceptance": acceptance,
        "printed": printed,
        "part": part,
    }
    for rule in rules:
        replayed = [
            _replay(sweep, acceptance, rule, fitted[sweep.group], printed=printed, copies=copies)
            for sweep in sweeps
        ]
        for position, after in enumerate(AFTER):
            more = np.array(
                [
                    np.mean([o.losses[position] - f for o, f in zip(outcomes, full, strict=True)])
                    for outcomes, full in replayed
                ]
            )
            yield common | {"kind": "regret", "rule": rule, "after": after} | _pooled(sweeps, more)
        if rule == "ours":
            yield common | {"kind": "stop", "rule": rule} | _stop(sweeps, replayed)
    full = np.array([np.mean(full) for _, full in replayed])
    yield common | {"kind": "full sweep", "rule": "full sweep"} | _pooled(sweeps, full)


def _pooled(sweeps: Sequence[TimedSweep], values: Array) -> dict[str, Any]:
    """Return the mean over groups, of long sweeps as well, and the worst sweep."""
    long = [len(sweep.lengths) >= LONG for sweep in sweeps]
    return {
        "n": len(sweeps),
        "groups": len({sweep.group for sweep in sweeps}),
        "mean_regret": by_group(sweeps, values),
        "long_mean_regret": by_group(
            [s for s, keep in zip(sweeps, long, strict=True) if keep], values[long]
        )
        if any(long)
        else None,
        "worst_regret": float(values.max()),
    }


def by_group(sweeps: Sequence[TimedSweep], values: Array) -> float:
    """Return the mean over groups of the means of their sweeps."""
    pools: dict[str, list[float]] = {}
    for sweep, value in zip(sweeps, values.tolist(), strict=True):
        pools.setdefault(sweep.group, []).append(value)
    return float(np.mean([np.mean(pool) for pool in pools.values()]))


def _stop(
    sweeps: Sequence[TimedSweep], replayed: Sequence[tuple[list[Outcome], list[float]]]
) -> dict[str, Any]:
    def each(value: Callable[[Outcome], float]) -> Array:
        return np.array([np.mean([value(o) for o in outcomes]) for outcomes, _ in replayed])

    full = np.array([np.mean(full) for _, full in replayed])
    return {
        "n": len(sweeps),
        "groups": len({sweep.group for sweep in sweeps}),
        "timings": by_group(sweeps, each(lambda o: o.timings)),
        "mean_regret": by_group(sweeps, each(lambda o: o.stopped) - full),
        "promised_regret": by_group(sweeps, each(lambda o: o.promised)),
        "bound_regret": by_group(sweeps, each(lambda o: o.bound)),
        "kept_share": by_group(sweeps, each(lambda o: float(o.stopped <= o.bound))),
    }
