"""The table of published acceptance values: each row is possible and says its source."""

from __future__ import annotations

import csv
from collections import Counter

from roofline.acceptance.files import bundled_curves, load_file
from tests.support import ROOT

TABLE = ROOT / "roofline" / "data" / "acceptance" / "values.csv"
STATED = {"id", "target", "drafter", "kind", "recipe", "dataset", "definition", "source", "license"}
OPEN = {"temperature", "context", "trained_context", "engine", "curve", "note"}
COUNTED = {"domain", "draft_length", "tokens_per_step", "trust"}
TASKS = {"chat", "code", "math", "knowledge", "summary", "creative", "agentic", "translation"}
DOMAINS = TASKS | {"multilingual", "mixed"}
with TABLE.open(encoding="utf-8", newline="") as text:
    ROWS = list(csv.DictReader(text))


def test_the_columns_are_as_named() -> None:
    assert set(ROWS[0]) == STATED | OPEN | COUNTED
    assert len({row["id"] for row in ROWS}) == len(ROWS)


def is_possible(row: dict[str, str]) -> bool:
    """Return whether a pass yields its own token and at most all drafts."""
    return 1 <= float(row["tokens_per_step"]) <= 1 + int(row["draft_length"])


def test_every_row_is_possible_and_says_where_it_is_from() -> None:
    assert not [row["id"] for row in ROWS if not is_possible(row)]
    assert not [row["id"] for row in ROWS if not all(row[name] for name in STATED)]
    assert {row["domain"] for row in ROWS} <= DOMAINS
    assert {row["trust"] for row in ROWS} <= {"A", "B", "C"}


def test_the_rows_of_a_curve_are_the_curve_s_values() -> None:
    stated: Counter[tuple[str, int, float]] = Counter()
    for bundled in bundled_curves():
        for curve in load_file(bundled["id"])[1].all_curves():
            measured = curve.to_acceptance(label="", source="").measured
            stated.update((bundled["id"], d, round(al, 4)) for d, al in measured.items() if d > 0)
    listed = Counter(
        (row["curve"], int(row["draft_length"]), float(row["tokens_per_step"]))
        for row in ROWS
        if row["curve"]
    )
    assert listed == stated
