"""The answer of ``tune``: what to run or to time next, what it promises, and how to go on."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from roofline.advice.belief import SPEED_NOISE, Promise
from roofline.advice.columns import printed
from roofline.base.errors import Option
from roofline.base.notices import Code as NoticeCode
from roofline.base.notices import Notice
from roofline.base.units import format_size, listed
from roofline.engines.bench_commands import OUTPUT
from roofline.questions.schedule.plan import SchedulePlan
from roofline.questions.schedule.written import WrittenSchedule, schedule_notices
from roofline.questions.tune.file import Timed
from roofline.questions.tune.learned import schedule_after
from roofline.questions.tune.tune import Doubt, Tuned, Verdict
from roofline.render.blocks import Answer, Block, Code, Paragraph, Tone, table
from roofline.render.deployment import deployment_data
from roofline.render.notices import notes, notes_data
from roofline.render.recommendation import engine_blocks, setting
from roofline.render.schedule import capture_line, plain_line, schedule_headline

__all__ = ["as_answer", "doubt_line", "timed_line"]

SCHEMA = "roofline.tune/1"
Schedule = tuple[SchedulePlan, WrittenSchedule]
_COLUMNS = (
    printed("draft_length", "D"),
    printed("tokens_per_step", "tokens\nper step", "{value:.2f}"),
    printed("timings", "timings"),
    printed("tokens_per_s", "timed\ntokens/s", "{value:.4g}"),
    printed("relative_speed", "believed speed\nof the choice's", "{value:.3f}"),
    printed("worth_percent", "a timing\nis worth %", "{value:.2f}"),
)
#: What typed numbers do not say themselves.
_TYPED = ("draft_length", "batch")
_SPEED_FIRST = "of all users together, or of one: the same unit every time"


def as_answer(tuned: Tuned, file: Path) -> Answer:
    """Return what to do now in every form; ``file`` is the tuning file."""
    schedule = _schedule(tuned, file)
    notices = tuned.question.notices if schedule is None else schedule_notices(*schedule)
    return Answer(
        headlines=lambda: [_headline(tuned, schedule)],
        blocks=lambda: _blocks(tuned, file, schedule),
        notes=notes(notices),
        said=frozenset({NoticeCode.SCHEDULE_GAINS_NOTHING, NoticeCode.TIMINGS_TAKEN}),
        data=lambda: _data(tuned, schedule, notices),
        rows=lambda: [row for load in range(len(tuned.batches)) for row in _rows(tuned, load)],
    )


def _schedule(tuned: Tuned, file: Path) -> Schedule | None:
    """Return the schedule of what is deployed at several batches."""
    if tuned.verdict is not Verdict.DEPLOY or len(tuned.batches) == 1:
        return None
    return schedule_after(tuned, file.name)


def _headline(tuned: Tuned, schedule: Schedule | None) -> str:
    """Return the answer in its first sentence."""
    following = tuned.next_timing
    where = _at_batch(tuned, tuned.next_batch)
    what = f"D = {following.candidate.draft_length}{where}"
    if tuned.verdict is Verdict.START and tuned.running is not None:
        return (
            f"Time {what} first: it runs already. {_choices(tuned)} is expected to be the fastest."
        )
    if tuned.verdict is Verdict.START:
        return f"Time {what} first: it is expected to be the fastest{_range(tuned)}."
    choice = f"{_choices(tuned)}: {_promised(_worst(tuned.promises))}"
    choice += " at the worst batch" if len(tuned.batches) > 1 else ""
    fixed = None if schedule is None else schedule[1].only_length
    if fixed is not None and len(set(tuned.belief.choices)) > 1:
        return (
            f"Deploy D = {fixed} at every batch: over all of them a schedule is no better. By "
            f"itself each has {choice}. No further timing is worth 0.2 %."
        )
    if tuned.verdict is Verdict.DEPLOY:
        return f"Deploy {choice}. No further timing is worth 0.2 %."
    return f"Run {choice}. Next, time {what}: worth {_percent(following.worth)} of speed."


def _range(tuned: Tuned) -> str:
    odds = 100 * tuned.promises[tuned.next_timing.candidate.load].odds
    return f" ({odds:.0f} % odds within 1 % of the best)"


def _promised(promise: Promise) -> str:
    return f"expected loss {_percent(promise.regret)}, {100 * promise.odds:.0f} % odds within 1 %"


def _percent(share: float) -> str:
    """Return a share in percent to one digit.

    >>> _percent(0.0021), _percent(0.0001)
    ('0.2 %', 'under 0.1 %')
    """
    return f"{100 * share:.1f} %" if share >= 0.0005 else "under 0.1 %"


def _worst(promises: Sequence[Promise]) -> Promise:
    return max(promises, key=lambda promise: promise.regret)


def _at_batch(tuned: Tuned, batch: int) -> str:
    return f" at batch {batch}" if len(tuned.batches) > 1 else ""


def _choices(tuned: Tuned) -> str:
    """Name the choice of each batch, neighbours with the same one together."""
    runs: list[tuple[int, list[int]]] = []
    for batch, length in zip(tuned.batches, tuned.belief.choices, strict=True):
        if runs and runs[-1][0] == length:
            runs[-1][1].append(batch)
        else:
            runs.append((length, [batch]))
    if len(runs) == 1:
        return f"D = {runs[0][0]}" + (" at every batch" if len(tuned.batches) > 1 else "")
    parts = [
        f"{length} at batch {each[0]}" + (f" to {each[-1]}" if each[1:] else "")
        for length, each in runs
    ]
    return f"D = {listed(parts)}"


def _blocks(tuned: Tuned, file: Path, schedule: Schedule | None) -> list[Block]:
    """Return the answer, what was asked, every draft length, and how to go on."""
    question = tuned.question
    context = format_size(question.workload.contexts[0])
    batches = ", ".join(map(str, tuned.batches))
    blocks: list[Block] = [Paragraph(_headline(tuned, schedule), tone=Tone.HEADLINE)]
    if tuned.timings:
        bound = max(promise.bound for promise in tuned.promises)
        blocks.append(
            Paragraph(
                f"With odds of 90 % a full sweep timed once would show at most {_percent(bound)} "
                f"more. {_counted(tuned)}",
                close=True,
            )
        )
    blocks.append(Paragraph(setting(question, where=f"batch {batches}, context {context}")))
    shown = range(len(tuned.batches)) if len(tuned.batches) == 1 else _shown(tuned)
    for load in shown:
        title = f"batch {tuned.batches[load]}" if len(tuned.batches) > 1 else ""
        blocks.append(table(_COLUMNS, _rows(tuned, load), title=title))
    if tuned.verdict is not Verdict.DEPLOY:
        return blocks + _to_time(tuned, file)
    if schedule is None:
        length, running = tuned.belief.choices[0], tuned.batches[0]
        return blocks + engine_blocks(question, length, running=running)
    return blocks + _scheduled(*schedule)


def _shown(tuned: Tuned) -> list[int]:
    """Return the loads whose draft lengths are listed: those timed and the next one."""
    timed = {timed.batch for timed in tuned.timings} | {tuned.next_batch}
    return [load for load, batch in enumerate(tuned.batches) if batch in timed][:3]


def _counted(tuned: Tuned) -> str:
    count, lengths = len(tuned.timings), {(t.batch, t.draft_length) for t in tuned.timings}
    what = "timing" if count == 1 else "timings"
    return f"{count} {what} of {len(lengths)} draft length{'s' * (len(lengths) > 1)} so far."


def _scheduled(plan: SchedulePlan, written: WrittenSchedule) -> list[Block]:
    """Return what a schedule gains, and its text in the engine's words."""
    lines = [schedule_headline(plan, written), *plain_line(plan, written), *capture_line(plan)]
    name = plan.question.deployment.engine.name
    return [*map(Paragraph, lines), Code(written.text, of=name)]


def _to_time(tuned: Tuned, file: Path) -> list[Block]:
    """Return the commands of the next timing, and how its result is added."""
    length, batch = tuned.next_timing.candidate.draft_length, tuned.next_batch
    commands = tuned.commands
    typed = f"{Option('tokens_per_s', 'N')}"
    held = tuned.held_tokens
    if held is not None:
        typed += f" {Option('held', f'{held:g}')}"
    elif length and tuned.belief.prints_tokens:
        typed += f" {Option('tokens_per_step', 'N')}"
    if commands is None:
        users = f"{batch} request{'s' * (batch > 1)} at once"
        return [
            Paragraph(f"To time D = {length}, start the engine with"),
            *engine_blocks(tuned.question, length, running=batch),
            Paragraph(
                f"and serve {users}. Tokens per second are those of decoding, {_SPEED_FIRST}; then:"
            ),
            Code(_adding(tuned, file, typed, unsaid=_TYPED)),
        ]
    adding = _adding(tuned, file, commands.result, unsaid=commands.unsaid)
    typed = f"{Option('draft_length', length)} {typed}"
    prompts = f" PATH-TO-PROMPTS has {commands.prompts_hold}." if commands.prompts_hold else ""
    return [
        Paragraph(
            f"To time D = {length}{_at_batch(tuned, batch)} ({commands.requests} requests, for a "
            f"scatter of {100 * SPEED_NOISE:.1f} %):{prompts}"
        ),
        Code(f"{commands.text}\n{adding}"),
        Paragraph(
            f"After another tool give {typed} (of decoding) in place of the file.", close=True
        ),
    ]


def _adding(tuned: Tuned, file: Path, result: str, *, unsaid: Sequence[str]) -> str:
    """Return the command that adds a result; ``unsaid`` is what the result does not say."""
    length, batch = tuned.next_timing.candidate.draft_length, tuned.next_batch
    options = {"draft_length": length, "batch": batch, "output_tokens": OUTPUT}
    needed = [name for name in options if name.removesuffix("_tokens") in unsaid]
    words = [f"{Option(name, options[name])}" for name in needed]
    return " ".join(["roofline tune add", shlex.quote(str(file)), *words, result])


def _rows(tuned: Tuned, load: int) -> list[dict[str, Any]]:
    """Return every draft length of a batch: what was timed, and what is believed."""
    measured, worths = tuned.measured(load), tuned.belief.worths[load]
    counts = [t.draft_length for t in tuned.timings if t.batch == tuned.batches[load]]
    columns = zip(
        tuned.belief.draft_lengths,
        tuned.belief.tokens_per_step.tolist(),
        tuned.relative_speed(load).tolist(),
        worths.tolist(),
        tuned.belief.allowed[load].tolist(),
        strict=True,
    )
    return [
        {
            "batch": tuned.batches[load],
            "draft_length": length,
            "tokens_per_step": tokens,
            "timings": counts.count(length) or None,
            "tokens_per_s": measured.get(length),
            "relative_speed": speed if fits else None,
            "worth_percent": 100 * worth if tuned.timings and fits else None,
            "chosen": length == tuned.belief.choices[load],
        }
        for length, tokens, speed, worth, fits in columns
    ]


def _data(tuned: Tuned, schedule: Schedule | None, notices: Sequence[Notice]) -> dict[str, Any]:
    """Return the answer as JSON-ready data."""
    question, following = tuned.question, tuned.next_timing
    deploy = tuned.verdict is Verdict.DEPLOY
    return {
        "schema": SCHEMA,
        "inputs": deployment_data(question.deployment)
        | {
            "drafter": question.deployment.drafter.name,
            "acceptance": question.acceptance.label,
            "context": question.workload.contexts[0],
        },
        "verdict": tuned.verdict.value,
        "headline": _headline(tuned, schedule),
        "points": [
            {
                "batch": batch,
                "draft_length": length,
                "expected_regret": promise.regret,
                "odds_within_1_percent": promise.odds,
                "regret_bound_90_percent": promise.bound,
                "flag": question.deployment.launch.flags(length, running=batch),
                "by_draft_length": _rows(tuned, load),
            }
            for load, (batch, length, promise) in enumerate(
                zip(tuned.batches, tuned.belief.choices, tuned.promises, strict=True)
            )
        ],
        "next": None
        if deploy
        else {
            "batch": tuned.next_batch,
            "draft_length": following.candidate.draft_length,
            "worth": following.worth if tuned.timings else None,
            "held": tuned.held_tokens,
            "commands": None if tuned.commands is None else tuned.commands.text,
            "result": None if tuned.commands is None else tuned.commands.result,
            "flag": question.deployment.launch.flags(
                following.candidate.draft_length, running=tuned.next_batch
            ),
        },
        "schedule": None
        if schedule is None
        else {"headline": schedule_headline(*schedule), "text": schedule[1].text},
        "timings": [timed.model_dump(mode="json", exclude_none=True) for timed in tuned.timings],
        "notes": notes_data(notices),
    }


def timed_line(timed: Timed) -> str:
    """Say what a timing gave, so that nothing is lost where it cannot be kept.

    >>> timed_line(Timed(draft_length=3, batch=8, tokens_per_s=812.25, tokens_per_step=2.4))
    'Draft length 3 at batch 8: 812.2 tokens/s, 2.4 tokens per step.'
    """
    tokens = timed.tokens_per_step
    steps = "" if tokens is None else f", {tokens:.4g} tokens per step"
    place = f"Draft length {timed.draft_length} at batch {timed.batch}"
    return f"{place}: {timed.tokens_per_s:.4g} tokens/s{steps}."


def doubt_line(doubt: Doubt) -> str:
    """Say what of a result contradicts what is believed, and what to do."""
    place = f"D = {doubt.draft_length} at batch {doubt.batch}"
    if doubt.what == "level":
        return (
            f"{doubt.got:.4g} tokens/s for {place}: {_times(doubt.got / doubt.expected)} the "
            f"predicted {doubt.expected:.4g} of all users; is the unit right, and the GPU that of "
            "the question?"
        )
    unit = "tokens/s" if doubt.what == "speed" else "tokens per step"
    return (
        f"{doubt.got:.4g} {unit} for {place}: {doubt.expected:.4g} were expected, which is "
        f"{doubt.deviations or 0:.0f} times the spread away; did the run have this draft length "
        "and load, and no prompts inside?"
    )


def _times(ratio: float) -> str:
    """Return a ratio in words.

    >>> _times(20.0), _times(0.05)
    ('20 times', '1/20 of')
    """
    return f"{ratio:.0f} times" if ratio >= 1 else f"1/{np.round(1 / ratio):.0f} of"
