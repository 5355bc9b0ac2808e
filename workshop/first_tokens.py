"""``python -m workshop.first_tokens``: fit what a server adds to the time to first token.

The rows are those of ``roofline/data/validation/decode.csv`` with at most four clients, their times
to first token those of the same rows of the wheel ``aiconfigurator-core`` (``silicon_sample.csv``):
means of ten rounds of requests, so (B - 1) / 20 of what prompts add stand for the start of the run.
The constants are printed, to be copied to ``front_end`` in ``roofline/data/priors.yaml``.
"""

from __future__ import annotations

import csv
import sys

import numpy as np
from numpy.typing import NDArray

from roofline.calibrate.engine.decode_rows import deployment_of, load_decode_rows
from roofline.questions.request.lengths import requests_of
from roofline.questions.request.pricing import price_requests
from roofline.specs.priors import priors
from workshop.tables.parquet import data_folder

__all__ = ["main"]

Array = NDArray[np.float64]
CLIENTS, ROUNDS = 4, 10
STEPS = np.arange(0.0, 0.0605, 0.0005)  # values tried [s]
NORMAL_MEDIAN = 0.6745


def main() -> None:
    """Print the constant with the least median error, and how far the rows are spread around it."""
    measured, passes = _rows()
    logs = np.log((passes + STEPS[:, None]) / measured)
    best = int(np.median(np.abs(logs), axis=1).argmin())
    for at, name in ((0, "without"), (best, f"{1e3 * STEPS[best]:.1f} ms")):
        off = np.median(np.abs(logs[at]))
        sys.stdout.write(
            f"{name}: {len(measured)} rows, median {off:.3f}, bias {np.median(logs[at]):+.3f}\n"
        )
    left = np.quantile(measured - passes, (0.1, 0.25, 0.5, 0.75, 0.9))
    spread = np.log(left[3] / left[1]) / (2 * NORMAL_MEDIAN)
    sys.stdout.write(f"left over: {', '.join(f'{1e3 * value:.0f}' for value in left)} ms")
    sys.stdout.write(f"; spread of the middle half {spread:.2f}\n")


def _rows() -> tuple[Array, Array]:
    """Return times to first token, measured and by passes alone [s]."""
    sample = data_folder().parent / "silicon_sample.csv"
    with sample.open(encoding="utf-8") as opened:
        seconds = {
            line["id"]: float(line["silicon_ttft_ms"]) / 1e3
            for line in csv.DictReader(opened)
            if line["silicon_ttft_ms"]
        }
    measured, passes = [], []
    for row in load_decode_rows():
        if not row.scored or row.batch > CLIENTS or row.id not in seconds:
            continue
        deployment = deployment_of(row, skew=priors().routing.skew)
        priced = price_requests(
            deployment,
            requests_of((row.input,), (row.output,), (0,)),
            batches=(row.batch,),
            draft_lengths=(0,),
            front_end=0.0,
        )
        first = float(priced.seconds(np.ones(1)).ttft[0, 0, 0])
        added = priced.grid.times.total[0, 1, 0] - priced.grid.times.total[0, 0, 0]
        measured.append(seconds[row.id])
        passes.append(first + (row.batch - 1) / (2 * ROUNDS) * float(added))
    return np.array(measured), np.array(passes)


if __name__ == "__main__":
    main()
