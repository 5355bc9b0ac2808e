"""The roofline: the rate of each kernel as D grows, under datasheet and fitted roofs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofline.advice.deployment import Deployment, PricedGrid
from roofline.base.errors import InputError, Option
from roofline.kernels.ops import Kind, Part
from roofline.render.charts.figure import PALETTE, label_ticks
from roofline.specs.formats import rate_name
from roofline.timing.machine import OVER_LINK, OpTime

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

__all__ = ["GROUPS", "RooflineRow", "draw_roofline", "roofline_rows"]

Array = NDArray[np.float64]
SMALL = 0.01  # a track that never takes this share of a step is in the data, not in the picture
ROOFS = ("#000000", "#999999", "#C0A060")  # by rate
APART = 0.036  # between two names, as a share of the axis
NEAR = 2.5  # factor in intensity within which names could meet
NAMED = 0.03  # of several tracks of a group only those that take this share have a name
#: What each group of kernels is called, its colour and its marker.
GROUPS = {
    "gemm": ("GEMM", PALETTE[0], "o"),
    "attention": ("attention", PALETTE[1], "s"),
    "moe": ("MoE experts", PALETTE[2], "^"),
    "lm_head": ("lm_head", PALETTE[3], "D"),
    "state": ("linear-mixer state", PALETTE[4], "v"),
    "draft": ("all draft passes", PALETTE[6], "P"),
}
_KINDS = {
    Kind.GEMM: "gemm",
    Kind.BATCHED_GEMM: "gemm",
    Kind.ATTENTION: "attention",
    Kind.MLA: "attention",
    Kind.MOE: "moe",
    Kind.STATE: "state",
}


class RooflineRow(NamedTuple):
    """A kernel at one draft length, all launches of the step together; or the ridge of a roof."""

    group: str  # of GROUPS, or "roof"
    op: str
    draft_length: int | None
    intensity_flop_per_byte: float
    attained_tflop_per_s: float
    time_ms: float | None
    share_of_step: float | None


def roofline_rows(priced: PricedGrid) -> list[RooflineRow]:
    """Return the roofs, and the track of every kernel with products, at one batch and context."""
    if priced.grid.shape[:2] != (1, 1):
        raise InputError(
            f"{Option('batch')}, {Option('context')}: a roofline is of one batch and context; give "
            "one"
        )
    times, fits = priced.times, priced.fits[0, 0]
    lengths = priced.grid.draft_length.ravel()
    step = times.total[0, 0]
    verify = [time for time in times.verify_ops if _group(time) is not None]
    tracks: dict[tuple[str, str], list[tuple[OpTime, Array]]] = {}
    for time in verify:
        tracks.setdefault((str(_group(time)), time.op.name), []).append((time, np.ones(len(fits))))
    repeats = np.where(lengths > 0, 1.0, 0.0), np.maximum(lengths - 1.0, 0.0)
    passes = (times.first_pass_ops, times.further_pass_ops)
    drafts = [
        (time, count)
        for ops, count in zip(passes, repeats, strict=True)
        for time in ops
        if time.op.kind not in OVER_LINK
    ]
    if drafts:
        tracks["draft", "draft passes"] = drafts
    rows = _roofs(priced.deployment, verify)
    for (group, name), members in tracks.items():
        flops, moved, seconds = (
            sum((_along(t, what, len(lengths)) * count for t, count in members), np.zeros(1))
            for what in ("flops", "bytes", "total")
        )
        rows += [
            RooflineRow(
                group=group,
                op=name,
                draft_length=int(d),
                intensity_flop_per_byte=float(flops[i] / moved[i]),
                attained_tflop_per_s=float(flops[i] / seconds[i] / 1e12),
                time_ms=1e3 * float(seconds[i]),
                share_of_step=float(seconds[i] / step[i]),
            )
            for i, d in enumerate(lengths)
            if fits[i] and moved[i] > 0
        ]
    return rows


def _group(time: OpTime) -> str | None:
    """Return the group of a kernel, None for those without products."""
    if time.op.part is Part.LM_HEAD and time.op.kind is Kind.GEMM:
        return "lm_head"
    return _KINDS.get(time.op.kind)


def _along(time: OpTime, what: str, lengths: int) -> Array:
    """Return FLOPs, bytes or seconds of all launches in a pass along the draft lengths."""
    value = time.total if what == "total" else time.op.count * np.asarray(getattr(time.op, what))
    along: Array = np.broadcast_to(np.asarray(value, dtype=float), (1, 1, lengths))[0, 0]
    return along


def _roofs(deployment: Deployment, verify: Sequence[OpTime]) -> list[RooflineRow]:
    """Return the ridges: the datasheet's at each rate, and that of the law with the most FLOPs."""
    gpu, rows = deployment.gpu, []
    heaviest: dict[str, OpTime] = {}
    for time in sorted(verify, key=lambda t: float(np.max(t.op.count * np.asarray(t.op.flops)))):
        heaviest[rate_name(time.op.compute)] = time
    for rate, time in heaviest.items():
        law = time.chosen.law
        # a fit may reach a little beyond the datasheet, a roof does not
        reached = (min(getattr(law, name, 1.0), 1.0) for name in ("compute_eff", "mem_eff"))
        origin = "fitted" if time.chosen.provenance == "calibrated" else time.chosen.provenance
        for name, (compute, memory) in (
            (f"{rate} datasheet", (1.0, 1.0)),
            (f"{rate} {origin} ({time.op.name})", tuple(reached)),
        ):
            peak, bandwidth = compute * gpu.peak(rate), memory * gpu.bandwidth
            rows.append(RooflineRow("roof", name, None, peak / bandwidth, peak / 1e12, None, None))
    return rows


def draw_roofline(axes: Axes, rows: Sequence[RooflineRow]) -> dict[str, Line2D]:
    """Draw roofs and tracks; return the lines by op, a group's name in front where it is a draft.

    Each track runs from a hollow point, its smallest D, through every D to the largest.
    """
    roofs: dict[str, RooflineRow] = {}
    for row in rows:
        if row.group == "roof":
            roofs.setdefault(row.op, row)
    shown = _tracks(rows)
    x = np.array([row.intensity_flop_per_byte for track in shown.values() for row in track])
    y = np.array([row.attained_tflop_per_s for track in shown.values() for row in track])
    ridge = max(row.intensity_flop_per_byte for row in roofs.values())
    peak = max(row.attained_tflop_per_s for row in roofs.values())
    span = (float(x[x > 0].min()) / 1.6, max(4 * ridge, 1.6 * float(x.max())))
    # pairs of the datasheet's roof and the law's, one pair for each rate
    lines = {
        op: _draw_roof(axes, row, span, colour=ROOFS[number // 2 % len(ROOFS)])
        for number, (op, row) in enumerate(roofs.items())
    }
    named: set[str] = set()
    for (group, op), track in shown.items():
        label = GROUPS[group][0] if group not in named else None
        named.add(group)
        lines[op] = _draw_track(axes, track, label)
    axes.set(xscale="log", yscale="log", xlim=span, ylim=(float(y[y > 0].min()) / 1.8, 1.8 * peak))
    count = Counter(group for group, _ in shown)
    _name_tracks(
        axes,
        [
            track[-1]
            for (group, _), track in shown.items()
            if count[group] > 1 and _largest_share(track) >= NAMED
        ],
    )
    label_ticks(axes.xaxis, low=span[0], high=span[1])
    label_ticks(axes.yaxis, low=float(y[y > 0].min()), high=peak)
    axes.set_xlabel("arithmetic intensity (FLOP for each byte moved)")
    axes.set_ylabel("attained rate of one GPU (TFLOP/s)")
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(1.01, 1.0),
        borderaxespad=0,
        frameon=False,
        title="hollow: the smallest D,\nthen every D in turn",
        title_fontsize=7.5,
        alignment="left",
    )
    return lines


def _tracks(rows: Sequence[RooflineRow]) -> dict[tuple[str, str], list[RooflineRow]]:
    """Return each kernel's rows by group and op, without kernels that are small at every D.

    If all are small, as beside experts on the processor, all are kept.
    """
    tracks: dict[tuple[str, str], list[RooflineRow]] = {}
    for row in rows:
        if row.group != "roof":
            tracks.setdefault((row.group, row.op), []).append(row)
    return {key: track for key, track in tracks.items() if _largest_share(track) >= SMALL} or tracks


def _largest_share(rows: Sequence[RooflineRow]) -> float:
    return max(row.share_of_step or 0.0 for row in rows)


def _draw_roof(axes: Axes, row: RooflineRow, span: tuple[float, float], colour: str) -> Line2D:
    ridge, peak = row.intensity_flop_per_byte, row.attained_tflop_per_s
    x = np.array([span[0], ridge, span[1]])
    datasheet = row.op.endswith("datasheet")
    (line,) = axes.plot(
        x,
        peak * np.minimum(x / ridge, 1.0),
        label=row.op,
        color=colour,
        linewidth=1.2,
        linestyle="dashed" if datasheet else "-",
        zorder=1,
    )
    return line


def _draw_track(axes: Axes, track: Sequence[RooflineRow], label: str | None) -> Line2D:
    _, colour, marker = GROUPS[track[0].group]
    x = [row.intensity_flop_per_byte for row in track]
    y = [row.attained_tflop_per_s for row in track]
    (line,) = axes.plot(
        x, y, color=colour, marker=marker, markersize=4.5, linewidth=1.2, label=label
    )
    axes.plot(
        x[:1],
        y[:1],
        color=colour,
        marker=marker,
        markersize=6.5,
        markerfacecolor="white",
        linestyle="",
    )
    return line


def _name_tracks(axes: Axes, ends: Sequence[RooflineRow]) -> None:
    """Write kernels' names beside their last points, with room between names that are near."""
    low, high = (float(np.log(limit)) for limit in axes.get_ylim())
    gap = APART * (high - low)
    placed: list[tuple[float, float]] = []
    for row in sorted(ends, key=lambda row: -row.attained_tflop_per_s):
        x, y = row.intensity_flop_per_byte, float(np.log(row.attained_tflop_per_s))
        near = [height for place, height in placed if max(place / x, x / place) < NEAR]
        if near and y > min(near) - gap:
            y = min(near) - gap
        placed.append((x, y))
        right = max(place for place, _ in placed if max(place / x, x / place) < NEAR)
        axes.annotate(
            row.op,
            (x, row.attained_tflop_per_s),
            xytext=(1.12 * right, float(np.exp(y))),
            textcoords="data",
            size=6.5,
            va="center",
            color=GROUPS[row.group][1],
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.4},
            arrowprops={"arrowstyle": "-", "linewidth": 0.4, "color": "#999999", "shrinkB": 2},
        )
