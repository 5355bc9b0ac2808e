"""What drafting costs: the passes a drafter makes before each verify pass, and the bytes it holds.

A drafter is one of: none; n-gram (a lookup on the host); a fused head such as EAGLE-3; a separate
model. Which tokens are accepted is no business of this module.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from roofline import resources
from roofline.errors import InputError, did_you_mean
from roofline.forward import Op, decode, fusion
from roofline.model import (
    SHELF,
    DrafterSpec,
    FeatureFusion,
    ModelSpec,
    NetworkSpec,
    load_drafter,
    load_model,
)
from roofline.quantization import Precision
from roofline.workload import Grid, Placement
from roofline.yamlio import load_yaml

__all__ = ["HOST_DRAFTERS", "Drafter", "draft_passes", "heads_for", "load"]

HOST_DRAFTERS = ("none", "ngram")
HEAD_KINDS = ("eagle3",)


@dataclass(frozen=True, kw_only=True, slots=True)
class Drafter:
    """A drafter placed on the accelerators: ``network`` is None for those without weights."""

    kind: str
    name: str
    network: NetworkSpec | None = None
    precision: Precision | None = None
    placement: Placement = field(default_factory=Placement)


def heads_for(target: str) -> list[str]:
    """Return the kinds of drafter that have a bundled spec for the target with this id.

    >>> heads_for("llama-3.1-8b")
    ['eagle3']
    """
    start, names = f"{target}-", resources.bundled_names(SHELF)
    kinds = (name.removeprefix(start) for name in names if name.startswith(start))
    return [kind for kind in kinds if kind in HEAD_KINDS]


def load(reference: str, target: ModelSpec) -> tuple[str, NetworkSpec | None]:
    """Return (kind, network) of the drafter called ``reference``, checked against its target.

    ``reference`` is ``none``, ``ngram``, ``mtp`` (the target's own layer), a kind that has a
    bundled head for the target (``eagle3``), the id of a bundled drafter or model, or a path to a
    YAML file.
    """
    if reference in HOST_DRAFTERS:
        return reference, None
    if reference == "mtp":
        return reference, mtp_head(target)
    names, heads = resources.bundled_names(SHELF), heads_for(target.id)
    wanted = f"{target.id}-{reference}" if reference in heads else reference
    bundled = wanted.lower().rsplit("/", 1)[-1]
    if bundled not in names and not wanted.endswith((".yaml", ".yml")):
        known = [*HOST_DRAFTERS, "mtp", *names, *heads]
        raise InputError(
            f"unknown drafter '{reference}' for {target.id}: {did_you_mean(reference, known)}"
        )
    kind = load_yaml(resources.find(wanted, SHELF, "drafter")).get("kind", "model")
    network = load_model(wanted, "drafter") if kind == "model" else load_drafter(wanted)
    _check_pair(network, target)
    return str(kind), network


def mtp_head(target: ModelSpec) -> DrafterSpec:
    """Return the target's multi-token-prediction layer as a drafter.

    Each pass norms and joins the embedding of the last token and the last hidden state, projects
    them back to the hidden size, runs one layer like the target's, and uses the target's head.
    """
    if target.mtp is None:
        raise InputError(
            f"--drafter mtp: {target.id} was not published with a multi-token-prediction layer; "
            "use eagle3, ngram or a draft model"
        )
    return DrafterSpec(
        schema=1,
        kind="mtp",
        id=f"{target.id}-mtp",
        name=f"MTP layer of {target.name}",
        source=target.source,
        target=target.id,
        hidden_size=target.hidden_size,
        vocab_size=target.vocab_size,
        draft_vocab_size=target.vocab_size,
        dtype=target.dtype,
        dtypes=target.dtypes,
        kv_dtype=target.kv_dtype,
        layers=(target.mtp,),
        fusion=FeatureFusion(taps=2, target_hidden_size=target.hidden_size, every_pass=True),
        shares_head=True,
        extra_norms=2,
    )


def _check_pair(drafter: NetworkSpec, target: ModelSpec) -> None:
    """Refuse a drafter that does not speak the target's vocabulary or read its hidden states."""
    if drafter.vocab_size != target.vocab_size:
        raise InputError(
            f"drafter {drafter.id}: vocabulary of {drafter.vocab_size} tokens, but {target.id} has "
            f"{target.vocab_size}; a drafter must share its target's vocabulary"
        )
    if isinstance(drafter, DrafterSpec):
        expected = drafter.fusion.target_hidden_size
        if expected != target.hidden_size:
            raise InputError(
                f"drafter {drafter.id}: reads hidden states of {expected}, but {target.id} has "
                f"{target.hidden_size}; it was made for {drafter.target}"
            )


def draft_passes(drafter: Drafter, grid: Grid) -> tuple[list[Op], list[Op]]:
    """Return the kernels of the first draft pass and of each further one.

    The first pass runs over all 1 + D rows per sequence of the last verify pass, padded as the
    engines do by default, and makes logits for one; the D - 1 further passes run one row.
    """
    network, precision = drafter.network, drafter.precision
    if network is None or precision is None:
        return [], []
    first = decode(
        network,
        precision,
        drafter.placement,
        batch=grid.batch,
        context=grid.context,
        rows=grid.rows,
        head_rows=1.0,
    )
    further = decode(
        network,
        precision,
        drafter.placement,
        batch=grid.batch,
        context=grid.context,
        rows=np.ones((1, 1, 1)),
    )
    if isinstance(network, DrafterSpec):
        tokens = grid.batch * grid.rows
        first.insert(0, fusion(network, precision, drafter.placement, tokens=tokens))
        if network.fusion.every_pass:
            further.insert(0, fusion(network, precision, drafter.placement, tokens=grid.batch))
    return first, further
