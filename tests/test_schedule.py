"""Schedules: the best table by brute force, and what each engine reads in what was written."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.engine import load_engine
from roofline.schedules.bands import Band, coverage, longest_runs
from roofline.schedules.sglang import cells, slots
from roofline.schedules.trtllm import Reading, expressible, keys, read
from roofline.schedules.vllm import rows
from tests import schedule_rules as rules
from tests.support import Cli, assert_refused

BATCHES = "1..64"
COUNT = 64
MODEL = ("llama-3.1-8b", "--gpu", "h200-sxm")
MOE = ("qwen3-30b-a3b", "--gpu", "h200-sxm", "--drafter", "ngram", "--acceptance", "0.7")
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


# The best table -------------------------------------------------------------------------------


@pytest.mark.parametrize("ask", [MODEL, MOE])
def test_without_a_tie_every_batch_runs_the_brute_force_best(
    cli: Cli, ask: tuple[str, ...]
) -> None:
    written = text(cli, "vllm", *ask, "--batches", BATCHES, "--contexts", "1k", "--tie", "0")
    lengths = rules.vllm_lengths(written, COUNT)
    for (batch, _), speeds in recommended(cli, ask, "1k").items():
        best = max(speeds, key=lambda d: speeds[d])
        assert best > 0  # so that the cost of idle speculation plays no part here
        assert lengths[batch - 1] == best, batch


@pytest.mark.parametrize("ask", [MODEL, MOE])
@pytest.mark.parametrize("tie", [1, 3])
def test_within_a_tie_no_batch_loses_more_and_no_table_is_shorter(
    cli: Cli, ask: tuple[str, ...], tie: int
) -> None:
    written = text(cli, "vllm", *ask, "--batches", BATCHES, "--contexts", "1k", "--tie", str(tie))
    lengths = rules.vllm_lengths(written, COUNT)
    permitted = []
    for (batch, _), speeds in recommended(cli, ask, "1k").items():
        top = max(speeds.values())
        permitted.append({d for d, v in speeds.items() if v >= (1 - tie / 100) * top})
        assert lengths[batch - 1] in permitted[-1], batch
    table = rules.vllm_config(written).get("num_speculative_tokens_per_batch_size", [0])
    assert len(table) == fewest(permitted)


def fewest(permitted: list[set[int]]) -> int:
    """Return the smallest number of bands, by dynamic programming over all divisions."""
    best = [0] + [len(permitted) + 1] * len(permitted)
    for end in range(1, len(permitted) + 1):
        common = permitted[end - 1]
        for start in range(end - 1, -1, -1):
            common = common & permitted[start]
            if not common:
                break
            best[end] = min(best[end], best[start] + 1)
    return best[-1]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sets(st.integers(0, 4), min_size=1), min_size=1, max_size=12))
def test_longest_runs_are_the_fewest_and_cover_once(permitted: list[set[int]]) -> None:
    allowed = np.array([[[d in own for d in range(5)]] for own in permitted])
    runs = longest_runs(allowed)
    assert [i for start, stop, _ in runs for i in range(start, stop)] == list(range(len(permitted)))
    for start, stop, (chosen,) in runs:
        assert all(chosen in own for own in permitted[start:stop])
    assert len(runs) == fewest(permitted)


def test_rows_cover_every_batch_once(cli: Cli) -> None:
    data = cli("schedule", *MODEL, "--batches", "1..200", "--format", "json").data()
    covered = [b for row in data["bands"] for b in range(row["batch_start"], row["batch_end"] + 1)]
    assert covered == list(range(1, 201))


def test_one_table_for_several_contexts_is_the_geometric_mean(cli: Cli) -> None:
    written = text(cli, "vllm", *MODEL, "--batches", BATCHES, "--contexts", "1k,8k", "--tie", "0")
    lengths = rules.vllm_lengths(written, COUNT)
    speeds = recommended(cli, MODEL, "1k,8k")
    for batch in (1, 7, 33, 64):
        joint = {
            d: np.prod([s[d] / max(s.values()) for s in (speeds[batch, 1024], speeds[batch, 8192])])
            for d in speeds[batch, 1024]
        }
        assert lengths[batch - 1] == max(joint, key=lambda d: joint[d])


def test_on_a_mixture_of_experts_the_best_length_rises_and_falls(cli: Cli) -> None:
    """Few rows wake new experts for each draft; many rows have woken them all (theory 6.4)."""
    written = text(cli, "vllm", *MOE, "--batches", "1..256", "--contexts", "1k")
    lengths = rules.vllm_lengths(written, 256)
    assert lengths[0] < max(lengths) > lengths[-1]
    table = text(cli, "table", *MOE, "--batches", "1..256", "--contexts", "1k")
    assert "D rises again with batch" in " ".join(table.split())


# Idle speculation -----------------------------------------------------------------------------


def test_zero_rows_only_where_they_beat_the_cost_of_being_idle(cli: Cli) -> None:
    """At rate 0.3 n-grams stop paying somewhere below batch 512; idle adds 0.2 ms to D = 0."""
    ask = ("llama-3.1-8b", "--gpu", "h200-sxm", "--drafter", "ngram", "--acceptance", "0.3")
    arguments = (*ask, "--batches", "1..400", "--contexts", "1k", "--tie", "0")
    lengths = rules.vllm_lengths(text(cli, "vllm", *arguments), 400)
    assert lengths[0] > 0
    assert lengths[-1] == 0
    idle = load_engine("vllm").idle_speculation
    assert idle is not None
    for batch in (100, 200, 300, 400):
        rows = cli(
            "recommend", *ask, "--batch", str(batch), "--context", "1k", "--format", "json"
        ).by_draft_length()
        step = {d: r["step_ms"] + 1e3 * idle.per_step * (d == 0) for d, r in rows.items()}
        best = max(rows, key=lambda d: rows[d]["tokens_per_step"] / step[d])
        assert lengths[batch - 1] == best


def test_a_head_keeps_its_cache_while_idle(cli: Cli) -> None:
    """vLLM runs one draft pass at K = 0: that costs at least reading the head's 0.85 GB once."""
    idle = cli("schedule", *MODEL, "--batches", "1..8", "--format", "json").data()["idle_ms"]
    read = 1e3 * 2 * 424_689_664 / 4.8e12
    assert 0.2 + 0.7 * read < idle < 1.5


def test_nothing_to_configure(cli: Cli) -> None:
    out = text(
        cli, "table", "llama-3.1-8b", "--drafter", "ngram", "--acceptance", "0", "--batches", "1..9"
    )
    assert out.startswith("Do not configure speculation")
    assert "leave --speculative-config out" in out


# TensorRT-LLM ---------------------------------------------------------------------------------

HEAVY = (*MODEL, "--batches", BATCHES, "--contexts", "1k")


@pytest.mark.parametrize("tie", ["0", "1"])
def test_both_readings_of_tensorrt_llm_mean_the_same_table(cli: Cli, tie: str) -> None:
    newer = text(cli, "trtllm", *HEAVY, "--tie", tie)
    older = text(cli, "trtllm", *HEAVY, "--tie", tie, "--engine-version", "1.2.0")
    assert rules.trtllm_newer(newer, COUNT) == rules.trtllm_older(older, COUNT)


def test_the_older_release_would_read_it_the_other_way_round(cli: Cli) -> None:
    newer, older = (
        cli("schedule", *HEAVY, "--format", "trtllm", "--engine-version", version)
        for version in ("1.3", "1.2")
    )
    meant = rules.trtllm_newer(newer.out, COUNT)
    try:
        assert rules.trtllm_older(newer.out, COUNT) != meant
    except rules.RefusedError:
        assert "refuses this text" in newer.err
    assert rules.trtllm_newer(older.out, COUNT) != meant
    assert "the other way round" in older.err


@pytest.mark.parametrize("schedule", [{1: 4, 8: 2}, {4: 4, 8: 2, 32: 1}, {1: 4, 4: 2, 8: 0}])
def test_readings_by_hand(schedule: dict[int, int]) -> None:
    """The two examples of the two sources, and one that both accept and read differently."""
    newer = [read(schedule, batch, Reading.NEWER) for batch in range(1, 41)]
    body = json.dumps({"max_draft_len": 4, "draft_len_schedule": 0}).replace(
        "0}", "{" + ", ".join(f"{k}: {v}" for k, v in schedule.items()) + "}}"
    )
    written = f"speculative_config: {body}"
    assert newer == rules.trtllm_newer(written, 40)
    if 1 in schedule:
        older = [read(schedule, batch, Reading.OLDER) for batch in range(1, 41)]
        assert older == rules.trtllm_older(written, 40)
        assert older != newer
    else:
        assert read(schedule, 5, Reading.OLDER) is None


def test_keys_of_both_readings_go_back_to_the_bands() -> None:
    bands = [
        Band(first=a, last=b, draft_lengths=(d,)) for a, b, d in ((1, 4, 4), (5, 8, 1), (9, 9, 0))
    ]
    meant = [4] * 4 + [1] * 4 + [0]
    for how in Reading:
        assert [read(keys(bands, how), batch, how) for batch in range(1, 10)] == meant


def test_a_table_that_rises_is_replaced_by_the_nearest_that_can_be_written(cli: Cli) -> None:
    """Found by brute force: every first length M, then the best up to M at every other batch."""
    ask = (
        "qwen3-235b-a22b", "--gpu", "h200-sxm", "--tp", "8", "--drafter", "eagle3",
        "--acceptance", "0.8", "--engine", "trtllm",
    )  # fmt: skip
    outcome = cli(
        "schedule", *ask, "--batches", BATCHES, "--contexts", "1k", "--tie", "0", "--format", "json"
    )
    data = outcome.data()
    speeds = {b: s for (b, _), s in recommended(cli, ask, "1k").items()}
    best = [max(s, key=lambda d: s[d]) for s in speeds.values()]
    assert best[0] < max(best)  # it rises: the newer form cannot say that
    share = {b: np.log1p(1 / b) for b in speeds}
    worth = {
        most: sum(
            share[b] * b * (s[most] if b == 1 else max(v for d, v in s.items() if d <= most))
            for b, s in speeds.items()
        )
        for most in range(1, 9)
    }
    top = sum(share[b] * b * max(s.values()) for b, s in speeds.items())
    lengths = rules.trtllm_newer(data["text"], COUNT)
    assert lengths[0] == max(worth, key=lambda most: worth[most])
    assert data["loss"] == pytest.approx(1 - max(worth.values()) / top, abs=1e-9)
    assert data["form_loss"] == pytest.approx(data["loss"])
    assert data["form_loss"] > 0
    assert "the nearest that can be written" in " ".join(data["warnings"])


@pytest.mark.parametrize(
    ("version", "window", "threshold"),
    [
        ("1.3", "acceptance_rate_window_size", "acceptance_rate_threshold"),
        ("1.2", "acceptance_window", "acceptance_length_threshold"),
    ],
)
def test_the_gate_has_its_right_name_and_break_even(
    cli: Cli, version: str, window: str, threshold: str
) -> None:
    """(R(D) - 1) / D in the newer gate, R(D) - 1 in the older; the lowest of all batches."""
    arguments = (*HEAVY, "--tie", "0", "--gate", "--engine-version", version)
    config = rules.trtllm_config(text(cli, "trtllm", *arguments))
    assert config[window] > 0
    reader = rules.trtllm_newer if version == "1.3" else rules.trtllm_older
    lengths = reader(text(cli, "trtllm", *arguments), COUNT)
    data = cli(
        "recommend", *MODEL, "--batch", ",".join(map(str, range(1, COUNT + 1))), "--context", "1k",
        "--engine", "trtllm", "--format", "json",
    ).data()  # fmt: skip
    found = []
    for point in data["points"]:
        drafts = lengths[point["batch"] - 1]
        (ratio,) = (
            r["cost_ratio"] for r in point["by_draft_length"] if r["draft_length"] == drafts
        )
        found.append((ratio - 1) / drafts if version == "1.3" else ratio - 1)
    assert config[threshold] == pytest.approx(min(found), abs=6e-4)


def test_one_band_and_none_above_is_max_concurrency(cli: Cli) -> None:
    """At rate 0.2 one draft pays for small batches only; the two keys exclude each other."""
    ask = ("llama-3.1-8b", "--gpu", "h200-sxm", "--acceptance", "0.2", "--contexts", "1k")
    arguments = (*ask, "--batches", "1..400", "--tie", "3", "--max-draft-length", "1")
    written = text(cli, "trtllm", *arguments)
    config = rules.trtllm_config(written)
    assert "draft_len_schedule" not in config
    limit = config["max_concurrency"]
    assert rules.trtllm_newer(written, 400) == [1] * limit + [0] * (400 - limit)
    assert rules.trtllm_older(written, 400) == rules.trtllm_newer(written, 400)


# SGLang and llama.cpp -------------------------------------------------------------------------


def per_cell(captured: list[int]) -> Iterator[list[int]]:
    """Yield the batches that are padded to the same captured size."""
    padded = {b: min((s for s in captured if s >= b), default=b) for b in range(1, COUNT + 1)}
    for _, group in itertools.groupby(padded, key=lambda b: padded[b]):
        yield list(group)


@pytest.mark.parametrize("captured", [CAPTURED, [1, 2, 4, 8, 16, 32, 64], list(range(1, 65))])
def test_sglang_slots_after_padding(cli: Cli, captured: list[int]) -> None:
    """Without a tie: the best joint D of all batches that are padded alike, by brute force."""
    arguments = ["--tie", "0", "--graph-batches", ",".join(map(str, captured))]
    written = text(cli, "sglang", *HEAVY, *arguments)
    routed = rules.sglang_candidates(written, COUNT, captured)
    assert all(len(steps) == 1 for steps in routed)
    speeds = {b: s for (b, _), s in recommended(cli, MODEL, "1k", "--engine", "sglang").items()}
    for cell in per_cell(captured):
        worth = {
            d: sum(np.log1p(1 / b) * b * speeds[b][d] for b in cell) for d in drafted(speeds[1])
        }
        assert {routed[b - 1][0] for b in cell} == {max(worth, key=lambda d: worth[d])}


def test_sglang_defaults_are_its_own_captured_sizes(cli: Cli) -> None:
    plain = text(cli, "sglang", *HEAVY)
    given_sizes = text(cli, "sglang", *HEAVY, "--graph-batches", ",".join(map(str, CAPTURED)))
    assert plain == given_sizes


def test_sglang_candidate_sets_hold_the_fixed_choice(cli: Cli) -> None:
    fixed = rules.sglang_candidates(text(cli, "sglang", *HEAVY), COUNT, CAPTURED)
    chosen = rules.sglang_candidates(
        text(cli, "sglang", *HEAVY, "--candidate-sets"), COUNT, CAPTURED
    )
    assert all(set(one) <= set(many) for one, many in zip(fixed, chosen, strict=True))
    assert any(len(many) > 1 for many in chosen)


def test_sglang_says_the_flags_that_go_with_the_file(cli: Cli) -> None:
    """num-steps must be one of all candidates, draft tokens are one more, top-k is 1."""
    outcome = cli("schedule", *HEAVY, "--format", "sglang")
    words = outcome.err.split()
    steps = int(words[words.index("--speculative-num-steps") + 1])
    assert steps in {
        s for entry in json.loads(outcome.out).values() for s in entry["candidate_steps"]
    }
    assert words[words.index("--speculative-num-draft-tokens") + 1] == str(steps + 1)
    assert words[words.index("--speculative-eagle-topk") + 1] == "1"


def test_llamacpp_cost_array(cli: Cli) -> None:
    """As in PR 17034: 1 first, then the cost of a token falls towards 1 / n and never below."""
    arguments = ("llama-3.1-8b", "--drafter", "llama-3.2-1b", "--acceptance", "0.7")
    written = text(cli, "llamacpp", *arguments, "--batches", "1..4")
    name, _, values = written.removeprefix("export ").partition("=")
    array = [float(value) for value in values.split(",")]
    assert name == "GGML_BATCH_COSTS"
    assert len(array) == 64
    assert array[0] == 1
    rows = cli(
        "recommend", *arguments, "--engine", "llamacpp", "--format", "json"
    ).by_draft_length()
    for drafts, row in rows.items():
        each = row["verify_ms"] / rows[0]["verify_ms"] / (1 + drafts)
        assert array[drafts] == pytest.approx(each, rel=5e-3)


# vLLM -----------------------------------------------------------------------------------------


def test_vllm_limit_is_the_largest_row(cli: Cli) -> None:
    config = rules.vllm_config(text(cli, "vllm", *HEAVY))
    rows = config["num_speculative_tokens_per_batch_size"]
    assert config["num_speculative_tokens"] == max(row[2] for row in rows)
    assert config["method"] == "eagle3"


def test_vllm_rows_of_five_only_when_asked(cli: Cli) -> None:
    arguments = (*MODEL, "--batches", BATCHES, "--contexts", "1k,8k", "--tie", "0")
    outcome = cli("schedule", *arguments, "--format", "vllm", "--proposed")
    assert "rejects rows of five" in outcome.err
    with pytest.raises(rules.RefusedError):
        rules.vllm_lengths(outcome.out, COUNT)
    for (batch, context), speeds in recommended(cli, MODEL, "1k,8k").items():
        best = max(speeds, key=lambda d: speeds[d])
        assert rules.vllm_proposed(outcome.out, batch, context) == best


def test_vllm_warns_where_data_parallelism_switches_it_off(cli: Cli) -> None:
    assert "switches" not in cli("schedule", *HEAVY, "--format", "vllm").err
    outcome = cli("schedule", *HEAVY, "--format", "vllm", "--data-parallel", "2")
    assert "--data-parallel 2" in outcome.err
    assert "switches the schedule off" in outcome.err


# Any table -----------------------------------------------------------------------------------


@st.composite
def tables(draw: st.DrawFn) -> list[Band]:
    """Draw bands of any widths and lengths, neighbours different."""
    count = draw(st.integers(1, 6))
    lengths = draw(st.lists(st.integers(0, 8), min_size=count, max_size=count))
    widths = draw(st.lists(st.integers(1, 12), min_size=count, max_size=count))
    ends = list(itertools.accumulate(widths))
    return [
        Band(first=end - width + 1, last=end, draft_lengths=(length,))
        for end, width, length in zip(ends, widths, lengths, strict=True)
    ]


def meant(bands: list[Band]) -> list[int]:
    return [b.draft_length for b in bands for _ in range(b.first, b.last + 1)]


@settings(max_examples=80, deadline=None)
@given(tables())
def test_any_table_survives_the_round_trip(bands: list[Band]) -> None:
    want = meant(bands)
    most = max(*want, 1)
    config = {"num_speculative_tokens": most, "num_speculative_tokens_per_batch_size": rows(bands)}
    written = f"--speculative-config '{json.dumps(config)}'"
    assert rules.vllm_lengths(written, len(want)) == want
    routed = rules.sglang_candidates(json.dumps(slots(bands)), len(want), [])
    assert routed == [[d] for d in want]
    if expressible(bands) and want[0]:
        for how, reader in (
            (Reading.NEWER, rules.trtllm_newer),
            (Reading.OLDER, rules.trtllm_older),
        ):
            body = {"max_draft_len": most, "draft_len_schedule": keys(bands, how)}
            text = yaml.safe_dump({"speculative_config": body})
            assert reader(text, len(want)) == want


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(1, 40), min_size=1), st.integers(1, 50))
def test_cells_are_the_batches_that_are_padded_alike(captured: set[int], count: int) -> None:
    starts = cells(count, sorted(captured))
    padded = [min((s for s in captured if s >= b), default=-b) for b in range(1, count + 1)]
    for i, size in enumerate(padded):
        assert starts[i] == padded.index(size)


# Mixes, lists, refusals -----------------------------------------------------------------------


def test_gain_over_the_best_fixed_length_by_hand(cli: Cli) -> None:
    """Half the time at batch 1, half at 64: tokens of both against one D for both."""
    ask = (*MODEL, "--batches", BATCHES, "--contexts", "1k", "--tie", "0")
    data = cli("schedule", *ask, "--mix", "1:1,64:1", "--format", "json").data()
    speeds = recommended(cli, MODEL, "1k")
    alone, many = speeds[1, 1024], speeds[64, 1024]
    best = max(alone.values()) + 64 * max(many.values())
    fixed = {d: alone[d] + 64 * many[d] for d in alone}
    assert data["best_fixed_draft_length"] == max(fixed, key=lambda d: fixed[d])
    assert data["gain_over_fixed"] == pytest.approx(best / max(fixed.values()) - 1)


def test_listed_batches_meet_at_their_geometric_mean(cli: Cli) -> None:
    assert coverage([1, 4, 100]) == [(1, 2), (3, 20), (21, 100)]
    assert coverage([5]) == [(1, 5)]
    arguments = (*MODEL, "--batches", "1,2,4,8,16,32,64,128,256", "--contexts", "1k", "--tie", "0")
    assert len(rules.vllm_lengths(text(cli, "vllm", *arguments), 256)) == 256


def test_json_and_csv_hold_the_same_bands(cli: Cli, tmp_path: Path) -> None:
    target = tmp_path / "table.csv"
    data = cli("schedule", *HEAVY, "--format", "json").data()
    assert cli("schedule", *HEAVY, "-o", str(target)).code == 0
    header, *lines = (line.split(",") for line in target.read_text().splitlines())
    assert header == list(data["bands"][0])
    assert [int(line[3]) for line in lines] == [row["draft_length"] for row in data["bands"]]
    assert data["schema"] == "roofline.schedule/1"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--batches 9..1", ("--batches", "9..1", "lowest first")),
        ("--batches 0..4", ("--batches",)),
        ("--batches 1..", ("--batches",)),
        ("--batches", ("--batches",)),
        ("--batches 1..99999", ("--batches", "4096")),
        ("--contexts 0", ("--context",)),
        ("--tie -1", ("--tie", "0 to 50")),
        ("--tie 80", ("--tie",)),
        ("--tie nan", ("--tie",)),
        ("--mix 1", ("--mix", "1:0.2")),
        ("--mix 1:0", ("--mix", "above 0")),
        ("--mix 1:1,1:2", ("--mix", "once")),
        ("--mix 999:1", ("--mix", "999", "largest batch")),
        ("--format trtllm --engine vllm", ("--format", "contradicts", "--engine vllm")),
        ("--gate", ("--gate", "trtllm")),
        ("--engine-version 1.2", ("--engine-version", "trtllm")),
        ("--format trtllm --engine-version new", ("--engine-version", "new")),
        ("--format sglang --proposed", ("--proposed", "vllm")),
        ("--candidate-sets", ("--candidate-sets", "sglang")),
        ("--graph-batches 1,2", ("--graph-batches", "sglang")),
        ("--data-parallel 0", ("--data-parallel", "0")),
        ("--drafter none", ("--drafter none", "nothing to schedule")),
        ("--drafter ngram --acceptance 0.5 --format trtllm", ("ngram", "newer")),
        ("--drafter ngram --acceptance 0.5 --format sglang", ("ngram", "EAGLE")),
        ("--format xml", ("--format", "xml")),
    ],
)
def test_refused_with_one_line(cli: Cli, arguments: str, words: tuple[str, ...]) -> None:
    assert_refused(cli("schedule", "llama-3.1-8b", *arguments.split()), *words)


def test_nothing_fits_is_exit_three(cli: Cli) -> None:
    assert_refused(cli("schedule", "llama-3.1-70b"), "llama-3.1-70b", code=3)


@pytest.mark.parametrize("more", [[], ["--contexts", "1k,8k"], ["--proposed"]])
def test_the_table_fits_eighty_columns(cli: Cli, more: list[str]) -> None:
    out = cli("schedule", *MODEL, "--tie", "3", *more).out
    assert [line for line in out.splitlines() if len(line) > 80 and "--spec" not in line] == []
