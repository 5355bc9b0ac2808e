"""What prompts cost in a pass beyond their rows in its matrices: attention, recurrences, drafters.

The rows of chunks pass the matrices with the decoding ones (``extra_rows`` in `kernels.forward`).
Here are the kernels that see which prompt a row belongs to.
"""

from __future__ import annotations

import numpy as np

from roofline.kernels.forward import prompt_mixing
from roofline.kernels.ops import Op
from roofline.specs.formats import Precision
from roofline.specs.network import NetworkSpec
from roofline.specs.placement import Chunks, Placement
from roofline.timing.drafters import ONE_PASS_KINDS, Drafter
from roofline.timing.machine import Machine, OpTime, time_ops

__all__ = ["draft_prompt_ops", "prompt_ops", "time_prompts"]


def prompt_ops(
    network: NetworkSpec, precision: Precision, placement: Placement, chunks: Chunks
) -> list[Op]:
    """Return the kernels of a pass that read the chunks' own prompts."""
    return prompt_mixing(
        network,
        precision,
        placement,
        prompts=np.maximum(chunks.number, 1.0),
        tokens=np.maximum(chunks.tokens, 1.0),
        before=chunks.before,
    )


def draft_prompt_ops(drafter: Drafter, chunks: Chunks) -> list[Op]:
    """Return the same kernels of the drafter, which keeps a cache of every prompt token.

    Drafters of one pass only project the target's states: their own attention is over a block.
    """
    if drafter.network is None or drafter.precision is None or drafter.kind in ONE_PASS_KINDS:
        return []
    return prompt_ops(drafter.network, drafter.precision, drafter.placement, chunks)


def time_prompts(kernels: list[Op], chunks: Chunks, machine: Machine) -> list[OpTime]:
    """Return how long they take; nothing in a pass without chunks."""
    there = np.asarray(chunks.number) > 0
    return [
        time._replace(each=np.where(there, time.each, 0.0)) for time in time_ops(kernels, machine)
    ]
