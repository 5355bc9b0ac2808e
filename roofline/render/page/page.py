"""The report as one HTML file that needs no network."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from roofline.advice.provenance import law_sources
from roofline.advice.readings import is_ambiguous
from roofline.advice.recommend import Recommendation
from roofline.base import __version__
from roofline.base.errors import InputError, spelled
from roofline.base.resources import how_to_install
from roofline.base.schema import as_json
from roofline.base.units import format_size
from roofline.questions.schedule.written import schedule_notices
from roofline.render.deployment import drafting, gpus_named, stored_as
from roofline.render.notices import capitalised, notes, sentence, warnings
from roofline.render.page.data import PAGE_WORDS, page_data
from roofline.render.page.decisions import AS_GIVEN, RATES, SCALES
from roofline.render.page.report import Report
from roofline.render.recommendation import columns_of
from roofline.render.recommendation import data as answer_data
from roofline.render.refusals import refused_lines
from roofline.render.schedule import (
    BAND_HEADERS,
    band_cells,
    plain_line,
    rise_line,
    schedule_headline,
    schedule_losses,
)
from roofline.render.why import headline, likely_line, of_all_points

__all__ = ["render_page", "safe_json"]

#: The answer at a glance: heading, value and remark, filled in from the advised row and D = 0.
TILES = (
    ("draft length", "{draft_length:d}", "{flag_name}"),
    ("speedup", "{speedup:.2f}x", "{speedup_low:.2f}x to {speedup_high:.2f}x"),
    ("tokens/s of one user", "{per_user:.0f}", "{plain_per_user:.0f} without drafts"),
    ("tokens/s of all users", "{tokens_per_s:.0f}", "{plain_tokens_per_s:.0f} without drafts"),
)
SCRIPTS = ("model.js", "charts.js", "page.js")
_ASSETS = files("roofline.render.page") / "assets"
_SMALL = 0.01  # laws below this share of the verify pass are not shown


def render_page(
    report: Report,
    *,
    source: str,
    command: Sequence[str],
    spell: Callable[[str], str] = spelled,
) -> str:
    """Return the page; ``source`` says what made it, ``command`` asks for one point of its grid.

    ``spell`` names the options in its texts.
    """
    jinja2, shown = _jinja2(), columns_of(report.answer.question)
    script = "\n".join(_asset(name) for name in SCRIPTS)
    data = spell_all(page_data(report, list(command)), spell) | {
        "columns": [{"key": column.key, "form": column.form} for column in shown],
        "tiles": [{"value": value, "below": below} for _, value, below in TILES],
    }
    scripts = [_plotly(), f'"use strict";\n(() => {{\n{script}}})();\n']
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    page: str = environment.from_string(_asset("page.html")).render(
        policy=_policy(scripts),
        style=_asset("page.css"),
        scripts=scripts,
        data=safe_json(data),
        version=__version__,
        source=source,
        columns=[column.heading.replace("\n", " ") for column in shown],
        scales=SCALES,
        rates=RATES,
        as_given=AS_GIVEN,
        drafts=len(report.grid.question.draft_lengths) > 1,
        batches=report.batches,
        contexts=[format_size(context) for context in report.contexts],
        **spell_all(_static(report), spell),
    )
    return page


def spell_all(value: Any, spell: Callable[[str], str]) -> Any:
    """Return plain data with the options in its texts spelled."""
    if isinstance(value, str):
        return spell(value)
    if isinstance(value, dict):
        return {key: spell_all(each, spell) for key, each in value.items()}
    if isinstance(value, list):
        return [spell_all(each, spell) for each in value]
    return value


def safe_json(data: Any) -> str:
    r"""Return JSON in which no HTML parser finds an end tag, a comment or an entity.

    >>> safe_json("</script>")
    '"\\u003c/script\\u003e"'
    """
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def _policy(scripts: Sequence[str]) -> str:
    """Return a content security policy: these scripts, styles, and nothing from outside."""
    hashes = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _static(report: Report) -> dict[str, Any]:
    """Return what the page shows until its script runs, or without it."""
    answer = report.answer
    question, point = answer.question, answer.points[0]
    data = answer_data(answer)
    entry = data["points"][0]
    rows = {row["draft_length"]: row for row in entry["by_draft_length"]}
    grid_notices = [n for n in report.grid.question.notices if n not in answer.notices]
    deployment = question.deployment
    return {
        "title": f"{deployment.target.model.name} on {gpus_named(deployment)}",
        "setting": [
            f"{stored_as(deployment)}, {deployment.target.precision.kv} KV",
            deployment.engine.name,
            *drafting(question),
            *(f"set: {change}" for change in deployment.changes),
        ],
        "point": point,
        "context": format_size(point.context),
        "entry": entry,
        "answers": [
            {
                "batch": each.batch,
                "stop": report.batches.index(each.batch),
                "headline": headline(answer, each),
            }
            for each in answer.points[1:]
        ],
        "cells": [
            [column.form.format(value=row[column.key]) for column in columns_of(question)]
            for row in rows.values()
        ],
        "tiles": _tiles(entry, rows, deployment.engine.name_of_length(deployment.drafter.kind)),
        "ties": PAGE_WORDS["tie"].format(lengths=", ".join(map(str, point.tie_band))),
        "likely": likely_line(point, question.unmeasured),
        "timed": _flags_to_time(entry),
        "engine": deployment.engine.name,
        "about": of_all_points(answer).strip(),
        "notes": [f"{'Assumed: ' * n.assumption}{n.text}" for n in notes(answer.notices)],
        "grid_warnings": warnings(grid_notices),
        "refused": refused_lines(deployment, report.refused),
        "schedule": _schedule(report),
        "no_schedule": capitalised(sentence(report.no_schedule)) if report.no_schedule else "",
        "provenance": data["provenance"],
        "laws": list(_laws(answer)),
        "figures": list(_figures(answer)),
        "overhead": data["engine"],
    }


def _flags_to_time(entry: dict[str, Any]) -> list[str]:
    """Return the flags that time the likely best draft lengths; none where nothing is drafted."""
    flags = [row["flag"] for row in entry["benchmark"] if row["flag"]]
    return flags if any(row["draft_length"] for row in entry["benchmark"]) else []


def _tiles(
    entry: dict[str, Any], rows: dict[int, dict[str, Any]], flag_name: str
) -> list[tuple[str, str, str]]:
    best, plain = rows[entry["draft_length"]], rows[0]
    fields = best | {
        "flag_name": flag_name if entry["draft_length"] else PAGE_WORDS["undrafted"],
        "per_user": 1e3 / best["tpot_ms"],
        "plain_per_user": 1e3 / plain["tpot_ms"],
        "plain_tokens_per_s": plain["tokens_per_s"],
    }
    return [(name, value.format(**fields), below.format(**fields)) for name, value, below in TILES]


def _schedule(report: Report) -> dict[str, Any] | None:
    if report.schedule is None:
        return None
    plan, written = report.schedule
    told = schedule_notices(plan, written)
    return {
        "headline": schedule_headline(plan, written),
        "losses": " ".join(
            [
                schedule_losses(plan, written),
                *plain_line(plan, written),
                *map(rise_line, written.rises),
            ]
        ),
        "columns": [column.replace("\n", " ") for column in BAND_HEADERS],
        "rows": band_cells(plan, written),
        "engine": plan.question.deployment.engine.name,
        "text": written.text,
        "batches": plan.batches,
        "notes": warnings([*written.notes, *filter(lambda n: is_ambiguous([n]), told)]),
    }


def _laws(answer: Recommendation) -> Iterator[dict[str, str]]:
    """Yield the constants of every law that matters."""
    for source in law_sources(answer.times):
        if source.share >= _SMALL:
            law: Any = source.chosen.law
            constants = [f"{name} {_short(value)}" for name, value in asdict(law).items()]
            yield {
                "what": source.what,
                "kind": source.chosen.provenance,
                "source": source.chosen.detail,
                "share": f"{source.share:.0%}",
                "constants": ", ".join(constants),
            }


def _short(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "/".join(map(_short, value)) or "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _figures(answer: Recommendation) -> Iterator[dict[str, str]]:
    """Yield the accelerator's figures with their sources."""
    gpu = answer.deployment.gpu
    plain = as_json(gpu)
    for where, figure in gpu.figures().items():
        value: Any = plain
        for key in where.split("."):
            value = value[key]
        cited = gpu.sources.get(figure.source)
        yield {
            "what": where,
            "value": str(value["value"]),
            "confidence": str(figure.confidence or (cited.confidence if cited else "given")),
            "source": cited.cite if cited else figure.source,
        }


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text("utf-8")


def _jinja2() -> Any:
    try:
        import jinja2
    except ImportError:
        raise InputError(_missing()) from None
    return jinja2


def _plotly() -> str:
    """Return plotly.js as the Python package carries it, without importing that package."""
    package = find_spec("plotly")
    if package is None or package.origin is None:
        raise InputError(_missing())
    file = Path(package.origin).parent / "package_data" / "plotly.min.js"
    return file.read_text("utf-8").replace("</script", r"<\/script")


def _missing() -> str:
    return f"the report needs the extra 'report': {how_to_install('report')}"
