"""Count the classes that hold the step time that ``recommend`` prints.

Run it as ``python -m tests.carriers``. One question is answered while a profiler keeps every object
that a function of the project makes or returns. A class counts where one of its objects holds the
printed ``step_ms`` or something that it is the sum of (verify, draft, overhead, a part, a kernel),
in any unit: in a field, in an array or a container of a field, or in another object of the project
that a field holds.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import FrameType
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from roofline.cli import main

__all__ = ["carriers"]

ASK = "recommend llama-3.1-8b --gpu h100-sxm --batch 8 --acceptance 0.7 --explain --format json"
#: Seconds in a printed unit.
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
Times = NDArray[np.float64]


def carriers() -> list[str]:
    """Return the classes that hold the printed time, or what it is the sum of."""
    answer, objects = _answered()
    times = _printed_times(answer)
    return sorted({_name(item) for item in objects if _holds(_fields(item), times, set())})


def _answered() -> tuple[Any, list[Any]]:
    """Return the answer to the question as data, and the objects that were made for it."""
    objects: dict[int, Any] = {}

    def keep(value: object) -> None:
        if _ours(value):
            objects[id(value)] = value  # kept alive, so that no other object takes its id

    def watch(frame: FrameType, event: str, value: object) -> None:
        if event == "return":
            keep(value)
            if frame.f_code.co_name == "__init__":
                keep(frame.f_locals.get("self"))

    printed = io.StringIO()
    with (
        patch.object(sys, "argv", ["roofline", *ASK.split()]),
        contextlib.suppress(SystemExit),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        sys.setprofile(watch)
        try:
            main()
        finally:
            sys.setprofile(None)
    return json.loads(printed.getvalue()), list(objects.values())


def _printed_times(answer: Any) -> Times:
    """Return the step time of the advised draft length and its parts, in every unit [s, ms, us]."""
    point = answer["points"][0]
    row = point["by_draft_length"][point["draft_length"]]
    seconds = [row[f"{part}_ms"] / 1e3 for part in ("step", "verify", "draft", "overhead")]
    seconds += [ms / 1e3 for ms in row["breakdown_ms"].values()]
    for kernel in answer["explain"][0]["ops"]:
        seconds += [kernel["time_us"] / 1e6, kernel["total_ms"] / 1e3]
    return np.array([s / unit for s in seconds if s > 0 for unit in UNITS.values()])


def _ours(value: object) -> bool:
    return type(value).__module__.startswith("roofline.") and not isinstance(value, type)


def _name(item: object) -> str:
    return f"{type(item).__module__}.{type(item).__qualname__}"


def _fields(item: object) -> Iterator[Any]:
    """Yield what an object holds."""
    if isinstance(item, tuple):
        yield from item
    yield from getattr(item, "__dict__", {}).values()
    for kind in type(item).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if hasattr(item, name):
                yield getattr(item, name)


def _holds(values: Iterable[Any], times: Times, seen: set[int]) -> bool:
    """Return whether values, or what they hold, contain one of the times."""
    for value in values:
        if isinstance(value, float | np.ndarray):
            numbers = np.asarray(value)
            if numbers.dtype.kind == "f" and _any_close(numbers.ravel(), times):
                return True
        elif isinstance(value, Mapping):
            if _holds(value.values(), times, seen):
                return True
        elif type(value) in {list, tuple}:
            if _holds(value, times, seen):
                return True
        elif _ours(value) and id(value) not in seen:
            seen.add(id(value))
            if _holds(_fields(value), times, seen):
                return True
    return False


def _any_close(numbers: Times, times: Times) -> bool:
    return bool(np.isclose(numbers[:, None], times, rtol=1e-12, atol=0).any())


if __name__ == "__main__":
    names = carriers()
    sys.stdout.write("\n".join([*names, f"{len(names)} classes", ""]))
