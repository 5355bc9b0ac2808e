"""Drafters side by side, each at its own best draft length (rule 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from roofline.acceptance import Acceptance
from roofline.advice.configuration import Configuration
from roofline.advice.decide import Point
from roofline.advice.drafter import known_drafters
from roofline.advice.question import Workload, ask
from roofline.advice.readings import Advice, is_ambiguous, with_reading
from roofline.advice.recommend import Recommendation, recommend
from roofline.base.errors import InputError, Option, UnknownAcceptanceError
from roofline.base.notices import Notice
from roofline.importers.references import heads_for, open_model
from roofline.questions.memory import Slots, slots
from roofline.specs.engine import load_engine
from roofline.specs.network import LOOKUPS

__all__ = [
    "Candidate",
    "ComparedDrafter",
    "advice_of",
    "bundled_candidates",
    "compare",
    "compare_notices",
    "in_other_reading",
    "parse_candidate",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A drafter and the acceptance that goes with it (None: the bundled one)."""

    drafter: str
    acceptance: str | Acceptance | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedDrafter:
    """What one drafter does at one batch and context."""

    answer: Recommendation
    point: Point
    slots: Slots

    @property
    def fits(self) -> bool:
        """Whether any draft fits beside the drafter, where it drafts at all."""
        lengths = len(self.point.draft_lengths)
        return lengths == 1 or bool(self.point.feasible[1:].any())

    @property
    def best_drafting(self) -> int:
        """The position of the fastest D > 0 that may be advised; 0 where there is none."""
        usable = [i for i in range(1, len(self.point.speedup)) if self.point.candidates[i]]
        return max(usable, key=lambda i: float(self.point.speedup[i]), default=0)

    @property
    def judged(self) -> int:
        """The position of the advised D, or of the best that lost."""
        return self.point.best or self.best_drafting


def parse_candidate(text: str) -> Candidate:
    """Read ``NAME`` or ``NAME=ACCEPTANCE``.

    >>> parse_candidate("ngram=al:2=1.4")
    Candidate(drafter='ngram', acceptance='al:2=1.4')
    """
    name, equals, acceptance = text.partition("=")
    if not name or (equals and not acceptance):
        raise InputError(f"expected NAME or NAME=ACCEPTANCE, got '{text}'", field="drafter")
    return Candidate(drafter=name, acceptance=acceptance or None)


def bundled_candidates(configuration: Configuration) -> tuple[list[Candidate], list[str]]:
    """Return the drafters that exist and that the engine runs, and the kinds that are left out.

    Candidates are those whose acceptance is known; where none is, all bundled heads. A model
    without any is refused.
    """
    target, engine = open_model(configuration.model)[0], load_engine(configuration.engine)
    exist = list(known_drafters(target))
    known = [kind for kind in exist if engine.runs(kind, target.id)]
    heads = [kind for kind in heads_for(target.id) if engine.runs(kind, target.id)]
    if not known and not heads:
        others = f" (it does not run {', '.join(exist)})" if exist else ""
        raise InputError(
            f"no drafter is bundled for {configuration.model} that {engine.name} runs{others}; "
            "give NAME=ACCEPTANCE, once for each drafter",
            field="drafter",
        )
    chosen = known or heads
    return [Candidate(drafter=kind) for kind in chosen], [k for k in heads if k not in chosen]


def compare(
    configuration: Configuration, workload: Workload, candidates: Sequence[Candidate]
) -> list[list[ComparedDrafter]]:
    """Return the drafters, fastest first, for each batch and context of ``workload`` that fits.

    A batch and context fits where plain decoding does, so it fits for all drafters or for none.
    """
    if any(candidate in candidates[:i] for i, candidate in enumerate(candidates)):
        raise InputError("one is given twice", field="drafter")
    # what is wrong with the rest of the question is not the fault of a drafter
    of_others = tuple(each for each in configuration.overrides if each.root != "drafter")
    plain = replace(configuration, drafter="none", overrides=of_others)
    ask(plain, replace(workload, acceptance=None, acceptance_rounds=None), drop_unused=True)
    several = len(candidates) > 1
    answers = [
        _answer(configuration, workload, candidate, drop_unused=several) for candidate in candidates
    ]
    _check_used(workload, answers)
    asked = [
        (answer.deployment.drafter.name, answer.question.acceptance.label) for answer in answers
    ]
    if len(set(asked)) < len(asked):
        raise InputError("one is given twice", field="drafter")
    compared: dict[tuple[int, int], list[ComparedDrafter]] = {}
    for answer in answers:
        for point in answer.points:
            compared.setdefault((point.batch, point.context), []).append(_entry(answer, point))
    return list(map(_fastest_first, compared.values()))


def _check_used(workload: Workload, answers: Sequence[Recommendation]) -> None:
    """Refuse an option that says nothing for any of the drafters."""
    deployments = [answer.deployment for answer in answers]
    unused = [set(deployment.unused) for deployment in deployments]
    if workload.hit_rate is not None:
        for fields, deployment in zip(unused, deployments, strict=True):
            stops = deployment.engine.early_stops
            kinds = (*LOOKUPS, *(stops.kinds if stops else ()))
            fields.update(() if deployment.drafter.kind in kinds else ("hit_rate",))
    for field in sorted(set.intersection(*unused)):
        raise InputError("says nothing for any of these drafters; leave it out", field=field)


def in_other_reading(
    points: Sequence[Sequence[ComparedDrafter]],
) -> list[list[ComparedDrafter]] | None:
    """Return the comparison with every list of rates without a word as conditional rates.

    None where no drafter has one.
    """
    answers = {id(e.answer): e.answer for entries in points for e in entries}
    if all(answer.other_reading is None for answer in answers.values()):
        return None
    found = []
    for entries in points:
        others = []
        for entry in entries:
            answer = entry.answer.other_reading or entry.answer
            place = entry.point.batch, entry.point.context
            (point,) = (p for p in answer.points if (p.batch, p.context) == place)
            others.append(_entry(answer, point))
        found.append(_fastest_first(others))
    return found


def compare_notices(points: Sequence[Sequence[ComparedDrafter]]) -> tuple[Notice, ...]:
    """Return what is to know of all drafters; two readings are compared by which is fastest.

    A drafter whose own best draft length depends on the reading says so as well.
    """
    answers = [entry.answer for entry in points[0]]
    notices = tuple(dict.fromkeys(n for answer in answers for n in answer.notices))
    others = in_other_reading(points)
    listed = [a for a in answers if a.other_reading is not None]
    if others is None or any(is_ambiguous(answer.notices) for answer in listed):
        return notices
    pairs = [
        (
            (("batch", own[0].point.batch), ("context", own[0].point.context)),
            advice_of(own),
            advice_of(other),
        )
        for own, other in zip(points, others, strict=True)
    ]
    return with_reading(notices, listed[0].question.acceptance, pairs)


def advice_of(entries: Sequence[ComparedDrafter]) -> Advice:
    """Return what a comparison advises at one point: the fastest drafter at its draft length."""
    fastest = entries[0]
    drafter = fastest.answer.deployment.drafter.name
    return Advice(drafter=drafter, draft_length=fastest.point.draft_length)


def _fastest_first(entries: list[ComparedDrafter]) -> list[ComparedDrafter]:
    return sorted(
        entries, key=lambda entry: (not entry.fits, -float(entry.point.speedup[entry.judged]))
    )


def _answer(
    configuration: Configuration, workload: Workload, candidate: Candidate, *, drop_unused: bool
) -> Recommendation:
    with_drafter = replace(configuration, drafter=candidate.drafter)
    with_acceptance = replace(workload, acceptance=candidate.acceptance)
    try:
        return recommend(ask(with_drafter, with_acceptance, drop_unused=drop_unused))
    except UnknownAcceptanceError as error:
        raise InputError(
            f"no acceptance is known for it on {configuration.model}; give one with its name: "
            f"{Option('drafter', f'{candidate.drafter}=0.7')}",
            field="drafter",
            value=candidate.drafter,
        ) from error
    except InputError as error:
        # what is at fault with the drafter itself is named once, with the drafter
        own = error.field == "drafter" and error.where is None
        text = error.problem if own else error.text
        raise InputError(text, field="drafter", value=candidate.drafter) from None


def _entry(answer: Recommendation, point: Point) -> ComparedDrafter:
    without_slots = ComparedDrafter(
        answer=answer,
        point=point,
        slots=Slots(context=point.context, draft_length=0, plain=0, speculative=0),
    )
    length = point.draft_lengths[without_slots.judged]
    return replace(
        without_slots, slots=slots(answer.memory, context=point.context, draft_length=length)
    )
