"""Kernel laws against the shipped sample of held-out timings."""

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
from roofline.specs.calibrated import Block
from roofline.specs.gpu import HardwareProfile, load_hardware, load_overlay
from roofline.validation.score import Compared
from roofline.validation.tables import families

__all__ = ["SampleGroup", "compare_kernels", "matching_block", "sample_groups"]

ABOVE_FLOOR = 3.0  # attention rows over this many floors are scored once more by themselves
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
        overlay = load_overlay(group.gpu, group.engine)
        block = matching_block(overlay.calibration if overlay else (), group)
        if block is None:
            continue
        family, profile = families()[group.kind], _profile(group.gpu)
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


def matching_block(blocks: Sequence[Block], group: SampleGroup) -> Block | None:
    """Return the law that prices a group's kernel: same kind and label."""
    for block in blocks:
        same = block.kind == group.kind
        if same and all(getattr(block, k, None) == v for k, v in group.label.items()):
            return block
    return None


@cache
def _profile(gpu: str) -> HardwareProfile:
    return load_hardware(gpu)
