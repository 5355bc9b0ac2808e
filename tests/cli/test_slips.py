"""Slips that were once taken in silence: a unit, an option beside another, a load twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.published import CONFIGS
from tests.support import Cli, assert_refused, write

MODEL = "llama-3.1-8b"


@pytest.mark.parametrize(
    ("change", "bounds"),
    [
        ("gpu.memory.bandwidth=1e-300 TB/s", "1 MB/s to 1000 PB/s"),
        ("gpu.memory.bandwidth=1e9 TB/s", "1 MB/s to 1000 PB/s"),
        ("gpu.memory.capacity=1e30 GB", "1 B to 1000 PB"),
        ("gpu.compute.peaks.bf16=1e-9 FLOP/s", "1 MFLOP/s to"),
        ("engine.overhead.per_step=1e9 s", "0 s to 10000 s"),
    ],
)
def test_magnitudes_that_no_datasheet_has(cli: Cli, change: str, bounds: str) -> None:
    assert_refused(cli("recommend", MODEL, "--set", change), change.partition("=")[0], bounds)


@pytest.mark.parametrize("change", ["gpu.memory.bandwidth=40 TB/s", "engine.overhead.per_step=0 s"])
def test_daring_magnitudes_pass(cli: Cli, change: str) -> None:
    assert cli("recommend", MODEL, "--set", change).code == 0


def test_a_request_has_a_prompt(cli: Cli) -> None:
    load = ("--rps", "1", "--input-tokens", "0", "--output-tokens", "100")
    assert_refused(cli("recommend", MODEL, *load), "--input-tokens 0: expected at least 1")


@pytest.mark.parametrize("one", [("--tpot", "5ms"), ("--tokens-per-s", "200")])
def test_one_measurement_or_several(cli: Cli, one: tuple[str, ...]) -> None:
    """docs/cli.md: ``--tpot`` is one measurement instead."""
    outcome = cli("diagnose", MODEL, *one, "--measured", "0@8:5ms")
    assert_refused(outcome, "--tpot", "--measured")


@pytest.mark.parametrize("measured", ["0:7ms,0:7.5ms", "0@1x4k:7ms,0:7ms"])
def test_a_load_measured_twice(cli: Cli, measured: str) -> None:
    outcome = cli("diagnose", MODEL, "--measured", measured)
    assert_refused(outcome, "--measured: 0@1x4096 is given twice")


def test_a_target_where_none_is_needed(cli: Cli, tmp_path: Path) -> None:
    config = json.loads((CONFIGS / "Qwen--Qwen3-8B.json").read_text("utf-8"))
    path = write(tmp_path, "config.json", json.dumps(config))
    for command in ("check", "import"):
        refused = cli("models", command, path, "--target", MODEL)
        assert_refused(refused, f"--target {MODEL}: says nothing here", "is a whole model")
    bundled = cli("models", "check", "llama-3.1-8b-eagle3", "--target", MODEL)
    assert_refused(bundled, f"--target {MODEL}: says nothing here", "names its own")
