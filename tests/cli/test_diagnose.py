"""What disagrees with a measurement: faults planted in synthetic ones must be named."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roofline.specs.engine import load_engine
from tests.support import GPU, Cli, Outcome, assert_refused, write

#: Errors of a careful measurement, as multiples of the truth; fixed so that a run repeats.
WIGGLE = (1.004, 0.993, 1.008, 0.998, 0.991, 1.006)
DENSE = ("llama-3.1-8b",)
SMALL = ("qwen3-1.7b", "--gpu", "h200-sxm", "--drafter", "eagle3")
MIXTURE = ("qwen3-30b-a3b", "--gpu", "h200-sxm", "--tp", "4", "--drafter", "eagle3")


def points(steps: dict[tuple[int, int, int], float]) -> str:
    """Return steps [ms] by (D, batch, context) as the option takes them; AL 1 is a step."""
    return ",".join(
        f"{length}@{batch}x{context}:{ms * wiggle:.6f}ms:1"
        for ((length, batch, context), ms), wiggle in zip(
            steps.items(), itertools.cycle(WIGGLE), strict=False
        )
    )


def diagnosed(cli: Cli, question: tuple[str, ...], steps: dict[tuple[int, int, int], float]) -> Any:
    return cli(
        "diagnose", *question, "--measured", points(steps), "--noise", "1", "--format", "json"
    ).data()


def loads(cli: Cli, question: tuple[str, ...]) -> dict[tuple[int, int, int], dict[str, float]]:
    """Return the predicted terms [ms] of three draft lengths at two batches and two contexts."""
    places = itertools.product((0, 2, 5), (2, 32), (512, 8192))
    data = diagnosed(cli, question, dict.fromkeys(places, 1.0))
    return {
        (p["draft_length"], p["batch"], p["context"]): {
            **p["terms_ms"], "all": p["predicted_step_ms"],
        }
        for p in data["points"]
    }  # fmt: skip


SLOW = [
    (DENSE, "drafter"),
    (DENSE, "host overhead"),
    (DENSE, "attention path"),
    (DENSE, "matrix products"),
    (SMALL, "host overhead"),
    (SMALL, "overhead of drafting"),
    (SMALL, "drafter"),
    (MIXTURE, "experts"),
    (MIXTURE, "communication"),
    (MIXTURE, "attention path"),
    (MIXTURE, "host overhead"),
]
#: Terms large enough that 60 % less of them is more than the stated errors. A drafter is not: it is
#: a seventh of a step with five drafts, whose ratio to a plain step is known to 7 %.
FAST = [
    (DENSE, "attention path"),
    (DENSE, "matrix products"),
    (SMALL, "overhead of drafting"),
    (MIXTURE, "experts"),
    (MIXTURE, "attention path"),
]


@pytest.mark.parametrize(
    ("question", "term", "factor"),
    [
        *((*case, 2.0) for case in SLOW),
        *((*case, 0.4) for case in FAST),
        (DENSE, "overhead of drafting", 3.0),  # twice it is within the stated errors
    ],
)
def test_a_planted_fault_is_named(
    cli: Cli, question: tuple[str, ...], term: str, factor: float
) -> None:
    """One term times ``factor`` in twelve steps that are measured to a percent."""
    found = loads(cli, question)
    steps = {at: t["all"] + (factor - 1) * t.get(term, 0.0) for at, t in found.items()}
    data = diagnosed(cli, question, steps)
    assert not data["nothing_to_explain"]
    assert data["term"] == term
    assert data["explanations"][0]["factor"] == pytest.approx(factor, rel=0.25)


def test_waiting_for_memory_is_named(cli: Cli) -> None:
    """Of 512 sequences of 8k tokens 47 to 49 fit: tokens take 512 / 49 times as long."""
    memory = cli(
        "memory", "llama-3.1-8b", "--context", "8k", "--draft-length", "3", "--format", "json"
    ).data()["contexts"][0]
    capacity = {0: memory["largest_batch"], 3: memory["largest_batch_speculative"]}
    places = [(0, 8, 8192), (0, 512, 8192), (3, 8, 8192), (3, 512, 8192)]
    data = diagnosed(cli, DENSE, dict.fromkeys(places, 1.0))
    steps = {}
    for place, point in zip(places, data["points"], strict=True):
        length, batch, _ = place
        steps[place] = point["predicted_step_ms"] * max(batch / capacity[length], 1.0)
    found = diagnosed(cli, DENSE, steps)
    assert found["term"] == "memory pressure"
    assert found["explanations"][0]["factor"] == pytest.approx(1.0, rel=0.05)
    assert [point["fits"] for point in found["points"]] == [True, False, True, False]
    (refused,) = found["refused"]
    assert (refused["batch"], refused["context"]) == (512, 8192)
    assert refused["largest_batch"] == capacity[0]


@pytest.mark.parametrize("question", [DENSE, MIXTURE])
def test_no_explanation_when_nothing_disagrees(cli: Cli, question: tuple[str, ...]) -> None:
    found = loads(cli, question)
    data = diagnosed(cli, question, {at: t["all"] for at, t in found.items()})
    assert data["nothing_to_explain"]
    assert data["term"] is data["settles"] is data["next"] is None
    outcome = cli(
        "diagnose", *question, "--measured", points({at: t["all"] for at, t in found.items()})
    )
    assert outcome.out.startswith("Nothing to explain")


@pytest.mark.parametrize(
    ("deviations", "begins"),
    [(0.5, "Nothing to explain"), (1.7, "Not decided"), (-1.7, "Not decided"), (3.0, "One point")],
)
def test_a_difference_is_told_in_standard_deviations(
    cli: Cli, deviations: float, begins: str
) -> None:
    """One point that is z of its bands off, in logarithms, is z standard deviations off.

    A normal error is beyond 1.7 of them in 8.9 % of cases (tables of the normal distribution).
    """
    at = ("diagnose", *DENSE, "--batch", "8", "--context", "2k", "--measured")
    (point,) = cli(*at, "0:1ms", "--format", "json").data()["points"]
    measured = point["predicted_step_ms"] * np.exp(deviations * point["band"])
    said = " ".join(cli(*at, f"0:{measured:.6f}ms").out.split())
    assert said.startswith(begins)
    assert f"{abs(deviations):.1f} standard deviations" in said
    assert (" in 9% of cases" in said) is (begins == "Not decided")


def step(cli: Cli, *question: str, context: int = 4096, batch: int = 8) -> dict[int, float]:
    """Return the steps [ms] that ``recommend`` predicts."""
    rows = cli(
        "recommend", *question, "--batch", str(batch), "--context", str(context), "--acceptance",
        "0.7", "--max-draft-length", "5", "--format", "json",
    ).by_draft_length()  # fmt: skip
    return {length: row["step_ms"] for length, row in rows.items()}


def test_a_slower_host_is_told_from_its_times(cli: Cli) -> None:
    """vLLM's time of a step, a round, a pass and a sequence, each three times."""
    overhead = load_engine("vllm").overhead
    names = ("per_step", "per_spec_round", "per_draft_pass", "per_spec_sequence")
    thrice = [f"engine.overhead.{name}={3e6 * getattr(overhead, name):g} us" for name in names]
    slow = tuple(word for text in thrice for word in ("--set", text))
    steps = {
        (length, batch, context): ms
        for batch, context in ((1, 1024), (16, 1024), (16, 16384))
        for length, ms in step(cli, *DENSE, *slow, batch=batch, context=context).items()
    }
    data = diagnosed(cli, DENSE, steps)
    assert data["term"] == "host overhead"
    assert data["explanations"][0]["factor"] == pytest.approx(3.0, rel=0.1)


def test_a_cache_read_for_every_row_is_the_attention_path(cli: Cli) -> None:
    """kv_per_query instead of kv_once: as many reads as rows, exactly what that would add."""
    slow = ("--verify-attention", "kv_per_query")
    steps = {
        (length, batch, context): ms
        for batch, context in ((4, 1024), (16, 4096), (16, 16384))
        for length, ms in step(cli, *DENSE, *slow, batch=batch, context=context).items()
    }
    data = diagnosed(cli, DENSE, steps)
    assert data["term"] == "attention path per row"
    assert data["explanations"][0]["factor"] == pytest.approx(1, rel=0.1)
    assert diagnosed(cli, (*DENSE, *slow), steps)["nothing_to_explain"]


def test_a_slow_link_is_the_communication(cli: Cli, tmp_path: Path) -> None:
    """A link of a tenth of the bandwidth, told by a profile with all of it."""
    slow = GPU.replace("per_direction: {value: 100 GB/s", "per_direction: {value: 10 GB/s")
    fast_file = write(tmp_path, "fast.yaml", GPU)
    slow_file = write(tmp_path, "slow.yaml", slow.replace("id: roundcard", "id: slowcard"))
    model = ("llama-3.1-8b", "--tp", "4", "--gpu")
    steps = {
        (length, batch, 2048): ms
        for batch in (8, 32, 128)
        for length, ms in step(cli, *model, slow_file, batch=batch, context=2048).items()
    }
    assert diagnosed(cli, (*model, fast_file), steps)["term"] == "communication"


def test_the_proposed_load_parts_the_two_best(cli: Cli) -> None:
    """From one slow step at D = 3 nothing can be told; the proposal says where it could."""
    data = cli(
        "diagnose", *DENSE, "--tpot", "9ms", "--draft-length", "3", "--tokens-per-step", "2.5",
        "--batch", "8", "--format", "json",
    ).data()  # fmt: skip
    possible = [e["term"] for e in data["explanations"] if e["as_good"]]
    assert len(possible) > 2
    text = cli(
        "diagnose", *DENSE, "--tpot", "9ms", "--draft-length", "3", "--tokens-per-step", "2.5",
        "--batch", "8",
    ).out  # fmt: skip
    assert text.startswith("One point cannot tell the terms apart")
    proposed = data["next"]
    first, second = proposed["step_ms"].values()
    assert list(proposed["step_ms"]) == possible[:2]
    assert abs(np.log(first / second)) > 0.03
    measured = {(p["draft_length"], p["batch"], p["context"]) for p in data["points"]}
    assert (proposed["draft_length"], proposed["batch"], proposed["context"]) not in measured
    # and measuring there what the first expects leaves it standing, the second not
    answer = cli(
        "diagnose", *DENSE, "--format", "json", "--measured", "3@8x4k:9ms:2.5", "--measured",
        f"{proposed['draft_length']}@{proposed['batch']}x{proposed['context']}:{first}ms:1",
    ).data()  # fmt: skip
    standing = [e["term"] for e in answer["explanations"] if e["as_good"]]
    assert possible[0] in standing
    assert possible[1] not in standing


def test_a_rate_of_all_and_the_time_of_a_token_are_the_same(cli: Cli) -> None:
    """Batch 8 at 2.5 tokens a step of 10 ms: 4 ms a token, 2000 tokens/s."""

    def measured(*flags: str) -> Outcome:
        return cli("diagnose", *DENSE, "--batch", "8", "--format", "json", *flags)

    ways = [
        measured("--measured", "3:4ms:2.5"),
        measured("--measured", "3:2000/s:2.5"),
        measured("--tpot", "4ms", "--draft-length", "3", "--tokens-per-step", "2.5"),
        measured("--tokens-per-s", "2000", "--draft-length", "3", "--tokens-per-step", "2.5"),
        measured("--measured", "3@8x4k:4ms", "--acceptance", "al:3=2.5"),
    ]
    steps = [way.data()["points"][0]["measured_step_ms"] for way in ways]
    assert steps == pytest.approx([10.0] * 5)


def test_a_file_of_steps(cli: Cli, tmp_path: Path) -> None:
    file = write(
        tmp_path, "mine.csv", "batch,context,draft_length,step_ms\n8,4096,0,8.05\n8,4096,3,10.1\n"
    )
    data = cli("diagnose", *DENSE, "--measured", file, "--format", "json").data()
    assert [p["measured_step_ms"] for p in data["points"]] == [8.05, 10.1]


def test_text_fits_the_terminal(cli: Cli) -> None:
    outcome = cli(
        "diagnose", *DENSE, "--measured", "0@256x1k:22ms,5@32x32k:620/s:3.21,7@1x128k:3.9ms:4.5"
    )
    assert max(map(len, outcome.out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "nothing is given"),
        (["--measured", "3"], "expected D[@BATCH"),
        (["--measured", "3:fast:2"], "expected a time"),
        (["--measured", "3:-4ms:2"], "expected a time"),
        (["--measured", "3:0ms:2"], "expected a time"),
        (["--measured", "3:0/s:2"], "expected a time"),
        (["--measured", "3:nan/s:2"], "expected a time"),
        (["--measured", "0:1e-300ms"], "1 us to 100 s"),
        (["--measured", "0:0.9us"], "1 us to 100 s"),
        (["--measured", "0:2h"], "1 us to 100 s"),
        (["--tokens-per-s", "1e308"], "1 us to 100 s"),
        (["--tokens-per-s", "9", "--draft-length", "3", "--tokens-per-step", "9"], "1 + D = 4"),
        (["--measured", "3:4ms"], "how many tokens"),
        (["--measured", "3:4ms:5"], "expected 1 to 4 tokens"),
        (["--measured", "3:4ms:0.5"], "expected 1 to 4 tokens"),
        (["--measured", "99:4ms:2"], "expected 0 to 64"),
        (["--measured", "3@0:4ms:2"], "at least 1"),
        (["--measured", "3@2x900m:4ms:2"], "at most 131072"),
        (["--tpot", "4ms", "--tokens-per-s", "9"], "give one"),
        (["--tpot", "4ms", "--draft-length", "-1"], "--draft-length -1"),
        (["--tpot", "4ms", "--noise", "0"], "--noise 0"),
        (["--tpot", "4ms", "--batch", "1,2"], "expected one number"),
        (["--measured", "3:4ms:2", "--drafter", "none"], "cannot draft 3"),
        (["--measured", "none.csv"], "cannot be read"),
        (["--measured", ",".join(f"0@{b}:9ms" for b in range(1, 300))], "at most 200"),
    ],
)
def test_bad_measurements(cli: Cli, flags: list[str], words: str) -> None:
    assert_refused(cli("diagnose", *DENSE, *flags), words)


@pytest.mark.parametrize("times", [1 / 1000, 1 / 12, 1000])
def test_impossible_measurements_have_no_explanation(cli: Cli, times: float) -> None:
    """A step is the reading of 16 GB at 3.35 TB/s and more: no one term makes it 12 times less."""
    plain = loads(cli, DENSE)[0, 2, 512]["all"]
    flags = ("--measured", f"0@2x512:{times * plain}ms", "--tp", "1")
    outcome = cli("diagnose", *DENSE, *flags)
    assert outcome.out.startswith("No single term explains the measurements"), outcome.out
    rows = cli("diagnose", *DENSE, *flags, "--format", "json").data()["explanations"]
    assert not any(row["fits"] for row in rows)
