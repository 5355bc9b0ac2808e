"""Compare what the program prints and writes here with what it does at a base commit.

    python -m workshop.goldens --base 702a50d               # every command
    python -m workshop.goldens --base 702a50d --only sweep  # the commands that hold a word
    python -m workshop.goldens --show recommend-moe         # one command's full output

Each tree runs the commands of ``workshop.golden_commands`` in a process of its own. Exit codes,
stdout, stderr and every file written must be equal. The base tree and its outputs are kept under
the system's temporary folder, so that a second comparison runs the changed tree only.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from itertools import islice, takewhile
from pathlib import Path

from workshop.golden_commands import COMMANDS, COPIES, INPUTS, SERVERS

ROOT = Path(__file__).resolve().parent.parent
WORKER = Path(__file__).with_name("golden_worker.py")
PROCESSES = 2  # commands that run at a time
LINES = 20  # of a command's differences that are shown
WIDTH = 160  # characters of a line that are compared as one
AHEAD = 200  # lines from the first difference on that are aligned
#: Libraries whose versions outputs depend on.
LIBRARIES = ("matplotlib", "numpy", "pydantic", "rich", "scipy", "typer")


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """A command, ready to run."""

    name: str
    arguments: tuple[str, ...]
    stdin: str  # name of a file, or nothing
    files: Mapping[str, bytes]  # what it reads, by path beside it
    pages: Mapping[str, Sequence[str]] | None  # of the server that it asks, by path

    def digest(self) -> str:
        """Return the hash of all that the outputs of one tree depend on."""
        versions = [metadata.version(library) for library in LIBRARIES]
        inputs = [self.arguments, self.stdin, sorted(self.files.items()), self.pages]
        text = repr([inputs, sys.version, versions, WORKER.read_bytes()])
        return hashlib.sha256(text.encode()).hexdigest()


def main() -> None:
    """Compare two trees, or show one command's output."""
    parser = argparse.ArgumentParser(
        prog="python -m workshop.goldens", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--base", metavar="COMMIT", help="the commit to compare with")
    parser.add_argument("--only", default="", metavar="WORD", help="only commands that hold WORD")
    parser.add_argument("--show", metavar="NAME", help="print the full output of one command here")
    parser.add_argument("--full", type=Path, metavar="DIR", help="keep all outputs of both trees")
    options = parser.parse_args()
    if options.show is not None:
        if options.show not in COMMANDS:
            near = difflib.get_close_matches(options.show, COMMANDS, n=3, cutoff=0)
            parser.error(f"--show {options.show}: unknown name; the nearest are {', '.join(near)}")
        sys.stdout.write(show(options.show))
        return
    if options.base is None:
        parser.error("give --base COMMIT, or --show NAME")
    names = [name for name, words in COMMANDS.items() if options.only in f"{name} {words}"]
    if not names:
        parser.error(f"--only {options.only}: no command holds this word")
    with kept_or_temporary(options.full) as folder:
        agree = compare(commit_of(options.base), names, folder, keep=options.full is not None)
    sys.stdout.write(f"{agree} of {len(names)} commands agree\n")
    sys.exit(agree < len(names))


def show(name: str) -> str:
    """Return a command's outputs in this tree, each under its name."""
    command = prepare(name, ROOT)
    parts = [f"roofline {COMMANDS[name]}\n"]
    with tempfile.TemporaryDirectory(prefix="roofline-goldens-") as outputs:
        run_tree(ROOT, [command], Path(outputs))
        folder = Path(outputs) / name
        for file in files_below(folder):
            path = str(file.relative_to("files")) if file.parts[0] == "files" else ""
            if command.files.get(path) != (folder / file).read_bytes():
                parts.append(f"==> {file} <==\n" + "\n".join(lines_of(folder / file)) + "\n")
    return "\n".join(parts)


def compare(commit: str, names: Sequence[str], folder: Path, *, keep: bool) -> int:
    """Print how the outputs of commands differ; return how many commands agree.

    ``folder`` takes the outputs of this tree, and those of the base where they are to be kept.
    """
    cache = cache_folder() / commit
    base = extract(commit, cache / "tree")
    commands = [prepare(name, base) for name in names]
    recorded = outputs_of_base(base, commands, cache / "outputs")
    run_tree(ROOT, commands, folder / "head")
    agree = 0
    for name in names:
        if keep:
            shutil.copytree(recorded[name], folder / "base" / name)
        lines = list(islice(differences(recorded[name], folder / "head" / name), LINES + 1))
        if lines:
            shown = [f"{name}: roofline {COMMANDS[name]}", *lines[:LINES]]
            shown += ["..."] if len(lines) > LINES else []
            sys.stdout.write("\n    ".join(shown) + "\n\n")
        else:
            agree += 1
    return agree


def say(text: str) -> None:
    """Print progress to stderr."""
    sys.stderr.write(f"goldens: {text}\n")


def commit_of(name: str) -> str:
    """Return the full hash of a commit of this repository."""
    command = ["git", "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"goldens: --base {name}: expected a commit of the repository at {ROOT}")
    return done.stdout.strip()


def cache_folder() -> Path:
    """Return the user's own folder under the system's temporary folder."""
    folder = Path(tempfile.gettempdir()) / f"roofline-goldens-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise SystemExit(f"goldens: {folder}: expected a folder of yours; set TMPDIR")
    return folder


def extract(commit: str, tree: Path) -> Path:
    """Extract a commit's files into a folder, unless they are there."""
    if not tree.exists():
        tree.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=tree.parent) as unfinished:
            packed, unpacked = Path(unfinished) / "tree.tar", Path(unfinished) / "tree"
            command = ["git", "archive", "--format=tar", f"--output={packed}", commit]
            subprocess.run(command, cwd=ROOT, check=True)
            with tarfile.open(packed) as archive:
                archive.extractall(unpacked, filter="data")
            unpacked.rename(tree)
    return tree


def prepare(name: str, base: Path) -> Command:
    """Return a command with the files that it names; both trees get those of the base tree."""
    line, _, stdin = COMMANDS[name].partition(" < ")
    words = set(re.findall(r"[\w.-]+", COMMANDS[name]))
    files = {file: INPUTS[file] for file in words & INPUTS.keys()}
    for file in words & COPIES.keys():
        source = base / COPIES[file]
        if source.is_dir():
            files |= {f"{file}/{path}": read(source / path) for path in files_below(source)}
        else:
            files[file] = read(source)
    pages = None
    if server := re.search(r"\{([\w-]+)\}", line):
        line = line.replace(server[0], "{url}")
        recorded = base / "tests" / "data" / "servers"
        pages = {
            path: [read(recorded / name).decode() for name in names]
            for path, names in SERVERS[server[1]].items()
        }
    return Command(
        name=name, arguments=tuple(shlex.split(line)), stdin=stdin, files=files, pages=pages
    )


def read(file: Path) -> bytes:
    """Return a file's content."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise SystemExit(
            f"goldens: {file}: {error.strerror}; correct its path in workshop/golden_commands.py"
        ) from error


def files_below(folder: Path) -> list[Path]:
    """Return the relative paths of all files in a folder."""
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


@contextmanager
def kept_or_temporary(kept: Path | None) -> Iterator[Path]:
    """Yield the folder to keep, which must be empty, or a temporary one."""
    if kept is None:
        with tempfile.TemporaryDirectory(prefix="roofline-goldens-") as name:
            yield Path(name)
    elif kept.exists() and any(kept.iterdir()):
        raise SystemExit(f"goldens: --full {kept}: expected an empty folder")
    else:
        yield kept


def outputs_of_base(base: Path, commands: Sequence[Command], recorded: Path) -> dict[str, Path]:
    """Return the folder of each command's outputs; run only what was not recorded before."""
    recorded.mkdir(exist_ok=True)
    folders = {command.name: recorded / command.digest() for command in commands}
    missing = [command for command in commands if not folders[command.name].exists()]
    if missing:
        with tempfile.TemporaryDirectory(dir=recorded) as unfinished:
            run_tree(base, missing, Path(unfinished))
            for command in missing:
                (Path(unfinished) / command.name).rename(folders[command.name])
    return folders


def run_tree(tree: Path, commands: Sequence[Command], outputs: Path) -> None:
    """Run commands with a tree's package; leave each one's outputs in a folder of its name."""
    began = time.monotonic()
    jobs = []
    for command in commands:
        folder = outputs.resolve() / command.name
        (folder / "files").mkdir(parents=True)
        for name, content in command.files.items():
            file = folder / "files" / name
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(content)
        jobs.append(
            {
                "folder": str(folder),
                "arguments": command.arguments,
                "stdin": command.stdin,
                "pages": command.pages,
            }
        )
    with tempfile.TemporaryDirectory(prefix="roofline-goldens-") as home:
        file = Path(home) / "job.json"
        job = {"tree": str(tree.resolve()), "processes": PROCESSES, "commands": jobs}
        file.write_text(json.dumps(job), "utf-8")
        done = subprocess.run(
            [sys.executable, "-P", str(WORKER), str(file)],
            cwd=home,
            env=environment(tree, home),
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    if done.returncode:
        raise SystemExit(f"goldens: the package of {tree} cannot run:\n{done.stderr}")
    took = time.monotonic() - began
    say(f"ran {len(commands)} of {len(COMMANDS)} commands in {tree} in {took:.0f} s")


def environment(tree: Path, home: str) -> dict[str, str]:
    """Return the variables that commands run with, the same for every tree and terminal."""
    return {
        "COLUMNS": "100",
        "HOME": home,
        "LC_ALL": "C.UTF-8",
        "MPLCONFIGDIR": str(cache_folder() / "matplotlib"),
        "OPENBLAS_NUM_THREADS": "1",
        "PATH": os.environ.get("PATH", os.defpath),
        "PYDANTIC_DISABLE_PLUGINS": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": str(tree.resolve()),
        "PYTHONUTF8": "1",
        "TERM": "dumb",
    }


def differences(base: Path, head: Path) -> Iterator[str]:
    """Yield the unified diff of a command's outputs in two trees."""
    for name in sorted({*files_below(base), *files_below(head)}):
        old, new = lines_of(base / name), lines_of(head / name)
        if old != new:
            yield from difference(str(name), old, new)


def lines_of(file: Path) -> list[str]:
    """Return a file's lines, a binary file's length and hash, or that there is no file."""
    if not file.is_file():
        return ["(no such file)"]
    content = file.read_bytes()
    try:
        return content.decode().split("\n")
    except UnicodeDecodeError:
        return [f"{len(content)} bytes, SHA-256 {hashlib.sha256(content).hexdigest()}"]


def difference(name: str, old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """Yield the unified diff of two texts from their first difference on.

    A long line counts as several, so that the part of it that differs is shown.
    """
    before, after = pieces(old), pieces(new)
    pairs = zip(before, after, strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    part = slice(max(0, same - 3), same + AHEAD)
    yield from difflib.unified_diff(
        before[part], after[part], f"base {name}", f"head {name}", lineterm=""
    )


def pieces(lines: Sequence[str]) -> list[str]:
    """Return lines, long ones cut into several."""
    return [line[at : at + WIDTH] for line in lines for at in range(0, len(line) or 1, WIDTH)]


if __name__ == "__main__":
    main()
