"""Tables of attention kernels as tests invent them, and rows timed by a planted law."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from workshop.tables.parquet import Table

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("scipy")
Array = NDArray[np.float64]
H200 = "h200-sxm"
BATCHES = (1, 4, 16, 64, 256)
CONTEXTS = (2, 16, 128, 512, 2048, 8192, 32768)


def table_of(
    folder: Path, rows: Iterable[dict[str, Any]], *, gpu: str = H200, family: str = "attention"
) -> Table:
    path = folder / f"generation_{family}_perf.parquet"
    parquet.write_table(pa.Table.from_pylist(list(rows)), path)
    return Table(gpu=gpu, family=family, name=path.stem, engine="sglang", version="1", path=path)


def timed(
    rows: list[dict[str, Any]], seconds: Callable[[Mapping[str, Array]], Array], noise: float
) -> list[dict[str, Any]]:
    """Return the rows with the law's milliseconds, ``noise`` times off each way by lot."""
    names = ("batch_size", "num_heads", "num_key_value_heads", "step", "window_size")
    batch, heads, kv_heads, step, window = (np.array([r[n] for r in rows], float) for n in names)
    exact = seconds(
        {
            "batch": batch,
            "kv_heads": kv_heads,
            "group": heads / kv_heads,
            "heads": heads,
            "context": step + 1,
            "window": window,
        }
    )
    lot = np.random.default_rng(7).normal(size=len(rows))
    times = 1e3 * exact * np.exp(noise * lot)
    return [r | {"latency": t} for r, t in zip(rows, times.tolist(), strict=True)]
