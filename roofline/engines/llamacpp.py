"""llama.cpp: its statistics and per-request lines, old and new.

Drafts may stop early there, so the draft length is only known where all were full.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from roofline.base.errors import InputError
from roofline.engines.reading import DECIMAL, WHOLE, Reading, from_counts

__all__ = ["LOG_MARKS", "read_log"]

LOG_MARKS = ("#gen drafts", "draft acceptance")
_STATISTICS = re.compile(
    rf"statistics\s+(?P<name>\S+?):?\s+#calls.*?#gen drafts\s*=\s*(?P<drafts>{WHOLE}).*?"
    rf"#gen tokens\s*=\s*(?P<drafted>{WHOLE}).*?#acc tokens\s*=\s*(?P<accepted>{WHOLE})"
    rf"(?:.*?#acc rate/pos\s*=\s*\((?P<rates>{DECIMAL}(?:, ?{DECIMAL})*)\))?"
)
_REQUEST = re.compile(
    rf"draft acceptance(?: rate)?\s*=\s*[\d.]+\s*\(\s*(?P<accepted>{WHOLE}) accepted /\s*"
    rf"(?P<drafted>{WHOLE}) generated\)(?:, mean len\s*=\s*(?P<length>{DECIMAL}))?"
)


def read_log(lines: Sequence[str], where: str) -> Reading:
    """Read the running totals where they are printed, else the lines of each request."""
    statistics = [match for line in lines if (match := _STATISTICS.search(line))]
    statistics = [match for match in statistics if int(match["drafts"]) > 0]
    return _from_statistics(statistics, where) if statistics else _from_requests(lines, where)


def _from_statistics(found: Sequence[re.Match[str]], where: str) -> Reading:
    """Add up the last totals of each drafter and of each run of the server."""
    last: dict[str, tuple[int, int, int]] = {}
    done = (0, 0, 0)
    for match in found:
        new = (int(match["drafts"]), int(match["drafted"]), int(match["accepted"]))
        old = last.get(match["name"], (0, 0, 0))
        if any(n < o for n, o in zip(new, old, strict=True)):
            done = _plus(done, old)  # totals fell: a new run of the server
        last[match["name"]] = new
    for totals in last.values():
        done = _plus(done, totals)
    made = from_counts(
        engine="llamacpp",
        how="statistics of " + ", ".join(last),
        where=where,
        drafts=done[0],
        drafted=done[1],
        accepted=done[2],
    )
    rates = found[-1]["rates"]
    one_run = done == last[found[-1]["name"]]
    if rates is None or not one_run:
        return made
    survival = tuple(float(item) for item in rates.split(","))
    return replace(made, survival=survival, draft_length=len(survival))


def _plus(left: tuple[int, int, int], right: tuple[int, int, int]) -> tuple[int, int, int]:
    return left[0] + right[0], left[1] + right[1], left[2] + right[2]


def _from_requests(lines: Sequence[str], where: str) -> Reading:
    """Pool requests by ``mean len``: passes = accepted / (mean len - 1)."""
    passes = drafted = accepted = 0.0
    used = 0
    for line in lines:
        match = _REQUEST.search(line)
        if match is None or int(match["drafted"]) == 0:
            continue
        if match["length"] is None:
            raise InputError(
                f"{where}: accepted and generated tokens alone give no tokens per step, because "
                "drafts vary in length; the 'statistics' lines of the same log do"
            )
        length = float(match["length"])
        if int(match["accepted"]) == 0 or length <= 1:
            continue  # nothing accepted: the number of passes is not printed
        used += 1
        passes += int(match["accepted"]) / (length - 1)
        drafted += int(match["drafted"])
        accepted += int(match["accepted"])
    if not used:
        raise InputError(f"{where}: no line in which a draft was accepted")
    return from_counts(
        engine="llamacpp",
        how=f"{used} requests" if used > 1 else "1 request",
        where=where,
        drafts=passes,
        drafted=drafted,
        accepted=accepted,
    )
