"""One draft length timed on this machine: a server is started, loaded, read and stopped.

A speed is read while all ``batch`` clients are busy: the first request of each warms up and is not
counted, and what still runs when the last counted one ends is broken off.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import math
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from roofline.base.errors import InputError, Option
from roofline.base.files import check_output, printable, read_at_most
from roofline.base.numbers import LONGEST_DRAFT
from roofline.base.progress import progress
from roofline.engines.bench import read_pages, read_responses
from roofline.engines.bench_result import BenchResult
from roofline.engines.http import fetch
from roofline.engines.writing import Launch
from roofline.specs.engine import split_environment
from roofline.specs.engine_versions import ServerLoad

__all__ = ["Budget", "Program", "Prompt", "made_up_prompts", "read_prompts", "time_draft_length"]

LOOPBACK = "127.0.0.1"
SUPERVISOR = Path(__file__).with_name("supervisor.py")
#: A server gets so long to end by itself [s].
GRACE = 20.0
#: A server that ends is seen to have ended after so long [s].
AFTERMATH = 2.0
POLL = 0.1
MAX_ANSWER = 50_000_000
MAX_PROMPTS = 100_000_000
#: Reads of the metrics inside one timing, whose scatter is the spread.
PARTS = 4
#: Room in the cache beside prompt, output and drafts [tokens].
SPARE = 32

Prompt = str | Sequence[int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """What one timing may take."""

    start_seconds: float = 900.0  # until the server answers
    seconds: float = 300.0  # of load
    requests: int = 32  # that are counted
    output: int = 128  # tokens of each

    def __post_init__(self) -> None:
        """Refuse what times nothing, or does not end."""
        for field, value, most in (
            ("start_seconds", self.start_seconds, 86_400.0),
            ("seconds", self.seconds, 86_400.0),
            ("requests", self.requests, 100_000),
            ("output", self.output, 100_000),
        ):
            least = 2 if field == "output" else 1
            if not least <= value <= most:
                raise InputError(f"expected {least} to {most:g}", field=field, value=f"{value:g}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """The command that starts the server, without what is timed, and where it may listen."""

    command: tuple[str, ...]
    host: str = LOOPBACK
    #: Whether an address that others can reach is meant.
    reachable: bool = False
    environment: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        """Refuse an empty command, and an address that is not this machine's alone."""
        if not self.command:
            raise InputError("expected the command that starts the server")
        if not self.reachable and not _is_loopback(self.host):
            raise InputError(
                f"others can reach it; expected {LOOPBACK}, or say that this is meant",
                field="host",
                value=self.host,
            )


def _is_loopback(host: str) -> bool:
    """Return whether an address is this machine's alone.

    >>> [_is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "10.0.0.7")]
    [True, True, True, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def made_up_prompts(count: int, tokens: int, *, first: int = 100, kinds: int = 250) -> list[Prompt]:
    """Return prompts of token ids, all different: for a cost that does not depend on the text.

    >>> made_up_prompts(2, 3)
    [[100, 107, 114], [131, 138, 145]]
    """
    return [
        [first + (31 * number + 7 * at) % kinds for at in range(tokens)] for number in range(count)
    ]


def read_prompts(path: Path) -> list[Prompt]:
    """Return the prompts of a file: a line each, as text or as ``{"prompt": "..."}``."""
    raw = read_at_most(path, MAX_PROMPTS, "a file of prompts")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("is no text in UTF-8; give one prompt a line", where=path.name) from None
    found: list[Prompt] = [
        _prompt(line, f"{path.name} line {number}")
        for number, line in enumerate(re.split(r"\r?\n", text), start=1)
        if line.strip()
    ]
    if not found:
        raise InputError("holds no prompt; give one a line", where=path.name)
    return found


def _prompt(line: str, where: str) -> str:
    """Return the prompt in a line; a line that begins as JSON does is read as JSON."""
    prompt: Any = line
    if re.match(r'\s*(?:\{\s*["}]|\[\s*(?:[\[{"]|$))', line):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            raise InputError(
                'begins as JSON and is none; expected a text or {"prompt": "..."}, one a line',
                where=where,
            ) from None
        prompt = value.get("prompt") if isinstance(value, dict) else None
    if not isinstance(prompt, str) or not prompt.strip():
        raise InputError('expected a text or {"prompt": "..."}', where=where)
    return prompt


def time_draft_length(
    launch: Launch,
    draft_length: int,
    batch: int,
    *,
    program: Program,
    prompts: Sequence[Prompt],
    context: int,
    budget: Budget,
    log: Path,
    held: float | None = None,
) -> BenchResult:
    """Start the engine at this draft length, load it with ``batch`` clients, read it, stop it.

    ``prompts`` have up to ``context`` tokens and are taken in turn. ``held`` are tokens per step
    that the engine is made to accept. The server's output goes to ``log``. However this ends, the
    server and what it started end with it.
    """
    load = launch.engine.server_load
    if load is None:
        raise InputError(
            f"{launch.engine.name}'s server cannot be started here; run its commands and add the "
            "results",
            field="engine",
            value=launch.engine.id,
        )
    _check(draft_length, batch, prompts)
    running = 1 if "$batch" in load.arguments else batch  # else the load says how many run
    words = _words(launch, draft_length, running, held=held)
    port = _free_port(program.host)
    cells = batch * (context + budget.output + draft_length + SPARE)
    address = _filled(
        load,
        host=program.host,
        port=port,
        batch=batch,
        cells=cells,
        context=context,
        output=budget.output,
    )
    command = [*program.command, *words.arguments, *address]
    _check_twice(program.command, [*words.arguments, *address])
    environment = {**os.environ, **(program.environment or {}), **words.environment}
    where = launch.engine.name
    with _server(command, environment, log) as process:
        server = _Server(host=program.host, port=port, where=where, log=log, process=process)
        server.wait(load.health, budget.start_seconds)
        found = _timed(server, load, batch=batch, prompts=prompts, budget=budget)
    return replace(found.with_draft_length(draft_length), held=held, where=where)


def _check(draft_length: int, batch: int, prompts: Sequence[Prompt]) -> None:
    if not 0 <= draft_length <= LONGEST_DRAFT:
        raise InputError(f"expected 0 to {LONGEST_DRAFT}", field="draft_length", value=draft_length)
    if not 1 <= batch <= 4096:
        raise InputError("expected 1 to 4096 clients", field="batch", value=batch)
    if not prompts:
        raise InputError("expected at least one prompt")


class _Words(NamedTuple):
    environment: dict[str, str]
    arguments: list[str]


def _words(launch: Launch, draft_length: int, running: int, *, held: float | None) -> _Words:
    """Return the engine's flags for a draft length, and the variables that stand before them."""
    text = (
        launch.flags(draft_length, running=running)
        if held is None
        else launch.flags_to_time(draft_length, held, running=running)
    )
    if text is None:
        raise InputError(
            f"cannot be made to accept {held:g} tokens per step; time it with drafts that are "
            "judged",
            where=launch.engine.name,
        )
    settings, flags = split_environment("" if text == launch.left_out else text)
    environment = dict(each.split("=", 1) for each in shlex.split(settings))
    return _Words(environment, shlex.split(flags))


def _filled(load: ServerLoad, **values: Any) -> list[str]:
    return shlex.split(Template(load.arguments).substitute(values))


def _check_twice(own: Sequence[str], added: Sequence[str]) -> None:
    """Refuse a command that says itself what a timing sets."""
    names = {word for word in added if word.startswith("-")}
    twice = [word.partition("=")[0] for word in own if word.partition("=")[0] in names]
    if twice:
        raise InputError(
            f"the server's command sets {twice[0]}, which each timing sets; leave it out there"
        )


def _free_port(host: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as free:
        try:
            free.bind((host, 0))
        except OSError as error:
            raise InputError(
                f"cannot listen there ({error.strerror})", field="host", value=host
            ) from None
        return int(free.getsockname()[1])


@contextmanager
def _server(
    command: Sequence[str], environment: Mapping[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server under its supervisor; nothing of it is left at the end."""
    supervised = [sys.executable, "-I", str(SUPERVISOR), str(GRACE), *command]
    check_output(log)
    try:
        out = log.open("wb")
    except OSError as error:
        raise InputError(f"cannot be written ({error.strerror})", where=str(log)) from None
    with out:
        process = subprocess.Popen(
            supervised,
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
        )
        try:
            yield process
        finally:
            _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the supervisor, which ends the server's group; kill both where that takes too long."""
    try:
        with suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE + 5)
    finally:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Server:
    host: str
    port: int
    where: str
    log: Path
    process: subprocess.Popen[bytes]

    def get(self, path: str) -> str:
        """Return a page."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return fetch(f"http://{host}:{self.port}{path}", timeout=30.0).decode("utf-8", "replace")

    def wait(self, health: str, seconds: float) -> None:
        """Wait until the server answers."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise self.ended("before it answered")
            with suppress(InputError):
                self.get(health)
                return
            time.sleep(POLL)
        raise InputError(f"gave no answer within {seconds:g} s; see {self.log}", where=self.where)

    def ended(self, when: str) -> InputError:
        """Return the refusal of a server that ended, with what its log says."""
        lines = [
            line.strip()
            for line in self.log.read_text("utf-8", errors="replace").splitlines()[-200:]
            if line.strip()
        ]
        errors = [line for line in lines if re.search(r"error|invalid|failed", line, re.IGNORECASE)]
        said = (errors or lines or ["it printed nothing"])[-1]
        return InputError(
            f"ended {when}: {printable(said)[:160]} (log: {self.log})", where=self.where
        )


class _Answer(NamedTuple):
    begun: float
    ended: float
    content: dict[str, Any]


class _Clients:
    """Clients that send one request after another until they are stopped."""

    def __init__(
        self,
        server: _Server,
        load: ServerLoad,
        *,
        batch: int,
        prompts: Sequence[Prompt],
        output: int,
    ) -> None:
        self._server, self._load, self._output = server, load, output
        self._prompts, self._next = prompts, 0
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._open: set[http.client.HTTPConnection] = set()
        self.answers: list[_Answer] = []
        self.warm = 0  # clients whose first request is done
        self.failure: InputError | None = None
        self.threads = [threading.Thread(target=self._run, daemon=True) for _ in range(batch)]

    def __enter__(self) -> _Clients:
        """Start them."""
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Break off what still runs."""
        self._stopped.set()
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            with suppress(OSError):
                if connection.sock is not None:
                    connection.sock.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join(GRACE)

    def _run(self) -> None:
        first = True
        try:
            while not self._stopped.is_set():
                with self._lock:
                    prompt = self._prompts[self._next % len(self._prompts)]
                    self._next += 1
                begun = time.monotonic()
                content = self._ask(prompt)
                with self._lock:
                    self.answers.append(_Answer(begun, time.monotonic(), content))
                    self.warm += first
                first = False
        except InputError as error:
            self._fail(error)
        except (OSError, http.client.HTTPException) as error:
            self._fail(
                InputError(
                    f"broke off an answer ({type(error).__name__})", where=self._server.where
                )
            )

    def _fail(self, error: InputError) -> None:
        if not self._stopped.is_set():
            with self._lock:
                self.failure = self.failure or error

    def _ask(self, prompt: Prompt) -> dict[str, Any]:
        """Return the answer to one request."""
        body = {**self._load.body, "prompt": prompt, self._load.tokens_key: self._output}
        server = self._server
        connection = http.client.HTTPConnection(server.host, server.port)
        with self._lock:
            self._open.add(connection)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", self._load.completions, json.dumps(body), headers)
            answer = connection.getresponse()
            raw = answer.read(MAX_ANSWER + 1)
            if answer.status != http.client.OK:
                said = printable(raw[:200].decode("utf-8", "replace"))
                raise InputError(
                    f"answered a request with HTTP {answer.status}: {said[:120]}",
                    where=server.where,
                )
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()
        return _content(raw, server.where)


def _content(raw: bytes, where: str) -> dict[str, Any]:
    """Return what an answer holds: a JSON mapping."""
    if len(raw) > MAX_ANSWER:
        raise InputError(
            f"answered a request with over {MAX_ANSWER // 10**6} MB; expected the tokens asked for",
            where=where,
        )
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError):  # also of bytes that are no text
        said = printable(raw[:60].decode("utf-8", "replace"))
        raise InputError(f"answered a request with no JSON: {said!r}", where=where) from None
    if not isinstance(content, dict):
        raise InputError("answered a request with no mapping", where=where)
    return content


@dataclass(kw_only=False, slots=True)
class _Counted:
    """The answers since all clients were warm; where they are read, of whole requests only."""

    clients: _Clients
    begin: float
    whole: bool
    wanted: int = 0

    def answers(self) -> list[_Answer]:
        """Return those that count."""
        kept = list(self.clients.answers)
        return [a for a in kept if (a.begun if self.whole else a.ended) >= self.begin]

    def enough(self) -> bool:
        """Return whether there are as many as wanted."""
        return len(self.answers()) >= self.wanted


def _timed(
    server: _Server, load: ServerLoad, *, batch: int, prompts: Sequence[Prompt], budget: Budget
) -> BenchResult:
    """Load the server, and read it while all clients are busy."""
    end = time.monotonic() + budget.seconds
    clients = _Clients(server, load, batch=batch, prompts=prompts, output=budget.output)
    with progress(budget.requests, "requests") as advance, clients:
        _until(server, clients, end, lambda: clients.warm >= batch)
        if clients.warm < batch:
            raise InputError(
                f"the first requests took over {budget.seconds:g} s; give more {Option('seconds')}",
                where=server.where,
            )
        begin = time.monotonic()
        pages = [server.get(load.metrics)] if load.read == "metrics" else []
        counted = _Counted(clients, begin, whole=load.read == "responses")
        told = 0
        for part in range(1, PARTS + 1):
            counted.wanted = math.ceil(budget.requests * part / PARTS)
            _until(server, clients, end, counted.enough)
            done = min(len(counted.answers()), budget.requests)
            advance(done - told)
            told = done
            if load.read == "metrics":
                pages.append(server.get(load.metrics))
        answers = [answer.content for answer in counted.answers()]
    if not answers:
        raise InputError(
            f"no request ended within {budget.seconds:g} s; give more {Option('seconds')} or "
            f"fewer {Option('output_tokens')}",
            where=server.where,
        )
    if load.read == "responses":
        return read_responses(answers, where=server.where, concurrency=batch)
    return replace(_between(pages, batch, server.where), requests=len(answers))


def _until(server: _Server, clients: _Clients, end: float, done: Callable[[], bool]) -> None:
    """Wait until something is done or the time is over; refuse what has broken meanwhile."""
    while not done() and time.monotonic() < end:
        if server.process.poll() is not None:
            raise server.ended("under load")
        if clients.failure is not None:
            with suppress(subprocess.TimeoutExpired):  # a server that ended says more
                server.process.wait(AFTERMATH)
                raise server.ended("under load")
            raise clients.failure
        time.sleep(POLL / 4)


def _between(pages: Sequence[str], batch: int, where: str) -> BenchResult:
    """Return the speed from the first page to the last, with the scatter of the parts' steps."""
    whole = read_pages(pages[-1], pages[0], where=where, concurrency=batch)
    steps = []
    for earlier, later in pairwise(pages):
        with suppress(InputError):  # nothing was generated between two reads
            part = read_pages(later, earlier, where=where, concurrency=batch)
            steps.append((part.tokens_per_step or 1.0) / part.tokens_per_s)
    if len(steps) < 3:
        return whole
    mean = sum(steps) / len(steps)
    scatter = sum((step / mean - 1) ** 2 for step in steps) / (len(steps) - 1)
    return replace(whole, spread=math.sqrt(scatter / len(steps)))
