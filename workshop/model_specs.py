"""``python -m workshop.model_specs``: write ``model_specs/`` anew from published configs.

``model_configs/catalogue.yaml`` in a checkout says which config becomes which spec.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from roofline.base.errors import RooflineError
from roofline.base.files import write_atomically
from roofline.base.naming import NamingRules
from roofline.base.schema import Document, Schema, dump_yaml
from roofline.importers.config_files import read_source
from roofline.importers.importing import import_path
from roofline.importers.model_config import Identity, build_model
from roofline.importers.spec_yaml import spec_text
from roofline.specs.network import DrafterSpec, ModelSpec, NetworkSpec, load_model

__all__ = ["Catalogue", "SpecEntry", "regenerated", "write_specs"]


class SpecEntry(Schema):
    """One spec: the config it is read from, and what that does not say."""

    config: str
    id: str
    name: str | None = None
    source: str
    repository: str | None = None
    #: Where weights of this kind of head lie that were not trained by ``source``.
    published: str | None = None
    license: str | None = None
    #: A drafter's target, by id.
    target: str | None = None
    #: Leave the config's quantisation out: it is that of a quantised copy.
    unquantized: bool = False
    #: Where it says that the published weights lack the MTP layers of the config.
    mtp_left_out: str | None = None


class Catalogue(Document):
    """The specs to write, and how their names may be written."""

    models: tuple[SpecEntry, ...]
    drafters: tuple[SpecEntry, ...]
    names: NamingRules


def _identity(entry: SpecEntry) -> Identity:
    repository = entry.repository
    name = entry.name or (repository or entry.id).rsplit("/", 1)[-1]
    return Identity(
        id=entry.id,
        name=name,
        source=entry.source,
        repository=repository,
        license=entry.license,
    )


def _imported(entry: SpecEntry, file: Path) -> NetworkSpec:
    if entry.unquantized:
        source = read_source(file)
        data = {key: value for key, value in source.data.items() if key != "quantization_config"}
        return build_model(replace(source, data=data, quantization={}), _identity(entry))[0]
    spec = import_path(file, identity=_identity(entry)).spec
    if entry.mtp_left_out is None:
        return spec
    note = f"the published weights lack its MTP layers ({entry.mtp_left_out})"
    return spec.model_copy(update={"mtp_published": False, "notes": (*spec.notes, note)})


def regenerated(folder: Path) -> Iterator[NetworkSpec]:
    """Yield every spec of the catalogue in ``folder``."""
    catalogue = Catalogue.load(folder / "catalogue.yaml")
    targets: dict[str, ModelSpec] = {}
    for entry in catalogue.models:
        spec = _imported(entry, folder / entry.config)
        if isinstance(spec, ModelSpec):
            targets[spec.id] = spec
        yield spec
    for entry in catalogue.drafters:
        name = entry.target or ""
        target = targets.get(name) or load_model(name)  # a target written by hand
        head = import_path(folder / entry.config, identity=_identity(entry), target=target).spec
        assert isinstance(head, DrafterSpec)
        yield head.model_copy(update={"published": entry.published})


def write_specs(configs: Path, shelf: Path) -> tuple[int, list[str]]:
    """Write every spec of the catalogue to ``shelf``; return how many, and the files left alone.

    A spec that the catalogue does not name was written by hand and stays as it is.
    """
    written = {f"{spec.id}.yaml": spec_text(spec) for spec in regenerated(configs)}
    for name, text in written.items():
        write_atomically(shelf / name, text)
    others = sorted(file.name for file in shelf.glob("*.yaml") if file.name not in written)
    return len(written), others


def main() -> None:
    """Write the specs and the aliases."""
    package = Path(str(files("roofline")))
    configs = package.parent / "model_configs"
    try:
        count, others = write_specs(configs, package.parent / "model_specs")
        catalogue = Catalogue.load(configs / "catalogue.yaml")
    except RooflineError as error:
        sys.exit(f"roofline: {error}")
    rules = catalogue.names.model_dump(mode="json", exclude_defaults=True)
    text = dump_yaml({"schema": 1, **rules})
    write_atomically(package / "data" / "model_specs.aliases.yaml", text)
    sys.stdout.write(f"{count} specs and {len(catalogue.names.aliases)} aliases written\n")
    if others:
        sys.stdout.write(f"left as they are, by hand: {', '.join(others)}\n")


if __name__ == "__main__":
    main()
