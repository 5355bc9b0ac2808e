"""Nothing in the package runs code, or builds objects, from what it is given."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT

#: What runs code, or builds objects, from what it is given.
RUNS_CODE = {"eval", "exec", "compile", "__import__"}
LOADERS = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "code"}
UNSAFE = {
    "os.system", "os.popen", "yaml.load", "yaml.unsafe_load", "yaml.full_load", "yaml.load_all",
    "torch.load", "pd.read_pickle", "pandas.read_pickle", "pd.eval", "pandas.eval",
    "subprocess.getoutput", "tempfile.mktemp",
}  # fmt: skip


def _dangers(tree: ast.AST) -> Iterator[str]:
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


@pytest.mark.parametrize("path", sorted((ROOT / "roofline").rglob("*.py")), ids=lambda p: p.stem)
def test_nothing_runs_what_data_say(path: Path) -> None:
    assert not list(_dangers(ast.parse(path.read_text("utf-8"))))


@pytest.mark.parametrize(
    "text",
    [
        "eval(x)", "import pickle", "from marshal import loads", "os.system(x)", "yaml.load(x)",
        "subprocess.run(x, shell=True)", "np.load(x, allow_pickle=True)", "frame.query(x)",
    ],
)  # fmt: skip
def test_the_search_finds_what_it_looks_for(text: str) -> None:
    assert list(_dangers(ast.parse(text)))
