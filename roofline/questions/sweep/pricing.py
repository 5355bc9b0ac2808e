"""One unit of a sweep, priced: rectangles through the same functions as a single answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from roofline.advice.cautions import limits
from roofline.advice.decide import CONFIDENCES
from roofline.advice.lengths import known_lengths
from roofline.advice.prepare import Setup, prepare
from roofline.advice.provenance import provenance
from roofline.advice.recommend import Costs, advise, price
from roofline.advice.request import Request
from roofline.base.errors import InputError
from roofline.questions.sweep.frames import (
    FITS,
    REASONS,
    Frame,
    Values,
    blank,
    clear,
    keys,
    refused,
    shared,
)
from roofline.questions.sweep.plan import Unit
from roofline.timing.launches import past_note
from roofline.timing.step import StepTimes

__all__ = ["Notes", "price_unit"]

#: Points priced at a time: enough that building the kernels costs little, few enough for caches.
TILE_POINTS = 2**16


@dataclass(frozen=True, kw_only=True, slots=True)
class Notes:
    """What the reader of the rows must know: where numbers come from, and warnings."""

    sources: set[str] = field(default_factory=set)  # JSON objects
    warnings: set[str] = field(default_factory=set)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Priced:
    """An answer as far as its sources go."""

    setup: Setup
    times: StepTimes


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
        known = known_lengths(alone, setup.drafter, setup.engine, setup.acceptance)
        by.setdefault(known, []).append(place)
    return tuple(
        _Group(places=tuple(places), setup=replace(setup, draft_lengths=known))
        for known, places in by.items()
    )


def _frame(unit: Unit, group: _Group, notes: Notes) -> Frame:
    contexts = tuple(unit.contexts[place] for place in group.places)
    if group.setup is None:
        return refused(unit, contexts, group.reason)
    setup = group.setup
    shape = (len(unit.batches), len(contexts), len(setup.draft_lengths))
    columns = blank(shape)
    for rows, places in _tiles(shape):
        found = price(setup, unit.batches[rows], contexts[places])
        _fill(columns, setup, found, at=(rows, places))
    _note(notes, setup, found.times)
    if not columns["captured"].all():
        notes.warnings.add(past_note(setup.engine))
    columns |= keys(unit.batches, contexts, setup.draft_lengths)
    return Frame(
        shared=shared(unit.block, setup),
        columns={name: column.reshape(-1) for name, column in columns.items()},
        words={"reason": REASONS, "confidence": (*CONFIDENCES, None)},
    )


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
        "captured": found.times.launches.captured,
        "tie": decision.tie,
        "best": decision.best[..., None] == np.arange(grid.shape[2]),
        "best_draft_length": np.asarray(setup.draft_lengths)[decision.best][..., None],
        "reason": FITS,
        "confidence": decision.confidence[..., None],
    }
    for name, value in values.items():
        columns[name][at] = value
    if not found.fits.all():
        tile = {name: columns[name][at] for name in values}
        clear(tile, found.fits, host_is_short=found.memory.host_is_short)


def _note(notes: Notes, setup: Setup, times: StepTimes) -> None:
    notes.warnings.update((*setup.notes.warnings, *limits(times)))
    entries = provenance(_Priced(setup=setup, times=times))
    notes.sources.update(json.dumps(entry, ensure_ascii=False) for entry in entries)
