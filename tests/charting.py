"""Questions that tests of charts ask, and what a chart's command wrote."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from tests.support import Cli

H200: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "gpu": "h200-sxm",
    "batches": (1, 32),
    "contexts": (4096,),
}
DEEP: dict[str, Any] = {
    "model": "nvidia-nemotron-3-ultra-550b-a55b-nvfp4",
    "gpu": "rtx-pro-6000-blackwell-server",
    "tp": 8,
    "drafter": "mtp",
    "acceptance": "0.7",
    "engine": "sglang",
}


def said(cli: Cli, *arguments: str) -> list[dict[str, Any]]:
    """Return the points of ``recommend`` as JSON prints them."""
    found: list[dict[str, Any]] = cli("recommend", *arguments, "--format", "json").data()["points"]
    return found


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    return list(csv.DictReader(path.read_text("utf-8").splitlines()))
