"""A grid as a YAML file: the options of a question as axes, and cases that go together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import create_model

from roofline.schema import Document, Schema
from roofline.yamlio import Readable

__all__ = ["read_grid"]

Scalar = str | int | float | bool
Axis = Scalar | tuple[Scalar, ...]


def read_grid(file: Readable, options: Sequence[str]) -> dict[str, Any]:
    """Return the axes in ``file``; ``options`` are the names that an axis may have.

    ``batch`` and ``context`` are axes as well. ``cases`` is a list of mappings with the same keys:
    what stands in one of them goes together, and is multiplied with the axes outside.
    """
    names = (*options, "batch", "context")
    axes: dict[str, Any] = dict.fromkeys(names, (Axis | None, None))
    case = create_model("Case", __base__=Schema, **{n: axes[n] for n in options})
    grid = create_model("Grid", __base__=Document, cases=(tuple[case, ...], ()), **axes)
    return grid.load(file).model_dump(exclude_unset=True, exclude={"version"})
