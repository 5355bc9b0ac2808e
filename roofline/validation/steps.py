"""Published runs compared with predictions by engine numbers that were fitted without them.

The fit for plain decoding leaves the accelerator out, that for speculation half of the groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.calibrate.engine.decode_numbers import leave_one_gpu_out
from roofline.calibrate.engine.decode_rows import load_decode_rows
from roofline.calibrate.engine.spec_numbers import PredictedSteps, predict_in_sample, predict_unseen
from roofline.calibrate.engine.spec_pricing import PricedRuns, price_runs
from roofline.calibrate.engine.spec_rows import SpecRow, is_dense, load_spec_rows
from roofline.validation.score import Compared

__all__ = [
    "POOLS",
    "PublishedRuns",
    "compare_decode",
    "compare_steps",
    "in_sample",
    "published_runs",
    "unscored_rows",
]

Array = NDArray[np.float64]
#: What pools of all groups are called.
POOLS = ("all dense", "all moe", "all dense but specbundle", "all moe but specbundle")


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedRuns:
    """The shipped rows, their priced kernels, and the steps predicted by the other fold's fit."""

    rows: tuple[SpecRow, ...]
    priced: PricedRuns
    predicted: PredictedSteps


@cache
def published_runs() -> PublishedRuns:
    """Price and predict every shipped row (some ten seconds)."""
    rows = load_spec_rows()
    priced = price_runs(rows)
    return PublishedRuns(rows=rows, priced=priced, predicted=predict_unseen(rows, priced))


@cache
def in_sample() -> PredictedSteps:
    """Predict every shipped row by the numbers that the engines' files hold."""
    published = published_runs()
    return predict_in_sample(published.rows, published.priced)


def compare_steps() -> Iterator[Compared]:
    """Yield step times and cost ratios, group by group and pooled."""
    published = published_runs()
    for group, members in _pools(published.rows).items():
        yield from _ratios(published, members, group)
        yield from _steps(published, members, group, drafting=False)
        yield from _steps(published, members, group, drafting=True)


def _pools(rows: Sequence[SpecRow]) -> dict[str, list[int]]:
    """Return the rows of each group, and of each pool."""
    pools: dict[str, list[int]] = {name: [] for name in POOLS}
    for i, row in enumerate(rows):
        kind = "dense" if is_dense(row) else "moe"
        pools[f"all {kind}"].append(i)
        if row.group != "specbundle":
            pools[f"all {kind} but specbundle"].append(i)
        pools.setdefault(row.group, []).append(i)
    return pools


def _ratios(published: PublishedRuns, members: Sequence[int], group: str) -> Iterator[Compared]:
    pick = [i for i in members if published.rows[i].scored and published.rows[i].ratio]
    if pick:
        yield _compared(
            published,
            pick,
            kind="cost-ratio",
            dtype="D > 0",
            group=group,
            predicted=published.predicted.ratio,
            measured=[published.rows[i].ratio or np.nan for i in pick],
            textbook=published.priced.textbook / published.priced.plain_textbook,
        )


def _steps(
    published: PublishedRuns, members: Sequence[int], group: str, *, drafting: bool
) -> Iterator[Compared]:
    """Yield step times; a plain step that several rows repeat counts once."""
    if drafting:
        pick = [i for i in members if _has_step(published.rows[i])]
        measured = [published.rows[i].step or np.nan for i in pick]
        predicted, textbook = published.predicted.step, published.priced.textbook
    else:
        pick = _plain_once(published.rows, members)
        measured = [published.rows[i].base or np.nan for i in pick]
        predicted, textbook = published.predicted.plain, published.priced.plain_textbook
    if pick:
        yield _compared(
            published,
            pick,
            kind="step",
            dtype="D > 0" if drafting else "D = 0",
            group=group,
            predicted=predicted,
            measured=measured,
            textbook=textbook,
        )


def _has_step(row: SpecRow) -> bool:
    return bool(row.scored and row.step and not row.total and row.draft_length)


def _plain_once(rows: Sequence[SpecRow], members: Sequence[int]) -> list[int]:
    once: dict[tuple[object, ...], int] = {}
    for i in members:
        row = rows[i]
        if row.timed and row.base and not row.total:
            key = (row.group, row.model, row.gpu, row.tp, row.batch, row.linears, row.context)
            once.setdefault((*key, round(row.base, 5)), i)
    return list(once.values())


def _compared(
    published: PublishedRuns,
    pick: Sequence[int],
    *,
    kind: str,
    dtype: str,
    group: str,
    predicted: Array,
    measured: Sequence[float],
    textbook: Array,
) -> Compared:
    rows = [published.rows[i] for i in pick]
    return Compared(
        suite="steps",
        kind=kind,
        gpu=_common({row.gpu for row in rows}),
        engine=_common({row.engine for row in rows}),
        dtype=dtype,
        name=group,
        predicted=predicted[list(pick)],
        measured=np.array(measured),
        textbook=textbook[list(pick)],
        group=group,
    )


def _common(names: set[str]) -> str:
    return names.pop() if len(names) == 1 else "several"


def unscored_rows() -> list[dict[str, Any]]:
    """Return the drafting rows that are not scored, with the reason."""
    published = published_runs()
    return [
        {
            "id": row.id,
            "group": row.group,
            "left_out": row.reason or f"trust {row.trust}",
            "measured_cost_ratio": row.ratio,
            "predicted_cost_ratio": float(published.predicted.ratio[i]),
        }
        for i, row in enumerate(published.rows)
        if not row.scored and row.draft_length
    ]


def compare_decode(*, gpus: Sequence[str], engines: Sequence[str]) -> Iterator[Compared]:
    """Yield predicted and measured time per output token, grouped by model and format."""
    rows = [row for row in load_decode_rows() if row.scored]
    if not any(row.gpu in gpus and row.engine in engines for row in rows):
        return
    predicted, textbook = leave_one_gpu_out(rows)
    groups: dict[tuple[str, ...], list[int]] = {}
    for index, row in enumerate(rows):
        if row.gpu in gpus and row.engine in engines:
            groups.setdefault((row.gpu, row.engine, row.model, row.format), []).append(index)
    for (gpu, engine, model, dtype), members in sorted(groups.items()):
        pick = np.array(members)
        yield Compared(
            suite="decode",
            kind="tpot-dense" if rows[members[0]].dense else "tpot-moe",
            gpu=gpu,
            engine=engine,
            dtype=dtype,
            name=f"{model} {dtype}",
            predicted=predicted[pick],
            measured=np.array([rows[i].tpot for i in members]),
            textbook=textbook[pick],
        )
