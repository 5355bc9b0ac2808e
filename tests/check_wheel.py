"""Build the wheel, install it into a fresh environment, and run it from outside the tree.

``make wheel`` runs this script; it is not a pytest test. Standard library only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parent.parent
SHELVES = ("hardware_profiles", "model_specs")


def main() -> None:
    """Run every check; stop at the first that fails."""
    with tempfile.TemporaryDirectory(prefix="roofline-wheel-") as name:
        folder = Path(name)
        wheel = build(folder / "dist")
        check_contents(wheel)
        scripts = install(wheel, folder / "venv")
        outside = folder / "elsewhere"
        outside.mkdir()
        check_runs(scripts, outside)
    say(f"ok: {wheel.name} holds every YAML file and runs from outside the tree")


def build(target: Path) -> Path:
    """Build the wheel of the tree into ``target``."""
    say("building the wheel ...")
    run([sys.executable, "-m", "build", "--wheel", "--outdir", str(target), str(ROOT)], ROOT)
    wheels = list(target.glob("*.whl"))
    if len(wheels) != 1:
        fail(f"expected one wheel in {target}, found {[wheel.name for wheel in wheels]}")
    return wheels[0]


def check_contents(wheel: Path) -> None:
    """Compare the wheel's YAML files with the tree's, byte for byte, and look for strays."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        for shelf in SHELVES:
            inside = f"roofline/_data/{shelf}/"
            packed = {n.removeprefix(inside): n for n in names if n.startswith(inside)}
            here = {path.name: path for path in (ROOT / shelf).glob("*.yaml")}
            if not here:
                fail(f"the tree has no {shelf}/*.yaml")
            if packed.keys() != here.keys():
                missing, extra = sorted(here.keys() - packed), sorted(packed.keys() - here)
                fail(f"{shelf}/: missing from the wheel {missing}, only in the wheel {extra}")
            for file, path in here.items():
                if archive.read(packed[file]) != path.read_bytes():
                    fail(f"{shelf}/{file} in the wheel differs from the tree's")
        data = ROOT / "roofline" / "data"
        kept = {str(path.relative_to(ROOT).as_posix()) for path in data.rglob("*.yaml")}
        assets = (ROOT / "roofline" / "render" / "page" / "assets").iterdir()
        kept |= {str(path.relative_to(ROOT).as_posix()) for path in assets}
        if not kept <= set(names):
            fail(f"missing from the wheel: {sorted(kept - set(names))}")
    strays = {n.split("/")[0] for n in names} - {"roofline"}
    if any(not stray.endswith(".dist-info") for stray in strays):
        fail(f"the wheel installs more than the package: {sorted(strays)}")


def install(wheel: Path, target: Path) -> Path:
    """Install ``wheel`` into a fresh environment and return its folder of scripts."""
    say("installing it into a fresh environment ...")
    venv.create(target, with_pip=True)
    scripts = scripts_of(target)
    pip = [str(scripts / "python"), "-m", "pip", "install", "--quiet"]
    run([*pip, "--disable-pip-version-check", str(wheel)], target)
    return scripts


def scripts_of(target: Path) -> Path:
    """Return the folder of scripts of an environment."""
    return target / ("Scripts" if os.name == "nt" else "bin")


def check_runs(scripts: Path, outside: Path) -> None:
    """Run the console script and the module as a user would, and compare them with the tree."""
    roofline, python = str(scripts / "roofline"), str(scripts / "python")
    where = "import roofline; print(roofline.__file__)"
    location = Path(run([python, "-c", where], outside).strip()).resolve()
    if ROOT in location.parents:
        fail(f"the fresh environment imports the checkout: {location}")
    version = run([roofline, "--version"], outside).split()
    wanted = run([python, "-c", "import roofline; print(roofline.__version__)"], outside).strip()
    if version != ["roofline", wanted]:
        fail(f"roofline --version: expected 'roofline {wanted}', got {' '.join(version)!r}")
    answer = parse(run([roofline, "recommend", "llama-3.1-8b", "--format", "json"], outside))
    if answer.get("schema") != "roofline.recommend/1" or not answer.get("points"):
        fail("roofline recommend: the JSON has no 'roofline.recommend/1' with points")
    for command in ("hardware", "models"):
        rows = parse(run([python, "-m", "roofline", command, "list", "--format", "json"], outside))
        tree = run([sys.executable, "-m", "roofline", command, "list", "--format", "json"], ROOT)
        if rows != parse(tree):
            fail(f"roofline {command} list differs between the wheel and the tree")


def attempt(
    command: list[str], folder: Path, settings: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command away from this checkout's environment, with settings of its own."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    kept |= settings or {}
    return subprocess.run(
        command, cwd=folder, env=kept, capture_output=True, text=True, check=False
    )


def run(command: list[str], folder: Path, settings: Mapping[str, str] | None = None) -> str:
    """Run a command that must work, and return its stdout."""
    done = attempt(command, folder, settings)
    if done.returncode:
        shown = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
        fail(f"{' '.join(command)} ended with {done.returncode}:\n{shown}")
    return done.stdout


def parse(text: str) -> Any:
    """Read JSON that a command printed."""
    try:
        return json.loads(text)
    except ValueError as error:
        fail(f"expected JSON, got {text[:200]!r} ({error})")


def say(text: str) -> None:
    """Print progress."""
    sys.stdout.write(f"check_wheel: {text}\n")
    sys.stdout.flush()


def fail(text: str) -> NoReturn:
    """Stop with a message."""
    sys.exit(f"check_wheel: {text}")


if __name__ == "__main__":
    main()
