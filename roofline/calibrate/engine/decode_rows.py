"""Served decode runs: what the kernels explain of them, and what the engine adds."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.advice.deployment import Deployment
from roofline.base import resources
from roofline.kernels.forward import decode
from roofline.kernels.ops import Kind, Op
from roofline.specs.engine import load_engine
from roofline.specs.formats import (
    LAYER_LINEARS,
    Component,
    DType,
    Precision,
    rate_name,
    resolve_precision,
)
from roofline.specs.gpu import HardwareProfile, load_hardware
from roofline.specs.network import ModelSpec, NetworkSpec, load_model
from roofline.specs.placement import Placement, Routing
from roofline.timing.drafters import Drafter
from roofline.timing.lawbook import OVER_LINK
from roofline.timing.machine import time_ops
from roofline.timing.step import Target

__all__ = [
    "DecodeRow",
    "Features",
    "deployment_of",
    "kernel_features",
    "load_decode_rows",
    "served_formats",
    "textbook_seconds",
]

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class DecodeRow:
    """One served point without speculation: time per output token at a concurrency."""

    id: str
    model: str
    gpu: str
    engine: str
    version: str
    linears: str
    experts: str
    expert_activations: str
    kv: str
    tp: int
    ep: int
    batch: int
    input: int
    output: int
    tpot: float  # [s]
    left_out: str  # why the row is not scored, for people; empty where it is

    @property
    def scored(self) -> bool:
        """Whether the row counts."""
        return not self.left_out

    @property
    def dense(self) -> bool:
        """Whether the model has no experts."""
        return not _model(self.model).num_expert_layers

    @property
    def format(self) -> str:
        """The format of the experts, or of the linear layers of a model without any."""
        model = _model(self.model)
        stored = model.stored().get(Component.EXPERTS, model.dtype)
        return self.experts or self.linears or stored.value

    @property
    def context(self) -> float:
        """Mean length of the cache while the output is written."""
        return self.input + self.output / 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Features:
    """What the engine's numbers multiply, one value for each row. Times in s."""

    kernels: Array  # all kernels of one step
    floors: Array  # launch floors outside the expert kernels
    expert_floors: Array
    layers: Array
    batch: Array  # sequences that the cache holds
    textbook: Array  # max(bytes / bandwidth, FLOP / peak) of each kernel

    def pick(self, rows: NDArray[np.bool_]) -> Features:
        """Return the features of some rows."""
        return Features(**{name: getattr(self, name)[rows] for name in self.__slots__})


def load_decode_rows() -> list[DecodeRow]:
    """Return the shipped rows, those left out included."""
    text = resources.data_file("validation").joinpath("decode.csv").read_text("utf-8")
    integers = ("tp", "ep", "batch", "input", "output")
    rows = []
    for line in csv.DictReader(text.splitlines()):
        tpot = float(line.pop("tpot_ms")) / 1e3
        numbers: dict[str, Any] = {name: int(line.pop(name)) for name in integers}
        rows.append(DecodeRow(**(numbers | line), tpot=tpot))
    return rows


def kernel_features(rows: Sequence[DecodeRow], *, skew: float) -> Features:
    """Return the features of each row, with experts chosen at a popularity skew."""
    values = [_features_of(row, skew) for row in rows]
    columns = np.array(values, dtype=np.float64).reshape(-1, 6).T
    return Features(**dict(zip(Features.__slots__, columns, strict=True)))


def deployment_of(row: DecodeRow, *, skew: float) -> Deployment:
    """Return what a row ran on."""
    model, gpu = _model(row.model), _gpu(row.gpu)
    precision = _precision(row, model, gpu)
    placement = Placement(tp=row.tp, ep=row.ep, routing=Routing(skew=skew))
    engine = load_engine(row.engine)
    kernels = engine.kernels.of_version(row.version)
    return Deployment(
        gpu=gpu,
        target=Target(model=model, precision=precision, placement=placement),
        drafter=Drafter(kind="none", name="none"),
        engine=engine.model_copy(update={"kernels": kernels}),
    )


def _features_of(row: DecodeRow, skew: float) -> tuple[float, ...]:
    deployment = deployment_of(row, skew=skew)
    gpu, (model, precision, placement) = deployment.gpu, deployment.target
    batch = _slots(row, deployment)
    ops = decode(model, precision, placement, batch=batch, context=row.context, rows=1.0)
    times = time_ops(ops, deployment.machine)
    floors = [t.op.count * float(np.min(t.time.floor)) for t in times]
    experts = [f for f, t in zip(floors, times, strict=True) if t.op.kind is Kind.MOE]
    return (
        sum(t.op.count * float(t.time.total) for t in times),
        sum(floors) - sum(experts),
        sum(experts),
        model.num_layers,
        batch,
        sum(op.count * textbook_seconds(op, gpu) for op in ops),
    )


def textbook_seconds(op: Op, gpu: HardwareProfile) -> float:
    """Return max(bytes / bandwidth, FLOP / peak) of one kernel with datasheet figures [s]."""
    over_link = op.kind in OVER_LINK
    bandwidth = gpu.interconnect.per_direction.value if over_link else gpu.bandwidth
    peak = gpu.peak(rate_name(op.compute))
    return float(np.maximum(np.asarray(op.bytes) / bandwidth, np.asarray(op.flops) / peak))


def _slots(row: DecodeRow, deployment: Deployment) -> float:
    """Return the sequences that decode together: no more than the cache has room for."""
    room = deployment.memory.largest_batch(context=int(row.context), draft_length=0)
    return float(min(row.batch, room) if room else row.batch)


def served_formats(network: NetworkSpec, *, linears: str, experts: str) -> dict[Component, DType]:
    """Return the formats of a network that a run served in others; empty is the network's own."""
    stored = dict(network.stored())
    if linears:
        stored |= dict.fromkeys(LAYER_LINEARS - {Component.EXPERTS}, DType(linears))
    if experts:
        stored[Component.EXPERTS] = DType(experts)
    return stored


def _precision(row: DecodeRow, model: ModelSpec, gpu: HardwareProfile) -> Precision:
    precision, _ = resolve_precision(
        stored=served_formats(model, linears=row.linears, experts=row.experts),
        base=model.dtype,
        kv_stored=DType(row.kv) if row.kv else model.kv_dtype,
        available=gpu.rates,
        gpu=gpu.id,
    )
    if not row.expert_activations:
        return precision
    experts = {Component.EXPERTS: DType(row.expert_activations)}
    return replace(precision, activations={**precision.activations, **experts})


@cache
def _model(name: str) -> ModelSpec:
    return load_model(name)


@cache
def _gpu(name: str) -> HardwareProfile:
    return load_hardware(name)
