"""Which series, labels and JSON fields of a running server hold what: the data of serving.yaml."""

from __future__ import annotations

from functools import cache

from pydantic import Field

from roofline.base import resources
from roofline.base.schema import Document, Schema

__all__ = ["Capacity", "Finished", "JsonPage", "Names", "ServerNames", "serving_names"]

Names = tuple[str, ...]


class Finished(Schema):
    """Sums and counts over the requests that finished [tokens]."""

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


class ServerNames(Schema):
    """One engine's names."""

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
    counted_at_end: bool = False
    finished: Finished
    capacity: Capacity
    speculative: str
    labels: dict[str, tuple[LabelPlace, ...]] = Field(default_factory=dict)
    documents: tuple[JsonPage, ...]

    @property
    def series(self) -> Names:
        """The beginnings of every line that is used."""
        placed = [place.series for places in self.labels.values() for place in places]
        return (
            *self.running, *self.waiting, *self.kv_usage, *self.context_sum, *self.throughput,
            *self.generated, *self.finished.all, *self.capacity.all, *placed, self.speculative,
        )  # fmt: skip


class ServingNames(Document):
    """The whole file."""

    engines: dict[str, ServerNames]
    #: Kinds of drafter by an engine's word for a method.
    methods: dict[str, str]
    #: Formats of weights by the end of a repository's name.
    formats: dict[str, str]
    #: Bundled accelerators by the name that their driver reports.
    accelerators: dict[str, str]


@cache
def serving_names() -> ServingNames:
    """Return the shipped names."""
    return ServingNames.load(resources.data_file("serving.yaml"))
