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
    "GatedDeltaNet",
    "GroupedQueryAttention",
    "LatentAttention",
    "LayerRun",
    "Mlp",
    "ModelSpec",
    "MoeMlp",
    "NetworkSpec",
    "load_drafter",
    "load_model",
    "load_network",
]

SHELF = "model_specs"
WindowKind = Literal["sliding", "chunked"]


class GroupedQueryAttention(Schema):
    """Softmax attention whose query heads share KV heads (MHA: equal; MQA: one KV head)."""

    kind: Literal["gqa"] = "gqa"
    num_heads: PositiveInt
    num_kv_heads: PositiveInt
    head_dim: PositiveInt
    #: Width of what the Q, K and V projections read; None is the model's hidden size.
    input_size: PositiveInt | None = None
    #: Tokens a row attends to; None is the whole context.
    window: PositiveInt | None = None
    window_kind: WindowKind = "sliding"
    qk_norm: bool = False
    #: Whether one norm vector serves each head, or one the whole projection of a layer.
    qk_norm_width: Literal["head", "layer"] = "head"
    #: The output is gated by a second projection of the query's width.
    output_gate: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    #: One learned logit per query head.
    sinks: bool = False

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


class LatentAttention(Schema):
    """Multi-head latent attention (MLA): one compressed KV vector per token for all heads."""

    kind: Literal["mla"] = "mla"
    num_heads: PositiveInt
    #: Rank of the query compression; None is none.
    q_lora_rank: PositiveInt | None = None
    kv_lora_rank: PositiveInt
    qk_nope_head_dim: PositiveInt
    qk_rope_head_dim: PositiveInt
    v_head_dim: PositiveInt

    @property
    def key_width(self) -> int:
        """Elements of the cached vector that a query is compared with (512 + 64 in DeepSeek)."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    @property
    def value_width(self) -> int:
        """Elements of the cached vector that are summed up (512 in DeepSeek)."""
        return self.kv_lora_rank

    @property
    def window(self) -> None:
        """Latent attention always reads the whole context."""
        return


class GatedDeltaNet(Schema):
    """A linear mixer (GDN): a fixed state per sequence instead of a cache that grows.

    Its recurrent state is one ``key_head_dim`` x ``value_head_dim`` matrix for each value head, in
    fp32; a short convolution keeps the last ``conv_width`` - 1 inputs.
    """

    kind: Literal["gdn"] = "gdn"
    num_key_heads: PositiveInt
    num_value_heads: PositiveInt
    key_head_dim: PositiveInt
    value_head_dim: PositiveInt
    conv_width: PositiveInt

    @property
    def channels(self) -> int:
        """Channels that pass the convolution: queries, keys and values."""
        keys = self.num_key_heads * self.key_head_dim
        return 2 * keys + self.num_value_heads * self.value_head_dim

    @property
    def window(self) -> None:
        """Nothing is windowed where nothing is cached."""
        return


class DenseMlp(Schema):
    """Two matrices around an activation, or three when the activation is gated."""

    kind: Literal["dense"] = "dense"
    intermediate_size: PositiveInt
    gated: bool = True


class MoeMlp(Schema):
    """Experts of which each token uses ``top_k``, and shared experts that every token uses."""

    kind: Literal["moe"] = "moe"
    num_experts: PositiveInt
    top_k: PositiveInt
    expert_intermediate_size: PositiveInt
    #: Width of all shared experts together; 0 is none.
    shared_intermediate_size: Annotated[int, Field(ge=0)] = 0
    gated: bool = True
    #: The shared expert's output is scaled by a learned gate.
    shared_gate: bool = False
    #: Biases on the router and on every expert.
    biases: bool = False

    @model_validator(mode="after")
    def _top_k_of_experts(self) -> MoeMlp:
        if self.top_k > self.num_experts:
            raise ValueError(f"top_k {self.top_k} exceeds num_experts {self.num_experts}")
        return self


Attention = GroupedQueryAttention | LatentAttention | GatedDeltaNet
Mlp = DenseMlp | MoeMlp


class LayerRun(Schema):
    """``repeat`` equal decoder layers. The order of runs carries no meaning."""

    repeat: PositiveInt
    attention: Annotated[Attention, Field(discriminator="kind")]
    mlp: Annotated[Mlp, Field(discriminator="kind")]
    #: Norm vectors of hidden size in each layer.
    norms: Annotated[int, Field(ge=0, le=8)] = 2


class NetworkSpec(Document):
    """What targets and drafters have in common."""

    id: Annotated[str, Field(pattern=r"^[\w.-]+$")]
    name: str
    source: str
    license: str | None = None
    #: Name of the published weights, for the flag to paste.
    repository: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")] | None = None
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
    #: The multi-token-prediction layer that was trained with the model.
    mtp: LayerRun | None = None


class FeatureFusion(Schema):
    """The projection by which a drafter reads the target: ``taps`` vectors, concatenated."""

    taps: PositiveInt
    target_hidden_size: PositiveInt
    #: Run in every draft pass (MTP) instead of once for each verified token (EAGLE-3).
    every_pass: bool = False


class DrafterSpec(NetworkSpec):
    """A drafter that lives on its target's hidden states and shares the target's embedding."""

    kind: Literal["eagle3", "mtp"]
    target: str
    fusion: FeatureFusion
    #: Rows of the drafter's own head (a reduced vocabulary is usual).
    draft_vocab_size: PositiveInt
    #: The head is the target's own.
    shares_head: bool = False
    #: Norm vectors besides those of the layers and the final one.
    extra_norms: Annotated[int, Field(ge=0)] = 0
    #: Positions in the drafter's own config; beyond them its acceptance is unknown.
    trained_context: PositiveInt | None = None

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
