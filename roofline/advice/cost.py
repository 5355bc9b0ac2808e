"""What a token costs."""

from __future__ import annotations

from roofline.base.errors import InputError
from roofline.base.numbers import Array

__all__ = ["check_price", "dollars_per_million"]


def dollars_per_million(*, gpu_hour: float, gpus: int, tokens_per_s: Array) -> Array:
    """Return the price of a million output tokens: price GPUs / 3600 / rate x 10^6 [$].

    ``gpu_hour`` is the price of one GPU for an hour [$]; ``tokens_per_s`` the rate of all of them.

    >>> dollars_per_million(gpu_hour=3.6, gpus=2, tokens_per_s=1000.0)  # 0.002 $/s, 1000 tokens/s
    2.0
    """
    return gpu_hour * gpus / 3600 / tokens_per_s * 1e6


def check_price(gpu_hour: float | None) -> None:
    """Refuse prices that nobody asks."""
    if gpu_hour is not None and not 0 < gpu_hour < 1e6:
        raise InputError(
            "expected more than 0 per GPU and hour, below 1e6",
            field="gpu_hour",
            value=f"{gpu_hour:g}",
        )
