"""The two commands: measure a machine into a file, and fit the file into a profile."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from roofline.base.errors import InputError
from roofline.base.files import write_atomically
from roofline.base.units import format_seconds
from roofline.base.yaml import dump_yaml
from roofline.calibrate.fit.fitted import fit_rows
from roofline.calibrate.measure.campaign import run
from roofline.calibrate.measure.cases import plan
from roofline.calibrate.measure.rows import RowFile, read_rows
from roofline.calibrate.measure.worker import WorkerDevice
from roofline.calibrate.profile import datasheet_for, profile_data
from roofline.calibrate.residuals import parity_plot, residual_table
from roofline.importers.open import open_model
from roofline.render.columns import wrap
from roofline.specs.gpu import HardwareProfile, load_hardware

__all__ = ["fit", "measure"]

PATIENCE = 60.0  # seconds after which a kernel is called hung


def measure(
    *, device: str, library: str, model: str, budget: float, threads: int, path: Path,
    resume: bool, tell: Callable[[str], None],
) -> Iterator[str]:  # fmt: skip
    """Measure a model's kernels on this machine; yield the lines that sum it up."""
    network, _ = open_model(model)
    with WorkerDevice(
        device=device, library=library, threads=threads, patience=PATIENCE
    ) as machine:
        today = dt.date.today().isoformat()
        facts = machine.facts() | {"model": network.id, "date": today, "version": 1}
        try:
            cases = plan(network, machine.menu())
        except ValueError as error:
            raise InputError(f"--model {model}: {error}") from None
        file = RowFile(path, facts, resume=resume)
        ended = run(machine, cases, file, budget=budget, tell=tell)
    yield wrap(f"{ended.measured} rows of {facts['device']} ({facts['library']}) written to {path}")
    if ended.resumed:
        yield f"{ended.resumed} rows were there already"
    if not ended.complete:
        seen = len({row.key for row in file.rows})
        yield wrap(
            f"the budget ended the first round after {seen} of {len(cases)} cases; "
            "continue with --resume"
        )
    if ended.too_long:
        were = "case was" if ended.too_long == 1 else "cases were"
        yield f"{ended.too_long} {were} left out: too long for the budget"
    if ended.skipped:
        counts: dict[str, int] = {}
        for status in ended.skipped.values():
            counts[status] = counts.get(status, 0) + 1
        yield "skipped: " + ", ".join(f"{count} {name}" for name, count in counts.items())


def fit(path: Path, output: Path, *, gpu: str | None, plot: Path | None) -> Iterator[str]:
    """Fit a file of measurements and write the profile; yield residuals and notes."""
    facts, rows = read_rows(path)
    datasheet = load_hardware(gpu) if gpu else datasheet_for(facts)
    _check_kind(facts, datasheet)
    cite = (
        f"roofline calibrate measure on {facts.get('device')}, {facts.get('date')}, "
        f"{facts.get('library')}, {facts.get('threads')} threads ({path.name})"
    )
    fitted = fit_rows(rows, facts, datasheet, cite=cite)
    if not fitted.laws:
        raise InputError(f"{path}: no kernel has rows enough; measure with a larger --budget")
    data: dict[str, Any] = profile_data(fitted, facts, datasheet, cite=cite)
    write_atomically(output, dump_yaml(data))
    if plot is not None:
        try:
            parity_plot(fitted.laws, plot, device=str(facts.get("device")), source=cite)
        except (OSError, ValueError) as error:
            raise InputError(f"--plot {plot}: cannot be written ({error})") from None
    figures = fitted.figures
    yield residual_table(fitted.laws).rstrip("\n")
    yield ""
    yield wrap(
        f"bandwidth reached {figures.bandwidth / 1e9:.4g} GB/s; peaks reached "
        + ", ".join(f"{rate} {peak / 1e9:.4g} GFLOP/s" for rate, peak in figures.peaks.items())
    )
    for op, seconds in figures.launch.items():
        yield f"an empty kernel takes {format_seconds(seconds)} ({op})"
    for reason, count in fitted.sifted.left_out.items():
        yield f"left out: {count} rows, {reason}"
    yield from (wrap(note) for note in fitted.notes)
    basis = f"the datasheet of {datasheet.id}" if datasheet else "measured figures (no datasheet)"
    yield wrap(f"{len(fitted.laws)} laws on {basis} written to {output}")


def _check_kind(facts: Mapping[str, Any], datasheet: HardwareProfile | None) -> None:
    """Refuse rows of a processor on an accelerator's datasheet, and the reverse."""
    if datasheet is None:
        return
    measured = facts.get("kind", "cpu")
    if (measured == "cpu") != (datasheet.form_factor == "host"):
        raise InputError(
            f"--gpu {datasheet.id}: is no datasheet of what was measured "
            f"({facts.get('device')}, a {measured}); leave it out or name that device's own"
        )
