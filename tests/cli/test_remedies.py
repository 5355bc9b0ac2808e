"""Refusals and warnings say what to type next; what they name is then accepted."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from tests.servers import engine, send, server
from tests.support import GPU, Cli, assert_refused, write

LLAMACPP = "llama-3.1-8b --gpu rtx-4090 --engine llamacpp --drafter ngram --acceptance 0.6 --gpus"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("models check weird", ("'roofline models list'", "docs/how-to/own.md")),
        ("recommend llama-3.1-8b --set hidden_size=8192", ("'model.hidden_size'?",)),
        ("recommend llama-3.1-8b --set compute=1", ("'gpu.compute'?",)),
        (f"recommend {LLAMACPP} 4", ("slots for 2", "give --host workstation-ddr5")),
        (f"recommend {LLAMACPP} 9", ("slots for 2", "up to 8", "--host FILE.yaml")),
        ("diagnose llama-3.1-8b --measured 3:5.5", ("write 3:5.5:TOKENS",)),
        ("diagnose llama-3.1-8b --measured 3:5.5ms", ("write 3:5.5ms:TOKENS",)),
        ("acceptance read page --draft-length x", ("; see 'roofline acceptance read --help'",)),
        ("acceptance read page --interval soon", ("--interval soon", "30s or 5m")),
    ],
)
def test_the_way_on_is_named(cli: Cli, arguments: str, words: tuple[str, ...]) -> None:
    assert_refused(cli(*arguments.split()), *words)


def test_activations_that_a_gpu_lacks(cli: Cli) -> None:
    """A T4 has no bf16; of what lies between products, its fp32 and fp16 remain (datasheet)."""
    outcome = cli("recommend", "llama-3.1-8b", "--gpu", "t4", "--activations", "q4_k_m")
    assert_refused(outcome, "with one of: fp32, fp16")
    assert outcome.err.strip().endswith("fp32, fp16")


def test_experts_that_a_host_cannot_hold(cli: Cli) -> None:
    """The number of layers that is named fits, and one more does not; so does the host named."""
    asked = (
        "memory", "qwen3-235b-a22b", "--gpu", "b200-hgx", "--engine", "llamacpp",
        "--weights", "q8_0", "--drafter", "ngram", "--cpu-experts",
    )  # fmt: skip
    outcome = cli(*asked, "all")
    assert outcome.code == 3
    named = int(outcome.err.split("enough for ")[1].split()[0])
    assert "beside the processor" in cli(*asked, str(named + 1)).err
    assert "beside the processor" not in cli(*asked, str(named)).err
    host = outcome.err.split("--host ")[1].split()[0]
    assert cli(*asked, "all", "--host", host, "--draft-length", "3").code == 0


#: 235B in Q4_K_M: 227e9 expert weights at 4.9 bits are 139 GB, a 64 GB desktop has 56 to give.
BESIDE = (
    "qwen3-235b-a22b",
    "--gpu",
    "rtx-4090",
    "--engine",
    "llamacpp",
    "--weights",
    "q4_k_m",
    "--drafter",
    "ngram",
    "--cpu-experts",
)


@pytest.mark.parametrize(
    "command",
    [
        "recommend --acceptance 0.6",
        "compare --drafter ngram=0.6",
        "schedule --acceptance 0.6",
        "explore --acceptance 0.6 --vary top_k=4,8",
        "memory --draft-length 3",
        "diagnose --measured 0:100ms",
        "diagnose --measured 3:100ms:2",
        "sweep --acceptance 0.6",
        "recommend --acceptance 0.6 --rps 1 --input-tokens 100 --output-tokens 100",
        "recommend --acceptance 0.6 --slo-tpot 50",
        "plot breakdown --acceptance 0.6 --data x.csv",
        "plot roofline --data x.csv",
        "plot attention --data x.csv",
        "plot heatmap --acceptance 0.6 --data x.csv",
        "report --acceptance 0.6 -o x.html",
    ],
)
def test_every_command_refuses_a_host_that_is_too_small(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    name, *options = command.split(" --")
    own = [word for option in options for word in f"--{option}".split()]
    beside = [*BESIDE, "all"]
    if "compare" in name or "attention" in command:
        at = beside.index("--drafter")
        beside = [*beside[:at], *beside[at + 2 :]]
    words = ("139 GB beside the processor", "56.0 GB usable of 64.0 GB", "--host workstation-ddr5")
    assert_refused(cli(*name.split(), *beside, *own), *words, code=3)
    assert not list(tmp_path.iterdir())


def test_a_sweep_goes_on_past_a_host_that_is_too_small(cli: Cli) -> None:
    """All of 94 layers' experts need 139 GB of the desktop's 56, 20 layers' need 30."""
    large = ["b200-hgx" if word == "rtx-4090" else word for word in BESIDE]
    own = ("--acceptance", "0.6", "--batch", "1", "--max-draft-length", "1")
    outcome = cli("sweep", *large, "20,all", *own)
    assert outcome.code == 0, outcome.err
    rows = list(csv.DictReader(outcome.out.splitlines()))
    assert [(row["cpu_experts"], row["fits"]) for row in rows] == [
        ("20", "true"),
        ("20", "true"),
        ("all", "false"),
        ("all", "false"),
    ]
    assert {row["reason"] for row in rows[2:]} == {"its experts do not fit in the host's memory"}
    assert all(row["step_ms"] == "" for row in rows[2:])


@pytest.mark.parametrize("path", ["", "/"])
def test_an_address_without_the_page(cli: Cli, path: str) -> None:
    with server(engine({})) as url:
        assert_refused(cli("acceptance", "read", url + path), "HTTP 404", f"try {url}/metrics")
    with server(lambda h: send(h, b"<html>")) as url:
        assert_refused(cli("acceptance", "read", url + path), f"try {url}/metrics")


@pytest.mark.parametrize("wait", ["0.02", "0.02s", "20ms"])
def test_waits_are_written_alike(cli: Cli, wait: str) -> None:
    with server(engine({})) as url:
        outcome = cli("acceptance", "read", f"{url}/x", "--interval", wait, "--timeout", "3s")
        assert_refused(outcome, "HTTP 404")


def test_a_generation_that_nobody_knows(cli: Cli, tmp_path: Path) -> None:
    for name, warned in (("blakwell", True), ("blackwell", False)):
        text = GPU.replace("generation: invented", f"generation: {name}")
        path = str(write(tmp_path, f"{name}.yaml", text))
        for command in (("hardware", "check", path), ("recommend", "llama-3.1-8b", "--gpu", path)):
            outcome = cli(*command)
            assert outcome.code == 0
            assert ("did you mean 'blackwell'" in outcome.said) == warned


@pytest.mark.parametrize(
    "command",
    [
        "models list",
        "models list --all",
        "acceptance list",
        "acceptance list --all",
        "hardware list",
        "hardware list --all",
        "models check deepseek-v4-pro",
        "hardware diff h100-sxm b200-hgx",
        "hardware show h100-sxm",
    ],
)
def test_lists_fit_a_terminal(cli: Cli, command: str) -> None:
    outcome = cli(*command.split())
    assert outcome.code == 0
    assert max(map(len, outcome.out.splitlines())) <= 80


def test_a_shown_model_is_a_spec(cli: Cli, tmp_path: Path) -> None:
    """What is shown can be kept as a file and used."""
    shown = cli("models", "show", "gpt-oss-20b").out
    path = write(tmp_path, "own.yaml", shown)
    assert cli("models", "show", path).out == shown


def test_differences_have_units(cli: Cli) -> None:
    """Datasheets: H100 SXM 80 GB at 3.35 TB/s and 700 W, T4 16 GB at 320 GB/s and 70 W."""
    out = cli("hardware", "diff", "h100-sxm", "t4").out
    for words in (("80.0 GB", "16.0 GB"), ("3.35 TB/s", "320 GB/s"), ("700 W", "70.0 W")):
        assert any(all(word in line for word in words) for line in out.splitlines())


@pytest.mark.parametrize("batches", ["1978", "1,1978"])
def test_what_is_needed_and_what_there_is_print_unlike(cli: Cli, batches: str) -> None:
    """Found by a user: "needs 70.5 GB of each of the 4 GPUs, which have 70.5 GB usable".

    0.88 x 79.11 GiB - 1.5 GB = 73.2505 GB; 4.0151 GB of weights, 0.3114 of activations and 1978
    sequences of 1040 slots x 32,768 B and 0.77 MB of logits need 73.2554 GB: both 73.3 GB.
    """
    asked = "recommend llama-3.1-8b --tp 4 --context 1k --memory-fraction 0.88 --short --batch"
    said = " ".join(cli(*asked.split(), batches).said.split())
    needed, usable = re.findall(r"(?:needs|has|have) (7[\d.]+ GB)", said)
    assert float(needed.split()[0]) > float(usable.split()[0]), said
