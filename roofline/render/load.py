"""The answer over a load: its blocks, its rows and its data."""

from __future__ import annotations

import math
from typing import Any

from roofline.advice.columns import Column, printed
from roofline.advice.decide import dollars_per_million
from roofline.base.errors import Option
from roofline.base.notices import Code as NoticeCode
from roofline.base.units import format_count
from roofline.questions.load.answer import LoadAnswer
from roofline.questions.load.policies import Policy
from roofline.render.blocks import Answer, Block, Code, Note, Paragraph, Table, Tone, table
from roofline.render.data import (
    acceptance_data,
    inputs_data,
    other_reading_data,
    provenance,
    summary,
)
from roofline.render.load_sentences import (
    goodput_lines,
    headline,
    marks,
    other_headlines,
    overloaded,
    reading,
    schedule_line,
    schedule_notices,
    where,
)
from roofline.render.notices import notes, notes_data, sentence, warnings
from roofline.render.recommendation import COST, engine_blocks, setting
from roofline.render.why import dollars
from roofline.specs.priors import priors

__all__ = ["answer_blocks", "as_answer", "data", "rows"]

SCHEMA = "roofline.load/2"


_SHARED = (
    printed("marked", "D", "{value}"),
    printed("tokens_per_step", "tokens\nper burst", "{value:.2f}"),
    printed("tpot_ms", "TPOT\nms", "{value:.2f}"),
    printed("gap_p50_ms", "gap\np50 ms", "{value:.1f}"),
    printed("gap_p99_ms", "gap\np99 ms", "{value:.1f}"),
    printed("gain", "gain", "{value:.2f}x"),
)
_ARRIVALS = (
    _SHARED[0],
    printed("running", "running\nbatch", "{value:.1f}"),
    *_SHARED[1:],
    printed("most_rps", "most\nreq/s", "{value:.3g}"),
)
_WAITS = (
    _SHARED[0],
    printed("running", "running\nbatch", "{value:.1f}"),
    printed("tokens_per_step", "tokens\nper burst", "{value:.2f}"),
    printed("tpot_ms", "TPOT\nms", "{value:.2f}"),
    printed("tpot_most_ms", "TPOT\nmost", "{value:.2f}"),
    printed("ttft_ms", "TTFT\nms", "{value:.0f}"),
    printed("ttft_most_ms", "TTFT\nmost", "{value:.0f}"),
    printed("requests_per_s", "req/s\nserved", "{value:.3g}"),
    printed("gain", "gain", "{value:.2f}x"),
)
_MET = printed("met_percent", "% that\nmeet", "{value:.1f}")
_HELD = printed("held", "load\nheld", "{value:.3g}")
_HISTOGRAM = (*_SHARED, printed("tokens_per_s", "tokens/s\nof all", "{value:.0f}"))
_COST_AT_MOST = printed("dollars_per_million_at_most", "$/M\nat most", "{value:.3g}")


def as_answer(answer: LoadAnswer) -> Answer:
    """Return the answer in every form."""
    said = {NoticeCode.PAST_GRAPHS_UNDER_LOAD}  # where the marks of the table are explained
    if answer.no_schedule is not None:
        said.add(answer.no_schedule.code)
    pays = schedule_notices(answer) if answer.schedule_pays else ()
    return Answer(
        headlines=lambda: [headline(answer)],
        blocks=lambda: answer_blocks(answer),
        notes=(*notes([*answer.notices, *pays]), *_load_notes(answer)),
        said=frozenset(said),
        more=lambda: [Paragraph(summary(answer.question, answer.times))],
        data=lambda: data(answer),
        rows=lambda: rows(answer),
    )


def answer_blocks(answer: LoadAnswer) -> list[Block]:
    """Return the advice, what each policy yields, and what to paste."""
    question, advised = answer.question, answer.advised
    after = [reading(answer), *overloaded(answer), *goodput_lines(answer)]
    if answer.goodput is None:
        after += [*_cost_lines(answer), schedule_line(answer)]
    blocks: list[Block] = [
        Paragraph(headline(answer), tone=Tone.HEADLINE),
        *map(Paragraph, other_headlines(answer)),
        Paragraph(setting(question, where=where(answer))),
        _table(answer),
        Paragraph(marks(answer), tone=Tone.QUIET, close=True),
        *map(Paragraph, after),
    ]
    if answer.schedule is not None and answer.schedule_pays:
        return [*blocks, Code(answer.schedule.text, of=question.deployment.engine.name)]
    return [*blocks, *engine_blocks(question, advised.draft_length or 0, running=advised.slots)]


def data(answer: LoadAnswer) -> dict[str, Any]:
    """Return the whole answer as JSON-ready data."""
    load, chunks = answer.load, answer.chunks
    return {
        "schema": SCHEMA,
        "inputs": inputs_data(answer.question),
        "acceptance": acceptance_data(answer.question) | _other_reading(answer),
        "load": {
            "rps": load.rps,
            "input_tokens": load.input_tokens,
            "output_tokens": load.output_tokens,
            "histogram": None
            if load.histogram is None
            else [{"batch": batch, "share": float(load.share[batch])} for batch in load.histogram],
            "context": load.length,
            "chunk_tokens": chunks.each,
            "chunks_per_prompt": chunks.per_prompt,
            "chunks_per_step": chunks.most,
        }
        | _load_added(answer),
        "draft_length": answer.advised.draft_length,
        "gain": _number(answer.advised.gain),
        "gain_range": answer.gain_range and list(map(_number, answer.gain_range)),
        "headline": headline(answer),
        "flag": answer.question.deployment.launch.flags(
            answer.advised.draft_length or 0,
            running=answer.advised.slots,
        ),
        "policies": [_policy(answer, policy) for policy in answer.policies],
        "schedule": None if answer.schedule is None else answer.schedule.text,
        "schedule_notes": [sentence(each) for each in schedule_notices(answer)],
        "warnings": warnings(answer.notices),
        "notes": [
            *notes_data([*answer.notices, *schedule_notices(answer)]),
            *(note._asdict() for note in _load_notes(answer)),
        ],
        "provenance": provenance(answer.question, answer.times),
    }


def _load_added(answer: LoadAnswer) -> dict[str, Any]:
    """Return what only a closed loop or limits add to the load."""
    load, goodput, added = answer.load, answer.goodput, dict[str, Any]()
    if load.context_mix is not None:
        shares = load.context_mix.items()
        added["context_mix"] = [{"context": size, "share": share} for size, share in shares]
    if load.concurrency is not None:
        added |= {"concurrency": load.concurrency, "think_time_s": load.think_time}
    if goodput is not None:
        limits = goodput.limits
        added["limits"] = {
            "ttft_ms": _number(1e3 * limits.ttft),
            "tpot_ms": _number(1e3 * limits.tpot),
            "e2e_ms": _number(1e3 * limits.e2e),
            "percentile": 100 * limits.share,
        }
        added["goodput"] = {
            "held": goodput.most[0],
            "held_range": list(goodput.most[1:]),
            "held_plain": goodput.held[0],
            "held_plain_range": list(goodput.ranges[1]),
            "rps": goodput.wanted,
            "replicas": goodput.replicas,
            "replicas_plain": goodput.plain_replicas,
            "replicas_at_low_end": goodput.sure_replicas,
        }
    return added


def _waits(answer: LoadAnswer, policy: Policy) -> dict[str, Any]:
    """Return what requests wait for with one policy, where clients or limits were given."""
    if not answer.latencies:
        return {}
    at = next(i for i, each in enumerate(answer.policies) if each is policy)
    latency, goodput = answer.latencies[at], answer.goodput
    times = ("ttft", "ttft_most", "tpot_most", "e2e_most")
    data: dict[str, Any] = {
        f"{name}_ms": None if latency is None else 1e3 * getattr(latency, name) for name in times
    }
    data["requests_per_s"] = _number(policy.tokens_per_s / (answer.load.output_tokens or 1))
    if goodput is not None:
        met = math.nan if latency is None else 100 * latency.met
        data |= {"met_percent": _number(met)}
        data["held"] = goodput.held[at] if at < len(goodput.held) else None
    return data


def _other_reading(answer: LoadAnswer) -> dict[str, Any]:
    """Return the other reading of the acceptance, with what it advises."""
    other = answer.other_reading
    curve = answer.question.acceptance.other_reading
    if isinstance(other, LoadAnswer):
        advised = {"headline": headline(other), "draft_length": other.advised.draft_length}
        return other_reading_data(curve, answer.notices, **advised)
    problem = None if other is None else other.problem
    return other_reading_data(curve, answer.notices, headline=problem, draft_length=None)


def _policy(answer: LoadAnswer, policy: Policy) -> dict[str, Any]:
    data = {
        "policy": "schedule" if policy.draft_length is None else "fixed",
        "draft_length": policy.draft_length,
        "usable": policy.usable,
        "running": _number(policy.running),
        "waiting": _number(policy.waiting),
        "slots": policy.slots,
        "tokens_per_step": _number(policy.tokens_per_step),
        "tpot_ms": _number(1e3 * policy.tpot),
        "gap_p50_ms": _number(1e3 * policy.gap_p50),
        "gap_p99_ms": _number(1e3 * policy.gap_p99),
        "gaps_with_prompt": _number(policy.with_prompt),
        "gaps_past_graphs": _number(policy.past_graphs),
        "tokens_per_s": _number(policy.tokens_per_s),
        "gain": _number(policy.gain),
        "most_rps": policy.most_rps,
        **_waits(answer, policy),
    }
    price = answer.question.workload.gpu_hour
    if price is None:
        return data
    gpus = answer.question.deployment.cards
    tokens_at_most = (policy.most_rps or math.nan) * (answer.load.output_tokens or 0)
    rates = {"tokens": policy.tokens_per_s, "at_most": tokens_at_most}
    for name, rate in rates.items():
        cost = dollars_per_million(gpu_hour=price, gpus=gpus, tokens_per_s=rate or math.nan)
        data[f"dollars_per_million_{name}"] = _number(float(cost))
    return data


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _table(answer: LoadAnswer) -> Table:
    """Return what every policy yields, the advised one and those past the graphs marked."""
    arrivals = answer.load.rps is not None
    columns: tuple[Column, ...] = _ARRIVALS if arrivals else _HISTOGRAM
    if answer.goodput is not None:
        columns = (*_WAITS[:-2], _MET, _HELD)
    elif answer.load.concurrency is not None:
        columns = _WAITS
    elif answer.question.workload.gpu_hour is not None:
        columns = (*columns, _COST_AT_MOST if arrivals else COST)
    marked = []
    for policy in answer.policies:
        name = "schedule" if policy.draft_length is None else f"{policy.draft_length}"
        mark = "* " if policy is answer.advised else "! " if policy.past else ""
        marked.append(_policy(answer, policy) | {"marked": f"{mark}{name}"})
    return table(columns, marked)


def _cost_lines(answer: LoadAnswer) -> list[str]:
    price = answer.question.workload.gpu_hour
    if price is None:
        return []
    best, plain = (_policy(answer, policy) for policy in (answer.advised, answer.plain))
    cards = answer.question.deployment.cards
    start = f"At {dollars(price)} per GPU-hour and {format_count(cards, 'GPU')}: "
    length = f"draft length {answer.advised.draft_length}"

    def cost(policy: dict[str, Any], name: str) -> str:
        amount = policy[f"dollars_per_million_{name}"]
        return "nothing" if amount is None else dollars(amount)

    if answer.load.rps is None:  # the pace decides how many tokens are served
        line = (
            f"{start}{cost(best, 'tokens')} per million output tokens with {length}, "
            f"{cost(plain, 'tokens')} without speculation."
        )
    else:
        line = (
            f"{start}{cost(best, 'tokens')} per million output tokens at this load, whatever the "
            f"draft length; at the most requests that each can serve, {cost(best, 'at_most')} with "
            f"{length} and {cost(plain, 'at_most')} without speculation."
        )
    return [line]


def _load_notes(answer: LoadAnswer) -> tuple[Note, ...]:
    """Return what was assumed of the load."""
    load, chunks, found = answer.load, answer.chunks, list[Note]()
    if load.rps is not None:
        text = (
            "requests arrive at random and independently (Poisson) with these lengths; at most "
            f"{answer.advised.slots} run at once"
        )
        found.append(Note(code="poisson-arrivals", text=text, assumption=True))
    if load.context_mix is not None:
        text = (
            "a step of mixed contexts takes the mean of the steps at each, which is exact for what "
            "adds up over sequences; a kernel that waits for its longest sequence takes longer"
        )
        found.append(Note(code="mixed-contexts", text=text, assumption=True))
    if load.concurrency is not None:
        thinks = "think for times that vary (exponential)" if load.think_time else "do not think"
        text = (
            f"clients have one request at a time and {thinks}; answers end at different times, as "
            "clients that start together with answers of one length do not"
        )
        found.append(Note(code="closed-loop", text=text, assumption=True))
    if answer.latencies:
        around = 1e3 * priors().front_end.first_token
        text = (
            "the first token comes at the end of the step that reads the last of the prompt, and "
            f"{around:.0f} ms later for what a server does around its passes, as public runs have "
            "in their median: 8 to 140 ms in four of five"
        )
        found.append(Note(code="first-token", text=text, assumption=True))
    if chunks.most:
        text = (
            f"prompts are read in {format_count(chunks.per_prompt, 'chunk')} of {chunks.each:.0f} "
            f"tokens, up to {chunks.most} in a step ({Option('prefill_chunk')})"
        )
        found.append(Note(code="prompt-chunks", text=text, assumption=True))
    return tuple(found)


def rows(answer: LoadAnswer) -> list[dict[str, Any]]:
    """Return a row for every policy."""
    inputs = inputs_data(answer.question)
    shared = {key: inputs[key] for key in ("model", "gpu", "gpus", "tp")}
    found = []
    for policy in answer.policies:
        row = _policy(answer, policy)
        named = {"speedup" if key == "gain" else key: value for key, value in row.items()}
        found.append({**shared, **named, "recommended": policy is answer.advised})
    return found
