"""The commands by name, each imported when it is called; an option may be given only once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from roofline.base.errors import InputError, did_you_mean
from roofline.cli.panels import (
    ASKING,
    DRAWING,
    LOOKING_UP,
    MEASURING,
    OUTPUT,
    in_panels,
    write_panels,
)
from roofline.cli.printing import check_notes_are_heard, help_if_bare, show

__all__ = ["Command", "Group", "build", "commands_for", "commands_with"]


#: Commands whose answer has a headline and notes.
ANSWERS = (
    *("recommend", "schedule", "compare", "memory", "explore", "live", "diagnose", "report"),
    *("start", "add", "status"),
)
#: Commands that have notes alone.
NOTED = (
    *("sweep", "speedup", "cost-ratio", "heatmap", "breakdown", "frontier", "roofline"),
    *("attention", "read", "import"),
)


def _keep(context: typer.Context, parameter: typer.CallbackParam, value: bool) -> None:
    """Keep how much to print beside the command's own values."""
    context.meta[parameter.name] = value


def _how_much(text: str, *names: str) -> Any:
    return typer.Option(
        *names, help=text, rich_help_panel=OUTPUT, callback=_keep, expose_value=False
    )


def _printing(
    short: Annotated[bool, _how_much("The headline alone, a line a point.", "--short")] = False,
    notes: Annotated[bool, _how_much("All notes, and an answer's constants.", "--notes")] = False,
    quiet: Annotated[bool, _how_much("Nothing on stderr but errors.", "-q", "--quiet")] = False,
) -> None:
    """Declare the options that say how much is printed."""


@cache
def _printing_options() -> dict[str, Any]:
    """Return those options by name, as Typer makes them."""
    declared = typer.Typer(add_completion=False)
    declared.command()(_printing)
    command: Any = typer.main.get_command(declared)
    return {parameter.name: parameter for parameter in command.params}


class Command(TyperCommand):
    """A command whose help has panels, that says how much to print, and takes an option once.

    Of an option that is given twice the parser would keep the last value.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        names = ["short"] if self.name in ANSWERS else []
        names += ["notes"] if self.name in (*ANSWERS, *NOTED) else []
        names.append("quiet")
        self.params += [_printing_options()[name] for name in names]

    def invoke(self, ctx: Any) -> Any:
        """Run the command, which prints as much as its options say."""
        shown = {name: ctx.meta.get(name, False) for name in ("short", "notes", "quiet")}
        more = {"--notes": shown["notes"], "--explain": ctx.params.get("explain")}
        for option, given in more.items():
            if shown["short"] and given:
                raise InputError(f"--short and {option}: the headline alone has none; give one")
        show(**shown)
        if self.name in NOTED:
            check_notes_are_heard()
        return super().invoke(ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options of the help by panels."""
        write_panels(in_panels(self.get_params(ctx), ctx), formatter)

    def make_parser(self, ctx: Any) -> Any:
        """Return Typer's parser, which counts how often each option is given."""
        parser: Any = super().make_parser(ctx)
        parse = parser.parse_args

        def parse_once(args: list[str]) -> Any:
            given = list(args)
            values, rest, order = parse(args=args)
            if not ctx.resilient_parsing:  # a shell asks for the completion of an unfinished line
                _check_given_once(order, given)
            return values, rest, order

        parser.parse_args = parse_once
        return parser


class Group(TyperGroup):
    """The commands, listed by panels."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Write the commands of the help by panels, each with its first sentence."""
        room = formatter.width - 6 - max(map(len, self.commands))
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            panel = getattr(command, "rich_help_panel", None) or "Commands"
            panels.setdefault(panel, []).append((name, command.get_short_help_str(room)))
        write_panels(panels, formatter)


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


#: Modules of this package that hold a function, or an ``app``, of the same name; their panels.
COMMANDS = {
    "recommend": ASKING,
    "schedule": ASKING,
    "compare": ASKING,
    "memory": ASKING,
    "explore": ASKING,
    "sweep": ASKING,
    "live": ASKING,
    "diagnose": ASKING,
    "report": DRAWING,
}
GROUPS = {
    "plot": DRAWING,
    "models": LOOKING_UP,
    "hardware": LOOKING_UP,
    "acceptance": LOOKING_UP,
    "tune": MEASURING,
    "calibrate": MEASURING,
    "validate": MEASURING,
}
HELP = "help"


def commands_for(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the commands that a command line needs: the one it begins with, else all.

    >>> commands_for(["recommend", "qwen3-8b"]), commands_for(["help", "plot", "speedup"])
    (('recommend',), ('plot',))
    >>> len(commands_for(["--help"]))
    16
    """
    if arguments and arguments[0] == HELP:
        return commands_for(arguments[1:])
    names = (*COMMANDS, *GROUPS)
    return (arguments[0],) if arguments and arguments[0] in names else names


def build(names: Sequence[str] = (*COMMANDS, *GROUPS)) -> typer.Typer:
    """Return the application with these commands, and the one that shows their help."""
    app = typer.Typer(
        name="roofline",
        cls=Group,
        help="Which draft length should I run, and what will it buy me?\n\n"
        "Example: roofline recommend llama-3.1-8b --batch 8",
        invoke_without_command=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    for name in names:
        module = import_module(f"roofline.cli.{name}")
        if name in COMMANDS:
            app.command(rich_help_panel=COMMANDS[name])(getattr(module, name))
        else:
            app.add_typer(module.app, name=name, rich_help_panel=GROUPS[name])
    app.command(HELP, rich_help_panel=LOOKING_UP)(_help)
    for typer_app in (app, *(group.typer_instance for group in app.registered_groups)):
        for command in typer_app.registered_commands if typer_app else ():
            command.cls = Command
    app.callback()(_root)
    return app


def commands_with(option: str) -> list[str]:
    """Return the commands that take an option, as they are typed.

    >>> commands_with("--tie"), commands_with("--nothing-like-it")
    (['schedule'], [])
    """
    found = []
    for name, command in typer.main.get_command(build()).commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", {})
        paths = {f"{name} {word}": each for word, each in inner.items()} or {name: command}
        found += [
            path for path, each in paths.items() if any(option in p.opts for p in each.params)
        ]
    return found


def _help(
    context: typer.Context,
    topic: Annotated[
        list[str] | None,
        typer.Argument(metavar="[COMMAND]...", help="Such as recommend, or plot speedup."),
    ] = None,
) -> None:
    """Show the help of a command, or all commands.

    Example: roofline help recommend
    """
    shown: Any = context.parent
    for word in topic or ():
        known = getattr(shown.command, "commands", {})
        if word not in known:
            place = shown.command_path
            raise InputError(
                f"{place} has no command '{word}': {did_you_mean(word, known)}"
                if known
                else f"{place} has no commands below it, got '{word}'"
            )
        shown = typer.Context(known[word], info_name=word, parent=shown)
    typer.echo(shown.get_help())


def _version(show: bool) -> None:
    if show:
        from roofline.base import __version__

        typer.echo(f"roofline {__version__}")
        raise typer.Exit


def _root(
    context: typer.Context,
    version: bool = typer.Option(  # noqa: ARG001
        False, "--version", callback=_version, is_eager=True, help="Print the version and stop."
    ),
) -> None:
    help_if_bare(context)
