"""``python -m workshop.validation_page``: write docs/validation.md and the tables that it links.

The page shows pooled errors and the worst rows; docs/validation/*.csv have every row.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from roofline.advice.question import question_of
from roofline.advice.recommend import recommend
from roofline.base.resources import bundled_names
from roofline.calibrate.engine.spec_rows import SpecRow
from roofline.render.writers import markdown_table
from roofline.specs.gpu import GPU_SHELF, load_hardware
from roofline.validation.acceptance import HIDDEN, acceptance_rows
from roofline.validation.advice import (
    REGRET_POOLS,
    RULES,
    Sign,
    SweepChoice,
    regret_rows,
    signs,
    sweeps,
)
from roofline.validation.bands import compare_bands
from roofline.validation.held_out import count_signs, held_out_scores, outcomes
from roofline.validation.kernels import PAIRS, compare_kernels, compare_transfer
from roofline.validation.odds import (
    bins,
    chance_of_misses,
    expected_replays,
    log_score,
    replays,
)
from roofline.validation.requests import outcomes as request_outcomes
from roofline.validation.requests import request_scores
from roofline.validation.score import Compared, ScoreRow, pool, worst
from roofline.validation.steps import (
    PublishedRuns,
    compare_decode,
    compare_steps,
    in_sample,
    published_runs,
)
from roofline.validation.tune import MEASURED as MEASURED_PART
from roofline.validation.tune import tune_rows
from workshop import served_priors
from workshop.aims import AIMS, measured_laws
from workshop.named_cases import CASES, named_cases

__all__ = ["main", "pages"]

ENGINES = ("vllm", "sglang", "trtllm")
#: SpecDecode-Bench, arXiv 2601.11580: step time of Llama-3.1-8B on one H100 in vLLM, in ms.
REGRESSION = (5.886, 0.0210, 3.926e-5, 1.207)
#: An earlier prototype of this model, scored alike on groups it had not seen: median and p90 [%].
PROTOTYPE = {
    ("cost-ratio", "all dense", "D > 0"): "5.1 / 16.0",
    ("cost-ratio", "all moe", "D > 0"): "8.7 / 17.9",
    ("step", "all dense", "D = 0"): "7.9",
    ("step", "all dense", "D > 0"): "9.1",
    ("step", "all moe", "D = 0"): "18.7",
    ("step", "all moe", "D > 0"): "22.8",
}
#: Sweeps whose growth per draft token is told apart: group, drafter, linear layers' format.
GROWTH = (("thc-9b", "mtp", ""), ("vllm20780", "eagle1", ""), ("trtblog01", "mtp", "nvfp4"))
#: The pools that the page shows; every group stands in a table beside it.
SHOWN = ("all dense", "all moe")
WORST = 6  # rows that the page lists; the tables have ten times as many
DOCS = Path(__file__).resolve().parent.parent / "docs"
ERRORS = ("rows", "median %", "p90 %", "bias %", "textbook %")


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Headers and rows of text, shown on the page or written beside it."""

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self, most: int | None = None) -> str:
        """Return the first rows as a table of the page."""
        return markdown_table(self.headers, self.rows[:most])

    def csv(self) -> str:
        """Return all rows as a file."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.headers, *self.rows])
        return text.getvalue()


def main() -> None:
    """Write the page and its tables."""
    for name, text in pages().items():
        path = DOCS / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """Return the text of each file by its name: the page's template filled in, and the tables."""
    gpus = bundled_names(GPU_SHELF)
    kernels = list(compare_kernels(gpus=gpus, engines=ENGINES))
    served = list(compare_decode(gpus=gpus, engines=ENGINES))
    moved = list(compare_transfer(gpus=gpus, engines=ENGINES))
    published, scores = published_runs(), pool(compare_steps())
    choices, sign_rows, regression = sweeps(), signs(), _regression()
    scored, timed = acceptance_rows(), tune_rows()
    ratios, times = _worst_ratios(published), _worst_steps(published)
    tables = {
        "kernels": _scores(pool(kernels)),
        "kernels_worst": _worst(kernels),
        "aims": _aims_missed(),
        "decode": _scores(pool(served)),
        "decode_worst": _worst(served),
        "transfer": _scores(pool(moved)),
        "steps": _step_scores(scores),
        "cost_ratio_worst": ratios,
        "step_time_worst": times,
        "sweeps": _sweeps(choices),
        "cases": Table(headers=CASES, rows=named_cases()),
        "regression": regression,
        "tune": _tune_losses(timed),
    }
    off = [float(row[-1]) for row in regression.rows]
    losses = count_signs()
    right = sum(sign.right for sign in sign_rows)
    ours = np.mean([choice.regret["ours"] for choice in choices])
    parts = {
        "loss": f"{100 * ours:.1f} %",
        "kernels": _pooled(kernels, ("kind",)),
        "kernels_worst": tables["kernels_worst"].markdown(WORST),
        "aims": _aims(),
        "decode": _pooled(served, ("kind", "engine")),
        "decode_worst": tables["decode_worst"].markdown(WORST),
        "steps": _step_scores([row for row in scores if row.group in SHOWN]).markdown(),
        "growth": _growth(published),
        "cost_ratio_worst": ratios.markdown(WORST),
        "step_time_worst": times.markdown(WORST),
        "bands": _bands(),
        "regret": _regret(choices),
        "regret_worst": tables["sweeps"].markdown(WORST),
        "signs": f"{right} of {len(sign_rows)} rows are on the right side of 1.",
        "signs_wrong": _signs(sign_rows),
        "held_out": _held_out(),
        "requests": _requests(),
        "acceptance": _acceptance(scored),
        "acceptance_regret": _acceptance_regret(scored),
        "tune": _tuned(timed),
        "tune_stops": _tune_stops(timed),
        "losses": f"Of {losses.losses} losses {len(losses.called_wins)} are called wins, and of "
        f"{losses.wins} wins {len(losses.called_losses)} losses.",
        "regression": f"from {min(off):+.1f} % to {max(off):+.1f} %",
        "transfer": _transfer(moved),
        "plain": Table(headers=served_priors.HEADERS, rows=list(served_priors.scores())).markdown(),
    }
    text = Path(__file__).with_suffix(".md").read_text("utf-8")
    for name, part in parts.items():
        text = text.replace(f"<!-- {name} -->", part)
    return {
        "validation.md": text,
        **{f"validation/{name}.csv": table.csv() for name, table in tables.items()},
    }


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _errors(row: ScoreRow) -> list[str]:
    """Return the cells under ``ERRORS``."""
    errors = (row.median_abs_error, row.p90_abs_error, row.bias, row.textbook_median_abs_error)
    return [str(row.n), *map(_percent, errors)]


def _scores(rows: Iterable[ScoreRow]) -> Table:
    """Return the score of each accelerator, engine and format."""
    return Table(
        headers=["kind", "gpu", "engine", "dtype", *ERRORS, "above floor: median %", "p90 %"],
        rows=[
            [
                *(row.kind, row.gpu, row.engine, row.dtype, *_errors(row)),
                _percent(row.above_floor_median_abs_error),
                _percent(row.above_floor_p90_abs_error),
            ]
            for row in rows
        ],
    )


def _acceptance(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return errors and coverage of the prior of acceptance."""
    cells = [
        [
            *(str(row[name]) for name in ("kind", "known", "n")),
            *(_percent(row.get(n)) for n in ("median_abs_error", "p90_abs_error", "inside_share")),
        ]
        for row in rows
        if row["kind"] != "regret"
    ]
    headers = ["what", "known of the drafter", "n", "median %", "p90 %", "inside %"]
    return markdown_table(headers, cells)


def _acceptance_regret(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the regrets of advice by the prior of acceptance."""
    names = ("mean_regret", "sweep_mean_regret", "worst_group_regret", "worst_regret")
    cells = [
        [str(row["known"]), str(row["n"]), *(_percent(row[name]) for name in names)]
        for row in rows
        if row["kind"] == "regret"
    ]
    means = ("mean of groups %", "mean of sweeps %", "worst group %", "worst %")
    return markdown_table(["known of the drafter", "sweeps", *means], cells)


def _tune_losses(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return what every rule that times loses."""
    names = ("mean_regret", "long_mean_regret", "worst_regret")
    cells = [
        [
            *(row["acceptance"], row["printed"], row["part"]),
            *(row["rule"], str(row.get("after", "all")), str(row["n"]), str(row["groups"])),
            *("-" if row[name] is None else f"{100 * row[name]:.2f}" for name in names),
        ]
        for row in rows
        if row["kind"] != "stop"
    ]
    means = ("mean of groups %", "six and more D %", "worst %")
    about = ("acceptance", "printed", "accelerator")
    return Table(headers=[*about, "who chooses", "timings", "sweeps", "groups", *means], rows=cells)


def _tuned(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the losses on accelerators with measured kernels: a column for each acceptance."""
    every = [row for row in rows if row["part"] == MEASURED_PART and row["kind"] == "regret"]
    abouts = list(dict.fromkeys((row["acceptance"], row["printed"]) for row in every))
    losses = {
        (row["rule"], row["after"], row["acceptance"], row["printed"]): row["mean_regret"]
        for row in every
    }
    cells = [
        [rule, str(after), *(f"{100 * losses[rule, after, *about]:.2f}" for about in abouts)]
        for rule, after in dict.fromkeys((row["rule"], row["after"]) for row in every)
    ]
    headers = [f"{name}, {prints} printed %" for name, prints in abouts]
    return markdown_table(["who chooses", "timings", *headers], cells)


def _tune_stops(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return how many timings the rule takes, and how its promises were kept."""
    names = ("mean_regret", "promised_regret", "bound_regret")
    cells = [
        [
            *(row["acceptance"], row["printed"], row["part"]),
            f"{row['timings']:.1f}",
            *(f"{100 * row[name]:.2f}" for name in names),
            f"{100 * row['kept_share']:.0f}",
        ]
        for row in rows
        if row["kind"] == "stop"
    ]
    about = ("acceptance", "printed", "accelerator", "timings")
    return markdown_table([*about, "loss %", "promised %", "90 % bound", "kept %"], cells)


def _held_out() -> str:
    """Return the errors of held-out speedups by group and batch."""
    rows = [
        [
            *(row["group"], row["batch"], str(row["n"])),
            *(_percent(row[name]) for name in ("median_abs_error", "p90_abs_error", "bias")),
        ]
        for row in held_out_scores(outcomes())
    ]
    return markdown_table(["group", "batch", *ERRORS[:4]], rows)


def _requests() -> str:
    """Return the errors of served requests' times by group."""
    rows = [
        [
            *(row["group"], row["kind"], row["rows"], str(row["n"])),
            *(_percent(row[name]) for name in ("median_abs_error", "p90_abs_error", "bias")),
        ]
        for row in request_scores(request_outcomes())
        if row["rows"] in ("all", "below saturation")
    ]
    return markdown_table(["group", "what", "which", *ERRORS[:4]], rows)


def _pooled(parts: Iterable[Compared], by: Sequence[str]) -> str:
    """Return the scores of all rows that have the same kind, or kind and engine."""
    alike = {name: "all" for name in ("kind", "gpu", "engine", "dtype") if name not in by}
    rows = pool(replace(part, **alike) for part in parts)  # type: ignore[arg-type]
    cells = [[*(getattr(row, name) for name in by), *_errors(row)] for row in rows]
    return markdown_table([*by, *ERRORS], cells)


def _transfer(parts: Sequence[Compared]) -> str:
    """Return the scores of borrowed laws: inside an architecture, and across architectures."""
    alike = {
        f"{lender} on {borrower}"
        for lender, borrower in PAIRS
        if load_hardware(lender).generation == load_hardware(borrower).generation
    }
    near = [part for part in parts if part.gpu in alike]
    far = [part for part in parts if part.gpu not in alike]
    cells = []
    for name, group in (("the same", near), ("another", far)):
        rows = pool(replace(part, gpu="all", engine="all", dtype="all") for part in group)
        cells += [[row.kind, name, *_errors(row)] for row in rows]
    return markdown_table(["kind", "lender's architecture", *ERRORS], sorted(cells))


def _worst(parts: list[Compared]) -> Table:
    rows = [
        [
            str(row["kind"]),
            str(row["gpu"]),
            str(row["engine"]),
            str(row["name"]),
            f"{row['measured_us']:.1f}",
            f"{row['predicted_us']:.1f}",
            f"{row['ratio']:.2f}",
        ]
        for row in worst(parts, 10 * WORST)
    ]
    headers = ["kind", "gpu", "engine", "law", "measured µs", "predicted µs", "ratio"]
    return Table(headers=headers, rows=rows)


def _regression() -> Table:
    """Compare plain steps with a published regression of the same model, GPU and engine."""
    batches, rows = (1, 2, 4, 8, 16, 32, 48), []
    fixed, per_token, per_cached, per_step = REGRESSION
    for context in (1024, 8192):
        question = question_of(
            model="llama-3.1-8b", batches=batches, contexts=(context,), drafter="none"
        )
        for point in recommend(question).points:
            published = fixed + per_token * point.batch + per_cached * point.batch * context
            published += per_step
            predicted = 1e3 * float(np.asarray(point.step)[0])
            rows.append(
                [
                    str(context),
                    str(point.batch),
                    f"{published:.2f}",
                    f"{predicted:.2f}",
                    f"{100 * (predicted / published - 1):+.1f}",
                ]
            )
    headers = ["context", "batch", "published ms", "predicted ms", "difference %"]
    return Table(headers=headers, rows=rows)


def _step_scores(rows: Iterable[ScoreRow]) -> Table:
    """Return the scores of cost ratios and step times, by pool or group of runs."""
    return Table(
        headers=["what", "group", "at", *ERRORS, "textbook p90 %", "prototype %"],
        rows=[
            [
                "R(D)" if row.kind == "cost-ratio" else "step",
                *(row.group, row.dtype, *_errors(row)),
                _percent(row.textbook_p90_abs_error or 0.0),
                PROTOTYPE.get((row.kind, row.group, row.dtype), "-"),
            ]
            for row in rows
        ],
    )


def _growth(published: PublishedRuns) -> str:
    """Compare the slope of the step time over the draft length [ms per token]."""
    fitted, cells = in_sample(), []
    for group, kind, linears in GROWTH:
        pick = [
            i
            for i, row in enumerate(published.rows)
            if (row.group, row.kind, row.linears) == (group, kind, linears)
            and row.step
            and row.draft_length
        ]
        lengths = [published.rows[i].draft_length for i in pick]
        measured = _slope(lengths, [published.rows[i].step or np.nan for i in pick])
        unseen = _slope(lengths, published.predicted.step[pick])
        shipped = _slope(lengths, fitted.step[pick])
        name = f"{group} {kind} {linears or 'bf16'}"
        cells.append(
            [
                name,
                f"{1e3 * measured:.2f}",
                *(
                    text
                    for slope in (unseen, shipped)
                    for text in (f"{1e3 * slope:.2f}", f"{100 * (slope / measured - 1):+.0f}")
                ),
            ]
        )
    headers = ["sweep", "measured ms", "unseen ms", "off %", "shipped ms", "off %"]
    return markdown_table(headers, cells)


def _slope(lengths: Sequence[int], times: Sequence[float] | np.ndarray) -> float:
    return float(np.polyfit(lengths, times, 1)[0])


def _bands() -> str:
    """State how often a range holds the measured cost ratio, and how often odds come true."""
    bands = compare_bands()
    rows, inside = [band.rows for band in bands], [band.inside for band in bands]
    every = replays()
    held = np.concatenate([one.inside for one in every])
    widths = np.concatenate([one.widths for one in every])
    errors = np.concatenate([one.errors for one in every])
    spread = np.subtract(*np.quantile(errors, (0.9, 0.1)))
    cells = [
        ["cost ratios inside, of rows", f"{100 * np.average(inside, weights=rows):.0f} %"],
        ["the same, mean of groups", f"{100 * np.mean(inside):.0f} %"],
        [f"speedups of sweeps inside ({len(held)})", f"{100 * held.mean():.0f} %"],
        ["width of the range over that of the errors", f"{np.median(widths) / spread:.2f}"],
        *(
            [f"odds of the advice, {count} answers: claimed, came true",
             f"{100 * claimed:.0f} %, {100 * true:.0f} %"]
            for count, claimed, true in bins(every)
        ),
        ["log score of these odds", f"{log_score(every):.3f}"],
        *(cell for known in HIDDEN for cell in _expected_odds(known)),
    ]  # fmt: skip
    return markdown_table(["what", "figure"], cells)


def _expected_odds(known: str) -> list[list[str]]:
    """State how often odds come true with an expected acceptance."""
    every = expected_replays(known)
    what = f"the same with an expected acceptance ({known} known, its drafter left out)"
    misses = f"right odds, of these drafters, miss by as much ({known} known)"
    return [
        *(
            [f"{what}, {count}", f"{100 * claimed:.0f} %, {100 * true:.0f} %"]
            for count, claimed, true in bins(every)
        ),
        [misses, f"in {100 * chance_of_misses(every):.0f} %"],
    ]


def _regret(choices: Sequence[SweepChoice]) -> str:
    rows = [row for row in regret_rows(choices) if row["group"] in REGRET_POOLS]
    cells = [
        [
            row["group"],
            row["rule"],
            str(row["n"]),
            *(f"{100 * row[name]:.1f}" for name in ("mean_regret", "p90_regret", "worst_regret")),
        ]
        for row in rows
    ]
    return markdown_table(["sweeps", "who chooses", "n", "mean %", "p90 %", "worst %"], cells)


def _sweeps(choices: Sequence[SweepChoice]) -> Table:
    """Return every sweep with what each rule chose, the largest regret first."""
    choices = sorted(choices, key=lambda choice: -choice.regret["ours"])
    headers = ["sweep", "own AL", "D", "best", *RULES]
    return Table(headers=headers, rows=[choice.cells() for choice in choices])


def _aims() -> str:
    """Show how many laws of each kind miss their aims."""
    laws = list(measured_laws())
    cells = []
    for kind, aim in AIMS.items():
        own = [law for law in laws if law.kind == kind]
        missed = sum(law.misses for law in own)
        limits = f"{100 * aim.median:.0f}, {100 * aim.p90:.0f}"
        cells.append([kind, limits, str(len(own)), str(missed)])
    return markdown_table(["kind", "aim: median, p90 %", "laws", "over it"], cells)


def _aims_missed() -> Table:
    """Return the laws that miss their aims, the furthest first."""
    missed = sorted((law for law in measured_laws() if law.misses), key=lambda law: -law.p90)
    rows = [
        [*law[:4], str(law.rows), f"{100 * law.median:.1f}", f"{100 * law.p90:.1f}"]
        for law in missed
    ]
    return Table(headers=["kind", "gpu", "engine", "law", "rows", "median %", "p90 %"], rows=rows)


def _signs(rows: Sequence[Sign]) -> str:
    """Show the rows whose prediction is on the wrong side of 1."""
    wrong = sorted((sign for sign in rows if not sign.right), key=lambda sign: sign.id)
    cells = [[sign.id, f"{sign.measured:.2f}x", f"{sign.predicted:.2f}x"] for sign in wrong]
    return markdown_table(["row", "measured", "predicted"], cells)


def _worst_ratios(published: PublishedRuns) -> Table:
    """Return the scored cost ratios that are furthest off."""
    return _furthest(
        published,
        lambda row: bool(row.scored and row.ratio),
        lambda i, row: (row.ratio or np.nan, float(published.predicted.ratio[i])),
    )


def _worst_steps(published: PublishedRuns) -> Table:
    """Return the scored step times that are furthest off, in milliseconds."""
    return _furthest(
        published,
        lambda row: bool(row.scored and row.step and row.draft_length and not row.total),
        lambda i, row: (1e3 * (row.step or np.nan), 1e3 * float(published.predicted.step[i])),
    )


def _furthest(
    published: PublishedRuns,
    counts: Callable[[SpecRow], bool],
    values: Callable[[int, SpecRow], tuple[float, float]],
) -> Table:
    """Return the rows furthest off, at most three of one group."""
    pairs = [(row, *values(i, row)) for i, row in enumerate(published.rows) if counts(row)]
    pairs.sort(key=lambda pair: -abs(np.log(pair[2] / pair[1])))
    cells: list[list[str]] = []
    seen: dict[str, int] = {}
    for row, measured, predicted in pairs:
        seen[row.group] = seen.get(row.group, 0) + 1
        if seen[row.group] <= 3 and len(cells) < 10 * WORST:
            what = f"{row.model} {row.kind} D {row.draft_length}, {row.gpu}, batch {row.batch}"
            off = f"{100 * (predicted / measured - 1):+.0f}"
            cells.append([row.id, what, f"{measured:.2f}", f"{predicted:.2f}", off])
    return Table(headers=["row", "what it is", "measured", "predicted", "off %"], rows=cells)


if __name__ == "__main__":
    main()
