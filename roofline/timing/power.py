"""What a step draws: watts of a board by what its kernels wait for, and joules. Experimental.

A board draws idle power always, more while anything runs on it, and more again with the share of
its bandwidth and of its peak that a kernel uses. The shares are stated between two public sets of
measurements (``power`` in ``data/priors.yaml``) and were fitted to no run of this model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofline.base.numbers import Array
from roofline.kernels.ops import Kind
from roofline.specs.formats import rate_name
from roofline.specs.gpu import IDLE, HardwareProfile
from roofline.specs.placement import Placement, SplitMode
from roofline.specs.priors import PowerPrior, priors
from roofline.timing.machine import OVER_LINK, OpTime
from roofline.timing.step import StepTimes

__all__ = ["Draw", "draw_of", "joules_per_token", "kernel_share", "step_joules"]

Values = NDArray[np.float64]


class Draw(NamedTuple):
    """What one board draws on the mean of a step, and what its error leaves; arrays of a grid."""

    watts: Values
    low: Values
    high: Values


def kernel_share(*, memory: Array, compute: Array, limit: float, stated: PowerPrior) -> Array:
    """Return the share of its rated power that a board draws while a kernel runs.

    min(limit, idle + awake + a u_memory + b u_compute): ``memory`` and ``compute`` are the shares
    of bandwidth and of the rated peak that it uses, ``limit`` what the board may draw. A kernel
    that streams at 80 % of the bandwidth and computes nothing:

    >>> share = kernel_share(memory=0.8, compute=0.0, limit=1.0, stated=priors().power)
    >>> round(float(share), 3)  # 0.115 + 0.08 + 0.8 x 0.29
    0.427
    """
    running = IDLE + stated.awake + stated.memory * memory + stated.compute * compute
    return np.minimum(limit, running)


def joules_per_token(*, watts: Array, boards: int, step: Array, tokens: Array) -> Array:
    """Return the energy of one output token: P n T / (B AL) [J].

    ``watts`` of one of ``boards`` boards, ``step`` in s, ``tokens`` of all sequences in a step.
    At the same power it falls as the speedup grows:

    >>> float(joules_per_token(watts=300.0, boards=2, step=10e-3, tokens=3.0))
    2.0
    """
    return np.asarray(watts) * boards * step / tokens


def step_joules(
    times: StepTimes,
    gpu: HardwareProfile,
    placement: Placement,
    draft_length: Array,
    *,
    under_way: Array = 1.0,
) -> Values:
    """Return the energy of one step on all boards of a target and its drafter [J].

    sum over kernels of ranks x (P - idle) x time, the host's time at what a waiting board draws,
    and idle power of every board for the whole step. Pipeline stages and split layers run on one
    board, or one group of ranks, at a time; with ``under_way`` micro-batches boards work for all.
    """
    rated, limit, stated = _rated(gpu), gpu.power_share, priors().power
    boards = placement.cards
    at_once = boards if placement.split.mode is SplitMode.ROW else placement.tp
    dynamic: Array = np.zeros_like(times.total)
    for time, repeats in _launched(times, draft_length):
        memory, compute = _used(time, gpu)
        share = kernel_share(memory=memory, compute=compute, limit=limit, stated=stated)
        dynamic = dynamic + repeats * np.asarray(time.total) * (share - IDLE)
    waiting = min(stated.awake, limit - IDLE) * times.overhead
    total = at_once * under_way * dynamic + boards * (waiting + IDLE * times.total)
    return np.asarray(rated * np.minimum(total, boards * limit * times.total))


def draw_of(
    times: StepTimes,
    gpu: HardwareProfile,
    placement: Placement,
    draft_length: Array,
    *,
    under_way: Array = 1.0,
) -> Draw:
    """Return what one board draws on the mean of a step, within a factor that is stated."""
    rated, factor = _rated(gpu), np.exp(priors().power.spread * 1.2816)
    joules = step_joules(times, gpu, placement, draft_length, under_way=under_way)
    watts = np.asarray(joules / placement.cards / times.total)
    most = rated * gpu.power_share
    return Draw(
        watts=watts,
        low=np.maximum(watts / factor, min(IDLE * rated, most)),
        high=np.minimum(watts * factor, most),
    )


def _rated(gpu: HardwareProfile) -> float:
    if gpu.tdp is None:
        raise TypeError(f"{gpu.id}: no rated power")
    return gpu.tdp.value


def _launched(times: StepTimes, draft_length: Array) -> Iterator[tuple[OpTime, Array]]:
    """Yield the kernels of a step, and how often each pass of them runs."""
    passes: Iterable[tuple[list[OpTime], Array]] = (
        (times.verify_ops, 1.0),
        (times.first_pass_ops, (np.asarray(draft_length) > 0).astype(float)),
        (times.further_pass_ops, times.further_passes),
    )
    for ops, repeats in passes:
        for time in ops:
            yield time, repeats


def _used(time: OpTime, gpu: HardwareProfile) -> tuple[Array, Array]:
    """Return the shares of bandwidth and of the rated peak that a kernel uses, 1 at most."""
    op, each = time.op, np.asarray(time.each)
    if op.kind in OVER_LINK or op.kind is Kind.CPU_MOE:
        return 0.0, 0.0
    peak: float = gpu.compute.peaks[rate_name(op.compute)].value  # type: ignore[index]
    with np.errstate(divide="ignore", invalid="ignore"):
        memory = np.where(each > 0, op.bytes / (gpu.memory.bandwidth.value * each), 0.0)
        compute = np.where(each > 0, op.computed_flops / (peak * each), 0.0)
    return np.minimum(memory, 1.0), np.minimum(compute, 1.0)
