"""What is believed of speed by draft length: a prior, moved by timings, and what to do with it.

The unknowns are the step times of all draft lengths at all loads and the conditional acceptance of
every position, jointly normal. A timing of one length says much of the others: they share the
engine's own time, the draft passes, and the acceptance of the first drafts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofline.acceptance.models import rounds_covariance
from roofline.base.numbers import normal_draws
from roofline.timing.timed import GROWTH, Deviations, after_timings, growth_covariance

__all__ = [
    "ENOUGH",
    "NEAR",
    "SPEED_NOISE",
    "TOKENS_NOISE",
    "WORTH_TIMING",
    "Candidate",
    "JointBelief",
    "Next",
    "Promise",
    "Surprise",
    "Timing",
    "joint_prior",
    "log_tokens",
]

Array = NDArray[np.float64]
#: Scatter of tokens per second between two runs, and of tokens per step inside one [log].
SPEED_NOISE = 0.015
TOKENS_NOISE = 0.01
#: Regret that is called near the best; expected regret that needs no further timing; what a
#: timing has to be worth after the first two; below the last, nothing tells two timings apart.
NEAR = 0.01
ENOUGH = 0.003
WORTH_TIMING = 0.002
INDIFFERENT = 1e-5
#: Draws behind a promise, half of them mirrored.
PROMISED = 1024
#: Streams of the normal numbers of a timing that is not yet taken.
STREAMS = (1292, 1293)
#: Steps of the fit at most, and the change that ends it.
STEPS = 30
CLOSE = 1e-5


class Timing(NamedTuple):
    """One timing: tokens per second in any unit, and tokens per step by draft length if printed."""

    load: int  # position of the load
    draft_length: int
    speed: float
    tokens: Mapping[int, float] = {}
    repeats: int = 1
    error: float | None = None  # standard error of the speed, a share, where repeats tell it
    #: Tokens per step that the engine was made to accept: the speed tells of step times alone.
    held: float | None = None
    passes: float | None = None  # that the tokens were counted over; None where it is not said

    @property
    def of_run(self) -> float | None:
        """Tokens per step that the speed was reached with; None where they were not counted."""
        counted = None if self.passes is None else self.tokens.get(self.draft_length)
        return counted if self.held is None else self.held


class Candidate(NamedTuple):
    """A draft length at a load, by its position."""

    load: int
    draft_length: int


class Promise(NamedTuple):
    """What running the choice of one load loses against its best draft length."""

    regret: float  # expected
    odds: float  # of being within 1 %
    bound: float  # a full sweep timed once shows no more with odds of 90 %


class Next(NamedTuple):
    """What to time next, and the share of speed that it is expected to gain."""

    candidate: Candidate
    worth: float


class Surprise(NamedTuple):
    """How far one value of a timing lies from what was believed, in standard deviations."""

    what: str  # speed or tokens
    deviations: float
    expected: float  # in the value's own unit
    got: float


def log_tokens(logits: Array) -> tuple[Array, Array]:
    """Return log AL(0 ... n) of logits of conditional acceptance, and its slopes.

    AL(D) = 1 + S_1 + ... + S_D with S_i = a_1 ... a_i, and d log AL(D) / d logit a_i =
    (1 - a_i)(S_i + ... + S_D) / AL(D) for i <= D.

    One draft in two: AL(1) = 1.5 and its slope 0.5 x 0.5 / 1.5.

    >>> value, slope = log_tokens(np.zeros(1))
    >>> value.round(4).tolist(), slope.round(4).tolist()
    ([0.0, 0.4055], [[0.0], [0.1667]])
    """
    rates = 1 / (1 + np.exp(-np.clip(logits, -30, 30)))
    gains = np.cumsum(np.concatenate([[0.0], np.cumprod(rates)]))
    tokens = 1 + gains
    reached = np.maximum(gains[:, None] - gains[None, :-1], 0.0)  # S_i + ... + S_D
    return np.log(tokens), (1 - rates) * reached / tokens[:, None]


class _Fit(NamedTuple):
    """Half the sum of squared deviations at some unknowns; what timings would be, and slopes."""

    objective: float
    expected: Array
    slopes: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class JointBelief:
    """The unknowns as jointly normal: log T of each load and length, then logit a_i.

    ``draft_lengths`` are those of every load; ``allowed`` says where each may be run.
    """

    draft_lengths: tuple[int, ...]
    loads: int
    mean: Array
    covariance: Array
    allowed: NDArray[np.bool_]  # (loads, lengths)
    prints_tokens: bool = True  # whether a further timing comes with its tokens per step
    holds: bool = False  # whether a further timing has its acceptance held: it tells of steps
    timings: tuple[Timing, ...] = ()
    before: JointBelief | None = field(default=None, repr=False)  # without any timing

    @property
    def _times(self) -> int:
        return self.loads * len(self.draft_lengths)

    @cached_property
    def _tokens(self) -> tuple[Array, Array]:
        return log_tokens(self.mean[self._times :])

    @cached_property
    def log_speed(self) -> Array:
        """Mean of log(AL / T), (loads, lengths)."""
        tokens = self._tokens[0][list(self.draft_lengths)]
        times = self.mean[: self._times].reshape(self.loads, -1)
        return np.asarray(tokens - times)

    @property
    def tokens_per_step(self) -> Array:
        """AL at the draft lengths."""
        return np.asarray(np.exp(self._tokens[0][list(self.draft_lengths)]))

    @cached_property
    def _speed_slopes(self) -> Array:
        """Slopes of log speed: (loads x lengths, unknowns)."""
        slopes = np.tile(self._tokens[1][list(self.draft_lengths)], (self.loads, 1))
        return np.concatenate([-np.eye(self._times), slopes], axis=1)

    @cached_property
    def _speed_covariance(self) -> Array:
        slopes = self._speed_slopes
        return np.asarray(slopes @ self.covariance @ slopes.T)

    @property
    def chosen(self) -> NDArray[np.intp]:
        """The position of the fastest draft length that is allowed, by load."""
        return np.asarray(np.argmax(np.where(self.allowed, self.log_speed, -np.inf), axis=1))

    @property
    def choices(self) -> tuple[int, ...]:
        """The draft length to run at each load."""
        return tuple(self.draft_lengths[at] for at in self.chosen)

    def timed(self, candidate: Candidate) -> bool:
        """Return whether a candidate was timed."""
        return any((t.load, t.draft_length) == candidate for t in self.timings)

    # What timings say.

    def after(self, timings: Sequence[Timing]) -> JointBelief:
        """Return the belief after these timings and all earlier ones, fitted from the prior.

        Gauss-Newton: u = u0 + G (y - eta(u) - H (u0 - u)) until it stands, halved while the
        objective rises; exact in one step where acceptance is known.
        """
        prior = self.before or self
        every = (*self.timings, *timings)
        if not every:
            return self
        values, noise = prior._observed(every)
        unknowns = prior.mean
        at = prior._fit(unknowns, every, values, noise)
        for _ in range(STEPS):
            wanted, _ = after_timings(
                mean=prior.mean,
                covariance=prior.covariance,
                jacobian=at.slopes,
                observed=values - at.expected + at.slopes @ unknowns,
                noise=noise,
            )
            step = wanted - unknowns
            while True:
                moved = prior._fit(unknowns + step, every, values, noise)
                if moved.objective <= at.objective or np.abs(step).max() < CLOSE:
                    break
                step = step / 2
            unknowns, at = unknowns + step, moved
            if np.abs(step).max() < CLOSE:
                break
        _, covariance = after_timings(
            mean=prior.mean,
            covariance=prior.covariance,
            jacobian=at.slopes,
            observed=values,
            noise=noise,
        )
        return replace(prior, mean=unknowns, covariance=covariance, timings=every, before=prior)

    @cached_property
    def _root(self) -> Array:
        return np.asarray(np.linalg.cholesky(self.covariance))

    def _fit(self, unknowns: Array, timings: Sequence[Timing], values: Array, noise: Array) -> _Fit:
        """Return how far unknowns are from the prior and from the timings, and the slopes there."""
        expected, slopes = self._expected(unknowns, timings)
        moved = np.linalg.solve(self._root, unknowns - self.mean)
        missed = (values - expected) / noise
        return _Fit(float(moved @ moved + missed @ missed) / 2, expected, slopes)

    def _observed(self, timings: Sequence[Timing]) -> tuple[Array, Array]:
        """Return the logs of what was timed, and their noise: speed first, then tokens.

        Where the run's passes were counted, its speed over its own AL is taken, which has the
        scatter of steps and not that of acceptance.
        """
        values, noise = list[float](), list[float]()
        for timing in timings:
            values.append(float(np.log(timing.speed / (timing.of_run or 1.0))))
            noise.append(max(timing.error or 0.0, SPEED_NOISE / float(np.sqrt(timing.repeats))))
            for length, tokens in timing.tokens.items():
                values.append(float(np.log(tokens)))
                printed = TOKENS_NOISE / float(np.sqrt(timing.repeats))
                noise.append(float(np.hypot(printed, self._sampling(length, timing.passes))))
        return np.array(values), np.array(noise)

    def _sampling(self, length: int, passes: float | None) -> float:
        """Return the standard error of AL counted over passes, a share; 0 where it is not said."""
        if passes is None:
            return 0.0
        tokens = np.exp(self._tokens[0][: length + 1])
        variance = rounds_covariance(np.diff(tokens))[-1, -1]
        return float(np.sqrt(max(variance, 0.0) / passes) / tokens[-1])

    def _expected(self, unknowns: Array, timings: Sequence[Timing]) -> tuple[Array, Array]:
        """Return what the timings would be at these unknowns, and the slopes."""
        times = self._times
        logs, slopes = log_tokens(unknowns[times:])
        expected, rows = list[float](), list[Array]()
        for timing in timings:
            at = timing.load * len(self.draft_lengths) + self.draft_lengths.index(
                timing.draft_length
            )
            row, tokens = np.zeros(len(unknowns)), 0.0
            if timing.of_run is None:
                row[times:] = slopes[timing.draft_length]
                tokens = float(logs[timing.draft_length])
            row[at] = -1.0
            expected.append(tokens - float(unknowns[at]))
            rows.append(row)
            for length in timing.tokens:
                expected.append(float(logs[length]))
                rows.append(np.concatenate([np.zeros(times), slopes[length]]))
        return np.array(expected), np.array(rows)

    def surprises(self, timing: Timing) -> list[Surprise]:
        """Return how far each value of a further timing lies from what is believed."""
        values, noise = self._observed([timing])
        expected, slopes = self._expected(self.mean, [timing])
        spread = np.sqrt(np.diag(slopes @ self.covariance @ slopes.T) + noise**2)
        what = ["speed", *("tokens" for _ in timing.tokens)]
        units = [timing.of_run or 1.0, *(1.0 for _ in timing.tokens)]
        return [
            Surprise(name, float((y - m) / s), unit * float(np.exp(m)), unit * float(np.exp(y)))
            for name, unit, y, m, s in zip(what, units, values, expected, spread, strict=True)
        ]

    def further(self, *, covariance: Array, crossed: Array) -> tuple[Array, Array]:
        """Return mean and covariance of further unknowns with prior mean 0, after the timings.

        ``covariance`` is theirs before any timing, ``crossed`` that with the belief's own, (theirs,
        own). With G = C H' (H K H' + N)^-1 they are G (y - eta + H (u - u0)) and S - G H C'.
        """
        if not self.timings or self.before is None:
            return np.zeros(len(covariance)), covariance
        prior = self.before
        values, noise = self._observed(self.timings)
        expected, slopes = self._expected(self.mean, self.timings)
        seen = slopes @ prior.covariance @ slopes.T + np.diag(noise**2)
        gain = np.linalg.solve(seen, slopes @ crossed.T).T
        missed = values - expected + slopes @ (self.mean - prior.mean)
        left = covariance - gain @ slopes @ crossed.T
        return gain @ missed, (left + left.T) / 2

    # What to promise, to time next, and when to stop.

    @cached_property
    def promises(self) -> tuple[Promise, ...]:
        """What the choice of each load is expected to lose."""
        return tuple(self.promise(load) for load in range(self.loads))

    def promise(self, load: int = 0) -> Promise:
        """Return what the choice of a load is expected to lose, from draws of all lengths.

        1 - exp(f_i* - max f) for f normal with the mean and covariance believed. Only differences
        to the choice are drawn: the level is free. The bound is on what a full sweep would show, so
        its draws have the noise of one timing of each length as well.
        """
        candidates, best = np.flatnonzero(self.allowed[load]), int(self.chosen[load])
        count = len(self.draft_lengths)
        at, reference = load * count + candidates, load * count + best
        mean = self.log_speed[load, candidates] - self.log_speed[load, best]
        between = np.eye(self._times)[at] - np.eye(self._times)[reference]
        covariance = between @ self._speed_covariance @ between.T
        values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        true, timed = _promise_draws(len(candidates))
        gains = mean + true @ root.T
        shown = gains + SPEED_NOISE * (timed - timed[:, candidates == best])
        regret, seen = (-np.expm1(-np.maximum(g.max(axis=1), 0.0)) for g in (gains, shown))
        return Promise(
            regret=float(regret.mean()),
            odds=float((regret <= NEAR).mean()),
            bound=float(np.quantile(seen, 0.9)),
        )

    @cached_property
    def worths(self) -> Array:
        """What a timing of each candidate is expected to gain, over all loads: (loads, lengths).

        The knowledge gradient: mean over what may come out of max_i [m_i - m_i* + (L_i - L_i*) Z].
        """
        count = len(self.draft_lengths)
        slopes, tokens = self._speed_slopes, self._tokens[1][list(self.draft_lengths)]
        speeds = self._speed_covariance  # of log speeds with those of a timing
        variance = np.diag(speeds)
        if self.holds:
            speeds = -(slopes @ self.covariance)[:, : self._times]
            variance = np.diag(self.covariance)[: self._times]
        acceptance = self.covariance[:, self._times :] @ tokens.T
        crossed = slopes @ acceptance  # of log speeds with log AL
        spread = np.diag(tokens @ acceptance[self._times :])  # of log AL
        reference = np.repeat(np.arange(self.loads) * count + self.chosen, count)
        seen = variance + SPEED_NOISE**2
        first = (speeds - speeds[reference]) / np.sqrt(seen)
        of_length = np.tile(np.arange(count), self.loads)
        joint = np.diag(crossed[:, of_length])
        left = spread[of_length] + TOKENS_NOISE**2 - joint**2 / seen
        beside = crossed[:, of_length] - speeds * (joint / seen)
        second = (beside - beside[reference]) / np.sqrt(np.maximum(left, 1e-12))
        second = second * (
            self.prints_tokens & (not self.holds) & (np.array(self.draft_lengths)[of_length] > 0)
        )
        ahead = np.where(self.allowed, self.log_speed, -np.inf)
        ahead = ahead - self.log_speed[np.arange(self.loads), self.chosen][:, None]
        z = _timing_draws()
        total = np.zeros(self._times)
        for load in range(self.loads):  # one block of lengths at a time fits the cache
            rows = slice(load * count, (load + 1) * count)
            keep = self.allowed[load]
            moves = np.stack([first[rows][keep], second[rows][keep]], axis=-1)
            gains = np.tensordot(moves, z, axes=(2, 0))  # (lengths, candidates, draws)
            gains += ahead[load][keep][:, None, None]
            total += np.maximum(gains.max(axis=0), 0.0).mean(axis=-1)
        return np.where(self.allowed, total.reshape(self.loads, count), 0.0)

    def next_timing(self, *, running: Candidate | None = None) -> Next:
        """Return what to time next: at first what runs already, or the choice itself.

        Where no timing tells anything, the choice if it was not timed, else the length with the
        largest expected improvement.
        """
        if not self.timings:
            first = running or Candidate(0, self.choices[0])
            return Next(first, self._worth(first))
        best, worth = self._largest(self.worths)
        if worth > INDIFFERENT:
            return Next(best, worth)
        for choice in map(Candidate, range(self.loads), self.choices):
            if not self.timed(choice):
                return Next(choice, self._worth(choice))
        improvements = np.array([self._improvements(load) for load in range(self.loads)])
        best, _ = self._largest(improvements)
        return Next(best, self._worth(best))

    def _largest(self, values: Array) -> tuple[Candidate, float]:
        """Return the candidate with the largest of values by load and length."""
        load, at = divmod(int(np.argmax(values)), len(self.draft_lengths))
        return Candidate(load, self.draft_lengths[at]), float(values[load, at])

    def _worth(self, candidate: Candidate) -> float:
        at = self.draft_lengths.index(candidate.draft_length)
        return float(self.worths[candidate.load, at])

    def _improvements(self, load: int) -> Array:
        """Return E[max(f_j - f_i*, 0)] of each length of a load; 0 for the choice."""
        from statistics import NormalDist

        count, best = len(self.draft_lengths), int(self.chosen[load])
        rows = slice(load * count, (load + 1) * count)
        block, gap = self._speed_covariance[rows, rows], self.log_speed[load]
        variance = np.diag(block) + block[best, best] - 2 * block[best]
        spread, normal = np.sqrt(np.maximum(variance, 1e-18)), NormalDist()
        return np.array(
            [
                s * normal.pdf((m - gap[best]) / s)
                + (m - gap[best]) * normal.cdf((m - gap[best]) / s)
                if ok and i != best
                else 0.0
                for i, (m, s, ok) in enumerate(zip(gap, spread, self.allowed[load], strict=True))
            ]
        )

    @property
    def enough(self) -> bool:
        """Whether no further timing is worth its while.

        The expected regret of every load is below 0.3 %, or after two timings no further one of any
        load is worth 0.2 %.
        """
        if not self.timings:
            return False
        if all(promise.regret < ENOUGH for promise in self.promises):
            return True
        return len(self.timings) >= 2 and float(self.worths.max()) < WORTH_TIMING


@cache
def _promise_draws(count: int) -> tuple[Array, Array]:
    """Return normal numbers of true speeds and of one timing of each, (draws, lengths)."""
    half = np.random.default_rng(20261201).standard_normal((2, PROMISED // 2, count))
    true, timed = half[0], half[1]
    return np.concatenate([true, -true]), np.concatenate([timed, -timed])


@cache
def _timing_draws() -> Array:
    """Return pairs of normal numbers and their mirror images, (2, draws)."""
    half = np.stack([normal_draws(stream) for stream in STREAMS])
    return np.concatenate([half, -half], axis=1)


def joint_prior(
    *,
    draft_lengths: Sequence[int],
    verify: Array,
    draft: Array,
    overhead: Array,
    logits: Array,
    logit_covariance: Array,
    allowed: NDArray[np.bool_] | None = None,
    prints_tokens: bool = True,
    deviations: Deviations = GROWTH,
) -> JointBelief:
    """Return the belief before any timing.

    Parts of the predicted step are (loads, lengths) in any unit of time; ``logits`` are those of
    conditional acceptance a_1 ... a_max(D), and their covariance is that of what is not known.
    """
    parts = [np.atleast_2d(np.asarray(part, dtype=float)) for part in (verify, draft, overhead)]
    total = np.sum(parts, axis=0)
    times = growth_covariance(
        draft_lengths=np.array(draft_lengths),
        verify=parts[0] / total,
        draft=parts[1] / total,
        overhead=parts[2] / total,
        deviations=deviations,
    )
    count, depth = len(times), len(logits)
    covariance = np.zeros((count + depth, count + depth))
    covariance[:count, :count] = times
    covariance[count:, count:] = logit_covariance
    return JointBelief(
        draft_lengths=tuple(draft_lengths),
        loads=len(total),
        mean=np.concatenate([np.log(total).ravel(), logits]),
        covariance=covariance,
        allowed=np.ones(total.shape, dtype=bool) if allowed is None else allowed,
        prints_tokens=prints_tokens,
    )
