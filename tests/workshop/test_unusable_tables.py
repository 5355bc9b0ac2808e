"""Tables with nothing to use, constants that rows cannot tell, files that lack a line."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roofline.base.errors import InputError
from roofline.calibrate.engine.engine_file import with_overhead
from roofline.calibrate.fit.core import resident_share, score
from roofline.specs.gpu import load_hardware
from tests.support import Cli
from workshop import engines
from workshop.tables import attention, gemm, moe, state
from workshop.tables.parquet import Table, data_folder, find_tables

HBM, GDDR = load_hardware("h200-sxm"), load_hardware("l40s")


def table(folder: Path, family: str, rows: dict[str, list[Any]]) -> Table:
    """Write a table and return where it lies."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = folder / "h200_sxm" / family / "vllm" / "1.0" / "perf.parquet"
    path.parent.mkdir(parents=True)
    parquet.write_table(pa.table(rows), path)
    return Table(
        gpu="h200-sxm", family=family, name="perf", engine="vllm", version="1.0", path=path
    )


@pytest.mark.parametrize(
    ("family", "reader", "rows"),
    [
        (
            "gemm", gemm.read_groups,
            {"gemm_dtype": "bfloat16", "op_name": "gemm", "kernel_source": "x", "m": 1, "n": 512,
             "k": 512},
        ),
        (
            "mla", attention.read_latent_groups,
            {"kernel_source": "x", "kv_cache_dtype": "bfloat16", "num_heads": 16, "batch_size": 1,
             "isl": 1024, "step": 0},
        ),
    ],
)  # fmt: skip
def test_a_table_of_nothing_but_nan_gives_no_law(
    tmp_path: Path, family: str, reader: Any, rows: dict[str, Any]
) -> None:
    """The same row with a time is a law's row."""
    held = {name: [value] for name, value in rows.items()}
    assert reader(table(tmp_path / "a", family, held | {"latency": [np.nan]}), HBM) == []
    (group,) = reader(table(tmp_path / "b", family, held | {"latency": [0.01]}), HBM)
    assert len(group.seconds) == 1


def test_no_rows_have_no_error() -> None:
    nothing = score(np.zeros(0), np.zeros(0))
    assert nothing.rows == 0
    assert np.isnan([nothing.median, nothing.p90, nothing.bias]).all()


def test_without_an_l2_nothing_is_resident() -> None:
    assert resident_share(np.array([1.0, 1e9]), 0.0).tolist() == [0.0, 0.0]


def test_the_saving_of_l2_is_fitted_only_beside_slow_memory() -> None:
    """GDDR with rows that half lie in L2, and shards of 100, which 16 does not divide."""
    inside = {"resident": np.array([0.5, 0.0]), "width": np.array([100.0, 128.0])}
    assert moe._pinned(inside, GDDR) == {}
    assert moe._pinned(inside, HBM) == {"l2_saving": 0.0}
    outside = {"resident": np.zeros(2), "width": np.array([64.0, 128.0])}
    assert moe._pinned(outside, GDDR) == {"l2_saving": 0.0, "misaligned": 1.0}
    alike, apart = {"resident": np.full(4, 0.5)}, {"resident": np.array([0.0, 1.0])}
    assert state._pinned(alike, HBM) == {"l2_saving": 0.0}
    assert list(state._pinned(alike, GDDR)) == ["mem_eff"]
    assert state._pinned(apart, GDDR) == state._pinned(apart, HBM) == {}


def test_an_engine_without_overheads_cannot_be_fitted() -> None:
    with pytest.raises(InputError, match=r"x\.yaml: overhead: is missing; add it"):
        with_overhead("id: x\n", {"per_step": "1 us"}, file="x.yaml", add=True)
    with pytest.raises(InputError, match=r"x\.yaml: overhead\.rows: is missing; add it"):
        with_overhead("overhead:\n  per_step: 1 us\n", {"rows": 7}, file="x.yaml", add=False)


def test_a_wheel_without_its_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "files", lambda _: [])
    with pytest.raises(InputError, match="is installed but holds no systems/data folder"):
        data_folder()


def test_tables_of_other_engines_are_left_alone(tmp_path: Path) -> None:
    for engine in ("vllm", "sglang", "nccl"):
        path = tmp_path / "h200_sxm" / "gemm" / engine / "1.0" / "perf.parquet"
        path.parent.mkdir(parents=True)
        path.touch()
    found = find_tables(tmp_path, gpus=["h200-sxm"], engines=["vllm"])
    assert sorted(each.engine for each in found) == ["nccl", "vllm"]


def test_fitted_steps_are_shown_without_a_file(cli: Cli, tmp_path: Path) -> None:
    """Four steps of Llama 3.1 8B, each a millisecond above what an H100 was priced at."""
    rows = ["batch,context,draft_length,step_ms"]
    for batch in (1, 8, 32, 64):
        ask = ("recommend", "llama-3.1-8b", "--batch", str(batch), "--format", "json")
        rows.append(f"{batch},4096,0,{cli(*ask).by_draft_length()[0]['step_ms'] + 1:.4f}")
    path = tmp_path / "steps.csv"
    path.write_text("\n".join(rows) + "\n")
    done = cli("calibrate", "fit-steps", str(path), "llama-3.1-8b")
    assert done.code == 0, done.err
    assert "4 steps: worst error" in done.out
    assert "wrote" not in done.err
    assert [file.name for file in tmp_path.iterdir()] == ["steps.csv"]


def test_engines_are_written_one_line_each(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What each of the two fits says is shown; neither is run here."""
    seen: list[Path] = []

    def lines(folder: Path) -> list[str]:
        seen.append(folder)
        return ["one", "two"]

    monkeypatch.setattr(engines, "write_decode_numbers", lines)
    monkeypatch.setattr(engines, "write_spec_numbers", lines)
    engines.main(["-o", "somewhere"])
    assert capsys.readouterr().out == "one\ntwo\none\ntwo\n"
    assert seen == [Path("somewhere")] * 2
