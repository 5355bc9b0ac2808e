"""Counts against real instantiations on the meta device (only with the extra ``oracle``)."""

from __future__ import annotations

import copy
import json

import pytest

from roofline.importers.config_files import read_source
from tests.published import CONFIGS, total

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

FAMILIES = [
    "meta-llama--Llama-3.2-1B", "mistralai--Mistral-7B-v0.1", "mistralai--Mixtral-8x7B-v0.1",
    "Qwen--Qwen2.5-7B", "Qwen--Qwen3-8B", "Qwen--Qwen3-30B-A3B", "Qwen--Qwen1.5-MoE-A2.7B",
    "Qwen--Qwen3-Next-80B-A3B-Instruct", "google--gemma-2-9b", "google--gemma-7b",
    "google--gemma-3-1b", "openai--gpt-oss-20b", "deepseek-ai--DeepSeek-V2-Lite",
    "deepseek-ai--DeepSeek-V3", "CohereForAI--aya-23-8B", "tiiuae--falcon-180B",
    "allenai--OLMo-2-1124-7B", "microsoft--Phi-3-mini-128k-instruct", "bigcode--starcoder2",
    "zai-org--GLM-4.5", "MiniMaxAI--MiniMax-M2.5", "ibm-granite--granite-3.3-8b-instruct",
    "LGAI-EXAONE--EXAONE-4.0-32B",
]  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.filterwarnings("ignore")
def test_parameters_of_a_real_instantiation(name: str) -> None:
    data = copy.deepcopy(json.loads(json.dumps(read_source(CONFIGS / f"{name}.json").data)))
    for key in ("quantization_config", "auto_map"):
        data.pop(key, None)
    config = transformers.AutoConfig.for_model(data.pop("model_type"), **data)
    with torch.device("meta"):
        network = transformers.AutoModelForCausalLM.from_config(config)
    count = sum(parameter.numel() for parameter in network.parameters())
    assert total(name) == pytest.approx(count, rel=1e-4)
