"""Acceptance as files hold it and as users type it: bundled curves, their index, rates."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Self, cast

from pydantic import Field, model_validator

from roofline.acceptance.curve import (
    Acceptance,
    by_context,
    from_curve,
    from_rates,
    from_survival,
    rise,
)
from roofline.base import resources
from roofline.base.errors import InputError, did_you_mean
from roofline.base.notices import Code, Notice, notice
from roofline.base.numbers import LONGEST_DRAFT
from roofline.base.schema import Document, PositiveInt, Schema

__all__ = [
    "COLUMNS",
    "INDEX",
    "SHELF",
    "AcceptanceFile",
    "bundled",
    "index_text",
    "lengths_of",
    "load_acceptance",
    "load_file",
    "parse_acceptance",
    "part_name",
    "split_part",
    "summary",
]

Probability = Annotated[float, Field(ge=0, le=1)]
SHELF = "acceptance"
_FORMS = ("rate", "conditional", "survival", "tokens_per_step", "decay")


class Decay(Schema):
    """Conditional rates that fall by a constant factor: a_i = first * ratio^(i-1), at most 1."""

    first: Probability
    ratio: Annotated[float, Field(gt=0, le=1.2)]

    def rates(self, count: int) -> list[float]:
        """Return a_1 ... a_count."""
        return [min(self.first * self.ratio**i, 1.0) for i in range(count)]


class Curve(Schema):
    """One measurement: what it was taken on, and the acceptance in one of five forms."""

    dataset: str | None = None
    temperature: Annotated[float, Field(ge=0)] | None = None
    context: PositiveInt | None = None
    kv: str | None = None
    drafts: Annotated[float, Field(gt=0)] | None = None
    note: str | None = None
    rate: Probability | None = None
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
            wrong = wrong_curve(self.tokens_per_step)
            if wrong is not None:
                raise ValueError(f"tokens_per_step: {wrong}")
        if self.survival is not None and list(self.survival) != sorted(self.survival)[::-1]:
            raise ValueError("survival: must not rise from one position to the next")
        return self

    def read(self, *, label: str, source: str) -> Acceptance:
        """Return what the curve says."""
        if self.tokens_per_step is not None:
            curve = {int(d): al for d, al in self.tokens_per_step.items()}
            made = from_curve(curve, label=label, source=source)
        elif self.survival is not None:
            made = from_survival(self.survival, label=label, source=source)
        elif self.conditional is not None:
            made = from_rates(self.conditional, label=label, source=source)
        elif self.decay is not None:
            made = from_rates(self.decay.rates(LONGEST_DRAFT), label=label, source=source)
        else:
            made = from_rates([self.rate or 0.0], label=label, source=source, unlimited=True)
        return replace(made, drafts=self.drafts)


class AcceptanceFile(Document, Curve):
    """One curve with its origin; :class:`SeveralCurves` is a file that holds more."""

    target: str | None = None
    drafter: str | None = None
    source: str
    license: str | None = None

    @classmethod
    def check(cls, data: dict[str, Any], name: str) -> Self:
        """Validate plain data; a file with ``curves`` has the larger schema."""
        larger = "curves" in data and not issubclass(cls, SeveralCurves)
        made = SeveralCurves.check(data, name) if larger else super().check(data, name)
        return cast("Self", made)

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if len(self.forms()) != 1:
            raise ValueError(f"give exactly one of {', '.join(_FORMS)}, curves")
        return self

    def all_curves(self) -> tuple[Curve, ...]:
        """Return the curves, a single one included."""
        return (self,)

    def parts(self) -> list[str]:
        """Return the names by which its datasets are chosen, in the file's order."""
        return list(dict.fromkeys(part_name(c.dataset or "") for c in self.all_curves()))

    def acceptance(
        self, name: str, *, part: str | None = None, kv: str | None = None
    ) -> Acceptance:
        """Return the curve of one dataset, over its contexts, for a KV format."""
        chosen, notices = _for_kv(self._of_dataset(name, part), kv, name)
        dataset = chosen[0].dataset or self.dataset
        told = [self.target and f"of {self.target}", dataset and f"on {dataset}"]
        label = " ".join([self.drafter or name, *filter(None, told)])
        made = [(curve.context, curve.read(label=label, source=self.source)) for curve in chosen]
        known = [(context, curve) for context, curve in made if context is not None]
        if len(known) not in (0, len(made)):
            raise InputError(f"{name}: some curves of one dataset have a context and some have not")
        found = by_context(known, label=label, source=self.source) if known else made[0][1]
        found = replace(found, targets=(self.target,) if self.target else ())
        return replace(found, notices=notices)

    def _of_dataset(self, name: str, part: str | None) -> list[Curve]:
        names = self.parts()
        if part is None and len(names) > 1:
            raise InputError(
                f"{name}: holds several datasets; say which, as {name}#{names[0]}: "
                + ", ".join(names)
            )
        wanted = names[0] if part is None else part_name(part)
        if wanted not in names:
            raise InputError(f"{name}: has no dataset '{part}': {did_you_mean(wanted, names)}")
        return [c for c in self.all_curves() if part_name(c.dataset or "") == wanted]


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
    """Return the curves measured with a KV format, else those that name none, else the first."""
    for wanted in (kv, None):
        fitting = [curve for curve in curves if curve.kv == wanted]
        if fitting:
            return fitting, ()
    kept = curves[0].kv
    notices: tuple[Notice, ...] = ()
    if kv is not None:
        notices = (notice(Code.COUNTED_WITH_ANOTHER_KV, name=name, counted=kept, asked=kv),)
    return [curve for curve in curves if curve.kv == kept], notices


def wrong_curve(curve: dict[str, float]) -> str | None:
    """Return what is wrong with a curve: every AL lies in 1 ... 1 + D."""
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


def part_name(dataset: str) -> str:
    """Return the name by which a dataset is chosen.

    >>> part_name("SPEED-Bench coding, 1k")
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
    file = resources.spec_file(reference, SHELF, "acceptance curve")
    return file.name, AcceptanceFile.load(file)


def load_acceptance(reference: str, *, kv: str | None = None) -> Acceptance:
    """Load the curve that ``ID``, ``ID#DATASET`` or a YAML file's path names."""
    where, part = split_part(reference)
    name, content = load_file(where)
    if not where.endswith((".yaml", ".yml")):
        name = name.removesuffix(".yaml")
    return content.acceptance(name, part=part, kv=kv)


INDEX = "index.csv"
COLUMNS = (
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


def bundled() -> list[dict[str, str]]:
    """Return one row per bundled file, from the index alone."""
    return [dict(row) for row in _rows()]


@cache
def _rows() -> tuple[dict[str, str], ...]:
    """Return the index, read once in a process."""
    text = (resources.shelf(SHELF) / INDEX).read_text("utf-8")
    return tuple(csv.DictReader(io.StringIO(text)))


def lengths_of(row: dict[str, str]) -> list[int]:
    """Return the draft lengths that a row of the index states.

    >>> lengths_of({"draft_lengths": "1-3 7"})
    [1, 2, 3, 7]
    """
    ends = [run.partition("-") for run in row["draft_lengths"].split()]
    return [d for first, _, last in ends for d in range(int(first), int(last or first) + 1)]


def index_text() -> str:
    """Return the index made from the files themselves."""
    names = resources.bundled_names(SHELF)
    rows = [{"id": name} | summary(load_file(name)[1]) for name in names]
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def summary(file: AcceptanceFile) -> dict[str, Any]:
    """Return what the list says about one file."""
    curves = [curve.read(label="", source="") for curve in file.all_curves()]
    lengths = {d for curve in curves for d in curve.table if d > 0}
    return {
        "target": file.target,
        "drafter": file.drafter,
        "datasets": _joined(file.parts()),
        "draft_lengths": _ranges(sorted(lengths)),
        "contexts": _joined(str(c.context) for c in file.all_curves() if c.context),
        "temperature": _joined(
            f"{c.temperature:g}" for c in file.all_curves() if c.temperature is not None
        ),
        "license": file.license,
        "source": file.source,
    }


def _joined(words: Iterable[str]) -> str:
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
    return " ".join(f"{r[0]}-{r[-1]}" if len(r) > 1 else str(r[0]) for r in runs)


#: How far survival may rise by chance: gains of three runs of some 1000 passes, twice their error.
NOISE = 0.2
_SURVIVAL = ("pos", "survival")
_CONDITIONAL = ("cond", "conditional")


def parse_acceptance(text: str) -> Acceptance:
    """Read acceptance as it is given: a rate, rates by position, an ``al:`` curve, or a YAML file.

    Rates by position are survival S_i where they stand alone, for that is what engines print, or
    after ``pos:``; after ``cond:`` they are conditional rates a_i.

    >>> parse_acceptance("al:2=2.36,3=2.79").table
    {0: 1.0, 2: 2.36, 3: 2.79}
    >>> round(parse_acceptance("0.72,0.45,0.21").table[3], 3)  # 1 + 0.72 + 0.45 + 0.21
    2.38
    >>> round(parse_acceptance("cond:0.8,0.7,0.6").table[3], 3)  # 1 + 0.8 + 0.56 + 0.336
    2.696
    """
    if text.endswith((".yaml", ".yml")):
        return load_acceptance(text)
    form, colon, body = text.partition(":")
    form = form.strip().lower() if colon else ""
    if form == "al":
        return _tokens_per_step(text, body)
    if form in _CONDITIONAL:
        rates = _rates(text, body)
        return from_rates(rates, label=f"conditional rates {_listed(rates)}", source="given")
    if form in _SURVIVAL:
        return _survival(text, _rates(text, body))
    rates = _rates(text, text)
    if len(rates) > 1:
        return _bare(text, rates)
    label = f"rate {text} at every position"
    return from_rates(rates, label=label, source="given", unlimited=True)


def _tokens_per_step(text: str, body: str) -> Acceptance:
    curve = parse_curve(body)
    wrong = wrong_curve({str(d): al for d, al in curve.items()})
    if wrong is not None:
        raise InputError(wrong, field="acceptance")
    risen = rise(curve, beyond=NOISE)
    if risen is not None:
        raise InputError(
            f"survival rises from {risen.before:.2f} at D={risen.first} to "
            f"{risen.after:.2f} at D={risen.second}, which it cannot",
            field="acceptance",
            value=text,
        )
    points = ", ".join(f"{al:g} at D={d}" for d, al in sorted(curve.items()))
    return from_curve(curve, label=f"tokens per step {points}", source="given")


def _bare(text: str, rates: Sequence[float]) -> Acceptance:
    """Read a list that does not say what it is: survival, and a warning says so.

    Equal rates are refused unless both readings agree: a drafter whose later drafts are never
    rejected is rarer than a reader who repeats one conditional rate.
    """
    survival = _survival(text, rates)
    conditional = from_rates(rates)
    deepest = survival.deepest
    if math.isclose(survival.table[deepest], conditional.table[deepest]):
        return survival
    if len(set(rates)) == 1:
        raise InputError(
            f"equal rates are either survival by position, as engines print it (pos:{text}, "
            f"{survival.table[deepest]:.4g} tokens per step at D={deepest}), or conditional "
            f"(cond:{text}, {conditional.table[deepest]:.4g}); write which",
            field="acceptance",
            value=text,
        )
    return replace(survival, notices=(notice(Code.READ_AS_SURVIVAL, rates=text),))


def _survival(text: str, rates: Sequence[float]) -> Acceptance:
    for position, (before, after) in enumerate(pairwise(rates), start=2):
        if after > before:
            raise InputError(
                f"rates that rise ({before:g} to {after:g} at position {position}) cannot be "
                "survival by position (pos:), as engines print it; where they are conditional, "
                f"write cond:{text.rpartition(':')[2]}",
                field="acceptance",
                value=text,
            )
    label = f"survival by position {_listed(rates)}"
    return from_survival(rates, label=label, source="given")


def _listed(rates: Sequence[float]) -> str:
    return ", ".join(f"{rate:g}" for rate in rates)


def _rates(text: str, body: str) -> list[float]:
    """Return rates of 0 to 1."""
    rates = [_number(item) for item in body.split(",")]
    for rate in rates:
        if not 0 <= rate <= 1:
            raise InputError(
                f"a rate lies between 0 and 1, got {rate:g}; for tokens per step write al:1.8,2.4",
                field="acceptance",
                value=text,
            )
    return rates


def parse_curve(body: str) -> dict[int, float]:
    """Read ``1.8,2.4`` or ``2=2.36,3=2.79`` as AL by draft length."""
    curve: dict[int, float] = {}
    for position, item in enumerate(body.split(","), start=1):
        key, equals, value = item.rpartition("=")
        draft_length = position
        if equals:
            key = key.strip()
            if not key.isdecimal() or len(key) > 6:
                raise InputError(f"expected 'al:2=2.36,3=2.79', got '{item}'", field="acceptance")
            draft_length = int(key)
        if draft_length in curve:
            raise InputError(f"draft length {draft_length} is given twice", field="acceptance")
        curve[draft_length] = _number(value)
    return curve


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    percent = re.fullmatch(r"(\d{1,2}(?:\.\d{1,6})?|100) ?%", text.strip())
    if percent is not None:
        rate = float(percent[1]) / 100
        raise InputError(
            f"rates are shares of 1 here; write {rate:g}", field="acceptance", value=text
        )
    if not math.isfinite(value):
        raise InputError(
            "expected a rate (0.8), survival by position (0.8,0.56), conditional rates "
            "(cond:0.8,0.7), a curve (al:1.8,2.4), the id of a bundled curve (roofline acceptance "
            f"list), a mix (mix:0.7*A,0.3*B), a file or an http address, got '{text}'",
            field="acceptance",
        )
    return value
