"""The lines that time one draft length.

All clients' lines went through the tools' own parsers: `vllm bench serve` and `latency` of 0.32.0,
SGLang 0.5.23 `benchmark.serving` and `one_batch_server` (`make engines-texts` repeats it).
"""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roofline.advice.configuration import Configuration
from roofline.advice.deployment import deploy
from roofline.base.errors import InputError
from roofline.engines.bench_commands import (
    BenchCommands,
    bench_commands,
    requests_for_noise,
    speed_variance,
)
from roofline.specs.engine import load_engine

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
ENGINES = ("vllm", "sglang", "trtllm", "llamacpp")


def commands(engine: str, draft_length: int = 3, **more: Any) -> tuple[BenchCommands, ...]:
    drafter = more.pop("drafter", "eagle3" if engine != "llamacpp" else "ngram")
    options = {key: more.pop(key) for key in ("tp", "draft_tp") if key in more}
    model, gpu = more.pop("name", "llama-3.1-8b"), more.pop("gpu", "h100")
    asked = Configuration(model=model, gpu=gpu, engine=engine, drafter=drafter, **options)
    given: dict[str, Any] = {"model": MODEL, "batch": 8, "context": 1024} | more
    return bench_commands(deploy(asked)[0].launch, draft_length=draft_length, **given)


def options(line: str) -> dict[str, str]:
    """Return each option of a line with the word behind it."""
    words = shlex.split(line)
    return {a: b for a, b in zip(words, [*words[1:], ""], strict=True) if a.startswith("-")}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("held", [None, 2.5])
@pytest.mark.parametrize("draft_length", [0, 1, 5])
def test_every_line_can_be_pasted(engine: str, held: float | None, draft_length: int) -> None:
    """`bash -n` reads a text without running it; nothing is left to fill in but prompts."""
    for found in commands(engine, draft_length, held=held):
        done = subprocess.run(
            ["bash", "-n"], input=found.text, text=True, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
        left = found.text.replace("PATH-TO-PROMPTS", "") if held is None else found.text
        assert "PATH-TO" not in left
        assert "$flags" not in left
        assert found.result
        # what holds acceptance, or drafts, is there exactly where it is meant
        config = load_engine(engine).hold_acceptance
        assert config is not None
        marks = ("synthetic", "SIMULATE_ACC", "FORCE_NUM_ACCEPTED", "spec-synth")
        holds = any(mark in found.text for mark in marks)
        if found.tool != "llama-bench":
            assert holds == (held is not None and draft_length > 0)
        drafts = any(word in found.text for word in ("speculative", "spec-type"))
        if found.tool != "llama-bench":
            assert drafts == (draft_length > 0)


def test_vllm_is_started_with_the_length_and_loaded_by_its_own_tool() -> None:
    """random lengths are fixed without --random-range-ratio (vllm/benchmarks/datasets.py)."""
    serve, latency = commands("vllm", held=2.5, tp=2)
    assert serve.tool == "vllm bench serve"
    server = options(serve.server)
    config = json.loads(server["--speculative-config"])
    assert config["num_speculative_tokens"] == 3
    assert config["synthetic_acceptance_length"] == 2.5
    assert server["--tensor-parallel-size"] == "2"
    assert server["--host"] == "127.0.0.1"
    client = options(serve.run)
    assert client["--max-concurrency"] == "8"
    assert client["--num-prompts"] == str(serve.requests)
    assert client["--random-input-len"] == "1024"
    assert "draft_length=3" in serve.run
    assert "held=2.5" in serve.run
    assert latency.server == ""
    assert json.loads(options(latency.run)["--speculative-config"]) == config
    assert latency.unsaid == ("draft_length", "batch", "output")


def test_one_draft_length_is_no_schedule() -> None:
    """A schedule changes the graphs of vLLM's Model Runner V1; SGLang's adaptive mode lengths."""
    for engine in ENGINES:
        for found in commands(engine):
            assert "per_batch_size" not in found.text
            assert "adaptive" not in found.text
            assert "draft_len_schedule" not in found.text


def test_own_prompts_where_drafts_are_judged() -> None:
    """Acceptance on random tokens says nothing, so the tools that have no other are left out."""
    (found,) = commands("vllm", prompts="my prompts.jsonl")
    assert options(found.run)["--dataset-path"] == "my prompts.jsonl"
    assert "prompt" in found.prompts_hold
    (missing,) = commands("sglang")
    assert options(missing.run)["--dataset-path"] == "PATH-TO-PROMPTS"
    assert [f.tool for f in commands("sglang", 0)] == [
        "SGLang bench_serving",
        "SGLang bench_one_batch_server",
    ]


def test_sglang_s_lengths_do_not_vary() -> None:
    """common.py, compute_random_lens: lengths go from ratio x length up to the length."""
    serving, one_batch = commands("sglang", held=2.5)
    assert options(serving.run)["--random-range-ratio"] == "1.0"
    assert options(serving.run)["--tag"] == "draft_length=3,batch=8,held=2.5"
    assert serving.server.startswith("SGLANG_SIMULATE_ACC_LEN=2.50 ")
    assert one_batch.run.count("--run-name draft_length=3,batch=8,held=2.5") == 1


def test_tensorrt_llm_gets_its_settings_in_a_file(tmp_path: Path) -> None:
    (found,) = commands("trtllm", held=2.0)
    subprocess.run(["bash", "-c", found.settings], cwd=tmp_path, check=True)
    (file,) = tmp_path.iterdir()
    import yaml

    config = yaml.safe_load(file.read_text("utf-8"))
    assert config["speculative_config"]["max_draft_len"] == 3
    assert options(found.run)["--extra_llm_api_options"] == file.name
    assert found.run.startswith("TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS=1 ")
    assert options(found.run)["--dataset"] in found.prepare
    plain = commands("trtllm", 0)[0]
    assert plain.settings == ""
    assert "--extra_llm_api_options" not in plain.run


def test_llama_server_is_restarted_with_the_length() -> None:
    """b11434 takes no length from a request; ngram-simple drafts size-m, if size-n is no larger."""
    server, bench = commands("llamacpp", 2, batch=1)
    told = options(server.server)
    assert told["--spec-ngram-simple-size-m"] == "2"
    assert int(told["--spec-ngram-simple-size-n"]) <= 2
    assert options(bench.run)["-p"] == "3"
    # llama-server samples at 0.8 unless a request says otherwise (common/common.h, b11434)
    assert (
        '"n_predict": 200, "temperature": 0.6,'
        in commands("llamacpp", 2, output=200, temperature=0.6)[0].prompts_hold
    )
    many = commands("llamacpp", 2, batch=4)
    assert [found.tool for found in many] == ["llama-server"]  # llama-bench runs one sequence
    assert options(many[0].server)["--parallel"] == "4"
    drafter = commands("llamacpp", 4, batch=1, drafter="llama-3.2-1b")
    assert options(drafter[0].server)["--spec-draft-n-max"] == "4"


def test_names_of_files_hold_nothing_to_run() -> None:
    found = commands("vllm", name="llama-3.1-8b")[0]
    assert found.result == "vllm-D3-b8-c1024.json"
    hostile = bench_commands(
        deploy(Configuration(model="llama-3.1-8b", gpu="h100", engine="vllm", drafter="eagle3"))[
            0
        ].launch,
        model="x; touch $(y)",
        draft_length=1,
        batch=1,
        context=8,
        held=1.5,
        name="a b;c`d`$(e)",
    )[0]
    assert "--model 'x; touch $(y)'" in hostile.run
    assert hostile.result == "a-b-c-d-e-D1-b1-c8.json"


def test_the_noise_formula_against_drawn_requests() -> None:
    """Requests drawn one by one: logits shifted by 0.45, then steps until 256 tokens are out.

    Brute force of `speed_variance` without the scatter of steps (0.1 of a step's time, which adds
    0.01 x AL / L).
    """
    rng = np.random.default_rng(7)
    rates = np.array([0.75, 0.65, 0.6])
    survival = np.cumprod(rates)
    speeds = []
    for _ in range(4000):
        logits = np.log(rates / (1 - rates)) + 0.45 * rng.standard_normal()
        own = 1 / (1 + np.exp(-logits))
        accepted = np.cumprod(rng.random((150, 3)) < own, axis=1).sum(axis=1)
        tokens = 1 + accepted
        speeds.append(tokens.sum() / 150)
    drawn = float(np.var(speeds) / np.mean(speeds) ** 2)
    mean = 1 + survival.sum()
    known = speed_variance(survival=list(survival), output=150 * mean, batch=1) - 0.01 / 150
    assert known == pytest.approx(drawn, rel=0.12)


def test_noise_sets_how_long_to_run() -> None:
    """Half the noise takes four times the requests; held acceptance needs fewer."""
    survival = [0.7, 0.5, 0.35]
    asked: dict[str, Any] = {"survival": survival, "output": 256, "batch": 1}
    one, half = (requests_for_noise(**asked, noise=noise) for noise in (0.015, 0.0075))
    assert half / one == pytest.approx(4, rel=0.05)
    assert requests_for_noise(**asked, held=True) < one
    assert requests_for_noise(survival=[], output=256, batch=64) == 256  # four of each client


@pytest.mark.parametrize(
    "bad",
    [
        {"draft_length": 65},
        {"batch": 0},
        {"context": 0},
        {"output": 1},
        {"noise": float("nan")},
        {"temperature": -1},
    ],
)
def test_impossible_asks_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(bad))):
        commands("vllm", **bad)


def test_every_tool_says_where_it_was_read() -> None:
    for engine in ENGINES:
        tools = load_engine(engine).bench
        assert tools
        assert all(tool.source and tool.dated for tool in tools)
