"""Questions that people asked in public, by the number they have in the collection of cases.

Each has a test here or elsewhere; ``ANSWERED`` says where, and the names are checked.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from roofline.kernels import formulas
from roofline.specs.network import load_model
from tests import schedule_rules as rules
from tests.scheduling import APART, COUNTED
from tests.support import ROOT, Cli

ANSWERED = {
    2: "test_public_questions.py::test_rows_for_llama_and_its_head",
    3: "test_public_questions.py::test_a_table_states_what_it_rests_on",
    18: "test_public_questions.py::test_five_drafts_emit_three_tokens",
    22: "questions/test_schedule_files.py::test_sglang_slots_after_padding",
    31: "questions/test_schedule_files.py::test_the_gate_has_its_right_name_and_break_even",
    33: "questions/test_goals.py::test_which_mtp_length_reaches_253_tokens_per_second",
    35: "test_public_questions.py::test_theory_and_practice_differ_by_named_terms",
    37: "questions/test_schedule_files.py::test_an_engine_without_schedules_gets_one_draft_length",
    46: "cli/test_memory.py::test_the_engines_share_of_memory_can_be_set",
    47: "test_public_questions.py::test_every_answer_has_its_error_and_its_sources",
    62: "test_public_questions.py::test_bound_and_overheads_can_be_seen",
    64: "cli/test_memory.py::test_reserved_and_read_are_told_apart",
    65: "test_public_questions.py::test_tokens_of_cache_are_a_fixed_part_and_a_part_per_token",
    66: "test_public_questions.py::test_attention_flops_of_a_model_with_64_heads",
    67: "advice/test_sampling.py::test_two_or_three_lengths_are_worth_timing",
}


@pytest.mark.parametrize("ask", ANSWERED)
def test_each_ask_has_its_test(ask: int) -> None:
    file, name = ANSWERED[ask].split("::")
    assert f"def {name}(" in (ROOT / "tests" / file).read_text("utf-8")


def test_rows_for_llama_and_its_head(cli: Cli) -> None:
    """vLLM PR 32374: the author ships no default, because it depends on the hardware."""
    tables = [
        rules.vllm_lengths(
            cli(
                "schedule",
                "llama-3.1-8b",
                "--gpu",
                gpu,
                "--contexts",
                "1k",
                "--format",
                "vllm",
                *COUNTED,
                *APART,
            ).out,
            256,
        )
        for gpu in ("h100-sxm", "b200-hgx")
    ]
    for lengths in tables:
        assert lengths[0] > lengths[-1]  # a dense model drafts less as the batch grows
    assert tables[0] != tables[1]


def test_a_table_states_what_it_rests_on(cli: Cli) -> None:
    """vLLM issue 54749: an offline table is only as good as its stated assumptions."""
    inputs = cli("schedule", "llama-3.1-8b", "--contexts", "1k,8k", "--format", "json").data()[
        "inputs"
    ]
    for name in ("acceptance", "acceptance_source", "context", "engine", "gpu", "mix", "tie"):
        assert inputs[name]


def test_five_drafts_emit_three_tokens(cli: Cli) -> None:
    """vLLM issue 13990: K = 5, two drafts accepted: 3 tokens with the bonus, a rate of 2 / 5."""
    row = cli(
        "recommend", "llama-3.1-8b", "--acceptance", "al:5=3", "--format", "json"
    ).by_draft_length()[5]
    assert row["tokens_per_step"] == 3
    assert row["tokens_per_s"] == pytest.approx(3e3 / row["step_ms"])
    glossary = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    for word in ("bonus token", "accepted drafts", "draft acceptance rate", "survival"):
        assert f"| {word} |" in glossary


def test_theory_and_practice_differ_by_named_terms(cli: Cli) -> None:
    """llama.cpp issue 3649 compares AL / (1 + c D) with a clock; what is left are printed terms.

    1 + c D counts a plain pass and D draft passes. Verify beyond a plain pass, and the engine, make
    the rest of the cost ratio.
    """
    answer = cli(
        "recommend", "llama-2-7b", "--gpu", "a100-sxm-80gb", "--drafter", "ngram", "--context",
        "512", "--acceptance", "0.6", "--engine", "llamacpp", "--format", "json",
    )  # fmt: skip
    rows = answer.by_draft_length()
    plain = rows[0]
    for drafts, row in rows.items():
        theory = row["draft_ms"] / plain["step_ms"] + 1
        widening = (row["verify_ms"] - plain["verify_ms"]) / plain["step_ms"]
        engine = (row["overhead_ms"] - plain["overhead_ms"]) / plain["step_ms"]
        assert row["cost_ratio"] == pytest.approx(theory + widening + engine)
        assert row["speedup"] == pytest.approx(row["tokens_per_step"] / row["cost_ratio"])
        if drafts:
            assert engine > 0


def test_every_answer_has_its_error_and_its_sources(cli: Cli) -> None:
    """aiconfigurator issue 95: how accurate is it?"""
    data = cli("recommend", "llama-3.1-8b", "--format", "json").data()
    (point,) = data["points"]
    assert point["speedup_low"] < point["speedup"] < point["speedup_high"]
    measured = [entry for entry in data["provenance"] if "median_error" in entry]
    assert measured
    assert all(entry["measured"] and entry["p90_error"] > 0 for entry in measured)


def test_bound_and_overheads_can_be_seen(cli: Cli) -> None:
    """llm-analysis issue 21: far from measured; so show bound, efficiency and overhead."""
    data = cli("recommend", "llama-3.1-8b", "--explain", "--format", "json").data()
    for op in data["explain"][0]["ops"]:
        assert op["bound"] in {"memory", "compute", "link", "latency"}
        assert op["law"]
    assert {"per_step_ms", "per_layer_ms", "per_spec_round_ms", "floor_scale"} <= set(
        data["engine"]
    )


def test_tokens_of_cache_are_a_fixed_part_and_a_part_per_token(cli: Cli) -> None:
    """vLLM issue 51041: a capacity in tokens is derived. Qwen3.5 keeps 45 states and 15 caches."""
    ask = ("qwen3.5-397b-a17b", "--gpu", "h200-sxm", "--tp", "8", "--weights", "fp8")
    found = []
    for context in ("4k", "8k"):
        data = cli(
            "memory", *ask, "--drafter", "none", "--context", context, "--batch", "1", "--format",
            "json",
        ).data()  # fmt: skip
        found.append(data["contexts"][0]["accounts"][0]["per_sequence"])
    short, long = found
    assert short["fixed"] == long["fixed"] > 0
    grown = long["reserved"] - short["reserved"]
    assert grown == pytest.approx(4096 * short["per_token"], rel=1e-6)


def test_attention_flops_of_a_model_with_64_heads() -> None:
    """InferenceX-app PR 849: 4 x 64 heads x 128 = 32,768 FLOP per token and layer, not twice it."""
    attention: Any = load_model("llama-3.1-70b").layers[0].attention
    flops = formulas.attention_flops(
        batch=1, rows=1, heads=attention.num_heads, head_dim=attention.head_dim, length=1000
    )
    assert flops == 32_768 * 1000


def test_answers_are_plain_json(cli: Cli) -> None:
    """No NaN or infinity reaches a program, in any of the new commands."""
    for command in (
        ("schedule", "llama-3.1-8b"), ("compare", "llama-3.1-8b"), ("memory", "llama-3.1-8b"),
        ("recommend", "llama-3.1-8b", "--slo-tpot", "9", "--explain"),
    ):  # fmt: skip
        assert json.dumps(cli(*command, "--format", "json").data())
