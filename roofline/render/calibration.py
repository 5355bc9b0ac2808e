"""The answers of ``calibrate``: counts of measurements, residuals of laws, fitted numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.advice.columns import Column
from roofline.base.errors import Option
from roofline.base.units import format_count, format_seconds
from roofline.calibrate.fit.attention import ReadMode
from roofline.calibrate.fit.core import score, scored_rows
from roofline.calibrate.fit.fitted_law import FittedLaw
from roofline.calibrate.fit.machine import Cliff, Steadiness
from roofline.calibrate.measure.rows import Row
from roofline.calibrate.session import FittedFile, MeasuredFile
from roofline.calibrate.steps import FittedSteps
from roofline.render.blocks import Answer, Block, Paragraph, Table, table

__all__ = [
    "failed_line",
    "fit_answer",
    "law_name",
    "measured_answer",
    "measured_lines",
    "steps_answer",
]

FAR = 0.25  # a row this far off its law is named
_COLUMNS = tuple(
    Column(key=key, heading=heading, form=form)
    for key, heading, form in (
        ("law", "law", "{value}"),
        ("kernel", "kernel", "{value}"),
        ("format", "format", "{value}"),
        ("rows", "rows", "{value}"),
        ("held_out", "held\nout", "{value}"),
        ("median_percent", "median\n%", "{value:.1f}"),
        ("p90_percent", "p90\n%", "{value:.1f}"),
        ("bias_percent", "bias\n%", "{value:+.1f}"),
        ("worst_percent", "worst\n%", "{value:.0f}"),
    )
)


def failed_line(row: Row) -> str:
    """Return the line of a case that could not be measured."""
    return f"{row.op} {row.kernel} {row.shape}: {row.status}: {row.note}"


def measured_lines(measured: MeasuredFile) -> Iterator[str]:
    """Yield the lines that sum up a run of measurements."""
    result, facts = measured.result, measured.facts
    yield (
        f"{result.measured} rows of {facts['device']} ({facts['library']}) "
        f"written to {measured.path}"
    )
    if result.resumed:
        yield f"{result.resumed} rows were there already"
    if not result.complete:
        yield (
            f"the budget ended the first round after {measured.cases_seen} of {measured.cases} "
            f"cases; continue with {Option('resume')}"
        )
    if result.too_long:
        were = "case was" if result.too_long == 1 else "cases were"
        yield f"{result.too_long} {were} left out: too long for the budget"
    if result.skipped:
        counts = Counter(result.skipped.values())
        yield "skipped: " + ", ".join(f"{count} {status}" for status, count in counts.items())


def measured_answer(measured: MeasuredFile) -> Answer:
    """Return what a run of measurements made, in every form."""
    lines = list(measured_lines(measured))
    return _lines_answer(lines)


def steps_answer(fitted: FittedSteps) -> Answer:
    """Return an engine's fitted numbers, and how far steps are off before and after."""
    worst = [100 * float(np.abs(error).max()) for error in (fitted.before, fitted.after)]
    lines = [f"{name}: {1e3 * value:.4g} ms" for name, value in fitted.numbers.items()]
    lines.append(
        f"{format_count(len(fitted.after), 'step')}: worst error {worst[0]:.1f} % before, "
        f"{worst[1]:.1f} % after"
    )
    return _lines_answer(lines)


def _lines_answer(lines: Sequence[str]) -> Answer:
    return Answer(
        blocks=lambda: [Paragraph(line, close=True) for line in lines],
        data=lambda: {"lines": list(lines)},
        rows=lambda: [{"line": line} for line in lines],
    )


def fit_answer(fitted: FittedFile, output: Path) -> Answer:
    """Return the residuals of every law, what the machine reached, and what was left out."""
    laws = fitted.machine.laws
    found = [_residual(law) for law in laws]
    return Answer(
        blocks=lambda: [
            _residual_table(found),
            *(Paragraph(line, close=True) for line in worst_rows(laws)),
            *_machine_blocks(fitted, output),
        ],
        data=lambda: {"laws": found},
        rows=lambda: found,
    )


def _residual_table(found: Sequence[dict[str, Any]]) -> Table:
    """Return the residuals of laws, without the column of kernels where none is named."""
    named = any(row["kernel"] for row in found)
    columns = [column for column in _COLUMNS if named or column.key != "kernel"]
    return table(columns, found, align="l")


def _machine_blocks(fitted: FittedFile, output: Path) -> Iterator[Block]:
    """Yield what the machine reached, and what to know about its measurements."""
    machine, datasheet = fitted.machine, fitted.datasheet
    figures = machine.figures
    peaks = (f"{rate} {peak / 1e9:.4g} GFLOP/s" for rate, peak in figures.peaks.items())
    yield Paragraph(
        f"bandwidth reached {figures.bandwidth / 1e9:.4g} GB/s; peaks reached {', '.join(peaks)}"
    )
    lines = [
        f"an empty kernel takes {format_seconds(seconds)} ({op})"
        for op, seconds in figures.launch.items()
    ]
    lines += [
        f"left out: {format_count(count, 'row')}, {reason}"
        for reason, count in machine.believable.left_out.items()
    ]
    lines += [
        _steadiness_line(machine.steadiness),
        *map(_cliff_line, machine.cliffs),
        *_read_mode_lines(machine.read_modes),
    ]
    basis = f"the datasheet of {datasheet.id}" if datasheet else "measured figures (no datasheet)"
    lines.append(f"{format_count(len(machine.laws), 'law')} on {basis} written to {output}")
    yield from (Paragraph(line, close=True) for line in lines)


def _steadiness_line(steadiness: Steadiness) -> str:
    rounds = "no case was measured twice"
    if steadiness.repeated:
        rounds = (
            f"rounds differ by {steadiness.disagreement:.1%} at the median "
            f"({steadiness.repeated} cases)"
        )
    machine = "the machine was noisy" if steadiness.noisy else "the machine was steady"
    return (
        f"{machine}: {steadiness.lost} of {steadiness.rows} rows were noisy or drifted, {rounds}, "
        f"kernels waited {steadiness.waited:.0%} of their time"
    )


def _cliff_line(cliff: Cliff) -> str:
    shapes = "1 shape" if cliff.shapes == 1 else f"{cliff.shapes} shapes"
    return (
        f"cliff: {cliff.op} {cliff.kernel} {cliff.dtype} from {cliff.before:.0f} to "
        f"{cliff.after:.0f} rows: {cliff.jump:.2f} times as long ({shapes})"
    )


def _read_mode_lines(read_modes: Mapping[tuple[str, str], ReadMode]) -> Iterator[str]:
    for (kernel, dtype), read_mode in read_modes.items():
        errors = ", ".join(f"{mode} {error:.0%}" for mode, error in read_mode.errors.items())
        tile = f" of {read_mode.tile_rows} rows" if read_mode.mode == "tile" else ""
        sure = "" if read_mode.told_apart else " (not told apart: the default)"
        yield f"attention {kernel} {dtype}: {read_mode.mode}{tile}{sure}; errors {errors}"


def law_name(law: FittedLaw) -> str:
    """Return what a law is for: one operation, a kind of kernels, or its own kind."""
    block = law.block
    return str(block.get("op") or block.get("covers") or block["kind"])


def _residual(law: FittedLaw) -> dict[str, Any]:
    """Return a law's residuals; errors on held-out rows where there are any."""
    block, name = law.block, law_name(law)
    which = scored_rows(law.held)
    errors = score(law.predicted[which], law.measured[which])
    kernel = str(block.get("kernel", ""))
    many_kernels = len({row.kernel for row in law.rows}) > 1
    return {
        "law": name,
        "kernel": "" if kernel in (name, "linear") or many_kernels else kernel,
        "format": str(block.get("dtype", "-")),
        "rows": len(law.rows),
        "held_out": int(law.held.sum()),
        "median_percent": 100 * errors.median,
        "p90_percent": 100 * errors.p90,
        "bias_percent": 100 * errors.bias,
        "worst_percent": 100 * float(_errors(law).max()),
    }


def _errors(law: FittedLaw) -> NDArray[np.float64]:
    return np.asarray(np.abs(law.predicted / law.measured - 1))


def worst_rows(laws: Sequence[FittedLaw]) -> list[str]:
    """Return a line for the worst row of each law, if it is over 25 % off.

    Sizes are left out where all rows of the law share them.
    """
    lines = []
    for law in laws:
        off = _errors(law)
        worst = law.rows[int(off.argmax())]
        if off.max() <= FAR:
            continue
        shared = set.intersection(*({*row.shape.split()} for row in law.rows))
        sizes = " ".join(size for size in worst.shape.split() if size not in shared)
        op = "" if worst.op == law_name(law) else f"{worst.op} "
        lines.append(
            f"{law_name(law)}: {off.max():.0%} off at {op}{sizes} "
            f"({format_seconds(worst.seconds)} measured)"
        )
    return lines
