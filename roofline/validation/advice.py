"""The recommended draft length against the measured best, on every published sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.advice.decide import smallest_within_tie
from roofline.calibrate.engine.spec_rows import LeftOut, SpecRow
from roofline.validation.steps import PublishedRuns, published_runs

__all__ = [
    "REGRET_POOLS",
    "RULES",
    "Sign",
    "SweepChoice",
    "grouped_sweeps",
    "leviathan",
    "nearest",
    "regret_rows",
    "sign_rows",
    "signs",
    "sweeps",
]

Array = NDArray[np.float64]
#: The rules that choose a draft length.
RULES = ("ours", "always 3", "Leviathan", "textbook")
#: Pools of the regrets of all groups: all sweeps, and those with tokens per step of their own.
REGRET_POOLS = ("all", "all with own AL")
#: Why rows are left out whose tokens per step are not their own; their speedup is measured.
WITHOUT_OWN_TOKENS = (
    LeftOut.TOKENS_FROM_ELSEWHERE,
    LeftOut.TOKENS_OF_ANOTHER_ENGINE,
    LeftOut.NO_OWN_TOKENS,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepChoice:
    """One sweep: the measured best, the length that each rule chose, and what the choice costs.

    ``regret`` is 1 - speed at the chosen D / speed at the measured best, by rule.
    """

    group: str
    name: str
    own: bool  # whether the tokens per step are those of its own rows
    draft_lengths: tuple[int, ...]
    best: int
    chosen: Mapping[str, int]
    regret: Mapping[str, float]

    def as_data(self) -> dict[str, Any]:
        """Return the sweep as JSON writes it."""
        return asdict(self)

    def cells(self) -> list[str]:
        """Return the sweep as a row of a table."""
        picks = [f"{self.chosen[rule]} ({100 * self.regret[rule]:.1f} %)" for rule in RULES]
        lengths = ",".join(map(str, self.draft_lengths))
        own = "yes" if self.own else "no"
        return [f"{self.group}: {self.name}", own, lengths, str(self.best), *picks]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sign:
    """Whether a row's speculation wins or loses, measured and predicted."""

    id: str
    group: str
    measured: float
    predicted: float

    def as_data(self) -> dict[str, Any]:
        """Return the row as JSON writes it."""
        return asdict(self)

    @property
    def right(self) -> bool:
        """Whether both are on the same side of 1."""
        return (self.measured > 1) == (self.predicted > 1)


def _key(row: SpecRow) -> tuple[object, ...]:
    return (
        row.group,
        row.model,
        row.gpu,
        row.tp,
        row.linears,
        row.kind,
        row.drafter_name,
        row.block,
        row.batch,
        row.context,
        row.dataset,
    )


def _usable(row: SpecRow) -> bool:
    elsewhere = row.tokens_from_elsewhere or row.tokenless
    is_chain = row.topk == 1 and row.verify_width is None
    return is_chain and bool(row.speed) and row.trust in ("A", "B") and (row.scored or elsewhere)


def _tokens(row: SpecRow, own: bool) -> float | None:
    return row.tokens_per_step if own else row.curve.get(row.draft_length)


def sweeps() -> list[SweepChoice]:
    """Return every sweep of at least two draft lengths whose tokens per step are known."""
    published = published_runs()
    return [_choice(published, pick, own) for pick, own in grouped_sweeps()]


def grouped_sweeps() -> list[tuple[list[int], bool]]:
    """Return the rows of each sweep, shortest draft first, and whether their AL is their own."""
    published = published_runs()
    members: dict[tuple[object, ...], list[int]] = {}
    for i, row in enumerate(published.rows):
        if _usable(row) and row.draft_length:
            members.setdefault(_key(row), []).append(i)
    choices: list[tuple[list[int], bool]] = []
    for pick in members.values():
        rows = [published.rows[i] for i in pick]
        own = all(row.tokens_per_step for row in rows)
        usable = [i for i in pick if _tokens(published.rows[i], own)]
        lengths = {published.rows[i].draft_length for i in usable}
        if len(lengths) >= 2:
            usable.sort(key=lambda i: published.rows[i].draft_length)
            choices.append((usable, own))
    return choices


def _choice(published: PublishedRuns, pick: Sequence[int], own: bool) -> SweepChoice:
    """Return what each rule chooses among a sweep's lengths, with D = 0 if it was measured."""
    rows = [published.rows[i] for i in pick]
    first = rows[0]
    lengths = [0, *(row.draft_length for row in rows)]
    speeds = np.array([first.base_speed or np.nan, *(row.speed or np.nan for row in rows)])
    tokens = np.array([1.0, *(_tokens(row, own) or np.nan for row in rows)])
    ratio = np.array([1.0, *published.predicted.ratio[list(pick)]])
    priced = published.priced.pick(list(pick))
    textbook = np.array([1.0, *(priced.textbook / priced.plain_textbook)])
    start = 0 if first.base_speed else 1
    lengths, speeds, tokens = lengths[start:], speeds[start:], tokens[start:]
    ratio, textbook = ratio[start:], textbook[start:]
    positions = {
        "ours": int(smallest_within_tie(tokens / ratio)[0]),
        "always 3": nearest(lengths, 3),
        "Leviathan": leviathan(lengths, tokens, ratio_of_one_pass(textbook, lengths)),
        "textbook": int(np.argmax(tokens / textbook)),
    }
    best = int(np.nanargmax(speeds))
    return SweepChoice(
        group=first.group,
        name=f"{first.model} {first.kind} {first.gpu} b{first.batch} {first.dataset}".strip(),
        own=own,
        draft_lengths=tuple(lengths),
        best=lengths[best],
        chosen={rule: lengths[at] for rule, at in positions.items()},
        regret={rule: float(1 - speeds[at] / speeds[best]) for rule, at in positions.items()},
    )


def nearest(lengths: Sequence[int], wanted: int) -> int:
    """Return the position of the draft length nearest to ``wanted``, the shorter of two; never 0.

    >>> nearest([0, 2, 4], 3)
    1
    """
    drafting = [i for i, d in enumerate(lengths) if d > 0]
    return min(drafting, key=lambda i: (abs(lengths[i] - wanted), lengths[i]))


def ratio_of_one_pass(ratio: Array, lengths: Sequence[int]) -> float:
    """Return c = (R(last D) - R(first D)) / (last D - first D): one more draft, in plain steps.

    At least 0, and per token where only one length drafts. ``ratio`` is R(D), by the textbook
    roofline.

    >>> ratio_of_one_pass(np.array([1.0, 1.1, 1.3]), [0, 2, 6])
    0.05
    """
    drafting = np.flatnonzero(np.array(lengths) > 0)
    first, last = int(drafting[0]), int(drafting[-1])
    return max(float(ratio[last] - ratio[first]) / max(lengths[last] - lengths[first], 1), 0.0)


def leviathan(lengths: Sequence[int], tokens: Array, cost: float) -> int:
    """Return the position of the largest (1 - a^(D+1)) / ((1 - a) (c D + 1)).

    Leviathan et al. 2023 (arXiv 2211.17192), theorem 3.8: one rate a for all positions, here from
    the shortest draft's tokens per step, and a verify pass that costs what a plain step does.

    >>> leviathan([0, 2, 4, 8], np.array([1.0, 2.44, 3.36, 4.33]), 0.05)  # a = 0.8
    3
    """
    shortest = next(i for i, d in enumerate(lengths) if d > 0)
    rate = constant_rate(float(tokens[shortest]), lengths[shortest])
    d = np.array(lengths, dtype=float)
    speed = (1 - rate ** (d + 1)) / ((1 - rate) * (cost * d + 1))
    return int(np.argmax(speed))


def constant_rate(tokens: float, length: int) -> float:
    """Return the rate a with (1 - a^(D+1)) / (1 - a) = AL (the paper's equation 1), by bisection.

    >>> round(constant_rate(2.44, 2), 6)  # 1 + 0.8 + 0.64
    0.8
    """
    low, high = 0.0, 1 - 1e-9
    for _ in range(60):
        middle = (low + high) / 2
        if (1 - middle ** (length + 1)) / (1 - middle) < tokens:
            low = middle
        else:
            high = middle
    return low


def signs() -> list[Sign]:
    """Return the sign of each row that has a speedup, and tokens per step (or a named curve's)."""
    published = published_runs()
    rows = []
    for i, row in enumerate(published.rows):
        tokens = row.tokens_per_step or row.curve.get(row.draft_length)
        elsewhere = row.left_out in WITHOUT_OWN_TOKENS
        if not (row.draft_length and row.speedup and tokens and (row.scored or elsewhere)):
            continue
        predicted = tokens / float(published.predicted.ratio[i])
        rows.append(Sign(id=row.id, group=row.group, measured=row.speedup, predicted=predicted))
    return rows


def regret_rows(choices: Sequence[SweepChoice]) -> list[dict[str, Any]]:
    """Return mean, p90 and worst regret of each rule in the pools, and of ours in each group."""
    members = (list(choices), [choice for choice in choices if choice.own])
    pools = dict(zip(REGRET_POOLS, members, strict=True))
    rows = [_regret(name, pool, rule) for name, pool in pools.items() for rule in RULES if pool]
    groups = sorted({choice.group for choice in choices})
    by_group = [_regret(name, [c for c in choices if c.group == name], "ours") for name in groups]
    return rows + by_group


def _regret(group: str, choices: Sequence[SweepChoice], rule: str) -> dict[str, Any]:
    regret = np.array([choice.regret[rule] for choice in choices])
    return {
        "suite": "advice",
        "kind": "regret",
        "group": group,
        "rule": rule,
        "n": len(choices),
        "mean_regret": float(regret.mean()),
        "p90_regret": float(np.quantile(regret, 0.9)),
        "worst_regret": float(regret.max()),
    }


def sign_rows(rows: Sequence[Sign]) -> list[dict[str, Any]]:
    """Return how often the predicted side of 1 is right, pooled and by group."""
    pools = {"all": list(rows)}
    for sign in rows:
        pools.setdefault(sign.group, []).append(sign)
    return [
        {
            "suite": "advice",
            "kind": "sign",
            "group": group,
            "n": len(pool),
            "right": sum(sign.right for sign in pool),
            "wrong": sum(not sign.right for sign in pool),
        }
        for group, pool in pools.items()
    ]
