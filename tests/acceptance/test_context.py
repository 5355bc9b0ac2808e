"""Acceptance that depends on context and KV format, and mixes of domains."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofline.acceptance import Acceptance
from roofline.advice.question import question_of
from roofline.engines.acceptance_source import acceptance_from
from tests.support import Cli, assert_refused, write

HEAD = "schema: 1\nsource: invented for a test\n"
BY_CONTEXT = (
    HEAD
    + """\
curves:
- {context: 1024, tokens_per_step: {2: 2.6, 3: 3.0}}
- {context: 16384, tokens_per_step: {3: 2.0}}
"""
)
BY_KV = (
    HEAD
    + """\
curves:
- {kv: bf16, rate: 0.8}
- {kv: fp8, rate: 0.7}
"""
)
DOMAINS = (
    HEAD
    + """\
curves:
- {dataset: Code, tokens_per_step: {2: 2.6, 3: 3.2}}
- {dataset: Chat, tokens_per_step: {3: 2.0}}
"""
)


def test_between_two_contexts_it_is_linear_in_the_logarithm(tmp_path: Path) -> None:
    """Four doublings from 3.0 to 2.0, so 0.25 less each; D = 2 was measured at one end only.

    At the other a + a^2 + a^3 = 1 is a = 0.543689 (the tribonacci constant's inverse), so
    AL(2) = 1.839287; between them (2.6 + 1.839287) / 2.
    """
    curve = acceptance_from(write(tmp_path, "c.yaml", BY_CONTEXT))
    contexts = (512, 1024, 2048, 4096, 8192, 16384, 65536)
    found = curve.over_contexts(contexts, (3,))[:, 0]
    assert found == pytest.approx([3.0, 3.0, 2.75, 2.5, 2.25, 2.0, 2.0])
    assert curve.over_contexts([4096], (2,))[0, 0] == pytest.approx(2.2196435)
    assert curve.over_contexts([1024], (2,))[0, 0] == 2.6


def test_outside_the_measured_contexts_it_says_so(cli: Cli, tmp_path: Path) -> None:
    path = write(tmp_path, "c.yaml", BY_CONTEXT)
    inside = cli("recommend", "llama-3.1-8b", "--acceptance", path, "--context", "1k,16k")
    assert "was measured" not in inside.said
    for context in ("32k", "512"):
        outside = cli("recommend", "llama-3.1-8b", "--acceptance", path, "--context", context)
        assert "measured from 1024 to 16384 tokens" in outside.said
        assert outside.code == 0


def test_every_context_gets_its_own_answer(cli: Cli, tmp_path: Path) -> None:
    path = write(tmp_path, "c.yaml", BY_CONTEXT)
    answer = cli("recommend", "llama-3.1-8b", "--acceptance", path, "--context", "1k,4k,16k",
                 "--batch", "1,8", "--format", "json").data()  # fmt: skip
    found = {(p["batch"], p["context"]): p["by_draft_length"][3]["tokens_per_step"]
             for p in answer["points"]}  # fmt: skip
    for batch in (1, 8):
        assert found[batch, 1024] == 3.0
        assert found[batch, 4096] == pytest.approx(2.5)
        assert found[batch, 16384] == 2.0


def test_the_kv_format_picks_its_curve(cli: Cli, tmp_path: Path) -> None:
    path = write(tmp_path, "kv.yaml", BY_KV)
    for kv, rate in (("bf16", 0.8), ("fp8", 0.7)):
        answer = cli("recommend", "llama-3.1-8b", "--acceptance", path, "--kv", kv,
                     "--format", "json")  # fmt: skip
        assert answer.by_draft_length()[1]["tokens_per_step"] == pytest.approx(1 + rate)
        assert "measured with" not in answer.said
    other = cli("recommend", "llama-3.1-8b", "--acceptance", path, "--kv", "int8")
    assert "measured with bf16 KV, not with int8" in other.said


def test_a_mix_is_a_weighted_mean(cli: Cli, tmp_path: Path) -> None:
    """0.75 x 3.2 + 0.25 x 2.0 = 2.9 at D = 3.

    At D = 2 one part is measured; the other, a + a^2 + a^3 = 1, is 1.839287 there:
    0.75 x 2.6 + 0.25 x 1.839287 = 2.409822. In an answer public runs shape it: s1 + s2 + s3 = 1
    and survival that never rises leave 1 + 2/3 to 2, so 2.366667 to 2.45; a fourth draft adds no
    more than the third, at most 2.9 - 2.366667.
    """
    path = write(tmp_path, "d.yaml", DOMAINS)
    mix = f"mix:0.75*{path}#code,0.25*{path}#chat"
    assert acceptance_from(mix).tokens_per_step([2, 3]) == pytest.approx([2.409822, 2.9])
    rows = cli("recommend", "llama-3.1-8b", "--acceptance", mix, "--format", "json")
    found = {d: row["tokens_per_step"] for d, row in rows.by_draft_length().items()}
    assert found[3] == pytest.approx(2.9)
    assert 2.366667 < found[2] < 2.45
    assert 2.9 < found[4] < 2.9 + 0.533333
    assert "curve-continued" in [note["code"] for note in rows.data()["notes"]]


def test_a_mix_learns_each_part_from_its_own_counts() -> None:
    """0.7 x what 70 passes of chat leave + 0.3 x what 30 passes of code leave, at every D."""

    def asked(text: str, rounds: int | None) -> Acceptance:
        return question_of(
            model="llama-3.1-8b",
            gpu="h100-sxm",
            drafter="eagle3",
            acceptance=text,
            acceptance_rounds=rounds,
        ).acceptance

    chat, code = "survival:0.6,0.3,0.1", "al:3=2.9"
    for rounds, own in ((None, (None, None)), (100, (70, 30))):
        mixed = asked(f"mix:0.7*{chat},0.3*{code}", rounds)
        parts = [asked(text, count) for text, count in zip((chat, code), own, strict=True)]
        at = range(1, 9)
        means = [part.tokens_per_step(at) for part in parts]
        assert mixed.tokens_per_step(at) == pytest.approx(0.7 * means[0] + 0.3 * means[1])
        assert mixed.draws is not None
        assert mixed.continued_from == 3


def test_a_mix_of_single_rates_and_of_contexts(tmp_path: Path) -> None:
    """0.5 x (1 + 0.8 + 0.64) + 0.5 x 1.5 x ... : rates mix at any D; contexts at each context."""
    path = write(tmp_path, "c.yaml", BY_CONTEXT)
    rates = acceptance_from("mix:0.5*0.8,0.5*0.5").tokens_per_step([1, 2])
    assert rates == pytest.approx([1.65, 0.5 * 2.44 + 0.5 * 1.75])
    both = acceptance_from(f"mix:0.5*{path},0.5*al:3=2.0")
    assert both.over_contexts([1024, 4096, 16384], (3,))[:, 0] == pytest.approx([2.5, 2.25, 2.0])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mix:0.5*0.8,0.6*0.7", ("sum to 1.1",)),
        ("mix:0.5*0.8", ("sum to 0.5",)),
        ("mix:0.8", ("0.7*ID", "'0.8'")),
        ("mix:", ("0.7*ID",)),
        ("mix:-1*0.8,2*0.7", ("0.7*ID", "'-1*0.8'")),
        ("mix:nan*0.8", ("0.7*ID",)),
        ("mix:1*mix:1*0.5", ("0.7*ID",)),
        ("mix:1*high", ("'high'",)),
        ("qwen3-8b-eagle3-deepspec", ("several datasets", "qwen3-8b-eagle3-deepspec#gsm8k")),
        ("qwen3-8b-eagle3-deepspec#gsm9k", ("did you mean 'gsm8k'",)),
        ("kimi-k2.5-eagle3-codings", ("roofline acceptance list",)),
    ],
)
def test_refused(cli: Cli, text: str, words: tuple[str, ...]) -> None:
    assert_refused(cli("recommend", "llama-3.1-8b", "--acceptance", text), *words)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("survival: [0.5, 0.6]", ("survival", "rise")),
        ("decay: {first: 0.8}", ("decay.ratio", "missing")),
        ("decay: {first: 0.8, ratio: 0}", ("decay.ratio",)),
        ("curves: []", ("curves",)),
        ("rate: 0.8\ncurves:\n- {rate: 0.7}", ("exactly one",)),
        ("curves:\n- {dataset: a}", ("exactly one",)),
        ("curves:\n- {rate: 0.8}\n- {rate: 0.7}", ("same dataset, context and kv",)),
        ("curves:\n- {rate: 0.8}\n- {context: 1024, rate: 0.7}", ("some curves", "context")),
        ("curves:\n- {contxt: 5, rate: 0.7}", ("contxt", "did you mean 'context'")),
        ("context: 0\nrate: 0.7", ("context",)),
    ],
)
def test_refused_files(cli: Cli, tmp_path: Path, body: str, words: tuple[str, ...]) -> None:
    path = write(tmp_path, "bad.yaml", f"{HEAD}{body}\n")
    assert_refused(cli("recommend", "llama-3.1-8b", "--acceptance", path), "bad.yaml", *words)


def test_two_parameters_in_a_file(tmp_path: Path) -> None:
    """a = 0.8, 0.4, 0.2: 1 + 0.8 + 0.32 + 0.064."""
    curve = acceptance_from(write(tmp_path, "d.yaml", f"{HEAD}decay: {{first: 0.8, ratio: 0.5}}\n"))
    assert curve.tokens_per_step([1, 2, 3]) == pytest.approx([1.8, 2.12, 2.184])


def test_ask_8_acceptance_falls_with_context_until_speculation_loses(cli: Cli) -> None:
    """SPEED-Bench, Llama-3.3-70B, batch 16, D = 3, B200: 2.23x, 1.91x, 0.87x at 1k, 2k, 8k.

    What is tested is the sign; neither shorter nor longer drafts were measured.
    """
    answer = cli("recommend", "llama-3.1-70b", "--gpu", "b200-hgx", "--weights", "fp8", "--batch",
                 "16", "--context", "1k,2k,8k", "--acceptance", "llama-3.3-70b-eagle3-by-context",
                 "--max-draft-length", "3", "--format", "json").data()  # fmt: skip
    speedups = {p["context"]: p["by_draft_length"][-1]["speedup"] for p in answer["points"]}
    assert speedups[1024] > speedups[2048] > 1.5
    assert speedups[8192] < 1
    short, medium, long = (p["draft_length"] for p in answer["points"])
    assert short == medium == 3
    assert long < 3


def test_ask_8_a_drafter_that_does_not_decay_keeps_its_gain(cli: Cli) -> None:
    """The same page, an external 1B draft model: AL 3.12 to 3.21, measured 1.74x, 1.67x, 1.36x."""
    answer = cli(
        "recommend", "llama-3.1-70b", "--gpu", "b200-hgx", "--weights", "fp8", "--batch", "16",
        "--context", "1k,2k,8k", "--drafter", "llama-3.2-1b", "--acceptance",
        "llama-3.3-70b-1b-by-context", "--max-draft-length", "3", "--format", "json",
    ).data()  # fmt: skip
    speedups = [p["by_draft_length"][-1]["speedup"] for p in answer["points"]]
    assert speedups == sorted(speedups, reverse=True)  # falls with the context, as measured
    assert min(speedups) > 1.3


def test_ask_28_acceptance_of_19_percent_at_32k(cli: Cli) -> None:
    """A rate of 0.19 at three drafts is AL 1.57: less than the asker's MoE costs to verify."""
    out = cli("acceptance", "convert", "0.19", "--from", "rate", "--to", "tokens-per-step",
              "--draft-length", "3").out  # fmt: skip
    assert out.strip() == "tokens-per-step: 1.57"
    answer = cli(
        "recommend", "qwen3.6-35b-a3b", "--gpu", "b200-hgx", "--drafter", "mtp", "--batch", "8",
        "--context", "32k", "--acceptance", "al:3=1.57", "--format", "json",
    )  # fmt: skip
    assert answer.point()["draft_length"] == 0
    assert answer.by_draft_length()[3]["speedup_high"] < 1
