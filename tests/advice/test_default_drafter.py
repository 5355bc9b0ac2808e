"""The drafter that is taken where none is named, for every model of the catalogue."""

from __future__ import annotations

import pytest

from roofline.acceptance.labels import drafter_labels
from roofline.advice import drafter
from roofline.advice.drafter import default_drafter, fitting_draft_model, model_names
from roofline.base.notices import Code
from roofline.base.resources import bundled_names
from roofline.importers.references import open_drafter
from roofline.kernels.footprint import parameters_total
from roofline.specs.engine import ENGINE_SHELF, load_engine
from roofline.specs.network import MODEL_SHELF, ModelSpec, load_model, load_network
from tests.support import Cli, assert_refused

ENGINES = bundled_names(ENGINE_SHELF)
MODELS = [name for name in bundled_names(MODEL_SHELF) if isinstance(load_network(name), ModelSpec)]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", MODELS)
def test_every_default_can_be_answered(name: str, engine: str) -> None:
    """It exists, the engine has it, and its acceptance can be expected; else plain decoding."""
    model, profile = load_model(name), load_engine(engine)
    reference, said = default_drafter(model, profile)
    assert said.assumption
    kind, network = open_drafter(reference, model, vocabulary=profile.vocabulary)
    profile.check_drafter(kind)
    if kind == "none":
        assert said.code is Code.PLAIN_ASSUMED
        return
    assert network is not None
    assert drafter_labels(kind=kind, drafter=network.id, models=model_names(model)) is not None


@pytest.mark.parametrize(
    ("model", "engine", "kind"),
    [
        # the model's own layer: DeepSeek, GLM, Qwen (their model cards)
        ("deepseek-v3", "vllm", "mtp"), ("deepseek-r1", "sglang", "mtp"),
        ("glm-4.7", "vllm", "mtp"), ("qwen3.5-35b-a3b", "trtllm", "mtp"),
        ("qwen3-next-80b-a3b-instruct", "sglang", "mtp"), ("qwen3.6-27b", "llamacpp", "mtp"),
        ("glm-4.5-air", "llamacpp", "mtp"),  # llama.cpp pull request 26534
        # in the config, not in the weights: MiniMax-M2.5 issue 8, M2.7 issue 16, M3 issue 13
        ("minimax-m2.5", "vllm", "eagle3"), ("minimax-m2.7", "vllm", "none"),
        ("minimax-m3", "sglang", "eagle3"),
        # llama.cpp has no graph for the layer of these
        ("deepseek-v3", "llamacpp", "none"), ("qwen3-next-80b-a3b-instruct", "llamacpp", "none"),
        # a drafter that was made for the model, in whatever format its weights are
        ("llama-3.1-8b", "vllm", "eagle3"), ("kimi-k2.6-nvfp4", "vllm", "eagle3"),
        ("qwen3-8b", "llamacpp", "dflash"), ("kimi-k3", "sglang", "dspark"),
        ("gpt-oss-20b", "llamacpp", "none"), ("mistral-7b-v0.3", "vllm", "none"),
    ],
)  # fmt: skip
def test_the_default_is_what_exists_and_runs(model: str, engine: str, kind: str) -> None:
    assert default_drafter(load_model(model), load_engine(engine))[0] == kind


def test_deepseek_v3_drafts_with_its_own_layer(cli: Cli) -> None:
    outcome = cli("recommend", "deepseek-v3", "--gpu", "h200-sxm", "--tp", "8")
    said = " ".join(outcome.out.split())
    assert "acceptance: not measured, expected of deepseek-v3-mtp." in said
    assert "Assumed: the MTP layer that deepseek-v3 ships with as drafter" in said
    assert "expected of public runs of deepseek-v3-mtp" in said


@pytest.mark.parametrize(
    ("question", "why"),
    [
        (
            ["gpt-oss-20b", "--gpu", "rtx-4090", "--engine", "llamacpp"],
            "that llama.cpp runs (none of eagle3 is known to run)",
        ),
        (["mistral-7b-v0.3"], "No drafter is bundled for mistral-7b-v0.3"),
    ],
)
def test_without_a_drafter_the_answer_is_plain_decoding(
    cli: Cli, question: list[str], why: str
) -> None:
    outcome = cli("recommend", *question)
    assert outcome.code == 0
    assert outcome.out.startswith("Plain decoding: ")
    said = " ".join(outcome.out.partition("\n\n")[0].split())
    assert f"{why}, so plain decoding is priced; to speculate give --drafter" in said
    assert said.endswith("and --acceptance (such as 0.6).")


@pytest.mark.parametrize(
    ("model", "engine", "fits"),
    [
        # vocabularies and sizes of the published configs: Qwen3 151,936 tokens, 0.6 B and 1.7 B
        ("qwen3-32b", "llamacpp", "qwen3-0.6b"), ("qwen3-8b-fp8", "llamacpp", "qwen3-0.6b"),
        ("qwen3-4b", "llamacpp", None),  # 4.0 B: 0.6 B is more than a tenth
        # Llama 3.1 and 3.2: 128,256 tokens; Llama 2: 32,000, 6.74 B for 68.98 B
        ("llama-3.1-70b", "llamacpp", "llama-3.2-1b"), ("llama-2-70b", "llamacpp", "llama-2-7b"),
        ("meta-llama-3.1-405b-instruct-fp8", "llamacpp", "llama-3.2-1b"),
        ("llama-2-13b", "llamacpp", None),
        # Qwen2.5: 152,064 tokens, its 0.5 B 151,936; llama.cpp takes 128 more or fewer, vLLM none
        ("qwen2.5-72b", "llamacpp", "qwen2.5-0.5b"), ("qwen2.5-72b", "vllm", None),
        ("gpt-oss-20b", "llamacpp", None), ("mistral-7b-v0.3", "vllm", None),
    ],
)  # fmt: skip
def test_the_smallest_model_of_the_family_fits(model: str, engine: str, fits: str | None) -> None:
    assert fitting_draft_model(load_model(model), load_engine(engine)) == fits


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", MODELS)
def test_what_fits_can_be_run(name: str, engine: str) -> None:
    model, profile = load_model(name), load_engine(engine)
    fits = fitting_draft_model(model, profile)
    if fits is None:
        return
    kind, network = open_drafter(fits, model, vocabulary=profile.vocabulary)
    assert kind == "model"
    profile.check_drafter(kind)
    assert isinstance(network, ModelSpec)
    assert parameters_total(network) <= parameters_total(model) / 10


def test_the_draft_model_that_is_named_can_be_pasted(cli: Cli) -> None:
    on = ["--gpu", "a100-sxm-80gb", "--engine", "llamacpp", "--weights", "q4_k_m"]
    plain = " ".join(cli("recommend", "qwen3-32b", *on).out.split())
    assert "give --drafter qwen3-0.6b (or ngram) and --acceptance (such as 0.6)." in plain
    pasted = cli("recommend", "qwen3-32b", *on, "--drafter", "qwen3-0.6b", "--acceptance", "0.6")
    assert pasted.code == 0
    assert "drafter qwen3-0.6b" in " ".join(pasted.out.split())
    refused = cli("recommend", "qwen3-32b", *on, "--acceptance", "0.6")
    assert_refused(refused, "--drafter: no drafter", "give --drafter qwen3-0.6b (or ngram, ")


def test_only_the_family_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = list[str]()

    def load(name: str) -> ModelSpec:
        opened.append(name)
        return load_model(name)

    model, engine = load_model("llama-3.1-70b"), load_engine("llamacpp")
    monkeypatch.setattr(drafter, "load_model", load)
    drafter._sizes_of.cache_clear()
    fitting_draft_model(model, engine)
    assert opened
    assert all("llama-" in name for name in opened)
    assert "tinyllama-1.1b-chat-v1.0" not in opened


@pytest.mark.parametrize("gpu", ["v100", "t4"])
def test_a_part_without_bf16_runs_a_bf16_model_in_fp16(cli: Cli, gpu: str) -> None:
    """As vLLM does below compute capability 8.0, and llama.cpp."""
    outcome = cli("recommend", "qwen3-0.6b", "--gpu", gpu, "--notes")
    assert outcome.code == 0
    assert "has no bf16 rate: products run in fp16" in " ".join(outcome.out.split())
    asked = cli("recommend", "qwen3-0.6b", "--gpu", gpu, "--activations", "bf16")
    assert_refused(asked, "no bf16 rate", "fp16")


@pytest.mark.parametrize(
    "flags", [["--acceptance", "0.7"], ["--draft-tp", "1"], ["--verify-width", "4"]]
)
def test_what_is_said_of_drafts_needs_a_drafter(cli: Cli, flags: list[str]) -> None:
    assert_refused(
        cli("recommend", "mistral-7b-v0.3", *flags),
        "--drafter: no drafter is bundled for mistral-7b-v0.3", "give",
    )  # fmt: skip
