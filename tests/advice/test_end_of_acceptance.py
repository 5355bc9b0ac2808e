"""What an answer says where acceptance, drafter or one lone rate end."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median

import pytest

from roofline.acceptance.curve import tokens_per_step
from roofline.acceptance.files import load_acceptance
from roofline.render.why import likely_line
from roofline.specs.priors import priors
from tests.acceptance.test_models import GOLDEN
from tests.advice.test_sampling import odds_of
from tests.support import Cli

HEAD = "llama-3.1-8b-eagle3"  # its config: max_position_embeddings 2048
CAVEAT = "The drafter's config ends at 2048 positions: acceptance at 4k may be lower."
EXPECTED = "The drafter's config ends at 2048 positions: less is expected at 4k, by few runs."
OWN = ("--acceptance", "al:1=1.8,2=2.4,3=2.8")


def first_paragraph(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].replace("*", "").split())


@pytest.mark.parametrize("form", ["table", "markdown"])
def test_a_context_beyond_the_drafters_own_is_said_at_once(cli: Cli, form: str) -> None:
    ask = ("recommend", "llama-3.1-8b", "--format", form, "--context")
    assert first_paragraph(cli(*ask, "4k", *OWN).out).endswith(CAVEAT)
    assert first_paragraph(cli(*ask, "4k").out).endswith(EXPECTED)
    for options in (OWN, ()):
        assert "positions" not in first_paragraph(cli(*ask, "2k", *options).out)


def test_acceptance_measured_there_needs_no_caveat(cli: Cli, tmp_path: Path) -> None:
    curve = tmp_path / "by-context.yaml"
    curve.write_text(
        "schema: 1\nsource: invented\ncurves:\n"
        "- {context: 1024, tokens_per_step: {1: 1.8, 2: 2.4}}\n"
        "- {context: 8192, tokens_per_step: {1: 1.7, 2: 2.2}}\n"
    )
    out = cli("recommend", "llama-3.1-8b", "--context", "4k", "--acceptance", str(curve)).out
    assert "positions" not in first_paragraph(out)


def test_plain_decoding_needs_no_caveat(cli: Cli) -> None:
    out = cli("recommend", "llama-3.1-8b", "--context", "4k", "--acceptance", "0.01").out
    assert out.startswith("Do not speculate")
    assert "positions" not in first_paragraph(out)


def stopped_early(tmp_path: Path, curve: str) -> str:
    """Return a file of drafts that stopped early, of which nothing is carried to longer ones."""
    file = tmp_path / "stopped.yaml"
    file.write_text(f"schema: 1\nsource: here\nearly_stops: true\ntokens_per_step: {curve}\n")
    return str(file)


def test_longer_drafts_are_asked_for_where_they_stopped_early(cli: Cli, tmp_path: Path) -> None:
    """Shorter drafts are slower by more than the model's error, so none is worth a run."""
    asked = ("recommend", "llama-3.1-8b", "--acceptance")
    curve = stopped_early(tmp_path, "{1: 1.8, 2: 2.5, 3: 3.1}")
    said = " ".join(cli(*asked, curve).out.split())
    assert "Measure acceptance at D = 4 and 5, where none is known." in said
    assert "longest one tried" not in said  # the same, so once is enough
    longest = f"{HEAD}: the best draft length found is the longest one tried (3)"
    assert longest in cli(*asked, curve, "--format", "json").said


def test_the_advice_is_timed_first_and_what_lies_beyond_is_measured() -> None:
    point = odds_of({1: 0.0, 2: 0.25, 3: 1.0}, {1: 1.7, 2: 2.08, 3: 2.12}, advised=3)
    said = "Time D = 3 first. Measure acceptance at D = 4 and 5, where none is known."
    assert likely_line(point, (4, 5)).endswith(said)
    assert "the fastest of D = 1 to 3 (the acceptance ends there)," in likely_line(point, (4, 5))
    assert likely_line(point).endswith("Time D = 3 first.")


def test_a_drafter_that_drafts_no_more_is_not_asked_for_more(cli: Cli) -> None:
    """A DSpark block holds 7 drafts, and so does its published curve."""
    out = cli("recommend", "qwen3-8b", "--drafter", "dspark").out
    assert out.startswith("Run draft length 7 ")
    assert "Measure acceptance" not in out


def test_a_curve_that_ends_at_the_limit_is_what_ends(cli: Cli) -> None:
    """Both are the longest that were looked at."""
    flags = ["--drafter", "dflash=al:8=6.9", "--drafter", "eagle3=al:8=7.5"]
    lines = cli(
        "compare", "qwen3-8b", "--context", "1k", *flags, "--format", "csv"
    ).err.splitlines()
    ends = [line for line in lines if "longest one tried" in line]
    assert {line.split(": ")[1] for line in ends} == {"qwen3-8b-eagle3", "qwen3-8b-dflash"}


ASK = ("recommend", "deepseek-v3", "--gpu", "h200-sxm", "--tp", "8", "--drafter", "mtp")


def test_one_rate_is_doubted_in_long_drafts(cli: Cli) -> None:
    """The range must hold what the same rate yields where it falls as on measured curves."""
    rate = cli(*ASK, "--acceptance", "0.85", "--format", "json")
    fall = priors().acceptance_effects.one_rate_fall
    falling = "conditional:" + ",".join(f"{0.85 * fall**i:.4f}" for i in range(8))
    real = cli(*ASK, "--acceptance", falling, "--format", "json")
    assert "one rate at every position" in rate.said
    assert "27 % in the median" in rate.said
    assert "measure rates by position" in rate.said
    assert "one rate" not in real.said
    point, other = rate.point(), real.point()
    assert point["draft_length"] > 3  # the advice is what was asked for
    at = point["draft_length"]
    speedup = {row["draft_length"]: row["speedup"] for row in other["by_draft_length"]}[at]
    assert point["speedup_low"] < speedup < point["speedup"] < point["speedup_high"]


def test_one_rate_is_not_doubted_in_short_drafts(cli: Cli) -> None:
    done = cli(*ASK, "--acceptance", "0.4", "--format", "json")
    assert done.code == 0
    assert "one rate" not in done.said


def test_the_fall_is_that_of_the_golden_curves() -> None:
    """The ratio r by which a_i = a r^(i-1), a = AL(1) - 1, meets AL(8): found by bisection."""
    ratios = []
    for name in GOLDEN:
        table = load_acceptance(name).table
        low, high = 0.3, 1.1
        for _ in range(50):
            middle = (low + high) / 2
            rates = [min(1.0, (table[1] - 1) * middle**i) for i in range(8)]
            short = tokens_per_step(rates)[8] < table[8]
            low, high = (middle, high) if short else (low, middle)
        ratios.append(low)
    assert median(ratios) == pytest.approx(priors().acceptance_effects.one_rate_fall, abs=0.001)


def test_a_read_file_is_called_by_its_name(cli: Cli, tmp_path: Path) -> None:
    """What `acceptance read -o` writes has a target and no drafter."""
    curve = tmp_path / "chat.yaml"
    curve.write_text(
        "schema: 1\ntarget: Qwen/Qwen3-8B\nsource: 'vLLM, log: x'\nsurvival: [0.8, 0.6, 0.4]\n"
    )
    out = " ".join(cli("recommend", "qwen3-8b", "--acceptance", str(curve)).out.split())
    assert "acceptance: chat.yaml of Qwen/Qwen3-8B." in out


def test_odds_name_the_lengths_that_were_compared(cli: Cli, tmp_path: Path) -> None:
    """Found by a user: 98 % for D = 2 was read as of all lengths, where none above 2 was tried."""
    asked = ("recommend", "llama-3.1-8b")
    ends = cli(*asked, "--acceptance", stopped_early(tmp_path, "{1: 1.8, 2: 2.5}"))
    assert "of D = 0 to 2 (the acceptance ends there), given" in " ".join(ends.out.split())
    width = cli(*asked, "--engine", "sglang", "--verify-width", "2", "--tree-topk", "2")
    assert "the fastest of D = 0 and 1, given" in " ".join(width.out.split())


@pytest.mark.parametrize(
    ("acceptance", "said"),
    [
        ("0.9", "the best draft length found is the longest one tried (3)"),
        ("conditional:0.6,0.1,0.1,0.1", "no draft longer than 3 was tried"),
    ],
)
def test_a_width_that_ends_the_draft_lengths_is_said(cli: Cli, acceptance: str, said: str) -> None:
    """A tree verified with W rows has room for W - 1 drafts in a row."""
    outcome = cli(
        "recommend", "llama-3.1-8b", "--acceptance", acceptance, "--verify-width", "4",
        "--tree-topk", "4", "--engine", "sglang", "--format", "json",
    )  # fmt: skip
    said += ": --verify-width 4 has no row for another draft"
    assert said in " ".join(note["text"] for note in outcome.data()["notes"])


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            ("recommend", "qwen3-8b", "--drafter", "eagle3"),
            r"\d\.\d\dx to \d\.\d\dx plain",
        ),
        (("compare", "qwen3-8b"), r"is fastest, \d\.\d\dx to \d\.\d\dx at D = \d"),
        (("schedule", "qwen3-8b", "--batches", "1..16"), r"tokens against"),
        (("recommend", "qwen3-8b", "--objective", "throughput"), r"Goal \(best throughput\)"),
    ],
)
def test_the_first_sentence_says_that_nobody_measured(
    cli: Cli, asked: tuple[str, ...], said: str
) -> None:
    first = first_paragraph(cli(*asked).out)
    assert re.search(said, first)
    assert "acceptance not measured" in first
    if asked[0] == "recommend":
        own = first_paragraph(cli(*asked, "--acceptance", "al:1=1.7,3=2.5").out)
        assert "not measured" not in own
