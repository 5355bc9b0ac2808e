"""The commands by name, each imported when it is asked for; an option is given once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand

from roofline.base.errors import InputError
from roofline.cli.listing import help_if_bare

__all__ = ["Once", "build", "needed"]


class Once(TyperCommand):
    """Refuse an option of one value that is given twice: the parser would keep the last alone."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments once to see what stands there, and once as ever."""
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for option, times in Counter(given).items():
            single = option.param_type_name == "option" and not getattr(option, "is_flag", False)
            if times > 1 and single and not option.multiple:
                raise InputError(_twice(option.opts, args, times))
        return super().parse_args(ctx, args)


def _twice(names: Sequence[str], arguments: Sequence[str], times: int) -> str:
    """Return the refusal, with the values where all of them can be found and shown.

    Addresses are not shown: they may hold a secret.

    >>> _twice(["--batch"], ["qwen3-8b", "--batch", "8", "--batch=16"], 2)
    '--batch: given twice (8 and 16); give it once, as 8,16 where its help shows a list'
    >>> _twice(["-o", "--output"], ["-o", "a.csv", "--output", "b.csv"], 2)
    '--output: given twice (a.csv and b.csv); give it once'
    """
    flag = max(names, key=len)
    values = []
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        name, attached, value = argument.partition("=")
        if name in names:
            values.append(value if attached else following)
    said = f"{flag}: given {'twice' if times == 2 else f'{times} times'}"
    if len(values) == times and not any("://" in value for value in values):
        said += f" ({', '.join(values[:-1])} and {values[-1]})"
    said += "; give it once"
    if all(value[:1].isdigit() and "," not in value for value in values):
        said += f", as {','.join(values)} where its help shows a list"
    return said


#: Modules of this package that hold a function, or an ``app``, of the same name.
COMMANDS = (
    "recommend",
    "schedule",
    "compare",
    "memory",
    "explore",
    "live",
    "diagnose",
    "report",
    "sweep",
)
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
