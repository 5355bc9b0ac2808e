"""A whole run of measurements: rounds over the cases until the budget is spent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from roofline.base.progress import Advance
from roofline.calibrate.measure.backend import FAILURES, CaseError, Status
from roofline.calibrate.measure.cases import Case
from roofline.calibrate.measure.device import MeasuringDevice
from roofline.calibrate.measure.noise import summarise
from roofline.calibrate.measure.rows import Row, RowFile, row_of

__all__ = ["CampaignResult", "run_campaign"]

REPEATS = 9  # samples of one case in one round
SLICE = 0.06  # seconds after which a case has enough samples
ROUNDS = 9
LONG = 0.04  # share of the budget above which one case is left out
PROBE_EVERY = 0.5  # seconds between two timings of the reference kernel
ANCHOR_TIMES = 5  # times that bandwidth and peak are measured, spread over the budget
STATE_EVERY = 20  # rows between two readings of clocks and temperature


@dataclass(slots=True)
class CampaignResult:
    """What a campaign measured and left out."""

    measured: int = 0
    resumed: int = 0
    rounds: int = 0
    skipped: dict[str, str] = field(default_factory=dict)  # status of what failed, by case
    too_long: int = 0
    complete: bool = False  # the first round saw every case


def run_campaign(
    device: MeasuringDevice,
    cases: Sequence[Case],
    file: RowFile,
    *,
    budget: float,
    now: Callable[[], float] = time.monotonic,
    on_failure: Callable[[Row], None] = lambda _: None,
    advance: Advance = lambda _: None,
) -> CampaignResult:
    """Measure the cases for ``budget`` seconds, in rounds, so that a disturbance hits many once.

    A case that failed is reported and not tried again; what the file has is not measured again.
    ``advance`` is told the seconds that each case took.
    """
    result, begin = CampaignResult(), now()
    measured = {(row.round, row.key) for row in file.rows}
    result.resumed = len(measured)
    result.skipped = {row.key: row.status for row in file.rows if row.status in FAILURES}
    durations = _CaseDurations(file.rows)
    anchor_clock = _AnchorClock(begin, budget / ANCHOR_TIMES, now)
    probe, next_probe = 0.0, begin
    for number in range(1, ROUNDS + 1):
        for round_number, case in _cases_of_round(number, cases, measured, anchor_clock):
            if case.key in result.skipped:
                continue
            remaining = budget - (now() - begin)
            if remaining <= 0:
                return result
            if durations.guess(case) > min(LONG * budget, remaining):
                result.too_long += round_number == 1
                continue
            start = now()
            if start >= next_probe:
                probe, next_probe = _probe(device), start + PROBE_EVERY
            describe = result.measured % STATE_EVERY == 0
            row = _measure(device, case, round_number, probe=probe, describe=describe)
            file.add(row)
            measured.add((round_number, case.key))
            spent = now() - start
            durations.learn(case, row, spent)
            advance(spent)
            result.measured += 1
            if row.status in FAILURES:
                result.skipped[case.key] = row.status
                on_failure(row)
        result.rounds, result.complete = number, True
    return result


class _AnchorClock:
    """Whether bandwidth and peak are due to be measured again."""

    def __init__(self, begin: float, every: float, now: Callable[[], float]) -> None:
        self._next, self._every, self._now = begin + every, every, now

    def due(self) -> bool:
        """Return whether it is time, at most once each time."""
        if self._now() < self._next:
            return False
        self._next = self._now() + self._every
        return True


def _cases_of_round(
    number: int,
    cases: Sequence[Case],
    measured: set[tuple[int, str]],
    anchor_clock: _AnchorClock,
) -> Iterator[tuple[int, Case]]:
    """Yield the cases of a round that are not in the file, and the anchors again when due.

    A machine is seldom undisturbed for long, and its peak is the fastest timing; each further one
    of an anchor counts as a round of its own.
    """
    for case in cases:
        if (number, case.key) in measured:
            continue
        if anchor_clock.due():
            for anchor in cases:
                if anchor.anchors:
                    rounds = [known for known, key in measured if key == anchor.key]
                    yield 1 + max(rounds, default=0), anchor
        if (number, case.key) not in measured:  # it may have been an anchor just now
            yield number, case


def _probe(device: MeasuringDevice) -> float:
    try:
        return device.probe()
    except CaseError:
        return 0.0


def _measure(
    device: MeasuringDevice, case: Case, number: int, *, probe: float, describe: bool
) -> Row:
    try:
        samples = device.sample(case, repeats=REPEATS, seconds=SLICE)
        note = device.state() if describe else samples.note
    except CaseError as error:
        return row_of(case, round=number, status=error.status, note=error.reason)
    summary = summarise(samples.seconds)
    return row_of(
        case,
        round=number,
        seconds=summary.median,
        spread=summary.spread,
        samples=summary.kept,
        outliers=summary.outliers,
        clock=samples.clock,
        cold=samples.cold,
        error=samples.error,
        probe=probe,
        waited=samples.waited,
        status=Status.NOISY if summary.noisy else Status.OK,
        note=note,
    )


class _CaseDurations:
    """How long a case will take: as last time, else by the slowest FLOP of large products."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._known: dict[str, float] = {}
        self._seconds_per_flop = 0.0  # of a large product
        for row in rows:
            self._note(row)

    def _note(self, row: Row) -> None:
        if row.kind == "gemm" and row.rows >= 16 and row.seconds:
            self._seconds_per_flop = max(self._seconds_per_flop, row.seconds / row.flops)

    def learn(self, case: Case, row: Row, spent: float) -> None:
        """Remember what a case took in all [s]."""
        self._known[case.key] = spent
        self._note(row)

    def guess(self, case: Case) -> float:
        """Return the seconds that measuring a case will take, 0 where nothing is known."""
        return self._known.get(case.key, 5 * case.flops * self._seconds_per_flop)
