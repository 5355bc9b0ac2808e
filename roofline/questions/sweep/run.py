"""Running a sweep: tasks to workers, parts to disk, parts to one file."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roofline.advice.deployment import deploy
from roofline.advice.provenance import Source
from roofline.advice.remedies import does_not_fit
from roofline.base.errors import DoesNotFitError, InputError, Option, RooflineError
from roofline.base.notices import Notice
from roofline.base.resources import how_to_install
from roofline.questions.sweep.columns import Column, columns_for
from roofline.questions.sweep.encoding import SweepFormat, encode, heading, join
from roofline.questions.sweep.plan import Plan, Task
from roofline.questions.sweep.pricing import Told, price_unit
from roofline.questions.sweep.store import Entry, Store

__all__ = [
    "StoppedError",
    "Words",
    "Workers",
    "local",
    "run_task",
    "to_file",
    "to_stream",
    "workers_of_cluster",
]

#: Tasks given out for each worker: one in work, one waiting.
AHEAD = 2
#: Rows without numbers held in memory until one with numbers follows; more go to a file.
HELD_BYTES = 2**26
Workers = tuple[Executor | None, int]
Tell = Callable[[int], None]


class StoppedError(RooflineError):
    """The user stopped the sweep; what was finished is kept."""

    exit_code = 130


@dataclass(frozen=True, kw_only=True, slots=True)
class Words:
    """How rows and journals put things into words: functions of modules, so that workers have them.

    ``spell`` names the options in a text, ``say`` returns the sentences of notices, ``source`` a
    source as JSON writes it.
    """

    spell: Callable[[str], str]
    say: Callable[[Iterable[Notice]], list[str]]
    source: Callable[[Source], dict[str, Any]]


def run_task(
    task: Task, columns: tuple[Column, ...], form: SweepFormat, words: Words
) -> tuple[Entry, bytes]:
    """Price a task; return its journal entry and its rows as they are written."""
    told = Told(spell=words.spell)
    frames = [frame for unit in task.units for frame in price_unit(unit, told)]
    sources = (json.dumps(words.source(each), ensure_ascii=False) for each in told.sources)
    entry = Entry(
        index=task.index,
        rows=sum(frame.rows for frame in frames),
        points=task.points,
        fitting=sum(frame.fitting for frame in frames),
        refusal=next((frame.refusal for frame in frames if frame.refusal), ""),
        warnings=sorted(set(map(words.spell, words.say(told.notices)))),
        sources=sorted(set(sources)),
    )
    return entry, encode(frames, columns, form)


@contextmanager
def local(jobs: int) -> Iterator[Workers]:
    """Give this many processes; one job runs in this process."""
    if jobs == 1:
        yield None, 1
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    pool = ProcessPoolExecutor(
        jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_leave_with_parent
    )
    try:
        # processes started now leave Ctrl-C to this one from their first instruction on
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        for _ in range(jobs):
            pool.submit(int)
        signal.signal(signal.SIGINT, before)
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
def workers_of_cluster(address: str) -> Iterator[Workers]:
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
    words: Words,
) -> Iterator[tuple[Entry, bytes]]:
    """Yield what tasks give, in order, with a few of them ahead of the reader."""
    executor, count = workers
    if executor is None:
        for task in tasks:
            yield run_task(task, columns, form, words)
        return
    waiting: deque[Future[tuple[Entry, bytes]]] = deque()
    try:
        for task in tasks:
            waiting.append(executor.submit(run_task, task, columns, form, words))
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
    plan: Plan,
    form: SweepFormat,
    workers: Workers,
    write: Callable[[bytes], object],
    *,
    words: Words,
    tell: Tell,
) -> list[str]:
    """Write the rows as they come, from the first on that can be run; return the warnings."""
    columns, warnings = columns_for(plan.extra), set[str]()
    refusals: list[str] = []
    found = False
    with tempfile.SpooledTemporaryFile(HELD_BYTES) as held:
        held.write(heading(columns, form))
        for entry, content in _results(plan.tasks(), workers, columns, form, words):
            refusals += filter(None, [entry.refusal])
            (write if found else held.write)(content)
            if entry.fitting and not found:
                found = True
                held.seek(0)
                while chunk := held.read(2**20):
                    write(chunk)
            warnings.update(entry.warnings)
            tell(entry.points)
    if not found:
        raise _nothing(plan, refusals)
    return sorted(warnings)


def _nothing(plan: Plan, refusals: Sequence[str]) -> RooflineError:
    """Return what to say of a sweep that has no row with numbers."""
    if refusals:
        return InputError(f"nothing in this grid can be priced: {refusals[0]}")
    block = next(plan.blocks())
    deployment, _ = deploy(block.configuration, drop_idle=block.drop_idle)
    error = does_not_fit(deployment, batch=min(plan.batches), context=min(plan.contexts))
    return DoesNotFitError(f"no point of this grid fits in memory; the first: {error.text}")


def to_file(
    plan: Plan,
    form: SweepFormat,
    workers: Workers,
    store: Store,
    *,
    words: Words,
    tell: Tell,
    about: dict[str, Any],
) -> list[str]:
    """Write the rows to a file that appears when all are there, with its provenance beside it.

    Returns the warnings.
    """
    columns = columns_for(plan.extra)
    tell(sum(entry.points for entry in store.entries.values()))
    left = (task for task in plan.tasks() if task.index not in store.entries)
    try:
        for entry, content in _results(left, workers, columns, form, words):
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
        raise _nothing(plan, [entry.refusal for entry in entries if entry.refusal])
    warnings = sorted({warning for entry in entries for warning in entry.warnings})
    sources = sorted({source for entry in entries for source in entry.sources})
    about = about | {
        "rows": sum(entry.rows for entry in entries),
        "columns": [dataclasses.asdict(column) for column in columns],
        "warnings": warnings,
        "sources": [json.loads(source) for source in sources],
    }
    with store.finished() as file:
        join(store.parts, file, columns, form, about)
    with store.explained():
        sidecar(store.output).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    store.remove()
    return warnings


def sidecar(output: Path) -> Path:
    """Return where a file's provenance lies."""
    return output.with_name(f"{output.name}.provenance.json")
