"""Models and drafters by reference: a bundled id, a YAML spec, a config or a GGUF file."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from roofline.base import resources
from roofline.base.errors import InputError, Option
from roofline.base.names import bundled_id, meaning, namesakes, plain_name, similar, unknown
from roofline.base.notices import Notice
from roofline.specs.engine import VocabularyRule
from roofline.specs.formats import format_named
from roofline.specs.network import (
    HEAD_KINDS,
    HOST_DRAFTERS,
    MODEL_SHELF,
    DrafterSpec,
    ModelSpec,
    NetworkSpec,
    derived_head,
    load_model,
    load_network,
    mtp_head,
    network_named,
)

if TYPE_CHECKING:
    from roofline.importers.importing import Imported
    from roofline.specs.published_heads import PublishedHead

__all__ = [
    "drafter_word",
    "head_for",
    "heads_for",
    "importable",
    "known_by_runs",
    "open_drafter",
    "open_imported",
    "open_model",
    "open_network",
]


def importable(reference: str) -> bool:
    """Return whether a reference is a path to a config or GGUF file, not to a spec.

    A folder is one where it holds a config.json, or where no bundled model has its name. The name
    or the address of a GGUF file that is not here may be a bundled model's.

    >>> importable("config.json"), importable("model.gguf"), importable("llama-3.1-8b")
    (True, True, False)
    >>> importable("Llama-3.1-8B.Q4_K_M.gguf"), importable("here/Llama-3.1-8B.Q4_K_M.gguf")
    (False, True)
    """
    path = Path(reference)
    if reference.lower().endswith(".gguf"):
        elsewhere = path.name == reference or "://" in reference
        if not elsewhere or "\0" in reference or path.exists():
            return True
        named = network_named(reference)
        return named is None or named.id is None
    if reference.lower().endswith(".json"):
        return True
    if "\0" in reference or not path.is_dir():
        return False
    return (path / "config.json").is_file() or not bundled_id(reference, MODEL_SHELF)


def open_imported(reference: str, target: ModelSpec | None = None) -> Imported:
    """Import a config, a folder or a GGUF file."""
    from roofline.importers.importing import import_path

    return import_path(Path(reference), target=target)


def open_network(reference: str, target: ModelSpec | None = None) -> NetworkSpec:
    """Return a model or drafter, loaded or imported."""
    if importable(reference):
        return open_imported(reference, target).spec
    return load_network(reference)


def open_model(reference: str) -> tuple[ModelSpec, list[Notice]]:
    """Return a whole model, with the notices of an imported one."""
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
    named = network_named(spec.id)
    same = named.id if named is not None and not named.family else None
    return spec.model_copy(update={"id": same or spec.id}), imported.notices


def heads_for(target: str) -> dict[str, str]:
    """Return the bundled drafters made for the target with this id, by their kind.

    Those of the same model in another format, or before its instructions, are for it as well.

    >>> heads_for("llama-3.1-8b")
    {'eagle3': 'llama-3.1-8b-eagle3'}
    >>> heads_for("qwen3-32b-fp8")
    {'eagle3': 'qwen3-32b-eagle3'}
    """
    known = set(resources.bundled_names(MODEL_SHELF))
    if target not in known:
        return {}
    heads: dict[str, str] = {}
    for model in (target, *namesakes(target, MODEL_SHELF, format_named)):
        for kind in HEAD_KINDS:
            if f"{model}-{kind}" in known:
                heads.setdefault(kind, f"{model}-{kind}")
    return heads


def head_for(target: str, kind: str) -> str | None:
    """Return the bundled drafter of a kind that was made for the target with this id."""
    own = f"{target}-{kind}"  # no other name is looked for where there is one
    return own if own in resources.bundled_names(MODEL_SHELF) else heads_for(target).get(kind)


def open_drafter(
    reference: str,
    target: ModelSpec,
    adapt: Callable[[NetworkSpec], NetworkSpec] | None = None,
    vocabulary: VocabularyRule | None = None,
) -> tuple[str, NetworkSpec | None]:
    """Return (kind, network) of the drafter called ``reference``, checked against its target.

    ``reference`` is ``none``, ``ngram``, ``suffix``, ``mtp`` (the target's own layer), a kind of
    head (the bundled one for the target, else one derived by a stated rule), the name of a bundled
    drafter or model, or a path to a YAML file. ``adapt`` changes the network before the check;
    ``vocabulary`` is the engine's rule for sizes of vocabularies, else they must be equal.
    """
    kind, network = _open(reference, target)
    if network is None:
        return kind, None
    network = network if adapt is None else adapt(network)
    _check_pair(network, target, vocabulary or VocabularyRule())
    return kind, network


#: Words for a drafter that are no network's name; ``data/drafters.aliases.yaml`` has others.
DRAFTER_WORDS = (*HOST_DRAFTERS, "mtp", *HEAD_KINDS)
DRAFTERS = "drafters"
#: How repositories are called: owner and name.
_REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
#: What the names of heads hold.
_OF_HEADS = re.compile("eagle|speculator|" + "|".join(HEAD_KINDS), re.IGNORECASE)


def drafter_word(reference: str) -> str | None:
    """Return the kind of drafter that a word means; None where it is a network's name or a path.

    >>> drafter_word("EAGLE-3"), drafter_word("NEXTN"), drafter_word("qwen3-0.6b")
    ('eagle3', 'mtp', None)
    """
    if reference in DRAFTER_WORDS:
        return reference
    if "/" in reference:
        return None
    found = meaning(reference, DRAFTERS, DRAFTER_WORDS)
    if found is not None and found.id is None:
        raise unknown(reference, DRAFTERS, DRAFTER_WORDS, what="drafter")
    return None if found is None else found.id


def _open(reference: str, target: ModelSpec) -> tuple[str, NetworkSpec | None]:
    word = drafter_word(reference)
    if word in HOST_DRAFTERS:
        return str(word), None
    if word == "mtp":
        return word, mtp_head(target)
    for kind in HEAD_KINDS:
        if word == kind:
            bundled = head_for(target.id, kind)
            return (kind, derived_head(kind, target)) if bundled is None else _load_bundled(bundled)
    if importable(reference):
        imported = open_imported(reference, target).spec
        return str(getattr(imported, "kind", "model")), imported
    if reference.endswith((".yaml", ".yml")):
        return _load(reference)
    reference = plain_name(reference)
    head = known_by_runs(reference)
    if head is not None:
        return head.kind, _of_repository(head, target)
    named = network_named(reference)
    if named is not None and named.id is not None:
        kind_of, bundled_one = _load_bundled(named.id)
        return kind_of, _kept_elsewhere(bundled_one, reference)
    known = (*DRAFTER_WORDS, *resources.bundled_names(MODEL_SHELF))
    if _REPOSITORY.fullmatch(reference) and (
        _OF_HEADS.search(reference) or not similar(reference, DRAFTERS, known)
    ):
        raise InputError(
            f"unknown drafter repository '{reference}': give a folder with its config.json, or its "
            f"kind for {target.id} ({', '.join(HEAD_KINDS)})"
        )
    more = f", of which {', '.join(DRAFTER_WORDS)} are kinds"
    raise unknown(reference, DRAFTERS, known, what="drafter", of=f" for {target.id}", more=more)


def known_by_runs(reference: str) -> PublishedHead | None:
    """Return the head that a repository holds, by its published runs; None for other names."""
    if "/" not in reference:
        return None
    from roofline.specs.published_heads import published_head

    return published_head(reference)


def _of_repository(head: PublishedHead, target: ModelSpec) -> DrafterSpec:
    """Return a published head by its name: a bundled shape of its kind, else a derived one."""
    bundled_targets = resources.bundled_names(MODEL_SHELF)
    alike = namesakes(target.id, MODEL_SHELF, format_named) if target.id in bundled_targets else ()
    if head.target not in (target.id, *alike):
        raise InputError(
            f"drafter {head.repository}: was made for {head.target}, not for {target.id}; give a "
            f"head of its own, or {Option('drafter', head.kind)}"
        )
    bundled = head_for(target.id, head.kind)
    shape = derived_head(head.kind, target) if bundled is None else _load_bundled(bundled)[1]
    if not isinstance(shape, DrafterSpec):
        raise TypeError(f"{bundled} is no head")
    if (shape.repository or "").lower() == head.repository.lower():
        return shape
    own = {
        "id": head.repository.rpartition("/")[2].lower(),
        "repository": head.repository,
        "trained_context": head.trained_context,
    }
    return shape.model_copy(update=own)


def _kept_elsewhere(network: NetworkSpec, reference: str) -> NetworkSpec:
    """Return a bundled network with the repository that was named, where that is another one.

    A head of the same name by another maker is another head, of which the shape alone is taken.
    """
    if not _REPOSITORY.fullmatch(reference):
        return network
    head = network if isinstance(network, DrafterSpec) else None
    published = None if head is None else head.published
    if reference.lower() in [name.lower() for name in (network.repository, published) if name]:
        return network
    if head is None:
        return network.model_copy(update={"repository": reference})
    name = reference.rpartition("/")[2].lower()
    return head.model_copy(update={"repository": reference, "published": None, "id": name})


@cache
def _load_bundled(name: str) -> tuple[str, NetworkSpec]:
    """Return a bundled drafter, loaded once in a process."""
    return _load(name)


def _load(reference: str) -> tuple[str, NetworkSpec]:
    network = load_network(reference, "drafter")
    return str(getattr(network, "kind", "model")), network


def _check_pair(drafter: NetworkSpec, target: ModelSpec, vocabulary: VocabularyRule) -> None:
    """Refuse a drafter that does not fit the target's vocabulary, hidden states or layers."""
    rule = vocabulary if isinstance(drafter, ModelSpec) else VocabularyRule()
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
    missing = [layer for layer in drafter.fusion.layer_ids if layer >= target.num_layers]
    if missing:
        raise InputError(
            f"drafter {drafter.id}: reads layer {missing[0]}, but {target.id} has "
            f"{target.num_layers} layers; it was made for {drafter.target}"
        )
