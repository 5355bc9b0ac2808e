"""A spec written as YAML, without the fields that have their defaults."""

from __future__ import annotations

import json
import re
from enum import Enum
from typing import Any

from pydantic import BaseModel

from roofline.base.schema import dump_yaml
from roofline.specs.network import NetworkSpec

__all__ = ["spec_text", "wrapped_spec_text"]

#: Keys that are written even where they have their defaults.
_ALWAYS_WRITTEN = ("schema", "kind", "tie_embeddings", "dtype")


def _plain(value: object) -> Any:
    if isinstance(value, BaseModel):
        return _mapping(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _mapping(part: BaseModel) -> dict[str, Any]:
    fields = type(part).model_fields
    names = sorted(fields, key=lambda name: (name == "layers", name != "kind"))
    data: dict[str, Any] = {}
    for name in names:
        key, value = fields[name].alias or name, getattr(part, name)
        default = fields[name].get_default(call_default_factory=True)
        if key in _ALWAYS_WRITTEN or value != default:
            data[key] = _plain(value)
    return data


def spec_text(spec: NetworkSpec) -> str:
    """Return the YAML of a spec.

    >>> from roofline.specs.network import load_model
    >>> spec_text(load_model("llama-3.1-8b")).splitlines()[:2]
    ['schema: 1', 'kind: model']
    """
    return dump_yaml(_ordered(spec))


def wrapped_spec_text(spec: NetworkSpec, *, width: int = 80) -> str:
    """Return the YAML of a spec for a terminal: the same values in lines of up to ``width``.

    An address has no spaces to break at, so it is written in double quotes, where a backslash at
    the end of a line joins it to the next.
    """
    data, long = _ordered(spec), {}
    for key, value in data.items():
        if isinstance(value, str) and len(f"{key}: {value}") > width:
            long[key], data[key] = value, ""
    text = dump_yaml(data, width=width - 20)  # a line goes on to the end of a word or a value
    for key, value in long.items():
        text = text.replace(f"\n{key}: ''\n", f"\n{_wrapped(key, value, width)}\n", 1)
    return text


def _wrapped(key: str, text: str, width: int) -> str:
    r"""Return a key and its text, broken after spaces, slashes and colons.

    >>> print(_wrapped("source", "config.json (pypi:some-package==1.2)", 30))
    source: "config.json (pypi:\
      some-package==1.2)"
    >>> _wrapped("name", 'a "b" c', 30)
    'name: "a \\"b\\" c"'
    """
    lines = [f"{key}: "]
    quoted = json.dumps(text, ensure_ascii=False)
    for piece in re.findall(r"(?:\\.|[^\\ /:])+[ /:]*|[ /:]+", quoted):
        if len(lines[-1]) + len(piece) >= width:
            lines.append("  ")
        lines[-1] += piece
    return "\\\n".join(lines)


def _ordered(spec: NetworkSpec) -> dict[str, Any]:
    """Return a spec as plain data, with the keys that identify it first."""
    data = _mapping(spec)
    named = ("schema", "kind", "id", "name", "target")
    identity = (*named, "source", "license", "repository", "published")
    ordered = {key: data[key] for key in identity if key in data}
    return ordered | {key: value for key, value in data.items() if key not in ordered}
