"""Where the shipped data is: in the installed package, or beside it in a checkout."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from roofline.base.errors import InputError, close_names, did_you_mean
from roofline.base.schema import load_yaml

__all__ = [
    "Alias",
    "alias_note",
    "aliases",
    "bundled_id",
    "bundled_names",
    "data_file",
    "how_to_install",
    "shelf",
    "spec_file",
]

#: ``<id>.<engine>.yaml`` belongs to ``<id>.yaml`` and is no entry of its own.
OVERLAY = re.compile(r"\.(vllm|sglang|trtllm|llamacpp)$")
#: Which command lists a shelf.
LISTINGS = {"model_specs": "models", "hardware_profiles": "hardware", "acceptance": "acceptance"}
#: What to do where something is not bundled, beyond listing the shelf.
UNBUNDLED = {"model_specs": ", or write a YAML spec: docs/how-to/own.md"}


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


def bundled_names(name: str) -> list[str]:
    """Return the ids on a shelf, sorted (file names only; nothing is opened)."""
    return list(_names(name))


@cache
def _names(shelf_name: str) -> tuple[str, ...]:
    entries = (entry.name for entry in shelf(shelf_name).iterdir())
    names = (entry.removesuffix(".yaml") for entry in entries if entry.endswith(".yaml"))
    return tuple(sorted(name for name in names if not OVERLAY.search(name)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Alias:
    """Another name of something bundled, with what its user should know."""

    id: str
    note: str | None = None


@cache
def aliases(name: str) -> dict[str, Alias]:
    """Return the other names on a shelf, from ``<shelf>.aliases.yaml`` among the package's data."""
    file = data_file(f"{name}.aliases.yaml")
    if not file.is_file():
        return {}
    entries = load_yaml(file).get("aliases", {})
    return {
        alias: Alias(id=entry) if isinstance(entry, str) else Alias(**entry)
        for alias, entry in entries.items()
    }


def _without_vendor(reference: str) -> str:
    return reference.lower().rsplit("/", 1)[-1]


def bundled_id(reference: str, shelf_name: str) -> str | None:
    """Return the bundled id that a reference names by itself or by an alias; else None."""
    name = _without_vendor(reference)
    if name in bundled_names(shelf_name):
        return name
    alias = aliases(shelf_name).get(name)
    return alias.id if alias is not None else None


def alias_note(reference: str, shelf_name: str) -> str | None:
    """Return what the user of an alias should know."""
    name = _without_vendor(reference)
    if name in bundled_names(shelf_name):
        return None
    alias = aliases(shelf_name).get(name)
    return alias.note if alias is not None else None


def spec_file(reference: str, shelf_name: str, what: str) -> Traversable | Path:
    """Return the file that ``reference`` names: a bundled id (a vendor may precede) or a path."""
    if reference.endswith((".yaml", ".yml")):
        path = Path(reference)
        if not path.is_file():
            raise InputError(f"{what} '{reference}': no such file; give a path or a bundled id")
        return path
    found = bundled_id(reference, shelf_name)
    if found is not None:
        return shelf(shelf_name) / f"{found}.yaml"
    name = _without_vendor(reference)
    names = {*bundled_names(shelf_name), *aliases(shelf_name)}
    hint = did_you_mean(name, names)
    listing = LISTINGS.get(shelf_name)
    more = ""
    if listing and not close_names(name, names):
        more = f"; see 'roofline {listing} list'{UNBUNDLED.get(shelf_name, '')}"
    raise InputError(f"unknown {what} '{reference}': {hint}{more}")


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
