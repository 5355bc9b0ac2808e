"""The answers of ``calibrate`` as lines: counts of measurements, residuals of laws, notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from roofline.base.errors import Option
from roofline.base.units import format_seconds
from roofline.calibrate.fit.attention import ReadMode
from roofline.calibrate.fit.core import score, scored_rows
from roofline.calibrate.fit.fitted_law import FittedLaw
from roofline.calibrate.fit.machine import Cliff, Steadiness
from roofline.calibrate.measure.rows import Row
from roofline.calibrate.session import FittedFile, MeasuredFile
from roofline.render.formats import text_table, wrap

__all__ = ["failed_line", "fitted_lines", "law_name", "measured_lines", "residual_table"]

FAR = 0.25  # a row this far off its law is named
HEADERS = (
    "law",
    "kernel",
    "format",
    "rows",
    "held\nout",
    "median\n%",
    "p90\n%",
    "bias\n%",
    "worst\n%",
)


def failed_line(row: Row) -> str:
    """Return the line of a case that could not be measured."""
    return f"{row.op} {row.kernel} {row.shape}: {row.status}: {row.note}"


def measured_lines(measured: MeasuredFile) -> Iterator[str]:
    """Yield the lines that sum up a run of measurements."""
    result, facts = measured.result, measured.facts
    yield wrap(
        f"{result.measured} rows of {facts['device']} ({facts['library']}) "
        f"written to {measured.path}"
    )
    if result.resumed:
        yield f"{result.resumed} rows were there already"
    if not result.complete:
        yield wrap(
            f"the budget ended the first round after {measured.cases_seen} of {measured.cases} "
            f"cases; continue with {Option('resume')}"
        )
    if result.too_long:
        were = "case was" if result.too_long == 1 else "cases were"
        yield f"{result.too_long} {were} left out: too long for the budget"
    if result.skipped:
        counts = Counter(result.skipped.values())
        yield "skipped: " + ", ".join(f"{count} {status}" for status, count in counts.items())


def fitted_lines(fitted: FittedFile, output: Path) -> Iterator[str]:
    """Yield the residuals of every law, what the machine reached, and what was left out."""
    machine = fitted.machine
    figures, datasheet = machine.figures, fitted.datasheet
    yield residual_table(machine.laws).rstrip("\n")
    yield ""
    yield wrap(
        f"bandwidth reached {figures.bandwidth / 1e9:.4g} GB/s; peaks reached "
        + ", ".join(f"{rate} {peak / 1e9:.4g} GFLOP/s" for rate, peak in figures.peaks.items())
    )
    for op, seconds in figures.launch.items():
        yield f"an empty kernel takes {format_seconds(seconds)} ({op})"
    for reason, count in machine.believable.left_out.items():
        yield f"left out: {count} rows, {reason}"
    yield wrap(_steadiness_line(machine.steadiness))
    yield from (wrap(_cliff_line(cliff)) for cliff in machine.cliffs)
    yield from (wrap(line) for line in _read_mode_lines(machine.read_modes))
    basis = f"the datasheet of {datasheet.id}" if datasheet else "measured figures (no datasheet)"
    yield wrap(f"{len(machine.laws)} laws on {basis} written to {output}")


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


def _residual_cells(law: FittedLaw) -> list[str]:
    """Return a law as text cells; errors on held-out rows where there are any."""
    block, name = law.block, law_name(law)
    which = scored_rows(law.held)
    errors = score(law.predicted[which], law.measured[which])
    kernel = str(block.get("kernel", ""))
    many_kernels = len({row.kernel for row in law.rows}) > 1
    return [
        name,
        "" if kernel in (name, "linear") or many_kernels else kernel,
        str(block.get("dtype", "-")),
        str(len(law.rows)),
        str(int(law.held.sum())),
        f"{100 * errors.median:.1f}",
        f"{100 * errors.p90:.1f}",
        f"{100 * errors.bias:+.1f}",
        f"{100 * _errors(law).max():.0f}",
    ]


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


def residual_table(laws: Sequence[FittedLaw]) -> str:
    """Return the residuals as columns, and the worst rows under them."""
    cells = [_residual_cells(law) for law in laws]
    if not any(line[1] for line in cells):
        cells = [[line[0], *line[2:]] for line in cells]
    headers = HEADERS if len(cells[0]) == len(HEADERS) else (HEADERS[0], *HEADERS[2:])
    table = text_table(headers, cells, names_first=True)
    return "\n".join([table, *(wrap(line) for line in worst_rows(laws))]) + "\n"
