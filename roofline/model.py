"""Model and drafter specs: runs of equal layers, a head, and the dtype of each component.

A spec says what a network *is*. What it costs is `roofline.forward`; how many parameters it has is
`roofline.layers`. A new model is a YAML file; a new *kind* of attention or MLP is a class here and
one function in each of those two modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from roofline import resources
from roofline.errors import InputError
from roofline.quantization import Component, DType
from roofline.schema import Document, PositiveInt, Schema
from roofline.yamlio import load_yaml

__all__ = [
    "SHELF",
    "Attention",
    "DenseMlp",
    "DrafterSpec",
    "GroupedQueryAttention",
    "LayerRun",
    "Mlp",
    "ModelSpec",
    "NetworkSpec",
    "load_drafter",
    "load_model",
    "load_network",
]

SHELF = "model_specs"


class GroupedQueryAttention(Schema):
    """Softmax attention whose query heads share KV heads (MHA: equal; MQA: one KV head)."""

    kind: Literal["gqa"] = "gqa"
    num_heads: PositiveInt
    num_kv_heads: PositiveInt
    head_dim: PositiveInt
    #: Width of what the Q, K and V projections read; None is the model's hidden size.
    input_size: PositiveInt | None = None
    qk_norm: bool = False
    qkv_bias: bool = False
    output_bias: bool = False

    @model_validator(mode="after")
    def _heads_share_kv(self) -> GroupedQueryAttention:
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads {self.num_heads} must be a multiple of num_kv_heads {self.num_kv_heads}"
            )
        return self

    @property
    def group_size(self) -> int:
        """Query heads per KV head, G."""
        return self.num_heads // self.num_kv_heads


class DenseMlp(Schema):
    """Two matrices around an activation, or three when the activation is gated."""

    kind: Literal["dense"] = "dense"
    intermediate_size: PositiveInt
    gated: bool = True


Attention = GroupedQueryAttention
Mlp = DenseMlp


class LayerRun(Schema):
    """``repeat`` equal decoder layers in a row."""

    repeat: PositiveInt
    attention: Attention
    mlp: Mlp
    #: Norm vectors of hidden size in each layer.
    norms: Annotated[int, Field(ge=0, le=8)] = 2


class NetworkSpec(Document):
    """What targets and drafters have in common."""

    id: str
    name: str
    source: str
    license: str | None = None
    hidden_size: PositiveInt
    vocab_size: PositiveInt
    dtype: DType = DType.BF16
    #: Components stored in another dtype than ``dtype``.
    dtypes: dict[Component, DType] = Field(default_factory=dict)
    kv_dtype: DType | None = None
    layers: Annotated[tuple[LayerRun, ...], Field(min_length=1)]

    def stored(self) -> Mapping[Component, DType]:
        """Return the dtype that each component has on disk."""
        return {component: self.dtypes.get(component, self.dtype) for component in Component}

    @property
    def num_layers(self) -> int:
        """Decoder layers."""
        return sum(run.repeat for run in self.layers)


class ModelSpec(NetworkSpec):
    """A whole language model: a target, or a separate draft model."""

    kind: Literal["model"] = "model"
    max_context: PositiveInt
    tie_embeddings: bool = False


class FeatureFusion(Schema):
    """The projection by which a drafter reads the target: ``taps`` hidden states, concatenated."""

    taps: PositiveInt
    target_hidden_size: PositiveInt


class DrafterSpec(NetworkSpec):
    """A drafter that lives on its target's hidden states and shares the target's embedding."""

    kind: Literal["eagle3"]
    target: str
    fusion: FeatureFusion
    #: Rows of the drafter's own head (a reduced vocabulary is usual).
    draft_vocab_size: PositiveInt
    #: Positions in the drafter's own config; beyond them its acceptance is unknown.
    trained_context: PositiveInt | None = None
    #: Name of the published weights, for the flag to paste.
    weights: str | None = None

    @model_validator(mode="after")
    def _vocabulary_is_a_subset(self) -> DrafterSpec:
        if self.draft_vocab_size > self.vocab_size:
            raise ValueError(
                f"draft_vocab_size {self.draft_vocab_size} exceeds vocab_size {self.vocab_size}"
            )
        return self


def load_network(reference: str) -> NetworkSpec:
    """Load a bundled model or drafter by id, or a YAML file of either by path."""
    file = resources.find(reference, SHELF, "model")
    drafter = load_yaml(file).get("kind", "model") != "model"
    return (DrafterSpec if drafter else ModelSpec).load(file)


def load_model(reference: str, what: str = "model") -> ModelSpec:
    """Load a bundled model by id, or a YAML file by path."""
    file = resources.find(reference, SHELF, what)
    kind = load_yaml(file).get("kind", "model")
    if kind != "model":
        raise InputError(
            f"{file.name}: is a drafter (kind: {kind}), not a whole model; name a model"
        )
    return ModelSpec.load(file)


def load_drafter(reference: str) -> DrafterSpec:
    """Load a bundled drafter by id, or a YAML file by path."""
    return DrafterSpec.load(resources.find(reference, SHELF, "drafter"))
