"""``roofline models``: the bundled models and drafters, and importing others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roofline.base.errors import InputError
from roofline.cli import completion
from roofline.cli.listing import ALL, MATCH, Entry, emit_list
from roofline.cli.printing import all_faults, emit, emit_text, help_if_bare
from roofline.cli.question import LISTED

if TYPE_CHECKING:
    from roofline.importers.importing import Imported
    from roofline.specs.network import NetworkSpec

app = typer.Typer(
    help="List, show, check and import model and drafter specs.",
    callback=help_if_bare,
    invoke_without_command=True,
)

_ANY = typer.Argument(
    metavar="MODEL",
    help="A bundled id, or a path: config.json, its folder, GGUF, YAML spec.",
    autocompletion=completion.specs,
)
_TARGET = typer.Option(
    metavar="MODEL", help="The model that a drafter was made for.", autocompletion=completion.models
)


@app.command("list")
def list_(
    match: Annotated[str | None, MATCH] = None,
    everything: Annotated[bool, ALL] = False,
    form: Annotated[str, LISTED] = "table",
) -> None:
    """List the bundled models and drafters.

    Example: roofline models list --match llama
    """
    from roofline.base.resources import bundled_names
    from roofline.specs.network import MODEL_SHELF, load_network

    entries = []
    for name in bundled_names(MODEL_SHELF):
        network = load_network(name)
        row = _summary(network)
        text = f"{network.id} {network.name} {row['kind']}"
        entries.append(Entry(group=network.id.partition("-")[0], row=row, text=text))
    emit_list(entries, form, match=match, everything=everything, noun="models and drafters")


@app.command()
def show(
    model: Annotated[str, _ANY],
    target: Annotated[str | None, _TARGET] = None,
    form: Annotated[str, LISTED] = "table",
) -> None:
    """Show one spec and what follows from it.

    Example: roofline models show llama-3.1-8b
    """
    from roofline.importers.spec_yaml import wrapped_spec_text

    network, _ = _opened(model, target)
    if form == "table":
        summary = "".join(
            f"# {key}: {_grouped(value)}\n" for key, value in _summary(network).items()
        )
        emit_text(summary + wrapped_spec_text(network), None)
        return
    emit(_summary(network) | {"spec": network.model_dump(mode="json", by_alias=True)}, form)


@app.command()
def check(
    model: Annotated[str, _ANY],
    target: Annotated[str | None, _TARGET] = None,
    form: Annotated[str, LISTED] = "table",
) -> None:
    """Check that a model can be used.

    Says what was read, defaulted and ignored, and what the model counts.

    Example: roofline models check config.json
    """
    from roofline.render.model import check_data, check_text

    with all_faults():
        data = check_data(*_opened(model, target))
    emit(data if form == "json" else check_text(data), form)


@app.command("import")
def import_(
    path: Annotated[
        str,
        typer.Argument(metavar="PATH", help="A config.json, a folder with one, or a GGUF file."),
    ],
    target: Annotated[str | None, _TARGET] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the spec to FILE.")
    ] = None,
) -> None:
    """Write the spec that a published config describes.

    Example: roofline models import config.json -o my-model.yaml
    """
    from roofline.importers.spec_yaml import spec_text, wrapped_spec_text
    from roofline.render.notices import notes

    imported = _imported(path, target)
    text = wrapped_spec_text(imported.spec) if output is None else spec_text(imported.spec)
    emit_text(text, output, notes(imported.notices))


def _grouped(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _opened(model: str, target: str | None) -> tuple[NetworkSpec, Imported | None]:
    """Return a spec, and what was read of its config where it is imported from one."""
    from roofline.importers.references import importable, open_network

    if importable(model):
        imported = _imported(model, target)
        return imported.spec, imported
    _no_target(target, f"{model} is a spec, which names its own")
    return open_network(model), None


def _imported(path: str, target: str | None) -> Imported:
    """Import a config, a drafter's with its target."""
    from roofline.importers.references import open_imported, open_model
    from roofline.specs.network import ModelSpec

    base = open_model(target)[0] if target is not None else None
    imported = open_imported(path, base)
    if isinstance(imported.spec, ModelSpec):
        _no_target(target, f"{path} is a whole model")
    return imported


def _no_target(target: str | None, why: str) -> None:
    if target is not None:
        raise InputError(f"--target {target}: says nothing here, since {why}; leave it out")


def _summary(network: NetworkSpec) -> dict[str, Any]:
    from roofline.kernels.footprint import (
        kv_bytes_per_token,
        parameters_decode_read,
        parameters_total,
    )

    return {
        "id": network.id,
        "kind": getattr(network, "kind", "model"),
        "layers": network.num_layers,
        "parameters": parameters_total(network),
        "read_per_step": parameters_decode_read(network),
        "kv_bytes_per_token": round(kv_bytes_per_token(network, network.kv_dtype or network.dtype)),
    }
