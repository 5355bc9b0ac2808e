"""Every command states the same deployment from the same facts."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest

from tests.html_page import read_page
from tests.servers import engine, pages, server
from tests.support import Cli

MIXTURE = "qwen3-30b-a3b --gpu rtx-4090 --engine llamacpp --weights q4_k_m --host server-ddr5"
#: By name: the model and its machine, then the drafter; what every sentence must say of them.
DEPLOYMENTS: dict[str, tuple[str, str, tuple[str, ...], dict[str, Any]]] = {
    "two unlinked cards": (
        "llama-3.1-70b --gpu rtx-4090 --engine llamacpp --gpus 2 --weights q4_k_m",
        "llama-3.2-1b",
        ("2 x NVIDIA GeForce RTX 4090", "q4_k_m weights", "fp16 KV", "drafter llama-3.2-1b"),
        {"gpu": "rtx-4090", "gpus": 2, "tp": 1},
    ),
    "two unlinked cards, tensor parallel": (
        "llama-3.1-70b --gpu rtx-4090 --engine llamacpp --gpus 2 --split tensor --weights q4_k_m",
        "llama-3.2-1b",
        ("2 x NVIDIA GeForce RTX 4090", "q4_k_m weights", "fp16 KV", "drafter llama-3.2-1b"),
        {"gpu": "rtx-4090", "gpus": 2, "tp": 2},
    ),
    "two linked cards": (
        "llama-3.1-70b --tp 2 --weights fp8 --kv fp8 --gpu h200-sxm",
        "eagle3",
        ("2 x NVIDIA H200 SXM 141GB", "fp8 weights", "fp8 KV", "drafter llama-3.1-70b-eagle3"),
        {"gpu": "h200-sxm", "gpus": 2, "tp": 2},
    ),
    "groups of attention": (
        "deepseek-v3 --gpu h200-sxm --tp 8 --ep 8 --dp-attention 8",
        "mtp",
        (
            "8 x NVIDIA H200 SXM 141GB (attention in 8 data-parallel groups)",
            "drafter deepseek-v3-mtp",
        ),
        {"gpu": "h200-sxm", "gpus": 8, "tp": 8, "ep": 8, "dp_attention": 8},
    ),
    "experts beside the processor": (
        f"{MIXTURE} --cpu-experts all",
        "ngram",
        ("1 x NVIDIA GeForce RTX 4090", "fp16 KV", "drafter ngram"),
        {"gpu": "rtx-4090", "gpus": 1, "tp": 1, "cpu_expert_layers": 48, "host": "server-ddr5"},
    ),
    # what --split tensor says of one card with experts beside it changes nothing of --tp
    "two linked cards and the processor": (
        f"{MIXTURE} --cpu-experts all --tp 2 --split tensor",
        "ngram",
        ("2 x NVIDIA GeForce RTX 4090", "fp16 KV", "drafter ngram"),
        {"gpu": "rtx-4090", "gpus": 2, "tp": 2, "cpu_expert_layers": 48},
    ),
}
ONE = "--context 2k"
#: Commands that answer in words and in JSON: their own arguments, and where JSON says what of.
COMMANDS = {
    "recommend": (f"--acceptance 0.6 {ONE}", "inputs"),
    "recommend, a load": (
        "--acceptance 0.6 --rps 0.01 --input-tokens 4k --output-tokens 200",
        "inputs",
    ),
    "recommend, a goal": (f"--acceptance 0.6 {ONE} --batch 1 --objective latency", "inputs"),
    "schedule": ("--acceptance 0.6 --contexts 2k --batches 1..2", "inputs"),
    "explore": (f"--acceptance 0.6 {ONE} --vary gpu.memory.visible='120 GB'", "inputs"),
    "memory": (f"--draft-length 2 {ONE}", "inputs"),
    "diagnose": (f"{ONE} --measured 0:50ms,2:60ms:2", "inputs"),
    "compare": (ONE, "inputs"),
}
CHARTS = ("speedup", "heatmap", "breakdown", "frontier", "roofline", "attention", "explore")


def flat(text: str) -> str:
    return " ".join(text.replace("*", "").split())


def words(command: str, own: str, question: str, drafter: str) -> list[str]:
    """Return what is typed; the drafter stands where the command takes it."""
    name = f"{drafter}=0.6" if command == "compare" else drafter
    typed = re.findall(r"(?:'[^']*'|\S)+", f"{question} --drafter {name} {own}")
    return [word.replace("'", "") for word in typed]


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
@pytest.mark.parametrize("command", COMMANDS)
def test_answers_state_the_deployment(cli: Cli, deployment: str, command: str) -> None:
    question, drafter, stated, facts = DEPLOYMENTS[deployment]
    own, place = COMMANDS[command]
    name = command.partition(",")[0]
    typed = [name, *words(name, own, question, drafter)]
    outcome = cli(*typed)
    assert outcome.code == 0, outcome.err
    said = flat(outcome.out)
    assert f"on {stated[0]}" in said
    assert set(re.findall(r"\d+ x NVIDIA", said)) == {stated[0][:10]}
    # where it is stated at all, with its formats behind it where they are not the target's
    drafters = re.findall(r"; (drafter \S+?)(?: \([^)]*\))?[;.] ", said)
    assert set(drafters) <= {stated[-1]}
    if "recommend" in command:  # the answer itself names them all
        assert drafters
        assert all(part in said for part in stated)
    inputs = cli(*typed, "--format", "json").data()[place]
    assert {key: inputs[key] for key in facts} == facts
    reference = cli(
        "recommend",
        *words("recommend", COMMANDS["recommend"][0], question, drafter),
        "--format",
        "json",
    ).data()["inputs"]
    shared = ("weights", "activations", "kv", "engine", "model", "ep")
    assert {key: inputs[key] for key in shared} == {key: reference[key] for key in shared}
    if "drafter" in inputs:
        assert inputs["drafter"] == reference["drafter"]


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
@pytest.mark.parametrize("chart", CHARTS)
def test_charts_state_the_deployment(cli: Cli, tmp_path: Path, deployment: str, chart: str) -> None:
    question, drafter, stated, facts = DEPLOYMENTS[deployment]
    image, data = tmp_path / "chart.svg", tmp_path / "chart.csv"
    own = f"--drafter {drafter} --acceptance 0.6 {ONE}"
    if chart == "explore":
        typed = ["explore", *words(chart, COMMANDS["explore"][0], question, drafter)]
        outcome = cli(*typed, "--plot", str(image))
    else:
        own = ONE if chart == "attention" else own
        sizes = f"{question} {own} --batch 1".split()
        outcome = cli("plot", chart, *sizes, "-o", str(image), "--data", str(data))
    assert outcome.code == 0, outcome.err
    drawn = flat(" ".join(re.findall(r"<!-- (.*?) -->", image.read_text("utf-8"), re.DOTALL)))
    assert f"on {stated[0]}: " in drawn
    for part in stated[1:]:
        assert part in drawn or (chart == "attention" and "drafter" in part)
    if data.exists():
        row = next(csv.DictReader(data.read_text("utf-8").splitlines()))
        shown = {key: value for key, value in facts.items() if key in ("gpu", "gpus", "tp")}
        assert {key: row[key] for key in shown} == {key: str(v) for key, v in shown.items()}


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_reports_state_the_deployment(cli: Cli, tmp_path: Path, deployment: str) -> None:
    question, drafter, stated, _ = DEPLOYMENTS[deployment]
    own = f"--drafter {drafter} --acceptance 0.6 {ONE} --batches 1,2 --contexts 2k"
    path = tmp_path / "report.html"
    outcome = cli("report", *question.split(), *own.split(), "-o", str(path))
    assert outcome.code == 0, outcome.err
    page = read_page(path)
    said = flat(page.words)
    assert f"on {stated[0]}" in said
    assert all(part in said for part in stated)
    assert set(re.findall(r"\d+ x NVIDIA", said)) == {stated[0][:10]}


@pytest.mark.usefixtures("clock")
def test_a_server_is_stated_as_it_was_read(cli: Cli) -> None:
    """vLLM's page in development mode: an 8B model on two linked H100s."""
    with server(engine(pages("vllm-dev"))) as url:
        used = cli("live", url, "--interval", "0", "--format", "json").data()["used"]
    with server(engine(pages("vllm-dev"))) as url:
        data = cli("recommend", "--live", url, "--interval", "0", "--format", "json").data()
    asked: dict[str, Any] = data["inputs"]
    assert (used["gpu"], used["gpus"], used["tp"]) == ("h100-sxm", 2, 2)
    for key in ("model", "gpu", "gpus", "tp", "ep", "weights", "kv", "drafter"):
        assert used[key] == asked[key]


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_figures_per_gpu_count_every_gpu(cli: Cli, tmp_path: Path, deployment: str) -> None:
    """Tokens/s of all users over the number of GPUs; their price is that of all GPUs."""
    question, drafter, _, facts = DEPLOYMENTS[deployment]
    own = f"{question} --drafter {drafter} --acceptance 0.6 {ONE} --batch 1".split()
    asked = ("recommend", *own, "--gpu-hour", "2", "--format", "json")
    by_length = cli(*asked).by_draft_length()
    data = tmp_path / "frontier.csv"
    assert cli("plot", "frontier", *own, "--data", str(data)).code == 0
    rows = list(csv.DictReader(data.read_text("utf-8").splitlines()))
    assert len(rows) == len(by_length)
    for row in rows:
        known = by_length[int(row["draft_length"])]
        per_gpu = known["tokens_per_s"] / facts["gpus"]
        assert float(row["tokens_per_s_gpu"]) == pytest.approx(per_gpu, rel=1e-5)
        dollars = 2 * facts["gpus"] / 3600 / known["tokens_per_s"] * 1e6
        assert known["dollars_per_million_tokens"] == pytest.approx(dollars)
    path = tmp_path / "report.html"
    cells = ("--batches", "1,2", "--contexts", "2k")
    assert cli("report", *own, *cells, "-o", str(path)).code == 0
    assert read_page(path).data["gpus"] == facts["gpus"]
