"""Whole requests: seconds by hand, limits that must hold, and what refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from roofline.advice.configuration import Configuration
from roofline.advice.deployment import Deployment, deploy
from roofline.advice.question import Workload
from roofline.base.errors import InputError
from roofline.questions.request.answer import RequestAnswer, answer_requests
from roofline.questions.request.described import lengths_of
from roofline.questions.request.lengths import Requests, requests_of
from roofline.questions.request.pricing import price_requests, request_seconds
from roofline.questions.request.traces import read_trace


def deployed(model: str = "llama-3.1-8b", **options: object) -> Deployment:
    asked = {"gpu": "h100-sxm", "drafter": "eagle3"} | options
    return deploy(Configuration(model=model, **asked))[0]  # type: ignore[arg-type]


def one(prompt: int, answer: int, prefix: int = 0, chunk: int | None = None) -> Requests:
    return requests_of((prompt,), (answer,), (prefix,), chunk=chunk)


def ttft(requests: Requests, *, batch: int = 1, draft_length: int = 0) -> float:
    priced = price_requests(
        deployed(), requests, batches=(batch,), draft_lengths=(0, draft_length or 3)
    )
    seconds = priced.seconds(np.array([1.0, 2.0]))
    return float(seconds.ttft[0, 1 if draft_length else 0, 0])


def test_a_closed_loop_by_hand() -> None:
    """Three requests of 10 decode passes of 20 ms and one chunk that adds 130 ms.

    A cycle has 1 + 10 + 1 = 12 passes, each 20 ms + 2 x 130 / 12 = 41.67 ms as a request sees it:
    TTFT 2 x 41.67 + 130 = 213.3 ms, then 10 passes of 41.67 ms for 20 tokens.
    """
    found = request_seconds(
        step=np.array([0.020]),
        prompt=np.array([0.130]),
        chunks=np.array([1.0]),
        outputs=np.array([21.0]),
        tokens_per_step=np.array([2.0]),
        batch=np.array([3.0]),
        shares=np.ones(1),
    )
    assert found.ttft.item() == pytest.approx(2 * 0.0416667 + 0.130, rel=1e-5)
    assert found.tpot.item() == pytest.approx(10 * 0.0416667 / 20, rel=1e-5)
    # Little: three requests in a cycle of 630 ms, in which three prompts were read
    assert found.e2e.item() == pytest.approx(12 * 0.020 + 3 * 0.130, rel=1e-5)


def test_a_loop_played_through_takes_as_long() -> None:
    """Eight requests that begin one after the other: a pass of waiting, one with the prompt, 18
    that decode; 10 ms a pass, 25 ms more for each prompt in it. Brute force over 4,000 passes."""
    passes, batch, plain, prompt = 20, 8, 0.010, 0.025
    left = np.linspace(1, passes, batch).astype(int)
    times, lasted = list[float](), list[float]()
    since = np.full(batch, np.nan)
    for _ in range(4000):
        done = left == 0
        lasted += [sum(times) - start for start in since[done] if not np.isnan(start)]
        since[done], left[done] = sum(times), passes
        times.append(plain + prompt * (left == passes - 1).sum())
        left -= 1
    found = request_seconds(
        step=np.array([plain]),
        prompt=np.array([prompt]),
        chunks=np.array([1.0]),
        outputs=np.array([19.0]),
        tokens_per_step=np.array([1.0]),
        batch=np.array([float(batch)]),
        shares=np.ones(1),
    )
    assert np.mean(lasted) == pytest.approx(found.e2e.item(), rel=0.01)


def test_where_prompts_take_all_passes_requests_wait_for_them() -> None:
    """100 requests of 8 chunks and one token: 800 passes of prompts a cycle, whoever is served."""
    found = request_seconds(
        step=np.array([0.010]),
        prompt=np.array([0.800]),
        chunks=np.array([8.0]),
        outputs=np.array([1.0]),
        tokens_per_step=np.array([1.0]),
        batch=np.array([100.0]),
        shares=np.ones(1),
        fewest_passes=np.array([800.0]),
    )
    assert found.e2e.item() == pytest.approx(800 * 0.010 + 100 * 0.800)
    assert np.isnan(found.tpot.item())


def test_a_longer_prompt_takes_longer_and_a_prefix_hit_less() -> None:
    short, long, hit = ttft(one(1000, 100)), ttft(one(4000, 100)), ttft(one(4000, 100, 3000))
    assert short < hit < long
    # 1,000 rows over 4,000 tokens: the rows of the short prompt, and more attention
    assert hit < 1.2 * short


def test_small_chunks_cost_more_passes() -> None:
    assert ttft(one(8000, 100, chunk=512)) > ttft(one(8000, 100, chunk=8192))


def test_drafting_delays_the_first_token() -> None:
    """The drafter reads the prompt as well, and drafts before the token is out.

    A100, EAGLE-3, D = 5, 720 tokens: 57.8 ms without and 64.4 ms with it (held-out runs).
    """
    plain, drafting = ttft(one(1000, 100)), ttft(one(1000, 100), draft_length=3)
    assert plain < drafting < 1.5 * plain


def test_the_first_token_of_a_prompt_on_one_a100_as_measured() -> None:
    """Llama-3.1-8B, 720 tokens: 57.8 ms over HTTP (SpecDecoding-Study-vLLM-SGLang, phase 2).

    The passes alone, without what the server adds.
    """
    deployment = deployed(gpu="a100-sxm-80gb")
    priced = price_requests(
        deployment, one(720, 256), batches=(1,), draft_lengths=(0, 5), front_end=0.0
    )
    plain, drafting = priced.seconds(np.array([1.0, 2.85])).ttft[0, :, 0]
    assert 0.0578 * 0.75 < plain < 0.0578
    assert 0.004 < drafting - plain < 0.010  # 64.4 - 57.8 = 6.6 ms


def answered(requests: Requests, *, batches: tuple[int, ...] = (8,)) -> RequestAnswer:
    configuration = Configuration(model="llama-3.1-8b", gpu="h100-sxm")
    workload = Workload(batches=batches, acceptance="0.7")
    return answer_requests(configuration, workload, requests)


def test_a_request_gains_less_than_its_tokens() -> None:
    (point,) = answered(one(4000, 200)).points
    gain, low, high = point.per_request.at(point.best)
    assert 1 < low <= gain <= high
    assert gain < point.per_token.at(point.best)[0] < point.per_step.at(point.best)[0] * 1.01


def test_without_a_prompt_to_speak_of_both_gains_agree() -> None:
    (point,) = answered(one(1, 4000), batches=(1,)).points
    assert point.per_request.at(point.best)[0] == pytest.approx(
        point.per_token.at(point.best)[0], rel=0.01
    )


def test_ranges_hold_their_number_and_drafts_do_not_move_plain_ones() -> None:
    (point,) = answered(one(2000, 300)).points
    for ranged in (point.ttft, point.tpot, point.e2e, point.per_request):
        assert (ranged.low <= ranged.value).all()
        assert (ranged.value <= ranged.high).all()
    assert point.per_request.at(0) == (1.0, 1.0, 1.0)
    assert point.ttft.low[0] < 0.97 * point.ttft.value[0]


def test_what_a_server_adds_is_in_every_first_token() -> None:
    """29 ms in data/priors.yaml, the median of 55 served configurations."""
    deployment, tokens = deployed(), np.array([1.0])
    with_it, alone = (
        price_requests(
            deployment, one(500, 50), batches=(1,), draft_lengths=(0,), front_end=each
        ).seconds(tokens)
        for each in (None, 0.0)
    )
    assert with_it.ttft - alone.ttft == pytest.approx(0.029)
    assert with_it.e2e - alone.e2e == pytest.approx(0.029)
    assert (with_it.tpot == alone.tpot).all()


def test_a_mix_is_the_mean_of_its_kinds_where_each_is_alone() -> None:
    both = requests_of((1000, 3000), (100, 300), (0, 0))
    deployment = deployed()
    tokens = np.array([1.0])
    mixed = price_requests(deployment, both, batches=(1,), draft_lengths=(0,)).seconds(tokens)
    for kind, requests in enumerate((one(1000, 100), one(3000, 300))):
        alone = price_requests(deployment, requests, batches=(1,), draft_lengths=(0,))
        own = alone.seconds(tokens).ttft[0, 0, 0]
        assert mixed.ttft[0, 0, kind] == pytest.approx(own, rel=0.02)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("gpt-oss-120b", {"gpu": "b200-hgx"}),
        ("llama-4-scout", {"gpu": "h200-sxm", "tp": 8}),
        ("deepseek-v3", {"gpu": "h200-sxm", "tp": 8, "drafter": "mtp"}),
        ("deepseek-v3.2", {"gpu": "b200-hgx", "tp": 8, "drafter": "mtp"}),
        ("deepseek-v4-flash", {"gpu": "b200-hgx", "tp": 8}),
        ("deepseek-r1", {"gpu": "b200-hgx", "tp": 8, "ep": 8, "dp_attention": 8}),
        ("qwen3-next-80b-a3b-instruct", {"gpu": "h200-sxm", "tp": 4, "drafter": "mtp"}),
        ("llama-3.1-8b", {"gpu": "mi300x"}),
        ("llama-3.1-8b", {"gpu": "rtx-4090", "engine": "llamacpp", "drafter": "llama-3.2-1b"}),
        ("llama-3.1-8b", {"gpu": "h100-sxm", "drafter": "ngram"}),
        ("qwen3-8b", {"gpu": "h100-sxm", "drafter": "dflash"}),
    ],
)
def test_more_of_a_prompt_never_takes_less(model: str, options: dict[str, object]) -> None:
    deployment = deploy(Configuration(model=model, **options))[0]  # type: ignore[arg-type]
    lengths = (0,) if deployment.drafter.kind == "none" else (0, 2)
    tokens = np.array([1.0, 1.8][: len(lengths)])
    found = [
        price_requests(deployment, one(prompt, 100), batches=(1, 4), draft_lengths=lengths)
        .seconds(tokens)
        .ttft[:, :, 0]
        for prompt in (100, 1000, 4000, 20000)
    ]
    assert np.isfinite(found).all()
    assert (np.diff(found, axis=0) > 0).all()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"input_tokens": "1k"}, "expected both"),
        ({"input_tokens": "0", "output_tokens": "5"}, "input_tokens"),
        ({"input_tokens": "10", "output_tokens": "5", "prefix_tokens": "10"}, "fewer than the 10"),
        ({"prefix_tokens": "10"}, "describes a request"),
        ({"input_tokens": "1,2", "output_tokens": "5"}, "one number"),
        ({"input_tokens": "99", "output_tokens": "5", "prefill_chunk": "8"}, "at least 16"),
        ({"trace": "a.csv", "input_tokens": "5"}, "stands in the trace"),
    ],
)
def test_lengths_that_say_nothing_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(InputError) as caught:
        lengths_of(**options)
    assert said in str(caught.value)


# ---- traces


def written(tmp_path: Path, text: str, name: str = "trace.csv") -> str:
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return str(path)


def test_a_plain_csv(tmp_path: Path) -> None:
    path = written(tmp_path, "1000,200\n3000,100\n")
    requests = read_trace(path)
    assert (requests.mean_input, requests.mean_output, requests.count) == (2000, 150, 2)
    assert requests.rate is None


def test_a_csv_with_times_and_prefixes(tmp_path: Path) -> None:
    path = written(tmp_path, "input,output,time,prefix\n100,20,0,0\n100,20,2,50\n100,20,4,100\n")
    requests = read_trace(path)
    assert requests.rate == 0.5  # two intervals of two seconds
    assert requests.mean_prefix == pytest.approx((0 + 50 + 99) / 3)  # the last token is computed


def test_azures_trace(tmp_path: Path) -> None:
    # The first lines of AzureLLMInferenceTrace_code.csv (Azure Public Dataset, CC BY 4.0).
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,4808,10\n"
        "2023-11-16 18:17:04.0319600,3180,8\n"
    )
    requests = read_trace(written(tmp_path, text))
    assert (requests.mean_input, requests.mean_output) == (3994, 9)
    assert requests.rate == pytest.approx(1 / 0.052, rel=1e-3)


def test_mooncakes_trace(tmp_path: Path) -> None:
    """Two requests share two blocks of 512 tokens: the second finds 1,024 in the cache."""
    lines = [
        {"timestamp": 0, "input_length": 1500, "output_length": 50, "hash_ids": [1, 2, 3]},
        {"timestamp": 3000, "input_length": 1600, "output_length": 70, "hash_ids": [1, 2, 4, 5]},
    ]
    text = "\n".join(map(json.dumps, lines))
    requests = read_trace(written(tmp_path, text, "mooncake.jsonl"))
    assert sorted(requests.prefix_tokens) == [0, 1024]
    assert requests.rate == pytest.approx(1 / 3)


def test_a_result_of_vllm_bench(tmp_path: Path) -> None:
    record = {"input_lens": [100, 200, 300], "output_lens": [10, 0, 30], "request_rate": "inf"}
    requests = read_trace(written(tmp_path, json.dumps(record), "result.json"))
    assert requests.count == 2  # one failed
    assert requests.mean_input == 200


def test_a_long_trace_becomes_groups_with_the_same_means(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(10, 9000, size=(500, 2))
    requests = read_trace(written(tmp_path, "\n".join(f"{a},{b}" for a, b in rows)))
    assert len(requests.shares) == 16
    assert requests.mean_input == pytest.approx(rows[:, 0].mean())
    assert requests.mean_output == pytest.approx(rows[:, 1].mean())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no request"),
        ("input,output\n", "holds no request"),
        ("100,0\n", "line 1: output: expected a whole number of tokens, at least 1"),
        ("100,5\n0,5\n", "line 2: input"),
        ("100,5\n,5\n", "line 2: input: is missing"),
        ("100\n", "line 1: expected input,output"),
        ("100,5,-1\n", "time: expected at least 0"),
        ("100,5,1\n100,5\n", "1 of 2 requests have no time"),
        ("100,5,soon\n", "expected seconds or a date"),
        ("100,5,0,200\n", "prefix: expected at most the input"),
        ("100,5,0,-2\n", "prefix"),
        ("100,nan\n", "output"),
        ("1e99,5\n", "input"),
        ("time,tokens\n1,2\n", "no column for input and output"),
        ('{"input_length": 5}\n', "line 1: output: is missing"),
        ('{"input_lens": [1], "output_lens": []}', "1 input_lens, but 0"),
        ('{"input_lens": 3, "output_lens": 4}', "expected lists"),
        ('{"input_length": 5, "output_length": true}', "output"),
        ("{broken\n", "line 1: is not JSON"),
        ("[1, 2]", "request 1"),
    ],
)
def test_a_faulty_trace_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read_trace(written(tmp_path, text))
    message = str(caught.value)
    assert said in message
    assert "\n" not in message


def test_a_trace_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_trace(str(tmp_path / "none.csv"))
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(InputError, match="is not text"):
        read_trace(str(tmp_path / "bytes.csv"))
