"""What drafting costs: the passes a drafter makes before each verify pass, and the bytes it holds.

A drafter is one of: none; n-gram or suffix (a lookup on the host); a head on the target's hidden
states (EAGLE-1 and -3, MTP, Medusa, block drafters); a separate model. Which tokens are accepted is
no business of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

from roofline.base import resources
from roofline.base.errors import InputError, did_you_mean
from roofline.base.yaml import load_yaml
from roofline.importers.open import importable, open_network
from roofline.kernels.forward import Op
from roofline.specs.draft_heads import DERIVED, derive, mtp_head
from roofline.specs.engine import VocabularyRule
from roofline.specs.formats import Component, DType, Precision
from roofline.specs.network import (
    SHELF,
    DrafterSpec,
    ModelSpec,
    NetworkSpec,
    load_drafter,
    load_model,
)
from roofline.specs.placement import Grid, Placement
from roofline.timing.draft_passes import launches, passes

__all__ = [
    "HOST_DRAFTERS",
    "Drafter",
    "deepest",
    "draft_passes",
    "heads_for",
    "launches",
    "load",
    "mtp_head",
    "shares_formats",
]

HOST_DRAFTERS = ("none", "ngram", "suffix")
HEAD_KINDS = tuple(DERIVED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Drafter:
    """A drafter placed on the accelerators: ``network`` is None for those without weights."""

    kind: str
    name: str
    network: NetworkSpec | None = None
    precision: Precision | None = None
    placement: Placement = field(default_factory=Placement)
    #: Rows per sequence of each further pass: the branches of a tree.
    topk: int = 1
    #: Tokens of a block drafter's pass where the deployment sets another than the head's own.
    block: int | None = None
    #: Rows per sequence of the first pass; None pads it to 1 + D as the engines do.
    first_rows: float | None = None

    @property
    def modules(self) -> int:
        """Layers that were each trained for one further token."""
        return self.network.modules if isinstance(self.network, DrafterSpec) else 1

    @property
    def pass_kind(self) -> str:
        """The name under which an engine's time around its passes is known."""
        network = self.network
        stateful = isinstance(network, ModelSpec) and network.has_state
        return "stateful_model" if self.kind == "model" and stateful else self.kind


def heads_for(target: str) -> list[str]:
    """Return the kinds of drafter that have a bundled spec for the target with this id.

    >>> heads_for("llama-3.1-8b")
    ['eagle3']
    """
    start, names = f"{target}-", resources.bundled_names(SHELF)
    kinds = (name.removeprefix(start) for name in names if name.startswith(start))
    return [kind for kind in kinds if kind in HEAD_KINDS]


def load(
    reference: str,
    target: ModelSpec,
    adapt: Callable[[NetworkSpec], NetworkSpec] | None = None,
    vocabulary: VocabularyRule | None = None,
) -> tuple[str, NetworkSpec | None]:
    """Return (kind, network) of the drafter called ``reference``, checked against its target.

    ``reference`` is ``none``, ``ngram``, ``suffix``, ``mtp`` (the target's own layer), a kind of
    head (the bundled one for the target, else one derived by a stated rule), the id of a bundled
    drafter or model, or a path to a YAML file. ``adapt`` changes the network before the check;
    ``vocabulary`` is what the engine takes, equal sizes if it is not given.
    """
    kind, network = _open(reference, target)
    if network is None:
        return kind, None
    network = network if adapt is None else adapt(network)
    _check_pair(network, target, vocabulary or VocabularyRule())
    return kind, network


def _open(reference: str, target: ModelSpec) -> tuple[str, NetworkSpec | None]:
    if reference in HOST_DRAFTERS:
        return reference, None
    if reference == "mtp":
        return reference, mtp_head(target)
    if importable(reference):
        found = open_network(reference, target)
        return str(getattr(found, "kind", "model")), found
    names, heads = resources.bundled_names(SHELF), heads_for(target.id)
    wanted = f"{target.id}-{reference}" if reference in heads else reference
    if reference in HEAD_KINDS and reference not in heads:
        return reference, derive(reference, target)
    if resources.known(wanted, SHELF) is None and not wanted.endswith((".yaml", ".yml")):
        known = [*HOST_DRAFTERS, "mtp", *names, *HEAD_KINDS]
        raise InputError(
            f"unknown drafter '{reference}' for {target.id}: {did_you_mean(reference, known)}"
        )
    bundled = resources.known(wanted, SHELF)
    return _bundled(bundled) if bundled else _load(wanted)


@cache
def _bundled(name: str) -> tuple[str, NetworkSpec]:
    """Return a bundled drafter, loaded once in a process."""
    return _load(name)


def _load(reference: str) -> tuple[str, NetworkSpec]:
    kind = load_yaml(resources.find(reference, SHELF, "drafter")).get("kind", "model")
    whole = kind == "model"
    return str(kind), load_model(reference, "drafter") if whole else load_drafter(reference)


def shares_formats(network: NetworkSpec, weights: Mapping[Component, DType]) -> NetworkSpec:
    """Return a head that uses its target's vocabulary projection in the format it is stored in."""
    if not isinstance(network, DrafterSpec) or not network.shares_head:
        return network
    own = {**network.dtypes, Component.HEAD: weights[Component.HEAD]}
    return network.model_copy(update={"dtypes": own})


def _check_pair(drafter: NetworkSpec, target: ModelSpec, vocabulary: VocabularyRule) -> None:
    """Refuse a drafter that does not speak the target's vocabulary or read its hidden states."""
    whole = isinstance(drafter, ModelSpec)
    rule = vocabulary if whole else VocabularyRule()
    if not rule.allows(drafter.vocab_size, target.vocab_size):
        raise InputError(
            f"drafter {drafter.id}: vocabulary of {drafter.vocab_size} tokens, but {target.id} has "
            f"{target.vocab_size}; a drafter must share its target's vocabulary"
        )
    if not isinstance(drafter, DrafterSpec):
        return
    expected = drafter.fusion.target_hidden_size
    if expected != target.hidden_size:
        raise InputError(
            f"drafter {drafter.id}: reads hidden states of {expected}, but {target.id} has "
            f"{target.hidden_size}; it was made for {drafter.target}"
        )
    beyond = [layer for layer in drafter.fusion.layer_ids if layer >= target.num_layers]
    if beyond:
        raise InputError(
            f"drafter {drafter.id}: reads layer {beyond[0]}, but {target.id} has "
            f"{target.num_layers} layers; it was made for {drafter.target}"
        )


def draft_passes(drafter: Drafter, grid: Grid) -> tuple[list[Op], list[Op]]:
    """Return the kernels of the first draft pass and of each further one."""
    network, precision = drafter.network, drafter.precision
    if network is None or precision is None:
        return [], []
    return passes(
        network,
        precision,
        drafter.placement,
        grid,
        topk=drafter.topk,
        block=drafter.block,
        first_rows=drafter.first_rows,
    )


def deepest(network: NetworkSpec | None, block: int | None = None) -> int | None:
    """Return the longest draft that a drafter can make; None where nothing limits it.

    >>> deepest(load_drafter("llama-3.1-8b-eagle3")) is None
    True
    """
    if not isinstance(network, DrafterSpec):
        return None
    if network.kind == "medusa":
        return network.heads
    own = block or network.block_size
    # DFlash's and Domino's block holds the token it starts from, DSpark's only what it drafts
    return own and own - (network.kind in ("dflash", "domino"))
