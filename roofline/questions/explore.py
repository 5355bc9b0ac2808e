"""How the answer moves with the architecture: variants of a model, each priced over batches."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.advice.configuration import Configuration, load_documents
from roofline.advice.decide import smallest_within_tie
from roofline.advice.question import Question, Workload, ask
from roofline.advice.readings import Advice, Place, in_other_reading, with_reading
from roofline.advice.recommend import law_limit_notices, require_fit, slow_format_notices
from roofline.advice.remedies import Refused, does_not_fit, refuse
from roofline.base.errors import DoesNotFitError, InputError
from roofline.base.notices import Code, Notice, notice
from roofline.base.progress import tracked
from roofline.kernels.footprint import kv_bytes_per_token, parameters_total
from roofline.specs.mixers import GroupedQueryAttention
from roofline.specs.overrides import Override, parse_override
from roofline.timing.step import past_graphs

__all__ = [
    "EXPLORED_BATCHES",
    "Axis",
    "Exploration",
    "Variant",
    "explore",
    "holds_from",
    "parse_axis",
]

MOST_VARIANTS = 2000
#: Batches tried where none are given: those that fit; two to a doubling.
EXPLORED_BATCHES = (
    1,
    2,
    *(size for power in range(2, 11) for size in (3 * 2 ** (power - 2), 2**power)),
)
Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """One thing to vary, and the values it takes."""

    path: str
    values: tuple[str, ...]

    def read(self, text: str) -> Any:
        """Return one of the values as it is read: a number is a number.

        >>> Axis(path="group_size", values=("1", "2")).read("2")
        2
        """
        return Override(option="vary", path=self.path, text=text).value


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """One architecture. Arrays over ``draft_lengths`` are at the batch asked for."""

    values: tuple[str, ...]  # one for each axis
    question: Question
    parameters: int
    kv_per_token: float  # of the whole model, each KV head once [B]
    kv_per_token_gpu: float  # of one GPU, copies included [B]
    kv_copied: bool  # fewer KV heads than GPUs
    largest_batch: int  # that fits without drafts; 0 if none does
    batches: tuple[int, ...]  # tried, of those that fit with every draft length
    by_batch: tuple[int, ...]  # best D of each
    speedup: Array  # NaN where it does not fit
    cost_ratio: Array
    step: Array  # [s]
    tokens_per_step: Array
    draft_length: int | None  # best D at the batch asked for; None where that does not fit
    refused: tuple[Refused, ...] = ()  # the batch asked for, where it does not fit

    @property
    def draft_lengths(self) -> tuple[int, ...]:
        """The D looked at."""
        return self.question.draft_lengths

    @property
    def best(self) -> int:
        """The position of the best D; only where the batch asked for fits."""
        return self.draft_lengths.index(self.draft_length or 0)

    @property
    def falls_from(self) -> int | None:
        """The first batch from which on the best D is below that of the smallest batch."""
        first = self.by_batch[0] if self.by_batch else 0
        return holds_from(self.batches, [d < first for d in self.by_batch])

    @property
    def stops_from(self) -> int | None:
        """The first batch from which on not drafting is best."""
        return holds_from(self.batches, [d == 0 for d in self.by_batch])


@dataclass(frozen=True, kw_only=True, slots=True)
class Exploration:
    """Every variant that exists, and what must be said about them."""

    configuration: Configuration
    axes: tuple[Axis, ...]
    batch: int
    context: int
    variants: tuple[Variant, ...]
    notices: tuple[Notice, ...]
    #: The answer if a list of rates that was typed without a word is conditional, not survival.
    other_reading: Exploration | None = None


def parse_axis(text: str) -> Axis:
    """Read ``PATH=VALUE,VALUE``.

    >>> parse_axis("group_size=1,2,4").values
    ('1', '2', '4')
    """
    first = parse_override(text, "vary")
    values = tuple(value.strip() for value in first.text.split(","))
    if not all(values):
        raise InputError(
            "expected PATH=VALUE,VALUE such as group_size=1,2,4", field="vary", value=text
        )
    if len(set(values)) != len(values):
        raise InputError("a value is given twice; list each once", field="vary", value=text)
    return Axis(path=first.path, values=values)


def holds_from(batches: Sequence[int], holds: Sequence[bool]) -> int | None:
    """Return the first batch from which on something holds to the end; None if it never does.

    >>> holds_from([1, 2, 4, 8], [False, True, False, True]), holds_from([1, 2], [True, False])
    (8, None)
    """
    first = None
    for batch, true in zip(reversed(batches), reversed(holds), strict=True):
        if not true:
            break
        first = batch
    return first


def explore(
    configuration: Configuration,
    workload: Workload,
    axes: Sequence[Axis],
    *,
    batch: int,
    batches: Sequence[int] = EXPLORED_BATCHES,
) -> Exploration:
    """Answer for every combination of the axes' values, at the workload's one context.

    Combinations that cannot exist, such as more chosen experts than there are, are left out with a
    warning; a value that leads to no variant at all is refused.
    """
    _check(axes)
    (context,) = workload.contexts
    workload = replace(workload, batches=tuple(sorted({batch, *batches})))
    documents = load_documents(configuration)
    variants, others, notices, failed = [], list[Variant](), list[Notice](), {}
    combinations = list(itertools.product(*(axis.values for axis in axes)))
    for values in tracked(combinations, "variants"):
        overrides = (
            Override(option="vary", path=axis.path, text=value)
            for axis, value in zip(axes, values, strict=True)
        )
        varied = replace(configuration, overrides=(*configuration.overrides, *overrides))
        try:
            question = ask(varied, workload, documents=documents)
            variant, limits = _variant(question, values, batch=batch)
            other = in_other_reading(question)
            if other is not None:
                others.append(_variant(other, values, batch=batch)[0])
        except InputError as error:
            failed[values] = error
            notices.append(notice(Code.VARIANT_LEFT_OUT, problem=error.text))
            continue
        variants.append(variant)
        notices += [*variant.question.notices, *limits]
    _refuse_useless(axes, variants, failed)
    if all(variant.draft_length is None for variant in variants):
        first = does_not_fit(variants[0].question.deployment, batch=batch, context=context)
        raise DoesNotFitError(f"no variant fits; the first: {first.text}")
    fitting = next(variant for variant in variants if variant.draft_length is not None)
    notices += slow_format_notices(fitting.question.deployment, batch=batch, context=context)
    exploration = Exploration(
        configuration=configuration,
        axes=tuple(axes),
        batch=batch,
        context=context,
        variants=tuple(variants),
        notices=(),
    )
    if others:
        exploration = replace(
            exploration, other_reading=replace(exploration, variants=tuple(others))
        )
    acceptance, pairs = variants[0].question.acceptance, _readings(exploration)
    return replace(exploration, notices=with_reading(dict.fromkeys(notices), acceptance, pairs))


def _readings(exploration: Exploration) -> list[tuple[Place, Advice, Advice]] | None:
    """Return what both readings advise for every variant that fits."""
    if exploration.other_reading is None:
        return None
    both = zip(exploration.variants, exploration.other_reading.variants, strict=True)
    paths = [axis.path for axis in exploration.axes]
    return [
        (
            tuple(zip(paths, own.values, strict=True)),
            Advice(draft_length=own.draft_length),
            Advice(draft_length=other.draft_length),
        )
        for own, other in both
        if own.draft_length is not None
    ]


def _check(axes: Sequence[Axis]) -> None:
    count = int(np.prod([len(axis.values) for axis in axes]))
    if not axes:
        raise InputError(
            "give PATH=VALUE,VALUE at least once, such as group_size=1,2,4", field="vary"
        )
    if count > MOST_VARIANTS:
        raise InputError(f"{count} variants, expected at most {MOST_VARIANTS}", field="vary")
    paths = [axis.path for axis in axes]
    if len(set(paths)) != len(paths):
        raise InputError("a path is given twice; give each once with all its values", field="vary")


def _refuse_useless(
    axes: Sequence[Axis], variants: Sequence[Variant], failed: dict[tuple[str, ...], InputError]
) -> None:
    """Raise the error of a value that led to no variant, whatever it was combined with."""
    for i, axis in enumerate(axes):
        useful = {variant.values[i] for variant in variants}
        for value in axis.values:
            if value not in useful:
                raise next(error for values, error in failed.items() if values[i] == value)


def _unpriced(question: Question, values: tuple[str, ...], largest_batch: int) -> Variant:
    """Return a variant with its sizes, priced at no batch and without an answer."""
    model, tp = question.deployment.target.model, question.deployment.target.placement.attention_tp
    kv = question.deployment.target.precision.kv
    mixers = [run.attention for run in model.layers]
    nothing = np.full(len(question.draft_lengths), np.nan)
    return Variant(
        values=values,
        question=question,
        parameters=parameters_total(model),
        kv_per_token=kv_bytes_per_token(model, kv),
        kv_per_token_gpu=kv_bytes_per_token(model, kv, tp=tp),
        kv_copied=any(isinstance(m, GroupedQueryAttention) and m.num_kv_heads < tp for m in mixers),
        largest_batch=largest_batch,
        batches=(),
        by_batch=(),
        speedup=nothing,
        cost_ratio=nothing,
        step=nothing,
        tokens_per_step=nothing,
        draft_length=None,
    )


def _variant(
    question: Question, values: tuple[str, ...], *, batch: int
) -> tuple[Variant, list[Notice]]:
    """Return one variant, and which of its kernels run outside what their laws cover."""
    (context,) = question.workload.contexts
    largest = question.deployment.memory.largest_batch(context=context, draft_length=0)
    batches = tuple(size for size in question.workload.batches if size <= largest)
    unpriced = _unpriced(question, values, largest)
    if batch > largest:
        refused = refuse(question.deployment, [(batch, context)])
        unpriced = replace(unpriced, refused=refused)
    if not batches:
        return unpriced, []
    grid = require_fit(question.price(batches))
    tokens = question.tokens_per_step((context,))[0]
    step, fits = grid.times.total[:, 0], grid.fits[:, 0]
    speed = np.where(fits, tokens / step, np.nan)
    chosen, _ = smallest_within_tie(np.where(grid.candidates[:, 0], speed, np.nan))
    best = np.asarray(question.draft_lengths)[chosen]
    # where memory ends the draft lengths, the best one says nothing about speed
    room = [bool(row.all()) for row in fits]
    priced = replace(
        unpriced,
        batches=tuple(size for size, ok in zip(batches, room, strict=True) if ok),
        by_batch=tuple(map(int, best[room])),
    )
    if batch in batches:
        at = batches.index(batch)
        priced = replace(
            priced,
            speedup=speed[at] / speed[at, 0],
            cost_ratio=np.where(fits[at], step[at] / step[at, 0], np.nan),
            step=step[at],
            tokens_per_step=tokens,
            draft_length=int(best[at]),
        )
    pass_rows = {}
    if batch in batches:
        row, launches = batches.index(batch), grid.times.launches
        captured, rows = launches.captured[row, 0].tolist(), launches.rows[row, 0].tolist()
        pass_rows = {batch: (question.draft_lengths, captured, rows)}
    graph_notices = past_graphs(question.deployment.engine, pass_rows)
    return priced, [*law_limit_notices(grid.times), *graph_notices]
