"""Routed experts on NumPy: rows put in the order of their experts, multiplied, and put back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["KERNELS", "run_experts"]

Array = NDArray[np.float32]
Activation = Callable[[Array], Array]
KERNELS = ("sorted", "padded")


def run_experts(  # noqa: PLR0917
    x: Array, choice: NDArray[np.intp], up: Array, down: Array, activation: Activation, kernel: str
) -> Array:  # fmt: skip
    """Return the mean of each row's chosen experts.

    ``sorted``: one product for each awake expert on its own rows. ``padded``: one batched product
    over the awake experts, each padded to the rows of the busiest; their weights are gathered
    unless all are awake. x (tokens, hidden), choice (tokens, top k), up (experts, inner, hidden),
    down (experts, hidden, width).
    """
    tokens, top_k = choice.shape
    order = np.argsort(choice, axis=None, kind="stable")
    count = np.bincount(choice.ravel(), minlength=len(up))
    rows = x[order // top_k]
    by_expert = (_padded if kernel == "padded" else _sorted)(rows, count, up, down, activation)
    out = np.empty_like(by_expert)
    out[order] = by_expert
    return np.asarray(out.reshape(tokens, top_k, -1).mean(axis=1))


def _sorted(
    rows: Array, count: NDArray[np.intp], up: Array, down: Array,
    activation: Activation,
) -> Array:  # fmt: skip
    out = np.empty((len(rows), down.shape[1]), dtype=rows.dtype)
    end = 0
    for expert in np.flatnonzero(count):
        start, end = end, end + int(count[expert])
        inner = activation(rows[start:end] @ up[expert].T)
        np.matmul(inner, down[expert].T, out=out[start:end])
    return out


def _padded(
    rows: Array, count: NDArray[np.intp], up: Array, down: Array,
    activation: Activation,
) -> Array:  # fmt: skip
    awake = np.flatnonzero(count)
    place = np.repeat(np.arange(len(awake)), count[awake])
    slot = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
    boxes = np.zeros((len(awake), int(count.max()), rows.shape[1]), dtype=rows.dtype)
    boxes[place, slot] = rows
    if len(awake) < len(up):
        up, down = up[awake], down[awake]
    inner = activation(np.matmul(boxes, up.swapaxes(1, 2)))
    return np.asarray(np.matmul(inner, down.swapaxes(1, 2))[place, slot])
