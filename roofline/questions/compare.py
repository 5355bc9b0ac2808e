"""Drafters side by side, each at its own best draft length (rule 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from roofline.advice.prepare import Request
from roofline.advice.recommend import Point, Recommendation, recommend
from roofline.base.errors import InputError, UnknownAcceptanceError
from roofline.questions.memory import Slots, slots

__all__ = ["Candidate", "Entry", "compare", "parse_candidate"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A drafter and the acceptance that goes with it (None: the bundled one)."""

    drafter: str
    acceptance: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """What one drafter does at one batch and context."""

    answer: Recommendation
    point: Point
    slots: Slots

    @property
    def best_drafting(self) -> int:
        """The position of the fastest D > 0 that may be advised; 0 where there is none."""
        usable = [i for i in range(1, len(self.point.speedup)) if self.point.candidates[i]]
        return max(usable, key=lambda i: float(self.point.speedup[i]), default=0)

    @property
    def looked_at(self) -> int:
        """The position of the advised D, or of the best that lost."""
        return self.point.best or self.best_drafting


def parse_candidate(text: str) -> Candidate:
    """Read ``NAME`` or ``NAME=ACCEPTANCE``.

    >>> parse_candidate("ngram=al:2=1.4")
    Candidate(drafter='ngram', acceptance='al:2=1.4')
    """
    name, equals, acceptance = text.partition("=")
    if not name or (equals and not acceptance):
        raise InputError(f"--drafter: expected NAME or NAME=ACCEPTANCE, got '{text}'")
    return Candidate(drafter=name, acceptance=acceptance or None)


def compare(request: Request, candidates: Sequence[Candidate]) -> list[list[Entry]]:
    """Return the drafters, fastest first, for each batch and context of ``request`` that fits.

    Whether one does is up to plain decoding, so it is the same for all drafters.
    """
    if len(candidates) != len(set(candidates)):
        raise InputError("--drafter: one is given twice")
    request = replace(request, several_drafters=len(candidates) > 1)
    answers = [_answer(request, candidate) for candidate in candidates]
    found: dict[tuple[int, int], list[Entry]] = {}
    for answer in answers:
        for point in answer.points:
            found.setdefault((point.batch, point.context), []).append(_entry(answer, point))
    return [sorted(entries, key=_fastest_first) for entries in found.values()]


def _answer(request: Request, candidate: Candidate) -> Recommendation:
    asked = replace(request, drafter=candidate.drafter, acceptance=candidate.acceptance)
    try:
        return recommend(asked)
    except UnknownAcceptanceError as error:
        raise InputError(
            f"--drafter {candidate.drafter}: no acceptance is known for it on {request.model}; "
            f"give one with its name: --drafter {candidate.drafter}=0.7"
        ) from error
    except InputError as error:
        raise InputError(f"--drafter {candidate.drafter}: {error}") from None


def _entry(answer: Recommendation, point: Point) -> Entry:
    bare = Entry(
        answer=answer,
        point=point,
        slots=Slots(context=point.context, draft_length=0, plain=0, speculative=0),
    )
    length = point.draft_lengths[bare.looked_at]
    return replace(bare, slots=slots(answer.memory, context=point.context, draft_length=length))


def _fastest_first(entry: Entry) -> float:
    return -float(entry.point.speedup[entry.looked_at])
