"""``roofline hardware``: the bundled accelerators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from roofline.cli import completion
from roofline.cli.listing import ALL, MATCH, Entry, emit_list
from roofline.cli.printing import (
    all_faults,
    cut,
    emit,
    emit_rows,
    help_if_bare,
)
from roofline.cli.question import LISTED

if TYPE_CHECKING:
    from roofline.specs.gpu import HardwareProfile

WIDTH = 13  # characters of a value in the table of differences
SIDES = ("first", "second")

app = typer.Typer(
    help="List, show and check accelerator profiles.",
    callback=help_if_bare,
    invoke_without_command=True,
)

_PROFILE = typer.Argument(
    metavar="GPU", help="A bundled id, or a path to a profile.", autocompletion=completion.gpus
)
_OTHER = typer.Argument(
    metavar="GPU", help="The one to compare with it.", autocompletion=completion.gpus
)


@app.command("list")
def list_(
    match: Annotated[str | None, MATCH] = None,
    everything: Annotated[bool, ALL] = False,
    form: Annotated[str, LISTED] = "table",
) -> None:
    """List the bundled accelerators.

    Example: roofline hardware list --match h100
    """
    from roofline.base.resources import bundled_names
    from roofline.specs.gpu import GPU_SHELF, load_hardware

    profiles = [load_hardware(name) for name in bundled_names(GPU_SHELF)]
    entries = [
        Entry(
            group=profile.generation or profile.vendor,
            row=_summary(profile),
            text=f"{profile.id} {profile.name} {profile.vendor} {profile.generation}",
        )
        for profile in profiles
    ]
    emit_list(entries, form, match=match, everything=everything, noun="accelerators")


@app.command()
def show(
    gpu: Annotated[str, _PROFILE],
    form: Annotated[str, LISTED] = "table",
) -> None:
    """Show every figure of one accelerator, with its source.

    Example: roofline hardware show h100-sxm
    """
    from roofline.specs.gpu import load_hardware

    details = _details(load_hardware(gpu))
    emit(details if form == "json" else _with_units(details), form)


@app.command()
def check(
    gpu: Annotated[str, _PROFILE],
    form: Annotated[str, LISTED] = "table",
) -> None:
    """Check that a profile can be used.

    Example: roofline hardware check my-gpu.yaml
    """
    from roofline.specs.gpu import load_hardware
    from roofline.specs.priors import unknown_generation

    with all_faults():
        profile = load_hardware(gpu)
    unknown = [] if profile.calibration else unknown_generation(profile.id, profile.generation)
    emit({"id": profile.id, "ok": True, "figures": len(profile.figures())}, form, unknown)


@app.command()
def diff(
    first: Annotated[str, _PROFILE],
    second: Annotated[str, _OTHER],
    form: Annotated[str, LISTED] = "table",
) -> None:
    """Show in which figures and laws two profiles differ.

    The table cuts long values.

    Example: roofline hardware diff h100-sxm h200-sxm
    """
    from roofline.calibrate.diff import profile_differences
    from roofline.specs.gpu import load_hardware

    rows = profile_differences(load_hardware(first), load_hardware(second))
    if not rows and form == "table":
        typer.echo("no difference")
        return
    if form == "table":
        rows = [
            row
            | {name: value and cut(value, WIDTH) for name, value in row.items() if name in SIDES}
            for row in rows
        ]
    emit_rows(rows, form)


def _summary(profile: HardwareProfile) -> dict[str, Any]:
    peaks = profile.compute.peaks
    return {
        "id": profile.id,
        "memory_GB": round(profile.memory_bytes / 1e9, 1),
        "bandwidth_GB/s": round(profile.bandwidth / 1e9),
        **{
            f"{rate}_TFLOP/s": round(peaks[rate].value / 1e12, 1) if rate in peaks else None
            for rate in ("bf16", "fp8", "fp4")
        },
        "domain": profile.interconnect.domain_size,
    }


def _with_units(details: dict[str, Any]) -> dict[str, Any]:
    """Return the figures for people: one text each, with the unit of the field."""
    figures = {
        name: f"{_quantity(name, figure['value'])}, {figure['confidence']}, "
        f"source {figure['source']}"
        for name, figure in details["figures"].items()
    }
    about = {key: value for key, value in details.items() if key not in ("units", "figures")}
    after = {key: about.pop(key) for key in ("sources", "disagreements")}
    return about | figures | after


def _quantity(name: str, value: float) -> str:
    from roofline.base.units import exact_quantity
    from roofline.specs.gpu import figure_unit

    unit = figure_unit(name)
    return f"{value:,g}" if unit is None else exact_quantity(value, unit)


def _details(profile: HardwareProfile) -> dict[str, Any]:
    from roofline.specs.gpu import figure_unit

    figures = {
        where: {
            "value": figure.value,
            "unit": figure_unit(where),
            "confidence": figure.confidence or profile.sources[figure.source].confidence,
            "source": figure.source,
        }
        for where, figure in profile.figures().items()
    }
    used = "memory.visible" if profile.memory.visible else "memory.capacity"
    return {
        "id": profile.id,
        "name": profile.name,
        "architecture": profile.architecture,
        "status": profile.status,
        "memory_used": used,
        "peak_basis": profile.compute.peak_basis,
        "interconnect": profile.interconnect.kind,
        "domain_size": profile.interconnect.domain_size,
        "units": "B, B/s, FLOP/s, Hz, W",
        "figures": figures,
        "sources": {key: source.cite for key, source in profile.sources.items()},
        "disagreements": profile.disagreements,
    }
