"""A model or a drafter by what a user calls it: a bundled id, a YAML spec, a config, a GGUF."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from roofline.base import resources
from roofline.base.errors import InputError, Option, did_you_mean
from roofline.base.notices import Notice
from roofline.base.schema import load_yaml
from roofline.specs.engine import VocabularyRule
from roofline.specs.network import (
    HEAD_KINDS,
    HOST_DRAFTERS,
    SHELF,
    DrafterSpec,
    ModelSpec,
    NetworkSpec,
    derive,
    load_drafter,
    load_model,
    load_network,
    mtp_head,
)

if TYPE_CHECKING:
    from roofline.importers.read import Imported

__all__ = ["heads_for", "importable", "open_drafter", "open_imported", "open_model", "open_network"]


def importable(reference: str) -> bool:
    """Return whether a name is a path to something that is imported rather than loaded.

    A folder counts where no bundled model has its name, or where it holds a config.json.

    >>> importable("config.json"), importable("model.gguf"), importable("llama-3.1-8b")
    (True, True, False)
    """
    if reference.lower().endswith((".json", ".gguf")):
        return True
    path = Path(reference)
    if "\0" in reference or not path.is_dir():
        return False
    return (path / "config.json").is_file() or not resources.bundled_id(reference, SHELF)


def open_imported(reference: str, target: ModelSpec | None = None) -> Imported:
    """Import a config, a folder or a GGUF file."""
    from roofline.importers.read import import_path

    return import_path(Path(reference), target=target)


def open_network(reference: str, target: ModelSpec | None = None) -> NetworkSpec:
    """Return a model or drafter, loaded or imported."""
    if importable(reference):
        return open_imported(reference, target).spec
    return load_network(reference)


def open_model(reference: str) -> tuple[ModelSpec, list[Notice]]:
    """Return a whole model, and what an imported one had to assume."""
    if not importable(reference):
        return load_model(reference), []
    imported = open_imported(reference)
    if not isinstance(imported.spec, ModelSpec):
        kind = getattr(imported.spec, "kind", "drafter")
        raise InputError(
            f"{reference}: is a drafter ({kind}), not a whole model; name a model and give this "
            f"with {Option('drafter')}"
        )
    spec = imported.spec
    bundled = resources.bundled_id(spec.id, SHELF)
    return spec.model_copy(update={"id": bundled or spec.id}), imported.notices


def heads_for(target: str) -> list[str]:
    """Return the kinds of drafter that have a bundled spec for the target with this id.

    >>> heads_for("llama-3.1-8b")
    ['eagle3']
    """
    start, names = f"{target}-", resources.bundled_names(SHELF)
    kinds = (name.removeprefix(start) for name in names if name.startswith(start))
    return [kind for kind in kinds if kind in HEAD_KINDS]


def open_drafter(
    reference: str,
    target: ModelSpec,
    adapt: Callable[[NetworkSpec], NetworkSpec] | None = None,
    vocabulary: VocabularyRule | None = None,
) -> tuple[str, NetworkSpec | None]:
    """Return (kind, network) of the drafter called ``reference``, checked against its target.

    ``reference`` is ``none``, ``ngram``, ``suffix``, ``mtp`` (the target's own layer), a kind of
    head (the bundled one for the target, else one derived by a stated rule), the id of a bundled
    drafter or model, or a path to a YAML file. ``adapt`` changes the network before the check;
    ``vocabulary`` is what the engine takes, equal sizes if it is not given.
    """
    kind, network = _open(reference, target)
    if network is None:
        return kind, None
    network = network if adapt is None else adapt(network)
    _check_pair(network, target, vocabulary or VocabularyRule())
    return kind, network


def _open(reference: str, target: ModelSpec) -> tuple[str, NetworkSpec | None]:
    if reference in HOST_DRAFTERS:
        return reference, None
    if reference == "mtp":
        return reference, mtp_head(target)
    if importable(reference):
        found = open_network(reference, target)
        return str(getattr(found, "kind", "model")), found
    names, heads = resources.bundled_names(SHELF), heads_for(target.id)
    wanted = f"{target.id}-{reference}" if reference in heads else reference
    if reference in HEAD_KINDS and reference not in heads:
        return reference, derive(reference, target)
    if resources.bundled_id(wanted, SHELF) is None and not wanted.endswith((".yaml", ".yml")):
        known = [*HOST_DRAFTERS, "mtp", *names, *HEAD_KINDS]
        raise InputError(
            f"unknown drafter '{reference}' for {target.id}: {did_you_mean(reference, known)}"
        )
    bundled = resources.bundled_id(wanted, SHELF)
    return _bundled(bundled) if bundled else _load(wanted)


@cache
def _bundled(name: str) -> tuple[str, NetworkSpec]:
    """Return a bundled drafter, loaded once in a process."""
    return _load(name)


def _load(reference: str) -> tuple[str, NetworkSpec]:
    kind = load_yaml(resources.spec_file(reference, SHELF, "drafter")).get("kind", "model")
    whole = kind == "model"
    return str(kind), load_model(reference, "drafter") if whole else load_drafter(reference)


def _check_pair(drafter: NetworkSpec, target: ModelSpec, vocabulary: VocabularyRule) -> None:
    """Refuse a drafter that does not speak the target's vocabulary or read its hidden states."""
    whole = isinstance(drafter, ModelSpec)
    rule = vocabulary if whole else VocabularyRule()
    if not rule.allows(drafter.vocab_size, target.vocab_size):
        raise InputError(
            f"drafter {drafter.id}: vocabulary of {drafter.vocab_size} tokens, but {target.id} has "
            f"{target.vocab_size}; a drafter must share its target's vocabulary"
        )
    if not isinstance(drafter, DrafterSpec):
        return
    expected = drafter.fusion.target_hidden_size
    if expected != target.hidden_size:
        raise InputError(
            f"drafter {drafter.id}: reads hidden states of {expected}, but {target.id} has "
            f"{target.hidden_size}; it was made for {drafter.target}"
        )
    beyond = [layer for layer in drafter.fusion.layer_ids if layer >= target.num_layers]
    if beyond:
        raise InputError(
            f"drafter {drafter.id}: reads layer {beyond[0]}, but {target.id} has "
            f"{target.num_layers} layers; it was made for {drafter.target}"
        )
