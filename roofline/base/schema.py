"""YAML as data files need it, and the base of every schema: strict, frozen, one-line errors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from string import Template
from typing import Annotated, Any, Generic, Literal, Self, TypeVar, cast

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    model_validator,
)

from roofline.base.errors import FaultsError, InputError, close_names, did_you_mean
from roofline.base.files import CONTROL, Readable, read_at_most
from roofline.base.units import parse_quantity

__all__ = [
    "Bandwidth",
    "Bytes",
    "Confidence",
    "Document",
    "Duration",
    "Figure",
    "Frequency",
    "Id",
    "PositiveInt",
    "Power",
    "Rate",
    "Readable",
    "Schema",
    "Source",
    "as_json",
    "dump_yaml",
    "kind_of",
    "load_yaml",
    "placeholders",
]

MAX_BYTES = 4_000_000
MAX_DEPTH = 40
MAX_PARTS = 150_000  # keys, values, mappings and lists


_PREFIX = "tag:yaml.org,2002:"
_NULL, _BOOL, _INT, _FLOAT, _STR, _MAP, _SEQ = (
    _PREFIX + name for name in ("null", "bool", "int", "float", "str", "map", "seq")
)
#: What a plain scalar is by its text, by first character; a text where no pattern matches.
_IMPLIED: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
for _tag, _pattern, _first in (
    (_NULL, r"^(?:~|null|)$", ["~", "n", ""]),
    (_BOOL, r"^(?:true|false)$", ["t", "f"]),
    (_INT, r"^[-+]?(?:0|[1-9][0-9]{0,17})$", list("-+0123456789")),
    (_FLOAT, r"^[-+]?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?$", list("-+0123456789")),
):
    for _character in _first:
        _IMPLIED.setdefault(_character, []).append((_tag, re.compile(_pattern)))
#: How a scalar becomes a value, by its tag: the scalar types that JSON has.
_SCALARS: dict[str, Callable[[str], Any]] = {
    _NULL: lambda _: None,
    _BOOL: lambda text: text == "true",
    _INT: int,
    _FLOAT: float,
    _STR: str,
}


def _implied_tag(text: str) -> str:
    """Return the tag that a plain scalar has by its text."""
    for tag, pattern in _IMPLIED.get(text[:1], ()):
        if pattern.match(text):
            return tag
    return _STR


class _Loader(yaml.CSafeLoader):
    """The C parser, which makes nodes; with a bound on their depth and number.

    The bounds hold while the nodes are made: that recurses, and has no bound of its own.
    """

    depth = -1
    parts = 0

    def descend_resolver(self, current_node: yaml.Node | None, current_index: Any) -> None:  # noqa: ARG002
        """Go one level down."""
        self.depth += 1
        self.parts += 1
        if self.depth > MAX_DEPTH:
            mark = current_node.start_mark if current_node is not None else None
            raise yaml.MarkedYAMLError(
                problem=f"nested more than {MAX_DEPTH} deep", problem_mark=mark
            )
        if self.parts > MAX_PARTS:
            raise yaml.MarkedYAMLError(problem=f"more than {MAX_PARTS} keys and values")

    def ascend_resolver(self) -> None:
        """Come back up."""
        self.depth -= 1

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        """Return the tag of a node without one: that of its text if it is plain."""
        if kind is yaml.ScalarNode:
            return _implied_tag(value) if implicit[0] else _STR
        return _MAP if kind is yaml.MappingNode else _SEQ


def load_yaml(file: Readable) -> dict[str, Any]:
    """Return the mapping in ``file``; raise InputError naming file, line and remedy."""
    content = read_at_most(file, MAX_BYTES, "a YAML file here")
    try:
        loader = _Loader(content)
        try:
            node = loader.get_single_node()
            reader = _Reader(file.name, tagged=b"!" in content)
            data = reader.value(node) if node else None
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise InputError(f"{file.name}{line}: not valid YAML: {error.problem}") from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{file.name}: not valid YAML: {reason}") from None
    if not isinstance(data, dict):
        expected = "expected 'key: value' lines"
        if data is None:
            raise InputError(f"{file.name}: is empty; {expected}")
        raise InputError(f"{file.name}: {expected}, got {kind_of(data)}")
    return data


def kind_of(data: object) -> str:
    """Return what a document holds where a mapping belongs, in plain words.

    >>> kind_of(["a"]), kind_of(3), kind_of("a"), kind_of(None)
    ('a list', 'a number', 'a text', 'null')
    """
    if data is None:
        return "null"
    kinds = {bool: "true or false", int: "a number", float: "a number", list: "a list"}
    return kinds.get(type(data), "a text")


class _Dumper(yaml.SafeDumper):
    """Block style, but a short mapping of plain values stays on its line; lines of a text too."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _short_on_one_line(dumper: yaml.SafeDumper, data: dict[str, Any]) -> yaml.Node:
    plain = not any(
        isinstance(value, dict | list) or (isinstance(value, str) and "\n" in value)
        for value in data.values()
    )
    short = len(str(data)) <= 88
    return dumper.represent_mapping(
        "tag:yaml.org,2002:map", data.items(), flow_style=bool(data) and plain and short
    )


def _lines_of_a_text(dumper: yaml.SafeDumper, data: str) -> yaml.Node:
    return dumper.represent_scalar(_STR, data, style="|" if "\n" in data else None)


_Dumper.add_representer(dict, _short_on_one_line)
_Dumper.add_representer(str, _lines_of_a_text)


def dump_yaml(data: dict[str, Any], *, width: int = 100) -> str:
    """Return ``data`` as YAML in the given key order; text with spaces breaks at ``width``."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=width)


def _has_implied_type(node: yaml.ScalarNode) -> bool:
    """Return whether a scalar has the type its text has by itself (no explicit tag)."""
    quoted = node.style in ("'", '"', "|", ">")
    return bool(node.tag == (_STR if quoted else _implied_tag(node.value)))


class _Reader:
    """Nodes of a file as values; refuses what is not used here, with its line.

    That is aliases, repeated or non-text keys, tags and control characters. ``tagged`` says whether
    any node may have a tag of its own.
    """

    def __init__(self, name: str, *, tagged: bool) -> None:
        self.name = name
        self.tagged = tagged
        self.seen: set[int] = set()

    def value(self, node: yaml.Node) -> Any:
        """Return the value of a node."""
        if id(node) in self.seen:
            raise self._refusal(node, "anchors and aliases are not used here; write the value out")
        self.seen.add(id(node))
        if self.tagged:
            self._refuse_tag(node)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item) for item in node.value]
        if CONTROL.search(node.value):
            raise self._refusal(node, "a text holds a control character; remove it")
        return _SCALARS[node.tag](node.value)

    def _mapping(self, node: yaml.MappingNode) -> dict[Any, Any]:
        keys: set[str] = set()
        values = {}
        for key, value in node.value:
            text = key.value
            if not isinstance(key, yaml.ScalarNode):
                raise self._refusal(key, "a key must be plain text")
            if CONTROL.search(text):
                raise self._refusal(key, "a key holds a control character; remove it")
            if text in keys:
                raise self._refusal(key, f"key '{text}' appears twice; keep one")
            if self.tagged:
                self._refuse_tag(key)
            keys.add(text)
            values[_SCALARS[key.tag](text)] = self.value(value)
        return values

    def _refuse_tag(self, node: yaml.Node) -> None:
        known = node.tag in _SCALARS or node.tag in (_MAP, _SEQ)
        if not known or (isinstance(node, yaml.ScalarNode) and not _has_implied_type(node)):
            raise self._refusal(node, f"tag {node.tag!r} is not used here; remove it")

    def _refusal(self, node: yaml.Node, fault: str) -> InputError:
        return InputError(f"{self.name}:{node.start_mark.line + 1}: {fault}")


#: The id of a document: fit for a file's name, a flag and a cell of a table.
Id = Annotated[str, Field(pattern=r"^[\w.-]+$", max_length=200)]
PositiveInt = Annotated[int, Field(gt=0, le=2**50)]
Value = TypeVar("Value")
Confidence = Literal["measured", "datasheet-seen", "second-hand-seen", "derived", "from-memory"]


#: What a datasheet can hold. Any machine is inside; outside, a unit or exponent is wrong.
_PLAUSIBLE = {
    "B": ("1 B", "1000 PB"),
    "B/s": ("1 MB/s", "1000 PB/s"),
    "FLOP/s": ("1 MFLOP/s", "1000000 PFLOP/s"),
    "s": ("0 s", "10000 s"),
    "Hz": ("1 kHz", "1000 GHz"),
    "W": ("0.001 W", "1000000 kW"),
}


def _quantity(unit: str) -> BeforeValidator:
    least, most = (parse_quantity(text, unit) for text in _PLAUSIBLE[unit])

    def parse(value: object) -> float:
        try:
            number = parse_quantity(value, unit)
        except InputError as error:
            raise ValueError(error.text) from None
        if number and not least <= number <= most:  # zero is refused or meant elsewhere
            bounds = " to ".join(_PLAUSIBLE[unit])
            raise ValueError(f"expected {bounds}, got {value!r}")
        return number

    return BeforeValidator(parse)


def placeholders(*names: str) -> AfterValidator:
    """Return a check that a text has no placeholders but these, each written ``$name``."""

    def check(text: str) -> str:
        try:
            Template(text).substitute(dict.fromkeys(names, ""))
        except (KeyError, ValueError):
            raise ValueError(f"expected no placeholders but ${', $'.join(names)}") from None
        return text

    return AfterValidator(check)


def _with_unit(unit: str) -> PlainSerializer:
    """Write a quantity so that reading it again gives the same number."""
    return PlainSerializer(lambda value: f"{value!r} {unit}", return_type=str, when_used="json")


Bytes = Annotated[float, Field(gt=0), _quantity("B"), _with_unit("B")]
Bandwidth = Annotated[float, Field(gt=0), _quantity("B/s"), _with_unit("B/s")]
Rate = Annotated[float, Field(gt=0), _quantity("FLOP/s"), _with_unit("FLOP/s")]
Duration = Annotated[float, Field(ge=0), _quantity("s"), _with_unit("s")]
Frequency = Annotated[float, Field(gt=0), _quantity("Hz"), _with_unit("Hz")]
Power = Annotated[float, Field(gt=0), _quantity("W"), _with_unit("W")]


class Schema(BaseModel):
    """A part of a YAML file."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        defer_build=True,
        protected_namespaces=(),  # before 2.10 pydantic warns of every field called model_...
    )


class Document(Schema):
    """A whole YAML file. ``schema: 1`` is its format version."""

    version: Literal[1] = Field(alias="schema")

    @classmethod
    def load(cls, file: Readable) -> Self:
        """Read and validate ``file``; the error names file, field, expectation and remedy.

        What is read twice is the same document: nobody can change one.
        """
        if not isinstance(file, Path) or not file.is_file():  # a pipe can be read once only
            return cls.of_data(load_yaml(file), file.name)
        state = file.stat()
        stamp = (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
        return cast("Self", _loaded(cls, file, stamp))

    @classmethod
    def of_data(cls, data: dict[str, Any], name: str) -> Self:
        """Validate the data of the file ``name``, of this format's only version.

        A file that states none is read as if it did; of another version nothing is known.
        """
        version = data.get("schema")
        if version is None:
            missing = f"{name}: schema: is missing; add 'schema: 1'"
            try:
                cls.check(data | {"schema": 1}, name)
            except FaultsError as error:
                raise FaultsError([missing, *error.faults]) from None
            raise InputError(missing)
        if type(version) is not int or version != 1:
            raise InputError(
                f"{name}: schema: expected 1 (this is roofline's only format version), "
                f"got {version!r}; write 'schema: 1' or upgrade roofline"
            )
        return cls.check(data, name)

    @classmethod
    def check(cls, data: dict[str, Any], name: str) -> Self:
        """Validate plain data as if it had been read from the file ``name``."""
        try:
            # JSON mode keeps strictness (a bool is no int) yet takes lists for tuples.
            return cls.model_validate_json(json.dumps(data))
        except ValidationError as error:
            raise FaultsError(_faults(error, name, cls)) from None


#: Documents of which a process keeps the last: all that its questions go back to.
_KEPT = 128


@lru_cache(maxsize=_KEPT)
def _loaded(kind: type[Document], file: Path, stamp: tuple[int, ...]) -> Document:  # noqa: ARG001
    """Return a file's document; ``stamp`` changes with the file."""
    return kind.of_data(load_yaml(file), file.name)


class Disputed(Schema):
    """A figure that another source gives instead."""

    value: str
    by: str


class Figure(Schema, Generic[Value]):
    """A number together with where it comes from (``source`` is a key of the file's sources).

    Where sources disagree, ``disputed`` keeps what others say and ``note`` why this one is used.
    """

    value: Value
    source: str
    confidence: Confidence | None = None
    note: str | None = None
    disputed: tuple[Disputed, ...] = ()

    @model_validator(mode="after")
    def _disputes_are_decided(self) -> Self:
        if self.disputed and not self.note:
            raise ValueError("note: a disputed figure must say why this value is used")
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by the name of the value's type: Python cannot find ``Figure[Bytes]`` by its own.

        >>> import pickle
        >>> figure = Figure[Bytes].model_validate({"value": "80 GB", "source": "datasheet"})
        >>> again = pickle.loads(pickle.dumps(figure))
        >>> again == figure, type(again) is type(figure)
        (True, True)
        """
        (kind,) = type(self).__pydantic_generic_metadata__["args"]
        name = next(name for name, known in globals().items() if known is kind)
        given = {key: getattr(self, key) for key in self.model_fields_set}
        return _figure, (name, given)


def _figure(kind: str, given: dict[str, Any]) -> Figure[Any]:
    """Return a figure whose value is of this kind: ``Bytes``, ``Rate`` and so on."""
    figure: Figure[Any] = Figure[globals()[kind]].model_construct(**given)  # type: ignore[misc]
    return figure


class Source(Schema):
    """A citation, and how far the people who wrote the file have seen it themselves."""

    cite: str
    confidence: Confidence


def as_json(document: Document) -> dict[str, Any]:
    """Return a document as the plain data that ``check`` reads, quantities with their units."""
    return document.model_dump(mode="json", by_alias=True)


def _faults(error: ValidationError, name: str, model: type[BaseModel]) -> list[str]:
    """Return a line for each fault, misspelt keys first.

    A misspelt key also leaves the right one missing, which is no fault of its own.
    """
    problems = error.errors(include_url=False)
    homes = _homes(model)
    misspelt = [problem for problem in problems if problem["type"] == "extra_forbidden"]
    meant = {place for problem in misspelt for place in _meant(problem["loc"], homes)}
    others = [
        problem
        for problem in problems
        if problem["type"] != "extra_forbidden"
        and not (problem["type"] == "missing" and problem["loc"] in meant)
    ]
    return [_fault(problem, name, homes) for problem in [*misspelt, *others]]


#: A path of keys, without the positions in lists and the tags of unions.
_Path = tuple[str, ...]


def _meant(place: tuple[Any, ...], homes: dict[str, list[_Path]]) -> list[tuple[Any, ...]]:
    """Return where the key that an unknown one stands for may be missing."""
    key = str(place[-1])
    if key in homes and not _close_here(place, homes):
        return [(*home, key) for home in homes[key]]
    return [(*place[:-1], close) for close in _close_here(place, homes) or close_names(key, homes)]


def _close_here(place: tuple[Any, ...], homes: dict[str, list[_Path]]) -> list[str]:
    """Return the key beside an unknown one that it may stand for, if any.

    One that is right elsewhere stands for another only where that goes on: source, sources.
    """
    here, asked = _keys(place[:-1], homes), str(place[-1])
    beside = [key for key, paths in homes.items() if here in paths]
    if asked in homes:
        beside = [key for key in beside if key.startswith(asked) or asked.startswith(key)]
    return close_names(asked, beside)[:1]


def _keys(place: tuple[Any, ...], homes: dict[str, list[_Path]]) -> _Path:
    """Return the keys of a place that the schema knows where they stand."""
    keys: _Path = ()
    for part in map(str, place):
        if keys in homes.get(part, ()):
            keys = (*keys, part)
    return keys


def _unknown_key(place: tuple[Any, ...], homes: dict[str, list[_Path]]) -> str:
    """Return what to do about an unknown key: another name, another place, or neither."""
    key = str(place[-1])
    if close := _close_here(place, homes):
        return f"unknown key '{key}'; {did_you_mean(key, close)}"
    if key not in homes:
        return f"unknown key '{key}'; {did_you_mean(key, homes)}"
    paths = homes[key]
    if len(paths) > MOST_PLACES:  # a part that stands in several places is called by its name
        paths = list(dict.fromkeys(path[-1:] for path in paths))
    if len(paths) > MOST_PLACES:
        return f"unknown key '{key}' here; remove it"
    places = (f"in '{'.'.join(path)}'" if path else "at the top level" for path in paths)
    return f"unknown key '{key}' here; it belongs {' or '.join(places)}"


#: Places that are named where a key belongs elsewhere.
MOST_PLACES = 2


def _fault(problem: Any, name: str, homes: dict[str, list[_Path]]) -> str:
    # the tag of a union's member, written in brackets, is no key
    where = ".".join(str(part) for part in problem["loc"] if not str(part).startswith("("))
    if problem["type"] == "extra_forbidden":
        message = _unknown_key(problem["loc"], homes)
    elif problem["type"] == "missing":
        message = "is missing; add it"
    else:
        # a validator's own words, or pydantic's
        message = str(problem.get("ctx", {}).get("error", problem["msg"]))
        message = message[0].lower() + message[1:]
        if "got" not in message and not isinstance(problem["input"], dict | list):
            message += f", got {problem['input']!r}"
    return f"{name}: {where}: {message}" if where else f"{name}: {message}"


def _homes(model: type[BaseModel], above: _Path = ()) -> dict[str, list[_Path]]:
    """Return every key that the schema knows at any depth, and the keys above each."""
    homes: dict[str, list[_Path]] = {}
    for field_name, field in model.model_fields.items():
        key = field.alias or field_name
        found = [{key: [above]}]
        found += [_homes(nested, (*above, key)) for nested in _models_in(field.annotation)]
        for of_field in found:
            for known, paths in of_field.items():
                homes[known] = list(dict.fromkeys([*homes.get(known, ()), *paths]))
    return homes


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for argument in getattr(annotation, "__args__", ()) for m in _models_in(argument)]
