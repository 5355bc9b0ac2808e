"""Which acceptance a question leads to: the one given, else the nearest bundled one."""

from __future__ import annotations

from roofline.acceptance import Acceptance
from roofline.acceptance.defaults import choose, closest, default_for
from roofline.acceptance.doubts import doubts
from roofline.advice.parts import Notes
from roofline.advice.request import Request
from roofline.base.errors import UnknownAcceptanceError
from roofline.base.resources import alias_note
from roofline.specs.network import SHELF, ModelSpec
from roofline.timing.drafters import Drafter
from roofline.timing.step import Target

__all__ = ["acceptance_for", "is_known", "names_of"]


def is_known(request: Request, model: ModelSpec, drafter: Drafter) -> bool:
    """Return whether an acceptance is given or bundled."""
    if request.acceptance is not None or drafter.kind == "none":
        return True
    return choose(drafter.kind, drafter.name, names_of(request, model)) is not None


def names_of(request: Request, model: ModelSpec) -> list[str]:
    """Return what the model is called; what was asked for comes first where it is another one."""
    other = [request.model] if alias_note(request.model, SHELF) else []
    return [*other, model.id, *filter(None, [model.repository])]


def acceptance_for(request: Request, target: Target, drafter: Drafter, notes: Notes) -> Acceptance:
    """Return the acceptance of a drafter on its target; what must be said of it goes to notes."""
    if drafter.kind == "none":
        return Acceptance(table={0: 1.0}, label="nothing is drafted", source="definition")
    model, kv = target.model, target.precision.kv.value
    if request.acceptance is None:
        curve = _default(drafter, names_of(request, model), kv, notes)
    else:
        curve = _given(request.acceptance, kv)
        names = (model.id, request.model, *filter(None, [model.repository]))
        notes.warnings += doubts(curve, model=names, longest=request.max_draft_length)
    beyond = curve.beyond(request.contexts)
    notes.warnings += [*curve.warnings, *([beyond] if beyond else [])]
    return curve


def _given(acceptance: str | Acceptance, kv: str) -> Acceptance:
    if isinstance(acceptance, Acceptance):
        return acceptance
    from roofline.engines.sources import acceptance_from

    return acceptance_from(acceptance, kv=kv)


def _default(drafter: Drafter, names: list[str], kv: str, notes: Notes) -> Acceptance:
    found = default_for(drafter.kind, drafter.name, names, kv=kv)
    if found is None:
        near = closest(drafter.kind, names)
        named = f"; the closest bundled curves are {', '.join(near)}" if near else ""
        raise UnknownAcceptanceError(
            f"--acceptance: no acceptance is known for {drafter.name} on {names[0]}; give a rate "
            "(0.7), survival by position (0.8,0.56), conditional rates (cond:0.8,0.7), tokens per "
            "step (al:1.8,2.4), a bundled curve (roofline acceptance list), a file or an engine's "
            f"metrics address{named}"
        )
    notes.assumed.append(found.assumed)
    notes.warnings += [found.warning] if found.warning else []
    return found.curve
