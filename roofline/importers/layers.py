"""One layer as read, and how equal ones are put together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from roofline.specs.mixers import Attention
from roofline.specs.network import LayerRun, Mlp

__all__ = ["Layer", "runs_of", "zip_layers"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """A decoder layer."""

    attention: Attention
    mlp: Mlp
    norms: int
    parallel: bool = False
    other_parameters: int = 0


def zip_layers(
    attentions: Iterable[Attention],
    mlps: Iterable[Mlp],
    *,
    norms: int,
    parallel: bool = False,
    other_parameters: int = 0,
) -> list[Layer]:
    """Return layers of equal norms from their two halves."""
    return [
        Layer(
            attention=attention,
            mlp=mlp,
            norms=norms,
            parallel=parallel,
            other_parameters=other_parameters,
        )
        for attention, mlp in zip(attentions, mlps, strict=True)
    ]


def runs_of(layers: Iterable[Layer]) -> tuple[LayerRun, ...]:
    """Return equal layers together, in the order in which each kind first occurs."""
    kinds: list[Layer] = []
    counts: list[int] = []
    for layer in layers:
        if layer in kinds:
            counts[kinds.index(layer)] += 1
        else:
            kinds.append(layer)
            counts.append(1)
    return tuple(
        LayerRun(
            repeat=count,
            attention=kind.attention,
            mlp=kind.mlp,
            norms=kind.norms,
            parallel=kind.parallel,
            other_parameters=kind.other_parameters,
        )
        for kind, count in zip(kinds, counts, strict=True)
    )
