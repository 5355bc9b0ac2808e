"""``tune``: from timings to the draft length to run, what to time next, and when to stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from roofline.advice.belief import (
    Candidate,
    JointBelief,
    Next,
    Promise,
    Timing,
)
from roofline.advice.belief_prior import prior_of
from roofline.advice.deployment import PricedGrid
from roofline.advice.question import Question
from roofline.advice.recommend import require_fit
from roofline.base.errors import InputError
from roofline.base.units import listed
from roofline.engines.bench_commands import BenchCommands, bench_commands
from roofline.engines.writing import DraftWeights, Launch
from roofline.questions.tune.file import Timed
from roofline.questions.tune.results import check_timed

__all__ = ["FAR", "Doubt", "Tuned", "Verdict", "check", "doubts", "tune"]

Array = NDArray[np.float64]
#: Standard deviations from which on a result is questioned.
DOUBTED = 4.0
#: How many times faster or slower than predicted a first speed may be, in either usual unit.
FAR = 6.0


class Verdict(StrEnum):
    """What to do now."""

    START = "start"  # nothing was timed
    TIME = "time"  # a further timing is worth its while
    DEPLOY = "deploy"


@dataclass(frozen=True, kw_only=True, slots=True)
class Doubt:
    """A value of a result that lies far from what was believed."""

    draft_length: int
    batch: int
    what: str  # speed, tokens or level
    expected: float
    got: float
    deviations: float | None  # None where the unit is in doubt


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What is believed after the timings of a file."""

    question: Question
    priced: PricedGrid
    belief: JointBelief
    timings: tuple[Timed, ...]
    running: int | None = None  # the draft length that runs already
    held: bool = False  # whether the engine is made to accept what is expected

    @property
    def batches(self) -> tuple[int, ...]:
        """The batches that are tuned."""
        return self.question.workload.batches

    @property
    def verdict(self) -> Verdict:
        """What to do now."""
        if not self.timings:
            return Verdict.START
        return Verdict.DEPLOY if self.belief.enough else Verdict.TIME

    @property
    def promises(self) -> tuple[Promise, ...]:
        """What the choice of each batch is expected to lose."""
        return self.belief.promises

    @cached_property
    def next_timing(self) -> Next:
        """What to time next."""
        first = None if self.running is None else Candidate(0, self.running)
        return self.belief.next_timing(running=first)

    @property
    def next_batch(self) -> int:
        """The batch of the next timing."""
        return self.batches[self.next_timing.candidate.load]

    @property
    def held_tokens(self) -> float | None:
        """The tokens per step that the next timing holds; None where drafts are judged."""
        length, hold = self.next_timing.candidate.draft_length, self._launch.engine.hold_acceptance
        if not self.held or hold is None or not length:
            return None
        tokens = float(self.belief.tokens_per_step[self.belief.draft_lengths.index(length)])
        version = self._launch.engine.runs_version
        return hold.held(round(tokens, 2), kind=self._launch.drafter_kind, version=version)

    @property
    def _launch(self) -> Launch:
        return self.question.deployment.launch

    @cached_property
    def commands(self) -> BenchCommands | None:
        """How to time what is next with the engine's own tools; None where it has none for it."""
        length, deployment = self.next_timing.candidate.draft_length, self.question.deployment
        model, load = deployment.target.model, self.next_timing.candidate.load
        tokens = self.belief.tokens_per_step[: 1 + self.belief.draft_lengths.index(length)]
        own = deployment.configuration.model if deployment.configuration else ""
        runs = sum((t.draft_length, t.batch) == (length, self.batches[load]) for t in self.timings)
        target = DraftWeights(
            name=model.id or "MODEL",
            repository=model.repository,
            file=own if Path(own).is_file() else None,
        )
        try:
            found = bench_commands(
                deployment.launch,
                model=target.path,
                file=target.gguf,
                draft_length=length,
                batch=self.batches[load],
                context=self.question.workload.contexts[0],
                survival=np.diff(tokens).tolist(),
                held=self.held_tokens,
                temperature=self.question.workload.temperature or 0.0,
                name=f"{deployment.engine.id}-{runs + 1}" if runs else "",  # tools append results
            )
        except InputError:
            return None
        return found[0]

    def measured(self, load: int) -> dict[int, float]:
        """Return tokens per second by draft length that were timed at a batch, repeats averaged."""
        found: dict[int, list[Timed]] = {}
        for timed in self.timings:
            if timed.batch == self.batches[load]:
                found.setdefault(timed.draft_length, []).append(timed)
        return {
            length: sum(t.tokens_per_s * t.repeats for t in each) / sum(t.repeats for t in each)
            for length, each in found.items()
        }

    def relative_speed(self, load: int) -> Array:
        """Return the believed speed of each draft length over that of the choice."""
        speed = self.belief.log_speed[load]
        return np.asarray(np.exp(speed - speed[self.belief.chosen[load]]))


def tune(
    question: Question,
    timings: Sequence[Timed],
    *,
    running: int | None = None,
    held: bool = False,
) -> Tuned:
    """Return what is believed after timings; one of what is not asked about is refused.

    ``running`` is the draft length that runs already: it is timed first. With ``held`` the engine
    is made to accept what is expected: timings tell of step times, without a data set.
    """
    launch = question.deployment.launch
    if held and launch.flags_to_time(1, 2.0, running=1) is None:
        raise InputError(
            f"{launch.engine.name} cannot be made to accept a number of tokens per step; leave it "
            "out",
            field="hold_acceptance",
        )
    if running is not None and running not in question.draft_lengths:
        known = listed([str(d) for d in question.draft_lengths], "or")
        raise InputError(f"expected {known}", field="running", value=running)
    if len(question.draft_lengths) < 2:
        raise InputError("there is nothing to tune: no draft length but 0 can be run")
    priced = require_fit(question.price())
    batches = question.workload.batches
    for batch, fits in zip(batches, priced.fits[:, 0], strict=True):
        if not fits.any():
            raise InputError("does not fit; leave it out", field="batch", value=batch)
    for number, timed in enumerate(timings, 1):
        _check(question, timed, f"timing {number}")
    belief = replace(prior_of(question, priced, prints_tokens=_prints(timings)), holds=held)
    return Tuned(
        question=question,
        priced=priced,
        belief=belief.after([_timing(timed, batches) for timed in timings]),
        timings=tuple(timings),
        running=running,
        held=held,
    )


def check(tuned: Tuned, timed: Timed) -> None:
    """Refuse a result of what the question does not ask about, or that contradicts itself."""
    _check(tuned.question, timed, timed.source)


def _check(question: Question, timed: Timed, where: str) -> None:
    check_timed(
        timed,
        draft_lengths=question.draft_lengths,
        batches=question.workload.batches,
        where=where,
    )


def _prints(timings: Sequence[Timed]) -> bool:
    """Return whether a further timing comes with tokens per step, as those so far did."""
    drafting = [timed for timed in timings if timed.draft_length and timed.held is None]
    return not drafting or any(timed.tokens for timed in drafting)


def _timing(timed: Timed, batches: Sequence[int]) -> Timing:
    return Timing(
        load=batches.index(timed.batch),
        draft_length=timed.draft_length,
        speed=timed.tokens_per_s,
        tokens=timed.tokens,
        repeats=timed.repeats,
        error=timed.spread,
        held=timed.held,
        passes=timed.passes,
    )


def doubts(tuned: Tuned, timed: Timed) -> list[Doubt]:
    """Return what of a further result contradicts what is believed by more than its spread.

    Before a batch was timed its speeds may have any unit, so a first one is doubted only where it
    is far from the predicted tokens per second of all users and of one.
    """
    load = tuned.batches.index(timed.batch)
    found = [
        Doubt(
            draft_length=timed.draft_length,
            batch=timed.batch,
            what=surprise.what,
            expected=surprise.expected,
            got=surprise.got,
            deviations=abs(surprise.deviations),
        )
        for surprise in tuned.belief.surprises(_timing(timed, tuned.batches))
        if abs(surprise.deviations) > DOUBTED
    ]
    if not tuned.measured(load):
        prior = tuned.belief.before or tuned.belief
        at = prior.draft_lengths.index(timed.draft_length)
        of_one = float(np.exp(prior.log_speed[load, at]))
        ratios = [timed.tokens_per_s / (of_one * users) for users in (1, timed.batch)]
        if all(abs(np.log(ratio)) > np.log(FAR) for ratio in ratios):
            found.append(
                Doubt(
                    draft_length=timed.draft_length,
                    batch=timed.batch,
                    what="level",
                    expected=of_one * timed.batch,
                    got=timed.tokens_per_s,
                    deviations=None,
                )
            )
    return found
