"""A machine measured into a file, and a file of measurements fitted into a profile."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roofline.base.errors import InputError, Option, StoppedError
from roofline.base.files import write_atomically
from roofline.base.progress import progress
from roofline.base.schema import dump_yaml
from roofline.calibrate.fit.machine import MachineFit, fit_rows
from roofline.calibrate.llama_bench import fit_passes, is_llama_bench, read_llama_bench
from roofline.calibrate.measure.campaign import CampaignResult, run_campaign
from roofline.calibrate.measure.cases import plan_cases
from roofline.calibrate.measure.device import WorkerDevice
from roofline.calibrate.measure.rows import Row, RowFile, read_rows
from roofline.calibrate.profile import datasheet_for, profile_data
from roofline.importers.references import open_model
from roofline.specs.gpu import HardwareProfile, load_hardware

__all__ = ["FittedFile", "MeasuredFile", "fit", "measure"]

PATIENCE = 60.0  # seconds after which a kernel is called hung


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredFile:
    """What was measured into a file, in this run and before."""

    path: Path
    facts: Mapping[str, Any]
    cases: int
    cases_seen: int
    result: CampaignResult


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedFile:
    """The laws of a file of measurements; ``datasheet`` None puts them on measured figures."""

    machine: MachineFit
    facts: Mapping[str, Any]
    datasheet: HardwareProfile | None
    cite: str


def measure(
    *,
    device: str,
    library: str,
    model: str,
    budget: float,
    threads: int,
    path: Path,
    resume: bool,
    on_failure: Callable[[Row], None],
) -> MeasuredFile:
    """Measure a model's kernels on this machine; ``on_failure`` gets each row that failed."""
    network, _ = open_model(model)
    with WorkerDevice(
        device=device, library=library, threads=threads, patience=PATIENCE
    ) as machine:
        today = dt.date.today().isoformat()
        facts = machine.facts() | {"model": network.id, "date": today, "version": 1}
        try:
            cases = plan_cases(network, machine.menu())
        except ValueError as error:
            raise InputError(str(error), field="model", value=model) from None
        file = RowFile(path, facts, resume=resume)
        try:
            with progress(budget, "s", counted="kernels") as advance:
                result = run_campaign(
                    machine, cases, file, budget=budget, on_failure=on_failure, advance=advance
                )
        except KeyboardInterrupt:
            kept = f"stopped; {len(file.rows)} rows are kept in {path}"
            raise StoppedError(f"{kept}: add {Option('resume')} to go on") from None
    seen = len({row.key for row in file.rows})
    return MeasuredFile(path=path, facts=facts, cases=len(cases), cases_seen=seen, result=result)


def fit(path: Path, output: Path, *, gpu: str | None) -> FittedFile:
    """Fit a file of measurements, or of llama-bench's passes, and write the profile."""
    if is_llama_bench(path):
        return _fit_llama_bench(path, output, gpu=gpu)
    facts, rows = read_rows(path)
    datasheet = load_hardware(gpu) if gpu else datasheet_for(facts)
    _check_kind(facts, datasheet)
    cite = (
        f"roofline calibrate measure on {facts.get('device')}, {facts.get('date')}, "
        f"{facts.get('library')}, {facts.get('threads')} threads ({path.name})"
    )
    machine = fit_rows(rows, facts, datasheet, cite=cite)
    if not machine.laws:
        raise InputError(
            f"{path}: no kernel has rows enough; measure with a larger {Option('budget')}"
        )
    write_atomically(output, dump_yaml(profile_data(machine, facts, datasheet, cite=cite)))
    return FittedFile(machine=machine, facts=facts, datasheet=datasheet, cite=cite)


def _fit_llama_bench(path: Path, output: Path, *, gpu: str | None) -> FittedFile:
    if gpu is not None:
        raise InputError(
            "does not go with llama-bench's passes, which stand on measured figures; leave it out",
            field="gpu",
            value=gpu,
        )
    facts, passes = read_llama_bench(path)
    cite = (
        f"llama-bench on {facts['device']}, {facts['date']}, {facts['library']}, "
        f"{facts['threads']} threads ({path.name})"
    )
    machine = fit_passes(passes, facts, cite=cite)
    write_atomically(output, dump_yaml(profile_data(machine, facts, None, cite=cite)))
    return FittedFile(machine=machine, facts=facts, datasheet=None, cite=cite)


def _check_kind(facts: Mapping[str, Any], datasheet: HardwareProfile | None) -> None:
    """Refuse rows of a processor on an accelerator's datasheet, and the reverse."""
    if datasheet is None:
        return
    measured = facts.get("kind", "cpu")
    if (measured == "cpu") != (datasheet.form_factor == "host"):
        raise InputError(
            f"is no datasheet of what was measured ({facts.get('device')}, a {measured}); leave it "
            "out or name that device's own",
            field="gpu",
            value=datasheet.id,
        )
