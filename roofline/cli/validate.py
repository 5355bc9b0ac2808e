"""``roofline validate``: predictions against public measurements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roofline.cli import validate_spec
from roofline.cli.listing import emit_text, help_if_bare
from roofline.cli.plotting import source_line
from roofline.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from roofline.validation.score import Compared, ScoreRow

app = typer.Typer(
    help="Compare predictions with public measurements.",
    callback=help_if_bare,
    invoke_without_command=True,
)
SCHEMA = "roofline.validate/1"
WORST = 12

_GPU = typer.Option(help="Only this accelerator; repeatable.")
_ENGINE = typer.Option(help="Only this engine; repeatable.")
_FORMAT = typer.Option("--format", help="table, json or markdown.")
_PLOT = typer.Option(help="Write a parity plot: .png, .svg or .pdf.")
_OUTPUT = typer.Option("-o", "--output", help="Write to FILE instead of stdout.")


@app.command()
def kernels(
    gpu: Annotated[list[str] | None, _GPU] = None,
    engine: Annotated[list[str] | None, _ENGINE] = None,
    form: Annotated[str, _FORMAT] = "table",
    plot: Annotated[Path | None, _PLOT] = None,
    output: Annotated[Path | None, _OUTPUT] = None,
) -> None:
    """Compare kernel laws on shapes that they were not fitted on."""
    from roofline.validation.kernels import compare_kernels

    _run(compare_kernels, "kernels", gpu, engine, form, plot, output)


@app.command()
def decode(
    gpu: Annotated[list[str] | None, _GPU] = None,
    engine: Annotated[list[str] | None, _ENGINE] = None,
    form: Annotated[str, _FORMAT] = "table",
    plot: Annotated[Path | None, _PLOT] = None,
    output: Annotated[Path | None, _OUTPUT] = None,
) -> None:
    """Compare served decode runs; engine numbers are fitted without the accelerator they ran on."""
    from roofline.validation.served import compare_decode

    _run(compare_decode, "served decode", gpu, engine, form, plot, output)


@app.command()
def transfer(
    gpu: Annotated[list[str] | None, _GPU] = None,
    engine: Annotated[list[str] | None, _ENGINE] = None,
    form: Annotated[str, _FORMAT] = "table",
    plot: Annotated[Path | None, _PLOT] = None,
    output: Annotated[Path | None, _OUTPUT] = None,
) -> None:
    """Compare kernels of one accelerator with laws fitted on another."""
    from roofline.validation.transfer import compare_transfer

    _run(compare_transfer, "kernels, laws of another part", gpu, engine, form, plot, output)


app.command()(validate_spec.steps)
app.command()(validate_spec.advice)


def _run(
    compare: Callable[..., Iterable[Compared]],
    what: str,
    gpu: list[str] | None,
    engine: list[str] | None,
    form: str,
    plot: Path | None,
    output: Path | None,
) -> None:
    from roofline.validation.score import pool, worst

    if form not in ("table", "json", "markdown"):
        raise InputError(f"--format: expected table, json or markdown, got '{form}'")
    parts = compared(compare, gpu, engine)
    rows, bad = pool(parts), worst(parts, WORST)
    if plot is not None:
        from roofline.charts.parity import write_parity

        write_parity(parts, plot, what=what, source=source_line())
    emit_text(_render(rows, bad, form), output)


def compared(
    compare: Callable[..., Iterable[Compared]],
    gpu: list[str] | None,
    engine: list[str] | None,
) -> list[Compared]:
    """Compare on the accelerators and engines asked for; refuse where nothing was measured."""
    gpus, engines = _names("--gpu", gpu, _gpus()), _names("--engine", engine, _ENGINES)
    parts = list(compare(gpus=gpus, engines=engines))
    if not parts:
        raise InputError("no measurements of these accelerators and engines are shipped")
    return parts


_ENGINES = ["vllm", "sglang", "trtllm"]


def _gpus() -> list[str]:
    from roofline.hardware import SHELF
    from roofline.resources import bundled_names

    return bundled_names(SHELF)


def _names(flag: str, given: list[str] | None, known: list[str]) -> list[str]:
    for name in given or []:
        if name not in known:
            raise InputError(f"{flag}: unknown name '{name}': {did_you_mean(name, known)}")
    return given or known


def _render(rows: list[ScoreRow], bad: list[dict[str, Any]], form: str) -> str:
    if form == "json":
        data = {"schema": SCHEMA, "rows": [row.as_data() for row in rows], "worst": bad}
        return json.dumps(data, indent=2) + "\n"
    from roofline.report.columns import markdown_table, text_table

    cells = [_cells(row) for row in rows]
    headers = [*_HEADERS, *_ABOVE] if any(row.kind == "attention" for row in rows) else _HEADERS
    cells = [line[: len(headers)] for line in cells]
    worst_cells = [
        [
            row["kind"],
            row["gpu"],
            row["engine"],
            row["name"][:40],
            f"{row['measured_us']:.1f}",
            f"{row['predicted_us']:.1f}",
            f"{row['ratio']:.2f}",
        ]
        for row in bad
    ]
    if form == "markdown":
        tables = markdown_table(headers, cells), markdown_table(_WORST_HEADERS, worst_cells)
    else:
        tables = (
            text_table(headers, cells, names_first=True),
            text_table(_WORST_HEADERS, worst_cells, names_first=True),
        )
    return f"{tables[0]}\n\nFurthest off (at most three rows of one law):\n\n{tables[1]}\n"


_HEADERS = (
    "kind",
    "gpu",
    "engine",
    "dtype",
    "rows",
    "median\n%",
    "p90\n%",
    "bias\n%",
    "text-\nbook %",
)
_ABOVE = ("above\nfloor %", "p90\n%")
_WORST_HEADERS = ("kind", "gpu", "engine", "law", "measured us", "predicted us", "ratio")


def _cells(row: ScoreRow) -> list[str]:
    numbers = (
        row.median_abs_error,
        row.p90_abs_error,
        row.bias,
        row.textbook_median_abs_error,
        row.above_floor_median_abs_error,
        row.above_floor_p90_abs_error,
    )
    shown = ["-" if value is None else f"{100 * value:.1f}" for value in numbers]
    return [row.kind, row.gpu, row.engine, row.dtype, str(row.n), *shown]
