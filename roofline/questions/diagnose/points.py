"""Measured points as a user writes them: ``3@8x4k:4.1ms:2.4``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from roofline.base.errors import InputError, Option
from roofline.base.numbers import LONGEST_DRAFT
from roofline.base.units import parse_quantity, parse_size
from roofline.questions.measured import read_steps

__all__ = ["MeasuredPoint", "read_points"]

MOST_POINTS = 200
LONGEST_SHOWN = 69  # characters of a text that is no point
FASTEST, SLOWEST = 1e-6, 100.0  # steps [s]
EXPECTED = "expected D[@BATCH[xCONTEXT]]:MS[:TOKENS], such as 0:7.1 or 3@8x4k:4.1ms:2.4"
_POINT = re.compile(
    r"(?P<length>\d{1,4})(?:@(?P<batch>[\dkKmM]+)(?:x(?P<context>[\dkKmM]+))?)?"
    r":(?P<pace>[^:]+)(?::(?P<tokens>[^:]+))?"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredPoint:
    """One measured load: the time of a step that emits ``tokens_per_step`` per sequence [s]."""

    batch: int
    context: int
    draft_length: int
    seconds: float
    tokens_per_step: float

    @property
    def time_per_token(self) -> float:
        """Seconds between the tokens of one sequence [s]."""
        return self.seconds / self.tokens_per_step


def read_points(
    texts: Sequence[str],
    *,
    own: tuple[Option, str] | None = None,
    batch: int,
    context: int,
    tokens_per_step: Mapping[int, float],
) -> list[MeasuredPoint]:
    """Read points, several to a text, or a CSV of steps.

    ``batch``, ``context`` and ``tokens_per_step`` are those of points that leave them out.

    TIME is that of one token of a sequence (``4.1`` or ``4.1ms``), or with ``/s`` the tokens per
    second of all sequences; step = TIME tokens_per_step, and with a rate B tokens_per_step / rate.
    ``own`` is a further point, and the option that it came from.

    >>> read_points(["3@8:4.0ms:2.5"], batch=1, context=4096, tokens_per_step={})[0].seconds
    0.01
    >>> read_points(["2:250/s"], batch=4, context=1, tokens_per_step={2: 2.0})[0].seconds
    0.032
    """
    points: list[MeasuredPoint] = []
    for text in texts:
        if text.lower().endswith(".csv"):
            points += _of_file(Path(text))
            continue
        for item in map(str.strip, text.split(",")):
            option = Option("measured", item)
            points.append(_point(item, option, batch, context, tokens_per_step))
    if own is not None:
        points.append(_point(own[1], own[0], batch, context, tokens_per_step))
    _check_distinct(points)
    if not points:
        raise InputError(f"nothing is given; {EXPECTED}", field="measured")
    if len(points) > MOST_POINTS:
        raise InputError(f"{len(points)} points; expected at most {MOST_POINTS}", field="measured")
    return points


def _check_distinct(points: Sequence[MeasuredPoint]) -> None:
    """Refuse a load that is measured twice: it would count double."""
    seen: set[tuple[int, int, int]] = set()
    for point in points:
        at = (point.draft_length, point.batch, point.context)
        if at in seen:
            where = f"{at[0]}@{at[1]}x{at[2]}"
            raise InputError(
                f"{where} is given twice; give the mean of its runs once", field="measured"
            )
        seen.add(at)


def _of_file(path: Path) -> list[MeasuredPoint]:
    """Read a CSV of steps; a step there is compared as it is, so it counts as one token."""
    return [
        MeasuredPoint(
            batch=step.batch,
            context=step.context,
            draft_length=step.draft_length,
            seconds=step.seconds,
            tokens_per_step=1.0,
        )
        for step in read_steps(path)
    ]


def _refusal(option: Option, problem: str) -> InputError:
    return InputError(problem, field=option.field, value=option.value)


def _point(
    item: str, option: Option, batch: int, context: int, known: Mapping[int, float]
) -> MeasuredPoint:
    match = _POINT.fullmatch(item)
    if match is None:
        cut = str(option.value)[:LONGEST_SHOWN]
        raise InputError(EXPECTED, field=option.field, value=cut)
    length = int(match["length"])
    if length > LONGEST_DRAFT:
        raise _refusal(option, f"draft length {length}, expected 0 to {LONGEST_DRAFT}")
    own_batch = parse_size(match["batch"]) if match["batch"] else batch
    own_context = parse_size(match["context"]) if match["context"] else context
    if min(own_batch, own_context) < 1:
        raise _refusal(option, "expected a batch and a context of at least 1")
    tokens = _tokens(option, match["tokens"], length, known)
    return MeasuredPoint(
        batch=own_batch,
        context=own_context,
        draft_length=length,
        seconds=_step(option, match["pace"], own_batch, tokens),
        tokens_per_step=tokens,
    )


def _tokens(option: Option, text: str | None, length: int, known: Mapping[int, float]) -> float:
    if text is None:
        tokens = 1.0 if length == 0 else known.get(length, math.nan)
        if tokens > 1 + length or tokens < 1:
            raise InputError(
                f"expected 1 to at most 1 + D = {1 + length} (the bonus token counts) at "
                f"D = {length}",
                field="tokens_per_step",
                value=f"{tokens:g}",
            )
        if not math.isfinite(tokens):
            write = f"write {option.value}:TOKENS or " if option.field == "measured" else ""
            raise _refusal(
                option,
                f"how many tokens a step yields at D = {length} is missing; {write}give "
                f"{Option('tokens_per_step')}",
            )
        return tokens
    try:
        tokens = float(text)
    except ValueError:
        tokens = math.nan
    if not 1 <= tokens <= 1 + length:
        raise _refusal(
            option,
            f"expected 1 to {1 + length} tokens per step at D = {length} (the bonus token counts)",
        )
    return tokens


def _step(option: Option, pace: str, batch: int, tokens: float) -> float:
    """Return the time of a step from that of a token, or from the tokens per second of all [s]."""
    try:
        if pace.endswith("/s"):
            rate = float(pace.removesuffix("/s"))
            seconds = batch * tokens / rate if rate > 0 else math.nan
        else:
            timed = f"{pace} ms" if pace[-1:].isdecimal() else pace
            seconds = parse_quantity(timed, "s") * tokens
    except (InputError, ValueError):
        seconds = math.nan
    if not FASTEST <= seconds <= SLOWEST:
        raise _refusal(
            option,
            f"expected a time such as 7.1ms or a rate as 1840/s, with steps of 1 us to "
            f"{SLOWEST:g} s",
        )
    return seconds
