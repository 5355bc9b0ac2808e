"""Write models with random weights as GGUF files: ``python random_gguf.py FOLDER [FORMAT]``.

Small ones without a format; with one (F32, Q8_0, Q4_0), a target of 0.4 G parameters and a drafter,
whose matrices are stored so. It runs in an environment that has ``gguf`` and numpy, without the
package. Nothing of it is kept.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

#: ``<unk>``, two marks, a token for each byte, and words.
VOCABULARY = 512
WORDS = 3 + 256  # the first word; what comes before is never said
HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, INNER = 1024, 6, 16, 4, 64, 3072
DEEP = 34  # layers that make 0.4 G parameters
EXPERTS, CHOSEN, EXPERT_INNER = 4, 2, 512
#: What a layer adds is so large beside what it reads. The next token then rests mostly on the last
#: one, so that texts come back to what they said before, and a drafter that shares embedding and
#: head guesses some of them. Of a deeper stack each layer adds less.
ADDED = 0.2
#: The head reads the hidden states of these layers of the target.
TAPPED = (1, 3, 5)


class _Model:
    """A file that is being written."""

    def __init__(
        self, file: Path, architecture: str, layers: int, seed: int, stored: str = "F32"
    ) -> None:
        import gguf

        self.gguf = gguf
        self.writer = gguf.GGUFWriter(str(file), architecture)
        self.stored = gguf.GGMLQuantizationType[stored]
        self.dice = np.random.default_rng(seed)
        self.added = ADDED * min(1.0, (LAYERS / layers) ** 0.5)
        self.writer.add_context_length(4096)
        self.writer.add_embedding_length(HIDDEN)
        self.writer.add_block_count(layers)
        self.writer.add_feed_forward_length(INNER)
        self.writer.add_head_count(HEADS)
        self.writer.add_head_count_kv(KV_HEADS)
        self.writer.add_key_length(HEAD_DIM)
        self.writer.add_value_length(HEAD_DIM)
        self.writer.add_rope_dimension_count(HEAD_DIM)
        self.writer.add_layer_norm_rms_eps(1e-5)
        self.writer.add_vocab_size(VOCABULARY)
        self._words()

    def _words(self) -> None:
        names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
        names += [f"\u2581w{number}" for number in range(VOCABULARY - WORDS)]
        kinds = self.gguf.TokenType
        marks = [kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL, *[kinds.BYTE] * 256]
        marks += [kinds.NORMAL] * (VOCABULARY - len(marks))
        self.writer.add_tokenizer_model("llama")
        self.writer.add_token_list(names)
        self.writer.add_token_scores([-float(at) for at in range(VOCABULARY)])
        self.writer.add_token_types(marks)
        self.writer.add_bos_token_id(1)
        self.writer.add_eos_token_id(2)

    def random(self, name: str, *shape: int, scale: float = 1.0, silent: int = 0) -> None:
        """Add a matrix of random weights, whose products are ``scale`` times what they act on.

        The first ``silent`` rows are 0.
        """
        drawn = self.dice.standard_normal(shape, dtype=np.float32) / np.sqrt(shape[-1])
        drawn[:silent] = 0
        values = (scale * drawn).astype(np.float32)
        packed = self.gguf.quants.quantize(values, self.stored)
        self.writer.add_tensor(name, packed, raw_dtype=self.stored)

    def ones(self, name: str, size: int = HIDDEN) -> None:
        """Add the weights of a norm."""
        self.writer.add_tensor(name, np.ones(size, np.float32))

    def zeros(self, name: str, size: int) -> None:
        """Add a bias."""
        self.writer.add_tensor(name, np.zeros(size, np.float32))

    def attention(self, layer: int, *, reads: int = HIDDEN) -> None:
        """Add the projections of an attention layer that reads so many values."""
        block = f"blk.{layer}"
        self.random(f"{block}.attn_q.weight", HEADS * HEAD_DIM, reads)
        self.random(f"{block}.attn_k.weight", KV_HEADS * HEAD_DIM, reads)
        self.random(f"{block}.attn_v.weight", KV_HEADS * HEAD_DIM, reads)
        self.random(f"{block}.attn_output.weight", HIDDEN, HEADS * HEAD_DIM, scale=self.added)

    def mlp(self, layer: int, inner: int = INNER, name: str = "") -> None:
        """Add a gated MLP."""
        block = f"blk.{layer}"
        self.random(f"{block}.ffn_gate{name}.weight", inner, HIDDEN)
        self.random(f"{block}.ffn_up{name}.weight", inner, HIDDEN)
        self.random(f"{block}.ffn_down{name}.weight", HIDDEN, inner, scale=self.added)

    def experts(self, layer: int) -> None:
        """Add routed experts and a shared one."""
        block = f"blk.{layer}"
        self.random(f"{block}.ffn_gate_inp.weight", EXPERTS, HIDDEN)
        self.zeros(f"{block}.exp_probs_b.bias", EXPERTS)
        self.random(f"{block}.ffn_gate_exps.weight", EXPERTS, EXPERT_INNER, HIDDEN)
        self.random(f"{block}.ffn_up_exps.weight", EXPERTS, EXPERT_INNER, HIDDEN)
        added = self.added
        self.random(f"{block}.ffn_down_exps.weight", EXPERTS, HIDDEN, EXPERT_INNER, scale=added)
        self.mlp(layer, EXPERT_INNER, "_shexp")

    def ends(self) -> None:
        """Add the embedding, the last norm and the head: the same in every file."""
        own, self.dice = self.dice, np.random.default_rng(0)
        self.random("token_embd.weight", VOCABULARY, HIDDEN, scale=np.sqrt(HIDDEN))
        self.ones("output_norm.weight")
        self.random("output.weight", VOCABULARY, HIDDEN, silent=WORDS)
        self.dice = own

    def write(self) -> None:
        """Write the file."""
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def llama(file: Path, *, layers: int = LAYERS, seed: int = 7, stored: str = "F32") -> None:
    """Write a dense target, or a smaller drafter."""
    model = _Model(file, "llama", layers, seed, stored)
    model.ends()
    for layer in range(layers):
        model.ones(f"blk.{layer}.attn_norm.weight")
        model.attention(layer)
        model.ones(f"blk.{layer}.ffn_norm.weight")
        model.mlp(layer)
    model.write()


def with_mtp(file: Path, *, layers: int = 3, seed: int = 8) -> None:
    """Write a mixture whose last layer predicts the token after next."""
    model = _Model(file, "glm4moe", layers + 1, seed)
    keys: dict[str, Any] = {
        "expert_count": EXPERTS,
        "expert_used_count": CHOSEN,
        "expert_feed_forward_length": EXPERT_INNER,
        "expert_shared_count": 1,
        "leading_dense_block_count": 1,
        "nextn_predict_layers": 1,
    }
    for name, value in keys.items():
        model.writer.add_uint32(f"glm4moe.{name}", value)
    model.ends()
    for layer in range(layers + 1):
        model.ones(f"blk.{layer}.attn_norm.weight")
        model.attention(layer)
        model.ones(f"blk.{layer}.post_attention_norm.weight")
        if layer == 0:
            model.mlp(layer)
        else:
            model.experts(layer)
    # the layer passes the token's embedding on, so that it guesses as the shared head would
    passed = np.concatenate([np.eye(HIDDEN), np.zeros((HIDDEN, HIDDEN))], axis=1)
    model.writer.add_tensor(f"blk.{layers}.nextn.eh_proj.weight", passed.astype(np.float32))
    model.ones(f"blk.{layers}.nextn.enorm.weight")
    model.ones(f"blk.{layers}.nextn.hnorm.weight")
    model.ones(f"blk.{layers}.nextn.shared_head_norm.weight")
    model.write()


def eagle3(file: Path, *, seed: int = 9) -> None:
    """Write an EAGLE-3 head of the dense target."""
    model = _Model(file, "eagle3", 1, seed)
    model.writer.add_array("eagle3.target_layers", list(TAPPED))
    model.writer.add_uint32("eagle3.target_hidden_size", HIDDEN)
    model.random("fc.weight", HIDDEN, len(TAPPED) * HIDDEN)
    model.ends()
    model.ones("blk.0.attn_norm.weight")
    model.ones("blk.0.attn_norm_2.weight")
    model.attention(0, reads=2 * HIDDEN)
    model.ones("blk.0.ffn_norm.weight")
    model.mlp(0)
    model.write()


def main() -> None:
    """Write the files."""
    folder = Path(sys.argv[1])
    if len(sys.argv) > 2:
        llama(folder / "target.gguf", layers=DEEP, stored=sys.argv[2])
        llama(folder / "drafter.gguf", layers=1, seed=10, stored=sys.argv[2])
        return
    llama(folder / "target.gguf")
    llama(folder / "drafter.gguf", layers=1, seed=10)
    with_mtp(folder / "mtp.gguf")
    eagle3(folder / "eagle3.gguf")


if __name__ == "__main__":
    main()
