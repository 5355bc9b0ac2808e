"""Parts of an answer as plain data: what was asked, each point, its kernels, and its sources."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from roofline.acceptance import Acceptance
from roofline.advice.decide import Point, dollars_per_million
from roofline.advice.question import Question
from roofline.advice.recommend import Recommendation
from roofline.advice.why import bound, grid_position, value_at
from roofline.base.notices import Notice
from roofline.kernels.ops import Part
from roofline.render.deployment import deployment_data, set_data
from roofline.render.notices import sentence
from roofline.render.why import headline, reason
from roofline.timing.machine import OpTime
from roofline.timing.step import StepTimes

if TYPE_CHECKING:
    from roofline.advice.provenance import NumberSource

__all__ = [
    "acceptance_data",
    "benchmark_rows",
    "engine_data",
    "explain_rows",
    "inputs_data",
    "other_points_data",
    "other_reading_data",
    "point_data",
    "prompts_data",
    "provenance",
    "source_data",
    "summary",
]


def inputs_data(question: Question) -> dict[str, Any]:
    """Return what was asked, defaults filled in."""
    deployment, workload = question.deployment, question.workload
    placement, drafter = deployment.target.placement, deployment.drafter
    routing = placement.routing
    return {
        **deployment_data(deployment),
        **({"gpu_hour": workload.gpu_hour} if workload.gpu_hour is not None else {}),
        **({"watts": True} if workload.watts else {}),
        "routing": {"skew": routing.skew, "correlation": routing.correlation},
        "batch": list(workload.batches),
        "context": list(workload.contexts),
        "drafter": drafter.name,
        "drafter_kind": drafter.kind,
        "draft_tp": drafter.placement.attention_tp if drafter.network else None,
        "acceptance": question.acceptance.label,
        "acceptance_source": question.acceptance.source,
        "acceptance_rounds": question.rounds,
        **prompts_data(question),
        "max_draft_length": workload.max_draft_length,
        "verify_attention": placement.verify_attention.value,
        "set": set_data(deployment.changes),
    }


def prompts_data(question: Question) -> dict[str, Any]:
    """Return what is said of the drafts beside their acceptance, and of the prompts."""
    workload = question.workload
    return {
        "hit_rate": question.hit_rate,
        "domain": workload.domain,
        "dataset": workload.dataset,
        "temperature": workload.temperature,
    }


def acceptance_data(question: Question) -> dict[str, Any]:
    """Return what the acceptance was made of, and the draft lengths that were not measured."""
    curve = question.acceptance
    return {
        "definition": curve.definition.value,
        "label": curve.label,
        "source": curve.source,
        "rounds": question.rounds,
        "hit_rate": question.hit_rate,
        "filled": curve.filled_up_to(question.workload.max_draft_length),
        "measured": not curve.unknown,
        "continued_from": curve.continued_from,
        "early_stops": curve.early_stops,
    }


def other_reading_data(
    curve: Acceptance | None, notices: Iterable[Notice], **advised: Any
) -> dict[str, Any]:
    """Return the other reading of a list of rates that was typed without a word, None without one.

    ``advised`` is what it leads to, ``notices`` those of the answer.
    """
    if curve is None:
        return {"ambiguous": False, "other_reading": None}
    from roofline.advice.readings import is_ambiguous

    reading = {"definition": curve.definition.value, "label": curve.label, **advised}
    return {"ambiguous": is_ambiguous(notices), "other_reading": reading}


def other_points_data(answer: Recommendation) -> dict[str, Any]:
    """Return the other reading of the acceptance of an answer, with what it advises."""
    other = answer.other_reading
    if other is None:
        return other_reading_data(None, ())
    points = [
        {
            "batch": point.batch,
            "context": point.context,
            "draft_length": point.draft_length,
            "speedup": float(point.speedup[point.best]),
            "headline": headline(other, point),
        }
        for point in other.points
    ]
    return other_reading_data(other.question.acceptance, answer.notices, points=points)


def point_data(answer: Recommendation, point: Point) -> dict[str, Any]:
    """Return what is said of one batch and context."""
    best, energy = point.best, _energy(answer, point)
    return {
        "batch": point.batch,
        "context": point.context,
        "draft_length": point.draft_length,
        "speculate": point.draft_length > 0,
        "confidence": point.confidence.value,
        "tie_band": point.tie_band,
        "speedup": float(point.speedup[best]),
        "speedup_low": float(point.low[best]),
        "speedup_high": float(point.high[best]),
        "headline": headline(answer, point),
        "reason": reason(answer, point),
        "flag": answer.question.deployment.launch.flags(
            point.draft_length, running=answer.running(point), most=answer.capped
        ),
        "benchmark": benchmark_rows(answer, point),
        "by_draft_length": [
            _draft_length(point, i) | _cost(answer.question, point, i) | energy(i)
            for i, ok in enumerate(point.feasible)
            if ok
        ],
        **_pools(answer, point),
    }


def _pools(answer: Recommendation, point: Point) -> dict[str, Any]:
    """Return what one prefill instance feeds, if that is asked."""
    if answer.question.workload.pools is None:
        return {}
    from roofline.questions.pools import pools_of

    found = pools_of(answer, point)
    return {
        "pools": {
            "prompt_tokens": found.prompt,
            "answer_tokens": found.answer,
            "gpus_of_an_instance": found.gpus,
            "prefill_ms": 1e3 * found.prefill,
            "cache_bytes": found.cache,
            "handover_ms": 1e3 * found.handover,
            "by_draft_length": [
                {
                    "draft_length": length,
                    "decode_instances": float(found.instances[i]),
                    "decode_instances_low": float(found.low[i]),
                    "decode_instances_high": float(found.high[i]),
                }
                for i, length in enumerate(point.draft_lengths)
                if point.feasible[i]
            ],
        }
    }


def _cost(question: Question, point: Point, i: int) -> dict[str, float]:
    """Return what a million tokens cost, if a GPU has a price."""
    price = question.workload.gpu_hour
    if price is None:
        return {}
    rate = float(point.batch / point.time_per_token[i])
    cost = dollars_per_million(gpu_hour=price, gpus=question.deployment.cards, tokens_per_s=rate)
    return {"dollars_per_million_tokens": float(cost)}


def _energy(answer: Recommendation, point: Point) -> Callable[[int], dict[str, float]]:
    """Return what gives watts and joules by position, if they are asked for."""
    if not answer.question.workload.watts:
        return lambda _: {}
    from roofline.advice.energy import energy_of

    at = grid_position(answer, point, 0)[:2]
    found = energy_of(answer.question, answer.times, (at[0], at[1]), point.tokens_per_step)
    keys = (
        "watts",
        "watts_low",
        "watts_high",
        *(f"joules_per_token{e}" for e in ("", "_low", "_high")),
    )
    return lambda i: {key: float(values[i]) for key, values in zip(keys, found, strict=True)}


def _draft_length(point: Point, i: int) -> dict[str, Any]:
    per_token = point.time_per_token[i]
    return {
        "draft_length": point.draft_lengths[i],
        "tokens_per_step": float(point.tokens_per_step[i]),
        "step_ms": 1e3 * float(point.step[i]),
        "verify_ms": 1e3 * float(point.verify[i]),
        "draft_ms": 1e3 * float(point.draft[i]),
        "overhead_ms": 1e3 * float(point.overhead[i]),
        "cost_ratio": float(point.cost_ratio[i]),
        "break_even_tokens_per_step": float(point.cost_ratio[i]),
        "speedup": float(point.speedup[i]),
        "speedup_low": float(point.low[i]),
        "speedup_high": float(point.high[i]),
        "near_best": float(point.near_best[i]),
        "captured": bool(point.captured[i]),
        "by_hand_ms": 1e3 * float(point.by_hand[i]),
        "tpot_ms": 1e3 * float(per_token),
        "tokens_per_s": float(point.batch / per_token),
        "breakdown_ms": {part.value: 1e3 * float(point.parts[part][i]) for part in Part},
    }


def benchmark_rows(answer: Recommendation, point: Point) -> list[dict[str, Any]]:
    """Return the draft lengths worth timing, with the flag that holds their acceptance."""
    return [
        {
            "draft_length": point.draft_lengths[i],
            "near_best": float(point.near_best[i]),
            "flag": answer.deployment.launch.flags_to_time(
                point.draft_lengths[i],
                float(point.tokens_per_step[i]),
                running=answer.running(point),
                most=answer.capped,
            ),
        }
        for i in point.worth_benchmarking
    ]


def engine_data(question: Question) -> dict[str, Any]:
    """Return the engine's times around the kernels, and where they come from."""
    overhead = question.deployment.engine.overhead
    return {
        "id": question.deployment.engine.id,
        "name": question.deployment.engine.name,
        "floor_scale": overhead.floor_scale,
        "expert_floor_scale": overhead.expert_floor_scale,
        "per_layer_ms": 1e3 * overhead.per_layer,
        "per_sequence_ms": 1e3 * overhead.per_sequence,
        "per_step_ms": 1e3 * overhead.per_step,
        "per_spec_round_ms": 1e3 * overhead.per_spec_round,
        "per_draft_pass_ms": 1e3 * overhead.draft_pass(question.deployment.drafter.pass_kind),
        "per_spec_sequence_ms": 1e3 * overhead.per_spec_sequence,
        "per_tree_round_ms": 1e3 * overhead.per_tree_round,
        "per_model_round_ms": 1e3 * overhead.per_model_round,
        "per_expert_layer_ms": 1e3 * overhead.per_expert_layer,
        "per_state_layer_ms": 1e3 * overhead.per_state_layer,
        "source": overhead.source,
        "note": overhead.note,
        "flags_source": question.deployment.engine.flags_source,
    }


def explain_rows(answer: Recommendation, point: Point) -> list[dict[str, Any]]:
    """Return every kernel of the recommended step: work, time, bound and share of the step."""
    at = grid_position(answer, point, point.draft_length)
    step = float(point.step[point.best])
    rows = [_op_row("verify", time, at, 1, step) for time in answer.times.verify_ops]
    if point.draft_length > 0:
        rows += [_op_row("draft", t, at, 1, step) for t in answer.times.first_pass_ops]
    if point.draft_length > 1:
        repeats = value_at(answer.times.further_passes, at)
        rows += [
            _op_row("draft, further", t, at, repeats, step) for t in answer.times.further_pass_ops
        ]
    return rows


def _op_row(
    phase: str, time: OpTime, at: tuple[int, ...], repeats: float, step: float
) -> dict[str, Any]:
    flops, moved = value_at(time.op.flops, at), value_at(time.op.bytes, at)
    total = repeats * value_at(time.total, at)
    return {
        "pass": phase,
        "op": time.op.name,
        "count": repeats * time.op.count,
        "rows": value_at(time.op.rows, at),
        "flops": flops,
        "bytes": moved,
        "intensity": flops / moved if moved else math.inf,
        "time_us": 1e6 * value_at(time.each, at),
        "total_ms": 1e3 * total,
        "bound": bound(time, at),
        "share": total / step,
        "source": time.chosen.provenance,
        "law": time.chosen.detail,
    }


def source_data(source: NumberSource) -> dict[str, Any]:
    """Return a source as JSON writes it."""
    detail = sentence(source.detail) if isinstance(source.detail, Notice) else source.detail
    data: dict[str, Any] = {"what": source.what, "kind": source.kind, "source": detail}
    if source.measured is not None:
        data |= {
            "median_error": source.median_error,
            "p90_error": source.p90_error,
            "measured": source.measured,
        }
    return data


def provenance(question: Question, times: StepTimes) -> list[dict[str, Any]]:
    """Return where each group of numbers comes from, as JSON writes it."""
    from roofline.advice.provenance import number_sources  # text says it only where it is asked for

    return [source_data(source) for source in number_sources(question, times)]


def summary(question: Question, times: StepTimes) -> str:
    """Return one sentence about the constants of an answer."""
    from roofline.advice.provenance import law_sources

    laws = []
    for law in law_sources(times):
        if law.share < 0.01:
            continue
        evidence = law.chosen.evidence
        error = f", {100 * evidence.median_error:.0f} % off" if evidence else ""
        laws.append(f"{law.what} ({law.chosen.provenance}: {law.chosen.detail}{error})")
    engine = question.deployment.engine
    source = engine.overhead.source
    overhead = "fitted on published runs" if source == "fitted" else source
    return f"Constants: {'; '.join(laws)}; overhead of {engine.name}: {overhead}."
