"""A list of rates typed without a word: survival and conditional rates, decided on one price."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofline.advice.deployment import Deployment, PricedGrid
from roofline.advice.question import question_of
from roofline.advice.recommend import answer_at, recommend
from roofline.base.notices import Code
from roofline.specs.placement import Grid
from tests.support import Cli, write

#: One vLLM log line, "Per-position acceptance rate: 0.720, 0.450, 0.210": as survival AL = 1.72,
#: 2.17, 2.38; as conditional rates 1.72, 1.72 + .324 = 2.044, + .06804 = 2.11204.
LIST = "0.72,0.45,0.21"
#: The same batch-1 question on three deployments, for whose step times the readings differ:
#: speed(3) / speed(2) is 2.38 / 2.17 against 2.112 / 2.044, so a third draft that costs 4 to 9 %
#: of the step pays under one of them.
DIFFER = [
    ("llama-3.1-8b", "--gpu", "h100-sxm"),
    ("qwen3-8b", "--gpu", "a100-sxm-80gb", "--batch", "4"),
    ("llama-3.1-8b", "--gpu", "h200-sxm", "--batch", "16", "--context", "2k"),
]


@pytest.mark.parametrize("asked", DIFFER)
def test_two_answers_are_both_given(cli: Cli, asked: tuple[str, ...]) -> None:
    """Each headline is that of the same list with its word."""
    asked = ("recommend", *asked)
    ambiguous = cli(*asked, "--acceptance", LIST, "--format", "json").data()
    survival = cli(*asked, "--acceptance", f"survival:{LIST}", "--format", "json").data()
    conditional = cli(*asked, "--acceptance", f"conditional:{LIST}", "--format", "json").data()
    (own,), (other,) = survival["points"], conditional["points"]
    assert own["draft_length"] != other["draft_length"]
    assert ambiguous["points"] == survival["points"]
    assert ambiguous["acceptance"]["definition"] == "survival"
    assert ambiguous["acceptance"]["ambiguous"] is True
    reading = ambiguous["acceptance"]["other_reading"]
    assert reading["definition"] == "conditional"
    assert reading["points"] == [
        {key: other[key] for key in ("batch", "context", "draft_length", "speedup", "headline")}
    ]
    text = cli(*asked, "--acceptance", LIST)
    words = " ".join(text.out.split())
    assert words.startswith(own["headline"])
    rest = other["headline"][:1].lower() + other["headline"][1:]
    assert words.index(f"As conditional rates, not survival: {rest}") < words.index("acceptance:")
    said = " ".join(text.out.split())
    assert (
        f"advises D = {own['draft_length']}, conditional rates D = {other['draft_length']}" in said
    )
    assert f"write survival:{LIST} or conditional:{LIST}" in said
    markdown = cli(*asked, "--acceptance", LIST, "--format", "markdown").out
    assert "As conditional rates, not survival: " in markdown


def test_the_log_line_itself_is_the_first_answer(cli: Cli) -> None:
    """1 + .72 + .45 + .21 = 2.38, as the log's mean acceptance length says; not 2.11."""
    answer = cli("recommend", "llama-3.1-8b", "--acceptance", LIST, "--format", "json")
    assert answer.point()["draft_length"] == 3
    assert answer.by_draft_length()[3]["tokens_per_step"] == pytest.approx(2.38)


@pytest.mark.parametrize(
    ("model", "rates"), [("qwen3-8b", "0.72,0.45"), ("llama-3.1-70b", "0.9,0.1")]
)
def test_one_answer_under_both_readings_is_one_line(cli: Cli, model: str, rates: str) -> None:
    asked = ("recommend", model, "--gpu", "h200-sxm", "--tp", "2", "--acceptance", rates)
    told = cli(*asked)
    assert told.said.count("read as survival by position, as engines print it") == 1
    assert "as conditional rates they lead to the same draft length" in told.said
    assert "As conditional rates, not survival" not in told.out
    data = cli(*asked, "--format", "json").data()["acceptance"]
    assert data["ambiguous"] is False
    (point,) = data["other_reading"]["points"]
    assert point["draft_length"] == cli(*asked, "--format", "json").point()["draft_length"]


@pytest.mark.parametrize(
    "text",
    ["0.7", f"survival:{LIST}", f"conditional:{LIST}", "rate:3=0.46", "al:3=2.38",
     "llama-3.1-8b-eagle3", "1,1,1"],
)  # fmt: skip
def test_nothing_else_has_two_readings(cli: Cli, text: str) -> None:
    answer = cli("recommend", "llama-3.1-8b", "--acceptance", text, "--format", "json")
    found = answer.data()["acceptance"]
    assert (found["ambiguous"], found["other_reading"]) == (False, None)
    assert "read as" not in answer.said


def test_what_an_engine_prints_is_never_ambiguous(cli: Cli, tmp_path: Path) -> None:
    """Its positions are survival: the log says which."""
    log = (
        "SpecDecoding metrics: Mean acceptance length: 2.38, Accepted throughput: 7.00 tokens/s, "
        "Drafted throughput: 15.00 tokens/s, Accepted: 138 tokens, Drafted: 300 tokens, "
        "Per-position acceptance rate: 0.720, 0.450, 0.210, Avg Draft acceptance rate: 46.0%\n"
    )
    path = write(tmp_path, "vllm.log", log)
    answer = cli("recommend", "llama-3.1-8b", "--acceptance", path, "--format", "json")
    assert answer.data()["acceptance"]["definition"] == "survival"
    assert answer.data()["acceptance"]["ambiguous"] is False
    assert answer.by_draft_length()[3]["tokens_per_step"] == pytest.approx(2.38, abs=0.001)


@pytest.mark.parametrize(
    ("asked", "definition"),
    [
        (("--acceptance", "0.7"), "one-rate"),
        (("--acceptance", "rate:3=0.46"), "rate"),
        (("--acceptance", "al:3=2.38"), "tokens_per_step"),
        (("--acceptance", "mix:0.5*al:3=2.38,0.5*rate:3=0.4"), "mix"),
        (("--drafter", "none"), "none"),
        ((), "tokens_per_step"),  # the bundled curve
    ],
)
def test_json_says_what_the_numbers_are(cli: Cli, asked: tuple[str, ...], definition: str) -> None:
    data = cli("recommend", "llama-3.1-8b", *asked, "--format", "json").data()
    assert data["acceptance"]["definition"] == definition
    assert data["acceptance"]["label"] == data["inputs"]["acceptance"]
    assert data["acceptance"]["source"] == data["inputs"]["acceptance_source"]


def test_other_answers_say_it_as_well(cli: Cli) -> None:
    rated = ("llama-3.1-8b", "--acceptance", f"survival:{LIST}", "--format", "json")
    for command in (
        ("schedule", *rated, "--batches", "1..4"),
        ("explore", *rated, "--vary", "layers=16,32"),
        ("recommend", *rated, "--rps", "2", "--input-tokens", "1k", "--output-tokens", "100"),
    ):
        assert cli(*command).data()["acceptance"]["definition"] == "survival", command


def test_points_that_agree_do_not_speak_for_those_that_differ() -> None:
    """At every point asked: batches of both kinds."""
    answer = recommend(
        question_of(model="llama-3.1-8b", batches=(1, 64, 128), contexts=(2048,), acceptance=LIST)
    )
    other = answer.other_reading
    assert other is not None
    differ = [
        (a.batch, a.draft_length, b.draft_length)
        for a, b in zip(answer.points, other.points, strict=True)
        if a.draft_length != b.draft_length
    ]
    assert 0 < len(differ) < 3
    assert [(a.batch, a.draft_length, b.draft_length) for a, b in answer.ambiguous] == differ
    codes = [n.code for n in answer.notices]
    assert Code.AMBIGUOUS_ACCEPTANCE in codes
    assert Code.READ_AS_SURVIVAL not in codes
    agreeing = tuple(p for p in answer.points if p.batch not in {batch for batch, _, _ in differ})
    chosen = answer_at(answer, agreeing)
    assert not chosen.ambiguous
    assert Code.AMBIGUOUS_ACCEPTANCE not in [n.code for n in chosen.notices]


def test_the_second_reading_is_not_priced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    prices: list[PricedGrid] = []
    price = Deployment.price

    def counted(deployment: Deployment, grid: Grid) -> PricedGrid:
        prices.append(price(deployment, grid))
        return prices[-1]

    monkeypatch.setattr(Deployment, "price", counted)
    answer = recommend(question_of(model="llama-3.1-8b", acceptance=LIST))
    assert answer.other_reading is not None
    assert len(prices) == 1


def test_every_place_that_takes_acceptance_reads_a_list_alike(cli: Cli) -> None:
    for command in (
        ("compare", "llama-3.1-8b", "--drafter", f"eagle3={LIST}", "--drafter", "ngram=0.4"),
        ("sweep", "llama-3.1-8b", "--acceptance", LIST, "--format", "jsonl"),
        ("schedule", "llama-3.1-8b", "--acceptance", LIST, "--batches", "1..4"),
        ("memory", "llama-3.1-8b", "--acceptance", LIST),
        ("explore", "llama-3.1-8b", "--acceptance", LIST, "--vary", "layers=16,32"),
    ):
        found = cli(*command)
        assert found.code == 0, found.err
        assert found.said.count("survival by position, as engines print it") == 1, command
