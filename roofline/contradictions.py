"""Flags that speak of another server than the one that was read."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from roofline.acceptance.doubts import same_model
from roofline.advice.request import Request
from roofline.base import resources
from roofline.engines.server import Serving
from roofline.specs.engine import SHELF as ENGINES
from roofline.specs.network import SHELF, DrafterSpec, load_network

__all__ = ["contradictions"]


def contradictions(
    serving: Serving,
    asked: Request,
    *,
    given: AbstractSet[str],
    model: str | None,
    drafter: str | None,
) -> list[str]:
    """Return a warning for each flag that names another model, drafter or engine than it runs.

    ``model`` and ``drafter`` are the server's own, None where they are not known here. A path is
    taken for what runs there, since that is what it is given for.
    """
    said = []
    model = None if model is None else resources.known(model, SHELF)
    other = resources.known(asked.model, SHELF) if "model" in given else None
    if other is not None and model is not None and not same_model(other, model):
        said.append(("model", model, other, "acceptance and load"))
    if "drafter" in given and asked.drafter is not None and drafter is not None:
        own, wanted = _kinds(drafter, model), _kinds(asked.drafter, other or model)
        if wanted and "none" not in wanted and not own & wanted:
            said.append(("drafter", drafter, asked.drafter, "acceptance"))
    engine = asked.engine.partition("@")[0]
    if "engine" in given and resources.known(engine, ENGINES) and engine != serving.engine:
        said.append(("engine", serving.engine, asked.engine, "load"))
    return [
        f"{flag} {wanted}: the server runs {runs}; its {what} may not be that of {wanted}"
        for flag, runs, wanted, what in said
    ]


def _kinds(name: str, model: str | None) -> set[str]:
    """Return the words that a drafter goes by: its kind and its id; nothing for a path.

    >>> sorted(_kinds("eagle3", "llama-3.1-8b")), _kinds("here/config.json", None)
    (['eagle3', 'llama-3.1-8b-eagle3'], set())
    """
    known = resources.known(name, SHELF)
    if known is None:
        return set() if "/" in name or "." in name else {name, f"{model}-{name}"}
    network = load_network(known)
    kind = network.kind if isinstance(network, DrafterSpec) else "model"
    own = isinstance(network, DrafterSpec) and known == f"{model}-{kind}"
    return {known, kind} if own else {known}
