"""The application with all commands, for Typer's documentation tool and for tests."""

from __future__ import annotations

from roofline.cli.commands import build

__all__ = ["app"]

app = build()
