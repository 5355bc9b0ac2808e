"""Tables that are left out for a fault of their benchmark."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from roofline.specs.gpu import load_overlay
from roofline.specs.laws import MoeBlock
from workshop.suspects import compare
from workshop.tables.dropped import dropped, reason_to_drop
from workshop.tables.family import TableGroup


def test_a_dropped_table_prices_nothing() -> None:
    """No overlay holds a law of it."""
    for entry in dropped():
        for gpu in entry.gpus:
            overlay = load_overlay(gpu, entry.engine)
            assert overlay is not None
            left = [
                block
                for block in overlay.calibration
                if isinstance(block, MoeBlock)
                and (block.version, block.dtype) == (entry.version, entry.dtype)
                and entry.kernel in block.kernel
            ]
            assert left == []


def group(
    seconds: float, *, version: str = "0.19.0", kernel: str = "vllm_marlin_moe"
) -> TableGroup:
    """Return sixty rows of int4 experts, all of one time."""
    rows = np.arange(1.0, 61.0)
    return TableGroup(
        kind="moe",
        gpu="b200-hgx",
        engine="vllm",
        version=version,
        source="made up",
        label={"dtype": "int4-wo", "kernel": kernel},
        columns={"tokens": rows, "alpha": np.zeros(60)},
        seconds=np.full(60, seconds),
        keys=np.array(["one shape"] * 60),
    )


def test_only_what_an_entry_names_is_dropped() -> None:
    """Another version, kernel or accelerator stays."""
    old = group(2e-6)
    assert reason_to_drop(old) is not None
    assert reason_to_drop(group(2e-6, version="0.24.0")) is None
    assert reason_to_drop(group(2e-6, kernel="vllm_fused_moe")) is None
    assert reason_to_drop(replace(old, gpu="h100-sxm")) is None


def test_tables_are_compared_at_equal_shapes() -> None:
    """Twice the time at every row, few and many."""
    assert compare(group(2e-6), group(1e-6)) == (60, 2.0, 2.0)
    assert compare(group(2e-6), replace(group(1e-6), keys=np.array(["other"] * 60))) is None
