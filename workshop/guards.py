"""Score published runs with the guards off and on: python -m workshop.guards."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from unittest.mock import patch

from roofline.calibrate.engine.decode_rows import load_decode_rows
from roofline.timing.machine import Machine
from roofline.validation.score import Compared, ScoreRow, pool
from roofline.validation.steps import compare_decode, compare_steps, in_sample, published_runs

Scores = dict[tuple[str, str, str, str, str], ScoreRow]


def scores() -> Scores:
    """Return the score of every pool of decode and speculative runs."""
    published_runs.cache_clear()
    in_sample.cache_clear()
    rows = load_decode_rows()
    gpus, engines = {row.gpu for row in rows}, {row.engine for row in rows}
    return _by_pool([*compare_decode(gpus=[*gpus], engines=[*engines]), *compare_steps()])


def _by_pool(compared: Iterable[Compared]) -> Scores:
    rows = pool(compared)
    return {(row.kind, row.group, row.gpu, row.engine, row.dtype): row for row in rows}


def main() -> None:
    """Print every pool whose error the guards move."""
    with patch.object(Machine, "guarded", False):
        off = scores()
    on = scores()
    sys.stdout.write("median / p90 error [%], guards off and on\n")
    for key, row in on.items():
        before = off[key]
        pairs = [(before.median_abs_error, row.median_abs_error)]
        pairs.append((before.p90_abs_error, row.p90_abs_error))
        if any(abs(a - b) > 5e-4 for a, b in pairs) or row.group.startswith("all"):
            cells = "  ".join(f"{100 * a:.1f} -> {100 * b:.1f}" for a, b in pairs)
            sys.stdout.write(f"{' '.join(filter(None, key))} ({row.n}): {cells}\n")


if __name__ == "__main__":
    main()
