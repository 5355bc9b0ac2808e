"""``PATH=VALUE``: a model, drafter, accelerator or engine with some of its values changed.

The changed document is checked by the schema that its file is checked by.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel

from roofline.base.errors import InputError, Option, did_you_mean
from roofline.base.schema import Document, Figure, as_json
from roofline.base.units import format_quantity, parse_size
from roofline.specs.network import ModelSpec, NetworkSpec

__all__ = [
    "GIVEN",
    "Change",
    "Override",
    "Place",
    "changed",
    "find",
    "options",
    "parse_override",
    "spread_layers",
]

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


#: Short names of what architects vary; each also works behind ``drafter.``.
ALIASES = {
    "group_size": "num_heads / num_kv_heads of every attention layer, by changing num_kv_heads",
    "experts": "mlp.num_experts",
    "top_k": "mlp.top_k",
    "head_dim": "attention.head_dim",
    "layers": "the number of layers, kinds of layers in their proportions",
}
_RENAMED = {
    "experts": ("mlp", "num_experts"),
    "top_k": ("mlp", "top_k"),
    "head_dim": ("attention", "head_dim"),
}
_ROOTS = ("model", "drafter", "gpu", "engine")
_IN_LAYERS = ("attention", "mlp")
Some = TypeVar("Some", bound=Document)


@dataclass(frozen=True, kw_only=True, slots=True)
class Override:
    """One value to put in place of a document's own."""

    option: str  # that it was given by: set or vary
    path: str
    text: str

    def __str__(self) -> str:
        """Return the option with its value, as texts hold it."""
        return str(Option(self.option, self._given))

    @property
    def _given(self) -> str:
        return f"{self.path}={self.text}"

    def wrong(self, problem: str) -> InputError:
        """Return the refusal of this override."""
        return InputError(problem, field=self.option, value=self._given)

    @property
    def root(self) -> str:
        """What it changes: model, drafter, gpu or engine."""
        first = self.path.split(".", 1)[0]
        return first if first in _ROOTS else "model"

    @property
    def parts(self) -> tuple[str, ...]:
        """The path inside what it changes."""
        parts = tuple(self.path.split("."))
        return parts[1:] if parts[0] in _ROOTS else parts

    @property
    def value(self) -> Any:
        """The value as JSON would have it."""
        return _scalar(self.text)


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """What an override did."""

    option: str  # that it was given by: set or vary
    path: str
    value: str
    was: str

    def __str__(self) -> str:
        """Say it in a few words."""
        return f"{self.path} = {self.value} (was {self.was})"


def parse_override(text: str, option: str = "set") -> Override:
    """Read ``PATH=VALUE``.

    >>> parse_override("attention.num_kv_heads=4").value
    4
    """
    path, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not path or not value:
        raise InputError(
            "expected PATH=VALUE such as attention.num_kv_heads=4", field=option, value=text
        )
    override = Override(option=option, path=path, text=value)
    first, dot, _ = path.partition(".")
    starts = (*_ROOTS, *_IN_LAYERS)
    if not (first in starts and dot) and path not in ALIASES:
        known = [*(f"{start}." for start in starts), *ALIASES]
        near = did_you_mean(first, [*starts, *ALIASES])
        hint = f"{near} " if "did you mean" in near else _rooted(first)
        raise InputError(
            f"unknown path; {hint}a path is one of {', '.join(known)}", field=option, value=text
        )
    return override


def _rooted(first: str) -> str:
    """Return the hint for a field of a document that was written without its root.

    >>> _rooted("hidden_size")
    "did you mean 'model.hidden_size'? "
    """
    from roofline.specs.engine import EngineProfile
    from roofline.specs.gpu import HardwareProfile

    documents: dict[str, type[Document]] = {
        "model": ModelSpec,
        "gpu": HardwareProfile,
        "engine": EngineProfile,
    }
    for root, document in documents.items():
        if first in document.model_fields:
            return f"did you mean '{root}.{first}'? "
    return ""


def _scalar(text: str) -> Any:
    """Read a number, ``8k``, true, false or null; all else stays text.

    >>> [_scalar(text) for text in ("4", "8k", "0.9", "true", "null", "4 TB/s")]
    [4, 8192, 0.9, True, None, '4 TB/s']
    """
    words: dict[str, Any] = {"true": True, "false": False, "null": None, "none": None}
    if text in words:
        return words[text]
    if re.fullmatch(r"[0-9]{1,12}[kKmM]?", text):
        return parse_size(text)
    if re.fullmatch(r"-?[0-9]{1,18}", text):
        return int(text)
    if re.fullmatch(r"-?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?", text):
        return float(text)
    return text


def changed(document: Some, overrides: Sequence[Override]) -> tuple[Some, list[Change]]:
    """Return the document with the overrides applied in order and checked together."""
    if not overrides:
        return document, []
    data, changes = as_json(document), []
    for override in overrides:
        apply = _special(document, override) or _plain
        changes.append(apply(document, data, override))
    said = " ".join(str(override) for override in overrides)
    return type(document).check(data, said), changes


_Apply = Callable[[Any, dict[str, Any], Override], Change]


def _special(document: Document, override: Override) -> _Apply | None:
    """Return what applies an alias that is no plain path."""
    if not isinstance(document, NetworkSpec):
        return None
    match override.parts:
        case ("group_size",):
            return _group_size
        case ("layers",) | ("num_layers",):
            return _layers
    return None


def _plain(document: Document, data: dict[str, Any], override: Override) -> Change:
    """Put the value at every place that the path leads to."""
    places = _places(document, data, override, override.parts)
    if override.parts == ("head_dim",):  # of softmax attention; a state's heads are another matter
        places = [place for place in places if "conv_width" not in place.holder]
    was = _said(places)
    for place in places:
        place.put(override.value)
        if place.figure and "sources" in data:
            data["sources"][GIVEN] = {"cite": str(override), "confidence": "derived"}
    return Change(option=override.option, path=override.path, value=override.text, was=was)


def _places(
    document: Document, data: dict[str, Any], override: Override, parts: tuple[str, ...]
) -> list[Place]:
    """Return the places of a path, an MTP layer's among those of all layers."""
    if isinstance(document, NetworkSpec) and len(parts) == 1:
        parts = _RENAMED.get(parts[0], parts)
    paths = [parts]
    if isinstance(document, NetworkSpec) and parts[0] in _IN_LAYERS:
        paths = [("layers", *parts)]
        if isinstance(document, ModelSpec) and document.mtp is not None:
            paths.append(("mtp", *parts))
    places = [place for path in paths for place in find(document, data, path)]
    if not places:
        raise override.wrong(_unknown(document, data, override, paths[0]))
    return places


def _unknown(
    document: Document, data: dict[str, Any], override: Override, path: tuple[str, ...]
) -> str:
    reached, names = options(document, data, path)
    depth = len(reached.split(".")) if reached else 0
    shown = reached.removeprefix("layers.") if path[0] == "layers" else reached
    where = f"{getattr(document, 'id', override.root)}{f' {shown}' if shown else ''}"
    if depth == len(path):
        return f"{where} is a group; name one of {', '.join(names)}"
    if path[depth] in names:
        return f"{where} has nothing below '{path[depth]}' here; end the path before it"
    near = did_you_mean(path[depth], names) if names else ""
    hint = f"{near} " if "did you mean" in near else ""
    return f"{where} has no '{path[depth]}'; {hint}it has {', '.join(names)}"


def _said(places: Sequence[Place]) -> str:
    """Say what stood there; several values in the order met."""
    values = dict.fromkeys(_written(place.value) for place in places)
    return ", ".join(values)


def _written(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    return format_quantity(value) if isinstance(value, str) else f"{value}"


def _whole(override: Override) -> int:
    value = override.value
    if type(value) is not int or not 1 <= value <= 2**20:
        raise override.wrong("expected a whole number of at least 1")
    return value


def _group_size(document: Document, data: dict[str, Any], override: Override) -> Change:
    """Give every attention layer with KV heads num_heads / G of them."""
    size = _whole(override)
    try:
        kv = _places(document, data, override, ("attention", "num_kv_heads"))
    except InputError:
        name = getattr(document, "id", "it")
        raise override.wrong(f"{name} has no attention with num_kv_heads") from None
    was = dict.fromkeys(str(p.holder["num_heads"] // p.holder["num_kv_heads"]) for p in kv)
    for place in kv:
        heads = place.holder["num_heads"]
        if heads % size:
            raise override.wrong(f"expected a divisor of its {heads} query heads")
        place.put(heads // size)
    return Change(option=override.option, path=override.path, value=str(size), was=", ".join(was))


def _layers(_document: Document, data: dict[str, Any], override: Override) -> Change:
    """Change how many layers there are; their kinds keep their proportions."""
    count, runs = _whole(override), data["layers"]
    repeats = [run["repeat"] for run in runs]
    if count < len(runs) or not runs:
        raise override.wrong(
            f"expected at least {len(runs)}, one for each kind of layer"
            if runs
            else "it has no layers to repeat"
        )
    for run, repeat in zip(runs, spread_layers(repeats, count), strict=True):
        run["repeat"] = repeat
    return Change(
        option=override.option, path=override.path, value=str(count), was=str(sum(repeats))
    )


def spread_layers(repeats: Sequence[int], total: int) -> list[int]:
    """Return ``total`` layers in the proportions of ``repeats``, at least one of each kind.

    Largest remainders: 3 dense and 58 expert layers become, in 30,

    >>> spread_layers([3, 58], 30)
    [1, 29]
    """
    spare = total - len(repeats)
    shares = [spare * max(count * total / sum(repeats) - 1, 0.0) for count in repeats]
    scale = spare / sum(shares) if sum(shares) else 0.0
    exact = [share * scale for share in shares]
    found = [1 + int(share) for share in exact]
    order = sorted(range(len(exact)), key=lambda i: int(exact[i]) - exact[i])
    for i in order[: total - sum(found)]:
        found[i] += 1
    return found
