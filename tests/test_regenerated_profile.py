"""The committed constants are what the importer makes of the pinned public tables."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from roofline.hardware import SHELF
from roofline.resources import shelf
from roofline.yamlio import load_yaml

pytest.importorskip("pyarrow")
pytest.importorskip("scipy")

GPU, ENGINE = "rtx-pro-6000-blackwell-server", "vllm"


def _installed() -> bool:
    try:
        return metadata.version("aiconfigurator-core") == "0.12.0"
    except metadata.PackageNotFoundError:
        return False


@pytest.mark.skipif(not _installed(), reason="needs the tables extra")
def test_the_committed_overlay_is_regenerated(tmp_path: Path) -> None:
    from roofline.calibration.importer import import_tables, write_overlays
    from roofline.calibration.tables import data_folder

    outcome = import_tables(data_folder(), gpu=GPU, engines=[ENGINE], date="2026-01-01", jobs=2)
    written = write_overlays(outcome, tmp_path)
    assert [path.name for path in written] == [f"{GPU}.{ENGINE}.yaml"]
    fresh, committed = _laws(written[0]), _laws(Path(str(shelf(SHELF))) / written[0].name)
    assert fresh.keys() == committed.keys()
    for name, law in fresh.items():
        assert law == pytest.approx(committed[name], rel=2e-3), name


def _laws(path: Path) -> dict[str, list[float]]:
    """Return every constant of a file's laws by the block's label."""
    blocks = load_yaml(path)["calibration"]
    keys = ("kind", "dtype", "kernel", "head_dim")
    return {" ".join(str(b.get(k)) for k in keys): list(_numbers(b["law"])) for b in blocks}


def _numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [number for item in value.values() for number in _numbers(item)]
    if isinstance(value, list):
        return [number for item in value for number in _numbers(item)]
    return [float(value)] if isinstance(value, int | float) else []
