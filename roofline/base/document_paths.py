"""Places in a document by dotted path: what is there, and what may be put there instead.

A list on the way stands for all its entries that have the rest of the path; a number picks one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from roofline.base.schema import Figure

__all__ = ["GIVEN", "Place", "find", "options"]

#: The source of a figure that was put in place of the file's.
GIVEN = "given"
#: Fields that say what a document is and where it comes from: no quantity, so nothing to change.
_IDENTITY = frozenset({"version", "kind", "source", "sources", "flags", "disputed", "eras"})
_Node = tuple[object, Any]  # a part of the document, and the same part as plain data


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """One value of a document, in its plain data."""

    holder: dict[str, Any]
    key: str
    figure: bool

    @property
    def value(self) -> Any:
        """What is there now."""
        held = self.holder.get(self.key)
        return held.get("value") if self.figure and isinstance(held, dict) else held

    def put(self, value: Any) -> None:
        """Put another value there, unchecked; a figure's source becomes ``GIVEN``."""
        self.holder[self.key] = {"value": value, "source": GIVEN} if self.figure else value


def find(document: BaseModel, data: Any, path: Sequence[str]) -> list[Place]:
    """Return the places that a path leads to; ``data`` is the document as plain data."""
    nodes = _walk(document, data, path[:-1])
    return [place for node, held in _flat(nodes) for place in _leaf(node, held, path[-1])]


def options(document: BaseModel, data: Any, path: Sequence[str]) -> tuple[str, list[str]]:
    """Return the longest start of ``path`` that exists, and what there is to choose from there."""
    for end in range(len(path), -1, -1):
        nodes = list(_flat(_walk(document, data, path[:end])))
        names = {name for node, held in nodes for name in _names(node, held)}
        if names:
            return ".".join(path[:end]), sorted(names)
    return "", []


def _walk(document: BaseModel, data: Any, path: Sequence[str]) -> list[_Node]:
    nodes: list[_Node] = [(document, data)]
    for part in path:
        nodes = [found for node, held in nodes for found in _step(node, held, part)]
    return nodes


def _step(node: object, held: Any, part: str) -> Iterator[_Node]:
    if isinstance(node, tuple):
        if part.isdecimal() and len(part) < 10:
            yield from list(zip(node, held, strict=True))[int(part) : int(part) + 1]
        else:
            for inner in zip(node, held, strict=True):
                yield from _step(*inner, part)
    elif isinstance(node, BaseModel) and part in _fields(node):
        yield getattr(node, part), held[part]
    elif isinstance(node, dict) and part in held:
        yield {str(key): value for key, value in node.items()}[part], held[part]


def _flat(nodes: Sequence[_Node]) -> Iterator[_Node]:
    for node, held in nodes:
        if isinstance(node, tuple):
            yield from zip(node, held, strict=True)
        else:
            yield node, held


def _leaf(node: object, held: Any, name: str) -> Iterator[Place]:
    if isinstance(node, BaseModel) and not isinstance(node, Figure) and name in _fields(node):
        value = getattr(node, name)
        figure = isinstance(value, Figure) or (value is None and _is_figure(_fields(node)[name]))
        if figure or not isinstance(value, BaseModel | tuple | dict):
            yield Place(holder=held, key=name, figure=figure)
    elif isinstance(node, dict):
        yield Place(holder=held, key=name, figure=any(isinstance(v, Figure) for v in node.values()))


def _names(node: object, held: Any) -> list[str]:
    if isinstance(node, BaseModel) and not isinstance(node, Figure):
        return list(_fields(node))
    return list(held) if isinstance(node, dict) else []


def _fields(node: BaseModel) -> dict[str, set[Any]]:
    """Return the fields that hold sizes, formats, switches or groups of them, with their types."""
    kinds = {name: _types(f.annotation) for name, f in type(node).model_fields.items()}
    return {
        name: types
        for name, types in kinds.items()
        if name not in _IDENTITY and not types <= {str} and not any(map(_is_plain_list, types))
    }


def _types(annotation: Any) -> set[Any]:
    """Return the alternatives of an annotation, None left out."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _types(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return {kind for inner in get_args(annotation) for kind in _types(inner)}
    return set() if annotation is NoneType else {annotation}


def _is_plain_list(kind: Any) -> bool:
    """Return whether a type is a list of anything but parts with fields of their own."""
    parts = get_args(kind)[:1] if get_origin(kind) is tuple else ()
    return any(not (isinstance(part, type) and issubclass(part, BaseModel)) for part in parts)


def _is_figure(types: set[Any]) -> bool:
    return any(isinstance(kind, type) and issubclass(kind, Figure) for kind in types)
