"""Running a sweep: tasks to workers, parts to disk, parts to one file."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from roofline.advice.columns import Column
from roofline.advice.deployment import deploy
from roofline.advice.provenance import NumberSource
from roofline.advice.readings import Advice
from roofline.advice.remedies import does_not_fit
from roofline.base.errors import (
    DoesNotFitError,
    InputError,
    Option,
    RooflineError,
    StoppedError,
)
from roofline.base.interrupts import ignoring_interrupts
from roofline.base.notices import Code, Notice, notice
from roofline.base.progress import Advance
from roofline.base.resources import how_to_install
from roofline.questions.sweep.columns import columns_data, columns_for
from roofline.questions.sweep.encoding import SweepFormat, encode, heading, join
from roofline.questions.sweep.frames import Frame
from roofline.questions.sweep.plan import SweepPlan, Task
from roofline.questions.sweep.pricing import CountedReadings, Remarks, price_rectangle
from roofline.questions.sweep.store import JournalEntry, Store, file_hashes

__all__ = [
    "SCHEMA",
    "Renderers",
    "Workers",
    "Written",
    "acceptances_of",
    "cluster_workers",
    "local_workers",
    "run_task",
    "to_file",
    "to_frames",
    "to_stream",
    "warnings_of",
]

SCHEMA = "roofline.sweep/2"
#: Tasks given out for each worker: one in work, one waiting.
AHEAD = 2
#: Rows without numbers held in memory until one with numbers follows; more go to a file.
HELD_BYTES = 2**26
Workers = tuple[Executor | None, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Renderers:
    """Functions that put things into words for rows and journals.

    They are functions of modules, so that worker processes can import them.
    ``spell`` names the options in a text, ``say`` returns the codes of notices by sentence,
    ``source`` a source as JSON writes it.
    """

    spell: Callable[[str], str]
    say: Callable[[Iterable[Notice]], dict[str, str]]
    source: Callable[[NumberSource], dict[str, Any]]


def run_task(
    task: Task, columns: tuple[Column, ...], form: SweepFormat, renderers: Renderers
) -> tuple[JournalEntry, bytes]:
    """Price a task; return its journal entry and its rows as they are written."""
    entry, frames = price_task(task, renderers)
    return entry, encode(frames, columns, form)


def price_task(task: Task, renderers: Renderers) -> tuple[JournalEntry, list[Frame]]:
    """Price a task; return its journal entry and its rows."""
    remarks = Remarks(spell=renderers.spell)
    frames = [
        frame for rectangle in task.rectangles for frame in price_rectangle(rectangle, remarks)
    ]
    sources = (
        renderers.spell(json.dumps(renderers.source(each), ensure_ascii=False))
        for each in remarks.sources
    )
    entry = JournalEntry(
        index=task.index,
        rows=sum(frame.rows for frame in frames),
        points=task.points,
        fitting=sum(frame.fitting for frame in frames),
        refusal=next((frame.refusal for frame in frames if frame.refusal), ""),
        warnings={
            renderers.spell(text): code
            for text, code in sorted(renderers.say(remarks.notices).items())
        },
        sources=sorted(set(sources)),
        readings=[asdict(each) for each in remarks.acceptances.values()],
    )
    return entry, frames


@contextmanager
def local_workers(jobs: int) -> Iterator[Workers]:
    """Give this many worker processes; a single job runs in this process."""
    if jobs == 1:
        yield None, 1
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    pool = ProcessPoolExecutor(
        jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_leave_with_parent
    )
    try:
        with ignoring_interrupts():  # this process handles them
            for _ in range(jobs):
                pool.submit(int)
        yield pool, jobs
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _leave_with_parent() -> None:
    """End when the parent is gone."""
    import multiprocessing

    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def cluster_workers(address: str) -> Iterator[Workers]:
    """Give the workers of a Dask cluster through its executor."""
    try:
        import distributed
    except ImportError:
        raise InputError(
            f"needs the package distributed: {how_to_install('distributed')}", field="dask"
        ) from None
    try:
        connect: Any = distributed.Client
        client = connect(address, timeout=5)
    except (OSError, ValueError) as error:
        raise InputError(f"no scheduler answers ({error})", field="dask", value=address) from None
    with client:
        workers = sum(client.ncores().values())
        if not workers:
            raise InputError(
                "the scheduler has no workers; start some first", field="dask", value=address
            )
        yield client.get_executor(pure=False), workers


def _results(
    tasks: Iterator[Task],
    workers: Workers,
    columns: tuple[Column, ...],
    form: SweepFormat,
    renderers: Renderers,
) -> Iterator[tuple[JournalEntry, bytes]]:
    """Yield what tasks give, in order, with a few of them ahead of the reader."""
    executor, count = workers
    if executor is None:
        for task in tasks:
            yield run_task(task, columns, form, renderers)
        return
    waiting: deque[Future[tuple[JournalEntry, bytes]]] = deque()
    try:
        for task in tasks:
            waiting.append(executor.submit(run_task, task, columns, form, renderers))
            if len(waiting) >= AHEAD * count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except (KeyboardInterrupt, RooflineError, GeneratorExit):
        raise
    except Exception as error:
        if type(error).__name__ not in ("BrokenProcessPool", "KilledWorker"):
            raise
        raise RooflineError(
            "a worker process was killed (out of memory?); finished parts are kept: repeat with "
            f"{Option('resume')} and fewer {Option('jobs')}"
        ) from None
    finally:
        for future in waiting:
            future.cancel()


def to_stream(
    plan: SweepPlan,
    form: SweepFormat,
    workers: Workers,
    write: Callable[[bytes], object],
    *,
    renderers: Renderers,
    tell: Advance,
) -> dict[str, str]:
    """Write the rows as they come, as soon as one has numbers; return the warnings' codes."""
    columns, entries = columns_for(plan.extra, priced=plan.priced), list[JournalEntry]()
    refusals: list[str] = []
    started = False  # a row with numbers has come
    with tempfile.SpooledTemporaryFile(HELD_BYTES) as held:
        held.write(heading(columns, form))
        for entry, content in _results(plan.tasks(), workers, columns, form, renderers):
            refusals += filter(None, [entry.refusal])
            (write if started else held.write)(content)
            if entry.fitting and not started:
                started = True
                held.seek(0)
                while chunk := held.read(2**20):
                    write(chunk)
            entries.append(entry)
            tell(entry.points)
    if not started:
        raise _nothing_priced(plan, refusals)
    return warnings_of(entries, renderers)


def to_frames(
    plan: SweepPlan, *, renderers: Renderers
) -> tuple[tuple[Frame, ...], tuple[JournalEntry, ...]]:
    """Return the rows in memory, and the journal entries of their parts."""
    frames, entries = list[Frame](), list[JournalEntry]()
    for task in plan.tasks():
        entry, of_task = price_task(task, renderers)
        frames += of_task
        entries.append(entry)
    if not any(entry.fitting for entry in entries):
        raise _nothing_priced(plan, [entry.refusal for entry in entries if entry.refusal])
    return tuple(frames), tuple(entries)


def acceptances_of(entries: Iterable[JournalEntry]) -> list[CountedReadings]:
    """Return what the acceptances of a sweep are, and where two readings of one differ."""
    found: dict[str, CountedReadings] = {}
    for entry in entries:
        for each in entry.readings:
            counted = CountedReadings(**each)
            key = counted.label + counted.rates
            if key in found:
                found[key].add(counted)
            else:
                found[key] = counted
    return list(found.values())


def warnings_of(entries: Sequence[JournalEntry], renderers: Renderers) -> dict[str, str]:
    """Return the warnings' codes by text; first of lists of rates with two readings."""
    readings = [_reading(each) for each in acceptances_of(entries) if each.rates]
    said = {renderers.spell(text): code for text, code in renderers.say(readings).items()}
    found = {text: code for entry in entries for text, code in entry.warnings.items()}
    return said | dict(sorted(found.items()))


def _reading(counted: CountedReadings) -> Notice:
    """Return what is said of a list with two readings, from how often they differ."""
    if counted.first is None:
        return notice(Code.READ_AS_SURVIVAL, rates=counted.rates, same_advice=True)
    batch, context, survival, conditional = counted.first
    return notice(
        Code.AMBIGUOUS_ACCEPTANCE,
        rates=counted.rates,
        place=(("batch", batch), ("context", context)),
        survival=Advice(draft_length=survival),
        conditional=Advice(draft_length=conditional),
        differ=counted.differ,
        points=counted.points,
    )


def _nothing_priced(plan: SweepPlan, refusals: Sequence[str]) -> RooflineError:
    """Return the error of a sweep that has no row with numbers."""
    if refusals:
        return InputError(f"nothing in this grid can be priced: {refusals[0]}")
    combination = next(plan.combinations())
    deployment, _ = deploy(combination.configuration, drop_unused=combination.drop_unused)
    error = does_not_fit(deployment, batch=min(plan.batches), context=min(plan.contexts))
    return DoesNotFitError(f"no point of this grid fits in memory; the first: {error.text}")


class Written(NamedTuple):
    """What a finished file holds: codes of its warnings, its rows, and those that can be run."""

    warnings: dict[str, str]  # codes by sentence
    rows: int
    fitting: int


def to_file(
    plan: SweepPlan,
    form: SweepFormat,
    workers: Workers,
    output: Path,
    *,
    renderers: Renderers,
    version: str,
    command: Sequence[str],
    grid: Path | None = None,
    resume: bool = False,
    tell: Advance = lambda _: None,
) -> Written:
    """Write the rows to a file that appears when all are there, with its provenance beside it.

    The provenance holds the ``command``, or the call.
    """
    grid_data = plan.as_data()
    files = file_hashes(sorted(plan.texts() | ({str(grid)} if grid else set())))
    names = [column.key for column in columns_for(plan.extra, priced=plan.priced)]
    started = {
        "version": version,
        "format": form.value,
        "files": files,
        "columns": names,
        **grid_data,
    }
    about = {"schema": SCHEMA, "version": version, "command": list(command), "grid": grid_data}
    with closing(Store(output)) as store:
        store.open(started, resume=resume)
        return _to_store(plan, form, workers, store, renderers=renderers, tell=tell, about=about)


def _to_store(
    plan: SweepPlan,
    form: SweepFormat,
    workers: Workers,
    store: Store,
    *,
    renderers: Renderers,
    tell: Advance,
    about: dict[str, Any],
) -> Written:
    """Write what the store does not have yet, then the finished file."""
    columns = columns_for(plan.extra, priced=plan.priced)
    tell(sum(entry.points for entry in store.entries.values()))
    unfinished = (task for task in plan.tasks() if task.index not in store.entries)
    try:
        for entry, content in _results(unfinished, workers, columns, form, renderers):
            store.add(entry, content)
            tell(entry.points)
    except KeyboardInterrupt:
        raise StoppedError(
            f"stopped; {len(store.entries)} finished parts are kept in {store.folder}: add "
            f"{Option('resume')} to go on, or remove it"
        ) from None
    entries = [store.entries[index] for index in sorted(store.entries)]
    if not any(entry.fitting for entry in entries):
        store.remove()
        raise _nothing_priced(plan, [entry.refusal for entry in entries if entry.refusal])
    warnings = warnings_of(entries, renderers)
    sources = sorted({source for entry in entries for source in entry.sources})
    about = about | {
        "rows": sum(entry.rows for entry in entries),
        "columns": columns_data(columns),
        "acceptance": [asdict(each) for each in acceptances_of(entries)],
        "warnings": [*warnings],
        "sources": [json.loads(source) for source in sources],
    }
    with store.finished() as file:
        join(store.parts, file, columns, form, about)
    with store.explained():
        sidecar(store.output).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    store.remove()
    return Written(
        warnings=warnings,
        rows=sum(entry.rows for entry in entries),
        fitting=sum(entry.fitting for entry in entries),
    )


def sidecar(output: Path) -> Path:
    """Return where a file's provenance lies."""
    return output.with_name(f"{output.name}.provenance.json")
