"""A model's config.json read into a spec: its family, layers, formats and vision tower."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from roofline.base.errors import InputError, did_you_mean
from roofline.importers import hybrids, mixed_attention
from roofline.importers.attention import grouped_layers, latent_layers
from roofline.importers.config_files import ConfigFiles, schema_error
from roofline.importers.families import FAMILIES, Family
from roofline.importers.fields import Fields, ImportLog, short_repr
from roofline.importers.layers import Layer, read_mtp, runs_of, zip_layers
from roofline.importers.mlps import mlp_layers
from roofline.importers.quantization import shipped_formats
from roofline.importers.windows import check_layer_types
from roofline.specs.network import ModelSpec

__all__ = [
    "NESTED_KEYS",
    "Identity",
    "build_model",
    "tower_parameters",
    "unwrap_config",
    "vision_parameters",
]

NESTED_KEYS = ("text_config", "llm_config", "language_config")
MOST_LAYERS = 2000
#: Outer keys that belong to the language model wherever they stand; the outer one wins.
OUTER_KEYS = ("tie_word_embeddings", "quantization_config", "dtype", "torch_dtype")


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """What a config does not say about itself."""

    id: str
    name: str
    source: str
    repository: str | None = None
    license: str | None = None


def unwrap_config(source: ConfigFiles) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Return the language model's keys, outer ones merged in, and the outer config."""
    outer = source.data
    inner: Any = next((outer[name] for name in NESTED_KEYS if outer.get(name) is not None), None)
    thinker = outer.get("thinker_config")
    if inner is None and isinstance(thinker, dict):
        inner = thinker.get("text_config")
    if inner is None:
        return dict(outer), outer
    if not isinstance(inner, dict):
        raise InputError(f"{source.name}: text_config: expected an object; correct the config")
    merged = dict(inner)
    for name in OUTER_KEYS:
        if outer.get(name) is not None:
            merged[name] = outer[name]
    return merged, outer


def family_of(data: Mapping[str, Any], outer: Mapping[str, Any], file: str) -> tuple[str, Family]:
    """Return the model type and the family of a config; refuse those that are not known."""
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
            f"{file}: model_type: {short_repr(model_type)} is not a known architecture, and none "
            f"is guessed; {hint}"
        )
    return model_type, FAMILIES[model_type]


def build_model(source: ConfigFiles, identity: Identity) -> tuple[ModelSpec, ImportLog]:
    """Return the spec that a config describes, and the log of reading it."""
    data, outer = unwrap_config(source)
    model_type, family = family_of(data, outer, source.name)
    log = ImportLog()
    log.read.update({"model_type", "architectures"})
    fields = Fields(
        file=source.name,
        data={**data, "model_type": model_type},
        log=log,
        class_defaults=family.missing,
    )
    try:
        with log.all_faults():
            spec = _build(fields, family, source, identity, outer)
    except ValidationError as error:
        raise schema_error(source, error) from None
    return spec, log


def _build(
    fields: Fields,
    family: Family,
    source: ConfigFiles,
    identity: Identity,
    outer: Mapping[str, Any],
) -> ModelSpec:
    hidden = fields.integer("hidden_size", "n_embd", "n_embed", "d_model")
    context = _context(fields)
    layers = build_layers(fields, family, hidden, context)
    runs = runs_of(layers)
    vocabulary = fields.integer("vocab_size", "padded_vocab_size")
    tied = fields.flag(
        "tie_word_embeddings", default=family.tied, why="not stated: the class's own default"
    )
    mtp, modules = read_mtp(fields, family, layers)
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
        other_parameters=_other_parameters(fields, family, hidden),
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


def _other_parameters(fields: Fields, family: Family, hidden: int) -> int:
    """Return the numbers outside layers, embedding and head: a norm's bias, V4's stream mixing.

    V4 mixes m residual streams before the head: m outputs of m hidden states, m biases, a scale.
    """
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
    """Return a layer's number of norm vectors, and whether its halves run in parallel.

    Parallel halves share one norm; each has its own in Falcon's newer decoder.
    """
    if family.parallel and fields.has("parallel_attn"):
        parallel = fields.flag("parallel_attn")
        if not parallel:
            return 2 * family.norms, False
        newer = fields.flag("new_decoder_architecture") or fields.has("n_head_kv")
        return (2 if newer else 1) * family.norms, True
    return family.norms, family.parallel


_BUILDERS = {
    "gemma4": mixed_attention.gemma4,
    "mimo-v2": mixed_attention.mimo_v2,
    "minimax-m3": mixed_attention.minimax_m3,
    "mllama": mixed_attention.mllama,
    "deepseek-v4": mixed_attention.deepseek_v4,
    "qwen-next": hybrids.qwen_next,
    "nemotron-nas": hybrids.nemotron_nas,
    "minimax-m1": hybrids.minimax_m1,
    "kimi-linear": hybrids.kimi_linear,
    "granite-hybrid": hybrids.granite_hybrid,
}


def tower_parameters(
    *, width: int, depth: int, mlp: int, patch: int, out: int, gated: bool = False
) -> int:
    """Return the weights of a vision transformer and a two-matrix projector into ``out``.

    Dosovitskiy et al. 2021 (ViT), counted with w = ``width``, m = ``mlp``, p = ``patch``: per layer
    4 w^2 + 4 w attention, 2 (3 gated) w m + m + w MLP, 4 w norms; 3 p^2 w patches; a projector of
    w^2 + w ``out``. Gemma 3's SigLIP-So400m has 0.417 B before the projector, positions included.

    >>> tower_parameters(width=1152, depth=27, mlp=4304, patch=14, out=5376)
    419664240
    """
    layer = 4 * width * width + 4 * width + (3 if gated else 2) * width * mlp + mlp + 5 * width
    return depth * layer + 3 * patch * patch * width + width * width + width * out


def _first_number(config: Mapping[str, Any], *names: str) -> int | None:
    values = (config.get(name) for name in names)
    return next((v for v in values if type(v) is int and 0 < v <= 2**24), None)


def vision_parameters(outer: Mapping[str, Any], hidden: int, log: ImportLog) -> int:
    """Return the vision tower's parameters, estimated from ``vision_config``, with a note."""
    config = outer.get("vision_config")
    if not isinstance(config, dict):
        return 0
    width = _first_number(config, "hidden_size", "vt_hidden_size", "embed_dim", "width")
    depth = _first_number(config, "depth", "num_hidden_layers", "vt_num_hidden_layers", "layers")
    if width is None or depth is None or depth > 1000:
        log.note("the vision tower's size is not stated and is left out")
        return 0
    mlp = _first_number(config, "intermediate_size", "vt_intermediate_size", "mlp_dim") or 4 * width
    patch = _first_number(config, "patch_size") or 14
    count = tower_parameters(width=width, depth=depth, mlp=mlp, patch=min(patch, 256), out=hidden)
    log.note(f"vision tower: about {count / 1e9:.2f} B parameters, estimated from vision_config")
    return count
