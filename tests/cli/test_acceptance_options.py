"""Options that say something of the acceptance: each is used, told or refused by every command."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.support import Cli, assert_refused

#: A run of every command that asks a question, with a drafter that it looks at.
COMMANDS = (
    "recommend llama-3.1-8b",
    "schedule llama-3.1-8b",
    "sweep llama-3.1-8b",
    "compare llama-3.1-8b --drafter ngram",
    "memory llama-3.1-8b",
    "diagnose llama-3.1-8b --measured 0:7.9ms,3:5.5ms:2.66",
    "acceptance explain llama-3.1-8b",
    "explore llama-3.1-8b --vary group_size=4",
    "plot speedup llama-3.1-8b -o x.svg",
)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("option", "several"), [("--domain", "chat=0.7,code=0.3"), ("--dataset", "mt-bench+gsm8k")]
)
def test_prompts_of_several_kinds_are_shown_as_a_mix(
    cli: Cli, command: str, option: str, several: str
) -> None:
    refused = cli(*command.split(), option, several)
    asked = several.partition(",")[0] if command.startswith("sweep") else several
    assert_refused(refused, f"roofline: {option} {asked}: one name only", "mix:0.7*A,0.3*B")


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_domain_is_the_fault_of_the_domain(cli: Cli, command: str) -> None:
    refused = cli(*command.split(), "--domain", "chatt")
    assert_refused(refused, "roofline: --domain chatt: unknown domain", "did you mean 'chat'?")


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("recommend", ("--acceptance", "0.7")),
        ("recommend", ("--acceptance-rounds", "200")),
        ("recommend", ("--hit-rate", "0.5")),
        ("recommend", ("--domain", "chat")),
        ("recommend", ("--temperature", "0")),
        ("recommend", ("--draft-tp", "1")),
        ("memory", ("--acceptance", "0.7")),
        ("schedule", ()),
    ],
)
def test_where_no_drafter_is_known_the_drafter_is_at_fault(
    cli: Cli, command: str, options: tuple[str, ...]
) -> None:
    refused = cli(command, "mistral-7b-v0.3", *options)
    assert_refused(refused, "roofline: --drafter: no drafter is bundled for mistral-7b-v0.3; give")


MEASURED = ("diagnose", "llama-3.1-8b", "--drafter", "ngram", "--batch", "8",
            "--measured", "0:7.9ms,3:5.5ms:1.6")  # fmt: skip
ROOFLINE = ("plot", "roofline", "llama-3.1-8b", "--max-draft-length", "3", "--batch", "8")


def notes(cli: Cli, *words: str) -> dict[str, str]:
    data = cli(*words, "--format", "json").data()
    return {note["code"]: note["text"] for note in data["notes"]}


@pytest.mark.parametrize("hits", ["0.35", "0.7", "1"])
def test_diagnose_prices_the_rows_that_recommend_does(cli: Cli, hits: str) -> None:
    """Steps of the same deployment are the same, whoever asks: B (1 + h D) rows."""
    data = cli(*MEASURED, "--hit-rate", hits, "--format", "json").data()
    asked = ("recommend", "llama-3.1-8b", "--drafter", "ngram", "--batch", "8",
             "--acceptance", "al:3=1.6", "--hit-rate", hits, "--format", "json")  # fmt: skip
    steps = {r["draft_length"]: r["step_ms"] for r in cli(*asked).point()["by_draft_length"]}
    for point in data["points"]:
        assert point["predicted_step_ms"] == pytest.approx(steps[point["draft_length"]])
    assert data["inputs"]["hit_rate"] == float(hits)


def test_diagnose_expects_a_hit_rate_that_nobody_gave(cli: Cli) -> None:
    """By the tokens that its steps yielded, as `recommend` does by an acceptance."""
    told = notes(cli, *MEASURED)["hit-rate-assumed"]
    asked = ("recommend", "llama-3.1-8b", "--drafter", "ngram", "--acceptance", "al:3=1.6")
    assert told.partition(" %")[0] == notes(cli, *asked)["hit-rate-assumed"].partition(" %")[0]
    for option in ("--domain", "code"), ("--dataset", "humaneval"):
        assert notes(cli, *MEASURED, *option)["hit-rate-assumed"] != told


def test_diagnose_takes_what_drafting_passes_yield_over_all_passes(cli: Cli) -> None:
    """1 + 0.5 x (2.66 - 1) = 1.83 tokens a step."""
    words = ("diagnose", "llama-3.1-8b", "--drafter", "ngram", "--measured", "0:7.9ms,3:5.5ms",
             "--acceptance", "drafting:al:3=2.66", "--hit-rate", "0.5")  # fmt: skip
    (_, point) = cli(*words, "--format", "json").data()["points"]
    assert point["measured_step_ms"] == pytest.approx(5.5 * 1.83)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--drafter", "eagle3", "--hit-rate", "0.9"), "always drafts D tokens in vLLM"),
        (("--drafter", "ngram", "--hit-rate", "0.9,0.8"), "finds a draft or none"),
        (("--drafter", "ngram", "--hit-rate", "0.1"), "so at least as many have one"),
        (("--drafter", "dspark", "--hit-rate", "0.9,0.8"), "ends at D = 2, and D = 3 was measured"),
    ],
)
def test_diagnose_refuses_shares_that_cannot_be(
    cli: Cli, words: tuple[str, ...], said: str
) -> None:
    asked = ("diagnose", "llama-3.1-8b", "--measured", "0:7.9ms,3:5.5ms:2.2")
    assert_refused(cli(*asked, *words), "roofline: --hit-rate", said)


def test_kernels_are_drawn_at_the_rows_of_a_lookup(cli: Cli, tmp_path: Path) -> None:
    """8 sequences of which half have 3 drafts run 8 (1 + 0.5 x 3) = 20 rows, and 32 at most."""
    found = {}
    for hits in ("0.5", "1"):
        data = tmp_path / f"{hits}.csv"
        words = ("--drafter", "ngram", "--acceptance", "al:3=1.6", "--hit-rate", hits)
        cli(*ROOFLINE, *words, "-o", str(tmp_path / "x.svg"), "--data", str(data))
        rows = list(csv.DictReader(data.read_text().splitlines()))
        found[hits] = [
            float(row["attained_tflop_per_s"]) * float(row["time_ms"])
            for row in rows
            if row["op"] == "qkv_proj" and row["draft_length"] == "3"
        ]
    assert found["0.5"]
    assert found["0.5"] == pytest.approx([20 / 32 * work for work in found["1"]], rel=1e-3)
    refused = cli(*ROOFLINE, "--drafter", "eagle3", "--hit-rate", "0.9", "-o", "x.svg")
    assert_refused(refused, "--hit-rate", "always drafts D tokens")


@pytest.mark.parametrize("option", ["--domain code", "--dataset gsm8k", "--temperature 1"])
@pytest.mark.parametrize(
    ("command", "idle"),
    [
        ("recommend llama-3.1-8b --acceptance 0.7", True),
        ("recommend llama-3.1-8b --acceptance survival:0.7,0.5", False),
        ("recommend llama-3.1-8b", False),
        ("recommend llama-3.1-8b --drafter ngram --acceptance 0.3", False),
        ("recommend llama-3.1-8b --drafter ngram --acceptance 0.3 --hit-rate 0.5", True),
        ("schedule llama-3.1-8b --acceptance 0.7 --batches 1..4", True),
        ("memory llama-3.1-8b --acceptance 0.7", True),
        ("diagnose llama-3.1-8b --measured 0:7.9ms", True),
        ("diagnose llama-3.1-8b --measured 0:7.9ms,3:5.5ms:2.66", True),
    ],
)
def test_prompts_that_cannot_act_are_told(cli: Cli, command: str, option: str, idle: bool) -> None:
    told = notes(cli, *command.split(), *option.split()).get("changes-nothing", "")
    said = f"{option.partition(' ')[0]} acts on what public runs lead to expect only"
    assert told.startswith(said) if idle else not told
