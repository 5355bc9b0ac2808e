"""The grid of a sweep, cut into tasks: lists of rectangles, each priced and written as one part."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roofline.advice.columns import Column
from roofline.advice.configuration import Configuration
from roofline.advice.question import Workload
from roofline.questions.sweep.columns import ASKED_FOR

__all__ = ["Combination", "OptionValue", "Rectangle", "SweepPlan", "Task"]

#: Points of one part: a quarter of a second's work, and small enough to hold many at once.
PART_POINTS = 2**17

OptionValue = str | int | float | bool | tuple[str, ...] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Combination:
    """One combination of the options; ``extra`` has the values of the grid's further columns."""

    configuration: Configuration
    workload: Workload
    #: The grid has several drafters: an option is for those that have it.
    drop_unused: bool = False
    extra: tuple[tuple[str, OptionValue], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Rectangle:
    """A rectangle of one combination."""

    combination: Combination
    batches: tuple[int, ...]
    contexts: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """The rectangles that make one part of the output."""

    index: int
    points: int  # at most: a drafter or an acceptance may end before the longest draft
    rectangles: tuple[Rectangle, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepPlan:
    """Axes to multiply out; each of ``cases`` holds options that go together.

    Rows follow the order of the cases, then of the axes as the question lists them, then batch,
    context and draft length.
    """

    axes: Mapping[str, tuple[OptionValue, ...]]
    cases: tuple[Mapping[str, tuple[OptionValue, ...]], ...]
    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    ask: Callable[..., tuple[Configuration, Workload]]
    order: tuple[str, ...]  # of the options
    extra: tuple[Column, ...] = ()
    tuned: str = ""  # the tuning file that moved what is priced, and how many timings it held

    @property
    def priced(self) -> bool:
        """Whether any combination has the price of a GPU."""
        return any("gpu_hour" in options for options in (self.axes, *self.cases))

    def as_data(self) -> dict[str, Any]:
        """Return the grid as JSON writes it."""
        return {
            "axes": {name: list(values) for name, values in self.axes.items()},
            "cases": [{n: list(values) for n, values in case.items()} for case in self.cases],
            "batches": list(self.batches),
            "contexts": list(self.contexts),
            **({"tuned": self.tuned} if self.tuned else {}),
        }

    def texts(self) -> set[str]:
        """Return every text that an option was given: names, and paths of files."""
        values = (v for given in (self.axes, *self.cases) for some in given.values() for v in some)
        return {value for value in values if isinstance(value, str)}

    def _axes_of(
        self, case: Mapping[str, tuple[OptionValue, ...]]
    ) -> dict[str, tuple[OptionValue, ...]]:
        both = {**self.axes, **case}
        return {name: both[name] for name in self.order if name in both}

    def combinations(self) -> Iterator[Combination]:
        """Yield every combination of the options; the rectangles have batches and contexts."""
        several = (
            len({d for case in self.cases for d in self._axes_of(case).get("drafter", ())}) > 1
        )
        for case in self.cases:
            axes = self._axes_of(case)
            for values in itertools.product(*axes.values()):
                options = dict(zip(axes, values, strict=True))
                configuration, workload = self.ask(**options)
                yield Combination(
                    configuration=configuration,
                    workload=workload,
                    drop_unused=several,
                    extra=tuple(
                        (column.key, options.get(column.key.removesuffix(ASKED_FOR)))
                        for column in self.extra
                    ),
                )

    @property
    def points(self) -> int:
        """How many points there are at most, counted without making them."""
        total = 0
        for case in self.cases:
            axes = self._axes_of(case)
            lengths = axes.get("max_draft_length", (self.ask()[1].max_draft_length,))
            rows = sum(1 + int(longest) for longest in lengths if isinstance(longest, int))
            others = (len(v) for name, v in axes.items() if name != "max_draft_length")
            total += rows * math.prod(others)
        return total * len(self.batches) * len(self.contexts)

    def tasks(self) -> Iterator[Task]:
        """Yield the grid in parts of about ``PART_POINTS`` points, in the order of the rows."""
        rectangles: list[Rectangle] = []
        size = index = 0
        for rectangle, points in self._rectangles():
            if rectangles and size + points > PART_POINTS:
                yield Task(index=index, points=size, rectangles=tuple(rectangles))
                rectangles, size, index = [], 0, index + 1
            rectangles.append(rectangle)
            size += points
        if rectangles:
            yield Task(index=index, points=size, rectangles=tuple(rectangles))

    def _rectangles(self) -> Iterator[tuple[Rectangle, int]]:
        for combination in self.combinations():
            lengths = 1 + combination.workload.max_draft_length
            wide = min(len(self.contexts), max(PART_POINTS // lengths, 1))
            deep = max(PART_POINTS // (lengths * wide), 1) if wide == len(self.contexts) else 1
            for batches in _runs(self.batches, deep):
                for contexts in _runs(self.contexts, wide):
                    rectangle = Rectangle(
                        combination=combination, batches=batches, contexts=contexts
                    )
                    yield rectangle, lengths * len(batches) * len(contexts)


def _runs(values: Sequence[int], size: int) -> Iterator[tuple[int, ...]]:
    for first in range(0, len(values), size):
        yield tuple(values[first : first + size])
