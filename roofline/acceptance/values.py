"""The shipped table of published tokens per step: its rows, and which are nearest to a drafter."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from roofline.acceptance.labels import AS_LONG_AS_TARGET, SHORT, DrafterLabels
from roofline.acceptance.prior import bare_name, family_of
from roofline.base import resources

__all__ = [
    "PublishedValue",
    "Reach",
    "nearest_values",
    "published_reach",
    "value_rows",
    "values_text",
]

#: Runs that say little of others: read off a picture or retold, or on random tokens.
UNTRUSTED = "C"
RANDOM = "random"


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedValue:
    """Tokens per step of one published run at a draft length."""

    id: str
    target: str
    drafter: str
    dataset: str
    domain: str
    draft_length: int
    tokens_per_step: float
    source: str


def values_text() -> str:
    """Return the shipped table of values."""
    return resources.data_file("acceptance").joinpath("values.csv").read_text("utf-8")


@cache
def value_rows() -> tuple[dict[str, str], ...]:
    """Return its rows."""
    return tuple(csv.DictReader(values_text().splitlines()))


class Reach(NamedTuple):
    """How far the published runs of a kind of drafter go."""

    draft_length: int
    context: float  # [tokens], of runs that say how long they are


@cache
def published_reach(kind: str) -> Reach:
    """Return how far the runs go that the prior was fitted on.

    Beyond ``SHORT`` tokens of context only those count whose drafter has a known limit, or none.
    """
    rows = [row for row in value_rows() if row["trust"] != UNTRUSTED]
    rows = [row for row in rows if not row["dataset"].startswith(RANDOM)]
    own = [row for row in rows if row["kind"] == kind]
    free = kind in AS_LONG_AS_TARGET
    contexts = [_tokens(row["context"]) for row in own if free or row["trained_context"]]
    return Reach(
        draft_length=max((int(row["draft_length"]) for row in own), default=0),
        context=max((SHORT, *contexts)),
    )


def _tokens(text: str) -> float:
    return float(text or 0)


def nearest_values(
    labels: DrafterLabels, models: Iterable[str], *, draft_length: int, count: int = 4
) -> list[PublishedValue]:
    """Return the published values that are nearest to a drafter, one of each run.

    They are of its kind. First come those of its very model, then of a drafter of the same maker,
    of the same family of models, of the same set and domain of prompts; of one run the draft length
    that is nearest counts.
    """
    names = {bare_name(model).replace("instruct", "") for model in models}
    best: dict[tuple[str, str, str], tuple[tuple[float, ...], PublishedValue]] = {}
    for row in value_rows():
        known = row["trust"] != UNTRUSTED and not row["dataset"].startswith(RANDOM)
        if row["kind"] != labels.kind or not known:
            continue
        value = _value(row)
        distance = (-_likeness(row, labels, names), abs(value.draft_length - draft_length))
        run = (value.target, value.drafter, value.dataset)
        if run not in best or distance < best[run][0]:
            best[run] = (distance, value)
    ordered = sorted(best.values(), key=lambda pair: (pair[0], pair[1].id))
    return [value for _, value in _spread(ordered, count)]


def _spread(
    ordered: Sequence[tuple[tuple[float, ...], PublishedValue]], count: int
) -> list[tuple[tuple[float, ...], PublishedValue]]:
    """Return the first ones, at most two of a drafter: nine sets of one study tell less."""
    taken: list[tuple[tuple[float, ...], PublishedValue]] = []
    for pair in ordered:
        alike = [v for _, v in taken if (v.target, v.drafter) == (pair[1].target, pair[1].drafter)]
        if len(alike) < 2:
            taken.append(pair)
        if len(taken) == count:
            break
    return taken


def _likeness(row: dict[str, str], labels: DrafterLabels, models: set[str]) -> float:
    first = labels.candidates[0]
    dataset = "".join(c for c in row["dataset"].lower() if c.isalnum())
    return (
        8.0 * (bare_name(row["target"]).replace("instruct", "") in models)
        + 4.0 * (first.recipe is not None and row["recipe"].split(",")[0] == first.recipe)
        + 2.0 * (family_of(row["target"]) == first.family)
        + 2.0 * (first.domain is not None and row["domain"] == first.domain)
        + 1.0 * (first.dataset is not None and dataset == first.dataset)
    )


def _value(row: dict[str, str]) -> PublishedValue:
    return PublishedValue(
        id=row["id"],
        target=row["target"],
        drafter=row["drafter"],
        dataset=row["dataset"],
        domain=row["domain"],
        draft_length=int(row["draft_length"]),
        tokens_per_step=float(row["tokens_per_step"]),
        source=row["source"],
    )
