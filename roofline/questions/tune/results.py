"""What came out of a timing: typed, or read from a file, and checked against what was asked."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from roofline.acceptance.prior import same_model
from roofline.base.errors import FaultsError, InputError, Option
from roofline.base.files import read_at_most
from roofline.base.units import listed
from roofline.questions.tune.file import Timed

__all__ = ["COLUMNS", "Benchmarked", "check_timed", "read_results", "timed_of", "typed_result"]

MOST_BYTES = 8_000_000
#: The columns of a CSV of timings; those in brackets may be left out.
COLUMNS = "draft_length,tokens_per_s,tokens_per_step[,batch]"
_NEEDED = ("draft_length", "tokens_per_s")
_KNOWN = (*_NEEDED, "tokens_per_step", "batch", "repeats", "spread")
_WHOLE = ("draft_length", "batch", "repeats")


class Benchmarked(Protocol):
    """The result of a benchmark as an engine's reader gives it; None where a tool does not say."""

    @property
    def engine(self) -> str:
        """The engine's id; empty where it is not said."""

    @property
    def draft_length(self) -> int | None:
        """The draft length that ran."""

    @property
    def concurrency(self) -> float | None:
        """Mean running requests."""

    @property
    def tokens_per_s(self) -> float:
        """Output tokens per second of decoding."""

    @property
    def tokens_per_step(self) -> float | None:
        """Mean tokens of a verify pass."""

    @property
    def survival(self) -> tuple[float, ...]:
        """Share of passes that accepted at least i drafts; empty if not printed."""

    @property
    def prompts_inside(self) -> bool | None:
        """Whether prompts were processed in the time of the speed."""

    @property
    def model(self) -> str | None:
        """The model that was served."""

    @property
    def spread(self) -> float | None:
        """Standard error of the speed, a share."""

    @property
    def held(self) -> float | None:
        """Tokens per step that the engine was made to accept."""

    @property
    def repeats(self) -> int:
        """Runs that it is the mean of."""


def timed_of(
    result: Benchmarked,
    *,
    engine: str,
    models: tuple[str, ...],
    batches: tuple[int, ...],
    batch: int | None,
    source: str,
    force: bool = False,
) -> Timed:
    """Return the timing that a benchmark's result is; refuse another engine, model or load.

    ``batch`` is that of the timing, by default the question's nearest to the running requests.
    Prompts inside the speed look like growth of the step, so they are refused without ``force``.
    """
    if result.engine and result.engine != engine:
        raise InputError(f"{source}: ran on {result.engine}; the file's question is about {engine}")
    if result.model and not any(same_model(result.model, model) for model in models):
        raise InputError(
            f"{source}: is of {result.model}; the file's question is about {models[0]}"
        )
    if result.draft_length is None:
        raise InputError(f"{source}: does not say its draft length; give {Option('draft_length')}")
    if result.prompts_inside and not force:
        raise InputError(
            f"{source}: prompts are inside its speed, which makes steps look longer; time decoding "
            f"alone. Nothing was added; {Option('force')} adds it"
        )
    length, held = result.draft_length, result.held
    values: dict[str, Any] = {
        "draft_length": length,
        "batch": batch or _batch_of(result.concurrency, batches, source),
        "tokens_per_s": result.tokens_per_s,
        "tokens_per_step": result.tokens_per_step if length and held is None else None,
        "survival": tuple(result.survival) if held is None else (),
        "repeats": result.repeats,
        "spread": result.spread,
        "held": held,
        "source": source,
    }
    return _timed({name: value for name, value in values.items() if value is not None}, source)


def _batch_of(running: float | None, batches: tuple[int, ...], source: str) -> int:
    """Return the batch that so many running requests are: the nearest within a quarter."""
    if running is None and len(batches) == 1:
        return batches[0]
    if running is None:
        raise InputError(f"{source}: does not say its load; give {Option('batch')}")
    nearest = min(batches, key=lambda batch: abs(math.log(batch / running)))
    if abs(math.log(nearest / running)) > math.log(1.25):
        known = listed([str(batch) for batch in batches], "or")
        raise InputError(
            f"{source}: {running:.3g} requests ran at once, not {known}; give {Option('batch')}"
        )
    return nearest


def read_results(path: Path, *, batch: int | None) -> tuple[Timed, ...]:
    """Return the timings in a file; ``batch`` is that of rows which state none."""
    try:
        text = read_at_most(path, MOST_BYTES, "a result").decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path.name}: is no text; expected {_expected()}") from None
    lines = [line for line in text.splitlines() if line.strip()]
    header = [name.strip() for name in (lines[0].split(",") if lines else ())]
    if not set(_NEEDED) <= set(header):
        raise InputError(f"{path.name}: holds no timing that is known; expected {_expected()}")
    unknown = [name for name in header if name not in _KNOWN]
    if unknown:
        raise InputError(f"{path.name}:1: unknown column '{unknown[0]}'; expected {COLUMNS}")
    if len(lines) == 1:
        raise InputError(f"{path.name}: has no row below its header")
    rows = csv.DictReader(lines, skipinitialspace=True)
    return tuple(
        _row(row, where=f"{path.name}:{number}", batch=batch, source=path.name)
        for number, row in enumerate(rows, 2)
    )


def _expected() -> str:
    return f"a CSV with the columns {COLUMNS}"


def _row(row: Mapping[Any, Any], *, where: str, batch: int | None, source: str) -> Timed:
    if None in row or None in row.values():
        raise InputError(f"{where}: expected as many values as the header has names")
    values: dict[str, Any] = {"source": source}
    for name, text in row.items():
        if text.strip():
            values[name] = _number(text.strip(), name, where)
    for name in _NEEDED:
        if name not in values:
            raise InputError(f"{where}: {name} is missing")
    return _timed(values if batch is None else {"batch": batch} | values, where)


def _number(text: str, name: str, where: str) -> float | int:
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"{where}: {name}: expected a number, got {text!r}") from None
    if not math.isfinite(value) or (name in _WHOLE and value != int(value)):
        kind = "a whole number" if name in _WHOLE else "a number"
        raise InputError(f"{where}: {name}: expected {kind}, got {text!r}")
    return int(value) if name in _WHOLE else value


def typed_result(**values: Any) -> Timed:
    """Return the timing that options describe; what is None was not given."""
    for name in _NEEDED:
        if values.get(name) is None:
            raise InputError("is missing; a timing needs it", field=name)
    for name, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError("expected a finite number", field=name, value=value)
    return _timed({name: value for name, value in values.items() if value is not None}, "typed")


def _timed(values: Mapping[str, Any], where: str) -> Timed:
    """Validate one timing as the file's schema does; the fault is one line."""
    from pydantic import ValidationError

    if "batch" not in values:
        raise InputError(f"{where}: has no batch; add it, or give {Option('batch')}")
    try:
        return Timed.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        message = first["msg"][0].lower() + first["msg"][1:]
        raise FaultsError([f"{where}: {place}: {message}, got {first['input']!r}"]) from None


def check_timed(
    timed: Timed, *, draft_lengths: tuple[int, ...], batches: tuple[int, ...], where: str
) -> None:
    """Refuse a timing of what the question does not ask about, or that contradicts itself."""
    length, tokens = timed.draft_length, timed.tokens_per_step
    if length not in draft_lengths:
        raise InputError(
            f"{where}: draft length {length} is not asked about; the file's question has "
            f"{listed([str(d) for d in draft_lengths])}"
        )
    if timed.batch not in batches:
        known = ", ".join(map(str, batches))
        raise InputError(
            f"{where}: batch {timed.batch} is not asked about; the file's question has {known}"
        )
    if tokens is not None and tokens > 1 + length:
        raise InputError(
            f"{where}: {tokens:g} tokens per step at draft length {length}: no pass emits more "
            f"than {1 + length}"
        )
    if timed.survival and len(timed.survival) != length:
        raise InputError(
            f"{where}: {len(timed.survival)} shares of accepted drafts at draft length {length}"
        )
