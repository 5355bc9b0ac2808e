"""Results of the engines' own benchmark tools (tests/data/bench says where each text is from).

Expected speeds are worked out by hand from the numbers in the texts: B clients at a time per output
token (TPOT) decode B / TPOT tokens per second.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from roofline.base.errors import InputError
from roofline.engines.bench import read_bench, read_benches, read_pages
from roofline.engines.bench_result import BenchResult
from tests.support import ROOT

BENCH = ROOT / "tests" / "data" / "bench"
NAN = float("nan")


def read(name: str, **given: Any) -> BenchResult:
    return read_bench(BENCH / name, **given)


def document(name: str) -> dict[str, Any]:
    """Return the first JSON value of a file."""
    found = json.JSONDecoder().raw_decode((BENCH / name).read_text("utf-8"))[0]
    return dict(found[0] if isinstance(found, list) else found)


def refused(text: str, *words: str, **given: Any) -> str:
    """Return the one line with which a text is refused."""
    with pytest.raises(InputError) as error:
        read_bench(text, **given)
    line = str(error.value)
    assert "\n" not in line
    for word in words:
        assert word in line
    return line


# vLLM ---------------------------------------------------------------------------------------------


def test_vllm_bench_serve_prints_the_time_per_token() -> None:
    """4 clients at 456.23 ms; 1,536 tokens of 16 requests with 624 accepted drafts.

    Each request's first token comes with its prompt: 1,520 tokens in 1,520 - 624 passes, plus those
    whose accepted drafts the ends trimmed (expected 12.85: counted in `counts`).
    """
    found = read("vllm-0.32.0-serve.txt")
    assert found.engine == "vllm"
    assert (found.draft_length, found.concurrency, found.requests) == (4, 4.0, 16)
    assert found.tokens_per_s == pytest.approx(4 / 0.45623)
    assert found.prompts_inside is False
    assert found.tokens_per_step == pytest.approx(1520 / 896, rel=0.02)
    assert len(found.survival) == 4
    assert found.spread is None  # the text has no deviation


def test_the_json_of_vllm_bench_serve_says_the_same() -> None:
    """456.228 ms over 16 requests; a second run at 518.271.

    Its deviation of 155.967 ms is that of requests which have more or fewer drafts accepted, the
    same ones at every draft length: no scatter of steps.
    """
    text = (BENCH / "vllm-0.32.0-serve.json").read_text("utf-8")
    first, second = text.splitlines()
    one = read_bench(first)
    assert one.tokens_per_s == pytest.approx(4 / 0.45622806)
    assert one.spread is None
    assert one.draft_length == 4
    assert one.model == "target"
    both = read("vllm-0.32.0-serve.json")
    assert both.repeats == 2
    assert both.requests == 32
    speeds = [4 / 0.45622806, 4 / 0.51827106]
    assert both.tokens_per_s == pytest.approx(sum(speeds) / 2)
    assert both.spread is not None
    assert both.spread >= abs(speeds[0] - speeds[1]) / sum(speeds) - 1e-6
    assert both.passes == sum(read_bench(line).passes or 0 for line in (first, second))


def test_a_label_in_the_metadata_says_what_was_held() -> None:
    values = document("vllm-0.32.0-serve.json")
    values |= {"held": "2.5", "draft_length": "4"}
    assert read_bench(json.dumps(values)).held == 2.5
    values["draft_length"] = "three"
    refused(json.dumps(values), "draft_length=3,held=2.5")


def test_without_drafts_one_token_is_emitted_in_a_step() -> None:
    values = document("vllm-0.32.0-serve.json")
    plain = {key: value for key, value in values.items() if not key.startswith("spec_decode")}
    found = read_bench(json.dumps(plain | {"draft_length": "0"}))
    assert (found.draft_length, found.tokens_per_step) == (0, 1.0)
    # what the report does not say is asked for, or stays unknown
    del plain["draft_length"]
    assert read_bench(json.dumps(plain)).draft_length is None
    assert read_bench(json.dumps(plain), draft_length=0).tokens_per_step == 1.0


def test_without_a_time_per_token_the_time_between_chunks_is_a_pass() -> None:
    """`--percentile-metrics itl`: chunks come 765.42 ms apart, one of each pass."""
    text = (BENCH / "vllm-0.32.0-serve.txt").read_text("utf-8")
    found = read_bench(text.replace("Mean TPOT (ms):", "Mean other (ms):"))
    assert found.prompts_inside is False
    assert found.tokens_per_s == pytest.approx(4 * (found.tokens_per_step or 0) / 0.76542)


def test_output_per_second_holds_the_time_of_prompts() -> None:
    text = (BENCH / "vllm-0.32.0-serve.txt").read_text("utf-8")
    found = read_bench(text.replace("Maximum request concurrency:             4", ""))
    assert found.prompts_inside is True
    assert found.concurrency is None
    assert found.tokens_per_s == 7.57
    assert read_bench(
        text.replace("Maximum request concurrency:             4", ""), concurrency=4
    ).tokens_per_s == pytest.approx(4 / 0.45623)


def test_vllm_bench_latency_has_to_be_told_its_tokens() -> None:
    """A batch of 8 with 128 tokens each in 2 s; its prompts are inside."""
    for name in ("vllm-0.33.0-latency.txt", "vllm-0.33.0-latency.json"):
        refused((BENCH / name).read_text("utf-8"), "give batch and output_tokens")  # of `tune add`
        found = read(name, concurrency=8, output_tokens=128, draft_length=3)
        assert found.tokens_per_s == pytest.approx(512.0)
        assert found.prompts_inside is True
    assert found.spread == pytest.approx(0.02 / 2.0 / math.sqrt(3))


# SGLang -------------------------------------------------------------------------------------------


def test_sglang_bench_serving() -> None:
    """The stand-in emits 2.5 tokens in 20 ms; the tool measured 8.49 ms a token for 4 clients."""
    text, line = read("sglang-0.5.23-serving.txt"), read("sglang-0.5.23-serving.jsonl")
    for found in (text, line):
        assert found.engine == "sglang"
        assert found.concurrency == 4
        assert found.tokens_per_step == 2.5
        assert found.requests == 16
        assert found.prompts_inside is False
        assert found.tokens_per_s == pytest.approx(4 / 0.00849, rel=1e-3)
    assert text.draft_length is None  # the text does not say it, the server's settings do
    assert line.draft_length == 3
    assert line.held == 2.5  # of its tag
    assert line.spread == pytest.approx(0.15976738 / 8.49372148 / 4)


def test_sglang_bench_one_batch_server() -> None:
    """Its output throughput counts from when all have their first token: 256 - 4 in 0.51 s."""
    for name in ("sglang-0.5.23-one-batch.txt", "sglang-0.5.23-one-batch.jsonl"):
        found = read(name)
        assert found.tokens_per_s == 497.99
        assert found.prompts_inside is False
        assert (found.concurrency, found.tokens_per_step) == (4.0, 2.5)
    assert (found.draft_length, found.held) == (3, 2.5)
    plain = document("sglang-0.5.23-one-batch.jsonl") | {"acc_length": -1, "run_name": "default"}
    assert read_bench(json.dumps(plain)).tokens_per_step is None


def test_batches_of_one_file_are_told_apart() -> None:
    line = document("sglang-0.5.23-one-batch.jsonl")
    text = "\n".join(json.dumps(line | {"batch_size": batch}) for batch in (4, 8, 4))
    assert [(r.concurrency, r.repeats) for r in read_benches(text)] == [(4, 2), (8, 1)]
    refused(text, "holds 2 results", "batch")
    assert read_bench(text, concurrency=8).concurrency == 8
    refused(text, "was run at 4, 8", concurrency=16)


# TensorRT-LLM -------------------------------------------------------------------------------------


def test_trtllm_bench() -> None:
    """7.5 requests at 8 ms a token; AL = 1 + 3 x 156 / 300, and D = 1.56 / 0.52."""
    for name in ("trtllm-1.3-throughput.txt", "trtllm-1.3-throughput.json"):
        found = read(name)
        assert found.engine == "trtllm"
        assert found.tokens_per_s == pytest.approx(7.5 / 0.008)
        assert found.prompts_inside is False
        assert (found.draft_length, found.requests) == (3, 64)
        assert found.tokens_per_step == pytest.approx(2.56)
        assert found.model == "meta-llama/Llama-3.1-8B-Instruct"
    assert read(name, concurrency=8).tokens_per_s == pytest.approx(1000.0)
    # without --streaming there is no time per token
    values = document("trtllm-1.3-throughput.json")
    del values["streaming_metrics"]
    found = read_bench(json.dumps(values))
    assert (found.tokens_per_s, found.prompts_inside) == (800.0, True)


# llama.cpp ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["json", "csv", "md"])
def test_llama_bench_times_passes(form: str) -> None:
    """A pass of 4 rows is one in which 3 drafts are verified; tg16 is plain decoding."""
    rows = read_benches(BENCH / f"llamacpp-b11434-bench.{form}")
    assert [(r.draft_length, r.held) for r in rows] == [(0, None), (3, 4.0)]
    plain, verify = rows
    assert plain.repeats == 2  # pp1 and tg16 are both a pass of one row
    assert verify.step_seconds == pytest.approx(4 / verify.tokens_per_s)
    refused((BENCH / f"llamacpp-b11434-bench.{form}").read_text("utf-8"), "holds 2 results")
    assert read_bench(BENCH / f"llamacpp-b11434-bench.{form}", draft_length=3) == verify


def test_llama_bench_s_own_numbers() -> None:
    """Its JSON has 3 passes of 4 rows in the second entry."""
    rows = json.loads((BENCH / "llamacpp-b11434-bench.json").read_text("utf-8"))
    four = next(row for row in rows if row["n_prompt"] == 4)
    found = read("llamacpp-b11434-bench.json", draft_length=3)
    assert found.tokens_per_s == pytest.approx(4e9 / four["avg_ns"])
    assert found.spread == pytest.approx(four["stddev_ns"] / four["avg_ns"] / math.sqrt(3))
    refused(json.dumps(four | {"n_prompt": 512}), "512 prompt", "-p 1,2,3")


def test_llama_server_s_timings() -> None:
    """200 tokens after the first of each in 4.5 s, two at once; 100 accepted: AL = 200 / 100."""
    refused((BENCH / "llamacpp-b11434-responses.json").read_text("utf-8"), "2 responses", "batch")
    found = read("llamacpp-b11434-responses.json", concurrency=2, draft_length=4)
    assert found.tokens_per_s == pytest.approx(2 * 200 / 4.5)
    assert found.tokens_per_step == pytest.approx(2.0)
    assert found.passes == 100
    assert found.spread is None  # requests differ in what was accepted


def test_a_response_without_drafts_counts_too() -> None:
    """b11434 leaves draft_n out where a request drafted nothing: 300 tokens in 200 passes."""
    timings = {"predicted_n": 101, "predicted_ms": 1000.0}
    drafted = [timings | {"draft_n": 60, "draft_n_accepted": 50}] * 2
    text = json.dumps([{"timings": each} for each in (*drafted, timings)])
    assert read_bench(text, concurrency=1).tokens_per_step == pytest.approx(300 / 200)
    assert read_bench(json.dumps({"timings": timings})).tokens_per_step == 1.0


# Metrics pages and a CSV --------------------------------------------------------------------------


def page(generated: float, first: float, waited: float, drafts: float, accepted: float) -> str:
    """Return a page of vLLM with drafts of 3."""
    label = '{engine="0",model_name="m"}'
    return "\n".join(
        [
            f"vllm:generation_tokens_total{label} {generated}",
            f"vllm:time_to_first_token_seconds_count{label} {first}",
            f"vllm:inter_token_latency_seconds_sum{label} {waited}",
            f"vllm:inter_token_latency_seconds_count{label} {drafts}",
            f"vllm:spec_decode_num_drafts_total{label} {drafts}",
            f"vllm:spec_decode_num_draft_tokens_total{label} {3 * drafts}",
            f"vllm:spec_decode_num_accepted_tokens_total{label} {accepted}",
            "",
        ]
    )


def test_two_metrics_pages() -> None:
    """1,000 tokens after the first ones in 10 s of waiting: 100 tokens/s a sequence.

    400 passes emitted them: 600 accepted drafts, AL 2.5. In 2.5 s four ran at once on the mean.
    """
    before = page(5000, 50, 60.0, 3000, 1500)
    after = page(6010, 60, 70.0, 3400, 2100)
    found = read_pages(after, before, concurrency=4)
    assert found.tokens_per_s == pytest.approx(400.0)
    assert found.tokens_per_step == pytest.approx(2.5)
    assert (found.model, found.requests, found.prompts_inside) == ("m", 10, False)
    by_time = read_pages(after, before, seconds=2.5)
    assert by_time.concurrency == pytest.approx(4.0)
    assert by_time.tokens_per_s == pytest.approx(400.0)
    assert read_bench(after, earlier=before, concurrency=4, draft_length=3).draft_length == 3
    with pytest.raises(InputError, match="how many sequences"):
        read_pages(after, before)
    with pytest.raises(InputError, match="restarted"):
        read_pages(before, after, concurrency=4)
    with pytest.raises(InputError, match="did not grow"):
        read_pages(after, after, concurrency=4)
    refused(after, "second one")


def test_a_csv(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text(
        "draft_length,tokens_per_s,tokens_per_step,batch\n0,100,,1\n3,200,2.5,1\n3,204,2.5,1\n",
        "utf-8",
    )
    plain, three = read_benches(file)
    assert (plain.draft_length, plain.tokens_per_step, plain.concurrency) == (0, 1.0, 1.0)
    assert (three.tokens_per_s, three.repeats) == (202.0, 2)
    assert three.spread == pytest.approx(2 / 202)  # 2.83 / 202 / sqrt(2)
    for row, word in (("3,fast", "line 2"), ("3,-1", "tokens_per_s"), ("2.5,1", "line 2")):
        refused(f"draft_length,tokens_per_s\n{row}\n", word)


# What no run can have given -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"mean_tpot_ms": -1.0}, "mean_tpot_ms is -1"),
        ({"mean_tpot_ms": NAN}, "mean_tpot_ms is nan"),
        ({"mean_tpot_ms": float("inf")}, "mean_tpot_ms is inf"),
        ({"mean_tpot_ms": "fast"}, "expected a number, got 'fast'"),
        ({"mean_tpot_ms": 1e-9}, "tokens_per_s"),
        ({"max_concurrency": 1e300}, "tokens_per_s"),
        ({"completed": 0}, "no request was answered"),
        ({"completed": 10, "failed": 6}, "6 of 16 requests failed"),
        (
            {"spec_decode_acceptance_length": 2.0, "spec_decode_accepted_tokens": 1e9},
            "tokens_per_step",
        ),
        ({"draft_length": "2"}, "its label says draft length 2, and 4"),
    ],
)
def test_impossible_numbers_are_refused(values: dict[str, Any], word: str) -> None:
    refused(json.dumps(document("vllm-0.32.0-serve.json") | values), word)


RESPONSE = '{"timings": {"predicted_n": 100, "predicted_ms": 1000}}'


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('{"label": "draft_length=3,batch=8.8.8"}' + RESPONSE, "its label: expected a number"),
        ('{"label": "draft_length=3.5,batch=8"}' + RESPONSE, "its label says"),
        ('{"timings": {"predicted_n": 1e308, "predicted_ms": 1e-300}}', "the time of a token is 0"),
        (
            "| m | t/s |\n| --- | --- |\n| tg16 | 5..1 ± 0.1 |\n",
            "t/s: expected a number, got '5..1'",
        ),
        (
            "| m | t/s |\n| --- | --- |\n| tg16 | 51 ± 0..1 |\n",
            "t/s: expected a number, got '0..1'",
        ),
        ("draft_length,tokens_per_s,speed\n3,1,2\n", "unknown column 'speed'"),
    ],
)
def test_mangled_numbers_are_refused(text: str, word: str) -> None:
    refused(text, word)


def test_pages_of_two_engines_are_refused() -> None:
    with pytest.raises(InputError, match="two metrics pages of one engine"):
        read_pages("vllm:generation_tokens_total 5\n", "sglang:generation_tokens_total 5\n")


def test_pages_without_a_time_of_decoding() -> None:
    """Fifty tokens and no time of them: over 10 s they are 5/s, with prompts inside."""
    earlier, later = (f"vllm:generation_tokens_total {n}\n" for n in (0, 50))
    with pytest.raises(InputError, match="no time of decoding"):
        read_pages(later, earlier, concurrency=1)
    found = read_pages(later, earlier, concurrency=1, seconds=10.0)
    assert (found.tokens_per_s, found.prompts_inside) == (5.0, True)


def test_a_counter_below_zero_is_refused() -> None:
    """A series that the earlier read lacks counts from 0; found by fuzzing."""
    read = 'vllm:generation_tokens_total{model_name="m"} '
    with pytest.raises(InputError, match=r"fell from 0 to -20"):
        read_pages(
            f"{read}-20\n", 'vllm:generation_tokens_total{model_name="n"} 5\n', concurrency=1
        )


def test_another_draft_length_than_ran_is_refused() -> None:
    text = (BENCH / "vllm-0.32.0-serve.txt").read_text("utf-8")
    refused(text, "that run had draft length 4", draft_length=3)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('{"completed": 16, "total_out', "breaks off"),
        ('{"a": 1}', "no benchmark known here"),
        ("[1, 2]", "no benchmark known here"),
        ("[]", "holds no result"),
        ("hello\nworld", "no benchmark known here"),
        ("Avg latency: nan seconds\n", "'Avg latency:' is nan"),
        ("Avg latency: -2 seconds\n", "'Avg latency:' is -2"),
        ("============ Serving Benchmark Result ============\n", "neither a time per token"),
        ("Throughput: 12 requests/s\nbusy\n", "no benchmark known here"),
        ("[" * 100_000, "broken"),
        ('{"timings": 3}', "expected a mapping"),
        ('{"error": {"code": 400, "message": "too long"}}', "answered with an error: "),
        ('{"timings": {"predicted_n": 1, "predicted_ms": 5}}', "no token after the first"),
        ("| model | test | t/s |\n| m | pp99999999 | 1 |\n", "holds no result"),
    ],
)
def test_other_texts_are_refused(text: str, word: str) -> None:
    refused(text, word)


def test_a_file_that_is_no_result(tmp_path: Path) -> None:
    for content in (b"", b"\x00\xff" * 50):
        file = tmp_path / "x.txt"
        file.write_bytes(content)
        refused(str(file), "x.txt")
    refused(str(tmp_path / "missing.json"), "missing.json")
    refused(str(tmp_path), "cannot be read")


@pytest.mark.parametrize(
    "values",
    [
        {"tokens_per_s": NAN},
        {"tokens_per_s": 0.0},
        {"tokens_per_s": 1e12},
        {"tokens_per_s": 1.0, "tokens_per_step": 0.5},
        {"tokens_per_s": 1.0, "draft_length": 2, "tokens_per_step": 3.5},
        {"tokens_per_s": 1.0, "draft_length": -1},
        {"tokens_per_s": 1.0, "concurrency": 0.0},
        {"tokens_per_s": 1.0, "spread": -0.1},
    ],
)
def test_a_result_holds_possible_numbers_only(values: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        BenchResult(engine="vllm", **values)
