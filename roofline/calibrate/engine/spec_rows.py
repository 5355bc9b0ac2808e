"""Published speculative runs: each row as the target, drafter and grid that it is priced by."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from roofline.base import resources
from roofline.calibrate.engine.decode_rows import served_formats
from roofline.importers.references import open_drafter
from roofline.specs.engine import load_engine
from roofline.specs.formats import Component, DType, Precision, resolve_precision
from roofline.specs.gpu import GPU_SHELF, HardwareProfile, load_hardware
from roofline.specs.network import ModelSpec, NetworkSpec, load_model
from roofline.specs.paths import Serving, execution_paths
from roofline.specs.placement import Grid, Placement, Routing
from roofline.timing.drafters import Drafter
from roofline.timing.step import Target

__all__ = [
    "LeftOut",
    "SpecRow",
    "curve_of",
    "drafter_of",
    "gpu_of",
    "grid_of",
    "is_dense",
    "load_spec_rows",
    "serving_of",
    "target_of",
]


class LeftOut(StrEnum):
    """Why a row is shown but not scored."""

    NOT_AGAINST_PLAIN = "not-against-plain"  # the speedup is over something else
    NO_OWN_TOKENS = "no-own-tokens"  # tokens per step follow from a rate; drafts may stop early
    TOKENS_OF_ANOTHER_ENGINE = "tokens-of-another-engine"  # same model, drafter and data
    TOKENS_FROM_ELSEWHERE = "tokens-from-elsewhere"
    TOKENS_DOUBTED = "tokens-doubted"  # by its authors
    DRAFTS_MISSING = "drafts-missing"  # the drafter delivers less than the requested depth
    PREFILL_INSIDE = "prefill-inside"  # the measurement holds prefill
    SPEEDS_DISAGREE = "speeds-disagree"  # speedup and speeds differ
    BELOW_FLOORS = "below-floors"  # a plain step shorter than its kernels' floors
    TREE_NOT_STATED = "tree-not-stated"
    INCONSISTENT = "inconsistent"


@dataclass(frozen=True, kw_only=True, slots=True)
class SpecRow:
    """One published configuration; times in s, None where the source has none."""

    id: str
    group: str
    fold: int
    trust: str
    source: str
    gpu: str
    tp: int
    ep: int
    model: str
    linears: str
    experts: str
    head: str
    kv: str
    activations: str
    engine: str
    batch: int
    context: int
    dataset: str
    kind: str
    drafter_name: str
    drafter: str
    draft_weights: str
    draft_length: int
    verify_width: int | None
    topk: int
    block: int | None
    tokens_per_step: float | None
    curve: Mapping[int, float]
    speedup: float | None
    base_speed: float | None  # any unit, larger is faster
    speed: float | None
    base: float | None
    step: float | None
    total: bool
    left_out: LeftOut | None
    reason: str  # of leaving it out, for people
    note: str

    @property
    def ratio(self) -> float | None:
        """The measured cost ratio R(D) = AL / speedup, where both are known and D > 0."""
        if not (self.tokens_per_step and self.speedup and self.draft_length):
            return None
        return self.tokens_per_step / self.speedup

    @property
    def fits_step(self) -> bool:
        """Whether the speculative step may be fitted on."""
        not_against_plain = self.left_out is LeftOut.NOT_AGAINST_PLAIN
        draft_model_alone = self.tokenless and self.kind == "model" and self.batch == 1
        usable = self.scored or not_against_plain or draft_model_alone
        return usable and self.trust == "A" and self.step is not None and not self.total

    @property
    def fits_plain(self) -> bool:
        """Whether the plain step may be fitted on."""
        usable = self.scored or (self.tokenless and self.batch == 1)
        return usable and self.trust == "A" and self.base is not None and not self.total

    @property
    def fits_ratio(self) -> bool:
        """Whether the cost ratio may be fitted on."""
        usable = self.scored or self.left_out is LeftOut.TOKENS_OF_ANOTHER_ENGINE
        return usable and self.trust == "A" and self.ratio is not None

    @property
    def fits(self) -> bool:
        """Whether anything of the row, marked A, may be fitted on."""
        return self.fits_step or self.fits_ratio or self.fits_plain

    @property
    def counts_in_fit(self) -> bool:
        """Whether the row is given to a fit: marked A, and fitted on or scored."""
        return self.fits or (self.scored and self.trust == "A")

    @property
    def scored(self) -> bool:
        """Whether the row counts."""
        return not self.left_out and self.trust in ("A", "B")

    @property
    def tokenless(self) -> bool:
        """Whether its source counts no tokens per step."""
        return self.left_out is LeftOut.NO_OWN_TOKENS

    @property
    def tokens_from_elsewhere(self) -> bool:
        """Whether its tokens per step were measured on another run."""
        return self.left_out is LeftOut.TOKENS_FROM_ELSEWHERE

    @property
    def timed(self) -> bool:
        """Whether its plain step counts: tokens per step from elsewhere do not matter there."""
        plain = self.tokens_from_elsewhere and self.draft_length == 0
        return self.scored or (plain and self.trust in ("A", "B"))


@cache
def load_spec_rows() -> tuple[SpecRow, ...]:
    """Return the shipped rows, those left out included."""
    text = resources.data_file("validation").joinpath("steps.csv").read_text("utf-8")
    return tuple(_row(line) for line in csv.DictReader(text.splitlines()))


_TEXT_COLUMNS = (
    "id",
    "group",
    "trust",
    "source",
    "gpu",
    "model",
    "linears",
    "experts",
    "head",
    "kv",
    "activations",
    "engine",
    "dataset",
    "kind",
    "drafter_name",
    "drafter",
    "draft_weights",
    "reason",
    "note",
)


def _row(line: dict[str, str]) -> SpecRow:
    def number(name: str) -> float | None:
        return float(line[name]) if line[name] else None

    def whole(name: str) -> int | None:
        return int(line[name]) if line[name] else None

    base, step = number("base_ms"), number("step_ms")
    texts = {name: line[name] for name in _TEXT_COLUMNS}
    return SpecRow(
        **texts,
        left_out=LeftOut(line["left_out"]) if line["left_out"] else None,
        fold=int(line["fold"]),
        tp=int(line["tp"]),
        ep=int(line["ep"]),
        batch=int(line["batch"]),
        context=int(line["context"]),
        draft_length=int(line["draft_length"]),
        verify_width=whole("verify_width"),
        topk=whole("topk") or 1,
        block=whole("block"),
        tokens_per_step=number("tokens_per_step"),
        curve=curve_of(line["curve"]),
        speedup=number("speedup"),
        base_speed=number("base_speed"),
        speed=number("speed"),
        base=base and base / 1e3,
        step=step and step / 1e3,
        total=line["total"] == "1",
    )


def curve_of(text: str) -> dict[int, float]:
    """Read AL by draft length.

    >>> curve_of("2=2.1,3=2.29")
    {2: 2.1, 3: 2.29}
    """
    pairs = (item.split("=") for item in text.split(",") if item)
    return {int(d): float(al) for d, al in pairs}


@cache
def gpu_of(name: str) -> HardwareProfile:
    """Load a bundled accelerator, or one that only validation rows use."""
    if name in resources.bundled_names(GPU_SHELF):
        return load_hardware(name)
    file = resources.data_file("validation").joinpath("gpus", f"{name}.yaml")
    return HardwareProfile.load(file)


@cache
def _model(name: str) -> ModelSpec:
    """Load a bundled model, or one that only validation rows use."""
    file = resources.data_file("validation").joinpath("models", f"{name}.yaml")
    return ModelSpec.load(file) if file.is_file() else load_model(name)


def is_dense(row: SpecRow) -> bool:
    """Return whether the row's target has no experts."""
    return not _model(row.model).num_expert_layers


def _formats(network: NetworkSpec, row: SpecRow, *, linears: str, experts: str) -> Precision:
    gpu = gpu_of(row.gpu)
    stored = served_formats(network, linears=linears, experts=experts)
    if row.head:
        stored[Component.HEAD] = DType(row.head)
    for item in filter(None, row.activations.split(";")):
        component, _, dtype = item.partition("=")
        stored[Component(component)] = DType(dtype)
    precision, _ = resolve_precision(
        stored=stored,
        base=network.dtype,
        kv_stored=DType(row.kv) if row.kv else network.kv_dtype,
        usual=network.activations,
        available=gpu.rates,
        gpu=gpu.id,
    )
    return precision


def target_of(row: SpecRow, routing: Routing) -> Target:
    """Return the row's target in its formats and on its ranks."""
    model = _model(row.model)
    precision = _formats(model, row, linears=row.linears, experts=row.experts)
    placement = Placement(tp=row.tp, ep=row.ep, routing=routing)
    return Target(
        model=model,
        precision=precision,
        placement=execution_paths().placed(
            placement, model, serving_of(row, precision.kv), given=False
        ),
    )


def serving_of(row: SpecRow, kv: DType) -> Serving:
    """Return what the row's engine looked at when it chose its kernels."""
    engine = load_engine(row.engine)
    return Serving(
        engine=engine.id,
        version=engine.runs_version,
        generation=gpu_of(row.gpu).generation,
        role="target",
        model=row.model,
        kv=kv,
    )


def drafter_of(row: SpecRow, target: Target) -> Drafter:
    """Return the row's drafter; a head that nobody published for the target is derived."""
    network: NetworkSpec | None
    if row.kind == "model":
        kind, network = "model", _model(row.drafter)
    else:
        kind, network = open_drafter(row.drafter or row.kind, target.model)
    if network is None:
        return Drafter(kind=kind, name=kind)
    stored = row.draft_weights
    if kind == "mtp":  # quantised with its target unless the source says otherwise
        linears, experts = stored or row.linears, stored or row.experts or row.linears
    else:
        linears, experts = stored, ""
    precision = _formats(network, row, linears=linears, experts=experts)
    ep = row.ep if network.num_expert_layers else 1
    placement = Placement(tp=row.tp, ep=ep, routing=target.placement.routing)
    return Drafter(
        kind=kind,
        name=network.id,
        network=network,
        precision=precision,
        placement=placement,
        topk=row.topk,
        block=row.block,
    )


def grid_of(row: SpecRow) -> Grid:
    """Return D = 0 and the row's own draft length."""
    lengths = (0,) if row.draft_length == 0 else (0, row.draft_length)
    return Grid.of((row.batch,), (row.context,), lengths, verify_width=row.verify_width)
