"""Coverage-guided fuzzing of everything that reads a user's file; ``make fuzz`` runs it.

    python -m tests.fuzz --minutes 10            # all parsers, one after the other
    python -m tests.fuzz --minutes 2 gguf page   # some of them

A parser may return, or refuse in one printable line. Anything else is a finding: the input is kept
under ``tests/data/fuzz/PARSER/`` and the run fails. ``tests/test_hostile_files.py`` replays what is
kept there with every test run. The fuzzer is atheris (libFuzzer).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from roofline.base.errors import RooflineError
from tests.fuzz_parsers import LARGEST, PARSERS, ROOT, Parser

CORPUS = ROOT / "tests" / "data" / "fuzz"
KEPT = 100_000  # bytes kept for each parser, packed
ENTRY = 200  # bytes that an archive needs for each input beside its content


def attempt(parser: Parser, content: bytes, folder: Path) -> str | None:
    """Read ``content`` once; return the refusal's line, None where it was read.

    Everything but a refusal in one printable line is raised.
    """
    path = folder / parser.file
    path.write_bytes(content)
    try:
        parser.read(path)
    except RooflineError as refusal:
        line = str(refusal)
        assert line.strip(), "an empty refusal"
        return line
    return None


def kept(name: str) -> dict[str, bytes]:
    """Return what earlier runs left: the inputs that reach new code, and every finding."""
    found = {}
    packed = CORPUS / f"{name}.zip"
    if packed.exists():
        with zipfile.ZipFile(packed) as archive:
            found = {member: archive.read(member) for member in archive.namelist()}
    findings = sorted(path for path in (CORPUS / name).glob("*") if path.is_file())
    return found | {path.name: path.read_bytes() for path in findings}


def keep(name: str, corpus: Path) -> int:
    """Pack inputs that reached new code, the smallest first, up to KEPT bytes; return how many.

    libFuzzer names such inputs after their SHA-1.
    """
    inputs = sorted(
        (path for path in corpus.iterdir() if re.fullmatch("[0-9a-f]{40}", path.name)),
        key=lambda path: (path.stat().st_size, path.name),
    )
    room, packed = KEPT, 0
    CORPUS.mkdir(exist_ok=True)
    with zipfile.ZipFile(CORPUS / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in inputs:
            room -= path.stat().st_size + ENTRY
            if room < 0:
                break
            archive.writestr(zipfile.ZipInfo(path.name), path.read_bytes(), zipfile.ZIP_DEFLATED)
            packed += 1
    return packed


def _child(name: str, *options: str) -> tuple[int, str]:
    """Run libFuzzer on one parser in a process of its own; return its status and what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--child", name, *options],
        cwd=ROOT, check=False, text=True, errors="replace",
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return done.returncode, done.stdout


def child(name: str, *options: str) -> None:
    """Hand one parser to libFuzzer, which ends the process."""
    import atheris

    parser = PARSERS[name]
    with atheris.instrument_imports(include=["roofline"]), tempfile.TemporaryDirectory() as warm:
        for seed in list(parser.seeds())[:3]:  # imports what reading needs, instrumented
            attempt(parser, seed, Path(warm))
    folder = Path(tempfile.mkdtemp(prefix="roofline-fuzz-"))
    findings = CORPUS / name
    findings.mkdir(parents=True, exist_ok=True)
    limits = [f"-max_len={LARGEST}", "-timeout=20", "-rss_limit_mb=4096", "-print_final_stats=1"]
    atheris.Setup(
        ["fuzz", *options, *limits, "-verbosity=0", f"-artifact_prefix={findings}/"],
        lambda content: attempt(parser, content, folder),
    )
    atheris.Fuzz()


def run(name: str, seconds: int) -> bool:
    """Fuzz one parser from its examples and what is kept; say what came of it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="roofline-corpus-") as corpus:
        for number, seed in enumerate(PARSERS[name].seeds()):
            Path(corpus, f"example-{number}").write_bytes(seed)
        for label, content in kept(name).items():
            Path(corpus, label).write_bytes(content)
        status, said = _child(name, corpus, f"-max_total_time={seconds}")
        tried = re.search(r"number_of_executed_units: (\d+)", said)
        inputs = keep(name, Path(corpus)) if status == 0 else 0
    if status:
        sys.stdout.write("\n".join(said.splitlines()[-40:]) + "\n")
    words = "no finding" if status == 0 else f"FINDING, kept in tests/data/fuzz/{name}/"
    sys.stdout.write(
        f"{name}: {int(tried[1]) if tried else 0:,} inputs tried in "
        f"{time.monotonic() - began:.0f} s, {inputs} kept, {words}\n"
    )
    sys.stdout.flush()
    return status == 0


def main() -> None:
    """Fuzz every parser named for an equal share of the time."""
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
        return
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("parsers", nargs="*", help=f"of {', '.join(PARSERS)}")
    arguments.add_argument("--minutes", type=float, default=10.0)
    asked = arguments.parse_args()
    names = asked.parsers or list(PARSERS)
    if unknown := [name for name in names if name not in PARSERS]:
        arguments.error(f"unknown parser {unknown[0]}; known: {', '.join(PARSERS)}")
    share = max(5, round(60 * asked.minutes / len(names)))
    results = [run(name, share) for name in names]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
