"""``roofline acceptance``: bundled curves, conventions, and what an engine reports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roofline.base.errors import InputError
from roofline.base.values import choice, one_size, seconds
from roofline.cli import completion
from roofline.cli.listing import ALL, MATCH, Entry, emit_list
from roofline.cli.panels import QUESTION
from roofline.cli.printing import (
    cut,
    emit,
    emit_answer,
    emit_rows,
    emit_text,
    help_if_bare,
)
from roofline.cli.question import ANY_BATCH, FORMATS, LISTED, OUTPUT, asks, format_for, option

if TYPE_CHECKING:
    from roofline.advice.configuration import Configuration
    from roofline.advice.question import Workload
    from roofline.base.notices import Notice
    from roofline.engines.counts import Reading

app = typer.Typer(
    help="List, show, explain, convert and read acceptance.",
    callback=help_if_bare,
    invoke_without_command=True,
)

_KINDS = "conditional, survival, tokens-per-step, accepted-drafts, rate, iid"
_FIRST = ("target", "drafter", "dataset", "temperature", "context", "source", "license", "note")
WIDTH = 18  # characters of a dataset's name in the list
SHORTEST_WAIT = 0.01  # [s]


@app.command("list")
def list_(
    match: Annotated[str | None, MATCH] = None,
    everything: Annotated[bool, ALL] = False,
    form: Annotated[str, LISTED] = "table",
) -> None:
    """List the bundled curves.

    Example: roofline acceptance list --match llama
    """
    from roofline.acceptance.files import bundled_curves

    entries = [
        Entry(
            group=row["id"].partition("-")[0],
            row=_short(row) if form == "table" else row,
            text=" ".join(row.values()),
        )
        for row in bundled_curves()
    ]
    emit_list(entries, form, match=match, everything=everything, noun="curves")


@app.command()
def show(
    curve: Annotated[
        list[str],
        typer.Argument(
            metavar="CURVE...",
            help="Bundled ids or files; #DATASET picks one.",
            autocompletion=completion.curves,
        ),
    ],
    models: Annotated[
        bool, typer.Option("--models", help="Compare models of acceptance with each curve.")
    ] = False,
    form: Annotated[str, LISTED] = "table",
) -> None:
    """Show curves and their sources.

    With --models, how well simple models follow them.

    Example: roofline acceptance show llama-3.1-8b-eagle3
    """
    if models:
        from roofline.acceptance.models import compare_models

        emit_rows([row for name in curve for row in compare_models(name)], form)
        return
    if len(curve) > 1:
        raise InputError("show one curve at a time, or several with --models")
    from roofline.acceptance.files import load_file, split_part

    where, part = split_part(curve[0])
    name, content = load_file(where)
    dumped = content.model_dump(mode="json", by_alias=True, exclude_none=True)
    shown = {key: dumped[key] for key in (*_FIRST, *dumped) if key in dumped and key != "schema"}
    if part is not None:
        shown["tokens_per_step"] = _rounded(content.acceptance(name, dataset=part).measured)
        shown.pop("curves", None)
    elif "curves" in shown:
        shown["curves"] = {
            f"{number} {entry.pop('dataset', '')}".strip(): entry
            for number, entry in enumerate(shown["curves"], start=1)
        }
    emit(shown, form)


@app.command()
@asks()
def explain(
    configuration: Configuration,
    workload: Workload,
    *,
    context: Annotated[
        str, option(QUESTION, "Tokens in the KV cache.", "--context", metavar="N")
    ] = "4k",
    batch: Annotated[str | None, ANY_BATCH] = None,
    draft_length: Annotated[
        int | None,
        option(QUESTION, "D to explain it at.  [3, or where your numbers end]", metavar="D"),
    ] = None,
    form: Annotated[str | None, FORMATS] = None,
    output: Annotated[Path | None, OUTPUT] = None,
) -> None:
    """Explain the acceptance of an answer, label by label.

    What would move it, and which public runs are nearest; 'plot tokens-per-step' draws it.

    Example: roofline acceptance explain llama-3.1-8b --domain code
    """
    from roofline.advice.question import ask
    from roofline.questions.acceptance import explain_acceptance
    from roofline.render.acceptance import as_answer
    from roofline.render.writers import OutputFormat

    how = format_for(form, output, kinds=OutputFormat)
    at = one_size("context", context, "an acceptance is explained at one context; give one")
    question = ask(configuration, replace(workload, contexts=(at,)))
    question = question.without_effect("batch", given=batch is not None)
    emit_answer(as_answer(explain_acceptance(question, draft_length=draft_length)), how, output)


@app.command()
def convert(
    values: Annotated[
        str, typer.Argument(metavar="VALUES", help="One number, or one per position: 0.885,0.740.")
    ],
    source: Annotated[
        str, typer.Option("--from", metavar="WORD", help=f"What they are: {_KINDS}.")
    ],
    target: Annotated[
        str, typer.Option("--to", metavar="WORD", help="What you want: the same words.")
    ],
    draft_length: Annotated[
        int | None, typer.Option(metavar="D", help="D that a single number was measured at.")
    ] = None,
    form: Annotated[str, LISTED] = "table",
) -> None:
    """Convert acceptance from one convention to another.

    Example: roofline acceptance convert 0.72,0.45 --from survival --to rate
    """
    from roofline.acceptance.conventions import Convention, check_values
    from roofline.acceptance.conventions import convert as converted

    if draft_length is not None and not 1 <= draft_length <= 256:
        raise InputError(f"--draft-length {draft_length}: expected 1 to 256")
    given = choice("from", source, Convention)
    wanted = choice("to", target, Convention)
    numbers = _numbers(values)
    check_values(numbers, given, draft_length)
    result = converted(numbers, source=given, target=wanted, draft_length=draft_length)
    if form == "json":
        emit({"from": given, "to": wanted, "draft_length": draft_length, "values": result}, form)
        return
    emit({str(wanted): ", ".join(f"{value:.4g}" for value in result)}, form)


@app.command()
def read(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A page, log or JSON: path, http address or -; #MODEL picks one. "
            "Or a line of a log, in quotes.",
        ),
    ],
    since: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="An earlier copy of the page: count from there."),
    ] = None,
    interval: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Read twice, 30s or 5m apart, and count between."),
    ] = None,
    draft_length: Annotated[
        int | None,
        typer.Option(metavar="D", help="D of the server, where the source does not say it."),
    ] = None,
    timeout: Annotated[
        str, typer.Option(metavar="TIME", help="Time allowed for one http answer.")
    ] = "5s",
    form: Annotated[str, LISTED] = "table",
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write an acceptance file: FILE.yaml."),
    ] = None,
) -> None:
    """Read acceptance from what a serving engine prints or serves.

    Example: roofline acceptance read http://localhost:8000/metrics
    """
    from roofline.engines.acceptance_source import read_acceptance as read_source
    from roofline.render.notices import notes

    _check_read(since, interval, draft_length, output)
    reading = read_source(
        source,
        earlier=since,
        interval=None if interval is None else seconds("interval", interval, least=SHORTEST_WAIT),
        timeout=seconds("timeout", timeout, least=SHORTEST_WAIT),
        draft_length=draft_length,
    )
    notices = (*reading.notices, *_rise_notices(reading))
    if output is not None:
        emit_text(_file_text(reading), output, notes(notices))
        return
    data = _data(reading)
    if form == "table":
        data["counted"] = reading.counted.known()
        if reading.counted.early_stops:  # no survival: drafts that were not made are refused none
            data = {_EARLY.get(key, key): value for key, value in data.items()}
    emit(data, form, notices)


#: What a row is called where drafts stopped early.
_EARLY = {"survival": "drafted_and_accepted"}


def _check_read(
    since: str | None,
    interval: str | None,
    draft_length: int | None,
    output: Path | None,
) -> None:
    if since is not None and interval is not None:
        raise InputError("--since and --interval: give one of them")
    if draft_length is not None and not 1 <= draft_length <= 256:
        raise InputError(f"--draft-length {draft_length}: expected 1 to 256")
    if output is not None and output.suffix.lower() not in (".yaml", ".yml"):
        raise InputError(f"-o {output}: expected a name ending in .yaml")


def _data(reading: Reading) -> dict[str, Any]:
    known = reading.draft_length is not None or reading.curve is not None
    curve = reading.acceptance().measured if known else None
    error = reading.standard_error
    return {
        "engine": reading.engine,
        "read": reading.how,
        "source": reading.where,
        "model": reading.model,
        "draft_length": reading.draft_length,
        "draft_lengths": list(reading.draft_lengths) or None,
        "tokens_per_step": round(reading.tokens_per_step, 4),
        "standard_error": None if error is None else round(error, 4),
        "tokens_per_step_at_least": None if reading.least is None else round(reading.least, 4),
        "counted": reading.counted.data(),
        "survival": _by_position(reading.survival),
        "curve": None if curve is None else _rounded(curve),
        "drafts": _count(reading.drafts),
        "drafted_tokens": _count(reading.drafted),
        "accepted_tokens": _count(reading.accepted),
        "passes": _count(reading.passes),
        "hit_rate": None if reading.hit_rate is None else round(reading.hit_rate, 4),
    }


def _rise_notices(reading: Reading) -> list[Notice]:
    """Say where survival rises, as only noise can make it."""
    from roofline.acceptance.curve import survival_rise

    if reading.draft_length is None and reading.curve is None:
        return []
    risen = survival_rise(reading.acceptance().measured)
    return [] if risen is None else [risen.notice(reading.where)]


def _file_text(reading: Reading) -> str:
    """Return the reading as an acceptance file; tokens per step replace a survival that rises."""
    from roofline.base.schema import dump_yaml

    acceptance = reading.acceptance()
    body: dict[str, Any] = {"schema": 1}
    if reading.model:
        body["target"] = reading.model
    body["source"] = f"{reading.engine}, {reading.how}: {reading.where}"
    if acceptance.drafts:
        body["drafts"] = round(acceptance.drafts, 1)
    if acceptance.requests:
        body["requests"] = round(acceptance.requests, 1)
    if acceptance.drafting_only:
        body["passes"] = "drafting"
    over_drafts = acceptance.drafting_only or reading.passes is not None
    if over_drafts and reading.hit_rate is not None:
        body["hit_rate"] = round(reading.hit_rate, 4)
    if reading.counted.early_stops:
        body["early_stops"] = True
    survival = reading.survival
    if (
        survival is not None
        and reading.passes is None
        and list(survival) == sorted(survival, reverse=True)
    ):
        body["survival"] = [round(value, 6) for value in survival]
    else:
        body["tokens_per_step"] = {
            d: round(al, 6) for d, al in acceptance.measured.items() if d > 0
        }
    return dump_yaml(body)


def _by_position(survival: tuple[float, ...] | None) -> dict[str, float] | None:
    if survival is None:
        return None
    return {str(i): round(value, 4) for i, value in enumerate(survival, start=1)}


def _rounded(table: dict[int, float]) -> dict[str, float]:
    return {str(d): round(al, 4) for d, al in table.items() if d > 0}


def _count(value: float | None) -> int | None:
    return None if value is None else round(value)


def _short(row: dict[str, str]) -> dict[str, str | None]:
    datasets = row["datasets"].split()
    return {
        "id": row["id"],
        "draft lengths": row["draft_lengths"],
        "datasets": f"{len(datasets)} datasets"
        if len(datasets) > 1
        else cut(row["datasets"], WIDTH) or None,
        "contexts": row["contexts"] or None,
        "licence": row["license"].removeprefix("published figures, "),
    }


def _numbers(text: str) -> list[float]:
    from math import isfinite

    try:
        numbers = [float(item) for item in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not all(isfinite(number) for number in numbers):
        raise InputError(f"expected numbers such as 0.885,0.740, got '{text}'")
    return numbers
