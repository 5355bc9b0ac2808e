"""The commands, as one Typer application. Nothing numeric is imported until a command runs."""

from __future__ import annotations

import typer

from roofline.cli import acceptance, calibrate, hardware, models, plot, validate
from roofline.cli.compare import compare
from roofline.cli.diagnose import diagnose
from roofline.cli.explore import explore
from roofline.cli.listing import help_if_bare
from roofline.cli.live import live
from roofline.cli.memory import memory
from roofline.cli.recommend import recommend
from roofline.cli.report import report
from roofline.cli.schedule import schedule

__all__ = ["app"]

app = typer.Typer(
    name="roofline",
    help="Which draft length should I run, and what will it buy me?",
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command()(recommend)
app.command()(schedule)
app.command()(compare)
app.command()(memory)
app.command()(explore)
app.command()(live)
app.command()(diagnose)
app.command()(report)
app.add_typer(plot.app, name="plot")
app.add_typer(hardware.app, name="hardware")
app.add_typer(models.app, name="models")
app.add_typer(acceptance.app, name="acceptance")
app.add_typer(calibrate.app, name="calibrate")
app.add_typer(validate.app, name="validate")


def _version(show: bool) -> None:
    if show:
        from roofline import __version__

        typer.echo(f"roofline {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: bool = typer.Option(  # noqa: ARG001
        False, "--version", callback=_version, is_eager=True, help="Print the version and stop."
    ),
) -> None:
    help_if_bare(context)
