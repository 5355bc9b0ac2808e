"""Runs one command in a group of its own, and ends all of it when whoever asked is gone.

``python supervisor.py SECONDS COMMAND...``: standard input is a pipe from whoever asked. When it
closes, also because that process was killed, the group is asked to end, and killed after SECONDS.
Linux hands what left the group to this process, so that it is found and ends too.
It is run as a file, without the package.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

#: What Linux's prctl calls "orphans below me become my children" (linux/prctl.h, since 3.4).
CHILD_SUBREAPER = 36
PROCESSES = Path("/proc")
#: Rounds of looking for what is left: a process may start another while the first is killed.
ROUNDS = 10


def adopt_orphans() -> None:
    """Become the parent of all that the command's processes leave behind, where Linux runs."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes  # some builds of Python have none

        ctypes.CDLL(None).prctl(CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(root: int, processes: Path = PROCESSES) -> list[int]:
    """Return the ids of all that a process started, those of them started too, from /proc."""
    children: dict[int, list[int]] = {}
    for status in processes.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            state, parent = status.read_text("utf-8", "replace").rpartition(")")[2].split()[:2]
            if state not in ("Z", "X"):  # it has ended
                children.setdefault(int(parent), []).append(int(status.parent.name))
    found, left = list[int](), [root]
    while left:
        mine = children.pop(left.pop(), [])
        found += mine
        left += mine
    return found


def ask_to_end() -> None:
    """Send SIGTERM to the group and to what left it; this process has a handler and stays."""
    with contextlib.suppress(OSError):
        os.killpg(0, signal.SIGTERM)
    _signal(descendants(os.getpid()), signal.SIGTERM)


def kill_all() -> None:
    """Kill what left the group, then the group, and this process with it."""
    for _ in range(ROUNDS):
        left = descendants(os.getpid())
        if not left:
            break
        _signal(left, signal.SIGKILL)
    os.killpg(0, signal.SIGKILL)


def _signal(processes: list[int], number: int) -> None:
    for each in processes:
        with contextlib.suppress(OSError):
            if os.getpgid(each) != os.getpgid(0) or number == signal.SIGKILL:
                os.kill(each, number)


def _when_left(child: "subprocess.Popen[bytes]", grace: float) -> None:
    """Wait until the pipe closes, then end all."""
    sys.stdin.buffer.read()
    ask_to_end()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(grace)
        return
    kill_all()


def main() -> None:
    """Run the command until it ends or is no longer wanted."""
    grace, command = float(sys.argv[1]), sys.argv[2:]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # a handler, since children inherit what is ignored
    adopt_orphans()
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    except OSError as error:
        sys.exit(f"error: {command[0]}: {error.strerror}")
    threading.Thread(target=_when_left, args=(child, grace), daemon=True).start()
    child.wait()
    ask_to_end()  # what it started and left behind
    threading.Event().wait(0.5)
    kill_all()


if __name__ == "__main__":
    main()
