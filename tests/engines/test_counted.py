"""What every source counted, by the engines' own formats; answers by hand from their numbers.

Formats: vLLM 0.32 vllm/benchmarks/serve.py and vllm/v1/spec_decode/metrics.py (and the line of
2025); SGLang 0.5.23 managers/scheduler_components/metrics_reporter.py, benchmark/serving.py and
arg_groups/speculative_hook.py (and the rate before 2026-04, which counts the bonus token);
TensorRT-LLM tensorrt_llm/bench/dataclasses/reporting.py at 024997657; llama-server b11434.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from roofline.acceptance.files import load_acceptance
from roofline.base.errors import InputError
from roofline.base.notices import Code
from roofline.engines.acceptance_source import acceptance_in_json, read_acceptance
from roofline.engines.counts import Reading
from tests.servers import SERVERS, engine, facts, pages, server
from tests.servers import read as live_read
from tests.support import Cli, assert_refused, write

PAGES = Path(__file__).parents[1] / "data" / "pages"

#: A public report of vllm bench serve, the parts that are read, and the same as its JSON.
VLLM_BENCH = (PAGES / "vllm-bench.txt").read_text("utf-8")
VLLM_JSON = json.loads((PAGES / "vllm-bench.json").read_text("utf-8"))
#: vLLM's line of 2025: 725 / 1.46 = 496.6 passes, 1488 / 3 = 496.
VLLM_2025 = (PAGES / "vllm-2025.log").read_text("utf-8")
#: trtllm-bench of 2025, and of the 1.3 line.
TRTLLM_2025 = (PAGES / "trtllm-bench-2025.txt").read_text("utf-8")
TRTLLM_13 = (PAGES / "trtllm-bench-1.3.txt").read_text("utf-8")
SGLANG_BENCH = (PAGES / "sglang-bench.txt").read_text("utf-8")


def read_text(tmp_path: Path, text: str, name: str = "source") -> Reading:
    return read_acceptance(write(tmp_path, name, text))


def read_json(data: Any) -> Reading:
    found = acceptance_in_json([data], "json")
    assert found is not None
    return found


def decode_line(length: float, rate: float, running: int = 1) -> str:
    return (
        f"[2026-03-01 00:00:00 TP0] Decode batch, #running-req: {running}, #token: 8192, "
        f"accept len: {length:.2f}, accept rate: {rate:.2f}, cuda graph: True, #queue-req: 0\n"
    )


#: Source, then passes, bonus token, tokens and form.
WORDS = [
    ("vllm-0.33.0.prom", "vllm", "drafting", "out", "accepted", "survival"),
    ("vllm-0.33.0.log", "vllm", "drafting", "out", "accepted", "survival"),
    ("vllm-response.json", "vllm", "all", "out", "accepted", "survival"),
    ("sglang-0.5.23.prom", "sglang", "all", "in", "accepted", "mean"),
    ("sglang-0.5.23.log", "sglang", "all", "in", "accepted", "mean"),
    ("sglang-server-info.json", "sglang", "all", "in", "accepted", "mean"),
    ("sglang-meta.json", "sglang", "all", "out", "accepted", "survival"),
    ("trtllm-1.3.prom", "trtllm", "drafting", "out", "accepted", "survival"),
    ("trtllm-older.prom", "trtllm", "drafting", "in", "accepted", "mean"),
    ("trtllm-stats.json", "trtllm", "drafting", "out", "accepted", "mean"),
    ("llamacpp-newer.log", "llamacpp", "all", "out", "accepted", "survival"),
    ("vllm-bench.txt", "vllm", "drafting", "out", "accepted", "survival"),
    ("vllm-bench.json", "vllm", "drafting", "out", "accepted", "survival"),
    ("vllm-2025.log", "vllm", "drafting", "out", "accepted", "survival"),
    ("vllm-v0.log", "vllm", "drafting", "in", "accepted", "mean"),
    ("trtllm-bench-2025.txt", "trtllm", "all", "in", "emitted", "mean"),
    ("trtllm-bench-1.3.txt", "trtllm", "all", "in", "emitted", "mean"),
    ("sglang-bench.txt", "sglang", "all", "in", "accepted", "mean"),
    ("llamacpp-response.json", "llamacpp", "all", "out", "accepted", "mean"),
    ("inferencex.yaml#thinking_off", "inferencex", None, "in", None, "mean"),
]


@pytest.mark.parametrize("row", WORDS, ids=[row[0] for row in WORDS])
def test_every_source_says_what_it_counted(cli: Cli, row: tuple[str | None, ...]) -> None:
    name, words = str(row[0]), row[1:]
    told = cli("acceptance", "read", str(PAGES / name), "--format", "json").data()["counted"]
    version = {"sglang-server-info.json": "0.5.23", "trtllm-bench-1.3.txt": "1.3.0rc2"}.get(name)
    named = dict(zip(("engine", "passes", "bonus", "tokens", "form"), words, strict=True))
    assert told == {**named, "early_stops": False, "version": version}


def test_an_answer_says_what_was_counted(cli: Cli) -> None:
    page = str(PAGES / "vllm-0.33.0.prom")
    told = cli("recommend", "llama-3.1-8b", "--acceptance", page, "--format", "json").data()
    texts = [note["text"] for note in told["notes"] if note["code"] == "what-was-counted"]
    (text,) = texts
    assert text == (
        "vllm-0.33.0.prom: vllm counted passes that drafted, drafts accepted, one bonus token "
        "added for each pass, survival by position"
    )


def test_vllm_bench_prints_percentages(tmp_path: Path) -> None:
    """1 + 60052 / 37085 = 2.6193; 96 requests may have trimmed up to 3 drafts each: 288 / 37085."""
    for found in (
        read_text(tmp_path, VLLM_BENCH),
        read_text(tmp_path, json.dumps(VLLM_JSON), "result.json"),
    ):
        assert found.tokens_per_step == pytest.approx(1 + 60052 / 37085)
        assert (found.draft_length, found.drafts) == (3, 37085)
        assert found.survival == pytest.approx((0.767, 0.5151, 0.3372))
        assert found.least == pytest.approx(1 + (60052 - 288) / 37085)
        assert [n.code for n in found.notices] == [Code.TRIMMED_AT_STOPS]


def test_two_reports_of_vllm_bench_are_pooled(tmp_path: Path) -> None:
    """10 and 20 passes with 8 and 10 accepted of one draft: 1 + 18 / 30."""
    report = (
        "Successful requests: 1\nAcceptance length: {}\nDrafts: {}\nDraft tokens: {}\n"
        "Accepted tokens: {}\nPer-position acceptance (%):\n  Position 0: {}\n"
    )
    text = report.format(1.8, 10, 10, 8, "80.00") + report.format(1.5, 20, 20, 10, "50.00")
    found = read_text(tmp_path, text)
    assert found.tokens_per_step == pytest.approx(1.6)
    assert found.least == pytest.approx(1 + 16 / 30)


def test_part_of_a_bench_report_names_what_lacks(cli: Cli, tmp_path: Path) -> None:
    kept = [x for x in VLLM_BENCH.splitlines() if "raft" not in x and "Accepted" not in x]
    path = write(tmp_path, "bench.txt", "\n".join(kept))
    told = cli("acceptance", "read", path, "--format", "json").data()  # positions alone
    assert told["survival"] == {"1": 0.767, "2": 0.5151, "3": 0.3372}
    assert told["drafts"] is None
    cut = "\n".join(x for x in kept if "Position 1" not in x)
    words = ("Drafts, Draft tokens, Accepted tokens, Per-position acceptance are missing",)
    assert_refused(cli("acceptance", "read", write(tmp_path, "cut.txt", cut)), *words, "al:3=2.62")
    short = {k: v for k, v in VLLM_JSON.items() if "position" not in k}
    path = write(tmp_path, "bench.json", json.dumps(short))
    assert_refused(cli("acceptance", "read", path), "al:3=2.6193")


def test_vllms_line_of_2025(tmp_path: Path) -> None:
    found = read_text(tmp_path, VLLM_2025 * 2)
    assert found.tokens_per_step == pytest.approx(2.46)
    assert (found.draft_length, found.notices) == (3, ())
    assert found.survival == pytest.approx((0.615, 0.464, 0.383))
    wrong = VLLM_2025.replace("48.7%", "58.7%")
    assert [n.code for n in read_text(tmp_path, wrong).notices] == [Code.RATE_CONTRADICTS_COUNTS]


def test_engine_v0_of_vllm_counts_accepted_drafts_after_refused_ones(
    cli: Cli, tmp_path: Path
) -> None:
    """A public line of vLLM 0.9: 12564 / 4 = 3141 passes, 8347 / 3141 = 2.657 = 5 x 0.531.

    Accepted over drafted would be 1 + 8485 / 3141 = 3.70. Counts run on: the last line holds.
    """
    text = (PAGES / "vllm-v0.log").read_text("utf-8")
    earlier = text.replace("8347", "900").replace("12564", "1200")
    found = read_text(tmp_path, earlier + text)
    assert found.tokens_per_step == pytest.approx(2.6574, abs=1e-4)
    assert found.tokens_per_step == pytest.approx(5 * 0.531, abs=5 * 0.0005)
    assert (found.draft_length, found.drafts, found.counted.bonus) == (4, 3141, "in")
    cut = write(tmp_path, "cut.log", text.partition(", Number of emitted")[0])
    assert_refused(cli("acceptance", "read", cut), "Number of emitted tokens is missing")
    idle = write(tmp_path, "idle.log", text.replace("12564", "0"))
    assert_refused(cli("acceptance", "read", idle), "no pass has verified")


def test_trtllm_bench_of_2025_lacks_the_draft_length(cli: Cli, tmp_path: Path) -> None:
    path = write(tmp_path, "bench.log", TRTLLM_2025)
    found = read_acceptance(path)
    assert (found.tokens_per_step, found.draft_length) == (1.81, None)
    assert (found.counted.passes, found.counted.tokens) == ("all", "emitted")
    assert_refused(cli("recommend", "llama-3.1-8b", "--acceptance", path), "al:3=1.81")
    given = cli("acceptance", "read", path, "--draft-length", "3", "--format", "json").data()
    assert given["curve"] == {"3": 1.81}


def test_trtllm_bench_of_13(tmp_path: Path) -> None:
    """D = 0.81 / 0.27 = 3; means over requests give 1.81, passes 1 + 3 x 275 / 1000."""
    found = read_text(tmp_path, TRTLLM_13)
    assert (found.draft_length, found.counted.version) == (3, "1.3.0rc2")
    assert found.tokens_per_step == pytest.approx(1.825)
    stats = {
        "acceptance_length_percentiles": {"average": 1.81},
        "draft_acceptance_rate_percentiles": {"average": 0.27},
        "num_draft_tokens_percentiles": {"average": 1000.0},
        "num_accepted_draft_tokens_percentiles": {"average": 275.0},
    }
    same = read_json({"engine": {"version": "1.3.0rc2"}, "decoding_stats": stats})
    assert (same.tokens_per_step, same.draft_length) == (found.tokens_per_step, 3)
    with pytest.raises(InputError, match="acceptance_length_percentiles is missing"):
        read_json({"decoding_stats": None})


def test_positions_that_never_accepted_have_no_line(tmp_path: Path) -> None:
    """TensorRT-LLM and llama-server: 3 drafts in 100 passes, 60 + 20 accepted, none at the last."""
    name = 'trtllm_spec_decode_{}_tokens_total{{model_name="m",token_position="{}"}} {}\n'
    trtllm = "".join(name.format("drafted", at, 100) for at in range(3))
    trtllm += name.format("accepted", 0, 60) + name.format("accepted", 1, 20)
    counts = {"drafts": 100, "draft_tokens": 300, "accepted_tokens": 80}
    llama = "".join(f"llamacpp:spec_decode_num_{k}_total {v}\n" for k, v in counts.items())
    each = 'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{{position="{}"}} {}\n'
    llama += each.format(0, 60) + each.format(1, 20)
    for text in (trtllm, llama):
        found = read_text(tmp_path, text)
        assert (found.tokens_per_step, found.draft_length) == (1.8, 3)
        assert found.survival == pytest.approx((0.6, 0.2, 0))


def sglang_page(length: float, rate: float, steps: int, tokens: int) -> str:
    values = {"accept_length": length, "accept_rate": rate, "num_steps": steps,
              "num_draft_tokens": tokens}  # fmt: skip
    return "".join(f'sglang:spec_{k}{{model_name="m"}} {v}\n' for k, v in values.items())


def test_blocks_of_sglang_are_drafted_in_one_step(tmp_path: Path) -> None:
    """DFLASH: one step, 8 draft tokens; D = 1.98 / 0.283 = 7."""
    found = read_text(tmp_path, sglang_page(2.98, 0.283, 1, 8))
    assert (found.tokens_per_step, found.draft_length) == (2.98, 7)
    assert [n.code for n in found.notices] == [Code.TAKEN_FOR_BLOCK]
    # up to 2 tokens per step a tree of one step does the same
    found = read_text(tmp_path, sglang_page(1.7, 0.1, 1, 8))
    assert (found.draft_length, found.draft_lengths) == (None, (1, 7))


@pytest.mark.parametrize(
    ("algorithm", "length", "codes"),
    [("DFLASH", 7, []), ("DSPARK", 7, []), ("NGRAM", 7, [Code.DRAFT_TREE]),
     ("EAGLE3", 1, [Code.DRAFT_TREE])],
)  # fmt: skip
def test_server_info_says_the_algorithm(algorithm: str, length: int, codes: list[Code]) -> None:
    stated = {"speculative_algorithm": algorithm, "speculative_num_steps": 1,
              "speculative_num_draft_tokens": 8}  # fmt: skip
    found = read_json({**stated, "internal_states": [{"avg_spec_accept_length": 1.9}]})
    assert found.draft_length == length
    assert [n.code for n in found.notices] == codes


def test_the_rate_of_sglang_has_two_meanings(cli: Cli, tmp_path: Path) -> None:
    """2.50 at 0.50 is 1.5 / 0.5 = 3 drafts, or before 2026-04 2.5 / 0.5 - 1 = 4: asked."""
    path = write(tmp_path, "sglang.log", decode_line(2.5, 0.5))
    data = cli("acceptance", "read", path, "--format", "json").data()
    assert (data["draft_length"], data["draft_lengths"]) == (None, [3, 4])
    words = ("D = 3 or 4", "--acceptance al:3=2.5 or --acceptance al:4=2.5", "--draft-length")
    assert_refused(cli("recommend", "llama-3.1-8b", "--acceptance", path), *words)
    given = cli("acceptance", "read", path, "--draft-length", "4")
    assert "Note" not in given.out
    assert "D is 3 or 4, not 6" in cli("acceptance", "read", path, "--draft-length", "6").said


@pytest.mark.parametrize(
    ("second", "length"),
    [
        ((2.0, 0.33), 3),  # 1.0 / 0.33 = 3.0; 2.0 / 0.33 - 1 = 5.1
        ((2.0, 0.40), 4),  # 1.0 / 0.40 = 2.5; 2.0 / 0.40 - 1 = 4
    ],
)
def test_further_lines_tell_the_meaning(
    tmp_path: Path, second: tuple[float, float], length: int
) -> None:
    found = read_text(tmp_path, decode_line(2.5, 0.5) + decode_line(*second))
    assert found.draft_length == length
    assert found.tokens_per_step == pytest.approx(2.25)


def test_the_arguments_in_a_log_tell_the_draft_length(tmp_path: Path) -> None:
    start = (
        "[2026-03-01 00:00:00] server_args=ServerArgs(speculative_algorithm='{}', "
        "speculative_num_steps={}, speculative_num_draft_tokens={}, speculative_adaptive={})\n"
    )
    line = decode_line(2.5, 0.5)
    assert read_text(tmp_path, start.format("EAGLE3", 4, 5, False) + line).draft_length == 4
    assert read_text(tmp_path, start.format("DFLASH", 1, 8, False) + line).draft_length == 7
    with pytest.raises(InputError, match="speculative_adaptive is on"):
        read_text(tmp_path, start.format("EAGLE3", 3, 4, True) + line)


def test_a_draft_length_that_changes_is_refused(tmp_path: Path) -> None:
    """3 drafts in a line, then 1; the gauges of 3 drafts beside a present 1; an adaptive server."""
    with pytest.raises(InputError, match="lines fit no one draft length"):
        read_text(tmp_path, decode_line(2.62, 0.54) + decode_line(1.78, 0.78))
    with pytest.raises(InputError, match="is not of 1 drafts"):
        read_text(tmp_path, sglang_page(1.9, 0.3, 1, 2))
    stated = {"speculative_num_steps": 2, "speculative_num_draft_tokens": 3,
              "speculative_adaptive": True}  # fmt: skip
    with pytest.raises(InputError, match=r"2\.9 tokens per step belong to no one draft length"):
        read_json({**stated, "internal_states": [{"avg_spec_accept_length": 2.9}]})


def test_the_report_of_sglangs_benchmark(tmp_path: Path) -> None:
    found = read_text(tmp_path, SGLANG_BENCH)
    assert (found.tokens_per_step, found.draft_length) == (2.61, None)
    info = json.loads((PAGES / "sglang-server-info.json").read_text("utf-8"))
    same = read_json({"accept_length": 2.61, "server_info": info})
    assert (same.draft_length, same.counted.version) == (3, "0.5.23")
    assert read_json({"accept_length": None, "server_info": info}).tokens_per_step == 2.61
    with pytest.raises(InputError, match=r"holds 2 reports, of 2\.61 to 2\.8"):
        read_text(tmp_path, SGLANG_BENCH + SGLANG_BENCH.replace("2.61", "2.80"))
    for bad in ({"accept_length": 0.5}, {"accept_length": "x"}):
        with pytest.raises(InputError):
            read_json(bad)


def test_the_timings_of_llama_servers_responses() -> None:
    """200 tokens, 55 of 55 drafts accepted: 199 / (199 - 55) over all passes."""
    timings = {"predicted_n": 200, "draft_n": 55, "draft_n_accepted": 55}
    found = read_json({"content": "x", "timings": timings})
    assert found.tokens_per_step == pytest.approx(199 / 144)
    assert (found.passes, found.draft_length, found.counted.passes) == (144, None, "all")
    with pytest.raises(InputError, match="nothing to read"):
        read_json({"timings": timings | {"predicted_n": 20}})


def short_drafts(tmp_path: Path) -> str:
    """A page of 100 drafts of 1.5 tokens with two positions: a schedule, or a confidence bound."""
    counts = {"drafts": 100, "draft_tokens": 150, "accepted_tokens": 110}
    text = "".join(f'vllm:spec_decode_num_{k}_total{{model_name="m"}} {v}\n'
                   for k, v in counts.items())  # fmt: skip
    each = 'vllm:spec_decode_num_accepted_tokens_per_pos_total{{model_name="m",position="{}"}} {}\n'
    return write(tmp_path, "page.prom", text + each.format(0, 75) + each.format(1, 35))


def test_early_stops_are_said_and_never_carried_on(cli: Cli, tmp_path: Path) -> None:
    page, kept = short_drafts(tmp_path), str(tmp_path / "kept.yaml")
    assert cli("acceptance", "read", page, "-o", kept).code == 0
    assert "early_stops: true" in Path(kept).read_text("utf-8")
    for acceptance in (read_acceptance(page).acceptance(), load_acceptance(kept)):
        assert acceptance.table[2] == pytest.approx(2.1)
        assert acceptance.early_stops
    full = read_acceptance(str(PAGES / "vllm-0.33.0.prom")).acceptance()
    assert not full.early_stops
    told = cli("recommend", "llama-3.1-8b", "--acceptance", page, "--format", "json")
    assert max(told.by_draft_length()) == 2
    assert "nothing is carried to longer ones" in json.dumps(told.data()["notes"])


@pytest.mark.parametrize(
    "text",
    ["temperature: 3\nusers: 17\n", "Total tokens  900\nusers 17\n", "Mean: 3.2\n", "a 3 b\n"],
)
def test_a_table_of_words_and_numbers_is_no_page(cli: Cli, tmp_path: Path, text: str) -> None:
    told = assert_refused(cli("acceptance", "read", write(tmp_path, "a.txt", text)))
    assert "not a Prometheus page, nor a log, JSON or YAML that is known here" in told


def with_schedule(table: object) -> bytes:
    """vLLM's /server_info with a schedule."""
    info = json.loads((SERVERS / "vllm-server-info.json").read_bytes())
    speculative = info["vllm_config"]["speculative_config"]
    speculative["num_speculative_tokens_per_batch_size"] = table
    return json.dumps(info).encode()


@pytest.mark.usefixtures("clock")
def test_a_schedule_that_runs_has_no_one_draft_length(cli: Cli) -> None:
    for table, known in (([[1, 4, 3], [5, 16, 1]], False), (None, True)):
        with server(engine(pages("vllm-dev", server_info=with_schedule(table)))) as url:
            outcome = live_read(cli, url, "--interval", "4")
        data = outcome.data()
        assert (facts(data)["draft_length"] is not None) == known
        assert (data["change"]["draft_length"] is not None) == known
        reason = data["server"]["facts"]["draft_length"].get("reason") or ""
        assert ("has a schedule" in reason) != known


@pytest.mark.usefixtures("clock")
def test_an_adaptive_sglang_server_has_no_one_draft_length(cli: Cli) -> None:
    info = json.loads((SERVERS / "sglang-server-info.json").read_bytes())
    body = json.dumps(info | {"speculative_adaptive": True}).encode()
    with server(engine(pages("sglang", server_info=body))) as url:
        outcome = live_read(cli, url, "--interval", "4", "--gpu", "h100-sxm")
    assert facts(outcome.data())["draft_length"] is None
    assert facts(outcome.data())["acceptance"] is None
    reason = outcome.data()["server"]["facts"]["acceptance"]["reason"]
    assert "belong to no one of them" in reason


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("trtllm-older.prom", "num_draft_tokens", "999999999999999"),
        ("sglang-0.5.23.prom", "spec_num_steps", "999999999999999"),
        ("sglang-0.5.23.prom", "spec_accept_length", "1e308"),
        ("sglang-meta.json", '"spec_num_proposed_drafts": 30', "9e300"),
        ("vllm-0.33.0.prom", "num_draft_tokens", "999999999999999"),
    ],
)
def test_drafts_longer_than_any_engines_are_no_crash(
    cli: Cli, tmp_path: Path, name: str, old: str, new: str
) -> None:
    """One number of a page made absurd: a plain refusal, and no memory for such a draft."""
    text = (PAGES / name).read_text("utf-8")
    if name.endswith(".json"):
        changed = text.replace(old, f"{old.rpartition(' ')[0]} {new}")
    else:
        changed = re.sub(rf"(?m)^(\S*{old}\S*) [\d.]+$", rf"\g<1> {new}", text)
    assert changed != text
    path = write(tmp_path, name, changed)
    assert_refused(cli("recommend", "llama-3.1-8b", "--acceptance", path), name)
