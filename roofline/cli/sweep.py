"""``roofline sweep``: every point of a grid as a row."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from roofline.base.errors import InputError
from roofline.base.progress import Advance, progress
from roofline.base.units import format_bytes, format_count
from roofline.base.values import choice
from roofline.cli.panels import QUESTION, RUNNING
from roofline.cli.printing import emit_notes, talk, typed
from roofline.cli.question import GPU_HOUR, OUTPUT, TUNED, asks_grid, form_option, option

if TYPE_CHECKING:
    from roofline.questions.sweep.encoding import SweepFormat
    from roofline.questions.sweep.plan import SweepPlan
    from roofline.questions.sweep.run import Workers

__all__ = ["sweep"]

#: A grid of more points runs only with --yes: to a file, and to stdout.
MANY_POINTS = 10**8
MANY_PRINTED = 10**7


@asks_grid
def sweep(
    flags: dict[str, Any],
    *,
    batch: Annotated[
        list[str] | None,
        option(QUESTION, "1,8 or 1..512 or 1..64+4 or 1..1024*2.  [1]", metavar="N,..."),
    ] = None,
    context: Annotated[
        list[str] | None, option(QUESTION, "Tokens, as --batch: 1k..128k*2.  [4k]", metavar="N,...")
    ] = None,
    gpu_hour: Annotated[list[str] | None, GPU_HOUR] = None,
    grid: Annotated[
        Path | None,
        option(
            QUESTION, "YAML file with the same names as axes; flags override it.", metavar="FILE"
        ),
    ] = None,
    tuned: TUNED = None,
    form: Annotated[str | None, form_option("csv, jsonl, parquet", "by FILE; csv")] = None,
    output: Annotated[Path | None, OUTPUT] = None,
    jobs: Annotated[int, option(RUNNING, "Processes to price with.", metavar="N")] = 1,
    dask: Annotated[
        str | None,
        option(RUNNING, "Scheduler of a Dask cluster to price on, host:port.", metavar="HOST:PORT"),
    ] = None,
    resume: Annotated[
        bool, option(RUNNING, "Go on with an unfinished FILE.partial.", "--resume")
    ] = False,
    yes: Annotated[
        bool,
        option(
            RUNNING,
            "Do run a grid of more than 100 million points (10 million on stdout).",
            "--yes",
        ),
    ] = False,
) -> None:
    """Price every point of a grid as a row.

    One row per option, batch, context and draft length.
    Every option takes several values: comma lists (whole numbers also ranges), or the option again.
    Where one value holds commas (--acceptance, --hit-rate, --overhead-ms, --tensor-split): again.
    What is left out is as in recommend.

    Example: roofline sweep qwen3-8b,qwen3-32b --batch 1..64 -o sweep.csv
    """
    from roofline.questions.sweep.encoding import check_format
    from roofline.questions.sweep.grid import plan_for
    from roofline.questions.sweep.run import cluster_workers, local_workers
    from roofline.render.notices import notes_by_text

    how = _format(form, output)
    if not 1 <= jobs <= 1024:
        raise InputError(f"--jobs {jobs}: expected 1 to 1024")
    if output is None and (resume or how == "parquet"):
        raise InputError(f"{'--resume' if resume else '--format parquet'}: needs -o FILE")
    check_format(how)
    options = flags | {"batch": batch, "context": context, "gpu_hour": gpu_hour}
    options["set"] = options.pop("overrides")
    plan = plan_for(options, grid, tuned=tuned)
    if not yes:
        _check_size(plan, how, jobs, printed=output is None)
    pool = local_workers(jobs) if dask is None else cluster_workers(dask)
    with pool as workers, progress(plan.points, "points") as tell:
        codes, held = _run(plan, how, workers, output, grid=grid, resume=resume, tell=tell)
    emit_notes(notes_by_text(codes), rest=f"{output}.provenance.json" if output else "")
    if output is not None:
        talk([f"wrote {output}: {held}"])


def _run(
    plan: SweepPlan,
    how: SweepFormat,
    workers: Workers,
    output: Path | None,
    *,
    grid: Path | None,
    resume: bool,
    tell: Advance,
) -> tuple[dict[str, str], str]:
    """Run the plan into the file or stdout; return the notes' codes, and what a file holds."""
    from roofline.base import __version__
    from roofline.questions.sweep.run import Renderers, to_file, to_stream
    from roofline.render.data import source_data
    from roofline.render.notices import warned

    renderers = Renderers(spell=typed, say=warned, source=source_data)
    if output is None:
        sys.stdout.flush()
        write = sys.stdout.buffer.write
        return to_stream(plan, how, workers, write, renderers=renderers, tell=tell), ""
    written = to_file(
        plan,
        how,
        workers,
        output,
        renderers=renderers,
        version=__version__,
        command=["roofline", *sys.argv[1:]],
        grid=grid,
        resume=resume,
        tell=tell,
    )
    left = written.rows - written.fitting
    unfit = f"; {left:,} of them cannot be run, as their reason says" if left else ""
    return written.warnings, f"{format_count(written.rows, 'row')}{unfit}"


def _format(form: str | None, output: Path | None) -> SweepFormat:
    from roofline.questions.sweep.encoding import SweepFormat

    if output is not None and output.is_dir() and not output.is_symlink():
        raise InputError(f"-o {output}: is a folder; give the name of a file")
    suffix = "csv" if output is None else output.suffix.lower().removeprefix(".")
    if form is None and suffix not in list(SweepFormat):
        endings = ", ".join(f".{kind}" for kind in SweepFormat)
        raise InputError(f"-o {output}: expected a name ending in {endings}, or --format")
    how = choice("format", form or suffix, SweepFormat)
    if output is not None and suffix in list(SweepFormat) and suffix != how:
        raise InputError(
            f"-o {output}: its ending says {suffix}, --format says {how.value}; give one of them"
        )
    return how


def _check_size(plan: SweepPlan, how: SweepFormat, jobs: int, *, printed: bool) -> None:
    """Refuse a grid of many points, with the size and time that it takes."""
    from roofline.questions.sweep.encoding import BYTES_PER_ROW, SECONDS_PER_ROW

    points = plan.points
    if points <= (MANY_PRINTED if printed else MANY_POINTS):
        return
    seconds = points * SECONDS_PER_ROW[how] / jobs
    time = f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds / 60:.0f} minutes"
    size = format_bytes(points * BYTES_PER_ROW[how])
    where = " on stdout" if printed else ""
    file = "write a file with -o FILE.parquet, or " if printed else ""
    raise InputError(
        f"this grid has {points:,} points: about {size} of {how.value}{where} and {time} with "
        f"--jobs {jobs}; {file}add --yes if that is meant"
    )
