"""Rules for every source file: what may be imported from it, and that it runs no code from data."""

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


def imported_names(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield (module, name) of every import from the package, at any depth of the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in TREES:
            for alias in node.names:
                yield node.module, alias.name


def is_public(module: str, name: str) -> bool:
    """Return whether ``module`` offers ``name``: in ``__all__``, or without an underscore."""
    known = OFFERED[module]
    if f"{module}.{name}" in TREES or known is None:
        return not name.startswith("_") or name == "__version__"
    return name in known


def test_only_public_names_are_imported() -> None:
    wrong = [
        f"{importer}: {module} does not offer {name}"
        for importer, tree in TREES.items()
        for module, name in imported_names(tree)
        if not is_public(module, name)
    ]
    assert not wrong


#: What runs code, or builds objects, from what it is given.
RUNS_CODE = {"eval", "exec", "compile", "__import__"}
LOADERS = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "code"}
UNSAFE = {
    "os.system",
    "os.popen",
    "yaml.load",
    "yaml.unsafe_load",
    "yaml.full_load",
    "yaml.load_all",
    "torch.load",
    "pd.read_pickle",
    "pandas.read_pickle",
    "pd.eval",
    "pandas.eval",
    "subprocess.getoutput",
    "tempfile.mktemp",
}


def unsafe_calls(tree: ast.AST) -> Iterator[str]:
    """Yield the imports and calls that run code, or build objects, from what they are given."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names]
            yield from (name for name in names if name.split(".")[0] in LOADERS)
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called in RUNS_CODE | UNSAFE or called.endswith((".eval", ".query")):
            yield called
        for keyword in node.keywords:
            on = isinstance(keyword.value, ast.Constant) and keyword.value.value is True
            if keyword.arg in ("shell", "allow_pickle") and on:
                yield f"{called}({keyword.arg}=True)"


def test_the_package_runs_no_code_from_data() -> None:
    wrong = [
        f"{name}: {call}"
        for name, tree in TREES.items()
        if name.partition(".")[0] == "roofline"
        for call in unsafe_calls(tree)
    ]
    assert not wrong


@pytest.mark.parametrize(
    "text",
    [
        "eval(x)",
        "import pickle",
        "from marshal import loads",
        "os.system(x)",
        "yaml.load(x)",
        "subprocess.run(x, shell=True)",
        "np.load(x, allow_pickle=True)",
        "frame.query(x)",
    ],
)
def test_unsafe_calls_are_found(text: str) -> None:
    assert list(unsafe_calls(ast.parse(text)))
