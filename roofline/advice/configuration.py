"""What a user names: what runs, and what it is asked to serve; odd numbers are refused.

The command line gives what was typed, the Python functions what was passed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from roofline.acceptance import Acceptance
from roofline.acceptance.domains import prompts
from roofline.advice.decide import check_price
from roofline.base.errors import InputError, Option
from roofline.base.names import bundled_id
from roofline.base.notices import Notice
from roofline.base.numbers import LONGEST_DRAFT
from roofline.base.values import (
    BYTES_PER_SECOND,
    MILLISECONDS,
    WATTS,
    amount,
    choice,
    numbers,
)
from roofline.importers.references import drafter_word, open_model
from roofline.specs.engine import ENGINE_SHELF, EngineProfile, engine_parts, load_engine
from roofline.specs.formats import DType, parse_dtype
from roofline.specs.gpu import HardwareProfile, load_hardware
from roofline.specs.network import ModelSpec
from roofline.specs.placement import (
    DrafterSeat,
    Routing,
    SplitMode,
    StateHandling,
    VerifyAttention,
)
from roofline.specs.priors import priors

if TYPE_CHECKING:
    from roofline.base.schema import Document
    from roofline.specs.overrides import AppliedOverride, Override

__all__ = [
    "LISTED",
    "MAX_DRAFT_LENGTH",
    "Configuration",
    "Documents",
    "Learned",
    "Notices",
    "Workload",
    "check_configuration",
    "load_documents",
    "overridden",
    "question_from",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Configuration:
    """What the user names: a model on accelerators, a drafter, an engine.

    None is a default that the answer states; a name is a bundled id or a path.
    """

    model: str
    gpu: str = "h100-sxm"
    tp: int = 1
    ep: int = 1
    dp_attention: int = 1  # groups of ranks that share out the sequences
    #: Cards of one machine that only its slots join, and how they share the model.
    gpus: int = 1
    split: SplitMode | None = None
    tensor_split: tuple[float, ...] = ()
    host: str | None = None
    cpu_experts: str | None = None  # layers whose experts stay with the processor, or all
    #: Experimental: pipeline stages, micro-batches under way, and where the drafter lies.
    pp: int = 1
    pp_in_flight: int = 1
    drafter_on: DrafterSeat | None = None
    link: str | None = None  # slots that join the GPUs; None is the profile's links
    nodes: int = 1
    internode: float | None = None  # what a link between nodes carries for each GPU [B/s]
    power_cap: float | None = None  # what each board may draw [W]
    drafter: str | None = None
    weights: DType | None = None
    activations: DType | None = None
    kv: DType | None = None
    draft_tp: int | None = None
    draft_weights: DType | None = None
    verify_attention: VerifyAttention | None = None
    state_handling: StateHandling = StateHandling.SNAPSHOTS
    routing: Routing | None = None
    memory_fraction: float | None = None
    engine: str = "vllm"
    #: The user's own ms around a plain step, a round and a draft pass; None is the engine's.
    overhead_ms: tuple[float, ...] | None = None
    #: Rows per sequence and branches of a tree; None is a chain.
    verify_width: int | None = None
    tree_topk: int = 1
    draft_block: int | None = None
    first_pass_rows: float | None = None
    #: Values put in place of those of the model, drafter, GPU or engine.
    overrides: tuple[Override, ...] = ()

    def __post_init__(self) -> None:
        """Write the words for an engine and a kind of drafter as they are known here."""
        name, separator, rest = engine_parts(self.engine)
        engine = f"{bundled_id(name, ENGINE_SHELF) or name}{separator}{rest}"
        object.__setattr__(self, "engine", engine)
        if self.drafter is not None:
            object.__setattr__(self, "drafter", drafter_word(self.drafter) or self.drafter)

    @property
    def spread_out(self) -> bool:
        """Whether stages, links, nodes or a drafter's GPU were named."""
        named = self.drafter_on is not None or self.link is not None
        return named or max(self.pp, self.pp_in_flight, self.nodes) > 1

    def of_root(self, root: str) -> list[Override]:
        """Return the overrides of the model, drafter, gpu or engine."""
        return [override for override in self.overrides if override.root == root]


def check_configuration(configuration: Configuration) -> None:
    """Refuse numbers that no deployment could have."""
    for field in ("tp", "ep", "dp_attention", "draft_tp", "pp", "pp_in_flight", "nodes"):
        size = getattr(configuration, field)
        if size is not None and size < 1:
            raise InputError("expected at least 1", field=field, value=size)
    width, topk = configuration.verify_width, configuration.tree_topk
    if width is not None and not 2 <= width <= 1024:
        raise InputError("expected 2 to 1024 rows per sequence", field="verify_width", value=width)
    if not 1 <= topk <= 64:
        raise InputError("expected 1 (a chain) to 64", field="tree_topk", value=topk)
    if topk > 1 and width is None:
        raise InputError(
            f"a tree needs {Option('verify_width')}, the rows it is verified with",
            field="tree_topk",
        )
    block, rows = configuration.draft_block, configuration.first_pass_rows
    if block is not None and not 2 <= block <= LONGEST_DRAFT:
        raise InputError(f"expected 2 to {LONGEST_DRAFT}", field="draft_block", value=block)
    if rows is not None and not 1 <= rows <= 1 + LONGEST_DRAFT:
        raise InputError(
            f"expected 1 to {1 + LONGEST_DRAFT}", field="first_pass_rows", value=f"{rows:g}"
        )
    paths = [override.path for override in configuration.overrides]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice is not None:
        raise InputError("is given twice; give each path once", field="set", value=twice)
    routing = configuration.routing or Routing()
    if not 0 <= routing.skew <= 4:
        raise InputError(
            "expected 0 (uniform) to 4", field="routing_skew", value=f"{routing.skew:g}"
        )
    if not 0 <= routing.correlation <= 1:
        raise InputError(
            "expected 0 to 1", field="routing_correlation", value=f"{routing.correlation:g}"
        )


Notices = tuple[Notice, ...]


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


Overridden = TypeVar("Overridden", bound="Document")


def overridden(
    document: Overridden, overrides: list[Override]
) -> tuple[Overridden, list[AppliedOverride]]:
    """Return a document with what was put in place of its own values, where anything was."""
    if not overrides:
        return document, []
    from roofline.specs.overrides import apply_overrides

    return apply_overrides(document, overrides)


MAX_DRAFT_LENGTH = 8
#: Options of which one value is several numbers with commas between them.
LISTED = ("tensor_split", "overhead_ms", "hit_rate")


class Learned(Protocol):
    """What timings of a deployment say of its step times and acceptance."""

    # a question and a grid: their modules stand on this one
    def applied(self, question: Any) -> Any:
        """Return a question with the acceptance that is believed; refuse another deployment."""

    def priced(self, priced: Any) -> Any:
        """Return a grid with the steps that are believed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """What is asked of a deployment: loads, drafts, and how many of them are accepted."""

    batches: tuple[int, ...] = (1,)
    contexts: tuple[int, ...] = (4096,)
    acceptance: str | Acceptance | None = None  # None: what the prior expects
    acceptance_rounds: int | None = None  # verify passes that it was counted over
    #: Share of passes with a draft to verify: that a lookup finds one, or by position.
    hit_rate: float | tuple[float, ...] | None = None
    domain: str | None = None  # of the prompts
    dataset: str | None = None  # that the prompts are of, or like
    temperature: float | None = None  # of sampling
    max_draft_length: int = MAX_DRAFT_LENGTH
    prefill_tokens_per_step: float = 0.0
    gpu_hour: float | None = None  # what one GPU costs for an hour [$]
    watts: bool = False  # whether power and energy are asked for
    pools: tuple[int, int] | None = None  # prompt and answer tokens of pools that are asked about
    tuned: Learned | None = None  # what timings of this deployment taught

    def __post_init__(self) -> None:
        """Refuse numbers that no serving could have."""
        for field, values in (("batch", self.batches), ("context", self.contexts)):
            if not values:
                raise InputError("expected at least one number", field=field)
            for value in values:
                if not 1 <= value <= 2**40:
                    raise InputError(
                        "expected a whole number of at least 1", field=field, value=value
                    )
            if len(set(values)) != len(values):
                raise InputError("a value is given twice; list each once", field=field)
        if not 0 <= self.max_draft_length <= LONGEST_DRAFT:
            raise InputError(
                f"expected 0 to {LONGEST_DRAFT}",
                field="max_draft_length",
                value=self.max_draft_length,
            )
        rounds = self.acceptance_rounds
        if rounds is not None and rounds < 1:
            raise InputError("expected at least 1", field="acceptance_rounds", value=rounds)
        given = self.hit_rate
        hits = given if given is None or isinstance(given, tuple) else (given,)
        if hits is not None and not all(0 < share <= 1 for share in hits):
            listed = ",".join(f"{share:g}" for share in hits)
            raise InputError("expected above 0 and at most 1", field="hit_rate", value=listed)
        if hits is not None and list(hits) != sorted(hits, reverse=True):
            raise InputError("expected shares that never rise with the position", field="hit_rate")
        if self.domain is not None or self.dataset is not None:
            prompts(domain=self.domain, dataset=self.dataset)  # refuses what they do not name
        warmth = self.temperature
        if warmth is not None and not 0 <= warmth <= 10:
            raise InputError("expected 0 to 10", field="temperature", value=f"{warmth:g}")
        if not 0 <= self.prefill_tokens_per_step <= 2**20:
            raise InputError(
                f"expected 0 to {2**20}",
                field="prefill_tokens_per_step",
                value=f"{self.prefill_tokens_per_step:g}",
            )
        check_price(self.gpu_hour)


def question_from(
    *,
    model: str = "",
    gpu: str = "h100-sxm",
    tp: int = 1,
    ep: int = 1,
    dp_attention: int = 1,
    gpus: int = 1,
    split: str | None = None,
    tensor_split: str | None = None,
    cpu_experts: str | None = None,
    host: str | None = None,
    pp: int = 1,
    pp_in_flight: int = 1,
    drafter_on: str | None = None,
    link: str | None = None,
    nodes: int = 1,
    internode: str | None = None,
    power_cap: str | None = None,
    drafter: str | None = None,
    acceptance: str | Acceptance | None = None,
    acceptance_rounds: int | None = None,
    hit_rate: str | None = None,
    domain: str | None = None,
    dataset: str | None = None,
    temperature: float | None = None,
    max_draft_length: int | None = MAX_DRAFT_LENGTH,
    extrapolate: bool = False,
    weights: str | None = None,
    activations: str | None = None,
    kv: str | None = None,
    draft_tp: int | None = None,
    draft_weights: str | None = None,
    verify_attention: str | None = None,
    state_handling: str = StateHandling.SNAPSHOTS.value,
    routing_skew: float | None = None,
    routing_correlation: float | None = None,
    memory_fraction: float | None = None,
    engine: str | None = "vllm",
    overhead_ms: str | None = None,
    verify_width: int | None = None,
    tree_topk: int = 1,
    draft_block: int | None = None,
    first_pass_rows: float | None = None,
    prefill_tokens_per_step: float = 0.0,
    gpu_hour: float | None = None,
    set: Sequence[str] | None = None,
) -> tuple[Configuration, Workload]:
    """Return configuration and workload of these options, at the default batch and context."""
    if extrapolate:
        raise InputError(
            "is gone: a curve that ends early is continued as public runs of such drafters go on, "
            "and marked; leave it out",
            field="extrapolate",
        )
    configuration = Configuration(
        model=model,
        gpu=gpu,
        tp=tp,
        ep=ep,
        dp_attention=dp_attention,
        gpus=gpus,
        split=None if split is None else choice("split", split, SplitMode),
        tensor_split=numbers("tensor_split", tensor_split, "3,1") or (),
        host=host,
        cpu_experts=cpu_experts,
        pp=pp,
        pp_in_flight=pp_in_flight,
        drafter_on=None if drafter_on is None else choice("drafter_on", drafter_on, DrafterSeat),
        link=link,
        nodes=nodes,
        internode=_positive("internode", internode, BYTES_PER_SECOND, "50GB/s"),
        power_cap=_positive("power_cap", power_cap, WATTS, "400 W"),
        drafter=drafter,
        weights=_dtype("weights", weights),
        activations=_dtype("activations", activations),
        kv=_dtype("kv", kv),
        draft_tp=draft_tp,
        draft_weights=_dtype("draft_weights", draft_weights),
        verify_attention=(
            choice("verify_attention", verify_attention, VerifyAttention)
            if verify_attention is not None
            else None
        ),
        state_handling=choice("state_handling", state_handling, StateHandling),
        routing=_routing(routing_skew, routing_correlation),
        memory_fraction=memory_fraction,
        engine="" if engine is None else engine,
        overhead_ms=numbers("overhead_ms", overhead_ms, "0.5,0.7,0.15", MILLISECONDS),
        verify_width=verify_width,
        tree_topk=tree_topk,
        draft_block=draft_block,
        first_pass_rows=first_pass_rows,
        overrides=_overrides(set or ()),
    )
    workload = Workload(
        acceptance=acceptance,
        acceptance_rounds=acceptance_rounds,
        hit_rate=_shares(numbers("hit_rate", hit_rate, "0.6 or 0.95,0.8,0.6")),
        domain=domain,
        dataset=dataset,
        temperature=temperature,
        max_draft_length=MAX_DRAFT_LENGTH if max_draft_length is None else max_draft_length,
        prefill_tokens_per_step=prefill_tokens_per_step,
        gpu_hour=gpu_hour,
    )
    return configuration, workload


def _overrides(texts: Iterable[str]) -> tuple[Override, ...]:
    """Return the values of a document that are put in place of its own."""
    if not texts:
        return ()
    from roofline.specs.overrides import parse_override

    return tuple(map(parse_override, texts))


def _positive(
    field: str, text: str | None, units: Mapping[str, float], example: str
) -> float | None:
    """Read an amount above 0; None stays None."""
    if text is None:
        return None
    value = amount(field, text, units, f"an amount such as {example}")
    if not 0 < value < math.inf:
        raise InputError(f"expected an amount such as {example}", field=field, value=text)
    return value


def _dtype(field: str, text: str | None) -> DType | None:
    return None if text is None else parse_dtype(text, field)


def _routing(skew: float | None, correlation: float | None) -> Routing | None:
    """Return the routing with these values, and the stated default of the other; else None."""
    if skew is None and correlation is None:
        return None
    stated = priors().routing
    return Routing(
        skew=stated.skew if skew is None else skew,
        correlation=stated.correlation if correlation is None else correlation,
    )


def _shares(values: tuple[float, ...] | None) -> float | tuple[float, ...] | None:
    """Return one share as a number, several by position."""
    return values[0] if values is not None and len(values) == 1 else values
