"""TensorRT-LLM: ``draft_len_schedule`` or ``max_concurrency``, in two readings.

Newer (tensorrt_llm/llmapi/llm_args.py at 000439672, the 1.3 line): keys are upper bounds, nothing
is drafted above the last, the value of the smallest key must be ``max_draft_len`` and no value may
exceed it; ``max_concurrency`` excludes a schedule and stands for one with a single key. Eagle3,
MTP and Draft_Target take a schedule, NGram does not. The gate is ``acceptance_rate_threshold`` on
accepted / drafted: break-even at (R(D) - 1) / D.
Older (same file after PR 8194, replaced by PR 10860 in 2026-01): keys are lower bounds, key 1 is
required and must hold ``max_draft_len``, the last value carries on. The gate is
``acceptance_length_threshold`` on accepted drafts (speculation_gate.py at 41080dc5): R(D) - 1.
"""

from __future__ import annotations

import re
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from roofline.advice.paste import flag, inside
from roofline.base.errors import InputError
from roofline.questions.schedule.bands import Band, relative_speed, within
from roofline.questions.schedule.plan import Plan, table_value
from roofline.questions.schedule.written import NoScheduleError, Written, written

__all__ = ["Reading", "expressible", "read", "reading", "write"]

SCHEDULED = {"newer": ("eagle3", "mtp", "model"), "older": ("eagle3", "mtp", "model", "ngram")}
WINDOW = {"newer": 1000, "older": 100}  # iterations, completed requests: a choice, not a default


class Reading(StrEnum):
    """How a release reads the keys of a schedule."""

    NEWER = "newer"  # upper bounds
    OLDER = "older"  # lower bounds


def reading(version: str) -> Reading:
    """Return how a release reads a schedule; 1.3 and later are newer.

    >>> reading("1.2.0"), reading("1.3.0rc20")
    (<Reading.OLDER: 'older'>, <Reading.NEWER: 'newer'>)
    """
    match = re.match(r"v?(\d+)\.(\d+)", version)
    if match is None:
        raise InputError(f"--engine-version {version}: expected a release such as 1.2 or 1.3.0")
    return Reading.NEWER if (int(match[1]), int(match[2])) >= (1, 3) else Reading.OLDER


def read(schedule: dict[int, int], batch: int, how: Reading) -> int | None:
    """Return the D that a release would run at ``batch``; None where it refuses the schedule.

    >>> [read({1: 4, 8: 2}, 5, how) for how in (Reading.NEWER, Reading.OLDER)]
    [2, 4]
    """
    if how is Reading.NEWER:
        return next((schedule[key] for key in sorted(schedule) if batch <= key), 0)
    if 1 not in schedule:
        return None
    return schedule[max(key for key in schedule if key <= batch)]


def expressible(bands: list[Band]) -> bool:
    """Return whether the first band drafts the most, as both readings demand."""
    return bands[0].draft_length == max(band.draft_length for band in bands)


def nearest(plan: Plan) -> list[Band]:
    """Return the bands closest to the best whose first band drafts the most.

    For each candidate M: batch 1 runs M, every other the best D up to M; the M whose table yields
    the most tokens over the mix wins.
    """
    found = [_with_first(plan, most) for most in range(len(plan.draft_lengths))]
    usable = [bands for bands in found if bands is not None]
    return max(usable, key=lambda bands: table_value(plan, plan.positions(bands)))


def _with_first(plan: Plan, most: int) -> list[Band] | None:
    if plan.relative[0, most] == 0:
        return None
    limited = plan.speed.copy()
    limited[..., most + 1 :] = np.nan
    if not np.isfinite(limited).any(axis=(1, 2)).all():
        return None
    allowed = within(relative_speed(limited), plan.tie)
    allowed[0] = np.arange(allowed.shape[1]) == most
    return plan.bands(allowed[:, None, :])


def write(
    plan: Plan, *, how: Reading = Reading.NEWER, gate: bool = False, data_parallel: int = 1
) -> Written:
    """Return the ``speculative_config`` to paste."""
    del data_parallel  # neither reading minds
    kind = plan.question.deployment.drafter.kind
    if kind not in SCHEDULED[how]:
        raise NoScheduleError(f"TensorRT-LLM ({how}) takes no schedule for {kind}")
    bands = plan.merged if expressible(plan.merged) else nearest(plan)
    most = bands[0].draft_length
    if most == 0:
        return written(
            plan, "trtllm", flag(plan.question.deployment, 0, running=plan.batches), bands, []
        )
    schedule = keys(bands, how)
    addition, notes = _addition(schedule, bands, how)
    if gate:
        addition += _gate(plan, bands, how)
    text = inside(flag(plan.question.deployment, most, running=plan.batches), addition)
    if bands[-1].draft_length == 0:
        notes.append(
            "TensorRT-LLM: steps at 0 leave a one-model drafter's cache behind; acceptance of the "
            "requests in flight drops when drafting resumes (PR 16888, open)"
        )
    if not expressible(plan.merged):
        notes.insert(
            0,
            "TensorRT-LLM drafts the most at the smallest batch; the best table does not, and this "
            "is the nearest that can be written",
        )
    return written(plan, "trtllm", text, bands, notes)


def keys(bands: list[Band], how: Reading) -> dict[int, int]:
    """Return the schedule's keys; the newer reading implies 0 above the last.

    >>> two = [Band(first=1, last=4, draft_lengths=(4,)), Band(first=5, last=9, draft_lengths=(0,))]
    >>> keys(two, Reading.NEWER), keys(two, Reading.OLDER)
    ({4: 4}, {1: 4, 5: 0})
    """
    if how is Reading.OLDER:
        return {band.first: band.draft_length for band in bands}
    last = max(i for i, band in enumerate(bands) if band.draft_length > 0)
    return {band.last: band.draft_length for band in bands[: last + 1]}


def _addition(schedule: dict[int, int], bands: list[Band], how: Reading) -> tuple[str, list[str]]:
    end = bands[-1].last
    if len(bands) == 1:
        return "", []
    if how is Reading.NEWER and len(schedule) == 1:
        (limit,) = schedule
        return f", max_concurrency: {limit}", []
    above = (
        f"nothing is drafted above batch {max(schedule)}"
        if how is Reading.NEWER
        else f"batches above {end} keep the last value"
    )
    text = ", ".join(f"{key}: {value}" for key, value in schedule.items())
    notes = [f"TensorRT-LLM ({how}): {above}", _other_reading(schedule, end, how)]
    return f", draft_len_schedule: {{{text}}}", notes


def _other_reading(schedule: dict[int, int], end: int, how: Reading) -> str:
    """Say what a release of the other kind would make of the same text."""
    other = Reading.OLDER if how is Reading.NEWER else Reading.NEWER
    name = "before 1.3" if other is Reading.OLDER else "1.3 and later"
    for batch in range(1, end + 1):
        meant, found = read(schedule, batch, how), read(schedule, batch, other)
        if found is None:
            return f"TensorRT-LLM {name} refuses this text: it wants a key 1"
        if meant != found:
            return (
                f"TensorRT-LLM {name} reads the same text the other way round: batch {batch} would "
                f"run {found}, not {meant}; give --engine-version"
            )
    return f"TensorRT-LLM {name} reads the same"


def _gate(plan: Plan, bands: list[Band], how: Reading) -> str:
    """Return the gate at the lowest break-even of the bands: below it, every batch loses."""
    positions: NDArray[np.intp] = plan.positions(bands)[..., None]
    ratio = np.take_along_axis(
        plan.cost_ratio, np.broadcast_to(positions, (*plan.plain.shape, 1)), axis=-1
    )[..., 0]
    lengths = plan.lengths(positions[..., 0])
    drafts = np.broadcast_to(lengths, ratio.shape)
    accepted = np.where(drafts > 0, ratio - 1, np.inf)
    if how is Reading.OLDER:
        return (
            f", acceptance_window: {WINDOW[how]}, acceptance_length_threshold: "
            f"{max(float(accepted.min()), 0):.3f}"
        )
    rate = float((accepted / np.maximum(drafts, 1)).min())
    return (
        f", acceptance_rate_window_size: {WINDOW[how]}, acceptance_rate_threshold: "
        f"{min(max(rate, 0), 1):.3f}"
    )
