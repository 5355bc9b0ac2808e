"""A deployment: what runs, on what, by which engine. It prices steps and counts memory.

`deploy` loads and checks what a `Configuration` names, and returns the `Deployment`.
Every question states, prices and refuses through it. Of acceptance it asks only whether it is
known, to choose a drafter where none is named.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from roofline.advice.configuration import Configuration, check_configuration
from roofline.advice.drafter_choice import (
    default_drafter,
    model_names,
    no_drafter_known,
)
from roofline.base.errors import InputError, Option
from roofline.base.names import bundled_id, on_shelf
from roofline.base.notices import Code, Notice, notice
from roofline.base.numbers import Array
from roofline.base.units import listed
from roofline.engines.writing import DraftWeights, Launch
from roofline.importers.references import (
    head_for,
    importable,
    open_drafter,
    open_model,
)
from roofline.kernels.forward import cpu_expert_layers
from roofline.kernels.matrices import Side, check_parallel, divided_sides, used_components
from roofline.specs.engine import (
    ENGINE_SHELF,
    EngineProfile,
    Overhead,
    engine_id,
    engine_parts,
    load_engine,
)
from roofline.specs.formats import (
    LAYER_LINEARS,
    Component,
    DType,
    Precision,
    few_bits,
    is_gguf,
    nearest_format,
    rate_name,
    resolve_precision,
)
from roofline.specs.gpu import (
    DEFAULT_HOST,
    GPU_SHELF,
    HardwareProfile,
    HostProfile,
    VerifyMode,
    clock_share,
    linked_through_host,
    load_hardware,
    load_host,
    memory_share,
)
from roofline.specs.network import (
    DERIVED_SOURCE,
    LOOKUPS,
    DrafterSpec,
    ModelSpec,
    NetworkSpec,
    network_named,
)
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
    Grid,
    Placement,
    Routing,
    Split,
    SplitMode,
    StateHandling,
    VerifyAttention,
    whole_chunks,
)
from roofline.specs.priors import priors, unknown_generation
from roofline.timing.drafters import BLOCK_KINDS, Drafter, shares_formats
from roofline.timing.machine import Machine
from roofline.timing.memory import Memory, memory_for
from roofline.timing.step import StepTimes, Target, advisable, step_times
from roofline.timing.uncertainty import Drawn, grouped

if TYPE_CHECKING:
    from roofline.base.schema import Document
    from roofline.specs.overrides import AppliedOverride, Override

__all__ = [
    "Deployment",
    "Documents",
    "Needs",
    "Notices",
    "PricedGrid",
    "deploy",
    "load_documents",
    "ships_as",
]


Notices = tuple[Notice, ...]


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
    ) -> Grid:
        """Return batches, contexts and draft lengths along their axes.

        ``prefill_tokens`` ride in every pass; ``prefill_per_step`` are a mean over passes, which
        rides as whole chunks in some of them, in all data-parallel groups at once.
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
            hit_rate=self.hit_rate,
            drafting_stops=self.stops_early
            and self.engine.early_stops is not None
            and self.engine.early_stops.drafting,
        )

    def price(self, grid: Grid) -> PricedGrid:
        """Price a grid, whether it fits or not."""
        engine = self.engine
        times = step_times(
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


class Documents(NamedTuple):
    """What a configuration names, as loaded: before anything of it is overridden."""

    gpu: HardwareProfile
    model: ModelSpec
    engine: EngineProfile
    left_open: Notices  # what an imported config left open


def load_documents(configuration: Configuration) -> Documents:
    """Load the accelerator, the model and the engine that a configuration names."""
    model, left_open = open_model(configuration.model)
    return Documents(
        gpu=load_hardware(configuration.gpu),
        model=model,
        engine=load_engine(configuration.engine),
        left_open=tuple(left_open),
    )


def deploy(
    configuration: Configuration,
    *,
    documents: Documents | None = None,
    drop_unused: bool = False,
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
    _check_vendor(documents.engine, documents.gpu)
    configuration, name_notices = _as_named(configuration, documents)
    configuration = _as_split(configuration, documents.engine)
    gpu, gpu_changes = _overridden(documents.gpu, configuration.of_root("gpu"))
    model, model_changes = _overridden(documents.model, configuration.of_root("model"))
    model, rate_notices = _with_supported_dtype(gpu, model, configuration.activations)
    gpu, host = _in_host(configuration, gpu, documents.engine)
    placement = _placement(configuration, gpu, model, host)
    _check_layout(configuration, placement, gpu, model)
    precision, format_notices = _precision(
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
    _check_blocks(engine, gpu, target)
    drafter, drafter_changes, drafter_notices = _drafter(
        configuration, target, gpu, engine, drop_unused=drop_unused
    )
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
    engine.check_tree(drafter.kind, topk=drafter.topk)
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
        changes=(*gpu_changes, *model_changes, *engine_changes, *drafter_changes),
        unused=tuple(_unused(configuration, drafter.kind, drafter.network)),
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
        *format_notices,
        *drafter_notices,
        *_idle_notices(configuration, deployment, drop_unused=drop_unused),
    )
    return deployment, tuple(dict.fromkeys(notices))


def _bundled(engine: str) -> bool:
    """Return whether an engine's times are those of this project, and not a user's own."""
    return bundled_id(engine_parts(engine)[0], ENGINE_SHELF) is not None


def _with_supported_dtype(
    gpu: HardwareProfile, model: ModelSpec, activations: DType | None
) -> tuple[ModelSpec, Notices]:
    """Return the model in the other 16-bit format where the part has no rate for its own.

    Engines do the same: vLLM and llama.cpp run a bf16 model in fp16 on a V100 or T4.
    """
    other = {DType.FP16: DType.BF16, DType.BF16: DType.FP16}.get(model.dtype)
    if activations is not None or other is None or model.dtype.value in gpu.rates:
        return model, ()
    if other.value not in gpu.rates:
        return model, ()
    in_other = model.model_copy(update={"dtype": other})
    return in_other, (notice(Code.NO_OWN_RATE, gpu=gpu.id, dtype=model.dtype, other=other),)


Overridden = TypeVar("Overridden", bound="Document")


def _overridden(
    document: Overridden, overrides: list[Override]
) -> tuple[Overridden, list[AppliedOverride]]:
    """Return a document with what was put in place of its own values, where anything was."""
    if not overrides:
        return document, []
    from roofline.specs.overrides import apply_overrides

    return apply_overrides(document, overrides)


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
    return _overridden(engine, configuration.of_root("engine"))


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


def _as_split(configuration: Configuration, engine: EngineProfile) -> Configuration:
    """Return TP as a tensor split where the engine shares a model among cards of one machine."""
    if engine.local is None or configuration.tp == 1 or configuration.gpus > 1:
        return configuration
    if configuration.split not in (None, SplitMode.TENSOR):
        cards, other = Option("gpus", configuration.tp), configuration.split.value
        raise InputError(
            f"is {cards} {Option('split', 'tensor')} with {engine.name}; for "
            f"{Option('split', other)} give {cards} alone",
            field="tp",
            value=configuration.tp,
        )
    return replace(configuration, tp=1, gpus=configuration.tp, split=SplitMode.TENSOR)


def _in_host(
    configuration: Configuration, gpu: HardwareProfile, engine: EngineProfile
) -> tuple[HardwareProfile, HostProfile | None]:
    """Return the card as it sits in its host, and the host where the question needs one."""
    host_id, gpus, cpu_experts = configuration.host, configuration.gpus, configuration.cpu_experts
    if host_id == "":
        raise InputError("expected a bundled id or the path of a YAML file", field="host")
    if gpus < 1:
        raise InputError("expected at least 1", field="gpus", value=gpus)
    if gpus == 1 and cpu_experts is None:
        for field in ("split", "tensor_split", "host"):
            if getattr(configuration, field):
                raise InputError(
                    f"says nothing without {Option('gpus', 2)} or more, or {Option('cpu_experts')}",
                    field=field,
                )
        return gpu, None
    if engine.local is None:
        raise InputError(
            f"{engine.name} is not known to do this; use {Option('engine', 'llamacpp')}, or "
            f"{Option('tp')} for linked GPUs",
            field="gpus" if gpus > 1 else "cpu_experts",
        )
    if gpus > 1 and configuration.tp > 1:
        raise InputError(
            f"give either {Option('gpus')} or {Option('tp')}, which is a tensor split here",
            field="gpus",
        )
    host = load_host(host_id or DEFAULT_HOST)
    if gpus == 1 or (host_id is None and gpus <= _linked_on_board(gpu)):
        return gpu, host
    return linked_through_host(gpu, host, gpus), host


def _linked_on_board(gpu: HardwareProfile) -> int:
    """Return how many GPUs their board or cabinet links; 1 for cards, which may have no bridge."""
    return 1 if "PCIe" in gpu.form_factor else gpu.interconnect.domain_size


def _placement(
    configuration: Configuration, gpu: HardwareProfile, model: ModelSpec, host: HostProfile | None
) -> Placement:
    """Return how the target is laid over the accelerators."""
    split = _split(configuration, gpu, model, host)
    prior = priors().routing
    measured = gpu.verify_attention or VerifyMode(mode=VerifyAttention.KV_ONCE, errors={})
    return Placement(
        tp=split.cards if split.mode is SplitMode.TENSOR and split.cards > 1 else configuration.tp,
        split=split,
        ep=configuration.ep,
        dp=configuration.dp_attention,
        routing=configuration.routing or Routing(skew=prior.skew, correlation=prior.correlation),
        verify_attention=configuration.verify_attention or measured.mode,
        tile_rows=measured.tile_rows,
        state_handling=configuration.state_handling,
    )


def _split(
    configuration: Configuration, gpu: HardwareProfile, model: ModelSpec, host: HostProfile | None
) -> Split:
    """Return how the target lies on the cards and beside the processor."""
    cards, shares = configuration.gpus, configuration.tensor_split
    mode = configuration.split or SplitMode.LAYER
    if cards > 1 and mode is SplitMode.ROW and model.num_expert_layers:
        raise InputError(
            f"experts cannot be split by rows; use {Option('split', 'layer')} or "
            f"{Option('split', 'tensor')}",
            field="split",
            value="row",
        )
    if shares:
        written = ",".join(f"{share:g}" for share in shares)
        if mode is not SplitMode.LAYER:
            raise InputError(
                f"only {Option('split', 'layer')} takes uneven shares here",
                field="tensor_split",
                value=written,
            )
        if len(shares) != cards or min(shares) < 0 or not 0 < sum(shares) < math.inf:
            raise InputError(
                f"expected a share for each of {cards} cards", field="tensor_split", value=written
            )
    cpu_layers = _cpu_layers(configuration.cpu_experts, gpu, model) if host is not None else 0
    return Split(mode=mode, cards=cards, shares=shares, cpu_layers=cpu_layers)


def _cpu_layers(text: str | None, gpu: HardwareProfile, model: ModelSpec) -> int:
    """Return how many layers, from the first on, keep their experts beside the processor."""
    if text is None:
        return 0

    def refused(problem: str) -> InputError:
        return InputError(problem, field="cpu_experts", value=text)

    if not model.num_expert_layers:
        raise refused(f"{model.id} has no experts")
    if gpu.unified:
        raise refused(f"{gpu.id} and its processor share one memory; leave it out")
    if text == "all":
        return model.num_layers
    if not text.isdecimal() or len(text) > 9 or not 0 < int(text) <= model.num_layers:
        raise refused(f"expected all, or 1 to {model.num_layers} layers of {model.id}")
    on_processor = cpu_expert_layers(
        layers=model.num_layers, expert_layers=model.num_expert_layers, cpu_layers=int(text)
    )
    if not on_processor:
        dense = model.num_layers - model.num_expert_layers
        raise refused(f"the first {dense} layers of {model.id} have no experts")
    return int(text)


def _check_layout(
    configuration: Configuration, placement: Placement, gpu: HardwareProfile, model: ModelSpec
) -> None:
    """Refuse a layout that the accelerators or the model do not have."""
    tp, domain = configuration.tp, gpu.interconnect.domain_size
    if tp > domain:
        alternative = ""
        if not gpu.unified and "PCIe" in gpu.form_factor:
            alternative = (
                f", or {Option('engine', 'llamacpp')} {Option('gpus', tp)} "
                f"{Option('split', 'tensor')} (through the host's slots)"
            )
        raise InputError(
            f"{gpu.id} links {domain} GPUs in one domain; use {Option('tp', domain)} or less"
            f"{alternative}",
            field="tp",
            value=tp,
        )
    check_parallel(model, placement)
    draft_tp = configuration.draft_tp
    if draft_tp is not None and draft_tp > placement.attention_tp:
        divisor = ""
        if placement.dp > 1:
            groups = Option("dp_attention", placement.dp)
            divisor = f" / {groups} = {placement.attention_tp}"
        raise InputError(
            f"expected at most {Option('tp', tp)}{divisor}", field="draft_tp", value=draft_tp
        )


def _check_vendor(engine: EngineProfile, gpu: HardwareProfile) -> None:
    """Refuse an engine that cannot run on this vendor's accelerators."""
    if not engine.vendors or gpu.vendor in engine.vendors:
        return
    remedy = engine.elsewhere.get(gpu.vendor)
    helps = f"; {remedy}" if remedy else ""
    raise InputError(
        f"{engine.name} runs on accelerators of {listed(engine.vendors)} alone, and {gpu.id} is of "
        f"{gpu.vendor}{helps}",
        field="engine",
        value=engine.id,
    )


def _check_blocks(engine: EngineProfile, gpu: HardwareProfile, target: Target) -> None:
    """Refuse a layout that cuts blocks of weights which the engine keeps whole."""
    placement = target.placement
    cut = _cut_side(engine, gpu, target, placement)
    if cut is None:
        return
    side, block = cut
    tp, fewer = placement.tp, range(placement.tp // 2, 0, -1)
    layouts = [("tp", n) for n in fewer if not tp % (n * placement.ep) and not n % placement.dp]
    if side.component is Component.EXPERTS:
        layouts.append(("ep", tp))
    remedies = dict[str, Option]()
    for field, number in layouts:
        changed = replace(placement, **{field: number})  # type: ignore[arg-type]
        if field in remedies or _cut_side(engine, gpu, target, changed) is not None:
            continue
        with suppress(InputError):
            check_parallel(target.model, changed)
            remedies[field] = Option(field, number)
    helps = f"; use {listed([str(each) for each in remedies.values()], 'or')}" if remedies else ""
    dtype = target.precision.weights[side.component]
    raise InputError(
        f"the {side.name} of {target.model.id} is {side.width} / {side.ranks} = "
        f"{side.width / side.ranks:g} on a GPU, and {engine.name} takes {dtype} weights in whole "
        f"blocks of {block}{helps}",
        field="tp",
        value=tp,
    )


def _cut_side(
    engine: EngineProfile, gpu: HardwareProfile, target: Target, placement: Placement
) -> tuple[Side, int] | None:
    """Return a side of matrices whose blocks the ranks would cut, and the block; None without."""
    for side in divided_sides(target.model, placement):
        dtype = target.precision.weights[side.component]
        for rule in engine.whole_blocks:
            cut = side.ranks > 1 and side.width % (side.ranks * rule.block)
            if cut and rule.holds(dtype.value, gpu.generation):
                return side, rule.block
    return None


def _precision(
    network: NetworkSpec,
    gpu: HardwareProfile,
    engine: EngineProfile,
    *,
    weights: DType | None,
    activations: DType | None,
    kv: DType | None,
    field: str,
) -> tuple[Precision, list[Notice]]:
    """Return the formats of a network on this accelerator, and what to know about them.

    ``field`` is the option for its weights.
    """
    notices: list[Notice] = []
    stored, base, kv_stored = network.stored(), network.dtype, network.kv_dtype
    if not {"bf16", "fp16"} & set(gpu.rates) and activations is None:
        notices.append(notice(Code.NO_16_BIT_RATE, gpu=gpu.id))
        base, kv_stored = DType.FP32, None
        stored = {
            part: DType.FP32 if dtype in (DType.BF16, DType.FP16) else dtype
            for part, dtype in stored.items()
        }
    if kv_stored is not None and not engine.serves("kv", kv_stored, gpu.generation):
        kv_stored = None  # the engine keeps the cache in the model's own format
    used = used_components(network)
    if weights is None and Component.EXPERTS in used:
        weights = engine.files.get(stored[Component.EXPERTS])
    usual = dict(network.activations) if base == network.dtype else {}
    served = engine.experts_multiplied_in(stored[Component.EXPERTS], gpu.generation)
    if served is not None and rate_name(served) in gpu.rates:
        usual.setdefault(Component.EXPERTS, served)
    precision, format_notices = resolve_precision(
        stored=stored,
        base=base,
        kv_stored=kv_stored,
        usual=usual,
        available=gpu.rates,
        gpu=gpu.id,
        weights=weights,
        activations=activations,
        kv=kv,
        used=used,
    )
    notices += format_notices
    for part in used & LAYER_LINEARS:
        _check_served(
            engine, gpu, field, precision.weights[part], base, ships=None if weights else network.id
        )
    _check_served(engine, gpu, "kv", precision.kv, base)
    narrow = {precision.weights[part] for part in used}
    for dtype in sorted(dtype for dtype in narrow if few_bits(dtype)):
        notices.append(notice(Code.FEW_BITS, network=network.id, dtype=dtype))
    for dtype in sorted(narrow | {precision.kv}):
        if (nearest := nearest_format(dtype)) is not None:
            notices.append(notice(Code.FORMAT_NEAREST, dtype=dtype, nearest=nearest))
    return precision, notices


def _check_served(
    engine: EngineProfile,
    gpu: HardwareProfile,
    field: str,
    dtype: DType,
    base: DType,
    *,
    ships: str | None = None,
) -> None:
    """Refuse a format that the engine does not serve, and name the nearest that it does.

    ``ships`` is the model that is published in it, where none was asked for.
    """
    part = "kv" if field == "kv" else "weights"
    if engine.serves(part, dtype, gpu.generation):
        return
    where = "" if engine.formats is None else _served_elsewhere(engine, gpu, part, dtype)
    does_not = (
        f"{engine.name} keeps no KV cache in {dtype}"
        if part == "kv"
        else f"{engine.name} serves no {dtype} weights"
    )
    problem = f"{does_not}{where}; the nearest that it does: "
    problem += str(Option(field, engine.nearest_served(part, dtype, base)))
    if ships is not None:
        raise InputError(f"{ships} ships as {dtype}, and {problem}")
    raise InputError(problem, field=field, value=dtype)


def _served_elsewhere(engine: EngineProfile, gpu: HardwareProfile, part: str, dtype: DType) -> str:
    """Say on what a format is served that is not served here; nothing where it is on nothing."""
    rules = [] if engine.formats is None else engine.formats.rules(part, dtype)
    for rule in rules:
        if rule.generations and gpu.generation not in rule.generations:
            return f" on {gpu.id} (it does on {listed(rule.generations)})"
        if rule.since is not None:
            return f" before version {rule.since}"
    return ""


def _drafter(
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
        network, applied = _overridden(network, overrides)
        changes.extend(applied)
        return network

    reference = configuration.drafter
    if reference is None:
        reference, assumed = default_drafter(target.model, engine)
        notices.append(assumed)
    kind, network = open_drafter(
        reference, target.model, adapt=with_overrides, vocabulary=engine.vocabulary
    )
    unused = _unused(configuration, kind, network)
    if unused and not drop_unused:
        if configuration.drafter is None and network is None:
            raise no_drafter_known(target.model, engine, unused[0])
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
    placement = _draft_placement(configuration.draft_tp, target, network)
    check_parallel(network, placement, "draft_tp")
    engine.check_draft_tp(placement.attention_tp, tp=target.placement.attention_tp)
    base, stored = target.precision.base, _draft_weights(configuration, kind, network, target)
    if stored is not None and configuration.draft_weights is None and kind == "model":
        notices.append(notice(Code.DRAFTER_STORED_AS_TARGET, drafter=network.id, dtype=stored))
    precision, format_notices = _precision(
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


def _unused(configuration: Configuration, kind: str, network: NetworkSpec | None) -> list[str]:
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


def _draft_placement(draft_tp: int | None, target: Target, network: NetworkSpec) -> Placement:
    """Return the target's ranks, or ``draft_tp`` of them.

    A draft model's experts stay together. On cards of one machine a model lies as its target does
    and a head on the last card; experts of a head that is one of the target's own layers stay with
    the processor only where all do.
    """
    split = target.placement.split
    if isinstance(network, ModelSpec):
        split = replace(split, cpu_layers=0)
    else:
        all_beside = split.cpu_layers >= target.model.num_layers
        split = Split(cpu_layers=network.num_layers if all_beside else 0)
    placement = replace(target.placement, split=split)
    if draft_tp not in (None, placement.attention_tp):
        return replace(placement, tp=(draft_tp or 1) * placement.dp, ep=1)
    return replace(placement, ep=1) if isinstance(network, ModelSpec) else placement


def _as_named(
    configuration: Configuration, documents: Documents
) -> tuple[Configuration, list[Notice]]:
    """Return the configuration with what its names say beside what they name, and what was taken.

    A family's name means one of its parts; a model's name may end with the format of its weights.
    """
    notices: list[Notice] = []
    gpu, model = on_shelf(configuration.gpu, GPU_SHELF), None
    if not importable(configuration.model):
        model = network_named(configuration.model)
    for named, given in ((gpu, configuration.gpu), (model, configuration.model)):
        if named is not None and named.family:
            others = tuple(other for other in named.candidates if other != named.id)
            notices.append(notice(Code.NAME_TAKEN, name=given, taken=named.id, others=others))
    configuration = replace(configuration, engine=engine_id(configuration.engine, documents.engine))
    stored = None if model is None or model.storage is None else DType(model.storage)
    if stored is None or configuration.weights is not None:
        return configuration, notices
    if ships_as(documents.model, stored):
        return configuration, notices
    notices.append(notice(Code.WEIGHTS_NAMED, name=configuration.model, dtype=stored))
    return replace(configuration, weights=stored), notices


def ships_as(model: ModelSpec, dtype: DType) -> bool:
    """Return whether a model is published in a format that its name may end with.

    Narrow formats are mostly those of some layers only. One name stands for several groups of
    scales: FP8 may mean blocks, int4 any group.
    """
    stored = model.stored()
    families = {_family(stored[part]) for part in used_components(model) & LAYER_LINEARS}
    return _family(dtype) in families and (len(families) == 1 or _family(dtype) not in WIDE)


def _family(dtype: DType) -> str:
    return dtype.value.partition("-")[0]


WIDE = ("fp32", "bf16", "fp16")


def _engine_notices(engine: EngineProfile, gpu: HardwareProfile, kind: str) -> Iterable[Notice]:
    """Say that the engine is newer or older than what was read, or another vendor's."""
    oldest = engine.read_from(kind)
    if oldest and kind != "none":
        read = f"{engine.name} {oldest}"
        yield notice(Code.ENGINE_OLDER, engine=f"{engine.name} {engine.runs_version}", read=read)
    if engine.beyond_known:
        known = f"{engine.name} {engine.newest}"
        yield notice(Code.ENGINE_NEWER, engine=f"{engine.name} {engine.runs_version}", known=known)
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
                Code.CHANGES_NOTHING,
                field=field,
                needs=missing,
                network=deployment.target.model.id,
            )


def _host_notices(configuration: Configuration, host: HostProfile | None) -> Iterable[Notice]:
    """Say which machine stands in where none was named."""
    if host is None or configuration.host is not None:
        return []
    return [notice(Code.HOST_ASSUMED, host=host.id, name=host.name)]


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
