"""Plain steps on parts without kernel tables, against public runs (data/validation/plain.csv).

The constants of CDNA are fitted on these rows; `workshop.served_priors` predicts each group from
the others. Here: no sign, ranges that hold 80 %, and the two figures that AMD and Oracle publish.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from roofline.advice.configuration import Configuration
from roofline.advice.deployment import deploy
from roofline.base.numbers import Array
from roofline.specs.formats import DType
from workshop.served_priors import Step, steps


@cache
def _ratios() -> tuple[list[Step], list[float]]:
    rows = steps()
    return rows, [row.predicted() / row.seconds for row in rows]


def test_steps_on_amd_have_no_sign() -> None:
    rows, ratios = _ratios()
    groups = sorted({row.group for row in rows})
    medians = [
        np.median([ratio for row, ratio in zip(rows, ratios, strict=True) if row.group == group])
        for group in groups
    ]
    assert len(medians) >= 9
    assert 3 <= sum(median < 1 for median in medians) <= len(medians) - 3
    assert abs(np.mean(np.log(medians))) < 0.1


def test_their_ranges_hold_four_in_five() -> None:
    rows, _ = _ratios()
    inside = []
    for row in rows:
        grid = row.deployment.grid(
            (row.batch,), (row.context,), (0,), prefill_tokens=row.prompt_tokens
        )
        drawn = row.deployment.price(grid).drawn.steps()[:, 0, 0, 0]
        low, high = np.quantile(drawn, [0.1, 0.9])
        inside.append(low <= row.seconds <= high)
    assert np.mean(inside) >= 0.75


@pytest.mark.parametrize(
    ("model", "published_ms"),
    [
        # AMD, ROCm performance results of 2025-07-15: 128 in and 2048 out in 17.236 s
        ("llama-3.1-70b", 8.42),
        # Oracle, Llama 3.1 405B with MI300X: 128 in and 128 out in 3.530 s
        ("llama-3.1-405b", 27.6),
    ],
)
def test_fp8_on_eight_mi300x(model: str, published_ms: float) -> None:
    deployment, _ = deploy(
        Configuration(
            model=model,
            gpu="mi300x",
            tp=8,
            weights=DType.FP8,
            kv=DType.FP8,
            engine="vllm",
            drafter="none",
        )
    )
    times = deployment.price(deployment.grid((1,), (1152,), (0,))).times
    assert 1e3 * times.total[0, 0, 0] == pytest.approx(published_ms, rel=0.15)


@pytest.mark.parametrize(
    ("part", "better"), [("rtx-4090", "l40s"), ("rtx-5090", "rtx-pro-6000-blackwell-server")]
)
@pytest.mark.parametrize("tp", [2, 4, 8])
def test_links_through_the_host_are_no_cheaper_than_measured_ones(
    part: str, better: str, tp: int
) -> None:
    """The same slots; only the server cards reach each other's memory, and have tables."""

    def links(gpu: str) -> Array:
        deployment, _ = deploy(
            Configuration(model="llama-3.1-8b", gpu=gpu, tp=tp, engine="vllm", drafter="ngram")
        )
        grid = deployment.grid((1, 8, 32), (2048,), (0, 1, 3))
        return np.asarray(deployment.price(grid).times.parts["communication"])

    assert np.all(links(part) >= links(better) - 1e-12)
