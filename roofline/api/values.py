"""Python values as the texts and numbers that options are read from.

Nothing is parsed here: a text is read where the command line's is (`roofline.base.values`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Protocol, SupportsFloat, SupportsIndex, TypeAlias, TypeGuard

from roofline.acceptance import Acceptance
from roofline.base.errors import InputError
from roofline.base.units import parse_size

__all__ = [
    "AcceptanceLike",
    "Config",
    "Name",
    "Number",
    "Numbers",
    "Reference",
    "Whole",
    "WholeNumbers",
    "acceptance",
    "flag",
    "listed",
    "name",
    "number",
    "overrides",
    "path",
    "plain",
    "reference",
    "several",
    "shares",
    "text",
    "whole",
    "wholes",
]

#: A whole number, or its text: ``8``, ``"8k"``.
Whole: TypeAlias = SupportsIndex | float | str
#: One or several whole numbers: ``8``, ``[1, 8]``, ``"1,8k"``, ``"1..64"``, a range or an array.
WholeNumbers: TypeAlias = Whole | Iterable[Whole]
#: A number, or its text with a unit where it may have one: ``5``, ``"5ms"``.
Number: TypeAlias = SupportsFloat | str
Numbers: TypeAlias = Number | Iterable[Number]
#: A name or a path.
Name: TypeAlias = str | os.PathLike[str]


class Config(Protocol):
    """A config that can give itself as a dict, as those of the library transformers."""

    def to_dict(self) -> dict[str, Any]:
        """Return the config as plain values."""
        ...


#: A name, a path, or a config as a dict.
Reference: TypeAlias = Name | Mapping[str, Any] | Config
#: A rate, rates by position, tokens per step by draft length, a text, or one made before.
AcceptanceLike: TypeAlias = (
    SupportsFloat
    | str
    | os.PathLike[str]
    | Iterable[SupportsFloat]
    | Mapping[int, float]
    | Acceptance
)


def plain(value: object) -> object:
    """Return a value with arrays, ranges, paths, enums and NumPy numbers as built-in ones."""
    if isinstance(value, str):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):  # of NumPy and pandas
        return value.tolist()
    if isinstance(value, Iterable) and not isinstance(value, Mapping | bytes):
        return [plain(item) for item in value]
    return value


def whole(field: str, value: object) -> int:
    """Return a whole number.

    >>> whole("tp", 4), whole("tp", 4.0), whole("max_batch", "1k")
    (4, 4, 1024)
    """
    value = plain(value)
    if isinstance(value, str):
        try:
            return parse_size(value)
        except InputError as error:
            raise InputError(error.problem, field=field) from None
    if _is_number(value) and value == value // 1:
        return int(value)
    raise _unexpected(field, value, "a whole number such as 8 or '8k'")


def number(field: str, value: object) -> float:
    """Return a number.

    >>> number("memory_fraction", "0.9")
    0.9
    """
    value = plain(value)
    if _is_number(value):
        return float(value)
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            pass
    raise _unexpected(field, value, "a number")


def flag(field: str, value: object) -> bool:
    """Return a truth value."""
    value = plain(value)
    if isinstance(value, bool):
        return value
    raise _unexpected(field, value, "True or False")


def text(field: str, value: object) -> str:
    """Return a word, or a number as a text.

    >>> text("engine_version", 1.3), text("cpu_experts", 24), text("split", "row")
    ('1.3', '24', 'row')
    """
    value = plain(value)
    if isinstance(value, str):
        return value
    if _is_number(value):
        return repr(value)
    raise _unexpected(field, value, "a text or a number")


def listed(field: str, value: object) -> str:
    """Return one number or several as a text with commas.

    >>> listed("overhead_ms", [0.5, 0.7]), listed("tensor_split", "3,1")
    ('0.5,0.7', '3,1')
    """
    return ",".join(several(field, value))


def wholes(field: str, value: object) -> str:
    """Return one whole number or several as a text with commas.

    >>> wholes("batch", [1, 8.0, "2k"]), wholes("batch", range(1, 4)), wholes("batch", "1..64")
    ('1,8,2k', '1,2,3', '1..64')
    """
    value = plain(value)
    items = value if isinstance(value, list) else [value]
    if not items:
        raise InputError("expected at least one number", field=field)
    return ",".join(each if isinstance(each, str) else f"{whole(field, each)}" for each in items)


def several(field: str, value: object) -> list[str]:
    """Return the texts of one value or several.

    >>> several("gpu", "h100-sxm"), several("tp", [1, 2])
    (['h100-sxm'], ['1', '2'])
    """
    value = plain(value)
    if isinstance(value, list):
        if not value:
            raise InputError("expected at least one value", field=field)
        return [text(field, item) for item in value]
    return [text(field, value)]


def shares(field: str, value: object) -> str:
    """Return shares of time by batch as a text.

    >>> shares("mix", {1: 0.2, 32: 0.8}), shares("mix", "1:0.2,32:0.8")
    ('1:0.2,32:0.8', '1:0.2,32:0.8')
    """
    if isinstance(value, Mapping):
        return ",".join(f"{text(field, k)}:{text(field, v)}" for k, v in value.items())
    return text(field, value)


def acceptance(field: str, value: object) -> str | Acceptance:
    """Return an acceptance as the text that says the same, or one that was made before.

    >>> acceptance("acceptance", 0.7), acceptance("acceptance", {1: 1.72, 3: 2.31})
    ('0.7', 'al:1=1.72,3=2.31')
    >>> acceptance("acceptance", [0.72, 0.45])
    '0.72,0.45'
    """
    if isinstance(value, Acceptance):
        return value
    if isinstance(value, Mapping):
        pairs = [f"{text(field, d)}={text(field, al)}" for d, al in value.items()]
        if not pairs:
            raise InputError("expected tokens per step by draft length: {3: 2.31}", field=field)
        return f"al:{','.join(pairs)}"
    return listed(field, value)


def overrides(value: object) -> list[str]:
    """Return the values to put in place of others, each as ``PATH=VALUE``.

    >>> overrides({"group_size": 8, "gpu.memory.bandwidth": "4 TB/s"})
    ['group_size=8', 'gpu.memory.bandwidth=4 TB/s']
    """
    if isinstance(value, Mapping):
        return [f"{path}={_setting(path, each)}" for path, each in value.items()]
    return several("set", value)


def _setting(path: str, value: object) -> str:
    value = plain(value)
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, str | int | float):
        return text("set", value)
    raise _unexpected("set", value, f"a number, a text, True, False or None for {path}")


def reference(field: str, value: object) -> str:
    """Return a name or a path; a config that is given as a dict is put in a file.

    An object with ``to_dict``, such as a config of the library transformers, is one as well.
    """
    to_dict = getattr(value, "to_dict", None)
    if callable(to_dict) and not isinstance(value, Mapping):
        value = to_dict()
    if isinstance(value, Mapping):
        try:
            content = json.dumps(value, default=_json_value)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"expected a config of plain values, as in a config.json ({error})", field=field
            ) from None
        return str(_config_file(content, _config_name(value)))
    return name(field, value, expected="a name, a path, or a config as a dict")


def name(field: str, value: object, *, expected: str = "a name or a path") -> str:
    """Return a name or a path as a text."""
    value = plain(value)
    if isinstance(value, str) and value.strip():
        return value
    raise _unexpected(field, value, expected)


def path(field: str, value: object) -> Path:
    """Return a path."""
    return Path(name(field, value, expected="a path"))


def _json_value(value: object) -> object:
    built_in = plain(value)
    if built_in is value:
        raise TypeError(f"it holds an object of type {type(value).__name__}")
    return built_in


def _config_name(config: Mapping[str, Any]) -> str:
    """Return the name of a model that is given as a config without one."""
    kind = re.sub(r"[^\w.-]+", "-", str(config.get("model_type", "")))[:40].strip("-.")
    return f"own-{kind or 'model'}"


@cache
def _configs() -> tempfile.TemporaryDirectory[str]:
    """Return the folder of configs that are given as dicts; it goes with the process."""
    return tempfile.TemporaryDirectory(prefix="roofline-")


def _config_file(content: str, folder: str) -> Path:
    """Return the config.json that holds this content, in a folder that names the model."""
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    file = Path(_configs().name) / digest / folder / "config.json"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
    return file


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _unexpected(field: str, value: object, expected: str) -> InputError:
    given = repr(value) if isinstance(value, str | bool | int | float | None) else ""
    if not given or len(given) > 60:
        given = type(value).__name__
    if isinstance(value, list | tuple) and len(value) > 1:
        given = f"{len(value)}: one kind only; sweep takes several"
    return InputError(f"expected {expected}, got {given}", field=field)
