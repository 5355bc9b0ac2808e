"""From flags and a grid file to a plan: which values every option of the question takes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

from roofline.advice.deployment import Configuration, check_configuration
from roofline.advice.question import Workload, check_workload
from roofline.base.errors import InputError
from roofline.cli.axes import option_flags, option_types
from roofline.cli.question import question
from roofline.questions.sweep.axes import numbers, once
from roofline.questions.sweep.columns import ASKED, Column, Kind
from roofline.questions.sweep.plan import Plan, Scalar

__all__ = ["plan_for"]

#: The options of a question, in its order.
OPTIONS = tuple(inspect.signature(question).parameters)
#: Options whose values hold commas: each has to be given by itself.
WHOLE = ("acceptance", "overhead_ms", "tensor_split")
#: Options by their names in a grid file: the flag's, with underscores.
_KEYS = {
    "model" if name == "model" else flag.removeprefix("--").replace("-", "_"): name
    for name, flag in option_flags().items()
}
_FIELDS = {name: key for key, name in _KEYS.items()}
Given = Mapping[str, Any]
Axes = dict[str, tuple[Scalar, ...]]


def plan_for(flags: Given, grid: Path | None) -> Plan:
    """Return the plan of the flags given, on top of those of the file.

    A flag holds the texts of its occurrences, or None.
    """
    from_file: dict[str, Any] = {}
    if grid is not None:
        from roofline.questions.sweep.grid_file import read_grid

        from_file = read_grid(grid, tuple(_KEYS))
        if from_file.get("cases") == ():
            raise InputError(f"{grid}: cases: expected at least one; list some, or take it out")
    cases = [_from_file(case) for case in from_file.pop("cases", ())]
    axes = _from_file(from_file) | _from_flags(flags)
    batches, contexts = (axes.pop(name, default) for name, default in _RECTANGLE.items())
    if "model" not in axes and not (cases and all("model" in case for case in cases)):
        raise InputError("MODEL: give one or more ids or paths, here or as 'model' in --grid")
    _check(axes, cases)
    sizes = _sizes("batch", batches), _sizes("context", contexts)
    for pick in (min, max):
        check_workload(Workload(batches=(pick(sizes[0]),), contexts=(pick(sizes[1]),)))
    names = [name for name in OPTIONS if name not in {column.name for column in ASKED}]
    return Plan(
        axes=axes,
        cases=tuple(cases) or ({},),
        batches=sizes[0],
        contexts=sizes[1],
        ask=_ask,
        order=OPTIONS,
        extra=tuple(
            Column(name=name, kind=_kind(name), meaning=f"{_flag(name)}, as asked")
            for name in names
            if len(_values(name, axes, cases)) > 1
        ),
    )


_RECTANGLE: dict[str, tuple[Scalar, ...]] = {"batch": (1,), "context": (4096,)}


def _ask(**given: Any) -> tuple[Configuration, Workload]:
    """Return the question with these options; the model does not matter where it is missing."""
    return question(**({"model": ""} | given))


def _from_flags(flags: Given) -> Axes:
    found: Axes = {}
    for name, texts in flags.items():
        if not texts:
            continue
        if isinstance(texts, bool):
            found[name] = (texts,)
        elif _is_list(name):
            found[name] = (tuple(texts),)
        elif name in WHOLE:
            found[name] = tuple(texts)
        else:
            found[name] = tuple(value for text in texts for value in _listed(name, text))
    return found


def _listed(name: str, text: str) -> tuple[Scalar, ...]:
    """Return the values in a flag's text."""
    kind = _kind(name)
    if kind is Kind.INTEGER:
        return numbers(_FIELDS.get(name, name), text)
    return tuple(_typed(name, item.strip()) for item in text.split(","))


def _from_file(given: Given) -> Axes:
    found: Axes = {}
    for key, value in given.items():
        if value is None:
            continue
        name = _KEYS.get(key, key)
        values = value if isinstance(value, list | tuple) else (value,)
        if _is_list(name):
            found[name] = (tuple(map(str, values)),)
        elif _kind(name) is Kind.INTEGER:
            found[name] = numbers(_FIELDS.get(name, name), ",".join(map(str, values)))
        else:
            found[name] = tuple(_typed(name, item) for item in values)
    return found


def _typed(name: str, value: Scalar) -> Scalar:
    match _kind(name):
        case Kind.NUMBER:
            try:
                return float(value)  # type: ignore[arg-type]
            except (TypeError, ValueError):
                raise InputError(f"{_flag(name)} {value}: expected a number") from None
        case Kind.BOOLEAN:
            if str(value).lower() not in ("true", "false"):
                raise InputError(f"{_flag(name)} {value}: expected true or false")
            return str(value).lower() == "true"
        case _:
            return str(value)


def _sizes(name: str, values: Sequence[Scalar]) -> tuple[int, ...]:
    once(_FIELDS.get(name, name), tuple(values))
    return tuple(value for value in values if isinstance(value, int))


def _values(name: str, axes: Axes, cases: Sequence[Axes]) -> set[Scalar]:
    """Return every value that an option takes anywhere; None where a case leaves it out."""
    if not cases:
        return set(axes.get(name, ()))
    return {value for case in cases for value in case.get(name, axes.get(name, (None,)))}


def _check(axes: Axes, cases: Sequence[Axes]) -> None:
    """Refuse a value given twice, a misspelt value or name: in a grid of millions it is no wish."""
    seen: set[object] = set()
    for number, case in enumerate(cases or ({},), start=1):
        both = axes | case
        for name, values in both.items():
            _not_empty(name, values)
        same = frozenset((n, frozenset(_sense(n, v) for v in vs)) for n, vs in both.items())
        if same in seen:
            raise InputError(f"--grid: cases: entry {number} is given twice; list each case once")
        seen.add(same)
        first = {name: values[0] for name, values in both.items() if values}
        for name, values in both.items():
            once(_FIELDS.get(name, name), values, functools.partial(_sense, name))
            for value in values:
                configuration, workload = _ask(**(first | {name: value}))
                check_configuration(configuration)
                check_workload(workload)
                _known(name, str(value))


def _not_empty(name: str, values: Sequence[Scalar]) -> None:
    if any(isinstance(value, str) and not value.strip() for value in values):
        raise InputError(
            f"{_flag(name)}: a value is empty; give names or values with one comma between them"
        )


def _sense(name: str, value: Scalar) -> object:
    """Return what a value stands for: numbers with commas may be spelt in several ways."""
    if name in WHOLE:
        with suppress(ValueError):
            return tuple(float(item) for item in str(value).split(","))
    return value


def _known(name: str, value: str) -> None:
    """Refuse a name that stands for nothing."""
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
                f"--acceptance {value}: it may change while the sweep runs; save it first with "
                "'roofline acceptance read', and give the file"
            )


def _flag(name: str) -> str:
    return "MODEL" if name == "model" else option_flags().get(name, f"--{name}")


def _bare(name: str) -> set[Any]:
    """Return the types that an option's value may have."""
    if name in _RECTANGLE:
        return {int}
    annotation = option_types()[name]
    return {kind for kind in (get_args(annotation) or (annotation,)) if kind is not type(None)}


def _is_list(name: str) -> bool:
    return any(kind is list or getattr(kind, "__origin__", None) is list for kind in _bare(name))


def _kind(name: str) -> Kind:
    kinds = _bare(name)
    for python, kind in ((bool, Kind.BOOLEAN), (int, Kind.INTEGER), (float, Kind.NUMBER)):
        if python in kinds:
            return kind
    return Kind.TEXT
