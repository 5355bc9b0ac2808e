"""What two profiles say differently: figures first, then laws."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from roofline.calibrated import Block
from roofline.hardware import HardwareProfile

__all__ = ["differences"]


def differences(first: HardwareProfile, second: HardwareProfile) -> list[dict[str, Any]]:
    """Return one row for each figure, law constant or mode in which two profiles differ.

    ``change`` is the second over the first, where both are numbers.
    """
    one, two = dict(_entries(first)), dict(_entries(second))
    names = list(dict.fromkeys([*one, *two]))
    return [
        {"what": name, "first": _text(one.get(name)), "second": _text(two.get(name)),
         "change": _change(one.get(name), two.get(name))}
        for name in names
        if one.get(name) != two.get(name)
    ]  # fmt: skip


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
            yield f"{name} {constant}", _plain(value)
        yield f"{name} median_error", block.evidence.median_error


def _name(block: Block) -> str:
    parts = [getattr(block, n, None) for n in ("covers", "op", "dtype", "kernel", "head_dim")]
    head = [] if hasattr(block, "covers") else [block.kind]
    return " ".join(str(part) for part in (*head, *parts) if part is not None)


def _plain(value: Any) -> Any:
    """Return numbers as they are; staircases and nested constants as text."""
    if isinstance(value, tuple):
        return " ".join(
            f"{v[0]:g}:{v[1]:g}" if isinstance(v, tuple) and len(v) == 2 else f"{v}" for v in value
        )
    return str(value) if isinstance(value, dict) else value


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _change(first: Any, second: Any) -> str | None:
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (first, second))
    return f"x{second / first:.3g}" if numbers and first else None
