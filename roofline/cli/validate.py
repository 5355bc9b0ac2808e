"""``roofline validate``: predictions against public measurements and published runs."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roofline.base.errors import InputError
from roofline.base.values import check_word
from roofline.cli.panels import OUTPUT as OUTPUT_PANEL
from roofline.cli.panels import QUESTION
from roofline.cli.plotting import source_line
from roofline.cli.printing import emit_answer, help_if_bare
from roofline.cli.question import FORMATS, OUTPUT, format_for, option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from roofline.render.writers import OutputFormat
    from roofline.validation.score import Compared

app = typer.Typer(
    help="Compare predictions with public measurements.",
    callback=help_if_bare,
    invoke_without_command=True,
)
WORST = 12  # rows that are shown

_GPU = option(QUESTION, "Only this accelerator; repeatable.", metavar="NAME")
_ENGINE = option(QUESTION, "Only this engine; repeatable.", metavar="NAME")
_PLOT = option(OUTPUT_PANEL, "Write a parity plot: .png, .svg or .pdf.", metavar="FILE")
_GROUP = option(QUESTION, "Only this group of runs; repeatable.", metavar="NAME")


def _suite(name: str, about: str, title: str, *, module: str, function: str) -> None:
    """Add the command of one suite; its comparison is imported when it runs.

    ``title`` heads its plot.
    """

    def command(
        gpu: Annotated[list[str] | None, _GPU] = None,
        engine: Annotated[list[str] | None, _ENGINE] = None,
        form: Annotated[str | None, FORMATS] = None,
        plot: Annotated[Path | None, _PLOT] = None,
        output: Annotated[Path | None, OUTPUT] = None,
    ) -> None:
        compare = getattr(import_module(f"roofline.validation.{module}"), function)
        _run(compare, title, gpu, engine, form, plot, output)

    example = f"Example: roofline validate {name} --gpu h100-sxm"
    app.command(name, help=f"{about}\n\n{example}")(command)


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
    form: str | None,
    plot: Path | None,
    output: Path | None,
) -> None:
    from roofline.render.validation import scores_answer
    from roofline.validation.score import pool, worst

    how = _format(form, output)
    parts = compared(compare, gpu, engine)
    if plot is not None:
        from roofline.render.charts.validation import write_parity

        write_parity(parts, plot, what=what, source=source_line())
    emit_answer(scores_answer(pool(parts), worst(parts, WORST)), how, output)


def compared(
    compare: Callable[..., Iterable[Compared]],
    gpu: list[str] | None,
    engine: list[str] | None,
) -> list[Compared]:
    """Compare on the accelerators and engines asked for; refuse where nothing was measured."""
    from roofline.base.resources import bundled_names
    from roofline.specs.gpu import GPU_SHELF

    gpus = _names("gpu", gpu, bundled_names(GPU_SHELF))
    engines = _names("engine", engine, _ENGINES)
    parts = list(compare(gpus=gpus, engines=engines))
    if not parts:
        raise InputError("no measurements of these accelerators and engines are shipped")
    return parts


_ENGINES = ["vllm", "sglang", "trtllm"]


def _names(field: str, names: list[str] | None, known: list[str]) -> list[str]:
    """Return the names given, by default all that are known; refuse others."""
    for name in names or []:
        check_word(field, name, known, what="name")
    return names or known


@app.command()
def steps(
    group: Annotated[list[str] | None, _GROUP] = None,
    form: Annotated[str | None, FORMATS] = None,
    plot: Annotated[Path | None, _PLOT] = None,
    output: Annotated[Path | None, OUTPUT] = None,
) -> None:
    """Compare step times and cost ratios of published runs.

    Engine numbers are fitted without each row's group.

    Example: roofline validate steps --group NAME
    """
    from roofline.render.validation import steps_answer
    from roofline.validation.score import pool
    from roofline.validation.steps import compare_steps, unscored_rows

    how = _format(form, output)
    parts = _of_group(list(compare_steps()), group)
    if plot is not None:
        from roofline.render.charts.validation import write_parity

        alone = [p for p in parts if p.kind == "step" and not p.group.startswith("all")]
        write_parity(alone, plot, what="steps of published runs", source=source_line())
    left_out = [row for row in unscored_rows() if not group or row["group"] in group]
    emit_answer(steps_answer(pool(parts), left_out), how, output)


@app.command()
def advice(
    group: Annotated[list[str] | None, _GROUP] = None,
    form: Annotated[str | None, FORMATS] = None,
    plot: Annotated[
        Path | None,
        option(OUTPUT_PANEL, "Write a plot of all regrets: .png, .svg or .pdf.", metavar="FILE"),
    ] = None,
    output: Annotated[Path | None, OUTPUT] = None,
) -> None:
    """Compare advised draft lengths with the measured best.

    The sign of each speedup is compared as well.

    Example: roofline validate advice --format json
    """
    from roofline.render.validation import advice_answer
    from roofline.validation.advice import signs, sweeps

    how = _format(form, output)
    chosen_sweeps = _of_group(sweeps(), group)
    chosen_signs = [sign for sign in signs() if not group or sign.group in group]
    if plot is not None:
        from roofline.render.charts.validation import write_regrets

        write_regrets(chosen_sweeps, plot, source=source_line())
    emit_answer(advice_answer(chosen_sweeps, chosen_signs), how, output)


@app.command()
def acceptance(
    form: Annotated[str | None, FORMATS] = None,
    output: Annotated[Path | None, OUTPUT] = None,
) -> None:
    """Compare the prior of acceptance with published values.

    Every drafter is left out of what its prediction learned from.

    Example: roofline validate acceptance --format json
    """
    from roofline.render.validation import acceptance_answer
    from roofline.validation.acceptance import acceptance_rows

    how = _format(form, output)
    emit_answer(acceptance_answer(acceptance_rows()), how, output)


@app.command()
def tune(
    group: Annotated[list[str] | None, _GROUP] = None,
    form: Annotated[str | None, FORMATS] = None,
    output: Annotated[Path | None, OUTPUT] = None,
) -> None:
    """Replay timings that are chosen one by one on published sweeps.

    Golden section, hill climbing, a line through two timings and chance are replayed beside it.

    Example: roofline validate tune --format json
    """
    from roofline.render.validation import tune_answer
    from roofline.validation.tune import timed_sweeps, tune_rows

    how = _format(form, output)
    emit_answer(tune_answer(tune_rows(_of_group(list(timed_sweeps()), group))), how, output)


@app.command(name="held-out")
def held_out(
    form: Annotated[str | None, FORMATS] = None,
    output: Annotated[Path | None, OUTPUT] = None,
) -> None:
    """Compare with speculative runs that no number was fitted on.

    Losses that are called wins are counted over these and all other published runs.

    Example: roofline validate held-out --format json
    """
    from roofline.render.validation import held_out_answer
    from roofline.validation.held_out import count_signs, outcomes

    how = _format(form, output)
    emit_answer(held_out_answer(outcomes(), count_signs()), how, output)


@app.command()
def requests(
    group: Annotated[list[str] | None, _GROUP] = None,
    form: Annotated[str | None, FORMATS] = None,
    output: Annotated[Path | None, OUTPUT] = None,
) -> None:
    """Compare times to first and to later tokens of served requests.

    Runs are replayed pass by pass; no number was fitted on them but one, which is said. Gains of
    whole requests are in held-out, group a100-prefill.

    Example: roofline validate requests --group a100-fp16-kv-fp16
    """
    from roofline.render.validation import requests_answer
    from roofline.validation.requests import outcomes

    how = _format(form, output)
    emit_answer(requests_answer(_of_group(list(outcomes()), group)), how, output)


def _of_group(parts: list[Any], wanted: list[str] | None) -> list[Any]:
    """Return the parts of the wanted groups, by default of all; refuse an unknown group."""
    known = sorted({part.group for part in parts})
    wanted = _names("group", wanted, known)
    return [part for part in parts if part.group in wanted]


def _format(form: str | None, output: Path | None) -> OutputFormat:
    from roofline.render.writers import OutputFormat

    return format_for(form, output, kinds=OutputFormat, chart="--plot")
