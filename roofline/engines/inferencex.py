"""InferenceX golden acceptance files: tokens per step by draft length, bonus token counted.

``model: {thinking_on: {1: 1.78, 2: 2.38}}``, as in its golden_al_distribution folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from roofline.base.errors import InputError, did_you_mean
from roofline.engines.counted import Bonus, Counted
from roofline.engines.counts import Reading
from roofline.engines.fields import (
    checked_number,
)

__all__ = ["curves_in", "read_golden"]


def curves_in(data: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, dict[int, float]]]:
    """Yield every mapping from whole numbers to numbers, with the keys that lead to it.

    >>> dict(curves_in({"m": {"thinking_on": {1: 1.78, 2: 2.38}}}))
    {'m/thinking_on': {1: 1.78, 2: 2.38}}
    """
    if not isinstance(data, dict) or not data or len(path) > 4:
        return
    if all(type(key) is int and not isinstance(v, dict | list) for key, v in data.items()):
        yield "/".join(path), data
        return
    for key, value in data.items():
        if not str(key).startswith("_"):
            yield from curves_in(value, (*path, str(key)))


def read_golden(data: dict[str, Any], where: str, part: str | None) -> Reading:
    """Read one curve of a file; ask which where there are several."""
    curves = dict(curves_in(data))
    if not curves:
        raise InputError(
            "neither an acceptance file (schema: 1) nor one of InferenceX "
            "(model: {thinking_on: {1: 1.8}})",
            where=where,
        )
    matching = [name for name in curves if part in (None, name, name.rsplit("/", 1)[-1])]
    if not matching:
        short = [name.rsplit("/", 1)[-1] for name in curves]
        raise InputError(f"has no curve '{part}': {did_you_mean(str(part), short)}", where=where)
    if len(matching) > 1:
        raise InputError(
            f"holds several curves; say which, as {where}#{matching[0]}: " + ", ".join(matching),
            where=where,
        )
    name = matching[0]
    curve = {d: checked_number(al, f"{name}: {d}", where) for d, al in curves[name].items()}
    for length, value in curve.items():
        if length < 1 or not 1 <= value <= 1 + length:
            raise InputError(
                f"{name}: D={length} must have 1 to {1 + length} tokens per step, got {value:g}",
                where=where,
            )
    deepest = max(curve)
    return Reading(
        counted=Counted(engine="inferencex", passes=None, bonus=Bonus.IN, tokens=None),
        how="golden curve",
        where=where,
        model=name,
        tokens_per_step=curve[deepest],
        draft_length=deepest,
        curve=curve,
    )
