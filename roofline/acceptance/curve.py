"""One acceptance: tokens per step by draft length."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from roofline.base.notices import Code, Notice, notice
from roofline.base.numbers import DRAWS

__all__ = [
    "DEEPEST_POSITION",
    "Acceptance",
    "Definition",
    "HitRate",
    "Share",
    "SurvivalRise",
    "all_accepted",
    "by_context",
    "ended_at",
    "fill_gaps",
    "from_curve",
    "from_rates",
    "from_survival",
    "gap_rate",
    "lookup_hit_rate",
    "over_all_passes",
    "survival_rise",
    "tokens_per_step",
    "tokens_per_step_from_rate",
    "weighted_mean",
]


#: Draft positions up to which a rate that holds at any depth is written out.
DEEPEST_POSITION = 64


def tokens_per_step(conditional: Sequence[float]) -> NDArray[np.float64]:
    """Return AL(D) for D = 0 ... n from conditional acceptance rates a_1 ... a_n.

    AL(D) = 1 + sum_{i<=D} prod_{j<=i} a_j; for equal a it is Leviathan et al. 2023, Eq. (1),
    (1 - a^(D+1)) / (1 - a) with D drafted tokens.

    >>> round(float(tokens_per_step([0.7] * 4)[4]), 4)
    2.7731
    """
    return 1 + np.concatenate([[0.0], np.cumsum(np.cumprod(np.asarray(conditional, dtype=float)))])


def lookup_hit_rate(*, first: float, first_accepted: float) -> float:
    """Return the share of passes in which a lookup finds a draft: h = min(1, S_1 / a).

    S_1 = ``first`` is the share of all passes that accept a first draft, a = ``first_accepted`` the
    share of those that have one. 0.2 of all passes and 0.8 of those with a draft:

    >>> lookup_hit_rate(first=0.2, first_accepted=0.8)
    0.25
    """
    return min(1.0, first / first_accepted)


class Definition(StrEnum):
    """What the numbers are that an acceptance was made of."""

    SURVIVAL = "survival"  # S_i: share of passes in which draft i was accepted
    CONDITIONAL = "conditional"  # a_i, given that drafts 1 ... i - 1 were accepted
    ONE_RATE = "one-rate"  # the same a_i at every position
    RATE = "rate"  # accepted over drafted, at some D
    TOKENS_PER_STEP = "tokens_per_step"  # AL, at some D
    MIX = "mix"  # of parts with several definitions
    EXPECTED = "expected"  # AL at every D, by the prior alone
    NONE = "none"  # nothing is drafted


class HitRate(StrEnum):
    """Where the share of passes in which a lookup drafts is from."""

    GIVEN = "given"  # by whoever asks
    COUNTED = "counted"  # with the acceptance
    EXPECTED = "expected"  # of public runs


@dataclass(frozen=True, kw_only=True, slots=True)
class Acceptance:
    """AL by draft length.

    ``table`` maps every D up to the last that was given to AL; those in ``filled`` lie in gaps
    (`fill_gaps`) and were not measured. ``tail`` is the conditional rate of the positions after the
    last where one rate holds at any depth. ``contexts`` holds one acceptance per measured context,
    shortest first; ``table`` is then that of the shortest. ``drafts`` is the number of passes that
    were counted. ``other_reading`` is the conditional one of a list typed ``without_prefix``
    and is read as survival here.

    ``unknown`` says that nobody counted this drafter for the asker: only the prior speaks.
    ``continued_from`` is the last D that was given, where the prior continues the curve, and
    ``given`` is AL by D as it was given, where the prior has drawn a count to itself.
    ``early_stops`` says that drafts ended before the last position: nothing is known of longer
    ones. ``requests`` is the number of requests that the passes belong to. ``drafting_only`` says
    that passes in which nothing was drafted are missing from it (`over_all_passes`). ``draws`` are
    AL in joint draws, (DRAWS, D = 0 ...), None where AL is exact.
    """

    table: dict[int, float]
    label: str
    source: str
    definition: Definition = Definition.TOKENS_PER_STEP
    filled: frozenset[int] = frozenset()
    unlimited: bool = False  # a single rate holds at any depth
    tail: float | None = None
    drafts: float | None = None
    targets: tuple[str, ...] = ()  # models that it was measured on
    contexts: tuple[tuple[int, Acceptance], ...] = ()
    notices: tuple[Notice, ...] = ()
    without_prefix: str = ""
    other_reading: Acceptance | None = None
    hit_rate: float | None = None  # share of passes that drafted, where they were counted
    drafting_only: bool = False  # of the passes that drafted; the others yield one token
    unknown: bool = False
    continued_from: int | None = None
    given: dict[int, float] = field(default_factory=dict)
    early_stops: bool = False
    requests: float | None = None
    mixed: tuple[Share, ...] = ()  # what a mix is made of, as it was given
    draws: NDArray[np.float64] | None = field(default=None, compare=False, repr=False)

    def tokens_per_step(self, draft_lengths: Sequence[int]) -> NDArray[np.float64]:
        """Return AL for each draft length, NaN where nothing is known."""
        return np.array([self._at(d) for d in draft_lengths])

    def over_contexts(
        self, contexts: Sequence[int], draft_lengths: Sequence[int]
    ) -> NDArray[np.float64]:
        """Return AL by context and draft length; one row where AL does not depend on context."""
        parts = self.parts
        rows = np.array([part.tokens_per_step(draft_lengths) for part in parts])
        return self._between(rows, contexts)

    def spread_over_contexts(
        self, contexts: Sequence[int], draft_lengths: Sequence[int]
    ) -> NDArray[np.float64] | None:
        """Return (AL - 1) over its mean in each draw: (DRAWS, contexts or 1, draft lengths).

        None where AL is exact; one row where AL does not depend on context. In memory the draws
        are last, as sweeps read them.
        """
        if not self.uncertain:
            return None
        parts, lengths = self.parts, np.asarray(draft_lengths, dtype=int)
        deepest = int(lengths.max(initial=0))
        gained = np.stack([part.drawn(deepest).T[lengths] - 1 for part in parts])
        mean = np.array([part.tokens_per_step(lengths.tolist()) for part in parts]) - 1
        gained, mean = self._between(gained, contexts), self._between(mean, contexts)
        none = ~(mean > 1e-9)
        gained /= np.where(none, 1.0, mean)[..., None]
        gained[none] = 1.0
        return np.moveaxis(gained, -1, 0)

    @property
    def uncertain(self) -> bool:
        """Whether AL has draws."""
        return any(part.draws is not None for part in self.parts)

    def drawn(self, deepest: int) -> NDArray[np.float64]:
        """Return AL in each draw up to ``deepest``, (DRAWS, D = 0 ...); the mean where exact."""
        mean = self.tokens_per_step(range(deepest + 1))
        if self.draws is None:
            return np.broadcast_to(mean, (DRAWS, deepest + 1))
        known = self.draws[:, : deepest + 1]
        rest = np.broadcast_to(mean[known.shape[1] :], (DRAWS, deepest + 1 - known.shape[1]))
        return np.concatenate([known, rest], axis=1)

    @property
    def parts(self) -> list[Acceptance]:
        """The curves at each context; itself where AL does not depend on it."""
        return [part for _, part in self.contexts] or [self]

    def _between(self, rows: NDArray[np.float64], contexts: Sequence[int]) -> NDArray[np.float64]:
        """Return what holds at ``contexts``, linear in log context; the first axis is the parts."""
        if not self.contexts:
            return rows
        known = np.log([context for context, _ in self.contexts])
        wanted = np.clip(np.log(contexts), known[0], known[-1])
        above = np.searchsorted(known, wanted)
        below = np.where(known[above] == wanted, above, above - 1)
        width = np.where(above > below, known[above] - known[below], 1.0)
        share = np.expand_dims((wanted - known[below]) / width, tuple(range(1, rows.ndim)))
        low, between = rows[below], rows[above]
        between -= low  # in place: a sweep has millions
        between *= share
        between += low
        return between

    def at_context(self, context: int) -> Acceptance:
        """Return the acceptance at ``context`` tokens, linear in log context between two measured.

        Outside the measured contexts the nearest one holds.

        >>> ends = [(1024, from_curve({3: 3.0})), (4096, from_curve({3: 2.0}))]
        >>> by_context(ends, label="x", source="y").at_context(2048).table[3]
        2.5
        """
        if not self.contexts:
            return self
        below = [pair for pair in self.contexts if pair[0] <= context]
        above = [pair for pair in self.contexts if pair[0] >= context]
        if not below:
            return above[0][1]
        if not above or below[-1][0] == context:
            return below[-1][1]
        (low, first), (high, second) = below[-1], above[0]
        share = math.log(context / low) / math.log(high / low)
        return weighted_mean(
            [(1 - share, first), (share, second)], label=self.label, source=self.source
        )

    def outside_measured_contexts(self, contexts: Sequence[int]) -> list[Notice]:
        """Return the notice of a context outside the measured ones, if there is one."""
        if not self.contexts or self.unknown:
            return []
        low, high = self.contexts[0][0], self.contexts[-1][0]
        if low <= min(contexts) and max(contexts) <= high:
            return []
        outside = max(contexts) if max(contexts) > high else min(contexts)
        return [
            notice(
                Code.OUTSIDE_MEASURED_CONTEXTS,
                label=self.label,
                shortest=low,
                longest=high,
                context=outside,
            )
        ]

    def _at(self, draft_length: int) -> float:
        if draft_length == 0:
            return 1.0
        known = self.table.get(draft_length)
        if known is not None:
            return known
        last = max(self.table)
        if draft_length < last or self.tail is None or not self.unlimited:
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

    @property
    def measured(self) -> dict[int, float]:
        """AL by D as it was given, D = 0 included."""
        last = max(self.table) if self.continued_from is None else self.continued_from
        return {d: al for d, al in self.table.items() if d not in self.filled and d <= last}

    def mixed_anew(self, parts: Sequence[Acceptance]) -> Acceptance:
        """Return a mix of the same shares of other parts, which may go on where its own end."""
        weighed = [(share.weight, part) for share, part in zip(self.mixed, parts, strict=True)]
        made = weighted_mean(weighed, label=self.label, source=self.source)
        longer = any(part.continued_from is not None for each in parts for part in each.parts)

        def ending(
            mix: Acceptance, own: Acceptance, of: list[tuple[float, Acceptance]]
        ) -> Acceptance:
            """Return a mix with the end of its own, and AL up to there as it was given."""
            given = {d: sum(w * part.as_given(d) for w, part in of) for d in own.measured}
            return replace(mix, continued_from=own.deepest if longer else None, given=given)

        ends = dict(self.contexts)
        contexts = tuple(
            (at, ending(mix, ends[at], [(w, part.at_context(at)) for w, part in weighed]))
            for at, mix in made.contexts
        )
        return replace(
            ending(made, self, weighed),
            contexts=contexts,
            targets=self.targets,
            notices=tuple(dict.fromkeys((*self.notices, *(n for p in parts for n in p.notices)))),
        )

    def as_given(self, draft_length: int) -> float:
        """Return AL as it was given, before the prior drew it to itself; NaN where unknown."""
        return self.given.get(draft_length, self._at(draft_length))

    def filled_up_to(self, longest: int) -> list[int]:
        """Return the draft lengths up to ``longest`` that were filled in, at any context."""
        parts = [self, *(part for _, part in self.contexts)]
        return sorted({d for part in parts for d in part.filled if d <= longest})


class Share(NamedTuple):
    """A part of a mix: its share of the passes, the text that gave it, and its acceptance."""

    weight: float
    given: str
    part: Acceptance


def from_rates(
    rates: Sequence[float], *, label: str = "", source: str = "", unlimited: bool = False
) -> Acceptance:
    """Make an acceptance from conditional rates; ``unlimited`` repeats the last at any depth.

    >>> round(from_rates([0.8, 0.7]).table[2], 3)  # 1 + 0.8 + 0.8 x 0.7
    2.36
    """
    curve = tokens_per_step(rates)
    return Acceptance(
        table={d: float(al) for d, al in enumerate(curve)},
        label=label,
        source=source,
        definition=Definition.ONE_RATE if unlimited else Definition.CONDITIONAL,
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
    table = {d: float(al) for d, al in curve.items()}
    made = from_curve(table, label=label, source=source, definition=Definition.SURVIVAL)
    return replace(made, drafts=drafts)


def from_curve(
    curve: Mapping[int, float],
    *,
    label: str = "",
    source: str = "",
    definition: Definition = Definition.TOKENS_PER_STEP,
) -> Acceptance:
    """Make an acceptance from measured AL(D) [tokens]; a table may fall, and its gaps are filled.

    >>> made = from_curve({2: 1.96})  # 1 + 0.6 + 0.36
    >>> round(made.table[1], 6), sorted(made.filled)
    (1.6, [1])
    """
    table = {0: 1.0, **curve}
    full = fill_gaps(table)
    return Acceptance(
        table=full,
        label=label,
        source=source,
        definition=definition,
        filled=frozenset(full) - frozenset(table),
    )


def gap_rate(*, gain: ArrayLike, survival: ArrayLike, steps: ArrayLike) -> NDArray[np.float64]:
    """Return the conditional rate a that holds inside a gap of a curve of tokens per step.

    Between known D_1 < D_2 it is the root of S (a + a^2 + ... + a^n) = gain, with S the survival
    S_(D_1) (1 at D_1 = 0), n = D_2 - D_1 steps and gain = AL(D_2) - AL(D_1) [tokens]. It is
    Leviathan et al. 2023, Eq. (1) begun at position D_1 instead of 0. A gain below 0 gives 0, one
    above n S gives 1: no rate explains them. By bisection; arrays broadcast.

    AL(2) = 1.96 alone: a + a^2 = 0.96, so a = 0.6.

    >>> round(float(gap_rate(gain=0.96, survival=1.0, steps=2)), 6)
    0.6
    """
    gained, before, n = np.broadcast_arrays(
        *(np.asarray(v, float) for v in (gain, survival, steps))
    )
    share = np.divide(gained, before, out=np.zeros(gained.shape), where=before > 0)
    position = np.arange(1, int(n.max(initial=0)) + 1)
    inside = position <= n[..., None]
    low, high = np.zeros(share.shape), np.ones(share.shape)
    for _ in range(60):
        middle = (low + high) / 2
        short = np.where(inside, middle[..., None] ** position, 0.0).sum(axis=-1) < share
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return np.where(share <= 0, 0.0, np.where(share >= n, 1.0, (low + high) / 2))


def fill_gaps(table: Mapping[int, float]) -> dict[int, float]:
    """Return AL(D) for every D up to the last, with one conditional rate in each gap (`gap_rate`).

    ``table`` maps known D to AL, D = 0 included; its values stay. Survival inside a gap is
    S_(D_1 + k) = S_(D_1) a^k: between 0 and 1, never rising. Where AL falls over a gap nothing more
    survives in it. Real rates fall within a gap, so AL comes out too low there rather than too
    high.

    AL(3) = 2.533 alone is a rate of 0.7, hence 1 + 0.7 and 1 + 0.7 + 0.49 before it:

    >>> {d: round(al, 2) for d, al in fill_gaps({0: 1.0, 3: 2.533}).items()}
    {0: 1.0, 1: 1.7, 2: 2.19, 3: 2.53}
    """
    full, survival = dict(table), 1.0
    for before, after in pairwise(sorted(table)):
        gain, steps = table[after] - table[before], after - before
        if steps == 1:
            survival = min(survival, max(gain, 0.0))
            continue
        rate = float(gap_rate(gain=gain, survival=survival, steps=steps))
        for d in range(before + 1, after):
            survival *= rate
            full[d] = full[d - 1] + survival
        survival *= rate
    return dict(sorted(full.items()))


def all_accepted(deepest: int) -> Acceptance:
    """Return the acceptance where every draft is accepted, AL = 1 + D: the most that is possible.

    >>> all_accepted(2).table
    {0: 1.0, 1: 2.0, 2: 3.0}
    """
    return from_curve({d: 1.0 + d for d in range(1, deepest + 1)}, label="every draft")


def over_all_passes(
    acceptance: Acceptance, *, hit_rate: float, drawn: NDArray[np.float64] | None = None
) -> Acceptance:
    """Return an acceptance of drafting passes over all passes: AL'(D) = 1 + h (AL(D) - 1).

    A pass that drafts nothing yields one token; h = ``hit_rate`` is the share of those that draft.
    ``drawn`` are h in the joint draws, where it is uncertain.

    Two passes of 146 drafted, and yielded 28.5 tokens each: 1 + 2 / 146 x 27.5 = 1.3767.

    >>> counted = replace(from_curve({48: 28.5}), drafting_only=True)
    >>> round(over_all_passes(counted, hit_rate=2 / 146).table[48], 4)
    1.3767
    """
    other, draws = acceptance.other_reading, None
    if drawn is not None:
        draws = 1 + drawn[:, None] * (acceptance.drawn(acceptance.deepest) - 1)
    elif acceptance.draws is not None:
        draws = 1 + hit_rate * (acceptance.draws - 1)
    return replace(
        acceptance,
        table={d: 1 + hit_rate * (al - 1) for d, al in acceptance.table.items()},
        given={d: 1 + hit_rate * (al - 1) for d, al in acceptance.given.items()},
        draws=draws,
        contexts=tuple(
            (context, over_all_passes(part, hit_rate=hit_rate, drawn=drawn))
            for context, part in acceptance.contexts
        ),
        other_reading=other and over_all_passes(other, hit_rate=hit_rate, drawn=drawn),
        drafts=None if acceptance.drafts is None else acceptance.drafts / hit_rate,
        hit_rate=hit_rate,
        drafting_only=False,
    )


def ended_at(acceptance: Acceptance, length: int) -> Acceptance:
    """Return an acceptance of drafts that stop early, of which nothing is known beyond a length.

    >>> ended_at(from_rates([0.5], unlimited=True), 2).tokens_per_step([1, 2, 3]).tolist()
    [1.5, 1.75, nan]
    """
    known = acceptance.tokens_per_step(range(length + 1))
    table = {d: float(al) for d, al in enumerate(known) if math.isfinite(al)}
    other, draws = acceptance.other_reading, acceptance.draws
    return replace(
        acceptance,
        table=table,
        unlimited=False,
        filled=acceptance.filled & table.keys(),
        contexts=tuple((context, ended_at(part, length)) for context, part in acceptance.contexts),
        other_reading=other and ended_at(other, length),
        mixed=(),
        draws=None if draws is None else draws[:, : length + 1],
        early_stops=True,
    )


def by_context(curves: Sequence[tuple[int, Acceptance]], *, label: str, source: str) -> Acceptance:
    """Make an acceptance of curves measured at several contexts [tokens]."""
    ordered = tuple(sorted(curves, key=lambda pair: pair[0]))
    first = ordered[0][1]
    return replace(first, label=label, source=source, contexts=ordered)


def weighted_mean(
    parts: Sequence[tuple[float, Acceptance]], *, label: str, source: str
) -> Acceptance:
    """Mix acceptances: AL(D) = sum of w_k AL_k(D) over the D that every part knows.

    A weight is a share of passes, that is of the sequences in the batch; weights sum to 1. Of
    shares of tokens t_k it is (t_k / AL_k) / sum of t_j / AL_j. Passes without a draft are among
    them, so the hit rate of a mix is h = sum of w_k h_k; unknown where one of them is. A mix of
    parts that are all unlimited is written out up to ``DEEPEST_POSITION``.

    >>> parts = [(0.75, from_curve({3: 3.0})), (0.25, from_curve({3: 2.0}))]
    >>> weighted_mean(parts, label="chat and code", source="y").table[3]
    2.75
    >>> half = [(0.5, replace(part, hit_rate=h)) for (_, part), h in zip(parts, (0.95, 0.9))]
    >>> weighted_mean(half, label="chat and code", source="y").hit_rate
    0.925
    """
    deepest = max(part.deepest for _, part in parts)
    if all(part.unlimited for _, part in parts):
        deepest = DEEPEST_POSITION
    contexts = sorted({context for _, part in parts for context, _ in part.contexts})
    if contexts:
        means = []
        for context in contexts:
            at_context = [(weight, part.at_context(context)) for weight, part in parts]
            means.append((context, weighted_mean(at_context, label=label, source=source)))
        return by_context(means, label=label, source=source)
    lengths = range(deepest + 1)
    rows = np.array([weight * part.tokens_per_step(lengths) for weight, part in parts])
    mean = rows.sum(axis=0)
    table = {d: float(al) for d, al in enumerate(mean) if math.isfinite(al)}
    filled = frozenset(table).intersection(frozenset().union(*(part.filled for _, part in parts)))
    definitions = {part.definition for _, part in parts}
    hits = [(weight, part.hit_rate) for weight, part in parts]
    known = [weight * share for weight, share in hits if share is not None]
    return Acceptance(
        table=table,
        label=label,
        source=source,
        definition=definitions.pop() if len(definitions) == 1 else Definition.MIX,
        filled=filled,
        hit_rate=sum(known) if len(known) == len(parts) else None,
        drafting_only=all(part.drafting_only for _, part in parts),
        early_stops=any(part.early_stops for _, part in parts),
        unknown=any(part.unknown for _, part in parts),
        draws=_mixed_draws(parts, max(table)),
    )


def _mixed_draws(
    parts: Sequence[tuple[float, Acceptance]], deepest: int
) -> NDArray[np.float64] | None:
    """Return AL of a mix in each draw, None where every part is exact."""
    if not any(part.uncertain for _, part in parts):
        return None
    return np.asarray(sum(weight * part.drawn(deepest) for weight, part in parts))


def tokens_per_step_from_rate(*, rate: float, draft_length: float) -> float:
    """Return AL = 1 + rate * D from accepted over drafted; also BLIS's linear law, at its own D.

    >>> tokens_per_step_from_rate(rate=0.51, draft_length=3)
    2.53
    """
    return 1 + rate * draft_length


#: Rise of survival that the rounding of AL to two decimals can explain: a rise is
#: AL(i+1) - 2 AL(i) + AL(i-1), each off by up to 0.005.
ROUNDING = 0.02


class SurvivalRise(NamedTuple):
    """Two neighbouring draft lengths of a curve, of which the later has the larger survival."""

    first: int  # draft length
    second: int
    before: float  # mean survival of the positions up to the first
    after: float  # mean survival of the positions after it, up to the second

    def notice(self, where: str) -> Notice:
        """Return the notice of the rise; ``where`` names the curve."""
        return notice(
            Code.SURVIVAL_RISES,
            where=where,
            first=self.first,
            second=self.second,
            before=self.before,
            after=self.after,
        )


def survival_rise(
    table: Mapping[int, float], *, tolerance: float = ROUNDING
) -> SurvivalRise | None:
    """Return the first rise of survival by more than ``tolerance`` in a table of AL by D.

    S_i = AL(i) - AL(i-1) cannot rise: draft i is reached only where draft i-1 was accepted. Between
    given D the mean over the positions cannot rise either.

    >>> survival_rise({0: 1, 1: 1.9, 2: 1.9, 3: 2.9})
    SurvivalRise(first=2, second=3, before=0.0, after=1.0)
    """
    lengths = sorted({0: 1.0, **table})
    curve = {0: 1.0, **table}
    means = {b: (curve[b] - curve[a]) / (b - a) for a, b in pairwise(lengths)}
    for first, second in pairwise(means):
        before = max(means[first], 0.0)
        if means[second] - before > tolerance:
            return SurvivalRise(first=first, second=second, before=before, after=means[second])
    return None
