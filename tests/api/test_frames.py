"""The frames, data and texts of the Python functions are those of the command line."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import roofline as rf
from roofline.api.results import Result
from roofline.base.files import cell
from tests.support import ROOT, Cli

#: Each question as a call and as it is typed.
QUESTIONS: dict[str, tuple[Callable[[], Any], str]] = {
    "points": (
        lambda: rf.recommend(
            "llama-3.1-8b", gpu="h100-sxm", batch=[1, 8], context="8k", acceptance=0.7
        ),
        "recommend llama-3.1-8b --gpu h100-sxm --batch 1,8 --context 8k --acceptance 0.7",
    ),
    "array": (
        lambda: rf.recommend(
            "qwen3-8b",
            gpu="rtx-4090",
            engine="llamacpp",
            weights="q4_k_m",
            drafter="ngram",
            batch=np.array([1, 2, 4]),
            context=np.int64(2048),
            acceptance={1: 1.6, 3: 2.1},
            gpu_hour="$0.4",
        ),
        (
            "recommend qwen3-8b --gpu rtx-4090 --engine llamacpp --weights q4_k_m --drafter ngram "
            "--batch 1,2,4 --context 2k --acceptance al:1=1.6,3=2.1 --gpu-hour 0.4"
        ),
    ),
    "range": (
        lambda: rf.recommend(
            "gpt-oss-20b",
            gpu="b200-hgx",
            tp=2,
            drafter="eagle3",
            batch=range(1, 4),
            acceptance="cond:0.8,0.7,0.6",
            routing_skew=0.5,
            overhead_ms=[0.5, 0.7],
            max_draft_length=3,
        ),
        (
            "recommend gpt-oss-20b --gpu b200-hgx --tp 2 --drafter eagle3 --batch 1..3 "
            "--acceptance cond:0.8,0.7,0.6 --routing-skew 0.5 --overhead-ms 0.5,0.7 "
            "--max-draft-length 3"
        ),
    ),
    "refused": (
        lambda: rf.recommend(
            "llama-3.1-70b", tp=4, weights="fp8", batch=[10, 200], context="8k", acceptance=0.6
        ),
        "recommend llama-3.1-70b --tp 4 --weights fp8 --batch 10,200 --context 8k --acceptance 0.6",
    ),
    "set": (
        lambda: rf.recommend(
            "llama-3.1-8b",
            acceptance=0.7,
            set={"group_size": 8, "gpu.memory.bandwidth": "4 TB/s"},
        ),
        (
            "recommend llama-3.1-8b --acceptance 0.7 --set group_size=8 --set "
            "gpu.memory.bandwidth=4_TB/s"
        ),
    ),
    "load": (
        lambda: rf.recommend(
            "llama-3.1-8b", rps=4, input_tokens="1k", output_tokens=256, acceptance=0.7
        ),
        "recommend llama-3.1-8b --rps 4 --input-tokens 1k --output-tokens 256 --acceptance 0.7",
    ),
    "histogram": (
        lambda: rf.recommend(
            "llama-3.1-8b", batches_histogram={8: 0.5, 32: 0.5}, acceptance=0.7, gpu_hour=2
        ),
        "recommend llama-3.1-8b --batches-histogram 8:0.5,32:0.5 --acceptance 0.7 --gpu-hour 2",
    ),
    "schedule": (
        lambda: rf.schedule(
            "llama-3.1-8b", batches="1..64", contexts=["1k", 4096], acceptance=0.7, tie="2"
        ),
        "schedule llama-3.1-8b --batches 1..64 --contexts 1k,4k --acceptance 0.7 --tie 2",
    ),
    "compare": (
        lambda: rf.compare(
            "llama-3.1-8b", drafter={"eagle3": 0.7, "ngram": {2: 1.4}}, batch=[1, 16]
        ),
        "compare llama-3.1-8b --drafter eagle3=0.7 --drafter ngram=al:2=1.4 --batch 1,16",
    ),
    "memory": (
        lambda: rf.memory("llama-3.1-8b", context=("2k", "32k"), acceptance=0.7),
        "memory llama-3.1-8b --context 2k,32k --acceptance 0.7",
    ),
    "explore": (
        lambda: rf.explore("llama-3.1-8b", vary={"group_size": [1, 4]}, batch=2, acceptance=0.7),
        "explore llama-3.1-8b --vary group_size=1,4 --batch 2 --acceptance 0.7",
    ),
    "sweep": (
        lambda: rf.sweep(
            ["llama-3.1-8b", "llama-3.1-70b"], tp=[1, 2], batch="1..64*8", acceptance=[0.6, 0.8]
        ),
        (
            "sweep llama-3.1-8b,llama-3.1-70b --tp 1,2 --batch 1..64*8 --acceptance 0.6 "
            "--acceptance 0.8"
        ),
    ),
}


def typed(command: str) -> list[str]:
    """Return the arguments of a command; a value's space is typed as an underscore here."""
    return [word.replace("4_TB", "4 TB") for word in command.split()]


def as_cells(value: Any) -> str:
    """Return a frame's value as a CSV has it."""
    return "" if value is None or pd.isna(value) else str(cell(value))


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_frame_has_the_rows_of_the_csv(cli: Cli, name: str) -> None:
    call, command = QUESTIONS[name]
    frame, outcome = call().to_frame(), cli(*typed(command), "--format", "csv")
    assert outcome.code == 0, outcome.err
    rows = list(csv.DictReader(io.StringIO(outcome.out)))
    assert list(frame.columns) == list(rows[0])
    assert len(frame) == len(rows)
    truth = {"true": 1.0, "false": 0.0}
    for ours, theirs in zip(frame.astype(object).to_dict("records"), rows, strict=True):
        for column, text in theirs.items():
            value = ours[column]
            if isinstance(value, float | int) and text:
                expected = truth[text] if text in truth else float(text)
                assert float(value) == pytest.approx(expected, rel=1e-5), column
            elif text.startswith("'"):  # which keeps a spreadsheet from reading a formula
                assert as_cells(value) == text
            else:
                assert as_cells(value) == text, column


@pytest.mark.parametrize("name", [name for name in QUESTIONS if name != "sweep"])
def test_the_data_are_those_of_the_json(cli: Cli, name: str) -> None:
    call, command = QUESTIONS[name]
    theirs = cli(*typed(command), "--format", "json").data()
    ours = json.loads(json.dumps(call().to_dict()))
    assert without_options(ours) == without_options(theirs)


#: Fields whose texts name options, which are spelled as keywords in one and as flags in the other.
SPELLED = ("warnings", "notes", "source", "note", "refused", "reason", "headline", "schedule_notes")


def without_options(value: Any) -> Any:
    """Return data without the fields whose texts may name options."""
    if isinstance(value, dict):
        return {k: without_options(v) for k, v in value.items() if k not in SPELLED}
    return [without_options(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", ["points", "load", "schedule", "compare", "memory", "explore"])
def test_the_text_is_that_of_the_terminal(cli: Cli, name: str) -> None:
    call, command = QUESTIONS[name]
    answer = call()
    out = cli(*typed(command)).out
    ours, theirs = str(answer).splitlines(), out.splitlines()
    different = [line for line in ours if line not in theirs]
    # only lines that name an option differ
    assert len(different) <= 3, different
    assert ours[0] == theirs[0]
    assert "{{" not in str(answer) + answer._repr_markdown_() + repr(answer)
    assert answer._repr_markdown_().startswith("**")


@pytest.mark.parametrize("name", ["points", "array", "load", "memory"])
def test_columns_have_types(name: str) -> None:
    frame = QUESTIONS[name][0]().to_frame()
    numbers = frame.drop(columns=["tp"], errors="ignore").select_dtypes("number")
    assert len(numbers.columns) > len(frame.columns) / 2
    assert frame["draft_length"].dtype.kind == "i"
    assert frame["draft_length"].min() == 0
    if "recommended" in frame:
        assert frame["recommended"].dtype == bool


def test_missing_numbers_are_missing() -> None:
    """A batch that does not fit has its room and no figures."""
    frame = QUESTIONS["refused"][0]().to_frame()
    refused = frame[frame.batch == 200]
    assert refused.step_ms.isna().all()
    assert not refused.fits.any()
    assert (refused.memory_needed_bytes > refused.memory_available_bytes).all()
    assert frame.captured.dtype == "boolean"


def test_the_own_config_of_a_bundled_model_answers_alike() -> None:
    """Its published config.json as a dict, a path and an object with to_dict."""
    file = ROOT / "model_configs" / "Qwen--Qwen3-8B.json"
    config = json.loads(file.read_text("utf-8"))

    class Config:
        def to_dict(self) -> dict[str, Any]:
            return dict(config)

    asked: dict[str, Any] = {"drafter": "ngram", "acceptance": 0.5, "batch": 4, "hit_rate": 0.6}
    expected = rf.recommend("qwen3-8b", **asked).to_frame()
    models: list[Any] = [config, file, str(file), Config()]
    for model in models:
        frame = rf.recommend(model, **asked).to_frame()
        assert frame["step_ms"].tolist() == pytest.approx(expected["step_ms"].tolist())


def test_a_config_without_a_name_is_named_after_its_type() -> None:
    config = json.loads((ROOT / "model_configs" / "Qwen--Qwen3-8B.json").read_text("utf-8"))
    config.pop("_name_or_path", None)
    answer = rf.recommend(config, drafter="none")
    assert isinstance(answer, rf.RecommendResult)
    assert answer.to_dict()["inputs"]["model"] == "own-qwen3"


def test_a_sweep_is_written_as_the_command_writes_it(cli: Cli, tmp_path: Path) -> None:
    call, command = QUESTIONS["sweep"]
    for ending in ("csv", "jsonl", "parquet"):
        if ending == "parquet":
            pytest.importorskip("pyarrow")
        ours, theirs = tmp_path / f"ours.{ending}", tmp_path / f"theirs.{ending}"
        assert call().write(ours) == ours
        assert cli(*typed(command), "-o", str(theirs)).code == 0
        if ending == "parquet":
            pd.testing.assert_frame_equal(pd.read_parquet(ours), pd.read_parquet(theirs))
        else:
            assert ours.read_bytes() == theirs.read_bytes()
        about = json.loads((tmp_path / f"ours.{ending}.provenance.json").read_text("utf-8"))
        assert about["rows"] == len(call().to_frame())
        assert about["sources"]


def test_results_are_one_kind() -> None:
    assert all(
        issubclass(getattr(rf, name), Result) for name in rf.__all__ if name.endswith("Result")
    )
