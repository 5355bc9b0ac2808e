"""``python -m workshop.acceptance_prior``: fit the prior of acceptance, write it, print its scores.

It reads `roofline/data/acceptance/values.csv` and writes `roofline/data/acceptance_prior.yaml`. The
scale of each kind, by what is known of a drafter, makes the 80 % range of a drafter that was left
out hold four values in five.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path

from roofline.acceptance.prior import acceptance_prior
from roofline.acceptance.values import values_text
from roofline.base.schema import dump_yaml
from roofline.calibrate.fit.acceptance import (
    GROUPS,
    Posterior,
    as_data,
    fit,
    load_values,
)
from roofline.validation.acceptance import acceptance_rows, all_scales, forget

__all__ = ["FILE", "main", "rows_hash"]

FILE = Path(__file__).resolve().parent.parent / "roofline" / "data" / "acceptance_prior.yaml"
HEADER = """\
# What a drafter yields before anyone has counted it: docs/explain/acceptance.md, "The prior".
# Written by `python -m workshop.acceptance_prior` from acceptance/values.csv; do not edit.
# logit a_i = L + B (ln i - ln 2) of chains; logit h = L, logit a = B of lookups. Lines of numbers:
# effects: L, its standard deviation, B, its own. correlations: lower triangle of all of them, in
# hundredths. spread and drafters: standard deviations of L and B and their correlation, of drafters
# after the means; the sum of all that belongs to a drafter. offsets: mean and deviation of L, or as
# drafters. scales: how much wider the draws of a kind are, by what is known of a drafter.
"""


def rows_hash() -> str:
    """Return what changes with any row of the table."""
    return hashlib.sha256(values_text().encode()).hexdigest()[:16]


def main() -> None:
    """Fit, score without scale, then write with it and print all scores."""
    values = load_values()
    fitted = {shape: fit(values, shape=shape) for shape in GROUPS}
    _write(fitted, {})
    _write(fitted, all_scales())
    for row in acceptance_rows():
        cells = {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}
        sys.stdout.write(f"{cells}\n")


def _write(fitted: Mapping[str, Posterior], scales: Mapping[str, Mapping[str, float]]) -> None:
    """Write the file; ``scales`` are those of each kind by what is known of a drafter."""
    parts = {}
    for shape, posterior in fitted.items():
        kinds = posterior.effects(scales={}).kinds
        own = {
            known: {kind: by_kind[kind] for kind in kinds if kind in by_kind}
            for known, by_kind in scales.items()
        }
        parts[shape] = as_data(posterior.effects(scales=own))
    text = HEADER + dump_yaml({"schema": 1, "values": rows_hash(), "parts": parts}, width=10_000)
    FILE.write_text(text, encoding="utf-8")
    acceptance_prior.cache_clear()
    forget()


if __name__ == "__main__":
    main()
