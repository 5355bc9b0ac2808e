"""Where plain decoding is best, nothing fits, or there is nothing to compare: said in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofline.advice.configuration import Configuration
from roofline.advice.question import Workload
from roofline.base.errors import InputError
from roofline.questions.explore import explore
from tests.support import ENGINE, GPU, MODEL, Cli, assert_refused, write

#: Nearly nothing is accepted: one draft in a hundred.
HOPELESS = ("--acceptance", "0.01", "--batches", "1..8")


def test_schedules_of_plain_decoding_leave_speculation_out(cli: Cli) -> None:
    """Each engine's word for it; none has a schedule to paste then."""
    trtllm = cli("schedule", "llama-3.1-8b", *HOPELESS, "--format", "trtllm")
    assert trtllm.out == "leave speculative_config out\n"
    sglang = cli("schedule", "llama-3.1-8b", *HOPELESS, "--format", "sglang")
    assert sglang.out == "leave --speculative-algorithm out\n"


def test_batches_below_the_first_are_covered_by_its_band(cli: Cli) -> None:
    done = cli("schedule", "llama-3.1-8b", "--batches", "8,16", "--format", "json")
    assert done.data()["bands"][0]["batch_start"] == 1
    assert "batches below 8 were not asked for: the first band covers them" in done.said


def test_an_engine_without_a_schedule(cli: Cli, tmp_path: Path) -> None:
    own = write(tmp_path, "invented.yaml", ENGINE)
    done = cli("schedule", "llama-3.1-8b", "--engine", own, "--batches", "1..4")
    assert done.code == 0
    assert "no schedule: no release of " in " ".join(done.out.split())


#: 0.226 of 84.9 GB less 1.5 GB reserved are 17.7 GB: room for one plain sequence (16.06 GB of
#: weights, 0.54 of KV, 0.84 of activations), none for the head's 0.85 GB beside it.
TIGHT = ("llama-3.1-8b", "--gpu", "h100-sxm", "--memory-fraction", "0.226")


def test_nothing_fits_beside_the_drafter(cli: Cli) -> None:
    plain = cli("recommend", *TIGHT, "--format", "json")
    assert [row["draft_length"] for row in plain.point()["by_draft_length"]] == [0]
    refused = cli("schedule", *TIGHT, "--batches", "1..4")
    words = (
        "llama-3.1-8b on h100-sxm: batch 1 at 4k tokens with draft length 1 needs",
        "17.7 GB",
    )
    assert_refused(refused, *words, "849 MB of the drafter's", "nearest remedies", code=3)


def test_the_cost_of_plain_decoding(cli: Cli) -> None:
    """At $2 an hour: 2 / 3600 / speed x 10^6 per million tokens."""
    flags = ("--acceptance", "0.01", "--gpu-hour", "2")
    text = cli("recommend", "llama-3.1-8b", *flags).out
    speed = cli("recommend", "llama-3.1-8b", *flags, "--format", "json").by_draft_length()[0]
    dollars = 2 / 3600 / (1e3 / speed["step_ms"]) * 1e6
    (advised,) = [line for line in text.splitlines() if line.startswith("* ")]
    assert advised.startswith("* 0 ")
    assert advised.endswith(f" {dollars:.2f}")
    assert "$/M tokens: 1 x $2.00 per hour." in text


def test_a_goal_without_a_limit_needs_no_acceptance(cli: Cli) -> None:
    done = cli("recommend", "llama-3.1-8b", "--objective", "throughput")
    assert "Goal (best throughput): batch " in done.out
    assert "It needs" not in done.out


def test_csv_has_no_place_for_kernels(cli: Cli) -> None:
    done = cli("recommend", "llama-3.1-8b", "--explain", "--format", "csv")
    assert done.code == 0
    assert "--explain changes nothing here" in done.err


def test_an_axis_is_needed_to_explore() -> None:
    with pytest.raises(InputError, match="vary: give PATH=VALUE,VALUE at least once"):
        explore(Configuration(model="llama-3.1-8b"), Workload(), (), batch=1)


def test_memory_without_a_drafter_counts_sequences_alone(cli: Cli) -> None:
    done = cli("memory", "llama-3.1-8b", "--drafter", "none")
    assert " sequences fit." in " ".join(done.out.split())


def test_fp16_is_priced_in_bf16_where_there_is_no_fp16_rate(cli: Cli, tmp_path: Path) -> None:
    """The invented card has fp32, bf16 and fp8."""
    model = write(tmp_path, "tiny.yaml", MODEL.replace("dtype: bf16", "dtype: fp16"))
    card = write(tmp_path, "card.yaml", GPU)
    flags = ("--gpu", card, "--drafter", "ngram", "--acceptance", "0.5")
    answer = cli("recommend", model, *flags, "--notes")
    assert "roundcard has no fp16 rate: products run in bf16" in " ".join(answer.out.split())


def test_a_model_without_a_cache_fills_no_tile(cli: Cli, tmp_path: Path) -> None:
    """Mixers alone keep a state: rules 2 and 3 have nothing to say."""
    mixer = (
        "attention: {kind: mamba2, num_heads: 8, head_dim: 64, num_groups: 1, state_size: 128,"
        " conv_width: 4}"
    )
    old = "attention: {kind: gqa, num_heads: 8, num_kv_heads: 2, head_dim: 64}"
    assert old in MODEL
    model = write(tmp_path, "tiny.yaml", MODEL.replace(old, mixer))
    flags = ("--drafter", "ngram", "--acceptance", "0.5")
    (explained,) = cli("recommend", model, *flags, "--explain", "--format", "json").data()[
        "explain"
    ]
    none = "no layer keeps a KV cache"
    silent = [rule["number"] for rule in explained["rules"] if rule["says"] == none]
    assert silent == [2, 3]
    assert_refused(
        cli("plot", "attention", model, "-o", str(tmp_path / "a.png")),
        "has no attention over a cache to draw",
    )
