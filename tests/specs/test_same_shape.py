"""Models that have the shape of another: a spec of their own with what differs."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofline.base.errors import InputError
from roofline.base.resources import bundled_names, shelf
from roofline.base.schema import load_yaml
from roofline.kernels.footprint import parameters_total
from roofline.specs.network import MODEL_SHELF, DrafterSpec, load_model, load_network
from tests.support import Cli, write

SAME_SHAPE = {
    name: str(data["same_shape_as"])
    for name in bundled_names(MODEL_SHELF)
    if "same_shape_as" in (data := load_yaml(shelf(MODEL_SHELF) / f"{name}.yaml"))
}


def test_there_are_some() -> None:
    assert {"llama-3.3-70b-instruct", "kimi-k2.6", "glm-4.7", "qwen3.8-27b"} <= set(SAME_SHAPE)


@pytest.mark.parametrize("name", SAME_SHAPE)
def test_the_shape_is_that_of_the_other_and_the_name_its_own(name: str) -> None:
    own, other = load_network(name), load_network(SAME_SHAPE[name])
    assert (own.layers, own.hidden_size, own.vocab_size) == (
        other.layers, other.hidden_size, other.vocab_size,
    )  # fmt: skip
    assert own.repository not in (None, other.repository)
    if isinstance(own, DrafterSpec):
        assert own.name != other.name
        assert load_model(own.target).hidden_size == own.fusion.target_hidden_size
    else:
        assert own.name.endswith(f", same shape as {other.name}")


@pytest.mark.parametrize(
    ("name", "billions", "context"),
    [
        # Llama-3.3-70B: 70.55 B (unsloth and others, from the checkpoint's index); 131,072
        ("llama-3.3-70b-instruct", 70.55, 131_072),
        # model card of Qwen3-Coder-30B-A3B-Instruct: 30.5 B, 262,144 natively
        ("qwen3-coder-30b-a3b-instruct", 30.5, 262_144),
        # vLLM documentation: GLM-4.7 355B-A32B; config.json: 202,752
        ("glm-4.7", 355, 202_752),
        # documentation of Xinference: GLM-4.6 355B, 202752
        ("glm-4.6", 355, 202_752),
        # README of deepseek-ai/DeepSeek-V3: 671 B; its config.json: 163,840; cards of the others
        # say that they have its structure
        ("deepseek-v3-0324", 671, 163_840), ("deepseek-r1-0528", 671, 163_840),
        ("deepseek-v3.1", 671, 163_840), ("deepseek-v3.1-terminus", 671, 163_840),
        # documentation of Transformers, MiniMax-M2: 230 B; its configuration class: 196,608
        ("minimax-m2", 230, 196_608),
        # README of QwenLM/Qwen3 (Qwen3-2507): 235B, 30B and 4B, 256K; model card of the 4B: 4.0 B
        ("qwen3-235b-a22b-thinking-2507", 235, 262_144),
        ("qwen3-30b-a3b-thinking-2507", 30.5, 262_144),
        ("qwen3-4b-thinking-2507", 4.0, 262_144),
        # documentation of Xinference 2.10, Qwen3-Next-Thinking: 80 B, 262144
        ("qwen3-next-80b-a3b-thinking", 80, 262_144),
        # model card of Kimi-K2.6: 1 T, 256K
        ("kimi-k2.6", 1026, 262_144),
    ],
)  # fmt: skip
def test_published_sizes(name: str, billions: float, context: int) -> None:
    model = load_model(name)
    assert parameters_total(model) / 1e9 == pytest.approx(billions, rel=0.01)
    assert model.max_context == context


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("deepseek-r1-0528", "DeepSeek-R1-0528"),
        ("deepseek-ai/DeepSeek-V3-0324", "DeepSeek-V3-0324"),
        ("DeepSeek-V3.1", "DeepSeek-V3.1"), ("zai-org/GLM-4.6-FP8", "GLM-4.6"),
        ("MiniMaxAI/MiniMax-M2", "MiniMax-M2"),
    ],
)  # fmt: skip
def test_a_release_stands_under_its_own_name(cli: Cli, typed: str, name: str) -> None:
    ask = ("recommend", typed, "--gpu", "h200-sxm", "--tp", "8", "--ep", "8", "--drafter", "none")
    own = name.lower()
    assert f"{name}, same shape as " in " ".join(cli(*ask).out.split())
    data = cli(*ask, "--format", "json").data()
    assert data["inputs"]["model"] == own
    assert cli(*ask, "--format", "csv").out.splitlines()[1].startswith(f"{own},")


def test_releases_of_one_base_share_its_acceptance(cli: Cli) -> None:
    """R1-0528 was trained from V3's base; runs are published of V3's and R1's MTP alone."""
    ask = ("recommend", "deepseek-r1-0528", "--gpu", "h200-sxm", "--tp", "8")
    said = " ".join(cli(*ask, "--notes").out.split())
    assert "of public runs of the mtp drafters of models of the same base: " in said
    own = " ".join(cli("recommend", "deepseek-r1", *ask[2:], "--notes").out.split())
    assert "of public runs of deepseek-r1-mtp: " in own
    counted = " ".join(cli(*ask, "--acceptance", "deepseek-r1-mtp", "--notes").out.split())
    assert "was counted on" not in counted


def test_the_answer_speaks_of_what_was_asked_for(cli: Cli) -> None:
    question = ["--tp", "4", "--weights", "fp8"]
    table = cli("recommend", "llama-3.3-70b-instruct", *question)
    said = " ".join(table.out.split())
    assert "Llama 3.3 70B, same shape as Llama 3.1 70B (fp8 weights" in said
    assert "drafter llama-3.3-70b-instruct-eagle3" in said
    assert "acceptance: not measured, expected of eagle3 drafters of llama models" in said
    assert '"model": "yuhuili/EAGLE3-LLaMA3.3-Instruct-70B"' in said
    assert "stands in" not in table.out + table.err
    data = cli("recommend", "meta-llama/Llama-3.3-70B-Instruct", *question, "--format", "json")
    assert data.data()["inputs"]["model"] == "llama-3.3-70b-instruct"
    csv = cli("recommend", "llama-3.3-70b", *question, "--format", "csv").out
    assert csv.splitlines()[1].startswith("llama-3.3-70b-instruct,")


def test_an_own_spec_may_have_the_shape_of_a_bundled_one(tmp_path: Path) -> None:
    text = "schema: 1\nid: mine\nsame_shape_as: qwen3-8b\nname: Mine\nsource: me\nmax_context: 9\n"
    mine = load_model(write(tmp_path, "mine.yaml", text))
    assert (mine.max_context, mine.num_layers, mine.repository) == (9, 36, None)
    assert mine.name == "Mine, same shape as Qwen3 8B"
    wrong = write(tmp_path, "wrong.yaml", text.replace("qwen3-8b", "no-such"))
    with pytest.raises(InputError, match=r"wrong\.yaml: same_shape_as: expected the id"):
        load_model(wrong)
