"""The options that every question shares, read from plain values into what is asked.

The command line gives what was typed, the Python functions what was passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from roofline.acceptance import Acceptance
from roofline.advice.configuration import Configuration
from roofline.advice.question import MAX_DRAFT_LENGTH, Workload
from roofline.base.errors import InputError
from roofline.base.values import MILLISECONDS, choice, numbers
from roofline.specs.formats import DType, parse_dtype
from roofline.specs.placement import Routing, SplitMode, StateHandling, VerifyAttention
from roofline.specs.priors import priors

if TYPE_CHECKING:
    from roofline.specs.overrides import Override

__all__ = ["question_from"]


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
