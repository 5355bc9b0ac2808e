"""What a shell completes the values of options to; nothing is looked up before it asks."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["curves", "drafters", "engines", "formats", "gpus", "hosts", "models", "specs"]


def gpus(incomplete: str) -> list[str]:
    """Return the bundled accelerators that begin so."""
    return _bundled("hardware_profiles", incomplete)


def specs(incomplete: str) -> list[str]:
    """Return the bundled models and drafters that begin so."""
    return _bundled("model_specs", incomplete)


def models(incomplete: str) -> list[str]:
    """Return the bundled models that begin so; drafters say another kind in their first lines."""
    from roofline.base.resources import shelf

    folder = shelf("model_specs")
    return [
        name
        for name in specs(incomplete)
        if _is_model((folder / f"{name.rpartition(',')[2]}.yaml").read_text("utf-8"))
    ]


def _is_model(text: str) -> bool:
    return "\nkind: model\n" in text[:200]


def drafters(incomplete: str) -> list[str]:
    """Return the words, heads and models that a drafter may be called and that begin so."""
    from roofline.specs.network import HEAD_KINDS, HOST_DRAFTERS

    words = _begun([*HOST_DRAFTERS, "mtp", *HEAD_KINDS], incomplete)
    return [*words, *specs(incomplete)]


def engines(incomplete: str) -> list[str]:
    """Return the bundled engines that begin so, and once one is named its eras."""
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
    return [*names, *_begun((f"{named}@{era.id}" for era in eras), incomplete)]


def curves(incomplete: str) -> list[str]:
    """Return the bundled acceptance curves that begin so."""
    return _bundled("acceptance", incomplete)


def hosts(incomplete: str) -> list[str]:
    """Return the bundled machines that begin so."""
    return _bundled("hosts", incomplete)


def formats(incomplete: str) -> list[str]:
    """Return the formats of weights and caches that begin so."""
    from roofline.specs.formats import DType

    return _begun(DType, incomplete)


def _bundled(shelf: str, incomplete: str) -> list[str]:
    from roofline.base.resources import bundled_names

    return _begun(bundled_names(shelf), incomplete)


def _begun(names: Iterable[str], incomplete: str) -> list[str]:
    """Return the names that complete the last of a list with commas, after those before it.

    >>> _begun(["h100-sxm", "h200-sxm", "a10"], "a10,H1")
    ['a10,h100-sxm']
    """
    before, comma, last = incomplete.rpartition(",")
    found = (str(name) for name in names if str(name).startswith(last.lower()))
    return [f"{before}{comma}{name}" for name in found]
