"""A list of rates that was typed without a word, answered under both of its readings.

Survival by position is taken, as engines print it; conditional rates are the other reading. A
question is asked again with the other reading, and what the two answers advise is compared place by
place. Questions differ only in what they advise: see `Advice`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from roofline.acceptance import Acceptance
from roofline.advice.question import Question
from roofline.base.notices import Code, Notice, notice

__all__ = [
    "Advice",
    "Place",
    "advised_otherwise",
    "in_other_reading",
    "is_ambiguous",
    "reading_notice",
    "with_reading",
]


class Advice(NamedTuple):
    """What an answer advises at one place; two readings agree where these are equal."""

    draft_length: int | None = None
    batch: int | None = None  # where the answer chooses it
    drafter: str = ""  # where the answer chooses it
    bands: tuple[tuple[int, int, tuple[int, ...]], ...] = ()  # first and last batch, D by context
    refused: str = ""  # why nothing is advised
    term: str = ""  # that a diagnosis finds off


#: Where an answer holds: (batch, 8), (context, 4096), or what is varied; empty for the whole.
Place = tuple[tuple[str, int | str], ...]


def in_other_reading(question: Question) -> Question | None:
    """Return the question with the other reading of its acceptance; None where it has one only."""
    curve = question.acceptance.other_reading
    return None if curve is None else replace(question, acceptance=curve)


def advised_otherwise(
    pairs: Iterable[tuple[Place, Advice, Advice]],
) -> list[tuple[Place, Advice, Advice]]:
    """Return the places at which the two readings advise something else."""
    return [(place, own, other) for place, own, other in pairs if own != other]


def reading_notice(rates: str, pairs: Sequence[tuple[Place, Advice, Advice]]) -> Notice:
    """Return what is said of a list with two readings, by whether their answers agree.

    ``pairs`` are the places answered, with the advice for survival and for conditional rates.
    """
    differ = advised_otherwise(pairs)
    if not differ:
        return notice(Code.READ_AS_SURVIVAL, rates=rates, same_advice=True)
    place, survival, conditional = differ[0]
    return notice(
        Code.AMBIGUOUS_ACCEPTANCE,
        rates=rates,
        place=place,
        survival=survival,
        conditional=conditional,
        differ=len(differ),
        points=len(pairs),
    )


def with_reading(
    notices: Iterable[Notice],
    acceptance: Acceptance,
    pairs: Sequence[tuple[Place, Advice, Advice]] | None,
) -> tuple[Notice, ...]:
    """Return the notices, that of a list with two readings saying whether their answers agree.

    ``pairs`` is None where there is one reading only.
    """
    if pairs is None or acceptance.other_reading is None:
        return tuple(notices)
    said = reading_notice(acceptance.without_prefix, pairs)
    of_readings = (Code.READ_AS_SURVIVAL, Code.AMBIGUOUS_ACCEPTANCE)
    return (said, *(each for each in notices if each.code not in of_readings))


def is_ambiguous(notices: Iterable[Notice]) -> bool:
    """Return whether the readings of an acceptance lead to different answers."""
    return any(each.code is Code.AMBIGUOUS_ACCEPTANCE for each in notices)
