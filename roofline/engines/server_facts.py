"""What a running server says of its configuration, and under which names each engine says it.

A fact is read from some place, or it is unread for a stated reason; an impossible value is unread.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import Field

from roofline.base import resources
from roofline.base.names import bundled_id
from roofline.base.numbers import LONGEST_DRAFT
from roofline.base.schema import Document, Schema
from roofline.engines.prometheus import Page, printable
from roofline.specs.formats import DType
from roofline.specs.gpu import GPU_SHELF

__all__ = [
    "Capacity",
    "EngineNames",
    "Fact",
    "FetchedJson",
    "Finished",
    "JsonPage",
    "Names",
    "Read",
    "Unread",
    "configured",
    "serving_names",
    "stated_texts",
]

Names = tuple[str, ...]


class Finished(Schema):
    """The series of sums and counts over the requests that finished [tokens]."""

    prompt_sum: Names
    prompt_count: Names
    output_sum: Names
    output_count: Names

    @property
    def all(self) -> Names:
        """Every series that is used."""
        return (*self.prompt_sum, *self.prompt_count, *self.output_sum, *self.output_count)


class Capacity(Schema):
    """Tokens that the cache of one copy holds: a product of gauges, or of one series' labels."""

    gauges: Names = ()
    series: str | None = None
    labels: Names = ()

    @property
    def all(self) -> Names:
        """Every series that is used."""
        return (*self.gauges, *([self.series] if self.series else []))


class LabelPlace(Schema):
    """A fact in a label of a series whose value is always 1."""

    series: str
    label: str


class JsonPage(Schema):
    """A JSON page and where in it facts lie, as dotted paths (numbers index lists)."""

    paths: Names
    facts: dict[str, Names]
    #: What the server must be started with to have the page.
    optional: str | None = None


class EngineNames(Schema):
    """One engine's names of series, labels and JSON fields."""

    name: str
    prefix: str
    rank: Names = ()
    copies: Names = ()
    running: Names
    waiting: Names
    kv_usage: Names
    context_sum: Names = ()
    throughput: Names = ()
    generated: Names
    decoded: Names = ()
    #: Time that requests waited for the tokens after their first, summed over them [s].
    token_seconds: Names = ()
    #: What counts first tokens, which nobody waits for in that time.
    first_tokens: Names = ()
    counted_at_end: bool = False
    finished: Finished
    capacity: Capacity
    speculative: str
    labels: dict[str, tuple[LabelPlace, ...]] = Field(default_factory=dict)
    documents: tuple[JsonPage, ...]
    #: What the server must be started with to have its metrics; empty where it always has them.
    metrics_flag: str = ""
    #: A key of its first document that no other engine's page has.
    own_key: str = ""
    #: What it says of weights is the format of the file that it runs, not a way to quantise one.
    weights_of_file: bool = False
    #: Expert parallelism is on or off; on, it spreads experts over all ranks.
    expert_switch: bool = False

    @property
    def series(self) -> Names:
        """How the lines begin that are used."""
        placed = [place.series for places in self.labels.values() for place in places]
        return (
            *self.running,
            *self.waiting,
            *self.kv_usage,
            *self.context_sum,
            *self.throughput,
            *self.generated,
            *self.decoded,
            *self.token_seconds,
            *self.first_tokens,
            *self.finished.all,
            *self.capacity.all,
            *placed,
            self.speculative,
        )


class ServingNames(Document):
    """The names of all engines: serving.yaml."""

    engines: dict[str, EngineNames]
    #: Kinds of drafter by an engine's word for a method.
    methods: dict[str, str]
    #: Formats of weights by an engine's word for one.
    formats: dict[str, DType]


@cache
def serving_names() -> ServingNames:
    """Return the names of all engines."""
    return ServingNames.load(resources.data_file("serving.yaml"))


LONGEST_TEXT = 160
#: What a server's configuration holds: whole numbers with their range, and texts.
RANGES = {
    "tp": (1, 1024),
    "data_parallel": (1, 4096),
    "expert_parallel": (0, 4096),
    "draft_length": (0, LONGEST_DRAFT),
    "draft_tokens": (0, 4096),
    "attention_copies": (0, 1),
}
SWITCHES = ("expert_parallel", "attention_copies")
TEXTS = ("version", "model", "gpu", "method", "draft_model", "kv", "weights")
#: What says that the draft length changes: a switch, or the table that it follows.
SCHEDULE = "schedule"
CONFIGURED = (*TEXTS, *RANGES, SCHEDULE)
_FIRST_GPU = re.compile(r"GPU 0: (?P<name>[^\n]+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Read:
    """A fact about the server, and where it was read."""

    value: float | int | str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Unread:
    """A fact that could not be read, and why; ``said`` is what was, but is not known here."""

    reason: str
    said: str = ""


Fact = Read | Unread


@dataclass(frozen=True, kw_only=True, slots=True)
class FetchedJson:
    """A JSON page as the server gave it, or why it did not."""

    names: JsonPage
    path: str
    data: Any = None
    refusal: str | None = None


def configured(
    names: EngineNames, page: Page | None, documents: Sequence[FetchedJson]
) -> Mapping[str, Fact]:
    """Return what the server says of its configuration, each from the first place that has it."""
    return {fact: _first(fact, names, page, documents) for fact in CONFIGURED}


def stated_texts(
    fact: str, names: EngineNames, page: Page | None, documents: Sequence[FetchedJson]
) -> list[str]:
    """Return every text that any place gives for a fact."""
    facts = (_checked(fact, raw, source) for raw, source in _places(fact, names, page, documents))
    return [str(item.value) for item in facts if isinstance(item, Read)]


def _first(
    fact: str, names: EngineNames, page: Page | None, documents: Sequence[FetchedJson]
) -> Fact:
    """Return a fact from the first place with a possible value, else why there is none."""
    unread: Unread | None = None
    for raw, source in _places(fact, names, page, documents):
        checked = _checked(fact, raw, source)
        if isinstance(checked, Read):
            return checked
        unread = unread or checked
    if unread is not None:
        return unread
    for document in documents:
        if fact in document.names.facts and document.refusal is not None:
            return Unread(reason=document.refusal)
    return Unread(reason=f"{names.name} does not say")


def _places(
    fact: str, names: EngineNames, page: Page | None, documents: Sequence[FetchedJson]
) -> list[tuple[Any, str]]:
    """Return what is written in each place that may have the fact, with the place."""
    values: list[tuple[Any, str]] = []
    if page is not None:
        for place in names.labels.get(fact, ()):
            values += [(s.labels.get(place.label), place.series) for s in page.of(place.series)[:1]]
    for document in documents:
        for path in document.names.facts.get(fact, ()):
            values.append((_at_path(document.data, path), document.path))
    return [(raw, source) for raw, source in values if raw not in (None, "", "null", "None")]


def _at_path(data: Any, dotted: str) -> Any:
    """Return what lies at a dotted path of JSON, None where nothing does.

    ``*`` stands for the first of a list that has the rest; a key may hold dots itself.

    >>> _at_path({"data": [{"id": "x"}]}, "data.0.id")
    'x'
    >>> _at_path([{"id": 0}, {"id": 1, "params": {"a.b": "y"}}], "*.params.a.b")
    'y'
    """
    if isinstance(data, dict) and dotted in data:
        return data[dotted]
    step, _, rest = dotted.partition(".")
    if isinstance(data, list):
        own = data if step == "*" else data[int(step) :][:1] if step.isdecimal() else []
    else:
        own = [data.get(step)] if isinstance(data, dict) else []
    found = own if not rest else (_at_path(item, rest) for item in own)
    return next((item for item in found if item is not None), None)


def _checked(fact: str, raw: Any, source: str) -> Fact:
    """Return a raw value as a fact, refused where it cannot be one."""
    if fact in TEXTS:
        return _text(fact, raw, source)
    if fact == SCHEDULE:
        return Read(value="on", source=source) if raw else Unread(reason=f"{source} says none")
    low, high = RANGES[fact]
    if isinstance(raw, str) and raw.isdecimal() and len(raw) < 12:
        raw = int(raw)
    if isinstance(raw, bool) and fact in SWITCHES:
        return Read(value=int(raw), source=source)
    if isinstance(raw, bool) or not isinstance(raw, int) or not low <= raw <= high:
        written = printable(repr(raw)[:40])
        return Unread(reason=f"{source} says {written}, expected {low} to {high}")
    return Read(value=raw, source=source)


def _text(fact: str, raw: Any, source: str) -> Fact:
    if not isinstance(raw, str):
        return Unread(reason=f"{source}: expected text")
    listed = _FIRST_GPU.search(raw)
    text = (listed["name"] if listed and fact == "gpu" else raw).strip()
    if len(text) > LONGEST_TEXT or not text.isprintable():
        return Unread(reason=f"{source}: is too long or holds control characters")
    if fact == "gpu":
        known = bundled_id(text, GPU_SHELF)
        if known is None:
            return Unread(reason=f"{source} says {text}, which is no bundled accelerator")
        return Read(value=known, source=f"{text}, {source}")
    if fact == "method":
        words = [word for word in text.lower().split(",") if word != "none"]
        kind = serving_names().methods.get(words[0]) if len(words) == 1 else None
        if kind is None:
            return Unread(reason=f"{source} says {text}, which is no method known here")
        return Read(value=kind, source=f"{text}, {source}")
    if fact == "weights":
        word = text.lower().removeprefix("(guessed) ")
        dtype = serving_names().formats.get(word)
        if dtype is None:
            return Unread(reason=f"{source} says {text}, which is no format known here", said=text)
        return Read(value=dtype.value, source=f"{text}, {source}")
    if fact == "kv":
        if text.lower().startswith(("fp8", "float8", "torch.float8")):
            return Read(value="fp8", source=f"{text}, {source}")
        # such as auto: the model's own format
        return Unread(reason=f"{source} says {text}: as the model has it")
    return Read(value=text, source=source)
