"""Imports point one way (design.md section 2); cost and acceptance do not know each other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT

PACKAGE = ROOT / "roofline"
#: Each module or subpackage may import only what stands on an earlier line.
ORDER = [
    "errors",
    "units",
    "extras",
    "output",
    "csvtext",
    "figure",
    "reading",
    "yamlio",
    "schema",
    "resources",
    "ops",
    "experts",
    "shapes",
    "cost",
    "laws",
    "quantization",
    "calibrated",
    "hardware",
    "host",
    "state_mixers",
    "mixers",
    "model",
    "vocabulary",
    "workload",
    "projections",
    "layers",
    "places",
    "cache",
    "footprint",
    "gguf",
    "specfile",
    "hf_config",
    "sources",
    "kernels",
    "mixer_ops",
    "attention_ops",
    "mlp_ops",
    "split",
    "cards",
    "forward",
    "priors",
    "lawbook",
    "timing",
    "overhead",
    "overhead",
    "engine_limits",
    "engine",
    "overrides",
    "draft_heads",
    "draft_passes",
    "drafters",
    "acceptance",
    "engines",
    "launches",
    "step",
    "memory",
    "uncertainty",
    "sampling",
    "advise",
    "request",
    "parts",
    "local",
    "idle",
    "lengths",
    "accepted",
    "prepare",
    "point",
    "edges",
    "remedies",
    "account",
    "cautions",
    "recommend",
    "equal_memory",
    "compare",
    "paste",
    "beyond",
    "reasons",
    "goals",
    "explore",
    "rules",
    "schedules",
    "loads",
    "contradictions",
    "live",
    "calibration",
    "diagnosis",
    "validation",
    "charts",
    "report",
    "measure",
    "html_report",
    "sweeps",
    "cli",
]
RANK = {name: rank for rank, name in enumerate(ORDER)}


def _modules() -> dict[str, Path]:
    """Return every module by its dotted name below the package."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        if name not in ("", "__main__"):
            found[name] = path
    return found


MODULES = _modules()


def _imports(name: str) -> Iterator[str]:
    """Yield the modules of the package that ``name`` imports anywhere, late imports included."""
    for node in ast.walk(ast.parse(MODULES[name].read_text("utf-8"))):
        if isinstance(node, ast.Import):
            wanted = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import in line {node.lineno}"
            wanted = [(node.module or "", alias.name) for alias in node.names]
        else:
            continue
        for module, member in wanted:
            if module.split(".")[0] != "roofline":
                continue
            base = module.removeprefix("roofline").lstrip(".")
            inner = f"{base}.{member}".strip(".")
            target = inner if inner in MODULES else base
            if target:
                yield target


def test_every_module_has_a_place() -> None:
    present = {name.split(".")[0] for name in MODULES}
    assert present <= set(ORDER), (
        f"give {sorted(present - set(ORDER))} a line in ORDER, after all that it imports"
    )


@pytest.mark.parametrize("name", MODULES)
def test_imports_point_backwards(name: str) -> None:
    own = name.split(".", maxsplit=1)[0]
    for target in _imports(name):
        other = target.split(".")[0]
        if other != own:
            assert RANK[other] < RANK[own], f"{name} must not import {target}"


def test_there_are_no_cycles() -> None:
    """Inside subpackages as well: take away what imports nothing left, until nothing is left."""
    left = {name: {t for t in _imports(name) if t != name} for name in MODULES}
    while left:
        free = [name for name, targets in left.items() if not targets & left.keys()]
        assert free, f"a cycle among {sorted(left)}"
        for name in free:
            del left[name]


def _reach(name: str) -> set[str]:
    seen: set[str] = set()
    stack = [name]
    while stack:
        for target in _imports(stack.pop()):
            if target not in seen:
                seen.add(target)
                stack.append(target)
    return seen


COST = [
    "ops", "hardware", "model", "layers", "forward", "timing", "engine", "drafters", "step",
    "memory",
]  # fmt: skip


@pytest.mark.parametrize("name", COST)
def test_cost_knows_nothing_of_acceptance(name: str) -> None:
    assert _reach(name).isdisjoint({"acceptance", "advise"})


def test_acceptance_knows_nothing_of_cost() -> None:
    names = [name for name in MODULES if name.split(".")[0] in ("acceptance", "engines")]
    for name in names:
        assert _reach(name).isdisjoint(COST)
