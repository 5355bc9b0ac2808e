"""The passes that a drafter makes before each verify pass, kind by kind.

A chain (a separate model, EAGLE-1 and -3, MTP) makes D passes one after the other: the first over
the rows of the last verify pass, each further one over one row per sequence (``topk`` in a tree).
A block drafter (DFlash, DSpark, Domino, P-EAGLE) makes one pass over a block that is fixed when it
is deployed; DSpark and Domino then run a small head once for each token. Medusa's heads all read
the target's last hidden state. Whatever is drafted, each pass of logits is charged.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from roofline.kernels.formulas import Array
from roofline.kernels.forward import Op, decode, fusion, head_kernels, matrix
from roofline.kernels.matrices import Linear, medusa_linears
from roofline.specs.formats import Component, Precision
from roofline.specs.network import DrafterSpec, NetworkSpec
from roofline.specs.placement import Grid, Placement

__all__ = ["BLOCK_KINDS", "block_rows", "launches", "passes"]

#: Kinds whose draft comes from one pass over a block.
BLOCK_KINDS = ("dflash", "dspark", "domino", "peagle")
ONE_ROW = np.ones((1, 1, 1))


def launches(kind: str, draft_length: Array) -> Array:
    """Return how many passes the engine launches for a draft: D of a chain, 1 of a block.

    >>> float(launches("eagle3", 3.0)), float(launches("dflash", 15.0)), float(launches("ngram", 8))
    (3.0, 1.0, 0.0)
    """
    drafting = np.asarray(draft_length) > 0
    if kind in ("none", "ngram", "suffix"):
        return np.asarray(0.0 * drafting)
    if kind in (*BLOCK_KINDS, "medusa"):
        return np.asarray(1.0 * drafting)
    return np.asarray(draft_length, dtype=np.float64)


def block_rows(network: DrafterSpec, block: int | None, grid: Grid) -> Array:
    """Return the rows of a block drafter's pass: its block, or D where it has none of its own."""
    own = block or network.block_size
    return np.maximum(float(own or 1), grid.draft_length)


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
    batch = placement.local(grid.batch)
    verified = 1 + grid.draft_length if first_rows is None else first_rows + 0 * grid.draft_length
    first = decode(
        network,
        precision,
        placement,
        batch=grid.batch,
        context=grid.context,
        rows=verified,
        head_rows=1.0,
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
        tokens = batch * verified
        first.insert(0, fusion(network, precision, placement, tokens=tokens))
        if network.fusion.every_pass:
            further.insert(0, fusion(network, precision, placement, tokens=topk * batch))
    return first, further


def _block(
    network: DrafterSpec,
    precision: Precision,
    placement: Placement,
    grid: Grid,
    block: int | None,
) -> tuple[list[Op], list[Op]]:
    """Return the pass over the block, and one step of the head that goes token by token.

    The tapped states of the 1 + D rows just verified are projected as well.
    """
    rows = block_rows(network, block, grid)
    first = decode(network, precision, placement, batch=grid.batch, context=grid.context, rows=rows)
    batch = placement.local(grid.batch)
    tokens = batch * (1 + grid.draft_length)
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
    batch = placement.local(grid.batch)
    blocks = [
        matrix(network, precision, placement, linear, tokens=batch)
        for linear in medusa_linears(network)
    ]
    head = blocks + head_kernels(network, precision, placement, tokens=batch)
    return [replace(op) for op in head], head
