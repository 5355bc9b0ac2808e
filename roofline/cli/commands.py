"""The commands by name, each imported when it is called; an option may be given only once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand

from roofline.base.errors import InputError
from roofline.cli.printing import help_if_bare, with_output_options

__all__ = ["OptionsOnce", "build", "commands_for"]


class OptionsOnce(TyperCommand):
    """A command that refuses an option given twice, of which the parser would keep the last."""

    def make_parser(self, ctx: Any) -> Any:
        """Return Typer's parser, which counts how often each option is given."""
        parser = super().make_parser(ctx)
        parse = parser.parse_args

        def parse_once(args: list[str]) -> Any:
            given = list(args)
            values, rest, order = parse(args=args)
            if not ctx.resilient_parsing:  # a shell asks for the completion of an unfinished line
                _check_given_once(order, given)
            return values, rest, order

        parser.parse_args = parse_once
        return parser


def _check_given_once(order: Iterable[Any], arguments: Sequence[str]) -> None:
    """Refuse an option that stands twice in ``order``, unless it takes several values."""
    for option, times in Counter(order).items():
        single = option.param_type_name == "option" and not getattr(option, "is_flag", False)
        if times > 1 and single and not option.multiple:
            raise InputError(_given_twice(option.opts, arguments, times))


def _given_twice(names: Sequence[str], arguments: Sequence[str], times: int) -> str:
    """Return the refusal, with the values if all are found and none is an address.

    An address may hold a secret.

    >>> _given_twice(["--batch"], ["qwen3-8b", "--batch", "8", "--batch=16"], 2)
    '--batch: given twice (8 and 16); give it once, as 8,16 where its help shows a list'
    >>> _given_twice(["-o", "--output"], ["-o", "a.csv", "--output", "b.csv"], 2)
    '--output: given twice (a.csv and b.csv); give it once'
    """
    flag = max(names, key=len)
    values = []
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        name, attached, value = argument.partition("=")
        if name in names:
            values.append(value if attached else following)
    message = f"{flag}: given {'twice' if times == 2 else f'{times} times'}"
    if len(values) == times and not any("://" in value for value in values):
        message += f" ({', '.join(values[:-1])} and {values[-1]})"
    message += "; give it once"
    if all(value[:1].isdigit() and "," not in value for value in values):
        message += f", as {','.join(values)} where its help shows a list"
    return message


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
#: Commands whose answer has a headline and notes.
ANSWERS = ("recommend", "schedule", "compare", "memory", "explore", "live", "diagnose")
GROUPS = ("plot", "hardware", "models", "acceptance", "calibrate", "validate")


def commands_for(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the commands that a command line needs: the one it begins with, else all.

    >>> commands_for(["recommend", "qwen3-8b"]), len(commands_for(["--help"]))
    (('recommend',), 15)
    """
    names = (*COMMANDS, *GROUPS)
    return (arguments[0],) if arguments and arguments[0] in names else names


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
    for typer_app in (app, *(group.typer_instance for group in app.registered_groups)):
        for command in typer_app.registered_commands if typer_app else ():
            command.cls = OptionsOnce
            command.callback = with_output_options(command.callback, answering=ANSWERS)
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
