"""Fetches a server's pages with GET: bounded in time and size, from one host only.

Every failure is one line.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

from roofline.base.errors import InputError, Option

__all__ = ["Client", "StatusError", "fetch", "without_query"]

TIMEOUT = 5.0  # [s], for the whole exchange
GRACE = 0.1  # for an exchange that ends itself at its deadline [s]
MAX_BYTES = 10_000_000
MAX_REDIRECTS = 3
TOKEN = "ROOFLINE_TOKEN"  # the environment variable that holds it
#: A shorter token is not blotted out of pages: it may be part of their text.
SHORTEST_TOKEN = 6
_DEFAULT_PORT = {"http": 80, "https": 443}


class StatusError(InputError):
    """The server answered with a status other than 200."""

    def __init__(self, problem: str, status: int, *, where: str | None = None) -> None:
        super().__init__(problem, where=where)
        self.status = status


@dataclass(frozen=True, kw_only=True, slots=True)
class _Answer:
    status: int
    location: str | None
    encoding: str
    body: bytes


def fetch(url: str, *, timeout: float = TIMEOUT) -> bytes:
    """Return the page at ``url``; raise InputError with one line for anything else.

    The token in ROOFLINE_TOKEN goes to this host and port only; a redirect elsewhere is refused.
    """
    parts = _parsed(url)
    return _at_most(timeout, lambda: _follow(parts, timeout), _slow(parts, timeout))


def _at_most(timeout: float, work: Callable[[], bytes], slow: InputError) -> bytes:
    """Return what ``work`` returns, or raise ``slow`` after ``timeout`` seconds.

    Name look-ups and TLS handshakes have no time limit of their own.
    """
    outcome: list[bytes | BaseException] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(timeout + GRACE)
    if not outcome:
        raise slow
    (result,) = outcome
    if isinstance(result, BaseException):
        raise result
    return result


def _slow(parts: SplitResult, timeout: float) -> InputError:
    return InputError(
        f"no full answer within {timeout:.3g} s ({Option('timeout')})", where=without_query(parts)
    )


def _follow(parts: SplitResult, timeout: float) -> bytes:
    deadline = time.monotonic() + timeout
    for _ in range(MAX_REDIRECTS + 1):
        answer = _exchange(parts, deadline, timeout)
        if answer.status in (301, 302, 303, 307, 308) and answer.location:
            parts = _redirected(parts, answer.location)
            continue
        if answer.status != 200:
            hint = f"; set {TOKEN}" if answer.status in (401, 403) else ""
            if answer.status == 404 and parts.path in ("", "/"):
                hint = f"; try {without_query(parts).rstrip('/')}/metrics"
            problem = f"answered HTTP {answer.status}, expected 200{hint}"
            raise StatusError(problem, answer.status, where=without_query(parts))
        if answer.encoding not in ("", "identity"):
            raise InputError(
                f"answered in {answer.encoding}, expected plain text", where=without_query(parts)
            )
        return answer.body
    raise InputError(f"more than {MAX_REDIRECTS} redirects", where=without_query(parts))


def without_query(parts: SplitResult) -> str:
    """Return an address as messages show it: without query, which may hold a secret."""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _parsed(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InputError(
            "the address cannot be read; expected one such as http://host:8000"
        ) from None
    if parts.scheme not in _DEFAULT_PORT or not parts.hostname or port == 0:
        raise InputError("expected an address such as http://host:8000", where=without_query(parts))
    if "@" in parts.netloc:
        raise InputError(f"leave user and password out and set {TOKEN}", where=without_query(parts))
    if not parts.netloc.isascii() or any(c <= " " or c == "\x7f" for c in url):
        raise InputError("has a character that an address cannot have", where=without_query(parts))
    return parts


def _origin(parts: SplitResult) -> tuple[str, str | None, int]:
    return parts.scheme, parts.hostname, parts.port or _DEFAULT_PORT[parts.scheme]


def _redirected(parts: SplitResult, location: str) -> SplitResult:
    target = _parsed(urljoin(parts.geturl(), location))
    if _origin(target) != _origin(parts):
        raise InputError(
            f"redirects to another host, {without_query(target)}; give that address if you trust "
            "it",
            where=without_query(parts),
        )
    return target


def _exchange(parts: SplitResult, deadline: float, timeout: float) -> _Answer:
    slow = _slow(parts, timeout)
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise slow
    _, host, port = _origin(parts)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(str(host), port, timeout=remaining)
    try:
        connection.connect()
        with _until(connection.sock, deadline) as expired:
            try:
                answer = _ask(connection, parts)
            except (OSError, http.client.HTTPException, ValueError):
                if expired.is_set():
                    raise slow from None
                raise
            if expired.is_set():
                raise slow
            return answer
    except TimeoutError:
        raise slow from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise InputError(f"{_reason(error)}", where=without_query(parts)) from None
    finally:
        connection.close()


def _ask(connection: http.client.HTTPConnection, parts: SplitResult) -> _Answer:
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {
        "Accept": "text/plain, application/json",
        "Accept-Encoding": "identity",
        "User-Agent": "roofline",
    }
    connection.request("GET", path, headers=headers | _authorization())
    with connection.getresponse() as response:
        body = _body(response, without_query(parts)) if response.status == 200 else b""
        return _Answer(
            status=response.status,
            location=_without_token(response.headers.get("Location") or "") or None,
            encoding=_without_token(response.headers.get("Content-Encoding") or ""),
            body=_without_token(body.decode("latin-1")).encode("latin-1"),
        )


def _body(response: http.client.HTTPResponse, where: str) -> bytes:
    """Return the whole body, or raise when it is longer than a page or shorter than announced."""
    announced = int(response.headers.get("Content-Length") or 0)
    body = bytearray()
    while announced <= MAX_BYTES and len(body) <= MAX_BYTES:
        chunk = response.read1(1 << 16)
        if not chunk:
            break
        body += chunk
    if max(announced, len(body)) > MAX_BYTES:
        raise InputError(f"the page is larger than {MAX_BYTES // 10**6} MB", where=where)
    if len(body) < announced:
        raise http.client.IncompleteRead(bytes(body), announced - len(body))
    return bytes(body)


def _authorization() -> dict[str, str]:
    """Return the header with the token; a token that no header can carry is never echoed."""
    token = os.environ.get(TOKEN, "").strip()
    if not token:
        return {}
    if not token.isascii() or not token.isprintable():
        raise InputError(f"{TOKEN}: holds a character that a header cannot carry")
    return {"Authorization": f"Bearer {token}"}


def _without_token(text: str) -> str:
    """Return a server's text with the token blotted out: a careless server may repeat it."""
    token = os.environ.get(TOKEN, "").strip()
    return text.replace(token, "***") if len(token) >= SHORTEST_TOKEN else text


@contextlib.contextmanager
def _until(sock: socket.socket, deadline: float) -> Iterator[threading.Event]:
    """Shut a socket at the deadline, so that a server that sends byte by byte cannot delay us."""
    expired = threading.Event()

    def stop() -> None:
        expired.set()
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(max(deadline - time.monotonic(), 0.0), stop)
    timer.daemon = True
    timer.start()
    try:
        yield expired
    finally:
        timer.cancel()


def _reason(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "nothing answers there (connection refused); is the server up?"
    if isinstance(error, socket.gaierror):
        return "no such host"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    if isinstance(error, http.client.IncompleteRead):
        return "the connection broke off before the end of the page"
    if isinstance(error, http.client.HTTPException | ValueError):
        return "does not answer in HTTP"
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__


#: Ends of addresses that name a page of a server, not the server.
PAGE_PATHS = ("/prometheus/metrics", "/metrics", "/v1/models", "/v1")


class Client:
    """Fetches pages of one server until the time for waiting is used up."""

    def __init__(self, url: str, *, timeout: float) -> None:
        self._remaining = timeout
        self._timeout = timeout
        self.base = server_address(url)
        try:
            self.where = without_query(urlsplit(self.base))
        except ValueError:
            self.where = "the address"

    def get(self, path: str) -> bytes:
        """Return the page at ``path``; the time waited is taken off the allowance [s]."""
        if self._remaining <= 0:
            raise InputError(
                f"the {self._timeout:g} s for all answers are used up ({Option('timeout')})",
                where=f"{self.where}{path}",
            )
        start = time.monotonic()
        try:
            return fetch(self.base + path, timeout=self._remaining)
        finally:
            self._remaining -= time.monotonic() - start

    def get_text(self, path: str) -> str:
        """Return the page at ``path`` as text, whatever its content type."""
        return self.get(path).decode("utf-8", errors="replace")

    def get_json(self, path: str) -> Any:
        """Return the JSON at ``path``."""
        text = self.get_text(path)
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise InputError("is no JSON", where=f"{self.where}{path.partition('?')[0]}") from None


def server_address(url: str) -> str:
    """Return the address of a server from that of any of its pages; without a scheme it is http.

    >>> server_address("host:8000/metrics"), server_address("https://host/llm/v1/")
    ('http://host:8000', 'https://host/llm')
    """
    base = url.partition("?")[0].rstrip("/")
    base = base if "://" in base else f"http://{base}"
    for ending in PAGE_PATHS:
        if base.endswith(ending):
            return base.removesuffix(ending).rstrip("/")
    return base
