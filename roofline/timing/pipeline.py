"""Pipeline stages: what a step takes where an engine divides the layers over them. Experimental.

The stages of a pass work one after the other, so its kernels take as long as on one stage. Between
two stages the next one is launched and waits for its input, hidden states cross a link, and at the
end the tokens go back to the first. With several micro-batches under way the stages work at once,
each on another part of the sequences. Nobody has timed the stages of a run by themselves: launches
and waits are assumed (``pipeline`` in ``data/priors.yaml``) and as uncertain as that says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from roofline.base.numbers import Array
from roofline.kernels.ops import Kind, Op, Part
from roofline.specs.engine import Graphs, Overhead
from roofline.specs.formats import bytes_per_element
from roofline.specs.network import DrafterSpec
from roofline.specs.placement import DrafterSeat, Grid, Pipeline
from roofline.specs.priors import priors
from roofline.timing.drafters import Drafter
from roofline.timing.lawbook import Chosen
from roofline.timing.laws.simple import KernelTime
from roofline.timing.machine import Machine, OpTime, time_op
from roofline.timing.step import StepTimes, Target, by_hand_seconds, step_times

__all__ = ["layers_of_stages", "pipelined_times", "waits_and_launches", "with_others"]

#: Tensors that go from one stage to the next for each row: hidden states, and what the next norm
#: adds to them (vLLM and SGLang, ``IntermediateTensors`` and ``PPProxyTensors``).
TENSORS = 2
TOKEN_ID = 8.0  # of a token on its way back to the first stage [B]
#: Messages back to the first stage: the tokens, and with drafts their counts and the next drafts
#: (vLLM pull request 47686 counts three broadcasts a step).
PLAIN_MESSAGES, DRAFT_MESSAGES = 1, 2
#: Kernels of a pass that are not in its layers: on the first stage, and on the last one.
FIRST, LAST = ("embedding",), ("final_norm", "lm_head", "logits_gather", "sampling")
#: What a pass adds where an engine divides it: not kernels, but waits and launches by the host.
HOST = ("stage_wait", "stage_launch", "drafter_wait")
Times = NDArray[np.float64]


def layers_of_stages(layers: int, stages: int) -> tuple[int, ...]:
    """Return how many layers each stage gets: as many each, one more of the last but one backwards.

    vLLM, ``get_pp_indices`` (distributed/utils.py): the last stage has the head and comes last, so
    does the first one.

    >>> layers_of_stages(61, 4), layers_of_stages(7, 3), layers_of_stages(5, 1)
    ((15, 15, 16, 15), (2, 3, 2), (5,))
    """
    counts = [layers // stages] * stages
    for extra in range(layers % stages):
        counts[-2 - extra] += 1
    return tuple(counts)


def with_others(*, alone: Array, slowest: Array, in_flight: Array) -> Array:
    """Return the time between two steps of one micro-batch: max(alone, M slowest) [s].

    ``alone`` is the time of its step with the pipeline to itself, ``slowest`` that of the slowest
    stage for one micro-batch. With M under way the stage is busy M times in a step of each; fewer
    than fill it change nothing. Four stages of 5 ms:

    >>> [float(with_others(alone=20e-3, slowest=5e-3, in_flight=m)) for m in (1, 4, 8)]
    [0.02, 0.02, 0.04]
    """
    return np.asarray(np.maximum(alone, in_flight * np.asarray(slowest)))


def pipelined_times(  # noqa: PLR0917 - as step_times
    target: Target,
    drafter: Drafter,
    grid: Grid,
    machine: Machine,
    overhead: Overhead,
    graphs: Graphs | None = None,
) -> StepTimes:
    """Return the time of a step, of which each stage runs its own layers.

    With several micro-batches the batches of the grid are shared out among them; what a micro-batch
    waits for the others is part of the engine's time.
    """
    pipeline = target.placement.pipeline
    whole = target._replace(placement=replace(target.placement, pipeline=Pipeline()))
    part = replace(grid, batch=np.ceil(grid.batch / pipeline.in_flight))
    times = step_times(whole, drafter, part, machine, overhead, graphs)
    added = _added(target, drafter, part, machine, graphs, times)
    verify = _total(times.verify, added)
    alone = verify + times.draft + times.overhead
    slowest = _slowest_stage(target, times, added) + times.overhead
    under_way = np.ceil(grid.batch / part.batch)  # fewer sequences than micro-batches: one each
    waiting = with_others(alone=alone, slowest=slowest, in_flight=under_way) - alone
    parts = {name: np.array(seconds) for name, seconds in times.parts.items()}
    for time in added:
        parts[time.op.part.value] = parts[time.op.part.value] + time.total
    parts[Part.OTHER.value] = parts[Part.OTHER.value] + waiting
    return times._replace(
        verify=verify,
        overhead=np.asarray(times.overhead + waiting),
        parts=parts,
        verify_ops=[*times.verify_ops, *added],
    )


def waits_and_launches(times: StepTimes) -> Times:
    """Return what a step waits for stages and launches them, in all [s]."""
    return _total(np.zeros_like(times.verify), [t for t in times.verify_ops if t.op.name in HOST])


def _added(  # noqa: PLR0917
    target: Target,
    drafter: Drafter,
    grid: Grid,
    machine: Machine,
    graphs: Graphs | None,
    times: StepTimes,
) -> list[OpTime]:
    """Return what a step takes beyond the kernels of its stages."""
    pipeline, stated = target.placement.pipeline, priors().pipeline
    drafting = grid.draft_length > 0
    added = []
    if pipeline.stages > 1:
        between = pipeline.stages - 1
        wait = np.where(drafting, stated.drafting, stated.plain)
        added += [
            _host(target, "stage_wait", wait, count=between),
            *_hops(target, grid, machine),
            *_messages(target, grid, machine),
        ]
        if target.model.has_state and graphs is not None:
            kernels = sum(time.op.count for time in times.verify_ops)
            launches = by_hand_seconds(
                kernels=kernels,
                busy=times.verify,
                each=graphs.eager_launch,
                captured=np.broadcast_to(~drafting, grid.shape),
            )
            added.append(_host(target, "stage_launch", launches))
    if pipeline.seat is DrafterSeat.OWN:
        twice = np.where(drafting, stated.plain, 0.0)
        added.append(_host(target, "drafter_wait", twice, count=2))
        added.append(_to_drafter(target, drafter, grid, machine))
    return added


def _hops(target: Target, grid: Grid, machine: Machine) -> list[OpTime]:
    """Return the hidden states' way from stage to stage, inside a node and between nodes.

    Each of the ranks of a stage sends its share.
    """
    placement = target.placement
    rows = placement.local_batch(grid.batch) * grid.rows + grid.local_extra_rows(placement)
    base = bytes_per_element(target.precision.base)
    bytes = TENSORS * rows * target.model.hidden_size * base / placement.attention_tp
    between_nodes = placement.pipeline.nodes - 1 if machine.between_nodes is not None else 0
    inside = placement.pipeline.stages - 1 - between_nodes
    hops = []
    if inside:
        hops.append(_over_link(target, "stage_hop", bytes, machine, count=inside))
    if between_nodes and machine.between_nodes is not None:
        across = replace(machine, gpu=machine.between_nodes)
        hops.append(_over_link(target, "node_hop", bytes, across, count=between_nodes))
    return hops


def _messages(target: Target, grid: Grid, machine: Machine) -> list[OpTime]:
    """Return the messages from the last stage to all others, through the slower of the links."""
    pipeline, drafts = target.placement.pipeline, grid.draft_length
    bytes = target.placement.local_batch(grid.batch) * (1 + drafts) * TOKEN_ID
    slower = replace(machine, gpu=machine.between_nodes or machine.gpu)
    everywhere = pipeline.seat is DrafterSeat.ALL
    with_drafts = np.where(drafts > 0, DRAFT_MESSAGES - everywhere, 0.0)
    back = _over_link(target, "tokens_back", bytes, slower, count=pipeline.stages - 1)
    again = back._replace(op=replace(back.op, name="drafts_back"), each=back.each * with_drafts)
    return [back, again._replace(time=_fixed(again.each))]


def _to_drafter(target: Target, drafter: Drafter, grid: Grid, machine: Machine) -> OpTime:
    """Return what goes to a drafter on a GPU of its own, and its drafts back: two messages.

    A head gets the hidden states that it taps of every row; others get the tokens.
    """
    rows = grid.batch * (1 + grid.draft_length)
    bytes = rows * TOKEN_ID
    if isinstance(drafter.network, DrafterSpec):
        tapped = drafter.network.fusion.taps * target.model.hidden_size
        bytes = bytes + rows * tapped * bytes_per_element(target.precision.base)
    sent = _over_link(target, "to_drafter", bytes, machine, count=2)
    each = np.where(grid.draft_length > 0, sent.each, 0.0)
    return sent._replace(each=each, time=_fixed(each))


def _over_link(target: Target, name: str, bytes: Array, machine: Machine, *, count: int) -> OpTime:
    """Return how long so many bytes take over the machine's link, ``count`` times."""
    op = _op(target, name, bytes, count=count, part=Part.COMMUNICATION)
    time = time_op(op, machine)
    spread = priors().pipeline.spread
    return time._replace(chosen=time.chosen._replace(evidence=None, spread=spread))


def _host(target: Target, name: str, seconds: Array, *, count: int = 1) -> OpTime:
    """Return what the host takes while every stage waits."""
    stated = priors().pipeline
    op = _op(target, name, 0.0, count=count, part=Part.OTHER)
    chosen = Chosen(law=None, provenance="assumed", detail="stages", spread=stated.spread)
    return OpTime(op=op, time=_fixed(seconds), each=np.asarray(seconds), chosen=chosen)


def _fixed(seconds: Array) -> KernelTime:
    nothing = np.zeros_like(np.asarray(seconds, dtype=np.float64))
    return KernelTime(floor=seconds, memory=nothing, compute=nothing, total=seconds)


def _op(target: Target, name: str, bytes: Array, *, count: int, part: Part) -> Op:
    base = target.precision.base
    return Op(
        name=name,
        kind=Kind.COPY,
        part=part,
        compute=base,
        storage=base,
        flops=0.0,
        bytes=bytes,
        rows=0.0,
        count=count,
    )


def _total(seconds: Times, added: list[OpTime]) -> Times:
    return np.asarray(seconds + sum(np.asarray(time.total) for time in added))


def _slowest_stage(target: Target, times: StepTimes, added: list[OpTime]) -> Times:
    """Return the time of the slowest stage for one pass, its drafts and the wait before it [s].

    Kinds of layers count as evenly mixed, as for memory.
    """
    pipeline = target.placement.pipeline
    if pipeline.stages == 1:
        return _total(times.verify + times.draft, added)
    groups: Mapping[str, list[OpTime]] = {"first": [], "last": [], "layers": []}
    for time in times.verify_ops:
        where = "first" if time.op.name in FIRST else "last" if time.op.name in LAST else "layers"
        groups[where].append(time)
    zero = np.zeros_like(times.verify)
    first, last, layers = (_total(zero, groups[name]) for name in ("first", "last", "layers"))
    counts = target.placement.split.layers
    own = [layers * (count / sum(counts)) for count in counts]
    own[0] = own[0] + first
    own[-1] = own[-1] + last
    match pipeline.seat:
        case DrafterSeat.OWN:
            own.append(times.draft)
        case DrafterSeat.ALL:
            own = [stage + times.draft for stage in own]
        case DrafterSeat.LAST:
            own[-1] = own[-1] + times.draft
    each = [time.each for time in added if time.op.name in ("stage_wait", "stage_hop")]
    launch = [time.each / len(own) for time in added if time.op.name == "stage_launch"]
    return np.asarray(np.maximum.reduce(own) + sum([*each, *launch], start=zero))
