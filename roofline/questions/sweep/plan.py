"""A grid cut into tasks: each a list of rectangles that are priced and written as one part."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from roofline.advice.deployment import Configuration
from roofline.advice.question import Workload
from roofline.questions.sweep.columns import Column

__all__ = ["Block", "Plan", "Scalar", "Task", "Unit"]

#: Points of one part: a quarter of a second's work, and little enough to hold many at once.
PART_POINTS = 2**17

Scalar = str | int | float | bool | tuple[str, ...] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """One combination of the options; ``extra`` are the values of columns that only it names."""

    configuration: Configuration
    workload: Workload
    #: The grid has several drafters: options are for those that have them.
    drop_idle: bool = False
    extra: tuple[tuple[str, Scalar], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """A rectangle of one block."""

    block: Block
    batches: tuple[int, ...]
    contexts: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """Units that make one part of the output."""

    index: int
    points: int  # at most: a drafter or an acceptance may end before the longest draft
    units: tuple[Unit, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Axes to multiply out; each of ``cases`` holds options that go together.

    Rows follow the order of the cases, then of the axes as the question lists them, then batch,
    context and draft length.
    """

    axes: Mapping[str, tuple[Scalar, ...]]
    cases: tuple[Mapping[str, tuple[Scalar, ...]], ...]
    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    ask: Callable[..., tuple[Configuration, Workload]]
    order: tuple[str, ...]  # of the options
    extra: tuple[Column, ...] = ()

    def as_data(self) -> dict[str, Any]:
        """Return the grid as JSON writes it."""
        return {
            "axes": {name: list(values) for name, values in self.axes.items()},
            "cases": [{n: list(values) for n, values in case.items()} for case in self.cases],
            "batches": list(self.batches),
            "contexts": list(self.contexts),
        }

    def texts(self) -> set[str]:
        """Return every text that an option was given: names, and paths of files."""
        values = (v for given in (self.axes, *self.cases) for some in given.values() for v in some)
        return {value for value in values if isinstance(value, str)}

    def _axes_of(self, case: Mapping[str, tuple[Scalar, ...]]) -> dict[str, tuple[Scalar, ...]]:
        both = {**self.axes, **case}
        return {name: both[name] for name in self.order if name in both}

    def blocks(self) -> Iterator[Block]:
        """Yield every combination of the options as a question about the whole rectangle."""
        several = (
            len({d for case in self.cases for d in self._axes_of(case).get("drafter", ())}) > 1
        )
        for case in self.cases:
            axes = self._axes_of(case)
            for values in itertools.product(*axes.values()):
                given = dict(zip(axes, values, strict=True))
                configuration, workload = self.ask(**given)
                yield Block(
                    configuration=configuration,
                    workload=replace(workload, batches=self.batches, contexts=self.contexts),
                    drop_idle=several,
                    extra=tuple((column.name, given.get(column.name)) for column in self.extra),
                )

    @property
    def points(self) -> int:
        """How many points there are at most, counted without making them."""
        total = 0
        for case in self.cases:
            axes = self._axes_of(case)
            lengths = axes.get("max_draft_length", (self.ask()[1].max_draft_length,))
            each = sum(1 + int(longest) for longest in lengths if isinstance(longest, int))
            others = (len(v) for name, v in axes.items() if name != "max_draft_length")
            total += each * _product(others)
        return total * len(self.batches) * len(self.contexts)

    def tasks(self) -> Iterator[Task]:
        """Yield the grid in parts of about ``PART_POINTS`` points, in the order of the rows."""
        gathered: list[Unit] = []
        size = index = 0
        for unit, points in self._units():
            if gathered and size + points > PART_POINTS:
                yield Task(index=index, points=size, units=tuple(gathered))
                gathered, size, index = [], 0, index + 1
            gathered.append(unit)
            size += points
        if gathered:
            yield Task(index=index, points=size, units=tuple(gathered))

    def _units(self) -> Iterator[tuple[Unit, int]]:
        for block in self.blocks():
            each = 1 + block.workload.max_draft_length
            wide = min(len(self.contexts), max(PART_POINTS // each, 1))
            deep = max(PART_POINTS // (each * wide), 1) if wide == len(self.contexts) else 1
            for rows in _runs(self.batches, deep):
                for columns in _runs(self.contexts, wide):
                    unit = Unit(block=block, batches=rows, contexts=columns)
                    yield unit, each * len(rows) * len(columns)


def _runs(values: Sequence[int], size: int) -> Iterator[tuple[int, ...]]:
    for first in range(0, len(values), size):
        yield tuple(values[first : first + size])


def _product(counts: Iterator[int]) -> int:
    total = 1
    for count in counts:
        total *= count
    return total
