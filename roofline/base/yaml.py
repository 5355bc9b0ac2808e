"""YAML as data files need it: fast, strict, and with the place of every error.

YAML 1.1 surprises are removed: a repeated key is an error, ``12:30`` and ``1e12`` are text,
``yes`` is text, anchors, tags and control characters are refused, and a file may not be larger or
deeper than a profile ever is.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from roofline.base.errors import InputError
from roofline.base.files import CONTROL, Readable, read_at_most

__all__ = ["Readable", "dump_yaml", "load_yaml"]

MAX_BYTES = 4_000_000
MAX_DEPTH = 40
MAX_PARTS = 150_000  # keys, values, mappings and lists


class _Loader(yaml.CSafeLoader):
    """The C loader with only the scalar types that JSON has, and a bound on depth and number.

    The bounds hold while the nodes are made: that recurses, and has no bound of its own.
    """

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012
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


def dump_yaml(data: dict[str, Any], *, width: int = 100) -> str:
    """Return ``data`` as YAML in the given key order; what has spaces breaks at ``width``."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=width)


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
    """Refuse aliases, repeated or non-text keys, tags and control characters, with their line."""
    seen: set[int] = set()
    stack = [root] if root is not None else []
    while stack:
        node = stack.pop()
        where = f"{name}:{node.start_mark.line + 1}"
        if id(node) in seen:
            raise InputError(f"{where}: anchors and aliases are not used here; write the value out")
        seen.add(id(node))
        if node.tag not in _TAGS or (isinstance(node, yaml.ScalarNode) and not _agrees(node)):
            raise InputError(f"{where}: tag {node.tag!r} is not used here; remove it")
        if isinstance(node, yaml.ScalarNode) and CONTROL.search(node.value):
            raise InputError(f"{where}: a text holds a control character; remove it")
        if isinstance(node, yaml.MappingNode):
            keys: set[str] = set()
            for key, value in node.value:
                line = f"{name}:{key.start_mark.line + 1}"
                if not isinstance(key, yaml.ScalarNode):
                    raise InputError(f"{line}: a key must be plain text")
                if CONTROL.search(key.value):
                    raise InputError(f"{line}: a key holds a control character; remove it")
                if key.value in keys:
                    raise InputError(f"{line}: key '{key.value}' appears twice; keep one")
                keys.add(key.value)
                stack.append(value)
        elif isinstance(node, yaml.SequenceNode):
            stack.extend(node.value)
