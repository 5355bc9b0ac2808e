"""The plan of a sweep, made from the values of every option and from a grid file."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from roofline.advice.columns import Column, ColumnKind
from roofline.advice.configuration import (
    LISTED,
    Configuration,
    check_configuration,
    question_from,
)
from roofline.advice.question import Workload, ask
from roofline.base.errors import InputError, Option
from roofline.base.names import on_shelf
from roofline.base.values import DOLLARS, amount
from roofline.questions.sweep.axes import axis_numbers, check_distinct
from roofline.questions.sweep.columns import ASKED, option_column
from roofline.questions.sweep.plan import OptionValue, SweepPlan
from roofline.specs.formats import format_named

if TYPE_CHECKING:
    from roofline.questions.tune.learned import Learned

__all__ = ["plan_for"]

#: The price of a GPU, an axis as the options of a question are.
PRICE = "gpu_hour"
#: The options of a question, in its order.
OPTIONS = tuple(inspect.signature(question_from).parameters)
#: Options whose values hold commas, so that several are given one by one.
WITH_COMMAS = ("acceptance", *LISTED)
#: The option whose values are taken all at once: it is no axis.
TOGETHER = "set"
Values = Mapping[str, Any]
Axes = dict[str, tuple[OptionValue, ...]]


def plan_for(options: Values, grid: Path | None = None, *, tuned: Path | None = None) -> SweepPlan:
    """Return the plan of these options, on top of those of the file.

    An option holds the texts that were given for it one by one, or None. ``tuned`` is a tuning
    file: it says the question, and its timings move what is priced.
    """
    from_file: dict[str, Any] = {}
    if grid is not None:
        from roofline.questions.sweep.axes import read_grid

        from_file = read_grid(grid, OPTIONS)
        if from_file.get("cases") == ():
            raise InputError(f"{grid}: cases: expected at least one; list some, or take it out")
    cases = [_from_file(case) for case in from_file.pop("cases", ())]
    axes = _from_file(from_file) | _from_texts(options)
    learned: Learned | None = None
    if tuned is not None:
        learned, axes = _learned(tuned, axes, cases)
    batches, contexts = (axes.pop(name, default) for name, default in _RECTANGLE.items())
    if "model" not in axes and not (cases and all("model" in case for case in cases)):
        raise InputError(
            f"give one or more ids or paths, here or as 'model' in {Option('grid')}", field="model"
        )
    _check(axes, cases)
    sizes = _sizes("batch", batches), _sizes("context", contexts)
    for pick in (min, max):
        Workload(batches=(pick(sizes[0]),), contexts=(pick(sizes[1]),))  # refuses odd sizes
    names = [name for name in OPTIONS if name not in {column.key for column in ASKED}]
    plan = SweepPlan(
        axes=axes,
        cases=tuple(cases) or ({},),
        batches=sizes[0],
        contexts=sizes[1],
        ask=question_from if learned is None else functools.partial(_tuned, learned),
        tuned="" if learned is None else f"{tuned}: {learned.label}",
        order=OPTIONS,
        extra=tuple(
            Column(key=option_column(name), kind=_kind(name), meaning=f"`{name}` as asked")
            for name in names
            if len(_values(name, axes, cases)) > (0 if name == PRICE else 1)
        ),
    )
    if learned is not None:  # refuses another deployment before anything is written
        first = next(plan.combinations())
        ask(first.configuration, first.workload)
    return plan


def _tuned(learned: Learned, **options: Any) -> tuple[Configuration, Workload]:
    """Return the question of these options, with what was learned."""
    configuration, workload = question_from(**options)
    return configuration, replace(workload, tuned=learned)


def _learned(file: Path, axes: Axes, cases: Sequence[Axes]) -> tuple[Learned, Axes]:
    """Return what a tuning file teaches, and the axes with what it says of the question."""
    from roofline.questions.tune.asked import DEPLOYED, check_beside, learned_in

    learned, options = learned_in(file)
    if cases:
        raise InputError("cases: a tuning file is about one deployment; leave them out")
    for name, values in axes.items():
        if name in DEPLOYED and len(values) > 1:
            raise InputError("a tuning file is about one deployment; give one value", field=name)
        for value in () if name == PRICE else values:
            check_beside(file, options, name, value)
    said: Axes = {}
    for name, value in options.items():
        if name == "overrides":
            said[TOGETHER] = (tuple(value),)
        elif name in _RECTANGLE:
            said[name] = axis_numbers(name, value)
        else:
            said[name] = (value,)
    return learned, said | axes


_RECTANGLE: dict[str, tuple[OptionValue, ...]] = {"batch": (1,), "context": (4096,)}


def _from_texts(options: Values) -> Axes:
    axes: Axes = {}
    for name, texts in options.items():
        if not texts:
            continue
        if isinstance(texts, bool):
            axes[name] = (texts,)
        elif name == TOGETHER:
            axes[name] = (tuple(texts),)
        elif name in WITH_COMMAS:
            axes[name] = tuple(texts)
        else:
            axes[name] = tuple(value for text in texts for value in _listed(name, text))
    return axes


def _listed(name: str, text: str) -> tuple[OptionValue, ...]:
    """Return the values in one text."""
    kind = _kind(name)
    if kind is ColumnKind.INTEGER:
        return axis_numbers(name, text)
    return tuple(_typed(name, item.strip()) for item in text.split(","))


def _from_file(entries: Values) -> Axes:
    axes: Axes = {}
    for name, value in entries.items():
        if value is None:
            continue
        values = value if isinstance(value, list | tuple) else (value,)
        if name == TOGETHER:
            axes[name] = (tuple(map(str, values)),)
        elif _kind(name) is ColumnKind.INTEGER:
            axes[name] = axis_numbers(name, ",".join(map(str, values)))
        else:
            axes[name] = tuple(_typed(name, item) for item in values)
    return axes


def _typed(name: str, value: OptionValue) -> OptionValue:
    if name == PRICE:
        return amount(name, str(value), DOLLARS, "dollars such as 2.5")
    match _kind(name):
        case ColumnKind.NUMBER:
            try:
                return float(value)  # type: ignore[arg-type]
            except (TypeError, ValueError):
                raise InputError("expected a number", field=name, value=value) from None
        case ColumnKind.BOOLEAN:
            if str(value).lower() not in ("true", "false"):
                raise InputError("expected true or false", field=name, value=value)
            return str(value).lower() == "true"
        case _:
            return str(value)


def _sizes(name: str, values: Sequence[OptionValue]) -> tuple[int, ...]:
    check_distinct(name, tuple(values))
    return tuple(value for value in values if isinstance(value, int))


def _values(name: str, axes: Axes, cases: Sequence[Axes]) -> set[OptionValue]:
    """Return every value that an option takes anywhere; None where a case leaves it out."""
    if not cases:
        return set(axes.get(name, ()))
    return {value for case in cases for value in case.get(name, axes.get(name, (None,)))}


def _check(axes: Axes, cases: Sequence[Axes]) -> None:
    """Refuse what is given twice, and values and names that are not known."""
    seen: set[object] = set()
    for number, case in enumerate(cases or ({},), start=1):
        merged = axes | case
        for name, values in merged.items():
            _check_not_empty(name, values)
        content = frozenset((n, frozenset(_meaning(n, v) for v in vs)) for n, vs in merged.items())
        if content in seen:
            raise InputError(
                f"cases: entry {number} is given twice; list each case once", field="grid"
            )
        seen.add(content)
        first: dict[str, Any] = {name: values[0] for name, values in merged.items() if values}
        for name, values in merged.items():
            check_distinct(name, values, functools.partial(_meaning, name))
            for value in values:
                configuration, _ = question_from(**(first | {name: value}))
                check_configuration(configuration)
                _check_name(name, str(value))


def _check_not_empty(name: str, values: Sequence[OptionValue]) -> None:
    if any(isinstance(value, str) and not value.strip() for value in values):
        raise InputError(
            "a value is empty; give names or values with one comma between them", field=name
        )


#: Options whose values are names on a shelf.
_SHELVES = {"model": "model_specs", "gpu": "hardware_profiles"}


def _meaning(name: str, value: OptionValue) -> object:
    """Return what a value means: numbers and names may be written in several ways."""
    if name in _SHELVES:
        named = on_shelf(str(value), _SHELVES[name], storage=format_named)
        return value if named is None else (named.id, named.storage)
    if name in WITH_COMMAS:
        with suppress(ValueError):
            return tuple(float(item) for item in str(value).split(","))
    return value


def _check_name(name: str, value: str) -> None:
    """Refuse the name of a model, GPU or engine that is not known."""
    from roofline.importers.references import open_model
    from roofline.specs.engine import load_engine
    from roofline.specs.gpu import load_hardware

    match name:
        case "model":
            open_model(value)
        case "gpu":
            load_hardware(value)
        case "engine":
            load_engine(value)
        case "acceptance" if value.startswith(("http://", "https://")):
            raise InputError(
                "it may change while the sweep runs; save it first with 'roofline acceptance "
                "read', and give the file",
                field="acceptance",
                value=value,
            )


@functools.cache
def _option_types() -> dict[str, Any]:
    return get_type_hints(question_from)


def _value_types(name: str) -> set[Any]:
    """Return the types that an option's value may have."""
    if name in _RECTANGLE:
        return {int}
    annotation = _option_types()[name]
    return {kind for kind in (get_args(annotation) or (annotation,)) if kind is not type(None)}


def _kind(name: str) -> ColumnKind:
    kinds = _value_types(name)
    for python, kind in (
        (bool, ColumnKind.BOOLEAN),
        (int, ColumnKind.INTEGER),
        (float, ColumnKind.NUMBER),
    ):
        if python in kinds:
            return kind
    return ColumnKind.TEXT
