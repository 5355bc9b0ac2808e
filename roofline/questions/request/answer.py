"""Requests instead of steps: what speculation buys for prompt and answer together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofline.advice.configuration import Configuration
from roofline.advice.decide import smallest_within_tie
from roofline.advice.question import Question, Workload, ask
from roofline.advice.recommend import drawn_tokens, law_limit_notices, require_fit
from roofline.base.errors import InputError, Option
from roofline.base.notices import Notice
from roofline.base.numbers import DRAWS, normal_draws
from roofline.questions.request.lengths import Requests
from roofline.questions.request.pricing import PricedRequests, Seconds, price_requests
from roofline.specs.priors import priors
from roofline.timing.step import StepTimes, advisable

__all__ = ["Ranged", "RequestAnswer", "RequestPoint", "answer_requests"]

Array = NDArray[np.float64]
#: Quantiles of every range.
RANGE = (0.1, 0.9)
#: The stream of what a server adds around its passes, before those of served builds.
FRONT_END = 1099


class Ranged(NamedTuple):
    """A number by draft length, with the 10th and 90th percentile of its draws."""

    value: Array
    low: Array
    high: Array

    def at(self, position: int) -> tuple[float, float, float]:
        """Return number, low and high at one draft length."""
        return float(self.value[position]), float(self.low[position]), float(self.high[position])


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestPoint:
    """What a request takes at one batch, by draft length; means over all requests. Times in s.

    ``per_step`` is the speedup of decoding in passes without prompts, ``per_token`` that of
    decoding as a request sees it, with the prompts of others riding along.
    """

    batch: int
    draft_lengths: tuple[int, ...]
    usable: NDArray[np.bool_]  # fits in memory, and may be advised
    tokens_per_step: Array
    ttft: Ranged
    tpot: Ranged
    e2e: Ranged
    per_step: Ranged
    per_token: Ranged
    per_request: Ranged
    prompt_share: Array  # of the time of a request that prompts take, its own and others'
    best: int

    @property
    def draft_length(self) -> int:
        """The advised draft length."""
        return self.draft_lengths[self.best]


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestAnswer:
    """What a request takes and gains at every batch that fits."""

    question: Question
    requests: Requests
    priced: PricedRequests
    points: tuple[RequestPoint, ...]
    refused: tuple[int, ...]  # batches that do not fit
    notices: tuple[Notice, ...]

    @property
    def times(self) -> StepTimes:
        """The passes that the answer is made of."""
        return self.priced.grid.times

    @property
    def largest_batch(self) -> int:
        """Requests that fit in memory at the mean context, without drafts."""
        memory = self.question.deployment.memory
        return memory.largest_batch(context=self.requests.context, draft_length=0)


def answer_requests(
    configuration: Configuration, workload: Workload, requests: Requests
) -> RequestAnswer:
    """Answer for whole requests: the draft length with the shortest mean request at each batch."""
    question = _question(configuration, workload, requests)
    lengths, batches = question.draft_lengths, question.workload.batches
    priced = price_requests(question.deployment, requests, batches=batches, draft_lengths=lengths)
    grid = require_fit(priced.grid)
    tokens = question.tokens_per_step((requests.context,))[0]
    expected = priced.seconds(tokens)
    drawn = _drawn(question, requests, priced, tokens)
    captured = advisable(grid.times.launches.captured[:, 0])
    points = []
    for i, batch in enumerate(batches):
        if not grid.fits[i, 0, 0]:
            continue
        usable = grid.fits[i, 0] & captured[i]
        points.append(
            _point(
                batch,
                question,
                tokens=tokens,
                usable=usable,
                expected=_mean(_of(expected, i), requests),
                drawn=_mean(_of(drawn, i), requests),
                steps=(grid.times.total[i, 0], grid.drawn.steps()[:, i, 0]),
                drawn_yields=drawn_tokens(question, tokens[None], contexts=(requests.context,)),
            )
        )
    return RequestAnswer(
        question=question,
        requests=requests,
        priced=priced,
        points=tuple(points),
        refused=tuple(b for i, b in enumerate(batches) if not grid.fits[i, 0, 0]),
        notices=(*question.notices, *law_limit_notices(grid.times)),
    )


def _question(configuration: Configuration, workload: Workload, requests: Requests) -> Question:
    """Return the question at the mean context; a refused one is blamed on the lengths."""
    if workload.prefill_tokens_per_step:
        raise InputError(
            "follows from the lengths of requests; leave it out", field="prefill_tokens_per_step"
        )
    lengths = f"{Option('input_tokens')}, {Option('output_tokens')}"
    named = f"{Option('trace')} {requests.source}" if requests.source else lengths
    try:
        question = ask(configuration, replace(workload, contexts=(requests.context,)))
    except InputError as error:
        if error.field != "context":
            raise
        mean = f"mean context {requests.context}"
        raise InputError(f"{named} ({mean}): {error.problem}") from None
    model = question.deployment.target.model
    if requests.longest > model.max_context:
        raise InputError(
            f"{named}: {model.id} handles at most {model.max_context} tokens, not "
            f"{requests.longest}"
        )
    return question


def _drawn(
    question: Question, requests: Requests, priced: PricedRequests, tokens: Array
) -> Seconds:
    """Return the seconds of requests in the joint draws of steps and acceptance, draws first."""
    yields = drawn_tokens(question, tokens[None], contexts=(requests.context,))[:, 0, 0]
    stated = priors().front_end
    front_end = stated.first_token * np.exp(stated.spread * normal_draws(FRONT_END))
    return priced.seconds(yields, priced.grid.drawn.steps(), front_end[:, None, None, None])


def _of(seconds: Seconds, batch: int) -> Seconds:
    return Seconds(*(values[..., batch, :, :] for values in seconds))


def _mean(seconds: Seconds, requests: Requests) -> Seconds:
    """Return the mean over requests; TPOT over tokens after the first one."""
    shares = np.array(requests.shares)
    later = shares * np.maximum(np.array(requests.output_tokens) - 1, 0)
    tpot = np.full(seconds.ttft.shape[:-1], np.nan)
    if later.sum():
        tpot = (np.nan_to_num(seconds.tpot) * later).sum(axis=-1) / later.sum()
    return Seconds(seconds.ttft @ shares, tpot, seconds.e2e @ shares, seconds.prompts @ shares)


def _point(
    batch: int,
    question: Question,
    *,
    tokens: Array,
    usable: NDArray[np.bool_],
    expected: Seconds,
    drawn: Seconds,
    steps: tuple[Array, Array],
    drawn_yields: Array,
) -> RequestPoint:
    """Return one batch's answer."""
    gain = expected.e2e[:1] / expected.e2e
    step, drawn_step = steps
    yields = np.broadcast_to(drawn_yields[:, 0, 0], (DRAWS, len(tokens)))
    decode = tokens * step[0] / step
    drawn_decode = yields * drawn_step[:, :1] / drawn_step
    return RequestPoint(
        batch=batch,
        draft_lengths=question.draft_lengths,
        usable=usable,
        tokens_per_step=tokens,
        ttft=_ranged(expected.ttft, drawn.ttft),
        tpot=_ranged(expected.tpot, drawn.tpot),
        e2e=_ranged(expected.e2e, drawn.e2e),
        per_step=_ranged(decode, drawn_decode),
        per_token=_ranged(expected.tpot[:1] / expected.tpot, drawn.tpot[:, :1] / drawn.tpot),
        per_request=_ranged(gain, drawn.e2e[:, :1] / drawn.e2e),
        prompt_share=expected.prompts / expected.e2e,
        best=int(smallest_within_tie(np.where(usable, gain, np.nan))[0]),
    )


def _ranged(value: Array, drawn: Array) -> Ranged:
    """Return a number with its range, which holds it."""
    low, high = np.quantile(drawn, RANGE, axis=0)
    return Ranged(value, np.minimum(low, value), np.maximum(high, value))
