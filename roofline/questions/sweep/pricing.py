"""Prices rectangles of a sweep with the functions that answer a single question."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.advice.configuration import Configuration, Documents, load_documents
from roofline.advice.decide import CONFIDENCES, dollars_per_million
from roofline.advice.deployment import PricedGrid, deploy
from roofline.advice.provenance import NumberSource, number_sources
from roofline.advice.question import (
    Question,
    Workload,
    context_refusal,
    question_about,
)
from roofline.advice.readings import in_other_reading
from roofline.advice.recommend import decide_grid, law_limit_notices, shipped_format_notices
from roofline.base.errors import InputError, spelled
from roofline.base.notices import Code, Notice, notice
from roofline.questions.sweep.columns import COST
from roofline.questions.sweep.frames import (
    FITS,
    REASONS,
    Frame,
    Values,
    blank,
    clear,
    key_columns,
    refused,
    shared,
)
from roofline.questions.sweep.plan import Rectangle

__all__ = ["CountedReadings", "Remarks", "price_rectangle"]

#: Points priced at a time: enough that building the kernels costs little, few enough for the CPU's
#: caches.
TILE_POINTS = 2**16


@dataclass(kw_only=True, slots=True)
class CountedReadings:
    """What a sweep's acceptance is, and on how many points its two readings differ, if it has two.

    A point is a batch and a context that fits. ``first`` is the first that differs: batch, context,
    and the best D as survival and as conditional rates.
    """

    label: str
    definition: str
    rates: str = ""  # as typed, of a list with two readings
    points: int = 0
    differ: int = 0
    first: tuple[int, int, int, int] | None = None

    def add(self, other: CountedReadings) -> None:
        """Count the points of another part of the sweep, which comes after this one."""
        self.points += other.points
        self.differ += other.differ
        self.first = self.first or other.first


@dataclass(frozen=True, kw_only=True, slots=True)
class Remarks:
    """What the reader of the rows must know, gathered while they are priced."""

    spell: Callable[[str], str] = spelled  # how a text names its options
    sources: set[NumberSource] = field(default_factory=set)
    notices: set[Notice] = field(default_factory=set)
    acceptances: dict[str, CountedReadings] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Group:
    """Contexts that share a question, or the reason why they have none."""

    positions: tuple[int, ...]
    question: Question | None
    reason: str = ""


def price_rectangle(rectangle: Rectangle, remarks: Remarks) -> Iterator[Frame]:
    """Yield the rows of a rectangle, in order where one question serves all its contexts."""
    groups = _groups(
        rectangle.combination.configuration,
        replace(rectangle.combination.workload, contexts=rectangle.contexts),
        drop_unused=rectangle.combination.drop_unused,
    )
    asked = next((group.question for group in groups if group.question is not None), None)
    if asked is not None:
        first = rectangle.batches[0], asked.workload.contexts[0]
        remarks.notices.update(shipped_format_notices(asked.deployment, at=first))
    if len(groups) == 1:
        yield _frame(rectangle, groups[0], remarks)
        return
    runs = _runs(groups)
    for batch in rectangle.batches:
        for run in runs:
            yield _frame(replace(rectangle, batches=(batch,)), run, remarks)


def _runs(groups: Sequence[_Group]) -> list[_Group]:
    """Return the groups cut into runs of neighbouring contexts, in the order of the contexts."""
    group_of = {position: group for group in groups for position in group.positions}
    runs: list[_Group] = []
    for position, group in sorted(group_of.items(), key=lambda item: item[0]):
        last = runs[-1] if runs else None
        if last is not None and last.question is group.question and last.reason == group.reason:
            runs[-1] = replace(last, positions=(*last.positions, position))
        else:
            runs.append(replace(group, positions=(position,)))
    return runs


@lru_cache(maxsize=8)
def _documents(model: str, gpu: str, engine: str) -> Documents:
    """Return what combinations that differ in other options share, read once."""
    return load_documents(Configuration(model=model, gpu=gpu, engine=engine))


@lru_cache(maxsize=8)
def _groups(
    configuration: Configuration, workload: Workload, *, drop_unused: bool
) -> tuple[_Group, ...]:
    """Return what each context of a combination is priced with, or why it is refused.

    A context that the target or the drafter cannot handle is refused by itself; the others are
    grouped by the draft lengths that the acceptance is known for there.
    """
    every_position = tuple(range(len(workload.contexts)))
    try:
        documents = _documents(configuration.model, configuration.gpu, configuration.engine)
        deployment, notices = deploy(configuration, documents=documents, drop_unused=drop_unused)
        refusals = {
            position: refusal.text
            for position, context in enumerate(workload.contexts)
            if (refusal := context_refusal(deployment, context)) is not None
        }
        handled = tuple(position for position in every_position if position not in refusals)
        groups = [
            _Group(positions=(position,), question=None, reason=text)
            for position, text in refusals.items()
        ]
        if not handled:
            return tuple(groups)
        contexts = tuple(workload.contexts[position] for position in handled)
        question = question_about(
            deployment, replace(workload, contexts=contexts), notices, drop_unused=drop_unused
        )
    except InputError as error:
        return (_Group(positions=every_position, question=None, reason=error.text),)
    if not question.acceptance.contexts:  # the same at every context
        return (*groups, _Group(positions=handled, question=question))
    by_lengths: dict[tuple[int, ...], list[int]] = {}
    for position, context in zip(handled, contexts, strict=True):
        by_lengths.setdefault(question.draft_lengths_at(context), []).append(position)
    groups += [
        _Group(positions=tuple(positions), question=replace(question, draft_lengths=lengths))
        for lengths, positions in by_lengths.items()
    ]
    return tuple(groups)


def _frame(rectangle: Rectangle, group: _Group, remarks: Remarks) -> Frame:
    contexts = tuple(rectangle.contexts[position] for position in group.positions)
    if group.question is None:
        return refused(rectangle, contexts, remarks.spell(group.reason))
    question = group.question
    shape = (len(rectangle.batches), len(contexts), len(question.draft_lengths))
    columns = blank(shape)
    if question.workload.gpu_hour is not None:
        columns[COST[0].key] = np.empty(shape)
    for batches_in, contexts_in in _tiles(shape):
        priced = question.price(rectangle.batches[batches_in], contexts[contexts_in])
        _fill(columns, question, priced, at=(batches_in, contexts_in))
        _count_readings(question, priced, remarks)
    told = (n for n in question.notices if n.code is not Code.READ_AS_SURVIVAL)  # said of all
    remarks.notices.update((*told, *law_limit_notices(priced.times)))
    remarks.sources.update(number_sources(question, priced.times))
    graphs = question.deployment.engine.graphs
    if graphs is not None and not columns["captured"].all():
        engine = question.deployment.engine.name
        remarks.notices.add(
            notice(Code.PAST_GRAPHS_IN_SWEEP, engine=engine, largest=graphs.largest)
        )
    columns |= key_columns(rectangle.batches, contexts, question.draft_lengths)
    here = replace(question, workload=replace(question.workload, contexts=contexts))
    ending = here.ending.value
    return Frame(
        shared=shared(rectangle.combination, question),
        columns={name: column.reshape(-1) for name, column in columns.items()},
        words={
            "reason": REASONS,
            "limited_by": (None, ending),
            "confidence": (*CONFIDENCES, None),
        },
    )


def _at_longest(lengths: Sequence[int], best: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Return where the recommended D is the longest one, and drafts at all."""
    return np.asarray((best == len(lengths) - 1) & (lengths[-1] > 0))


def _tiles(shape: tuple[int, int, int]) -> Iterator[tuple[slice, slice]]:
    """Yield the batches and contexts of each tile of about ``TILE_POINTS`` points."""
    wide = min(shape[1], max(TILE_POINTS // shape[2], 1))
    deep = max(TILE_POINTS // (wide * shape[2]), 1)
    for top in range(0, shape[0], deep):
        for left in range(0, shape[1], wide):
            yield slice(top, min(top + deep, shape[0])), slice(left, min(left + wide, shape[1]))


def _count_readings(question: Question, priced: PricedGrid, remarks: Remarks) -> None:
    """Count the points of a tile on which the two readings of the acceptance differ."""
    curve, other = question.acceptance, in_other_reading(question)
    counted = CountedReadings(
        label=curve.label, definition=curve.definition.value, rates=curve.without_prefix
    )
    fits = np.asarray(priced.fits[..., 0])
    counted.points = int(fits.sum())
    if other is not None:
        lengths = np.asarray(question.draft_lengths)
        own, conditional = (
            lengths[decide_grid(each, priced, each.tokens_on(priced.grid)).best]
            for each in (question, other)
        )
        differ = np.argwhere(fits & (own != conditional))
        counted.differ = len(differ)
        if len(differ):
            row, column = differ[0]
            batches, contexts = priced.grid.batch.ravel(), priced.grid.context.ravel()
            counted.first = (
                int(batches[row]),
                int(contexts[column]),
                int(own[row, column]),
                int(conditional[row, column]),
            )
    known = remarks.acceptances.setdefault(
        curve.label + curve.without_prefix, replace(counted, points=0, differ=0, first=None)
    )
    known.add(counted)


def _fill(
    columns: dict[str, Values], question: Question, priced: PricedGrid, *, at: tuple[slice, slice]
) -> None:
    """Decide one tile and write it into its place in the columns."""
    grid, times, step = priced.grid, priced.times, priced.times.total
    tokens = question.tokens_on(grid)
    decision = decide_grid(question, priced, tokens)
    memory, speed = question.deployment.memory, tokens / step
    values: dict[str, Any] = {
        "memory_needed_bytes": memory.needed(grid.batch, grid.context, grid.draft_length),
        "memory_available_bytes": memory.available,
        "tokens_per_step": tokens,
        "step_ms": 1e3 * step,
        "verify_ms": 1e3 * times.verify,
        "draft_ms": 1e3 * times.draft,
        "overhead_ms": 1e3 * times.overhead,
        **{f"{name}_ms": 1e3 * part for name, part in times.parts.items()},
        "cost_ratio": step / step[..., :1],
        "speedup": decision.speedup,
        "speedup_low": decision.low,
        "speedup_high": decision.high,
        "tokens_per_s_user": speed,
        "tokens_per_s": grid.batch * speed,
        "fits": priced.fits,
        "captured": times.launches.captured,
        "tie": decision.tie,
        "recommended": decision.best[..., None] == np.arange(grid.shape[2]),
        "recommended_draft_length": np.asarray(question.draft_lengths)[decision.best][..., None],
        "limited_by": _at_longest(question.draft_lengths, decision.best)[..., None],
        "reason": FITS,
        "confidence": decision.confidence[..., None],
    }
    if question.workload.gpu_hour is not None:
        values[COST[0].key] = dollars_per_million(
            gpu_hour=question.workload.gpu_hour,
            gpus=question.deployment.cards,
            tokens_per_s=grid.batch * speed,
        )
    for name, value in values.items():
        columns[name][at] = value
    if not priced.fits.all():
        tile = {name: columns[name][at] for name in values}
        clear(tile, priced.fits, host_is_short=memory.host_is_short)
