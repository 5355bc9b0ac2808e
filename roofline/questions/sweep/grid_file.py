"""A grid as a YAML file: the options of a question as axes, and cases that go together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, create_model

from roofline.base.schema import Document, Readable, Schema

__all__ = ["read_grid"]

#: Each is a question of its own, checked before any is priced.
MOST_CASES = 10_000
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
    grid = create_model(
        "Grid",
        __base__=Document,
        cases=(Annotated[tuple[case, ...], Field(max_length=MOST_CASES)], ()),
        **axes,
    )
    return grid.load(file).model_dump(exclude_unset=True, exclude={"version"})
