"""The files that TensorRT-LLM, SGLang, llama.cpp and vLLM read: they mean the table asked for."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.base.notices import Code
from roofline.engines import sglang, trtllm, vllm
from roofline.engines.sglang import cell_starts
from roofline.engines.trtllm import Releases, drafts_most_first, schedule_keys, scheduled_length
from roofline.engines.writing import Band, DraftWeights, Launch
from roofline.specs.engine import load_engine
from roofline.specs.placement import Placement
from tests import schedule_rules as rules
from tests.scheduling import (
    APART,
    BATCHES,
    CAPTURED,
    COUNT,
    COUNTED,
    HEAVY,
    MODEL,
    drafted,
    recommended,
    text,
)
from tests.support import Cli

# TensorRT-LLM ---------------------------------------------------------------------------------

OWN = (*MODEL, *COUNTED)


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
    newer = [scheduled_length(schedule, batch, Releases.NEWER) for batch in range(1, 41)]
    body = json.dumps({"max_draft_len": 4, "draft_len_schedule": 0}).replace(
        "0}", "{" + ", ".join(f"{k}: {v}" for k, v in schedule.items()) + "}}"
    )
    written = f"speculative_config: {body}"
    assert newer == rules.trtllm_newer(written, 40)
    if 1 in schedule:
        older = [scheduled_length(schedule, batch, Releases.OLDER) for batch in range(1, 41)]
        assert older == rules.trtllm_older(written, 40)
        assert older != newer
    else:
        assert scheduled_length(schedule, 5, Releases.OLDER) is None


def test_keys_of_both_readings_go_back_to_the_bands() -> None:
    bands = [
        Band(first=a, last=b, draft_lengths=(d,)) for a, b, d in ((1, 4, 4), (5, 8, 1), (9, 9, 0))
    ]
    meant = [4] * 4 + [1] * 4 + [0]
    for releases in Releases:
        assert [
            scheduled_length(schedule_keys(bands, releases), batch, releases)
            for batch in range(1, 10)
        ] == meant


def test_a_table_that_rises_is_replaced_by_the_nearest_that_can_be_written(cli: Cli) -> None:
    """Found by brute force: every first length M, then the best up to M at every other batch."""
    ask = (
        "qwen3-235b-a22b", "--gpu", "h200-sxm", "--tp", "8", "--drafter", "eagle3",
        "--acceptance", "0.8", "--engine", "trtllm",
    )  # fmt: skip
    outcome = cli(
        "schedule",
        *ask,
        "--batches",
        BATCHES,
        "--contexts",
        "1k",
        "--tie",
        "0",
        *APART,
        "--format",
        "json",
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


def test_a_draft_length_of_0_is_no_row_for_trtllm(cli: Cli) -> None:
    """A drafter that skips steps loses its cache: PR 16888 floors the length at 1."""
    ask = ("llama-3.1-8b", "--gpu", "h200-sxm", "--acceptance", "0.5", "--contexts", "1k")
    arguments = (*ask, "--batches", "1..400", "--tie", "3", "--max-draft-length", "1", *APART)
    assert 0 in rules.vllm_lengths(text(cli, "vllm", *arguments), 400)
    assert rules.trtllm_newer(text(cli, "trtllm", *arguments), 400) == [1] * 400


def test_one_band_and_none_above_is_max_concurrency() -> None:
    """The two keys exclude each other."""
    bands = [
        Band(first=1, last=97, draft_lengths=(1,)),
        Band(first=98, last=400, draft_lengths=(0,)),
    ]
    written = trtllm.schedule(bands, launch=launch("trtllm"), releases=Releases.NEWER).text
    config = rules.trtllm_config(written)
    assert "draft_len_schedule" not in config
    limit = config["max_concurrency"]
    assert limit == 97
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
    arguments = ["--tie", "0", *APART, "--graph-batches", ",".join(map(str, captured))]
    written = text(cli, "sglang", *HEAVY, *arguments)
    routed = rules.sglang_candidates(written, COUNT, captured)
    assert all(len(steps) == 1 for steps in routed)
    speeds = {b: s for (b, _), s in recommended(cli, OWN, "1k", "--engine", "sglang").items()}
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
    apart = (*HEAVY, "--odds", "0")
    fixed = rules.sglang_candidates(text(cli, "sglang", *apart), COUNT, CAPTURED)
    chosen = rules.sglang_candidates(
        text(cli, "sglang", *apart, "--candidate-sets"), COUNT, CAPTURED
    )
    assert all(set(one) <= set(many) for one, many in zip(fixed, chosen, strict=True))
    assert any(len(many) > 1 for many in chosen)


def test_sglang_says_the_flags_that_go_with_the_file(cli: Cli) -> None:
    """num-steps must be one of all candidates, draft tokens are one more, top-k is 1."""
    outcome = cli("schedule", *HEAVY, "--odds", "0", "--format", "sglang")
    words = outcome.err.split()
    steps = int(words[words.index("--speculative-num-steps") + 1])
    assert steps in {
        s for entry in json.loads(outcome.out).values() for s in entry["candidate_steps"]
    }
    assert words[words.index("--speculative-num-draft-tokens") + 1] == str(steps + 1)
    assert words[words.index("--speculative-eagle-topk") + 1] == "1"
    assert words[words.index("--speculative-algorithm") + 1] == "EAGLE3"  # off without it
    assert words[words.index("--speculative-draft-model-path") + 1]
    assert "--speculative-adaptive" in words
    # 48 run at once without the flag: the slots beyond would never be reached
    assert words[words.index("--max-running-requests") + 1] == str(max(COUNT, 48))


@pytest.mark.parametrize(
    ("engine", "key"),
    [
        ("trtllm", "max_draft_len: "),
        ("sglang", "--speculative-num-draft-tokens "),
    ],
)
def test_n_grams_take_no_schedule(cli: Cli, engine: str, key: str) -> None:
    """TensorRT-LLM's schedules are for draft models and EAGLE, SGLang's for EAGLE."""
    outcome = cli(
        "schedule", "llama-3.1-8b", "--drafter", "ngram", "--acceptance", "0.5", "--format", engine
    )
    assert outcome.code == 0
    assert key in outcome.out
    assert "no schedule: " in outcome.err
    assert "loses 100" not in outcome.err


@pytest.mark.parametrize("engine", ["llamacpp", "vllm@0.30"])
def test_an_engine_without_schedules_gets_one_draft_length(cli: Cli, engine: str) -> None:
    """llama.cpp b11434 reads none; vLLM 0.28 to 0.31 draft the longest K in every band."""
    arguments = ("llama-3.1-8b", "--drafter", "llama-3.2-1b", "--gpu", "h100-sxm")
    outcome = cli(
        "schedule", *arguments, "--acceptance", "0.7", "--engine", engine, "--format", "json"
    )
    data = outcome.data()
    (band,) = data["bands"]
    assert band["batch_start"] == 1
    length = band["draft_length"]
    key = {"llamacpp": f"--spec-draft-n-max {length}"}.get(
        engine, f'"num_speculative_tokens": {length}'
    )
    text = cli("schedule", *arguments, "--acceptance", "0.7", "--engine", engine)
    assert key in text.out
    assert "Note: no schedule: " in text.out
    assert text.out.startswith("One draft length")


# vLLM -----------------------------------------------------------------------------------------


def test_vllm_limit_is_the_largest_row(cli: Cli) -> None:
    config = rules.vllm_config(text(cli, "vllm", *HEAVY, *APART))
    rows = config["num_speculative_tokens_per_batch_size"]
    assert config["num_speculative_tokens"] == max(row[2] for row in rows)
    assert config["method"] == "eagle3"


def test_vllm_rows_of_five_only_when_asked(cli: Cli) -> None:
    arguments = (
        *MODEL,
        *COUNTED,
        "--batches",
        BATCHES,
        "--contexts",
        "1k,8k",
        "--tie",
        "0",
        *APART,
    )
    outcome = cli("schedule", *arguments, "--format", "vllm", "--proposed")
    assert "rejects rows of five" in outcome.err
    with pytest.raises(rules.RefusedError):
        rules.vllm_lengths(outcome.out, COUNT)
    for (batch, context), speeds in recommended(cli, OWN, "1k,8k").items():
        best = max(speeds, key=lambda d: speeds[d])
        assert rules.vllm_proposed(outcome.out, batch, context) == best


def test_vllm_warns_where_data_parallelism_switches_it_off(cli: Cli) -> None:
    assert "switches" not in cli("schedule", *HEAVY, *APART, "--format", "vllm").err
    outcome = cli("schedule", *HEAVY, *APART, "--format", "vllm", "--data-parallel", "2")
    assert "--data-parallel 2" in outcome.err
    assert "switches the schedule off" in outcome.err


# Notes ----------------------------------------------------------------------------------------


def launch(engine: str) -> Launch:
    return Launch(
        engine=load_engine(engine),
        drafter_kind="eagle3",
        weights=DraftWeights(name="head", repository="someone/head"),
        draft_tp=1,
        placement=Placement(),
        layers=32,
    )


def two_bands(end: int) -> list[Band]:
    """Return 4 drafts up to a batch, and 1 from there to batch 9."""
    return [
        Band(first=1, last=end, draft_lengths=(4,)),
        Band(first=end + 1, last=9, draft_lengths=(1,)),
    ]


def test_vllm_notes_what_the_rows_do_not_say() -> None:
    made = vllm.schedule(two_bands(4), launch=launch("vllm"), static=3, data_parallel=2)
    kept, graphs, off = made.notes
    assert (kept.code, kept.values["above"]) == (Code.LAST_BAND_KEPT, 9)
    assert (graphs.code, graphs.values["static"]) == (Code.SCHEDULE_GRAPH_MODE, 3)
    assert (off.code, off.values["draft_length"]) == (Code.SCHEDULE_OFF_IN_COPIES, 4)


def test_trtllm_notes_what_other_releases_make_of_the_text() -> None:
    """By hand: {1: 4, 9: 1} as upper bounds is 1 at batch 2, as lower bounds 4; {4: …} lacks 1."""
    for end, code in ((1, Code.OTHER_RELEASES_DIFFER), (4, Code.OTHER_RELEASES_REFUSE)):
        made = trtllm.schedule(two_bands(end), launch=launch("trtllm"), releases=Releases.NEWER)
        above, other = made.notes
        assert above.code is Code.NOTHING_DRAFTED_ABOVE
        assert other.code is code
        if code is Code.OTHER_RELEASES_DIFFER:
            values = other.values
            assert (values["batch"], values["draft_length"], values["other"]) == (2, 1, 4)


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
    """What each writer makes of the bands means them again, by the rules of its engine."""
    want = meant(bands)
    if max(want) > 0:
        written = vllm.schedule(bands, launch=launch("vllm"), static=0).text
        assert rules.vllm_lengths(written, len(want)) == want
    slots = sglang.schedule(bands, launch=launch("sglang"))
    if slots.static:
        assert slots.text == launch("sglang").flags(want[0], running=len(want))
    else:
        assert rules.sglang_candidates(slots.text, len(want), []) == [[d] for d in want]
    assert slots.static is (len(set(want)) == 1)
    if drafts_most_first(bands) and want[0]:
        for releases, reader in (
            (Releases.NEWER, rules.trtllm_newer),
            (Releases.OLDER, rules.trtllm_older),
        ):
            config = trtllm.schedule(bands, launch=launch("trtllm"), releases=releases).text
            assert reader(config, len(want)) == want


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(1, 40), min_size=1), st.integers(1, 50))
def test_cells_are_the_batches_that_are_padded_alike(captured: set[int], count: int) -> None:
    starts = cell_starts(count, sorted(captured))
    padded = [min((s for s in captured if s >= b), default=-b) for b in range(1, count + 1)]
    for i, size in enumerate(padded):
        assert starts[i] == padded.index(size)
