"""``PATH=VALUE``: a model, drafter, accelerator or engine with some of its values changed.

The changed document is validated by the schema of its file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel

from roofline.base.errors import InputError, Option, close_names, did_you_mean
from roofline.base.schema import Document, Figure, as_json
from roofline.base.units import format_quantity, parse_size
from roofline.specs.gpu import HardwareProfile
from roofline.specs.network import ModelSpec, NetworkSpec

__all__ = [
    "OVERRIDE_SOURCE",
    "AppliedOverride",
    "FieldRef",
    "Override",
    "apply_overrides",
    "find_fields",
    "known_fields",
    "parse_override",
    "spread_layers",
]

#: The source of a figure that an override put in.
OVERRIDE_SOURCE = "given"
#: Fields that say what a document is and where it comes from, which no override changes.
_IDENTITY = frozenset(
    {
        "version",
        "kind",
        "source",
        "sources",
        "flags",
        "disputed",
        "eras",
        "fitted_rows",
        "spec_rows",
    }
)
_Node = tuple[object, Any]  # a part of the document, and that part as plain data


class FieldRef(NamedTuple):
    """One field of a document, as a key of its plain data."""

    parent: dict[str, Any]
    key: str
    is_figure: bool

    @property
    def value(self) -> Any:
        """The field's present value."""
        data = self.parent.get(self.key)
        return data.get("value") if self.is_figure and isinstance(data, dict) else data

    def set(self, value: Any) -> None:
        """Replace the value, unchecked; a figure's source becomes ``OVERRIDE_SOURCE``."""
        self.parent[self.key] = (
            {"value": value, "source": OVERRIDE_SOURCE} if self.is_figure else value
        )


def find_fields(document: BaseModel, data: Any, path: Sequence[str]) -> list[FieldRef]:
    """Return the fields that a path leads to; ``data`` is the document as plain data."""
    nodes = _walk(document, data, path[:-1])
    return [field for node, plain in _flat(nodes) for field in _field_of(node, plain, path[-1])]


def known_fields(document: BaseModel, data: Any, path: Sequence[str]) -> tuple[str, list[str]]:
    """Return the longest start of ``path`` that exists, and the names of the fields below it."""
    for end in range(len(path), -1, -1):
        nodes = list(_flat(_walk(document, data, path[:end])))
        names = {name for node, plain in nodes for name in _names(node, plain)}
        if names:
            return ".".join(path[:end]), sorted(names)
    return "", []


def _walk(document: BaseModel, data: Any, path: Sequence[str]) -> list[_Node]:
    """Return every part of the document that a path leads to."""
    nodes: list[_Node] = [(document, data)]
    for name in path:
        nodes = [child for node, plain in nodes for child in _children(node, plain, name)]
    return nodes


def _children(node: object, plain: Any, name: str) -> Iterator[_Node]:
    """Yield the parts called ``name`` below one part; a list is searched, or indexed by number."""
    if isinstance(node, tuple):
        if name.isdecimal() and len(name) < 10:
            yield from list(zip(node, plain, strict=True))[int(name) : int(name) + 1]
        else:
            for item in zip(node, plain, strict=True):
                yield from _children(*item, name)
    elif isinstance(node, BaseModel) and name in _fields(node):
        yield getattr(node, name), plain[name]
    elif isinstance(node, dict) and name in plain:
        yield {str(key): value for key, value in node.items()}[name], plain[name]


def _flat(nodes: Sequence[_Node]) -> Iterator[_Node]:
    """Yield the parts, the entries of a list in its place."""
    for node, plain in nodes:
        if isinstance(node, tuple):
            yield from zip(node, plain, strict=True)
        else:
            yield node, plain


def _field_of(node: object, plain: Any, name: str) -> Iterator[FieldRef]:
    """Yield the field called ``name`` of one part, where it holds a value and no group."""
    if isinstance(node, BaseModel) and not isinstance(node, Figure) and name in _fields(node):
        value = getattr(node, name)
        is_figure = isinstance(value, Figure) or (value is None and _is_figure(_fields(node)[name]))
        if is_figure or not isinstance(value, BaseModel | tuple | dict):
            yield FieldRef(parent=plain, key=name, is_figure=is_figure)
    elif isinstance(node, dict):
        is_figure = any(isinstance(value, Figure) for value in node.values())
        yield FieldRef(parent=plain, key=name, is_figure=is_figure)


def _names(node: object, plain: Any) -> list[str]:
    if isinstance(node, BaseModel) and not isinstance(node, Figure):
        return list(_fields(node))
    return list(plain) if isinstance(node, dict) else []


def _fields(node: BaseModel) -> dict[str, set[Any]]:
    """Return the fields that hold sizes, formats, switches or groups of them, with their types."""
    alternatives = {name: _types(f.annotation) for name, f in type(node).model_fields.items()}
    return {
        name: types
        for name, types in alternatives.items()
        if name not in _IDENTITY and not types <= {str} and not any(map(_is_plain_list, types))
    }


def _types(annotation: Any) -> set[Any]:
    """Return the alternatives of an annotation, None left out."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _types(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return {one for argument in get_args(annotation) for one in _types(argument)}
    return set() if annotation is NoneType else {annotation}


def _is_plain_list(annotation: Any) -> bool:
    """Return whether a type is a list of anything but parts with fields of their own."""
    items = get_args(annotation)[:1] if get_origin(annotation) is tuple else ()
    return any(not (isinstance(item, type) and issubclass(item, BaseModel)) for item in items)


def _is_figure(types: set[Any]) -> bool:
    return any(isinstance(one, type) and issubclass(one, Figure) for one in types)


#: Short names of what model designers vary; each also works behind ``drafter.``.
ALIASES = {
    "group_size": "num_heads / num_kv_heads of every attention layer, by changing num_kv_heads",
    "experts": "mlp.num_experts",
    "top_k": "mlp.top_k",
    "head_dim": "attention.head_dim",
    "layers": "the number of layers, kinds of layers in their proportions",
}
_ALIAS_PATHS = {
    "experts": ("mlp", "num_experts"),
    "top_k": ("mlp", "top_k"),
    "head_dim": ("attention", "head_dim"),
}
_ROOTS = ("model", "drafter", "gpu", "engine")
_IN_LAYERS = ("attention", "mlp")
AnyDocument = TypeVar("AnyDocument", bound=Document)


class Override(NamedTuple):
    """One value that replaces a document's own."""

    option: str  # set or vary
    path: str
    text: str

    def __str__(self) -> str:
        """Return the option with its value, as texts hold it."""
        return str(Option(self.option, self._assignment))

    @property
    def _assignment(self) -> str:
        return f"{self.path}={self.text}"

    def error(self, problem: str) -> InputError:
        """Return the error that refuses this override."""
        return InputError(problem, field=self.option, value=self._assignment)

    @property
    def root(self) -> str:
        """The document that it changes: model, drafter, gpu or engine."""
        first = self.path.split(".", 1)[0]
        return first if first in _ROOTS else "model"

    @property
    def parts(self) -> tuple[str, ...]:
        """The path inside the document."""
        parts = tuple(self.path.split("."))
        return parts[1:] if parts[0] in _ROOTS else parts

    @property
    def value(self) -> Any:
        """The value as JSON holds it."""
        return _scalar(self.text)


class AppliedOverride(NamedTuple):
    """The change that one override made."""

    option: str  # set or vary
    path: str
    value: str
    was: str

    def __str__(self) -> str:
        """Return path, value and former value."""
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
        hint = _group_hint(first) if first in starts else ""
        hint = hint or _spelling_hint(first, [*starts, *ALIASES]) or _root_hint(first)
        raise InputError(
            f"unknown path; {hint}a path is one of {', '.join(known)}", field=option, value=text
        )
    return override


def _group_hint(first: str) -> str:
    """Return the hint for a group of values that was named in place of one of them.

    >>> _group_hint("gpu")
    "'gpu' is a group of values: name one of them, or ask sweep about several; "
    """
    several = ", or ask sweep about several" if first in _ROOTS else ""
    return f"'{first}' is a group of values: name one of them{several}; "


def _spelling_hint(name: str, known: Sequence[str]) -> str:
    """Return the hint for a misspelt name; empty where no known name is close.

    >>> _spelling_hint("expert", ["experts", "layers"]), _spelling_hint("batch", ["experts"])
    ("did you mean 'experts'? ", '')
    """
    return f"{did_you_mean(name, known)} " if close_names(name, known) else ""


def _root_hint(first: str) -> str:
    """Return the hint for a field of a document that was written without its root.

    >>> _root_hint("hidden_size")
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
    """Read a number, ``8k``, true, false or null; any other text is returned as it is.

    >>> [_scalar(text) for text in ("4", "8k", "0.9", "true", "null", "4 TB/s")]
    [4, 8192, 0.9, True, None, '4 TB/s']
    """
    constants: dict[str, Any] = {"true": True, "false": False, "null": None, "none": None}
    if text in constants:
        return constants[text]
    if re.fullmatch(r"[0-9]{1,12}[kKmM]?", text):
        return parse_size(text)
    if re.fullmatch(r"-?[0-9]{1,18}", text):
        return int(text)
    if re.fullmatch(r"-?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?", text):
        return float(text)
    return text


def apply_overrides(
    document: AnyDocument, overrides: Sequence[Override]
) -> tuple[AnyDocument, list[AppliedOverride]]:
    """Return the document with the overrides applied in order and checked together."""
    if not overrides:
        return document, []
    data, changes = as_json(document), []
    for override in overrides:
        apply = _applier(document, override)
        changes.append(apply(document, data, override))
    text = " ".join(str(override) for override in overrides)
    return type(document).check(data, text), changes


_Apply = Callable[[Any, dict[str, Any], Override], AppliedOverride]


def _applier(document: Document, override: Override) -> _Apply:
    """Return the function that applies an override: two aliases are no plain paths."""
    if isinstance(document, NetworkSpec):
        match override.parts:
            case ("group_size",):
                return _set_group_size
            case ("layers",) | ("num_layers",):
                return _set_layers
    if isinstance(document, HardwareProfile) and override.parts == ("memory", "capacity"):
        return _set_capacity
    return _set_fields


def _set_fields(document: Document, data: dict[str, Any], override: Override) -> AppliedOverride:
    """Set every field that the path leads to."""
    fields = _fields_of_path(document, data, override, override.parts)
    if override.parts == (
        "head_dim",
    ):  # the alias means softmax attention, not mixers with a state
        fields = [field for field in fields if "conv_width" not in field.parent]
    was = _values_of(fields)
    for field in fields:
        field.set(override.value)
        if field.is_figure and "sources" in data:
            data["sources"][OVERRIDE_SOURCE] = {"cite": str(override), "confidence": "derived"}
    return AppliedOverride(option=override.option, path=override.path, value=override.text, was=was)


def _set_capacity(document: Document, data: dict[str, Any], override: Override) -> AppliedOverride:
    """Set a capacity: what a process saw of another one is no longer known."""
    applied = _set_fields(document, data, override)
    data["memory"]["visible"] = None
    return applied


def _fields_of_path(
    document: Document, data: dict[str, Any], override: Override, parts: tuple[str, ...]
) -> list[FieldRef]:
    """Return the fields of a path; a path into all layers includes the MTP layer."""
    if isinstance(document, NetworkSpec) and len(parts) == 1:
        parts = _ALIAS_PATHS.get(parts[0], parts)
    paths = [parts]
    if isinstance(document, NetworkSpec) and parts[0] in _IN_LAYERS:
        paths = [("layers", *parts)]
        if isinstance(document, ModelSpec) and document.mtp is not None:
            paths.append(("mtp", *parts))
    fields = [field for path in paths for field in find_fields(document, data, path)]
    if not fields:
        raise override.error(_unknown_path(document, data, override, paths[0]))
    return fields


def _unknown_path(
    document: Document, data: dict[str, Any], override: Override, path: tuple[str, ...]
) -> str:
    """Return the problem with a path that leads to no field."""
    reached, names = known_fields(document, data, path)
    depth = len(reached.split(".")) if reached else 0
    group = reached.removeprefix("layers.") if path[0] == "layers" else reached
    where = getattr(document, "id", override.root)
    if group:
        where = f"{where} {group}"
    if depth == len(path):
        return f"{where} is a group; name one of {', '.join(names)}"
    if path[depth] in names:
        return f"{where} has nothing below '{path[depth]}' here; end the path before it"
    hint = _spelling_hint(path[depth], names)
    return f"{where} has no '{path[depth]}'; {hint}it has {', '.join(names)}"


def _values_of(fields: Sequence[FieldRef]) -> str:
    """Return the different values of some fields, in the order of the document."""
    values = dict.fromkeys(_value_text(field.value) for field in fields)
    return ", ".join(values)


def _value_text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    return format_quantity(value) if isinstance(value, str) else f"{value}"


def _whole_number(override: Override) -> int:
    value = override.value
    if type(value) is not int or not 1 <= value <= 2**20:
        raise override.error("expected a whole number of at least 1")
    return value


def _set_group_size(
    document: Document, data: dict[str, Any], override: Override
) -> AppliedOverride:
    """Give every attention layer with KV heads num_heads / G of them."""
    size = _whole_number(override)
    try:
        fields = _fields_of_path(document, data, override, ("attention", "num_kv_heads"))
    except InputError:
        name = getattr(document, "id", "it")
        raise override.error(f"{name} has no attention with num_kv_heads") from None
    attentions = [field.parent for field in fields]
    was = ", ".join(dict.fromkeys(str(a["num_heads"] // a["num_kv_heads"]) for a in attentions))
    for field in fields:
        heads = field.parent["num_heads"]
        if heads % size:
            raise override.error(f"expected a divisor of its {heads} query heads")
        field.set(heads // size)
    return AppliedOverride(option=override.option, path=override.path, value=str(size), was=was)


def _set_layers(_document: Document, data: dict[str, Any], override: Override) -> AppliedOverride:
    """Change how many layers there are; their kinds keep their proportions."""
    count, runs = _whole_number(override), data["layers"]
    repeats = [run["repeat"] for run in runs]
    if not runs:
        raise override.error("it has no layers to repeat")
    if count < len(runs):
        raise override.error(f"expected at least {len(runs)}, one for each kind of layer")
    for run, repeat in zip(runs, spread_layers(repeats, count), strict=True):
        run["repeat"] = repeat
    return AppliedOverride(
        option=override.option, path=override.path, value=str(count), was=str(sum(repeats))
    )


def spread_layers(repeats: Sequence[int], total: int) -> list[int]:
    """Return ``total`` layers in the proportions of ``repeats``, at least one of each kind.

    After one of each kind, n = total - kinds layers are left. They go to the kinds in proportion to
    max(repeat total / sum(repeats) - 1, 0), rounded by largest remainders (Hamilton's method). In
    30 layers, 3 dense and 58 expert layers become 1 and 29: the 28 left are shared 0.48 to 27.52.

    >>> spread_layers([3, 58], 30)
    [1, 29]
    """
    spare = total - len(repeats)
    shares = [spare * max(count * total / sum(repeats) - 1, 0.0) for count in repeats]
    scale = spare / sum(shares) if sum(shares) else 0.0
    exact = [share * scale for share in shares]
    counts = [1 + int(share) for share in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: int(exact[i]) - exact[i])
    for i in by_remainder[: total - sum(counts)]:
        counts[i] += 1
    return counts
