"""A server of an engine on loopback: started, waited for, loaded by a client, and stopped."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["NotServedError", "Server", "loaded", "started", "streamed"]

HOST = "127.0.0.1"
START = 900.0  # a server may take so long to start [s]
STOP = 60.0  # and so long to end
NICE = 5
Found = TypeVar("Found")


class NotServedError(Exception):
    """A server ended before it answered; the text is the last error of its log."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """A running server: its port, the name of its model and its log."""

    port: int
    name: str
    log: Path

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"{HOST}:{self.port}"

    def get(self, path: str, *, timeout: float = 60) -> bytes:
        """Return what it answers; an error's status is an `OSError`."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=timeout)
        connection.request("GET", path)
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise OSError(f"{path}: status {answer.status}")
        return answer.read()

    def page(self, to: Path) -> Path:
        """Keep its metrics page."""
        to.write_bytes(self.get("/metrics"))
        return to

    def sums(self, series: Mapping[str, str]) -> dict[str, float]:
        """Return the sum of each series on its metrics page, by hand and not by a reader."""
        lines = self.get("/metrics").decode().splitlines()
        return {
            key: sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))
            for key, name in series.items()
        }

    def said(self, pattern: str) -> str | None:
        """Return the first group of what its log says last, None where it does not."""
        found = re.findall(pattern, self.log.read_text("utf-8", errors="replace"))
        return found[-1] if found else None


@contextmanager
def started(
    command: Sequence[str], *, name: str, log: Path, variables: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Run a server's command with a free port on loopback, and stop it at the end."""
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = int(free.getsockname()[1])
    server = Server(port=port, name=name, log=log)
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["nice", "-n", str(NICE), *command, "--host", HOST, "--port", str(port)],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(variables or {})},
        )
        try:
            _wait(process, server)
            yield server
        finally:
            process.terminate()
            try:
                process.wait(STOP)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(process: subprocess.Popen[bytes], server: Server) -> None:
    end = time.monotonic() + START
    while time.monotonic() < end:
        if process.poll() is not None:
            last = server.said(r"(.+)") or "its log is empty"
            raise NotServedError(server.said(r"(\w*[Ee]rror: .+)") or last)
        try:
            server.get("/health", timeout=5)
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise NotServedError(f"no answer within {START:.0f} s")


def streamed(server: Server, path: str, body: Mapping[str, Any]) -> Iterator[str]:
    """Ask for a stream and yield each line of it that holds JSON."""
    connection = http.client.HTTPConnection(HOST, server.port, timeout=600)
    headers = {"Content-Type": "application/json"}
    connection.request("POST", path, json.dumps({**body, "stream": True}), headers)
    for line in connection.getresponse():
        if line.startswith(b"data: {"):
            yield line.decode()


def loaded(one: Callable[[int], Found], *, clients: int, requests: int) -> list[Found]:
    """Return what each request gave, made by so many clients at a time."""
    with ThreadPoolExecutor(clients) as pool:
        try:
            return list(pool.map(one, range(requests)))
        except (OSError, http.client.HTTPException) as error:
            raise NotServedError(f"a request failed: {error}") from None
