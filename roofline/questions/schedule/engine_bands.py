"""Bands that engines accept: where a band may begin, or that the first must draft the most."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from roofline.engines.writing import Band
from roofline.questions.schedule.bands import relative_speed, within
from roofline.questions.schedule.plan import SchedulePlan, table_value

__all__ = ["break_even", "cell_bands", "drafting_bands", "falling_bands", "lengths_within_tie"]


def cell_bands(plan: SchedulePlan, starts: NDArray[np.intp]) -> list[Band]:
    """Return the fewest bands that give all batches of a cell one draft length, merged by odds.

    ``starts`` has the position of the first batch of each batch's cell. A cell takes a draft length
    that all its batches permit; without one, that which yields the most over its share of the mix.
    """
    _, first, inverse = np.unique(starts, return_index=True, return_inverse=True)
    permitted = np.logical_and.reduceat(plan.allowed[:, 0], first, axis=0)
    batches = np.arange(1, plan.batches + 1)
    worth = (plan.weights * batches)[:, None] * np.nan_to_num(plan.speed).mean(axis=1)
    runs = np.logical_and.reduceat(plan.relative > 0, first, axis=0)
    joint = np.where(runs, np.add.reduceat(worth, first, axis=0), -1.0)
    best = joint == joint.max(axis=-1, keepdims=True)
    cell = np.where(permitted.any(axis=-1, keepdims=True), permitted, best)
    return plan.bands(np.asarray(cell[inverse][:, None, :]))


def lengths_within_tie(plan: SchedulePlan, band: Band) -> list[int]:
    """Return every draft length within the tie somewhere in the band, and the band's own."""
    somewhere = np.asarray(plan.allowed[band.first - 1 : band.last, 0].any(axis=0))
    lengths = {d for d, ok in zip(plan.draft_lengths, somewhere, strict=True) if ok}
    return sorted(lengths | {band.draft_length})


def falling_bands(plan: SchedulePlan, *, least: int = 0) -> list[Band]:
    """Return the best bands among those whose first band drafts the most, and none below ``least``.

    For each candidate M: batch 1 runs M, every other the best D up to M; the M whose table yields
    the most tokens over the mix wins.
    """
    candidates = (_with_first(plan, most, least) for most in range(least, len(plan.draft_lengths)))
    usable = [bands for bands in candidates if bands is not None]
    if not usable:  # some batch has room for less than ``least`` only
        return falling_bands(plan)
    return max(usable, key=lambda bands: table_value(plan, plan.positions(bands)))


def drafting_bands(plan: SchedulePlan) -> list[Band]:
    """Return the best bands without a draft length of 0, where every batch can draft.

    Where no batch wants drafts, they stay at 0: no speculation is the answer.
    """
    if not any(band.draft_length for band in plan.merged):
        return plan.merged
    drafting = np.where(np.asarray(plan.draft_lengths) > 0, plan.speed, np.nan)
    if not np.isfinite(drafting).any(axis=(1, 2)).all():
        return plan.merged
    allowed = within(relative_speed(drafting), plan.tie)
    possible = np.broadcast_to(np.asarray(plan.draft_lengths) > 0, allowed.shape)
    return plan.bands(allowed[:, None, :], possible[:, None, :])


def _with_first(plan: SchedulePlan, most: int, least: int) -> list[Band] | None:
    """Return the bands of draft lengths from position ``least`` to ``most``; None if unfit.

    Batch 1 runs the one at position ``most``.
    """
    if plan.relative[0, most] == 0:
        return None
    limited = plan.speed.copy()
    limited[..., most + 1 :] = limited[..., :least] = np.nan
    if not np.isfinite(limited).any(axis=(1, 2)).all():
        return None
    allowed = within(relative_speed(limited), plan.tie)
    positions = np.arange(allowed.shape[1])
    inside = (positions <= most) & (positions >= least)
    possible = np.broadcast_to(inside, allowed.shape).copy()
    possible[0] = allowed[0] = positions == most
    return plan.bands(allowed[:, None, :], possible[:, None, :])


def break_even(plan: SchedulePlan, bands: list[Band]) -> tuple[float, float]:
    """Return the accepted drafts of a step, and their share of D, below which every band loses.

    A step breaks even at AL = R(D), so at R(D) - 1 accepted drafts. The values are the lowest
    R(D) - 1 and (R(D) - 1) / D of all batches and contexts that draft.
    """
    positions: NDArray[np.intp] = plan.positions(bands)[..., None]
    ratio = np.take_along_axis(
        plan.cost_ratio, np.broadcast_to(positions, (*plan.plain.shape, 1)), axis=-1
    )[..., 0]
    lengths = np.asarray(plan.draft_lengths)[positions[..., 0]]
    drafts = np.broadcast_to(lengths, ratio.shape)
    accepted = np.where(drafts > 0, ratio - 1, np.inf)
    return float(accepted.min()), float((accepted / np.maximum(drafts, 1)).min())
