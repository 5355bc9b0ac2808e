"""Which formats of weights and of the KV cache an engine serves; the others are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from roofline.advice.configuration import Configuration
from roofline.advice.deployment import deploy
from roofline.base.errors import InputError
from roofline.base.names import spec_file
from roofline.specs.engine import ENGINE_SHELF, EngineProfile, load_engine
from roofline.specs.formats import DType
from tests.support import ENGINE, GPU, MODEL, Cli, assert_refused, write

ASK = ("recommend", "llama-3.1-8b", "--short", "-q")


@pytest.mark.parametrize(
    ("engine", "part", "dtype", "generation", "served"),
    [
        # ggml.h, enum ggml_type: no 8-bit float, no groups of int4, NVFP4 and MXFP4
        ("llamacpp", "weights", "fp8", "hopper", False),
        ("llamacpp", "weights", "int4-g128", "hopper", False),
        ("llamacpp", "weights", "ud-q4_k_xl", "apple", True),
        ("llamacpp", "weights", "4.7bpw", "ada", True),
        ("llamacpp", "weights", "mxfp4", "ada", True),
        # llama.cpp arg.cpp, kv_cache_types
        ("llamacpp", "kv", "q8_0", "ada", True),
        ("llamacpp", "kv", "fp8", "ada", False),
        ("llamacpp", "kv", "q6_k", "ada", False),
        # vllm/config/cache.py, CacheDType; nvfp4 by FlashInfer for FP4 tensor cores, from 0.21
        ("vllm", "kv", "nvfp4", "hopper", False),
        ("vllm", "kv", "nvfp4", "blackwell", True),
        ("vllm==0.20", "kv", "nvfp4", "blackwell", False),
        ("vllm==0.21.1", "kv", "nvfp4", "blackwell", True),
        ("vllm", "kv", "int8", "ampere", True),
        ("vllm", "kv", "q8_0", "hopper", False),
        ("vllm", "weights", "q4_k_m", "ada", True),
        ("vllm", "weights", "nvfp4", "ampere", True),
        # SGLang server_args.py, --kv-cache-dtype
        ("sglang", "kv", "int8", "hopper", False),
        ("sglang", "kv", "mxfp4", "blackwell", True),
        # TensorRT-LLM, features/quantization
        ("trtllm", "weights", "q4_k_m", "hopper", False),
        ("trtllm", "weights", "mxfp4", "hopper", True),
        ("trtllm", "kv", "nvfp4", "hopper", False),
        ("trtllm", "kv", "fp8", "hopper", True),
    ],
)  # fmt: skip
def test_what_is_served(engine: str, part: str, dtype: str, generation: str, served: bool) -> None:
    from roofline.specs.formats import parse_dtype

    assert load_engine(engine).serves(part, parse_dtype(dtype, part), generation) is served


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("--engine llamacpp --weights fp8", "--weights fp8: llama.cpp serves no fp8 weights"),
        ("--engine llamacpp --kv fp8", "llama.cpp keeps no KV cache in fp8"),
        ("--kv fp4", "vLLM keeps no KV cache in nvfp4 on h100-sxm (it does on blackwell"),
        ("--kv nvfp4 --gpu b200 --engine vllm==0.20", "in nvfp4 before version 0.21"),
        (
            "--engine llamacpp --drafter llama-3.2-1b --acceptance 0.7 --draft-weights fp8",
            "--draft-weights fp8: llama.cpp serves no fp8 weights",
        ),
    ],
)
def test_what_is_not_served_is_refused(cli: Cli, options: str, line: str) -> None:
    assert_refused(cli(*ASK, *options.split()), line, "the nearest that it does: --")


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "llamacpp"])
@pytest.mark.parametrize("part", ["weights", "kv"])
def test_the_nearest_is_served_itself(engine: str, part: str) -> None:
    """A remedy that is refused in turn would send its reader round in a circle."""
    profile = load_engine(engine)
    for dtype in DType:
        nearest = profile.nearest_served(part, dtype, DType.BF16)
        assert profile.serves(part, nearest, "hopper"), (dtype, nearest)


def test_the_nearest_has_about_as_many_bits() -> None:
    """Whole bits of a weight: Q8_0 8.5, Q4_K_M 4.89, int4 in groups of 128 4.16, fp8 8."""
    local, trtllm = load_engine("llamacpp"), load_engine("trtllm")
    assert local.nearest_served("weights", DType.FP8, DType.BF16) == "q8_0"
    assert local.nearest_served("weights", DType.INT4_G128, DType.BF16) == "q4_k_m"
    assert local.nearest_served("kv", DType.FP8, DType.BF16) == "q8_0"
    assert trtllm.nearest_served("weights", DType.Q4_K_M, DType.BF16) == "int4-g128"


def test_a_model_that_ships_otherwise_is_refused_too(cli: Cli) -> None:
    line = "deepseek-v3 ships as fp8-block, and llama.cpp serves no fp8-block weights"
    assert_refused(cli("memory", "deepseek-v3", "--engine", "llamacpp"), line, "--weights q8_0")
    granite = ("recommend", "granite-3.3-8b-instruct-fp8", "--engine", "llamacpp")
    assert_refused(cli(*granite), "ships as fp8", "--weights q8_0")
    assert cli(*granite, "--weights", "q8_0", "-q").code == 0
    assert cli("memory", "gpt-oss-20b", "--engine", "llamacpp", "-q").code == 0  # ships as mxfp4


def test_an_engine_of_ones_own_may_serve_anything(cli: Cli, tmp_path: object) -> None:
    from pathlib import Path

    own = write(Path(str(tmp_path)), "own.yaml", ENGINE)
    assert cli(*ASK, "--engine", str(own), "--weights", "fp8", "--kv", "q8_0").code == 0


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "llamacpp"])
def test_every_name_in_the_rules_is_a_format(engine: str) -> None:
    formats = EngineProfile.load(spec_file(engine, ENGINE_SHELF, "engine")).formats
    assert formats is not None
    known = {*map(str, DType), "gguf", "width"}
    for rule in (*formats.weights, *formats.kv):
        assert set(rule.formats) <= known


BLOCKS = ("memory", "qwen3-235b-a22b", "--gpu", "h100-sxm", "--weights", "fp8-block", "-q")


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_blocks_that_ranks_would_cut_are_refused(cli: Cli, engine: str) -> None:
    """vLLM issue 17569: 1536 / 8 = 192 is "not divisible by weight quantization block_n = 128".

    Both remedies run: 1536 / 4 = 3 x 128, and whole experts on groups of one GPU.
    """
    asked = (*BLOCKS, "--engine", engine)
    assert_refused(cli(*asked, "--tp", "8"), "1536 / 8 = 192", "use --tp 4 or --ep 8")
    assert cli(*asked, "--tp", "4").code == 0
    assert cli(*asked, "--tp", "8", "--ep", "8").code == 0


@pytest.mark.parametrize(
    "options",
    [
        "--gpu h200-sxm --engine trtllm --weights fp8-block",  # nobody has said so
        "--gpu b200-hgx --weights fp8-block",  # vLLM pull request 55867: complete blocks
        "--gpu h200-sxm --weights fp8",  # a scale for each channel
    ],
)
def test_what_may_run_is_not_refused_for_its_blocks(cli: Cli, options: str) -> None:
    assert cli("memory", "qwen3-235b-a22b", "--tp", "8", "-q", *options.split()).code == 0


@pytest.mark.parametrize(
    ("model", "tp", "refused"),
    [
        ("deepseek-v3", 8, ""),  # served so by everyone: experts and shared ones 2048 / 8 = 256
        ("qwen3-14b", 8, ""),  # MLP 17408 / 8 = 17 x 128, one KV head of 128 a GPU
        ("glm-4.5-air", 8, "MLP width .* is 10944 / 8 = 1368"),
        ("qwen3-next-80b-a3b-instruct", 8, "is 512 / 8 = 64"),
    ],
)
def test_other_parts_of_a_gpu(model: str, tp: int, refused: str) -> None:
    configuration = Configuration(
        model=model, gpu="h200-sxm", tp=tp, weights=DType.FP8_BLOCK, drafter="none"
    )
    if not refused:
        deploy(configuration)
        return
    with pytest.raises(InputError, match=refused):
        deploy(configuration)


def test_tensorrt_llm_runs_on_nvidia_alone(cli: Cli) -> None:
    remedies = {"mi300x": "--engine vllm or llamacpp", "apple-m4-max": "--engine llamacpp"}
    for gpu, remedy in remedies.items():
        asked = (*ASK, "--gpu", gpu, "--engine")
        assert_refused(cli(*asked, "trtllm"), "--engine trtllm", "of NVIDIA alone", remedy)
        assert cli(*asked, "llamacpp").code == 0
    assert cli(*ASK, "--gpu", "apple-m4-max", "--engine", "vllm").code == 0  # by a plug-in: a note


@pytest.mark.parametrize("rates", ["fp32 alone", "bf16 too"])
@pytest.mark.parametrize("engine", ["llamacpp", "vllm"])
def test_llamacpp_keeps_its_cache_in_16_bits_on_every_part(
    tmp_path: Path, rates: str, engine: str
) -> None:
    """llama.cpp b11434, common/common.h: cache_type_k = cache_type_v = GGML_TYPE_F16.

    A part without a 16-bit rate was priced with a cache in fp32: 2 layers x 2 KV heads x 64 x K and
    V are 512 elements of a token, so 1,024 B in f16 and twice that in fp32. vLLM's is the model's.
    """
    gpu = GPU.replace("generation: invented", "generation: cpu")
    if rates == "fp32 alone":
        narrow = ("    bf16", "    fp8")
        gpu = "".join(line for line in gpu.splitlines(True) if not line.startswith(narrow))
    asked = Configuration(
        model=write(tmp_path, "model.yaml", MODEL),
        gpu=write(tmp_path, "gpu.yaml", gpu),
        engine=engine,
        drafter="ngram",
    )
    deployment, _ = deploy(asked)
    own = DType.FP32 if rates == "fp32 alone" else DType.BF16
    assert deployment.target.precision.kv is (DType.FP16 if engine == "llamacpp" else own)
    one, more = (
        deployment.memory.target_cache(np.array(context), np.array(0)) for context in (1024, 2048)
    )
    width = 4 if engine == "vllm" and rates == "fp32 alone" else 2
    assert more - one == 1024 * 512 * width
    assert deploy(replace(asked, kv=DType.BF16))[0].target.precision.kv is DType.BF16
