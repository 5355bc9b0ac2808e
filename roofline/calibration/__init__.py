"""Measured kernels: reading them, and fitting the laws to them. Heavy imports stay in here."""

from __future__ import annotations

from typing import cast

from roofline.calibration import attention, collective, gemm, latent, moe, state
from roofline.calibration.family import Family

__all__ = ["FAMILIES"]

#: Every family of kernels that has tables, by kind.
FAMILIES: dict[str, Family] = {
    module.KIND: cast("Family", module)
    for module in (gemm, attention, latent, moe, collective, state)
}
