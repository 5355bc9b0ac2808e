"""Kernel laws compared with the shipped held-out timings of their own GPU, and of another."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.base import resources
from roofline.base.errors import InputError
from roofline.specs.gpu import HardwareProfile, load_hardware, load_overlay
from roofline.specs.laws import LawBlock
from roofline.validation.kernel_families import FAMILIES
from roofline.validation.score import Compared

__all__ = [
    "PAIRS",
    "SampleGroup",
    "compare_kernels",
    "compare_transfer",
    "matching_block",
    "sample_groups",
]

ABOVE_FLOOR = 3.0  # attention rows over this many floors are scored once more by themselves
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
Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleGroup:
    """The shipped rows that one law prices."""

    kind: str
    gpu: str
    engine: str
    label: dict[str, Any]
    columns: dict[str, Array]
    seconds: Array


def sample_groups() -> list[SampleGroup]:
    """Return the shipped sample."""
    file = resources.data_file("validation").joinpath("kernels.jsonl.gz")
    if not file.is_file():
        raise InputError("the shipped kernel sample is missing; reinstall roofline")
    lines = gzip.decompress(file.read_bytes()).decode().splitlines()
    return [_group(json.loads(line)) for line in lines]


def _group(line: dict[str, Any]) -> SampleGroup:
    columns = {name: np.asarray(v, dtype=np.float64) for name, v in line["columns"].items()}
    return SampleGroup(
        kind=line["kind"],
        gpu=line["gpu"],
        engine=line["engine"],
        label=line["label"],
        columns=columns,
        seconds=np.asarray(line["seconds"], dtype=np.float64),
    )


def compare_kernels(*, gpus: Sequence[str], engines: Sequence[str]) -> Iterator[Compared]:
    """Yield predicted and measured seconds of every shipped group of these parts and engines."""
    for group in sample_groups():
        if group.gpu not in gpus or group.engine not in engines or not len(group.seconds):
            continue
        block = _block_of(group.gpu, group)
        if block is None:
            continue
        family, profile = FAMILIES[group.kind], _profile(group.gpu)
        predicted = family.seconds(group.columns, group.label, block.law, profile)
        textbook = family.textbook(group.columns, group.label, profile)
        floor = float(getattr(block.law, "floor", 0.0))
        yield Compared(
            suite="kernels",
            kind=group.kind,
            gpu=group.gpu,
            engine=group.engine,
            dtype=str(group.label.get("dtype", "bf16")),
            name=" ".join(str(value) for value in group.label.values()),
            predicted=np.asarray(predicted),
            measured=group.seconds,
            textbook=np.asarray(textbook),
            above_floor=(
                group.seconds > ABOVE_FLOOR * floor if group.kind == "attention" else None
            ),
        )


def _block_of(gpu: str, group: SampleGroup) -> LawBlock | None:
    """Return the law that an accelerator's profile has for a group's kernel."""
    return matching_block(_blocks(gpu, group.engine), group)


@cache
def _blocks(gpu: str, engine: str) -> Sequence[LawBlock]:
    overlay = load_overlay(gpu, engine)
    return overlay.calibration if overlay else ()


def matching_block(blocks: Sequence[LawBlock], group: SampleGroup) -> LawBlock | None:
    """Return the law of a group's kernel: the block with its kind and label."""
    for block in blocks:
        same_kind = block.kind == group.kind
        if same_kind and all(getattr(block, k, None) == v for k, v in group.label.items()):
            return block
    return None


@cache
def _profile(gpu: str) -> HardwareProfile:
    return load_hardware(gpu)


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
    block = _block_of(lender, group)
    if block is None:
        return None
    family, profile = FAMILIES[group.kind], _profile(group.gpu)
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
