"""The drafter of a question: the one that is named or chosen, as it runs beside its target."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from roofline.acceptance.labels import counted_kinds
from roofline.acceptance.prior import acceptance_prior
from roofline.advice.configuration import Configuration, overridden
from roofline.advice.layout import draft_placement
from roofline.advice.precision import WIDE, formats_of
from roofline.base.errors import InputError, Option
from roofline.base.names import family
from roofline.base.notices import Code, Notice, notice
from roofline.base.resources import bundled_names, stated_kind
from roofline.importers.references import head_for, heads_for, open_drafter
from roofline.kernels.footprint import parameters_total
from roofline.kernels.matrices import check_parallel, used_components
from roofline.specs.engine import EngineProfile
from roofline.specs.formats import LAYER_LINEARS, Component, DType, is_gguf
from roofline.specs.gpu import HardwareProfile
from roofline.specs.network import (
    DERIVED_SOURCE,
    MODEL_SHELF,
    DrafterSpec,
    ModelSpec,
    NetworkSpec,
    load_model,
)
from roofline.timing.drafters import BLOCK_KINDS, Drafter, shares_formats
from roofline.timing.step import Target

if TYPE_CHECKING:
    from roofline.specs.overrides import AppliedOverride

__all__ = [
    "default_drafter",
    "drafter_of",
    "fitting_draft_model",
    "known_drafters",
    "model_names",
    "no_drafter_known",
    "unused_options",
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


def no_drafter_known(model: ModelSpec, engine: EngineProfile) -> InputError:
    """Return the refusal of a question about drafts where no drafter is named or known."""
    kinds = list(known_drafters(model))
    ways = [kind for kind in ("ngram",) if kind in engine.flags]
    ways += ["eagle3 for a head of the usual shape"] if "eagle3" in engine.flags else []
    problem = f"no drafter is bundled for {model.id}"
    if kinds:
        problem += f" that {engine.name} runs (none of {', '.join(kinds)} is known to run)"
    draft_model = fitting_draft_model(model, engine)
    if draft_model is None:
        remedy = ", ".join([*ways, "a model, or a path"])
    else:
        others = ", ".join([*ways, "another model, or a path"])
        remedy = f"{Option('drafter', draft_model)} (or {others})"
    return InputError(f"{problem}; give {remedy}", field="drafter")


def drafter_of(
    configuration: Configuration,
    target: Target,
    gpu: HardwareProfile,
    engine: EngineProfile,
    *,
    drop_unused: bool,
) -> tuple[Drafter, list[AppliedOverride], list[Notice]]:
    """Return the drafter on its accelerators, what overrides changed, and what to know."""
    changes: list[AppliedOverride] = []
    overrides, notices = configuration.of_root("drafter"), list[Notice]()

    def with_overrides(network: NetworkSpec) -> NetworkSpec:
        network, applied = overridden(network, overrides)
        changes.extend(applied)
        return network

    reference = configuration.drafter
    if reference is None:
        reference, assumed = default_drafter(target.model, engine)
        notices.append(assumed)
    kind, network = open_drafter(
        reference, target.model, adapt=with_overrides, vocabulary=engine.vocabulary
    )
    unused = unused_options(configuration, kind, network)
    if unused and not drop_unused:
        if configuration.drafter is None and network is None:
            raise no_drafter_known(target.model, engine)
        _refuse_unused(unused[0], kind)
    if network is None:
        if overrides:
            raise InputError(f"{overrides[0]}: the drafter {kind} has no network to change")
        return Drafter(kind=kind, name=kind), changes, notices
    by_name = isinstance(network, DrafterSpec) and "/" in reference
    own = by_name and (network.repository or "").lower() == reference.lower()
    if own and network.id != head_for(target.model.id, kind):
        notices.append(
            notice(
                Code.HEAD_BY_NAME,
                repository=network.repository,
                kind=kind,
                shape=head_for(target.model.id, kind),
            )
        )
    if network.source == DERIVED_SOURCE:
        notices.append(
            notice(Code.HEAD_DERIVED, kind=kind, model=target.model.id, source=network.source)
        )
    notices += engine.vocabulary.notices(network, target.model, engine=engine.name)
    network = shares_formats(network, target.precision.weights)
    placement = draft_placement(configuration.draft_tp, target, network)
    check_parallel(network, placement, "draft_tp")
    engine.check_draft_tp(placement.attention_tp, tp=target.placement.attention_tp)
    base, stored = target.precision.base, _draft_weights(configuration, kind, network, target)
    if stored is not None and configuration.draft_weights is None and kind == "model":
        notices.append(notice(Code.DRAFTER_STORED_AS_TARGET, drafter=network.id, dtype=stored))
    precision, format_notices = formats_of(
        network.model_copy(update={"dtype": base}) if network.dtype != base else network,
        gpu,
        engine,
        weights=stored,
        activations=None,
        kv=target.precision.kv,
        field="weights" if kind == "mtp" and not configuration.draft_weights else "draft_weights",
    )
    drafter = Drafter(
        kind=kind,
        name=network.id,
        network=network,
        precision=precision,
        placement=placement,
        topk=configuration.tree_topk,
        block=None if "draft_block" in unused else configuration.draft_block,
        first_rows=configuration.first_pass_rows,
    )
    return drafter, changes, [*notices, *format_notices]


def _draft_weights(
    configuration: Configuration, kind: str, network: NetworkSpec, target: Target
) -> DType | None:
    """Return the format asked of a drafter's weights; None leaves each part in its own.

    An MTP layer is quantised with its target. So is a draft model beside a target of GGUF types,
    unless it is published in a narrow format itself: both are files, and pairs are run in one
    format (llama.cpp common/arg.cpp, the presets of Qwen 2.5 Coder with a draft model: Q8_0 both).
    """
    if configuration.draft_weights is not None or kind == "mtp":
        return configuration.draft_weights or configuration.weights
    mixture = target.model.num_expert_layers > 0
    of_target = target.precision.weights[Component.EXPERTS if mixture else Component.MLP]
    own = {network.stored()[part] for part in used_components(network) & LAYER_LINEARS}
    wide = all(dtype.value in WIDE for dtype in own)
    return of_target if kind == "model" and is_gguf(of_target) and wide else None


def unused_options(
    configuration: Configuration, kind: str, network: NetworkSpec | None
) -> list[str]:
    """Return the options that were given and change nothing for a drafter of this kind."""
    of_networks = ("draft_tp", "draft_weights", "first_pass_rows")
    of_drafts = ("verify_width",)
    unused: tuple[str, ...] = ()
    if network is None:
        unused = (*of_networks, *(of_drafts if kind == "none" else ()))
    if not (isinstance(network, DrafterSpec) and network.kind in BLOCK_KINDS):
        unused = (*unused, "draft_block")
    return [field for field in unused if getattr(configuration, field) is not None]


def _refuse_unused(field: str, kind: str) -> None:
    if field == "draft_block":
        raise InputError(
            f"says nothing for {kind}, which drafts no block ({', '.join(BLOCK_KINDS)} do); leave "
            "it out",
            field=field,
        )
    raise InputError(f"says nothing with {Option('drafter', kind)}; leave it out", field=field)
