"""Where the shipped data lies: inside an installed package, else beside a checkout."""

from __future__ import annotations

import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from roofline.errors import InputError, did_you_mean

#: ``<id>.<engine>.yaml`` belongs to ``<id>.yaml`` and is no entry of its own.
OVERLAY = re.compile(r"\.(vllm|sglang|trtllm|llamacpp)$")

__all__ = ["bundled_names", "data_file", "find", "shelf"]


def shelf(name: str) -> Traversable:
    """Return the folder ``name`` (``hardware_profiles``, ``model_specs`` or one under ``data``)."""
    package = files("roofline")
    checkout = Path(str(package)).parent
    places = [package / "data" / name, package / "_data" / name]
    if (checkout / "pyproject.toml").is_file():
        places.insert(0, checkout / name)
    for place in places:
        if place.is_dir():
            return place
    raise InputError(f"the shipped folder '{name}' is missing; reinstall roofline")


def data_file(name: str) -> Traversable:
    """Return a file of the package's own data folder."""
    return files("roofline") / "data" / name


def bundled_names(name: str) -> list[str]:
    """Return the ids on a shelf, sorted (file names only; nothing is opened)."""
    entries = (entry.name for entry in shelf(name).iterdir())
    names = (entry.removesuffix(".yaml") for entry in entries if entry.endswith(".yaml"))
    return sorted(name for name in names if not OVERLAY.search(name))


def find(reference: str, shelf_name: str, what: str) -> Traversable | Path:
    """Return the file that ``reference`` names: a bundled id (a vendor may precede) or a path."""
    if reference.endswith((".yaml", ".yml")):
        path = Path(reference)
        if not path.is_file():
            raise InputError(f"{what} '{reference}': no such file; give a path or a bundled id")
        return path
    names = bundled_names(shelf_name)
    wanted = reference.lower().rsplit("/", 1)[-1]
    if wanted in names:
        return shelf(shelf_name) / f"{wanted}.yaml"
    raise InputError(f"unknown {what} '{reference}': {did_you_mean(wanted, names)}")
