"""Imports point one way, and none runs in a circle (CONTRIBUTING.md, "Where things are")."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.support import ROOT

#: What each package stands on; it may import that, and whatever that stands on.
CONTRACT = {
    "base": "",
    "specs": "base",
    "kernels": "specs",
    "importers": "kernels",
    "timing": "kernels",
    "acceptance": "specs",
    "engines": "acceptance",
    "advice": "importers timing engines",
    "questions": "advice",
    "calibrate": "questions",
    "validation": "calibrate",
    "render": "validation",
    "api": "render",
    "cli": "render",
}
#: Only maintainers run it; it may import all of the package, which never imports it.
WORKSHOP = "workshop"
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for folder in ("roofline", WORKSHOP)
    for path in sorted((ROOT / folder).rglob("*.py"))
}


def imports(name: str) -> Iterator[str]:
    """Yield the modules of the package that ``name`` imports anywhere, late imports included."""
    for node in ast.walk(ast.parse(FILES[name].read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import in line {node.lineno}"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in FILES else str(node.module)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


IMPORTS = {name: {t for t in imports(name) if t in FILES and t != name} for name in FILES}


def test_the_root_holds_packages_only() -> None:
    found = {path.name for path in (ROOT / "roofline").iterdir()} - {"__pycache__"}
    assert found == {"__init__.py", "__main__.py", "py.typed", "data", *CONTRACT}


def below(package: str) -> set[str]:
    """Return what a package may import: itself, and all that it stands on."""
    return {package}.union(*(below(other) for other in CONTRACT[package].split()))


def test_imports_point_one_way() -> None:
    packages = {
        name: name.split(".")[1]
        for name in FILES
        if name.startswith("roofline.") and "__" not in name
    }
    wrong = [
        f"{name} imports {target}"
        for name, package in packages.items()
        for target in IMPORTS[name]
        if target in packages and packages[target] not in below(package)
    ]
    assert not wrong


def test_the_package_does_without_the_workshop() -> None:
    wrong = [
        f"{name} imports {target}"
        for name in FILES
        if name.startswith("roofline")
        for target in imports(name)
        if target.partition(".")[0] == WORKSHOP
    ]
    assert not wrong


def test_there_are_no_cycles() -> None:
    """Take away what imports nothing that is left, until nothing is left."""
    left = dict(IMPORTS)
    while left:
        free = [name for name, targets in left.items() if not targets & left.keys()]
        assert free, f"a cycle among {sorted(left)}"
        for name in free:
            del left[name]
