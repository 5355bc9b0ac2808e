"""Quantities with units, as they are read and printed; everywhere else they are SI floats.

Inside: seconds, bytes, FLOP, byte/s, FLOP/s. GB = 1e9 bytes, GiB = 2**30 bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from roofline.base.errors import InputError

__all__ = [
    "SLOW_PACE",
    "exact_quantity",
    "format_bytes",
    "format_count",
    "format_ms",
    "format_pace",
    "format_quantity",
    "format_seconds",
    "format_size",
    "format_unlike",
    "listed",
    "parse_quantity",
    "parse_size",
]

_PREFIX = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_SCALES: dict[str, dict[str, float]] = {
    "B": {f"{p}B": s for p, s in (_PREFIX | _BINARY).items()},
    "B/s": {f"{p}B/s": s for p, s in _PREFIX.items()},
    "FLOP/s": {f"{p}{word}/s": s for p, s in _PREFIX.items() for word in ("FLOP", "OP")},
    "s": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9},
    "Hz": {f"{p}Hz": s for p, s in _PREFIX.items()},
    "W": {"W": 1.0, "kW": 1e3},
}
_EXAMPLE = {
    "B": "80 GB",
    "B/s": "4.8 TB/s",
    "FLOP/s": "989.4 TFLOP/s",
    "s": "0.5 ms",
    "Hz": "1830 MHz",
    "W": "700 W",
}
#: Paces below this have one decimal; from it on they round to 10 or more.
SLOW_PACE = 9.95
MOST_DIGITS = 12  # of a count of tokens or sequences
_QUANTITY = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-zµ/]+)\s*")
_SIZE = re.compile(r"\s*([0-9]+)\s*([kKmM]?)\s*")


def parse_quantity(text: object, unit: str) -> float:
    """Read ``"4.8 TB/s"`` as a float in ``unit`` (one of B, B/s, FLOP/s, s, Hz, W).

    >>> parse_quantity("4.8 TB/s", "B/s")
    4800000000000.0
    >>> parse_quantity("178.4 GiB", "B") / 2**30
    178.4
    """
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    scale = _SCALES[unit].get(match[2]) if match else None
    if match is None or scale is None:
        raise InputError(f"expected a quantity such as '{_EXAMPLE[unit]}', got {text!r}")
    value = float(match[1]) * scale
    if not math.isfinite(value):
        raise InputError(f"expected a finite quantity such as '{_EXAMPLE[unit]}', got {text!r}")
    return value


def parse_size(text: str) -> int:
    """Read a count of tokens or sequences; ``k`` is 1024 and ``m`` is 1024**2.

    >>> parse_size("8k")
    8192
    """
    match = _SIZE.fullmatch(text)
    if match is not None and len(match[1]) > MOST_DIGITS:
        raise InputError(f"expected at most {MOST_DIGITS} digits, got {len(match[1])}")
    if match is None:
        raise InputError(f"expected a whole number such as '4096' or '8k', got {text!r}")
    return int(match[1]) * {"": 1, "k": 1024, "m": 1024**2}[match[2].lower()]


def format_count(count: int, noun: str) -> str:
    """Return a count with its noun, whose plural ends in s.

    >>> format_count(1, "sequence"), format_count(2, "sequence")
    ('1 sequence', '2 sequences')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"


def listed(words: Sequence[str], last: str = "and") -> str:
    """Return words as a list in a sentence.

    >>> listed(["4"]), listed(["4", "5", "6"]), listed(["host", "link"], "or")
    ('4', '4, 5 and 6', 'host or link')
    """
    return f" {last} ".join([*([", ".join(words[:-1])] if words[1:] else []), *words[-1:]])


def format_size(count: int) -> str:
    """Print a count the way it is typed.

    >>> format_size(8192), format_size(1000)
    ('8k', '1000')
    """
    return f"{count // 1024}k" if count >= 1024 and count % 1024 == 0 else str(count)


def format_bytes(count: float) -> str:
    """Print bytes with a decimal prefix.

    >>> format_bytes(15.01e9), format_bytes(131072)
    ('15.0 GB', '131 kB')
    """
    return _scaled(count, "B")


def format_unlike(count: float, other: float) -> tuple[str, str]:
    """Print two numbers of bytes, with more digits where three show no difference.

    >>> format_unlike(76.14e9, 72.0e9), format_unlike(72.04e9, 72.01e9)
    (('76.1 GB', '72.0 GB'), ('72.04 GB', '72.01 GB'))
    """
    for more in range(6):
        texts = _scaled(count, "B", more), _scaled(other, "B", more)
        if texts[0] != texts[1]:
            break
    return texts


def format_pace(rate: float) -> str:
    """Print tokens or requests per second: whole, or with one decimal below 10.

    >>> format_pace(422.4), format_pace(9.96), format_pace(2.94)
    ('422', '10', '2.9')
    """
    return f"{rate:.1f}" if rate < SLOW_PACE else f"{rate:.0f}"


def format_ms(time: float) -> str:
    """Print milliseconds in at most five characters below ten seconds.

    >>> format_ms(5.678), format_ms(123.456), format_ms(4567.8)
    ('5.68', '123.5', '4568')
    """
    return f"{time:.{2 if time < 99.995 else 1 if time < 999.95 else 0}f}"


def exact_quantity(value: float, unit: str) -> str:
    """Print a quantity with the prefix that fits and all its digits, up to six.

    >>> exact_quantity(80e9, "B"), exact_quantity(989.4e12, "FLOP/s"), exact_quantity(700, "W")
    ('80 GB', '989.4 TFLOP/s', '700 W')
    """
    scaled, prefix = _with_prefix(value)
    return f"{scaled:.6g} {prefix}{unit}"


def format_quantity(text: str) -> str:
    """Print a quantity in its base unit with the prefix that fits; other text stays as it is.

    >>> format_quantity("4800000000000.0 B/s"), format_quantity("0.00031 s"), format_quantity("fp8")
    ('4.80 TB/s', '310 µs', 'fp8')
    """
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2] not in _SCALES:
        return text
    value = float(match[1])
    return format_seconds(value) if match[2] == "s" else _scaled(value, match[2])


def format_seconds(seconds: float) -> str:
    """Print a time with the prefix that fits.

    >>> format_seconds(4.2e-6), format_seconds(0.0123)
    ('4.20 µs', '12.3 ms')
    """
    for scale, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= scale:
            return f"{_three_digits(seconds / scale)} {name}"
    return f"{_three_digits(seconds / 1e-9)} ns"


def _scaled(value: float, unit: str, more: int = 0) -> str:
    scaled, prefix = _with_prefix(value)
    return f"{_three_digits(scaled, more)} {prefix}{unit}"


def _with_prefix(value: float) -> tuple[float, str]:
    """Return a value in thousands, millions and so on, and their prefix."""
    prefixes = ("", "k", "M", "G", "T", "P")
    power = 0
    while value >= 1e3 and power < len(prefixes) - 1:
        value, power = value / 1e3, power + 1
    return value, prefixes[power]


def _three_digits(value: float, more: int = 0) -> str:
    """Return three significant digits, or some ``more``, without an exponent."""
    return f"{value:.{more + (0 if value >= 100 else 1 if value >= 10 else 2)}f}"
