"""The cases of docs/validation.md that have a name."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from roofline.advice.configuration import Configuration
from roofline.advice.decide import Point
from roofline.advice.deployment import deploy
from roofline.advice.question import question_of
from roofline.advice.recommend import recommend
from roofline.base import resources
from roofline.calibrate.engine.spec_numbers import PredictedSteps
from roofline.specs.formats import DType
from roofline.specs.placement import VerifyAttention
from roofline.validation.steps import PublishedRuns, in_sample, published_runs

__all__ = ["CASES", "named_cases", "verify_curve"]

#: What stands above the cells of a case.
CASES = ("case", "measured", "unseen half", "as shipped")

#: Draft models on a mixture with a recurrent state; a block of 16 on a compute-poor GPU.
LOSING = {
    "thc-moe-C 001-006": [f"thc-moe-C-00{i}" for i in range(1, 7)],
    "thc-moe-I 001-003": [f"thc-moe-I-00{i}" for i in range(1, 4)],
    "thc-moe-O2 007-008": ["thc-moe-O2-007", "thc-moe-O2-008"],
    "dcut 8B, block 16, c 32-64": ["dcut-024", "dcut-025"],
    "thc-9b Q4, D 6": ["thc-9b-004"],
}


def named_cases() -> list[list[str]]:
    """Return each case: what was measured, and what is predicted unseen and as shipped."""
    published, shipped = published_runs(), in_sample()
    cells = [_losing(published, shipped, name, ids) for name, ids in LOSING.items()]
    cells += [_domino(published), *_prefill(), *_verify(), *_context(published, shipped)]
    cells += [*_batch_128(), *_eagle(published, shipped)]
    return cells


def _speedup(published: PublishedRuns, predicted: PredictedSteps, name: str) -> tuple[float, float]:
    """Return a row's measured and predicted speedup, by its own AL or its named curve's."""
    at = next(i for i, row in enumerate(published.rows) if row.id == name)
    row = published.rows[at]
    tokens = row.tokens_per_step or row.curve[row.draft_length]
    return row.speedup or np.nan, tokens / float(predicted.ratio[at])


def _losing(
    published: PublishedRuns, shipped: PredictedSteps, name: str, ids: list[str]
) -> list[str]:
    unseen = [_speedup(published, published.predicted, row_id) for row_id in ids]
    seen = [_speedup(published, shipped, row_id)[1] for row_id in ids]
    return [
        f"{name}: slower",
        _range([measured for measured, _ in unseen]),
        _range([predicted for _, predicted in unseen]),
        _range(seen),
    ]


def _range(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.2f}x" if len(values) == 1 else f"{low:.2f}x to {high:.2f}x"


def _point(**question: Any) -> Point:
    return recommend(question_of(**question)).points[0]


def _band(point: Point, length: int) -> str:
    at = point.draft_lengths.index(length)
    return f"{point.speedup[at]:.2f}x ({point.low[at]:.2f} to {point.high[at]:.2f})"


def _domino(published: PublishedRuns) -> list[str]:
    measured, unseen = _speedup(published, published.predicted, "domino-conc-008")
    point = _point(
        model="qwen3.6-27b",
        gpu="a100-sxm-80gb",
        tp=2,
        engine="sglang",
        batches=(32,),
        contexts=(1500,),
        drafter="mtp",
        acceptance="al:3=3.227,15=5.156",
        max_draft_length=15,
    )
    name = "domino-conc MT-Bench, 32 requests, D 15"
    return [name, f"{measured:.2f}x", f"{unseen:.2f}x", _band(point, 15)]


def _prefill() -> list[list[str]]:
    """Price vllm48944: prompts of 400 and answers of 100, so 4 prompt tokens for each emitted.

    Of its 256 requests some 230 fit in memory at once, drafter included.
    """
    cells = []
    for prompt_tokens in (0, 1024):
        point = _point(
            model="gemma-4-31b-it",
            gpu="h100-nvl",
            tp=1,
            batches=(224,),
            contexts=(448,),
            drafter="eagle1",
            acceptance="al:3=1.5",
            prefill_tokens_per_step=prompt_tokens,
            weights=DType.FP8,
            kv=DType.FP8,
        )
        name = f"vllm48944, 224 requests, D 3, AL 1.5 assumed, {prompt_tokens} prompt tokens a step"
        cells.append([name, "0.79x", "-", _band(point, 3)])
    return cells


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyCurve:
    """A published verify pass by how many rows it has, and ours. Times in ms."""

    rows: tuple[int, ...]
    measured: tuple[float, ...]
    predicted: tuple[float, ...]

    @property
    def captured(self) -> list[float]:
        """Relative errors inside the captured graphs, up to 1024 rows."""
        pairs = zip(self.rows, self.measured, self.predicted, strict=True)
        return [ours / theirs - 1 for rows, theirs, ours in pairs if rows <= 1024]


def verify_curve() -> VerifyCurve:
    """Price the rows of verify.csv: DeepSeek-V4-Flash on four B300, 8192 tokens of context.

    The drafter that it was measured for makes 7 drafts, so 8 rows belong to one sequence; graphs
    were captured up to 1024 rows, not vLLM's usual 512.
    """
    text = resources.data_file("validation").joinpath("verify.csv").read_text("utf-8")
    lines = list(csv.DictReader(text.splitlines()))
    first, rows = lines[0], tuple(int(line["rows"]) for line in lines)
    batches = tuple(n // 8 for n in rows if n >= 8)
    deployment, _ = deploy(
        Configuration(
            model=first["model"],
            gpu=first["gpu"],
            tp=int(first["tp"]),
            engine=first["engine"],
            drafter="ngram",
        )
    )
    engine = deployment.engine
    if engine.graphs is None:
        raise ValueError("vLLM has captured graphs")
    sizes = (*engine.graphs.steps, (1024, 16))
    graphs = engine.graphs.model_copy(update={"steps": sizes})
    with_graphs = replace(deployment, engine=engine.model_copy(update={"graphs": graphs}))
    grid = deployment.grid(batches, (int(first["context"]),), range(8))
    times = with_graphs.price(grid).times
    drafting = times.overhead[0, 0] - times.overhead[0, 0, 0]  # is not in a verify pass
    passes = 1e3 * (times.verify[:, 0] + times.overhead[:, 0] - drafting)
    predicted = {n: float(passes[0, n - 1]) for n in rows if n <= 8}
    predicted |= {8 * batch: float(passes[i, 7]) for i, batch in enumerate(batches)}
    return VerifyCurve(
        rows=rows,
        measured=tuple(float(line["step_ms"]) for line in lines),
        predicted=tuple(predicted[n] for n in rows),
    )


def _verify() -> list[list[str]]:
    curve = verify_curve()
    cells = []
    for rows in (1, 8, 64, 256, 1024, 1536):
        at = curve.rows.index(rows)
        name = f"dspark-verify, a pass of {rows} rows"
        cells.append([name, f"{curve.measured[at]:.1f} ms", "-", f"{curve.predicted[at]:.1f} ms"])
    error = 100 * float(np.median(np.abs(curve.captured)))
    return [*cells, ["dspark-verify, 1 to 1024 rows: median error", "", "-", f"{error:.0f} %"]]


def _context(published: PublishedRuns, shipped: PredictedSteps) -> list[list[str]]:
    """Compare R(2) of thc-ctx with what its speedup and AL give, and with its two speeds."""
    cells = []
    for row_id, context, both in (("thc-ctx-001", "8k", "1.49"), ("thc-ctx-009", "98k", "1.48")):
        at = next(i for i, row in enumerate(published.rows) if row.id == row_id)
        unseen, seen = published.predicted.ratio[at], shipped.ratio[at]
        cells.append(
            [f"thc-ctx {context}, D 2: step over base", both, f"{unseen:.2f}", f"{seen:.2f}"]
        )
    return cells


def _batch_128() -> list[list[str]]:
    """Compare speedup x R(D) of several batches: it is AL, which does not depend on the batch."""
    speedups = {1: 1.749, 16: 1.699, 64: 1.486, 128: 1.222}  # sdbench-009 to 012
    cells = []
    for mode in (VerifyAttention.KV_ONCE, VerifyAttention.KV_PER_QUERY):
        ratios = {
            batch: _point(
                model="llama-3.1-8b",
                gpu="h100-sxm",
                engine="vllm@2025",
                batches=(batch,),
                contexts=(600,),
                drafter="eagle3",
                acceptance="al:3=2.3",
                verify_attention=mode,
            ).cost_ratio[3]
            for batch in speedups
        }
        implied = ", ".join(f"{speedups[b] * ratio:.2f}" for b, ratio in ratios.items())
        name = f"sdbench EAGLE-3 GSM8K, batch 1, 16, 64, 128: AL = speedup x R(3), {mode.value}"
        cells.append([name, "1.75x, 1.70x, 1.49x, 1.22x", "-", implied])
    return cells


def _eagle(published: PublishedRuns, shipped: PredictedSteps) -> list[list[str]]:
    rows = [row for row in published.rows if row.group == "eagle3-t3"]

    def error(predicted: PredictedSteps) -> str:
        pairs = [_speedup(published, predicted, row.id) for row in rows]
        return f"{100 * np.median([abs(ours / theirs - 1) for theirs, ours in pairs]):.0f} %"

    def below(predicted: PredictedSteps) -> str:
        batches: dict[int, dict[str, float]] = {}
        for row in rows:
            speed = _speedup(published, predicted, row.id)[1]
            batches.setdefault(row.batch, {})[row.kind] = speed
        lower = sum(by_kind["eagle1"] < by_kind["eagle3"] for by_kind in batches.values())
        return f"{lower} of {len(batches)}"

    unseen = published.predicted
    return [
        ["eagle3-t3: median error of 18 speedups", "", error(unseen), error(shipped)],
        ["eagle3-t3: batches with EAGLE-1 below -3", "9 of 9", below(unseen), below(shipped)],
    ]
