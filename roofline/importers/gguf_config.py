"""A GGUF header turned into a config, which the same families read; its tensors verify the spec."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from roofline.base.errors import InputError, Option, did_you_mean
from roofline.importers.config_files import ConfigFiles
from roofline.importers.drafter_config import build_drafter
from roofline.importers.fields import ImportLog
from roofline.importers.gguf import GgufHeader, read_gguf
from roofline.importers.model_config import Identity, build_model
from roofline.kernels.footprint import parameters_total
from roofline.specs.formats import Component, DType, bytes_per_element
from roofline.specs.network import DrafterKind, DrafterSpec, ModelSpec, NetworkSpec

__all__ = ["build_from_gguf", "config_of"]

#: GGUF's ``general.architecture`` and the config class that reads it.
ARCHITECTURES: Mapping[str, str] = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen2moe": "qwen2_moe",
    "qwen3": "qwen3",
    "qwen3moe": "qwen3_moe",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
    "phi2": "phi",
    "phi3": "phi3",
    "starcoder2": "starcoder2",
    "command-r": "cohere",
    "olmo2": "olmo2",
    "exaone4": "exaone4",
    "granite": "granite",
    "deepseek2": "deepseek_v3",
    "gpt-oss": "gpt_oss",
    "glm4moe": "glm4_moe",
    "minimax-m2": "minimax_m2",
    "internlm2": "internlm2",
    "baichuan": "baichuan",
}
#: Heads by their architecture, and those of them whose header is read.
HEADS: Mapping[str, DrafterKind] = {"eagle3": "eagle3", "dflash": "dflash", "dspark": "dspark"}
READ_HEADS = ("eagle3",)
_KEYS: Mapping[str, str] = {
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "context_length": "max_position_embeddings",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.sliding_window": "sliding_window",
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    "expert_shared_count": "n_shared_experts",
    "leading_dense_block_count": "first_k_dense_replace",
    "attention.q_lora_rank": "q_lora_rank",
    "attention.kv_lora_rank": "kv_lora_rank",
    "attention.value_length_mla": "v_head_dim",
    "rope.dimension_count": "qk_rope_head_dim",
    "nextn_predict_layers": "num_nextn_predict_layers",
}
#: Component by a pattern in a tensor's name; the first match counts.
_COMPONENTS: tuple[tuple[str, Component], ...] = (
    (r"_norm\b|_norm\.|_norm_2\.|norm\.weight|\.bias$|rope_|sinks", Component.NORM),
    (r"^token_embd", Component.EMBEDDING),
    (r"^output\.weight", Component.HEAD),
    (r"ffn_gate_inp", Component.ROUTER),
    (r"ffn_\w+_exps", Component.EXPERTS),
    (r"ffn_\w+_shexp", Component.SHARED_EXPERTS),
    (r"ffn_", Component.MLP),
    (r"ssm_|attn_gate", Component.MIXER),
    (r"attn_", Component.ATTENTION),
)
#: Letters of a model's name.
LONGEST_MODEL_NAME = 60
_LAYER = re.compile(r"^blk\.(\d+)\.")


def _single_value(header: GgufHeader, key: str) -> Any:
    """Return a value; a list by layer must have the same for every layer."""
    value = header.metadata.get(key)
    if isinstance(value, tuple):
        if len(set(value)) > 1:
            raise InputError(
                f"{header.name}: {key}: differs from layer to layer, which is not supported for "
                "GGUF files; give the model's config.json"
            )
        return value[0] if value else None
    return value


def config_of(header: GgufHeader) -> dict[str, Any]:
    """Return the config.json that says the same as the metadata and the tensor table."""
    architecture = header.metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise InputError(f"{header.name}: general.architecture: is missing")
    if architecture not in ARCHITECTURES:
        raise InputError(
            f"{header.name}: general.architecture: '{architecture[:40]}' is not known, and none "
            f"is guessed; {did_you_mean(architecture, ARCHITECTURES)}"
        )
    config: dict[str, Any] = {"model_type": ARCHITECTURES[architecture]}
    config |= _stated(header, architecture)
    return config | _keys_from_tensors(header, config)


def _stated(header: GgufHeader, architecture: str) -> dict[str, Any]:
    """Return the keys that the metadata state, under config.json's names."""
    config: dict[str, Any] = {}
    for key, name in _KEYS.items():
        value = _single_value(header, f"{architecture}.{key}")
        if value is not None and value != 0:
            config[name] = value
    blocks = _single_value(header, f"{architecture}.block_count")
    if type(blocks) is not int:
        raise InputError(f"{header.name}: {architecture}.block_count: is missing")
    config["num_hidden_layers"] = blocks - config.get("num_nextn_predict_layers", 0)
    return config


def _keys_from_tensors(header: GgufHeader, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that tensors decide: vocabulary, tied embeddings, biases, MLA's widths."""
    tensors = {tensor.name: tensor for tensor in header.tensors}
    embedding = tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise InputError(f"{header.name}: token_embd.weight: is missing; give the first split file")
    keys: dict[str, Any] = {
        "vocab_size": embedding.shape[1],
        "tie_word_embeddings": "output.weight" not in tensors,
    }
    if "kv_lora_rank" in config:
        width = config.get("head_dim", 0)
        mla = _single_value(
            header, f"{header.metadata['general.architecture']}.attention.key_length_mla"
        )
        rope = config.get("qk_rope_head_dim", 0)
        keys["qk_nope_head_dim"] = (mla or width) - rope
        if "v_head_dim" not in config:
            key = f"{header.metadata['general.architecture']}.attention.value_length"
            keys["v_head_dim"] = _single_value(header, key)
    elif "num_experts" in config and config["model_type"] == "llama":
        keys |= {"model_type": "mixtral", "moe_intermediate_size": config["intermediate_size"]}
    if config["model_type"] in ("llama", "gpt_oss", "glm4_moe") and "blk.0.attn_q.bias" in tensors:
        keys["attention_bias"] = True
    if config["model_type"] == "gpt_oss":
        count = config["num_hidden_layers"]
        kinds = ("sliding_attention", "full_attention")
        keys["layer_types"] = [kinds[layer % 2] for layer in range(max(min(count, 2000), 0))]
    return keys


def build_from_gguf(
    path: Path, identity: Identity, *, target: ModelSpec | None = None, target_id: str = ""
) -> tuple[NetworkSpec, ImportLog]:
    """Return the spec that a GGUF file's header describes.

    The tensors must hold as many parameters as the metadata describe, within 1 %; so a wrong
    reading cannot pass. Of a file in several parts only the first part's tensors are there, and
    the check is left out.
    """
    header = read_gguf(path)
    if _kind_of_head(header) is not None:
        return _build_head(header, identity, target=target, target_id=target_id)
    # a header says no format between the products: stated here, so that none is said to be missing
    data = config_of(header) | {"dtype": "bfloat16"}
    stated = header.metadata.get("general.name")
    if isinstance(stated, str) and stated.strip() and stated.isprintable():
        identity = replace(identity, name=stated.strip()[:LONGEST_MODEL_NAME])
    spec, log = build_model(ConfigFiles(name=header.name, data=data), identity)
    parts = header.metadata.get("split.count")
    if isinstance(parts, int) and parts > 1:
        log.note(f"first of {parts} parts: formats are those of the tensors in this part")
    else:
        _check_count(header, spec)
    formats = _formats(header, log, tied=spec.tie_embeddings)
    log.note("products run in bf16: a GGUF file does not say")
    changes = {"dtypes": formats, "notes": tuple(log.notes)}
    return spec.model_copy(update=changes), log


def _kind_of_head(header: GgufHeader) -> DrafterKind | None:
    """Return the kind of drafter that a header describes, None for a whole model."""
    return HEADS.get(str(header.metadata.get("general.architecture")))


def _build_head(
    header: GgufHeader, identity: Identity, *, target: ModelSpec | None, target_id: str
) -> tuple[DrafterSpec, ImportLog]:
    """Return the spec of the EAGLE-3 head that a header describes; refuse other heads.

    Read in llama.cpp b11434, src/models/eagle3.cpp: one layer whose attention reads embedding and
    fused state, ``fc`` over three layers of the target. Its output has ``d2t``'s rows where the
    vocabulary is reduced; without an output of its own it takes the target's.
    """
    kind = _kind_of_head(header)
    if kind not in READ_HEADS:
        raise InputError(
            f"{header.name}: is a {kind} head, which is not read from GGUF; give the folder with "
            f"its config.json, or {Option('drafter', str(kind))} for a head of the usual shape"
        )
    data = _stated(header, "eagle3")
    tensors = {tensor.name: tensor for tensor in header.tensors}
    output, reduced = tensors.get("output.weight"), tensors.get("d2t")
    embedding = tensors.get("token_embd.weight")
    vocabulary = embedding.shape[1] if embedding and len(embedding.shape) == 2 else None
    vocabulary = vocabulary or _single_value(header, "eagle3.vocab_size")
    vocabulary = vocabulary or header.lengths.get("tokenizer.ggml.tokens")
    layers = header.metadata.get("eagle3.target_layers")
    if not isinstance(layers, tuple) or len(layers) != 3:
        raise InputError(f"{header.name}: eagle3.target_layers: expected 3 layers of the target")
    own_rows = output.shape[-1] if output else vocabulary
    data |= {
        "architectures": ["LlamaForCausalLMEagle3"],
        "vocab_size": vocabulary,
        "draft_vocab_size": reduced.shape[0] if reduced else own_rows,
        "target_hidden_size": _single_value(header, "eagle3.target_hidden_size"),
        "eagle_aux_hidden_state_layer_ids": list(layers),
        "dtype": "bfloat16",
    }
    data = {key: value for key, value in data.items() if value is not None}
    source = ConfigFiles(name=header.name, data=data)
    spec, log = build_drafter(source, identity, target=target, target_id=target_id)
    spec = spec.model_copy(update={"shares_head": output is None})
    formats = _formats(header, log, tied=False)
    own = (tensor for tensor in header.tensors if tensor.name not in _SHARED)
    held = sum(tensor.parameters for tensor in own if "rope_" not in tensor.name)
    _check_parameters(header, held, parameters_total(spec))
    log.note("products run in bf16: a GGUF file does not say")
    return spec.model_copy(update={"dtypes": formats, "notes": tuple(log.notes)}), log


#: Tensors of a head that are its target's as well, or no weights.
_SHARED = ("token_embd.weight", "d2t")


def _check_count(header: GgufHeader, spec: ModelSpec) -> None:
    """Refuse a spec whose parameters are not those of the tensors, MTP layers left out."""
    held = 0
    for tensor in header.tensors:
        layer = _LAYER.match(tensor.name)
        if "rope_" not in tensor.name and (layer is None or int(layer[1]) < spec.num_layers):
            held += tensor.parameters
    _check_parameters(header, held, parameters_total(spec))


def _check_parameters(header: GgufHeader, held: int, described: int) -> None:
    if abs(held / described - 1) > 0.01:
        raise InputError(
            f"{header.name}: its tensors hold {held / 1e9:.3f} B parameters but its metadata "
            f"describe {described / 1e9:.3f} B; give the model's config.json"
        )


def _component(name: str) -> Component | None:
    matches = (component for pattern, component in _COMPONENTS if re.search(pattern, name))
    return next(matches, None)


def _formats(header: GgufHeader, log: ImportLog, *, tied: bool) -> dict[Component, DType]:
    """Return each component's format: that of its tensors, or the nearest to their mean bits."""
    types_of: dict[Component, Counter[str]] = {}
    sizes: Counter[Component] = Counter()
    parameters: Counter[Component] = Counter()
    for tensor in header.tensors:
        component = _component(tensor.name)
        if component is not None:
            types_of.setdefault(component, Counter())[tensor.type] += tensor.parameters
            sizes[component] += int(tensor.bytes)
            parameters[component] += tensor.parameters
    formats: dict[Component, DType] = {}
    for component, types in types_of.items():
        if len(types) == 1:
            formats[component] = DType(next(iter(types)))
            continue
        mean = sizes[component] / parameters[component]
        nearest = min(DType, key=lambda dtype: abs(bytes_per_element(dtype) - mean))
        formats[component] = nearest
        log.note(
            f"{component}: {', '.join(sorted(types))} mixed, {8 * mean:.2f} bits a weight: counted "
            f"as {nearest}"
        )
    if tied and Component.EMBEDDING in formats:
        formats[Component.HEAD] = formats[Component.EMBEDDING]
    return {component: dtype for component, dtype in formats.items() if dtype != DType.BF16}
