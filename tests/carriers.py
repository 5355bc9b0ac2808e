"""Count the classes that hand on the step time that ``recommend`` prints.

Run it as ``python -m tests.carriers``.

The same question is answered twice, the second time with slower kernels. A class counts where its
objects hold other numbers the second time: in a field, in an array or a container of a field, or
in another object of the project that a field holds. An object is seen where a function of the
project makes it or returns it.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import FrameType
from typing import Any
from unittest.mock import patch

import numpy as np

from roofline.cli import main
from roofline.timing import machine

__all__ = ["carriers"]

ASK = ("recommend", "llama-3.1-8b", "--gpu", "h100-sxm", "--batch", "8", "--acceptance", "0.7")
DEEPEST = 8


def carriers() -> list[str]:
    """Return the classes whose numbers follow the times of the kernels."""
    law = machine._by_law

    def slower(*given: Any) -> Any:
        time = law(*given)
        return replace(time, total=1.01 * time.total)

    _numbers_by_class()  # imports what it needs
    plain = _numbers_by_class()
    with patch.object(machine, "_by_law", slower):
        changed = _numbers_by_class()
    return sorted(name for name in {*plain, *changed} if plain.get(name) != changed.get(name))


def _numbers_by_class() -> dict[str, list[float]]:
    """Answer the question, and return the numbers that objects of each class held meanwhile."""
    kept: dict[int, Any] = {}

    def keep(value: object) -> None:
        if _ours(value):
            kept[id(value)] = value  # kept alive, so that no other object takes its id

    def watch(frame: FrameType, event: str, value: object) -> None:
        if event == "return":
            keep(value)
            if frame.f_code.co_name == "__init__":
                keep(frame.f_locals.get("self"))

    silence = io.StringIO()
    with patch.object(sys, "argv", ["roofline", *ASK]), contextlib.suppress(SystemExit):
        sys.setprofile(watch)
        try:
            with contextlib.redirect_stdout(silence), contextlib.redirect_stderr(silence):
                main()
        finally:
            sys.setprofile(None)
    numbers: dict[str, list[float]] = defaultdict(list)
    for item in kept.values():
        numbers[f"{type(item).__module__}.{type(item).__qualname__}"] += _held(_fields(item))
    return {name: sorted(held) for name, held in numbers.items()}


def _ours(value: object) -> bool:
    return type(value).__module__.startswith("roofline.")


def _fields(item: object) -> Iterator[Any]:
    """Yield what an object holds."""
    if isinstance(item, tuple):
        yield from item
    yield from getattr(item, "__dict__", {}).values()
    for kind in type(item).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if hasattr(item, name):
                yield getattr(item, name)


def _held(values: Iterable[Any], depth: int = 0) -> list[float]:
    """Return every number in values, and in what they hold."""
    found: list[float] = []
    for value in values:
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            found += value.ravel().tolist()
        elif isinstance(value, float):
            found.append(value)
        elif isinstance(value, Mapping):
            found += _held(value.values(), depth)
        elif type(value) in {list, tuple}:
            found += _held(value, depth)
        elif _ours(value) and depth < DEEPEST:
            found += _held(_fields(value), depth + 1)
    return found


if __name__ == "__main__":
    names = carriers()
    sys.stdout.write("\n".join([*names, f"{len(names)} classes", ""]))
