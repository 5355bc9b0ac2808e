"""Plain steps on parts without kernel tables, against public runs (data/validation/plain.csv).

The constants of four families are fitted on these rows; `workshop.served_priors` predicts each card
(of CDNA, each group) from the others. Here: no sign, ranges that hold 80 %, and published figures.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from roofline.advice.configuration import Configuration
from roofline.advice.deployment import deploy
from roofline.specs.formats import DType
from workshop import served_priors
from workshop.served_priors import FAMILIES, Step, fit, leave_out, predict, steps, units, written

Array = NDArray[np.float64]


@cache
def _ratios(family: str) -> tuple[list[Step], Array]:
    rows = steps(FAMILIES[family].generations)
    return rows, np.array([row.predicted() / row.seconds for row in rows])


def _medians(family: str) -> list[float]:
    rows, ratios = _ratios(family)
    unit = units(rows)
    return [float(np.median(ratios[unit == each])) for each in dict.fromkeys(unit.tolist())]


@pytest.mark.parametrize(
    ("family", "least", "one_side"),
    [("cdna", 9, 3), ("geforce", 9, 3), ("rdna", 5, 2), ("apple", 8, 2)],
)
def test_steps_have_no_sign(family: str, least: int, one_side: int) -> None:
    medians = _medians(family)
    assert len(medians) >= least
    assert one_side <= sum(median < 1 for median in medians) <= len(medians) - one_side
    assert abs(np.mean(np.log(medians))) < 0.1


@pytest.mark.parametrize("family", FAMILIES)
def test_their_ranges_hold_four_in_five(family: str) -> None:
    rows, ratios = _ratios(family)
    ranges = np.array([row.log_range() for row in rows])
    inside = (ranges[:, 0] <= -np.log(ratios)) & (-np.log(ratios) <= ranges[:, 1])
    assert np.mean(inside) >= 0.75


@pytest.mark.parametrize("family", FAMILIES)
def test_cards_left_out_one_by_one_have_no_sign(family: str) -> None:
    """As `python -m workshop.served_priors` predicted each card, or group, from the others."""
    out = written(family)
    medians = list(out.by_unit.values())
    assert 0 < sum(median < 1 for median in medians) < len(medians)
    assert abs(np.median(out.log_errors)) < 0.1
    assert abs(np.mean(np.log(medians))) < 0.1
    assert 0.75 <= out.held <= 0.87


@pytest.mark.parametrize(
    ("model", "gpu", "weights", "context", "published_ms"),
    [
        # llama.cpp pull request 15631: 205.87 passes of one row a second over 4,096 tokens
        ("qwen3-30b-a3b", "rtx-4090", "q4_0", 2048, 4.86),
        # Vulkan, llama.cpp pull request 21024: 181.32 tokens/s, tg128
        ("gpt-oss-20b", "rtx-3090", None, 64, 5.51),
        # llama.cpp benches/dgx-spark.md: 59.02 tokens/s, tg32
        ("gpt-oss-120b", "gb10-dgx-spark", None, 16, 16.94),
        # kyuz0/amd-strix-halo-toolboxes: 56.61 tokens/s with Vulkan, 51.81 with ROCm, tg128
        ("gpt-oss-120b", "ryzen-ai-max-395", None, 64, 18.5),
    ],
)
def test_mixtures_on_one_card(
    model: str, gpu: str, weights: str | None, context: int, published_ms: float
) -> None:
    deployment, _ = deploy(
        Configuration(
            model=model,
            gpu=gpu,
            weights=DType(weights) if weights else None,
            engine="llamacpp",
            drafter="none",
        )
    )
    times = deployment.price(deployment.grid((1,), (context,), (0,))).times
    assert 1e3 * times.total[0, 0, 0] == pytest.approx(published_ms, rel=0.15)


def test_a_fit_finds_the_constants_that_made_its_rows() -> None:
    """Steps made with another share of the bandwidth are fitted back to it where nothing pulls."""
    stated = FAMILIES["geforce"]
    family = stated._replace(
        constants=tuple(c._replace(softness=9.0) for c in stated.constants[:1])
    )
    cards = {"rtx-4070", "rtx-5060-ti"}
    rows = [row for row in steps(family.generations) if row.gpu in cards]
    made = predict(rows, family, np.array([0.6]))
    rows = [row._replace(seconds=float(each)) for row, each in zip(rows, made, strict=True)]
    assert fit(rows, family).values[0] == pytest.approx(0.6, rel=0.01)


def test_a_card_is_predicted_without_its_own_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one card's steps alone take twice as long, the others' constants miss it by half."""
    stated = FAMILIES["rdna"]
    family = stated._replace(constants=stated.constants[:1])
    rows = [row for row in steps(family.generations) if row.gpu.startswith(("rx-7900-xtx", "rx-9"))]
    values = np.array([constant.prior for constant in family.constants])
    made = predict(rows, family, values)
    slow = [2.0 if row.gpu == "rx-9070-xt" else 1.0 for row in rows]
    rows = [
        row._replace(seconds=float(each * by))
        for row, each, by in zip(rows, made, slow, strict=True)
    ]
    monkeypatch.setattr(served_priors, "steps", lambda _: rows)
    monkeypatch.setitem(FAMILIES, "rdna", family)
    by_card = leave_out("rdna").by_unit
    assert by_card["rx-9070-xt"] == pytest.approx(0.5, rel=0.1)


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
