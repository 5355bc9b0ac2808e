"""What a user may name as a model: a bundled id, a YAML spec, a config.json, a folder, a GGUF."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from roofline.base import resources
from roofline.base.errors import InputError
from roofline.specs.network import SHELF, ModelSpec, NetworkSpec, load_model, load_network

if TYPE_CHECKING:
    from roofline.importers.read import Imported

__all__ = ["importable", "open_imported", "open_model", "open_network"]


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
    return (path / "config.json").is_file() or not resources.known(reference, SHELF)


def open_imported(reference: str, target: ModelSpec | None = None) -> Imported:
    """Import a config, a folder or a GGUF file."""
    from roofline.importers.read import import_path

    return import_path(Path(reference), target=target)


def open_network(reference: str, target: ModelSpec | None = None) -> NetworkSpec:
    """Return a model or drafter, loaded or imported."""
    if importable(reference):
        return open_imported(reference, target).spec
    return load_network(reference)


def open_model(reference: str) -> tuple[ModelSpec, list[str]]:
    """Return a whole model, and what an imported one had to assume."""
    if not importable(reference):
        return load_model(reference), []
    imported = open_imported(reference)
    if not isinstance(imported.spec, ModelSpec):
        kind = getattr(imported.spec, "kind", "drafter")
        raise InputError(
            f"{reference}: is a drafter ({kind}), not a whole model; name a model and give this "
            "with --drafter"
        )
    spec = imported.spec
    bundled = resources.known(spec.id, SHELF)
    return spec.model_copy(update={"id": bundled or spec.id}), imported.assumptions
