"""Servers that are not what they should be: down, slow, protected, absurd or hostile."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler
from itertools import count

import pytest

from tests.servers import (
    LATER,
    SECRET,
    SERVERS,
    VLLM,
    engine,
    facts,
    gaps,
    pages,
    read,
    send,
    server,
)
from tests.support import Cli, assert_refused


@pytest.mark.usefixtures("clock")
def test_a_restart_between_the_reads(cli: Cli) -> None:
    with server(engine(pages("vllm", metrics=[LATER, VLLM]))) as url:
        line = assert_refused(read(cli, url, "--gpu", "h100-sxm"), "restarted", "read again")
    assert "fell from" in line


@pytest.mark.usefixtures("clock")
def test_a_restart_that_has_caught_up(cli: Cli) -> None:
    """Counters are higher than before, but were made anew."""
    again = LATER.replace(b" 1.79e+09", b" 1.790001e+09")
    with server(engine(pages("vllm", metrics=[VLLM, again]))) as url:
        assert_refused(read(cli, url, "--gpu", "h100-sxm"), "restarted")


@pytest.mark.usefixtures("clock")
def test_a_restart_in_the_middle_of_many_reads(cli: Cli) -> None:
    bodies = [VLLM, LATER, VLLM.replace(b"1000.0", b"990.0"), LATER, LATER, LATER]
    with server(engine(pages("vllm", metrics=bodies))) as url:
        assert_refused(read(cli, url, "--interval", "30s", "--gpu", "h100-sxm"), "restarted")


def test_gauges_are_read_more_often(cli: Cli, clock: list[float]) -> None:
    running = (6, 8, 10, 0, 12, 14)
    bodies = [replaced("vllm:num_requests_running", str(n)) for n in running]
    with server(engine(pages("vllm", metrics=bodies))) as url:
        data = read(cli, url, "--interval", "30s", "--gpu", "h100-sxm").data()
    assert clock == [6.0] * 5
    assert facts(data)["batch"] == 10  # while it ran any


@pytest.mark.parametrize("status", [401, 403])
def test_a_protected_server(cli: Cli, status: int) -> None:
    with server(lambda h: send(h, b"no", status)) as url:
        assert_refused(read(cli, url), f"HTTP {status}", "ROOFLINE_TOKEN")


def test_the_token_goes_to_every_page_and_nowhere_else(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOFLINE_TOKEN", SECRET)
    tokens: list[str | None] = []
    inner = engine(pages("vllm-dev"))

    def answer(handler: BaseHTTPRequestHandler) -> None:
        tokens.append(handler.headers["Authorization"])
        inner(handler)

    with server(answer) as url:
        outcome = read(cli, url, "--interval", "0")
        text = cli("live", url, "--interval", "0")
    assert set(tokens) == {f"Bearer {SECRET}"}
    assert len(tokens) == 8
    assert outcome.code == 0
    assert SECRET not in outcome.out + outcome.err + text.out + text.err


def test_a_page_that_redirects_elsewhere_takes_no_token_along(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metrics lead to another host: refused. A describing page does: left unread. No visit."""
    monkeypatch.setenv("ROOFLINE_TOKEN", SECRET)
    visits: list[str] = []
    inner = engine(pages("vllm-dev"))

    def other(handler: BaseHTTPRequestHandler) -> None:
        visits.append(handler.path)
        inner(handler)

    with server(other) as there:
        with server(lambda h: send(h, b"", 302, Location=f"{there}/metrics")) as url:
            line = assert_refused(read(cli, url), "redirects to another host")
        assert SECRET not in line
        own = engine(pages("vllm"))

        def answer(handler: BaseHTTPRequestHandler) -> None:
            if handler.path.startswith("/server_info"):
                send(handler, b"", 307, Location=f"{there}{handler.path}")
            else:
                own(handler)

        with server(answer) as url:
            outcome = read(cli, url, "--interval", "0", "--gpu", "h100-sxm")
    assert "redirects to another host" in outcome.data()["not_read"][0]["reason"]
    assert visits == []
    assert SECRET not in outcome.out + outcome.err


def test_a_server_that_echoes_the_token(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLINE_TOKEN", SECRET)
    with server(lambda h: send(h, f"bad token: {SECRET}".encode())) as url:
        outcome = read(cli, url)
    assert outcome.code == 2
    assert SECRET not in outcome.err


def test_user_and_password_in_the_address_are_not_shown(cli: Cli) -> None:
    line = assert_refused(read(cli, "http://me:hunter2@127.0.0.1:9"), "leave user and password out")
    assert "hunter2" not in line
    assert "me:" not in line


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("127.0.0.1:8000", "expected an address"),
        ("ftp://host/", "expected an address"),
        ("http://[::1", "cannot be read"),
        ("http://127.0.0.1:1/a b", "character"),
    ],
)
def test_bad_addresses(cli: Cli, url: str, words: str) -> None:
    assert_refused(read(cli, url), words)


def test_a_server_that_is_down(cli: Cli) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert_refused(read(cli, f"http://127.0.0.1:{port}"), "connection refused")


@pytest.mark.parametrize("slow", ["/metrics", "/v1/models"])
def test_all_answers_together_have_one_limit(cli: Cli, slow: str) -> None:
    """A byte each 50 ms, on the metrics or on a page that could be done without."""
    stop = threading.Event()
    inner = engine(pages("vllm"))

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if not handler.path.startswith(slow):
            inner(handler)
            return
        handler.send_response(200)
        handler.end_headers()
        while not stop.wait(0.05):
            handler.wfile.write(b"#")

    with server(answer) as url:
        start = time.monotonic()
        outcome = read(
            cli, url, "--timeout", "0.7s", "--interval", "0", "--gpu", "h100-sxm", "--model",
            "llama-3.1-8b",
        )  # fmt: skip
        took = time.monotonic() - start
        stop.set()
    assert took < 0.7 + 3  # the answer itself is computed after the reading
    if slow == "/metrics":
        assert_refused(outcome, "no full answer within")
    else:
        reasons = [gap["reason"] for gap in outcome.data()["not_read"]]
        assert any("used up" in reason for reason in reasons)


def test_an_endless_handshake_is_given_up_in_time(cli: Cli) -> None:
    """A TLS record of 16,383 bytes, one each 50 ms: every single read is in time."""
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)

        def answer() -> None:
            peer, _ = listener.accept()
            with peer, contextlib.suppress(OSError):
                peer.recv(4096)
                peer.sendall(b"\x16\x03\x03\x3f\xff")
                while not stop.wait(0.05):
                    peer.sendall(b"\x02")

        thread = threading.Thread(target=answer)
        thread.start()
        start = time.monotonic()
        outcome = read(cli, f"https://127.0.0.1:{listener.getsockname()[1]}", "--timeout", "0.5")
        took = time.monotonic() - start
        stop.set()
        thread.join(timeout=10)
    assert_refused(outcome, "no full answer within 0.5 s")
    assert took < 2


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "is empty"),
        (b"<html>log in</html>", "<html>log in</html>"),
        (b"up 1\nprocess_cpu_seconds_total 3\n", "no series", ),
        (b"[1, 2", "neither a Prometheus page nor"),
        (b"[" * 100_000, "neither a Prometheus page nor"),
        (b'{"object": "list"}', "neither a Prometheus page nor"),
        (b"\x1b[2J\x1b]0;owned\x07", "neither a Prometheus page nor"),
    ],
)  # fmt: skip
def test_other_things_than_metrics(cli: Cli, body: bytes, words: str) -> None:
    words = words.replace("no series", "without series of an engine")
    with server(lambda h: send(h, body, Content_Type="text/plain; version=0.0.4")) as url:
        line = assert_refused(read(cli, url), url, words)
    assert "\x1b" not in line
    assert len(line) < 500


def test_metrics_of_a_wrong_type_are_still_metrics(cli: Cli) -> None:
    """What counts is what a page holds, not what it says that it is."""
    inner = pages("vllm-dev")

    def answer(handler: BaseHTTPRequestHandler) -> None:
        body = inner[handler.path.partition("?")[0]][0]
        send(handler, body, Content_Type="image/png")

    with server(answer) as url:
        assert facts(read(cli, url, "--interval", "0").data())["batch"] == 8


def replaced(series: str, value: str) -> bytes:
    """Return the page with another value on every line of a series."""
    pattern = rf"^({re.escape(series)}(?:{{.*}})?) .*$".encode()
    changed, number = re.subn(pattern, rb"\1 " + value.encode(), VLLM, flags=re.M)
    assert number
    return changed


@pytest.mark.parametrize("value", ["NaN", "-3", "+Inf", "1e300"])
@pytest.mark.parametrize(
    ("series", "fact", "flag"),
    [
        ("vllm:num_requests_running", "batch", "--batch"),
        ("vllm:request_prompt_tokens_sum", "context", "--context"),
        ("vllm:spec_decode_num_accepted_tokens_total", "acceptance", "--acceptance"),
    ],
)
def test_absurd_numbers_are_not_believed(
    cli: Cli, series: str, fact: str, flag: str, value: str
) -> None:
    with server(engine(pages("vllm-dev", metrics=replaced(series, value)))) as url:
        data = read(cli, url, "--interval", "0").data()
    assert facts(data)[fact] is None
    assert gaps(data)[fact] == flag


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("value", ["NaN", "-3", "+Inf", "1e300"])
def test_absurd_rates_are_not_believed(cli: Cli, value: str) -> None:
    later = replaced("vllm:generation_tokens_total", value)
    with server(engine(pages("vllm-dev", metrics=[VLLM, later]))) as url:
        outcome = read(cli, url, "--interval", "4")
    if value == "-3":
        assert_refused(outcome, "restarted")
    else:
        assert facts(outcome.data())["tokens_per_s"] is None


def test_a_draft_length_beyond_any_engine(cli: Cli) -> None:
    """300 positions on the page, 3000 in the configuration."""
    lines = [
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name='
        f'"meta-llama/Llama-3.1-8B-Instruct",position="{p}"}} 1.0'
        for p in range(300)
    ]
    kept = [x for x in VLLM.decode().splitlines() if "per_pos" not in x]
    body = "\n".join([*kept, *lines, ""]).encode()
    info = (SERVERS / "vllm-server-info.json").read_bytes()
    info = info.replace(b'"num_speculative_tokens": 3', b'"num_speculative_tokens": 3000')
    with server(engine(pages("vllm-dev", metrics=body, server_info=info))) as url:
        data = read(cli, url, "--interval", "0").data()
    assert facts(data)["draft_length"] is None
    assert "beyond 64" in data["server"]["facts"]["acceptance"]["reason"]


@pytest.mark.parametrize(
    "name", ["llama\x1b[31m\x1b]0;owned\x07", "x" * 10_000, "a\r\nSet-Cookie: b", "\u202eevil"]
)
def test_names_that_are_no_names(cli: Cli, name: str) -> None:
    page = VLLM.replace(b"meta-llama/Llama-3.1-8B-Instruct", name.encode())
    page = page.replace(b"\r\n", b"")
    models = json.dumps({"data": [{"id": name, "root": name}]}).encode()
    bodies = pages("vllm", metrics=page) | {"/v1/models": [models]}
    with server(engine(bodies)) as url:
        line = assert_refused(
            read(cli, url, "--interval", "0", "--gpu", "h100-sxm"), "which model", "--model"
        )
        outcome = cli(
            "live", url, "--interval", "0", "--gpu", "h100-sxm", "--model", "llama-3.1-8b"
        )
    assert len(line) < 1000
    assert outcome.code == 0
    assert set(outcome.out) <= {c for c in outcome.out if c.isprintable() or c == "\n"}
    assert "owned\x07" not in outcome.err


def test_a_name_of_ten_megabytes(cli: Cli) -> None:
    long = b"x" * 9_000_000
    page = VLLM.replace(b"meta-llama/Llama-3.1-8B-Instruct", long, 1)
    with server(engine(pages("vllm", metrics=page))) as url:
        assert_refused(read(cli, url, "--interval", "0"), "at most", "no page of one engine")
    models = json.dumps({"data": [{"id": "y" * 9_000_000}]}).encode()
    bodies = pages("vllm-dev") | {"/v1/models": [models]}
    with server(engine(bodies)) as url:
        data = read(cli, url, "--interval", "0").data()
    assert data["used"]["model"] == "llama-3.1-8b"


def test_a_page_of_endless_series(cli: Cli) -> None:
    lines = (f'vllm:spec_decode_x{{a="{i}"}} 1' for i in count())
    body = "\n".join(next(lines) for _ in range(100_000)).encode()
    with server(engine(pages("vllm", metrics=body))) as url:
        start = time.monotonic()
        assert_refused(read(cli, url, "--interval", "0"), "at most 20000 lines")
    assert time.monotonic() - start < 5


@pytest.mark.parametrize(
    "models",
    [b"[]", b"null", b'{"data": 3}', b'{"data": [{"id": 5}]}', b'{"data": [[[]]]}', b"<html>", b""],
)
def test_json_of_another_shape(cli: Cli, models: bytes) -> None:
    """The name on the metrics page is left."""
    bodies = pages("vllm") | {"/v1/models": [models], "/version": [models]}
    with server(engine(bodies)) as url:
        data = read(cli, url, "--interval", "0", "--gpu", "h100-sxm").data()
    assert data["used"]["model"] == "llama-3.1-8b"


def test_an_unknown_accelerator_is_asked_for(cli: Cli) -> None:
    info = (SERVERS / "vllm-server-info.json").read_bytes().replace(b"H100 80GB HBM3", b"H999")
    with server(engine(pages("vllm-dev", server_info=info))) as url:
        assert_refused(read(cli, url, "--interval", "0"), "NVIDIA H999", "give --gpu")


def test_several_models_are_asked_about(cli: Cli) -> None:
    other = VLLM.replace(b"meta-llama/Llama-3.1-8B-Instruct", b"Qwen/Qwen3-8B")
    body = VLLM + other.replace(b" 8.0\n", b" 5.0\n")
    bodies = {"/metrics": [body]}
    with server(engine(bodies)) as url:
        assert_refused(read(cli, url, "--interval", "0"), "serves 2 models", f"{url}#Qwen/Qwen3-8B")
        data = read(cli, f"{url}#Qwen/Qwen3-8B", "--interval", "0", "--gpu", "h100-sxm").data()
    assert (data["used"]["model"], facts(data)["batch"]) == ("qwen3-8b", 5)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--interval", "soon"], "--interval soon"),
        (["--interval", "-3"], "--interval -3"),
        (["--interval", "2h"], "--interval 2h"),
        (["--timeout", "0"], "--timeout 0"),
        (["--batch", "1,2"], "expected one number"),
        (["--gpu", "h1000"], "unknown"),
        (["--largest-batch", "0"], "--largest-batch 0"),
        (["--drafter", "none"], "nothing to schedule"),
    ],
)
def test_bad_flags_ask_no_server(cli: Cli, flags: list[str], words: str) -> None:
    seen: list[str] = []
    with server(engine(pages("vllm"), seen)) as url:
        assert_refused(read(cli, url, *flags), words)
    assert seen == []
