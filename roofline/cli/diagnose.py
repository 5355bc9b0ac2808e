"""``roofline diagnose``: which term of the model disagrees with a measurement."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roofline.base.errors import InputError, Option
from roofline.base.values import MILLISECONDS, PER_SECOND, PERCENT, amount, one_size
from roofline.cli.panels import MEASUREMENT
from roofline.cli.printing import emit_answer
from roofline.cli.question import FORMATS, OUTPUT, asks, format_for, given_by_flag, option

if TYPE_CHECKING:
    from roofline.acceptance import Acceptance
    from roofline.advice.configuration import Configuration
    from roofline.advice.question import Workload
    from roofline.questions.diagnose.points import MeasuredPoint

__all__ = ["diagnose"]

_ONE = "expected one number; write others in --measured"


@asks("acceptance_rounds", "max_draft_length", model=None, tuned=True)
def diagnose(
    configuration: Configuration,
    workload: Workload,
    *,
    measured: Annotated[
        list[str] | None,
        option(
            MEASUREMENT,
            "D[@BATCH[xCONTEXT]]:TIME[:TOKENS] with the time of a token or tokens/s of all "
            "(0:7.1ms,3@8x4k:1840/s:2.4), or a CSV of steps; repeatable.",
            metavar="POINT",
        ),
    ] = None,
    tpot: Annotated[
        str | None,
        option(
            MEASUREMENT, "One measurement: ms of a token of one user, 4.1 or 4.1ms.", metavar="MS"
        ),
    ] = None,
    tokens_per_s: Annotated[
        str | None,
        option(MEASUREMENT, "One measurement: tokens per second of all sequences.", metavar="RATE"),
    ] = None,
    draft_length: Annotated[
        int, option(MEASUREMENT, "D of --tpot or --tokens-per-s.", metavar="D")
    ] = 0,
    tokens_per_step: Annotated[
        float | None,
        option(MEASUREMENT, "Tokens that a step yields, where a point does not say.", metavar="AL"),
    ] = None,
    batch: Annotated[
        str, option(MEASUREMENT, "Sequences together, where a point does not say.", metavar="N")
    ] = "1",
    context: Annotated[
        str, option(MEASUREMENT, "Tokens in the KV cache, where it does not.", metavar="N")
    ] = "4k",
    noise: Annotated[
        str,
        option(MEASUREMENT, "Error of the measurements: one deviation, in percent.", metavar="%"),
    ] = "3",
    form: Annotated[str | None, FORMATS] = None,
    output: Annotated[Path | None, OUTPUT] = None,
    options: typer.Context,
) -> None:
    """Say which term of the prediction a measurement contradicts.

    Example: roofline diagnose llama-3.1-8b --measured 0:7.9ms,3:5.5ms:2.66
    """
    from roofline.questions.diagnose.diagnose import diagnose as find
    from roofline.questions.diagnose.diagnose import over_all_passes, with_other_reading
    from roofline.questions.diagnose.points import read_points
    from roofline.questions.tune.learned import Learned
    from roofline.render.diagnose import as_answer
    from roofline.render.writers import OutputFormat

    how = format_for(form, output, kinds=OutputFormat)
    deviation = amount("noise", noise, PERCENT, "percent, such as 3")
    if not 0.1 <= deviation <= 50:
        raise InputError(f"--noise {noise}: expected 0.1 to 50 percent")
    if measured and (tpot is not None or tokens_per_s is not None):
        raise InputError(
            "--tpot, --tokens-per-s: stand instead of --measured; put all points there"
        )

    if not configuration.model:
        raise InputError("MODEL is missing: give a model, or --tuned FILE of a tuning file")
    learned = workload.tuned
    if learned is not None:
        own = {"measured", "tpot", "tokens_per_s", "tokens_per_step", "draft_length", "batch"}
        typed = sorted((own | {"context"}) & given_by_flag(options))
        if typed:
            raise InputError(f"{Option(typed[0])} and --tuned: give one of them")
        assert isinstance(learned, Learned)
        workload = replace(
            workload, tuned=None, acceptance=None, domain=None, dataset=None, temperature=None
        )
        diagnosis = find(configuration, workload, learned.points, noise=deviation / 100)
        emit_answer(as_answer(diagnosis), how, output)
        return

    def points_by(curve: Acceptance | None) -> list[MeasuredPoint]:
        """Return the measurements, times per token made times of steps by an acceptance."""
        return read_points(
            measured or [],
            extra=_single_point(tpot, tokens_per_s, draft_length),
            batch=one_size("batch", batch, _ONE),
            context=one_size("context", context, _ONE),
            tokens_per_step=_tokens_per_step(tokens_per_step, curve),
        )

    acceptance = over_all_passes(configuration, workload)
    points = points_by(acceptance)
    diagnosis = find(configuration, workload, points, noise=deviation / 100)
    if acceptance is not None and acceptance.other_reading is not None:
        others = points_by(acceptance.other_reading)
        if others != points:
            other = find(configuration, workload, others, noise=deviation / 100)
            diagnosis = with_other_reading(diagnosis, other, acceptance)
    emit_answer(as_answer(diagnosis), how, output)


def _single_point(
    tpot: str | None, rate: str | None, draft_length: int
) -> tuple[Option, str] | None:
    """Return the measurement of --tpot or --tokens-per-s: the option as typed, and the point."""
    if tpot is not None and rate is not None:
        raise InputError("--tpot and --tokens-per-s: give one of them")
    if draft_length < 0:
        raise InputError(f"--draft-length {draft_length}: expected 0 to 64")
    if tpot is not None:
        ms = amount("tpot", tpot, MILLISECONDS, "ms, such as 4.1 or 4.1ms")
        return Option("tpot", tpot), f"{draft_length}:{ms!r}ms"
    if rate is None:
        return None
    pace = amount("tokens_per_s", rate, PER_SECOND, "tokens/s, such as 1840")
    return Option("tokens_per_s", rate), f"{draft_length}:{pace!r}/s"


def _tokens_per_step(option: float | None, curve: Acceptance | None) -> dict[int, float]:
    """Return tokens per step by draft length, of the option or else of the acceptance."""
    if option is not None:
        return dict.fromkeys(range(1, 65), option)
    if curve is None:
        return {}
    known = curve.tokens_per_step(range(65))
    return {length: float(al) for length, al in enumerate(known)}
