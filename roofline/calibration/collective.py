"""All-reduce tables: the engines' own collectives, by number of GPUs and message size.

``message_size`` counts elements of two bytes, ``latency`` is in ms. Rows whose ``kernel_source``
ends in ``_eager`` time the host (floors of 20 to 70 us on every GPU), not the collective.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.calibration.family import Group, Label, Numbers
from roofline.calibration.fit import least_log_error, rounded
from roofline.calibration.tables import Columns, Table, clean, read, shape_keys
from roofline.hardware import HardwareProfile
from roofline.laws.collective import CollectiveLaw, Form, Ranks, collective_time, wire_factor
from roofline.shapes import CollectiveShape
from roofline.timing import Machine

__all__ = ["KIND", "TABLES", "fit", "groups", "scored", "seconds", "textbook"]

KIND = "allreduce"
TABLES: Sequence[tuple[str, str]] = (("comm", "custom_allreduce_perf"),)
Array = NDArray[np.float64]

ELEMENT = 2.0  # bytes of one unit of message_size [B]
_COLUMNS = ("kernel_source", "num_gpus", "message_size", "latency")
#: In the order of their starts: a later form starts later and moves large messages faster.
FORMS: tuple[Form, ...] = ("one_shot", "two_shot", "bulk")
START = (1e-7, 3e-3)  # bounds [s]
SHARE = (1e-3, 2.0)
#: Fixed starting points: extra starts of two-shot and bulk [s], shares of one- and two-shot.
STARTS = tuple(product((2e-6, 1e-5), (1e-5, 4e-5), (0.3, 0.7), (0.5, 1.0)))


def groups(table: Table, gpu: HardwareProfile) -> list[Group]:  # noqa: ARG001
    """Read and clean a table; all numbers of GPUs of a kernel make one group.

    Rejected by name beside what ``clean`` rejects: ``host_bound_eager``.
    """
    raw = read(table, _COLUMNS)
    names = raw["kernel_source"].astype(str)
    eager = np.char.endswith(names, "_eager")
    found = []
    for kernel in sorted(set(names[~eager].tolist())):
        rows = {name: column[names == kernel] for name, column in raw.items()}
        index, why = clean(rows, _seconds(rows), size="message_size", curve=("num_gpus",))
        if not len(index):
            continue
        rows = {name: column[index] for name, column in rows.items()}
        why["host_bound_eager"] = int(eager.sum())
        found.append(
            Group(
                kind=KIND,
                gpu=table.gpu,
                engine=table.engine,
                version=table.version,
                source=table.label,
                label={"kernel": kernel},
                columns={
                    "ranks": rows["num_gpus"].astype(np.float64),
                    "payload": rows["message_size"].astype(np.float64) * ELEMENT,
                },
                seconds=_seconds(rows),
                keys=shape_keys(rows["num_gpus"], rows["message_size"]),
                rejected=dict(+why),
            )
        )
    return found


def _seconds(rows: Columns) -> Array:
    return rows["latency"].astype(np.float64) * 1e-3


def _by_ranks(columns: Numbers) -> Iterator[tuple[int, NDArray[np.bool_]]]:
    """Yield each number of GPUs and where it is."""
    for ranks in np.unique(columns["ranks"]):
        yield int(ranks), columns["ranks"] == ranks


def _link(gpu: HardwareProfile) -> float:
    return gpu.interconnect.per_direction.value


def seconds(
    columns: Numbers,
    label: Label,  # noqa: ARG001
    law: CollectiveLaw,
    gpu: HardwareProfile,
) -> Array:
    """Predict an all-reduce inside a CUDA graph [s]."""
    device = Machine(gpu).device("bf16")
    predicted = np.empty_like(columns["payload"])
    for ranks, here in _by_ranks(columns):
        shape = CollectiveShape(payload=columns["payload"][here], ranks=ranks)
        predicted[here] = collective_time(shape, device, law).total
    return predicted


def textbook(columns: Numbers, label: Label, gpu: HardwareProfile) -> Array:  # noqa: ARG001
    """Return the ring's bound, 2 (n - 1) / n bytes over the link's bandwidth [s]."""
    ranks = columns["ranks"]
    return np.asarray(2 * (ranks - 1) / ranks * columns["payload"] / _link(gpu))


def scored(columns: Numbers, label: Label) -> NDArray[np.bool_]:  # noqa: ARG001
    """Return the rows that count when the law is judged: all."""
    return np.ones(len(columns["payload"]), dtype=bool)


def fit(
    columns: Numbers,
    label: Label,  # noqa: ARG001
    seconds: Array,
    gpu: HardwareProfile,
) -> tuple[CollectiveLaw, dict[str, Any]]:
    """Return the law: six constants for each number of GPUs."""
    known = {
        ranks: _fit_ranks(columns["payload"][here], seconds[here], ranks=ranks, link=_link(gpu))
        for ranks, here in _by_ranks(columns)
    }
    return CollectiveLaw(ranks=known), {}


def _fit_ranks(payload: Array, seconds: Array, *, ranks: int, link: float) -> Ranks:
    """Return the constants among ``ranks`` GPUs: the best of fixed starting points.

    Unknowns are logs: the first start, what each later form starts later, and the shares, so that
    starts rise from form to form.
    """
    factors = np.array([[wire_factor(form, ranks)] for form in FORMS])
    unit = factors * payload / link  # seconds on the wire at a share of 1
    low = np.log([START[0]] * len(FORMS) + [SHARE[0]] * len(FORMS))
    high = np.log([START[1]] * len(FORMS) + [SHARE[1]] * len(FORMS))
    largest = int(np.argmax(payload))
    bulk = float(np.clip(unit[-1, largest] / seconds[largest], *SHARE))

    def residual(x: Array) -> Array:
        start, share = _unpack(x)
        return np.asarray(np.log((start + unit / share).min(axis=0) / seconds))

    tries = []
    for two, three, one_share, two_share in STARTS:
        first = [seconds.min(), two, three, one_share, two_share * bulk, bulk]
        tries.append(least_log_error(residual, np.log(first), low, high, f_scale=0.05))
    best, _ = min(tries, key=lambda found: found[1])
    starts, shares = (
        {form: rounded(float(value)) for form, value in zip(FORMS, values[:, 0], strict=True)}
        for values in _unpack(best)
    )
    return Ranks(start=starts, share=shares)


def _unpack(x: Array) -> tuple[Array, Array]:
    """Return starts [s] and shares as columns."""
    count = len(FORMS)
    return np.cumsum(np.exp(x[:count]))[:, None], np.exp(x[count:])[:, None]
