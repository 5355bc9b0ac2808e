"""Which bundled curve is taken where none is given, and what may be wrong with a chosen one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from itertools import pairwise
from typing import Annotated

from pydantic import Field

from roofline.acceptance.curve import Acceptance, iid_rate, rise, weighted
from roofline.acceptance.files import SHELF, bundled, lengths_of, load_file
from roofline.base import resources
from roofline.base.notices import Code, Notice, notice
from roofline.base.schema import Document, Schema

__all__ = [
    "Default",
    "Standing",
    "bare_name",
    "choose",
    "closest",
    "default_for",
    "doubts",
    "fall_of_one_rate",
    "filled",
    "rules",
    "same_model",
    "with_gaps_filled",
]


#: Endings of a name that say how weights are stored, not which model it is.
_STORED = re.compile(r"(nvfp4|mxfp4|fp8|fp4|int8|int4|bf16|awq|gptq|gguf|dspark)$")


def doubts(curve: Acceptance, *, model: Iterable[str], longest: int) -> list[Notice]:
    """Return what to say of a curve for a model of these names, drafted up to ``longest``."""
    names = list(model)
    others = [t for t in curve.targets if not any(same_model(t, name) for name in names)]
    told = [
        notice(Code.COUNTED_ON_ANOTHER_MODEL, label=curve.label, counted=other, model=names[0])
        for other in dict.fromkeys(others)
    ]
    fall = _fall(curve.table, longest)
    if fall is not None:
        first, second = fall
        told.append(
            notice(
                Code.TOKENS_PER_STEP_FALL,
                label=curve.label,
                first=first,
                second=second,
                before=curve.table[first],
                after=curve.table[second],
            )
        )
    risen = rise({d: al for d, al in curve.table.items() if d <= longest})
    return told if risen is None else [*told, risen.notice(f"acceptance of {curve.label}")]


def same_model(one: str, other: str) -> bool:
    """Return whether two names are of one model, whatever its weights are stored in.

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
    while len(parts) > 1 and _STORED.fullmatch(parts[-1]):
        parts.pop()
    return "".join(part for part in parts if part != "meta")


def _fall(table: Mapping[int, float], longest: int) -> tuple[int, int] | None:
    """Return the first two neighbours in D between which tokens per step fall."""
    lengths = sorted(d for d in table if d <= longest)
    for first, second in pairwise(lengths):
        if table[second] < table[first]:
            return first, second
    return None


def filled(table: Mapping[int, float]) -> dict[int, float]:
    """Return AL(D) with one conditional rate in each gap, such that the next known AL is met.

    Between known d and e: AL(e) - AL(d) = S_d (r + r^2 + ... + r^(e-d)), S_0 = 1. A gap in which AL
    falls, or rises faster than r = 1 allows, stays open. Real rates fall within a gap, so AL comes
    out too low there rather than too high.

    One rate that yields 2.533 at D = 3 is 0.7, hence 1.7 and 2.19 before:

    >>> {d: round(al, 2) for d, al in filled({0: 1.0, 3: 2.533}).items()}
    {0: 1.0, 1: 1.7, 2: 2.19, 3: 2.53}
    """
    full, survival = dict(table), 1.0
    for before, after in pairwise(sorted(table)):
        gain, steps = table[after] - table[before], after - before
        if not 0 < gain <= steps * survival:
            survival = min(survival, max(gain / steps, 0.0))
            continue
        rate = iid_rate(tokens_per_step=1 + gain / survival, draft_length=steps)
        for d in range(before + 1, after):
            full[d] = full[d - 1] + survival * rate ** (d - before)
        survival *= rate**steps
    return dict(sorted(full.items()))


def with_gaps_filled(curve: Acceptance) -> Acceptance:
    """Return an acceptance without gaps, at every context; beyond its end nothing changes."""
    contexts = tuple((context, with_gaps_filled(part)) for context, part in curve.contexts)
    return replace(curve, table=filled(curve.table), contexts=contexts)


#: The share of equal characters from which on two names are called close.
CLOSE = 0.7
#: The default ``max_draft_length``: what a curve knows beyond it does not count for it.
DEEP_ENOUGH = 8


class Standing(StrEnum):
    """How near a curve is to the drafter that it is taken for, nearest first."""

    OWN = "own"  # of this very drafter
    SAME = "same"  # of this kind of drafter on this model, or on one of the same base
    KIN = "kin"  # of this kind on a stated relative
    STAND_IN = "stand-in"  # of this kind, on whatever model


class OneRate(Schema):
    """What one rate at every position leaves open."""

    fall: Annotated[float, Field(gt=0, le=1)]


class Rules(Document):
    """What ``acceptance_defaults.yaml`` states."""

    kinds: dict[str, tuple[str, ...]]
    chat: tuple[str, ...]
    left_out: tuple[str, ...]
    same: tuple[tuple[str, ...], ...]
    kin: dict[str, str]
    stand_in: dict[str, str]
    one_rate: OneRate

    def equals(self, names: Iterable[str]) -> set[str]:
        """Return the bare names of the models called ``names`` and of their equals."""
        bare = {bare_name(_main(name)) for name in names}
        groups = [{bare_name(name) for name in group} for group in self.same]
        return bare.union(*(group for group in groups if group & bare))

    def relatives(self, names: Iterable[str]) -> set[str]:
        """Return the bare names of the stated relative of the models called ``names``."""
        wanted = self.equals(names)
        return self.equals(kin for name, kin in self.kin.items() if bare_name(name) in wanted)


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """A curve chosen for a drafter: a bundled id, and a data set of it where it has several."""

    standing: Standing
    id: str
    part: str | None = None
    general: bool = True  # a chat set, or no set stated

    @property
    def reference(self) -> str:
        """The acceptance to give for it."""
        return f"{self.id}#{self.part}" if self.part else self.id


@dataclass(frozen=True, kw_only=True, slots=True)
class Default:
    """The acceptance taken where none is given, and what its reader must know."""

    standing: Standing
    curve: Acceptance
    notices: tuple[Notice, ...]


@cache
def rules() -> Rules:
    """Return the shipped rules."""
    return Rules.load(resources.data_file("acceptance_defaults.yaml"))


def fall_of_one_rate() -> float:
    """Return the ratio of neighbouring conditional rates where only one rate is known."""
    return rules().one_rate.fall


def choose(kind: str, drafter: str, models: Sequence[str]) -> Choice | None:
    """Choose the bundled curve for a drafter of this kind and name; None where there is none.

    ``models`` are the names of its target, what was asked for first.

    >>> choose("eagle3", "llama-3.1-8b-eagle3", ["llama-3.1-8b"]).standing.value
    'own'
    >>> choose("mtp", "deepseek-v3-mtp", ["deepseek-v3"]).reference
    'deepseek-r1-mtp'
    """
    if drafter in resources.bundled_names(SHELF):
        (row,) = (row for row in bundled() if row["id"] == drafter)
        return _of(row, Standing.OWN)
    if kind not in rules().kinds:
        return None
    sought = [(Standing.SAME, rules().equals([name])) for name in models]
    sought += [(Standing.KIN, rules().relatives(models))]
    for standing, wanted in sought:
        fitting = [row for row in _of_kind(kind) if bare_name(_main(row["target"])) in wanted]
        if fitting:
            return _of(min(fitting, key=_rank), standing)
    stand_in = rules().stand_in.get(kind)
    return Choice(standing=Standing.STAND_IN, id=stand_in) if stand_in else None


def default_for(
    kind: str, drafter: str, models: Sequence[str], *, kv: str | None = None
) -> Default | None:
    """Return the acceptance for a drafter that none is given for; None where none is bundled."""
    choice = choose(kind, drafter, models)
    if choice is None:
        return None
    curve = _loaded(choice, kv)
    told = [
        notice(
            Code.ACCEPTANCE_ASSUMED,
            standing=choice.standing,
            reference=choice.reference,
            label=curve.label,
            source=curve.source,
            general=choice.general,
            filled=_filled_in(choice, kv),
        )
    ]
    if choice.standing in (Standing.KIN, Standing.STAND_IN):
        told.append(
            notice(
                Code.ACCEPTANCE_STANDS_IN,
                drafter=drafter,
                label=curve.label,
                closest=tuple(closest(kind, models)),
            )
        )
        curve = replace(curve, label=f"{curve.label}, standing in for {drafter}")
    return Default(standing=choice.standing, curve=curve, notices=tuple(told))


def closest(kind: str, models: Sequence[str], *, count: int = 3) -> list[str]:
    """Return the ids of this kind's curves whose targets' names are closest to the model's.

    >>> closest("eagle3", ["llama-3.1-70b"])[0]
    'llama-3.3-70b-eagle3-by-context'
    """
    from difflib import SequenceMatcher

    if kind not in rules().kinds:
        return []
    wanted = [bare_name(name) for name in models]
    found = []
    for row in _of_kind(kind):
        other = bare_name(row["target"])
        alike = max(SequenceMatcher(None, name, other).ratio() for name in wanted)
        if alike >= CLOSE:
            found.append((-alike, row["id"]))
    return [name for _, name in sorted(found)[:count]]


def _main(name: str) -> str:
    """Return the id behind another name of the same model; a mere stand-in keeps its name."""
    plain = name.split(" ", 1)[0].rsplit("/", 1)[-1].lower()
    other = resources.aliases("model_specs").get(plain)
    return other.id if other is not None and other.note is None else plain


def _of_kind(kind: str) -> list[dict[str, str]]:
    words, left_out = rules().kinds[kind], rules().left_out
    return [row for row in bundled() if row["drafter"] in words and row["id"] not in left_out]


def _chat_set(row: dict[str, str]) -> tuple[int, str | None]:
    """Return the place of the row's best set among the chat sets, and its name in the file."""
    sets = {name.replace("-", ""): name for name in row["datasets"].split()}
    chat = rules().chat
    at = next((i for i, name in enumerate(chat) if name in sets), len(chat))
    return at, sets[chat[at]] if at < len(chat) else None


def _rank(row: dict[str, str]) -> tuple[int, int, int, str]:
    """Order curves: chat sets first, then those that know most draft lengths, then the deepest."""
    known = [d for d in lengths_of(row) if d <= DEEP_ENOUGH]
    return _chat_set(row)[0], -len(known), -max(known, default=0), row["id"]


def _of(row: dict[str, str], standing: Standing) -> Choice:
    sets = row["datasets"].split()
    if standing is Standing.OWN and len(sets) < 2:  # nothing to choose, so no rule to read
        return Choice(standing=standing, id=row["id"])
    chat = _chat_set(row)[1]
    part = chat if len(sets) > 1 else None
    general = chat is not None or not sets
    return Choice(standing=standing, id=row["id"], part=part, general=general)


@cache
def _loaded(choice: Choice, kv: str | None) -> Acceptance:
    """Return the chosen curve, loaded once in a process; only a drafter's own keeps its gaps."""
    curve = _measured(choice, kv)
    return curve if choice.standing in _AS_MEASURED else with_gaps_filled(curve)


@cache
def _measured(choice: Choice, kv: str | None) -> Acceptance:
    """Return the chosen curve as counted; of several sets without a chat set their mean."""
    file = load_file(choice.id)[1]
    parts = file.parts()
    if choice.part is not None or len(parts) == 1:
        return file.acceptance(choice.id, part=choice.part, kv=kv)
    curves = [file.acceptance(choice.id, part=part, kv=kv) for part in parts]
    label = f"{file.drafter} of {file.target}, mean of {len(parts)} sets"
    share = 1 / len(curves)
    mean = weighted([(share, curve) for curve in curves], label=label, source=file.source)
    return replace(mean, targets=curves[0].targets)


#: Curves taken as they are: the drafter's own, and the stand-in, which says what it is.
_AS_MEASURED = (Standing.OWN, Standing.STAND_IN)


def _filled_in(choice: Choice, kv: str | None) -> tuple[int, ...]:
    """Return the draft lengths that were filled in."""
    before, after = _measured(choice, kv).table, _loaded(choice, kv).table
    return tuple(d for d in after if d not in before)
