"""The whole application, as documentation and tests look at it."""

from __future__ import annotations

from roofline.cli.commands import build

__all__ = ["app"]

app = build()
