"""The differences of two hardware profiles: figures first, then laws."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from roofline.base.units import format_quantity, format_seconds
from roofline.specs.gpu import HardwareProfile, figure_unit
from roofline.specs.laws import LawBlock

__all__ = ["profile_differences"]

#: Constants of the laws that are times.
TIMES = ("floor", "serial", "latency")


@dataclass(frozen=True, slots=True)
class ProfileEntry:
    """One value of a profile, and the base unit of numbers (none: a plain number)."""

    value: Any
    unit: str | None = None


def profile_differences(first: HardwareProfile, second: HardwareProfile) -> list[dict[str, Any]]:
    """Return one row for each figure, law constant or mode in which two profiles differ.

    ``change`` is the second over the first, where both are numbers.
    """
    before, after = dict(_entries(first)), dict(_entries(second))
    rows = []
    for name in dict.fromkeys([*before, *after]):
        one, two = before.get(name, ProfileEntry(None)), after.get(name, ProfileEntry(None))
        if one.value != two.value:
            rows.append(
                {
                    "what": name,
                    "first": _shown(one),
                    "second": _shown(two),
                    "change": _change(one.value, two.value),
                }
            )
    return rows


def _entries(profile: HardwareProfile) -> Iterator[tuple[str, ProfileEntry]]:
    yield "id", ProfileEntry(profile.id)
    for name, figure in profile.figures().items():
        yield name, ProfileEntry(figure.value, figure_unit(name))
    if profile.verify_attention is not None:
        yield "verify_attention", ProfileEntry(profile.verify_attention.mode.value)
    for block in profile.calibration:
        name = _law_name(block)
        yield f"{name} law", ProfileEntry(type(block.law).__name__)
        for constant, value in asdict(block.law).items():
            unit = "s" if constant in TIMES else None
            yield from _constants(f"{name} {constant}", value, unit)
        yield f"{name} median_error", ProfileEntry(block.evidence.median_error)


def _law_name(block: LawBlock) -> str:
    """Return what a law is for, each word once: ``mlp_norm fp32``, ``attention fp8 packed 128``."""
    kind = getattr(block, "covers", block.kind)
    parts = [getattr(block, name, None) for name in ("op", "dtype", "kernel", "head_dim")]
    parts = [kind if parts[0] is None else None, *parts]
    words = [str(part) for part in parts if part not in (None, "linear")]
    return " ".join(dict.fromkeys(words))


def _constants(name: str, value: Any, unit: str | None) -> Iterator[tuple[str, ProfileEntry]]:
    """Yield a constant, or each of those that are nested in it."""
    if not isinstance(value, dict):
        yield name, ProfileEntry(value, unit)
        return
    for key, inner in value.items():
        yield from _constants(f"{name}.{key}", inner, None)


def _shown(entry: ProfileEntry) -> str | None:
    """Return a number with its unit, other values as text.

    >>> _shown(ProfileEntry(3.35e12, "B/s")), _shown(ProfileEntry(2e-6, "s"))
    ('3.35 TB/s', '2.00 µs')
    """
    value, unit = entry.value, entry.unit
    if unit is None or not isinstance(value, int | float) or isinstance(value, bool):
        return _text(value)
    return format_seconds(value) if unit == "s" else format_quantity(f"{value:.1f} {unit}")


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
    """Return the second over the first; of staircases, where they differ most.

    >>> _change(2.0, 3.0), _change(((1.0, 2.0), (2.0, 1.0)), ((1.0, 2.0), (2.0, 1.5)))
    ('x1.5', 'x1.5 max')
    """
    if isinstance(first, tuple) and isinstance(second, tuple):
        before, after = _steps(first), _steps(second)
        ratios = [
            after[at] / factor
            for at, factor in before.items()
            if factor > 0 and after.get(at, 0.0) > 0
        ]
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
