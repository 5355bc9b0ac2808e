"""One unit of a sweep, priced: rectangles through the same functions as a single answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.advise import CONFIDENCES
from roofline.errors import InputError
from roofline.kernels import Part
from roofline.prepare import Setup, draft_lengths, prepare
from roofline.quantization import Component
from roofline.recommend import Costs, advise, limits, price
from roofline.report.sources import sources_of
from roofline.request import Request
from roofline.step import StepTimes
from roofline.sweeps.plan import Block, Scalar, Unit

__all__ = ["Frame", "Notes", "price_unit"]

#: Points priced at a time: enough that building the kernels costs little, few enough for caches.
TILE_POINTS = 2**16
FITS, TOO_LARGE, DRAFTER_TOO_LARGE = range(3)
REASONS = (
    None,
    "does not fit in memory",
    "does not fit in memory beside the drafter",
)
Values = NDArray[Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """Rows of one combination of options: what they share, and a column for the rest.

    A column of words holds their positions in ``words``.
    """

    shared: dict[str, Scalar]
    columns: dict[str, Values]
    words: dict[str, tuple[str | None, ...]]

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.columns["batch"])


@dataclass(frozen=True, kw_only=True, slots=True)
class Notes:
    """What the reader of the rows must know: where numbers come from, and warnings."""

    sources: set[str] = field(default_factory=set)  # JSON objects
    warnings: set[str] = field(default_factory=set)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Group:
    """Contexts, by position, that share a setup, or the reason why they have none."""

    places: tuple[int, ...]
    setup: Setup | None
    reason: str = ""


def price_unit(unit: Unit, notes: Notes) -> Iterator[Frame]:
    """Yield the rows of a unit, in order where one setup serves all its contexts."""
    request = replace(unit.block.request, contexts=unit.contexts)
    groups = _groups(request)
    if len(groups) == 1:
        yield _frame(unit, groups[0], notes)
        return
    runs = _runs(groups)
    for batch in unit.batches:
        for run in runs:
            yield _frame(replace(unit, batches=(batch,)), run, notes)


def _runs(groups: Sequence[_Group]) -> list[_Group]:
    """Return the groups cut into runs of neighbouring contexts, in the order of the contexts."""
    owner = {place: group for group in groups for place in group.places}
    runs: list[_Group] = []
    for place in sorted(owner):
        group = owner[place]
        last = runs[-1] if runs else None
        if last is not None and last.setup is group.setup and last.reason == group.reason:
            runs[-1] = replace(last, places=(*last.places, place))
        else:
            runs.append(replace(group, places=(place,)))
    return runs


@lru_cache(maxsize=8)
def _groups(request: Request) -> tuple[_Group, ...]:
    """Return what each context of a block is priced with, or why it is refused."""
    everything = tuple(range(len(request.contexts)))
    try:
        setup = prepare(request)
    except InputError as error:
        if len(everything) == 1:
            return (_Group(places=everything, setup=None, reason=str(error)),)
        return _halves(request)
    if not setup.acceptance.contexts:
        return (_Group(places=everything, setup=setup),)
    return _by_lengths(setup)


def _halves(request: Request) -> tuple[_Group, ...]:
    """Return the groups of each half of the contexts: a refusal may be about some of them."""
    middle = len(request.contexts) // 2
    found: list[_Group] = []
    for start, contexts in ((0, request.contexts[:middle]), (middle, request.contexts[middle:])):
        found += [
            replace(group, places=tuple(start + place for place in group.places))
            for group in _groups(replace(request, contexts=contexts))
        ]
    same = {(group.reason if group.setup is None else None) for group in found}
    if len(same) == 1 and None not in same:  # refused whatever the context
        return (
            _Group(places=tuple(range(len(request.contexts))), setup=None, reason=same.pop() or ""),
        )
    return tuple(found)


def _by_lengths(setup: Setup) -> tuple[_Group, ...]:
    """Return contexts grouped by the draft lengths that the acceptance is known for there."""
    by: dict[tuple[int, ...], list[int]] = {}
    for place, context in enumerate(setup.request.contexts):
        alone = replace(setup.request, contexts=(context,))
        try:
            known = draft_lengths(alone, setup.drafter, setup.acceptance)
        except InputError:
            known = (0,)
        by.setdefault(known, []).append(place)
    return tuple(
        _Group(places=tuple(places), setup=replace(setup, draft_lengths=known))
        for known, places in by.items()
    )


def _frame(unit: Unit, group: _Group, notes: Notes) -> Frame:
    contexts = tuple(unit.contexts[place] for place in group.places)
    if group.setup is None:
        return _refused(unit, contexts, group.reason)
    setup = group.setup
    shape = (len(unit.batches), len(contexts), len(setup.draft_lengths))
    columns = _blank(shape)
    for rows, places in _tiles(shape):
        found = price(setup, unit.batches[rows], contexts[places])
        _fill(columns, setup, found, at=(rows, places))
    _note(notes, setup, found.times)
    columns |= _keys(unit.batches, contexts, setup.draft_lengths)
    return Frame(
        shared=_shared(unit.block, setup),
        columns={name: column.reshape(-1) for name, column in columns.items()},
        words={"reason": REASONS, "confidence": (*CONFIDENCES, None)},
    )


def _blank(shape: tuple[int, int, int]) -> dict[str, Values]:
    numbers = (
        "memory_needed_bytes", "memory_available_bytes", "tokens_per_step", "step_s", "verify_s",
        "draft_s", "overhead_s", *(f"{part.value}_s" for part in Part), "cost_ratio", "speedup",
        "speedup_low", "speedup_high", "tokens_per_s_user", "tokens_per_s_batch",
    )  # fmt: skip
    columns: dict[str, Values] = {name: np.empty(shape) for name in numbers}
    columns |= {name: np.empty(shape, dtype=bool) for name in ("fits", "tie", "best")}
    columns["best_draft_length"] = np.empty(shape, dtype=np.int16)
    columns |= {name: np.empty(shape, dtype=np.int8) for name in ("reason", "confidence")}
    return columns


def _keys(
    batches: Sequence[int], contexts: Sequence[int], lengths: Sequence[int]
) -> dict[str, Values]:
    shape = (len(batches), len(contexts), len(lengths))
    axes: dict[str, Values] = {
        "batch": np.asarray(batches, dtype=np.int64)[:, None, None],
        "context_tokens": np.asarray(contexts, dtype=np.int64)[None, :, None],
        "draft_length": np.asarray(lengths, dtype=np.int16)[None, None, :],
    }
    return {name: np.broadcast_to(axis, shape) for name, axis in axes.items()}


def _tiles(shape: tuple[int, int, int]) -> Iterator[tuple[slice, slice]]:
    wide = min(shape[1], max(TILE_POINTS // shape[2], 1))
    deep = max(TILE_POINTS // (wide * shape[2]), 1)
    for top in range(0, shape[0], deep):
        for left in range(0, shape[1], wide):
            yield slice(top, min(top + deep, shape[0])), slice(left, min(left + wide, shape[1]))


def _fill(
    columns: dict[str, Values], setup: Setup, found: Costs, *, at: tuple[slice, slice]
) -> None:
    """Decide one tile and write it into its place in the columns."""
    decision = advise(setup, found)
    grid, times, step = found.grid, found.times, found.times.total
    speed = found.tokens_per_step / step
    values: dict[str, Any] = {
        "memory_needed_bytes": found.memory.needed(grid.batch, grid.context, grid.draft_length),
        "memory_available_bytes": found.memory.available,
        "tokens_per_step": found.tokens_per_step,
        "step_s": step,
        "verify_s": times.verify,
        "draft_s": times.draft,
        "overhead_s": times.overhead,
        **{f"{name}_s": part for name, part in times.parts.items()},
        "cost_ratio": step / step[..., :1],
        "speedup": decision.speedup,
        "speedup_low": decision.low,
        "speedup_high": decision.high,
        "tokens_per_s_user": speed,
        "tokens_per_s_batch": grid.batch * speed,
        "fits": found.fits,
        "tie": decision.tie,
        "best": decision.best[..., None] == np.arange(grid.shape[2]),
        "best_draft_length": np.asarray(setup.draft_lengths)[decision.best][..., None],
        "reason": FITS,
        "confidence": decision.confidence[..., None],
    }
    for name, value in values.items():
        columns[name][at] = value
    if not found.fits.all():
        _clear({name: columns[name][at] for name in values}, found.fits)


def _clear(tile: dict[str, Values], fits: NDArray[np.bool_]) -> None:
    """Take the numbers out of what cannot be run, and say why."""
    lost, nothing = ~fits, ~fits[..., :1]
    np.copyto(tile["reason"], np.where(nothing, TOO_LARGE, DRAFTER_TOO_LARGE), "unsafe", lost)
    np.copyto(tile["best_draft_length"], -1, where=nothing)
    np.copyto(tile["confidence"], len(CONFIDENCES), where=nothing)
    for name, column in tile.items():
        if column.dtype == bool and name != "fits":
            np.logical_and(column, fits, out=column)
        elif column.dtype == np.float64 and not name.startswith("memory"):
            np.copyto(column, np.nan, where=lost)


def _refused(unit: Unit, contexts: Sequence[int], reason: str) -> Frame:
    """Return rows that say why nothing of this can be priced."""
    request = unit.block.request
    longest = 0 if request.drafter == "none" else request.max_draft_length
    keys = _keys(unit.batches, contexts, range(longest + 1))
    columns = _blank(keys["batch"].shape)
    for column in columns.values():
        column[...] = np.nan if column.dtype == np.float64 else 0
    columns["best_draft_length"][...] = -1
    columns |= keys
    return Frame(
        shared=_shared(unit.block, None),
        columns={name: column.reshape(-1) for name, column in columns.items()},
        words={"reason": (reason,), "confidence": (None,)},
    )


def _shared(block: Block, setup: Setup | None) -> dict[str, Scalar]:
    """Return what all rows of a block have in common."""
    request = block.request
    shared: dict[str, Scalar] = {
        "model": request.model,
        "gpu": request.gpu,
        "engine": request.engine,
        "tp": request.tp,
        "ep": request.ep,
        "drafter": request.drafter,
        "acceptance": request.acceptance,
        "weights": request.weights,
        "kv": request.kv,
        **dict(block.extra),
    }
    if setup is None:
        return shared
    weights = setup.target.precision.weights
    mixture = setup.target.model.num_expert_layers > 0
    return shared | {
        "model": setup.target.model.id,
        "gpu": setup.gpu.id,
        "drafter": setup.drafter.name,
        "acceptance": request.acceptance or setup.acceptance.label,
        "weights": weights[Component.EXPERTS if mixture else Component.MLP].value,
        "kv": setup.target.precision.kv.value,
    }


def _note(notes: Notes, setup: Setup, times: StepTimes) -> None:
    notes.warnings.update((*setup.notes.warnings, *limits(times)))
    entries = sources_of(setup, times)
    notes.sources.update(json.dumps(entry, ensure_ascii=False) for entry in entries)
