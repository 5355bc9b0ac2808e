"""A whole run of measurements: rounds over the cases until the budget is spent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from roofline.calibrate.measure.backend import CaseError
from roofline.calibrate.measure.cases import Case
from roofline.calibrate.measure.device import Device
from roofline.calibrate.measure.noise import summarise
from roofline.calibrate.measure.rows import Row, RowFile, row_of

__all__ = ["CampaignEnd", "run"]

REPEATS = 9  # samples of one case in one round
SLICE = 0.06  # seconds after which a case has enough samples
ROUNDS = 9
LONG = 0.04  # share of the budget above which one case is left out
PROBE_EVERY = 0.5  # seconds between two looks at the reference kernel
ANCHOR_LOOKS = 5  # times that bandwidth and peak are looked at, spread over the budget
STATE_EVERY = 20  # rows between two looks at clocks and temperature
GONE = ("unsupported", "wrong", "oom", "hung", "crashed")  # not tried again in later rounds
Tell = Callable[[Row], None]


@dataclass(slots=True)
class CampaignEnd:
    """What a campaign did."""

    measured: int = 0
    resumed: int = 0
    rounds: int = 0
    skipped: dict[str, str] = field(default_factory=dict)  # case: why
    too_long: int = 0
    complete: bool = False  # the first round saw every case


def run(
    device: Device,
    cases: Sequence[Case],
    file: RowFile,
    *,
    budget: float,
    now: Callable[[], float] = time.monotonic,
    tell: Tell = lambda _: None,
) -> CampaignEnd:
    """Measure the cases in rounds, so that a disturbance meets many once, for ``budget`` seconds.

    What failed is named and not tried again; what the file has is not measured again.
    """
    ended, begin = CampaignEnd(), now()
    have = {(row.round, row.key) for row in file.rows}
    ended.resumed = len(have)
    ended.skipped = {row.key: row.status for row in file.rows if row.status in GONE}
    speed, looks = _Speed(file.rows), _AnchorClock(begin, budget / ANCHOR_LOOKS, now)
    probe, probing = 0.0, begin
    for number in range(1, ROUNDS + 1):
        for turn, case in _cases_of_round(number, cases, have, looks):
            if case.key in ended.skipped:
                continue
            left = budget - (now() - begin)
            if left <= 0:
                return ended
            if speed.guess(case) > min(LONG * budget, left):
                ended.too_long += turn == 1
                continue
            start = now()
            if start >= probing:
                probe, probing = _probe(device), start + PROBE_EVERY
            look = ended.measured % STATE_EVERY == 0
            row = _measure(device, case, turn, probe=probe, describe=look)
            file.add(row)
            have.add((turn, case.key))
            speed.learn(case, row, now() - start)
            ended.measured += 1
            if row.status in GONE:
                ended.skipped[case.key] = row.status
                tell(row)
        ended.rounds, ended.complete = number, True
    return ended


class _AnchorClock:
    """Whether bandwidth and peak are due to be looked at again."""

    def __init__(self, begin: float, every: float, now: Callable[[], float]) -> None:
        self._next, self._every, self._now = begin + every, every, now

    def due(self) -> bool:
        """Return whether it is time, at most once each time."""
        if self._now() < self._next:
            return False
        self._next = self._now() + self._every
        return True


def _cases_of_round(
    number: int, cases: Sequence[Case], have: set[tuple[int, str]], looks: _AnchorClock
) -> Iterator[tuple[int, Case]]:
    """Yield the cases of a round that the file has not, and the anchors again when they are due.

    A machine is seldom undisturbed for long, and its peak is the fastest look; each further look
    counts as a round of its own.
    """
    for case in cases:
        if (number, case.key) in have:
            continue
        if looks.due():
            for anchor in cases:
                if anchor.anchors:
                    rounds = [turn for turn, key in have if key == anchor.key]
                    yield 1 + max(rounds, default=0), anchor
        if (number, case.key) not in have:  # it may have been looked at just now
            yield number, case


def _probe(device: Device) -> float:
    try:
        return device.probe()
    except CaseError:
        return 0.0


def _measure(device: Device, case: Case, number: int, *, probe: float, describe: bool) -> Row:
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
        status="noisy" if summary.noisy else "ok",
        note=note,
    )


class _Speed:
    """How long a case will take: as last time, else by the slowest FLOP seen of its kind."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._known: dict[str, float] = {}
        self._rate = 0.0  # s per FLOP of a large product
        for row in rows:
            self._note(row)

    def _note(self, row: Row) -> None:
        if row.kind == "gemm" and row.rows >= 16 and row.seconds:
            self._rate = (
                max(self._rate, row.seconds / row.flops)
                if self._rate
                else (row.seconds / row.flops)
            )

    def learn(self, case: Case, row: Row, spent: float) -> None:
        """Remember what a case took in all [s]."""
        self._known[case.key] = spent
        self._note(row)

    def guess(self, case: Case) -> float:
        """Return the seconds that measuring a case will take, 0 where nothing is known."""
        return self._known.get(case.key, 5 * case.flops * self._rate)
