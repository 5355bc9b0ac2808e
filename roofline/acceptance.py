"""How many tokens a verify pass yields. Nothing here knows what a pass costs.

a_i is the probability that draft token i is accepted given that all before it were; the survival
S_i is their product; tokens per step AL(D) = 1 + sum of S_i up to D, the bonus token included.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from roofline import resources
from roofline.errors import InputError
from roofline.schema import Document

__all__ = ["Acceptance", "AcceptanceFile", "load_acceptance", "parse_acceptance", "tokens_per_step"]

Probability = Annotated[float, Field(ge=0, le=1)]
SHELF = "acceptance"


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
    interpolated.
    """

    table: dict[int, float]
    label: str
    source: str
    unlimited: bool = False  # a single rate holds at any depth
    tail: float | None = None
    trained_context: int | None = None
    assumed: bool = False

    def tokens_per_step(
        self, draft_lengths: Sequence[int], *, extrapolate: bool = False
    ) -> NDArray[np.float64]:
        """Return AL for each draft length, NaN where nothing is known."""
        return np.array([self._at(d, extrapolate) for d in draft_lengths])

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
    rates: Sequence[float], *, label: str, source: str, unlimited: bool = False
) -> Acceptance:
    """Make an acceptance from conditional rates; ``unlimited`` goes on with the last."""
    curve = tokens_per_step(rates)
    return Acceptance(
        table={d: float(al) for d, al in enumerate(curve)},
        label=label,
        source=source,
        unlimited=unlimited,
        tail=rates[-1],
    )


def from_curve(curve: dict[int, float], *, label: str, source: str) -> Acceptance:
    """Make an acceptance from measured AL(D); a table may fall, and may have gaps."""
    table = {0: 1.0} | dict(sorted(curve.items()))
    return Acceptance(table=table, label=label, source=source, tail=_last_conditional(table))


def _last_conditional(table: dict[int, float]) -> float | None:
    """Return S_n / S_{n-1} at the end of a curve, where three neighbours are known."""
    last = max(table)
    if last == 1:
        return min(table[1] - 1, 1.0)
    if last - 1 not in table or last - 2 not in table:
        return None
    newest, before = table[last] - table[last - 1], table[last - 1] - table[last - 2]
    return min(newest / before, 1.0) if newest > 0 and before > 0 else 0.0


class AcceptanceFile(Document):
    """A measured curve with its origin."""

    target: str | None = None
    drafter: str | None = None
    dataset: str | None = None
    temperature: float | None = None
    source: str
    license: str | None = None
    note: str | None = None
    rate: Probability | None = None
    conditional: Annotated[tuple[Probability, ...], Field(min_length=1)] | None = None
    tokens_per_step: dict[str, float] | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> AcceptanceFile:
        given = [self.rate, self.conditional, self.tokens_per_step]
        if sum(x is not None for x in given) != 1:
            raise ValueError("give exactly one of rate, conditional, tokens_per_step")
        if self.tokens_per_step is not None:
            _check_curve(self.tokens_per_step, "tokens_per_step")
        return self

    def acceptance(self, label: str) -> Acceptance:
        """Return what the file says."""
        if self.tokens_per_step is not None:
            curve = {int(d): al for d, al in self.tokens_per_step.items()}
            return from_curve(curve, label=label, source=self.source)
        if self.conditional is not None:
            return from_rates(self.conditional, label=label, source=self.source)
        rate = cast("float", self.rate)
        return from_rates([rate], label=label, source=self.source, unlimited=True)


def _check_curve(curve: dict[str, float], where: str) -> None:
    if len({int(key) for key in curve if key.isdecimal()}) != len(curve):
        raise ValueError(f"{where}: a draft length is given twice or is not a number")
    for key, value in curve.items():
        if not key.isdecimal() or not 1 <= int(key) <= 256:
            raise ValueError(f"{where}: expected a draft length from 1 to 256, got '{key}'")
        if not 1 <= value <= 1 + int(key):
            raise ValueError(
                f"{where}: D={key} must have 1 to {1 + int(key)} tokens per step "
                f"(bonus token included), got {value}"
            )
    if not curve:
        raise ValueError(f"{where}: expected at least one draft length")


def parse_acceptance(text: str) -> Acceptance:
    """Read ``--acceptance``: a rate, conditional rates, an ``al:`` curve, or a YAML file.

    >>> parse_acceptance("al:2=2.36,3=2.79").table
    {0: 1.0, 2: 2.36, 3: 2.79}
    """
    if text.endswith((".yaml", ".yml")):
        return load_acceptance(text)
    if text.lower().startswith("al:"):
        curve = _parse_curve(text[3:])
        try:
            _check_curve({str(d): al for d, al in curve.items()}, "--acceptance")
        except ValueError as error:
            raise InputError(str(error)) from None
        points = ", ".join(f"{al:g} at D={d}" for d, al in sorted(curve.items()))
        return from_curve(curve, label=f"tokens per step {points}", source="given")
    rates = [_number(item) for item in text.split(",")]
    for rate in rates:
        if not 0 <= rate <= 1:
            raise InputError(
                f"--acceptance {text}: a rate lies between 0 and 1, got {rate:g}; "
                "for tokens per step write al:1.8,2.4"
            )
    label = f"rate {text} at every position" if len(rates) == 1 else f"rates {text} by position"
    return from_rates(rates, label=label, source="given", unlimited=len(rates) == 1)


def _parse_curve(body: str) -> dict[int, float]:
    curve: dict[int, float] = {}
    for position, item in enumerate(body.split(","), start=1):
        key, equals, value = item.rpartition("=")
        draft_length = position
        if equals:
            if not key.strip().isdecimal():
                raise InputError(f"--acceptance: expected 'al:2=2.36,3=2.79', got '{item}'")
            draft_length = int(key)
        if draft_length in curve:
            raise InputError(f"--acceptance: draft length {draft_length} is given twice")
        curve[draft_length] = _number(value)
    return curve


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(
            f"--acceptance: expected a rate (0.8), rates (0.8,0.7), a curve (al:1.8,2.4) "
            f"or a YAML file, got '{text}'"
        )
    return value


def load_acceptance(reference: str) -> Acceptance:
    """Load a bundled curve by id, or a YAML file by path."""
    file = resources.find(reference, SHELF, "acceptance curve")
    content = AcceptanceFile.load(file)
    words = [content.drafter, content.target and f"of {content.target}"]
    words.append(content.dataset and f"on {content.dataset}")
    return content.acceptance(" ".join(word for word in words if word) or file.name)


def default_curve(kind: str, target: str) -> tuple[Literal["own", "stand-in"], str] | None:
    """Return the bundled curve for this drafter kind and target, or the kind's stand-in."""
    names = resources.bundled_names(SHELF)
    if f"{target}-{kind}" in names:
        return "own", f"{target}-{kind}"
    stand_in = {"eagle3": "llama-3.1-8b-eagle3"}.get(kind)
    return ("stand-in", stand_in) if stand_in else None
