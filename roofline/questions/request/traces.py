"""Traces of requests: a plain CSV, and the public formats of vLLM, Mooncake and Azure.

| format | told by | taken |
|---|---|---|
| ``vllm bench`` result | JSON or JSONL with ``input_lens`` and ``output_lens`` | both lists |
| JSONL of requests (Mooncake) | ``input_length`` and ``output_length`` | one a line |
| Azure LLM inference | CSV headed ``TIMESTAMP,ContextTokens,GeneratedTokens`` | one a row |
| plain | CSV of ``input,output[,time[,prefix]]``, with or without a heading | one a row |

Mooncake's ``hash_ids`` name the blocks of 512 tokens that a prompt is made of, each with all before
it: those that an earlier request had are taken as found in the prefix cache.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from roofline.base.errors import InputError, Option
from roofline.base.files import read_at_most
from roofline.questions.request.lengths import LONGEST, Requests, requests_of

__all__ = ["read_trace"]

LARGEST = 2**28  # [B]
MOONCAKE_BLOCK = 512  # tokens of a hash (Mooncake, FAST'25 release, README of the traces)
#: Names of lengths in lines of JSON, and in the heading of a CSV.
INPUTS = ("input_length", "input_len", "prompt_len", "input_tokens", "input", "contexttokens")
OUTPUTS = ("output_length", "output_len", "output_tokens", "output", "generatedtokens")
TIMES = ("timestamp", "time", "arrival_time")
PREFIXES = ("prefix", "prefix_tokens", "cached_tokens")
EXPECTED = (
    "expected CSV of input,output[,time[,prefix]], a result of vllm bench (input_lens, "
    "output_lens), Mooncake's JSONL (input_length, output_length) or Azure's CSV "
    "(TIMESTAMP,ContextTokens,GeneratedTokens)"
)


class _Row(NamedTuple):
    where: str  # line 7, request 7
    input: object
    output: object
    time: object = None
    prefix: object = 0


def read_trace(path: str, *, chunk: int | None = None) -> Requests:
    """Return the requests of a trace; a fault names the line."""
    file = Path(path)
    try:
        text = read_at_most(file, LARGEST, "a trace").decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _fault(path, f"is not text; {EXPECTED}") from None
    except InputError as error:
        raise _fault(path, error.problem) from None
    rows = _rows(path, text)
    if not rows:
        raise _fault(path, f"holds no request; {EXPECTED}")
    inputs, outputs, prefixes, times = [], [], [], []
    for row in rows:
        prompt = _tokens(path, row, "input", row.input, least=1)
        inputs.append(prompt)
        outputs.append(_tokens(path, row, "output", row.output, least=1))
        prefix = _tokens(path, row, "prefix", row.prefix, least=0)
        if prefix > prompt:
            raise _fault(path, f"{row.where}: prefix: expected at most the input, got {prefix}")
        prefixes.append(min(prefix, prompt - 1))  # the last token is computed always
        if row.time not in (None, ""):
            times.append(_time(path, row))
    if times and len(times) < len(rows):
        raise _fault(path, f"{len(rows) - len(times)} of {len(rows)} requests have no time")
    span = max(times) - min(times) if times else 0.0
    return requests_of(
        inputs,
        outputs,
        prefixes,
        chunk=chunk,
        source=file.name,
        rate=(len(times) - 1) / span if span > 0 else None,
    )


def _fault(path: str, problem: str) -> InputError:
    return InputError(f"{Option('trace')} {path}: {problem}")


def _rows(path: str, text: str) -> list[_Row]:
    """Return the requests of whichever format the text is in."""
    start = text.lstrip()[:1]
    if start not in ("{", "["):
        return _csv_rows(path, text)
    try:
        whole: Any = json.loads(text)
    except json.JSONDecodeError:
        whole = None
    if isinstance(whole, list):
        return list(_json_rows(path, ((f"request {n}", each) for n, each in enumerate(whole, 1))))
    if isinstance(whole, dict):
        return list(_json_rows(path, [("line 1", whole)]))
    lines = []
    for n, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            lines.append((f"line {n}", json.loads(line)))
        except json.JSONDecodeError:
            raise _fault(path, f"line {n}: is not JSON") from None
    return list(_json_rows(path, lines))


def _json_rows(path: str, lines: Iterable[tuple[str, Any]]) -> Iterable[_Row]:
    """Yield the requests of objects: one each, or a whole run of vllm bench."""
    seen: set[int] = set()
    for where, record in lines:
        if not isinstance(record, dict):
            raise _fault(path, f"{where}: {EXPECTED}")
        if "input_lens" in record or "output_lens" in record:
            yield from _bench_rows(path, where, record)
            continue
        prefix, hashes = _named(record, PREFIXES), record.get("hash_ids")
        if isinstance(hashes, list) and prefix is None:
            prefix = MOONCAKE_BLOCK * _known(hashes, seen)
            length = _named(record, INPUTS)
            if isinstance(length, int):
                prefix = min(prefix, length)
        time = record.get("timestamp")
        if isinstance(time, int | float):
            time = time / 1e3  # Mooncake's are in ms
        prompt, answer = _named(record, INPUTS), _named(record, OUTPUTS)
        yield _Row(where, prompt, answer, time=time, prefix=prefix or 0)


def _bench_rows(path: str, where: str, record: Mapping[str, Any]) -> Iterable[_Row]:
    inputs, outputs = record.get("input_lens"), record.get("output_lens")
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        raise _fault(path, f"{where}: expected lists input_lens and output_lens")
    if len(inputs) != len(outputs):
        raise _fault(path, f"{where}: {len(inputs)} input_lens, but {len(outputs)} output_lens")
    for n, (prompt, answer) in enumerate(zip(inputs, outputs, strict=True), 1):
        if answer == 0:  # a request that failed
            continue
        yield _Row(f"{where}, request {n}", prompt, answer)


def _known(hashes: Sequence[Any], seen: set[int]) -> int:
    """Return how many first blocks an earlier request had; all are known from now on."""
    known = 0
    for each in hashes:
        if each not in seen:
            break
        known += 1
    seen.update(each for each in hashes if isinstance(each, int))
    return known


def _named(record: Mapping[str, Any], names: Iterable[str]) -> Any:
    lower = {str(key).lower(): value for key, value in record.items()}
    return next((lower[name] for name in names if name in lower), None)


def _csv_rows(path: str, text: str) -> list[_Row]:
    try:
        lines = [(n, row) for n, row in enumerate(csv.reader(io.StringIO(text)), 1) if any(row)]
    except csv.Error:
        raise _fault(path, f"is not CSV; {EXPECTED}") from None
    if not lines:
        return []
    heading = [cell.strip().lower() for cell in lines[0][1]]
    order: dict[str, int] = {"input": 0, "output": 1, "time": 2, "prefix": 3}
    if any(cell and not _number(cell) for cell in heading[:2]):
        order = {}
        for name, known in zip(
            ("input", "output", "time", "prefix"), (INPUTS, OUTPUTS, TIMES, PREFIXES), strict=True
        ):
            for at, cell in enumerate(heading):
                if cell in known:
                    order.setdefault(name, at)
        if not {"input", "output"} <= set(order):
            raise _fault(path, f"line 1: no column for input and output; {EXPECTED}")
        lines = lines[1:]
    found = []
    for n, row in lines:
        cells = {name: row[at].strip() for name, at in order.items() if at < len(row)}
        if "output" not in cells:
            raise _fault(path, f"line {n}: expected input,output[,time[,prefix]]")
        found.append(
            _Row(
                f"line {n}",
                cells["input"],
                cells["output"],
                cells.get("time") or None,
                cells.get("prefix") or 0,
            )
        )
    return found


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _tokens(path: str, row: _Row, name: str, value: object, *, least: int) -> int:
    """Return a number of tokens."""
    if value is None or value == "":
        raise _fault(path, f"{row.where}: {name}: is missing")
    try:
        number = float(str(value))
    except ValueError:
        number = math.nan
    if isinstance(value, bool) or not number.is_integer() or not least <= number <= LONGEST:
        expected = "a whole number of tokens" + (f", at least {least}" if least else "")
        raise _fault(path, f"{row.where}: {name}: expected {expected}, got {str(value)[:40]!r}")
    return int(number)


def _time(path: str, row: _Row) -> float:
    """Return a time in seconds: a number, or a date as Azure writes it."""
    text = str(row.time)
    try:
        seconds = float(text)
    except ValueError:
        try:
            # seven digits of a second are one too many for Python 3.10's reader and its like
            seconds = datetime.fromisoformat(text[:26].strip()).timestamp()
        except ValueError:
            raise _fault(
                path, f"{row.where}: time: expected seconds or a date, got {text[:40]!r}"
            ) from None
    if not math.isfinite(seconds) or seconds < 0:
        raise _fault(path, f"{row.where}: time: expected at least 0, got {text[:40]!r}")
    return seconds
