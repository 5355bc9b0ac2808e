"""A deployment: what runs, on what, by which engine. It prices steps and counts memory.

`deploy` loads and checks what a `Configuration` names, and returns the `Deployment`.
Every question states, prices and refuses through it. Of acceptance it asks only whether it is
known, to choose a drafter where none is named.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from roofline.advice.configuration import (
    Configuration,
    Documents,
    Notices,
    check_configuration,
    load_documents,
    overridden,
)
from roofline.advice.drafter import drafter_of, model_names, unused_options
from roofline.advice.layout import as_split, check_layout, check_vendor, in_host, placement_of
from roofline.advice.precision import as_named, check_blocks, formats_of, with_supported_dtype
from roofline.base.errors import InputError, Option
from roofline.base.names import bundled_id
from roofline.base.notices import Code, Notice, notice
from roofline.base.numbers import Array
from roofline.engines.writing import DraftWeights, Launch
from roofline.specs.engine import ENGINE_SHELF, EngineProfile, Overhead, engine_parts
from roofline.specs.formats import Component
from roofline.specs.gpu import (
    HardwareProfile,
    HostProfile,
    clock_share,
    memory_share,
    with_power_limit,
)
from roofline.specs.network import LOOKUPS, ModelSpec
from roofline.specs.paths import (
    AttentionPath,
    GraphMode,
    Serving,
    execution_paths,
    graphs_on_path,
    matched,
    overhead_on_path,
)
from roofline.specs.placement import (
    Chunks,
    DrafterSeat,
    Grid,
    Placement,
    StateHandling,
    whole_chunks,
)
from roofline.specs.priors import priors, unknown_generation
from roofline.timing.drafters import Drafter
from roofline.timing.machine import Machine
from roofline.timing.memory import Memory, memory_for
from roofline.timing.step import StepTimes, Target, advisable, step_times
from roofline.timing.uncertainty import Drawn, grouped

if TYPE_CHECKING:
    from roofline.specs.overrides import AppliedOverride

__all__ = ["Deployment", "Needs", "PricedGrid", "deploy"]


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """A target and a drafter on accelerators, as one engine runs them."""

    gpu: HardwareProfile
    target: Target
    drafter: Drafter
    engine: EngineProfile
    host: HostProfile | None = None  # around the cards, where it plays a part
    #: Rows per sequence that a tree is verified with; None is a chain.
    verify_width: int | None = None
    #: The share of sequences that have drafts in a verify pass; below 1 where a lookup may miss.
    hit_rate: float | tuple[float, ...] = 1.0
    #: How the engine verifies drafts; None where the user or a measurement here says how.
    path: AttentionPath | None = None
    #: The accelerator as it is linked to those of another node, where stages lie on several.
    between_nodes: HardwareProfile | None = None
    changes: tuple[AppliedOverride, ...] = ()  # what overrides did
    unused: tuple[str, ...] = ()  # options given that say nothing for this drafter
    #: What it was made of; None where it was put together by hand.
    configuration: Configuration | None = None

    @property
    def columns(self) -> dict[str, str | int]:
        """What is asked about, by the columns of a row; weights are those of the MLP or experts."""
        target = self.target
        mixture = target.model.num_expert_layers > 0
        return {
            "model": target.model.id,
            "gpu": self.gpu.id,
            "engine": self.engine.reference,
            "tp": target.placement.tp,
            "gpus": self.cards,
            "ep": target.placement.ep,
            "drafter": self.drafter.name,
            "weights": target.precision.weights[
                Component.EXPERTS if mixture else Component.MLP
            ].value,
            "kv": target.precision.kv.value,
        }

    @property
    def cards(self) -> int:
        """Accelerators that the target lies on: all that is said or charged per GPU counts them."""
        return self.target.placement.cards

    @property
    def experimental(self) -> bool:
        """Whether it rests on what no run confirmed: stages, links or nodes, or a power cap."""
        asked = self.configuration
        return asked is not None and (asked.spread_out or asked.power_cap is not None)

    @property
    def model_names(self) -> list[str]:
        """What the model is called: its id, and its repository."""
        return model_names(self.target.model)

    @property
    def launch(self) -> Launch:
        """How the engine is started for it."""
        network = self.drafter.network
        named = (self.configuration.drafter if self.configuration is not None else None) or ""
        return Launch(
            engine=self.engine,
            drafter_kind=self.drafter.kind,
            weights=None
            if network is None
            else DraftWeights(
                name=network.id,
                repository=network.repository or network.published,
                file=named if named.endswith(".gguf") else None,
            ),
            draft_tp=self.drafter.placement.attention_tp,
            placement=self.target.placement,
            layers=self.target.model.num_layers,
            topk=self.drafter.topk,
            tree_rows=self.verify_width,
            stops_early=self.stops_early,
            memory=self.gpu.memory_bytes,
            generation=self.gpu.generation,
            captures_more=self.captures_more,
        )

    @property
    def captures_more(self) -> bool:
        """Whether graphs are asked for that the engine does not capture by itself."""
        asked = () if self.configuration is None else self.configuration.of_root("engine")
        return any(override.path == "engine.graphs.up_to" for override in asked)

    @property
    def stops_early(self) -> bool:
        """Whether drafts may end, or be verified, short of D."""
        return self.hit_rate != 1 and self.drafter.kind not in LOOKUPS

    @cached_property
    def machine(self) -> Machine:
        """The accelerator as the engine runs it."""
        overhead, local = self.engine.overhead, self.engine.local
        return Machine(
            self.gpu,
            self.engine.id,
            floor_scale=overhead.floor_scale,
            expert_floor_scale=overhead.expert_floor_scale,
            vector=overhead.vector_on(self.gpu.generation),
            host=self.host,
            copy_rows=local.copy_rows if local else 32,
            served=self.engine.kernels,
            tp=self.target.placement.attention_tp,
            between_nodes=self.between_nodes,
        )

    @cached_property
    def memory(self) -> Memory:
        """Where the bytes of one accelerator go."""
        return memory_for(self.target, self.drafter, self.gpu, self.engine.memory, self.host)

    def grid(
        self,
        batches: Sequence[int],
        contexts: Sequence[int],
        draft_lengths: Sequence[int],
        *,
        prefill_tokens: Array = 0.0,
        prefill_fullest: Array | None = None,
        prefill_per_step: float = 0.0,
        chunks: Chunks | None = None,
    ) -> Grid:
        """Return batches, contexts and draft lengths along their axes.

        ``prefill_tokens`` ride in every pass, as ``chunks`` where their prompts are known;
        ``prefill_per_step`` are a mean over passes, which rides as whole chunks in some of them, in
        all data-parallel groups at once.
        """
        share: Array = 1.0
        if prefill_per_step:
            groups = self.target.placement.dp
            prefill_tokens, share = whole_chunks(
                per_step=prefill_per_step,
                budget=groups * self.engine.memory.prefill_chunk,
                context=groups * np.reshape(np.asarray(contexts, dtype=np.float64), (1, -1, 1)),
            )
        return Grid.of(
            batches,
            contexts,
            draft_lengths,
            verify_width=self.verify_width,
            prefill_tokens=prefill_tokens,
            prefill_fullest=prefill_fullest,
            prefill_share=share,
            chunks=chunks,
            hit_rate=self.hit_rate,
            drafting_stops=self.stops_early
            and self.engine.early_stops is not None
            and self.engine.early_stops.drafting,
        )

    def price(self, grid: Grid) -> PricedGrid:
        """Price a grid, whether it fits or not."""
        engine, priced = self.engine, step_times
        if not self.target.placement.pipeline.plain:
            from roofline.timing.pipeline import pipelined_times

            priced = pipelined_times
        times = priced(
            self.target, self.drafter, grid, self.machine, engine.overhead, engine.graphs
        )
        return PricedGrid(deployment=self, grid=grid, times=times)


@dataclass(frozen=True, kw_only=True)
class PricedGrid:
    """What every point of a grid takes and holds, before anyone decides."""

    deployment: Deployment
    grid: Grid
    times: StepTimes

    @cached_property
    def fits(self) -> NDArray[np.bool_]:
        """Where the step fits in memory."""
        return self.deployment.memory.fits(self.grid)

    @property
    def timed(self) -> NDArray[np.bool_] | None:
        """Where draft lengths were timed, (batches, 1, 1); None where none were."""
        return None

    @property
    def candidates(self) -> NDArray[np.bool_]:
        """What fits and may be advised."""
        return self.fits & advisable(self.times.launches.captured)

    @cached_property
    def drawn(self) -> Drawn:
        """How far the step times may be off, drawn jointly for all draft lengths."""
        return grouped(self.times, self.grid, priors().spread)


class Needs(StrEnum):
    """What an option acts on."""

    EXPERTS = "experts"
    STATES = "recurrent states"
    DRAFTS = "drafts"
    STEP_TIMES = "step times"
    PUBLIC_RUNS = "what public runs lead to expect"


def deploy(
    configuration: Configuration, *, documents: Documents | None = None, drop_unused: bool = False
) -> tuple[Deployment, Notices]:
    """Load everything that is named and check that it belongs together.

    ``documents`` are those of a configuration that names the same, already loaded.

    Options that say nothing for the drafter are refused. With ``drop_unused`` they are ignored:
    where several drafters are asked about in turn, an option is for those that have it.
    """
    check_configuration(configuration)
    documents = documents or load_documents(configuration)
    if configuration.drafter is not None:
        called = documents.engine.kind_of(configuration.drafter)
        configuration = replace(configuration, drafter=called)
    check_vendor(documents.engine, documents.gpu)
    configuration, name_notices = as_named(configuration, documents)
    configuration = as_split(configuration, documents.engine)
    gpu, gpu_changes = overridden(documents.gpu, configuration.of_root("gpu"))
    model, model_changes = overridden(documents.model, configuration.of_root("model"))
    model, rate_notices = with_supported_dtype(gpu, model, configuration.activations)
    gpu, host = in_host(configuration, gpu, documents.engine)
    gpu, between = _as_linked(configuration, gpu, documents.engine)
    placement = placement_of(configuration, gpu, model, host)
    check_layout(configuration, placement, gpu, model)
    placement = _as_piped(configuration, placement, gpu, model)
    precision, format_notices = formats_of(
        model,
        gpu,
        documents.engine,
        weights=configuration.weights,
        activations=configuration.activations,
        kv=configuration.kv,
        field="weights",
    )
    serving = Serving(
        engine=documents.engine.id,
        version=documents.engine.runs_version,
        generation=gpu.generation,
        role="target",
        model=model.id,
        kv=precision.kv,
    )
    own = configuration.verify_attention or gpu.verify_attention
    tile_given = gpu.verify_attention is not None
    placement = execution_paths().placed(
        placement, model, serving, given=own is not None, tile_given=tile_given
    )
    graphs = graphs_on_path(documents.engine, serving)
    engine, engine_changes = _engine(
        configuration, documents.engine.model_copy(update={"graphs": graphs})
    )
    target = Target(model=model, precision=precision, placement=placement)
    check_blocks(engine, gpu, target)
    drafter, drafter_changes, drafter_notices = drafter_of(
        configuration, target, gpu, engine, drop_unused=drop_unused
    )
    drafter = _as_seated(configuration, drafter, placement)
    engine.check_drafter(drafter.kind)
    engine.check_groups(drafter.kind, dp=placement.dp)
    if drafter.network is not None:
        drafter = replace(
            drafter,
            placement=execution_paths().placed(
                drafter.placement,
                drafter.network,
                serving._replace(role="drafter"),
                given=own is not None,
                tile_given=tile_given,
            ),
        )
    own_times = engine.overhead
    if own_times == documents.engine.overhead and _bundled(configuration.engine):
        overhead = overhead_on_path(own_times, model, drafter.network, serving)
        engine = engine.model_copy(update={"overhead": overhead})
    if drafter.kind != "none":
        engine.check_tree(drafter.kind, topk=drafter.topk, rows=configuration.verify_width)
    # refuses a layout that the engine has no flags for
    engine.parallel_flags(tp=placement.tp, dp=placement.dp, ep=placement.ep)
    deployment = Deployment(
        gpu=gpu,
        target=target,
        drafter=drafter,
        engine=engine,
        host=host,
        verify_width=configuration.verify_width if drafter.kind != "none" else None,
        path=None if own is not None else execution_paths().of_most(model, serving, several=True),
        between_nodes=between,
        changes=(*gpu_changes, *model_changes, *engine_changes, *drafter_changes),
        unused=tuple(unused_options(configuration, drafter.kind, drafter.network)),
        configuration=configuration,
    )
    notices = (
        *documents.left_open,
        *rate_notices,
        *name_notices,
        *_engine_notices(engine, gpu, drafter.kind),
        *_path_notices(engine, own_times, deployment, serving),
        *_host_notices(configuration, host),
        *_gpu_notices(gpu),
        *_experimental_notices(configuration, target),
        *format_notices,
        *drafter_notices,
        *_idle_notices(configuration, deployment, drop_unused=drop_unused),
    )
    return deployment, tuple(dict.fromkeys(notices))


def _as_linked(
    configuration: Configuration, gpu: HardwareProfile, engine: EngineProfile
) -> tuple[HardwareProfile, HardwareProfile | None]:
    """Return the accelerator under its power cap with the links named, and between nodes."""
    if configuration.power_cap is not None:
        gpu = with_power_limit(gpu, configuration.power_cap)
    if not configuration.spread_out:
        return gpu, None
    from roofline.advice.links import between_nodes, linked

    gpu = linked(configuration, gpu, engine)
    return gpu, between_nodes(configuration, gpu)


def _as_piped(
    configuration: Configuration, placement: Placement, gpu: HardwareProfile, model: ModelSpec
) -> Placement:
    """Return the placement with the stages that were asked for."""
    if not configuration.spread_out:
        return placement
    from roofline.advice.links import piped

    return piped(configuration, placement, gpu, model)


def _as_seated(configuration: Configuration, drafter: Drafter, placement: Placement) -> Drafter:
    """Return the drafter where it was asked to lie."""
    if not configuration.spread_out:
        return drafter
    from roofline.advice.links import check_seat, seated

    check_seat(configuration, drafter)
    return seated(drafter, placement)


def _bundled(engine: str) -> bool:
    """Return whether an engine's times are those of this project, and not a user's own."""
    return bundled_id(engine_parts(engine)[0], ENGINE_SHELF) is not None


def _engine(
    configuration: Configuration, engine: EngineProfile
) -> tuple[EngineProfile, list[AppliedOverride]]:
    """Return the engine, with the user's own times around steps and share of memory."""
    engine = _with_overhead(engine, configuration.overhead_ms)
    share = configuration.memory_fraction
    if share is not None:
        if not 0 < share <= 1:
            raise InputError(
                "expected more than 0 and at most 1", field="memory_fraction", value=f"{share:g}"
            )
        memory = engine.memory.model_copy(update={"fraction": share})
        engine = engine.model_copy(update={"memory": memory})
    return overridden(engine, configuration.of_root("engine"))


def _with_overhead(engine: EngineProfile, times_ms: tuple[float, ...] | None) -> EngineProfile:
    """Return the engine with the user's own times around a step, a round and a draft pass [ms]."""
    if times_ms is None:
        return engine
    names = ("per_step", "per_spec_round", "per_draft_pass")
    if not 1 <= len(times_ms) <= len(names) or not all(0 <= time <= 1e4 for time in times_ms):
        raise InputError(
            "expected one to three numbers of ms: plain step, speculative round, draft pass "
            "(0.5,0.7,0.15)",
            field="overhead_ms",
        )
    update: dict[str, object] = {
        "source": "given",
        "note": str(Option("overhead_ms")),
        **{name: time / 1e3 for name, time in zip(names, times_ms, strict=False)},
    }
    if "per_spec_round" in update:  # as measured, with its sequences
        update |= {"per_spec_sequence": 0.0}
    if "per_draft_pass" in update:
        update |= {"draft_passes": {}, "model_pass_is_a_step": False}
    return engine.model_copy(update={"overhead": engine.overhead.model_copy(update=update)})


def _engine_notices(engine: EngineProfile, gpu: HardwareProfile, kind: str) -> Iterable[Notice]:
    """Say that the engine is newer or older than what was read, or another vendor's."""
    oldest = engine.read_from(kind)
    if oldest and kind != "none":
        read = f"{engine.name} {oldest}"
        yield notice(Code.ENGINE_OLDER, engine=f"{engine.name} {engine.asked_version}", read=read)
    if engine.beyond_known:
        known = f"{engine.name} {engine.newest}"
        yield notice(Code.ENGINE_NEWER, engine=f"{engine.name} {engine.asked_version}", known=known)
    remedy = engine.elsewhere.get(gpu.vendor)
    if remedy is not None:
        yield notice(Code.ENGINE_ELSEWHERE, engine=engine.name, vendor=gpu.vendor, remedy=remedy)


def _path_notices(
    engine: EngineProfile, own_times: Overhead, deployment: Deployment, serving: Serving
) -> Iterable[Notice]:
    """Say how verify passes run where the engine's choice makes them dearer."""
    added = engine.overhead.per_spec_round - own_times.per_spec_round
    if added <= 0 or deployment.drafter.kind == "none":
        return
    paths = [path for _, path in matched(deployment.target.model, serving, several=True) if path]
    outside = [path for path in paths if path.graph is not GraphMode.FULL]
    waiting = [path for path in paths if path.waits]
    found = next(iter(outside or waiting), None)
    if found is not None:
        yield notice(
            Code.OUTSIDE_GRAPH if outside else Code.HOST_WAITS,
            engine=engine.name,
            version=serving.version,
            backend=found.backend,
            kv=deployment.target.precision.kv.value,
            gpu=deployment.gpu.id,
            round_ms=1e3 * added,
            pass_ms=1e3 * (engine.overhead.per_draft_pass - own_times.per_draft_pass),
        )


def _idle_notices(
    configuration: Configuration, deployment: Deployment, *, drop_unused: bool
) -> Iterable[Notice]:
    """Say which options were given that cannot act on these networks, or on no drafts at all."""
    drafter, stated = deployment.drafter, priors().routing
    networks = [n for n in (deployment.target.model, drafter.network) if n is not None]
    there = {
        Needs.EXPERTS: any(network.num_expert_layers for network in networks),
        Needs.STATES: any(network.has_state for network in networks),
        Needs.DRAFTS: drafter.kind != "none" or drop_unused,
    }
    routing = configuration.routing
    skewed = routing is not None and routing.skew != stated.skew
    correlated = routing is not None and routing.correlation != stated.correlation
    replayed = configuration.state_handling is not StateHandling.SNAPSHOTS
    read = configuration.verify_attention is not None
    for field, given, needed in (
        ("routing_skew", skewed, (Needs.EXPERTS,)),
        ("routing_correlation", correlated, (Needs.EXPERTS, Needs.DRAFTS)),
        ("ep", configuration.ep > 1, (Needs.EXPERTS,)),
        ("state_handling", replayed, (Needs.STATES, Needs.DRAFTS)),
        ("verify_attention", read, (Needs.DRAFTS,)),
    ):
        missing = next((needs for needs in needed if not there[needs]), None)
        if given and missing is not None:
            yield notice(
                Code.CHANGES_NOTHING, field=field, needs=missing, network=deployment.target.model.id
            )


def _host_notices(configuration: Configuration, host: HostProfile | None) -> Iterable[Notice]:
    """Say which machine stands in where none was named."""
    if host is None or configuration.host is not None:
        return []
    return [notice(Code.HOST_ASSUMED, host=host.id, name=host.name)]


def _experimental_notices(configuration: Configuration, target: Target) -> Iterable[Notice]:
    """Say of what was asked for that it is experimental, and on what it rests."""
    if not configuration.spread_out:
        return
    stated, pipeline = priors().pipeline, target.placement.pipeline
    if pipeline.stages > 1:
        yield notice(
            Code.EXPERIMENTAL_STAGES,
            stages=pipeline.stages,
            plain_ms=1e3 * stated.plain,
            drafting_ms=1e3 * stated.drafting,
            factor=math.exp(NORMAL_80 * stated.spread),
            launches=target.model.has_state,
        )
    if pipeline.seat is DrafterSeat.OWN:
        yield notice(Code.EXPERIMENTAL_DRAFTER_GPU, wait_ms=1e3 * stated.plain)
    if configuration.nodes > 1:
        given = configuration.internode
        yield notice(
            Code.EXPERIMENTAL_NODES,
            nodes=configuration.nodes,
            rate=stated.internode if given is None else given,
            assumed=given is None,
        )
    if configuration.link is not None:
        yield notice(Code.EXPERIMENTAL_LINK, link=configuration.link)


#: Standard deviations of a normal number that hold four of five draws.
NORMAL_80 = 1.2816


def _gpu_notices(gpu: HardwareProfile) -> Iterable[Notice]:
    if gpu.status == "pre-release":
        yield notice(Code.PRE_RELEASE, gpu=gpu.id)
    if not gpu.calibration:
        yield from unknown_generation(gpu.id, gpu.generation)
    if gpu.power_share < 1:
        yield notice(
            Code.POWER_LIMITED,
            gpu=gpu.id,
            clock=clock_share(gpu.power_share),
            memory=memory_share(gpu.power_share),
        )
