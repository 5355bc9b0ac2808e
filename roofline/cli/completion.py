"""Complete the values of options for a shell. Nothing is imported before it asks."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = [
    "curves",
    "datasets",
    "domains",
    "drafters",
    "engines",
    "formats",
    "gpus",
    "hosts",
    "models",
    "specs",
]


def gpus(incomplete: str) -> list[str]:
    """Return the bundled accelerators that complete the text."""
    return _bundled("hardware_profiles", incomplete)


def specs(incomplete: str) -> list[str]:
    """Return the bundled models and drafters that complete the text."""
    return _bundled("model_specs", incomplete)


def models(incomplete: str) -> list[str]:
    """Return the bundled models that complete the text, without drafters."""
    from roofline.base.resources import bundled_names

    whole = set(bundled_names("model_specs", kind="model"))
    return [name for name in specs(incomplete) if name.rpartition(",")[2] in whole]


def drafters(incomplete: str) -> list[str]:
    """Return the words, heads and models that complete the text of a drafter."""
    from roofline.specs.network import HEAD_KINDS, HOST_DRAFTERS

    words = _completions([*HOST_DRAFTERS, "mtp", *HEAD_KINDS], incomplete)
    return [*words, *specs(incomplete)]


def engines(incomplete: str) -> list[str]:
    """Return the bundled engines that complete the text, and the eras of one that is named."""
    names = _bundled("engines", incomplete)
    named = incomplete.rpartition(",")[2].partition("@")[0]
    if names and named not in names:
        return names
    from roofline.base.errors import InputError
    from roofline.specs.engine import load_engine

    try:
        eras = load_engine(named).eras
    except InputError:
        return names
    return [*names, *_completions((f"{named}@{era.id}" for era in eras), incomplete)]


def curves(incomplete: str) -> list[str]:
    """Return the bundled acceptance curves that complete the text."""
    return _bundled("acceptance", incomplete)


def domains(incomplete: str) -> list[str]:
    """Return the domains of prompts that complete the text."""
    from roofline.acceptance.domains import known_domains

    return _completions(known_domains(), incomplete)


def datasets(incomplete: str) -> list[str]:
    """Return the data sets that complete the text."""
    from roofline.acceptance.domains import known_datasets

    return _completions(known_datasets(), incomplete)


def hosts(incomplete: str) -> list[str]:
    """Return the bundled machines that complete the text."""
    return _bundled("hosts", incomplete)


def formats(incomplete: str) -> list[str]:
    """Return the formats of weights and caches that complete the text."""
    from roofline.specs.formats import DType

    return _completions(DType, incomplete)


def _bundled(shelf: str, incomplete: str) -> list[str]:
    """Return the ids that complete the text; else those that it names in other words."""
    from roofline.base.resources import bundled_names

    names = bundled_names(shelf)
    completed = _completions(names, incomplete)
    before, comma, last = incomplete.rpartition(",")
    if completed or not last:
        return completed
    from roofline.base.names import completing

    return [f"{before}{comma}{name}" for name in completing(last, shelf, tuple(names))]


def _completions(names: Iterable[str], incomplete: str) -> list[str]:
    """Return the list with its last name completed, once for each name that completes it.

    >>> _completions(["h100-sxm", "h200-sxm", "a10"], "a10,H1")
    ['a10,h100-sxm']
    """
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in map(str, names) if name.startswith(last.lower())]
