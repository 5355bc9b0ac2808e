"""Install the wheel and the sdist into fresh environments of several Pythons, and use them there.

``make packages`` runs this script with the interpreters of ``PYTHONS``; it is not a pytest test.
Standard library only.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

from tests.check_wheel import ROOT, attempt, check_contents, check_runs, fail, run, scripts_of

EXTRAS = "parquet,report"
#: What is typed in an empty folder, and the file that it must leave (or none).
PLAIN = {
    "hardware list": None,
    "models list": None,
    "recommend llama-3.1-8b": None,
    "schedule llama-3.1-8b": None,
    "sweep llama-3.1-8b --batch 1,8 -o sweep.csv": "sweep.csv",
    "plot speedup llama-3.1-8b --batch 1,8 -o speedup.png": "speedup.png",
    "validate advice": None,
    "memory llama-3.1-8b --gpu h100-sxm": None,
    "recommend qwen3-30b-a3b --gpu b200-hgx --batch 16": None,
}
#: The same of what needs an extra; without it, a refusal in one line that says what to install.
EXTRA = {
    "sweep llama-3.1-8b --batch 1,8 -o sweep.parquet": ("pyarrow", "sweep.parquet"),
    "report llama-3.1-8b -o report.html": ("jinja2", "report.html"),
}
#: How a file of each kind begins.
BEGINS = {".csv": b"model,", ".png": b"\x89PNG", ".parquet": b"PAR1", ".html": b"<!doctype html>"}
LICENCES = ("LICENSE", "NOTICE")


def main() -> None:
    """Run every check for every interpreter; stop at the first that fails."""
    pythons = sys.argv[1:] or [sys.executable]
    with tempfile.TemporaryDirectory(prefix="roofline-packages-") as name:
        folder = Path(name)
        tools = environment(sys.executable, folder / "tools")
        pip(tools, "build", "twine", "pipx")
        say("building the sdist, and the wheel from it ...")
        dist = folder / "dist"
        run([str(tools / "python"), "-m", "build", "--outdir", str(dist), str(ROOT)], ROOT)
        (sdist,), (wheel,) = dist.glob("*.tar.gz"), dist.glob("*.whl")
        check_contents(wheel)
        check_licences(wheel)
        check_sdist(sdist)
        run([str(tools / "twine"), "check", "--strict", str(sdist), str(wheel)], folder)
        for number, python in enumerate(pythons):
            version = run([python, "-c", "import sys; print(sys.version.split()[0])"], folder)
            for package in (wheel, sdist):
                start = time.monotonic()
                place = folder / f"{number}-{package.suffix.strip('.')}"
                check_package(package, python, place)
                took = time.monotonic() - start
                say(f"{package.name} on Python {version.strip()}: ok ({took:.0f} s)")
            check_pipx(tools, python, wheel, folder / f"{number}-pipx")
            say(f"pipx install {wheel.name} on Python {version.strip()}: ok")
    say("ok")


def check_licences(wheel: Path) -> None:
    """Look for the licence and the notice in the wheel, as the tree has them."""
    with zipfile.ZipFile(wheel) as archive:
        for licence in LICENCES:
            inside = [n for n in archive.namelist() if n.endswith(f".dist-info/licenses/{licence}")]
            if [archive.read(n) for n in inside] != [(ROOT / licence).read_bytes()]:
                fail(f"the wheel has no {licence} as in the tree")


def check_sdist(sdist: Path) -> None:
    """Compare the sdist with what git tracks: nothing else, and nothing missing but services."""
    with tarfile.open(sdist) as archive:
        packed = {
            member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()
        }
    listed = run(["git", "ls-files", "-z"], ROOT).split("\0")
    tracked = {name for name in listed if name and not name.startswith(".")}
    strays = {name for name in packed - tracked if not name.startswith(".")} - {"PKG-INFO"}
    if strays or not tracked <= packed:
        fail(f"sdist: not in git {sorted(strays)}, missing {sorted(tracked - packed)}")


def check_package(package: Path, python: str, folder: Path) -> None:
    """Install one archive into a fresh environment, without and then with extras, and use it."""
    scripts = environment(python, folder / "venv")
    outside = folder / "empty"
    outside.mkdir()
    pip(scripts, str(package))
    check_runs(scripts, outside)
    roofline = str(scripts / "roofline")
    for words, file in PLAIN.items():
        use(roofline, words, file, outside)
    for words, (needed, _) in EXTRA.items():
        refuse(roofline, words, f"pip install '{needed}>=", outside)
    pip(scripts, f"{package}[{EXTRAS}]")
    for words, (_, file) in EXTRA.items():
        use(roofline, words, file, outside)


def check_pipx(tools: Path, python: str, wheel: Path, folder: Path) -> None:
    """Install the wheel as an application and ask it once."""
    folder.mkdir()
    places = {"PIPX_HOME": str(folder / "home"), "PIPX_BIN_DIR": str(folder / "bin")}
    run([str(tools / "pipx"), "install", "--python", python, str(wheel)], folder, places)
    roofline = str(folder / "bin" / "roofline")
    use(roofline, "recommend llama-3.1-8b", None, folder)
    for words, (needed, _) in EXTRA.items():
        refuse(roofline, words, f"pipx inject roofline '{needed}>=", folder)


def environment(python: str, target: Path) -> Path:
    """Create a fresh environment and return its folder of scripts."""
    run([python, "-m", "venv", str(target)], ROOT)
    return scripts_of(target)


def pip(scripts: Path, *what: str) -> None:
    """Install into an environment."""
    command = [str(scripts / "python"), "-m", "pip", "install", "--quiet"]
    run([*command, "--disable-pip-version-check", *what], scripts)


def use(roofline: str, words: str, file: str | None, outside: Path) -> None:
    """Run one command; it answers on stdout, or leaves its file whole."""
    answer = run([roofline, *words.split()], outside)
    if file is None:
        if not answer.strip():
            fail(f"roofline {words}: no answer")
    elif not (outside / file).read_bytes().lower().startswith(BEGINS[Path(file).suffix].lower()):
        fail(f"roofline {words}: {file} does not begin as a {Path(file).suffix} file")


def refuse(roofline: str, words: str, remedy: str, outside: Path) -> None:
    """Run one command whose extra is not installed: one line that says how to install it."""
    done = attempt([roofline, *words.split()], outside)
    line = done.stderr.strip()
    if done.returncode != 2 or done.stdout or "\n" in line or remedy not in line:
        fail(f"roofline {words} without the extra: {done.returncode}, {line!r}")


def say(text: str) -> None:
    """Print progress."""
    sys.stdout.write(f"check_packages: {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
