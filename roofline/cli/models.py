"""``roofline models``: the models and drafters that are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from roofline.cli.listing import FORMAT, emit, emit_rows, help_if_bare

if TYPE_CHECKING:
    from roofline.model import NetworkSpec

app = typer.Typer(
    help="List, show and check model and drafter specs.",
    callback=help_if_bare,
    invoke_without_command=True,
)

_MODEL = typer.Argument(help="A bundled id, or a path to a YAML spec.")


@app.command("list")
def list_(form: Annotated[str, FORMAT] = "table") -> None:
    """List the bundled models and drafters."""
    from roofline.model import SHELF, load_network
    from roofline.resources import bundled_names

    emit_rows([_summary(load_network(name)) for name in bundled_names(SHELF)], form)


@app.command()
def show(model: Annotated[str, _MODEL], form: Annotated[str, FORMAT] = "table") -> None:
    """Show one spec and what follows from it."""
    from roofline.model import load_network

    network = load_network(model)
    emit(_summary(network) | {"spec": network.model_dump(mode="json", by_alias=True)}, form)


@app.command()
def check(model: Annotated[str, _MODEL], form: Annotated[str, FORMAT] = "table") -> None:
    """Check that a spec can be used, and count it."""
    from roofline.model import load_network

    emit({"ok": True} | _summary(load_network(model)), form)


def _summary(network: NetworkSpec) -> dict[str, Any]:
    from roofline.footprint import (
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
