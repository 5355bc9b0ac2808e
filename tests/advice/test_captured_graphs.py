"""Past the rows that an engine captures CUDA graphs for nothing is advised, by no command.

vLLM captures up to 512 rows (vllm/config/compilation.py). B sequences of D drafts make B (1 + D) of
them, so D fits where B (1 + D) <= 512; where B alone is more, plain decoding is past them as well.
"""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest

from roofline.advice.decide import Point
from roofline.advice.question import question_of
from roofline.advice.recommend import recommend
from roofline.base.resources import data_file
from roofline.specs.formats import DType
from tests.html_browser import Open, browser, report, settle, text
from tests.support import Cli

__all__ = ["browser", "report"]

LARGEST = 512
ASK = ("llama-3.1-8b", "--gpu", "h200-sxm", "--acceptance", "0.8", "--context", "256")
JSON = ("--format", "json")
BATCHES = (1, 64, 73, 100, 128, 129, 200, 256, 257, 400, 512, 513, 700)
BIG = (
    "recommend", "qwen3-235b-a22b", "--gpu", "h200-sxm", "--tp", "8", "--ep", "8", "--weights",
    "fp8-block", "--batch", "256", "--drafter", "eagle3", "--acceptance", "0.7",
)  # fmt: skip
RAISED = ("--set", "engine.graphs.up_to=1024")


def allowed(batch: int, draft_length: int) -> bool:
    return batch > LARGEST or batch * (1 + draft_length) <= LARGEST


def points(**changes: object) -> tuple[Point, ...]:
    asked = {
        "model": "llama-3.1-8b", "gpu": "h200-sxm", "acceptance": "0.8", "contexts": (256,),
        "batches": BATCHES,
    }  # fmt: skip
    return recommend(question_of(**(asked | changes))).points


def test_a_processor_pads_no_rows() -> None:
    """A real vLLM on a processor logs graph mode NONE (workshop/proof/servers.json)."""
    machine = data_file("measured") / "cpu-epyc-2-cores-numpy.yaml"
    question = question_of(model="qwen3-0.6b", gpu=str(machine), acceptance="0.8")
    assert question.deployment.engine.graphs is None


def test_the_advice_is_the_best_inside_the_captures() -> None:
    """The smallest D within 1 % of the best AL / step among those allowed, by brute force."""
    seen = points()
    assert [point.batch for point in seen] == list(BATCHES)
    for point in seen:
        speed = [
            al / step if allowed(point.batch, d) else 0.0
            for d, al, step in zip(
                point.draft_lengths, point.tokens_per_step, point.step, strict=True
            )
        ]
        expected = next(i for i, own in enumerate(speed) if own >= 0.99 * max(speed))
        assert point.best == expected, point.batch
        assert all(allowed(point.batch, d) for d in point.tie_band)
        assert not point.near_best[[own == 0 for own in speed]].any()
        assert [point.draft_lengths[i] for i in point.worth_benchmarking] == [
            d for d in (point.draft_lengths[i] for i in point.worth_benchmarking)
            if allowed(point.batch, d)
        ]  # fmt: skip
    unbounded = points(engine="sglang")
    assert all(point.captured.all() for point in unbounded)


def test_memory_and_captures_are_told_apart() -> None:
    """All of it fits: what is left out of the advice stays in the table."""
    for point in points():
        assert point.feasible.all()
        rows = point.batch * (1 + np.array(point.draft_lengths))
        np.testing.assert_array_equal(point.captured, rows <= LARGEST)
        assert not point.by_hand[point.captured].any()


def test_the_flag_that_captures_more_and_its_gain(cli: Cli) -> None:
    """256 x (1 + 3) = 1,024 rows: with the flag told to the tool the same speedup is advised."""
    plain = cli(*BIG)
    said = " ".join(plain.out.split())
    assert "Run draft length 1 " in said  # 256 x 2 = 512
    assert "add --max-cudagraph-capture-size 1024." in said
    assert "draft lengths 2 to 8 need more than the 512 rows" in cli(*BIG, *JSON).said
    raised = cli(*BIG, *RAISED, *JSON).point()
    assert raised["draft_length"] == 3
    gain = f"{raised['speedup']:.2f}x"
    assert f"Draft length 3 would give {gain} with its 1024 rows captured" in said
    assert [row["captured"] for row in raised["by_draft_length"]] == [True] * 4 + [False] * 5


def test_rows_past_the_captures_are_marked_and_explained(cli: Cli) -> None:
    """The charge by hand: kernels x 40 us less the verify pass, all of the overhead's jump."""
    outcome = cli(*BIG, "--explain")
    marks = {line[2]: line[0] for line in outcome.out.splitlines() if line[1:2] == " " and
             line[2:3].isdigit() and line[0] in " *!"}  # fmt: skip
    assert marks == {"0": " ", "1": "*"} | {str(d): "!" for d in range(2, 9)}
    said = " ".join(outcome.out.split())
    assert "!: more rows than the 512 that vLLM captures CUDA graphs for; such steps " in said
    assert "so none of them is advised" in said
    point = cli(*BIG, *JSON, "--explain").data()
    rows = {row["draft_length"]: row for row in point["points"][0]["by_draft_length"]}
    kernels = sum(op["count"] for op in point["explain"][0]["ops"] if op["pass"] == "verify")
    charge = kernels * 0.040 - rows[2]["verify_ms"]
    assert charge > 0
    assert rows[2]["by_hand_ms"] == pytest.approx(charge)
    assert f"max(0, {kernels} kernels x 40 us - verify {rows[2]['verify_ms']:.2f} ms)" in said
    rounds = rows[2]["overhead_ms"] - rows[1]["overhead_ms"] - charge
    assert rounds == pytest.approx(0.1557, abs=1e-3)  # per_draft_pass of vLLM


def test_no_draft_inside_the_captures(cli: Cli) -> None:
    """280 sequences: one draft each makes 560 rows, and two 840."""
    outcome = cli("recommend", *ASK, "--batch", "280")
    said = " ".join(outcome.out.split())
    assert "every draft length needs more rows than the engine captures" in said
    assert "does not fit" not in said
    assert "--max-cudagraph-capture-size 848" in said  # 840 in multiples of 16


def test_a_sweep_says_what_recommend_says(cli: Cli) -> None:
    batches = ",".join(map(str, BATCHES))
    swept = cli("sweep", *ASK, "--batch", batches)
    rows = list(csv.DictReader(io.StringIO(swept.out)))
    assert "where captured is false" in swept.err
    assert {row["fits"] for row in rows} == {"true"}
    for point in points():
        own = [row for row in rows if row["batch"] == str(point.batch)]
        assert [row["captured"] == "true" for row in own] == point.captured.tolist()
        assert [row["tie"] == "true" for row in own] == point.tie.tolist()
        assert {row["recommended_draft_length"] for row in own} == {str(point.draft_length)}
        assert {row["confidence"] for row in own} == {point.confidence.value}


def test_a_schedule_stays_inside(cli: Cli) -> None:
    asked = ("schedule", *ASK[:5], "--contexts", "256", "--batches", "1..300", *JSON)
    data = cli(*asked).data()
    bands = data["bands"]
    assert (bands[0]["batch_start"], bands[-1]["batch_end"]) == (1, 300)
    assert all(allowed(band["batch_end"], band["draft_length"]) for band in bands)
    assert max(band["draft_length"] for band in bands) > 1
    far = cli(*asked, *RAISED).data()["bands"]
    assert any(not allowed(band["batch_end"], band["draft_length"]) for band in far)


def test_explore_compare_and_goals_stay_inside(cli: Cli) -> None:
    asked = ("llama-3.1-8b", "--gpu", "h200-sxm", "--context", "256")
    explored = cli(
        "explore",
        *asked,
        "--acceptance",
        "0.8",
        "--vary",
        "group_size=4,8",
        "--batch",
        "256",
        *JSON,
    ).data()
    assert all(variant["draft_length"] <= 1 for variant in explored["variants"])
    for variant in explored["variants"]:
        for row in variant["by_batch"]:
            assert allowed(row["batch"], row["draft_length"])
    compared = cli(
        "compare", *asked, "--batch", "200", "--drafter", "eagle3=0.8", "--drafter", "ngram=0.8",
        *JSON,
    ).data()  # fmt: skip
    assert all(row["draft_length"] <= 1 for row in compared["points"][0]["drafters"])
    goal = cli("recommend", *ASK, "--objective", "throughput", "--slo-tpot", "8", *JSON).data()
    (choice,) = goal["goal"]["choices"]
    assert allowed(choice["batch"], choice["draft_length"])


def test_a_load_counts_the_steps_past_them(cli: Cli) -> None:
    """Half the time at 200 sequences, where D = 2 makes 600 rows; 1 in 100,000 is no matter."""
    asked = ("recommend", *ASK, "--max-draft-length", "3", *JSON)
    often = cli(*asked, "--batches-histogram", "8:0.5,200:0.5").data()
    assert often["draft_length"] == 1
    past = [policy["gaps_past_graphs"] > 0.5 for policy in often["policies"][:4]]
    assert past == [False, False, True, True]
    assert often["policies"][-1]["policy"] == "schedule"
    assert often["policies"][-1]["gaps_past_graphs"] == 0
    seldom = cli(*asked, "--batches-histogram", "8:0.99999,200:0.00001").data()
    assert seldom["draft_length"] == 3


@pytest.mark.parametrize(
    ("gpu", "usual", "up_to"),
    [
        ("h200-sxm", 512, 256),
        ("h200-sxm", 512, 2048),
        ("b200-hgx", 1024, 256),
        ("h200-sxm", 512, 0),
    ],
)
def test_the_captures_that_were_set_are_those_of_the_answer(
    cli: Cli, gpu: str, usual: int, up_to: int
) -> None:
    """Rows beyond them are not captured.

    vLLM captures 512, on Blackwell 1,024 (`_set_cudagraph_sizes`).
    """
    asked = (
        "llama-3.1-8b",
        "--gpu",
        gpu,
        "--acceptance",
        "0.8",
        "--context",
        "256",
        "--batch",
        "96",
    )
    data = cli("recommend", *asked, "--set", f"engine.graphs.up_to={up_to}", *JSON).data()
    (point,) = data["points"]
    for row in point["by_draft_length"]:
        assert row["captured"] is (96 * (1 + row["draft_length"]) <= up_to)
    (change,) = data["inputs"]["set"]
    assert change["was"] == str(usual)


def test_raising_the_captures_pads_in_their_last_step() -> None:
    """600 rows run as 608 (multiples of 16) once up to 1,024 are captured."""
    from roofline.specs.engine import load_engine

    graphs = load_engine("vllm").graphs
    assert graphs is not None
    raised = graphs.model_copy(update={"up_to": 1024})
    assert raised.largest == 1024
    assert np.asarray(raised.padded(np.array([9.0, 512.0, 600.0, 1025.0]))).tolist() == [
        16, 512, 608, 1025,
    ]  # fmt: skip


def test_the_page_decides_alike(report: Open, cli: Cli) -> None:
    question = (*ASK[:5], "--batch", "200", "--context", "256")
    expected = cli("recommend", *question, *JSON).point()
    assert "would give" in expected["reason"]
    with report(*question) as page:
        settle(page)
        assert text(page, "headline") == expected["headline"]
        assert text(page, "reason") == expected["reason"]


def test_data_parallel_groups_have_graphs_of_their_own() -> None:
    """512 sequences on 8 groups are 64 each: D = 7 makes 512 rows in each."""
    asked = question_of(
        model="deepseek-v3",
        gpu="h200-sxm",
        tp=8,
        ep=8,
        dp_attention=8,
        drafter="mtp",
        acceptance="0.9",
        batches=(512,),
        contexts=(256,),
        kv=DType.FP8,
    )
    (point,) = recommend(asked).points
    assert point.captured.tolist() == [d <= 7 for d in point.draft_lengths]


def test_json_states_captured_rows_of_every_draft_length(cli: Cli) -> None:
    rows = json.loads(cli("recommend", *ASK, "--batch", "128", *JSON).out)["points"][0]
    assert [row["captured"] for row in rows["by_draft_length"]] == [
        row["draft_length"] <= 3 for row in rows["by_draft_length"]
    ]
