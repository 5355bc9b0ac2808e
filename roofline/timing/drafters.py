"""What drafting costs: the passes that a drafter makes before each verify pass, by its kind.

A drafter is one of: none; n-gram or suffix (a lookup on the host); a head on the target's hidden
states (EAGLE-1 and -3, MTP, Medusa, block drafters); a separate model. A chain (a separate model,
EAGLE-1 and -3, MTP) makes D passes one after the other: the first over the rows of the last verify
pass, each further one over one row per sequence (``topk`` in a tree). A block drafter (DFlash,
DSpark, Domino, P-EAGLE) makes one pass over a block that is fixed when it is deployed; DSpark and
Domino then run a small head once for each token. Medusa's heads all read the target's last hidden
state. Each pass of logits is charged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from roofline.base.numbers import Array
from roofline.kernels.forward import Op, decode, fusion, head_kernels, matrix
from roofline.kernels.matrices import Linear, medusa_linears
from roofline.specs.formats import Component, DType, Precision
from roofline.specs.network import (
    DrafterSpec,
    ModelSpec,
    NetworkSpec,
)
from roofline.specs.placement import Grid, Placement

__all__ = [
    "BLOCK_KINDS",
    "ONE_PASS_KINDS",
    "Drafter",
    "block_rows",
    "deepest",
    "draft_passes",
    "further_passes",
    "launches",
    "passes",
    "prompt_rows",
    "shares_formats",
]

#: Kinds whose draft comes from one pass over a block.
BLOCK_KINDS = ("dflash", "dspark", "domino", "peagle")
#: Kinds that draft all tokens in one pass: from a block, or from a head for each.
ONE_PASS_KINDS = (*BLOCK_KINDS, "medusa")
ONE_ROW = np.ones((1, 1, 1))


def launches(kind: str, draft_length: Array) -> Array:
    """Return how many passes the engine launches for a draft: D of a chain, 1 of a block.

    >>> float(launches("eagle3", 3.0)), float(launches("dflash", 15.0)), float(launches("ngram", 8))
    (3.0, 1.0, 0.0)
    """
    drafting = np.asarray(draft_length) > 0
    if kind in ("none", "ngram", "suffix"):
        return np.asarray(0.0 * drafting)
    if kind in ONE_PASS_KINDS:
        return np.asarray(1.0 * drafting)
    return np.asarray(draft_length, dtype=np.float64)


def further_passes(kind: str, grid: Grid) -> Array:
    """Return how often what follows the first draft pass is run: D - 1 but where a chain stops.

    Heads that go on token by token inside one pass finish their block.
    """
    if kind in ONE_PASS_KINDS:
        return np.maximum(grid.draft_length - 1, 0)
    return grid.further_passes


def block_rows(network: DrafterSpec, block: int | None, grid: Grid) -> Array:
    """Return the rows of a block drafter's pass: its block, or D where it has none of its own."""
    return np.maximum(float(block or network.block_size or 1), grid.draft_length)


def passes(
    network: NetworkSpec,
    precision: Precision,
    placement: Placement,
    grid: Grid,
    *,
    topk: int = 1,
    block: int | None = None,
    first_rows: float | None = None,
) -> tuple[list[Op], list[Op]]:
    """Return the kernels of the first draft pass, and of each of the D - 1 further ones.

    ``first_rows`` per sequence are run by engines that do not pad the first pass to 1 + D.
    """
    kind = network.kind if isinstance(network, DrafterSpec) else "model"
    if isinstance(network, DrafterSpec) and kind == "medusa":
        return _medusa(network, precision, placement, grid)
    if isinstance(network, DrafterSpec) and kind in BLOCK_KINDS:
        return _block(network, precision, placement, grid, block)
    batch = placement.local_batch(grid.batch)
    verified = 1 + grid.draft_length if first_rows is None else first_rows + 0 * grid.draft_length
    prompts, fullest = prompt_rows(grid, placement)
    first = decode(
        network,
        precision,
        placement,
        batch=grid.batch,
        context=grid.context,
        rows=verified,
        head_rows=1.0,
        extra_rows=prompts,
        local_extra_rows=fullest,
    )
    further = decode(
        network,
        precision,
        placement,
        batch=grid.batch,
        context=grid.context,
        rows=topk * ONE_ROW,
    )
    if isinstance(network, DrafterSpec):
        tokens = batch * verified + fullest
        first.insert(0, fusion(network, precision, placement, tokens=tokens))
        if network.fusion.every_pass:
            further.insert(0, fusion(network, precision, placement, tokens=topk * batch))
    return first, further


def prompt_rows(grid: Grid, placement: Placement) -> tuple[Array, Array]:
    """Return the prompt tokens that the first draft pass sees, of all groups and of the fullest.

    A drafter reads every token of a prompt that its target reads: a separate model as a prompt of
    its own, a head with the states that the target made of it. None where no prompts are known.
    """
    if grid.chunks is None:
        return 0.0, 0.0
    return grid.prefill_tokens, grid.local_extra_rows(placement)


def _block(
    network: DrafterSpec,
    precision: Precision,
    placement: Placement,
    grid: Grid,
    block: int | None,
) -> tuple[list[Op], list[Op]]:
    """Return the pass over the block, and one step of the head that goes token by token.

    The tapped states of the 1 + D rows just verified, and of prompts, are projected as well.
    """
    rows = block_rows(network, block, grid)
    first = decode(network, precision, placement, batch=grid.batch, context=grid.context, rows=rows)
    batch = placement.local_batch(grid.batch)
    tokens = batch * (1 + grid.draft_length) + prompt_rows(grid, placement)[1]
    first.insert(0, fusion(network, precision, placement, tokens=tokens))
    if not network.side_parameters:
        return first, []
    side = _side_step(network, precision, placement, batch)
    return [*first, *side], side


def _side_step(
    network: DrafterSpec, precision: Precision, placement: Placement, batch: Array
) -> list[Op]:
    """Return one token of a Markov or recurrent head: half its numbers are its output matrix."""
    vocabulary = network.draft_vocab_size
    linear = Linear(
        name="side_head",
        component=Component.HEAD,
        inputs=max(network.side_parameters // (2 * vocabulary), 1),
        outputs=-(-vocabulary // placement.attention_tp),
    )
    step = [matrix(network, precision, placement, linear, tokens=batch)]
    return step + head_kernels(network, precision, placement, tokens=batch, product=False)


def _medusa(
    network: DrafterSpec, precision: Precision, placement: Placement, grid: Grid
) -> tuple[list[Op], list[Op]]:
    """Return one of Medusa's heads twice: the first, and each further one beside it."""
    batch = placement.local_batch(grid.batch)
    blocks = [
        matrix(network, precision, placement, linear, tokens=batch)
        for linear in medusa_linears(network)
    ]
    head = blocks + head_kernels(network, precision, placement, tokens=batch)
    return [replace(op) for op in head], head


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


def shares_formats(network: NetworkSpec, weights: Mapping[Component, DType]) -> NetworkSpec:
    """Return a head that uses its target's vocabulary projection in the format it is stored in."""
    if not isinstance(network, DrafterSpec) or not network.shares_head:
        return network
    dtypes = {**network.dtypes, Component.HEAD: weights[Component.HEAD]}
    return network.model_copy(update={"dtypes": dtypes})


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

    >>> from roofline.specs.network import load_drafter
    >>> deepest(load_drafter("llama-3.1-8b-eagle3")) is None
    True
    """
    if not isinstance(network, DrafterSpec):
        return None
    if network.kind == "medusa":
        return network.heads
    size = block or network.block_size
    # DFlash's and Domino's block holds the token it starts from, DSpark's only what it drafts
    return size and size - (network.kind in ("dflash", "domino"))
