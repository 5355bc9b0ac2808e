"""A fitted machine as a hardware profile: a datasheet with measured laws, or measured figures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from roofline.base import resources
from roofline.base.errors import InputError
from roofline.base.resources import bundled_names
from roofline.base.schema import load_yaml
from roofline.calibrate.fit.machine import MachineFit
from roofline.specs.gpu import GPU_SHELF, HardwareProfile, load_hardware

__all__ = ["datasheet_for", "profile_data"]

#: Words of a device's name that do not tell it from its siblings.
_IDLE = {"nvidia", "amd", "instinct", "geforce", "graphics", "gpu", "accelerator", "tensor", "core"}


def words(name: str) -> set[str]:
    """Return the telling words of a device's name.

    >>> sorted(words("NVIDIA H200 NVL")), sorted(words("NVIDIA A100-SXM4-80GB"))
    (['h200', 'nvl'], ['80gb', 'a100', 'sxm'])
    """
    found = re.findall(r"[a-z0-9]+", name.lower().replace("sxm4", "sxm").replace("sxm5", "sxm"))
    return set(found) - _IDLE


def datasheet_for(facts: Mapping[str, Any]) -> HardwareProfile | None:
    """Return the bundled profile of the device that was measured, None for a CPU or a stranger.

    Every telling word of a profile's id that the device's name has counts; the memory decides
    between siblings.
    """
    if facts.get("kind") != "gpu":
        return None
    wanted = words(str(facts.get("device", "")))
    scored = []
    for name in bundled_names(GPU_SHELF):
        have = words(name)
        model = name.split("-")[0]
        if model in wanted or (model == "rtx" and len(wanted & have) >= 2):
            scored.append((len(wanted & have), name))
    if not scored:
        return None
    most = max(score for score, _ in scored)
    memory = float(facts.get("memory") or 0)
    profiles = [load_hardware(name) for score, name in scored if score == most]
    # a driver calls the SXM board by the chip's name alone, and the others by theirs
    return min(
        profiles,
        key=lambda profile: (
            round(abs(profile.memory_bytes - memory) / 1e9),
            "sxm" not in profile.id,
        ),
    )


def profile_data(
    fitted: MachineFit, facts: Mapping[str, Any], datasheet: HardwareProfile | None, *, cite: str
) -> dict[str, Any]:
    """Return a profile as plain data, checked."""
    data = _from_datasheet(datasheet) if datasheet else _from_measurement(fitted, facts, cite)
    data["calibration"] = [judged.block for judged in fitted.laws]
    read_mode = fitted.read_modes.get(fitted.chosen) if fitted.chosen else None
    if read_mode is not None and not _tiles_inside(fitted):
        data["verify_attention"] = {
            "mode": read_mode.mode.value,
            "tile_rows": read_mode.tile_rows,
            "errors": read_mode.errors,
        }
    HardwareProfile.check(data, "the fitted profile")
    return data


def _tiles_inside(fitted: MachineFit) -> bool:
    """Return whether the attention law counts its own tiles (then the cache is read once)."""
    return any(judged.block["kind"] == "attention" for judged in fitted.laws)


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
