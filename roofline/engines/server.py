"""A running server as its pages describe it; each fact about it says where it was read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar

from roofline.acceptance.files import split_part
from roofline.base.errors import InputError
from roofline.base.notices import Code, Notice, notice
from roofline.base.numbers import LONGEST_DRAFT
from roofline.base.progress import progress, wait
from roofline.engines import trtllm
from roofline.engines.acceptance_source import acceptance_in_json, acceptance_on_page
from roofline.engines.counts import Reading
from roofline.engines.http import Client
from roofline.engines.metrics import (
    MetricsRead,
    batch_of,
    context_of,
    page_of_model,
    rate_of,
    read_documents,
    read_metrics,
    waiting_of,
)
from roofline.engines.prometheus import Page, Sample, counted_between
from roofline.engines.server_facts import (
    EngineNames,
    Fact,
    FetchedJson,
    Read,
    Unread,
    configured,
    serving_names,
    stated_texts,
)
from roofline.specs.engine import load_engine
from roofline.specs.network import LOOKUPS

__all__ = ["Serving", "read_server"]

MOST_READS = 6
SPACING = 5.0  # between two reads, at least [s]
#: Drafters whose steps say nothing of D: they fill a block, or look up a tree, in one.
BLOCKS = ("dflash", "dspark", "ngram")


@dataclass(frozen=True, kw_only=True, slots=True)
class Serving:
    """A running server. ``models`` are all names that its model goes by."""

    engine: str
    name: str
    where: str
    how: str
    models: tuple[str, ...]
    facts: Mapping[str, Fact]
    acceptance: Reading | None
    copies: int
    notices: tuple[Notice, ...]

    def value(self, fact: str) -> Any:
        """Return a fact, None where it could not be read."""
        read = self.facts[fact]
        return read.value if isinstance(read, Read) else None

    def expert_groups(self, tp: int) -> int:
        """Return the groups of ranks that experts are placed on, 1 where nothing is known."""
        stated = int(self.value("expert_parallel") or 0)
        switch = serving_names().engines[self.engine].expert_switch
        return tp if switch and stated else max(stated, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Fetched:
    """Everything that was fetched. ``pages`` is empty where there are none."""

    names: EngineNames
    reads: Sequence[MetricsRead]
    pages: Sequence[Page]
    counted: Page | None  # counters between the reads, or since the start
    documents: Sequence[FetchedJson]
    served: str | None
    seconds: float | None

    @property
    def iterations(self) -> list[dict[str, Any]]:
        """TensorRT-LLM's iterations; each read empties the server's list, so all are added up."""
        later = self.reads[1:] or self.reads
        return [iteration for read in later for iteration in read.iterations]


def read_server(
    url: str,
    *,
    interval: float,
    timeout: float,
    check: Callable[[Serving], None] | None = None,
) -> Serving:
    """Read a server's metrics for ``interval`` seconds (0: once), and what it says of itself.

    ``timeout`` bounds the wait for all answers together [s]; ``url#MODEL`` picks one of several.
    ``check`` gets the result of the first read, and may refuse it before the further ones.
    """
    address, model = split_part(url)
    client = Client(address, timeout=timeout)
    reads = [read_metrics(client)]
    names = serving_names().engines[reads[0].engine]
    documents = read_documents(client, names)
    if check is not None:
        check(
            _serving(
                reads, model, names=names, documents=documents, where=client.where, interval=None
            )
        )
    counts = reads[0].page is not None or bool(reads[0].iterations)
    more = min(MOST_READS - 1, max(int(interval / SPACING), 1)) if interval and counts else 0
    with progress(interval, "s") as advance:
        for _ in range(more):
            wait(interval / more, advance)
            reads.append(read_metrics(client))
    engine = reads[0].engine
    if any(read.engine != engine for read in reads):
        raise InputError("another engine answered in between; read again", where=client.where)
    waited = interval if more else None
    return _serving(
        reads, model, names=names, documents=documents, where=client.where, interval=waited
    )


def _serving(
    reads: Sequence[MetricsRead],
    model: str | None,
    *,
    names: EngineNames,
    documents: Sequence[FetchedJson],
    where: str,
    interval: float | None,
) -> Serving:
    """Return the server as its reads describe it; ``interval`` is None where there was one read."""
    how = "one read" if interval is None else f"{len(reads)} reads over {interval:g} s"
    chosen = [page_of_model(read.page, model) for read in reads if read.page is not None]
    pages = [page for page, _ in chosen] if len(chosen) == len(reads) else []
    fetched = _Fetched(
        names=names,
        reads=reads,
        pages=pages,
        counted=_counted(pages, f"counters between {how}"),
        documents=documents,
        served=chosen[-1][1] if pages else None,
        seconds=None if interval is None else reads[-1].at - reads[0].at,
    )
    return _gathered(fetched, engine=reads[0].engine, where=where, how=how)


def _counted(pages: Sequence[Page], how: str) -> Page | None:
    """Return the counters between the first and the last read; every restart between is noticed."""
    if len(pages) < 2:
        return pages[-1] if pages else None
    for earlier, later in pairwise(pages):
        counted_between(later, earlier, how=how)
    return counted_between(pages[-1], pages[0], how=how)


def _gathered(fetched: _Fetched, *, engine: str, where: str, how: str) -> Serving:
    last = fetched.pages[-1] if fetched.pages else None
    facts = dict(configured(fetched.names, last, fetched.documents))
    models = stated_texts("model", fetched.names, last, fetched.documents)
    if fetched.served is not None:
        models.append(fetched.served)
        if isinstance(facts["model"], Unread):
            facts["model"] = Read(value=fetched.served, source="label model_name")
    facts["method"] = _method(facts, models)
    copies, load, load_doubts = _load(fetched)
    facts |= load
    facts["draft_length"] = _stated_length(facts)
    facts["acceptance"], acceptance = _acceptance(fetched, facts, where)
    if acceptance is not None:
        if isinstance(method := facts["method"], Read):
            acceptance = acceptance.of_drafter(str(method.value))
        version = facts["version"]
        acceptance = acceptance.of_version(
            str(version.value) if isinstance(version, Read) else None
        )
    facts["draft_length"], length_doubts = _draft_length(fetched, facts, acceptance)
    declared = facts["data_parallel"]
    if isinstance(declared, Read):
        copies = max(copies, int(declared.value))
    elif copies > 1:
        facts["data_parallel"] = Read(value=copies, source="ranks on the metrics page")
    acceptance_notices = acceptance.notices if acceptance is not None else ()
    return Serving(
        engine=engine,
        name=fetched.names.name,
        where=where,
        how=how,
        models=tuple(dict.fromkeys(models)),
        facts=facts,
        acceptance=acceptance,
        copies=copies,
        notices=tuple(dict.fromkeys((*load_doubts, *length_doubts, *acceptance_notices))),
    )


def _method(facts: Mapping[str, Fact], models: Sequence[str]) -> Fact:
    """Return how the server drafts: mtp where SGLang says EAGLE of the target's own layers.

    SGLang then names no draft weights, the target's own path, or those layers alone
    (``...-NextN``).
    """
    method, weights = facts["method"], facts["draft_model"]
    if not isinstance(method, Read) or method.value != "eagle1":
        return method
    path = str(weights.value).rstrip("/") if isinstance(weights, Read) else None
    own_layers = path is None or path.lower().endswith("nextn")
    if own_layers or path in [name.rstrip("/") for name in models]:
        return Read(value="mtp", source=f"{method.source}: the target's own layers")
    return method


def _load(fetched: _Fetched) -> tuple[int, dict[str, Fact], list[Notice]]:
    """Return how many copies run, what each is busy with, and what is doubtful."""
    if not fetched.pages or fetched.counted is None:
        if fetched.reads[0].engine == "trtllm":
            return 1, trtllm.load_of(fetched.iterations), []
        needed = f"{fetched.names.name} needs {fetched.names.metrics_flag}"
        reason = Unread(reason=f"the server has no metrics page ({needed})")
        return 1, dict.fromkeys(("batch", "waiting", "context", "tokens_per_s"), reason), []
    pages, counted, names = fetched.pages, fetched.counted, fetched.names
    batches = _or_reason(lambda: batch_of(pages, names))
    batch, copies = batches if isinstance(batches, tuple) else (batches, 1)
    contexts = _or_reason(lambda: context_of(pages, counted, names))
    context, doubts = contexts if isinstance(contexts, tuple) else (contexts, [])
    load: dict[str, Fact] = {
        "batch": batch,
        "waiting": _or_reason(lambda: waiting_of(pages[-1], names)),
        "context": context,
        "tokens_per_s": _or_reason(lambda: rate_of(pages, counted, names, fetched.seconds)),
    }
    if fetched.iterations and isinstance(batch, Unread):
        load |= {k: v for k, v in trtllm.load_of(fetched.iterations).items() if isinstance(v, Read)}
    return copies, load, doubts


Result = TypeVar("Result")


def _or_reason(read: Callable[[], Result]) -> Result | Unread:
    """Return what ``read`` returns, or why a page's numbers cannot be used."""
    try:
        return read()
    except InputError as error:
        return Unread(reason=error.text)


def _stated_length(facts: Mapping[str, Fact]) -> Fact:
    """Return D as the server's settings say it."""
    stated, tokens, method = (facts[key] for key in ("draft_length", "draft_tokens", "method"))
    if isinstance(method, Read) and method.value in BLOCKS and isinstance(tokens, Read):
        return Read(value=int(tokens.value) - 1, source=tokens.source)
    return stated


def _acceptance(
    fetched: _Fetched, facts: Mapping[str, Fact], where: str
) -> tuple[Fact, Reading | None]:
    """Return tokens per step as a fact, and the reading behind it."""
    try:
        reading = _reading(fetched, where)
        if reading is None:
            return Unread(reason="no speculative-decoding numbers: speculation is off"), None
        schedule, stated = facts["schedule"], facts["draft_length"]
        if isinstance(schedule, Read) and reading.survival is None:
            problem = (
                f"the draft length changes while the server runs ({schedule.source}), so "
                f"{reading.tokens_per_step:.4g} tokens per step belong to no one of them"
            )
            return Unread(reason=problem), None
        method = facts["method"]
        block = isinstance(method, Read) and method.value in BLOCKS and reading.survival is None
        if (block or reading.draft_lengths) and isinstance(stated, Read):
            reading = reading.with_draft_length(int(stated.value))
        if reading.draft_length is not None and reading.draft_length > LONGEST_DRAFT:
            problem = f"a draft length of {reading.draft_length} is beyond {LONGEST_DRAFT}"
            return Unread(reason=problem), None
        if reading.draft_length is not None:
            reading.acceptance()  # refuses more tokens per step than drafts allow
    except InputError as error:
        return Unread(reason=error.problem if error.where == where else error.text), None
    early = ", drafted and accepted" if reading.counted.early_stops else ""
    return Read(value=reading.tokens_per_step, source=f"{reading.how}{early}"), reading


def _reading(fetched: _Fetched, where: str) -> Reading | None:
    """Return the acceptance from the metrics, the iterations or a JSON page; None without one."""
    drafts = _speculative(fetched)
    if drafts and fetched.counted is not None:
        token_series = (*fetched.names.generated, *fetched.names.decoded)
        tokens = [s for s in fetched.counted.samples if s.name in token_series]
        return acceptance_on_page(replace(fetched.counted, samples=(*drafts, *tokens)), None)
    if any(item.get(trtllm.STATISTICS_KEY) for item in fetched.iterations):
        return acceptance_in_json(fetched.iterations, where)
    for document in fetched.documents:
        if isinstance(document.data, dict) and "internal_states" in document.data:
            return acceptance_in_json([document.data], where)
    return None


def _varies(acceptance: Reading, stated: Fact, method: Fact) -> bool:
    """Return whether drafts were shorter than their positions, and no setting says why."""
    if isinstance(stated, Read) or not acceptance.counted.early_stops:
        return False
    return not (isinstance(method, Read) and method.value in LOOKUPS)


def _early_end(engine: str, method: Fact) -> str:
    """Return what may end drafts early in this engine, empty where nothing is known to."""
    stops = load_engine(engine).early_stops
    kinds = () if stops is None else stops.kinds
    if (
        stops is None
        or not stops.drafting
        or (isinstance(method, Read) and method.value not in kinds)
    ):
        return ""
    return f", as {stops.arguments.partition(' ')[0]} ends them"


def _speculative(fetched: _Fetched) -> list[Sample]:
    """Return the lines of the series that count drafts."""
    page, prefix = fetched.counted, fetched.names.speculative
    return [] if page is None else [s for s in page.samples if s.name.startswith(prefix)]


def _draft_length(
    fetched: _Fetched, facts: Mapping[str, Fact], acceptance: Reading | None
) -> tuple[Fact, list[Notice]]:
    """Return D as counted, else as configured, else 0 where nothing is drafted; and doubts.

    Where it changes while the server runs there is no one D: a schedule is on, or drafts were
    shorter than their positions though nothing says that they are looked up.
    """
    stated, method, schedule = (facts[key] for key in ("draft_length", "method", "schedule"))
    if isinstance(schedule, Read):
        return Unread(reason=f"it changes with the load: {schedule.source} has a schedule"), []
    if acceptance is not None and _varies(acceptance, stated, method):
        each = (acceptance.drafted or 0.0) / (acceptance.drafts or 1.0)
        reason = f"it changes: drafts of {each:.2f} tokens were counted, of up to "
        reason += f"{acceptance.draft_length}{_early_end(fetched.reads[0].engine, method)}"
        return Unread(reason=reason), []
    counted = acceptance.draft_length if acceptance is not None else None
    if counted is not None and acceptance is not None:
        doubts = []
        if isinstance(stated, Read) and stated.value != counted:
            doubts.append(
                notice(
                    Code.ANOTHER_DRAFT_LENGTH_COUNTED,
                    where=acceptance.where,
                    counted=counted,
                    stated=stated.value,
                    source=stated.source,
                )
            )
        return Read(value=counted, source=acceptance.how), doubts
    if isinstance(stated, Read):
        return stated, []
    drafts = _speculative(fetched)
    positions = {s.labels["position"] for s in drafts if "position" in s.labels}
    if positions and len(positions) <= LONGEST_DRAFT:
        return Read(value=len(positions), source="positions on the metrics page"), []
    drafted = any(s.value > 0 for s in drafts)
    if not drafted and not positions and isinstance(method, Unread):
        return Read(value=0, source="nothing is drafted"), []
    return stated, []
