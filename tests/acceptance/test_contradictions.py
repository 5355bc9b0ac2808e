"""Acceptance that contradicts itself: said, or refused where no measurement could be so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import Cli, assert_refused, write

#: vLLM's own counters of 100 passes with 3 drafts: 80, 60 and 40 accepted by position.
COUNTS = {"drafts": "100", "draft_tokens": "300", "accepted_tokens": "180"}


def page(positions: tuple[int, ...] = (80, 60, 40), **changes: str) -> str:
    """Return vLLM's page with some counts changed."""
    lines = [
        f'vllm:spec_decode_num_{name}_total{{model_name="m"}} {value}'
        for name, value in (COUNTS | changes).items()
    ]
    lines += [
        "vllm:spec_decode_num_accepted_tokens_per_pos_total"
        f'{{model_name="m",position="{at}"}} {value}'
        for at, value in enumerate(positions)
    ]
    return "\n".join(lines) + "\n"


def line(length: str = "2.80", rates: str = "0.800, 0.600, 0.400", percent: str = "60.0") -> str:
    """Return vLLM's log line of the same passes with some figures changed."""
    return (
        f"INFO SpecDecoding metrics: Mean acceptance length: {length}, Accepted throughput: 60.00 "
        "tokens/s, Drafted throughput: 100.00 tokens/s, Accepted: 180 tokens, Drafted: 300 tokens, "
        f"Per-position acceptance rate: {rates}, Avg Draft acceptance rate: {percent}%\n"
    )


def batch(rate: str) -> str:
    """Return SGLang's log line; (2.80 - 1) / 0.60 is 3 drafts."""
    return (
        "Decode batch, #running-req: 1, #token: 512, token usage: 0.01, accept len: 2.80, "
        f"accept rate: {rate}, cuda graph: True, gen throughput (token/s): 300.0, #queue-req: 0,\n"
    )


@pytest.mark.parametrize("text", [page(), line(), batch("0.60"), line(rates="0.802, 0.601, 0.400")])
def test_rounding_is_not_a_contradiction(cli: Cli, tmp_path: Path, text: str) -> None:
    outcome = cli("acceptance", "read", write(tmp_path, "source", text))
    assert (outcome.code, outcome.err) == (0, "")
    assert "Note" not in outcome.out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (page(accepted_tokens="250"), "250 drafts accepted, but 180 by position"),
        (line("0.80"), "a line contradicts itself (mean length 0.80, but 2.80 by position)"),
        (
            line("2.82") * 2,
            "2 lines contradict themselves (mean length 2.82, but 2.80 by position)",
        ),
        (line(percent="160.0"), "contradicts itself (160.0 % accepted, but 180 of 300 tokens)"),
        # 1.80 / 0.05 drafts
        (batch("0.05"), "accept len 2.80 at accept rate 0.05 would be 36 drafts a pass"),
        (page((80, 60, 70), accepted_tokens="210"), "survival rises from 0.60 at D=2 to 0.70 at"),
        (line(rates="0.400, 0.600, 0.800"), "survival rises from 0.40 at D=1 to 0.60 at D=2"),
    ],
)
def test_a_source_that_contradicts_itself(cli: Cli, tmp_path: Path, text: str, said: str) -> None:
    """Read by itself and as the acceptance of a question, it is said once."""
    path = write(tmp_path, "source", text)
    read = cli("acceptance", "read", path)
    assert read.code == 0
    assert read.said.count(said) == 1
    assert read.said.count("Note: ") == 1
    asked = cli("recommend", "llama-3.1-8b", "--acceptance", path, "--max-draft-length", "40")
    assert asked.said.count(said) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (page(drafts="1e308"), ("300 tokens drafted in 1e+308 passes", "do not match")),
        (page(drafts="1e17", draft_tokens="3e17"), ("3e+17 tokens drafted", "do not match")),
        (page(draft_tokens="300", drafts="700"), ("300 tokens drafted in 700 passes",)),
    ],
)
def test_counts_that_cannot_be(cli: Cli, tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    assert_refused(cli("acceptance", "read", write(tmp_path, "source", text)), *words)


def test_a_draft_length_that_the_source_does_not_have(cli: Cli, tmp_path: Path) -> None:
    path = write(tmp_path, "log", batch("0.60"))
    assert "by its numbers D is 3, not 5" in cli("acceptance", "read", path, "--draft-length",
                                                  "5").said  # fmt: skip
    assert "Note" not in cli("acceptance", "read", path, "--draft-length", "3").said


def test_a_rising_reading_can_be_kept(cli: Cli, tmp_path: Path) -> None:
    """The file says tokens per step, for survival in a file must not rise; both read alike."""
    million = {"drafts": "1e6", "draft_tokens": "3e6", "accepted_tokens": "2.1e6"}
    path = write(tmp_path, "page", page((800_000, 600_000, 700_000), **million))
    kept = tmp_path / "kept.yaml"
    assert cli("acceptance", "read", path, "-o", str(kept)).code == 0
    asked = ("recommend", "llama-3.1-8b", "--format", "json", "--acceptance")
    tokens = [
        [row["tokens_per_step"] for row in cli(*asked, source).by_draft_length().values()]
        for source in (path, str(kept))
    ]
    assert tokens[0][:4] == pytest.approx([1, 1.8, 2.4, 3.1], rel=1e-3)  # the prior moves nothing
    assert tokens[1] == pytest.approx(tokens[0])


@pytest.mark.parametrize(
    ("typed", "rise"),
    [
        # survival 0.9, 0.0, 1.0; 0.5 and then 0.9; a mean of 0.3 over two, then of 0.8 over two
        ("al:1=1.9,2=1.9,3=2.9", "from 0.00 at D=2 to 1.00 at D=3"),
        ("al:1.5,2.4", "from 0.50 at D=1 to 0.90 at D=2"),
        ("al:2=1.6,4=3.2", "from 0.30 at D=2 to 0.80 at D=4"),
    ],
)
def test_a_typed_curve_whose_survival_rises(cli: Cli, typed: str, rise: str) -> None:
    outcome = cli("recommend", "llama-3.1-8b", "--acceptance", typed)
    assert_refused(outcome, typed, f"survival rises {rise}, which it cannot")


def test_a_typed_curve_may_rise_by_noise(cli: Cli) -> None:
    """Each D is a run of its own: 0.40 and then 0.45 is said, 0.40 and then 0.41 is rounding."""
    noisy = cli("recommend", "llama-3.1-8b", "--acceptance", "al:1.6,2,2.45")
    assert noisy.code == 0
    assert "survival rises from 0.40 at D=2 to 0.45 at D=3" in noisy.said
    assert "rises" not in cli("recommend", "llama-3.1-8b", "--acceptance", "al:1.6,2,2.41").said
