"""From names and numbers to checked parts: everything that can be wrong with a question."""

from __future__ import annotations

from dataclasses import dataclass

from roofline.acceptance import Acceptance
from roofline.advice.accepted import acceptance_for, is_known
from roofline.advice.idle import check_idle
from roofline.advice.lengths import allowed_lengths, draft_lengths, left_out, unmeasured
from roofline.advice.local import assumed_host, draft_placement, machine_of, split_of
from roofline.advice.parts import (
    Notes,
    Parts,
    changed_part,
    engine_of,
    model_of,
    open_parts,
    overrides_of,
)
from roofline.advice.request import Request, check_numbers, check_placement
from roofline.base.errors import InputError
from roofline.importers.open_drafter import heads_for, open_drafter
from roofline.kernels.matrices import check_parallel, used_components
from roofline.specs.engine import EngineProfile
from roofline.specs.formats import DType, Precision, few_bits, resolve
from roofline.specs.gpu import HardwareProfile, VerifyMode
from roofline.specs.host import HostProfile
from roofline.specs.network import DrafterSpec, ModelSpec, NetworkSpec
from roofline.specs.placement import Placement, Routing, SplitMode, VerifyAttention
from roofline.specs.priors import priors, unknown_generation
from roofline.timing.drafters import Drafter, shares_formats
from roofline.timing.memory import Memory, memory_for
from roofline.timing.step import Target

__all__ = ["Request", "Setup", "prepare"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """Everything the names stand for, checked against each other."""

    request: Request
    gpu: HardwareProfile
    target: Target
    drafter: Drafter
    acceptance: Acceptance
    engine: EngineProfile
    draft_lengths: tuple[int, ...]
    notes: Notes
    host: HostProfile | None = None  # around the cards, where the question involves it

    @property
    def cards(self) -> int:
        """Accelerators that the target lies on: all that is said or charged per GPU counts them."""
        return self.target.placement.cards

    def memory(self) -> Memory:
        """Return where the bytes of one accelerator go, and those beside the processor."""
        return memory_for(self.target, self.drafter, self.gpu, self.engine.memory, self.host)

    @property
    def rounds(self) -> int | None:
        """Passes that the acceptance was counted over: as given, else as its own source says."""
        own = self.acceptance.drafts
        return self.request.acceptance_rounds or (max(int(own), 1) if own else None)

    @property
    def unmeasured(self) -> tuple[int, ...]:
        """The next two draft lengths that the drafter could make but no acceptance is known for.

        Empty where something else ends the draft lengths.
        """
        longest = self.draft_lengths[-1]
        return unmeasured(self.request, self.drafter, self.engine, self.acceptance, longest)


def prepare(
    request: Request, *, needs_acceptance: bool = True, parts: Parts | None = None
) -> Setup:
    """Load everything that ``request`` names and check that it belongs together.

    Without ``needs_acceptance`` the acceptance may be unknown, at all or of every draft length:
    memory does not depend on it.
    ``parts`` are those of an equal request but for its overrides, already loaded.
    """
    check_numbers(request)
    notes = Notes()
    parts = parts or open_parts(request)
    gpu = changed_part(parts.gpu, "gpu", request, notes)
    model = model_of(request, parts, gpu, notes)
    engine = engine_of(request, parts, notes)
    notes.warnings += engine.doubts(gpu.vendor)
    gpu, host = machine_of(request, gpu, engine)
    split = split_of(request, gpu, model, host)
    notes.assumed += assumed_host(request, host)
    stated = priors().routing
    routing = request.routing or Routing(skew=stated.skew, correlation=stated.correlation)
    measured = gpu.verify_attention or VerifyMode(mode=VerifyAttention.KV_ONCE, errors={})
    placement = Placement(
        tp=split.cards if split.mode is SplitMode.TENSOR and split.cards > 1 else request.tp,
        split=split,
        ep=request.ep,
        dp=request.dp,
        routing=routing,
        verify_attention=request.verify_attention or measured.mode,
        tile_rows=measured.tile_rows,
        state_handling=request.state_handling,
    )
    check_placement(request, placement, gpu, model)
    if gpu.status == "pre-release":
        notes.warnings.append(f"{gpu.id} is a pre-release part: its figures may change")
    if not gpu.calibration and (unknown := unknown_generation(gpu.generation)):
        notes.warnings.append(f"{gpu.id}: {unknown}")
    formats = {
        "weights": request.weights, "activations": request.activations, "kv": request.kv
    }  # fmt: skip
    precision = _precision(model, gpu, notes, **formats)
    target = Target(model=model, precision=precision, placement=placement)
    drafter = _drafter(request, target, gpu, engine, notes)
    engine.check_drafter(drafter.kind)
    engine.parallel_flags(tp=placement.tp, dp=placement.dp, ep=placement.ep)  # refuses
    lost = left_out(request, drafter, engine)
    notes.warnings += [lost] if lost else []
    curve = Acceptance(table={0: 1.0}, label="unknown", source="not given")
    lengths = allowed_lengths(request, drafter, engine)
    if needs_acceptance or is_known(request, model, drafter):
        curve = acceptance_for(request, target, drafter, notes)
        lengths = draft_lengths(request, drafter, engine, curve, needed=needs_acceptance)
    return Setup(
        request=request,
        gpu=gpu,
        target=target,
        drafter=drafter,
        acceptance=curve,
        engine=engine,
        draft_lengths=lengths,
        notes=notes,
        host=host,
    )


def _precision(
    network: NetworkSpec,
    gpu: HardwareProfile,
    notes: Notes,
    *,
    weights: DType | None,
    activations: DType | None,
    kv: DType | None,
) -> Precision:
    stored, base, kv_stored = network.stored(), network.dtype, network.kv_dtype
    if not {"bf16", "fp16"} & set(gpu.rates) and activations is None:
        text = f"{gpu.id} has no 16-bit rate: the model is priced in fp32"
        notes.warnings += [text] if text not in notes.warnings else []
        stored, base, kv_stored = dict.fromkeys(stored, DType.FP32), DType.FP32, None
    precision, warnings = resolve(
        stored=stored,
        base=base,
        kv_stored=kv_stored,
        usual=network.activations if base == network.dtype else {},
        available=gpu.rates,
        gpu=gpu.id,
        weights=weights,
        activations=activations,
        kv=kv,
        used=(used := used_components(network)),
    )
    notes.warnings += warnings
    narrow = {precision.weights[part] for part in used}
    for dtype in sorted(dtype for dtype in narrow if few_bits(dtype)):
        notes.warnings.append(
            f"{network.id}: {dtype} weights have fewer than 4 bits; check the answers' quality"
        )
    return precision


def _drafter(
    request: Request, target: Target, gpu: HardwareProfile, engine: EngineProfile, notes: Notes
) -> Drafter:
    own = overrides_of(request, "drafter")
    kind, network = open_drafter(
        _bundled_head(target.model, notes) if request.drafter is None else request.drafter,
        target.model,
        adapt=lambda network: changed_part(network, "drafter", request, notes),
        vocabulary=engine.vocabulary,
    )
    check_idle(request, kind, network)
    if network is None:
        if own:
            raise InputError(f"{own[0]}: the drafter {kind} has no network to change")
        return Drafter(kind=kind, name=kind)
    if network.source.startswith("derived"):
        notes.assumed.append(f"{kind} head for {target.model.id}, {network.source}")
    differs = engine.vocabulary.warning(network, target.model, engine=engine.name)
    notes.warnings += [differs] if differs else []
    network = shares_formats(network, target.precision.weights)
    placement = draft_placement(request, target, network)
    check_parallel(network, placement, "--draft-tp")
    base = target.precision.base
    precision = _precision(
        network.model_copy(update={"dtype": base}) if network.dtype != base else network,
        gpu,
        notes,
        weights=request.draft_weights or (request.weights if kind == "mtp" else None),
        activations=None,
        kv=target.precision.kv,
    )
    _check_context(network, max(request.contexts), notes)
    return Drafter(
        kind=kind,
        name=network.id,
        network=network,
        precision=precision,
        placement=placement,
        topk=request.tree_topk,
        block=request.draft_block,
        first_rows=request.first_pass_rows,
    )


def _bundled_head(model: ModelSpec, notes: Notes) -> str:
    """Return the kind of the target's bundled head, and say that it is assumed."""
    kind = "eagle3"
    if kind not in heads_for(model.id):
        raise InputError(
            f"no drafter is bundled for {model.id}: give --drafter (none, ngram, eagle3 for a head "
            "of the usual shape, a model id, or a path) and --acceptance"
        )
    notes.assumed.append(f"the bundled EAGLE-3 head {model.id}-eagle3 as drafter")
    return kind


def _check_context(network: NetworkSpec, longest: int, notes: Notes) -> None:
    """Refuse a context that the drafter cannot handle; warn beyond what it was trained on."""
    if isinstance(network, ModelSpec) and longest > network.max_context:
        raise InputError(
            f"--context {longest}: the drafter {network.id} handles at most {network.max_context} "
            "tokens; give a shorter context or another drafter"
        )
    trained = network.trained_context if isinstance(network, DrafterSpec) else None
    if trained is not None and longest > trained:
        notes.warnings.append(
            f"{network.id}: its config has {trained} positions, the context is {longest}; "
            "acceptance may be lower there, so measure it"
        )
