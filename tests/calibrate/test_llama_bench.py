"""What llama-bench prints of passes is a processor's verify curve by llama.cpp's own kernels."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import roofline
from roofline.calibrate import llama_bench
from roofline.calibrate.measure.cases import pass_kernels
from roofline.importers.references import open_model
from roofline.specs.engine import load_engine
from roofline.specs.formats import DType
from roofline.specs.gpu import load_hardware
from roofline.timing.machine import Machine, time_op
from tests import gguf_file
from tests.support import Cli, assert_refused

#: Passes of an 8B file over so many rows [ms]: steps of one kernel's tiles, not a straight line.
CURVE = {1: 400.0, 2: 430.0, 3: 600.0, 4: 610.0, 8: 900.0}
DEPTH = 512
#: A row as b11434 prints it, without the fields that nothing reads.
ROW = {
    "build_commit": "unknown",
    "build_number": 11434,
    "cpu_info": "AMD EPYC",
    "gpu_info": "",
    "backends": "CPU",
    "model_filename": "model.gguf",
    "n_threads": 2,
    "n_prompt": 1,
    "n_gen": 0,
    "n_depth": DEPTH,
    "test_time": "2026-12-01T05:44:21Z",
    "avg_ns": 1000,
    "stddev_ns": 10,
}
Bench = Callable[..., Path]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Return a function that writes what llama-bench prints of an 8B file's passes."""
    model = tmp_path / "model.gguf"
    model.write_bytes(gguf_file.llama_8b())

    def write(curve: Mapping[int, float] = CURVE, **changed: Any) -> Path:
        rows = [
            ROW
            | {"model_filename": str(model), "n_prompt": rows, "avg_ns": round(1e6 * ms)}
            | changed
            for rows, ms in curve.items()
        ]
        file = tmp_path / "bench.json"
        file.write_text(json.dumps(rows), "utf-8")
        return file

    return write


def test_steps_are_the_passes_that_were_timed(cli: Cli, bench: Bench, tmp_path: Path) -> None:
    """Verifying D drafts is the timed pass over 1 + D rows; between rows the curve rises."""
    machine = tmp_path / "cpu.yaml"
    assert cli("calibrate", "fit", str(bench()), "-o", str(machine)).code == 0
    answer = roofline.recommend(
        str(tmp_path / "model.gguf"),
        gpu=str(machine),
        engine="llamacpp",
        drafter=str(tmp_path / "model.gguf"),
        acceptance=0.7,
        batch=1,
        context=DEPTH,
        max_draft_length=7,
    ).to_frame()
    verify = dict(zip(answer["draft_length"], answer["verify_ms"], strict=True))
    for rows, ms in CURVE.items():
        assert verify[rows - 1] == pytest.approx(ms, rel=0.01)
    assert 610 < verify[5] < verify[6] < 900


def test_only_llamacpp_runs_these_kernels(cli: Cli, bench: Bench, tmp_path: Path) -> None:
    """An engine without these kernels is not slowed by their tile at three rows."""
    machine = tmp_path / "cpu.yaml"
    cli("calibrate", "fit", str(bench()), "-o", str(machine))
    gpu = load_hardware(str(machine))
    model, _ = open_model(str(tmp_path / "model.gguf"))
    model = model.model_copy(update={"dtype": DType.FP32})
    op = next(op for op in pass_kernels(model, batch=1, rows=3, context=1) if op.name == "o_proj")
    vector = load_engine("llamacpp").overhead.vector_on("cpu")
    own = time_op(op, Machine(gpu, "llamacpp", vector=vector))
    other = time_op(op, Machine(gpu, "another", vector=vector))
    assert own.chosen.provenance == "calibrated"
    assert other.chosen.provenance == "assumed"
    assert not np.isclose(own.total, other.total)


def test_a_file_that_stays_in_the_cache_is_no_measure(
    cli: Cli, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {"memory": 1e9, "cache": 8 * 2**30}
    monkeypatch.setattr(llama_bench, "cpu_facts", lambda: facts)
    outcome = cli("calibrate", "fit", str(bench()), "-o", str(tmp_path / "x.yaml"))
    assert_refused(outcome, "8192 MiB", "twice as large")


def test_a_pass_between_two_judges_the_law_that_has_not_seen_it(bench: Bench) -> None:
    """Weights take 200 ms, a row's arithmetic 100; both combine with exponent 4.

    One and four rows: (200^4 + 100^4)^(1/4) = 203.1 and (200^4 + 400^4)^(1/4) = 406.2 ms, so the
    factor is 0.985 at both and between them. Two rows: 0.985 x 237.8 = 234.2 for 200 ms, 1.171.
    Other kernels are 1 to 2 % of a pass.
    """
    facts, passes = llama_bench.read_llama_bench(bench({1: 200.0, 2: 200.0, 4: 400.0}))
    (law, *_) = llama_bench.fit_passes(passes, facts, cite="here").laws
    assert law.held.tolist() == [False, True, False]
    assert (law.predicted / law.measured).tolist() == pytest.approx([1, 1.171, 1], rel=0.02)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"avg_ns": "fast"}, ("row 1", "avg_ns", "a whole number")),
        ({"avg_ns": 0}, ("avg_ns", "from 1 to")),
        ({"avg_ns": 10**400}, ("avg_ns", "from 1 to")),
        ({"model_filename": "x" * 2000}, ("model_filename", "a text")),
        ({"backends": "CUDA"}, ("CUDA", "on a processor")),
        ({"n_gen": 128}, ("-p 1,2,3,4 -n 0",)),
        ({"model_filename": "gone.gguf"}, ("model_filename", "gone.gguf", "where llama-bench ran")),
    ],
)
def test_what_is_no_passes_of_a_processor_is_refused(
    cli: Cli, bench: Bench, tmp_path: Path, changed: dict[str, Any], words: tuple[str, ...]
) -> None:
    file = bench(**changed)
    assert_refused(cli("calibrate", "fit", str(file), "-o", str(tmp_path / "x.yaml")), *words)
    assert not (tmp_path / "x.yaml").exists()


@pytest.mark.parametrize("text", ["", "{}", "[1]", "[]", '[{"n_prompt": 1}]', "\udcff"])
def test_other_json_is_refused(cli: Cli, tmp_path: Path, text: str) -> None:
    file = tmp_path / "bench.json"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert_refused(cli("calibrate", "fit", str(file), "-o", str(tmp_path / "x.yaml")), "bench.json")


def test_a_datasheet_does_not_go_with_passes(cli: Cli, bench: Bench, tmp_path: Path) -> None:
    outcome = cli("calibrate", "fit", str(bench()), "-o", str(tmp_path / "x.yaml"), "--gpu", "h200")
    assert_refused(outcome, "--gpu h200", "leave it out")
