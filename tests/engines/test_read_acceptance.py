"""Reading acceptance from recorded pages, logs and JSON of every engine; answers by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from roofline.base.notices import Code, notice
from roofline.engines.acceptance_source import read_acceptance
from tests.support import Cli, assert_refused, write

PAGES = Path(__file__).parents[1] / "data" / "pages"
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"

#: file, AL, D, survival, passes; each worked from the numbers in the file.
CASES = [
    # 1 + 1660 / 1000; 710, 530, 420 of 1000
    ("vllm-0.33.0.prom", 2.66, 3, (0.71, 0.53, 0.42), 1000),
    # two data-parallel engines of one model: 1000 + 500 drafts, 1660 + 700 accepted
    ("vllm-0.33.0-dp2.prom", 1 + 2360 / 1500, 3, (1010 / 1500, 780 / 1500, 570 / 1500), 1500),
    (f"vllm-0.33.0-two-models.prom#{LLAMA}", 2.66, 3, (0.71, 0.53, 0.42), 1000),
    ("vllm-0.33.0-two-models.prom#Qwen/Qwen3-8B", 2.4, 3, (0.6, 0.5, 0.3), 500),
    # 123 / 1.62 = 75.926 and 150 / 0.5 = 300 passes; the nan line drafted nothing
    ("vllm-0.33.0.log", 1 + 273 / 375.926, 2, (0.49796, 0.22926), 375.926),
    # vLLM's documentation of the example: 1.2325581395348837, 43 steps
    ("vllm-response.json", 1.2325581395348837, 3, (4 / 43, 3 / 43, 3 / 43), 43),
    ("sglang-0.5.23.prom", 2.53, 3, None, None),
    # weights 8 and 2: (8 x 2.53 + 2 x 2.03) / 10; D = 1.43 / 0.476
    ("sglang-0.5.23.log", 2.43, 3, None, None),
    ("sglang-server-info.json", 2.61, 3, None, None),
    # histogram 2, 5, 3 of 10; D = 30 / 10, and position 3 was never reached
    ("sglang-meta.json", 2.1, 3, (0.8, 0.3, 0.0), 10),
    # 920 + 660 + 240 of 1000: TensorRT-LLM's blog has 1.92, 2.58, 2.82
    ("trtllm-1.3.prom", 2.82, 3, (0.92, 0.66, 0.24), 1000),
    # older gauges: D = 1.5 x 24 / 12
    ("trtllm-older.prom", 2.5, 3, None, None),
    # (12 + 8 + 5 + 2) / (8 + 2); the iteration without drafts does not count
    ("trtllm-stats.json", 2.7, 3, None, 10),
    ("trtllm-stats.jsonl", 2.7, 3, None, 10),
    # 1 + 308 / 203, printed as 2.52; positions as printed
    ("llamacpp-newer.log", 1 + 308 / 203, 2, (0.847, 0.670), 203),
    ("inferencex.yaml#thinking_off", 2.93, 3, None, None),
]


@pytest.mark.parametrize(("name", "mean", "depth", "survival", "passes"), CASES)
def test_recorded_sources(
    name: str, mean: float, depth: int, survival: tuple[float, ...] | None, passes: float | None
) -> None:
    found = read_acceptance(str(PAGES / name))
    assert found.tokens_per_step == pytest.approx(mean, abs=1e-3)
    assert found.draft_length == depth
    assert found.survival == (survival and pytest.approx(survival, abs=1e-3))
    assert found.drafts == (passes and pytest.approx(passes, abs=0.01))
    assert found.notices == ()
    assert found.acceptance().tokens_per_step([depth])[0] == pytest.approx(mean, abs=2e-3)
    assert found.acceptance().drafts == found.drafts


@pytest.mark.parametrize(
    ("name", "mean"),
    [("sglang-older.prom", 2.4), ("sglang-older.log", 2.74), ("llamacpp-older.log", 1 + 73 / 15)],
)
def test_sources_that_do_not_say_the_draft_length(
    cli: Cli, name: str, mean: float, tmp_path: Path
) -> None:
    """Older builds print AL alone; llama.cpp's drafts vary: 73 tokens in 15 calls, never rate D."""
    path = str(PAGES / name)
    data = cli("acceptance", "read", path, "--format", "json").data()
    assert data["tokens_per_step"] == pytest.approx(mean, abs=5e-5)  # four digits
    assert data["draft_length"] is None
    assert_refused(cli("recommend", "llama-3.1-8b", "--acceptance", path), "--draft-length", name)
    target = str(tmp_path / "own.yaml")
    assert cli("acceptance", "read", path, "--draft-length", "37", "-o", target).code == 0
    rows = cli("recommend", "llama-3.1-8b", "--acceptance", target, "--max-draft-length", "40",
               "--format", "json").by_draft_length()  # fmt: skip
    assert rows[37]["tokens_per_step"] == pytest.approx(mean)


def test_the_difference_of_two_reads() -> None:
    """Between the reads 400 drafts, 320 + 280 + 200 accepted; the total since start is another."""
    found = read_acceptance(
        str(PAGES / "vllm-0.33.0-later.prom"), earlier=str(PAGES / "vllm-0.33.0.prom")
    )
    assert found.tokens_per_step == pytest.approx(3.0)
    assert found.survival == pytest.approx((0.8, 0.7, 0.5))
    assert found.drafts == 400


def test_the_difference_of_two_reads_of_sglang() -> None:
    """Generation tokens over verify calls: (2000 + 600) / 1000; the gauge says 2.53."""
    found = read_acceptance(
        str(PAGES / "sglang-0.5.23-later.prom"), earlier=str(PAGES / "sglang-0.5.23.prom")
    )
    assert found.tokens_per_step == pytest.approx(2.6)
    assert found.draft_length == 3
    assert found.notices[0].code is Code.COUNTED_AT_END


def test_a_reading_becomes_a_file_and_an_answer(cli: Cli, tmp_path: Path) -> None:
    page, target = str(PAGES / "vllm-0.33.0.prom"), str(tmp_path / "own.yaml")
    assert cli("acceptance", "read", page, "-o", target).code == 0
    both = [
        cli("recommend", "llama-3.1-8b", "--acceptance", source, "--format", "json")
        for source in (page, target)
    ]
    direct, written = (outcome.by_draft_length() for outcome in both)
    counted = [1, 1.71, 2.24, 2.66]  # over 1000 passes, which leave a few hundredths open
    tokens = [row["tokens_per_step"] for row in direct.values()]
    assert tokens[:4] == pytest.approx(counted, abs=0.03)
    assert direct == written
    assert both[0].data()["inputs"]["acceptance_source"] == "vllm-0.33.0.prom"


def _page(**series: Any) -> str:
    """A vLLM page with these values; None leaves a series out."""
    values = {"num_drafts": 100, "num_draft_tokens": 200, "num_accepted_tokens": 120} | series
    lines = [
        f'vllm:spec_decode_{name}_total{{engine="0",model_name="m"}} {value}'
        for name, value in values.items()
        if value is not None
    ]
    return "\n".join(lines) + "\n"


BAD = [
    ("empty", b"", "is empty"),
    ("blank", b" \n\n", "is empty"),
    ("zero.prom", _page(num_drafts=0, num_draft_tokens=0, num_accepted_tokens=0), "no pass has"),
    ("nan.prom", _page(num_drafts="NaN"), "num_drafts_total is nan"),
    ("inf.prom", _page(num_accepted_tokens="+Inf"), "num_accepted_tokens_total is inf"),
    ("negative.prom", _page(num_drafts=-3), "num_drafts_total is -3"),
    ("missing.prom", _page(num_drafts=None), "no vllm:spec_decode_num_drafts_total"),
    ("more.prom", _page(num_accepted_tokens=900), "more drafts accepted than proposed"),
    ("broken.prom", _page() + 'vllm:spec_decode_x{a="b} 1\n', "not a Prometheus page"),
    ("other.prom", "# TYPE up gauge\nup 1.0\n", "without speculative-decoding series"),
    ("off.prom", 'sglang:spec_accept_length{model_name="m"} 0.0\n', "speculation is off"),
    ("gaugenan.prom", 'sglang:spec_accept_length{model_name="m"} NaN\n', "is nan"),
    ("trt.prom", "trtllm_spec_decode_draft_overhead 0.1\n", "return_perf_metrics"),
    ("page.html", "<html><body>login</body></html>", "not a Prometheus page"),
    ("other.json", '{"status": "ok"}', "JSON without speculative-decoding"),
    ("deep.json", "[" * 100_000, "not a Prometheus page"),
    (
        "stats.json",
        (
            '[{"specDecodingStats": {"numDraftTokens": "many", "numAcceptedTokens": 1, '
            '"numRequestsWithDraftTokens": 1}}]'
        ),
        "expected a number",
    ),
    ("null.json", '{"internal_states": [{"avg_spec_accept_length": null}]}', "nothing was drafted"),
    ("hist.json", '{"acceptance_histogram": [1, NaN]}', "acceptance_histogram is nan"),
    ("hist2.json", '{"acceptance_histogram": 3}', "expected a list"),
    ("idle.log", "SpecDecoding metrics: Mean acceptance length: nan, x", "in which anything"),
    ("old.log", "draft acceptance rate = 0.5 (  5 accepted /  10 generated)", "vary in length"),
    ("off.log", "Decode batch, #running-req: 8, accept len: 0.00, accept rate: 0.00", "at least 1"),
    ("binary", bytes(range(256)), "not a Prometheus page"),
    ("other.yaml", "name: x\n", "schema"),
    ("gold.yaml", "m: {on: {1: 2.5}}\n", "D=1 must have 1 to 2"),
    ("gold2.yaml", "m: {on: {1: high}}\n", "expected a number"),
]


@pytest.mark.parametrize(("name", "content", "words"), BAD, ids=[name for name, _, _ in BAD])
def test_what_cannot_be_read_is_one_line(
    cli: Cli, tmp_path: Path, name: str, content: str | bytes, words: str
) -> None:
    path = write(tmp_path, name, content)
    assert_refused(cli("recommend", "llama-3.1-8b", "--acceptance", path), name, words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("vllm-0.33.0-two-models.prom", ("2 models", "#Qwen/Qwen3-8B", LLAMA)),
        ("vllm-0.33.0.prom#llama", ("no model 'llama'",)),
        ("inferencex.yaml", ("several curves", "#minimax-m3/thinking_on")),
        ("inferencex.yaml#thinking_of", ("did you mean 'thinking_off'",)),
        ("missing.prom", ("missing.prom: no such file",)),
        (".", ("cannot be read",)),
        ("vllm-0.33.0.prom --draft-length 5", ("gives 3 positions",)),
        ("sglang-0.5.23.prom --draft-length 1", ("cannot come from 1",)),
        ("vllm-0.33.0.prom --since vllm-0.33.0-later.prom", ("fell from 1400 to 1000",)),
        ("vllm-0.33.0.prom --since vllm-0.33.0.prom", ("no pass has verified",)),
        ("vllm-0.33.0.log --since vllm-0.33.0.log", ("only Prometheus pages",)),
        ("vllm-0.33.0.prom --since vllm-0.33.0.prom --interval 1", ("give one of them",)),
        ("vllm-0.33.0.prom --interval 0", ("--interval 0",)),
        ("vllm-0.33.0.prom --timeout nan", ("--timeout nan",)),
        ("vllm-0.33.0.prom --draft-length 0", ("--draft-length 0",)),
        ("vllm-0.33.0.prom -o own.txt", (".yaml",)),
    ],
)
def test_refused_reads(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, arguments: str, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(PAGES)
    assert_refused(cli("acceptance", "read", *arguments.split()), *words)


def test_short_drafts_are_said(tmp_path: Path) -> None:
    """Under a schedule 150 tokens over 100 drafts of 2: survival at 2 reads too low."""
    body = _page(num_draft_tokens=150) + "".join(
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="m",'
        f'position="{p}"}} {n}\n'
        for p, n in enumerate((80, 40))
    )
    found = read_acceptance(write(tmp_path, "schedule.prom", body))
    assert found.tokens_per_step == pytest.approx(2.2)
    assert found.notices[0] == notice(
        Code.DRAFTS_CUT_SHORT,
        where=found.where,
        drafted_per_pass=1.5,
        draft_length=2,
        every_pass=False,
    )


def test_a_change_of_draft_length_in_a_log(tmp_path: Path) -> None:
    line = ("SpecDecoding metrics: Mean acceptance length: {}, Accepted throughput: 1.00 tokens/s, "
            "Drafted throughput: 1.00 tokens/s, Accepted: {} tokens, Drafted: {} tokens, "
            "Per-position acceptance rate: {}, Avg Draft acceptance rate: {}%\n")  # fmt: skip
    text = line.format("1.80", 80, 100, "0.800", "80.0")
    text += line.format("2.20", 120, 200, "0.800, 0.400", "60.0")
    found = read_acceptance(write(tmp_path, "vllm.log", text))
    assert found.tokens_per_step == pytest.approx(2.2)  # 120 / 1.2 = 100 passes
    assert found.notices[0] == notice(
        Code.LINES_LEFT_OUT, where=found.where, lines=1, draft_length=2
    )


def test_llama_cpp_totals_are_running_totals_and_restart_with_the_server(tmp_path: Path) -> None:
    """Totals 10/20/8 then 30/60/30 of one run, then 5/10/5 of the next: 35 drafts, 35 accepted."""
    line = ("statistics draft-mtp: #calls = 9, #gen drafts = {}, #acc drafts = 1, "
            "#gen tokens = {}, #acc tokens = {}\n")  # fmt: skip
    text = line.format(10, 20, 8) + line.format(30, 60, 30) + line.format(5, 10, 5)
    found = read_acceptance(write(tmp_path, "llama.log", text))
    assert (found.drafts, found.drafted, found.accepted) == (35, 70, 35)
    assert found.tokens_per_step == pytest.approx(2.0)


def test_logs_of_other_shapes(tmp_path: Path) -> None:
    """Colours, CRLF, a byte-order mark, UTF-16 of a Windows shell, and JSON lines around it."""
    log = (PAGES / "vllm-0.33.0.log").read_text("utf-8")
    wrapped = "".join(json.dumps({"message": line}) + "\n" for line in log.splitlines())
    shapes = {
        "crlf": log.replace("\n", "\r\n").encode(),
        "bom": b"\xef\xbb\xbf" + log.encode(),
        "utf16": log.encode("utf-16"),
        "colour": log.replace("(APIServer pid=4711)", "\x1b[36m(APIServer)\x1b[0m").encode(),
        "json": wrapped.encode(),
    }
    for name, content in shapes.items():
        found = read_acceptance(write(tmp_path, f"{name}.log", content))
        assert found.tokens_per_step == pytest.approx(1.7262, abs=1e-4), name


def test_a_long_log_is_read_by_its_lines(tmp_path: Path) -> None:
    """12 MB of other lines around the two that count."""
    log = (PAGES / "vllm-0.33.0.log").read_bytes()
    noise = b"INFO 11-28 10:15:02 [other.py:1] " + b"x" * 200 + b"\n"
    found = read_acceptance(write(tmp_path, "long.log", noise * 30_000 + log + noise * 30_000))
    assert found.tokens_per_step == pytest.approx(1.7262, abs=1e-4)


def test_stdin(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with (PAGES / "vllm-0.33.0.prom").open() as page:
        monkeypatch.setattr("sys.stdin", page)
        data = cli("acceptance", "read", "-", "--format", "json").data()
    assert data["tokens_per_step"] == 2.66
    assert data["standard_error"] == pytest.approx(
        0.0406, abs=1e-4
    )  # E[J^2] = 4.40: sqrt(1.6444/1000)
