"""Fitted numbers put into the text of an engine's file; the rest stays as people wrote it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from roofline.base.errors import InputError

__all__ = ["with_overhead", "without_eras"]

_OVERHEAD = re.compile(r"^overhead:\n(?:  .*\n)+", re.MULTILINE)
_ERAS = re.compile(r"^eras:\n(?:[- ].*\n)+", re.MULTILINE)


def with_overhead(text: str, lines: Mapping[str, float | str], *, file: str, add: bool) -> str:
    r"""Return the text with these lines of its overhead replaced; absent ones are put on top.

    Without ``add``, an absent line is an error.

    >>> text = "id: x\noverhead:\n  per_step: 1 us  # old\nmemory:\n  per_step: kept\n"
    >>> print(with_overhead(text, {"per_step": "2 us", "rows": 7}, file="x.yaml", add=True), end="")
    id: x
    overhead:
      rows: 7
      per_step: 2 us
    memory:
      per_step: kept
    """
    section = _OVERHEAD.search(text)
    if section is None:
        raise InputError(f"{file}: overhead: is missing; add it")
    body = section.group()
    for name, value in lines.items():
        body, count = re.subn(rf"(?m)^  {name}: .*$", f"  {name}: {value}", body)
        if not count and not add:
            raise InputError(f"{file}: overhead.{name}: is missing; add it")
        if not count:
            body = body.replace("overhead:\n", f"overhead:\n  {name}: {value}\n", 1)
    return text[: section.start()] + body + text[section.end() :]


def without_eras(text: str) -> str:
    """Return the text without its older builds."""
    return _ERAS.sub("", text)
