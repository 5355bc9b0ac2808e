"""What two profiles say differently: figures first, then laws."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from roofline.base.units import format_quantity, format_seconds
from roofline.specs.gpu import HardwareProfile
from roofline.specs.laws import LawBlock

__all__ = ["differences"]

#: The base unit of each figure, beside that of the peaks.
UNITS = {
    "memory.capacity": "B",
    "memory.visible": "B",
    "memory.bandwidth": "B/s",
    "compute.clock": "Hz",
    "compute.l2": "B",
    "compute.last_level_cache": "B",
    "interconnect.per_direction": "B/s",
    "tdp": "W",
}
#: Constants of the laws that are times.
TIMES = ("floor", "serial", "latency")


def differences(first: HardwareProfile, second: HardwareProfile) -> list[dict[str, Any]]:
    """Return one row for each figure, law constant or mode in which two profiles differ.

    ``change`` is the second over the first, where both are numbers.
    """
    one, two = dict(_entries(first)), dict(_entries(second))
    names = list(dict.fromkeys([*one, *two]))
    return [
        {
            "what": name,
            "first": _shown(name, one.get(name)),
            "second": _shown(name, two.get(name)),
            "change": _change(one.get(name), two.get(name)),
        }
        for name in names
        if one.get(name) != two.get(name)
    ]


def _entries(profile: HardwareProfile) -> Iterator[tuple[str, Any]]:
    yield "id", profile.id
    for name, figure in profile.figures().items():
        yield name, figure.value
    if profile.verify_attention is not None:
        yield "verify_attention", profile.verify_attention.mode.value
    for block in profile.calibration:
        name = _name(block)
        yield f"{name} law", type(block.law).__name__
        for constant, value in asdict(block.law).items():
            yield from _constants(f"{name} {constant}", value)
        yield f"{name} median_error", block.evidence.median_error


def _name(block: LawBlock) -> str:
    """Return what a law is for, each word once: ``mlp_norm fp32``, ``attention fp8 packed 128``."""
    kind = getattr(block, "covers", block.kind)
    parts = [getattr(block, name, None) for name in ("op", "dtype", "kernel", "head_dim")]
    parts = [kind if parts[0] is None else None, *parts]
    words = [str(part) for part in parts if part not in (None, "linear")]
    return " ".join(dict.fromkeys(words))


def _constants(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield a constant, or each of those that are nested in it."""
    if not isinstance(value, dict):
        yield name, value
        return
    for key, inner in value.items():
        yield from _constants(f"{name}.{key}", inner)


def _shown(name: str, value: Any) -> str | None:
    """Return a value with the unit that its name implies; other values as text.

    >>> _shown("memory.bandwidth", 3.35e12), _shown("gemm bf16 floor", 2e-6), _shown("x", 0.5)
    ('3.35 TB/s', '2.00 µs', '0.5')
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        return _text(value)
    if name.rpartition(" ")[2] in TIMES:
        return format_seconds(value)
    unit = "FLOP/s" if name.startswith("compute.peaks.") else UNITS.get(name)
    return _text(value) if unit is None else format_quantity(f"{value:.1f} {unit}")


def _text(value: Any) -> str | None:
    """Return numbers and staircases as text.

    >>> _text(((1.0, 0.5), (2.0, 1.0)))
    '1:0.5 2:1'
    """
    if value is None:
        return None
    if isinstance(value, tuple):
        return " ".join(
            ":".join(f"{x:g}" for x in v) if isinstance(v, tuple) else f"{v:g}" for v in value
        )
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _change(first: Any, second: Any) -> str | None:
    """Return how many times the first the second is; of staircases, where they differ most.

    >>> _change(2.0, 3.0), _change(((1.0, 2.0), (2.0, 1.0)), ((1.0, 2.0), (2.0, 1.5)))
    ('x1.5', 'x1.5 max')
    """
    if isinstance(first, tuple) and isinstance(second, tuple):
        one, two = _steps(first), _steps(second)
        ratios = [two[at] / one[at] for at in one if one[at] > 0 and two.get(at, 0.0) > 0]
        most = max(ratios, key=lambda ratio: abs(math.log(ratio)), default=1.0)
        return f"x{most:.3g} max"
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (first, second))
    return f"x{second / first:.3g}" if numbers and first else None


def _steps(values: tuple[Any, ...]) -> dict[Any, float]:
    """Return the factors of a staircase by where they hold.

    >>> _steps(((1.0, 0.5), (2.0, 1.0))), _steps((0.5, 1.0))
    ({1.0: 0.5, 2.0: 1.0}, {0: 0.5, 1: 1.0})
    """
    if all(isinstance(v, tuple) and len(v) == 2 for v in values):
        return {at: float(factor) for at, factor in values}
    flat = [x for v in values for x in (v if isinstance(v, tuple) else (v,))]
    return {i: float(x) for i, x in enumerate(flat)}
