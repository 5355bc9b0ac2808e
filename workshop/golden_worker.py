"""Run commands of one tree in forks of one process, and record the outputs of each.

``workshop.goldens`` starts this file as a script, with PYTHONPATH set to the tree and a JSON file
of commands as its only argument. Everything is imported once; each command runs in a fork.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock

TIMEOUT = 300  # seconds after which a command is killed
#: Libraries that commands import late. Imported before the first fork, they are paid for once.
LIBRARIES = ("jinja2", "matplotlib.backends.backend_agg", "scipy.optimize", "scipy.stats")
#: The address of a server, whose port differs between two runs.
ADDRESS = re.compile(r"127\.0\.0\.1:\d+")


class Clock:
    """A clock that can be stopped; then only sleeping moves it, and waits take no time."""

    def __init__(self) -> None:
        self._monotonic, self._sleep = time.monotonic, time.sleep
        self._now: float | None = None

    def freeze(self) -> None:
        """Stop the clock."""
        self._now = 0.0

    def monotonic(self) -> float:
        """Return the time [s]."""
        return self._monotonic() if self._now is None else self._now

    def sleep(self, seconds: float) -> None:
        """Wait, or move the stopped clock on."""
        if self._now is None:
            self._sleep(seconds)
        else:
            self._now += seconds


def main() -> None:
    """Run the commands of the JSON file named on the command line."""
    job = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    tree = Path(job["tree"])
    clock = Clock()
    with (
        mock.patch.object(time, "monotonic", clock.monotonic),
        mock.patch.object(time, "sleep", clock.sleep),
    ):
        import_all(tree)
        run_all(job["commands"], clock, tree=tree, processes=job["processes"])


def import_all(tree: Path) -> None:
    """Import every module of the tree's package, and the libraries that its commands need."""
    package = importlib.import_module("roofline")
    if not Path(str(package.__file__)).is_relative_to(tree):
        raise SystemExit(f"{package.__file__} was imported, not the package of {tree}")
    importlib.import_module("roofline.cli")  # without it nothing can run
    modules = pkgutil.walk_packages(package.__path__, "roofline.", onerror=lambda _: None)
    for name in [*(module.name for module in modules), *LIBRARIES]:
        try:
            importlib.import_module(name)
        except Exception:  # the commands that need it will say so
            continue


def run_all(
    commands: Sequence[Mapping[str, Any]], clock: Clock, *, tree: Path, processes: int
) -> None:
    """Run each command in a fork, some at a time, and record it when it has ended."""
    running: dict[int, Mapping[str, Any]] = {}
    waiting = list(reversed(commands))
    while waiting or running:
        while waiting and len(running) < processes:
            command = waiting.pop()
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    code = run(command, clock)
                finally:
                    os._exit(code)
            running[child] = command
        child, status = os.wait()
        record(running.pop(child), os.waitstatus_to_exitcode(status), tree=tree)


def record(command: Mapping[str, Any], code: int, *, tree: Path) -> None:
    """Write a command's exit code beside its outputs, and normalise them."""
    folder = Path(command["folder"])
    text = f"killed by {signal.Signals(-code).name}" if code < 0 else str(code)
    (folder / "exit").write_text(f"{text}\n")
    paths = {str(folder): "<folder>", str(tree): "<tree>"}
    for file in folder.rglob("*"):
        if file.is_file():
            normalise(file, paths)


def run(command: Mapping[str, Any], clock: Clock) -> int:
    """Run one command in this process, which ends afterwards; return the exit code."""
    signal.alarm(TIMEOUT)
    folder = Path(command["folder"])
    stdin = folder / "files" / command["stdin"] if command["stdin"] else Path(os.devnull)
    write = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    os.dup2(os.open(stdin, os.O_RDONLY), 0)
    os.dup2(os.open(folder / "stdout", write), 1)
    os.dup2(os.open(folder / "stderr", write), 2)
    os.chdir(folder / "files")
    try:
        if command["pages"] is not None:
            with server(command["pages"]) as url:
                clock.freeze()
                return call([word.replace("{url}", url) for word in command["arguments"]])
        return call(command["arguments"])
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def call(arguments: Sequence[str]) -> int:
    """Call the command line as its console script does; return the exit code."""
    from roofline.cli import main as command_line

    sys.argv = ["roofline", *arguments]
    try:
        command_line()
    except SystemExit as stop:
        if isinstance(stop.code, str):
            sys.stderr.write(f"{stop.code}\n")
            return 1
        return stop.code or 0
    except BaseException:  # as Python itself ends a program
        traceback.print_exc()
        return 1
    return 0


@contextmanager
def server(pages: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Serve pages at their paths on loopback: each path's in turn, the last one for ever."""
    remaining = {path: [body.encode() for body in bodies] for path, bodies in pages.items()}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            bodies = remaining.get(self.path.partition("?")[0], [])
            body = bodies[0] if bodies else b'{"detail":"Not Found"}'
            del bodies[: len(bodies) > 1]
            self.send_response(200 if bodies else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{httpd.server_address[1]}"
        finally:
            httpd.shutdown()
            thread.join()


def normalise(file: Path, paths: Mapping[str, str]) -> None:
    """Replace what differs between two runs of the same program; leave binary files alone."""
    try:
        text = file.read_bytes().decode()
    except UnicodeDecodeError:
        return
    changed = text
    for path, name in paths.items():
        changed = changed.replace(path, name)
    changed = ADDRESS.sub("127.0.0.1:<port>", changed)
    if changed != text:
        file.write_bytes(changed.encode())


if __name__ == "__main__":
    main()
