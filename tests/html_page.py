"""A report as a reader without a browser sees it: its parts, its words, and its data."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

__all__ = ["Page", "read_page"]


@dataclass
class Page:
    """Elements with their attributes, the text of those with an id, and the scripts' texts."""

    elements: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    text: dict[str, str] = field(default_factory=dict)
    scripts: list[str] = field(default_factory=list)
    words: str = ""

    @property
    def data(self) -> Any:
        """What the script works on."""
        return json.loads(self.text["data"], parse_constant=_not_json)

    def attributes(self, tag: str, **wanted: str) -> dict[str, str]:
        """Return the attributes of the first such element."""
        return next(
            own for name, own in self.elements if name == tag and wanted.items() <= own.items()
        )


def _not_json(word: str) -> None:
    raise AssertionError(f"{word} is not JSON")


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()
        self.open: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = {name: value or "" for name, value in attrs}
        self.page.elements.append((tag, own))
        if tag not in ("meta", "link", "input"):
            self.open.append((tag, own.get("id")))
        if tag == "script" and own.get("type") != "application/json":
            self.page.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open[-1][0] == tag, f"</{tag}> closes <{self.open[-1][0]}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        inside = self.open[-1][0] if self.open else ""
        for _, name in self.open:
            if name is not None:
                self.page.text[name] = self.page.text.get(name, "") + data
        if inside == "script" and self.open[-1][1] != "data":
            self.page.scripts[-1] += data
        elif inside not in ("script", "style"):
            self.page.words += data


def read_page(path: Path) -> Page:
    """Parse a report; tags must close in the order they were opened."""
    parser = _Parser()
    parser.feed(path.read_text("utf-8"))
    parser.close()
    assert not parser.open
    return parser.page
