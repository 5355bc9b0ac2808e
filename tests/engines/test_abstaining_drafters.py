"""Drafters that propose nothing in some passes: tokens per step are over all passes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from roofline.base.notices import Code, notice
from roofline.engines.acceptance_source import acceptance_in_json, read_acceptance
from roofline.engines.counts import Reading
from tests.servers import LATER, SERVERS, VLLM, engine, facts, pages, server
from tests.servers import read as live_read
from tests.support import Cli, assert_refused, write

PAGES = Path(__file__).parents[1] / "data" / "pages"
NEW = "vllm:inter_token_latency_seconds_count"
OLD = "vllm:time_per_output_token_seconds_count"

#: vLLM 0.32 on a CPU, n-gram, D = 4, 8 requests of 100 tokens, greedy on random text: its page's
#: counters. The positions were not kept; these are made up, and sum to the 459.
NGRAM = {
    "vllm:spec_decode_num_drafts_total": 232,
    "vllm:spec_decode_num_draft_tokens_total": 729,
    "vllm:spec_decode_num_accepted_tokens_total": 459,
    "vllm:generation_tokens_total": 800,
    "vllm:time_to_first_token_seconds_count": 8,
    NEW: 346,
}
POSITIONS = (188, 126, 90, 55)

#: llama-server b11434 --spec-type ngram-simple on a CPU: one request of 200 tokens, 146 decodes.
LLAMA = {
    "llamacpp:tokens_predicted_total": 200,
    "llamacpp:n_decode_total": 146,
    "llamacpp:n_busy_slots_per_decode": 1,
    "llamacpp:spec_decode_num_drafts_total": 2,
    "llamacpp:spec_decode_num_draft_tokens_total": 55,
    "llamacpp:spec_decode_num_accepted_tokens_total": 55,
}

#: The same build's log of such a request, in the format of print_timings (server-context.cpp).
LOG = """\
slot print_timing: id  0 | task 0 | prompt eval time =      71.30 ms /    40 tokens
slot print_timing: id  0 | task 0 |        eval time =    5120.40 ms /   200 tokens
slot print_timing: id  0 | task 0 |       total time =    5191.70 ms /   240 tokens
slot print_timing: id  0 | task 0 | draft acceptance = 1.00000 (   55 accepted /    55 generated), \
mean len = 28.50
"""


def page(counts: dict[str, Any], positions: tuple[int, ...] = (), label: str = "") -> str:
    """Return a page of these counters, and of the accepted tokens by position."""
    inside = f'model_name="{label}"' if label else ""
    lines = [f"{name}{{{inside}}} {value}" for name, value in counts.items()]
    prefix = next(name for name in counts if "num_drafts" in name).partition("num_drafts")[0]
    lines += [
        f'{prefix}num_accepted_tokens_per_pos_total{{{inside}{"," * bool(inside)}position="{i}"}} '
        f"{value}"
        for i, value in enumerate(positions)
    ]
    return "\n".join(lines) + "\n"


def read_text(tmp_path: Path, text: str) -> Reading:
    return read_acceptance(write(tmp_path, "source", text))


@pytest.mark.parametrize("names", [(NEW,), (OLD,), (OLD, NEW)])
def test_ngram_on_vllm_is_read_over_all_passes(tmp_path: Path, names: tuple[str, ...]) -> None:
    """(800 - 8) / 346 = 2.289, drafts in 232 / 346 = 67 %; a page may have both names."""
    counts = {k: v for k, v in NGRAM.items() if k != NEW} | dict.fromkeys(names, 346)
    found = read_text(tmp_path, page(counts, POSITIONS, "m"))
    assert found.tokens_per_step == pytest.approx(792 / 346)
    assert (found.drafts, found.passes, found.draft_length) == (232, 346, 4)
    assert found.hit_rate == pytest.approx(0.6705, abs=1e-4)
    assert found.survival == pytest.approx([188 / 346, 126 / 346, 90 / 346, 55 / 346])
    # accepted past a stop and trimmed: 346 + 459 - 792 = 13 tokens
    assert 1 + sum(found.survival or ()) == pytest.approx((346 + 459) / 346)
    (told,) = found.notices
    assert told.code is Code.SOME_PASSES_DRAFTED
    assert (told.values["drafts"], told.values["passes"]) == (232, 346)
    assert told.values["drafted_per_pass"] == pytest.approx(3.14, abs=0.005)


def test_the_curve_ends_at_what_was_emitted(cli: Cli, tmp_path: Path) -> None:
    """AL(4) = 792 / 346; of 459 accepted tokens 188 were first drafts, of 446 emitted as many."""
    path = write(tmp_path, "page", page(NGRAM, POSITIONS, "m"))
    kept = str(tmp_path / "kept.yaml")
    assert cli("acceptance", "read", path, "-o", kept).code == 0
    for source in (path, kept):
        asked = ("recommend", "llama-3.1-8b", "--drafter", "ngram", "--acceptance", source)
        rows = cli(*asked, "--format", "json").by_draft_length()
        assert rows[4]["tokens_per_step"] == pytest.approx(792 / 346, abs=1e-5)
        assert rows[1]["tokens_per_step"] == pytest.approx(1 + 446 / 346 * 188 / 459, abs=1e-5)
    assert "hit_rate: 0.6705" in Path(kept).read_text("utf-8")  # 232 / 346
    assert "drafts: 346" in Path(kept).read_text("utf-8")
    data = cli("acceptance", "read", path, "--format", "json").data()
    assert (data["drafts"], data["passes"], data["hit_rate"]) == (232, 346, 0.6705)


def test_between_two_reads(tmp_path: Path) -> None:
    """The counters of the run come on top of another one's, in which every pass drafted."""
    before = {
        "vllm:spec_decode_num_drafts_total": 100,
        "vllm:spec_decode_num_draft_tokens_total": 400,
        "vllm:spec_decode_num_accepted_tokens_total": 200,
        "vllm:generation_tokens_total": 310,
        "vllm:time_to_first_token_seconds_count": 10,
        NEW: 100,
    }
    after = {name: value + NGRAM[name] for name, value in before.items()}
    first = write(tmp_path, "first", page(before, (80, 60, 40, 20), "m"))
    positions = tuple(a + b for a, b in zip((80, 60, 40, 20), POSITIONS, strict=True))
    second = write(tmp_path, "second", page(after, positions, "m"))
    found = read_acceptance(second, earlier=first)
    assert found.tokens_per_step == pytest.approx(792 / 346)
    assert found.hit_rate == pytest.approx(232 / 346)


@pytest.mark.parametrize(("passes", "counted"), [(985, 1000), (1000, 1000), (1019, 1019)])
def test_a_drafter_that_never_abstains_is_read_over_all_passes_too(
    tmp_path: Path, passes: int, counted: int
) -> None:
    """2670 - 10 tokens in 1000 passes are 1 + 1660 / 1000; at 1019, 19 passes drafted nothing.

    985 passes are fewer than the 1000 drafts, so 1000. Up to 2 % no notice is due.
    """
    alone = (PAGES / "vllm-0.33.0.prom").read_text("utf-8")
    label = '{engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"}'
    beside = (
        f"vllm:generation_tokens_total{label} 2670\n"
        f"vllm:time_to_first_token_seconds_count{label} 10\n{NEW}{label} {passes}\n"
    )
    bare, full = read_text(tmp_path, alone), read_text(tmp_path, alone + beside)
    assert full.tokens_per_step == pytest.approx(2660 / counted)
    assert full.survival == pytest.approx([n / counted for n in (710, 530, 420)])
    assert full.notices == bare.notices == ()
    assert bare.hit_rate is None
    assert full.hit_rate == pytest.approx(min(1000 / passes, 1))


def test_without_a_count_of_passes_the_limit_is_said(tmp_path: Path) -> None:
    """Short drafts are what is seen of a drafter that may abstain: 729 / 232 = 3.14 of 4."""
    counts = {k: v for k, v in NGRAM.items() if "spec_decode" in k}
    found = read_text(tmp_path, page(counts, POSITIONS, "m"))
    assert found.tokens_per_step == pytest.approx(1 + 459 / 232)
    (told,) = found.notices
    assert told.code is Code.DRAFTS_CUT_SHORT
    assert (told.values["draft_length"], told.values["every_pass"]) == (4, False)
    assert told.values["drafted_per_pass"] == pytest.approx(3.14, abs=0.005)


def test_tokens_that_no_passes_can_have_emitted_are_left_out(tmp_path: Path) -> None:
    """346 passes and 459 accepted drafts emit at most 805 tokens, and at least 346."""
    for tokens in (3000, 200):
        counts = NGRAM | {"vllm:generation_tokens_total": tokens}
        found = read_text(tmp_path, page(counts, POSITIONS, "m"))
        assert found.tokens_per_step == pytest.approx(1 + 459 / 232)
        assert (found.passes, found.hit_rate) == (None, None)
        told = notice(
            Code.TOKENS_DO_NOT_FIT_PASSES,
            where=found.where,
            tokens=tokens - 8,
            passes=346,
            accepted=459,
            drafts=232,
        )
        assert found.notices[0] == told


def test_llama_servers_page_over_all_passes(tmp_path: Path) -> None:
    """200 tokens in 146 decodes: 1.37, where 1 + 55 / 2 = 28.5 is of two passes."""
    found = read_text(tmp_path, page(LLAMA, (2,) * 27 + (1,) + (0,) * 20))
    assert found.engine == "llamacpp"
    assert found.tokens_per_step == pytest.approx(200 / 146)
    assert found.draft_length == 48
    assert found.hit_rate == pytest.approx(2 / 146)
    assert found.notices[0] == notice(
        Code.SOME_PASSES_DRAFTED,
        where=found.where,
        drafts=2,
        passes=146,
        drafted_per_pass=27.5,
        draft_length=48,
    )


@pytest.mark.parametrize(
    ("changes", "passes"),
    [
        # four sequences in each decode of the same 145 passes
        ({"llamacpp:n_decode_total": 37, "llamacpp:n_busy_slots_per_decode": 4}, 148),
        # a prompt of 40 decodes, or requests that still run: 200 - 55 passes emitted a token
        ({"llamacpp:n_decode_total": 184}, 145),
        ({"llamacpp:n_decode_total": 37}, 145),
    ],
)
def test_decodes_are_not_all_passes(tmp_path: Path, changes: dict[str, float], passes: int) -> None:
    found = read_text(tmp_path, page(LLAMA | changes))
    assert found.passes == passes


def test_a_model_drafter_on_llama_server_is_read_as_it_counts(tmp_path: Path) -> None:
    """A real page: 668 of 1036 in 348 drafts, AL 2.92; 10 requests begin and end without drafts.

    Of its positions 280 are known; the other two sum to the rest.
    """
    counts = LLAMA | {
        "llamacpp:tokens_predicted_total": 1030,
        "llamacpp:n_decode_total": 390,
        "llamacpp:spec_decode_num_drafts_total": 348,
        "llamacpp:spec_decode_num_draft_tokens_total": 1036,
        "llamacpp:spec_decode_num_accepted_tokens_total": 668,
    }
    found = read_text(tmp_path, page(counts, (280, 220, 168)))
    assert found.tokens_per_step == pytest.approx(2.92, abs=0.001)
    assert (found.draft_length, found.passes, found.notices) == (3, None, ())


def test_llama_servers_log_over_all_passes(tmp_path: Path) -> None:
    """The first token comes with the prompt: (200 - 1) / (200 - 1 - 55) = 1.38."""
    found = read_text(tmp_path, LOG)
    assert found.tokens_per_step == pytest.approx(199 / 144)
    assert found.drafts == pytest.approx(2)
    assert found.passes == 144
    told = found.notices[0]
    assert (told.code, told.values["passes"]) == (Code.SOME_PASSES_DRAFTED, 144)
    assert told.values["drafts"] == pytest.approx(2)


def test_llama_servers_log_without_the_tokens_says_its_limit(tmp_path: Path) -> None:
    found = read_text(tmp_path, LOG.splitlines()[-1])
    assert found.tokens_per_step == pytest.approx(28.5)
    assert found.notices == (notice(Code.DRAFTING_PASSES_ONLY, where=found.where),)


#: Four requests of a real llama-server, ngram-mod (ggml-org/llama.cpp pull request 19164).
REAL = """\
       eval time =    4838.87 ms /   630 tokens (    7.68 ms per token,   130.20 tokens per second)
statistics ngram_mod: #calls = 629, #gen drafts = 0, #acc drafts = 0, #gen tokens = 0, \
#acc tokens = 0, dur = 0.474 ms
       eval time =    9139.89 ms /  1140 tokens (    8.02 ms per token,   124.73 tokens per second)
draft acceptance rate = 0.06250 (   12 accepted /   192 generated)
statistics ngram_mod: #calls = 1756, #gen drafts = 3, #acc drafts = 3, #gen tokens = 192, \
#acc tokens = 12, dur = 1.403 ms
       eval time =    9317.38 ms /  1150 tokens (    8.10 ms per token,   123.43 tokens per second)
draft acceptance rate = 0.25000 (   32 accepted /   128 generated)
statistics ngram_mod: #calls = 2873, #gen drafts = 5, #acc drafts = 5, #gen tokens = 320, \
#acc tokens = 44, dur = 2.443 ms
       eval time =    5384.53 ms /   640 tokens (    8.41 ms per token,   118.86 tokens per second)
draft acceptance rate = 0.04688 (    3 accepted /    64 generated)
statistics ngram_mod: #calls = 3509, #gen drafts = 6, #acc drafts = 6, #gen tokens = 384, \
#acc tokens = 47, dur = 2.975 ms
"""


def test_calls_and_tokens_count_the_same_passes(tmp_path: Path) -> None:
    """630 + 1140 + 1150 + 640 tokens, less 4 first ones and 47 accepted: 3509, as many as calls."""
    alone = "\n".join(line for line in REAL.splitlines() if line.startswith("statistics"))
    for text in (REAL, alone):
        found = read_text(tmp_path, text)
        assert found.passes == 3509
        assert found.tokens_per_step == pytest.approx(1 + 47 / 3509)
        assert found.hit_rate == pytest.approx(6 / 3509)


def test_drafters_one_after_the_other_share_the_passes(tmp_path: Path) -> None:
    """A real server with two n-gram drafters before MTP (pull request 23269): 1315 passes.

    The first is called in each of them, the last in the 1308 where the others found nothing.
    """
    line = (
        "statistics {}: #calls(b,g,a) = 18 {} {}, #gen drafts = {}, #acc drafts = {}, "
        "#gen tokens = {}, #acc tokens = {}, dur(b,g,a) = 0.548, 3.454, 2.238 ms\n"
    )
    text = line.format("ngram-map-k", 1315, 0, 0, 0, 0, 0)
    text += line.format("ngram-mod", 1315, 7, 7, 7, 448, 90)
    text += line.format("draft-mtp", 1308, 1308, 1308, 1134, 2602, 2031)
    found = read_text(tmp_path, text)
    assert found.tokens_per_step == pytest.approx(1 + (90 + 2031) / 1315)
    assert (found.passes, found.hit_rate) == (None, 1)


def test_an_eagle_head_on_llama_server_changes_by_nothing(tmp_path: Path) -> None:
    """A real log (pull request 24536): 256 tokens, 167 accepted in 87 drafts, printed as 2.92."""
    text = """\
       eval time =    2296.72 ms /   256 tokens (    8.97 ms per token,   111.46 tokens per second)
statistics     draft-eagle3: #calls(b,g,a) =    1     87     87, #gen drafts =     87, \
#acc drafts =    70, #gen tokens =    259, #acc tokens =   167, #mean acc len = 2.92, \
#acc rate/pos = (0.805, 0.632, 0.483), dur(b,g,a) = 0.005, 325.555, 0.114 ms
"""
    found = read_text(tmp_path, text)
    assert found.tokens_per_step == pytest.approx(1 + 167 / 87)
    assert found.survival == pytest.approx((0.805, 0.632, 0.483))
    assert (found.passes, found.notices) == (None, ())


def iteration(requests: int, drafted: int, accepted: int, tokens: int) -> dict[str, Any]:
    """Return TensorRT-LLM's statistics of one iteration."""
    return {
        "inflightBatchingStats": {"numGenRequests": requests},
        "specDecodingStats": {
            "numDraftTokens": tokens,
            "numAcceptedTokens": accepted,
            "numRequestsWithDraftTokens": drafted,
        },
    }


def test_iterations_of_tensorrt_llm_hold_requests_without_drafts() -> None:
    """8 + 8 requests, of which 4 and none drafted, with 6 accepted: 22 / 16, and 4 / 16 drafted."""
    found = acceptance_in_json([iteration(8, 4, 6, 12), iteration(8, 0, 0, 0)], "stats")
    assert found is not None
    assert (found.tokens_per_step, found.hit_rate) == (22 / 16, 0.25)
    every = acceptance_in_json([iteration(4, 4, 6, 12), iteration(4, 4, 6, 12)], "stats")
    assert every is not None
    assert (every.tokens_per_step, every.hit_rate, every.notices) == (2.5, 1, ())


def with_passes(text: bytes, passes: int, generated: int) -> bytes:
    """Return a running server's page with its passes counted, and another number of tokens."""
    label = b'{engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"}'
    text = re.sub(rb"(generation_tokens_total\S+) [\d.]+", rb"\1 %d" % generated, text)
    first = b"vllm:time_to_first_token_seconds_count%b 0.0\n" % label
    return text + first + b"vllm:inter_token_latency_seconds_count%b %d\n" % (label, passes)


@pytest.mark.usefixtures("clock")
def test_a_running_server_is_read_over_all_passes(cli: Cli) -> None:
    """Between the reads 400 drafts in 800 passes, 664 accepted: 1464 / 800 = 1.83."""
    bodies = [with_passes(VLLM, 2000, 3660), with_passes(LATER, 2800, 5124)]
    with server(engine(pages("vllm", metrics=bodies))) as url:
        outcome = live_read(cli, url, "--interval", "4", "--gpu", "h100-sxm")
    assert counter(LATER, b"num_drafts_total") - counter(VLLM, b"num_drafts_total") == 400
    accepted = [counter(text, b"num_accepted_tokens_total") for text in (LATER, VLLM)]
    assert accepted[0] - accepted[1] == 664
    assert facts(outcome.data())["acceptance"] == pytest.approx(1464 / 800)
    assert "400 of 800 passes drafted (50 %" in outcome.said


def counter(text: bytes, name: bytes) -> float:
    """Return a counter of drafts on a page."""
    (found,) = re.findall(rb"^vllm:spec_decode_%b\S* ([\d.]+)$" % name, text, re.MULTILINE)
    return float(found)


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("method", ["ngram", "suffix", "eagle3"])
def test_a_server_whose_drafter_abstains_unseen(cli: Cli, method: str) -> None:
    """Its page does not count all passes: said for lookups, which draft in some passes only."""
    info = json.loads((SERVERS / "vllm-server-info.json").read_bytes())
    info["vllm_config"]["speculative_config"]["method"] = method
    with server(engine(pages("vllm-dev", server_info=json.dumps(info).encode()))) as url:
        outcome = live_read(cli, url, "--interval", "4")
    assert ("drafts in some passes only" in outcome.said) == (method != "eagle3")


def response(name: str, histogram: list[int], tokens: int) -> dict[str, Any]:
    """Return what vLLM answers with per-request metrics of its speculation (D = 4)."""
    return {
        "id": name,
        "choices": [{"index": 0, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 20, "completion_tokens": tokens, "total_tokens": 20 + tokens},
        "metrics": {"speculative_decoding": {"acceptance_histogram": histogram}},
    }


def test_a_response_of_ngram_is_over_all_its_passes(tmp_path: Path) -> None:
    """29 accepted in 10 drafts are 3.90; 60 tokens, the first with the prompt: 59 - 29 = 30 passes.

    The stop trims (9 + 2 x 8 + 3 x 7 + 4 x 5) / 59 = 66 / 59 drafts of the last pass, expected,
    each of which hides a pass; 10 passes drafted. Trimmed were at most 4: 59 / 34.
    """
    histogram = [1, 1, 1, 2, 5]  # 0 + 1 + 2 + 6 + 20 accepted
    found = read_text(tmp_path, json.dumps(response("a", histogram, 60)))
    passes = 30 + 66 / 59
    assert found.tokens_per_step == pytest.approx(59 / passes)
    assert found.passes == pytest.approx(passes)
    assert found.hit_rate == pytest.approx(10 / passes)
    assert found.survival == pytest.approx([count / passes for count in (9, 8, 7, 5)])
    assert found.least == pytest.approx(59 / 34)
    bare = read_text(tmp_path, json.dumps({"acceptance_histogram": histogram}))
    assert bare.tokens_per_step == pytest.approx(3.9)
    assert bare.hit_rate is None


def test_the_chunks_of_a_stream_are_one_response(tmp_path: Path) -> None:
    """A chunk's usage counts all tokens so far; two responses have 119 + 59 after their first.

    Of 58 accepted drafts their ends trim 2 x (2 x 66) / 178, expected.
    """
    histogram = [1, 1, 1, 2, 5]
    chunks = [
        {"id": "a", "usage": {"completion_tokens": 1}},
        {"id": "a", "usage": {"completion_tokens": 31}},
        response("a", histogram, 120),
        response("b", histogram, 60),
    ]
    found = read_text(tmp_path, "\n".join(f"data: {json.dumps(chunk)}" for chunk in chunks))
    assert found.passes == pytest.approx(178 - 58 + 2 * 132 / 178)
    assert found.requests == 2
    without = [response("a", histogram, 120), {"acceptance_histogram": histogram}]
    assert read_text(tmp_path, json.dumps(without)).passes is None  # not all have their usage


BENCH = """\
============ Serving Benchmark Result ============
Successful requests:                     8
Total generated tokens:                  {tokens}
---------------Speculative Decoding---------------
Acceptance rate (%):                     62.96
Acceptance length:                       2.98
Drafts:                                  232
Draft tokens:                            729
Accepted tokens:                         459
Per-position acceptance (%):
  Position 0:                            81.03
  Position 1:                            54.31
  Position 2:                            38.79
  Position 3:                            23.71
"""


def test_a_benchmark_of_ngram_is_over_all_its_passes(tmp_path: Path) -> None:
    """800 - 8 tokens with 459 accepted: 333 passes, and 8 x 930 / 792 that the stops hide: 342.

    188 + 2 x 126 + 3 x 90 + 4 x 55 = 930. True were 346, within the bound of the stops: they may
    trim all 4 drafts of each of the 8 last passes, 365 passes.
    """
    result = {
        "completed": 8,
        "total_output_tokens": 800,
        "spec_decode_acceptance_length": 2.978,
        "spec_decode_num_drafts": 232,
        "spec_decode_draft_tokens": 729,
        "spec_decode_accepted_tokens": 459,
        "spec_decode_per_position_acceptance_rates": [0.8103, 0.5431, 0.3879, 0.2371],
    }
    for text in (BENCH.format(tokens=800), json.dumps(result)):
        found = read_text(tmp_path, text)
        assert found.tokens_per_step == pytest.approx(792 / (333 + 8 * 930 / 792), rel=1e-4)
        assert found.least == pytest.approx(792 / 365)
        assert (found.least or 0) < 792 / 346 < found.tokens_per_step
    # a head drafts in every pass: 232 x 2.978 tokens after the first of 8 requests
    found = read_text(tmp_path, BENCH.format(tokens=699))
    assert found.tokens_per_step == pytest.approx(1 + 459 / 232)


#: A log of vLLM 0.33 with n-gram drafts: 10 s with 60,000 tokens/s, 45,000 drafts of 4 and 130,000
#: accepted; so many that the prior moves them by next to nothing.
VLLM_LOG = """\
INFO [loggers.py:273] Engine 000: Avg prompt throughput: 12.0 tokens/s, Avg generation throughput: \
60000.0 tokens/s, Running: 4 reqs, Waiting: 0 reqs, GPU KV cache usage: 3.1%, \
Prefix cache hit rate: 12.0%
INFO [metrics.py:101] SpecDecoding metrics: Mean acceptance length: 3.89, Accepted throughput: \
13000.00 tokens/s, Drafted throughput: 18000.00 tokens/s, Accepted: 130000 tokens, \
Drafted: 180000 tokens, \
Per-position acceptance rate: 0.911, 0.778, 0.667, 0.533, Avg Draft acceptance rate: 72.2%
"""
SPEC_LINE = VLLM_LOG.splitlines()[1]


def test_a_log_says_which_share_of_the_passes_drafted(cli: Cli, tmp_path: Path) -> None:
    """600,000 tokens of which 130,000 were drafts: 470,000 passes, 45,000 with drafts: 9.6 %.

    The line's own mean stays that of these, since a head drafts in every pass; for n-gram AL(4) is
    1 + 45 / 470 x 2.889 = 1.277.
    """
    path = write(tmp_path, "server.log", VLLM_LOG)
    found = read_acceptance(path)
    assert found.tokens_per_step == pytest.approx(3.889, abs=2e-3)
    assert found.hit_rate == pytest.approx(45 / 470, rel=2e-3)
    kept = str(tmp_path / "kept.yaml")
    assert cli("acceptance", "read", path, "-o", kept).code == 0
    for source in (path, kept):
        ngram = answer(cli, "--drafter", "ngram", "--acceptance", source)
        assert ngram[4]["tokens_per_step"] == pytest.approx(1.2766, abs=5e-3)
        head = answer(cli, "--drafter", "eagle3", "--acceptance", source)
        assert head[4]["tokens_per_step"] == pytest.approx(3.889, abs=0.05)


def answer(cli: Cli, *options: str) -> dict[int, dict[str, Any]]:
    """Return the rows of an answer by draft length."""
    return cli("recommend", "llama-3.1-8b", *options, "--format", "json").by_draft_length()


@pytest.mark.parametrize("drafter", ["ngram", "suffix"])
def test_a_line_alone_takes_the_hit_rate_that_is_given(cli: Cli, drafter: str) -> None:
    """1 + 0.35 x 2.889 = 2.011; 0.35 is below S_1 = 0.911, which is a share of drafting passes."""
    rows = answer(cli, "--drafter", drafter, "--acceptance", SPEC_LINE, "--hit-rate", "0.35")
    assert rows[4]["tokens_per_step"] == pytest.approx(2.011, abs=0.02)
    told = cli("recommend", "llama-3.1-8b", "--drafter", drafter, "--acceptance", SPEC_LINE,
               "--hit-rate", "0.35")  # fmt: skip
    assert f"{drafter} drafts in 35 % of the passes (as given)" in " ".join(told.out.split())


def test_a_line_alone_takes_the_hit_rate_of_public_runs(cli: Cli) -> None:
    """Nothing says how many passes drafted: 1 + 2.889 h with the expected h, and as wide as that.

    Public n-gram runs hit in a tenth to nine tenths of their passes.
    """
    ngram = ("recommend", "llama-3.1-8b", "--drafter", "ngram", "--acceptance", SPEC_LINE)
    told = cli(*ngram, "--format", "json")
    said = " ".join(note["text"] for note in told.data()["notes"])
    (share,) = re.findall(r"drafts in ([\d.]+) % of the passes \(as public runs", said)
    assert 10 < float(share) < 90
    row = told.by_draft_length()[4]
    assert row["tokens_per_step"] == pytest.approx(1 + float(share) / 100 * 2.889, abs=0.02)
    given = cli(*ngram, "--hit-rate", share and str(float(share) / 100), "--format", "json")
    known = given.by_draft_length()[4]
    assert row["speedup_high"] - row["speedup_low"] > 2 * (
        known["speedup_high"] - known["speedup_low"]
    )


def test_llama_servers_line_is_scaled_to_all_passes(cli: Cli, tmp_path: Path) -> None:
    """Two passes of 146 drafted, 27.5 accepted in each: 1 + 2 / 146 x 27.5 = 1.377, not 28.50."""
    line, kept = write(tmp_path, "line.log", LOG.splitlines()[-1]), str(tmp_path / "kept.yaml")
    assert cli("acceptance", "read", line, "--draft-length", "32", "-o", kept).code == 0
    asked = ("recommend", "llama-3.1-8b", "--engine", "llamacpp", "--drafter", "ngram",
             "--max-draft-length", "32", "--hit-rate", "0.0137", "--format", "json")  # fmt: skip
    assert_refused(cli(*asked, "--acceptance", line), "--acceptance drafting:al:3=28.5,")
    for source in (kept, "drafting:al:32=28.5"):
        row = cli(*asked, "--acceptance", source).by_draft_length()[32]
        assert row["tokens_per_step"] == pytest.approx(1.3767, abs=1e-3)


def test_typed_numbers_of_drafting_passes_have_a_word(cli: Cli) -> None:
    asked = ("recommend", "llama-3.1-8b", "--drafter", "ngram", "--hit-rate", "0.35")
    refused = cli(*asked, "--acceptance", "survival:0.9,0.8")
    assert_refused(refused, "--hit-rate 0.35", "--acceptance drafting:survival:0.9,0.8")
    rows = cli(*asked, "--acceptance", "drafting:survival:0.9,0.8", "--format", "json")
    assert rows.by_draft_length()[2]["tokens_per_step"] == pytest.approx(1 + 0.35 * 1.7)


def test_a_reading_hands_its_requests_on(tmp_path: Path) -> None:
    found = read_text(tmp_path, page(NGRAM, POSITIONS, "m"))
    assert (found.requests, found.acceptance().requests) == (8, 8)


#: vLLM 0.32.0 on a CPU, n-gram, D = 4: a client streamed 4 requests of 500 tokens one after another
#: and counted 810 chunks after the first ones, which brought 1,996 tokens; for the log twice over.
STREAMED = 1996 / 810


def over_all(found: Reading) -> float:
    """Tokens per step over all passes: those without a draft emit one token."""
    assert found.hit_rate is not None
    if found.passes is None:
        return 1 + found.hit_rate * (found.tokens_per_step - 1)
    return found.tokens_per_step


@pytest.mark.parametrize("name", ["vllm-0.32.0-ngram.jsonl", "vllm-0.32.0-ngram.log"])
def test_what_a_real_server_wrote_is_as_its_client_counted(name: str) -> None:
    """Without the trimmed drafts the responses read 0.6 % high.

    The log idles for ten seconds between two loads. Taken as generation, they read 14 % low.
    """
    found = read_acceptance(str(PAGES / name))
    assert over_all(found) == pytest.approx(STREAMED, rel=0.005)


def test_a_response_in_which_few_passes_drafted_nothing(tmp_path: Path) -> None:
    """A response of vLLM 0.32.0 with suffix decoding: its client counted 532 passes of four.

    116 + 122 + 141 + 116 = 495 drafted, and 1,996 tokens less 1,474 accepted drafts are 522 passes:
    19 more than the first and the last pass of each request, so some drafted nothing. The ends hide
    as many passes as they trim: (432 + 2 x 384 + 3 x 341 + 4 x 317) x 4 / 1996 = 7.0.
    """
    histograms = (
        [11, 8, 7, 5, 85], [12, 12, 13, 4, 81], [30, 19, 15, 11, 66], [10, 9, 8, 4, 85]
    )  # fmt: skip
    responses = [response(f"r{at}", counts, 500) for at, counts in enumerate(histograms)]
    found = read_text(tmp_path, json.dumps(responses))
    assert found.tokens_per_step == pytest.approx(1996 / (522 + 3491 * 4 / 1996))
    assert (found.least or 0) < 1996 / 532 < 1 + 1474 / 495  # 3.752 were counted, 3.978 read


def test_speeds_after_idle_intervals_are_not_of_one_span(tmp_path: Path) -> None:
    """Lines come every 10 s; before the last one 40 s passed in which nothing was printed.

    It drafted 100 tokens in 50 s, 2 tokens/s, and generated 10 tokens/s for 10 s: 100 tokens, of
    which 60 were accepted drafts: 40 passes, 25 of which drafted. As 500 tokens: 440 passes.
    """
    line = (
        "INFO Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 10.0 "
        "tokens/s, Running: 1 reqs\nINFO SpecDecoding metrics: Mean acceptance length: 3.40, "
        "Accepted throughput: {accepted} tokens/s, Drafted throughput: {drafted} tokens/s, "
        "Accepted: 60 tokens, Drafted: 100 tokens, Per-position acceptance rate: 0.900, 0.700, "
        "0.500, 0.300, Avg Draft acceptance rate: 60.0%\n"
    )
    after, before = (
        line.format(accepted="1.20", drafted="2.00"),
        line.format(accepted="6.00", drafted="10.00"),
    )
    found = read_text(tmp_path, before + after)
    assert found.hit_rate == pytest.approx(25 / 40)
    # one line alone does not say whether it idled or lines are 50 s apart: its speed is left out
    assert read_text(tmp_path, after).hit_rate is None
    assert read_text(tmp_path, before).hit_rate == pytest.approx(25 / 40)
