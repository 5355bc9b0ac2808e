"""Servers that behave like engines, on loopback: recorded pages at the paths where they belong."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import Cli, Outcome

SERVERS = Path(__file__).parent / "data" / "servers"
VLLM = (SERVERS / "vllm.prom").read_bytes()
LATER = (SERVERS / "vllm-later.prom").read_bytes()
SECRET = "token-that-nobody-may-see"
Answer = Callable[[BaseHTTPRequestHandler], None]
#: The pages of each engine; several at one path are given one after the other, the last for ever.
ENGINES: Mapping[str, Mapping[str, Sequence[str]]] = {
    "vllm": {
        "/metrics": ["vllm.prom", "vllm-later.prom"],
        "/version": ["vllm-version.json"],
        "/v1/models": ["vllm-models.json"],
    },
    "vllm-dev": {
        "/metrics": ["vllm.prom", "vllm-later.prom"],
        "/version": ["vllm-version.json"],
        "/v1/models": ["vllm-models.json"],
        "/server_info": ["vllm-server-info.json"],
    },
    "vllm-dp2": {
        "/metrics": ["vllm-dp2.prom", "vllm-dp2-later.prom"],
        "/version": ["vllm-version.json"],
        "/v1/models": ["vllm-models.json"],
    },
    "vllm-off": {"/metrics": ["vllm-off.prom"], "/v1/models": ["vllm-models.json"]},
    "sglang": {
        "/metrics": ["sglang.prom", "sglang-later.prom"],
        "/server_info": ["sglang-server-info.json"],
    },
    "sglang-no-metrics": {"/get_server_info": ["sglang-server-info.json"]},
    "trtllm": {
        "/metrics": ["trtllm.json", "trtllm-later.json"],
        "/prometheus/metrics": ["trtllm.prom", "trtllm-later.prom"],
        "/v1/models": ["trtllm-models.json"],
        "/version": ["trtllm-version.json"],
    },
    "llamacpp": {
        "/metrics": ["llamacpp.prom", "llamacpp-later.prom"],
        "/props": ["llamacpp-props.json"],
        "/slots": ["llamacpp-slots.json"],
        "/v1/models": ["llamacpp-models.json"],
    },
    "trtllm-json": {
        "/metrics": ["trtllm.json", "trtllm-later.json"],
        "/v1/models": ["trtllm-models.json"],
        "/version": ["trtllm-version.json"],
    },
}


@contextmanager
def server(answer: Answer) -> Iterator[str]:
    """Serve ``answer`` on a free port of loopback; yield its address; stop in the end."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A client that hangs up is what these tests are about."""

    with Quiet(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{httpd.server_address[1]}"
        finally:
            httpd.shutdown()
            thread.join(timeout=10)


def send(handler: BaseHTTPRequestHandler, body: bytes, status: int = 200, **headers: str) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def stop_the_clock(patch: pytest.MonkeyPatch) -> list[float]:
    """Let waiting take no time, and return the waits: the clock moves on by what was asked for."""
    now, waits = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        now[0] += seconds

    moving = SimpleNamespace(sleep=sleep, monotonic=lambda: now[0])
    patch.setattr("roofline.base.progress.time", moving)
    patch.setattr("roofline.engines.metrics.time", moving)
    return waits


def pages(engine: str, **instead: bytes | Sequence[bytes]) -> dict[str, list[bytes]]:
    """Return an engine's pages by path, ``metrics=`` and the like replaced."""
    found = {
        path: [(SERVERS / name).read_bytes() for name in names]
        for path, names in ENGINES[engine].items()
    }
    for name, body in instead.items():
        found[f"/{name}"] = [body] if isinstance(body, bytes) else list(body)
    return found


def engine(bodies: Mapping[str, Sequence[bytes]], seen: list[str] | None = None) -> Answer:
    """Return an answer that gives each path's pages in turn, and 404 elsewhere."""
    left = {path: list(own) for path, own in bodies.items()}

    def answer(handler: BaseHTTPRequestHandler) -> None:
        path = handler.path.partition("?")[0]
        if seen is not None:
            seen.append(f"{handler.command} {handler.path}")
        own = left.get(path)
        if not own:
            send(handler, b'{"detail":"Not Found"}', 404)
            return
        send(handler, own.pop(0) if len(own) > 1 else own[0])

    return answer


def read(cli: Cli, url: str, *more: str) -> Outcome:
    return cli("live", url, "--format", "json", *more)


def facts(data: Any) -> dict[str, Any]:
    return {name: fact["value"] for name, fact in data["server"]["facts"].items()}


def gaps(data: Any) -> dict[str, str]:
    return {gap["what"]: gap["flag"] for gap in data["not_read"]}


def replaced(series: str, value: str) -> bytes:
    """Return the page of vLLM with another value on every line of a series."""
    pattern = rf"^({re.escape(series)}(?:{{.*}})?) .*$".encode()
    changed, number = re.subn(pattern, rb"\1 " + value.encode(), VLLM, flags=re.M)
    assert number
    return changed
