"""The drafter of a model where none is named, and what else could draft for it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from roofline.acceptance.labels import counted_kinds
from roofline.acceptance.prior import acceptance_prior
from roofline.base.errors import InputError, Option
from roofline.base.names import family
from roofline.base.notices import Code, Notice, notice
from roofline.base.resources import bundled_names, stated_kind
from roofline.importers.references import head_for, heads_for
from roofline.kernels.footprint import parameters_total
from roofline.specs.engine import EngineProfile
from roofline.specs.network import MODEL_SHELF, ModelSpec, load_model

__all__ = [
    "default_drafter",
    "fitting_draft_model",
    "known_drafters",
    "model_names",
    "no_drafter_known",
]


def model_names(model: ModelSpec) -> list[str]:
    """Return what a model is called: its id, and its repository."""
    return [model.id, *filter(None, [model.repository])]


def default_drafter(model: ModelSpec, engine: EngineProfile) -> tuple[str, Notice]:
    """Return the drafter of a model where none is named, and why: ``none`` where none is known.

    The model's own MTP layer comes first, then a kind whose acceptance is known on the model, or
    else on a relative; each only where the engine runs it.
    """
    kind = next((kind for kind in known_drafters(model) if engine.runs(kind, model.id)), None)
    if kind is None:
        plain = notice(
            Code.PLAIN_ASSUMED,
            model=model.id,
            engine=engine.name,
            known=tuple(known_drafters(model)),
            kinds=tuple(kind for kind in engine.flags if kind != "none"),
            draft_model=fitting_draft_model(model, engine),
        )
        return "none", plain
    bundled = None if kind == "mtp" else head_for(model.id, kind)
    return kind, notice(Code.HEAD_ASSUMED, model=model.id, kind=kind, bundled=bundled)


#: A draft model has at most this share of its target's parameters.
LARGEST_DRAFT_MODEL = 0.1


def fitting_draft_model(model: ModelSpec, engine: EngineProfile) -> str | None:
    """Return the smallest bundled model of a model's family that the engine takes as its drafter.

    Its vocabulary has the target's size, or as near as the engine allows, and it has at most a
    tenth of the target's parameters.
    """
    if not engine.runs("model", model.id):
        return None
    most = LARGEST_DRAFT_MODEL * parameters_total(model)
    return next(
        (
            size.name
            for size in _sizes_of(family(model.id, MODEL_SHELF))
            if size.parameters <= most and engine.vocabulary.allows(size.tokens, model.vocab_size)
        ),
        None,
    )


class _Size(NamedTuple):
    parameters: int
    name: str
    tokens: int  # of the vocabulary


@cache
def _sizes_of(word: str) -> tuple[_Size, ...]:
    """Return the bundled models of a family, the smallest first; no others are read."""
    names = [
        name
        for name in bundled_names(MODEL_SHELF)
        if family(name, MODEL_SHELF) == word and stated_kind(MODEL_SHELF, name) == "model"
    ]
    models = map(load_model, names)
    return tuple(sorted(_Size(parameters_total(m), m.id, m.vocab_size) for m in models))


def known_drafters(model: ModelSpec) -> Iterator[str]:
    """Yield the kinds of drafter that exist for a model and whose acceptance can be expected.

    They are its own MTP layer, then kinds of which public runs on it are known, then the other
    bundled drafters that were made for it.
    """
    if model.mtp is not None and model.mtp_published:
        yield "mtp"
    heads, counted = heads_for(model.id), counted_kinds(model_names(model))
    kinds = [kind for kind in DRAFTER_ORDER if acceptance_prior().part(kind) is not None]
    yield from (kind for kind in kinds if kind in counted)
    yield from (kind for kind in kinds if kind in heads and kind not in counted)


#: Kinds of drafter beside MTP; of two that are known alike the first is taken.
DRAFTER_ORDER = ("eagle3", "dspark", "dflash", "domino", "peagle", "eagle1", "medusa")


def no_drafter_known(
    model: ModelSpec, engine: EngineProfile, field: str | None = None
) -> InputError:
    """Return the refusal of a question about drafts where no drafter is named or known."""
    kinds = list(known_drafters(model))
    ways = [kind for kind in ("ngram",) if kind in engine.flags]
    ways += ["eagle3 for a head of the usual shape"] if "eagle3" in engine.flags else []
    problem = f"no drafter is bundled for {model.id}"
    if kinds:
        problem += f" that {engine.name} runs (none of {', '.join(kinds)} is known to run)"
    draft_model = fitting_draft_model(model, engine)
    if draft_model is None:
        remedy = f"{Option('drafter')} ({', '.join([*ways, 'a model, or a path'])})"
    else:
        others = ", ".join([*ways, "another model, or a path"])
        remedy = f"{Option('drafter', draft_model)} (or {others})"
    return InputError(f"{problem}: give {remedy}", field=field)
