"""What a law is worth on another accelerator: the error of parts without tables of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from roofline.specs.gpu import load_hardware, load_overlay
from roofline.validation.kernels import SampleGroup, matching_block, sample_groups
from roofline.validation.score import Compared
from roofline.validation.tables import families

__all__ = ["compare_transfer"]

#: (laws of, used on): within an architecture, and across.
PAIRS = (
    ("h100-sxm", "h200-sxm"),
    ("h200-sxm", "h100-sxm"),
    ("b200-hgx", "b300-hgx"),
    ("b200-hgx", "gb200"),
    ("l40s", "rtx-pro-6000-blackwell-server"),
    ("rtx-pro-6000-blackwell-server", "l40s"),
    ("h100-sxm", "b200-hgx"),
    ("a100-sxm-80gb", "h100-sxm"),
    ("h100-sxm", "a100-sxm-80gb"),
)


def compare_transfer(*, gpus: Sequence[str], engines: Sequence[str]) -> Iterator[Compared]:
    """Yield one accelerator's measurements beside predictions with another's laws.

    Datasheet figures are the measured part's own; only the fitted constants are borrowed.
    """
    groups = [group for group in sample_groups() if group.engine in engines]
    for lender, borrower in PAIRS:
        if borrower not in gpus:
            continue
        for group in groups:
            if group.gpu == borrower and len(group.seconds):
                compared = _borrowed(group, lender)
                if compared is not None:
                    yield compared


def _borrowed(group: SampleGroup, lender: str) -> Compared | None:
    overlay = load_overlay(lender, group.engine)
    block = matching_block(overlay.calibration if overlay else (), group)
    if block is None:
        return None
    family, profile = families()[group.kind], load_hardware(group.gpu)
    return Compared(
        suite="transfer",
        kind=group.kind,
        gpu=f"{lender} on {group.gpu}",
        engine="all",
        dtype="all",
        name=" ".join(str(value) for value in group.label.values()),
        predicted=np.asarray(family.seconds(group.columns, group.label, block.law, profile)),
        measured=group.seconds,
        textbook=np.asarray(family.textbook(group.columns, group.label, profile)),
    )
