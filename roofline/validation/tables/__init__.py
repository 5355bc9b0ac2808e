"""Measured kernels: reading them, and fitting the laws to them. Heavy imports stay in here."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from roofline.validation.tables.family import Family

__all__ = ["families"]


@cache
def families() -> dict[str, Family]:
    """Return every family of kernels that has tables, by kind; they load on the first call."""
    names = ("gemm", "attention", "latent", "moe", "collective", "state")
    modules = [import_module(f"roofline.validation.tables.{name}") for name in names]
    return {module.KIND: cast("Family", module) for module in modules}
