"""Speculative runs that no number was fitted on."""

from __future__ import annotations

import csv

import pytest

from roofline.base import resources
from roofline.calibrate.engine.spec_rows import load_spec_rows
from roofline.specs.formats import DType
from roofline.validation.held_out import (
    count_signs,
    held_out_scores,
    load_held_out,
    outcomes,
    regrets,
)
from tests.physics import plain_step
from tests.support import Cli

FILE = resources.data_file("validation").joinpath("held_out.csv")


def test_rows_have_a_source_and_are_in_no_fit() -> None:
    lines = list(csv.DictReader(FILE.read_text("utf-8").splitlines()))
    fitted = {row.id for row in load_spec_rows()}
    assert len({line["id"] for line in lines}) == len(lines) == 113
    assert all(line["source"] for line in lines)
    assert not fitted & {line["id"] for line in lines}


def test_losses_are_those_that_were_published() -> None:
    """11 in the first collection of runs; 19 on A100 with quantised weights or caches, 11 on H100
    by draft length, 2 on A100 with prompts inside: counted by hand in the sources' tables."""
    by_group: dict[str, int] = {}
    for row in load_held_out():
        if (row.run.speedup or 1) < 1:
            source = row.run.source.split("/")[0]
            by_group[source] = by_group.get(source, 0) + 1
    assert by_group == {"pramodjella": 11, "manojarulmurugan": 19, "adfusco": 2}
    assert count_signs().losses == 43


def test_regret_of_a_choice_by_hand() -> None:
    """Sweeps of one draft length have none; regrets lie between 0 and 1."""
    found = {row["group"]: row for row in regrets(outcomes())}
    assert set(found) == {"h100-lengths", "h100-lengths-8k"}
    # 2 datasets x 5 batches, and 2 models x 2 batches
    assert [found[name]["n"] for name in sorted(found)] == [10, 4]
    assert all(0 <= row["mean_regret"] <= row["worst_regret"] < 1 for row in found.values())


@pytest.mark.parametrize("group", ["a100-fp16-kv-fp8", "a100-int4-g128-kv-fp8"])
def test_an_fp8_cache_is_converted_by_every_warp_on_an_a100(group: str) -> None:
    """Speedups of SpecDecoding-Study-vLLM-SGLang; 11 % high when the cache counted its bytes."""
    rows = {row["batch"]: row for row in held_out_scores(outcomes()) if row["group"] == group}
    assert rows["all"]["median_abs_error"] < 0.05
    assert all(abs(rows[batch]["bias"]) < 0.06 for batch in ("8", "32", "64"))


@pytest.mark.parametrize(("batch", "measured"), [(32, 14.8), (64, 16.6)])
def test_a_plain_step_gains_nothing_from_an_fp8_cache_on_an_a100(
    batch: int, measured: float
) -> None:
    """The same study, Llama-3.1-8B, vLLM 0.24: 14.5 and 16.9 ms with a cache of 16 bits.

    Contexts are means of its two data sets, about 450 and 1,100 tokens (assumed there).
    """
    options = {"gpu": "a100-sxm-80gb", "engine": "vllm==0.24", "batch": batch, "context": 775}
    narrow, wide = (
        1e3 * plain_step("llama-3.1-8b", **options, kv=kv)  # type: ignore[arg-type]
        for kv in (DType.FP8, None)
    )
    assert narrow == pytest.approx(measured, rel=0.05)
    assert narrow == pytest.approx(wide, rel=0.05)


def test_scores_by_batch_add_up_to_the_group() -> None:
    rows = held_out_scores(outcomes())
    for row in rows:
        if row["batch"] == "all":
            parts = [x["n"] for x in rows if x["group"] == row["group"] and x["batch"] != "all"]
            assert sum(parts) == row["n"]


def test_the_command_counts_losses_called_wins(cli: Cli) -> None:
    data = cli("validate", "held-out", "--format", "json").data()
    assert data["losses"] == 43
    assert len(data["wins_called_losses"]) <= 0.02 * data["wins"]
    assert all(row["predicted"] > 1 > row["measured"] for row in data["losses_called_wins"])
