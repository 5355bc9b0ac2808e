"""The supervisor: whose children it finds, whom it asks, whom it kills; signals are recorded here.

`test_running.py` runs it for real.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from roofline.questions.tune import supervisor

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="groups of processes are of POSIX")


def process(folder: Path, own: int, parent: int, state: str = "S", name: str = "a") -> None:
    """Write /proc/ID/stat as proc(5) has it: id (name) state parent group ..."""
    (folder / str(own)).mkdir(parents=True)
    (folder / str(own) / "stat").write_text(f"{own} ({name}) {state} {parent} 1 1 0\n", "utf-8")


def test_descendants_are_children_and_theirs(tmp_path: Path) -> None:
    """7 started 8 and 9, 8 started 10; 11 has ended, 12 is of another; a name may be hostile."""
    process(tmp_path, 7, 1)
    process(tmp_path, 8, 7, name="a) S 1 (b")
    process(tmp_path, 9, 7)
    process(tmp_path, 10, 8)
    process(tmp_path, 11, 7, state="Z")
    process(tmp_path, 12, 1)
    (tmp_path / "13").mkdir()  # ended between the listing and the reading
    (tmp_path / "14").mkdir()
    (tmp_path / "14" / "stat").write_text("half", "utf-8")
    assert sorted(supervisor.descendants(7, tmp_path)) == [8, 9, 10]
    assert supervisor.descendants(7, tmp_path / "none") == []


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Record what is sent to groups and processes, and send nothing."""
    sent = list[tuple[str, int, int]]()
    monkeypatch.setattr(os, "killpg", lambda group, number: sent.append(("group", group, number)))
    monkeypatch.setattr(os, "kill", lambda each, number: sent.append(("process", each, number)))
    monkeypatch.setattr(supervisor, "adopt_orphans", lambda: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    return sent


def test_the_group_is_asked_and_what_left_it(
    signals: list[tuple[str, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """8 is of the group, which is asked once; 9 left it; 10 ended meanwhile."""
    groups = {0: 7, 8: 7, 9: 9}

    def group_of(each: int) -> int:
        if each not in groups:
            raise ProcessLookupError
        return groups[each]

    monkeypatch.setattr(os, "getpgid", group_of)
    monkeypatch.setattr(supervisor, "descendants", lambda _: [8, 9, 10])
    supervisor.ask_to_end()
    assert signals == [("group", 0, signal.SIGTERM), ("process", 9, signal.SIGTERM)]


def test_all_are_killed_until_none_is_left(
    signals: list[tuple[str, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """8 starts 9 while it is killed; the group comes last, since this process is of it."""
    rounds: Iterator[list[int]] = iter([[8], [9], []])
    monkeypatch.setattr(os, "getpgid", lambda _: 7)
    monkeypatch.setattr(supervisor, "descendants", lambda _: next(rounds))
    supervisor.kill_all()
    assert signals == [
        ("process", 8, signal.SIGKILL),
        ("process", 9, signal.SIGKILL),
        ("group", 0, signal.SIGKILL),
    ]
    # one that always starts another is given up with the group
    monkeypatch.setattr(supervisor, "descendants", lambda _: [8])
    signals.clear()
    supervisor.kill_all()
    assert signals[-1] == ("group", 0, signal.SIGKILL)
    assert len(signals) == supervisor.ROUNDS + 1


def run(
    monkeypatch: pytest.MonkeyPatch, *command: str, pipe: bytes | None, grace: str = "5"
) -> float:
    """Run the supervisor in this process; the pipe is closed at once unless it is None."""
    monkeypatch.setattr(supervisor, "descendants", lambda _: [])
    reader, writer = os.pipe()
    if pipe is not None:
        os.close(writer)
    monkeypatch.setattr(sys, "argv", ["supervisor.py", grace, *command])
    begun, before = time.monotonic(), set(threading.enumerate())
    with os.fdopen(reader, "rb") as stream:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=stream))
        try:
            supervisor.main()
        finally:
            took = time.monotonic() - begun
            if pipe is None:
                os.close(writer)
            for thread in set(threading.enumerate()) - before:
                thread.join()  # else it would send signals when nobody records them
    return took


def test_a_command_that_ends_leaves_nothing(
    signals: list[tuple[str, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(monkeypatch, sys.executable, "-c", "", pipe=None) < 5
    assert signals[:2] == [("group", 0, signal.SIGTERM), ("group", 0, signal.SIGKILL)]


def test_a_closed_pipe_ends_the_command(
    signals: list[tuple[str, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command takes a second and is waited for, since it is given five to end."""
    wait = (sys.executable, "-c", "import time; time.sleep(1)")
    assert 1 <= run(monkeypatch, *wait, pipe=b"") < 5
    assert [kind for kind, *_ in signals[:1]] == ["group"]
    assert ("group", 0, signal.SIGTERM) in signals


def test_what_does_not_end_is_killed_after_its_time(
    signals: list[tuple[str, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command takes two seconds, and is given a tenth; here nothing is really killed."""
    wait = (sys.executable, "-c", "import time; time.sleep(2)")
    run(monkeypatch, *wait, pipe=b"", grace="0.1")
    first = signals.index(("group", 0, signal.SIGKILL))
    assert ("group", 0, signal.SIGTERM) in signals[:first]


def test_a_command_that_is_not_there(
    signals: list[tuple[str, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match="error: /no/such/server: No such file or directory"):
        run(monkeypatch, "/no/such/server", pipe=None)
    assert signals == []


def test_orphans_are_adopted() -> None:
    """A process whose parent has ended belongs to the supervisor, not to the first process."""
    code = """
import os, subprocess, sys, time
from pathlib import Path
from roofline.questions.tune import supervisor
supervisor.adopt_orphans()
leave = "import subprocess; subprocess.Popen(['sleep', '60'], start_new_session=True)"
subprocess.run([sys.executable, "-c", leave], check=True)
(left,) = supervisor.descendants(os.getpid())
os.kill(left, 9)
print(Path(f"/proc/{left}/stat").read_text().rpartition(")")[2].split()[1] == str(os.getpid()))
"""
    if sys.platform != "linux":
        pytest.skip("of Linux")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "True\n"
