"""What came out of a timing: typed, or a benchmark's result, checked against what was asked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from roofline.acceptance.prior import same_model
from roofline.base.errors import FaultsError, InputError, Option
from roofline.base.units import listed
from roofline.engines.bench_result import BenchResult
from roofline.questions.tune.file import Timed

__all__ = ["check_new", "check_timed", "timed_of", "typed_result"]

#: The source of a timing whose numbers were typed.
TYPED = "typed"
#: What a timing cannot be without.
_NEEDED = ("draft_length", "tokens_per_s")


def timed_of(
    result: BenchResult,
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
        raise InputError(
            f"{source}: ran on {result.engine}; the file's question is about {engine}; begin "
            f"another with {Option('engine', result.engine)}"
        )
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
        "passes": (result.passes or None) if length and held is None else None,
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
        remedy = f"begin another file, with {Option('batch', f'{running:.0f}')}"
        if running != round(running):  # a tool that says no load says the mean of the run
            remedy = f"where that is the mean of a run with one of these, give {Option('batch')}"
        raise InputError(
            f"{source}: {running:.3g} requests ran at once, not {known}; time it with as many, or "
            + remedy
        )
    return nearest


def typed_result(**values: Any) -> Timed:
    """Return the timing that options describe; what is None was not given."""
    for name in _NEEDED:
        if values.get(name) is None:
            raise InputError("is missing; a timing needs it", field=name)
    for name, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError("expected a finite number", field=name, value=value)
    return _timed({name: value for name, value in values.items() if value is not None}, TYPED)


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
        if where == TYPED:
            raise InputError(message, field=place, value=first["input"]) from None
        raise FaultsError([f"{where}: {place}: {message}, got {first['input']!r}"]) from None


def check_new(timed: Timed, timings: Sequence[Timed]) -> None:
    """Refuse a timing that a file holds already: counted twice it would look more certain."""
    own = timed.model_copy(update={"source": ""})
    if any(each.model_copy(update={"source": ""}) == own for each in timings):
        raise InputError(
            f"{timed.source}: draft length {timed.draft_length} with {timed.tokens_per_s:g} "
            f"tokens/s was added before. Nothing was added; {Option('force')} adds it as one more "
            "run"
        )


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
    if any(later > earlier + 1e-6 for earlier, later in pairwise(timed.survival)):
        raise InputError(
            f"{where}: the shares of accepted drafts grow by position; a draft is accepted only "
            "after all before it, so give each position's share of all passes"
        )
    if timed.held is not None and not 1 <= timed.held <= 1 + length:
        raise InputError(
            f"{where}: {timed.held:g} tokens per step held at draft length {length}: no pass emits "
            f"more than {1 + length}"
        )
    if timed.survival and len(timed.survival) != length:
        raise InputError(
            f"{where}: {len(timed.survival)} shares of accepted drafts at draft length {length}"
        )
