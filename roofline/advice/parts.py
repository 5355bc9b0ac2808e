"""What a request names, loaded, and changed by its ``--set``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from roofline.advice.request import Request, with_overhead
from roofline.base.errors import InputError
from roofline.base.resources import alias_note
from roofline.base.schema import Document
from roofline.importers.open import open_model
from roofline.specs.engine import EngineProfile, load_engine
from roofline.specs.formats import DType
from roofline.specs.gpu import HardwareProfile, load_hardware
from roofline.specs.network import SHELF, ModelSpec
from roofline.specs.overrides import Change, Override, changed

__all__ = ["Notes", "Parts", "changed_part", "engine_of", "model_of", "open_parts", "overrides_of"]

Part = TypeVar("Part", bound=Document)


@dataclass(slots=True)
class Notes:
    """What the answer must say about itself, gathered while the parts are put together."""

    assumed: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """What a request names, as loaded: before anything of it is overridden."""

    gpu: HardwareProfile
    model: ModelSpec
    engine: EngineProfile
    assumed: tuple[str, ...]  # what an imported config left open


def open_parts(request: Request) -> Parts:
    """Load the accelerator, the model and the engine that ``request`` names."""
    model, assumed = open_model(request.model)
    return Parts(
        gpu=load_hardware(request.gpu),
        model=model,
        engine=load_engine(request.engine),
        assumed=tuple(assumed),
    )


def changed_part(document: Part, root: str, request: Request, notes: Notes) -> Part:
    """Return a part with the request's overrides of it."""
    document, changes = changed(document, overrides_of(request, root))
    notes.changes += changes
    return document


def overrides_of(request: Request, root: str) -> list[Override]:
    """Return the overrides of the model, drafter, gpu or engine."""
    return [override for override in request.overrides if override.root == root]


def model_of(request: Request, parts: Parts, gpu: HardwareProfile, notes: Notes) -> ModelSpec:
    """Return the model asked for; an alias's note and what an imported config assumed are said."""
    notes.assumed += parts.assumed
    model = changed_part(parts.model, "model", request, notes)
    if model.dtype == DType.FP16 and "fp16" not in gpu.rates and "bf16" in gpu.rates:
        notes.assumed.append(f"{gpu.id} has no fp16 rate: products run in bf16")
        model = model.model_copy(update={"dtype": DType.BF16})
    note = alias_note(request.model, SHELF)
    if note is not None:
        notes.warnings.append(note)
    return model


def engine_of(request: Request, parts: Parts, notes: Notes) -> EngineProfile:
    """Return the engine, with the share of memory asked for."""
    engine = with_overhead(parts.engine, request.overhead)
    share = request.memory_fraction
    if share is not None:
        if not 0 < share <= 1:
            raise InputError(f"--memory-fraction {share:g}: expected more than 0 and at most 1")
        memory = engine.memory.model_copy(update={"fraction": share})
        engine = engine.model_copy(update={"memory": memory})
    return changed_part(engine, "engine", request, notes)
