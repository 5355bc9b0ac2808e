"""All-reduce tables: the engines' own collectives, by number of GPUs and message size.

``message_size`` counts elements of two bytes, ``latency`` is in ms. Rows whose ``kernel_source``
ends in ``_eager`` time the host (floors of 20 to 70 us on every GPU), not the collective.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.base.errors import InputError
from roofline.calibrate.fit.core import Columns, Label, least_log_error, rounded
from roofline.specs.gpu import HardwareProfile
from roofline.specs.laws import CollectiveAlgorithm, CollectiveConstants, CollectiveLaw
from roofline.timing.laws.simple import wire_factor
from roofline.validation.kernel_families import by_ranks, link_bandwidth
from workshop.tables.family import TableFamily, TableGroup
from workshop.tables.parquet import RawColumns, Table, clean, latency, pick, read

__all__ = ["FAMILY", "fit", "read_groups"]

KIND = "allreduce"
Array = NDArray[np.float64]

ELEMENT = 2.0  # bytes of one unit of message_size [B]
_COLUMNS = ("kernel_source", "num_gpus", "message_size", "latency")
#: In the order of their starts: a later form starts later and moves large messages faster.
FORMS: tuple[CollectiveAlgorithm, ...] = ("one_shot", "two_shot", "bulk")
START = (1e-7, 3e-3)  # bounds [s]
SHARE = (1e-3, 2.0)
SCALE = 0.05  # log errors beyond this count linearly
LEAST = 3  # sizes to a line
CLEARLY = 1e-6  # a later division must fit better by this share of the cost
AT_BOUND = 1e-3
PRECISE = {"f_scale": SCALE, "ftol": 1e-12, "xtol": 1e-12, "gtol": 1e-12, "max_nfev": 200}


def read_groups(table: Table, gpu: HardwareProfile) -> list[TableGroup]:  # noqa: ARG001
    """Read and clean a table; all numbers of GPUs make one group.

    Rejected by name beside what ``clean`` rejects: ``host_bound_eager``, and ``slower_kernel``
    where a library has several for one size.
    """
    raw = read(table, _COLUMNS)
    eager = np.char.endswith(raw["kernel_source"].astype(str), "_eager")
    rows = pick(raw, ~eager)
    curve = ("kernel_source", "num_gpus")
    index, rejected = clean(rows, latency(rows), size="message_size", curve=curve)
    rows, slower = _fastest(pick(rows, index))
    rejected |= {"host_bound_eager": int(eager.sum()), "slower_kernel": slower}
    if not len(index):
        return []
    return [
        TableGroup.of(
            table,
            rows,
            kind=KIND,
            label={"kernel": min(rows["kernel_source"].tolist())},
            columns={
                "ranks": rows["num_gpus"].astype(np.float64),
                "payload": rows["message_size"].astype(np.float64) * ELEMENT,
            },
            shape=("num_gpus", "message_size"),
            rejected=+rejected,
        )
    ]


def _fastest(rows: RawColumns) -> tuple[RawColumns, int]:
    """Return the fastest kernel's row for each number of GPUs and size, and how many were not."""
    order = np.lexsort((latency(rows), rows["message_size"], rows["num_gpus"]))
    rows = pick(rows, order)
    first = np.ones(len(order), dtype=bool)
    same = np.stack([np.diff(rows[name]) == 0 for name in ("num_gpus", "message_size")])
    first[1:] = ~same.all(axis=0)
    return pick(rows, first), int((~first).sum())


def fit(
    columns: Columns,
    label: Label,  # noqa: ARG001
    seconds: Array,
    gpu: HardwareProfile,
) -> tuple[CollectiveLaw, dict[str, Any]]:
    """Return the law: six constants for each number of GPUs with enough sizes."""
    known = {}
    for ranks, rows in by_ranks(columns):
        order = np.argsort(columns["payload"][rows], kind="stable")
        payload, measured = columns["payload"][rows][order], seconds[rows][order]
        if len(payload) >= len(FORMS) * LEAST:
            known[ranks] = _fit_ranks(payload, measured, ranks=ranks, link=link_bandwidth(gpu))
    if not known:
        raise InputError(f"all-reduce: no number of GPUs has {len(FORMS) * LEAST} sizes to fit")
    return CollectiveLaw(ranks=known), {}


def _fit_ranks(payload: Array, seconds: Array, *, ranks: int, link: float) -> CollectiveConstants:
    """Return the constants among ``ranks`` GPUs; ``payload`` ascends.

    Three lines take turns as the fastest: small messages one-shot, then two-shot, then bulk. Each
    division of the sizes into three runs is tried: a line through each run, and the loss of the
    lowest of the three over all sizes. (A search for all six at once ends in one of many minima.)
    """
    unit = {form: wire_factor(form, ranks) * payload / link for form in FORMS}

    @cache
    def line(form: CollectiveAlgorithm, first: int, stop: int) -> Array:
        return _line(unit[form][first:stop], seconds[first:stop])

    best, cost = np.empty((0, 2)), np.inf
    count = len(payload)
    for first in range(LEAST, count - 2 * LEAST + 1):
        for second in range(first + LEAST, count - LEAST + 1):
            ends = zip(FORMS, (0, first, second), (first, second, count), strict=True)
            lines = np.array([line(form, a, b) for form, a, b in ends])
            lines[:, 0] = np.maximum.accumulate(lines[:, 0])  # a later form starts no earlier
            times = [lines[i, 0] + unit[form] / lines[i, 1] for i, form in enumerate(FORMS)]
            reached = _cost(np.log(np.min(times, axis=0) / seconds))
            if reached < (1 - CLEARLY) * cost:
                best, cost = lines, reached
    start, share = (
        {form: rounded(float(value)) for form, value in zip(FORMS, column, strict=True)}
        for column in best.T
    )
    return CollectiveConstants(start=start, share=share)


def _line(unit: Array, seconds: Array) -> Array:
    """Return start [s] and share of seconds = start + unit / share, by least log error."""
    low, high = np.log([START, SHARE]).T
    slope = (seconds[-1] - seconds[0]) / (unit[-1] - unit[0])
    first = np.log([seconds[0], 1 / np.clip(slope, 1 / SHARE[1], 1 / SHARE[0])])

    def residual(x: Array) -> Array:
        start, share = np.exp(x)
        return np.asarray(np.log((start + unit / share) / seconds))

    logs, _ = least_log_error(residual, first, low, high, **PRECISE)
    at_bound = high - logs < AT_BOUND
    return np.exp(np.where(at_bound, high, logs))


def _cost(residual: Array) -> float:
    """Return the soft-L1 loss that the lines are fitted by: sum of sqrt(1 + (x / scale)^2) - 1."""
    return float(np.sum(np.hypot(1, residual / SCALE) - 1))


FAMILY = TableFamily(
    kind=KIND, tables=(("comm", "custom_allreduce_perf"),), read_groups=read_groups, fit=fit
)
