"""How the rows of a MoE benchmark fall on its experts: the tables' routing, without random draws.

Words: T tokens of all ranks together, E experts, k experts per token, ``ranks`` expert-parallel
groups; a load is the number of rows (copies of tokens) that one expert gets. The measured shard is
the busiest rank's. The collectors draw at random; this module takes the expected pattern instead,
so that a table always gives the same numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from roofline.kernels.mlp import ROW_TILE

__all__ = [
    "RankLoad",
    "alpha_of",
    "balanced_picks",
    "group_limited_loads",
    "picks_from_loads",
    "power_law_loads",
    "rank_load",
]

Array = NDArray[np.float64]
Picks = NDArray[np.int64]
DRAWS = 5  # the collectors average this many power-law draws
GROUPED_DRAWS = 2  # replaying a group-limited router costs more, and spreads less
_PRIMES = (2.0, 3.0, 5.0, 7.0, 11.0)  # their roots order the experts of each draw


@dataclass(frozen=True, kw_only=True, slots=True)
class RankLoad:
    """The busiest rank's work in one call, mean over draws."""

    distinct: float  # experts with rows on that rank
    awake: float  # experts with rows on all ranks
    rows: float  # on that rank
    hottest: float  # rows of its busiest expert
    padded: float  # its rows when every expert's are padded to 16


def alpha_of(distribution: str) -> float | None:
    """Return the exponent of a distribution's name, 0 if balanced, None if it is not known.

    >>> alpha_of("power_law_1.2"), alpha_of("balanced"), alpha_of("power_law_1.2_eplb")
    (1.2, 0.0, None)
    """
    if distribution == "balanced":
        return 0.0
    match = re.fullmatch(r"power_law_(\d+(?:\.\d+)?)", distribution)
    alpha = float(match[1]) if match else 1.0
    return None if alpha == 1.0 else alpha  # the inverse of w^-1 has another form; no table has it


def balanced_picks(*, tokens: int, experts: int, top_k: int) -> Picks:
    """Return the experts of each token (T, k): token i takes (i + j ceil(E / k)) mod E.

    With fewer tokens than the stride ceil(E / k), i is stretched over it.

    >>> balanced_picks(tokens=2, experts=8, top_k=2).tolist()
    [[0, 4], [2, 6]]
    """
    stride = -(-experts // top_k)
    token = np.arange(tokens, dtype=np.float64)[:, None]
    shift = token if tokens >= stride else token * stride / tokens
    return np.floor(shift + np.arange(top_k) * stride).astype(np.int64) % experts


def power_law_loads(
    *, alpha: float, tokens: int, experts: int, top_k: int, ranks: int = 1, draws: int = DRAWS
) -> Array:
    """Return the loads (draws, E) when popularity has density w^-alpha; the busiest rank is first.

    w lies on [1, 0.8 T], or on [0.01, 2] while T k <= E, at the E mid-quantiles, shuffled by a
    quasi-random order for each draw. A load is T k w / sum(w), rounded, and at most T since a
    token takes an expert once; what rounding and that cap leave over goes to the least loaded (or
    comes from the most loaded) experts of each rank in turn.
    """
    low, high = (1.0, 0.8 * tokens) if tokens * top_k > experts else (0.01, 2.0)
    near, far = low ** (1 - alpha), high ** (1 - alpha)
    step = np.sqrt(np.array(_PRIMES[:draws]))[:, None]
    place = np.argsort(np.argsort((np.arange(1, experts + 1) * step) % 1.0, axis=1), axis=1)
    weight = ((far - near) * (place + 0.5) / experts + near) ** (1 / (1 - alpha))
    rows = np.round(weight / weight.sum(axis=1, keepdims=True) * tokens * top_k)
    rows = np.minimum(rows, tokens).reshape(draws, ranks, -1)
    short = tokens * top_k - rows.sum(axis=(1, 2))
    for sign in (1, -1):
        units = np.maximum(sign * short, 0)[:, None]
        share = np.floor(units / ranks) + (np.arange(ranks) < units % ranks)
        rows = _level(rows, share, sign)
    rows = np.clip(rows, 0, tokens)
    for draw, rank in enumerate(np.argmax(rows.sum(axis=2), axis=1)):
        rows[draw, [0, rank]] = rows[draw, [rank, 0]]
    return np.asarray(rows.reshape(draws, -1))


def _level(counts: Array, amount: Array, sign: int) -> Array:
    """Add ``amount`` to the smallest entries of the last axis (sign 1), or take it off the largest.

    Like water: the entries that take part end level, to within one.
    """
    order = np.argsort(sign * counts, axis=-1, kind="stable")
    low = np.take_along_axis(sign * counts, order, axis=-1)
    place = np.arange(1, low.shape[-1] + 1)
    total = np.cumsum(low, axis=-1)
    used = np.sum(place * low - total <= amount[..., None], axis=-1)  # entries that take part
    filled = np.take_along_axis(total, used[..., None] - 1, axis=-1)[..., 0] + amount
    level = np.floor(filled / used)
    extra = filled - level * used
    raised = level[..., None] + (place <= extra[..., None])
    out = np.empty_like(low)
    np.put_along_axis(out, order, np.where(place <= used[..., None], raised, low), axis=-1)
    return sign * out


def picks_from_loads(loads: Array, *, tokens: int, top_k: int) -> Picks:
    """Return picks (T, k) with these loads: experts handed out most loaded first, no pick twice."""
    order = np.argsort(-loads, kind="stable")
    handed = np.repeat(order, loads[order].astype(np.int64))
    return np.resize(handed, tokens * top_k).reshape(top_k, tokens).T


def group_limited_loads(picks: Picks, *, experts: int, groups: int, kept: int) -> Array:
    """Return the loads (1, E) after a group-limited router overrules picks given as one-hot logits.

    As in DeepSeek-V3: a group's score is the sum of its two best logits, the best ``kept`` groups
    stay (ties: the lower index), and picks in the others fall to the lowest-numbered experts of
    those that stay.
    """
    tokens, top_k = picks.shape
    chosen = np.zeros((tokens, experts), dtype=bool)
    chosen[np.arange(tokens)[:, None], picks] = True
    score = np.minimum(chosen.reshape(tokens, groups, -1).sum(axis=2), 2)
    best = np.argsort(-score, axis=1, kind="stable")[:, :kept]
    stays = np.zeros((tokens, groups), dtype=bool)
    stays[np.arange(tokens)[:, None], best] = True
    open_to = np.repeat(stays, experts // groups, axis=1)
    hits, free = chosen & open_to, open_to & ~chosen
    lost = top_k - hits.sum(axis=1, keepdims=True)
    falls = free & (np.cumsum(free, axis=1, dtype=np.int32) <= lost)
    return np.asarray((hits | falls).sum(axis=0, dtype=np.float64)[None, :])


def _loads(
    *, alpha: float, tokens: int, experts: int, top_k: int, ranks: int, groups: tuple[int, int]
) -> Array:
    """Return the loads (draws, E) of a distribution; ``groups``: (groups, kept), (1, 1) for all."""
    limited = groups != (1, 1)
    if alpha == 0:
        picks = [balanced_picks(tokens=tokens, experts=experts, top_k=top_k)]
        plain = np.bincount(picks[0].ravel(), minlength=experts).astype(np.float64)[None, :]
    else:
        plain = power_law_loads(
            alpha=alpha,
            tokens=tokens,
            experts=experts,
            top_k=top_k,
            ranks=ranks,
            draws=GROUPED_DRAWS if limited else DRAWS,
        )
        picks = [picks_from_loads(row, tokens=tokens, top_k=top_k) for row in plain if limited]
    if not limited:
        return plain
    count, kept = groups
    return np.concatenate(
        [group_limited_loads(pick, experts=experts, groups=count, kept=kept) for pick in picks]
    )


@cache
def rank_load(
    *,
    alpha: float,
    tokens: int,
    experts: int,
    top_k: int,
    ranks: int = 1,
    groups: tuple[int, int] = (1, 1),
) -> RankLoad:
    """Return the work of the measured rank; ``alpha`` 0 is balanced.

    >>> rank_load(alpha=0.0, tokens=4, experts=8, top_k=2)  # 8 copies on 8 experts, one each
    RankLoad(distinct=8.0, awake=8.0, rows=8.0, hottest=1.0, padded=128.0)
    """
    loads = _loads(
        alpha=alpha,
        tokens=tokens,
        experts=experts,
        top_k=top_k,
        ranks=ranks,
        groups=groups,
    )
    local = loads[:, : experts // ranks]
    return RankLoad(
        distinct=float(np.mean((local > 0).sum(axis=1))),
        awake=float(np.mean((loads > 0).sum(axis=1))),
        rows=float(np.mean(local.sum(axis=1))),
        hottest=float(np.mean(local.max(axis=1))),
        padded=float(np.mean((np.ceil(local / ROW_TILE) * ROW_TILE).sum(axis=1))),
    )
