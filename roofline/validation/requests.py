"""Whole requests as published runs timed them: time to first token, per later token, and gain.

The runs are closed loops of clients from their start: all prompts come at once, and the next ones
whenever answers end. So a run is replayed pass by pass (`replay`), each pass priced as the answers
are; what is read off is what the client reported. No fit reads the rows.
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofline.advice.configuration import Configuration
from roofline.advice.deployment import Deployment, deploy
from roofline.base import resources
from roofline.specs.formats import DType
from roofline.specs.placement import Chunks
from roofline.specs.priors import priors

__all__ = [
    "FITTED_TOKENS_PER_STEP",
    "SATURATED",
    "Outcome",
    "PassTimes",
    "ReplayedRun",
    "RequestRow",
    "TimedRequest",
    "load_request_rows",
    "outcomes",
    "pass_times",
    "replay",
    "request_scores",
]

Array = NDArray[np.float64]
#: Tokens per step of a group whose source prints none: fitted on this very group, at its TPOT.
FITTED_TOKENS_PER_STEP = {"glm-5-tp8": 1.05}
#: Share of the time of a replayed run in which prompts wait, above which it counts as saturated.
SATURATED = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestRow:
    """One published run. Times in s; None where it was not run, or not drafted."""

    id: str
    group: str
    gpu: str
    tp: int
    ep: int
    model: str
    weights: str
    kv: str
    engine: str
    clients: int
    count: int
    prompt: int
    output: int
    chunk: int
    drafter: str
    draft_length: int
    tokens_per_step: float | None
    statistic: str
    plain_ttft: float | None
    ttft: float | None
    plain_tpot: float | None
    tpot: float | None


@cache
def load_request_rows() -> tuple[RequestRow, ...]:
    """Return the shipped rows."""
    text = resources.data_file("validation").joinpath("requests.csv").read_text("utf-8")
    return tuple(_row(line) for line in csv.DictReader(text.splitlines()))


def _row(line: dict[str, str]) -> RequestRow:
    kept = ("id", "group", "gpu", "model", "weights", "kv", "engine", "drafter", "statistic")
    whole = ("tp", "ep", "clients", "count", "prompt", "output", "chunk", "draft_length")
    times = ("plain_ttft", "ttft", "plain_tpot", "tpot")
    numbers: dict[str, Any] = {name: int(line[name]) for name in whole}
    numbers |= {
        name: float(line[f"{name}_ms"]) / 1e3 if line[f"{name}_ms"] else None for name in times
    }
    tokens = line["tokens_per_step"]
    words: dict[str, Any] = {name: line[name] for name in kept}
    return RequestRow(**words, **numbers, tokens_per_step=float(tokens) if tokens else None)


# ---- the price of a pass


@dataclass(frozen=True, kw_only=True, slots=True)
class PassTimes:
    """Seconds of a pass by sequences that decode, prompt tokens, and what is before them."""

    decoding: Array
    tokens: Array
    before: Array
    seconds: Array  # (decoding, tokens, before)

    def at(self, decoding: int, tokens: float, before: float) -> float:
        """Return the time of one pass, linear between priced ones [s]."""
        i, u = _between(self.decoding, max(decoding, 1))
        j, v = _between(self.tokens, tokens)
        k, w = _between(self.before, before)
        cube = self.seconds[i : i + 2, j : j + 2, k : k + 2]
        by_tokens = cube[0] * (1 - u) + cube[-1] * u
        by_before = by_tokens[0] * (1 - v) + by_tokens[-1] * v
        return float(by_before[0] * (1 - w) + by_before[-1] * w)


def _between(known: Array, value: float) -> tuple[int, float]:
    if len(known) == 1:
        return 0, 0.0
    at = min(int(np.searchsorted(known, value, side="right")) - 1, len(known) - 2)
    low, high = known[at], known[at + 1]
    return at, min(max((value - low) / (high - low), 0.0), 1.0)


def pass_times(
    deployment: Deployment, row: RequestRow, draft_length: int, *, slots: int
) -> PassTimes:
    """Price the passes that a run may have."""
    batches = tuple(sorted({2**i for i in range(slots.bit_length()) if 2**i <= slots} | {slots}))
    shares = np.array([0.0, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1.0])
    tokens = np.unique(np.round(shares * min(row.chunk, row.prompt * row.clients)))
    rest = max(row.prompt - row.chunk, 0)
    before = np.linspace(0.0, rest, 3) if rest else np.zeros(1)
    shape = (1, len(tokens) * len(before), 1)
    each = np.repeat(tokens, len(before)).reshape(shape)
    number = np.where(each > 0, np.maximum(each / row.prompt, 1.0), 0.0)
    chunks = Chunks(
        number=number,
        tokens=np.maximum(each / np.maximum(number, 1.0), 1.0),
        before=np.tile(before, len(tokens)).reshape(shape),
    )
    grid = deployment.grid(
        batches,
        (row.prompt + row.output // 2,),
        (draft_length,) if draft_length == 0 else (0, draft_length),
        prefill_tokens=each,
        prefill_fullest=each,
        chunks=chunks,
    )
    total = deployment.price(grid).times.total[..., -1]
    return PassTimes(
        decoding=np.array(batches, dtype=np.float64),
        tokens=tokens,
        before=before,
        seconds=total.reshape(len(batches), len(tokens), len(before)),
    )


# ---- the run


@dataclass(slots=True)
class TimedRequest:
    """A request of a replayed run: what is left of it, and when it came, began and ended [s]."""

    arrived: float
    prompt: float
    output: float
    first: float = np.nan
    ended: float = np.nan
    unread: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayedRun:
    """What a client would report."""

    ttft: Array
    tpot: Array
    seconds: float
    reading: float  # share of the time in passes with prompts


def replay(
    *,
    passes: PassTimes,
    clients: int,
    count: int,
    prompt: int,
    output: int,
    chunk: int,
    rows: int,
    tokens_per_step: float,
    slots: int,
    seed: int = 1,
) -> ReplayedRun:
    """Replay a closed loop from its start, pass by pass.

    A pass decodes every sequence whose prompt is read, with ``rows`` 1 + D each, and fills what is
    left of ``chunk`` with prompts, first come first served; at most ``slots`` sequences are let in.
    A client sends its next request when an answer ends: too late for the pass that begins then. A
    draft is accepted with one chance at every position, that of ``tokens_per_step``.
    """
    rng = np.random.default_rng(seed)
    accept = _chance(tokens_per_step, rows - 1)
    sent, now = min(clients, count), 0.0
    waiting = deque(TimedRequest(0.0, prompt, output, unread=prompt) for _ in range(sent))
    reading: list[TimedRequest] = []
    decoding: list[TimedRequest] = []
    done: list[TimedRequest] = []
    late: list[TimedRequest] = []
    with_prompt = 0.0
    while waiting or reading or decoding or late:
        if not (waiting or reading or decoding):
            waiting.extend(late)
            late = []
        budget = max(chunk - rows * len(decoding), 1)
        while waiting and len(reading) + len(decoding) < slots:
            reading.append(waiting.popleft())
        arriving, late = late, []
        read, before, finished = 0.0, 0.0, list[TimedRequest]()
        for request in reading:
            part = min(request.unread, budget - read)
            if part <= 0:
                break
            before += part * (request.prompt - request.unread)
            request.unread -= part
            read += part
            if request.unread <= 0:
                finished.append(request)
        time = passes.at(len(decoding) + len(finished), read, before / read if read else 0.0)
        now += time
        with_prompt += time * (read > 0)
        for request in decoding:
            request.output -= 1 + _accepted(rng, accept, rows - 1)
        ended = [request for request in decoding if request.output <= 0]
        decoding = [request for request in decoding if request.output > 0]
        for request in finished:
            request.first, request.output = now, request.output - 1
            reading.remove(request)
            (decoding if request.output > 0 else ended).append(request)
        waiting.extend(arriving)
        for request in ended:
            request.ended = now
            done.append(request)
            if sent < count:
                late.append(TimedRequest(now, prompt, output, unread=prompt))
                sent += 1
    later = max(output - 1, 1)
    return ReplayedRun(
        ttft=np.array([request.first - request.arrived for request in done]),
        tpot=np.array([(request.ended - request.first) / later for request in done]),
        seconds=now,
        reading=with_prompt / now,
    )


def _accepted(rng: np.random.Generator, chance: float, drafts: int) -> int:
    accepted = 0
    while accepted < drafts and rng.random() < chance:
        accepted += 1
    return accepted


def _chance(tokens_per_step: float, drafts: int) -> float:
    """Return the a of 1 + a + ... + a^D = AL."""
    if drafts == 0:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if sum(middle**i for i in range(drafts + 1)) < tokens_per_step:
            low = middle
        else:
            high = middle
    return low


# ---- scores


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """One number of one run, measured and predicted."""

    id: str
    group: str
    clients: int
    prompt: int
    what: str  # ttft, tpot, gain
    draft_length: int
    measured: float
    predicted: float
    saturated: bool

    def as_data(self) -> dict[str, Any]:
        """Return the number as JSON writes it."""
        return asdict(self)

    @property
    def error(self) -> float:
        """Return predicted / measured - 1."""
        return self.predicted / self.measured - 1


class _Asked(NamedTuple):
    """What the deployment of a run is made of."""

    model: str
    gpu: str
    tp: int
    ep: int
    engine: str
    weights: str
    kv: str
    drafter: str


@cache
def _deployed(asked: _Asked) -> Deployment:
    configuration = Configuration(
        model=asked.model,
        gpu=asked.gpu,
        tp=asked.tp,
        ep=asked.ep,
        engine=asked.engine,
        weights=DType(asked.weights) if asked.weights else None,
        kv=DType(asked.kv) if asked.kv else None,
        drafter=asked.drafter or "none",
    )
    return deploy(configuration)[0]


@cache
def outcomes() -> tuple[Outcome, ...]:
    """Return every number of every run (some twenty seconds)."""
    return tuple(each for row in load_request_rows() for each in _of_row(row))


def _of_row(row: RequestRow) -> list[Outcome]:
    deployment = _deployed(_Asked(**{name: getattr(row, name) for name in _Asked._fields}))
    found = []
    for length, ttft, tpot in (
        (0, row.plain_ttft, row.plain_tpot),
        (row.draft_length, row.ttft, row.tpot),
    ):
        if ttft is None or tpot is None:
            continue
        run = _replayed(deployment, row, length)
        average = np.median if row.statistic == "median" else np.mean
        first = run.ttft + priors().front_end.first_token
        for what, measured, values in (("ttft", ttft, first), ("tpot", tpot, run.tpot)):
            found.append(
                Outcome(
                    id=row.id,
                    group=row.group,
                    clients=row.clients,
                    prompt=row.prompt,
                    what=what,
                    draft_length=length,
                    measured=measured,
                    predicted=float(average(values)),
                    saturated=run.reading > SATURATED and row.clients > 1,
                )
            )
    return found


def _replayed(deployment: Deployment, row: RequestRow, draft_length: int) -> ReplayedRun:
    tokens = row.tokens_per_step or FITTED_TOKENS_PER_STEP.get(row.group, 1.0)
    most = deployment.memory.largest_batch(
        context=row.prompt + row.output, draft_length=draft_length
    )
    slots = min(row.clients, most)
    return replay(
        passes=pass_times(deployment, row, draft_length, slots=slots),
        clients=row.clients,
        count=row.count,
        prompt=row.prompt,
        output=row.output,
        chunk=row.chunk,
        rows=1 + draft_length,
        tokens_per_step=tokens if draft_length else 1.0,
        slots=slots,
    )


def request_scores(runs: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Return the errors by group and number; of TTFT also below saturation."""
    pools: dict[tuple[str, str, str], list[float]] = {}
    for run in runs:
        drafted = "D > 0" if run.draft_length else "D = 0"
        pools.setdefault((run.group, run.what, "all"), []).append(run.error)
        pools.setdefault((run.group, run.what, drafted), []).append(run.error)
        part = run.group.split("-")[0]
        if part == "a100":
            pools.setdefault((f"all {part}", run.what, "all"), []).append(run.error)
        if run.what == "ttft" and not run.saturated:
            pools.setdefault((run.group, run.what, "below saturation"), []).append(run.error)
    return [
        {
            "suite": "requests",
            "group": group,
            "kind": what,
            "rows": rows,
            "n": len(errors),
            "median_abs_error": float(np.median(np.abs(errors))),
            "p90_abs_error": float(np.quantile(np.abs(errors), 0.9)),
            "bias": float(np.median(errors)),
        }
        for (group, what, rows), errors in sorted(pools.items())
    ]
