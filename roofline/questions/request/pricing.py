"""Seconds of a request: time to first token, time per output token, and all of it.

`price_requests` is the one function that prices prompts: seconds of TTFT given batches, lengths,
chunk and prefix hit, with the same kernels, laws and joint draws as every step.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofline.advice.deployment import Deployment, PricedGrid
from roofline.questions.request.lengths import Requests
from roofline.specs.placement import Chunks
from roofline.specs.priors import priors

__all__ = ["PricedRequests", "Seconds", "chunk_points", "price_requests", "request_seconds"]

Array = NDArray[np.float64]
#: Chunks of one prompt that are priced; the others stand for more, evenly over the prompt.
PRICED_CHUNKS = 8


class Seconds(NamedTuple):
    """What requests take, kinds of requests along the last axis [s]."""

    ttft: Array
    tpot: Array  # NaN of an answer of one token
    e2e: Array
    prompts: Array  # the part of ``e2e`` that prompts take, a request's own and those of others


class ChunkPoints(NamedTuple):
    """The chunks worth pricing: of which kind, how many each stands for, its size and cache."""

    kind: NDArray[np.intp]
    weight: Array
    tokens: Array
    before: Array


def chunk_points(requests: Requests, *, budget: int) -> tuple[ChunkPoints, Array]:
    """Return the chunks that are priced, and the number of chunks of each kind of request.

    A prompt of N_in tokens, h of them cached, is read in c = ceil((N_in - h) / C) equal chunks;
    chunk j sees the h + (j - 1) (N_in - h) / c tokens before it.

    >>> from roofline.questions.request.lengths import requests_of
    >>> points, count = chunk_points(requests_of((5000,), (100,), (1000,)), budget=2048)
    >>> count.tolist(), points.tokens.tolist(), points.before.tolist()
    ([2.0], [2000.0, 2000.0], [1000.0, 3000.0])
    """
    kinds, weights, tokens, before, counts = [], [], [], [], []
    lengths = zip(requests.input_tokens, requests.prefix_tokens, strict=True)
    for kind, (prompt, prefix) in enumerate(lengths):
        computed = max(prompt - prefix, 1.0)
        count = ceil(computed / budget)
        priced = min(count, PRICED_CHUNKS)
        at = (np.arange(priced) + 0.5) * count / priced - 0.5  # positions, evenly spread
        kinds += [kind] * priced
        weights += [count / priced] * priced
        tokens += [computed / count] * priced
        before += (prefix + at * computed / count).tolist()
        counts.append(float(count))
    points = ChunkPoints(np.array(kinds), np.array(weights), np.array(tokens), np.array(before))
    return points, np.array(counts)


def request_seconds(
    *,
    step: Array,
    prompt: Array,
    chunks: Array,
    outputs: Array,
    tokens_per_step: Array,
    batch: Array,
    shares: Array,
    fewest_passes: Array | float = 0.0,
) -> Seconds:
    """Return what each kind of request takes in a closed loop of ``batch`` requests [s].

    A request decodes in K = (N_out - 1) / AL passes after the c passes of its chunks, and where it
    is not alone waits for w = 1 pass that is under way. With s the pass without a prompt and P what
    a prompt's chunks add, everyone sees each other's prompts once in a cycle of n passes:

        n = max(E[c + K + w], B E[tokens] / C),   s' = s + (B - 1) E[P] / n
        TTFT = (c + w + n - E[c + K + w]) s' + P,   TPOT = K s' / (N_out - 1)

    ``step``, ``tokens_per_step`` and ``batch`` broadcast; kinds of requests are the last axis of
    the others. ``fewest_passes`` is B E[tokens] / C, the passes that the prompts of all take.

    One request, 10 ms a pass, a prompt that adds 90 ms, 101 tokens of answer: 100 ms, then 1 s.
    Two of them: s' = 10 + 90 / 102 = 10.88 ms; (1 + 1) s' + 90 = 111.8 ms, then 100 s'.

    >>> one = dict(step=np.array([0.01]), prompt=np.array([0.09]), chunks=np.array([1.0]),
    ...            outputs=np.array([101.0]), tokens_per_step=np.array([1.0]), shares=np.ones(1))
    >>> [round(1e3 * x.item(), 2) for x in request_seconds(**one, batch=np.array([1.0]))]
    [100.0, 10.0, 1100.0, 90.0]
    >>> [round(1e3 * x.item(), 1) for x in request_seconds(**one, batch=np.array([2.0]))]
    [111.8, 10.9, 1200.0, 180.0]
    """
    decoding = (outputs - 1) / tokens_per_step
    waits = np.where(batch > 1, 1.0, 0.0)
    own = chunks + waits
    mean = ((own + decoding) * shares).sum(axis=-1, keepdims=True)
    passes = np.maximum(mean, fewest_passes)
    seen = step + (batch - 1) * (prompt * shares).sum(axis=-1, keepdims=True) / passes
    ttft = (own + passes - mean) * seen + prompt
    with np.errstate(invalid="ignore", divide="ignore"):
        tpot = np.where(outputs > 1, decoding * seen / (outputs - 1), np.nan)
    e2e = ttft + decoding * seen
    return Seconds(ttft, tpot, e2e, e2e - (own + passes - mean + decoding) * step)


@dataclass(frozen=True, kw_only=True, slots=True)
class PricedRequests:
    """Passes with and without a prompt's chunks, by batch and draft length."""

    requests: Requests
    grid: PricedGrid  # the first of the middle axis is the pass without a prompt
    points: ChunkPoints
    counts: Array  # chunks of each kind
    budget: int  # prompt tokens of one pass at most, all groups together
    front_end: float  # what the server adds to the first token around its passes [s]

    def seconds(
        self,
        tokens_per_step: Array,
        steps: Array | None = None,
        front_end: Array | float | None = None,
    ) -> Seconds:
        """Return (..., batches, draft lengths, kinds) [s].

        ``tokens_per_step`` is (..., draft lengths); ``steps`` (..., batches, points, draft lengths)
        and ``front_end`` (..., 1, 1, 1) are the expected ones where none are given.
        """
        times = self.grid.times.total if steps is None else steps
        plain = times[..., :1, :]
        added = np.maximum(times[..., 1:, :] - plain, 0.0) * self.points.weight[:, None]
        kinds = np.eye(len(self.counts))[self.points.kind]  # (points, kinds)
        prompt = np.einsum("...pd,pk->...dk", added, kinds)
        batch = self.grid.grid.batch.reshape(-1, 1, 1)
        outputs = np.array(self.requests.output_tokens)
        tokens = np.minimum(tokens_per_step[..., None, :, None], np.maximum(outputs - 1, 1))
        found = request_seconds(
            step=plain[..., 0, :, None],
            prompt=prompt,
            chunks=self.counts,
            outputs=outputs,
            tokens_per_step=tokens,
            batch=batch,
            shares=np.array(self.requests.shares),
            fewest_passes=batch * self._mean_tokens / self.budget,
        )
        first = self.front_end if front_end is None else front_end
        return found._replace(ttft=found.ttft + first, e2e=found.e2e + first)

    @property
    def _mean_tokens(self) -> float:
        computed = np.array(self.requests.input_tokens) - np.array(self.requests.prefix_tokens)
        return float(np.average(computed, weights=self.requests.shares))


def price_requests(
    deployment: Deployment,
    requests: Requests,
    *,
    batches: tuple[int, ...],
    draft_lengths: tuple[int, ...],
    front_end: float | None = None,
) -> PricedRequests:
    """Price requests in closed loops of ``batches``, for every draft length.

    ``front_end`` is what the server adds to a first token [s]; None is the stated prior, and 0 of
    requests that come through no server.

    ``requests`` hold lengths, prefix hits and the chunk. ``seconds`` of the result has TTFT, TPOT
    and all of it; with the draws of its grid, their ranges.
    """
    dp = deployment.target.placement.dp
    budget = requests.chunk or deployment.engine.memory.prefill_chunk
    points, counts = chunk_points(requests, budget=budget)
    tokens = np.concatenate([[0.0], points.tokens]).reshape(1, -1, 1)
    number = np.where(tokens > 0, 1.0, 0.0)
    before = np.concatenate([[0.0], points.before]).reshape(1, -1, 1)
    grid = deployment.grid(
        batches,
        (requests.context,),
        draft_lengths,
        prefill_tokens=tokens,
        prefill_fullest=tokens,
        chunks=Chunks(number=number, tokens=tokens, before=before),
    )
    return PricedRequests(
        requests=requests,
        grid=deployment.price(grid),
        points=points,
        counts=counts,
        budget=budget * dp,
        front_end=priors().front_end.first_token if front_end is None else front_end,
    )
