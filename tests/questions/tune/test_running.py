"""A server is started, loaded, read and stopped; here it is a script that behaves like an engine.

`fake_engine.py` takes a stated time for a pass and accepts min(D, 2) drafts in each, so the speed
of B clients is B (1 + min(D, 2)) / pass by hand.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from roofline.base.errors import InputError
from roofline.engines.bench_result import BenchResult
from roofline.engines.writing import Launch
from roofline.questions.tune import running
from roofline.questions.tune.running import (
    Budget,
    Program,
    made_up_prompts,
    read_prompts,
    time_draft_length,
)
from roofline.specs.engine import load_engine
from roofline.specs.placement import Placement
from tests.support import ROOT, write

FAKE = Path(__file__).with_name("fake_engine.py")
PASS_MS = 20.0


def launch(engine: str) -> Launch:
    return Launch(
        engine=load_engine(engine),
        drafter_kind="ngram",
        weights=None,
        draft_tp=1,
        placement=Placement(),
        layers=8,
    )


def timed(
    tmp_path: Path,
    engine: str,
    *arguments: str,
    draft_length: int = 4,
    batch: int = 3,
    **more: Any,
) -> BenchResult:
    """Time the fake engine."""
    budget = {"requests": 6, "output": 13, "seconds": 30.0, "start_seconds": 30.0}
    command = (sys.executable, str(FAKE), engine, "--pass-ms", str(PASS_MS), *arguments)
    return time_draft_length(
        launch(engine),
        draft_length,
        batch,
        program=Program(command=command),
        prompts=made_up_prompts(8, 16),
        context=16,
        budget=Budget(**(budget | more.pop("budget", {}))),
        log=tmp_path / "server.log",
        **more,
    )


def alive(process: int) -> bool:
    """Return whether a process runs, and is more than a leftover entry."""
    try:
        state = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


def gone(children: Path, *, within: float = 10.0) -> bool:
    """Return whether the server and the process that it started end within some seconds."""
    ids = [int(word) for word in children.read_text("utf-8").split()]
    assert len(ids) == 2
    end = time.monotonic() + within
    while any(map(alive, ids)) and time.monotonic() < end:
        time.sleep(0.05)
    return not any(map(alive, ids))


@pytest.mark.parametrize("engine", ["llamacpp", "vllm"])
@pytest.mark.parametrize(("draft_length", "emitted"), [(0, 1.0), (1, 2.0), (4, 3.0)])
def test_the_speed_is_that_of_busy_clients(
    tmp_path: Path, engine: str, draft_length: int, emitted: float
) -> None:
    found = timed(tmp_path, engine, draft_length=draft_length, budget={"requests": 24})
    assert found.draft_length == draft_length
    assert found.concurrency == 3
    assert found.tokens_per_step == pytest.approx(emitted, rel=1e-6)
    # the counters and the responses of the fake engine hold passes of exactly 20 ms
    assert found.tokens_per_s == pytest.approx(3 * emitted / (PASS_MS / 1e3), rel=1e-6)
    assert found.prompts_inside is False
    assert (found.requests or 0) >= 24
    # responses differ in what was accepted, parts of a page have steps of their own
    assert (found.spread is None) == (engine == "llamacpp" and draft_length > 0)


def test_the_server_gets_the_flags_of_the_draft_length(tmp_path: Path) -> None:
    """b11434 drafts size-m tokens whatever a request says, and none where size-n is larger."""
    record = tmp_path / "record.json"
    timed(tmp_path, "llamacpp", "--record", str(record), draft_length=3)
    rest = json.loads(record.read_text("utf-8"))["rest"]
    told = dict(zip(rest[::2], rest[1::2], strict=False))
    assert told["--spec-type"] == "ngram-simple"
    assert told["--spec-ngram-simple-size-m"] == "3"
    assert int(told["--spec-ngram-simple-size-n"]) <= 3
    assert "--parallel" in rest
    timed(tmp_path, "llamacpp", "--record", str(record), draft_length=3, held=2.5)
    assert "--spec-synth-len" in json.loads(record.read_text("utf-8"))["rest"]
    timed(tmp_path, "llamacpp", "--record", str(record), draft_length=0)
    plain = json.loads(record.read_text("utf-8"))["rest"]
    assert not any("spec" in word for word in plain)


def test_held_acceptance_is_said(tmp_path: Path) -> None:
    assert timed(tmp_path, "vllm", held=3.0).held == 3.0
    assert timed(tmp_path, "vllm").held is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--dies", "start"), "ended before it answered: ValueError: no such model: here"),
        (("--dies", "load"), "ended under load"),
        (("--answers", "500"), 'HTTP 500: {"error": "context is too long"}'),
        (("--answers", "half"), 'answered a request with no JSON: \'{"timings": {"predic\''),
        (("--answers", "page"), "no JSON: '<html>Bad gateway</html>'"),
        (("--answers", "bytes"), "answered a request with no JSON"),
        (("--answers", "deep"), "answered a request with no JSON"),
        (("--answers", "list"), "answered a request with no mapping"),
    ],
)
def test_a_server_that_breaks_is_refused_in_one_line(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    with pytest.raises(InputError) as refused:
        timed(tmp_path, "llamacpp", *arguments)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file or directory"):
        time_draft_length(
            launch("llamacpp"),
            1,
            1,
            program=Program(command=("/no/such/llama-server",)),
            prompts=["x"],
            context=1,
            budget=Budget(),
            log=tmp_path / "log",
        )


def test_time_is_bounded(tmp_path: Path) -> None:
    begun = time.monotonic()
    with pytest.raises(InputError, match="the first requests took over 1 s"):
        timed(tmp_path, "vllm", "--answers", "slow", budget={"seconds": 1.0})
    assert time.monotonic() - begun < 20
    # of 1,000 requests there are as many as the time allows
    found = timed(tmp_path, "llamacpp", budget={"seconds": 3.0, "requests": 1000})
    assert 1 <= (found.requests or 0) < 1000


def test_nothing_is_left_that_ignores_to_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "GRACE", 1.0)
    children = tmp_path / "children"
    timed(tmp_path, "llamacpp", "--stubborn", "--child", str(children))
    assert gone(children)


@pytest.mark.skipif(
    sys.platform != "linux", reason="other systems hand orphans to the first process"
)
def test_nothing_is_left_that_leaves_the_session(tmp_path: Path) -> None:
    """What calls setsid(2) is no longer of the group, and ignores SIGTERM here."""
    children = tmp_path / "children"
    timed(tmp_path, "llamacpp", "--leaves", "--child", str(children))
    assert gone(children)


def test_an_answer_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "MAX_ANSWER", 1000)
    with pytest.raises(InputError, match="answered a request with over"):
        timed(tmp_path, "llamacpp", "--answers", "huge")


def test_where_no_request_ends_the_remedy_is_an_option_that_exists(tmp_path: Path) -> None:
    """The first three requests are answered, the next after a minute."""
    with pytest.raises(InputError, match=r"no request ended within 2 s; give more seconds or"):
        timed(tmp_path, "llamacpp", "--answers", "late", budget={"seconds": 2.0})


def test_the_log_is_no_link(tmp_path: Path) -> None:
    """Whoever can put a link there would have the server's output in another file."""
    target = write(tmp_path, "mine", "kept")
    (tmp_path / "server.log").symlink_to(target)
    with pytest.raises(InputError, match="is a link"):
        timed(tmp_path, "llamacpp")
    assert Path(target).read_text("utf-8") == "kept"


def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"server\.log.*cannot be written"):
        timed(tmp_path / "none", "llamacpp")


def test_one_part_more_or_less_is_no_scatter() -> None:
    """Of two reads there is one speed: 100 tokens after 10 s of waiting, with 4 clients 40/s."""
    pages = [page(0, 0), page(100, 10.0)]
    found = running._between(pages, 4, "here")
    assert found.tokens_per_s == pytest.approx(40.0)
    assert found.spread is None


def test_the_scatter_of_parts_by_hand() -> None:
    """Steps of 90, 100 and 110 ms: deviations -0.1, 0, 0.1, so 0.1 / sqrt(3); a part without tokens
    is left out."""
    pages = [page(0, 0), page(10, 0.9), page(10, 0.9), page(20, 1.9), page(30, 3.0)]
    found = running._between(pages, 1, "here")
    assert found.tokens_per_s == pytest.approx(10.0)
    assert found.spread == pytest.approx(0.1 / 3**0.5)


def page(tokens: float, waited: float) -> str:
    label = '{engine="0",model_name="m"}'
    return (
        f"vllm:generation_tokens_total{label} {tokens}\n"
        f"vllm:inter_token_latency_seconds_sum{label} {waited}\n"
    )


# Prompts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "prompts"),
    [
        (b'{"prompt": "one"}\ntwo\n\n', ["one", "two"]),
        (b'\xef\xbb\xbf{"prompt": "one"}\r\ntwo\r\n', ["one", "two"]),  # as Windows writes it
        (b"{% if x %} a template\n{curly} text\n", ["{% if x %} a template", "{curly} text"]),
        ("a\u2028b\n".encode(), ["a\u2028b"]),  # JSON text may hold a line separator
        (b"[INST] as some templates begin [/INST]\n", ["[INST] as some templates begin [/INST]"]),
    ],
)
def test_prompts_are_read(tmp_path: Path, content: bytes, prompts: list[str]) -> None:
    assert read_prompts(Path(write(tmp_path, "p", content))) == prompts


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "holds no prompt"),
        (b"\n \n", "holds no prompt"),
        (b'a\n{"prompt": "a"\n', "p line 2: begins as JSON and is none"),
        (b'{"a":' * 30_000, "line 1: begins as JSON and is none"),
        (b'[\n{"prompt": "a"}\n]\n', "line 1: begins as JSON and is none"),
        (b'[{"prompt": "a"}]\n', "line 1: expected a text or"),
        (b'{"prompt": ["a"]}\n', "line 1: expected a text or"),
        (b'{"text": "a"}\n', "line 1: expected a text or"),
        (b"\xff\xfe\x00", "is no text in UTF-8"),
    ],
)
def test_what_holds_no_prompts_is_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    with pytest.raises(InputError) as refused:
        read_prompts(Path(write(tmp_path, "p", content)))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_is_stopped_leaves_no_server(tmp_path: Path, number: int) -> None:
    """Ctrl-C, or killed: the supervisor sees that its pipe is closed, however the run ended."""
    children = tmp_path / "children"
    code = f"""
import signal
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # where tests run in the background
from tests.questions.tune.test_running import running, timed
running.GRACE = 1.0
timed(Path({str(tmp_path)!r}), "vllm", "--child", {str(children)!r}, budget={{"requests": 10_000}})
"""
    run = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    try:
        end = time.monotonic() + 60
        while not children.exists() or len(children.read_text("utf-8").split()) < 2:
            assert time.monotonic() < end
            assert run.poll() is None
            time.sleep(0.05)
    finally:
        run.send_signal(number)
        run.wait(30)
    assert gone(children)


@pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3", "example.org", "::"])
def test_only_this_machine_can_reach_it_unless_meant(host: str) -> None:
    with pytest.raises(InputError, match=r"host.*others can reach it"):
        Program(command=("llama-server",), host=host)
    assert Program(command=("llama-server",), host=host, reachable=True).host == host


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"draft_length": 65}, "draft_length=65: expected 0 to 64"),
        ({"batch": 0}, "batch=0: expected 1 to 4096 clients"),
        ({"prompts": []}, "expected at least one prompt"),
        # an address of nobody (RFC 5737), which no machine can listen on
        ({"program": Program(command=("x",), host="203.0.113.5", reachable=True)}, "cannot listen"),
    ],
)
def test_what_cannot_be_timed_is_refused_before_a_server_starts(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    given: dict[str, Any] = {"draft_length": 1, "batch": 1, "prompts": ["x"]}
    given |= {"program": Program(command=("llama-server",))} | changes
    log = tmp_path / "log"
    with pytest.raises(InputError) as refused:
        time_draft_length(launch("llamacpp"), **given, context=1, budget=Budget(), log=log)
    assert said in str(refused.value)
    assert not log.exists()


def test_a_server_that_never_answers(tmp_path: Path) -> None:
    """It runs and does not listen."""
    with pytest.raises(InputError, match="gave no answer within 1 s"):
        time_draft_length(
            launch("llamacpp"),
            1,
            1,
            program=Program(
                command=(sys.executable, "-c", "import time; time.sleep(60)"), host="localhost"
            ),
            prompts=["x"],
            context=1,
            budget=Budget(start_seconds=1.0),
            log=tmp_path / "log",
        )


def test_what_a_timing_sets_is_not_set_twice(tmp_path: Path) -> None:
    for twice in ("--port", "--spec-type=ngram-mod"):
        with pytest.raises(InputError, match=twice.partition("=")[0]):
            timed(tmp_path, "llamacpp", twice, "1")


@pytest.mark.parametrize(
    "budget", [{"requests": 0}, {"output": 1}, {"seconds": float("nan")}, {"seconds": 1e9}]
)
def test_a_budget_without_end_is_refused(budget: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Budget(**budget)


def test_an_engine_without_a_known_server_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="server cannot be started here"):
        time_draft_length(
            launch("trtllm"),
            1,
            1,
            program=Program(command=("trtllm-serve",)),
            prompts=["x"],
            context=1,
            budget=Budget(),
            log=tmp_path / "log",
        )
