"""The bundled curve that is taken where none is given, and notices of doubtful curves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import cache
from itertools import pairwise
from typing import Annotated, NamedTuple

from pydantic import Field

from roofline.acceptance.curve import Acceptance, Origin, survival_rise, weighted_mean
from roofline.acceptance.files import ACCEPTANCE_SHELF, bundled_curves, lengths_of, load_file
from roofline.base import resources
from roofline.base.names import bundled_id
from roofline.base.notices import Code, Notice, notice
from roofline.base.schema import Document, Schema

__all__ = [
    "Closeness",
    "DefaultAcceptance",
    "bare_name",
    "choose_curve",
    "closest_curves",
    "curve_notices",
    "default_acceptance",
    "default_rules",
    "filled_notices",
    "same_model",
    "single_rate_ratio",
]


#: Endings of a model's name that say how its weights are stored.
_STORAGE_SUFFIX = re.compile(r"(nvfp4|mxfp4|fp8|fp4|int8|int4|bf16|awq|gptq|gguf|dspark)$")


def curve_notices(curve: Acceptance, *, model: Iterable[str], longest: int) -> list[Notice]:
    """Return the notices of a curve for a model of these names, drafted up to ``longest``."""
    names = list(model)
    others = [t for t in curve.targets if not any(same_model(t, name) for name in names)]
    notices = [
        notice(Code.COUNTED_ON_ANOTHER_MODEL, label=curve.label, counted=other, model=names[0])
        for other in dict.fromkeys(others)
    ]
    fall = _first_fall(curve.measured, longest)
    if fall is not None:
        first, second = fall
        notices.append(
            notice(
                Code.TOKENS_PER_STEP_FALL,
                label=curve.label,
                first=first,
                second=second,
                before=curve.table[first],
                after=curve.table[second],
            )
        )
    rise = survival_rise({d: al for d, al in curve.measured.items() if d <= longest})
    if rise is not None:
        notices.append(rise.notice(f"acceptance of {curve.label}"))
    return notices


def filled_notices(curve: Acceptance, *, longest: int) -> list[Notice]:
    """Return the notice of the draft lengths up to ``longest`` that were not measured."""
    lengths = tuple(curve.filled_up_to(longest))
    return [notice(Code.GAPS_FILLED, label=curve.label, lengths=lengths)] if lengths else []


def same_model(one: str, other: str) -> bool:
    """Return whether two names are of one model, in whatever format its weights are stored.

    >>> same_model("Llama-3.1-8B-Instruct", "meta-llama/Meta-Llama-3.1-8B-FP8")
    True
    >>> same_model("Qwen3.8-27B UD-Q4_K_XL", "qwen3.8-27b-fp8")
    True
    >>> same_model("Qwen3-8B", "qwen3-14b")
    False
    """
    first, second = bare_name(one), bare_name(other)
    return first in second or second in first


def bare_name(name: str) -> str:
    """Return a name without owner, remarks, storage formats and hyphens.

    >>> bare_name("Qwen/Qwen3-Next-80B-A3B-Instruct-FP8")
    'qwen3next80ba3binstruct'
    """
    word = re.split(r"[ ,(]", name.rsplit("/", 1)[-1].lower(), maxsplit=1)[0]
    parts = re.split(r"[-_]", word)
    while len(parts) > 1 and _STORAGE_SUFFIX.fullmatch(parts[-1]):
        parts.pop()
    return "".join(part for part in parts if part != "meta")


def _first_fall(table: Mapping[int, float], longest: int) -> tuple[int, int] | None:
    """Return the first two neighbouring draft lengths between which tokens per step fall."""
    lengths = sorted(d for d in table if d <= longest)
    for first, second in pairwise(lengths):
        if table[second] < table[first]:
            return first, second
    return None


#: The ratio of ``difflib.SequenceMatcher`` from which on two names are close.
CLOSE_RATIO = 0.7
#: The default ``max_draft_length``; curves are ranked by the draft lengths up to it.
DEEPEST_RANKED = 8


class Closeness(StrEnum):
    """How close a curve is to the drafter that it is taken for, closest first."""

    OWN = "own"  # measured with this drafter
    SAME = "same"  # measured with this kind of drafter on this model, or on one of the same base
    KIN = "kin"  # measured with this kind on a stated relative
    STAND_IN = "stand-in"  # measured with this kind on any model


class OneRate(Schema):
    """How conditional rates fall where only the first is known."""

    fall: Annotated[float, Field(gt=0, le=1)]


class DefaultRules(Document):
    """The rules of ``acceptance_defaults.yaml``."""

    kinds: dict[str, tuple[str, ...]]
    chat: tuple[str, ...]
    left_out: tuple[str, ...]
    same: tuple[tuple[str, ...], ...]
    kin: dict[str, str]
    stand_in: dict[str, str]
    one_rate: OneRate

    def equals(self, names: Iterable[str]) -> set[str]:
        """Return the bare names of the models called ``names`` and of those of the same base."""
        bare = {bare_name(_model_id(name)) for name in names}
        groups = [{bare_name(name) for name in group} for group in self.same]
        return bare.union(*(group for group in groups if group & bare))

    def relatives(self, names: Iterable[str]) -> set[str]:
        """Return the bare names of the stated relatives of the models called ``names``."""
        equals = self.equals(names)
        return self.equals(kin for name, kin in self.kin.items() if bare_name(name) in equals)


class CurveChoice(NamedTuple):
    """A curve chosen for a drafter: a bundled id, and a dataset where the file has several."""

    closeness: Closeness
    id: str
    dataset: str | None = None
    general: bool = True  # a chat dataset, or none stated

    @property
    def reference(self) -> str:
        """The text that names the curve as an acceptance."""
        return f"{self.id}#{self.dataset}" if self.dataset else self.id


class DefaultAcceptance(NamedTuple):
    """The acceptance taken where none is given, with its notices."""

    closeness: Closeness
    curve: Acceptance
    notices: tuple[Notice, ...]


@cache
def default_rules() -> DefaultRules:
    """Return the shipped rules."""
    return DefaultRules.load(resources.data_file("acceptance_defaults.yaml"))


def single_rate_ratio() -> float:
    """Return the ratio of neighbouring conditional rates where only one rate is known."""
    return default_rules().one_rate.fall


def choose_curve(kind: str, drafter: str, models: Sequence[str]) -> CurveChoice | None:
    """Choose the bundled curve for a drafter of this kind and name; None where there is none.

    ``models`` are the names of its target, the one that the user gave first.

    >>> choose_curve("eagle3", "llama-3.1-8b-eagle3", ["llama-3.1-8b"]).closeness.value
    'own'
    >>> choose_curve("mtp", "deepseek-v3-mtp", ["deepseek-v3"]).reference
    'deepseek-r1-mtp'
    """
    if drafter in resources.bundled_names(ACCEPTANCE_SHELF):
        (row,) = (row for row in bundled_curves() if row["id"] == drafter)
        return _choice(row, Closeness.OWN)
    if kind not in default_rules().kinds:
        return None
    searches = [(Closeness.SAME, default_rules().equals([name])) for name in models]
    searches.append((Closeness.KIN, default_rules().relatives(models)))
    for closeness, targets in searches:
        rows = [
            row for row in _rows_of_kind(kind) if bare_name(_model_id(row["target"])) in targets
        ]
        if rows:
            return _choice(min(rows, key=_rank), closeness)
    stand_in = default_rules().stand_in.get(kind)
    return CurveChoice(closeness=Closeness.STAND_IN, id=stand_in) if stand_in else None


def default_acceptance(
    kind: str, drafter: str, models: Sequence[str], *, kv: str | None = None
) -> DefaultAcceptance | None:
    """Return the acceptance of a drafter where none is given; None where none is bundled."""
    choice = choose_curve(kind, drafter, models)
    if choice is None:
        return None
    curve = replace(_loaded(choice, kv), origin=_ORIGINS[choice.closeness])
    notices = [
        notice(
            Code.ACCEPTANCE_ASSUMED,
            closeness=choice.closeness,
            reference=choice.reference,
            label=curve.label,
            source=curve.source,
            general=choice.general,
        )
    ]
    if choice.closeness in (Closeness.KIN, Closeness.STAND_IN):
        notices.append(
            notice(
                Code.ACCEPTANCE_STANDS_IN,
                drafter=drafter,
                label=curve.label,
                closest=tuple(closest_curves(kind, models)),
            )
        )
        curve = replace(curve, label=f"{curve.label}, standing in for {drafter}")
    return DefaultAcceptance(closeness=choice.closeness, curve=curve, notices=tuple(notices))


_ORIGINS = {
    Closeness.OWN: Origin.SAME_MODEL,
    Closeness.SAME: Origin.SAME_MODEL,
    Closeness.KIN: Origin.OTHER_MODEL,
    Closeness.STAND_IN: Origin.OTHER_MODEL,
}


def closest_curves(kind: str, models: Sequence[str], *, count: int = 3) -> list[str]:
    """Return the ids of this kind's curves whose targets' names are closest to the model's.

    >>> closest_curves("eagle3", ["llama-3.1-70b"])[0]
    'llama-3.3-70b-eagle3-by-context'
    """
    from difflib import SequenceMatcher

    if kind not in default_rules().kinds:
        return []
    names = [bare_name(name) for name in models]
    curves = []
    for row in _rows_of_kind(kind):
        target = bare_name(row["target"])
        ratio = max(SequenceMatcher(None, name, target).ratio() for name in names)
        if ratio >= CLOSE_RATIO:
            curves.append((-ratio, row["id"]))
    return [name for _, name in sorted(curves)[:count]]


def _model_id(name: str) -> str:
    """Return the bundled id of a model however its name is written, else the name itself."""
    plain = name.split(" ", 1)[0].rsplit("/", 1)[-1].lower()
    return bundled_id(plain, "model_specs") or plain


def _rows_of_kind(kind: str) -> list[dict[str, str]]:
    words, left_out = default_rules().kinds[kind], default_rules().left_out
    return [
        row for row in bundled_curves() if row["drafter"] in words and row["id"] not in left_out
    ]


def _chat_dataset(row: dict[str, str]) -> tuple[int, str | None]:
    """Return the preferred chat dataset of a row: its position in the rules, and its name."""
    datasets = {name.replace("-", ""): name for name in row["datasets"].split()}
    for position, name in enumerate(default_rules().chat):
        if name in datasets:
            return position, datasets[name]
    return len(default_rules().chat), None


def _rank(row: dict[str, str]) -> tuple[int, int, int, str]:
    """Order curves: chat sets first, then those that know most draft lengths, then the deepest."""
    known = [d for d in lengths_of(row) if d <= DEEPEST_RANKED]
    return _chat_dataset(row)[0], -len(known), -max(known, default=0), row["id"]


def _choice(row: dict[str, str], closeness: Closeness) -> CurveChoice:
    """Return the choice of a row of the index, with its chat dataset where it has several."""
    datasets = row["datasets"].split()
    if closeness is Closeness.OWN and len(datasets) < 2:  # nothing to choose, so no rule to read
        return CurveChoice(closeness=closeness, id=row["id"])
    chat = _chat_dataset(row)[1]
    dataset = chat if len(datasets) > 1 else None
    general = chat is not None or not datasets
    return CurveChoice(closeness=closeness, id=row["id"], dataset=dataset, general=general)


@cache
def _loaded(choice: CurveChoice, kv: str | None) -> Acceptance:
    """Return the chosen curve; the mean of several datasets if none is chosen."""
    file = load_file(choice.id)[1]
    datasets = file.dataset_ids()
    if choice.dataset is not None or len(datasets) == 1:
        return file.acceptance(choice.id, dataset=choice.dataset, kv=kv)
    curves = [file.acceptance(choice.id, dataset=dataset, kv=kv) for dataset in datasets]
    label = f"{file.drafter} of {file.target}, mean of {len(datasets)} sets"
    share = 1 / len(curves)
    mean = weighted_mean([(share, curve) for curve in curves], label=label, source=file.source)
    return replace(mean, targets=curves[0].targets)
