"""Acceptance in files: bundled curves, their index, and the YAML that users write."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Literal, Self, cast

from pydantic import Discriminator, Field, Tag, model_validator

from roofline.acceptance.curve import (
    DEEPEST_POSITION,
    Acceptance,
    Definition,
    by_context,
    from_curve,
    from_rates,
    from_survival,
    tokens_per_step_from_rate,
)
from roofline.base import resources
from roofline.base.errors import InputError, did_you_mean
from roofline.base.names import spec_file
from roofline.base.notices import Code, Notice, notice
from roofline.base.schema import Document, PositiveInt, Schema

__all__ = [
    "ACCEPTANCE_SHELF",
    "INDEX_COLUMNS",
    "INDEX_FILE",
    "AcceptanceFile",
    "bundled_curves",
    "curve_problem",
    "dataset_id",
    "hit_rate_problem",
    "index_row",
    "index_text",
    "lengths_of",
    "load_acceptance",
    "load_file",
    "split_part",
]

Probability = Annotated[float, Field(ge=0, le=1)]
ACCEPTANCE_SHELF = "acceptance"
_FORMS = ("rate", "conditional", "survival", "tokens_per_step", "decay")


#: One conditional rate at every position, or accepted over drafted by draft length.
OneRateOrByLength = Annotated[
    Annotated[Probability, Tag("(one)")] | Annotated[dict[str, Probability], Tag("(by length)")],
    Discriminator(lambda value: "(by length)" if isinstance(value, dict) else "(one)"),
]


class Decay(Schema):
    """Conditional rates that fall by a constant factor: a_i = first * ratio^(i-1), at most 1."""

    first: Probability
    ratio: Annotated[float, Field(gt=0, le=1.2)]

    def rates(self, count: int) -> list[float]:
        """Return a_1 ... a_count."""
        return [min(self.first * self.ratio**i, 1.0) for i in range(count)]


class Curve(Schema):
    """One measurement: its conditions, and the acceptance in one of five forms."""

    dataset: str | None = None
    temperature: Annotated[float, Field(ge=0)] | None = None
    context: PositiveInt | None = None
    kv: str | None = None
    drafts: Annotated[float, Field(gt=0)] | None = None
    #: Share of passes that drafted, where a lookup found drafts in some only.
    hit_rate: Annotated[float, Field(gt=0, le=1)] | None = None
    #: Which passes were counted: all of them, or only those in which something was drafted.
    passes: Literal["all", "drafting"] = "all"
    #: Requests that the passes are of.
    requests: Annotated[float, Field(gt=0)] | None = None
    #: Drafts ended before the last position: nothing is known of longer ones.
    early_stops: bool = False
    note: str | None = None
    rate: OneRateOrByLength | None = None
    conditional: Annotated[tuple[Probability, ...], Field(min_length=1)] | None = None
    survival: Annotated[tuple[Probability, ...], Field(min_length=1)] | None = None
    tokens_per_step: dict[str, float] | None = None
    decay: Decay | None = None

    def forms(self) -> list[str]:
        """Return the names of the forms that are given."""
        return [name for name in _FORMS if getattr(self, name) is not None]

    @model_validator(mode="after")
    def _forms_hold(self) -> Curve:
        if len(self.forms()) > 1 or (type(self) is Curve and not self.forms()):
            raise ValueError(f"give exactly one of {', '.join(_FORMS)}")
        if self.tokens_per_step is not None:
            problem = curve_problem(self.tokens_per_step)
            if problem is not None:
                raise ValueError(f"tokens_per_step: {problem}")
        if isinstance(self.rate, dict):
            problem = curve_problem(self._from_accepted_over_drafted())
            if problem is not None:
                raise ValueError(f"rate: {problem}")
        if self.survival is not None and list(self.survival) != sorted(self.survival)[::-1]:
            raise ValueError("survival: must not rise from one position to the next")
        if self.hit_rate is not None and self.passes == "all" and self.forms():
            problem = hit_rate_problem(
                self.to_acceptance(label="", source="").measured, hit_rate=self.hit_rate
            )
            if problem is not None:
                raise ValueError(f"hit_rate: {problem}")
        return self

    def to_acceptance(self, *, label: str, source: str) -> Acceptance:
        """Return the acceptance, from whichever form is given."""
        if self.tokens_per_step is not None:
            curve = {int(d): al for d, al in self.tokens_per_step.items()}
            acceptance = from_curve(curve, label=label, source=source)
        elif self.survival is not None:
            acceptance = from_survival(self.survival, label=label, source=source)
        elif self.conditional is not None:
            acceptance = from_rates(self.conditional, label=label, source=source)
        elif self.decay is not None:
            rates = self.decay.rates(DEEPEST_POSITION)
            acceptance = from_rates(rates, label=label, source=source)
        elif isinstance(self.rate, dict):
            curve = {int(d): al for d, al in self._from_accepted_over_drafted().items()}
            acceptance = from_curve(curve, label=label, source=source, definition=Definition.RATE)
        else:
            rates = [self.rate or 0.0]
            acceptance = from_rates(rates, label=label, source=source, unlimited=True)
        return replace(
            acceptance,
            drafts=self.drafts,
            requests=self.requests,
            hit_rate=self.hit_rate,
            drafting_only=self.passes == "drafting",
            early_stops=self.early_stops,
        )

    def _from_accepted_over_drafted(self) -> dict[str, float]:
        """Return AL = 1 + rate * D by draft length; a key that is no length keeps its value."""
        rates = self.rate if isinstance(self.rate, dict) else {}
        return {
            key: tokens_per_step_from_rate(rate=rate, draft_length=int(key))
            if key.isdecimal()
            else rate
            for key, rate in rates.items()
        }


class AcceptanceFile(Document, Curve):
    """One curve with its origin; :class:`SeveralCurves` is a file that holds more."""

    target: str | None = None
    drafter: str | None = None
    source: str
    license: str | None = None

    @classmethod
    def check(cls, data: dict[str, Any], name: str) -> Self:
        """Validate plain data; data with ``curves`` becomes :class:`SeveralCurves`."""
        several = "curves" in data and not issubclass(cls, SeveralCurves)
        file = SeveralCurves.check(data, name) if several else super().check(data, name)
        return cast("Self", file)

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if len(self.forms()) != 1:
            raise ValueError(f"give exactly one of {', '.join(_FORMS)}, curves")
        return self

    def all_curves(self) -> tuple[Curve, ...]:
        """Return the curves, a single one included."""
        return (self,)

    def dataset_ids(self) -> list[str]:
        """Return the names by which datasets are chosen, in the file's order."""
        return list(dict.fromkeys(dataset_id(c.dataset or "") for c in self.all_curves()))

    def acceptance(
        self, name: str, *, dataset: str | None = None, kv: str | None = None
    ) -> Acceptance:
        """Return the acceptance on one dataset, over its contexts, for a KV format."""
        curves, notices = _for_kv(self._of_dataset(name, dataset), kv, name)
        label = self.drafter or name
        if self.target:
            label += f" of {self.target}"
        if curves[0].dataset or self.dataset:
            label += f" on {curves[0].dataset or self.dataset}"
        acceptances = [
            (curve.context, curve.to_acceptance(label=label, source=self.source))
            for curve in curves
        ]
        with_context = [(context, each) for context, each in acceptances if context is not None]
        if len(with_context) not in (0, len(acceptances)):
            raise InputError(f"{name}: some curves of one dataset have a context and some have not")
        acceptance = acceptances[0][1]
        if with_context:
            acceptance = by_context(with_context, label=label, source=self.source)
        targets = (self.target,) if self.target else ()
        return replace(acceptance, targets=targets, notices=notices)

    def _of_dataset(self, name: str, dataset: str | None) -> list[Curve]:
        known = self.dataset_ids()
        if dataset is None and len(known) > 1:
            raise InputError(
                f"{name}: holds several datasets; say which, as {name}#{known[0]}: "
                + ", ".join(known)
            )
        wanted = known[0] if dataset is None else dataset_id(dataset)
        if wanted not in known:
            raise InputError(f"{name}: has no dataset '{dataset}': {did_you_mean(wanted, known)}")
        return [c for c in self.all_curves() if dataset_id(c.dataset or "") == wanted]


class SeveralCurves(AcceptanceFile):
    """Several ``curves`` of one origin, by dataset, context or KV format."""

    curves: Annotated[tuple[Curve, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if self.forms():
            raise ValueError(f"give exactly one of {', '.join(_FORMS)}, curves")
        keys = [(c.dataset, c.context, c.kv) for c in self.curves]
        if len(set(keys)) != len(keys):
            raise ValueError("curves: two of them have the same dataset, context and kv")
        return self

    def all_curves(self) -> tuple[Curve, ...]:
        """Return the curves."""
        return self.curves


def _for_kv(
    curves: Sequence[Curve], kv: str | None, name: str
) -> tuple[list[Curve], tuple[Notice, ...]]:
    """Return the curves of a KV format, else those that name none, else those like the first."""
    for wanted in (kv, None):
        matching = [curve for curve in curves if curve.kv == wanted]
        if matching:
            return matching, ()
    counted = curves[0].kv
    notices: tuple[Notice, ...] = ()
    if kv is not None:
        notices = (notice(Code.COUNTED_WITH_ANOTHER_KV, name=name, counted=counted, asked=kv),)
    return [curve for curve in curves if curve.kv == counted], notices


def curve_problem(curve: dict[str, float]) -> str | None:
    """Return the problem with a curve, None where every AL lies in 1 ... 1 + D."""
    if len({int(key) for key in curve if key.isdecimal()}) != len(curve):
        return "a draft length is given twice or is not a number"
    for key, value in curve.items():
        if not key.isdecimal() or not 1 <= int(key) <= 256:
            return f"expected a draft length from 1 to 256, got '{key}'"
        if not 1 <= value <= 1 + int(key):
            return (
                f"D={key} must have 1 to {1 + int(key)} tokens per step (bonus token included), "
                f"got {value}"
            )
    return None if curve else "expected at least one draft length"


#: Share by which a survival may exceed its hit rate: both may be rounded to two decimals.
ROUNDED_SHARES = 0.01


def hit_rate_problem(curve: Mapping[int, float], *, hit_rate: float) -> str | None:
    """Return the problem of a hit rate below the survival of a curve over all passes, else None.

    A draft is accepted in no more passes than it was made in: (AL(e) - AL(d)) / (e - d) <= h
    between neighbouring D of the curve.

    >>> hit_rate_problem({0: 1.0, 1: 1.5, 2: 1.9}, hit_rate=0.5) is None
    True
    >>> str(hit_rate_problem({0: 1.0, 1: 1.5, 2: 1.9}, hit_rate=0.3)).partition(",")[0]
    'draft 1 is accepted in 0.5 of the passes'
    """
    for first, second in pairwise(sorted(curve)):
        accepted = (curve[second] - curve[first]) / (second - first)
        if accepted > hit_rate + ROUNDED_SHARES:
            which = f"draft {second}" if second == first + 1 else f"drafts {first + 1} to {second}"
            verb = "is" if second == first + 1 else "are"
            return (
                f"{which} {verb} accepted in {accepted:.3g} of the passes, so at least as many "
                f"have one, got {hit_rate:g}; 'passes: drafting' marks shares of those alone"
            )
    return None


def dataset_id(dataset: str) -> str:
    """Return the name by which a dataset is chosen.

    >>> dataset_id("SPEED-Bench coding, 1k")
    'speed-bench-coding-1k'
    """
    return re.sub(r"[^a-z0-9.]+", "-", dataset.lower()).strip("-")


def split_part(reference: str) -> tuple[str, str | None]:
    """Split ``SOURCE#PART``.

    >>> split_part("qwen3-8b-dspark#gsm8k")
    ('qwen3-8b-dspark', 'gsm8k')
    """
    name, mark, part = reference.partition("#")
    return name, part if mark else None


def load_file(reference: str) -> tuple[str, AcceptanceFile]:
    """Load a bundled file by id, or a YAML file by path; return its name too."""
    file = spec_file(reference, ACCEPTANCE_SHELF, "acceptance curve")
    return file.name, AcceptanceFile.load(file)


def load_acceptance(reference: str, *, kv: str | None = None) -> Acceptance:
    """Load the curve that ``ID``, ``ID#DATASET`` or a YAML file's path names."""
    where, dataset = split_part(reference.strip())
    name, file = load_file(where)
    if not where.endswith((".yaml", ".yml")):
        name = name.removesuffix(".yaml")
    return file.acceptance(name, dataset=dataset, kv=kv)


INDEX_FILE = "index.csv"
INDEX_COLUMNS = (
    "id",
    "target",
    "drafter",
    "datasets",
    "draft_lengths",
    "contexts",
    "temperature",
    "license",
    "source",
)


def bundled_curves() -> list[dict[str, str]]:
    """Return one row per bundled file, from the index alone."""
    return [dict(row) for row in _index_rows()]


@cache
def _index_rows() -> tuple[dict[str, str], ...]:
    """Return the index, read once in a process."""
    text = (resources.shelf(ACCEPTANCE_SHELF) / INDEX_FILE).read_text("utf-8")
    return tuple(csv.DictReader(io.StringIO(text)))


def lengths_of(row: dict[str, str]) -> list[int]:
    """Return the draft lengths that a row of the index states.

    >>> lengths_of({"draft_lengths": "1-3 7"})
    [1, 2, 3, 7]
    """
    ends = [run.partition("-") for run in row["draft_lengths"].split()]
    return [d for first, _, last in ends for d in range(int(first), int(last or first) + 1)]


def index_text() -> str:
    """Return the text of the index, made from the files."""
    names = resources.bundled_names(ACCEPTANCE_SHELF)
    rows = [{"id": name} | index_row(load_file(name)[1]) for name in names]
    out = io.StringIO()
    writer = csv.DictWriter(out, INDEX_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def index_row(file: AcceptanceFile) -> dict[str, Any]:
    """Return the row of one file in the index, without its id."""
    acceptances = [curve.to_acceptance(label="", source="") for curve in file.all_curves()]
    lengths = {d for acceptance in acceptances for d in acceptance.measured if d > 0}
    return {
        "target": file.target,
        "drafter": file.drafter,
        "datasets": _unique_words(file.dataset_ids()),
        "draft_lengths": _ranges(sorted(lengths)),
        "contexts": _unique_words(str(c.context) for c in file.all_curves() if c.context),
        "temperature": _unique_words(
            f"{c.temperature:g}" for c in file.all_curves() if c.temperature is not None
        ),
        "license": file.license,
        "source": file.source,
    }


def _unique_words(words: Iterable[str]) -> str:
    return " ".join(dict.fromkeys(words))


def _ranges(numbers: list[int]) -> str:
    """Return sorted numbers with runs joined.

    >>> _ranges([1, 2, 3, 7])
    '1-3 7'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return " ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
