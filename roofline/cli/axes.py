"""The options of a question as axes: each takes several values."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import typer

from roofline.cli.question import hints, question, signed

__all__ = ["axes", "option_flags", "option_types"]


def option_types() -> dict[str, Any]:
    """Return the type of every option of a question."""
    return get_type_hints(question, localns={"Configuration": object, "Workload": object})


def option_flags() -> dict[str, str]:
    """Return the long flag of every option of a question, by its name here."""
    flags = {}
    for name, hint in hints(question).items():
        told = getattr(hint, "__metadata__", (None,))[0]
        if told is not None:
            # in an annotation the first name stands where a default would
            declared = (getattr(told, "default", None), *(getattr(told, "param_decls", None) or ()))
            long = (text for text in declared if isinstance(text, str) and text.startswith("--"))
            flags[name] = next(long, "--" + name.replace("_", "-"))
    return flags


def axes(command: Callable[..., None]) -> Any:
    """Give a command the options of ``question`` as axes; it receives their texts by name first.

    Every option may be given several times; the model may be left to a file.
    """
    types, documented = option_types(), hints(question)
    own = list(inspect.signature(command, eval_str=False).parameters.values())[1:]
    known = hints(command)
    shared = {}
    for name, parameter in inspect.signature(question, eval_str=False).parameters.items():
        told = documented[name].__metadata__[0]
        kind: Any = list[str] | None
        if name == "model":
            kind = str | None
            told = typer.Argument(
                help=f"One or more, with commas. {told.help}", autocompletion=told.autocompletion
            )
        elif types[name] is bool:
            kind = bool
        default = False if kind is bool else None
        shared[name] = parameter.replace(annotation=Annotated[kind, told], default=default)

    @functools.wraps(command)
    def run(**given: Any) -> None:
        flags = {name: given.pop(name) for name in shared}
        if flags["model"] is not None:
            flags["model"] = [flags["model"]]
        command(flags, **given)

    parameters = [
        *(parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in shared.values()),
        *(parameter.replace(annotation=known[parameter.name]) for parameter in own),
    ]
    return signed(run, parameters)
