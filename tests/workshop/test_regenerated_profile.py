"""The committed laws are what the importer makes of the pinned public tables.

They are held to each other by what they say: the same errors, and the same time of every row that
ships. A constant that rows cannot tell may come out differently with another SciPy or processor.
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from roofline.base.resources import shelf
from roofline.specs.gpu import GPU_SHELF, Overlay, load_hardware
from roofline.specs.laws import LawBlock
from roofline.validation.kernel_families import FAMILIES
from roofline.validation.kernels import matching_block, sample_groups

pytest.importorskip("pyarrow")
pytest.importorskip("scipy")

GPU, ENGINE = "rtx-pro-6000-blackwell-server", "vllm"
FILE = f"{GPU}.{ENGINE}.yaml"


def _installed() -> bool:
    try:
        return metadata.version("aiconfigurator-core") == "0.12.0"
    except metadata.PackageNotFoundError:
        return False


@pytest.mark.skipif(not _installed(), reason="needs the tables extra")
def test_the_committed_overlay_is_regenerated(tmp_path: Path) -> None:
    from workshop.import_tables import import_tables, write_overlays
    from workshop.tables.parquet import data_folder

    outcome = import_tables(data_folder(), gpu=GPU, engines=[ENGINE], date="2026-01-01", jobs=2)
    written = write_overlays(outcome, tmp_path)
    assert [path.name for path in written] == [FILE]
    fresh, committed = (
        Overlay.load(path).calibration for path in (written[0], Path(str(shelf(GPU_SHELF))) / FILE)
    )
    profile = load_hardware(GPU)
    assert [_named(block) for block in fresh] == [_named(block) for block in committed]
    for block, other in zip(fresh, committed, strict=True):
        # errors in four digits: another processor's BLAS moves the last of them
        assert _errors(block) == pytest.approx(_errors(other), rel=0.01), _named(block)
    priced = 0
    for group in sample_groups():
        if (group.gpu, group.engine) == (GPU, ENGINE):
            blocks = matching_block(fresh, group), matching_block(committed, group)
            family = FAMILIES[group.kind]
            mine, theirs = (
                np.asarray(family.seconds(group.columns, group.label, block.law, profile))
                for block in blocks
                if block is not None
            )
            assert mine == pytest.approx(theirs, rel=2e-3), group.label
            priced += 1
    assert priced == len(committed)


def _named(block: LawBlock) -> tuple[str, str, int]:
    """Return what a law prices, and how many rows it saw."""
    name = " ".join(str(getattr(block, key, None)) for key in ("dtype", "kernel", "head_dim"))
    return block.kind, name, block.evidence.rows_fitted


def _errors(block: LawBlock) -> tuple[float, float]:
    """Return how far off rows are that were left out."""
    return block.evidence.median_error, block.evidence.p90_error
