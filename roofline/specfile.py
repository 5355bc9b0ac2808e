"""A spec as the YAML file that people would write: defaults left out, kinds kept."""

from __future__ import annotations

from enum import Enum
from typing import Any

from pydantic import BaseModel

from roofline.model import NetworkSpec
from roofline.yamlio import dump_yaml

__all__ = ["spec_text"]

#: Keys that a file always states.
_STATED = ("schema", "kind", "tie_embeddings", "dtype")


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
    found: dict[str, Any] = {}
    for name in names:
        key, value = fields[name].alias or name, getattr(part, name)
        default = fields[name].get_default(call_default_factory=True)
        if key in _STATED or value != default:
            found[key] = _plain(value)
    return found


def spec_text(spec: NetworkSpec) -> str:
    """Return the YAML of a spec.

    >>> from roofline.model import load_model
    >>> spec_text(load_model("llama-3.1-8b")).splitlines()[:2]
    ['schema: 1', 'kind: model']
    """
    found = _mapping(spec)
    first = ("schema", "kind", "id", "name", "target", "source", "license", "repository")
    ordered = {key: found[key] for key in first if key in found}
    return dump_yaml(ordered | {key: value for key, value in found.items() if key not in ordered})
