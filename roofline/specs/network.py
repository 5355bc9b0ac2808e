"""Model and drafter specs: runs of equal layers, a head, and the dtype of each component.

A spec says what a network *is*. What it costs is `roofline.kernels.forward`; how many parameters
it has is `roofline.kernels.matrices`. A new model is a YAML file; a new *kind* of attention or MLP
is a class here and one function in each of those two modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, model_validator

from roofline.base.errors import InputError
from roofline.base.names import Meaning, on_shelf, spec_file
from roofline.base.resources import bundled_names, shelf
from roofline.base.schema import Document, Id, PositiveInt, Readable, Schema, load_yaml
from roofline.specs.formats import Component, DType, format_named
from roofline.specs.mixers import (
    Attention,
    CompressedAttention,
    Count,
    CrossAttention,
    GatedDeltaNet,
    GroupedQueryAttention,
    Indexer,
    KimiDeltaAttention,
    LatentAttention,
    LightningAttention,
    Mamba2,
    NoAttention,
    StateMixer,
)

__all__ = [
    "DERIVED_SOURCE",
    "HEAD_KINDS",
    "HOST_DRAFTERS",
    "LOOKUPS",
    "MODEL_SHELF",
    "Attention",
    "CompressedAttention",
    "CrossAttention",
    "DenseMlp",
    "DrafterKind",
    "DrafterSpec",
    "FeatureFusion",
    "GatedDeltaNet",
    "GroupedQueryAttention",
    "Indexer",
    "KimiDeltaAttention",
    "LatentAttention",
    "LayerRun",
    "LightningAttention",
    "Mamba2",
    "Mlp",
    "ModelSpec",
    "MoeMlp",
    "NetworkSpec",
    "NoAttention",
    "NoMlp",
    "StateMixer",
    "derived_head",
    "load_drafter",
    "load_model",
    "load_network",
    "mtp_head",
    "network_named",
]

MODEL_SHELF = "model_specs"
DrafterKind = Literal["eagle1", "eagle3", "peagle", "dflash", "dspark", "domino", "medusa", "mtp"]
#: Drafters that the host runs, without a network.
LOOKUPS = ("ngram", "suffix")  # may find nothing to propose
HOST_DRAFTERS = ("none", *LOOKUPS)


class DenseMlp(Schema):
    """Two matrices around an activation, or three when the activation is gated."""

    kind: Literal["dense"] = "dense"
    intermediate_size: PositiveInt
    gated: bool = True
    #: Biases on every matrix.
    biases: bool = False


class NoMlp(Schema):
    """A layer that only mixes tokens."""

    kind: Literal["none"] = "none"


class MoeMlp(Schema):
    """Experts of which each token uses ``top_k``, and shared experts that every token uses."""

    kind: Literal["moe"] = "moe"
    num_experts: PositiveInt
    top_k: PositiveInt
    expert_intermediate_size: PositiveInt
    #: Width of all shared experts together; 0 is none.
    shared_intermediate_size: Count = 0
    #: Width of a dense MLP that runs beside the experts in the same layer; 0 is none.
    dense_intermediate_size: Count = 0
    #: Width that routed experts work in, behind a projection down and before one up.
    latent_size: PositiveInt | None = None
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


Mlp = DenseMlp | MoeMlp | NoMlp


class LayerRun(Schema):
    """``repeat`` equal decoder layers. The order of runs carries no meaning."""

    repeat: PositiveInt
    attention: Annotated[Attention, Field(discriminator="kind")]
    mlp: Annotated[Mlp, Field(discriminator="kind")]
    #: Norm vectors of hidden size in each layer.
    norms: Annotated[int, Field(ge=0, le=8)] = 2
    #: Attention and MLP read the same input and their outputs are added.
    parallel: bool = False
    #: Numbers of each layer that belong to none of the above (scales, mixing of residual streams).
    other_parameters: Count = 0


Repository = Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")]


class NetworkSpec(Document):
    """The fields that targets and drafters have in common."""

    id: Id
    name: str
    source: str
    license: str | None = None
    #: Name of the published weights, for the flag to paste.
    repository: Repository | None = None
    #: Where ``source`` is a recipe only: published weights of the same kind, shape and target.
    published: Repository | None = None
    hidden_size: PositiveInt
    vocab_size: PositiveInt
    dtype: DType = DType.BF16
    #: Components stored in another dtype than ``dtype``.
    dtypes: dict[Component, DType] = Field(default_factory=dict)
    kv_dtype: DType | None = None
    #: Formats that components are multiplied in, where they differ from their weights' usual ones.
    activations: dict[Component, DType] = Field(default_factory=dict)
    #: Numbers outside layers, embedding and head that every step reads.
    other_parameters: Count = 0
    #: Whether the head has a bias.
    head_bias: bool = False
    #: What a reader should know: what was assumed of the published config, what was left out.
    notes: tuple[str, ...] = ()
    layers: tuple[LayerRun, ...]

    def stored(self) -> Mapping[Component, DType]:
        """Return the dtype that each component has on disk."""
        return {component: self.dtypes.get(component, self.dtype) for component in Component}

    @property
    def num_layers(self) -> int:
        """Decoder layers."""
        return sum(run.repeat for run in self.layers)

    @property
    def has_state(self) -> bool:
        """Whether some layer keeps a recurrent state, where rejected drafts must be undone."""
        return self.num_state_layers > 0

    @property
    def num_state_layers(self) -> int:
        """Decoder layers with a recurrent state."""
        return sum(run.repeat for run in self.layers if isinstance(run.attention, StateMixer))

    @property
    def num_expert_layers(self) -> int:
        """Decoder layers with experts."""
        return sum(run.repeat for run in self.layers if isinstance(run.mlp, MoeMlp))

    @property
    def num_hybrid_layers(self) -> int:
        """Decoder layers with both a recurrent state and experts."""
        return sum(
            run.repeat
            for run in self.layers
            if isinstance(run.attention, StateMixer) and isinstance(run.mlp, MoeMlp)
        )


class ModelSpec(NetworkSpec):
    """A whole language model: a target, or a separate draft model."""

    kind: Literal["model"] = "model"
    max_context: PositiveInt
    tie_embeddings: bool = False
    #: Rows of a learned position table.
    positions: Count = 0
    #: Parameters of a vision tower and its projector: in memory, never in a decode step.
    vision_parameters: Count = 0
    #: The multi-token-prediction layer that was trained with the model.
    mtp: LayerRun | None = None
    #: Whether the published weights have that layer; some configs state one that was kept back.
    mtp_published: bool = True
    #: Number of such layers published, one for each further token.
    mtp_modules: PositiveInt = 1

    @model_validator(mode="after")
    def _has_layers(self) -> ModelSpec:
        if not self.layers:
            raise ValueError("layers: a model has at least one")
        return self


class FeatureFusion(Schema):
    """The projection by which a drafter reads ``taps`` concatenated vectors of the target."""

    #: 0 means the last hidden state as it is (Medusa).
    taps: Annotated[int, Field(ge=0, le=1024)]
    target_hidden_size: PositiveInt
    #: Whether it runs in every draft pass (EAGLE-1, MTP) instead of once for each verified token
    #: (EAGLE-3).
    every_pass: bool = False
    bias: bool = False
    #: Layers of the target that are read; empty where the config names none.
    layer_ids: tuple[int, ...] = ()


class DrafterSpec(NetworkSpec):
    """A drafter that reads its target's hidden states and shares the target's embedding."""

    kind: DrafterKind
    target: str
    fusion: FeatureFusion
    #: Rows of the drafter's own head (a reduced vocabulary is usual).
    draft_vocab_size: PositiveInt
    #: Whether the head is the target's own.
    shares_head: bool = False
    #: Norm vectors besides those of the layers and the final one.
    extra_norms: Annotated[int, Field(ge=0)] = 0
    final_norm: bool = True
    #: Tokens that one pass of a block drafter proposes (its own block, the last token included).
    block_size: PositiveInt | None = None
    #: MTP layers published, one for each further token; ``layers`` holds one of them.
    modules: PositiveInt = 1
    #: Heads that each propose one token further (Medusa), each behind ``head_blocks`` blocks.
    heads: PositiveInt = 1
    head_blocks: Count = 0
    #: Numbers of Markov, recurrent and confidence heads, which published counts leave out.
    side_parameters: Count = 0
    #: Positions in the drafter's own config; beyond them its acceptance is unknown.
    trained_context: PositiveInt | None = None

    @model_validator(mode="after")
    def _vocabulary_is_a_subset(self) -> DrafterSpec:
        if self.draft_vocab_size > self.vocab_size:
            raise ValueError(
                f"draft_vocab_size {self.draft_vocab_size} exceeds vocab_size {self.vocab_size}"
            )
        if not self.fusion.taps and self.kind != "medusa":
            raise ValueError("fusion.taps: should be greater than 0, only Medusa heads tap nothing")
        return self


#: A spec with this key has only what differs from the spec that it names.
_SHAPE_OF = "same_shape_as"


def network_file(
    reference: str, what: str = "model", *, kind: str | None = None
) -> Traversable | Path:
    """Return the file of a bundled model or drafter, however its name is written, or a path.

    Where nothing has the name, those of this ``kind`` alone are offered.
    """
    return spec_file(reference, MODEL_SHELF, what, storage=format_named, kind=kind)


def network_named(reference: str) -> Meaning | None:
    """Return which bundled model or drafter a name means; None where it is not known.

    >>> named = network_named("RedHatAI/Qwen3-14B-FP8-dynamic")
    >>> named.id, named.storage
    ('qwen3-14b', <DType.FP8: 'fp8'>)
    """
    return on_shelf(reference, MODEL_SHELF, storage=format_named)


def _network_data(file: Readable) -> dict[str, Any]:
    """Return the data of a spec, filled up from the one whose shape it has."""
    data = load_yaml(file)
    base = data.pop(_SHAPE_OF, None)
    if base is None:
        return data
    if not isinstance(base, str) or base not in bundled_names(MODEL_SHELF):
        raise InputError(
            f"{file.name}: {_SHAPE_OF}: expected the id of a bundled spec, got {base!r}"
        )
    shape = _network_data(shelf(MODEL_SHELF) / f"{base}.yaml")
    own = {key: value for key, value in shape.items() if key not in _OF_ONE_NETWORK} | data
    if own.get("kind", "model") == "model":
        own["name"] = f"{data.get('name', data.get('id'))}, same shape as {shape['name']}"
    return own


#: What a spec does not take over from the one whose shape it has.
_OF_ONE_NETWORK = ("id", "name", "source", "license", "repository", "published", "notes")


def load_network(reference: str, what: str = "model") -> NetworkSpec:
    """Load a bundled model or drafter by id, or a YAML file of either by path."""
    file = network_file(reference, what)
    data = _network_data(file)
    spec = ModelSpec if data.get("kind", "model") == "model" else DrafterSpec
    return spec.of_data(data, file.name)


def load_model(reference: str) -> ModelSpec:
    """Load a bundled model by id, or a YAML file by path."""
    file = network_file(reference, kind="model")
    data = _network_data(file)
    kind = data.get("kind", "model")
    if kind != "model":
        raise InputError(
            f"{file.name}: is a drafter (kind: {kind}), not a whole model; name a model"
        )
    return ModelSpec.of_data(data, file.name)


def load_drafter(reference: str) -> DrafterSpec:
    """Load a bundled drafter by id, or a YAML file by path."""
    file = network_file(reference, "drafter")
    return DrafterSpec.of_data(_network_data(file), file.name)


class _HeadShape(NamedTuple):
    """The size of the latest published heads of one kind."""

    layers: int
    taps: int  # vectors of the target that the head reads


_HEAD_SHAPES: dict[DrafterKind, _HeadShape] = {
    "eagle1": _HeadShape(layers=1, taps=2),
    "eagle3": _HeadShape(layers=1, taps=3),
    "peagle": _HeadShape(layers=4, taps=3),
    "dflash": _HeadShape(layers=5, taps=5),
    "dspark": _HeadShape(layers=5, taps=5),
    "domino": _HeadShape(layers=5, taps=5),
    "medusa": _HeadShape(layers=0, taps=0),
}
#: Kinds of head that can be derived from a target.
HEAD_KINDS = tuple(_HEAD_SHAPES)
#: Block size of the published heads, by kind.
BLOCK_SIZES = {"dflash": 16, "dspark": 7, "domino": 16}
REDUCED_VOCABULARY = 32000  # of EAGLE-3 heads (SpecForge, AngelSlim)
MARKOV_RANK = 256  # of DSpark's Markov head (SpecForge)
DERIVATION_RULE = (
    "layers as the published heads of its kind have (EAGLE 1, P-EAGLE 4, block drafters 5), the "
    "target's heads and dense MLP width (4 H in a mixture, 32 heads over 8 of 128 without GQA), "
    "32,000 tokens of vocabulary for EAGLE-3 and P-EAGLE, the target's own head else"
)
#: The source of a derived head.
DERIVED_SOURCE = f"derived: {DERIVATION_RULE}"


def mtp_head(target: ModelSpec) -> DrafterSpec:
    """Return the target's multi-token-prediction layer as a drafter.

    Each pass norms the embedding of the last token and the last hidden state, projects both
    together to the hidden size, runs one layer like the target's, and uses the target's head.
    """
    if target.mtp is None:
        raise InputError(
            f"{target.id} was not published with a multi-token-prediction layer; use eagle3, "
            "ngram or a draft model",
            field="drafter",
            value="mtp",
        )
    return DrafterSpec(
        schema=1,
        kind="mtp",
        id=f"{target.id}-mtp",
        name=f"MTP layer of {target.name}",
        source=target.source,
        target=target.id,
        hidden_size=target.hidden_size,
        vocab_size=target.vocab_size,
        draft_vocab_size=target.vocab_size,
        dtype=target.dtype,
        dtypes=target.dtypes,
        kv_dtype=target.kv_dtype,
        activations=target.activations,
        layers=(target.mtp,),
        modules=target.mtp_modules,
        fusion=FeatureFusion(taps=2, target_hidden_size=target.hidden_size, every_pass=True),
        shares_head=True,
        extra_norms=2,
    )


def derived_head(kind: DrafterKind, target: ModelSpec) -> DrafterSpec:
    """Return a head of this kind for a target that has none bundled, by ``DERIVATION_RULE``.

    >>> from roofline.specs.network import load_model
    >>> head = derived_head("eagle3", load_model("llama-3.1-8b"))
    >>> head.layers[0].mlp.intermediate_size, head.draft_vocab_size
    (14336, 32000)
    """
    shape = _HEAD_SHAPES[kind]
    reduced = kind in ("eagle3", "peagle")
    vocabulary = min(REDUCED_VOCABULARY, target.vocab_size) if reduced else target.vocab_size
    return DrafterSpec(
        schema=1,
        kind=kind,
        id=f"{target.id}-{kind}",
        name=f"{kind} head derived for {target.name}",
        source=DERIVED_SOURCE,
        target=target.id,
        hidden_size=target.hidden_size,
        vocab_size=target.vocab_size,
        draft_vocab_size=vocabulary,
        dtype=DType.BF16,
        layers=_derived_layers(kind, target),
        fusion=FeatureFusion(
            taps=shape.taps, target_hidden_size=target.hidden_size, every_pass=kind == "eagle1"
        ),
        shares_head=not reduced and kind != "medusa",
        block_size=BLOCK_SIZES.get(kind),
        heads=5 if kind == "medusa" else 1,
        head_blocks=1 if kind == "medusa" else 0,
        side_parameters=2 * target.vocab_size * MARKOV_RANK if kind in ("dspark", "domino") else 0,
        notes=(DERIVED_SOURCE,),
    )


def _derived_layers(kind: DrafterKind, target: ModelSpec) -> tuple[LayerRun, ...]:
    """Return the layers of a derived head: the target's heads, and its dense MLP width."""
    count = _HEAD_SHAPES[kind].layers
    if not count:
        return ()
    hidden = target.hidden_size
    attention = next(
        (
            run.attention
            for run in target.layers
            if isinstance(run.attention, GroupedQueryAttention)
        ),
        GroupedQueryAttention(num_heads=32, num_kv_heads=8, head_dim=128),
    )
    wide = 2 * hidden if kind in ("eagle3", "peagle") else None
    dense = [run.mlp.intermediate_size for run in target.layers if isinstance(run.mlp, DenseMlp)]
    only_dense = len(dense) == len(target.layers)
    return (
        LayerRun(
            repeat=count,
            attention=GroupedQueryAttention(
                num_heads=attention.num_heads,
                num_kv_heads=attention.num_kv_heads,
                head_dim=attention.head_dim,
                input_size=wide,
            ),
            mlp=DenseMlp(intermediate_size=max(dense) if only_dense else 4 * hidden),
        ),
    )
