"""``roofline calibrate``: constants from measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from roofline.base.errors import InputError
from roofline.base.values import check_word
from roofline.base.values import seconds as time_in_seconds
from roofline.cli import completion
from roofline.cli.printing import emit_answer, help_if_bare, talk

app = typer.Typer(
    help="Fit constants to measured kernels and steps.",
    callback=help_if_bare,
    invoke_without_command=True,
)


@app.command("fit-steps")
def fit_steps(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="CSV: batch,context,draft_length,step_ms (drafting included)."
        ),
    ],
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="The model that was served.", autocompletion=completion.models
        ),
    ],
    gpu: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="A bundled id, or a path to a profile.",
            autocompletion=completion.gpus,
        ),
    ] = "h100-sxm",
    tp: Annotated[int, typer.Option(metavar="N", help="Tensor-parallel GPUs.")] = 1,
    drafter: Annotated[str, typer.Option(metavar="NAME", help="As in recommend.")] = "none",
    weights: Annotated[str | None, typer.Option(metavar="FORMAT", help="As in recommend.")] = None,
    kv: Annotated[str | None, typer.Option(metavar="FORMAT", help="As in recommend.")] = None,
    engine: Annotated[
        str, typer.Option(metavar="NAME", help="The engine, or its YAML file.")
    ] = "vllm",
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Engine file to write: engine.yaml."),
    ] = None,
) -> None:
    """Fit an engine's numbers to a few measured steps of your own.

    Example: roofline calibrate fit-steps steps.csv qwen3-8b --gpu h100-sxm
    """
    from roofline.advice.configuration import Configuration
    from roofline.base.files import write_atomically
    from roofline.calibrate.steps import fit_steps as fit
    from roofline.questions.measured import read_steps
    from roofline.render.calibration import steps_answer
    from roofline.render.writers import OutputFormat
    from roofline.specs.formats import parse_dtype

    if model.lower().endswith(".csv") and file.suffix.lower() != ".csv":
        raise InputError(f"{model}: FILE comes first: roofline calibrate fit-steps {model} {file}")
    configuration = Configuration(
        model=model,
        gpu=gpu,
        tp=tp,
        drafter=drafter,
        weights=None if weights is None else parse_dtype(weights, "weights"),
        kv=None if kv is None else parse_dtype(kv, "kv"),
        engine=engine,
    )
    fitted = fit(configuration, read_steps(file))
    emit_answer(steps_answer(fitted), OutputFormat.TABLE)
    if output is not None:
        write_atomically(output, fitted.text)
        talk([f"wrote {output}: give it as --engine {output}"])


@app.command()
def measure(
    device: Annotated[
        str, typer.Option(metavar="WORD", help="cpu or cuda (ROCm builds of torch are cuda too).")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="CSV to write, row by row.")
    ],
    model: Annotated[
        str, typer.Option(metavar="MODEL", help="The model whose shapes are measured.")
    ] = "qwen3-0.6b",
    library: Annotated[
        str | None,
        typer.Option(metavar="WORD", help="numpy or torch.  [numpy on cpu, torch on cuda]"),
    ] = None,
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="Time to spend, such as 60s or 3m.")
    ] = "3m",
    threads: Annotated[int, typer.Option(metavar="N", help="CPU threads of the library.")] = 1,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the CSV instead of refusing it.")
    ] = False,
) -> None:
    """Time the kernels of a model on this machine.

    Example: roofline calibrate measure --device cuda -o run.csv
    """
    from roofline.calibrate.session import measure as run
    from roofline.render.calibration import failed_line, measured_answer
    from roofline.render.writers import OutputFormat

    chosen = library or ("numpy" if device == "cpu" else "torch")
    check_word("device", device, ["cpu", "cuda"])
    check_word("library", chosen, ["numpy", "torch"])
    if device == "cuda" and chosen == "numpy":
        raise InputError("--library numpy: runs on --device cpu only; use --library torch")
    if not 1 <= threads <= 1024:
        raise InputError(f"--threads {threads}: expected 1 to 1024")
    seconds = time_in_seconds("budget", budget, least=1, most=86400)
    measured = run(
        device=device,
        library=chosen,
        model=model,
        budget=seconds,
        threads=threads,
        path=output,
        resume=resume,
        on_failure=lambda row: talk([failed_line(row)]),
    )
    emit_answer(measured_answer(measured), OutputFormat.TABLE)


@app.command()
def fit(
    run: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="What measure wrote, or llama-bench's JSON."),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="Profile (YAML) to write.")
    ],
    gpu: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Datasheet to put the laws on.  [by the device's name]"),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Draw predicted against measured to FILE: .png, .svg or .pdf."
        ),
    ] = None,
) -> None:
    """Fit the laws to a machine's own measurements.

    Writes the machine's profile. From passes of llama.cpp on a processor as
    well: llama-bench -p 1,2,3,4,5,6,7,8,12,16 -n 0 -d 512 -o json.

    Example: roofline calibrate fit run.csv -o my-gpu.yaml
    """
    from roofline.calibrate.session import fit as run_fit
    from roofline.render.calibration import fit_answer
    from roofline.render.writers import OutputFormat

    if output.suffix not in (".yaml", ".yml"):
        raise InputError(f"-o {output}: expected a name ending in .yaml")
    fitted = run_fit(run, output, gpu=gpu)
    if plot is not None:
        from roofline.render.charts.residuals import write_residuals

        device = str(fitted.facts.get("device"))
        try:
            write_residuals(fitted.machine.laws, plot, device=device, source=fitted.cite)
        except (OSError, ValueError) as error:
            raise InputError(f"--plot {plot}: cannot be written ({error})") from None
    emit_answer(fit_answer(fitted, output), OutputFormat.TABLE)
