"""What options hold, read: numbers, formats, how tokens choose experts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roofline.errors import InputError

if TYPE_CHECKING:
    from roofline.quantization import DType
    from roofline.workload import Routing

__all__ = ["dtype", "numbers", "routing"]


def numbers(flag: str, text: str | None, example: str) -> tuple[float, ...] | None:
    """Read ``3,1`` as numbers; None stays None.

    >>> numbers("--tensor-split", "3,1", "3,1")
    (3.0, 1.0)
    """
    if text is None:
        return None
    try:
        return tuple(float(item) for item in text.split(","))
    except ValueError:
        raise InputError(f"{flag} {text}: expected numbers such as {example}") from None


def routing(skew: float | None, correlation: float | None) -> Routing | None:
    """Return the routing asked for; what was not given keeps its stated default."""
    if skew is None and correlation is None:
        return None
    from roofline.priors import priors
    from roofline.workload import Routing

    stated = priors().routing
    return Routing(
        skew=stated.skew if skew is None else skew,
        correlation=stated.correlation if correlation is None else correlation,
    )


def dtype(flag: str, text: str | None) -> DType | None:
    """Return the format called ``text``; None stays None."""
    from roofline.quantization import parse_dtype

    return None if text is None else parse_dtype(text, flag)
