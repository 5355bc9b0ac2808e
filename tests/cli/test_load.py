"""Loads on the command line: every format, the schedule, histograms, prices, refusals."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roofline.advice.question import question_of
from roofline.specs.placement import Chunks
from tests.physics import refusal, run
from tests.serving import Engine, replicated

MODEL = "llama-3.1-8b --acceptance llama-3.1-8b-eagle3"
LLAMA = f"{MODEL} --rps 8 --input-tokens 1k --output-tokens 400"


def answer(command: str) -> Any:
    code, out, err = run(f"roofline recommend {command} --format json")
    assert code == 0, err
    return json.loads(out)


def test_the_whole_way_against_a_simulation_on_the_same_steps() -> None:
    # step times without a load, at the load's mean context, with 0, 1, 2 and 4 prompts in the step
    batches, levels = [1, 2, 4, 8, 12, 16, 20, 24, 32, 40, 48], (0, 1, 2, 4)
    deployment = question_of(model="llama-3.1-8b", contexts=(1224,)).deployment
    table = {}
    for k in levels:
        prompts = Chunks(number=float(k), tokens=1024.0, before=0.0)
        grid = deployment.grid(batches, (1224,), range(4), prefill_tokens=1024 * k, chunks=prompts)
        table[k] = deployment.price(grid).times.total[:, 0, 3]

    def step(n: int, k: int) -> float:
        return float(np.interp(k, levels, [np.interp(n, batches, table[j]) for j in levels]))

    known = [[step(n, k) for k in range(5)] for n in range(49)]
    # EAGLE-3 on MT-Bench, tokens per step at D = 2 and 3: 2.36 and 2.79
    engine = Engine(
        step=lambda n, k: known[min(n, 48)][min(k, 4)], survival=(0.72, 0.64, 0.43), slots=200,
        chunks_per_prompt=1, chunks_per_step=8,
    )  # fmt: skip
    seen = replicated(engine, rps=8.0, output=400, requests=1500, runs=8)
    (found,) = [p for p in answer(LLAMA)["policies"] if p["draft_length"] == 3]
    for name, scale in (("running", 1), ("tpot_ms", 1e3), ("gap_p50_ms", 1e3), ("gap_p99_ms", 1e3)):
        mean, error = (scale * x for x in seen[name.removesuffix("_ms")])
        assert found[name] == pytest.approx(mean, abs=4 * error + 0.02 * mean), name


def test_json_of_a_load() -> None:
    data = answer(f"{LLAMA} --gpu-hour 2.5")
    assert data["schema"] == "roofline.load/2"
    assert data["load"]["context"] == 1224  # 1024 + 400 / 2
    best = min((p for p in data["policies"] if p["policy"] == "fixed"), key=lambda p: p["tpot_ms"])
    advised = next(p for p in data["policies"] if p["draft_length"] == data["draft_length"])
    assert advised["tpot_ms"] <= best["tpot_ms"] / 0.99
    for policy in data["policies"]:
        # 8 requests/s of 400 tokens: $2.50 / 3600 s / 3200 tokens/s
        assert policy["dollars_per_million_tokens"] == pytest.approx(2.5 / 3600 / 3200 * 1e6)
        full = 2.5 / 3600 / (400 * policy["most_rps"]) * 1e6
        assert policy["dollars_per_million_at_most"] == pytest.approx(full)
    assert data["policies"][-1]["policy"] == "schedule"
    assert "num_speculative_tokens_per_batch_size" in data["schedule"]


def test_a_schedule_takes_the_best_draft_length_of_every_batch() -> None:
    asked = "llama-3.1-8b --acceptance conditional:0.6,0.5,0.4,0.3 --context 1k"
    data = answer(f"{asked} --batches-histogram 1:0.9,256:0.1")
    fixed = [policy["tokens_per_s"] for policy in data["policies"][:-1]]
    schedule = data["policies"][-1]
    # the same from single batches: the best rate of each, weighted by the share of time
    points = answer(f"{asked} --batch 1,256")["points"]
    best = [max(row["tokens_per_s"] for row in point["by_draft_length"]) for point in points]
    within_a_tie = 0.99 * (0.9 * best[0] + 0.1 * best[1])
    assert within_a_tie <= schedule["tokens_per_s"] <= 0.9 * best[0] + 0.1 * best[1]
    assert schedule["tokens_per_s"] > max(fixed)
    assert points[0]["draft_length"] > points[1]["draft_length"]


def test_a_batch_of_the_histogram_costs_what_the_batch_costs() -> None:
    (point,) = answer("llama-3.1-8b --batch 32 --context 2k")["points"]
    alone = {row["draft_length"]: row for row in point["by_draft_length"]}
    for policy in answer("llama-3.1-8b --batches-histogram 32:1 --context 2k")["policies"][:-1]:
        row = alone[policy["draft_length"]]
        assert policy["tpot_ms"] == pytest.approx(row["tpot_ms"], rel=1e-9)
        assert policy["gap_p99_ms"] == pytest.approx(row["step_ms"], rel=1e-9)
        assert policy["gain"] == pytest.approx(row["speedup"], rel=1e-9)


def test_a_histogram_file(tmp_path: Path) -> None:
    file = tmp_path / "seen.csv"
    file.write_text("batch,share\n8,1\n32,3\n", encoding="utf-8")
    given = answer(f"llama-3.1-8b --batches-histogram {file}")
    typed = answer("llama-3.1-8b --batches-histogram 8:0.25,32:0.75")
    assert given["policies"] == typed["policies"]
    assert given["load"]["histogram"] == [
        {"batch": 8, "share": 0.25}, {"batch": 32, "share": 0.75},
    ]  # fmt: skip


@pytest.mark.parametrize("load", [LLAMA, "llama-3.1-8b --batches-histogram 8:0.5,32:0.5"])
@pytest.mark.parametrize("price", ["", "--gpu-hour 2.5"])
def test_every_format(load: str, price: str) -> None:
    for form in ("table", "markdown", "csv"):
        code, out, _ = run(f"roofline recommend {load} {price} --format {form}")
        assert code == 0
        if form == "csv":
            rows = list(csv.DictReader(io.StringIO(out)))
            assert [row["recommended"] for row in rows].count("true") == 1
            assert ("dollars_per_million_tokens" in rows[0]) == bool(price)
        else:
            assert ("$" in out) == bool(price)
        if form == "table":
            flags = [line for line in out.splitlines() if "--speculative-config" in line]
            assert all(len(line) <= 80 or line in flags for line in out.splitlines())


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ("--rps 50 --input-tokens 1k --output-tokens 400", ["overloaded: at most", "requests/s"]),
        ("--rps 0 --input-tokens 1k --output-tokens 400", ["--rps 0", "more than 0"]),
        ("--rps nan --input-tokens 1k --output-tokens 400", ["--rps nan", "more than 0"]),
        ("--rps 1e300 --input-tokens 1k --output-tokens 400", ["--rps 1e+300", "below 1e6"]),
        ("--rps 1", ["--rps", "--input-tokens and --output-tokens"]),
        ("--rps 1 --input-tokens 1k", ["--input-tokens, --output-tokens", "both"]),
        ("--rps 1 --input-tokens 1k,2k --output-tokens 4", ["--input-tokens 1k,2k", "one number"]),
        ("--rps 1 --input-tokens 1k --output-tokens 0", ["--output-tokens 0", "at least 1"]),
        ("--rps 1 --input-tokens 128k --output-tokens 4k", ["(mean context 133120)"]),
        ("--rps 1 --input-tokens 127k --output-tokens 2k", ["131072 tokens, not 132096"]),
        ("--rps 1 --input-tokens 1k --output-tokens 4 --batches-histogram 1:1", ["one of them"]),
        ("--rps 1 --input-tokens 1k --output-tokens 4 --batch 4", ["--batch", "beside --"]),
        ("--rps 1 --input-tokens 1k --output-tokens 4 --slo-tpot 4", ["--slo-tpot 4", "alone"]),
        ("--rps 1 --input-tokens 1k --output-tokens 4 --context 4k", ["--context: follows"]),
        ("--rps 1 --input-tokens 1k --output-tokens 4 --max-batch 0", ["--max-batch 0"]),
        ("--rps 1 --input-tokens 1k --output-tokens 4 --prefill-chunk 1", ["--prefill-chunk 1"]),
        ("--rps 1 --input-tokens 1k --output-tokens 4 --prefill-tokens-per-step 9",
         ["--prefill-tokens-per-step", "follows"]),
        ("--input-tokens 1k", ["--input-tokens, --output-tokens", "both"]),
        ("--prefill-chunk 1k", ["--prefill-chunk", "describes a request", "--trace"]),
        ("--rps 1 --trace a.csv", ["--trace", "beside a load"]),
        ("--trace nowhere.csv", ["--trace nowhere.csv", "cannot be read"]),
        ("--input-tokens 1k --output-tokens 9 --context 4k", ["--context: follows"]),
        ("--input-tokens 128k --output-tokens 4k", ["(mean context 133120)"]),
        ("--input-tokens 127k --output-tokens 2k", ["131072 tokens, not 132096"]),
        ("--input-tokens 1k --output-tokens 9 --prefix-tokens 1k", ["--prefix-tokens 1024"]),
        ("--batches-histogram 8:0.5,8:0.5", ["--batches-histogram", "once"]),
        ("--batches-histogram 8", ["--batches-histogram", "1:0.2,32:0.8"]),
        ("--batches-histogram 8:1 --max-batch 9", ["--max-batch"]),
        ("--batches-histogram 9999:1", ["--batches-histogram", "4096"]),
        ("--batches-histogram 8:1e308,9:1e308", ["--batches-histogram", "finite sum"]),
        ("--batches-histogram nowhere.csv", ["nowhere.csv", "cannot be read"]),
        ("--gpu-hour 0", ["--gpu-hour 0", "more than 0"]),
        ("--gpu-hour nan", ["--gpu-hour nan", "more than 0"]),
        ("--gpu-hour 1e308", ["--gpu-hour 1e+308", "below 1e6"]),
        ("--host=", ["--host: expected"]),
    ],
)  # fmt: skip
def test_refused_in_one_line(options: str, parts: list[str]) -> None:
    line = refusal(f"roofline recommend llama-3.1-8b {options}")
    for part in parts:
        assert part in line


def test_a_load_that_plain_decoding_cannot_carry() -> None:
    data = answer(f"{MODEL} --rps 22 --input-tokens 1k --output-tokens 400")
    plain = data["policies"][0]
    assert plain["usable"] is False
    assert plain["tpot_ms"] is plain["gain"] is None
    assert plain["most_rps"] < 22
    assert data["draft_length"] > 0


def test_a_drafter_that_does_not_fit_beside_the_load() -> None:
    """Llama 3.1 8B at 4k on an H100, by hand: 107 sequences without a drafter, 102 beside one.

    74.95 - 16.06 - 0.84 = 58.05 GB. A sequence takes 4112 slots of 131,072 B and 0.77 MB of logits,
    539.7 MB; with a head of 0.85 GB, 4,096 B more by slot and D = 1 it is 557.4 MB.
    """
    data = answer("llama-3.1-8b --batches-histogram 107:1")
    assert data["draft_length"] == 0
    assert [policy["usable"] for policy in data["policies"]].count(True) == 1
    out = run("roofline recommend llama-3.1-8b --batches-histogram 107:1")[1]
    assert ": do not speculate." in out.split("\n", 1)[0]
    assert "does not fit beside 107 sequences" in " ".join(out.split())


def test_a_step_gives_a_request_no_more_than_its_answer() -> None:
    """With 0.5 at every position: 1 token of an answer of 1; 1.5 of one of 2, at every D."""
    load = "llama-3.1-8b --acceptance 0.5 --max-draft-length 4 --rps 1 --input-tokens 1k"
    for output, most in ((1, [1, 1, 1, 1, 1]), (2, [1, 1.5, 1.5, 1.5, 1.5]),
                         (9, [1, 1.5, 1.75, 1.875, 1.9375])):  # fmt: skip
        data = answer(f"{load} --output-tokens {output}")
        fixed = [p for p in data["policies"] if p["draft_length"] is not None]
        assert [p["tokens_per_step"] for p in fixed] == pytest.approx(most)
        assert (data["draft_length"] == 0) == (output == 1)


def test_fewer_slots_serve_fewer_requests() -> None:
    lengths = "--rps 2 --input-tokens 1k --output-tokens 400"
    rates = [
        answer(f"llama-3.1-8b {lengths} --max-batch {size}")["policies"][0]["most_rps"]
        for size in (16, 64, 256)
    ]
    assert rates == sorted(rates)


def test_the_price_of_tokens_beside_a_batch() -> None:
    data = answer("llama-3.1-8b --batch 8 --tp 2 --gpu-hour 3")
    for row in data["points"][0]["by_draft_length"]:
        # 2 GPUs at $3: 1/600 $/s
        assert row["dollars_per_million_tokens"] == pytest.approx(1e6 / 600 / row["tokens_per_s"])
    assert data["inputs"]["gpu_hour"] == 3
    plain = answer("llama-3.1-8b --batch 8 --tp 2")
    assert "gpu_hour" not in plain["inputs"]
    assert "dollars_per_million_tokens" not in plain["points"][0]["by_draft_length"][0]
