"""`python -m workshop.import_tables` on invented tables: what is fitted, and what is not."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from roofline.base.schema import load_yaml
from workshop.import_tables import ImportOutcome, main, write_samples

parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("scipy")

Capture = pytest.CaptureFixture[str]
LINK = 450e9  # H200 SXM, per direction [B/s]
SIZES = [2**n for n in range(7, 27)]
#: An invented library among 8 GPUs: seconds before the first byte, share of the link.
ONE_SHOT, TWO_SHOT, BULK = (5e-6, 0.5), (1.2e-5, 0.6), (5e-5, 0.95)


def milliseconds(size: int) -> float:
    """Return the fastest of one-shot (7 S), two-shot and bulk (2 x 7 / 8 S); 2 B an element."""
    wires = (7.0, 1.75, 1.75)
    forms = zip((ONE_SHOT, TWO_SHOT, BULK), wires, strict=True)
    return 1e3 * min(start + wire * 2 * size / (LINK * share) for (start, share), wire in forms)


def put(
    root: Path, engine: str, version: str, sizes: Sequence[int], *, later_ms: float = 0.0
) -> Path:
    """Write an all-reduce table; every row ``later_ms`` slower than the invented library."""
    import pyarrow as pa

    rows = [
        {
            "kernel_source": "x_graph", "num_gpus": 8, "message_size": size,
            "latency": milliseconds(size) + later_ms,
        }
        for size in sizes
    ]  # fmt: skip
    folder = root / "systems" / "data" / "h200_sxm" / "comm" / engine / version
    folder.mkdir(parents=True)
    path = folder / "custom_allreduce_perf.parquet"
    parquet.write_table(pa.Table.from_pylist(rows), path)
    return path


def fitted(capsys: Capture, root: Path, *engines: str) -> tuple[str, Path]:
    """Import and return what was said on stderr, and the folder written to."""
    out = root / "out"
    out.mkdir(exist_ok=True)
    named = [word for engine in engines for word in ("--engine", engine)]
    main(["--tables", str(root), "--gpu", "h200-sxm", *named, "--jobs", "1", "-o", str(out)])
    return capsys.readouterr().err, out


def refused(capsys: Capture, *arguments: str) -> str:
    """Return the one line on stderr of an import that is refused."""
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_a_planted_law_is_found_and_scored_on_sizes_left_out(
    capsys: Capture, tmp_path: Path
) -> None:
    put(tmp_path, "vllm", "1.0", SIZES)
    _, out = fitted(capsys, tmp_path, "vllm")
    (block,) = load_yaml(out / "h200-sxm.vllm.yaml")["calibration"]
    among = block["law"]["ranks"][8]
    for form, (start, share) in (("one_shot", ONE_SHOT), ("bulk", BULK)):
        assert among["start"][form] == pytest.approx(start, rel=0.05)
        assert among["share"][form] == pytest.approx(share, rel=0.05)
    evidence = block["evidence"]
    assert evidence["rows_fitted"] + evidence["rows_held_out"] == len(SIZES)
    assert evidence["rows_held_out"] >= 1
    assert evidence["median_error"] < 0.01 < evidence["textbook_median_error"]


def test_a_table_that_timed_the_host_is_named_and_skipped(capsys: Capture, tmp_path: Path) -> None:
    """50 us on every size is over three times the other engines' floor of 5 us."""
    put(tmp_path, "vllm", "1.0", SIZES)
    put(tmp_path, "trtllm", "1.0", SIZES)
    put(tmp_path, "sglang", "1.0", SIZES, later_ms=0.05)
    said, out = fitted(capsys, tmp_path, "vllm", "sglang")
    assert "h200_sxm/comm/sglang/1.0/custom_allreduce_perf" in said
    assert "host-bound" in said
    assert [path.name for path in out.iterdir()] == ["h200-sxm.vllm.yaml"]


def test_the_newest_complete_version_counts(capsys: Capture, tmp_path: Path) -> None:
    """2.0 covers everything and replaces 1.0; 10.0 holds less than half of the rows."""
    put(tmp_path, "vllm", "1.0", SIZES)
    put(tmp_path, "vllm", "2.0", SIZES)
    put(tmp_path, "vllm", "10.0", SIZES[:9])
    _, out = fitted(capsys, tmp_path, "vllm")
    (block,) = load_yaml(out / "h200-sxm.vllm.yaml")["calibration"]
    assert block["version"] == "2.0"


def test_unusable_tables_are_named(capsys: Capture, tmp_path: Path) -> None:
    put(tmp_path, "vllm", "1.0", SIZES)
    put(tmp_path, "vllm", "2.0", SIZES).write_bytes(b"not parquet")
    put(tmp_path, "trtllm", "1.0", SIZES[:5])  # three lines need nine sizes
    said, _ = fitted(capsys, tmp_path, "vllm", "sglang", "trtllm")
    assert "vllm/2.0/custom_allreduce_perf: cannot be read as parquet" in said
    assert "h200-sxm sglang: no tables" in said
    assert "could not be fitted" in said


def test_a_folder_without_tables_is_refused(capsys: Capture, tmp_path: Path) -> None:
    assert "systems/data" in refused(capsys, "--tables", str(tmp_path))
    assert "no tables for 'h200'" in refused(capsys, "--gpu", "h200")
    put(tmp_path, "vllm", "1.0", SIZES)
    missing = str(tmp_path / "nowhere")
    assert missing in refused(capsys, "--tables", str(tmp_path), "-o", missing)


def sample(gpu: str, seconds: float) -> dict[str, object]:
    """Return the shipped rows of one law."""
    return {
        "kind": "gemm", "gpu": gpu, "engine": "vllm", "label": {"dtype": "bf16"},
        "seconds": [seconds],
    }  # fmt: skip


def test_samples_of_other_accelerators_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "kernels.jsonl.gz"
    write_samples(ImportOutcome(samples=[sample("a", 1.0), sample("b", 2.0)]), path)
    write_samples(ImportOutcome(samples=[sample("b", 3.0)]), path)
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    assert [(row["gpu"], row["seconds"]) for row in map(json.loads, lines)] == [
        ("a", [1.0]), ("b", [3.0]),
    ]  # fmt: skip
