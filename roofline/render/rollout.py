"""The answer over requests that start together: its blocks, its rows and its data."""

from __future__ import annotations

import math
from typing import Any

from roofline.advice.columns import printed
from roofline.advice.decide import TIE, dollars_per_million
from roofline.base.units import format_count, format_size
from roofline.questions.load.rollout import Decay, RolloutAnswer
from roofline.render.blocks import Answer, Block, Code, Note, Paragraph, Table, Tone, table
from roofline.render.data import acceptance_data, inputs_data, provenance, summary
from roofline.render.load_sentences import format_time
from roofline.render.notices import notes, notes_data, warnings
from roofline.render.recommendation import engine_blocks, setting
from roofline.render.why import NOT_MEASURED, dollars

__all__ = ["answer_blocks", "as_answer", "data", "headline", "rows"]

SCHEMA = "roofline.rollout/1"
_COLUMNS = (
    printed("marked", "D", "{value}"),
    printed("seconds", "all done\nafter s", "{value:.3g}"),
    printed("running", "running\nbatch", "{value:.1f}"),
    printed("alone_percent", "% of time\nalone", "{value:.1f}"),
    printed("tokens_per_s", "tokens/s\nof all", "{value:.0f}"),
    printed("gain", "gain", "{value:.2f}x"),
)


def as_answer(answer: RolloutAnswer) -> Answer:
    """Return the answer in every form."""
    return Answer(
        headlines=lambda: [headline(answer)],
        blocks=lambda: answer_blocks(answer),
        notes=(*notes(answer.notices), *_own_notes(answer)),
        said=frozenset(),
        more=lambda: [Paragraph(summary(answer.question, answer.times))],
        data=lambda: data(answer),
        rows=lambda: rows(answer),
    )


def headline(answer: RolloutAnswer) -> str:
    """Return the advice in one sentence."""
    best, plain, rollout = answer.advised, answer.plain, answer.rollout
    start = (
        f"{format_count(rollout.requests, 'request')} of {rollout.input_tokens} tokens in that "
        f"start together, {rollout.mean_length:.0f} out on average"
    )
    if answer.schedule_pays:
        seconds = best.seconds / (1 + answer.schedule_gain)
        gained = best.gain * (1 + answer.schedule_gain)
        low, high = gained * answer.off[0], gained * answer.off[1]
        within = f" ({low:.2f}x to {high:.2f}x given the model's error)" if low < high else ""
        return (
            f"{start}: run the schedule below: all are done after {format_time(seconds)} instead "
            f"of {format_time(plain.seconds)}, {plain.seconds / seconds:.2f}x{within}."
        )
    if best.draft_length == 0:
        return f"{start}: do not speculate; all are done after {format_time(plain.seconds)}."
    engine, kind = answer.question.deployment.engine, answer.question.deployment.drafter.kind
    low, high = answer.gain_range
    unmeasured = f"; {NOT_MEASURED}" if answer.question.acceptance.unknown else ""
    return (
        f"{start}: run draft length {best.draft_length} ({engine.name_of_length(kind)}): all are "
        f"done after {format_time(best.seconds)} instead of {format_time(plain.seconds)}, "
        f"{best.gain:.2f}x ({low:.2f}x to {high:.2f}x given the model's error{unmeasured})."
    )


def answer_blocks(answer: RolloutAnswer) -> list[Block]:
    """Return the advice, what every draft length takes, and what to paste."""
    rollout, question = answer.rollout, answer.question
    first, last = rollout.input_tokens, rollout.input_tokens + max(rollout.lengths)
    where = f"contexts {format_size(first)} to {format_size(last)}"
    past = any(each.past_graphs and not each.advisable for each in answer.decays)
    marks = "*: advised." + (" !: not advised: it leaves the captured graphs." if past else "")
    blocks: list[Block] = [
        Paragraph(headline(answer), tone=Tone.HEADLINE),
        Paragraph(setting(question, where=where)),
        _table(answer),
        Paragraph(marks, tone=Tone.QUIET, close=True),
        Paragraph(_by_batch(answer)),
        *map(Paragraph, _cost(answer)),
    ]
    if answer.schedule_text is not None:
        return [*blocks, Code(answer.schedule_text, of=question.deployment.engine.name)]
    length = answer.advised.draft_length
    return [*blocks, *engine_blocks(question, length, running=rollout.requests)]


def _by_batch(answer: RolloutAnswer) -> str:
    """Say what a draft length by running batch adds."""
    gained = answer.by_batch_gain
    if gained < TIE:
        gains = "nothing" if gained < 0.001 else f"{gained:.1%}"
        return (
            f"A draft length by running batch gains {gains} over the fixed one while the batch "
            "decays: not worth its upkeep."
        )
    parts = ", ".join(f"{length} from {batch} on" for batch, length in answer.by_batch)
    last = f"the engine's schedule, below, {answer.schedule_gain:.1%}"
    if not answer.schedule_pays:
        last = "no schedule that the engine takes gains as much as 1%"
    return (
        f"The best draft length by running batch ({parts}) gains {gained:.1%} over the fixed one; "
        f"{last}."
    )


def _cost(answer: RolloutAnswer) -> list[str]:
    price = answer.question.workload.gpu_hour
    if price is None:
        return []
    best, plain = (_dollars(answer, each, price) for each in (answer.advised, answer.plain))
    cards = answer.question.deployment.cards
    return [
        (
            f"At {dollars(price)} per GPU-hour and {format_count(cards, 'GPU')}: {dollars(best)} "
            f"per million output tokens with draft length {answer.advised.draft_length}, "
            f"{dollars(plain)} without speculation."
        )
    ]


def _dollars(answer: RolloutAnswer, decay: Decay, price: float) -> float:
    gpus = answer.question.deployment.cards
    return float(dollars_per_million(gpu_hour=price, gpus=gpus, tokens_per_s=decay.tokens_per_s))


def _decay(answer: RolloutAnswer, decay: Decay) -> dict[str, Any]:
    row: dict[str, Any] = {
        "draft_length": decay.draft_length,
        "seconds": _number(decay.seconds),
        "running": _number(decay.running),
        "alone_percent": _number(100 * decay.alone),
        "tokens_per_s": _number(decay.tokens_per_s),
        "gain": _number(decay.gain),
        "time_past_graphs": _number(decay.past_graphs),
    }
    price = answer.question.workload.gpu_hour
    if price is not None:
        row["dollars_per_million_tokens"] = _number(_dollars(answer, decay, price))
    return row


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _table(answer: RolloutAnswer) -> Table:
    marked = []
    for decay in answer.decays:
        mark = "* " if decay is answer.advised else "" if decay.advisable else "! "
        if math.isfinite(decay.seconds):
            name = {"marked": f"{mark}{decay.draft_length}"}
            marked.append(_decay(answer, decay) | name)
    return table(_COLUMNS, marked)


def data(answer: RolloutAnswer) -> dict[str, Any]:
    """Return the whole answer as JSON-ready data."""
    rollout = answer.rollout
    length = answer.advised.draft_length
    return {
        "schema": SCHEMA,
        "inputs": inputs_data(answer.question),
        "acceptance": acceptance_data(answer.question),
        "rollout": {
            "requests": rollout.requests,
            "input_tokens": rollout.input_tokens,
            "lengths": [{"tokens": n, "share": share} for n, share in rollout.lengths.items()],
        },
        "draft_length": length,
        "gain": _number(answer.advised.gain),
        "gain_range": list(answer.gain_range),
        "headline": headline(answer),
        "flag": answer.question.deployment.launch.flags(length, running=rollout.requests),
        "decays": [_decay(answer, decay) for decay in answer.decays],
        "by_batch": [{"from": n, "draft_length": d} for n, d in answer.by_batch],
        "by_batch_gain": answer.by_batch_gain,
        "schedule": answer.schedule_text,
        "schedule_gain": answer.schedule_gain,
        "warnings": warnings(answer.notices),
        "notes": [*notes_data(answer.notices), *(note._asdict() for note in _own_notes(answer))],
        "provenance": provenance(answer.question, answer.times),
    }


def _own_notes(answer: RolloutAnswer) -> tuple[Note, ...]:
    chunks = answer.chunks
    text = (
        "each request draws its answer length from the shares given, independently; the prompts "
        f"are read first, {format_count(chunks.most, 'chunk')} of {chunks.each:.0f} tokens "
        "in a step"
    )
    return (Note(code="independent-lengths", text=text, assumption=True),)


def rows(answer: RolloutAnswer) -> list[dict[str, Any]]:
    """Return a row for every draft length."""
    inputs = inputs_data(answer.question)
    shared = {key: inputs[key] for key in ("model", "gpu", "gpus", "tp")}
    found = []
    for decay in answer.decays:
        row = _decay(answer, decay)
        named = {"speedup" if key == "gain" else key: value for key, value in row.items()}
        found.append({**shared, **named, "recommended": decay is answer.advised})
    return found
