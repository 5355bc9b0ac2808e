"""Reading metric pages over real HTTP, on loopback, from servers that behave well and badly."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from roofline.base.errors import InputError
from roofline.engines.http import _at_most, _exchange, _parsed, _reason
from tests.servers import send, server
from tests.support import Cli, Outcome, assert_refused

PAGES = Path(__file__).parents[1] / "data" / "pages"
PAGE = (PAGES / "vllm-0.33.0.prom").read_bytes()
LATER = (PAGES / "vllm-0.33.0-later.prom").read_bytes()
SECRET = "token-that-nobody-may-see"


def read(cli: Cli, url: str, *more: str) -> Outcome:
    return cli("acceptance", "read", url, "--format", "json", *more)


@pytest.mark.parametrize(
    ("name", "mean"),
    [("vllm-0.33.0.prom", 2.66), ("vllm-0.33.0-dp2.prom", 2.5733), ("sglang-0.5.23.prom", 2.53),
     ("sglang-server-info.json", 2.61), ("trtllm-1.3.prom", 2.82), ("trtllm-stats.json", 2.7)],
)  # fmt: skip
def test_a_served_page_is_read(cli: Cli, name: str, mean: float) -> None:
    body = (PAGES / name).read_bytes()
    with server(lambda h: send(h, body)) as url:
        data = read(cli, f"{url}/metrics").data()
    assert data["tokens_per_step"] == mean
    assert data["source"] == f"{url}/metrics"


def test_the_model_is_chosen_in_the_address_and_not_sent(cli: Cli) -> None:
    asked: list[str] = []
    body = (PAGES / "vllm-0.33.0-two-models.prom").read_bytes()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        send(handler, body)

    with server(answer) as url:
        line = assert_refused(read(cli, f"{url}/metrics"), "2 models", f"{url}/metrics#Qwen")
        assert read(cli, f"{url}/metrics#Qwen/Qwen3-8B").data()["tokens_per_step"] == 2.4
    assert asked == ["/metrics", "/metrics"]
    assert line.count("http://") >= 1


def test_advice_from_a_running_server(cli: Cli) -> None:
    with server(lambda h: send(h, PAGE)) as url:
        answer = cli(
            "recommend", "llama-3.1-8b", "--acceptance", f"{url}/metrics", "--format", "json"
        )
    rows = answer.by_draft_length()
    counted = [1, 1.71, 2.24, 2.66]  # over 1000 passes, which leave a few hundredths open
    tokens = [row["tokens_per_step"] for row in rows.values()]
    assert tokens[:4] == pytest.approx(counted, abs=0.03)
    assert answer.data()["acceptance"]["continued_from"] == 3
    assert answer.data()["inputs"]["acceptance_source"] == f"{url}/metrics"


def test_between_two_reads(cli: Cli) -> None:
    """400 drafts and 800 accepted in between: AL 3."""
    bodies = iter([PAGE, LATER])
    with server(lambda h: send(h, next(bodies))) as url:
        data = read(cli, f"{url}/metrics", "--interval", "0.05").data()
    assert (data["tokens_per_step"], data["drafts"]) == (3.0, 400)


def test_a_restart_between_two_reads(cli: Cli) -> None:
    bodies = iter([LATER, PAGE])
    with server(lambda h: send(h, next(bodies))) as url:
        assert_refused(read(cli, url, "--interval", "0.05"), "fell from 1400", "restarted")


@pytest.mark.parametrize(
    ("body", "words"),
    [(b"", "is empty"), (b"<html>log in</html>", "not a Prometheus page"),
     (b"up 1\n", "without speculative-decoding series"),
     (PAGE.replace(b"} 1000.0", b"} NaN"), "is nan")],
)  # fmt: skip
def test_pages_that_hold_nothing(cli: Cli, body: bytes, words: str) -> None:
    with server(lambda h: send(h, body)) as url:
        assert_refused(read(cli, f"{url}/metrics"), url, words)


@pytest.mark.parametrize("status", [204, 404, 500, 503, 401, 403])
def test_other_statuses(cli: Cli, status: int) -> None:
    hint = "ROOFLINE_TOKEN" if status in (401, 403) else "expected 200"
    with server(lambda h: send(h, PAGE if status != 204 else b"", status)) as url:
        assert_refused(read(cli, f"{url}/metrics"), f"HTTP {status}", hint)


def test_a_server_that_is_down(cli: Cli) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert_refused(read(cli, f"http://127.0.0.1:{port}/metrics"), "connection refused", str(port))


def _slow_start(_: BaseHTTPRequestHandler, stop: threading.Event) -> None:
    stop.wait(5)


def _trickle(handler: BaseHTTPRequestHandler, stop: threading.Event) -> None:
    """A byte each 50 ms: every single read is in time, the whole is not."""
    handler.send_response(200)
    handler.end_headers()
    while not stop.wait(0.05):
        handler.wfile.write(b"#")


def _trickle_headers(handler: BaseHTTPRequestHandler, stop: threading.Event) -> None:
    handler.wfile.write(b"HTTP/1.0 200 OK\r\n")
    while not stop.wait(0.05):
        handler.wfile.write(b"X-Slow: 1\r")


@pytest.mark.parametrize("behaviour", [_slow_start, _trickle, _trickle_headers])
def test_a_slow_server_is_given_up_in_time(
    cli: Cli, behaviour: Callable[[BaseHTTPRequestHandler, threading.Event], None]
) -> None:
    stop = threading.Event()
    with server(lambda h: behaviour(h, stop)) as url:
        start = time.monotonic()
        outcome = read(cli, f"{url}/metrics", "--timeout", "0.6")
        took = time.monotonic() - start
        stop.set()
    assert_refused(outcome, "no full answer within 0.6 s", "--timeout")
    assert 0.5 < took < 3


@pytest.mark.parametrize("announced", [True, False])
def test_a_huge_page_is_refused(cli: Cli, announced: bool) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        if announced:
            handler.send_header("Content-Length", str(10**10))
        handler.end_headers()
        for _ in range(200):
            handler.wfile.write(b"# " + b"x" * 99_997 + b"\n")

    with server(answer) as url:
        assert_refused(read(cli, f"{url}/metrics", "--timeout", "20"), "larger than 10 MB")


def test_a_large_page_below_the_limit_is_read(cli: Cli) -> None:
    body = b'other_total{a="b"} 1.0\n' * 400_000 + PAGE  # 9.2 MB
    with server(lambda h: send(h, body)) as url:
        assert read(cli, url, "--timeout", "20").data()["tokens_per_step"] == 2.66


def test_a_truncated_page_is_refused(cli: Cli) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(PAGE)))
        handler.end_headers()
        handler.wfile.write(PAGE[:300])

    with server(answer) as url:
        assert_refused(read(cli, url), "broke off")


def test_a_compressed_page(cli: Cli) -> None:
    with server(lambda h: send(h, b"\x1f\x8b", Content_Encoding="gzip")) as url:
        assert_refused(read(cli, url), "gzip", "plain text")


def test_something_that_is_no_http(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)

        def answer() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(1024)
                peer.sendall(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        outcome = read(cli, f"http://127.0.0.1:{listener.getsockname()[1]}/metrics")
        thread.join(timeout=10)
    assert_refused(outcome, "does not answer in HTTP")


def test_redirects_stay_on_the_host(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLINE_TOKEN", SECRET)
    seen: list[str | None] = []

    def here(handler: BaseHTTPRequestHandler) -> None:
        seen.append(handler.headers["Authorization"])
        if handler.path == "/metrics":
            send(handler, b"", 307, Location="/metrics/")
        else:
            send(handler, PAGE)

    with server(here) as url:
        assert read(cli, f"{url}/metrics").data()["tokens_per_step"] == 2.66
    assert seen == [f"Bearer {SECRET}"] * 2


def test_redirects_to_another_host_are_refused(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other server never hears of us, and so never sees the token."""
    monkeypatch.setenv("ROOFLINE_TOKEN", SECRET)
    visits: list[str] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        visits.append(handler.path)
        send(handler, PAGE)

    with (
        server(answer) as other,
        server(lambda h: send(h, b"", 302, Location=f"{other}/metrics")) as url,
    ):
        line = assert_refused(read(cli, f"{url}/metrics"), "redirects to another host", other)
    assert visits == []
    assert SECRET not in line


def test_a_loop_of_redirects(cli: Cli) -> None:
    with server(lambda h: send(h, b"", 302, Location=h.path)) as url:
        assert_refused(read(cli, f"{url}/metrics"), "more than 3 redirects")


@pytest.mark.parametrize("token", [f"{SECRET}\r\nX-Injected: 1", f"{SECRET}é"])
def test_a_token_that_no_header_can_carry_is_not_shown(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv("ROOFLINE_TOKEN", token)
    visits: list[str] = []
    with server(lambda h: visits.append(h.path)) as url:
        line = assert_refused(read(cli, f"{url}/metrics"), "ROOFLINE_TOKEN")
    assert visits == []
    assert SECRET not in line


def test_a_refused_token_is_not_shown(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLINE_TOKEN", SECRET)
    with server(lambda h: send(h, SECRET.encode(), 403)) as url:
        assert SECRET not in assert_refused(read(cli, f"{url}/metrics"), "HTTP 403")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://user:hunter2@127.0.0.1/metrics", "leave user and password out"),
        ("http:///metrics", "expected an address"),
        ("http://127.0.0.1:99999/metrics", "cannot be read"),
        ("http://127.0.0.1:1/a b", "character"),
        ("http://[::1/metrics", "cannot be read"),
    ],
)
def test_bad_addresses(cli: Cli, url: str, words: str) -> None:
    assert "hunter2" not in assert_refused(read(cli, url), words)


def test_reasons_why_a_page_cannot_be_had() -> None:
    certificate = ssl.SSLCertVerificationError(1, "x")
    certificate.verify_message = "self-signed certificate"
    assert [
        _reason(error)
        for error in (
            ConnectionRefusedError(), socket.gaierror(-2, "x"), certificate,
            http.client.BadStatusLine("x"), OSError(113, "No route to host"), OSError(),
        )
    ] == [
        "nothing answers there (connection refused); is the server up?", "no such host",
        "its certificate is not trusted (self-signed certificate)", "does not answer in HTTP",
        "No route to host", "OSError",
    ]  # fmt: skip


def test_a_name_that_never_resolves_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    monkeypatch.setattr("roofline.engines.http.GRACE", 0.0)
    hold = threading.Event()

    def work() -> bytes:
        hold.wait(10)
        return b""

    with pytest.raises(InputError, match="too slow"):
        _at_most(0.01, work, InputError("too slow"))
    hold.set()
    assert _at_most(5.0, lambda: b"x", InputError("too slow")) == b"x"


def test_a_redirect_after_the_deadline_is_not_followed() -> None:
    with pytest.raises(InputError, match="no full answer within 5 s"):
        _exchange(_parsed("http://127.0.0.1:1/"), 0.0, 5.0)
