"""Runs that no number of this model was fitted on: speedups, choices, and losses called wins.

The numbers are those that the engines' files ship. Losses are counted over these runs and over all
published ones that have tokens per step of their own, which the other half's fit predicts.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.advice.decide import smallest_within_tie
from roofline.advice.deployment import Deployment
from roofline.base import resources
from roofline.calibrate.engine.spec_rows import (
    LeftOut,
    SpecRow,
    drafter_of,
    gpu_of,
    serving_of,
    target_of,
)
from roofline.questions.request.lengths import requests_of
from roofline.questions.request.pricing import price_requests
from roofline.specs.engine import load_engine
from roofline.specs.paths import overhead_on_path
from roofline.specs.placement import Grid, Routing
from roofline.specs.priors import priors
from roofline.validation.steps import published_runs

__all__ = [
    "HeldOutRow",
    "Outcome",
    "SignCounts",
    "count_signs",
    "held_out_scores",
    "load_held_out",
    "outcomes",
    "regrets",
]

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldOutRow:
    """One speculative run; ``prompt`` and ``output`` are 0 where the prompts are not inside."""

    run: SpecRow
    prompt: int
    output: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """One run's speedup, measured and predicted."""

    id: str
    group: str
    batch: int
    draft_length: int
    dataset: str
    model: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Return predicted / measured - 1."""
        return self.predicted / self.measured - 1

    def as_data(self) -> dict[str, Any]:
        """Return the run as JSON writes it."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class SignCounts:
    """How many losses are called wins, and wins losses."""

    losses: int
    called_wins: tuple[Outcome, ...]
    wins: int
    called_losses: tuple[Outcome, ...]


_DEFAULTS: dict[str, Any] = {
    "fold": 0,
    "trust": "B",
    "ep": 1,
    "experts": "",
    "head": "",
    "activations": "",
    "drafter_name": "",
    "drafter": "",
    "draft_weights": "",
    "verify_width": None,
    "topk": 1,
    "block": None,
    "curve": {},
    "base_speed": None,
    "speed": None,
    "base": None,
    "step": None,
    "total": False,
    "left_out": None,
    "reason": "",
}


#: Numbers of an engine that a group's own source tells: the group is scored without them.
FROM_ITS_SOURCE = {"a100-prefill": {"per_spec_sequence": 0.0}}


@cache
def load_held_out() -> tuple[HeldOutRow, ...]:
    """Return the shipped rows."""
    text = resources.data_file("validation").joinpath("held_out.csv").read_text("utf-8")
    return tuple(_row(line) for line in csv.DictReader(text.splitlines()))


def _row(line: dict[str, str]) -> HeldOutRow:
    prompt, output = (int(line.pop(name) or 0) for name in ("prompt", "output"))
    integers = ("tp", "batch", "context", "draft_length")
    numbers: dict[str, Any] = {name: int(line.pop(name)) for name in integers}
    numbers |= {name: float(line.pop(name)) for name in ("tokens_per_step", "speedup")}
    return HeldOutRow(run=SpecRow(**(_DEFAULTS | line | numbers)), prompt=prompt, output=output)


def _speedup(row: HeldOutRow) -> float:
    """Return the predicted speedup of a run: of whole requests where prompts are inside."""
    run, routing = row.run, priors().routing
    target = target_of(run, Routing(skew=routing.skew, correlation=routing.correlation))
    engine, drafter = load_engine(run.engine), drafter_of(run, target)
    overhead = overhead_on_path(
        engine.overhead.model_copy(update=FROM_ITS_SOURCE.get(run.group, {})),
        target.model,
        drafter.network,
        serving_of(run, target.precision.kv),
    )
    deployment = Deployment(
        gpu=gpu_of(run.gpu),
        target=target,
        drafter=drafter,
        engine=engine.model_copy(update={"overhead": overhead}),
    )
    lengths, tokens = (0, run.draft_length), np.array([1.0, run.tokens_per_step or np.nan])
    if row.prompt:
        requests = requests_of((row.prompt,), (row.output,), (0,))
        priced = price_requests(
            deployment, requests, batches=(run.batch,), draft_lengths=lengths, front_end=0.0
        )
        time = priced.seconds(tokens).e2e[0, :, 0]
    else:
        grid = Grid.of((run.batch,), (run.context,), lengths)
        time = np.asarray(deployment.price(grid).times.total[0, 0]) / tokens
    return float(time[0] / time[1])


@cache
def outcomes() -> tuple[Outcome, ...]:
    """Return every held-out run, predicted by the shipped numbers."""
    return tuple(_outcome(row.run, _speedup(row)) for row in load_held_out())


def _outcome(run: SpecRow, predicted: float) -> Outcome:
    return Outcome(
        id=run.id,
        group=run.group,
        batch=run.batch,
        draft_length=run.draft_length,
        dataset=run.dataset,
        model=run.model,
        measured=run.speedup or np.nan,
        predicted=predicted,
    )


def held_out_scores(runs: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Return the errors of the speedup by group, and of each group by batch."""
    pools: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        pools.setdefault((run.group, "all"), []).append(run.error)
    for run in runs:
        pools.setdefault((run.group, str(run.batch)), []).append(run.error)
    return [
        {
            "suite": "held-out",
            "kind": "speedup",
            "group": group,
            "batch": batch,
            "n": len(errors),
            "median_abs_error": float(np.median(np.abs(errors))),
            "p90_abs_error": float(np.quantile(np.abs(errors), 0.9)),
            "bias": float(np.median(errors)),
        }
        for (group, batch), errors in sorted(pools.items(), key=lambda item: _order(*item[0]))
    ]


def _order(group: str, batch: str) -> tuple[str, int]:
    return group, 0 if batch == "all" else int(batch)


def regrets(runs: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Return mean and worst regret of each group's sweeps of two or more draft lengths, D = 0 too.

    Regret is 1 - speedup at the chosen D / speedup at the measured best.
    """
    sweeps: dict[tuple[object, ...], list[Outcome]] = {}
    for run in runs:
        sweeps.setdefault((run.group, run.model, run.batch, run.dataset), []).append(run)
    found: dict[str, list[float]] = {}
    for (group, *_), members in sweeps.items():
        lengths = sorted(members, key=lambda run: run.draft_length)
        if len({run.draft_length for run in lengths}) < len(lengths) or len(lengths) < 2:
            continue
        measured = np.array([1.0, *(run.measured for run in lengths)])
        at = int(smallest_within_tie(np.array([1.0, *(run.predicted for run in lengths)]))[0])
        found.setdefault(str(group), []).append(float(1 - measured[at] / measured.max()))
    return [
        {
            "suite": "held-out",
            "kind": "regret",
            "group": group,
            "n": len(values),
            "mean_regret": float(np.mean(values)),
            "worst_regret": float(np.max(values)),
        }
        for group, values in found.items()
    ]


def count_signs() -> SignCounts:
    """Count losses called wins, and wins called losses, in all runs with an AL of their own."""
    published = published_runs()
    runs = [
        _outcome(row, float(row.tokens_per_step / published.predicted.ratio[i]))
        for i, row in enumerate(published.rows)
        if row.tokens_per_step and row.speedup and row.draft_length and _own(row)
    ]
    runs += outcomes()
    losses = [run for run in runs if run.measured < 1]
    wins = [run for run in runs if run.measured > 1]
    return SignCounts(
        losses=len(losses),
        called_wins=tuple(run for run in losses if run.predicted > 1),
        wins=len(wins),
        called_losses=tuple(run for run in wins if run.predicted < 1),
    )


def _own(row: SpecRow) -> bool:
    """Return whether speedup and tokens per step are the run's own, against plain decoding.

    Runs whose authors doubt the tokens per step, or whose drafter stops early, lost all the same.
    """
    kept = (LeftOut.TOKENS_DOUBTED, LeftOut.DRAFTS_MISSING)
    return row.trust in ("A", "B") and (not row.left_out or row.left_out in kept)
