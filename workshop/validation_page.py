"""``python -m workshop.validation_page``: print docs/validation.md, written from measurements."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from roofline.advice.question import question_of
from roofline.advice.recommend import recommend
from roofline.base.resources import bundled_names
from roofline.calibrate.engine.spec_rows import SpecRow
from roofline.render.formats import markdown_table
from roofline.specs.gpu import SHELF
from roofline.validation.advice import (
    REGRET_POOLS,
    RULES,
    Sign,
    SweepChoice,
    regret_rows,
    signs,
    sweeps,
)
from roofline.validation.bands import compare_bands, unexplained
from roofline.validation.kernels import compare_kernels, compare_transfer
from roofline.validation.score import Compared, ScoreRow, pool, worst
from roofline.validation.steps import (
    POOLS,
    PublishedRuns,
    compare_decode,
    compare_steps,
    in_sample,
    published_runs,
)
from workshop.named_cases import named_cases

__all__ = ["main"]

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
WORST = 12  # rows that are listed


def main() -> None:
    """Write the page to stdout: the template beside this module with its tables filled in."""
    gpus = bundled_names(SHELF)
    kernels = list(compare_kernels(gpus=gpus, engines=ENGINES))
    served = list(compare_decode(gpus=gpus, engines=ENGINES))
    moved = list(compare_transfer(gpus=gpus, engines=ENGINES))
    template = Path(__file__).with_suffix(".md").read_text("utf-8")
    parts = {
        "kernels": _table(pool(kernels)),
        "kernels_worst": _worst(kernels),
        "decode": _table(pool(served)),
        "decode_worst": _worst(served),
        "transfer": _table(pool(moved)),
        "regression": _regression(),
        "named": named_cases(),
        **_spec_parts(),
    }
    for name, text in parts.items():
        template = template.replace(f"<!-- {name} -->", text)
    sys.stdout.write(template)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _table(rows: list[ScoreRow]) -> str:
    headers = ["kind", "gpu", "engine", "dtype", "rows", "median %", "p90 %", "bias %"]
    headers += ["textbook %", "above floor: median %", "p90 %"]
    cells = [
        [
            row.kind,
            row.gpu,
            row.engine,
            row.dtype,
            str(row.n),
            _percent(row.median_abs_error),
            _percent(row.p90_abs_error),
            _percent(row.bias),
            _percent(row.textbook_median_abs_error),
            _percent(row.above_floor_median_abs_error),
            _percent(row.above_floor_p90_abs_error),
        ]
        for row in rows
    ]
    return markdown_table(headers, cells)


def _worst(parts: list[Compared]) -> str:
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
        for row in worst(parts, 15)
    ]
    return markdown_table(
        ["kind", "gpu", "engine", "law", "measured µs", "predicted µs", "ratio"], rows
    )


def _regression() -> str:
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
    return markdown_table(
        ["context", "batch", "published ms", "predicted ms", "difference %"], rows
    )


def _spec_parts() -> dict[str, str]:
    """Return the tables by their place in the template."""
    published, scores = published_runs(), pool(compare_steps())
    choices, sign_rows = sweeps(), signs()
    return {
        "steps_pools": _scores([row for row in scores if row.group in POOLS]),
        "steps_groups": _scores([row for row in scores if row.group not in POOLS]),
        "growth": _growth(published),
        "bands": _bands(),
        "regret": _regret(choices),
        "regret_worst": _worst_sweeps(choices),
        "signs": _signs(sign_rows),
        "steps_worst": _worst_rows(published),
    }


def _scores(rows: Sequence[ScoreRow]) -> str:
    headers = ["what", "group", "at", "rows", "median %", "p90 %", "bias %"]
    headers += ["textbook: median %", "p90 %", "prototype %"]
    cells = [
        [
            "R(D)" if row.kind == "cost-ratio" else "step",
            row.group,
            row.dtype,
            str(row.n),
            *(
                f"{100 * x:.1f}"
                for x in (
                    row.median_abs_error,
                    row.p90_abs_error,
                    row.bias,
                    row.textbook_median_abs_error,
                    row.textbook_p90_abs_error or 0.0,
                )
            ),
            PROTOTYPE.get((row.kind, row.group, row.dtype), "-"),
        ]
        for row in rows
    ]
    return markdown_table(headers, cells)


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
    """State how often a range holds the measured value, with and without the spread of builds."""
    cells = []
    for name, served in (("laws and overhead alone", 0.0), ("as shipped", None)):
        bands = compare_bands(served=served)
        rows = [band.rows for band in bands]
        inside = [band.inside for band in bands]
        cells.append(
            [
                name,
                f"{100 * np.average(inside, weights=rows):.0f}",
                f"{100 * np.mean(inside):.0f}",
                f"{100 * unexplained(bands):.1f}",
            ]
        )
    headers = ["spread of", "rows inside %", "mean of groups %", "left between groups %"]
    return markdown_table(headers, cells)


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


def _worst_sweeps(choices: Sequence[SweepChoice]) -> str:
    bad = sorted(choices, key=lambda choice: -choice.regret["ours"])[:WORST]
    headers = ["sweep", "own AL", "D", "best", *RULES]
    return markdown_table(headers, [choice.cells() for choice in bad])


def _signs(rows: Sequence[Sign]) -> str:
    wrong = sorted((sign for sign in rows if not sign.right), key=lambda sign: sign.id)
    cells = [[sign.id, f"{sign.measured:.2f}x", f"{sign.predicted:.2f}x"] for sign in wrong]
    right = len(rows) - len(wrong)
    table = markdown_table(["row", "measured", "predicted"], cells)
    return f"{right} of {len(rows)} rows are on the right side of 1. The others:\n\n{table}"


def _worst_rows(published: PublishedRuns) -> str:
    """List the scored rows that are furthest off: cost ratios, then step times."""
    ratios = _furthest(
        published,
        lambda row: bool(row.scored and row.ratio),
        lambda i, row: (row.ratio or np.nan, float(published.predicted.ratio[i])),
    )
    times = _furthest(
        published,
        lambda row: bool(row.scored and row.step and row.draft_length and not row.total),
        lambda i, row: (1e3 * (row.step or np.nan), 1e3 * float(published.predicted.step[i])),
    )
    headers = ["row", "what it is", "measured", "predicted", "off %"]
    return (
        f"R(D):\n\n{markdown_table(headers, ratios)}\n\n"
        f"Step time, ms:\n\n{markdown_table(headers, times)}"
    )


def _furthest(
    published: PublishedRuns,
    counts: Callable[[SpecRow], bool],
    values: Callable[[int, SpecRow], tuple[float, float]],
) -> list[list[str]]:
    """Return the rows furthest off, at most three of one group."""
    pairs = [(row, *values(i, row)) for i, row in enumerate(published.rows) if counts(row)]
    pairs.sort(key=lambda pair: -abs(np.log(pair[2] / pair[1])))
    cells: list[list[str]] = []
    seen: dict[str, int] = {}
    for row, measured, predicted in pairs:
        seen[row.group] = seen.get(row.group, 0) + 1
        if seen[row.group] <= 3 and len(cells) < WORST:
            what = f"{row.model} {row.kind} D {row.draft_length}, {row.gpu}, batch {row.batch}"
            off = f"{100 * (predicted / measured - 1):+.0f}"
            cells.append([row.id, what, f"{measured:.2f}", f"{predicted:.2f}", off])
    return cells


if __name__ == "__main__":
    main()
