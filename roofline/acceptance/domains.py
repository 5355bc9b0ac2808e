"""Names of domains and of data sets, as askers write them."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from roofline.base import resources
from roofline.base.errors import InputError, Option, did_you_mean
from roofline.base.schema import load_yaml

__all__ = ["LabelWords", "Prompts", "known_datasets", "known_domains", "label_words", "prompts"]


class DatasetLevel(NamedTuple):
    """What a data set is in the prior."""

    domain: str
    level: str


class Recipes(NamedTuple):
    """Who trained a drafter: by a word in its name, else by the owner of its repository."""

    words: dict[str, str]
    owners: dict[str, str]


class LabelWords(NamedTuple):
    """The words of ``acceptance_labels.yaml``."""

    same: tuple[tuple[str, ...], ...]
    recipes: Recipes
    domains: dict[str, tuple[str, ...]]
    datasets: dict[str, DatasetLevel]


class Prompts(NamedTuple):
    """What is known of the prompts: a domain and a data set of the prior, None where unknown."""

    domain: str | None = None
    dataset: str | None = None


@cache
def label_words() -> LabelWords:
    """Return the shipped words: plain records, as every answer reads them."""
    data = load_yaml(resources.data_file("acceptance_labels.yaml"))
    return LabelWords(
        same=tuple(map(tuple, data["same"])),
        recipes=Recipes(**data["recipes"]),
        domains={name: tuple(words) for name, words in data["domains"].items()},
        datasets={name: DatasetLevel(**level) for name, level in data["datasets"].items()},
    )


def known_domains() -> tuple[str, ...]:
    """Return the names of domains."""
    return tuple(label_words().domains)


def known_datasets() -> tuple[str, ...]:
    """Return the names of data sets."""
    return tuple(label_words().datasets)


def prompts(*, domain: str | None = None, dataset: str | None = None) -> Prompts:
    """Return what these names are in the prior; a data set says its domain.

    >>> prompts(domain="coding"), prompts(dataset="MT-Bench")
    (Prompts(domain='code', dataset=None), Prompts(domain='chat', dataset='mtbench'))
    """
    words = label_words()
    found = None if domain is None else _domain(domain, words)
    if dataset is None:
        return Prompts(domain=found)
    names = {_plain(name): level for name, level in words.datasets.items()}
    level = names.get(_plain(dataset))
    if level is None:
        _check_one(dataset, field="dataset")
        remedy = did_you_mean(dataset.lower(), words.datasets)
        raise InputError(
            f"unknown data set: {remedy} (of another, give its domain alone)",
            field="dataset",
            value=dataset,
        )
    if found not in (None, level.domain):
        raise InputError(
            f"is of the domain {level.domain}, not of {found}; leave one out",
            field="dataset",
            value=dataset,
        )
    return Prompts(domain=level.domain, dataset=level.level)


def _domain(word: str, words: LabelWords) -> str:
    names = {_plain(other): name for name, others in words.domains.items() for other in others}
    names |= {name: name for name in words.domains}
    found = names.get(_plain(word))
    if found is None:
        _check_one(word, field="domain")
        raise InputError(
            f"unknown domain: {did_you_mean(word.lower(), words.domains)}",
            field="domain",
            value=word,
        )
    return found


def _check_one(text: str, *, field: str) -> None:
    """Refuse several names, and show how a mix of prompts is written."""
    if re.search(r"[,=*+;]", text):
        mix = Option("acceptance", "mix:0.7*A,0.3*B")
        raise InputError(
            f"one name only; prompts of several kinds are a mix of their curves: {mix}, with A and "
            "B as 'roofline acceptance list' names them, or your own",
            field=field,
            value=text,
        )


def _plain(name: str) -> str:
    """Return a name in small letters and digits alone."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
