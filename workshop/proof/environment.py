"""The environment that the engines' own code runs in: published packages at pinned versions."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FOLDER", "VERSIONS", "Environment", "NotFetchedError", "environment"]

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".venv-engines"
PACKAGES = Path(__file__).with_name("packages.txt")
#: vLLM's source package, of which nothing is compiled, and SGLang's wheel.
VERSIONS = {"vllm": "0.33.0", "sglang": "0.5.23"}


class NotFetchedError(Exception):
    """A package could not be fetched or installed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """A Python with what the engines import, and the folders of their sources."""

    python: Path
    sources: dict[str, Path]  # by engine

    def run(self, script: Path, engine: str, text: str) -> str:
        """Return what a script prints that reads ``text`` beside an engine's sources."""
        variables = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(self.sources[engine]), str(ROOT)]),
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_VERBOSITY": "error",
            "VLLM_TARGET_DEVICE": "cpu",
            "VLLM_LOGGING_LEVEL": "WARNING",
            "SGLANG_USE_CPU_ENGINE": "0",
        }
        done = subprocess.run(
            [str(self.python), str(script)],
            input=text,
            capture_output=True,
            text=True,
            env=variables,
            cwd=self.sources[engine],
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{script.name} failed:\n{done.stderr[-4000:]}")
        return done.stdout


def environment(folder: Path = FOLDER) -> Environment:
    """Return the environment, fetched and installed where it is not there yet."""
    python = folder / "bin" / "python"
    sources = {
        "vllm": folder / "sources" / f"vllm-{VERSIONS['vllm']}",
        "sglang": folder / "sources" / f"sglang-{VERSIONS['sglang']}",
    }
    wanted = hashlib.sha256(f"{VERSIONS}{PACKAGES.read_text('utf-8')}".encode()).hexdigest()
    ready = folder / "ready"
    if not ready.is_file() or ready.read_text("utf-8") != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        _pip(python, "install", "--requirement", str(PACKAGES))
        archives = folder / "archives"
        _fetch(python, archives)
        with tarfile.open(next(archives.glob("vllm-*.tar.gz"))) as archive:
            archive.extractall(folder / "sources", filter="data")
        with zipfile.ZipFile(next(archives.glob("sglang-*.whl"))) as archive:
            archive.extractall(sources["sglang"])
        shutil.rmtree(archives)
        ready.write_text(wanted, "utf-8")
    return Environment(python=python, sources=sources)


def _fetch(python: Path, to: Path) -> None:
    """Download vLLM's source package and SGLang's wheel.

    Reading the metadata of vLLM's sdist runs its setup, which asks for a device and adds its name
    to the version unless that is given.
    """
    asked = {"VLLM_TARGET_DEVICE": "empty", "VLLM_VERSION_OVERRIDE": VERSIONS["vllm"]}
    where = ("--no-deps", "--dest", str(to))
    vllm = f"vllm=={VERSIONS['vllm']}"
    _pip(python, "download", *where, "--no-build-isolation", "--no-binary", "vllm", vllm, env=asked)
    _pip(python, "download", *where, f"sglang=={VERSIONS['sglang']}")


def _pip(python: Path, *arguments: str, env: dict[str, str] | None = None) -> None:
    command = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    print(f"  pip {' '.join(_short(arguments))}", file=sys.stderr, flush=True)  # noqa: T201
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **(env or {})}, check=False
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        said = lines[-1] if lines else (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise NotFetchedError(f"pip {arguments[0]} {arguments[-1]}: {said}")


def _short(arguments: Sequence[str]) -> tuple[str, str]:
    return arguments[0], Path(arguments[-1]).name
