"""Prometheus pages: the lines of some series, since the start or between two reads."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from roofline.base.errors import InputError, did_you_mean

__all__ = [
    "Page",
    "Sample",
    "checked",
    "counted_between",
    "is_page",
    "parse_lines",
    "printable",
]

#: Longest label that is kept; a model's name has fewer characters.
LONGEST_LABEL = 200
#: Limits on the lines of an engine's series that no page of one engine reaches.
MOST_LINES, LONGEST_LINE = 20_000, 16_384
#: How the names of series end that only grow.
COUNTED = ("_total", "_sum", "_count")
Series = tuple[str, tuple[tuple[str, str], ...]]
#: A line that only a page has, and any line of a sample. "Drafts: 12" is none: no name of a series
#: ends with a colon.
_CERTAIN = re.compile(r"^(?:# (?:HELP|TYPE) \S+ |[A-Za-z_:][\w:]*\{.*\}[ \t]+\S)", re.MULTILINE)
_SAMPLE = re.compile(r"[A-Za-z_:][\w:]*(?<!:)[ \t]+[-+]?(?:\d[\d.eE+-]*|NaN|Inf)(?:[ \t]+-?\d+)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One line of a page."""

    name: str
    labels: Mapping[str, str]
    value: float

    @property
    def series(self) -> Series:
        """What tells it from every other line."""
        return self.name, tuple(sorted(self.labels.items()))


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """The lines of one page that are read."""

    where: str
    samples: tuple[Sample, ...]
    how: str = "counters since its start"

    @property
    def is_difference(self) -> bool:
        """Whether counters are what happened between two reads."""
        return "between" in self.how

    def of(self, *names: str) -> list[Sample]:
        """Return the lines of one series under any of its names."""
        return [sample for sample in self.samples if sample.name in names]

    def total(self, *names: str) -> float | None:
        """Return the sum of a series over its engines and other labels, None where it is missing.

        Data-parallel ranks are separate lines of one model and are added up.
        """
        samples = self.of(*names)
        return sum(checked(sample, self.where) for sample in samples) if samples else None

    def first_total(self, *names: str) -> float | None:
        """Return the sum of a series under the first of its names that is there.

        A page may show one histogram under its old and its new name.
        """
        totals = (self.total(name) for name in names)
        return next((total for total in totals if total is not None), None)

    def needed(self, *names: str) -> float:
        """Return the sum of a series that must be there."""
        total = self.total(*names)
        if total is None:
            raise InputError(f"the page has no {names[0]}", where=self.where)
        return total

    def mean(self, name: str) -> float | None:
        """Return the mean of a gauge over the ranks that show one; 0 means off."""
        values = [checked(sample, self.where) for sample in self.of(name)]
        active = [value for value in values if value > 0]
        return sum(active) / len(active) if active else (0.0 if values else None)

    def by_label(self, label: str, *names: str) -> list[float]:
        """Return sums by the whole numbers 0, 1, ... of a label, without gaps."""
        sums: dict[int, float] = {}
        for sample in self.of(*names):
            key = sample.labels.get(label, "")
            if key.isdecimal() and len(key) < 16:
                sums[int(key)] = sums.get(int(key), 0.0) + checked(sample, self.where)
        if sorted(sums) != list(range(len(sums))):
            raise InputError(
                f"{names[0]} lacks a {label} between 0 and {max(sums)}", where=self.where
            )
        return [sums[key] for key in sorted(sums)]

    def for_model(self, model: str | None, drafts: str) -> tuple[Page, str | None]:
        """Return the lines of one model, and its name; ask which where several draft.

        ``drafts`` is how the series begin that count drafts.
        """
        drafting = [sample for sample in self.samples if sample.name.startswith(drafts)]
        names = sorted({sample.labels.get("model_name", "") for sample in drafting})
        if model is None and len(names) > 1:
            raise InputError(
                f"holds {len(names)} models; say which, as {self.where}#{names[0]}: "
                + ", ".join(names),
                where=self.where,
            )
        wanted = names[0] if model is None else model
        if wanted not in names:
            raise InputError(
                f"no model '{wanted}': {did_you_mean(wanted, names)}", where=self.where
            )
        kept = [s for s in self.samples if s.labels.get("model_name", "") == wanted]
        return replace(self, samples=tuple(kept)), wanted or None


def checked(sample: Sample, where: str) -> float:
    """Return the value of a line; refuse one that is no count or gauge of at least 0."""
    if not math.isfinite(sample.value) or sample.value < 0:
        raise InputError(f"{sample.name} is {sample.value:g}, which is no count", where=where)
    return sample.value


def is_page(text: str) -> bool:
    """Return whether a text is a Prometheus page: one line that nothing else has, or all samples.

    >>> is_page('up{job="x"} 1'), is_page("up 1"), is_page("Drafts: 12"), is_page("<html>")
    (True, True, False, False)
    """
    if _CERTAIN.search(text) is not None:
        return True
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    samples = [line for line in lines if not line.startswith("#")]
    return bool(samples) and all(_SAMPLE.fullmatch(line) for line in samples)


def parse_lines(text: str, where: str, prefixes: tuple[str, ...]) -> Page:
    """Return the lines of a page whose series begin with one of ``prefixes``; there may be none."""
    from prometheus_client.parser import text_string_to_metric_families

    kept = [line for line in text.splitlines() if line.startswith(prefixes)]
    if len(kept) > MOST_LINES or any(len(line) > LONGEST_LINE for line in kept):
        raise InputError(
            f"expected at most {MOST_LINES} lines of up to {LONGEST_LINE} characters of "
            "an engine's series; this is no page of one engine",
            where=where,
        )
    try:
        samples = [
            Sample(
                name=sample.name,
                labels={name: printable(value) for name, value in sample.labels.items()},
                value=sample.value,
            )
            for family in text_string_to_metric_families("\n".join(kept) + "\n")
            for sample in family.samples
        ]
    except ValueError as error:
        reason = str(error).splitlines()[0][:80] if str(error) else "a line cannot be read"
        raise InputError(f"not a Prometheus page: {printable(reason)}", where=where) from None
    unique = {sample.series: sample for sample in samples}
    return Page(where=where, samples=tuple(unique.values()))


def printable(text: str) -> str:
    r"""Return a server's text fit for a terminal: no control characters, at most 200 long.

    >>> printable("qwen\x1b[2J")
    'qwen?[2J'
    """
    short = text if len(text) <= LONGEST_LABEL else text[:LONGEST_LABEL] + "..."
    return "".join(c if c.isprintable() else "?" for c in short)


def counted_between(later: Page, earlier: Page, *, how: str) -> Page:
    """Return what was counted between two reads of one page; gauges keep their later value."""
    before = {sample.series: sample.value for sample in earlier.samples}
    return replace(
        later, how=how, samples=tuple(_growth(s, before, later.where) for s in later.samples)
    )


def _growth(sample: Sample, before: Mapping[Series, float], where: str) -> Sample:
    """Return a line with what its counter gained since ``before``; a gauge as it is."""
    if sample.name.endswith("_created") and sample.series in before:
        if sample.value != before[sample.series]:
            raise InputError(
                "the engine was restarted between the two reads; read again", where=where
            )
        return sample
    if not sample.name.endswith(COUNTED):
        return sample
    gain = sample.value - before.get(sample.series, 0.0)
    if gain < 0:
        raise InputError(
            f"{sample.name} fell from {before.get(sample.series, 0.0):g} to {sample.value:g}: the "
            "engine was restarted between the two reads; read again",
            where=where,
        )
    return replace(sample, value=gain)
