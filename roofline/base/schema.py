"""The base of every YAML schema: frozen, strict, no unknown keys, and one-line errors."""

from __future__ import annotations

import json
from string import Template
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

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

from roofline.base.errors import InputError, did_you_mean
from roofline.base.units import parse_quantity
from roofline.base.yaml import Readable, load_yaml

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
    "Schema",
    "Source",
    "as_json",
    "placeholders",
]

#: What a document is called: fit for a file's name, a flag and a cell of a table.
Id = Annotated[str, Field(pattern=r"^[\w.-]+$", max_length=200)]
PositiveInt = Annotated[int, Field(gt=0, le=2**50)]
Value = TypeVar("Value")
Confidence = Literal["measured", "datasheet-seen", "second-hand-seen", "derived", "from-memory"]


#: What a datasheet can hold, wide enough for any machine: outside lies a slip of unit or exponent.
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
            raise ValueError(str(error)) from None
        if number and not least <= number <= most:  # zero is refused or meant elsewhere
            bounds = " to ".join(_PLAUSIBLE[unit])
            raise ValueError(f"expected {bounds}, got {value!r}")
        return number

    return BeforeValidator(parse)


def placeholders(*names: str) -> AfterValidator:
    """Return a check that a text asks for nothing but ``$name`` of these."""

    def check(text: str) -> str:
        try:
            Template(text).substitute(dict.fromkeys(names, ""))
        except (KeyError, ValueError):
            raise ValueError(f"expected no placeholders but ${', $'.join(names)}") from None
        return text

    return AfterValidator(check)


def _text(unit: str) -> PlainSerializer:
    """Write a quantity so that reading it again gives the same number."""
    return PlainSerializer(lambda value: f"{value!r} {unit}", return_type=str, when_used="json")


Bytes = Annotated[float, Field(gt=0), _quantity("B"), _text("B")]
Bandwidth = Annotated[float, Field(gt=0), _quantity("B/s"), _text("B/s")]
Rate = Annotated[float, Field(gt=0), _quantity("FLOP/s"), _text("FLOP/s")]
Duration = Annotated[float, Field(ge=0), _quantity("s"), _text("s")]
Frequency = Annotated[float, Field(gt=0), _quantity("Hz"), _text("Hz")]
Power = Annotated[float, Field(gt=0), _quantity("W"), _text("W")]


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
        """Read and validate ``file``; the error names file, field, expectation and remedy."""
        data = load_yaml(file)
        version = data.get("schema")
        if type(version) is not int or version != 1:
            raise InputError(
                f"{file.name}: schema: expected 1 (this is roofline's only format version), "
                f"got {data.get('schema')!r}; add 'schema: 1' or upgrade roofline"
            )
        return cls.check(data, file.name)

    @classmethod
    def check(cls, data: dict[str, Any], name: str) -> Self:
        """Validate plain data as if it had been read from the file ``name``."""
        try:
            # JSON mode keeps strictness (a bool is no int) yet takes lists for tuples.
            return cls.model_validate_json(json.dumps(data))
        except ValidationError as error:
            raise InputError(_one_line(error, name, cls)) from None


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


class Source(Schema):
    """A citation, and how far the people who wrote the file have seen it themselves."""

    cite: str
    confidence: Confidence


def as_json(document: Document) -> dict[str, Any]:
    """Return a document as the plain data that ``check`` reads, quantities with their units."""
    return document.model_dump(mode="json", by_alias=True)


def _one_line(error: ValidationError, name: str, model: type[BaseModel]) -> str:
    problems = error.errors(include_url=False)
    # a misspelt key also leaves the right one missing: name the one that was written
    first = next((p for p in problems if p["type"] == "extra_forbidden"), problems[0])
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        key = str(first["loc"][-1])
        message = f"unknown key '{key}'; {did_you_mean(key, _all_fields(model))}"
    elif first["type"] == "missing":
        message = "is missing; add it"
    else:
        message = first["msg"].removeprefix("Value error, ")
        message = message[0].lower() + message[1:]
        if "got" not in message and not isinstance(first["input"], dict | list):
            message += f", got {first['input']!r}"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{name}: {where}: {message}{more}" if where else f"{name}: {message}{more}"


def _all_fields(model: type[BaseModel]) -> set[str]:
    """Return every key that the schema knows at any depth, for a suggestion."""
    names = {field.alias or name for name, field in model.model_fields.items()}
    for field in model.model_fields.values():
        names.update(*(_all_fields(nested) for nested in _models_in(field.annotation)))
    return names


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for argument in getattr(annotation, "__args__", ()) for m in _models_in(argument)]
