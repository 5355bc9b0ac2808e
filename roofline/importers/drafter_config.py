"""A drafter's config.json read into a spec; most of them declare the class of a whole model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from roofline.base.errors import InputError, Option
from roofline.importers.attention import latent_layers, make_grouped, read_heads
from roofline.importers.config_files import ConfigFiles, schema_error
from roofline.importers.families import Family
from roofline.importers.fields import Fields, ImportLog
from roofline.importers.layers import Layer, runs_of, zip_layers
from roofline.importers.model_config import Identity
from roofline.importers.quantization import shipped_formats
from roofline.specs.formats import DType
from roofline.specs.mixers import Attention, GroupedQueryAttention, LatentAttention
from roofline.specs.network import DenseMlp, DrafterKind, DrafterSpec, FeatureFusion, ModelSpec

__all__ = ["build_drafter", "drafter_kind"]

#: Kind of drafter by a word in the class name, the longer words first.
_KIND_BY_WORD: Mapping[str, DrafterKind] = {
    "PEagle": "peagle",
    "Eagle3": "eagle3",
    "EAGLE3": "eagle3",
    "DSpark": "dspark",
    "Domino": "domino",
    "DFlare": "dflash",
    "DFlash": "dflash",
    "Medusa": "medusa",
    "Eagle": "eagle1",
    "EAGLE": "eagle1",
}
_BLOCK_KINDS: tuple[DrafterKind, ...] = ("dflash", "dspark", "domino")
#: Heads in the weights of the published Vicuna heads, whose config has the class's default of 2.
MEDUSA_HEADS = 5
EAGLE3_TAPS = 3  # layers 2, L / 2 and L - 3 where none are named


def drafter_kind(data: Mapping[str, Any]) -> DrafterKind | None:
    """Return the kind of drafter that a config describes, None for a whole model.

    A head is recognised by its class, by keys that only heads have, or (EAGLE-1) as a causal
    language model of one layer.

    >>> drafter_kind({"architectures": ["LlamaForCausalLM"], "draft_vocab_size": 32000})
    'eagle3'
    """
    if "medusa_num_heads" in data:
        return "medusa"
    names = data.get("architectures")
    stated = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    declared = data.get("speculators_model_type")
    if isinstance(declared, str):
        stated.append({"eagle": "Eagle", "eagle3": "Eagle3", "peagle": "PEagle"}.get(declared, ""))
    for word, kind in _KIND_BY_WORD.items():
        if any(word in name for name in stated):
            return kind
    config = data.get("dflash_config")
    if isinstance(config, dict):
        projector = config.get("projector_type")
        return projector if projector in ("dspark", "domino") else "dflash"
    if "draft_vocab_size" in data or "eagle_config" in data:
        return "eagle3"
    one_layer = data.get("num_hidden_layers") == 1 and type(data["num_hidden_layers"]) is int
    return "eagle1" if one_layer and stated == ["LlamaForCausalLM"] else None


def build_drafter(
    source: ConfigFiles, identity: Identity, *, target: ModelSpec | None = None, target_id: str = ""
) -> tuple[DrafterSpec, ImportLog]:
    """Return the spec that a drafter's config describes, and the log of reading it."""
    kind = drafter_kind(source.data)
    if kind is None:
        raise InputError(f"{source.name}: is a whole model, not a drafter")
    log = ImportLog()
    log.read.update({"model_type", "architectures", "speculators_model_type"})
    layer = source.data.get("transformer_layer_config")  # as the speculators library nests it
    data = {**layer, **source.data} if isinstance(layer, dict) else dict(source.data)
    fields = Fields(file=source.name, data=data, log=log)
    if not target_id:
        target_id = target.id if target is not None else "unknown"
    try:
        with log.all_faults():
            values = _values(kind, fields, source, target)
            spec = DrafterSpec(
                schema=1,
                kind=kind,
                id=identity.id,
                name=identity.name,
                source=identity.source,
                repository=identity.repository,
                license=identity.license,
                target=target_id,
                notes=tuple(log.notes),
                **values,
            )
    except ValidationError as error:
        raise schema_error(source, error) from None
    return spec, log


def _values(
    kind: DrafterKind, fields: Fields, source: ConfigFiles, target: ModelSpec | None
) -> dict[str, Any]:
    if kind == "medusa":
        return _medusa(fields, target)
    hidden = fields.integer("hidden_size")
    values = _common(fields, source, hidden)
    if kind in _BLOCK_KINDS:
        return values | _block(kind, fields, hidden)
    if kind == "eagle1":
        return values | _eagle1(fields, hidden)
    return values | _eagle3(fields, hidden)


def _common(fields: Fields, source: ConfigFiles, hidden: int) -> dict[str, Any]:
    vocabulary = fields.integer("vocab_size")
    formats = shipped_formats(fields, source, [], hidden)
    return {
        "hidden_size": hidden,
        "vocab_size": vocabulary,
        "draft_vocab_size": vocabulary,
        "trained_context": fields.optional("max_position_embeddings", "max_sequence_length"),
        "dtype": formats.base,
        "kv_dtype": formats.kv,
    }


def _mlp(fields: Fields) -> DenseMlp:
    return DenseMlp(
        intermediate_size=fields.integer("intermediate_size"), biases=fields.flag("mlp_bias")
    )


def _eagle1(fields: Fields, hidden: int) -> dict[str, Any]:
    """Return the fields of an EAGLE-1 head, which projects in every pass and has no own head."""
    count = fields.integer("num_hidden_layers")
    attention = make_grouped(fields, Family(), read_heads(fields, hidden))
    fields.log.note("one layer and no draft vocabulary: taken for an EAGLE-1 head")
    return {
        "layers": runs_of([Layer(attention=attention, mlp=_mlp(fields), norms=1)] * count),
        "fusion": FeatureFusion(taps=2, target_hidden_size=hidden, every_pass=True, bias=True),
        "shares_head": True,
        "final_norm": False,
    }


def _taps(fields: Fields) -> tuple[int, ...]:
    """Return the target's layers that are read, as ``eagle_config`` or the config names them."""
    key = "eagle_aux_hidden_state_layer_ids"
    inner = fields.inner("eagle_config")
    layers = inner.integers(key) if inner is not None else None
    return tuple(layers or fields.integers(key) or ())


def _eagle3(fields: Fields, hidden: int) -> dict[str, Any]:
    """Return the fields of an EAGLE-3 head: taps of the target fused once, layers, its own head.

    P-EAGLE has the same fields and more layers, of which the first also reads the embedding.
    """
    count = fields.integer("num_hidden_layers")
    taps = _taps(fields)
    if not taps:
        why = "no layers named: 2, L/2 and L-3 are tapped"
        fields.log.default("eagle_aux_hidden_state_layer_ids", EAGLE3_TAPS, why)
    draft = fields.optional("draft_vocab_size")
    vocabulary = fields.integer("vocab_size")
    if draft is None:
        draft = fields.log.default("draft_vocab_size", vocabulary, "absent: the full vocabulary")
    return {
        "layers": runs_of(_fused_layers(fields, hidden, count)),
        "fusion": FeatureFusion(
            taps=len(taps) or EAGLE3_TAPS,
            target_hidden_size=fields.optional("target_hidden_size") or hidden,
            layer_ids=taps,
        ),
        "draft_vocab_size": draft,
    }


def _fused_layers(fields: Fields, hidden: int, count: int) -> list[Layer]:
    """Return the layers of an EAGLE-3 head; the first reads both embedding and hidden state."""
    base: Attention
    if fields.has("kv_lora_rank"):
        base = latent_layers(fields, Family(mixing="mla"), hidden=hidden, layers=1)[0]
    else:
        base = make_grouped(fields, Family(), read_heads(fields, hidden))
    mlp = _mlp(fields)
    layers: list[Layer] = []
    for index in range(min(count, 1000)):
        input_size = 2 * hidden if index == 0 else None
        attention = base.model_copy(update={"input_size": input_size})
        assert isinstance(attention, GroupedQueryAttention | LatentAttention)
        layers.append(Layer(attention=attention, mlp=mlp, norms=3 if index == 0 else 2))
    return layers


def _block(kind: DrafterKind, fields: Fields, hidden: int) -> dict[str, Any]:
    """Return the fields of DFlash, DSpark or Domino: taps fused once, layers over a block."""
    config = fields.inner("dflash_config") or fields
    taps = config.integers("target_layer_ids")
    if not taps:
        raise InputError(f"{fields.file}: {config.path}target_layer_ids: is missing; add it")
    count = fields.integer("num_hidden_layers")
    attention = make_grouped(fields, Family(qk_norm="head"), read_heads(fields, hidden))
    mixing: list[Attention] = [attention] * min(count, 1000)
    return {
        "layers": runs_of(zip_layers(mixing, [_mlp(fields)] * len(mixing), norms=2)),
        "fusion": FeatureFusion(taps=len(taps), target_hidden_size=hidden, layer_ids=tuple(taps)),
        "shares_head": True,
        "extra_norms": 1,
        "block_size": fields.integer("block_size"),
        "side_parameters": _side_parameters(kind, fields, config, hidden),
    }


def _side_parameters(kind: DrafterKind, fields: Fields, config: Fields, hidden: int) -> int:
    """Return the weights of DSpark's Markov and confidence heads, or of Domino's recurrent one.

    Markov, as SpecForge has it: two matrices, 2 V rank; 77.8 M for V = 151,936 and rank 256.
    Confidence: one row over the hidden state and, if the config says so, the Markov state, with a
    bias. Domino, assumed: a GRU of u units over embeddings of e, 3 u (e + u + 2) as PyTorch holds
    it, and 2 V e for the embeddings and the correction.
    """
    vocabulary = fields.integer("vocab_size")
    if kind == "dspark":
        rank = config.optional("markov_rank") or 0
        count = 2 * vocabulary * rank
        if config.flag("enable_confidence_head"):
            count += hidden + (rank if config.flag("confidence_head_with_markov") else 0) + 1
        return count
    if kind == "domino":
        width, units = config.optional("emb_dim") or 0, config.optional("gru_hidden_dim") or 0
        fields.log.note("the shapes of Domino's recurrent head are assumed")
        return 3 * units * (width + units + 2) + 2 * vocabulary * width
    return 0


def _medusa(fields: Fields, target: ModelSpec | None) -> dict[str, Any]:
    """Return the fields of Medusa: heads of residual blocks, each with its own projection."""
    heads = fields.integer("medusa_num_heads")
    base = fields.text("base_model_name_or_path") or ""
    if heads == 2 and "vicuna" in base:
        why = f"the config says {heads}, the published weights hold {MEDUSA_HEADS}"
        heads = fields.log.default("medusa_num_heads", MEDUSA_HEADS, why)
    if target is None:
        raise InputError(
            f"{fields.file}: hidden_size: a Medusa config does not state it; give "
            f"{Option('target')} with the model it was made for ({base or 'not named'})"
        )
    return {
        "hidden_size": target.hidden_size,
        "vocab_size": target.vocab_size,
        "draft_vocab_size": target.vocab_size,
        "dtype": DType.BF16,
        "layers": (),
        "fusion": FeatureFusion(taps=0, target_hidden_size=target.hidden_size),
        "final_norm": False,
        "heads": heads,
        "head_blocks": fields.integer("medusa_num_layers"),
    }
