"""From a config to a spec: unwrap it, find its family, build its layers, name its formats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from roofline.base.errors import InputError, did_you_mean
from roofline.importers import hybrids, special
from roofline.importers.attention import grouped_layers, latent_layers
from roofline.importers.experts import mlp_layers
from roofline.importers.families import FAMILIES, Family
from roofline.importers.fields import Fields, Log, shown
from roofline.importers.layers import Layer, runs_of, zip_layers
from roofline.importers.mtp import read_mtp
from roofline.importers.quantization import shipped_formats
from roofline.importers.source import Source, misfit
from roofline.importers.vision import vision_parameters
from roofline.importers.windows import check_layer_types
from roofline.specs.network import ModelSpec

__all__ = ["NESTED", "Identity", "build_model", "unwrap"]

NESTED = ("text_config", "llm_config", "language_config")
MOST_LAYERS = 2000
#: Outer keys that belong to the language model wherever they stand; the outer one wins.
OUTER = ("tie_word_embeddings", "quantization_config", "dtype", "torch_dtype")


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """What a config does not say about itself."""

    id: str
    name: str
    source: str
    repository: str | None = None
    license: str | None = None


def unwrap(source: Source) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Return the language model's keys, outer ones merged in, and the outer config."""
    outer = source.data
    inner: Any = next((outer[name] for name in NESTED if outer.get(name) is not None), None)
    thinker = outer.get("thinker_config")
    if inner is None and isinstance(thinker, dict):
        inner = thinker.get("text_config")
    if inner is None:
        return dict(outer), outer
    if not isinstance(inner, dict):
        raise InputError(f"{source.name}: text_config: expected an object; correct the config")
    merged = dict(inner)
    for name in OUTER:
        if outer.get(name) is not None:
            merged[name] = outer[name]
    return merged, outer


def family_of(data: Mapping[str, Any], outer: Mapping[str, Any], file: str) -> tuple[str, Family]:
    """Return the family of a config; encoder-decoders and unknown classes are refused."""
    for config in (outer, data):
        if config.get("is_encoder_decoder") is True or config.get("model_type") in ("t5", "bart"):
            raise InputError(
                f"{file}: is an encoder-decoder, which this program does not know; decoders only"
            )
    model_type = data.get("model_type")
    if model_type is None and data.get("architectures") == ["LlamaForCausalLM"]:
        model_type = "llama"
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        hint = "state the right one"
        if isinstance(model_type, str) and len(model_type) <= 64:
            hint = did_you_mean(model_type, FAMILIES)
        raise InputError(
            f"{file}: model_type: {shown(model_type)} is not a known architecture, and none is "
            f"guessed; {hint}"
        )
    return model_type, FAMILIES[model_type]


def build_model(source: Source, identity: Identity) -> tuple[ModelSpec, Log]:
    """Return the spec that a config describes, and what reading it left to say."""
    data, outer = unwrap(source)
    model_type, family = family_of(data, outer, source.name)
    log = Log()
    log.read.update({"model_type", "architectures"})
    fields = Fields(
        file=source.name,
        data={**data, "model_type": model_type},
        log=log,
        class_defaults=family.missing,
    )
    try:
        return _build(fields, family, source, identity, outer), log
    except ValidationError as error:
        raise misfit(source, error) from None


def _build(
    fields: Fields, family: Family, source: Source, identity: Identity, outer: Mapping[str, Any]
) -> ModelSpec:
    hidden = fields.integer("hidden_size", "n_embd", "n_embed", "d_model")
    context = _context(fields)
    layers = build_layers(fields, family, hidden, context)
    runs = runs_of(layers)
    vocabulary = fields.integer("vocab_size", "padded_vocab_size")
    tied = fields.flag(
        "tie_word_embeddings", default=family.tied, why="not stated: the class's own default"
    )
    mtp, modules = read_mtp(fields, family, layers, hidden)
    formats = shipped_formats(fields, source, layers, hidden)
    return ModelSpec(
        schema=1,
        id=identity.id,
        name=identity.name,
        source=identity.source,
        repository=identity.repository,
        license=identity.license,
        hidden_size=hidden,
        vocab_size=vocabulary,
        max_context=context,
        tie_embeddings=tied,
        head_bias=family.head_bias or fields.flag("lm_head_bias"),
        positions=_positions(fields, family),
        vision_parameters=vision_parameters(outer, hidden, fields.log),
        other_parameters=_outside(fields, family, hidden),
        dtype=formats.base,
        dtypes=formats.components,
        kv_dtype=formats.kv,
        activations=formats.activations,
        layers=runs,
        mtp=mtp,
        mtp_modules=modules,
        notes=tuple(fields.log.notes),
    )


def _context(fields: Fields) -> int:
    value = fields.optional(
        "max_position_embeddings",
        "n_positions",
        "max_sequence_length",
        "seq_length",
        "n_ctx",
        "model_max_length",
    )
    if value is None:
        return fields.log.default("max_position_embeddings", 4096, "not stated: a safe length")
    return value


def _positions(fields: Fields, family: Family) -> int:
    if family.positions is None:
        return 0
    return fields.integer(family.positions) + family.extra_positions


def _outside(fields: Fields, family: Family, hidden: int) -> int:
    """Return the numbers outside layers, embedding and head: a norm's bias, V4's stream mixing."""
    count = hidden if family.norm_bias else 0
    if fields.data.get("model_type") == "bloom":
        count += 2 * hidden  # a norm on the embedding
    streams = fields.optional("hc_mult") if family.mixing == "deepseek-v4" else None
    return count + (streams * streams * hidden + streams + 1 if streams else 0)


def build_layers(fields: Fields, family: Family, hidden: int, context: int) -> list[Layer]:
    """Return every decoder layer."""
    if family.mixing == "nemotron-h":
        return hybrids.nemotron_h(fields, family, hidden=hidden)
    count = fields.integer("num_hidden_layers", "n_layer", "num_layers")
    if count > MOST_LAYERS:
        raise fields.wrong("num_hidden_layers", f"at most {MOST_LAYERS} layers")
    builder = _BUILDERS.get(family.mixing)
    if builder is not None:
        return builder(fields, family, hidden=hidden, layers=count)
    check_layer_types(fields, count)
    if family.mixing == "mla":
        mixing = latent_layers(fields, family, hidden=hidden, layers=count)
    else:
        mixing = grouped_layers(fields, family, hidden=hidden, layers=count, context=context)
    mlps = mlp_layers(fields, family, hidden=hidden, layers=count)
    norms, parallel = _norms(fields, family)
    return zip_layers(mixing, mlps, norms=norms, parallel=parallel)


def _norms(fields: Fields, family: Family) -> tuple[int, bool]:
    """Return a layer's norm vectors: one shared in parallel, two in Falcon's newer decoder."""
    if family.parallel and fields.has("parallel_attn"):
        parallel = fields.flag("parallel_attn")
        if not parallel:
            return 2 * family.norms, False
        newer = fields.flag("new_decoder_architecture") or fields.has("n_head_kv")
        return (2 if newer else 1) * family.norms, True
    return family.norms, family.parallel


_BUILDERS = {
    "gemma4": special.gemma4,
    "mimo-v2": special.mimo_v2,
    "minimax-m3": special.minimax_m3,
    "mllama": special.mllama,
    "deepseek-v4": special.deepseek_v4,
    "qwen-next": hybrids.qwen_next,
    "nemotron-nas": hybrids.nemotron_nas,
    "minimax-m1": hybrids.minimax_m1,
    "kimi-linear": hybrids.kimi_linear,
    "granite-hybrid": hybrids.granite_hybrid,
}
