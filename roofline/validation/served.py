"""Served decode runs against predictions whose engine numbers never saw their accelerator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from roofline.validation.decode_rows import DecodeRow, load_rows
from roofline.validation.engine_numbers import leave_one_gpu_out
from roofline.validation.score import Compared

__all__ = ["compare_decode"]


def compare_decode(*, gpus: Sequence[str], engines: Sequence[str]) -> Iterator[Compared]:
    """Yield predicted and measured time per output token, grouped by model and format."""
    rows = [row for row in load_rows() if not row.left_out]
    if not any(row.gpu in gpus and row.engine in engines for row in rows):
        return
    predicted, textbook = leave_one_gpu_out(rows)
    groups: dict[tuple[str, ...], list[int]] = {}
    for index, row in enumerate(rows):
        if row.gpu in gpus and row.engine in engines:
            groups.setdefault((row.gpu, row.engine, row.model, _format(row)), []).append(index)
    for (gpu, engine, model, dtype), members in sorted(groups.items()):
        pick = np.array(members)
        yield Compared(
            suite="decode",
            kind="tpot-dense" if rows[members[0]].dense else "tpot-moe",
            gpu=gpu,
            engine=engine,
            dtype=dtype,
            name=f"{model} {dtype}",
            predicted=predicted[pick],
            measured=np.array([rows[i].tpot for i in members]),
            textbook=textbook[pick],
        )


def _format(row: DecodeRow) -> str:
    return row.experts or row.linears or ("mxfp4" if row.model.startswith("gpt-oss") else "bf16")
