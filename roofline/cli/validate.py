"""``roofline validate``: predictions against public measurements and published runs."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roofline.base.errors import InputError, did_you_mean
from roofline.cli.listing import emit_text, help_if_bare
from roofline.cli.plotting import source_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

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
_GROUP = typer.Option(help="Only this group of runs; repeatable.")
_OUTPUT = typer.Option("-o", "--output", help="Write to FILE instead of stdout.")


def _suite(name: str, about: str, title: str, *, module: str, function: str) -> None:
    """Add the command of one suite; its comparison is imported when it runs.

    ``title`` heads its plot.
    """

    def command(
        gpu: Annotated[list[str] | None, _GPU] = None,
        engine: Annotated[list[str] | None, _ENGINE] = None,
        form: Annotated[str, _FORMAT] = "table",
        plot: Annotated[Path | None, _PLOT] = None,
        output: Annotated[Path | None, _OUTPUT] = None,
    ) -> None:
        compare = getattr(import_module(f"roofline.validation.{module}"), function)
        _run(compare, title, gpu, engine, form, plot, output)

    app.command(name, help=about)(command)


_suite(
    "kernels",
    "Compare kernel laws on shapes that they were not fitted on.",
    "kernels",
    module="kernels",
    function="compare_kernels",
)
_suite(
    "decode",
    "Compare served decode runs.\n\nEngine numbers are fitted without the accelerator they ran on.",
    "served decode",
    module="steps",
    function="compare_decode",
)
_suite(
    "transfer",
    "Compare kernels of one accelerator with laws fitted on another.",
    "kernels, laws of another part",
    module="kernels",
    function="compare_transfer",
)


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

    _check_format(form)
    parts = compared(compare, gpu, engine)
    rows, bad = pool(parts), worst(parts, WORST)
    if plot is not None:
        from roofline.render.charts.parity import write_parity

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
    from roofline.base.resources import bundled_names
    from roofline.specs.gpu import GPU_SHELF

    return bundled_names(GPU_SHELF)


def _names(flag: str, given: list[str] | None, known: list[str]) -> list[str]:
    for name in given or []:
        if name not in known:
            raise InputError(f"{flag}: unknown name '{name}': {did_you_mean(name, known)}")
    return given or known


def _render(rows: list[ScoreRow], bad: list[dict[str, Any]], form: str) -> str:
    if form == "json":
        data = {"schema": SCHEMA, "rows": [row.as_data() for row in rows], "worst": bad}
        return json.dumps(data, indent=2) + "\n"
    from roofline.render.columns import captioned_table, markdown_table

    above = any(row.kind == "attention" for row in rows)
    headers = [*_HEADERS, *_ABOVE] if above else [*_HEADERS]
    names = [[row["kind"], row["gpu"], row["engine"], row["name"]] for row in bad]
    numbers = [
        [f"{row['measured_us']:.1f}", f"{row['predicted_us']:.1f}", f"{row['ratio']:.2f}"]
        for row in bad
    ]
    if form == "markdown":
        cells = [_cells(row)[: len(headers)] for row in rows]
        worst = [[*name, *line] for name, line in zip(names, numbers, strict=True)]
        pools = markdown_table(headers, cells)
        table = markdown_table([*_WORST_NAMES, *_WORST_NUMBERS], worst)
    else:
        pools = _by_gpu(rows, headers)
        captions = [f"{', '.join(name[:3])}: {name[3]}" for name in names]
        table = captioned_table(_WORST_NUMBERS, captions, numbers)
    return f"{pools}\n\nFurthest off (at most three rows of one law):\n\n{table}\n"


def _by_gpu(rows: list[ScoreRow], headers: list[str]) -> str:
    """Return one table for each accelerator, under its name."""
    from roofline.render.columns import text_table

    at, tables = headers.index("gpu"), []
    for gpu in dict.fromkeys(row.gpu for row in rows):
        own = [_cells(row)[: len(headers)] for row in rows if row.gpu == gpu]
        for line in own:
            del line[at]
        table = text_table([*headers[:at], *headers[at + 1 :]], own, names_first=True)
        tables.append(f"{gpu}\n\n{table}")
    return "\n\n".join(tables)


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
_WORST_NAMES = ("kind", "gpu", "engine", "law")
_WORST_NUMBERS = ("measured us", "predicted us", "ratio")


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


_STEP_HEADERS = (
    "kind",
    "group",
    "what",
    "rows",
    "median\n%",
    "p90\n%",
    "bias\n%",
    "text-\nbook %",
    "p90\n%",
)


@app.command()
def steps(
    group: Annotated[list[str] | None, _GROUP] = None,
    form: Annotated[str, _FORMAT] = "table",
    plot: Annotated[
        Path | None, typer.Option(help="Write a parity plot: .png, .svg or .pdf.")
    ] = None,
    output: Annotated[Path | None, _OUTPUT] = None,
) -> None:
    """Compare step times and cost ratios of published runs.

    Engine numbers are fitted without each row's group.
    """
    from roofline.validation.score import pool
    from roofline.validation.steps import compare_steps, shown

    _check_format(form)
    parts = _of_group(list(compare_steps()), group)
    if plot is not None:
        from roofline.render.charts.parity import write_parity

        alone = [p for p in parts if p.kind == "step" and not p.group.startswith("all")]
        write_parity(alone, plot, what="steps of published runs", source=source_line())
    rows, aside = pool(parts), [row for row in shown() if not group or row["group"] in group]
    if form == "json":
        data = {
            "schema": SCHEMA,
            "rows": [row.as_data() for row in rows],
            "left_out": aside,
        }
        emit_text(json.dumps(data, indent=2) + "\n", output)
        return
    text = _table(_STEP_HEADERS, [_step_cells(row) for row in rows], form)
    emit_text(f"{text}\n\n{_reasons(aside)}\n", output)


@app.command()
def advice(
    group: Annotated[list[str] | None, _GROUP] = None,
    form: Annotated[str, _FORMAT] = "table",
    plot: Annotated[
        Path | None, typer.Option(help="Write a plot of all regrets: .png, .svg or .pdf.")
    ] = None,
    output: Annotated[Path | None, _OUTPUT] = None,
) -> None:
    """Compare advised draft lengths with the measured best.

    The sign of each speedup is compared as well.
    """
    from roofline.validation.advice import RULES, regret_rows, sign_rows, signs, sweeps

    _check_format(form)
    found = _of_group(sweeps(), group)
    chosen_signs = [sign for sign in signs() if not group or sign.group in group]
    if plot is not None:
        from roofline.render.charts.regret import write_regrets

        write_regrets(found, plot, source=source_line())
    regrets, right = regret_rows(found), sign_rows(chosen_signs)
    if form == "json":
        data = {
            "schema": SCHEMA,
            "rows": [*regrets, *right],
            "sweeps": [choice.as_data() for choice in found],
            "wrong_signs": [sign.as_data() for sign in chosen_signs if not sign.right],
        }
        emit_text(json.dumps(data, indent=2) + "\n", output)
        return
    headers = ("group", "sweeps", "rule", "mean\n%", "p90\n%", "worst\n%")
    cells = [_regret_cells(row) for row in regrets]
    text = _table(headers, cells, form)
    sign_headers = ("group", "rows", "right", "wrong")
    counts = [[row["group"], str(row["n"]), str(row["right"]), str(row["wrong"])] for row in right]
    each = _sweeps(("own AL", "D", "best", *RULES), [choice.cells() for choice in found], form)
    emit_text(f"{text}\n\n{_table(sign_headers, counts, form)}\n\n{each}\n", output)


def _check_format(form: str) -> None:
    if form not in ("table", "json", "markdown"):
        raise InputError(f"--format: expected table, json or markdown, got '{form}'")


def _of_group(parts: list[Any], wanted: list[str] | None) -> list[Any]:
    """Return what belongs to the wanted groups; an unknown group is an error."""
    known = sorted({part.group for part in parts})
    for name in wanted or []:
        if name not in known:
            raise InputError(f"--group: unknown name '{name}': {did_you_mean(name, known)}")
    return [part for part in parts if not wanted or part.group in wanted]


def _table(headers: Sequence[str], cells: list[list[str]], form: str) -> str:
    from roofline.render.columns import markdown_table, text_table

    if form == "markdown":
        return markdown_table(headers, cells)
    return text_table(headers, cells, names_first=True)


def _sweeps(headers: Sequence[str], cells: list[list[str]], form: str) -> str:
    """Return the sweeps, in text each under its whole name."""
    from roofline.render.columns import captioned_table, markdown_table

    if form == "markdown":
        return markdown_table(("sweep", *headers), cells)
    return captioned_table(headers, [line[0] for line in cells], [line[1:] for line in cells])


def _step_cells(row: ScoreRow) -> list[str]:
    numbers = (
        row.median_abs_error,
        row.p90_abs_error,
        row.bias,
        row.textbook_median_abs_error,
        row.textbook_p90_abs_error or 0.0,
    )
    what = "R(D)" if row.kind == "cost-ratio" else row.kind
    return [what, row.group, row.dtype, str(row.n), *(f"{100 * x:.1f}" for x in numbers)]


def _regret_cells(row: dict[str, Any]) -> list[str]:
    numbers = (row["mean_regret"], row["p90_regret"], row["worst_regret"])
    return [row["group"], str(row["n"]), row["rule"], *(f"{100 * x:.1f}" for x in numbers)]


def _reasons(aside: list[dict[str, Any]]) -> str:
    counts: dict[str, int] = {}
    for row in aside:
        counts[row["left_out"]] = counts.get(row["left_out"], 0) + 1
    reasons = "; ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
    from roofline.render.columns import wrap

    return wrap(
        f"Shown in --format json, never scored: {reasons}." if reasons else "Nothing left out."
    )
