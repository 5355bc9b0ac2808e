"""The proof of texts by the engines' own code finds what an engine does otherwise than meant."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from workshop.proof import environment
from workshop.proof.environment import NotFetchedError
from workshop.proof.judge import judged
from workshop.proof.llamacpp import passes_of
from workshop.proof.texts import Text, texts

MEANT = {"method": "eagle3", "draft_length": 3, "running": 100}
TAKEN = {"method": "eagle3", "draft_length": 3, "tp": 1, "dp": 1}


def text(engine: str = "vllm", refused: str = "", **meant: Any) -> Text:
    return Text(
        engine=engine,
        about="a text",
        text="--flag",
        target={},
        kind="eagle3",
        meant=MEANT | meant,
        refused=refused,
    )


def test_a_text_that_is_taken_as_meant() -> None:
    assert judged(text(), TAKEN).wrong == ""


@pytest.mark.parametrize(
    ("meant", "verdict", "wrong"),
    [
        ({}, {"refused": "Value error, no such method"}, "refused"),
        ({}, TAKEN | {"draft_length": 4}, "draft_length 4 for 3"),
        ({"draft_tp": 1}, TAKEN | {"draft_tp": 4}, "draft_tp 4 for 1"),
        ({"tokens_per_step": 2.5}, TAKEN | {"tokens_per_step": 2.0}, "tokens per step"),
        ({"ep": 8}, TAKEN | {"expert_parallel": False}, "expert parallelism"),
        # rows [1, 2, 3], [3, 4, 1] that the engine switches off, or reads with another length
        ({"schedule": [[1, 2, 3], [3, 4, 1]]}, TAKEN | {"batches": None}, "switched off"),
        ({"schedule": [[1, 2, 3], [3, 4, 1]]}, TAKEN | {"batches": [3, 3, 3, 1]}, "batches [3]"),
    ],
)
def test_what_is_taken_otherwise_is_found(
    meant: dict[str, Any], verdict: dict[str, Any], wrong: str
) -> None:
    assert wrong in judged(text(**meant), verdict).wrong


@pytest.mark.parametrize(
    ("verdict", "wrong"),
    [
        (TAKEN | {"running": 48, "breadth": 1}, "runs 48 of 100 requests"),
        (TAKEN | {"running": 100, "breadth": 10}, "a tree of breadth 10, priced with 1"),
        (TAKEN | {"running": 100, "breadth": 1, "captured": 64}, "graphs for 64 requests"),
    ],
)
def test_sglang_runs_what_is_priced(verdict: dict[str, Any], wrong: str) -> None:
    assert wrong in judged(text("sglang"), verdict).wrong


def test_what_must_be_refused_is_refused_for_the_same_reason() -> None:
    rule = "must be divisible by n_predict=3"
    assert judged(text(refused="divisible"), {"refused": rule}).wrong == ""
    assert judged(text(refused="divisible"), {"refused": "no module named x"}).wrong == "refused"
    assert "taken" in judged(text(refused="divisible"), TAKEN).wrong


def test_packages_that_cannot_be_fetched_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip's last error, and nothing passes in silence."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(NotFetchedError) as found:
        environment._pip(Path(sys.executable), "download", "no-such-package==0")
    assert "no-such-package==0" in str(found.value)
    assert "\n" not in str(found.value)


def test_every_kind_and_every_engine_is_among_the_texts() -> None:
    found = list(texts())
    assert {each.engine for each in found} == {"vllm", "sglang"}
    for engine in ("vllm", "sglang"):
        kinds = {each.kind for each in found if each.engine == engine}
        assert {"ngram", "eagle1", "eagle3", "model", "mtp", "dflash", "dspark"} <= kinds
    assert sum(bool(each.meant.get("schedule")) for each in found) >= 8
    assert sum("tokens_per_step" in each.meant for each in found) >= 14


def test_tokens_that_come_together_are_of_one_pass() -> None:
    """First tokens at 0, 20, 40, 60 and 80 ms; the second and the fourth bring two more each."""
    came = [0.0, 0.020, 0.0201, 0.0202, 0.040, 0.060, 0.0601, 0.0603, 0.080]
    assert passes_of(came) == 4
