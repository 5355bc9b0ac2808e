"""The acceptance of a question: as given, or as the prior expects it of the drafter."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from roofline.acceptance import Acceptance
from roofline.acceptance.curve import (
    Definition,
    HitRate,
    ended_at,
    over_all_passes,
    survival_rise,
)
from roofline.acceptance.domains import prompts
from roofline.acceptance.expected import (
    Belief,
    Moved,
    belief,
    belief_at,
    expected_acceptance,
    found_draws,
    found_share,
    largest_pull,
    learned,
    of_another_run,
    weight_of_count,
)
from roofline.acceptance.files import ACCEPTANCE_SHELF, split_part
from roofline.acceptance.labels import (
    MOST_OVER_TRAINED,
    SHORT,
    Beyond,
    DrafterLabels,
    drafter_labels,
    prior_kind,
)
from roofline.acceptance.prior import WARMEST, same_model
from roofline.advice.deployment import Needs
from roofline.base.errors import InputError, Option, UnknownAcceptanceError
from roofline.base.notices import Code, Notice, notice
from roofline.base.resources import bundled_names
from roofline.specs.formats import DType
from roofline.specs.network import LOOKUPS, DrafterSpec
from roofline.specs.priors import priors

if TYPE_CHECKING:
    from roofline.acceptance.values import Reach
    from roofline.advice.configuration import Workload
    from roofline.advice.deployment import Deployment

__all__ = [
    "acceptance_for",
    "acceptance_is_known",
    "belief_for",
    "belief_here",
    "continued_notices",
    "curve_notices",
    "early_shares",
    "filled_notices",
    "hit_rate",
    "idle_prompts",
    "labels_for",
    "reading_notices",
]

#: The draft length at which an answer states the range of an expected acceptance.
SHOWN_AT = 3
NOTHING = Acceptance(
    table={0: 1.0}, label="nothing is drafted", source="definition", definition=Definition.NONE
)


def labels_for(deployment: Deployment, workload: Workload) -> DrafterLabels | None:
    """Return what is known of the drafter and its use; None where the prior has no such kind."""
    drafter, network = deployment.drafter, deployment.drafter.network
    trained = network.trained_context if isinstance(network, DrafterSpec) else None
    known = prompts(domain=workload.domain, dataset=workload.dataset)
    return drafter_labels(
        kind=drafter.kind,
        drafter=drafter.name,
        models=deployment.model_names,
        repository=network.repository if network is not None and drafter.kind != "mtp" else None,
        domain=known.domain,
        dataset=known.dataset,
        temperature=workload.temperature,
        trained_context=trained,
    )


def belief_for(deployment: Deployment, workload: Workload) -> Belief | None:
    """Return what the prior says of the drafter before anyone counts, inside its training."""
    labels = labels_for(deployment, workload)
    return None if labels is None else belief(labels.candidates)


def belief_here(deployment: Deployment, workload: Workload, context: int) -> Belief | None:
    """Return what an answer expects of the drafter at a context before anyone counts."""
    labels = labels_for(deployment, workload)
    if labels is None:
        return None
    beyond = priors().acceptance_effects.beyond_training.width
    known = belief_at(labels, context, moved=_moved(deployment), beyond=beyond)
    found = found_given(deployment, workload)
    return known if found is None else known.with_hit_rate(found)


def found_given(deployment: Deployment, workload: Workload) -> float | None:
    """Return the share of passes in which a lookup is said to find a draft; else None."""
    given = workload.hit_rate
    if deployment.drafter.kind not in LOOKUPS or given is None:
        return None
    if isinstance(given, tuple):
        raise InputError(
            f"several shares are by position; {deployment.drafter.name} finds a draft or none, so "
            "give one (a sweep takes the option again for another)",
            field="hit_rate",
            value=",".join(f"{share:g}" for share in given),
        )
    return given


def acceptance_is_known(deployment: Deployment, workload: Workload) -> bool:
    """Return whether an acceptance is given, or one can be expected."""
    if workload.acceptance is not None or deployment.drafter.kind == "none":
        return True
    return labels_for(deployment, workload) is not None


def acceptance_for(deployment: Deployment, workload: Workload) -> tuple[Acceptance, list[Notice]]:
    """Return the acceptance that is given, else the one to expect, and what to know of it."""
    if deployment.drafter.kind == "none":
        return NOTHING, []
    kv = deployment.target.precision.kv.value
    given = workload.acceptance
    if given is None:
        return _expected(deployment, workload)
    if isinstance(given, Acceptance):
        curve = given
    else:
        from roofline.engines.acceptance_source import acceptance_from

        curve = acceptance_from(given, kv=kv)
    longest = workload.max_draft_length
    doubts = curve_notices(curve, model=_names(deployment), longest=longest)  # as it was given
    stops = early_shares(deployment, workload)
    if stops is None:
        labels = labels_for(deployment, workload)
        taken = _Taken(
            deployment=deployment,
            prior=None if labels is None else belief(labels.candidates),
            found=found_given(deployment, workload),
            longest=None if labels is None else _longest_run(deployment, labels),
        )
        curve, told = taken.of(curve, given, workload.acceptance_rounds)
        if labels is not None and curve.continued_from is not None:
            told += _beyond_lengths(labels, taken.longest, longest, counted=curve.continued_from)
    else:
        curve, told = ended_at(curve, len(stops)), _ended_notices(deployment, stops, longest)
    return curve, [
        *told,
        *doubts,
        *curve.notices,
        *reading_notices(curve),
        *filled_notices(curve, longest=longest),
        *curve.outside_measured_contexts(workload.contexts),
    ]


#: Heads that are trained on their target's hidden states, in the format of that training.
_HEADS = ("eagle1", "eagle3", "dflash", "dspark", "domino")


def _moved(deployment: Deployment) -> Moved:
    """Return how the target's formats move the level of its drafter."""
    effects, precision = priors().acceptance_effects, deployment.target.precision
    acting = []
    if precision.kv is DType.FP8 and deployment.target.model.kv_dtype is not DType.FP8:
        acting.append(effects.fp8_kv)
    grouped = {DType.INT4_G128, DType.INT4_G64, DType.INT4_G32}
    if deployment.drafter.kind in _HEADS and grouped & {*precision.weights.values()}:
        acting.append(effects.int4_target)
    shift = sum(effect.shift for effect in acting)
    return Moved(shift=shift, width=math.sqrt(sum(effect.width**2 for effect in acting)))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Taken:
    """What an answer makes of a curve that was given: joined with the prior, and over all passes.

    ``found`` is the share of passes in which a lookup is said to find a draft, ``longest`` the
    longest draft that was published of it.
    """

    deployment: Deployment
    prior: Belief | None
    found: float | None
    longest: int | None

    def of(
        self, curve: Acceptance, given: str | Acceptance, rounds: float | None
    ) -> tuple[Acceptance, list[Notice]]:
        """Return the acceptance of a curve, and what to know; of a mix, of each part by itself.

        ``rounds`` are the passes that it was counted over, as the asker says: of a mix its share
        each.
        """
        if curve.mixed:
            return self._of_mix(curve, rounds)
        lookup = self.deployment.drafter.kind in LOOKUPS
        of_some = lookup and curve.drafting_only
        hits = curve.hit_rate if self.found is None else self.found
        if self.prior is not None:
            share = 1.0 if of_some else hits
            known = share is not None and lookup
            before = self.prior.with_hit_rate(share or 1.0) if known else self.prior
            curve = self._learned(curve, given, before, rounds)
        return self._over_all_passes(curve) if of_some else (curve, [])

    def _of_mix(self, curve: Acceptance, rounds: float | None) -> tuple[Acceptance, list[Notice]]:
        taken = [
            self.of(
                replace(part, drafting_only=part.drafting_only or curve.drafting_only),
                text,
                rounds and rounds * weight,
            )
            for weight, text, part in curve.mixed
        ]
        parts, told = [part for part, _ in taken], [n for _, notices in taken for n in notices]
        found = [part.hit_rate for part in parts]
        engine = self.deployment.engine.lookup_drafts
        padded = engine is not None and engine.padded
        if self.prior is not None and self.found is None and not padded and any(found):
            for position, share in enumerate(curve.mixed):
                if parts[position].hit_rate is None:
                    hits = found_share(self.prior, parts[position])
                    parts[position] = replace(parts[position], hit_rate=hits)
                    told.append(_hit_rate_assumed(self.deployment, hits, share.given))
        return curve.mixed_anew(parts), list(dict.fromkeys(told))

    def _learned(
        self, curve: Acceptance, given: str | Acceptance, known: Belief, rounds: float | None
    ) -> Acceptance:
        """Return a given curve with what the prior adds to it."""
        passes = rounds or curve.drafts
        each = priors().acceptance_effects.passes_per_request
        requests = max(curve.requests or (passes or 1) / each, 1.0)
        made = learned(curve, known, rounds=passes, requests=requests, longest=self.longest)
        if passes is not None:
            joined = _joined_notices(made, known, passes, requests)
            made = replace(made, notices=(*made.notices, *joined))
        if isinstance(given, str) and rounds is None:
            return self._published(made, given)
        return made

    def _published(self, curve: Acceptance, given: str) -> Acceptance:
        """Return a bundled curve with the spread of one's own run around it; others as they are."""
        if split_part(given)[0].lower() not in bundled_names(ACCEPTANCE_SHELF):
            return curve
        names = _names(self.deployment)
        own = any(same_model(target, name) for target in curve.targets for name in names)
        kind = prior_kind(self.deployment.drafter.kind)
        return of_another_run(curve, kind, another_model=not own)

    def _over_all_passes(self, curve: Acceptance) -> tuple[Acceptance, list[Notice]]:
        """Return an acceptance of a lookup's drafting passes over all passes, and what to know.

        The share of passes that draft is as given, else as counted with the acceptance, else the
        one to expect, with its spread. Other drafters draft in every pass.
        """
        drawn = None
        if self.found is not None:
            origin, hits = HitRate.GIVEN, self.found
        elif curve.hit_rate is not None:
            origin, hits = HitRate.COUNTED, curve.hit_rate
        elif self.prior is not None:
            drawn = found_draws(self.prior)
            origin, hits = HitRate.EXPECTED, float(drawn.mean())
        else:
            return curve, []
        drafter = self.deployment.drafter.name
        said = notice(
            Code.OVER_ALL_PASSES, label=curve.label, drafter=drafter, hit_rate=hits, origin=origin
        )
        return over_all_passes(curve, hit_rate=hits, drawn=drawn), [said]


def _joined_notices(
    curve: Acceptance, known: Belief, passes: float, requests: float
) -> list[Notice]:
    """Say that a count was joined with public runs: by how much, and how much weight it has."""
    weight = weight_of_count(curve, known, rounds=passes, requests=requests)
    if weight is None:
        return []
    pull = largest_pull(curve, rounds=passes, requests=requests)
    return [
        notice(
            Code.JOINED_WITH_PRIOR if pull is None else Code.PULLED_BY_PRIOR,
            label=curve.label,
            passes=passes,
            least=weight[0],
            most=weight[1],
            **({} if pull is None else pull._asdict()),
        )
    ]


def _hit_rate_assumed(deployment: Deployment, hits: float, typed: str | None) -> Notice:
    drafter = deployment.drafter.name
    return notice(Code.HIT_RATE_ASSUMED, drafter=drafter, hit_rate=hits, typed=typed)


def _ended_notices(deployment: Deployment, shares: tuple[float, ...], longest: int) -> list[Notice]:
    """Say that drafts which stop early tell nothing of longer ones."""
    if len(shares) >= longest:
        return []
    drafter = deployment.drafter.name
    return [notice(Code.EARLY_STOPS_END, drafter=drafter, last=len(shares), longest=longest)]


def curve_notices(curve: Acceptance, *, model: Iterable[str], longest: int) -> list[Notice]:
    """Return the notices of a curve for a model of these names, drafted up to ``longest``."""
    names = list(model)
    others = [t for t in curve.targets if not any(same_model(t, name) for name in names)]
    notices = [
        notice(Code.COUNTED_ON_ANOTHER_MODEL, label=curve.label, counted=other, model=names[0])
        for other in dict.fromkeys(others)
    ]
    fall = _first_fall(curve.measured, longest)
    if fall is not None:
        first, second = fall
        notices.append(
            notice(
                Code.TOKENS_PER_STEP_FALL,
                label=curve.label,
                first=first,
                second=second,
                before=curve.table[first],
                after=curve.table[second],
            )
        )
    rise = survival_rise({d: al for d, al in curve.measured.items() if d <= longest})
    if rise is not None:
        notices.append(rise.notice(f"acceptance of {curve.label}"))
    return notices


def filled_notices(curve: Acceptance, *, longest: int) -> list[Notice]:
    """Return the notice of the draft lengths up to ``longest`` that were not measured."""
    lengths = tuple(curve.filled_up_to(longest))
    return [notice(Code.GAPS_FILLED, label=curve.label, lengths=lengths)] if lengths else []


def _first_fall(table: Mapping[int, float], longest: int) -> tuple[int, int] | None:
    """Return the first two neighbouring draft lengths between which tokens per step fall."""
    lengths = sorted(d for d in table if d <= longest)
    for first, second in pairwise(lengths):
        if table[second] < table[first]:
            return first, second
    return None


def continued_notices(curve: Acceptance, *, longest: int) -> list[Notice]:
    """Return the notice of draft lengths up to ``longest`` beyond the end of a given curve."""
    last = max((part.continued_from or 0 for part in curve.parts), default=0)
    longest = min(longest, max(_grows_to(part) for part in curve.parts))
    if not last or longest <= last:
        return []
    return [notice(Code.CURVE_CONTINUED, label=curve.label, last=last, longest=longest)]


def _grows_to(curve: Acceptance) -> int:
    """Return the last draft length that yields more than the one before it."""
    table = curve.table
    return max((b for a, b in pairwise(sorted(table)) if table[b] > table[a]), default=0)


def _expected(deployment: Deployment, workload: Workload) -> tuple[Acceptance, list[Notice]]:
    """Return what the prior expects of the drafter, with the notice that says so."""
    labels, drafter = labels_for(deployment, workload), deployment.drafter
    if labels is None:
        raise UnknownAcceptanceError(
            f"no acceptance is known for {drafter.name} on {deployment.model_names[0]}: give a "
            "rate (0.7), survival:0.72,0.45, al:3=2.31, a file or an address",
            field="acceptance",
        )
    if workload.acceptance_rounds is not None:
        raise InputError(
            f"says nothing where nothing was counted; give {Option('acceptance')} as well",
            field="acceptance_rounds",
        )
    acceptance = expected_acceptance(
        labels,
        moved=_moved(deployment),
        hit_rate=found_given(deployment, workload),
        longest=_longest_run(deployment, labels),
        beyond=priors().acceptance_effects.beyond_training.width,
        contexts=workload.contexts,
        label=f"not measured, expected of {_whose(labels, drafter.name)}",
        source="published runs (acceptance_prior.yaml)",
    )
    here = acceptance.at_context(workload.contexts[0]).drawn(SHOWN_AT)[:, SHOWN_AT]
    # the 10th and 90th percentile; np.quantile would import masked arrays first
    low, high = np.interp((0.1, 0.9), np.linspace(0, 1, len(here)), np.sort(here))
    told = notice(
        Code.ACCEPTANCE_ASSUMED,
        kind=labels.kind,
        drafter=drafter.name,
        published=labels.published,
        certain=labels.certain,
        of_base=labels.of_base,
        domain=labels.domain,
        dataset=workload.dataset,
        at=SHOWN_AT,
        low=float(low),
        high=float(high),
    )
    return acceptance, [told, *_beyond_runs(deployment, workload, labels)]


def _reach(labels: DrafterLabels) -> Reach:
    from roofline.acceptance.values import published_reach

    return published_reach(labels.kind)


def _longest_run(deployment: Deployment, labels: DrafterLabels) -> int | None:
    """Return the longest draft that was published of a lookup; None for other drafters."""
    return _reach(labels).draft_length if deployment.drafter.kind in LOOKUPS else None


def _beyond_runs(deployment: Deployment, workload: Workload, labels: DrafterLabels) -> list[Notice]:
    """Say where an answer asks for more than any published run shows."""
    beyond = list[tuple[Beyond, float, float]]()
    warmth, context, trained = workload.temperature, max(workload.contexts), labels.trained_context
    if warmth is not None and warmth > WARMEST:
        beyond.append((Beyond.TEMPERATURE, warmth, WARMEST))
    if trained is not None and context > trained:
        most = trained * MOST_OVER_TRAINED
        if context > most:
            beyond.append((Beyond.TRAINED_CONTEXT, context, most))
    elif trained is None and context > SHORT and context > _reach(labels).context:
        beyond.append((Beyond.CONTEXT, context, _reach(labels).context))
    longest = _longest_run(deployment, labels)
    return [
        *(_beyond(labels, *each) for each in beyond),
        *_beyond_lengths(labels, longest, workload.max_draft_length),
    ]


def _beyond(labels: DrafterLabels, of: Beyond, asked: float, reached: float) -> Notice:
    return notice(Code.BEYOND_PUBLISHED_RUNS, kind=labels.kind, of=of, asked=asked, reached=reached)


def _beyond_lengths(
    labels: DrafterLabels, published: int | None, asked: int, *, counted: int = 0
) -> list[Notice]:
    """Say where an answer asks a lookup for longer drafts than anyone published or counted."""
    reached = max(published or 0, counted)
    if published is None or asked <= reached:
        return []
    of = Beyond.COUNTED_LENGTH if counted > published else Beyond.DRAFT_LENGTH
    return [_beyond(labels, of, asked, reached)]


def _whose(labels: DrafterLabels, drafter: str) -> str:
    """Name the drafters that an expected acceptance is that of."""
    use = f", {labels.domain}" if labels.domain else ""
    if labels.certain:
        return f"{drafter}{use}"
    family = labels.candidates[0].family
    return f"{labels.kind} drafters of {family} models{use}"


def idle_prompts(
    workload: Workload, acceptance: Acceptance | None, told: Iterable[Notice]
) -> list[Notice]:
    """Say which options of the prompts cannot act, as nothing is taken from public runs.

    ``acceptance`` is None where the answer goes by hit rates alone; ``told`` is what is said of
    both.
    """
    expected = any(
        each.code is Code.HIT_RATE_ASSUMED or each.values.get("origin") is HitRate.EXPECTED
        for each in told
    )
    if expected or (acceptance is not None and acceptance.uncertain):
        return []
    return [
        notice(Code.CHANGES_NOTHING, field=field, needs=Needs.PUBLIC_RUNS, network="")
        for field in ("domain", "dataset", "temperature")
        if getattr(workload, field) is not None
    ]


def hit_rate(
    deployment: Deployment, workload: Workload, acceptance: Acceptance | None, *, drop_unused: bool
) -> tuple[float | tuple[float, ...], list[Notice]]:
    """Return the share of sequences that have a draft to verify in a pass, and what to know.

    It is 1 but for a lookup in an engine that does not pad misses: as given, else as counted with
    the acceptance, else what the prior expects of such lookups. Where the engine can stop drafts
    early it is as given, by position.
    """
    kind, rule = deployment.drafter.kind, deployment.engine.lookup_drafts
    if kind not in LOOKUPS:
        return _verified_shares(deployment, workload, acceptance, drop_unused=drop_unused), []
    given = found_given(deployment, workload)
    if acceptance is None:
        return 1.0 if given is None else given, []
    first = float(acceptance.tokens_per_step([1])[0]) - 1
    if given is not None and given < first and not acceptance.unknown:
        typed = workload.acceptance if isinstance(workload.acceptance, str) else "..."
        raise InputError(
            f"a first draft is accepted in {first:.2g} of the passes, so at least as many have "
            f"one; write {Option('acceptance', f'drafting:{typed}')} for shares of those alone",
            field="hit_rate",
            value=f"{given:g}",
        )
    if rule is not None and rule.padded:
        return 1.0, []
    stated = acceptance.hit_rate if given is None else given
    if stated is not None:
        return stated, []
    lookup = belief_for(deployment, workload)
    hits = 1.0 if lookup is None else found_share(lookup, acceptance)
    given_as = workload.acceptance if isinstance(workload.acceptance, str) else None
    return hits, [_hit_rate_assumed(deployment, hits, given_as)]


def early_shares(deployment: Deployment, workload: Workload) -> tuple[float, ...] | None:
    """Return the shares of passes that verify a draft at each position; None where none stops."""
    given, drafter, stops = workload.hit_rate, deployment.drafter, deployment.engine.early_stops
    if given is None or given == 1 or stops is None or drafter.kind not in stops.kinds:
        return None
    return given if isinstance(given, tuple) else (given,)


def _verified_shares(
    deployment: Deployment, workload: Workload, acceptance: Acceptance | None, *, drop_unused: bool
) -> float | tuple[float, ...]:
    """Return the shares of passes that verify a draft at each position; 1 where none stops early.

    Drafts that stop early are accepted as often as they were counted with it, so that the prior,
    which is of whole drafts, says nothing of them, and nothing is known beyond the last share.
    """
    drafter, engine = deployment.drafter, deployment.engine
    shares = early_shares(deployment, workload)
    if shares is None:
        if workload.hit_rate in (None, 1) or drop_unused:
            return 1.0
        raise InputError(
            f"says nothing of {drafter.name}, which always drafts D tokens in {engine.name}; leave "
            "it out",
            field="hit_rate",
        )
    if workload.acceptance is None or acceptance is None:
        raise InputError(
            "drafts that stop early are accepted otherwise than whole ones; give "
            f"{Option('acceptance')} as counted with it on",
            field="hit_rate",
        )
    tokens = acceptance.tokens_per_step(range(len(shares) + 1))
    for position, (share, accepted) in enumerate(zip(shares, np.diff(tokens), strict=True), 1):
        if share < accepted - 1e-9:
            raise InputError(
                f"draft {position} is accepted in {accepted:.2g} of the passes, so at least as "
                "many verify one; give the shares counted with that acceptance",
                field="hit_rate",
                value=f"{share:g}",
            )
    return shares


def reading_notices(curve: Acceptance) -> list[Notice]:
    """Return the notice of a list of rates that was read as survival, without a word saying so."""
    if curve.other_reading is None:
        return []
    return [notice(Code.READ_AS_SURVIVAL, rates=curve.without_prefix)]


def _names(deployment: Deployment) -> tuple[str, ...]:
    """Return every name that the target goes by."""
    model, configuration = deployment.target.model, deployment.configuration
    named = configuration.model if configuration is not None else model.id
    return (model.id, named, *filter(None, [model.repository]))
