"""Attention of a verify pass by the query rows over each cache: time, use, and tile steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofline.advice.deployment import Deployment
from roofline.base.errors import InputError
from roofline.base.numbers import LONGEST_DRAFT
from roofline.kernels.forward import decode
from roofline.kernels.ops import Kind, Op
from roofline.render.charts.figure import PALETTE, label_ticks
from roofline.specs.formats import rate_name
from roofline.specs.laws import AttentionLaw
from roofline.specs.placement import Grid, VerifyAttention
from roofline.timing.machine import OpTime, time_ops

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

__all__ = ["AttentionRow", "attention_rows", "draw_attention_time", "draw_attention_use"]

LEGEND_LINE = 0.062  # height of a line of the legend, as a share of the taller axes
ROWS_SHOWN = 256  # query rows on the axis: two to four tiles of known kernels
MODES = {
    VerifyAttention.KV_ONCE: ("cache read once", "-"),
    VerifyAttention.TILE: ("whole tiles", "dashed"),
    VerifyAttention.KV_PER_QUERY: ("cache read for every row", ":"),
    VerifyAttention.HEAD_TILE: ("a tile for every query head", "dashdot"),
    VerifyAttention.KV_PER_TILE: ("cache read for every tile", "dashdot"),
}
TILED = (VerifyAttention.TILE, VerifyAttention.HEAD_TILE, VerifyAttention.KV_PER_TILE)
ALWAYS_DRAWN = (VerifyAttention.KV_ONCE, VerifyAttention.TILE, VerifyAttention.KV_PER_QUERY)


class AttentionRow(NamedTuple):
    """One attention kernel of the model at one draft length and way of reading the cache."""

    op: str
    mode: str
    in_use: bool  # the way that the answers for this machine assume
    query_heads_per_kv_head: int
    draft_length: int
    query_rows: int  # G (1 + D) over each cache
    tile_rows: int | None  # query rows that one thread block takes
    time_us: float  # one layer
    bandwidth_used: float  # share of the datasheet's, the cache counted once
    peak_used: float  # share of the datasheet's, without padding


def attention_rows(deployment: Deployment, *, batch: int, context: int) -> list[AttentionRow]:
    """Return every attention kernel of the target, in each mode, at one batch and context."""
    at = (batch, context)
    useful = _kernels(deployment, VerifyAttention.KV_ONCE, at)
    if not useful:
        raise InputError(f"{deployment.target.model.id}: has no attention over a cache to draw")
    rows = []
    in_use = deployment.target.placement.verify_attention
    for mode in dict.fromkeys((*ALWAYS_DRAWN, in_use)):
        for time, without_padding in zip(_kernels(deployment, mode, at), useful, strict=True):
            rows += _rows_of(deployment, mode, time, without_padding.op, at)
    return rows


def _grid(group: int, at: tuple[int, int]) -> Grid:
    deepest = int(np.clip(ROWS_SHOWN // group - 1, 8, LONGEST_DRAFT))
    return Grid.of(at[:1], at[1:], range(deepest + 1))


def _kernels(deployment: Deployment, mode: VerifyAttention, at: tuple[int, int]) -> list[OpTime]:
    """Return the attention kernels of a verify pass, each once, priced in ``mode``."""
    target = deployment.target
    placement = replace(target.placement, verify_attention=mode)

    def kernels(grid: Grid) -> dict[str, Op]:
        ops = decode(
            target.model,
            target.precision,
            placement,
            batch=grid.batch,
            context=grid.context,
            rows=grid.rows,
        )
        return {op.name: op for op in ops if op.kind in (Kind.ATTENTION, Kind.MLA)}

    first = kernels(_grid(ROWS_SHOWN, at))
    ops = [kernels(_grid(_group(op), at))[name] for name, op in first.items()]
    return time_ops(ops, deployment.machine)


def _group(op: Op) -> int:
    """Return G, the rows over each cache at D = 0."""
    return int(np.ravel(op.rows)[0])


def _rows_of(
    deployment: Deployment,
    mode: VerifyAttention,
    time: OpTime,
    useful: Op,
    at: tuple[int, int],
) -> list[AttentionRow]:
    group, law = _group(useful), time.chosen.law
    lengths = range(len(np.ravel(useful.rows)))
    each, flops, moved = (
        np.broadcast_to(np.asarray(value, dtype=float), (1, 1, len(lengths))).ravel()
        for value in (time.each, useful.flops, useful.bytes)
    )
    tile = law.row_tile if isinstance(law, AttentionLaw) else None
    if mode in TILED:
        heads = group if mode is VerifyAttention.HEAD_TILE else 1  # each has tiles of its own
        tile = heads * deployment.target.placement.tile_rows
    peak = deployment.gpu.peak(rate_name(useful.compute))
    return [
        AttentionRow(
            op=useful.name,
            mode=mode.value,
            in_use=mode is deployment.target.placement.verify_attention,
            query_heads_per_kv_head=group,
            draft_length=d,
            query_rows=group * (1 + d),
            tile_rows=tile,
            time_us=1e6 * float(each[d]),
            bandwidth_used=float(moved[d] / each[d] / deployment.gpu.bandwidth),
            peak_used=float(flops[d] / each[d] / peak),
        )
        for d in lengths
        if deployment.memory.has_room(*at, d)
    ]


def draw_attention_time(axes: Axes, rows: Sequence[AttentionRow]) -> dict[tuple[str, str], Line2D]:
    """Draw the time of one layer; return the lines by (op, mode)."""
    lines = {}
    ops = list(dict.fromkeys(row.op for row in rows))
    for colour, op in zip(PALETTE, ops, strict=False):
        name = f"{op}: " if len(ops) > 1 else ""
        for mode, (words, style) in MODES.items():
            line_rows = [row for row in rows if (row.op, row.mode) == (op, mode)]
            if not line_rows:
                continue
            chosen = line_rows[0].in_use
            assumed = " (assumed here)" if chosen else ""
            x, y = _columns(line_rows, "time_us")
            (lines[op, mode.value],) = axes.plot(
                x,
                y,
                color=colour,
                linestyle=style,
                linewidth=2.2 if chosen else 1.2,
                label=f"{name}{words}{_tile_size(mode, line_rows)}{assumed}",
                marker=".",
                markersize=4 if chosen else 2,
                alpha=1.0 if chosen else 0.75,
            )
    _tile_edges(axes, rows, name=True)
    axes.set_yscale("log")
    values = np.array([row.time_us for row in rows])
    label_ticks(axes.yaxis, low=float(values.min()), high=float(values.max()))
    axes.set_ylabel("time of one layer (µs)")
    low, high = axes.get_ylim()
    free = 0.04 + LEGEND_LINE * _legend(axes)
    # room for the legend above the curves, and for the name of the tile below them
    axes.set_ylim(low * (low / high) ** 0.08, high * (high / low) ** (free / (1 - free)))
    return lines


def _tile_size(mode: VerifyAttention, rows: Sequence[AttentionRow]) -> str:
    """Say how large whole tiles are. The kernel's own blocks may be smaller."""
    return f" of {rows[0].tile_rows} rows" if mode in TILED else ""


def draw_attention_use(axes: Axes, rows: Sequence[AttentionRow]) -> dict[tuple[str, str], Line2D]:
    """Draw the shares of the datasheet's bandwidth and peak; return lines by (op, column)."""
    lines = {}
    in_use = [row for row in rows if row.in_use]
    ops = list(dict.fromkeys(row.op for row in in_use))
    shares = (("bandwidth_used", "of the bandwidth", "-"), ("peak_used", "of the peak", "dashed"))
    for colour, op in zip(PALETTE, ops, strict=False):
        for column, words, style in shares:
            x, share = _columns([row for row in in_use if row.op == op], column)
            name = f"{op}: " if len(ops) > 1 else ""
            (lines[op, column],) = axes.plot(
                x, 100 * share, color=colour, linestyle=style, label=f"{name}{words}"
            )
    _tile_edges(axes, rows, name=False)
    axes.set_ylabel("used of the datasheet (%)")
    axes.set_xlabel("query rows over each cache: G (1 + D)")
    axes.set_ylim(0, 102 / (0.95 - 1.3 * LEGEND_LINE * _legend(axes)))
    axes.set_yticks(range(0, 101, 20))
    return lines


def _legend(axes: Axes) -> int:
    """Draw the legend at the top, up to three entries in a column; return its lines."""
    entries = len(axes.get_legend_handles_labels()[0])
    columns = 1 if entries <= 3 else 2
    axes.legend(loc="upper left", fontsize=7, ncols=columns)
    return -(-entries // columns)


def _columns(
    rows: Sequence[AttentionRow], column: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    x = np.array([row.query_rows for row in rows], dtype=float)
    return x, np.array([getattr(row, column) for row in rows])


def _tile_edges(axes: Axes, rows: Sequence[AttentionRow], *, name: bool) -> None:
    """Mark where one more row needs another thread block of the kernel in use."""
    last = max(row.query_rows for row in rows)
    tiles = {row.tile_rows for row in rows if row.in_use and row.tile_rows}
    tiles = {tile for tile in tiles if tile <= last}  # a larger one has no edge on the axis
    for tile in sorted(tiles):
        for edge in range(tile, last + 1, tile):
            axes.axvline(edge, color="#999999", linewidth=0.8, linestyle=(0, (2, 3)), zorder=1)
        if name:
            axes.annotate(
                f"kernel block: {tile} rows",
                (tile, 0.0),
                xycoords=("data", "axes fraction"),
                xytext=(3, 3),
                textcoords="offset points",
                va="bottom",
                size=7,
                color="#666666",
            )
    if len(tiles) == 1:
        (tile,) = tiles
        axes.set_xticks(range(0, last + 1, tile if last <= 10 * tile else 2 * tile))
