"""How a pass is launched: from a captured graph of the engine's, or kernel by kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roofline.base.arrays import Array
from roofline.base.notices import Code, Notice, notice
from roofline.specs.engine import EngineProfile, Graphs
from roofline.specs.placement import Grid, Placement

__all__ = [
    "Launches",
    "advisable",
    "by_hand_seconds",
    "covered",
    "local_rows",
    "past_graphs",
]

Mask = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, slots=True)
class Launches:
    """The passes of a grid; arrays of its shape (batches, contexts, draft lengths)."""

    rows: NDArray[np.float64]  # of one rank's pass
    captured: Mask  # a graph covers them, or the engine has none to leave
    by_hand: NDArray[np.float64]  # what launching kernel by kernel adds, part of the overhead [s]


def local_rows(placement: Placement, grid: Grid) -> NDArray[np.float64]:
    """Return the rows of one rank's pass, and so of its captured graph: B q and what rides along.

    Each data-parallel group runs its own graph over its own share.
    """
    return np.asarray(placement.local(grid.batch) * grid.rows + grid.local_riders(placement))


def covered(graphs: Graphs | None, rows: NDArray[np.float64]) -> Mask:
    """Return where captured graphs cover a pass of ``rows``; everywhere without any to leave.

    >>> covered(None, np.array([1.0, 1000.0])).tolist()
    [True, True]
    """
    return np.asarray(rows <= (np.inf if graphs is None else graphs.largest))


def advisable(captured: Mask) -> Mask:
    """Return which draft lengths may be advised: covered ones, or any where D = 0 is not either.

    Draft lengths run along the last axis, D = 0 first.

    >>> advisable(np.array([[True, True, False], [False, False, False]])).tolist()
    [[True, True, False], [True, True, True]]
    """
    return np.asarray(captured | ~captured[..., :1])


def by_hand_seconds(*, kernels: int, own: Array, each: float, captured: Mask) -> Array:
    """Return what launching every kernel by hand adds where no graph covers the pass [s].

    max(0, kernels x each - own): slow launches hide behind slow kernels, whose time is ``own`` [s];
    ``each`` is the time of one launch [s]. Shapes broadcast.

    >>> hidden = {"kernels": 1000, "each": 40e-6, "captured": np.array([True, False, False])}
    >>> by_hand_seconds(own=np.array([0.01, 0.01, 0.05]), **hidden)  # 40 ms of launches
    array([0.  , 0.03, 0.  ])
    """
    return np.where(captured, 0.0, np.maximum(kernels * each - own, 0.0))


def past_graphs(
    engine: EngineProfile, asked: Mapping[int, tuple[Sequence[int], Sequence[float]]]
) -> list[Notice]:
    """Say which draft lengths leave the captured graphs, once for alike batches.

    ``asked`` are draft lengths, 0 first, and the rows of their passes, by batch.
    """
    graphs = engine.graphs
    if graphs is None:
        return []
    alike: dict[tuple[int, ...], list[int]] = {}
    for batch, (lengths, rows) in asked.items():
        past = tuple(d for d, own in zip(lengths, rows, strict=True) if own > graphs.largest)
        if past:
            alike.setdefault(past, []).append(batch)
    return [
        notice(
            Code.PAST_GRAPHS,
            engine=engine.name,
            largest=graphs.largest,
            lengths=past,
            batches=tuple(batches),
            flag=graphs.raised(max(max(asked[batch][1]) for batch in batches)),
        )
        for past, batches in alike.items()
    ]
