"""A fitted machine as a hardware profile: a datasheet with measured laws, or measured figures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from roofline.base import resources
from roofline.base.errors import InputError
from roofline.base.names import on_shelf
from roofline.base.schema import load_yaml
from roofline.calibrate.fit.machine import MachineFit
from roofline.specs.gpu import GPU_SHELF, HardwareProfile, load_hardware

__all__ = ["datasheet_for", "profile_data"]


def datasheet_for(facts: Mapping[str, Any]) -> HardwareProfile | None:
    """Return the bundled profile of the measured device, None for a CPU or an unknown device.

    Where a driver's name may mean several parts, the memory decides.
    """
    if facts.get("kind") != "gpu":
        return None
    named = on_shelf(str(facts.get("device", "")), GPU_SHELF)
    if named is None:
        return None
    if named.id is not None:
        return load_hardware(named.id)
    memory = float(facts.get("memory") or 0)
    profiles = map(load_hardware, named.candidates)
    return min(profiles, key=lambda profile: abs(profile.memory_bytes - memory))


def profile_data(
    fitted: MachineFit, facts: Mapping[str, Any], datasheet: HardwareProfile | None, *, cite: str
) -> dict[str, Any]:
    """Return the checked data of a profile's file."""
    data = _from_datasheet(datasheet) if datasheet else _from_measurement(fitted, facts, cite)
    data["calibration"] = [law.block for law in fitted.laws]
    read_mode = fitted.read_modes.get(fitted.chosen_attention) if fitted.chosen_attention else None
    if read_mode is not None and not _law_counts_tiles(fitted):
        data["verify_attention"] = {
            "mode": read_mode.mode.value,
            "tile_rows": read_mode.tile_rows,
            "errors": read_mode.errors,
        }
    HardwareProfile.check(data, "the fitted profile")
    return data


def _law_counts_tiles(fitted: MachineFit) -> bool:
    """Return whether the attention law counts row tiles itself, with the cache read once."""
    return any(law.block["kind"] == "attention" for law in fitted.laws)


def _from_datasheet(datasheet: HardwareProfile) -> dict[str, Any]:
    file = resources.shelf(GPU_SHELF) / f"{datasheet.id}.yaml"
    if not file.is_file():
        raise InputError("give the id of a bundled profile", field="gpu", value=datasheet.id)
    return load_yaml(file)


def _from_measurement(fitted: MachineFit, facts: Mapping[str, Any], cite: str) -> dict[str, Any]:
    figures, device = fitted.figures, str(facts["device"])
    slug = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-") or "device"
    kind = str(facts.get("kind", "cpu"))
    bandwidth = _measured(f"{figures.bandwidth / 1e9:.4g} GB/s")
    memory = float(facts.get("memory") or 0) or 16e9
    return {
        "schema": 1,
        "id": slug,
        "name": device,
        "vendor": "unknown",
        "architecture": kind,
        "generation": kind,
        "form_factor": "host" if kind == "cpu" else "card",
        "memory": {
            "kind": "main memory",
            "capacity": _measured(f"{memory / 1e9:.4g} GB"),
            "bandwidth": bandwidth,
        },
        "compute": {
            "peaks": {
                rate: _measured(f"{peak / 1e9:.4g} GFLOP/s")
                for rate, peak in sorted(figures.peaks.items())
            },
            "peak_basis": "the fastest product that was measured; no datasheet",
        },
        "interconnect": {
            "kind": "none (one device)",
            "per_direction": bandwidth,
            "domain_size": 1,
        },
        "sources": {"measured": {"cite": cite, "confidence": "measured"}},
    }


def _measured(value: str) -> dict[str, str]:
    return {"value": value, "source": "measured"}
