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
    help="Fit constants to measured kernels and steps.",
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
    count = 0
    for name in gpus:  # what an accelerator's fits gave is written before the next one starts
        with _progress() as tell:
            outcome = import_tables(
                root, gpu=name, engines=engines, date=today, jobs=jobs, progress=tell
            )
        write_overlays(outcome, folder)
        if output is None:
            write_samples(outcome, _sample_file())
        for line in outcome.skipped:
            typer.echo(f"skipped: {line}", err=True)
        count += sum(len(blocks) for blocks in outcome.blocks.values())
    typer.echo(f"{count} laws of {len(gpus)} accelerators written to {folder}")


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


@app.command("fit-steps")
def fit_steps(
    file: Annotated[
        Path, typer.Argument(help="CSV: batch,context,draft_length,step_ms (drafting included).")
    ],
    model: Annotated[str, typer.Argument(help="The model that was served.")],
    gpu: Annotated[str, typer.Option(help="A bundled id, or a path to a profile.")] = "h100-sxm",
    tp: Annotated[int, typer.Option(help="Tensor-parallel GPUs.")] = 1,
    drafter: Annotated[str, typer.Option(help="As in recommend.")] = "none",
    weights: Annotated[str | None, typer.Option(help="As in recommend.")] = None,
    kv: Annotated[str | None, typer.Option(help="As in recommend.")] = None,
    engine: Annotated[str, typer.Option(help="The engine, or its YAML file.")] = "vllm",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Engine file to write: engine.yaml.")
    ] = None,
) -> None:
    """Fit an engine's numbers to a few measured steps of your own."""
    import numpy as np

    from roofline.calibration.user_steps import fit_steps as fit
    from roofline.calibration.user_steps import read_steps
    from roofline.output import write_atomically
    from roofline.quantization import parse_dtype
    from roofline.request import Request

    request = Request(
        model=model,
        gpu=gpu,
        tp=tp,
        drafter=drafter,
        weights=None if weights is None else parse_dtype(weights, "--weights"),
        kv=None if kv is None else parse_dtype(kv, "--kv"),
        engine=engine,
    )
    fitted = fit(request, read_steps(file))
    for name, value in fitted.numbers.items():
        typer.echo(f"{name}: {1e3 * value:.4g} ms")
    worst = [100 * float(np.abs(error).max()) for error in (fitted.before, fitted.after)]
    typer.echo(
        f"{len(fitted.after)} steps: worst error {worst[0]:.1f} % before, {worst[1]:.1f} % after"
    )
    if output is not None:
        write_atomically(output, fitted.text)
        typer.echo(f"wrote {output}: give it as --engine {output}", err=True)


def _chosen(flag: str, given: list[str] | None, known: list[str]) -> list[str]:
    for name in given or []:
        if name not in known:
            raise InputError(f"{flag}: no tables for '{name}': {did_you_mean(name, known)}")
    return list(dict.fromkeys(given or known))


def _sample_file() -> Path:
    from roofline.resources import data_file

    return Path(str(data_file("validation"))) / "kernels.jsonl.gz"


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
