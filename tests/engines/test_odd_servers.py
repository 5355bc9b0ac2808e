"""Servers that are not what they should be: down, slow, protected, restarted or hostile."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler

import pytest

from tests.servers import (
    LATER,
    SECRET,
    VLLM,
    engine,
    facts,
    pages,
    read,
    replaced,
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
        ("", "expected an address"),
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
