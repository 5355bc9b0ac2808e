"""Modules say in ``__all__`` what others may use of them, and others keep to it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT

FILES = sorted(path for name in ("roofline", "workshop") for path in (ROOT / name).rglob("*.py"))


def name_of(path: Path) -> str:
    """Return a file's module name."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


TREES = {name_of(path): ast.parse(path.read_text("utf-8")) for path in FILES}


def offered(tree: ast.Module) -> set[str] | None:
    """Return the names in ``__all__``, None without it."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return None


OFFERED = {name: offered(tree) for name, tree in TREES.items()}


def taken(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield (module, name) of every import from the package, at any depth of the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in TREES:
            for alias in node.names:
                yield node.module, alias.name


@pytest.mark.parametrize("name", TREES)
def test_only_what_is_offered_is_imported(name: str) -> None:
    for module, wanted in taken(TREES[name]):
        known = OFFERED[module]
        if f"{module}.{wanted}" in TREES or known is None:
            assert not wanted.startswith("_") or wanted == "__version__", (module, wanted)
        else:
            assert wanted in known, f"{module} does not offer {wanted}"
