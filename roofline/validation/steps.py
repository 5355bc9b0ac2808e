"""Published runs against predictions whose engine numbers never saw them.

Plain decoding leaves the accelerator out of the fit, speculation half of the groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.calibrate.engine.decode_numbers import leave_one_gpu_out
from roofline.calibrate.engine.decode_rows import DecodeRow, load_rows
from roofline.calibrate.engine.spec_numbers import Predicted, in_sample_steps, two_folds
from roofline.calibrate.engine.spec_pricing import Priced, price
from roofline.calibrate.engine.spec_rows import SpecRow, is_dense, load_spec_rows
from roofline.validation.score import Compared

__all__ = ["POOLS", "Runs", "compare_decode", "compare_steps", "in_sample", "runs", "shown"]

Array = NDArray[np.float64]
#: What pools of all groups are called.
POOLS = ("all dense", "all moe", "all dense but specbundle", "all moe but specbundle")


@dataclass(frozen=True, kw_only=True, slots=True)
class Runs:
    """The shipped rows with their kernels priced, and predicted by the fold that missed them."""

    rows: tuple[SpecRow, ...]
    priced: Priced
    predicted: Predicted


@cache
def runs() -> Runs:
    """Price and predict every shipped row (some ten seconds)."""
    rows = load_spec_rows()
    priced = price(rows)
    return Runs(rows=rows, priced=priced, predicted=two_folds(rows, priced))


@cache
def in_sample() -> Predicted:
    """Predict every shipped row by the numbers that the engines' files hold."""
    found = runs()
    return in_sample_steps(found.rows, found.priced)


def compare_steps() -> Iterator[Compared]:
    """Yield step times and cost ratios, group by group and pooled."""
    found = runs()
    for group, members in _pools(found.rows).items():
        yield from _ratios(found, members, group)
        yield from _steps(found, members, group, drafting=False)
        yield from _steps(found, members, group, drafting=True)


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


def _ratios(found: Runs, members: Sequence[int], group: str) -> Iterator[Compared]:
    pick = [i for i in members if found.rows[i].scored and found.rows[i].ratio]
    textbook = found.priced.textbook / found.priced.plain_textbook
    measured = [found.rows[i].ratio or np.nan for i in pick]
    if pick:
        predicted = found.predicted.ratio
        yield _compared("cost-ratio", "D > 0", found, pick, group, predicted, measured, textbook)


def _steps(
    found: Runs, members: Sequence[int], group: str, *, drafting: bool
) -> Iterator[Compared]:
    """Yield step times; a plain step that several rows repeat counts once."""
    if drafting:
        pick = [i for i in members if _has_step(found.rows[i])]
        measured = [found.rows[i].step or np.nan for i in pick]
        predicted, textbook = found.predicted.step, found.priced.textbook
    else:
        pick = _plain_once(found.rows, members)
        measured = [found.rows[i].base or np.nan for i in pick]
        predicted, textbook = found.predicted.plain, found.priced.plain_textbook
    if pick:
        label = "D > 0" if drafting else "D = 0"
        yield _compared("step", label, found, pick, group, predicted, measured, textbook)


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


def _compared(  # noqa: PLR0917 - called three times, by position
    kind: str,
    dtype: str,
    found: Runs,
    pick: Sequence[int],
    group: str,
    predicted: Array,
    measured: Sequence[float],
    textbook: Array,
) -> Compared:
    rows = [found.rows[i] for i in pick]
    return Compared(
        suite="steps",
        kind=kind,
        gpu=_one({row.gpu for row in rows}),
        engine=_one({row.engine for row in rows}),
        dtype=dtype,
        name=group,
        predicted=predicted[list(pick)],
        measured=np.array(measured),
        textbook=textbook[list(pick)],
        group=group,
    )


def _one(names: set[str]) -> str:
    return names.pop() if len(names) == 1 else "several"


def shown() -> list[dict[str, Any]]:
    """Return the rows that are shown and never scored, with the reason."""
    found = runs()
    return [
        {
            "id": row.id,
            "group": row.group,
            "left_out": row.reason or f"trust {row.trust}",
            "measured_cost_ratio": row.ratio,
            "predicted_cost_ratio": float(found.predicted.ratio[i]),
        }
        for i, row in enumerate(found.rows)
        if not row.scored and row.draft_length
    ]


def compare_decode(*, gpus: Sequence[str], engines: Sequence[str]) -> Iterator[Compared]:
    """Yield predicted and measured time per output token, grouped by model and format."""
    rows = [row for row in load_rows() if not row.left_out]
    if not any(row.gpu in gpus and row.engine in engines for row in rows):
        return
    predicted, textbook = leave_one_gpu_out(rows)
    groups: dict[tuple[str, ...], list[int]] = {}
    for index, row in enumerate(rows):
        if row.gpu in gpus and row.engine in engines:
            groups.setdefault((row.gpu, row.engine, row.model, _format(row)), []).append(index)
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


def _format(row: DecodeRow) -> str:
    return row.experts or row.linears or ("mxfp4" if row.model.startswith("gpt-oss") else "bf16")
