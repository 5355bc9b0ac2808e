"""Measured steps beside predicted ones, the term that disagrees most, and what would settle it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from roofline.acceptance import Acceptance
from roofline.acceptance.curve import fill_gaps, from_curve
from roofline.advice.acceptance import (
    acceptance_for,
    acceptance_is_known,
    early_shares,
    idle_prompts,
    reading_notices,
)
from roofline.advice.configuration import Configuration, Notices
from roofline.advice.deployment import Deployment, Needs, deploy
from roofline.advice.question import (
    Workload,
    check_length,
    check_unused,
    context_notices,
    with_hit_rate,
)
from roofline.advice.readings import Advice, with_reading
from roofline.advice.recommend import law_limit_notices, slow_format_notices
from roofline.advice.remedies import Refused, does_not_fit, refuse
from roofline.base.errors import InputError
from roofline.base.notices import Code, Notice, notice
from roofline.questions.diagnose.explain import (
    Agreement,
    Explanation,
    Suspect,
    agreement,
    explain,
    scaled,
)
from roofline.questions.diagnose.points import MeasuredPoint
from roofline.questions.diagnose.terms import ADDED, GridIndex, Term, Terms, terms_of
from roofline.specs.network import LOOKUPS
from roofline.specs.placement import Grid
from roofline.specs.priors import priors
from roofline.timing.drafters import deepest

__all__ = ["Diagnosis", "Proposal", "diagnose", "over_all_passes", "with_other_reading"]

Array = NDArray[np.float64]
LARGEST_GRID = 20_000
#: Loads to propose, as multiples of those measured.
BESIDE = (0.25, 1, 4)
#: A proposal must set two explanations apart by at least this many standard deviations.
LEAST_DISTANCE = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """A load at which two explanations differ most, and the step that each expects there [s]."""

    batch: int
    context: int
    draft_length: int
    first: Term
    second: Term
    first_step: float
    second_step: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """The points, their predictions [s], and the explanations, the best first (none if inside)."""

    deployment: Deployment
    points: tuple[MeasuredPoint, ...]
    noise: float
    predicted: Array
    terms: dict[Term, Array]  # seconds at the points
    agreement: Agreement
    explanations: tuple[Explanation, ...]
    explained: Array  # steps with the best explanation's factor [s]
    proposal: Proposal | None
    notices: Notices
    #: Measured loads that do not fit. Where some of the sequences fit, the others wait; loads
    #: without room for even one sequence are left out of the points.
    refused: tuple[Refused, ...] = ()
    #: The diagnosis if a list of rates that was typed without a word is conditional, not survival.
    other_reading: Diagnosis | None = None

    @property
    def nothing_to_explain(self) -> bool:
        """Whether the stated errors explain everything and no single term is needed."""
        return self.agreement.inside and not self.explanations[0].needed

    @property
    def best(self) -> Explanation | None:
        """The explanation with least strain among those as good as the best."""
        return None if self.nothing_to_explain else self.explanations[0]


def diagnose(
    configuration: Configuration,
    workload: Workload,
    points: Sequence[MeasuredPoint],
    *,
    noise: float,
) -> Diagnosis:
    """Price every measured load and find which single term, scaled, explains the differences."""
    lengths = sorted({point.draft_length for point in points})
    plain = configuration.drafter is None and lengths == [0]
    if plain:
        configuration = replace(configuration, drafter="none")
    batches, contexts = (
        tuple(sorted({getattr(p, name) for p in points})) for name in ("batch", "context")
    )
    workload = replace(workload, batches=batches, contexts=contexts)
    deployment, notices = deploy(configuration, drop_unused=plain)
    if not plain:
        check_unused(deployment, workload)
    notices = (*notices, *context_notices(deployment, contexts))
    _check_lengths(deployment, lengths)
    deployment, of_hits = _with_hit_rate(deployment, workload, points)
    notices = (*notices, *of_hits)
    memory = deployment.memory
    refused = _refused(deployment, points)
    points = [p for p in points if memory.has_room(1, p.context, p.draft_length)]
    if not points:
        first = refused[0]
        raise does_not_fit(
            deployment, batch=first.batch, context=first.context, draft_length=first.draft_length
        )
    grid = _grid(deployment, batches, contexts, lengths, workload.prefill_tokens_per_step)
    times = deployment.price(grid).times
    terms = terms_of(times, grid, priors().spread, memory)
    where = _grid_index(grid, points)
    measured = np.array([point.seconds for point in points])
    seconds, predicted = terms.at(where), terms.total[where]
    agrees = agreement(measured, predicted, terms.covariance(where), noise=noise)
    suspects = _suspects(terms, where)
    ranked = explain(measured, predicted, suspects, noise=noise, within_errors=agrees.inside)
    best = ranked[0]
    unmeasured = memory.fits(grid).copy()
    unmeasured[where] = False
    return Diagnosis(
        deployment=deployment,
        points=tuple(points),
        noise=noise,
        predicted=predicted,
        terms=seconds,
        agreement=agrees,
        explanations=tuple(ranked),
        explained=_scaled(predicted, seconds[best.term], best),
        proposal=_proposal(terms, ranked, unmeasured, noise),
        notices=(
            *notices,
            *law_limit_notices(times),
            *slow_format_notices(deployment, batch=batches[0], context=contexts[0]),
        ),
        refused=refused,
    )


def over_all_passes(configuration: Configuration, workload: Workload) -> Acceptance | None:
    """Return the acceptance that is given, as all passes yield it; None without one.

    What a lookup's drafting passes yield becomes what a measured step does, on the mean.
    """
    if not isinstance(workload.acceptance, str):
        return None
    from roofline.engines.acceptance_source import acceptance_from

    curve = acceptance_from(workload.acceptance)
    parts = [curve, *(share.part for share in curve.mixed)]
    if not any(part.drafting_only for part in parts):
        return curve
    deployment, _ = deploy(configuration, drop_unused=True)
    if deployment.drafter.kind not in LOOKUPS:
        return curve
    taken, _ = acceptance_for(deployment, workload)

    def as_counted(of: Acceptance) -> Acceptance:
        return replace(of, table=fill_gaps({0: 1.0, **of.given}) if of.given else of.table)

    other = taken.other_reading
    return replace(as_counted(taken), other_reading=other and as_counted(other))


def _with_hit_rate(
    deployment: Deployment, workload: Workload, points: Sequence[MeasuredPoint]
) -> tuple[Deployment, list[Notice]]:
    """Return the deployment whose passes have drafts as often as they had, and what to know.

    Without an acceptance, what the measured steps yielded is one.
    """
    drafted = [point for point in points if point.draft_length > 0]
    if not drafted:
        idle = [notice(Code.CHANGES_NOTHING, field="hit_rate", needs=Needs.DRAFTS, network="")]
        given = workload.hit_rate is not None
        return deployment, [*(idle if given else []), *idle_prompts(workload, None, ())]
    longest = max(point.draft_length for point in drafted)
    stops = early_shares(deployment, workload)
    if stops is not None and len(stops) < longest:
        raise InputError(
            f"ends at D = {len(stops)}, and D = {longest} was measured; give a share for each "
            "position",
            field="hit_rate",
        )
    yielded = {p.draft_length: p.tokens_per_step for p in drafted if p.tokens_per_step > 1}
    if workload.acceptance is None and yielded:
        measured = from_curve(yielded, label="what was measured", source="given")
        workload = replace(workload, acceptance=measured)
    acceptance, told = None, list[Notice]()
    if acceptance_is_known(deployment, workload):
        acceptance, told = acceptance_for(deployment, workload)
    deployment, found = with_hit_rate(deployment, workload, acceptance)
    return deployment, [*found, *idle_prompts(workload, None, (*told, *found))]


def with_other_reading(own: Diagnosis, other: Diagnosis, acceptance: Acceptance) -> Diagnosis:
    """Return a diagnosis with the one of the same measurements by the acceptance's other reading.

    The acceptance turns measured times per token into times of steps.
    """
    pairs = [((), _advice(own), _advice(other))]
    said = with_reading((*own.notices, *reading_notices(acceptance)), acceptance, pairs)
    return replace(own, other_reading=other, notices=said)


def _advice(diagnosis: Diagnosis) -> Advice:
    return Advice(term="no term" if diagnosis.best is None else diagnosis.best.term.value)


def _suspects(terms: Terms, where: GridIndex) -> list[Suspect]:
    """Return every term of the measured loads with its own error and that of all others."""
    sigmas = terms.sigmas(where, priors().spread)
    return [
        Suspect(
            term=name,
            seconds=seconds,
            sigma=sigmas[name],
            others=terms.covariance(where, without=name),
            added=name in ADDED,
        )
        for name, seconds in terms.at(where).items()
    ]


def _scaled(total: Array, term: Array, explanation: Explanation) -> Array:
    return scaled(total, term, explanation.factor, added=explanation.term in ADDED)


def _check_lengths(deployment: Deployment, lengths: Sequence[int]) -> None:
    """Refuse draft lengths that the drafter cannot make or the engine does not take."""
    longest, drafter = max(lengths), deployment.drafter
    if longest and drafter.kind == "none":
        raise InputError(
            f"cannot draft {longest} tokens; name the drafter that ran",
            field="drafter",
            value="none",
        )
    limit = deepest(drafter.network, drafter.block)
    if limit is not None and longest > limit:
        raise InputError(
            f"{drafter.name} drafts at most {limit} tokens; is the draft length right?",
            field="measured",
            value=longest,
        )
    for length in lengths:
        check_length(deployment, length, field="measured")


def _grid(
    deployment: Deployment,
    measured_batches: Sequence[int],
    measured_contexts: Sequence[int],
    lengths: Sequence[int],
    prefill_tokens: float,
) -> Grid:
    """Return the measured loads, and those beside them that may be proposed."""
    batches, contexts = set(measured_batches), set(measured_contexts)
    for share in BESIDE:
        batches |= {max(int(share * b), 1) for b in (min(batches), max(batches))}
    for share in BESIDE:
        contexts |= {max(int(share * c), 1) for c in (min(contexts), max(contexts))}
    longest = deployment.target.model.max_context
    drafts = {0, *lengths} if max(lengths) == 0 else {0, 1, *lengths}
    size = len(batches) * len(contexts) * len(drafts)
    if size > LARGEST_GRID:
        raise InputError(
            f"{len(batches)} batches with {len(contexts)} contexts are too many to price together; "
            "give fewer different ones",
            field="measured",
        )
    return deployment.grid(
        sorted(batches),
        sorted(c for c in contexts if c <= longest),
        sorted(drafts),
        prefill_per_step=prefill_tokens,
    )


def _grid_index(grid: Grid, points: Sequence[MeasuredPoint]) -> GridIndex:
    """Return where each point lies on the grid."""
    axes = (grid.batch.ravel(), grid.context.ravel(), grid.draft_length.ravel())
    values = np.array([(p.batch, p.context, p.draft_length) for p in points]).T
    batch, context, length = (np.searchsorted(a, v) for a, v in zip(axes, values, strict=True))
    return batch, context, length


def _proposal(
    terms: Terms, ranked: Sequence[Explanation], unmeasured: NDArray[np.bool_], noise: float
) -> Proposal | None:
    """Return the unmeasured load at which the two best explanations differ most.

    Differences count in standard deviations of measurement and model.
    """
    moving = [e for e in ranked if e.moves]
    if len(moving) < 2:
        return None
    first, second = moving[:2]
    everywhere = terms.seconds | terms.added
    steps = [_scaled(terms.total, everywhere[e.term], e) for e in (first, second)]
    error = (terms.drawn_total / terms.total).var(axis=0)
    apart = np.abs(np.log(steps[0] / steps[1])) / np.sqrt(noise**2 + error)
    apart = np.where(unmeasured, apart, 0.0)
    at = np.unravel_index(int(apart.argmax()), apart.shape)
    if apart[at] < LEAST_DISTANCE:
        return None
    return Proposal(
        batch=int(terms.grid.batch.ravel()[at[0]]),
        context=int(terms.grid.context.ravel()[at[1]]),
        draft_length=int(terms.grid.draft_length.ravel()[at[2]]),
        first=first.term,
        second=second.term,
        first_step=float(steps[0][at]),
        second_step=float(steps[1][at]),
    )


def _refused(deployment: Deployment, points: Sequence[MeasuredPoint]) -> tuple[Refused, ...]:
    """Return the loads that need more memory than there is: they waited, or were not run so."""
    by_length: dict[int, dict[tuple[int, int], None]] = {}
    for point in points:
        if not deployment.memory.has_room(point.batch, point.context, point.draft_length):
            by_length.setdefault(point.draft_length, {})[point.batch, point.context] = None
    refusals: list[Refused] = []
    for length, loads in by_length.items():
        refusals += refuse(deployment, loads, draft_length=length)
    return tuple(dict.fromkeys(refusals))
