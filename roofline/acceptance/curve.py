"""One acceptance: tokens per step by draft length, and by context where that was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Acceptance",
    "all_accepted",
    "by_context",
    "from_curve",
    "from_rates",
    "from_survival",
    "tokens_per_step",
    "weighted",
]


def tokens_per_step(conditional: Sequence[float]) -> NDArray[np.float64]:
    """Return AL(D) for D = 0 ... n from conditional acceptance rates a_1 ... a_n.

    AL(D) = 1 + sum_{i<=D} prod_{j<=i} a_j; for equal a it is Leviathan et al. 2023, Eq. (1),
    (1 - a^(D+1)) / (1 - a) with D drafted tokens.

    >>> round(float(tokens_per_step([0.7] * 4)[4]), 4)
    2.7731
    """
    return 1 + np.concatenate([[0.0], np.cumsum(np.cumprod(np.asarray(conditional, dtype=float)))])


@dataclass(frozen=True, kw_only=True, slots=True)
class Acceptance:
    """AL by draft length. ``tail`` is the conditional rate to continue with, where that is known.

    ``table`` maps D to AL for every D that was given; a D between two of them is unknown, not
    interpolated. ``contexts`` holds one acceptance per measured context, shortest first; the
    table is then the first one's. ``drafts`` counts the passes behind a measurement.
    """

    table: dict[int, float]
    label: str
    source: str
    unlimited: bool = False  # a single rate holds at any depth
    tail: float | None = None
    assumed: bool = False
    drafts: float | None = None
    targets: tuple[str, ...] = ()  # models that it was counted on
    contexts: tuple[tuple[int, Acceptance], ...] = ()
    warnings: tuple[str, ...] = ()

    def tokens_per_step(
        self, draft_lengths: Sequence[int], *, extrapolate: bool = False
    ) -> NDArray[np.float64]:
        """Return AL for each draft length, NaN where nothing is known."""
        return np.array([self._at(d, extrapolate) for d in draft_lengths])

    def over_contexts(
        self, contexts: Sequence[int], draft_lengths: Sequence[int], *, extrapolate: bool = False
    ) -> NDArray[np.float64]:
        """Return AL by context and draft length; one row for all where context is no matter."""
        if not self.contexts:
            return self.tokens_per_step(draft_lengths, extrapolate=extrapolate)[None, :]
        rows = [
            self.at_context(context).tokens_per_step(draft_lengths, extrapolate=extrapolate)
            for context in contexts
        ]
        return np.array(rows)

    def at_context(self, context: int) -> Acceptance:
        """Return the acceptance at ``context`` tokens, linear in log context between two.

        Outside the measured contexts the nearest one holds.

        >>> ends = [(1024, from_curve({3: 3.0})), (4096, from_curve({3: 2.0}))]
        >>> by_context(ends, label="x", source="y").at_context(2048).table
        {0: 1.0, 3: 2.5}
        """
        if not self.contexts:
            return self
        below = [pair for pair in self.contexts if pair[0] <= context]
        above = [pair for pair in self.contexts if pair[0] >= context]
        if not below or not above or below[-1][0] == above[0][0]:
            return (below or above)[-1 if below else 0][1]
        (low, first), (high, second) = below[-1], above[0]
        share = math.log(context / low) / math.log(high / low)
        return weighted([(1 - share, first), (share, second)], label=self.label, source=self.source)

    def beyond(self, contexts: Sequence[int]) -> str | None:
        """Return a warning when a context lies outside those that were measured."""
        if not self.contexts:
            return None
        low, high = self.contexts[0][0], self.contexts[-1][0]
        if low <= min(contexts) and max(contexts) <= high:
            return None
        measured = f"at {low}" if low == high else f"from {low} to {high}"
        far = max(contexts) if max(contexts) > high else min(contexts)
        return (
            f"acceptance of {self.label} was measured {measured} tokens of context; {far} tokens "
            "use the nearest value, so measure it there"
        )

    def _at(self, draft_length: int, extrapolate: bool) -> float:
        if draft_length == 0:
            return 1.0
        known = self.table.get(draft_length)
        if known is not None:
            return known
        last = max(self.table)
        if draft_length < last or self.tail is None or not (self.unlimited or extrapolate):
            return math.nan
        # continue survival geometrically: S_{n+k} = S_n tail^k
        survival = min(self.table[last] - self.table.get(last - 1, math.nan), 1.0)
        steps = draft_length - last
        total = sum(survival * self.tail**k for k in range(1, steps + 1))
        return float(self.table[last] + total)

    @property
    def deepest(self) -> int:
        """The largest draft length that was given."""
        return max(self.table)


def from_rates(
    rates: Sequence[float], *, label: str = "", source: str = "", unlimited: bool = False
) -> Acceptance:
    """Make an acceptance from conditional rates; ``unlimited`` goes on with the last.

    >>> round(from_rates([0.8, 0.7]).table[2], 3)  # 1 + 0.8 + 0.8 x 0.7
    2.36
    """
    curve = tokens_per_step(rates)
    return Acceptance(
        table={d: float(al) for d, al in enumerate(curve)},
        label=label,
        source=source,
        unlimited=unlimited,
        tail=rates[-1],
    )


def from_survival(
    survival: Sequence[float], *, label: str = "", source: str = "", drafts: float | None = None
) -> Acceptance:
    """Make an acceptance from survivals S_1 ... S_n: AL(D) = 1 + S_1 + ... + S_D.

    The values are vLLM's own log line (0.885, 0.740 is AL 2.62).

    >>> round(from_survival([0.885, 0.740]).table[2], 3)
    2.625
    """
    curve = dict(enumerate(1 + np.cumsum(np.asarray(survival, dtype=float)), start=1))
    made = from_curve({d: float(al) for d, al in curve.items()}, label=label, source=source)
    return replace(made, drafts=drafts)


def from_curve(curve: dict[int, float], *, label: str = "", source: str = "") -> Acceptance:
    """Make an acceptance from measured AL(D) [tokens]; a table may fall, and may have gaps.

    >>> from_curve({2: 2.1, 5: 2.0}).table
    {0: 1.0, 2: 2.1, 5: 2.0}
    """
    table = {0: 1.0} | dict(sorted(curve.items()))
    return Acceptance(table=table, label=label, source=source, tail=_last_conditional(table))


def all_accepted(deepest: int) -> Acceptance:
    """Return the acceptance of every draft, AL = 1 + D: the most that any drafter can yield.

    >>> all_accepted(2).table
    {0: 1.0, 1: 2.0, 2: 3.0}
    """
    return from_curve({d: 1.0 + d for d in range(1, deepest + 1)}, label="every draft")


def by_context(curves: Sequence[tuple[int, Acceptance]], *, label: str, source: str) -> Acceptance:
    """Make an acceptance of curves measured at several contexts [tokens]."""
    ordered = tuple(sorted(curves, key=lambda pair: pair[0]))
    first = ordered[0][1]
    return replace(first, label=label, source=source, contexts=ordered)


def weighted(parts: Sequence[tuple[float, Acceptance]], *, label: str, source: str) -> Acceptance:
    """Mix acceptances: AL(D) = sum of w_k AL_k(D) over the D that every part knows.

    A weight is a share of passes, that is of the sequences in the batch; weights sum to 1.
    The last rate of a mix is unknown unless every part goes on for ever.

    >>> parts = [(0.75, from_curve({3: 3.0})), (0.25, from_curve({3: 2.0}))]
    >>> weighted(parts, label="chat and code", source="y").table[3]
    2.75
    """
    limit = max(part.deepest for _, part in parts)
    if all(part.unlimited for _, part in parts):
        limit = 64
    contexts = sorted({context for _, part in parts for context, _ in part.contexts})
    if contexts:
        by = [
            (c, weighted([(w, p.at_context(c)) for w, p in parts], label=label, source=source))
            for c in contexts
        ]
        return by_context(by, label=label, source=source)
    lengths = range(limit + 1)
    rows = np.array([weight * part.tokens_per_step(lengths) for weight, part in parts])
    total = rows.sum(axis=0)
    table = {d: float(al) for d, al in enumerate(total) if math.isfinite(al)}
    return Acceptance(
        table=table,
        label=label,
        source=source,
        tail=_last_conditional(table) if len(table) > 1 else None,
    )


def _last_conditional(table: dict[int, float]) -> float | None:
    """Return S_n / S_{n-1} at the end of a curve, where three neighbours are known."""
    last = max(table)
    if last == 1:
        return min(table[1] - 1, 1.0)
    if last - 1 not in table or last - 2 not in table:
        return None
    newest, before = table[last] - table[last - 1], table[last - 1] - table[last - 2]
    return min(newest / before, 1.0) if newest > 0 and before > 0 else 0.0
