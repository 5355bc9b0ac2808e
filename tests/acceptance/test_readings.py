"""A list of rates typed without a word: survival and conditional rates, decided on one price."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import roofline
from roofline.advice.deployment import Deployment, PricedGrid
from roofline.advice.question import question_of
from roofline.advice.recommend import answer_at, recommend
from roofline.base.notices import Code
from roofline.specs.placement import Grid
from tests.servers import engine, pages, read, server
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
    """As far as the lists go: 1.9 and 2.0 tokens per step, or 1.9 and 1.99; both best at D = 2."""
    asked = ("recommend", model, "--gpu", "h200-sxm", "--tp", "2", "--acceptance", rates,
             "--max-draft-length", "2")  # fmt: skip
    told = cli(*asked)
    assert told.said.count("read as survival by position, as engines print it") == 1
    assert "as conditional rates they lead to the same advice" in told.said
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
    """Its positions are survival: the log says which. So many passes leave the prior no say."""
    log = (
        "SpecDecoding metrics: Mean acceptance length: 2.38, Accepted throughput: 7.00 tokens/s, "
        "Drafted throughput: 15.00 tokens/s, Accepted: 1380000 tokens, Drafted: 3000000 tokens, "
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
        ((), "expected"),  # of public runs
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


# Every other question that takes a list -------------------------------------------------------

#: Two GPUs and models, on which some of the answers to the two readings differ.
TWO = (("qwen3-8b", "--gpu", "a100-sxm-80gb"), ("llama-3.1-8b", "--gpu", "h200-sxm"))


def _three(cli: Cli, *asked: str, own: str = "--acceptance") -> tuple[Any, Any, Any]:
    """Return the JSON of a question with the bare list and with each word before it."""
    found = [
        cli(*asked, own, f"{word}{LIST}", "--format", "json").data()
        for word in ("", "survival:", "conditional:")
    ]
    return found[0], found[1], found[2]


def _check_words(cli: Cli, *asked: str, differ: bool, headlines: Sequence[str]) -> None:
    """Both headlines stand in the text, survival's first, and the note says what settles it."""
    words = " ".join(cli(*asked, "--acceptance", LIST, "--notes").out.split())
    if not differ:
        assert "As conditional rates" not in words
        assert words.count("they lead to the same advice") == 1
        return
    own, other = headlines
    conditional = f"As conditional rates, not survival: {other[:1].lower()}{other[1:]}"
    assert words.index(own) < words.index(conditional)
    assert words.count(f"write survival:{LIST} or conditional:{LIST}") == 1


def _check_acceptance(found: Any, *, differ: bool) -> Any:
    acceptance = found["acceptance"]
    assert acceptance["definition"] == "survival"
    assert acceptance["ambiguous"] is differ
    codes = [note["code"] for note in found["notes"]]
    assert codes.count("ambiguous-acceptance") == differ
    assert codes.count("read-as-survival") == (not differ)
    assert acceptance["other_reading"]["definition"] == "conditional"
    return acceptance["other_reading"]


@pytest.mark.parametrize("model", TWO)
@pytest.mark.parametrize("batches", ["1..64", "48..49"])
def test_a_schedule_is_made_of_both(cli: Cli, model: tuple[str, ...], batches: str) -> None:
    asked = ("schedule", *model, "--batches", batches)
    found, survival, conditional = _three(cli, *asked)
    assert found["bands"] == survival["bands"]
    assert found["text"] == survival["text"]

    def lengths(data: Any) -> list[Any]:
        return [(b["batch_start"], b["batch_end"], b["draft_length"]) for b in data["bands"]]

    differ = lengths(survival) != lengths(conditional)
    other = _check_acceptance(found, differ=differ)
    assert other["bands"] == conditional["bands"]
    texts = [cli(*asked, "--acceptance", f"{w}:{LIST}", "--short").out.replace("\n", " ").strip()
             for w in ("survival", "conditional")]  # fmt: skip
    assert other["headline"] == texts[1]
    _check_words(cli, *asked, differ=differ, headlines=texts)


def test_schedules_of_both_kinds_are_among_them(cli: Cli) -> None:
    """So that neither branch of the test above is empty."""
    differ = {
        cli("schedule", *model, "--batches", "1..64", "--acceptance", rates, "--format",
            "json").data()["acceptance"]["ambiguous"]
        for model in TWO for rates in (LIST, "0.9,0.1")
    }  # fmt: skip
    assert differ == {True, False}


@pytest.mark.parametrize("model", TWO)
@pytest.mark.parametrize("batch", ["4", "64"])
def test_variants_are_explored_with_both(cli: Cli, model: tuple[str, ...], batch: str) -> None:
    asked = ("explore", *model, "--batch", batch, "--vary", "layers=16,32")
    found, survival, conditional = _three(cli, *asked)
    assert found["variants"] == survival["variants"]
    own, other = ([v["draft_length"] for v in each["variants"]] for each in (survival, conditional))
    reading = _check_acceptance(found, differ=own != other)
    assert [v["draft_length"] for v in reading["variants"]] == other
    assert [v["values"] for v in reading["variants"]] == [{"layers": 16}, {"layers": 32}]
    texts = [cli(*asked, "--acceptance", f"{w}:{LIST}", "--short").out.replace("\n", " ").strip()
             for w in ("survival", "conditional")]  # fmt: skip
    _check_words(cli, *asked, differ=own != other, headlines=texts)


@pytest.mark.parametrize("model", TWO)
def test_a_sweep_counts_where_they_differ(cli: Cli, model: tuple[str, ...], tmp_path: Path) -> None:
    """By the column of the best D of a sweep with each word; the file has survival's."""
    best = {}
    for word in ("", "survival:", "conditional:"):
        file = tmp_path / f"a{word.strip(':')}.csv"
        asked = cli("sweep", *model, "--batch", "1..64", "--context", "1k,4k", "--acceptance",
                    f"{word}{LIST}", "-o", str(file))  # fmt: skip
        assert asked.code == 0, asked.err
        with file.open(encoding="utf-8") as lines:
            rows = [row for row in csv.DictReader(lines) if row["fits"] == "true"]
        best[word] = {
            (row["batch"], row["context"]): row["recommended_draft_length"] for row in rows
        }
        if not word:
            said, about = asked.said, json.loads(Path(f"{file}.provenance.json").read_text())
    assert best[""] == best["survival:"]
    differ = [at for at in best[""] if best["survival:"][at] != best["conditional:"][at]]
    assert 0 < len(differ) < len(best[""])
    at = f"batch {differ[0][0]}, context {differ[0][1]}"
    assert f"(at {len(differ)} of {len(best[''])} points; the first: {at})" in said
    assert said.count(f"write survival:{LIST} or conditional:{LIST}") == 1
    (acceptance,) = about["acceptance"]
    assert acceptance["definition"] == "survival"
    assert (acceptance["differ"], acceptance["points"]) == (len(differ), len(best[""]))


def test_a_sweep_in_parts_counts_all_of_them(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    asked = ("sweep", *TWO[0], "--batch", "1..64", "--acceptance", LIST)
    whole = cli(*asked).said
    monkeypatch.setattr("roofline.questions.sweep.plan.PART_POINTS", 50)
    assert "two readings, two answers (at " in whole
    assert cli(*asked).said == whole


@pytest.mark.parametrize("model", TWO)
@pytest.mark.parametrize("other", ["ngram=0.4", "ngram=0.75"])
def test_drafters_are_compared_under_both(cli: Cli, model: tuple[str, ...], other: str) -> None:
    """Even where each keeps its draft length and only the fastest changes."""
    asked = ("compare", *model, "--batch", "1,64", "--drafter", other)
    found, survival, conditional = (
        cli(*asked, "--drafter", f"eagle3={word}{LIST}", "--format", "json").data()
        for word in ("", "survival:", "conditional:")
    )
    assert found["points"] == survival["points"]

    def fastest(data: Any) -> list[Any]:
        firsts = [point["drafters"][0] for point in data["points"]]
        return [(each["drafter"], each["draft_length"]) for each in firsts]

    assert [(p["drafter"], p["draft_length"]) for p in found["other_reading"]] == fastest(
        conditional
    )
    (listed,) = (each for each in found["acceptance"] if each["definition"] == "survival")
    assert listed["other_reading"]["definition"] == "conditional"
    codes = {note["code"] for note in found["notes"]}
    if fastest(survival) != fastest(conditional):
        assert "ambiguous-acceptance" in codes
    words = " ".join(cli(*asked, "--drafter", f"eagle3={LIST}").out.split())
    changed = sum(a != b for a, b in zip(fastest(survival), fastest(conditional), strict=True))
    assert words.count("As conditional rates, not survival: ") == changed


@pytest.mark.parametrize("model", TWO)
@pytest.mark.parametrize("rates", [LIST, "0.9,0.8,0.7,0.2"])
def test_memory_is_accounted_with_both(cli: Cli, model: tuple[str, ...], rates: str) -> None:
    asked = ("memory", *model, "--context", "1k,4k")
    found, survival, conditional = (
        cli(*asked, "--acceptance", f"{word}{rates}", "--format", "json").data()
        for word in ("", "survival:", "conditional:")
    )
    assert found["contexts"] == survival["contexts"]
    own, other = (
        [each["draft_length"] for each in data["contexts"]] for data in (survival, conditional)
    )
    reading = _check_acceptance(found, differ=own != other)
    assert [each["draft_length"] for each in reading["contexts"]] == other
    words = cli(*asked, "--acceptance", rates).out
    changed = sum(a != b for a, b in zip(own, other, strict=True))
    assert words.count("As conditional rates, not survival") == changed


@pytest.mark.parametrize("model", TWO)
@pytest.mark.parametrize(
    "goal", [("--slo-tpot", "10"), ("--target-tokens-per-s", "1000"), ("--objective", "latency")]
)
def test_a_goal_is_met_under_both(cli: Cli, model: tuple[str, ...], goal: tuple[str, str]) -> None:
    asked = ("recommend", *model, *goal)
    found, survival, conditional = _three(cli, *asked)

    def chosen(choices: Any) -> list[Any]:
        return [(each["batch"], each["draft_length"]) for each in choices]

    own, other = (chosen(data["goal"]["choices"]) for data in (survival, conditional))
    assert chosen(found["goal"]["choices"]) == own
    assert chosen(found["goal"]["other_reading"]) == other
    _check_acceptance(found, differ=own != other)
    texts = [cli(*asked, "--acceptance", f"{w}:{LIST}", "--short").out.strip()
             for w in ("survival", "conditional")]  # fmt: skip
    _check_words(cli, *asked, differ=own != other, headlines=texts)


def test_a_goal_out_of_reach_under_one_reading_is_said(cli: Cli) -> None:
    """A limit between the fastest paces of the two, which the refusals of each name."""
    asked = ("recommend", *TWO[0], "--batch", "1")
    refused = [
        cli(*asked, "--acceptance", f"{word}:{LIST}", "--slo-tpot", "0.1").err
        for word in ("survival", "conditional")
    ]
    fast, slow = (float(re.findall(r"the fastest is ([\d.]+) ms", text)[0]) for text in refused)
    assert fast < slow
    found = cli(*asked, "--acceptance", LIST, "--slo-tpot", f"{(fast + slow) / 2:.3f}")
    assert found.code == 0
    words = " ".join(found.out.split())
    assert "As conditional rates, not survival: nothing meets the goal at context 4k." in words
    assert "conditional rates nothing (the goal is out of reach)" in words


@pytest.mark.parametrize("model", TWO)
@pytest.mark.parametrize("load", [("--rps", "2"), ("--batches-histogram", "1:0.5,64:0.5")])
def test_a_load_is_served_under_both(
    cli: Cli, model: tuple[str, ...], load: tuple[str, str]
) -> None:
    more = ("--input-tokens", "1k", "--output-tokens", "200") if load[0] == "--rps" else ()
    asked = ("recommend", *model, *load, *more)
    found, survival, conditional = _three(cli, *asked)
    assert found["policies"] == survival["policies"]
    reading = found["acceptance"]["other_reading"]
    assert reading["headline"] == conditional["headline"]
    assert reading["draft_length"] == conditional["draft_length"]
    if survival["draft_length"] != conditional["draft_length"]:
        heads = survival["headline"], conditional["headline"]
        _check_words(cli, *asked, differ=True, headlines=heads)


def test_python_answers_both_as_well() -> None:
    """The list as Python writes it is the bare list."""
    asked: Any = {"gpu": "a100-sxm-80gb", "acceptance": LIST}
    bands = roofline.schedule("qwen3-8b", batches="1..64", **asked).to_dict()
    swept = roofline.sweep("qwen3-8b", batch=[1, 64], **asked).to_dict()
    explored = roofline.explore("qwen3-8b", vary={"layers": [16, 36]}, **asked).to_dict()
    for found in (bands["acceptance"], explored["acceptance"]):
        assert (found["definition"], found["ambiguous"]) == ("survival", True)
        assert found["other_reading"]["definition"] == "conditional"
    assert any("two readings, two answers" in warning for warning in swept["warnings"])
    assert [each["definition"] for each in swept["acceptance"]] == ["survival"]


@pytest.mark.parametrize("model", TWO)
@pytest.mark.parametrize("milliseconds", ["3.0", "6.0", "8.0"])
def test_a_diagnosis_makes_steps_of_both(
    cli: Cli, model: tuple[str, ...], milliseconds: str
) -> None:
    """A time per token is a time of a step over AL(3): 2.38 as survival, 2.112 conditional."""
    asked = ("diagnose", *model, "--tpot", milliseconds, "--draft-length", "3")
    found, survival, conditional = _three(cli, *asked)
    assert found["points"] == survival["points"]
    assert found["term"] == survival["term"]
    steps = [data["points"][0]["measured_step_ms"] for data in (survival, conditional)]
    assert steps == pytest.approx([2.38 * float(milliseconds), 2.11204 * float(milliseconds)])
    differ = survival["term"] != conditional["term"]
    reading = _check_acceptance(found, differ=differ)
    assert reading["term"] == conditional["term"]
    assert survival["acceptance"] is None
    stated = cli("diagnose", *model, "--measured", "3:7ms", "--acceptance", LIST).out
    assert "they lead to the same advice" in " ".join(stated.split())  # a step is as measured


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("gpu", ["h100-sxm", "h200-sxm"])
def test_a_server_is_advised_under_both(cli: Cli, gpu: str) -> None:
    found = {}
    for word in ("", "survival:", "conditional:"):
        with server(engine(pages("vllm"))) as url:
            found[word] = read(
                cli, url, "--interval", "4", "--gpu", gpu, "--acceptance", f"{word}{LIST}"
            ).data()
    own, other = (found[word]["schedule"]["bands"] for word in ("survival:", "conditional:"))
    assert found[""]["schedule"]["bands"] == own
    reading = found[""]["schedule"]["acceptance"]
    assert reading["definition"] == "survival"
    assert reading["other_reading"]["bands"] == other

    def lengths(bands: Any) -> list[Any]:
        return [(b["batch_start"], b["batch_end"], b["draft_length"]) for b in bands]

    assert reading["ambiguous"] is (lengths(own) != lengths(other))
    codes = [note["code"] for note in found[""]["notes"]]
    assert codes.count("ambiguous-acceptance") == reading["ambiguous"]
    assert codes.count("read-as-survival") == (not reading["ambiguous"])
