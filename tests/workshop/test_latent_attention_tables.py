"""MLA tables: how they are read, and what a fit makes of a kernel that converts its cache."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from roofline.calibrate.fit.core import score
from roofline.specs.gpu import load_hardware
from roofline.specs.laws import AttentionLaw
from roofline.validation.kernel_families import FAMILIES
from tests.attention_tables import BATCHES, CONTEXTS, H200, table_of, timed
from workshop.tables import attention

FP8 = {"dtype": "fp8", "kernel": "flash_mla"}
CONVERTING = AttentionLaw(
    floor=8e-6, mem_eff=0.8, p=2.0, token_s=3e-9, l2_gain=2.0, convert_s=1.8e-9
)


def mla_row(latency: float = 0.05, **other: Any) -> dict[str, Any]:
    """Return a row of an MLA table: 16 heads per GPU, 128 over ``tp_size``."""
    cache = {"mla_dtype": "bfloat16", "kv_cache_dtype": "fp8", "kernel_source": "flash_mla"}
    call = {"num_heads": 16, "tp_size": 8, "batch_size": 4, "isl": 1, "step": 1023}
    return cache | call | {"latency": latency} | other


def mla_rows(law: AttentionLaw, gpu: str) -> list[dict[str, Any]]:
    rows = [
        mla_row(num_heads=heads, batch_size=batch, step=context - 1)
        for heads, batch, context in product((8, 16, 32, 64, 128), BATCHES, CONTEXTS)
    ]
    full = [r | {"num_key_value_heads": 1, "window_size": 0} for r in rows]
    seconds = timed(
        full, lambda columns: FAMILIES["mla"].seconds(columns, FP8, law, load_hardware(gpu)), 0.02
    )
    return [r | {"latency": t["latency"]} for r, t in zip(rows, seconds, strict=True)]


def test_an_mla_row_is_read_in_the_tables_units(tmp_path: Path) -> None:
    rows = [mla_row(), mla_row(0.06), mla_row(num_heads=0)]
    gpu = load_hardware(H200)
    (group,) = attention.read_latent_groups(table_of(tmp_path, rows, family="mla"), gpu)
    assert group.label == FP8
    assert {name: column.tolist() for name, column in group.columns.items()} == {
        "batch": [4],
        "heads": [16],
        "context": [1024],
    }
    assert group.seconds.tolist() == pytest.approx([50e-6])
    assert group.keys.tolist() == ["16"]
    assert group.rejected == {"duplicate": 1, "impossible_shape": 1}
    # 4 caches of 1,024 latents of 576 bytes; 16 queries of 576 and outputs of 512 in two bytes.
    expected = 4 * (1024 * 576 + 16 * (576 + 512) * 2) / 4.8e12
    assert FAMILIES["mla"].textbook(group.columns, FP8, gpu) == pytest.approx([expected])
    assert FAMILIES["mla"].scored(group.columns).tolist() == [True]


def test_a_pass_that_converts_the_cache_is_recovered(tmp_path: Path) -> None:
    gpu = load_hardware(H200)
    (group,) = attention.read_latent_groups(
        table_of(tmp_path, mla_rows(CONVERTING, H200), family="mla"), gpu
    )
    law, extra = attention.fit_latent(group.columns, group.label, group.seconds, gpu)
    assert extra == {}
    assert law.convert_s == pytest.approx(CONVERTING.convert_s, rel=0.05)
    assert (law.row_tile, law.fp8_math) == (64, False)


def test_blackwell_takes_wider_tiles_and_multiplies_in_fp8(tmp_path: Path) -> None:
    planted_law = replace(CONVERTING, convert_s=0.0, row_tile=128, fp8_math=True)
    table = table_of(tmp_path, mla_rows(planted_law, "b200-hgx"), gpu="b200-hgx", family="mla")
    gpu = load_hardware("b200-hgx")
    (group,) = attention.read_latent_groups(table, gpu)
    law, _ = attention.fit_latent(group.columns, group.label, group.seconds, gpu)
    assert (law.row_tile, law.fp8_math, law.convert_s) == (128, True, 0)
    found = score(FAMILIES["mla"].seconds(group.columns, FP8, law, gpu), group.seconds)
    assert found.median < 0.02
