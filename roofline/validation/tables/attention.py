"""Decode-attention tables (GQA and MHA): one new token for each of a batch of cached sequences.

A row times one call that is repeated, so that a small cache lies in L2. ``num_heads`` and
``num_key_value_heads`` are those of one GPU, ``isl`` is 1 (the new token) and ``step`` the tokens
cached before it; a ``window_size`` above 0 limits the tokens read. ``latency`` is in ms.
``attn_dtype`` says bfloat16 whatever the cache holds: ``kv_cache_dtype`` tells it. An engine may
have several kernels for one shape; each has its own law.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.kernels.ops import AttentionShape
from roofline.specs.gpu import HardwareProfile
from roofline.specs.laws import AttentionLaw
from roofline.validation.tables.attention_fit import (
    KV_BYTES,
    fit_law,
    law_seconds,
    textbook_seconds,
)
from roofline.validation.tables.family import Group, Label, Numbers
from roofline.validation.tables.tables import Columns, Table, clean, kinds, latency, pick, read

__all__ = [
    "CACHES",
    "KIND",
    "TABLES",
    "above_floor",
    "at_least_one",
    "clean_possible",
    "fit",
    "groups",
    "max_group",
    "scored",
    "seconds",
    "textbook",
]

KIND = "attention"
TABLES: Sequence[tuple[str, str]] = (("attention", "generation_attention_perf"),)
Array = NDArray[np.float64]

#: The tables' ``kv_cache_dtype``, as the laws' blocks say it.
CACHES = {"bfloat16": "bf16", "fp8": "fp8"}
SHAPE = ("num_heads", "num_key_value_heads", "head_dim", "window_size")
_SIZES = ("batch_size", "num_heads", "num_key_value_heads", "head_dim", "isl", "step")
_COLUMNS = ("kernel_source", "kv_cache_dtype", "latency", *_SIZES)
#: The law is judged on groups up to this size.
MAX_GROUP = 32
FLOORS = 3.0  # a row this many times above the floor measures more than the launch
CLIFF = 5.0  # a group this many times slower than small groups has left the fast path
SMALL_GROUP = 8


def groups(table: Table, gpu: HardwareProfile) -> list[Group]:  # noqa: ARG001
    """Read, clean and divide a table by cache format, head size and kernel, most rows first.

    Rejected by name beside what ``clean`` rejects: ``impossible_shape``, a size below 1 or heads
    that the KV heads do not divide.
    """
    raw = read(table, _COLUMNS, optional=("window_size",))
    raw.setdefault("window_size", np.zeros(len(raw["latency"])))
    raw["context"] = raw["isl"].astype(np.float64) + raw["step"].astype(np.float64)
    found = []
    for cache, head_dim, kernel in kinds(raw, ("kv_cache_dtype", "head_dim", "kernel_source")):
        inside = (raw["kv_cache_dtype"] == cache) & (raw["head_dim"] == head_dim)
        rows, why = _usable(pick(raw, inside & (raw["kernel_source"] == kernel)))
        if cache not in CACHES or not len(rows["latency"]):
            continue
        found.append(
            Group.of(
                table,
                rows,
                kind=KIND,
                label={"dtype": CACHES[cache], "kernel": kernel, "head_dim": int(head_dim)},
                columns=_numbers(rows),
                shape=SHAPE,
                rejected=why,
            )
        )
    return found


def _usable(rows: Columns) -> tuple[Columns, Counter[str]]:
    """Return the rows that can be fitted, and the count of others by reason."""
    sizes = ("batch_size", "num_heads", "num_key_value_heads", "context")
    possible = at_least_one(rows, sizes)
    heads, kv_heads, window = (
        rows[name].astype(np.float64)
        for name in ("num_heads", "num_key_value_heads", "window_size")
    )
    possible &= (heads % np.maximum(kv_heads, 1) == 0) & (window >= 0)
    curve = ("num_heads", "num_key_value_heads", "window_size", "batch_size")
    return clean_possible(rows, possible, curve=curve)


def at_least_one(rows: Columns, names: Sequence[str]) -> NDArray[np.bool_]:
    """Return where all of these sizes are 1 or more."""
    return np.asarray(np.all([rows[name].astype(np.float64) >= 1 for name in names], axis=0))


def clean_possible(
    rows: Columns, possible: NDArray[np.bool_], *, curve: Sequence[str]
) -> tuple[Columns, Counter[str]]:
    """Return the possible rows, cleaned along the context, and the count of others by reason."""
    rows = pick(rows, possible)
    index, why = clean(rows, latency(rows), size="context", curve=curve)
    why["impossible_shape"] = int((~possible).sum())
    return pick(rows, index), +why


def _numbers(rows: Columns) -> Numbers:
    """Return batch, KV heads, query heads for each of them, tokens cached, and window (0: none)."""
    names = ("batch_size", "num_heads", "num_key_value_heads", "context", "window_size")
    batch, heads, kv_heads, context, window = (rows[name].astype(np.float64) for name in names)
    return {
        "batch": batch,
        "kv_heads": kv_heads,
        "group": heads / kv_heads,
        "context": context,
        "window": window,
    }


def _shape(columns: Numbers, label: Label) -> AttentionShape:
    context, window = columns["context"], columns["window"]
    width = 2 * label["head_dim"]  # keys and values
    return AttentionShape(
        pairs=columns["batch"] * columns["kv_heads"],
        rows=columns["group"],
        length=np.where(window > 0, np.minimum(context, window), context),
        context=context,
        kv_width=width,
        mac_width=width,
        kv=KV_BYTES[label["dtype"]],
    )


def seconds(columns: Numbers, label: Label, law: AttentionLaw, gpu: HardwareProfile) -> Array:
    """Predict a call of the benchmark, which finds a small cache in L2 [s]."""
    return law_seconds(_shape(columns, label), law, gpu)


def textbook(columns: Numbers, label: Label, gpu: HardwareProfile) -> Array:
    """Return max(bytes / bandwidth, FLOP / peak), the cache read once [s]."""
    return textbook_seconds(_shape(columns, label), gpu)


def scored(columns: Numbers, label: Label) -> NDArray[np.bool_]:  # noqa: ARG001
    """Return the rows that count when the law is judged: groups of 32 at most."""
    return np.asarray(columns["group"] <= MAX_GROUP)


def above_floor(
    columns: Numbers, label: Label, law: AttentionLaw, gpu: HardwareProfile
) -> NDArray[np.bool_]:
    """Return the rows that the law puts at over three times the smallest call's time.

    The smallest call is one query head over one cached token; a third of a table takes no longer.
    """
    smallest = {name: np.ones(1) for name in columns}
    floor = seconds(smallest, label, law, gpu)
    return np.asarray(seconds(columns, label, law, gpu) > FLOORS * floor)


def fit(
    columns: Numbers, label: Label, seconds: Array, gpu: HardwareProfile
) -> tuple[AttentionLaw, dict[str, Any]]:
    """Return the law of the fast path, and the largest group that takes it (None: no end seen)."""
    largest = max_group(columns, seconds)
    if largest is not None:
        fast = columns["group"] <= largest
        columns = {name: column[fast] for name, column in columns.items()}
        seconds = seconds[fast]
    return fit_law(_shape(columns, label), seconds, gpu), {"max_group": largest}


def max_group(columns: Numbers, seconds: Array) -> int | None:
    """Return the largest group before the first cliff; None where there is none.

    At a cliff the median, over rows without a window, of t / t of groups <= 8 at the same batch, KV
    heads and context exceeds 5. Rows on the floor, three times the table's fastest hundredth, say
    nothing. The tables have one query per sequence: a cliff is a ratio of heads without a kernel.
    """
    whole = columns["window"] == 0
    group, time = columns["group"][whole], seconds[whole]
    small = group <= SMALL_GROUP
    if not small.any() or small.all():
        return None
    calls = np.stack([columns[name][whole] for name in ("kv_heads", "batch", "context")], axis=1)
    _, call = np.unique(calls, axis=0, return_inverse=True)
    usual = _medians(call.reshape(-1), time, small)
    known = usual > FLOORS * np.quantile(time, 0.01)
    for size in np.unique(group[known]):
        here = known & (group == size)
        if np.median(time[here] / usual[here]) > CLIFF:
            below = columns["group"][columns["group"] < size]
            return int(below.max())
    return None


def _medians(call: NDArray[np.intp], time: Array, small: NDArray[np.bool_]) -> Array:
    """Return for each row the median time of the small groups' rows of its call; 0 without any."""
    found = np.zeros(call.max() + 1)
    order = np.argsort(call[small], kind="stable")
    names, starts = np.unique(call[small][order], return_index=True)
    parts = np.split(time[small][order], starts[1:])
    found[names] = [np.median(part) for part in parts]
    return found[call]
