"""YAML as data files need it: fast, strict, and with the place of every error.

YAML 1.1 surprises are removed: a repeated key is an error, ``12:30`` and ``1e12`` are text,
``yes`` is text, anchors and tags are refused, and a file may not be larger than a profile ever is.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from roofline.errors import InputError
from roofline.reading import Readable, read_at_most

__all__ = ["Readable", "dump_yaml", "load_yaml"]

MAX_BYTES = 4_000_000
MAX_DEPTH = 40


class _Loader(yaml.CSafeLoader):
    """The C loader with only the scalar types that JSON has."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:null", re.compile(r"^(?:~|null|)$"), ["~", "n", ""]
)
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), list("tf"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9]{0,17})$"), list("-+0123456789")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?$"),
    list("-+0123456789"),
)


def load_yaml(file: Readable) -> dict[str, Any]:
    """Return the mapping in ``file``; raise InputError naming file, line and remedy."""
    raw = read_at_most(file, MAX_BYTES, "a YAML file here")
    try:
        loader = _Loader(raw)
        try:
            node = loader.get_single_node()
            _check(node, file.name)
            data = loader.construct_document(node) if node else None
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise InputError(f"{file.name}{line}: not valid YAML: {error.problem}") from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{file.name}: not valid YAML: {first}") from None
    if not isinstance(data, dict):
        raise InputError(f"{file.name}: expected 'key: value' lines, got {type(data).__name__}")
    return data


class _Dumper(yaml.SafeDumper):
    """Block style, but a short mapping of plain values stays on its line."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _short_on_one_line(dumper: yaml.SafeDumper, data: dict[str, Any]) -> yaml.Node:
    plain = not any(isinstance(value, dict | list) for value in data.values())
    short = len(str(data)) <= 88
    return dumper.represent_mapping(
        "tag:yaml.org,2002:map", data.items(), flow_style=bool(data) and plain and short
    )


_Dumper.add_representer(dict, _short_on_one_line)


def dump_yaml(data: dict[str, Any]) -> str:
    """Return ``data`` as YAML in the given key order."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


_TAGS = {
    f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "map", "seq")
}


def _agrees(node: yaml.ScalarNode) -> bool:
    """Return whether a scalar has the type its text has by itself (no explicit tag)."""
    quoted = node.style in ("'", '"', "|", ">")
    if quoted:
        return node.tag == "tag:yaml.org,2002:str"
    candidates = _Loader.yaml_implicit_resolvers.get(node.value[:1], [])
    found = next((tag for tag, shape in candidates if shape.match(node.value)), None)
    return node.tag == (found or "tag:yaml.org,2002:str")


def _check(root: yaml.Node | None, name: str) -> None:
    """Refuse aliases, repeated or non-text keys, tags and absurd depth, each with its line."""
    seen: set[int] = set()
    stack = [(root, 0)] if root is not None else []
    while stack:
        node, depth = stack.pop()
        where = f"{name}:{node.start_mark.line + 1}"
        if id(node) in seen:
            raise InputError(f"{where}: anchors and aliases are not used here; write the value out")
        seen.add(id(node))
        if depth > MAX_DEPTH:
            raise InputError(f"{where}: nested more than {MAX_DEPTH} deep")
        if node.tag not in _TAGS or (isinstance(node, yaml.ScalarNode) and not _agrees(node)):
            raise InputError(f"{where}: tag {node.tag!r} is not used here; remove it")
        if isinstance(node, yaml.MappingNode):
            keys: set[str] = set()
            for key, value in node.value:
                line = f"{name}:{key.start_mark.line + 1}"
                if not isinstance(key, yaml.ScalarNode):
                    raise InputError(f"{line}: a key must be plain text")
                if key.value in keys:
                    raise InputError(f"{line}: key '{key.value}' appears twice; keep one")
                keys.add(key.value)
                stack.append((value, depth + 1))
        elif isinstance(node, yaml.SequenceNode):
            stack.extend((item, depth + 1) for item in node.value)
