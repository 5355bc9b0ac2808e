"""The answer of ``acceptance explain``: its blocks, its rows and its data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from roofline.acceptance.explain import Label, Step
from roofline.base.errors import Option
from roofline.base.units import format_size
from roofline.questions.acceptance import ExplainedAcceptance
from roofline.render.blocks import Answer, Block, Paragraph, Table, Tone
from roofline.render.data import acceptance_data, inputs_data
from roofline.render.notices import notes, notes_data

__all__ = ["as_answer"]

SCHEMA = "roofline.acceptance-explain/1"
#: The words of labels, and of those that are not known.
_WORDS = {
    Label.KIND: "kind of drafter",
    Label.FAMILY: "models",
    Label.RECIPE: "trained by",
    Label.DRAFTER: "drafter",
    Label.DOMAIN: "domain",
    Label.DATASET: "data set",
    Label.TEMPERATURE: "temperature",
    Label.CONTEXT: "context",
    Label.SETUP: "set-up",
    Label.COUNTED: "your numbers",
}
#: Characters of a label's value, of a source.
WIDTH, SOURCE = 34, 90
#: A change of tokens per step below this share is not listed among what would move them.
LEAST_MOVE = 0.03


def as_answer(explained: ExplainedAcceptance) -> Answer:
    """Return the explanation in every form."""
    question = explained.question
    return Answer(
        blocks=lambda: _blocks(explained),
        headlines=lambda: [_headline(explained)],
        notes=notes(question.notices),
        data=lambda: _data(explained),
        rows=lambda: _rows(explained),
    )


def _of_range(explained: ExplainedAcceptance) -> str:
    if explained.question.acceptance.unknown:
        return "80 of 100 such drafters lie in it"
    return "what the numbers given leave open, with odds of 80 %"


def _blocks(explained: ExplainedAcceptance) -> list[Block]:
    blocks: list[Block] = [
        Paragraph(_headline(explained), tone=Tone.HEADLINE),
        _curve(explained),
        Paragraph(f"range: {_of_range(explained)}.", tone=Tone.QUIET, close=True),
    ]
    if explained.steps:
        blocks.append(_label_table(explained))
    blocks += [Paragraph(line) for line in _what_would_move(explained)]
    if explained.nearest:
        blocks.append(Paragraph("Nearest public runs:"))
        blocks += [Paragraph(line, close=True) for line in _near(explained)]
    return blocks


def _headline(explained: ExplainedAcceptance) -> str:
    """Return tokens per step at the draft length, how sure, and whether anyone counted."""
    deployment, curve = explained.question.deployment, explained.question.acceptance
    position = explained.band.draft_lengths.index(explained.draft_length)
    low, high = explained.band.low[position], explained.band.high[position]
    spread = f" ({low:.2f} to {high:.2f})" if high - low > 0.005 else ""
    origin = "not measured: expected of public runs" if curve.unknown else f"from {curve.label}"
    return (
        f"{deployment.drafter.name} on {deployment.target.model.id} yields "
        f"{explained.band.mean[position]:.2f} tokens per step at D = {explained.draft_length}"
        f"{spread}, {origin}."
    )


def _curve(explained: ExplainedAcceptance) -> Table:
    """Return tokens per step by draft length, lengths from left to right."""
    band = explained.band
    picked = range(1, len(band.draft_lengths))
    rows: list[tuple[str, ...]] = [
        ("tokens per step", *(f"{band.mean[i]:.2f}" for i in picked)),
        ("range from", *(f"{band.low[i]:.2f}" for i in picked)),
        ("to", *(f"{band.high[i]:.2f}" for i in picked)),
    ]
    if band.measured:
        given = (band.measured.get(band.draft_lengths[i]) for i in picked)
        rows.append(("given", *("-" if al is None else f"{al:.2f}" for al in given)))
    return Table(
        headings=("D", *(str(band.draft_lengths[i]) for i in picked)),
        cells=tuple(rows),
        align="l",
        title=f"At a context of {format_size(explained.context)}",
    )


def _label_table(explained: ExplainedAcceptance) -> Table:
    """Return what each label says, one after the other."""
    cells, before = list[tuple[str, ...]](), None
    for step in explained.steps:
        known = step.value is not None
        change = "" if before is None or not known else f"{100 * (step.tokens / before - 1):+.0f}%"
        value = _cut(step.value, WIDTH) if step.value is not None else "not known"
        cells.append(
            (
                _WORDS[step.label],
                value,
                f"{step.tokens:.2f}" if known else "",
                change,
                f"{step.low:.2f} to {step.high:.2f}" if known else "",
            )
        )
        before = step.tokens
    return Table(
        headings=("label", "value", f"AL({explained.draft_length})", "change", "range"),
        cells=tuple(cells),
        align="llrrr",
        title="Where it comes from, each label taken in after those above it",
    )


def _what_would_move(explained: ExplainedAcceptance) -> list[str]:
    """Return what another label, or a count, would make of it."""
    position = explained.band.draft_lengths.index(explained.draft_length)
    now = float(explained.band.mean[position])
    lines = list[str]()
    for label, field in ((Label.DOMAIN, "domain"), (Label.TEMPERATURE, "temperature")):
        others = [step for step in explained.moves if step.label is label and _far(step, now)]
        if others:
            named = ", ".join(f"{step.value} {step.tokens:.2f}" for step in others)
            lines.append(f"With another {_WORDS[label]} ({Option(field)}): {named}.")
    if explained.narrowed is not None:
        left = explained.narrowed
        lines.append(
            f"Measured over {left.value}, the range at D = {explained.draft_length} would be about "
            f"{left.high - left.low:.2f} wide, not "
            f"{explained.band.high[position] - explained.band.low[position]:.2f}."
        )
    return lines


def _far(step: Step, now: float) -> bool:
    return abs(step.tokens / now - 1) >= LEAST_MOVE


def _near(explained: ExplainedAcceptance) -> list[str]:
    """Return the nearest public runs, each in a line."""
    return [
        f"- {value.tokens_per_step:.2f} at D = {value.draft_length}: "
        f"{_once(value.target, value.drafter, value.dataset)} ({_cut(value.source, SOURCE)})"
        for value in explained.nearest
    ]


def _once(*texts: str) -> str:
    """Return phrases in a row, each that stands between commas once.

    >>> _once("qwen3-8b", "EAGLE-3", "EAGLE-3, chat")
    'qwen3-8b, EAGLE-3, chat'
    """
    phrases = (phrase.strip() for text in texts for phrase in text.split(","))
    first = {phrase.lower(): phrase for phrase in reversed([*filter(None, phrases)])}
    return ", ".join(reversed(first.values()))


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _rows(explained: ExplainedAcceptance) -> list[dict[str, Any]]:
    """Return a row for every draft length."""
    band = explained.band
    return [
        {
            "draft_length": length,
            "tokens_per_step": float(band.mean[i]),
            "tokens_per_step_low": float(band.low[i]),
            "tokens_per_step_high": float(band.high[i]),
            "tokens_per_step_measured": band.measured.get(length),
        }
        for i, length in enumerate(band.draft_lengths)
        if length > 0
    ]


def _data(explained: ExplainedAcceptance) -> dict[str, Any]:
    question = explained.question
    return {
        "schema": SCHEMA,
        "inputs": inputs_data(question),
        "acceptance": acceptance_data(question),
        "context": explained.context,
        "draft_length": explained.draft_length,
        "curve": _rows(explained),
        "labels": _steps(explained.steps),
        "moves": _steps(explained.moves),
        "after_counting": None if explained.narrowed is None else _steps([explained.narrowed])[0],
        "nearest": [asdict(value) for value in explained.nearest],
        "notes": notes_data(question.notices),
    }


def _steps(steps: Sequence[Step]) -> list[dict[str, Any]]:
    return [asdict(step) | {"label": step.label.value} for step in steps]
