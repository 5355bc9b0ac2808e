"""A command whose options are each given once, unless they are meant to repeat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand

from roofline.base.errors import InputError

__all__ = ["Once"]


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
