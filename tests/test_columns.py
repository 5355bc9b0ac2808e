"""One name, one unit and one meaning for a quantity, in every table that a program reads."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import roofline as rf
from roofline.advice import columns as catalogue
from roofline.advice.columns import CATALOGUE, ColumnKind
from roofline.render.charts.attention import AttentionRow
from roofline.render.charts.breakdown import BreakdownRow
from roofline.render.charts.cost_ratio import CostRatioRow
from roofline.render.charts.frontier import FrontierRow
from roofline.render.charts.heatmap import HeatmapRow
from roofline.render.charts.rooflines import RooflineRow
from roofline.render.charts.speedup import SpeedupRow
from roofline.render.charts.tokens_per_step import TokensRow
from roofline.render.charts.validation import ParityRow
from roofline.render.validation import advice_answer
from roofline.validation.advice import RULES, SweepChoice
from roofline.validation.score import ScoreRow
from tests.support import Cli

#: An answer of every question, with columns that stand there under some options only.
ANSWERS: dict[str, Callable[[], Any]] = {
    "points": lambda: rf.recommend(
        "qwen3-30b-a3b", drafter="ngram", acceptance=0.5, gpu_hour=2, set={"group_size": 4}
    ),
    "refused": lambda: rf.recommend("llama-3.1-70b", tp=4, batch=[1, 2000], acceptance=0.7),
    "arrivals": lambda: rf.recommend(
        "llama-3.1-8b", rps=4, input_tokens="1k", output_tokens=256, acceptance=0.7, gpu_hour=2
    ),
    "limits": lambda: rf.recommend(
        "llama-3.1-8b", input_tokens="1k", output_tokens=256, acceptance=0.7, slo_ttft=500
    ),
    "rollouts": lambda: rf.recommend(
        "llama-3.1-8b", rollouts=4, input_tokens="1k", output_tokens=64, acceptance=0.7, gpu_hour=2
    ),
    "histogram": lambda: rf.recommend(
        "qwen3-8b", batches_histogram={8: 0.5, 32: 0.5}, drafter="ngram", acceptance=0.4
    ),
    "request": lambda: rf.recommend(
        "llama-3.1-8b", batch=[1, 8], input_tokens="2k", output_tokens=128, acceptance=0.7
    ),
    "schedule": lambda: rf.schedule("llama-3.1-8b", batches="1..64", acceptance=0.7),
    "compare": lambda: rf.compare("llama-3.1-8b", drafter={"eagle3": 0.7, "ngram": 0.3}),
    "memory": lambda: rf.memory("llama-3.1-8b", acceptance=0.7),
    "memory of a mixture": lambda: rf.memory(
        "deepseek-v3", gpu="h200-sxm", tp=8, drafter="mtp", acceptance=0.7
    ),
    "memory of states": lambda: rf.memory(
        "qwen3-next-80b-a3b-instruct", gpu="h200-sxm", tp=4, drafter="mtp", acceptance=0.7
    ),
    "explore": lambda: rf.explore("llama-3.1-8b", vary={"group_size": [4, 8]}, acceptance=0.7),
    "tune": lambda: rf.tune(
        "qwen3-8b", batch=8, timings=[{"draft_length": 3, "tokens_per_s": 1700}]
    ),
    "sweep": lambda: rf.sweep(
        "llama-3.1-8b", gpu_hour=2, overhead_ms=["0.5,0.7", 1], batch=[1, 3000], acceptance=0.7
    ),
}  # fmt: skip
#: Named by what a user gives: paths that are varied, and options of a sweep.
GIVEN = {"group_size", "overhead_ms_asked"}
COMMANDS = (
    "models list",
    "hardware list",
    "acceptance list",
    "diagnose llama-3.1-8b --batch 8 --tpot 9",
)


def uncatalogued(names: list[str]) -> set[str]:
    """Return the columns that are not in the catalogue; ``speedup_3`` is the speedup of D = 3."""
    return {name for name in names if re.sub(r"_\d+$", "", name) not in CATALOGUE} - GIVEN


def test_no_key_stands_twice_in_the_catalogue() -> None:
    parts = ("_ASKED", "_FOUND", "_OF_ANSWERS", "_OF_CHARTS", "_OF_LISTS")
    declared = [column for part in parts for column in getattr(catalogue, part)]
    assert len({column.key for column in declared}) == len(declared)
    assert all(column.meaning for column in declared)


@pytest.mark.parametrize("name", ANSWERS)
def test_every_column_of_a_frame_is_in_the_catalogue_with_its_type(name: str) -> None:
    frame = ANSWERS[name]().to_frame()
    assert not uncatalogued(list(frame.columns))
    assert len(set(frame.columns)) == len(frame.columns)
    kinds: Mapping[ColumnKind, tuple[type, ...]] = {
        ColumnKind.TEXT: (str,), ColumnKind.INTEGER: (int,), ColumnKind.NUMBER: (int, float),
        ColumnKind.BOOLEAN: (bool,),
    }  # fmt: skip
    for key in set(frame.columns) & set(CATALOGUE):
        for value in frame[key].dropna().tolist():
            assert isinstance(value, kinds[CATALOGUE[key].kind]), (key, value)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_column_of_a_csv_is_in_the_catalogue(cli: Cli, command: str) -> None:
    out = cli(*command.split(), "--format", "csv").out
    assert not uncatalogued(next(csv.reader(out.splitlines())))


@pytest.mark.parametrize(
    "row",
    [AttentionRow, BreakdownRow, CostRatioRow, FrontierRow, HeatmapRow, RooflineRow, SpeedupRow,
     ParityRow, TokensRow],
)  # fmt: skip
def test_every_column_of_a_charts_data_is_in_the_catalogue(row: Any) -> None:
    assert not uncatalogued(list(row._fields))


def test_every_column_of_a_score_is_in_the_catalogue() -> None:
    assert not uncatalogued(list(ScoreRow.__slots__))
    choice = SweepChoice(
        group="a", name="b", own=True, draft_lengths=(1, 2), best=1,
        chosen=dict.fromkeys(RULES, 1), regret=dict.fromkeys(RULES, 0.0),
    )  # fmt: skip
    (row,) = advice_answer([choice], []).rows()
    assert {f"{rule}_regret" for rule in ("ours", "always_3", "leviathan", "textbook")} <= {*row}
    assert not uncatalogued(list(row))


def test_the_columns_of_a_parquet_file_are_in_the_catalogue(cli: Cli, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "x.parquet"
    asked = ("qwen3-8b", "--drafter", "ngram", "--acceptance", "0.4", "--gpu-hour", "1,2")
    assert cli("sweep", *asked, "-o", str(file)).code == 0
    assert not uncatalogued(parquet.read_schema(file).names)


def same(ours: Any, theirs: Any) -> bool:
    """Say whether two cells are equal; the six digits of a CSV leave half a unit of the last."""
    if pd.isna(ours) or pd.isna(theirs):
        return bool(pd.isna(ours) and pd.isna(theirs))
    if isinstance(ours, float) or isinstance(theirs, float):
        return bool(ours == pytest.approx(theirs, rel=5.1e-6))
    return bool(ours == theirs)


@pytest.mark.parametrize("gpu", ["h200-sxm", "L40S"])
@pytest.mark.parametrize(
    ("model", "drafter", "acceptance"),
    [("qwen3-8b", "ngram", "0.4"), ("Llama 3.1 8B", "eagle3", "survival:0.8,0.6,0.5")],
)
def test_equal_names_have_equal_values(  # noqa: PLR0917
    cli: Cli, tmp_path: Path, model: str, drafter: str, acceptance: str, gpu: str
) -> None:
    """CSV and frame of recommend and of a sweep, cell by cell; a batch of 3000 does not fit."""
    asked: dict[str, Any] = {
        "gpu": gpu,
        "drafter": drafter,
        "acceptance": acceptance,
        "gpu_hour": 2,
    }
    points: dict[str, Any] = {"batch": "1,16,3000", "context": "2k,8k"}
    flags = [text for name, value in (asked | points).items()
             for text in (f"--{name.replace('_', '-')}", str(value))]  # fmt: skip
    files = {name: tmp_path / f"{name}.csv" for name in ("recommend", "sweep")}
    for name, file in files.items():
        outcome = cli(name, model, *flags, "-o", str(file))
        assert outcome.code == 0, outcome.err
    tables = [
        *(pd.read_csv(file, dtype={"acceptance": str}) for file in files.values()),
        rf.recommend(model, **asked, **points).to_frame(),
        rf.sweep(model, **(asked | {"acceptance": [acceptance]}), **points).to_frame(),
    ]
    first = tables[0]
    assert len(first.columns) > 35
    for other in tables[1:]:
        shared = [name for name in first.columns if name in other.columns]
        assert len(shared) > 30
        assert len(first) == len(other)
        for name in shared:
            # a sweep also says of what does not fit whether graphs would cover it
            compared = first.fits if name == "captured" else slice(None)
            cells = (table[name][compared].tolist() for table in (first, other))
            for ours, theirs in zip(*cells, strict=True):
                assert same(ours, theirs), (name, ours, theirs)


def test_other_tables_have_the_values_of_recommend() -> None:
    """A comparison, a variant, and a band of one batch: each at its draft length."""
    asked: dict[str, Any] = {"gpu": "h200-sxm", "context": "4k"}
    rows = rf.recommend("qwen3-8b", **asked, batch=8, drafter="ngram", acceptance=0.4).to_frame()
    own = {row["draft_length"]: row for row in rows.to_dict("records")}
    compared = rf.compare("qwen3-8b", **asked, batch=8, drafter={"ngram": 0.4}).to_frame()
    varied = rf.explore(
        "qwen3-8b", **asked, batch=8, drafter="ngram", acceptance=0.4, vary={"group_size": [4]}
    ).to_frame()
    (row,) = compared.to_dict("records")
    theirs = own[row["best_draft_length"]]
    names = (compared.columns.intersection(rows.columns)).tolist()
    assert {"speedup", "cost_ratio", "verify_ms", "recommended_draft_length", "acceptance"} <= {
        *names
    }
    assert all(same(row[name], theirs[name]) for name in names)
    (row,) = varied.to_dict("records")
    theirs = own[row["draft_length"]]
    names = (varied.columns.intersection(rows.columns)).tolist()
    assert {"speedup", "cost_ratio", "tpot_ms", "memory_needed_bytes"} <= {*names}
    assert all(same(row[name], theirs[name]) for name in names)
