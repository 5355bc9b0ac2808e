"""Write the models that are served: python served_models.py FOLDER [deep [LAYERS]].

All have random weights. Small ones; ``deep`` writes a target of 0.4 G parameters, or fewer layers
of it, and a drafter, so that kernels take time.
It runs in the environment of the server, without the package, and nothing of it is kept. Random
weights say nothing of a real drafter's acceptance: the target as its own drafter has all drafts
accepted, another random model none, and n-grams some, since greedy random text soon repeats.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

VOCABULARY = 512
#: Hidden size of the target, wide enough that a client keeps up with its passes, and of a drafter.
WIDE, NARROW = 512, 128
LAYERS, MODULES = 8, 1  # EAGLE-3 reads three different layers of a target from eight on
DEEP_WIDE, DEEP_NARROW, DEEP = 1024, 256, 26
HEAD_DIM = 32
SEED = 7


def main() -> None:
    """Write the target, a small drafter, an EAGLE-3 head and a target with an MTP layer."""
    import torch

    torch.manual_seed(SEED)
    folder = Path(sys.argv[1])
    tokenizer = _tokenizer()
    if sys.argv[2:3] == ["deep"]:
        layers = int(sys.argv[3]) if sys.argv[3:] else DEEP
        llama(folder / "target", tokenizer, hidden=DEEP_WIDE, layers=layers)
        llama(folder / "drafter", tokenizer, hidden=DEEP_NARROW, layers=2)
        return
    llama(folder / "target", tokenizer, hidden=WIDE, layers=LAYERS)
    llama(folder / "drafter", tokenizer, hidden=NARROW, layers=2)
    eagle3(folder / "eagle3", tokenizer)
    mimo(folder / "mtp", tokenizer)


def _tokenizer() -> Any:
    """Return a tokenizer of words: w0, w1 and so on."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import PreTrainedTokenizerFast

    words = {f"w{number}": number for number in range(VOCABULARY - 1)} | {"unk": VOCABULARY - 1}
    tokenizer = Tokenizer(WordLevel(words, unk_token="unk"))
    tokenizer.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="unk")


def _llama_config(*, hidden: int, layers: int, **more: Any) -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // HEAD_DIM,
        num_key_value_heads=hidden // (2 * HEAD_DIM),
        max_position_embeddings=2048,
        bos_token_id=0,
        eos_token_id=VOCABULARY - 1,
        tie_word_embeddings=False,
        **more,
    )


def llama(to: Path, tokenizer: Any, *, hidden: int, layers: int) -> None:
    """Write a Llama."""
    import torch
    from transformers import LlamaForCausalLM

    config = _llama_config(hidden=hidden, layers=layers)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(to)
    tokenizer.save_pretrained(to)


def _block(name: str, *, hidden: int, inputs: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a Llama layer whose attention reads ``inputs`` numbers a token."""
    kv, wide = hidden // 2, 4 * hidden
    return {
        f"{name}.self_attn.q_proj.weight": (hidden, inputs),
        f"{name}.self_attn.k_proj.weight": (kv, inputs),
        f"{name}.self_attn.v_proj.weight": (kv, inputs),
        f"{name}.self_attn.o_proj.weight": (hidden, hidden),
        f"{name}.mlp.gate_proj.weight": (wide, hidden),
        f"{name}.mlp.up_proj.weight": (wide, hidden),
        f"{name}.mlp.down_proj.weight": (hidden, wide),
        f"{name}.input_layernorm.weight": (hidden,),
        f"{name}.post_attention_layernorm.weight": (hidden,),
    }


def _write(
    to: Path, tokenizer: Any, shapes: dict[str, tuple[int, ...]], config: dict[str, Any]
) -> None:
    """Write random weights of these shapes; norms, which have one dimension, are ones."""
    import torch
    from safetensors.torch import save_file

    weights = {
        name: torch.ones(shape) if len(shape) == 1 else 0.02 * torch.randn(shape)
        for name, shape in shapes.items()
    }
    to.mkdir(parents=True)
    save_file(
        {name: weight.to(torch.bfloat16) for name, weight in weights.items()},
        to / "model.safetensors",
        metadata={"format": "pt"},
    )
    (to / "config.json").write_text(json.dumps(config, indent=1), "utf-8")
    tokenizer.save_pretrained(to)


def eagle3(to: Path, tokenizer: Any) -> None:
    """Write an EAGLE-3 head for the target, in the published form with one ``midlayer``."""
    config = _llama_config(hidden=WIDE, layers=1).to_dict()
    config |= {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": VOCABULARY}
    shapes = {
        **_block("midlayer", hidden=WIDE, inputs=2 * WIDE),
        "midlayer.hidden_norm.weight": (WIDE,),
        "fc.weight": (WIDE, 3 * WIDE),
        "norm.weight": (WIDE,),
        "lm_head.weight": (VOCABULARY, WIDE),
    }
    _write(to, tokenizer, shapes, config | {"dtype": "bfloat16"})


def mimo(to: Path, tokenizer: Any) -> None:
    """Write a target of MiMo's form: a Qwen2 with an MTP layer."""
    config = _llama_config(hidden=WIDE, layers=LAYERS).to_dict()
    config |= {
        "architectures": ["MiMoForCausalLM"],
        "model_type": "qwen2",
        "num_nextn_predict_layers": MODULES,
        "dtype": "bfloat16",
    }
    shapes = {
        "model.embed_tokens.weight": (VOCABULARY, WIDE),
        "model.norm.weight": (WIDE,),
        "lm_head.weight": (VOCABULARY, WIDE),
    }
    blocks = [f"model.layers.{at}" for at in range(LAYERS)]
    blocks += [f"model.mtp_layers.{at}" for at in range(MODULES)]
    for block in blocks:
        shapes |= _block(block, hidden=WIDE, inputs=WIDE)
        for projection, rows in (("q", WIDE), ("k", WIDE // 2), ("v", WIDE // 2)):
            shapes[f"{block}.self_attn.{projection}_proj.bias"] = (rows,)
    for block in blocks[LAYERS:]:
        shapes |= {
            f"{block}.{norm}layernorm.weight": (WIDE,) for norm in ("token_", "hidden_", "final_")
        }
        shapes[f"{block}.input_proj.weight"] = (WIDE, 2 * WIDE)
    _write(to, tokenizer, shapes, config)


if __name__ == "__main__":
    main()
