"""Installed packages: where their data are, and what to type where a package is missing."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest

from roofline.base import resources
from roofline.base.errors import InputError

STATED = [
    "numpy>=1.26",
    'pyarrow>=15; extra == "parquet"',
    "jinja2>=3.1; extra == 'report'",
    "plotly>=6; (platform_system == 'Linux') and extra == 'report'",
]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the package lie outside any checkout."""
    monkeypatch.setattr(resources, "files", lambda _: tmp_path / "site-packages" / "roofline")
    monkeypatch.setattr(metadata, "requires", lambda _: STATED)


def test_a_checkout_installs_its_own_extra() -> None:
    assert resources.how_to_install("parquet") == "pip install -e '.[parquet]' in the checkout"


@pytest.mark.usefixtures("installed")
def test_elsewhere_the_packages_are_named() -> None:
    assert resources.how_to_install("parquet") == "pip install 'pyarrow>=15'"
    assert resources.how_to_install("report") == "pip install 'jinja2>=3.1' 'plotly>=6'"


@pytest.mark.usefixtures("installed")
def test_pipx_injects_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """pipx marks its environments so, wherever PIPX_HOME puts them."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert resources.how_to_install("parquet") == "pip install 'pyarrow>=15'"
    (tmp_path / "pipx_metadata.json").touch()
    assert resources.how_to_install("parquet") == "pipx inject roofline 'pyarrow>=15'"


@pytest.mark.usefixtures("installed")
def test_without_metadata_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "requires", lambda _: None)
    assert resources.how_to_install("parquet") == "pip install 'roofline[parquet]'"


def test_data_are_found_in_an_installed_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel has them under ``_data``; where nothing has, it is not whole."""
    package = tmp_path / "roofline"
    (package / "_data" / "model_specs").mkdir(parents=True)
    (tmp_path / "model_specs").mkdir()  # somebody else's: there is no pyproject.toml beside it
    monkeypatch.setattr(resources, "files", lambda _: package)
    assert str(resources.shelf("model_specs")) == str(package / "_data" / "model_specs")
    with pytest.raises(InputError, match="folder 'hardware_profiles' is missing; reinstall"):
        resources.shelf("hardware_profiles")
    (tmp_path / "pyproject.toml").touch()
    assert str(resources.shelf("model_specs")) == str(tmp_path / "model_specs")
