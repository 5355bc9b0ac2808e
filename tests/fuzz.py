"""Coverage-guided fuzzing of everything that reads a user's file; ``make fuzz`` runs it.

    python -m tests.fuzz --minutes 10            # all parsers, one after the other
    python -m tests.fuzz --minutes 2 gguf page   # some of them

A parser may return, or refuse in one printable line. Anything else is a finding: the input is kept
under ``tests/data/fuzz/PARSER/`` and the run fails. ``tests/test_fuzz_corpus.py`` replays what is
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from roofline.errors import RooflineError
from tests import gguf_file

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT / "tests" / "data" / "fuzz"
LARGEST = 16_000  # bytes of an input: longer ones only take longer to mutate
KEPT = 100_000  # bytes of inputs kept for each parser


def _hardware(path: Path) -> object:
    from roofline.hardware import load_hardware

    return load_hardware(str(path))


def _model(path: Path) -> object:
    from roofline.sources import open_model

    return open_model(str(path))


def _network(path: Path) -> object:
    from roofline.model import load_model
    from roofline.sources import open_network

    return open_network(str(path), load_model("llama-3.1-8b"))


def _engine(path: Path) -> object:
    from roofline.engine import load_engine

    return load_engine(str(path))


def _curve(path: Path) -> object:
    from roofline.acceptance import load_acceptance

    return load_acceptance(str(path))


def _reading(path: Path) -> object:
    from roofline.engines.sources import read

    return read(str(path)).acceptance()


def _word(path: Path) -> object:
    from roofline.acceptance.parse import parse_acceptance

    return parse_acceptance(path.read_bytes().decode("utf-8", "replace"))


def _steps(path: Path) -> object:
    from roofline.calibration.user_steps import read_steps

    return read_steps(path)


def _rows(path: Path) -> object:
    from roofline.measure.rows import read_rows

    return read_rows(path)


@dataclass(frozen=True, kw_only=True, slots=True)
class Parser:
    """What reads a file, the name the file gets, and where good examples lie."""

    read: Callable[[Path], object]
    file: str
    examples: tuple[str, ...] = ()
    made: Callable[[], list[bytes]] = list

    def seeds(self) -> Iterator[bytes]:
        """Yield good examples that are small enough to mutate."""
        for pattern in self.examples:
            for path in sorted(ROOT.glob(pattern))[:60]:
                if path.stat().st_size <= LARGEST:
                    yield path.read_bytes()
        yield from self.made()


PARSERS = {
    "hardware": Parser(read=_hardware, file="gpu.yaml", examples=("hardware_profiles/*.yaml",)),
    "model": Parser(read=_model, file="model.yaml", examples=("model_specs/*.yaml",)),
    "config": Parser(read=_network, file="config.json", examples=("model_configs/*.json",)),
    "gguf": Parser(
        read=_model, file="m.gguf", made=lambda: [gguf_file.llama_8b(), gguf_file.mixtral()]
    ),
    "engine": Parser(read=_engine, file="e.yaml", examples=("roofline/data/engines/*.yaml",)),
    "curve": Parser(read=_curve, file="a.yaml", examples=("roofline/data/acceptance/*.yaml",)),
    "page": Parser(read=_reading, file="page.txt", examples=("tests/data/pages/*",)),
    "word": Parser(
        read=_word,
        file="word",
        made=lambda: [b"0.7", b"0.8,0.7,0.6", b"al:1.84,2.45", b"al:2=2.36,3=2.79", b"1e-3"],
    ),
    "steps": Parser(
        read=_steps,
        file="steps.csv",
        made=lambda: [b"batch,context,draft_length,step_ms\n1,1024,0,7.1\n8,1024,3,9.25\n"],
    ),
    "rows": Parser(
        read=_rows, file="run.csv", made=lambda: [_head("roofline/data/measured/*.csv", 30)]
    ),
}


def _head(pattern: str, lines: int) -> bytes:
    first = sorted(ROOT.glob(pattern))[0]
    return b"".join(first.read_bytes().splitlines(keepends=True)[:lines])


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
            room -= path.stat().st_size
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
