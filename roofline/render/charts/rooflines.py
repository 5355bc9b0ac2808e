"""The roofline: the rate of each kernel as D grows, under the datasheet's roof of its format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofline.advice.deployment import Deployment, PricedGrid
from roofline.base.errors import InputError, Option
from roofline.kernels.ops import Kind, Part
from roofline.render.charts.figure import PALETTE, label_ticks, spread_out
from roofline.specs.formats import rate_name
from roofline.timing.machine import OVER_LINK, OpTime

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

__all__ = [
    "GROUPS",
    "RooflineRow",
    "draw_roofline",
    "drawn_tracks",
    "roofline_rows",
]

Array = NDArray[np.float64]
SMALL = 0.01  # a track that never takes this share of a step is in the data, not in the picture
#: Kernels that are drawn however small they are: readers look for them.
ALWAYS = ("lm_head", "router")
APART = 0.052  # between two names beside the axes, as a share of their height
SAMPLE, NAME = 1.03, 1.062  # where a name's marker and text stand, as a share of the width
#: Marker and dashes of the tracks in turn, so that tracks of one colour are told apart.
TRACK_MARKERS = ("o", "s", "^", "D", "v", "X", "p", "<", "h", ">", "d", "*")
TRACK_LINES = ("-", "dashed", (0, (1, 1.2)), "-.", (0, (5, 1, 1, 1, 1, 1)))
#: What each group of kernels is called, and its colour.
GROUPS = {
    "gemm": ("GEMM", PALETTE[0]),
    "attention": ("attention", PALETTE[1]),
    "moe": ("MoE experts", PALETTE[2]),
    "lm_head": ("lm_head", PALETTE[3]),
    "state": ("linear-mixer state", PALETTE[4]),
    "draft": ("all draft passes", PALETTE[6]),
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
    roof: str | None  # the op of the roof that it stands under
    share_of_roof: float | None  # of what that roof allows at this intensity


def roofline_rows(priced: PricedGrid) -> list[RooflineRow]:
    """Return the roofs, and the track of every kernel with products, at one batch and context.

    Draft passes of several formats stand under the highest of their roofs: each of their kernels
    takes at least FLOPs / peak and bytes / bandwidth, and so do all together.
    """
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
    rates = {rate_name(time.op.compute) for members in tracks.values() for time, _ in members}
    roofs = {rate: _roof(priced.deployment, rate) for rate in rates}
    rows = sorted(roofs.values(), key=lambda roof: roof.attained_tflop_per_s)
    for (group, name), members in tracks.items():
        roof = max(
            (roofs[rate_name(time.op.compute)] for time, _ in members),
            key=lambda roof: roof.attained_tflop_per_s,
        )
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
                roof=roof.op,
                share_of_roof=float(flops[i] / seconds[i] / 1e12)
                / _allowed(roof, float(flops[i] / moved[i])),
            )
            for i, d in enumerate(lengths)
            if fits[i] and flops[i] > 0
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


def _roof(deployment: Deployment, rate: str) -> RooflineRow:
    """Return the datasheet's roof of one format by its ridge."""
    peak, bandwidth = deployment.gpu.peak(rate), deployment.gpu.bandwidth
    return RooflineRow(
        "roof", f"{rate} datasheet", None, peak / bandwidth, peak / 1e12, None, None, None, None
    )


def _allowed(roof: RooflineRow, intensity: float) -> float:
    """Return what a roof allows at an arithmetic intensity [TFLOP/s]."""
    return roof.attained_tflop_per_s * min(intensity / roof.intensity_flop_per_byte, 1.0)


def draw_roofline(axes: Axes, rows: Sequence[RooflineRow]) -> dict[str, Line2D]:
    """Draw roofs and tracks, each with its name at the right edge; return the lines by op.

    Each track runs from a hollow point, its smallest D, through every D to the largest.
    """
    roofs = [row for row in rows if row.group == "roof"]
    tracks = drawn_tracks(rows)
    x = np.array([row.intensity_flop_per_byte for track in tracks for row in track])
    y = np.array([row.attained_tflop_per_s for track in tracks for row in track])
    ridge = max(row.intensity_flop_per_byte for row in roofs)
    peak = max(row.attained_tflop_per_s for row in roofs)
    left, right = float(x[x > 0].min()) / 1.6, max(2 * ridge, 1.6 * float(x.max()))
    low, high = float(y[y > 0].min()) / 1.8, 1.8 * max(peak, float(y.max()))
    axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(low, high))
    lines = {row.op: _draw_roof(axes, row, left, right) for row in roofs}
    ends = [(lines[row.op], row.op, (right, row.attained_tflop_per_s)) for row in roofs]
    of_group: dict[str, int] = {}
    for number, track in enumerate(tracks):
        row = track[-1]
        among = of_group[row.group] = of_group.get(row.group, -1) + 1
        line = lines[row.op] = _draw_track(axes, track, number, among)
        ends.append((line, _name(row), (row.intensity_flop_per_byte, row.attained_tflop_per_s)))
    _name_lines(axes, ends)
    label_ticks(axes.xaxis, low=left, high=right)
    label_ticks(axes.yaxis, low=low, high=high)
    axes.set_xlabel("arithmetic intensity (FLOP for each byte moved)")
    axes.set_ylabel("attained rate of one GPU (TFLOP/s)")
    axes.annotate(
        "hollow: the smallest D, then every D in turn",
        (0.0, 1.0),
        xycoords="axes fraction",
        xytext=(4, -4),
        textcoords="offset points",
        va="top",
        size=7.5,
        color="#444444",
    )
    return lines


def _name(row: RooflineRow) -> str:
    """Return what a track is called beside the chart."""
    return GROUPS["draft"][0] if row.group == "draft" else row.op


def drawn_tracks(rows: Sequence[RooflineRow]) -> list[list[RooflineRow]]:
    """Return each kernel's rows, without kernels that are small at every D.

    The lm_head and the router of experts are kept. If all are small, as beside experts on the
    processor, all are kept.
    """
    tracks: dict[tuple[str, str], list[RooflineRow]] = {}
    for row in rows:
        if row.group != "roof":
            tracks.setdefault((row.group, row.op), []).append(row)
    large = {key for key, track in tracks.items() if _largest_share(track) >= SMALL}
    return [
        track
        for (group, op), track in tracks.items()
        if not large or (group, op) in large or op in ALWAYS
    ]


def _largest_share(rows: Sequence[RooflineRow]) -> float:
    return max(row.share_of_step or 0.0 for row in rows)


def _draw_roof(axes: Axes, row: RooflineRow, left: float, right: float) -> Line2D:
    x = np.array([left, row.intensity_flop_per_byte, right])
    y = [_allowed(row, intensity) for intensity in x]
    (line,) = axes.plot(x, y, label=row.op, color="#666666", linewidth=1.4, zorder=1)
    return line


def _draw_track(axes: Axes, track: Sequence[RooflineRow], number: int, among: int) -> Line2D:
    """Draw the track of this number, ``among`` those of its colour; return its line."""
    group, op = track[0].group, track[0].op
    colour = GROUPS[group][1]
    marker = TRACK_MARKERS[number % len(TRACK_MARKERS)]
    x = np.array([row.intensity_flop_per_byte for row in track])
    y = np.array([row.attained_tflop_per_s for row in track])
    (line,) = axes.plot(
        x,
        y,
        color=colour,
        linestyle=TRACK_LINES[among % len(TRACK_LINES)],
        linewidth=1.2,
        marker=marker,
        markersize=4.5,
        label=op,
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


def _name_lines(axes: Axes, ends: Sequence[tuple[Line2D, str, tuple[float, float]]]) -> None:
    """Write each line's name right of the axes, where no marker is, joined to its last point."""
    to_axes = axes.transData + axes.transAxes.inverted()
    places = to_axes.transform([end for _, _, end in ends])
    order = np.argsort(-places[:, 1], kind="stable")
    heights = spread_out(places[order, 1].tolist(), apart=APART, high=1.0)
    beside: dict[str, Any] = {"transform": axes.transAxes, "clip_on": False}
    for height, position in zip(heights, order, strict=True):
        (line, name, _), (x, y) = ends[position], places[position]
        colour = line.get_color()
        axes.plot([x, 1.0], [y, height], color="#AAAAAA", linewidth=0.5, zorder=1, **beside)
        axes.plot(
            [1.005, SAMPLE, 2 * SAMPLE - 1.005],
            3 * [height],
            color=colour,
            linestyle=line.get_linestyle(),
            linewidth=1.2,
            marker=line.get_marker(),
            markevery=[1],
            markersize=4.5,
            **beside,
        )
        axes.text(NAME, height, name, size=7.5, va="center", color=colour, **beside)
