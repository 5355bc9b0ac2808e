"""Where the shipped data is: in the installed package, or beside it in a checkout."""

from __future__ import annotations

import re
import sys
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from roofline.base.errors import InputError

__all__ = [
    "bundled_names",
    "data_file",
    "how_to_install",
    "shelf",
    "stated_kind",
]

#: ``<id>.<engine>.yaml`` belongs to ``<id>.yaml`` and is no entry of its own.
OVERLAY = re.compile(r"\.(vllm|sglang|trtllm|llamacpp)$")
#: The line of a spec that states its kind.
KIND = re.compile(r"^kind: ([\w-]+)$", re.MULTILINE)


def shelf(name: str) -> Traversable:
    """Return the folder ``name`` (``hardware_profiles``, ``model_specs`` or one under ``data``)."""
    package = files("roofline")
    checkout = Path(str(package)).parent
    folders = [package / "data" / name, package / "_data" / name]
    if (checkout / "pyproject.toml").is_file():
        folders.insert(0, checkout / name)
    for folder in folders:
        if folder.is_dir():
            return folder
    raise InputError(f"the shipped folder '{name}' is missing; reinstall roofline")


def data_file(name: str) -> Traversable:
    """Return a file of the package's own data folder."""
    return files("roofline") / "data" / name


def bundled_names(name: str, *, kind: str | None = None) -> list[str]:
    """Return the ids on a shelf, sorted; of one kind where it is given (else nothing is opened).

    A spec that states no kind is a model's.
    """
    names = _names(name)
    return list(names) if kind is None else [n for n in names if stated_kind(name, n) == kind]


@cache
def stated_kind(shelf_name: str, name: str) -> str:
    """Return the kind that a file states, read from its text: a schema takes much longer."""
    stated = KIND.search((shelf(shelf_name) / f"{name}.yaml").read_text("utf-8"))
    return stated[1] if stated else "model"


@cache
def _names(shelf_name: str) -> tuple[str, ...]:
    entries = (entry.name for entry in shelf(shelf_name).iterdir())
    names = (entry.removesuffix(".yaml") for entry in entries if entry.endswith(".yaml"))
    return tuple(sorted(name for name in names if not OVERLAY.search(name)))


PACKAGE = "roofline"


def how_to_install(extra: str) -> str:
    """Return the command that adds an extra of pyproject.toml to this installation.

    In a checkout pip installs the extra itself; elsewhere its packages are named, since the package
    need not lie on an index that pip asks.
    """
    if (Path(str(files(PACKAGE))).parent / "pyproject.toml").is_file():
        return f"pip install -e '.[{extra}]' in the checkout"
    import shlex  # only where something is missing

    wanted = shlex.join(_packages(extra)) or f"'{PACKAGE}[{extra}]'"
    if (Path(sys.prefix) / "pipx_metadata.json").is_file():  # pipx keeps it beside what it installs
        return f"pipx inject {PACKAGE} {wanted}"
    return f"pip install {wanted}"


def _packages(extra: str) -> list[str]:
    """Return the requirements of an extra, as the installed package states them."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        stated = requires(PACKAGE) or []
    except PackageNotFoundError:
        return []
    parts = (line.replace('"', "'").partition(";") for line in stated)
    return [package.strip() for package, _, marker in parts if f"extra == '{extra}'" in marker]
