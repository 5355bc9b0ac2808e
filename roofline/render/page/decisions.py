"""What the page looks up: the decision of every batch and context at every stop of its sliders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.acceptance.curve import tokens_per_step
from roofline.acceptance.models import decay_share
from roofline.advice.decide import CONFIDENCES, EVEN, Decision, decide, speedups
from roofline.advice.recommend import Recommendation
from roofline.advice.why import (
    OUTCOMES,
    Outcome,
    best_uncaptured_position,
    deciding_limits,
    deciding_position,
    most_tokens_per_step,
    outcomes,
    would_win,
)
from roofline.base.units import SLOW_PACE
from roofline.render.charts.frontier import undominated
from roofline.render.page.report import Report
from roofline.render.why import headline_template
from roofline.specs.priors import priors
from roofline.timing.step import advisable

__all__ = ["AS_GIVEN", "RATES", "SCALES", "Decisions", "Stops", "decisions_of", "stops_of"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

#: Stops of the sliders [%]: accepted drafts as a share of those given, and one rate.
SCALES = tuple(range(0, 151, 5))
RATES = tuple(range(101))
AS_GIVEN = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Stops:
    """The acceptances that the sliders stop at: scaled ones first, then single rates."""

    scales: tuple[int, ...]  # [%]
    rates: tuple[int, ...]  # [%]
    #: AL by stop, context (one where it does not depend on it) and draft length; NaN is unknown.
    tokens: Array
    #: By stop and draft length: what is left of the low end of a speedup where a rate may fall.
    shares: Array

    @property
    def as_given(self) -> int:
        """The position of the acceptance as it was given."""
        return self.scales.index(AS_GIVEN)


def stops_of(report: Report) -> Stops:
    """Return the stops of a report; as given alone where nothing is drafted."""
    question, lengths = report.answer.question, report.grid.question.draft_lengths
    given = question.acceptance.over_contexts(report.contexts, lengths)
    if len(lengths) == 1:
        return Stops(scales=(AS_GIVEN,), rates=(), tokens=given[None], shares=np.ones((1, 1)))
    scales = np.array(SCALES)[:, None, None] / 100
    scaled = np.minimum(1 + np.array(lengths), 1 + scales * (given - 1))
    scaled[SCALES.index(AS_GIVEN)] = given
    rates = np.array(RATES) / 100
    constant = np.array([tokens_per_step([rate] * max(lengths))[list(lengths)] for rate in rates])
    fall = priors().acceptance_effects.one_rate_fall
    falling = decay_share(rate=rates, ratio=fall, draft_lengths=lengths)
    return Stops(
        scales=SCALES,
        rates=RATES,
        tokens=np.concatenate([scaled, np.repeat(constant[:, None], len(given), axis=1)]),
        shares=np.concatenate([np.ones((len(SCALES), len(lengths))), falling]),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Decisions:
    """Distinct decisions, and which of them holds at each stop, batch and context."""

    distinct: list[dict[str, Any]]
    held: NDArray[np.intp]  # (stops, batches, contexts): position in ``distinct``
    headlines: list[str]  # templates of first sentences
    on_plain_curve: Mask  # (batches, contexts): on the frontier of plain decoding


@dataclass(frozen=True)
class _Priced:
    """The grid of a report as arrays over (batches, contexts, draft lengths)."""

    report: Report

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        lengths = self.report.grid.question.draft_lengths
        return len(self.report.batches), len(self.report.contexts), len(lengths)

    def of_points(self, answer: Recommendation, name: str) -> Array:
        """Return one array of every point, NaN where it has no such point or draft length."""
        values = np.full(self.shape, np.nan)
        lengths = self.report.grid.question.draft_lengths
        for point in answer.points:
            at = self.report.batches.index(point.batch), self.report.contexts.index(point.context)
            values[(*at, [lengths.index(d) for d in point.draft_lengths])] = getattr(point, name)
        return values

    def of_grid(self, name: str) -> Array:
        """Return one array of the grid."""
        return self.of_points(self.report.grid, name)

    @cached_property
    def step(self) -> Array:
        return self.of_grid("step")

    @cached_property
    def fits(self) -> Mask:
        return np.asarray(self.of_grid("feasible") == 1)

    @cached_property
    def candidates(self) -> Mask:
        return np.asarray(self.of_grid("candidates") == 1)

    @cached_property
    def captured(self) -> Mask:
        return np.asarray(self.of_grid("captured") == 1)

    @property
    def lengths(self) -> tuple[int, ...]:
        return self.report.grid.question.draft_lengths

    @cached_property
    def by_hand(self) -> Array:
        return self.of_grid("by_hand")

    @cached_property
    def reach(self) -> tuple[Array, Array]:
        """Low and high of t(0) / t(D)."""
        tokens = self.of_grid("tokens_per_step")
        return self.of_grid("low") / tokens, self.of_grid("high") / tokens

    def given_reach(self) -> tuple[Array, Array] | None:
        """Low and high of the speedup as given, if they hold the acceptance's own error."""
        answer = self.report.grid_with_acceptance_error
        if answer is None:
            return None
        return self.of_points(answer, "low"), self.of_points(answer, "high")

    @cached_property
    def faster(self) -> Array:
        """Odds of being faster than plain decoding as given, by the errors of both."""
        answer = self.report.grid_with_acceptance_error
        return np.ones(self.shape) if answer is None else self.of_points(answer, "faster")


#: Columns of a decision in front of a column for each draft length: whether it ties with the best.
_COLUMNS = (
    "outcome",
    "limit",
    "confidence",
    "slow",
    "best",
    "shown",
    "beyond",
    "at_the_end",
    "on_curve",
    "measured",
    "rarely_faster",
)


def decisions_of(report: Report, stops: Stops) -> Decisions:
    """Decide at every stop, batch and context; a stop is decided at once for the whole grid.

    It is ``decide`` and what follows from it in an answer, with the tokens per step of the stop.
    """
    priced = _Priced(report)
    rows = np.stack([_decided(priced, stops, stop) for stop in range(len(stops.tokens))])
    distinct, held = np.unique(rows.reshape(-1, rows.shape[-1]), axis=0, return_inverse=True)
    headlines: list[str] = []
    plain = 1 / priced.step[..., 0]
    return Decisions(
        distinct=[_as_data(row, headlines) for row in distinct.tolist()],
        held=held.reshape(rows.shape[:-1]),
        headlines=headlines,
        on_plain_curve=_on_curves(report, plain),
    )


def _as_data(row: Sequence[int], headlines: list[str]) -> dict[str, Any]:
    """Return one decision; add the template of its first sentence to those there are."""
    named = dict(zip(_COLUMNS, row, strict=False))
    outcome = OUTCOMES[named["outcome"]]
    template = headline_template(
        outcome,
        CONFIDENCES[named["confidence"]],
        plain=0.0 if named["slow"] else np.inf,
        measured=bool(named["measured"]),
        rarely_faster=bool(named["rarely_faster"]),
    )
    if template not in headlines:
        headlines.append(template)
    return {
        "headline": headlines.index(template),
        "outcome": outcome.value,
        "limit": OUTCOMES[named["limit"]].value if named["limit"] >= 0 else None,
        "best": named["best"],
        "shown": named["shown"],
        "beyond": named["beyond"],
        "at_the_end": bool(named["at_the_end"]),
        "on_curve": bool(named["on_curve"]),
        "tie": [i for i, tied in enumerate(row[len(_COLUMNS) :]) if tied],
    }


def _decided(priced: _Priced, stops: Stops, stop: int) -> NDArray[np.intp]:
    """Return the decisions at one stop, shape (batches, contexts, columns)."""
    tokens = np.broadcast_to(stops.tokens[stop], priced.shape[1:])
    known = np.broadcast_to(np.isfinite(tokens), priced.shape)
    fits, candidates = priced.fits & known, priced.candidates & known
    decision = _decide(priced, stops, stop, tokens, candidates)
    best = decision.best
    last_known = known.shape[-1] - 1 - known[..., ::-1].argmax(axis=-1)
    said = outcomes(
        fits=fits,
        candidates=candidates,
        best=best,
        unknown=(priced.candidates & ~known)[..., 1:].any(axis=-1),
    )
    captured_gain = tokens * priced.step[..., :1] / (priced.step - priced.by_hand)
    columns = {
        "outcome": said,
        "limit": deciding_limits(
            outcome=said,
            wins={
                Outcome.NO_ROOM: would_win(decision.speedup, advisable(priced.captured) & known),
                Outcome.PAST_GRAPHS: would_win(captured_gain, fits),
                Outcome.UNKNOWN: would_win(
                    speedups(most_tokens_per_step(priced.lengths, tokens), priced.step),
                    priced.candidates & ~known,
                ),
            },
        ),
        "confidence": decision.confidence,
        "slow": 1 / priced.step[..., 0] < SLOW_PACE,
        "best": best,
        "shown": deciding_position(speedup=decision.speedup, candidates=candidates, best=best),
        "beyond": best_uncaptured_position(
            gain=captured_gain,
            uncaptured=fits & ~priced.captured,
            advised=_at(decision.speedup, best),
        ),
        "at_the_end": (best > 0) & (best == last_known),
        "on_curve": _on_curves(priced.report, _at(tokens / priced.step, best)),
        "measured": np.full(
            best.shape,
            stop != stops.as_given or not priced.report.answer.question.acceptance.unknown,
        ),
        "rarely_faster": (best > 0) & (stop == stops.as_given) & (_at(priced.faster, best) < EVEN),
    }
    ordered = np.stack([columns[name] for name in _COLUMNS], axis=-1)
    return np.concatenate([ordered, decision.tie], axis=-1).astype(np.intp)


def _at(values: Array, position: NDArray[np.intp]) -> Array:
    """Return the values at one draft length of each batch and context."""
    return np.take_along_axis(values, position[..., None], axis=-1)[..., 0]


def _decide(priced: _Priced, stops: Stops, stop: int, tokens: Array, candidates: Mask) -> Decision:
    """Decide the whole grid at one stop."""
    given = priced.given_reach() if stop == stops.as_given else None
    low, high = priced.reach
    reach = given or (low * tokens * stops.shares[stop], high * tokens)
    return decide(priced.step, tokens, candidates, reach)


def _on_curves(report: Report, speed: Array) -> Mask:
    """Return where no other batch of the context is better for users and throughput alike.

    ``speed`` is that of one user by batch and context, NaN where nothing fits.
    """
    kept = np.zeros(speed.shape, dtype=bool)
    batches = np.array(report.batches)
    for column, of_context in enumerate(speed.T):
        fits = np.isfinite(of_context)
        kept[fits, column] = undominated(of_context[fits], (of_context * batches)[fits])
    return kept
