"""What the tests of schedules ask for, and how they read the answers."""

from __future__ import annotations

from typing import Any

from tests.support import Cli

BATCHES = "1..64"
COUNT = 64
MODEL = ("llama-3.1-8b", "--gpu", "h200-sxm")
#: Numbers of one's own, which are taken at their word: a bundled curve's error joins bands.
COUNTED = ("--acceptance", "al:1=1.77,2=2.36,3=2.79,4=3.08,5=3.32,6=3.46,7=3.54")
MOE = ("qwen3-30b-a3b", "--gpu", "h200-sxm", "--drafter", "ngram", "--acceptance", "0.7")
#: Merges no bands: the table is the one within the tie.
APART = ("--odds", "0")
HEAVY = (*MODEL, "--batches", BATCHES, "--contexts", "1k", *COUNTED)
#: Captured CUDA-graph sizes of SGLang with speculation (generate_decode_cuda_graph_batch_sizes).
CAPTURED = [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8)]


def recommended(cli: Cli, ask: tuple[str, ...], contexts: str, *more: str) -> dict[Any, Any]:
    """Return {(batch, context): {D: tokens/s of one user}} from ``recommend``."""
    batches = ",".join(str(b) for b in range(1, COUNT + 1))
    data = cli(
        "recommend", *ask, "--batch", batches, "--context", contexts, "--format", "json", *more
    ).data()
    return {
        (p["batch"], p["context"]): {
            row["draft_length"]: row["tokens_per_s"] / p["batch"] for row in p["by_draft_length"]
        }
        for p in data["points"]
    }


def text(cli: Cli, form: str, *arguments: str) -> str:
    outcome = cli("schedule", *arguments, "--format", form)
    assert outcome.code == 0, outcome.err
    return outcome.out


def drafted(speeds: dict[int, float]) -> dict[int, float]:
    """Leave out D = 0, which costs more under a schedule than plain decoding does."""
    return {d: v for d, v in speeds.items() if d > 0}
