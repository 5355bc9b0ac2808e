"""What engines take, call so and refuse, by version; `make engines-texts` runs their own code.

Sources: vLLM's source packages 0.22.0 to 0.33.0 (vllm/config/speculative.py, vllm/config/vllm.py),
SGLang 0.5.23 (arg_groups/speculative_hook.py, arg_groups/fields/spec.py), llama.cpp b11434
(common/arg.cpp, common/speculative.cpp).
"""

from __future__ import annotations

import json
import re
import shlex

import pytest

from roofline.specs.engine import load_engine
from tests.support import Cli, assert_refused

ASK = ("recommend", "llama-3.1-8b", "--context", "1k", "--acceptance", "al:3=2.5")


def flag(cli: Cli, *arguments: str) -> str:
    asked = (*ASK, "--max-draft-length", "3", *arguments, "--format", "json")
    return str(cli(*asked).point()["flag"])


def options(text: str) -> dict[str, str]:
    words = shlex.split(text)
    return dict(zip(words[::2], words[1::2], strict=True))


def held(cli: Cli, *arguments: str) -> list[str]:
    asked = (*ASK, "--max-draft-length", "3", *arguments, "--format", "json")
    return [row["flag"] for row in cli(*asked).point()["benchmark"] if row["draft_length"]]


# Trees ---------------------------------------------------------------------------------------

TREE = ("--verify-width", "8", "--tree-topk", "4")


@pytest.mark.parametrize("drafter", ["eagle3", "llama-3.2-1b"])
def test_sglang_is_told_the_tree_that_is_priced(cli: Cli, drafter: str) -> None:
    """speculative_hook.py: with topk 1 the server verifies steps + 1 rows, whatever it is given."""
    told = options(flag(cli, "--engine", "sglang", "--drafter", drafter, *TREE))
    assert told["--speculative-eagle-topk"] == "4"
    assert told["--speculative-num-draft-tokens"] == "8"
    chain = options(flag(cli, "--engine", "sglang", "--drafter", drafter))
    assert chain["--speculative-eagle-topk"] == "1"
    steps = int(chain["--speculative-num-steps"])
    assert chain["--speculative-num-draft-tokens"] == str(steps + 1)


def test_a_tree_has_as_many_tokens_as_are_verified(cli: Cli) -> None:
    """eagle_utils.py, organize_draft_results: topk(7) of 4 scores fails, of 20 not."""
    asked = (*ASK, "--engine", "sglang", "--drafter", "eagle3", *TREE, "--format", "json")
    lengths = [row["draft_length"] for row in cli(*asked).point()["by_draft_length"]]
    assert lengths[:3] == [0, 2, 3]


@pytest.mark.parametrize(
    ("engine", "drafter"),
    [("vllm", "eagle3"), ("llamacpp", "llama-3.2-1b"), ("trtllm", "eagle3"), ("sglang", "dflash")],
)
def test_a_tree_is_refused_where_the_engine_drafts_a_chain(
    cli: Cli, engine: str, drafter: str
) -> None:
    """SpeculativeConfig of vLLM 0.22.0 to 0.33.0 has no token tree, common/arg.cpp no flag for one.

    TensorRT-LLM's tree grows with confidence; SGLang's block drafters have no branches.
    """
    refused = cli(*ASK, "--engine", engine, "--drafter", drafter, *TREE)
    assert_refused(refused, "--tree-topk 4", "drafts a chain")
    wide = cli(*ASK, "--engine", engine, "--drafter", drafter, *TREE[:2])
    assert_refused(wide, "--verify-width 8", "drafts a chain")


def test_a_width_without_branches_is_no_tree(cli: Cli) -> None:
    """speculative_hook.py: draft tokens are "adjusted to speculative_num_steps + 1" at top-k 1.

    It was priced with 8 rows, and printed as a chain of 1 + D.
    """
    refused = cli(*ASK, "--engine", "sglang", "--drafter", "eagle3", *TREE[:2])
    assert_refused(refused, "--verify-width 8", "1 + D", "--tree-topk")


# What stands beside the speculative flag ------------------------------------------------------


@pytest.mark.parametrize(
    ("gpu", "tp", "batch", "captured"),
    [
        ("l40s", "1", "32", None),  # below 60 GiB: 32
        ("l40s", "1", "33", "33"),
        ("l40s", "4", "100", None),  # from TP 4 on 160
        ("rtx-4090", "1", "49", "49"),  # below 35 GiB: 48
        ("h100-sxm", "1", "256", None),  # below 160 GiB: 256
        ("h100-sxm", "1", "257", "257"),
        ("b200-hgx", "1", "512", None),
    ],
)
def test_sglang_captures_the_batch_that_is_priced(
    cli: Cli, gpu: str, tp: str, batch: str, captured: str | None
) -> None:
    """memory_hook.py: the largest batch of its decode graphs by memory and TP."""
    asked = ("--gpu", gpu, "--tp", tp, "--batch", batch, "--weights", "fp8", "--kv", "fp8")
    row = held(cli, *asked, "--engine", "sglang", "--drafter", "eagle3")[0]
    assert options(row.partition("\n")[2]).get("--cuda-graph-max-bs-decode") == captured


def test_sglang_divides_its_requests_among_ranks(cli: Cli) -> None:
    """_resolve_max_num_reqs: 104 // 8 = 13 on each rank; 13 x 8 = 104 hold 100."""
    said = cli(
        "recommend", "deepseek-v3", "--gpu", "b200-hgx", "--tp", "8", "--dp-attention", "8",
        "--engine", "sglang", "--drafter", "mtp", "--acceptance", "0.8", "--batch", "100",
    ).said  # fmt: skip
    assert "--max-running-requests 104" in said
    assert "Each of the 8 data-parallel ranks runs 13 requests at once" in said


def test_vllm_is_told_the_rows_that_it_is_to_capture(cli: Cli) -> None:
    """compilation.py, max_cudagraph_capture_size; what it captures by itself needs no flag."""
    asked = ("--gpu", "b200-hgx", "--drafter", "eagle3", "--batch", "16")
    assert "capture" not in flag(cli, *asked)
    told = flag(cli, *asked, "--set", "engine.graphs.up_to=2048")
    assert told.endswith(" --max-cudagraph-capture-size 2048")


@pytest.mark.parametrize(
    ("model", "drafter", "weights"),
    [
        ("qwen3-8b", "dflash", "z-lab/Qwen3-8B-DFlash-b16"),
        ("qwen3-8b", "dspark", "deepseek-ai/dspark_qwen3_8b_block7"),
        ("qwen3-32b", "eagle3", "AngelSlim/Qwen3-32B_eagle3"),
        ("gpt-oss-120b", "eagle3", "lmsys/EAGLE3-gpt-oss-120b-bf16"),
        ("llama-3.1-8b", "eagle3", "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"),
        ("phi-4", "eagle3", "PATH-TO-phi-4-eagle3"),
    ],
)
def test_a_head_is_named_by_its_published_weights(
    cli: Cli, model: str, drafter: str, weights: str
) -> None:
    """Repositories as the heads' authors name them; where none is known, what to put there."""
    asked = ("recommend", model, "--gpu", "b200-hgx", "--drafter", drafter, "--acceptance", "0.8")
    assert f'"model": "{weights}"' in cli(*asked, "--format", "json").point()["flag"]


# Kinds that a version does not have -----------------------------------------------------------


def test_vllm_has_no_medusa_since_0_33(cli: Cli) -> None:
    """SpeculativeMethod holds "medusa" up to 0.32.0."""
    asked = ("--drafter", "medusa", "--gpu", "h100-sxm")
    assert_refused(cli(*ASK, *asked), "--drafter", "0.33", "medusa", "0.32")
    assert '"method": "medusa"' in flag(cli, *asked, "--engine", "vllm@0.32")


def test_vllm_has_dspark_since_0_26(cli: Cli) -> None:
    """DSparkModelTypes is in 0.26.0 and not in 0.24.0."""
    asked = ("--drafter", "dspark", "--gpu", "h100-sxm")
    assert_refused(cli(*ASK, *asked, "--engine", "vllm@0.24"), "dspark", "0.26")
    assert '"method": "dspark"' in flag(cli, *asked, "--engine", "vllm@0.26")


@pytest.mark.parametrize("kind", ["medusa", "peagle", "suffix"])
def test_sglang_has_none_of_these(cli: Cli, kind: str) -> None:
    """--speculative-algorithm: EAGLE, EAGLE3, NEXTN, STANDALONE, NGRAM, DFLASH, DSPARK, UNO."""
    outcome = cli(*ASK, "--engine", "sglang", "--drafter", kind)
    assert_refused(outcome, "SGLang has no", kind)


def test_sglang_runs_domino_heads_as_dflash(cli: Cli) -> None:
    """dflash_utils.py, is_domino: a projector of DFLASH, whose block is its draft tokens."""
    found = options(flag(cli, "--engine", "sglang", "--drafter", "domino"))
    assert found["--speculative-algorithm"] == "DFLASH"
    assert found["--speculative-num-draft-tokens"] == "4"


# GPUs of the drafter --------------------------------------------------------------------------

TP = ("recommend", "llama-3.1-70b", "--gpu", "h100-sxm", "--tp", "4", "--acceptance", "al:3=2.5")


@pytest.mark.parametrize("drafter", ["llama-3.2-1b", "eagle3"])
def test_vllm_divides_a_drafter_over_1_gpu_or_the_targets(cli: Cli, drafter: str) -> None:
    """_verify_and_get_draft_tp: "cannot be other value than 1 or target model ..."."""
    asked = (*TP, "--max-draft-length", "3", "--drafter", drafter)
    assert_refused(cli(*asked, "--draft-tp", "2"), "--draft-tp 2", "1 or 4")
    text = str(cli(*asked, "--draft-tp", "1", "--format", "json").point()["flag"])
    config = json.loads(shlex.split(text)[1])
    assert config["draft_tensor_parallel_size"] == 1  # without it the target's 4 are taken


def test_sglang_divides_a_drafter_as_its_target(cli: Cli) -> None:
    """fields/spec.py has no flag for it."""
    asked = (*TP, "--engine", "sglang", "--drafter", "llama-3.2-1b")
    assert_refused(cli(*asked, "--draft-tp", "1"), "--draft-tp 1", "4, as the target")
    assert cli(*asked, "--draft-tp", "4").code == 0


@pytest.mark.parametrize("drafter", ["ngram", "deepseek-v3"])
def test_sglang_drafts_neither_by_lookup_nor_by_a_model_beside_dp_attention(
    cli: Cli, drafter: str
) -> None:
    """ "Currently ngram speculative decoding does not support dp attention", and standalone."""
    asked = ("recommend", "deepseek-v3", "--gpu", "b200-hgx", "--tp", "8", "--dp-attention", "8")
    rest = ("--engine", "sglang", "--drafter", drafter, "--acceptance", "0.7")
    assert_refused(cli(*asked, *rest), "--dp-attention 8", "SGLang does not run")


# N-grams --------------------------------------------------------------------------------------


def test_vllm_ngrams_match_two_to_four_tokens(cli: Cli) -> None:
    """With prompt_lookup_max alone the smallest is the largest: exact 4-grams only."""
    config = json.loads(shlex.split(flag(cli, "--drafter", "ngram"))[1])
    assert config["prompt_lookup_min"] < config["prompt_lookup_max"] == 4


def test_sglang_ngrams_are_a_chain(cli: Cli) -> None:
    """_handle_ngram: speculative_eagle_topk = speculative_ngram_max_bfs_breadth, 10 by default."""
    found = options(flag(cli, "--engine", "sglang", "--drafter", "ngram"))
    assert found["--speculative-ngram-max-bfs-breadth"] == "1"


# llama.cpp ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["eagle3", "dspark"])
def test_llamacpp_runs_heads_by_their_own_type(cli: Cli, kind: str) -> None:
    """common_speculative_types: draft-eagle3 and draft-dspark."""
    found = options(flag(cli, "--engine", "llamacpp", "--drafter", kind))
    assert found["--spec-type"] == f"draft-{kind}"
    assert found["--spec-draft-n-max"] == "3"
    assert found["--model-draft"].endswith(".gguf")


@pytest.mark.parametrize("drafter", ["llama-3.2-1b", "ngram"])
def test_llamacpp_holds_acceptance(cli: Cli, drafter: str) -> None:
    """--spec-synth-len: "target mean synthetic acceptance length, including the target token"."""
    found = held(cli, "--engine", "llamacpp", "--drafter", drafter)
    lengths = [float(options(text)["--spec-synth-len"]) for text in found]
    assert lengths
    assert all(1 <= length <= 4 for length in lengths)
    assert 2.5 in lengths


# TensorRT-LLM ---------------------------------------------------------------------------------


def forced(text: str) -> str:
    match = re.search(r"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS=(\S+)", text)
    assert match is not None
    return match[1]


@pytest.mark.parametrize("drafter", ["llama-3.2-1b", "ngram"])
def test_trtllm_is_given_whole_numbers_where_it_reads_no_other(cli: Cli, drafter: str) -> None:
    """The two-model path parses an int and takes a fraction for 0: 2.5 tokens are 2 drafts."""
    found = [forced(text) for text in held(cli, "--engine", "trtllm", "--drafter", drafter)]
    assert found
    assert all(number.isdigit() for number in found)
    assert "2" in found


def test_trtllm_reads_a_fraction_in_the_one_model_path(cli: Cli) -> None:
    found = [forced(text) for text in held(cli, "--engine", "trtllm", "--drafter", "eagle3")]
    assert "1.50" in found
    older = held(cli, "--engine", "trtllm==1.2", "--drafter", "eagle3")
    assert all(forced(text).isdigit() for text in older)


# Names ----------------------------------------------------------------------------------------

REFUSED = {
    "vllm": {
        "enable_adaptive_verification": "--hit-rate",
        "block": "measured with it on",
        "fly": "lossy",
        "PARD": "2 D rows",
        "use_heterogeneous_vocab": "another vocabulary",
        "draft_sample_method": "measured with it on",
    },
    "sglang": {
        "UNO": "LoRA",
        "speculative-use-block-verification": "measured with it on",
        "speculative-draft-window-size": "--set",
        "ctx_buckets": "pull request",
        "STANDALONE": "model's name",
    },
    "trtllm": {
        "SA": "ngram",
        "PARD": "2 D rows",
        "dynamic_tree": "--verify-width",
        "AUTO": "kind that it chose",
        "relaxed_acceptance": "lossy",
    },
    "llamacpp": {
        "ngram-map-k4v": "ngram",
        "ngram-mod": "ngram",
        "ngram-cache": "ngram",
        "draft-mtp,ngram-mod": "by itself",
        "p-min": "early",
    },
}


@pytest.mark.parametrize(
    ("engine", "name"), [(engine, name) for engine, names in REFUSED.items() for name in names]
)
def test_what_has_no_price_is_refused_with_the_reason(cli: Cli, engine: str, name: str) -> None:
    outcome = cli(*ASK, "--engine", engine, "--drafter", name)
    assert_refused(outcome, "--drafter", load_engine(engine).name, REFUSED[engine][name])


@pytest.mark.parametrize(
    ("model", "engine", "name", "kind"),
    [
        ("deepseek-v3", "sglang", "FROZEN_KV_MTP", "NEXTN"),
        ("qwen3-8b", "vllm", "dflash2", "dflash"),
        ("qwen3-8b", "vllm", "ngram_gpu", "ngram"),
        ("qwen3-8b", "sglang", "domino", "DFLASH"),
    ],
)
def test_what_is_another_name_of_a_kind_is_taken_as_it(
    cli: Cli, model: str, engine: str, name: str, kind: str
) -> None:
    tp = ("--gpu", "h200-sxm", "--tp", "8") if model == "deepseek-v3" else ()
    asked = ("recommend", model, *tp, "--engine", engine, "--drafter", name, "--acceptance", "0.9")
    assert kind in str(cli(*asked, "--format", "json").point()["flag"])


# Versions -------------------------------------------------------------------------------------


def test_a_release_is_named_behind_either_sign() -> None:
    for release in ("0.10", "0.30"):
        one, other = load_engine(f"vllm@{release}"), load_engine(f"vllm=={release}")
        assert one == other
    assert load_engine("vllm@0.10").era == load_engine("vllm@2025").era is not None
    assert load_engine("sglang@0.5").era is not None  # an era's own name comes first


def test_a_version_newer_than_what_is_known_says_so(cli: Cli) -> None:
    said = cli(*ASK, "--engine", "vllm@0.40", "--notes").said
    assert "vLLM 0.40 is newer than what is known" in said
    assert "newer" not in cli(*ASK, "--engine", "vllm@0.33", "--notes").said
