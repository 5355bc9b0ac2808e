"""The commands by name: each is imported when it is asked for, all of them for the help."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

import typer

from roofline.cli.listing import help_if_bare
from roofline.cli.once import Once

__all__ = ["build", "needed"]

#: Modules of this package that hold a function, or an ``app``, of the same name.
COMMANDS = (
    "recommend", "schedule", "compare", "memory", "explore", "live", "diagnose", "report",
    "sweep",
)  # fmt: skip
GROUPS = ("plot", "hardware", "models", "acceptance", "calibrate", "validate")


def needed(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the names that a command line needs: the one it begins with, else all.

    >>> needed(["recommend", "qwen3-8b"]), len(needed(["--help"]))
    (('recommend',), 15)
    """
    every = (*COMMANDS, *GROUPS)
    return (arguments[0],) if arguments and arguments[0] in every else every


def build(names: Sequence[str] = (*COMMANDS, *GROUPS)) -> typer.Typer:
    """Return the application with these commands."""
    app = typer.Typer(
        name="roofline",
        help="Which draft length should I run, and what will it buy me?",
        invoke_without_command=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    for name in names:
        module = import_module(f"roofline.cli.{name}")
        if name in COMMANDS:
            app.command()(getattr(module, name))
        else:
            app.add_typer(module.app, name=name)
    for known in (app, *(group.typer_instance for group in app.registered_groups)):
        for command in known.registered_commands if known else ():
            command.cls = Once
    app.callback()(_root)
    return app


def _version(show: bool) -> None:
    if show:
        from roofline import __version__

        typer.echo(f"roofline {__version__}")
        raise typer.Exit


def _root(
    context: typer.Context,
    version: bool = typer.Option(  # noqa: ARG001
        False, "--version", callback=_version, is_eager=True, help="Print the version and stop."
    ),
) -> None:
    help_if_bare(context)
