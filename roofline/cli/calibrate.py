"""``roofline calibrate``: constants from measurements."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from roofline.cli.listing import help_if_bare
from roofline.errors import InputError, did_you_mean

app = typer.Typer(
    help="Fit the laws' constants to measured kernels.",
    callback=help_if_bare,
    invoke_without_command=True,
)


@app.command("import")
def import_(
    gpu: Annotated[
        list[str] | None, typer.Option(help="Only this accelerator; repeatable.")
    ] = None,
    engine: Annotated[list[str] | None, typer.Option(help="Only this engine; repeatable.")] = None,
    tables: Annotated[
        Path | None, typer.Option(help="Folder of the unpacked wheel.  [the installed one]")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder to write to.  [hardware_profiles]")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Processes.")] = 2,
) -> None:
    """Fit every law to the public kernel tables and write the overlays of the profiles."""
    from roofline.calibration.importer import import_tables, write_overlays, write_samples
    from roofline.calibration.tables import FOLDERS, data_folder

    gpus = _chosen("--gpu", gpu, list(FOLDERS))
    engines = _chosen("--engine", engine, ["vllm", "sglang", "trtllm"])
    root, folder = data_folder(tables), _folder(output)
    today = dt.date.today().isoformat()
    with _progress() as tell:
        outcome = import_tables(
            root, gpus=gpus, engines=engines, date=today, jobs=jobs, progress=tell
        )
    written = write_overlays(outcome, folder)
    if output is None:
        from roofline.resources import data_file

        write_samples(outcome, Path(str(data_file("validation"))) / "kernels.jsonl.gz")
    for line in outcome.skipped:
        typer.echo(f"skipped: {line}", err=True)
    count = sum(len(blocks) for blocks in outcome.blocks.values())
    typer.echo(f"{count} laws written to {len(written)} files in {folder}")


@app.command()
def engines(
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder to write to.  [data/engines]")
    ] = None,
) -> None:
    """Fit each engine's numbers to the shipped decode and speculative runs."""
    from roofline.calibration.engine_numbers import write_engines
    from roofline.calibration.spec_files import write_spec_numbers
    from roofline.resources import shelf

    folder = output or Path(str(shelf("engines")))
    for line in (*write_engines(folder), *write_spec_numbers(folder)):
        typer.echo(line)


def _chosen(flag: str, given: list[str] | None, known: list[str]) -> list[str]:
    for name in given or []:
        if name not in known:
            raise InputError(f"{flag}: no tables for '{name}': {did_you_mean(name, known)}")
    return list(dict.fromkeys(given or known))


def _folder(output: Path | None) -> Path:
    if output is None:
        from roofline.resources import shelf

        return Path(str(shelf("hardware_profiles")))
    if not output.is_dir():
        raise InputError(f"-o {output}: expected a folder that exists")
    return output


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int, int, str], None]]:
    """Show a bar on stderr while laws are fitted."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("reading tables", total=None)

        def tell(done: int, total: int, text: str) -> None:
            bar.update(task, completed=done, total=total, description=text[:60])

        yield tell
