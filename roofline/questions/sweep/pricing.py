"""One unit of a sweep, priced: rectangles through the same functions as a single answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from roofline.advice.decide import CONFIDENCES
from roofline.advice.deployment import Configuration, PricedGrid, deploy
from roofline.advice.provenance import Source, sources
from roofline.advice.question import (
    Question,
    Workload,
    context_refusal,
    question_about,
)
from roofline.advice.recommend import decide_grid, law_limits
from roofline.base.errors import InputError, spelled
from roofline.base.notices import Code, Notice, notice
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

__all__ = ["Told", "price_unit"]

#: Points priced at a time: enough that building the kernels costs little, few enough for caches.
TILE_POINTS = 2**16


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """What the reader of the rows must know: where numbers come from, and notices."""

    spell: Callable[[str], str] = spelled  # how a text names its options
    sources: set[Source] = field(default_factory=set)
    notices: set[Notice] = field(default_factory=set)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Group:
    """Contexts, by position, that share a question, or the reason why they have none."""

    places: tuple[int, ...]
    question: Question | None
    reason: str = ""


def price_unit(unit: Unit, told: Told) -> Iterator[Frame]:
    """Yield the rows of a unit, in order where one question serves all its contexts."""
    groups = _groups(
        unit.block.configuration,
        replace(unit.block.workload, contexts=unit.contexts),
        drop_idle=unit.block.drop_idle,
    )
    if len(groups) == 1:
        yield _frame(unit, groups[0], told)
        return
    runs = _runs(groups)
    for batch in unit.batches:
        for run in runs:
            yield _frame(replace(unit, batches=(batch,)), run, told)


def _runs(groups: Sequence[_Group]) -> list[_Group]:
    """Return the groups cut into runs of neighbouring contexts, in the order of the contexts."""
    owner = {place: group for group in groups for place in group.places}
    runs: list[_Group] = []
    for place in sorted(owner):
        group = owner[place]
        last = runs[-1] if runs else None
        if last is not None and last.question is group.question and last.reason == group.reason:
            runs[-1] = replace(last, places=(*last.places, place))
        else:
            runs.append(replace(group, places=(place,)))
    return runs


@lru_cache(maxsize=8)
def _groups(
    configuration: Configuration, workload: Workload, *, drop_idle: bool
) -> tuple[_Group, ...]:
    """Return what each context of a block is priced with, or why it is refused.

    A context that the target or the drafter cannot handle is refused by itself; the others are
    grouped by the draft lengths that the acceptance is known for there.
    """
    everything = tuple(range(len(workload.contexts)))
    try:
        deployment, notices = deploy(configuration, drop_idle=drop_idle)
        refusals = {
            place: refusal.text
            for place, context in enumerate(workload.contexts)
            if (refusal := context_refusal(deployment, context)) is not None
        }
        kept = tuple(place for place in everything if place not in refusals)
        groups = [
            _Group(places=(place,), question=None, reason=text) for place, text in refusals.items()
        ]
        if not kept:
            return tuple(groups)
        asked = replace(workload, contexts=tuple(workload.contexts[place] for place in kept))
        whole = question_about(deployment, asked, notices, drop_idle=drop_idle)
    except InputError as error:
        return (_Group(places=everything, question=None, reason=error.text),)
    by_lengths: dict[tuple[int, ...], list[int]] = {}
    for place, context in zip(kept, asked.contexts, strict=True):
        by_lengths.setdefault(whole.draft_lengths_at(context), []).append(place)
    groups += [
        _Group(places=tuple(places), question=replace(whole, draft_lengths=lengths))
        for lengths, places in by_lengths.items()
    ]
    return tuple(groups)


def _frame(unit: Unit, group: _Group, told: Told) -> Frame:
    contexts = tuple(unit.contexts[place] for place in group.places)
    if group.question is None:
        return refused(unit, contexts, told.spell(group.reason))
    question = group.question
    shape = (len(unit.batches), len(contexts), len(question.draft_lengths))
    columns = blank(shape)
    for rows, places in _tiles(shape):
        priced = question.price(unit.batches[rows], contexts[places])
        _fill(columns, question, priced, at=(rows, places))
    told.notices.update((*question.notices, *law_limits(priced.times)))
    told.sources.update(sources(question, priced.times))
    graphs = question.deployment.engine.graphs
    if graphs is not None and not columns["captured"].all():
        engine = question.deployment.engine.name
        told.notices.add(notice(Code.PAST_GRAPHS_IN_SWEEP, engine=engine, largest=graphs.largest))
    columns |= keys(unit.batches, contexts, question.draft_lengths)
    return Frame(
        shared=shared(unit.block, question),
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
    columns: dict[str, Values], question: Question, priced: PricedGrid, *, at: tuple[slice, slice]
) -> None:
    """Decide one tile and write it into its place in the columns."""
    decision = decide_grid(question, priced)
    grid, times, step = priced.grid, priced.times, priced.times.total
    contexts = grid.context.ravel().astype(int).tolist()
    tokens = question.tokens_per_step(contexts)
    memory, speed = question.deployment.memory, tokens / step
    values: dict[str, Any] = {
        "memory_needed_bytes": memory.needed(grid.batch, grid.context, grid.draft_length),
        "memory_available_bytes": memory.available,
        "tokens_per_step": tokens,
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
        "fits": priced.fits,
        "captured": times.launches.captured,
        "tie": decision.tie,
        "best": decision.best[..., None] == np.arange(grid.shape[2]),
        "best_draft_length": np.asarray(question.draft_lengths)[decision.best][..., None],
        "reason": FITS,
        "confidence": decision.confidence[..., None],
    }
    for name, value in values.items():
        columns[name][at] = value
    if not priced.fits.all():
        tile = {name: columns[name][at] for name in values}
        clear(tile, priced.fits, host_is_short=memory.host_is_short)
