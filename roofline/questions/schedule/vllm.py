"""vLLM: rows of [start, end, K] in ``num_speculative_tokens_per_batch_size``.

Rules, read in vLLM 0.33.0 (vllm/v1/spec_decode/dynamic/utils.py, vllm/config/speculative.py): rows
of three whole numbers, both ends included; the first starts at 1; no overlap; a gap and the tail
carry the last K; K above ``num_speculative_tokens`` is cut to it without a word; switched off, with
a warning, where the data-parallel size is above 1. Rows of five are an open proposal (RFC 48627,
PR 48944 at 14b450ca5): a full grid of batch and context ranges, contexts without gaps from 1.
"""

from __future__ import annotations

import json

from roofline.advice.paste import flag, inside
from roofline.questions.schedule.bands import Band, coverage
from roofline.questions.schedule.plan import Plan
from roofline.questions.schedule.written import Written, best_fixed, written

__all__ = ["rows", "rows_with_contexts", "write"]

KEY = "num_speculative_tokens_per_batch_size"


def graph_price(static: int) -> str:
    """Say what the graph mode of schedules was seen to cost, and what to compare with.

    Model Runner V1 replaces whole CUDA graphs by piecewise ones as soon as a schedule is given.
    vLLM issues: 49548 (one stream "about 14 %", 59.6 to 50.0 tokens/s; 8 requests 232 to 24-157
    with rows [1, 4, 2], [5, 512, 0], against a static 2), 49986 (H100, 256 clients, contexts of
    400, 900, 1,900 and 4,000: a schedule 31, 27, 22 and 20 % below plain decoding, a static 3 at
    -21, -7, 0 and +10 %), 48494 (capture of the drafter's graphs fails).
    """
    against = f"K = {static} at every batch, the best static one"
    return (
        "vLLM: a schedule's graph mode has a price that is not in these figures: on Model Runner "
        "V1 one stream lost 14 % and a K of 0 cut 232 tokens/s to 24-157 (issue 49548), a "
        "schedule ran 20-31 % below plain decoding where a static K = 3 ran 21 % below to 10 % "
        "above it (49986), and capture with MTP crashed (48494). "
        f"Time it against {against if static else 'no speculation, the best static one'}"
    )


def rows(bands: list[Band]) -> list[list[int]]:
    """Return the 3-item rows.

    >>> rows([Band(first=1, last=4, draft_lengths=(3,)), Band(first=5, last=9, draft_lengths=(0,))])
    [[1, 4, 3], [5, 9, 0]]
    """
    return [[band.first, band.last, band.draft_length] for band in bands]


def rows_with_contexts(bands: list[Band], ranges: list[tuple[int, int]]) -> list[list[int]]:
    """Return the 5-item rows of the proposal; neighbouring contexts that never differ are one.

    >>> rows_with_contexts([Band(first=1, last=8, draft_lengths=(3, 3, 5))],
    ...                    [(1, 10), (11, 20), (21, 99)])
    [[1, 8, 1, 20, 3], [1, 8, 21, 99, 5]]
    """
    columns = list(zip(*(band.draft_lengths for band in bands), strict=True))
    starts = [i for i, column in enumerate(columns) if i == 0 or column != columns[i - 1]]
    ends = [*(start - 1 for start in starts[1:]), len(columns) - 1]
    return [
        [band.first, band.last, ranges[a][0], ranges[b][1], band.draft_lengths[a]]
        for band in bands
        for a, b in zip(starts, ends, strict=True)
    ]


def write(
    plan: Plan, *, proposed: bool = False, data_parallel: int = 1, static: int | None = None
) -> Written:
    """Return the ``--speculative-config`` to paste; without a schedule where one row would do.

    ``static`` is the draft length to compare the schedule with, None the plan's best.
    """
    bands = plan.by_context() if proposed else plan.merged
    deepest = max(max(band.draft_lengths) for band in bands)
    alone = flag(plan.question.deployment, deepest, running=plan.batches)
    if all(band.draft_lengths == (deepest,) * len(band.draft_lengths) for band in bands):
        return written(plan, "vllm", alone, bands, [])
    notes = [
        f"vLLM: batches above {plan.batches} keep the last row's K; prefills count as well",
        graph_price(best_fixed(plan)[0] if static is None else static),
    ]
    if not proposed:
        table = rows(bands)
    else:
        ranges = coverage(plan.contexts)
        ranges[-1] = (ranges[-1][0], plan.question.deployment.target.model.max_context)
        table = rows_with_contexts(bands, ranges)
        notes.append("vLLM 0.33.0 rejects rows of five items: they are a proposal (PR 48944)")
    if data_parallel > 1:
        notes.append(
            f"vLLM switches the schedule off at --data-parallel {data_parallel}: every batch would "
            f"run {deepest}"
        )
    text = inside(alone, f', "{KEY}": {json.dumps(table)}')
    return written(plan, "vllm", text, bands, notes)
