"""SGLang: slots of candidate steps in ``--speculative-adaptive-config``.

Rules, read in SGLang (python/sglang/srt/speculative/adaptive_spec_params.py at 015c87262,
adaptive_step_router.py at a12239f6a): a batch is padded to the next captured CUDA-graph size, then
the slot with the largest key up to that size is used, so keys are lower bounds. Every slot has
``candidate_steps`` of at least one number; 0 means no speculation; with one candidate the slot is
fixed. Only EAGLE and EAGLE3 (NEXTN is EAGLE) with top-k 1, and no data-parallel attention.
Captured sizes by default, with speculation (generate_decode_cuda_graph_batch_sizes): 1 to 8,
10 to 32 by 2, 40 to 64 by 4, 72 to 256 by 8, then by 16.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from roofline.advice.paste import flag
from roofline.questions.schedule.bands import Band
from roofline.questions.schedule.plan import Plan
from roofline.questions.schedule.written import NoScheduleError, Written, written

__all__ = ["CAPTURED", "cells", "flags", "slots", "write"]

CAPTURED = (
    *range(1, 9),
    *range(10, 33, 2),
    *range(40, 65, 4),
    *range(72, 257, 8),
    *range(272, 4097, 16),
)
KINDS = ("eagle1", "eagle3", "mtp")


def cells(count: int, captured: Sequence[int]) -> NDArray[np.intp]:
    """Return, for batches 1 to ``count``, the position where the cell of equal padding starts.

    >>> cells(7, [1, 2, 4, 8]).tolist()
    [0, 1, 2, 2, 4, 4, 4]
    """
    sizes = np.unique([0, *captured])
    batches = np.arange(1, count + 1)
    above = np.searchsorted(sizes, batches)  # the captured size that holds a batch
    return np.where(above < len(sizes), sizes[above - 1], batches - 1)


def slots(bands: list[Band], candidates: list[list[int]] | None = None) -> dict[str, object]:
    """Return the file's content: one slot for each band, keyed by its first batch.

    >>> slots([Band(first=1, last=8, draft_lengths=(3,))])
    {'1': {'candidate_steps': [3]}}
    """
    steps = candidates or [[band.draft_length] for band in bands]
    return {
        str(band.first): {"candidate_steps": own} for band, own in zip(bands, steps, strict=True)
    }


def flags(plan: Plan, bands: list[Band], *, copies: int = 1, file: str = "FILE.json") -> str:
    """Return the flags that go with the file; the start must be one of the candidates."""
    steps = max(band.draft_length for band in bands)
    drafter = flag(plan.question.deployment, steps, running=plan.batches * copies)
    return f"{drafter} --speculative-adaptive --speculative-adaptive-config {file}"


def write(
    plan: Plan,
    *,
    captured: Sequence[int] | None = None,
    candidate_sets: bool = False,
    data_parallel: int = 1,
) -> Written:
    """Return the JSON file; a band can only begin where padding begins a new captured size.

    ``captured`` are the server's own sizes in any order, None its default ones.
    """
    kind = plan.question.deployment.drafter.kind
    if kind not in KINDS:
        raise NoScheduleError(f"SGLang adapts EAGLE, EAGLE3 and NEXTN (MTP) only, not {kind}")
    starts = cells(plan.batches, CAPTURED if captured is None else captured)
    bands = plan.bands(_by_cell(plan, starts))
    sets = [_candidates(plan, band) for band in bands] if candidate_sets else None
    own_sizes = "/server_info (decode_cuda_graph_bs) tells yours, for --graph-batches"
    copies = data_parallel if plan.question.deployment.target.placement.dp == 1 else 1
    if max(band.draft_length for band in bands) == 0:
        notes = ["SGLang: leave --speculative-algorithm out instead: nothing beats plain decoding"]
    else:
        told = flags(plan, bands, copies=copies)
        notes = [
            f"SGLang: batches above {plan.batches} keep the last slot; flags: {told}",
            f"SGLang: slots follow its default CUDA-graph sizes; {own_sizes}"
            if captured is None
            else "SGLang: slots follow the CUDA-graph sizes given",
        ]
    if data_parallel > 1:
        notes.append("SGLang switches adaptation off under data-parallel attention")
    text = json.dumps(slots(bands, sets), indent=1)
    return written(plan, "sglang", text, bands, notes)


def _by_cell(plan: Plan, starts: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Return what all batches of a cell permit, else the best for the cell's share of the mix."""
    first, inverse = (
        np.unique(starts, return_index=True)[1],
        np.unique(starts, return_inverse=True)[1],
    )
    permitted = np.logical_and.reduceat(plan.allowed[:, 0], first, axis=0)
    batches = np.arange(1, plan.batches + 1)
    worth = (plan.weights * batches)[:, None] * np.nan_to_num(plan.speed).mean(axis=1)
    runs = np.logical_and.reduceat(plan.relative > 0, first, axis=0)
    joint = np.where(runs, np.add.reduceat(worth, first, axis=0), -1.0)
    best = joint == joint.max(axis=-1, keepdims=True)
    cell = np.where(permitted.any(axis=-1, keepdims=True), permitted, best)
    return np.asarray(cell[inverse][:, None, :])


def _candidates(plan: Plan, band: Band) -> list[int]:
    """Return every draft length within the tie somewhere in the band, and the band's own."""
    somewhere = np.asarray(plan.allowed[band.first - 1 : band.last, 0].any(axis=0))
    found = {d for d, ok in zip(plan.draft_lengths, somewhere, strict=True) if ok}
    return sorted(found | {band.draft_length})
