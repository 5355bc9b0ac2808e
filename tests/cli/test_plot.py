"""``roofline plot``: files, formats and sizes, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.charting import read, said
from tests.support import Cli, assert_refused


def test_small_kernels_are_drawn_where_no_other_is(tmp_path: Path, cli: Cli) -> None:
    """Beside experts on the processor no kernel of the card takes 1 % of the step."""
    done = cli(
        "plot", "roofline", "gpt-oss-120b", "--cpu-experts", "all", "--engine", "llamacpp",
        "--gpu", "rtx-4090", "--host", "server-ddr5", "--drafter", "none",
        "-o", str(tmp_path / "a.png"), "--data", str(tmp_path / "a.csv"),
    )  # fmt: skip
    assert done.code == 0, done.err
    shares = [float(row["share_of_step"] or 0) for row in read(tmp_path / "a.csv")]
    assert 0 < max(shares) < 0.01


def test_the_command_writes_chart_and_numbers(cli: Cli, tmp_path: Path) -> None:
    image, data = tmp_path / "a.png", tmp_path / "a.csv"
    done = cli(
        "plot", "speedup", "llama-3.1-8b", "--gpu", "h200-sxm", "--batch", "32", "-o", str(image),
        f"--data={data}", "--dpi", "60", "--size", "5x4",
    )  # fmt: skip
    assert (done.code, done.out) == (0, "")
    assert done.err.count("wrote ") == 2
    with Image.open(image) as opened:
        assert opened.size == (300, 240)
        source = opened.text["Source"]  # type: ignore[attr-defined]
        assert "Llama 3.1 8B on 1 x NVIDIA H200" in opened.text["Title"]  # type: ignore[attr-defined]
    # the command, without where this run wrote to
    assert source.endswith(": roofline plot speedup llama-3.1-8b --gpu h200-sxm --batch 32")
    rows = read(data)
    (point,) = said(cli, "llama-3.1-8b", "--gpu", "h200-sxm", "--batch", "32")
    for row, entry in zip(rows, point["by_draft_length"], strict=True):
        assert (row["model"], row["gpu"], row["tp"]) == ("llama-3.1-8b", "h200-sxm", "1")
        assert int(row["draft_length"]) == entry["draft_length"]
        assert float(row["speedup"]) == pytest.approx(entry["speedup"], rel=1e-5)
        assert (row["recommended"] == "true") is (entry["draft_length"] == point["draft_length"])


@pytest.mark.parametrize("suffix", ["svg", "pdf"])
def test_vector_formats(cli: Cli, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    done = cli("plot", "breakdown", "qwen3-8b", "--drafter", "none", "-o", str(path))
    assert done.code == 0, done.err
    assert path.read_bytes().startswith(b"<?xml" if suffix == "svg" else b"%PDF")


def test_the_heatmap_reaches_as_far_as_the_model(cli: Cli, tmp_path: Path) -> None:
    data = tmp_path / "a.csv"
    done = cli("plot", "heatmap", "qwen3-8b", "--drafter", "none", "--data", str(data))
    assert done.code == 0, done.err
    rows = read(data)
    # Qwen3 8B's config has 40960 positions
    assert {int(row["context"]) for row in rows} == {512 * 2**i for i in range(7)}
    assert {int(row["batch"]) for row in rows} == {2**i for i in range(11)}
    refused = [row for row in rows if row["fits"] == "false"]
    assert refused
    assert all(row["draft_length"] == "" for row in refused)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["speedup", "qwen3-8b"], ["-o", ".png", "--data"]),
        (["speedup", "qwen3-8b", "-o", "a.png", "--data", "a.png"], ["--data a.png", ".csv"]),
        (["speedup", "qwen3-8b", "--data", "only.xyz"], ["--data only.xyz", ".csv"]),
        (["speedup", "qwen3-8b", "-o", "a.gif"], ["a.gif", ".png"]),
        (["speedup", "qwen3-8b", "-o", "a.png", "--dpi", "5"], ["--dpi 5", "30"]),
        (["speedup", "qwen3-8b", "-o", "a.png", "--size", "big"], ["--size big", "7x5"]),
        (["speedup", "qwen3-8b", "-o", "a.png", "--size", "1x1"], ["--size 1x1"]),
        (["speedup", "qwen3-8b", "-o", "a.png", "--size", "40x4", "--dpi", "900"], ["dots"]),
        (["speedup", "qwen3-8b", "-o", "nowhere/a.png"], ["nowhere/a.png", "folder"]),
        (["speedup", "qwen3-8b", "-o", "a.png", "--batch", "1..9"], ["9 lines", "heatmap"]),
        (["breakdown", "qwen3-8b", "-o", "a.png", "--batch", "1,2"], ["--batch 1,2", "one"]),
        (["frontier", "qwen3-8b", "-o", "a.png", "--context", "1k,2k"], ["--context", "one"]),
        (["parity", "nothing", "-o", "a.png"], ["nothing", "kernels", "decode"]),
        (["parity", "--gpu", "nothing", "-o", "a.png"], ["--gpu", "nothing"]),
    ],
)
def test_bad_input_is_one_line(
    cli: Cli, arguments: list[str], words: list[str], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = cli("plot", *arguments)
    lines = outcome.err.splitlines()
    refused = type(outcome)(outcome.code, outcome.out, lines[-1] if lines else "")
    assert_refused(refused, *words)
    assert list(tmp_path.iterdir()) == []


def test_points_that_do_not_fit_exit_with_3(cli: Cli, tmp_path: Path) -> None:
    path = str(tmp_path / "a.png")
    outcome = cli("plot", "breakdown", "llama-3.1-70b", "--acceptance", "0.7", "-o", path)
    assert_refused(outcome, "llama-3.1-70b", "--tp", code=3)
