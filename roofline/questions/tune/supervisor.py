"""Runs one command in a group of its own, and ends the whole group when whoever asked is gone.

``python supervisor.py SECONDS COMMAND...``: standard input is a pipe from whoever asked. When it
closes, also because that process was killed, the group is asked to end, and killed after SECONDS.
It is run as a file, without the package.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading


def _ask_to_end() -> None:
    """Send SIGTERM to the group; this process has a handler and stays."""
    with contextlib.suppress(OSError):
        os.killpg(0, signal.SIGTERM)


def _when_left(child: "subprocess.Popen[bytes]", grace: float) -> None:
    """Wait until the pipe closes, then end the group."""
    sys.stdin.buffer.read()
    _ask_to_end()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(grace)
        return
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Run the command until it ends or is no longer wanted."""
    grace, command = float(sys.argv[1]), sys.argv[2:]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # a handler, since children inherit what is ignored
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    except OSError as error:
        sys.exit(f"error: {command[0]}: {error.strerror}")
    threading.Thread(target=_when_left, args=(child, grace), daemon=True).start()
    child.wait()
    _ask_to_end()  # what it started and left behind
    threading.Event().wait(0.5)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
