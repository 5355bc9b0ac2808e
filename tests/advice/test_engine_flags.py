"""The flag to paste, parsed the way the engine would (engines.md, read in their sources)."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from roofline.advice.configuration import Configuration
from roofline.advice.deployment import deploy
from roofline.advice.question import question_of
from roofline.advice.recommend import recommend
from roofline.render.data import point_data
from roofline.specs.engine import load_engine
from roofline.specs.formats import DType
from tests.support import ROOT, Cli, assert_refused, write

HEAD = "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"


def flag(cli: Cli, *arguments: str, draft: int = 5) -> str:
    point = cli(
        "recommend", "llama-3.1-8b", "--context", "1k", "--acceptance", f"al:{draft}={draft + 0.9}",
        "--max-draft-length", str(draft), "--format", "json", *arguments,
    ).point()  # fmt: skip
    assert point["draft_length"] == draft
    return str(point["flag"])


def options(text: str) -> dict[str, str]:
    words = shlex.split(text)
    return dict(zip(words[::2], words[1::2], strict=True))


def vllm(text: str) -> Any:
    name, value = shlex.split(text)
    assert name == "--speculative-config"
    return json.loads(value)


def test_vllm_eagle3(cli: Cli) -> None:
    """V: method, model, num_speculative_tokens, the latter being D."""
    assert vllm(flag(cli, "--engine", "vllm")) == {
        "method": "eagle3", "model": HEAD, "num_speculative_tokens": 5,
    }  # fmt: skip


def test_vllm_ngram(cli: Cli) -> None:
    """V: prompt_lookup_max is required for ngram."""
    config = vllm(flag(cli, "--engine", "vllm", "--drafter", "ngram", draft=3))
    assert config["method"] == "ngram"
    assert config["num_speculative_tokens"] == 3
    assert config["prompt_lookup_max"] > 0


@pytest.mark.parametrize("draft_tp", [1, 4])
def test_vllm_draft_model(cli: Cli, draft_tp: int) -> None:
    """V: draft_tensor_parallel_size is 1 or the target's TP."""
    config = vllm(
        flag(cli, "--tp", "4", "--drafter", "llama-3.2-1b", "--draft-tp", str(draft_tp), draft=4)
    )
    assert config["method"] == "draft_model"
    assert config["num_speculative_tokens"] == 4
    assert config["draft_tensor_parallel_size"] == draft_tp


def test_sglang_eagle3(cli: Cli) -> None:
    """S: with top-k 1, steps = D and draft tokens = D + 1; all three are printed."""
    found = options(flag(cli, "--engine", "sglang"))
    assert found == {
        "--speculative-algorithm": "EAGLE3",
        "--speculative-draft-model-path": HEAD,
        "--speculative-num-steps": "5",
        "--speculative-eagle-topk": "1",
        "--speculative-num-draft-tokens": "6",
        "--max-running-requests": "48",
    }


def test_sglang_dspark_is_given_its_block(cli: Cli) -> None:
    """S, _handle_dspark: gamma is the block size, the head's own unless given, and draft tokens
    other than gamma + 1 are refused."""
    found = options(flag(cli, "--engine", "sglang", "--drafter", "dspark", draft=5))
    assert found["--speculative-dspark-block-size"] == "5"
    assert found.get("--speculative-num-draft-tokens", "6") == "6"


#: SGLang 0.5.23, arg_groups/speculative_hook.py: what it sets with every speculative algorithm
#: where --max-running-requests is left out.
RESET = 48


def sglang_runs(text: str, *, groups: int = 1) -> int:
    """S: a data-parallel rank runs the flag // dp_size (_resolve_max_num_reqs)."""
    return groups * (int(options(text)["--max-running-requests"]) // groups)


@pytest.mark.parametrize("drafter", ["eagle3", "llama-3.2-1b", "ngram", "dflash", "dspark"])
@pytest.mark.parametrize(("batch", "least"), [("8", RESET), ("100", 100), ("3,64,16", 64)])
def test_sglang_runs_the_batch_that_is_priced(
    cli: Cli, drafter: str, batch: str, least: int
) -> None:
    """Without the flag 48 requests run, whatever was asked for; the flag never asks for less."""
    asked = ("--engine", "sglang", "--drafter", drafter, "--gpu", "b200-hgx", "--batch", batch)
    points = cli(
        "recommend",
        "llama-3.1-8b",
        "--context",
        "1k",
        "--acceptance",
        "al:1=1.9,2=2.8,3=3.6",
        "--format",
        "json",
        *asked,
    ).data()["points"]
    flags = [point["flag"] for point in points if point["draft_length"]]
    assert flags
    assert {sglang_runs(text) for text in flags} == {least}


def test_sglang_shares_running_requests_out_over_groups(cli: Cli) -> None:
    """At DP 8 the default is 6 on each rank: 100 requests need 13 on each, the flag says 104."""
    text = str(
        cli(
            "recommend",
            "deepseek-v3",
            "--gpu",
            "h200-sxm",
            "--tp",
            "8",
            "--dp-attention",
            "8",
            "--engine",
            "sglang",
            "--drafter",
            "mtp",
            "--acceptance",
            "0.9",
            "--batch",
            "100",
            "--context",
            "1k",
            "--format",
            "json",
        ).point()["flag"]
    )
    assert sglang_runs(text) == 104
    assert 104 // 8 == 13 >= 100 / 8


def test_sglang_times_the_batch_that_is_priced(cli: Cli) -> None:
    rows = cli(
        "recommend",
        "llama-3.1-8b",
        "--engine",
        "sglang",
        "--batch",
        "64",
        "--context",
        "1k",
        "--acceptance",
        "0.9",
        "--format",
        "json",
    ).point()["benchmark"]
    drafted = [row["flag"] for row in rows if row["draft_length"]]
    assert drafted
    assert all("--max-running-requests 64" in text for text in drafted)


def test_sglang_runs_as_many_as_a_load_is_judged_with(cli: Cli) -> None:
    """A histogram of batches up to 70 needs 70 at once."""
    data = cli(
        "recommend",
        "llama-3.1-8b",
        "--engine",
        "sglang",
        "--batches-histogram",
        "8:0.5,70:0.5",
        "--acceptance",
        "0.9",
        "--context",
        "1k",
        "--format",
        "json",
    ).data()
    assert data["draft_length"] > 0
    assert sglang_runs(data["flag"]) == 70


#: What runs where the flag is left out. vLLM 0.33.0, vllm/engine/arg_utils.py, get_batch_defaults;
#: llama.cpp b11434, tools/server/server.cpp ("n_parallel is set to auto, using n_parallel = 4").
UNTOLD = {
    ("vllm", "h100-sxm"): ("--max-num-seqs", 1024),
    ("vllm", "a100-sxm-80gb"): ("--max-num-seqs", 256),
    ("vllm", "rtx-4090"): ("--max-num-seqs", 256),
    ("llamacpp", "rtx-4090"): ("--parallel", 4),
}


@pytest.mark.parametrize(("engine", "gpu"), UNTOLD)
@pytest.mark.parametrize("acceptance", ["0", "0.9"])
def test_an_engine_is_told_of_more_requests_than_it_runs_by_itself(
    engine: str, gpu: str, acceptance: str
) -> None:
    name, most = UNTOLD[engine, gpu]
    for batch in (most, most + 1):
        asked = question_of(
            model="qwen3-0.6b", gpu=gpu, engine=engine, drafter="ngram", acceptance=acceptance,
            batches=(batch,), contexts=(128,),
        )  # fmt: skip
        answer = recommend(asked)
        text = str(point_data(answer, answer.points[0])["flag"])
        assert (f" {name} {batch} " in f" {text} ") is (batch > most), text


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp"])
@pytest.mark.parametrize("drafter", ["ngram", "eagle3", "llama-3.2-1b"])
@pytest.mark.parametrize("running", [1, 8, 5000])
def test_flags_are_words_of_a_shell(engine: str, drafter: str, running: int) -> None:
    """No option begins inside another's value."""
    asked = Configuration(model="llama-3.1-8b", engine=engine, drafter=drafter)
    words = shlex.split(deploy(asked)[0].launch.flags(3, running=running))
    assert [w for w in words if not w.startswith("{") and "--" in w[2:]] == []


def test_each_rank_of_vllm_has_requests_of_its_own() -> None:
    """DP 8: every rank has a scheduler, so 2,400 requests are 300 of each, and 8,000 are 1,000."""
    asked = Configuration(
        model="deepseek-v3", gpu="h200-sxm", tp=8, dp_attention=8, engine="vllm", drafter="mtp",
        kv=DType.FP8,
    )  # fmt: skip
    launch = deploy(asked)[0].launch
    assert "--max-num-seqs" not in launch.flags(1, running=8192)
    assert "--max-num-seqs 1025" in launch.flags(1, running=8193)
    assert "--max-num-seqs 300" in launch.flags(1, running=2400, most=True)


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        ("vllm", "--max-num-seqs"),
        ("sglang", "--max-running-requests"),
        ("llamacpp", "--parallel"),
    ],
)
@pytest.mark.parametrize("tpot", ["9", "12"])
def test_a_goal_is_kept_by_running_no_more_than_its_batch(
    cli: Cli, engine: str, name: str, tpot: str
) -> None:
    """More sequences take longer for a token: the batch that keeps the limit is the most to run."""
    asked = (
        "recommend", "llama-3.1-8b", "--gpu", "h100-sxm", "--engine", engine, "--context", "1k",
        "--slo-tpot", tpot, "--drafter", "llama-3.2-1b", "--acceptance", "0.6",
    )  # fmt: skip
    data = cli(*asked, "--format", "json").data()
    (choice,), (point,) = data["goal"]["choices"], data["points"]
    assert re.findall(rf"(?:^| ){name} (\d+)", point["flag"]) == [str(choice["batch"])]
    assert f"{name} {choice['batch']}" in " ".join(cli(*asked).out.split())


def test_no_other_engine_is_told(cli: Cli) -> None:
    for engine in ("vllm", "trtllm"):
        text = flag(cli, "--engine", engine)
        assert "running" not in text
        assert "seqs" not in text


def test_sglang_draft_model_and_ngram(cli: Cli) -> None:
    model = options(flag(cli, "--engine", "sglang", "--drafter", "llama-3.2-1b", draft=3))
    assert model["--speculative-algorithm"] == "STANDALONE"
    assert model["--speculative-num-steps"] == "3"
    assert model["--speculative-num-draft-tokens"] == "4"
    ngram = options(flag(cli, "--engine", "sglang", "--drafter", "ngram", draft=3))
    assert ngram["--speculative-algorithm"] == "NGRAM"
    assert ngram["--speculative-num-draft-tokens"] == "4"


@pytest.mark.parametrize(
    ("drafter", "kind"),
    [("eagle3", "Eagle3"), ("llama-3.2-1b", "Draft_Target"), ("ngram", "NGram")],
)
def test_trtllm_is_yaml(cli: Cli, drafter: str, kind: str) -> None:
    """Td, T: speculative_config with decoding_type and max_draft_len = D."""
    text = flag(cli, "--engine", "trtllm", "--drafter", drafter, draft=4)
    config = yaml.safe_load(text)["speculative_config"]
    assert config["decoding_type"] == kind
    assert config["max_draft_len"] == 4
    if drafter == "eagle3":
        assert config["speculative_model"] == HEAD


def test_llamacpp(cli: Cli) -> None:
    """L: --spec-draft-n-max N, once --draft-max; ngram-simple has a size of its own."""
    text = flag(cli, "--engine", "llamacpp", "--drafter", "llama-3.2-1b", draft=4)
    assert options(text)["--spec-draft-n-max"] == "4"
    text = flag(cli, "--engine", "llamacpp", "--drafter", "ngram", draft=4)
    assert options(text)["--spec-ngram-simple-size-m"] == "4"
    assert "--draft-max" not in text


#: What ``--spec-type`` takes in build b11434 (common/arg.cpp) that drafts by itself.
LLAMACPP_TYPES = {
    "draft-simple",
    "draft-eagle3",
    "draft-mtp",
    "draft-dflash",
    "draft-dspark",
    "ngram-simple",
    "ngram-map-k",
    "ngram-map-k4v",
    "ngram-mod",
    "ngram-cache",
}


@pytest.mark.parametrize("kind", [k for k in load_engine("llamacpp").flags if k != "none"])
def test_llamacpp_switches_every_drafter_on(kind: str) -> None:
    """``--spec-type`` is none by default: a draft model alone is loaded and never asked."""
    text = load_engine("llamacpp").flag(kind, draft_length=3, draft_weights="head", draft_tp=1)
    assert options(text)["--spec-type"] in LLAMACPP_TYPES


def test_llamacpp_draft_model_is_draft_simple(cli: Cli) -> None:
    """llama.cpp issue 25345: with --model-draft and --spec-draft-n-max alone nothing is drafted."""
    text = flag(cli, "--engine", "llamacpp", "--drafter", "llama-3.2-1b", draft=4)
    assert options(text) == {
        "--spec-type": "draft-simple",
        "--model-draft": "PATH-TO-llama-3.2-1b.gguf",
        "--spec-draft-n-max": "4",
    }


def test_llamacpp_headline_names_the_flag_of_the_drafter(cli: Cli) -> None:
    base = ("recommend", "llama-3.1-8b", "--engine", "llamacpp", "--acceptance", "0.8")
    assert "(spec-draft-n-max)" in cli(*base, "--drafter", "llama-3.2-1b").out
    assert "(spec-ngram-simple-size-m)" in cli(*base, "--drafter", "ngram").out


def test_without_drafts_only_the_flags_that_stay_are_pasted(cli: Cli) -> None:
    base = (
        "recommend", "llama-3.1-8b", "--engine", "llamacpp", "--gpu", "rtx-4090", "--gpus", "2",
        "--drafter", "none",
    )  # fmt: skip
    assert cli(*base, "--format", "json").point()["flag"] == "--split-mode layer"
    assert "\n  --split-mode layer\n(leave --spec-type and --model-draft out)\n" in cli(*base).out


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "llamacpp"])
def test_without_drafts_nothing_is_switched_on(cli: Cli, engine: str) -> None:
    point = cli(
        "recommend", "llama-3.1-8b", "--engine", engine, "--drafter", "ngram", "--acceptance", "0",
        "--format", "json",
    ).point()  # fmt: skip
    assert "leave" in point["flag"]
    assert "out" in point["flag"]


def test_an_engine_without_the_drafter_is_refused(cli: Cli) -> None:
    """common_speculative_types of b11434 has no Medusa."""
    outcome = cli("recommend", "llama-3.1-8b", "--engine", "llamacpp", "--drafter", "medusa")
    assert_refused(outcome, "--engine", "llama.cpp", "medusa", "ngram")


@pytest.mark.parametrize("key", ["repository", "id"])
@pytest.mark.parametrize("name", ["plain-head", "my head", 'a "quoted" head', "it's a head"])
def test_awkward_names_survive_the_shell_or_are_refused(
    cli: Cli, tmp_path: Path, key: str, name: str
) -> None:
    """What is pasted must reach the engine whole, and start nothing else in the shell."""
    spec = (ROOT / "model_specs" / "llama-3.1-8b-eagle3.yaml").read_text("utf-8")
    old = {"repository": f"repository: {HEAD}", "id": "id: llama-3.1-8b-eagle3"}[key]
    assert old in spec
    full = f"someone/{name}" if key == "repository" else name
    text = spec.replace(old, f"{key}: {json.dumps(full)}")
    if key == "id":
        text = text.replace(f"repository: {HEAD}\n", "")
    head = write(tmp_path, "head.yaml", text)
    outcome = cli("recommend", "llama-3.1-8b", "--context", "1k", "--drafter", head)
    if outcome.code == 2:
        assert name != "plain-head"
        assert_refused(outcome, "head.yaml", key)
        return
    assert vllm(flag(cli, "--drafter", head))["model"].endswith(full)
    found = options(flag(cli, "--drafter", head, "--engine", "sglang"))
    assert found["--speculative-draft-model-path"].endswith(full)


@pytest.mark.parametrize(
    ("drafter", "kind"),
    [("somebody/qwen3_8b_eagle3", "eagle3"), ("unsloth/Qwen3-0.6B", "draft_model")],
)
def test_the_repository_that_was_named_is_run(cli: Cli, drafter: str, kind: str) -> None:
    """A head of another maker by the bundled one's name was printed as the bundled one."""
    outcome = cli("recommend", "qwen3-8b", "--gpu", "h100-sxm", "--drafter", drafter, "--notes")
    assert f'"model": "{drafter}"' in " ".join(outcome.out.split())
    assert f'"method": "{kind}"' in outcome.out
    assert ("is taken to be eagle3" in " ".join(outcome.out.split())) == (kind == "eagle3")


def pasted(out: str, engine: str) -> list[str]:
    """Return the lines below an engine's name, up to the next empty one."""
    below = out.partition(f"\n{engine}:\n")[2]
    assert below
    lines = below.partition("\n\n")[0].splitlines()
    return [line.removeprefix("  ") for line in lines if line.startswith("  ")]


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("groups", [(), ("--tp", "8", "--dp-attention", "8")])
def test_a_shell_takes_what_the_environment_says(
    cli: Cli, held: bool, groups: tuple[str, ...]
) -> None:
    """SGLang reads SGLANG_RAGGED_VERIFY_MODE and SGLANG_SIMULATE_ACC_LEN (0.5.23, environ.py).

    Before flags on the same line they were words of the command. As printed, in 80 columns, bash
    takes the lines.
    """
    out = cli(
        "recommend", "llama-3.1-8b", "--gpu", "h200-sxm", "--engine", "sglang", "--drafter",
        "dspark", "--acceptance", "0.7", "--hit-rate", "0.9,0.8", "--explain", *groups,
    ).out  # fmt: skip
    lines = pasted(out, "To time them with acceptance held fixed, SGLang" if held else "SGLang")
    assert max(map(len, lines)) <= 78
    wanted = {"SGLANG_RAGGED_VERIFY_MODE"} | ({"SGLANG_SIMULATE_ACC_LEN"} if held else set())
    script = "server() { env | grep ^SGLANG_; printf '%s\\n' \"$@\"; }\n"
    script += "\n".join(f"server {line}" if line.startswith("--") else line for line in lines)
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    words = done.stdout.splitlines()
    names = {word.partition("=")[0] for word in words if word.startswith("SGLANG_")}
    assert wanted <= names
    assert "SGLANG_RAGGED_VERIFY_MODE=compact" in words
    assert "--speculative-dspark-block-size" in words
    assert not any(" " in word for word in words)
