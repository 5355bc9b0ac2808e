"""Whether an engine did with a text what the text is meant to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from roofline.engines import sglang, vllm, vllm_log
from roofline.engines.acceptance_source import acceptance_on_page
from roofline.engines.prometheus import parse_lines
from workshop.proof.texts import TIMING, Text

__all__ = ["Judged", "judged", "judged_pages"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """A text, what the engine said of it, and what is wrong with that, if anything is."""

    engine: str
    group: str
    about: str
    text: str
    said: str
    wrong: str = ""

    @property
    def line(self) -> str:
        """The line of the log."""
        mark = f"WRONG ({self.wrong})" if self.wrong else "ok"
        return (
            f"{mark} | {self.engine} | {self.about} | {self.said} | {' '.join(self.text.split())}"
        )


def judged(text: Text, verdict: dict[str, Any]) -> Judged:
    """Compare a verdict with what the text is meant to do."""
    refusal = verdict.get("refused")
    if refusal is not None:
        meant = text.refused and text.refused in refusal
        wrong, said = ("" if meant else "refused"), f"refused: {refusal}"
    elif text.refused:
        wrong, said = "taken, though the package says that it is refused", _said(verdict)
    else:
        wrong, said = "; ".join(_differences(text, verdict)), _said(verdict)
    return Judged(
        engine=text.engine,
        group=_group(text),
        about=text.about,
        text=text.text,
        said=said,
        wrong=wrong,
    )


def _group(text: Text) -> str:
    """Return under which heading of the page a text is counted."""
    if text.kind == TIMING:
        return "lines that time a length"
    if text.about.startswith("schedule"):
        return "schedules"
    if "held" in text.about:
        return "acceptance held fixed"
    if text.kind == "mtp":
        return "MTP layers of every architecture"
    if " on " in text.about:
        return "bundled heads on their targets"
    return "kinds of drafter and layouts"


def _said(verdict: dict[str, Any]) -> str:
    shown = {k: v for k, v in verdict.items() if k not in ("batches", "log") and v is not None}
    return ", ".join(f"{key} {value}" for key, value in shown.items())


def _differences(text: Text, verdict: dict[str, Any]) -> Iterator[str]:
    """Yield what the engine does otherwise than meant."""
    meant = text.meant
    if text.kind == TIMING:
        yield from (
            f"{k} {verdict.get(k)} for {meant[k]}" for k in meant if verdict.get(k) != meant[k]
        )
        return
    keys = ("method", "draft_length", "draft_tp", "tp", "dp", "rows", "ragged_verify", "most")
    for key in keys:
        if key in meant and verdict.get(key) != meant[key]:
            yield f"{key} {verdict.get(key)} for {meant[key]}"
    if "ep" in meant and verdict.get("expert_parallel", meant["ep"] > 1) is not (meant["ep"] > 1):
        yield "expert parallelism"
    if "tokens_per_step" in meant:
        held = verdict.get("tokens_per_step")
        if held is None or abs(held - meant["tokens_per_step"]) > 1e-6:
            yield f"tokens per step {held} for {meant['tokens_per_step']}"
    if text.engine == "sglang":
        if verdict["running"] < meant["running"]:
            yield f"runs {verdict['running']} of {meant['running']} requests"
        if verdict["breadth"] != meant.get("breadth", 1):
            yield f"a tree of breadth {verdict['breadth']}, priced with {meant.get('breadth', 1)}"
        if verdict.get("captured") != meant.get("captured"):
            yield f"graphs for {verdict.get('captured')} requests"
    if meant.get("schedule") and len(meant["schedule"]) > 1:
        yield from _schedule_differences(meant["schedule"], verdict.get("batches"))


def _schedule_differences(bands: list[list[int]], batches: list[int] | None) -> Iterator[str]:
    if batches is None:
        yield "the schedule is switched off"
        return
    wrong = [
        batch
        for first, last, length in bands
        for batch in range(first, last + 1)
        if batches[batch - 1] != length
    ]
    if wrong:
        yield f"another draft length at batches {wrong[:8]}"


#: How far what is read may lie from what was counted, as a share.
CLOSE = 0.005


def judged_pages(engine: str, pages: dict[str, Any] | None) -> list[Judged]:
    """Compare what the package reads on pages and logs with what was counted there."""
    if pages is None:
        return []
    truth = pages["truth"]
    series, read_log = {
        "vllm": (vllm.SERIES, vllm_log.read_log),
        "sglang": (sglang.SERIES, sglang.read_log),
    }[engine]
    page = acceptance_on_page(parse_lines(pages["page"], "page", series), None)
    log = read_log(pages["log"].splitlines(), "log")
    found = []
    for about, reading in (("metrics page", page), ("log lines", log)):
        mean = float(reading.acceptance().tokens_per_step([truth["draft_length"]])[0])
        counted = truth[about]
        off = abs(mean / counted - 1)
        found.append(
            Judged(
                engine=engine,
                group="pages and logs read",
                about=about,
                text="",
                said=f"{mean:.4f} tokens per step read, {counted:.4f} counted",
                wrong="" if off <= CLOSE else f"{100 * off:.2f} % off",
            )
        )
    return found
