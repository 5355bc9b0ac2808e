"""How to install what only some commands need, as it works where this package was installed."""

from __future__ import annotations

import shlex
import sys
from importlib.resources import files
from pathlib import Path

__all__ = ["how_to_install"]

PACKAGE = "roofline"


def how_to_install(extra: str) -> str:
    """Return the command that adds an extra of pyproject.toml to this installation.

    In a checkout pip installs the extra itself; elsewhere its packages are named, since the package
    need not lie on an index that pip asks.
    """
    if (Path(str(files(PACKAGE))).parent / "pyproject.toml").is_file():
        return f"pip install -e '.[{extra}]' in the checkout"
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
    parts = (line.partition(";") for line in stated)
    return [what.strip() for what, _, marker in parts if f"extra == '{extra}'" in _quoted(marker)]


def _quoted(marker: str) -> str:
    return marker.replace('"', "'")
