"""What a benchmark of an engine measured: one speed at one draft length, with its acceptance.

Here are read: the reports of the engines' own tools (each in `bench_reports`), repeats of them, a
CSV, and two reads of a metrics page.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from roofline.base.errors import InputError, Option
from roofline.base.files import printable, read_at_most
from roofline.engines import bench_reports as reports
from roofline.engines.bench_result import BenchResult, mean_of
from roofline.engines.counts import Reading
from roofline.engines.metrics import engine_of_page, page_of_model
from roofline.engines.prometheus import Page, counted_between, is_page, parse_lines
from roofline.engines.server_facts import EngineNames, serving_names

__all__ = ["BenchResult", "read_bench", "read_benches", "read_pages", "read_responses"]

MAX_BYTES = 10_000_000
#: Results that lie this far apart by batch are of another load [share].
SAME_BATCH = 0.02
COLUMNS = ("draft_length", "tokens_per_s")
#: Further columns of a CSV, and how their numbers are read.
FURTHER: dict[str, Callable[[str], Any]] = {
    "concurrency": float,
    "tokens_per_step": float,
    "passes": int,
    "requests": int,
    "repeats": int,
    "spread": float,
    "held": float,
    "model": str,
}


def read_bench(
    source: str | Path,
    *,
    earlier: str | Path | None = None,
    seconds: float | None = None,
    draft_length: int | None = None,
    concurrency: float | None = None,
    output_tokens: int | None = None,
) -> BenchResult:
    """Read the one result of a text, a file or two pages; repeats of it become their mean.

    ``draft_length``, ``concurrency`` and ``output_tokens`` (of a request) are what the tool does
    not say; of several results the first two choose one.
    """
    results = read_benches(
        source,
        earlier=earlier,
        seconds=seconds,
        draft_length=draft_length,
        concurrency=concurrency,
        output_tokens=output_tokens,
    )
    if len(results) > 1:
        known = ", ".join(
            f"D {'?' if r.draft_length is None else r.draft_length}"
            + ("" if r.concurrency is None else f" at {r.concurrency:g}")
            for r in results[:6]
        )
        raise InputError(
            f"holds {len(results)} results ({known}); say which with {Option('draft_length')} or "
            f"{Option('batch')}",
            where=results[0].where,
        )
    return results[0]


def read_benches(
    source: str | Path,
    *,
    earlier: str | Path | None = None,
    seconds: float | None = None,
    draft_length: int | None = None,
    concurrency: float | None = None,
    output_tokens: int | None = None,
) -> tuple[BenchResult, ...]:
    """Read all results, one for each draft length and batch, in the order of the source."""
    where, text = _content(source)
    if earlier is not None:
        before = _content(earlier)[1]
        found = [
            read_pages(
                text, before, where=where, seconds=seconds, concurrency=concurrency
            ).with_draft_length(draft_length)
        ]
    else:
        found = list(_results(text, where, concurrency=concurrency, output_tokens=output_tokens))
        found = _chosen(found, where, draft_length=draft_length, concurrency=concurrency)
    return tuple(mean_of(group) for group in _groups(found))


def _content(source: str | Path) -> tuple[str, str]:
    """Return where a text lies, and the text; a string is a path unless it holds a line break."""
    if isinstance(source, str) and ("\n" in source or source.lstrip()[:1] in ("{", "[")):
        return "the result", source
    path = Path(source)
    raw = read_at_most(path, MAX_BYTES, "a benchmark's result")
    wide = raw.startswith((b"\xff\xfe", b"\xfe\xff"))
    text = raw.decode("utf-16" if wide else "utf-8-sig", errors="replace")
    if not text.strip():
        raise InputError("is empty; give the file that the benchmark wrote", where=path.name)
    return path.name, text


def _results(
    text: str, where: str, *, concurrency: float | None, output_tokens: int | None
) -> Iterator[BenchResult]:
    """Yield what the reader of this kind of text reads."""
    given = reports.Given(concurrency=concurrency, output_tokens=output_tokens)
    if is_page(text):
        raise InputError(
            "is one read of a metrics page; a speed needs a second one, from before the run",
            where=where,
        )
    if text.lstrip()[:1] in ("{", "["):
        yield from reports.in_json(_documents(text, where), where, given)
        return
    header = next(csv.reader(text.lstrip().splitlines()[:1]), [])
    names = [name.strip() for name in header]
    if set(COLUMNS) <= set(names):
        yield from _of_csv(text, where)
        return
    yield from reports.in_text(text, where, given, columns=names)


def _documents(text: str, where: str) -> list[Any]:
    """Return all JSON values of a text, one after the other; refuse one that breaks off."""
    decoder = json.JSONDecoder(parse_constant=float)
    found, at, text = list[Any](), 0, text.strip()
    while at < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            done = f" after {len(found)} whole results" if found else ""
            raise InputError(
                f"the JSON breaks off or is broken{done}; expected the whole file that the "
                "benchmark wrote, so copy it again",
                where=where,
            ) from None
        found += value if isinstance(value, list) else [value]
        gap = re.compile(r"[\s,]*").match(text, at)
        at = gap.end() if gap else at
    return found


def _of_csv(text: str, where: str) -> Iterator[BenchResult]:
    """Yield the rows of ``draft_length,tokens_per_s`` and further columns."""
    lines = csv.DictReader(text.lstrip().splitlines(), skipinitialspace=True)
    known = (*COLUMNS, *FURTHER, "batch", "engine", "prompts_inside")
    for name in (each.strip() for each in lines.fieldnames or () if each.strip() not in known):
        raise InputError(
            f"unknown column '{printable(name):.40}'; known are {', '.join(known)}",
            where=where,
        )
    for number, line in enumerate(lines, start=2):
        if None in line:
            raise InputError(
                f"line {number}: expected as many values as the header has names", where=where
            )
        row = {str(key).strip(): (value or "").strip() for key, value in line.items() if key}
        row["concurrency"] = row.get("concurrency") or row.get("batch", "")
        try:
            length, speed = int(row["draft_length"]), float(row["tokens_per_s"])
            further = {key: kind(row[key]) for key, kind in FURTHER.items() if row.get(key)}
        except ValueError:
            raise InputError(
                f"line {number}: expected a whole draft length and a number of tokens per second",
                where=where,
            ) from None
        place = f"{where} line {number}"
        if length == 0:
            further["tokens_per_step"] = 1.0
        yield BenchResult(
            engine=row.get("engine", ""),
            draft_length=length,
            tokens_per_s=speed,
            prompts_inside={"yes": True, "no": False}.get(row.get("prompts_inside", "")),
            tool="CSV",
            where=place,
            **further,
        )


def read_pages(
    later: str,
    earlier: str,
    *,
    where: str = "the page",
    seconds: float | None = None,
    concurrency: float | None = None,
    model: str | None = None,
) -> BenchResult:
    """Read the speed between two reads of a metrics page.

    A page sums the time W that requests waited for their next tokens, and counts those tokens n.
    One sequence decodes n / W tokens per second, ``concurrency`` of them that many times as many;
    over ``seconds`` it was W / seconds on the mean (J. D. C. Little, 1961). Prompts are outside.
    Where the page has no such time, the speed is n / seconds, with prompts inside.
    """
    engine = engine_of_page(later)
    if engine is None or engine_of_page(earlier) != engine:
        raise InputError("expected two metrics pages of one engine", where=where)
    names = serving_names().engines[engine]
    pages = [parse_lines(text, where, names.series) for text in (later, earlier)]
    (after, name), (before, _) = (page_of_model(page, model) for page in pages)
    counted = counted_between(after, before, how="counters between two reads")
    tokens = counted.total(*names.generated)
    if not tokens:
        raise InputError(
            f"{names.generated[0]} did not grow between the two reads; send requests between them",
            where=where,
        )
    waited = counted.first_total(*names.token_seconds)
    first = counted.first_total(*names.first_tokens, *names.finished.output_count)
    if waited and waited > 0:
        load = waited / seconds if concurrency is None and seconds else concurrency
        if load is None:
            raise _unknown_load(where)
        speed = load * (tokens - (first or 0.0)) / waited
    elif seconds:
        load, speed = concurrency, tokens / seconds
    else:
        raise InputError(
            f"no {' or '.join(names.token_seconds) or 'time of tokens'} grew, so the pages hold no "
            "time of decoding; add what the engine's own benchmark writes",
            where=where,
        )
    result = BenchResult(
        engine=engine,
        concurrency=load,
        tokens_per_s=speed,
        requests=round(first) if first else None,
        prompts_inside=not waited,
        model=name,
        tool="metrics page",
        where=where,
    )
    return result.with_acceptance(_drafts_between(pages[0], pages[1], model, names))


def read_responses(
    responses: Sequence[dict[str, Any]], *, where: str, concurrency: float
) -> BenchResult:
    """Read the timings in the responses of a server that ``concurrency`` clients kept busy."""
    given = reports.Given(concurrency=concurrency)
    (result,) = reports.in_json(responses, where, given)
    return result


def _unknown_load(where: str) -> InputError:
    return InputError(
        f"does not say how many sequences ran at once; give {Option('batch')}",
        where=where,
    )


def _drafts_between(
    later: Page, earlier: Page, model: str | None, names: EngineNames
) -> Reading | None:
    """Return the acceptance between two reads; None where nothing was drafted."""
    from roofline.engines.acceptance_source import acceptance_on_page

    page = counted_between(later, earlier, how="counters between two reads")
    drafting = [s for s in page.samples if s.name.startswith(names.speculative)]
    if not any(sample.value > 0 for sample in drafting):
        return None
    return acceptance_on_page(page, model)


def _chosen(
    found: list[BenchResult],
    where: str,
    *,
    draft_length: int | None,
    concurrency: float | None,
) -> list[BenchResult]:
    """Return the results at a draft length and batch; those that do not say theirs take them."""
    if not found:
        raise InputError("holds no result; give the file that the benchmark wrote", where=where)
    lengths = {result.draft_length for result in found} - {None}
    if draft_length is not None and len(lengths) > 1 and draft_length in lengths:
        found = [r for r in found if r.draft_length in (None, draft_length)]
    found = [result.with_draft_length(draft_length) for result in found]
    if concurrency is None:
        return found
    same = [r for r in found if r.concurrency is None or _same(r.concurrency, concurrency)]
    if not same:
        loads = sorted({r.concurrency for r in found if r.concurrency is not None})
        raise InputError(
            f"was run at {', '.join(f'{load:g}' for load in loads)}; give that, or time "
            f"{concurrency:g} itself",
            field="batch",
            value=f"{concurrency:g}",
            where=where,
        )
    return [replace(r, concurrency=r.concurrency or concurrency) for r in same]


def _same(one: float, other: float) -> bool:
    return abs(one - other) <= SAME_BATCH * max(one, other)


def _groups(found: Sequence[BenchResult]) -> list[list[BenchResult]]:
    """Return results with the same settings together."""
    groups: dict[tuple[Any, ...], list[BenchResult]] = {}
    for result in found:
        load = None if result.concurrency is None else round(result.concurrency, 6)
        key = (result.engine, result.tool, result.draft_length, load, result.held, result.model)
        groups.setdefault(key, []).append(result)
    return list(groups.values())
