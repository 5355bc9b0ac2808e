"""A step taken apart into the terms that can be wrong, each with its stated error."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from roofline.base.numbers import DRAWS
from roofline.kernels.ops import Part
from roofline.specs.placement import Grid, VerifyAttention
from roofline.specs.priors import Spread
from roofline.timing.machine import OpTime
from roofline.timing.memory import Memory
from roofline.timing.step import StepTimes
from roofline.timing.uncertainty import drawn_kernels

__all__ = ["ADDED", "GridIndex", "Term", "Terms", "terms_of"]

Array = NDArray[np.float64]
#: Points of a grid: their positions among its batches, contexts and draft lengths.
GridIndex = tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]


class Term(StrEnum):
    """A part of a step that may be wrong by itself, under its name in JSON."""

    ATTENTION = "attention path"
    EXPERTS = "experts"
    COMMUNICATION = "communication"
    PRODUCTS = "matrix products"
    SMALL = "small kernels"
    DRAFTER = "drafter"
    HOST = "host overhead"
    #: The part of the host's overhead that drafts bring; the grid must begin at D = 0.
    ROUNDS = "overhead of drafting"
    MEMORY = "memory pressure"
    #: Attention that reads the cache anew for every row, where it was priced as reading it once.
    PER_ROW = "attention path per row"


#: Terms that the predicted step does not hold, but a measured one may.
ADDED = (Term.MEMORY, Term.PER_ROW)
#: The term that a kernel of the verify pass belongs to; step times tell nothing finer apart.
BY_PART = {
    Part.ATTENTION: Term.ATTENTION,
    Part.MOE: Term.EXPERTS,
    Part.COMMUNICATION: Term.COMMUNICATION,
    Part.LINEAR: Term.PRODUCTS,
    Part.LM_HEAD: Term.PRODUCTS,
    Part.OTHER: Term.SMALL,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """The terms of a step that may be wrong, over (batches, contexts, draft lengths) [s].

    ``total`` is the predicted step, ``seconds`` the terms of it that are looked at: together they
    cover it, and one may be part of another. ``drawn`` are draws of them, draws first.
    ``added`` is what waiting for memory, or attention of another kind, would add to it.
    """

    grid: Grid
    total: Array
    seconds: dict[Term, Array]
    drawn: dict[Term, Array]
    drawn_total: Array
    added: dict[Term, Array]

    def at(self, where: GridIndex) -> dict[Term, Array]:
        """Return every term at some points of the grid, those that are added among them [s]."""
        return {name: term[where] for name, term in (self.seconds | self.added).items()}

    def covariance(self, where: GridIndex, without: Term | None = None) -> Array:
        """Return the covariance over points of the step's error, all terms' or all but one's."""
        drawn = self.drawn_total[:, *where]
        if without is not None and without in self.drawn:
            drawn = drawn - self.drawn[without][:, *where]
        return np.atleast_2d(np.cov(drawn / self.total[where], rowvar=False))

    def sigmas(self, where: GridIndex, spread: Spread) -> dict[Term, float]:
        """Return the standard deviation of the logarithm of each term over these points."""
        drawn = {
            name: float(np.log((draws[:, *where] / self.total[where]).sum(axis=1)).std())
            for name, draws in self.drawn.items()
            if self.seconds[name][where].any()
        }
        unknown = dict.fromkeys((*self.seconds, Term.PER_ROW), spread.prior)
        return unknown | drawn | {Term.MEMORY: spread.overhead}


def terms_of(times: StepTimes, grid: Grid, spread: Spread, memory: Memory) -> Terms:
    """Split a step into terms; the draws are those that every answer's error comes from.

    A cache read for each of q rows instead of once would add (q - 1) times the attention.
    """
    drawn: dict[Term, Array] = {}
    for which, time, draws in drawn_kernels(times, grid, spread):
        name, full = _name(which, time), np.broadcast_to(draws, (DRAWS, *grid.shape))
        drawn[name] = drawn[name] + full if name in drawn else full
    seconds = {name: np.zeros(grid.shape) for name in (*drawn, BY_PART[Part.ATTENTION])}
    seconds |= {Term.HOST: times.overhead, Term.DRAFTER: times.draft}
    for op in times.verify_ops:
        seconds[_name("verify", op)] = seconds[_name("verify", op)] + op.total
    drawn_total = np.asarray(sum(drawn.values()))
    plain = seconds[Term.HOST][..., :1]
    seconds[Term.ROUNDS] = np.maximum(seconds[Term.HOST] - plain, 0.0)
    reads_once = memory.target.placement.verify_attention is not VerifyAttention.KV_PER_QUERY
    drawn[Term.ROUNDS] = np.maximum(drawn[Term.HOST] - drawn[Term.HOST][..., :1], 0.0)
    return Terms(
        grid=grid,
        total=times.total,
        seconds=seconds,
        drawn=drawn,
        drawn_total=drawn_total,
        added={
            Term.MEMORY: _pressure(memory, grid) * times.total,
            Term.PER_ROW: (grid.rows - 1) * seconds[BY_PART[Part.ATTENTION]] * reads_once,
        },
    )


def _name(which: str, time: OpTime | None) -> Term:
    if time is None:
        return Term.HOST
    return Term.DRAFTER if which == "draft" else BY_PART[time.op.part]


def _pressure(memory: Memory, grid: Grid) -> Array:
    """Return B / B_fit - 1 where a batch does not fit: the others' memory is waited for.

    B_fit sequences run at a time, so B of them take B / B_fit times as long. Shape (batches,
    contexts, draft lengths); 0 where all fit, or where not even one does.
    """
    batch = np.broadcast_to(grid.batch, grid.shape)
    fitting = [
        [
            [memory.largest_batch(context=int(context), draft_length=int(length))] * len(grid.batch)
            for length in grid.draft_length.ravel()
        ]
        for context in grid.context.ravel()
    ]
    largest = np.moveaxis(np.array(fitting, dtype=float), -1, 0)
    return np.where(largest > 0, np.maximum(batch / np.maximum(largest, 1) - 1, 0.0), 0.0)
