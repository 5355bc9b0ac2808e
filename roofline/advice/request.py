"""A question as names and numbers, and what can be wrong with the numbers alone."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from roofline.acceptance import Acceptance
from roofline.advice.cost import check_price
from roofline.base.errors import InputError
from roofline.kernels.matrices import check_parallel
from roofline.specs.engine import EngineProfile
from roofline.specs.formats import DType
from roofline.specs.gpu import HardwareProfile
from roofline.specs.network import ModelSpec
from roofline.specs.overrides import Override
from roofline.specs.placement import Placement, Routing, SplitMode, StateHandling, VerifyAttention

__all__ = [
    "DEEPEST",
    "MAX_DRAFT_LENGTH",
    "LocalRequest",
    "Request",
    "check_numbers",
    "check_placement",
    "with_overhead",
    "without_queries",
]

MAX_DRAFT_LENGTH = 8
#: No engine drafts deeper, and no acceptance has been measured there.
DEEPEST = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalRequest:
    """Cards without a link of their own in one machine, and experts beside its processor."""

    gpus: int = 1
    split: SplitMode | None = None
    shares: tuple[float, ...] = ()
    host: str | None = None
    cpu_experts: str | None = None  # layers, or all


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What the user asks, as names and numbers; None means a default that is then stated."""

    model: str
    gpu: str = "h100-sxm"
    tp: int = 1
    ep: int = 1
    dp: int = 1  # data-parallel groups of attention
    routing: Routing | None = None
    batches: tuple[int, ...] = (1,)
    contexts: tuple[int, ...] = (4096,)
    drafter: str | None = None
    acceptance: str | Acceptance | None = None
    acceptance_rounds: int | None = None  # verify passes that it was counted over
    max_draft_length: int = MAX_DRAFT_LENGTH
    extrapolate: bool = False
    weights: DType | None = None
    activations: DType | None = None
    kv: DType | None = None
    draft_tp: int | None = None
    draft_weights: DType | None = None
    verify_attention: VerifyAttention | None = None
    state_handling: StateHandling = StateHandling.SNAPSHOTS
    memory_fraction: float | None = None
    engine: str = "vllm"
    #: Rows per sequence and branches of a tree; None is a chain.
    verify_width: int | None = None
    tree_topk: int = 1
    draft_block: int | None = None
    first_pass_rows: float | None = None
    prefill_tokens: float = 0.0
    #: The user's own ms around a plain step, a round and a draft pass; None is the engine's.
    overhead: tuple[float, ...] | None = None
    #: Values put in place of those of the model, drafter, GPU or engine.
    overrides: tuple[Override, ...] = ()
    #: The options are for several drafters in turn: what says nothing for one is passed over.
    several_drafters: bool = False
    gpu_hour: float | None = None  # what one GPU costs for an hour
    local: LocalRequest = field(default_factory=LocalRequest)


def without_queries(text: str) -> str:
    """Return what was typed as others may see it: the query of an address may hold a secret.

    >>> without_queries("http://host:8000/metrics?key=abc")
    'http://host:8000/metrics'
    """
    return re.sub(r"(https?://[^\s?,]*)\?[^\s,]*", r"\1", text, flags=re.IGNORECASE)


def check_numbers(request: Request) -> None:
    """Refuse numbers that no serving could have."""
    for flag, values in (("--batch", request.batches), ("--context", request.contexts)):
        if not values:
            raise InputError(f"{flag}: expected at least one number")
        for value in values:
            if not 1 <= value <= 2**40:
                raise InputError(f"{flag} {value}: expected a whole number of at least 1")
        if len(set(values)) != len(values):
            raise InputError(f"{flag}: a value is given twice; list each once")
    if not 0 <= request.max_draft_length <= DEEPEST:
        raise InputError(f"--max-draft-length {request.max_draft_length}: expected 0 to {DEEPEST}")
    sizes = (
        ("--tp", request.tp),
        ("--ep", request.ep),
        ("--dp-attention", request.dp),
        ("--draft-tp", request.draft_tp),
    )
    for flag, size in sizes:
        if size is not None and size < 1:
            raise InputError(f"{flag} {size}: expected at least 1")
    rounds = request.acceptance_rounds
    if rounds is not None and rounds < 1:
        raise InputError(f"--acceptance-rounds {rounds}: expected at least 1")
    _check_tree(request)
    paths = [override.path for override in request.overrides]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice is not None:
        raise InputError(f"--set {twice}: is given twice; give each path once")
    check_price(request.gpu_hour)
    routing = request.routing or Routing()
    if not 0 <= routing.skew <= 4:
        raise InputError(f"--routing-skew {routing.skew:g}: expected 0 (uniform) to 4")
    if not 0 <= routing.correlation <= 1:
        raise InputError(f"--routing-correlation {routing.correlation:g}: expected 0 to 1")


def _check_tree(request: Request) -> None:
    """Refuse widths, blocks and riders that no pass could have."""
    width = request.verify_width
    if width is not None and not 2 <= width <= 1024:
        raise InputError(f"--verify-width {width}: expected 2 to 1024 rows per sequence")
    if not 1 <= request.tree_topk <= 64:
        raise InputError(f"--tree-topk {request.tree_topk}: expected 1 (a chain) to 64")
    if request.tree_topk > 1 and width is None:
        raise InputError("--tree-topk: a tree needs --verify-width, the rows it is verified with")
    if request.draft_block is not None and not 2 <= request.draft_block <= DEEPEST:
        raise InputError(f"--draft-block {request.draft_block}: expected 2 to {DEEPEST}")
    rows = request.first_pass_rows
    if rows is not None and not 1 <= rows <= 1 + DEEPEST:
        raise InputError(f"--first-pass-rows {rows:g}: expected 1 to {1 + DEEPEST}")
    if not 0 <= request.prefill_tokens <= 2**20:
        raise InputError(
            f"--prefill-tokens-per-step {request.prefill_tokens:g}: expected 0 to {2**20}"
        )


def with_overhead(engine: EngineProfile, own: tuple[float, ...] | None) -> EngineProfile:
    """Return the engine with the user's own times around a step, a round and a draft pass [ms]."""
    if own is None:
        return engine
    names = ("per_step", "per_spec_round", "per_draft_pass")
    if not 1 <= len(own) <= len(names) or not all(0 <= value <= 1e4 for value in own):
        raise InputError(
            "--overhead-ms: expected one to three numbers of ms: plain step, speculative round, "
            "draft pass (0.5,0.7,0.15)"
        )
    given: dict[str, object] = {name: value / 1e3 for name, value in zip(names, own, strict=False)}
    if "per_draft_pass" in given:
        given |= {"draft_passes": {}, "model_pass_is_a_step": False}
    update = {**given, "source": "given", "note": "--overhead-ms"}
    return engine.model_copy(update={"overhead": engine.overhead.model_copy(update=update)})


def _through_host(request: Request, gpu: HardwareProfile) -> str:
    """Say how cards work together that nothing but the machine's slots joins."""
    if gpu.unified or "PCIe" not in gpu.form_factor:
        return ""
    return f", or --engine llamacpp --gpus {request.tp} --split tensor (through the host's slots)"


def check_placement(
    request: Request, placement: Placement, gpu: HardwareProfile, model: ModelSpec
) -> None:
    """Refuse a layout that the accelerators or the model do not have."""
    domain = gpu.interconnect.domain_size
    if request.tp > domain:
        raise InputError(
            f"--tp {request.tp}: {gpu.id} links {domain} GPUs in one domain; use --tp {domain} "
            f"or less{_through_host(request, gpu)}"
        )
    check_parallel(model, placement)
    most = placement.attention_tp
    if request.draft_tp is not None and request.draft_tp > most:
        shared = "" if placement.dp == 1 else f" / --dp-attention {placement.dp} = {most}"
        raise InputError(
            f"--draft-tp {request.draft_tp}: expected at most --tp {request.tp}{shared}"
        )
    longest = max(request.contexts)
    if longest > model.max_context:
        raise InputError(
            f"--context {longest}: {model.id} handles at most {model.max_context} tokens; "
            "give a shorter context"
        )
