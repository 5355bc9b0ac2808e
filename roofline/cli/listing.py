"""Lists of what is bundled: the rows that match a text, or a short table of groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import typer

from roofline.base.errors import InputError
from roofline.cli.printing import emit_rows

__all__ = ["ALL", "MATCH", "Entry", "emit_list"]

MATCH = typer.Option(metavar="TEXT", help="Only those in which these words stand, as in an id.")
ALL = typer.Option("--all", help="Every row of a long list, which is else shown by groups.")
#: A list of more rows is shown by groups.
LONG = 40  # rows
WIDTH = 80  # columns of a terminal


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A row of a list, the group it belongs to, and the text that is searched."""

    group: str
    row: Mapping[str, Any]
    text: str

    def matches(self, words: str) -> bool:
        """Return whether the entry holds every word, in any case."""
        return all(word in self.text.lower() for word in words.lower().split())


def emit_list(
    entries: Sequence[Entry], form: str, *, match: str | None, everything: bool, noun: str
) -> None:
    """Print the entries that match as rows; a long list that nobody cut short by its groups."""
    found = [entry for entry in entries if match is None or entry.matches(match)]
    if not found:
        raise InputError(f"--match {match}: none of the {len(entries)} {noun} holds these words")
    if form != "table" or everything or match is not None or len(found) <= LONG:
        emit_rows([entry.row for entry in found], form)
        return
    typer.echo(f"{len(found)} {noun}: --match TEXT shows some of them, --all every row\n")
    groups: dict[str, list[str]] = {}
    for entry in found:
        groups.setdefault(entry.group, []).append(entry.row["id"])
    typer.echo("\n".join(_group_lines(groups)))


def _group_lines(groups: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the lines of each group: its name, how many it holds, and as many ids as fit.

    A few groups have two lines each, many have one.

    >>> for line in _group_lines({"ada": ["l4", "l40"], "volta": ["v100-sxm2-32gb"]}):
    ...     print(line)
    group  count  ids
    ada        2  l4, l40
    volta      1  v100-sxm2-32gb
    """
    width = max(len("group"), *map(len, groups))
    lines = [f"{'group':{width}}  count  ids"]
    most = 2 if len(groups) <= LONG // 2 else 1
    for group, ids in groups.items():
        start = f"{group:{width}}  {len(ids):5}  "
        first, *others = _that_fit(ids, WIDTH - len(start), most)
        lines += [start + first, *(" " * len(start) + line for line in others)]
    return lines


def _that_fit(ids: Sequence[str], room: int, lines: int) -> list[str]:
    """Return the first ids that fit into lines, with an ellipsis where some are left out.

    >>> _that_fit(["one", "two"], 8, 1), _that_fit(["one", "two", "three"], 12, 1)
    (['one, two'], ['one, two, …'])
    """
    import textwrap

    for count in range(len(ids), 0, -1):
        text = ", ".join([*ids[:count], *(["…"] if count < len(ids) else [])])
        wrapped = textwrap.wrap(text, room, break_on_hyphens=False, break_long_words=False)
        if len(wrapped) <= lines:
            return wrapped
    return ["…"]
