"""What each model class does without its config saying so: a table, one line for a family.

Source: the classes' own code and defaults (transformers 5.24, the repositories' modeling files).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

__all__ = ["FAMILIES", "Family"]

Mixing = Literal[
    "gqa",
    "mla",
    "gemma4",
    "mimo-v2",
    "qwen-next",
    "nemotron-h",
    "nemotron-nas",
    "minimax-m1",
    "minimax-m3",
    "kimi-linear",
    "deepseek-v4",
    "mllama",
    "granite-hybrid",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """Facts of a model class. Flags that a config key decides are read there instead."""

    mixing: Mixing = "gqa"
    #: Input and output embedding share a matrix unless the config says otherwise.
    tied: bool = False
    #: Norm vectors of hidden size in each layer, biases of layer norms included.
    norms: int = 2
    #: The final norm has a bias too.
    norm_bias: bool = False
    parallel: bool = False
    qk_norm: Literal["head", "layer"] | None = None
    #: Biases without a key; the key ``attention_bias`` adds to them.
    qkv_bias: bool = False
    output_bias: bool = False
    #: What ``attention_bias: true`` (or ``bias_key``) covers.
    bias_key: str = "attention_bias"
    bias_on_output: bool = True
    gated: bool = True
    mlp_bias: bool = False
    #: ``intermediate_size`` is the width of one expert where no other key gives it.
    experts_use_intermediate: bool = False
    #: ``intermediate_size`` counts gate and up together.
    halved_mlp: bool = False
    #: MLP width as a multiple of the hidden size where no key gives it.
    mlp_multiple: int | None = None
    expert_biases: bool = False
    shared_gate: bool = False
    #: Shared experts of one expert's width where no key says so.
    implied_shared: bool = False
    sinks: bool = False
    head_bias: bool = False
    #: Layers with a window where neither a list nor a pattern says so.
    windows: Literal["all", "alternate", "pattern", "none"] = "all"
    #: Rows of a learned position table, by the key that gives them.
    positions: str | None = None
    extra_positions: int = 0
    #: Multi-token-prediction layers that are published though no key says so.
    implied_mtp: int = 0
    #: Whether those have the model's windowed attention and its dense MLP, not its last layer's.
    mtp_windowed: bool = False
    #: Values of the class for keys that the config may leave out.
    missing: Mapping[str, Any] = field(default_factory=dict)


_LLAMA = Family(bias_on_output=True)
_QWEN2 = Family(qkv_bias=True, windows="none")
_QWEN3 = Family(qk_norm="head", windows="none")
_QWEN_NEXT = Family(
    mixing="qwen-next", qk_norm="head", shared_gate=True, windows="none", implied_mtp=1
)
_QWEN35 = Family(mixing="qwen-next", qk_norm="head", shared_gate=True, windows="none")
_MLA = Family(mixing="mla", windows="none")
_GEMMA2 = Family(tied=True, norms=4, windows="alternate")
_GEMMA3 = Family(
    tied=True,
    norms=4,
    qk_norm="head",
    windows="pattern",
    missing={
        "vocab_size": 262208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 4096,
        "max_position_embeddings": 131072,
    },
)
_OLMO = Family(qk_norm="layer", windows="none")
_COHERE = Family(tied=True, norms=1, parallel=True)
_FALCON = Family(
    tied=True,
    parallel=True,
    norms=2,
    norm_bias=True,
    gated=False,
    mlp_multiple=4,
    bias_key="bias",
    missing={"max_position_embeddings": 2048},
)
_PHI = Family(
    norms=2,
    norm_bias=True,
    parallel=True,
    qkv_bias=True,
    output_bias=True,
    gated=False,
    mlp_bias=True,
    mlp_multiple=4,
    head_bias=True,
)
_PHIMOE = Family(norms=4, norm_bias=True, experts_use_intermediate=True)
_MIXTRAL = Family(experts_use_intermediate=True)
_ERNIE = Family(tied=True, bias_key="use_bias", windows="none")
_GLM4_MOE = Family(bias_on_output=False, windows="none")
_OLDER = Family(  # a bias on everything, LayerNorm, no gate
    tied=True,
    norms=4,
    norm_bias=True,
    qkv_bias=True,
    output_bias=True,
    gated=False,
    mlp_bias=True,
)
_GPT2 = replace(_OLDER, mlp_multiple=4, positions="n_positions")
_OPT = replace(_OLDER, positions="max_position_embeddings", extra_positions=2)
_BLOOM = replace(_OLDER, mlp_multiple=4, missing={"max_position_embeddings": 2048})

#: By ``model_type``, the inner config's where configs are nested.
FAMILIES: Mapping[str, Family] = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "ministral3": _LLAMA,
    "granite": _LLAMA,
    "smollm3": Family(tied=True),
    "baichuan": _LLAMA,
    "internlm2": Family(bias_key="bias"),
    "exaone4": _QWEN3,
    "gemma": Family(tied=True),
    "gemma2": _GEMMA2,
    "gemma3_text": _GEMMA3,
    "gemma4_text": Family(mixing="gemma4", tied=True, norms=4, qk_norm="head"),
    "qwen": Family(qkv_bias=True, halved_mlp=True),
    "qwen2": _QWEN2,
    "qwen2_vl": _QWEN2,
    "qwen2_5_vl": _QWEN2,
    "qwen2_5_vl_text": _QWEN2,
    "qwen2_moe": Family(qkv_bias=True, shared_gate=True, windows="none"),
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3,
    "qwen3_vl_text": _QWEN3,
    "qwen3_vl_moe_text": _QWEN3,
    "qwen3_next": _QWEN_NEXT,
    "qwen3_5_text": _QWEN35,
    "qwen3_5_moe_text": _QWEN35,
    "mimo": Family(bias_on_output=False, windows="none"),
    # SGLang 0.5.23, models/mimo_v2_nextn.py: swa heads, window and dense MLP; three are published,
    # and vLLM 0.33.0 (models/mimo_v2_mtp.py) and SGLang without multi-layer EAGLE run the first
    "mimo_v2_flash": Family(
        mixing="mimo-v2", bias_on_output=False, implied_mtp=1, mtp_windowed=True
    ),
    "olmo2": _OLMO,
    "olmo3": _OLMO,
    "cohere": _COHERE,
    "falcon": _FALCON,
    "RefinedWeb": _FALCON,
    "RefinedWebModel": _FALCON,
    "phi": _PHI,
    "phi-msft": _PHI,
    "phi3": _LLAMA,
    "phi4": _LLAMA,
    # biases of MLP and norms (0.02 % of the weights) are left out, as in the count it is held to
    "phi3small": Family(tied=True, qkv_bias=True, output_bias=True),
    "phimoe": _PHIMOE,
    "starcoder2": Family(tied=True, norms=4, norm_bias=True, gated=False, bias_key="use_bias"),
    "chatglm": Family(bias_key="add_qkv_bias", bias_on_output=False),
    "gpt2": _GPT2,
    "opt": _OPT,
    "bloom": _BLOOM,
    "mixtral": _MIXTRAL,
    "granitemoe": _MIXTRAL,
    "granitemoehybrid": Family(mixing="granite-hybrid", experts_use_intermediate=True),
    "gpt_oss": Family(
        experts_use_intermediate=True, expert_biases=True, sinks=True, windows="none"
    ),
    "llama4_text": Family(experts_use_intermediate=True, implied_shared=True, windows="none"),
    "minimax_m1": Family(mixing="minimax-m1", experts_use_intermediate=True),
    "minimax_m2": Family(experts_use_intermediate=True, windows="none"),
    "minimax_m3": Family(mixing="minimax-m3", windows="none"),
    "ernie4_5_moe": _ERNIE,
    "glm4_moe": _GLM4_MOE,
    "step3p7": Family(qk_norm="head", windows="none"),
    "deepseek_v2": _MLA,
    "deepseek_v3": _MLA,
    "deepseek_v32": _MLA,
    "kimi_k2": _MLA,
    "glm_moe_dsa": _MLA,
    "minicpm3": Family(mixing="mla", tied=True, windows="none"),
    "deepseek_v4": Family(mixing="deepseek-v4"),
    "deepseek_ref": Family(mixing="deepseek-v4"),
    "kimi_linear": Family(mixing="kimi-linear"),
    "nemotron_h": Family(mixing="nemotron-h", norms=1, gated=False),
    "nemotron-nas": Family(mixing="nemotron-nas"),
    "mllama_text_model": Family(mixing="mllama"),
}
