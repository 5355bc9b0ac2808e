"""``python -m workshop.validation_page``: write docs/validation.md from measurements."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from roofline.advice.prepare import Request
from roofline.advice.recommend import recommend
from roofline.base.resources import bundled_names
from roofline.render.columns import markdown_table
from roofline.specs.gpu import SHELF
from roofline.validation.kernels import compare_kernels, compare_transfer
from roofline.validation.score import Compared, ScoreRow, pool, worst
from roofline.validation.steps import compare_decode
from workshop.named_cases import named_cases
from workshop.spec_tables import spec_parts

ENGINES = ("vllm", "sglang", "trtllm")
#: SpecDecode-Bench, arXiv 2601.11580: step time of Llama-3.1-8B on one H100 in vLLM, in ms.
REGRESSION = (5.886, 0.0210, 3.926e-5, 1.207)


def main() -> None:
    """Fill the page's template and write it."""
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
        **spec_parts(),
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
        request = Request(
            model="llama-3.1-8b", batches=batches, contexts=(context,), drafter="none"
        )
        for point in recommend(request).points:
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


if __name__ == "__main__":
    main()
