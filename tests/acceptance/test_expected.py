"""What the prior expects of a drafter: labels from names, and joint draws for the answer."""

from __future__ import annotations

import numpy as np
import pytest

from roofline.acceptance.curve import from_curve
from roofline.acceptance.domains import Prompts, known_datasets, known_domains, prompts
from roofline.acceptance.expected import (
    belief,
    expected_acceptance,
    found_share,
    learned,
    of_another_run,
)
from roofline.acceptance.labels import DrafterLabels, drafter_labels
from roofline.acceptance.prior import Labels, acceptance_prior
from roofline.advice.question import question_of
from roofline.base.errors import InputError
from roofline.base.numbers import DRAWS
from roofline.specs.formats import DType


def _eagle3(repository: str | None = None) -> DrafterLabels:
    found = drafter_labels(kind="eagle3", drafter="x", models=["qwen3-8b"], repository=repository)
    assert found is not None
    return found


def test_a_repository_says_which_drafter_it_is() -> None:
    found = _eagle3("RedHatAI/Qwen3-8B-speculator.eagle3")
    assert found.certain
    assert [each.drafter for each in found.candidates] == [
        "eagle3|qwen38b|RedHatAI/Qwen3-8B-speculator.eagle3"
    ]
    assert found.candidates[0].recipe == "RedHat"


def test_another_repository_is_a_drafter_that_nobody_counted() -> None:
    found = _eagle3("lmsys/own-head-SpecForge")
    assert (found.published, found.candidates[0].recipe) == ((), "SpecForge")


def test_a_head_without_a_name_may_be_any_published_one() -> None:
    found = _eagle3()
    assert not found.certain
    assert len(found.candidates) == 8  # values.csv: eight EAGLE-3 heads of Qwen3-8B


@pytest.mark.parametrize(
    ("model", "key"),
    [
        ("deepseek-v3", "mtp|deepseekv3|production"),
        ("qwen3.6-27b-nvfp4", "mtp|qwen3.627b|production"),  # weight formats are one model
    ],
)
def test_a_models_own_layer_is_known_by_its_model(model: str, key: str) -> None:
    found = drafter_labels(kind="mtp", drafter="x", models=[model])
    assert found is not None
    assert [each.drafter for each in found.candidates] == [key]


def test_a_model_of_the_same_base_lends_its_runs() -> None:
    """DeepSeek-V3.1 was trained from V3's base: those of R1 and V3 are its kin."""
    found = drafter_labels(kind="mtp", drafter="x", models=["deepseek-v3.1"])
    assert found is not None
    assert {each.drafter for each in found.candidates} == {
        "mtp|deepseekr1|production",
        "mtp|deepseekv3|production",
    }


def test_every_kind_answers_at_every_length_with_a_width() -> None:
    for kind in acceptance_prior().kinds:
        labels = drafter_labels(kind=kind, drafter="x", models=["mistral-7b-v0.3"])
        assert labels is not None
        made = expected_acceptance(labels, contexts=[1024], label="x", source="y")
        drawn = made.drawn(64)
        assert made.unknown
        assert drawn.shape == (DRAWS, 65)
        assert (drawn[:, 1:].std(axis=0) > 0.02).all()
        assert ((drawn >= 1) & (drawn <= 1 + np.arange(65))).all()


def test_joint_draws_stand_for_the_whole_belief() -> None:
    """80 % of the belief's weight lies between its own 10th and 90th percentile."""
    whole = belief((Labels(kind="eagle3", family="qwen"),))
    low, high = whole.quantiles((0.1, 0.9))[:, 4]
    drawn = whole.tokens[whole.joint][:, 4]
    inside = ((drawn >= low) & (drawn <= high)).mean()
    assert inside == pytest.approx(0.8, abs=0.04)
    assert drawn.mean() == pytest.approx(whole.mean[4], rel=0.01)


def test_joint_draws_are_independent_of_those_of_the_step_times() -> None:
    from roofline.base.numbers import normal_draws

    whole = belief((Labels(kind="mtp", family="glm"),))
    drawn = whole.tokens[whole.joint][:, 4]
    for stream in (0, 1, 1100, 1101, 1102):
        assert abs(np.corrcoef(drawn, normal_draws(stream))[0, 1]) < 0.3


def test_of_several_candidates_the_spread_holds_what_lies_between_them() -> None:
    """Two levels 0.444 +- and 0.155 apart: the mixture is wider than either."""
    one, two = (
        Labels(kind="eagle3", family="qwen", drafter=key)
        for key in ("eagle3|qwen314b|EAGLE-3|AngelSlim", "eagle3|qwen314b|EAGLE-3|DeepSpec")
    )
    both = belief((one, two))
    each = [belief((labels,)) for labels in (one, two)]
    means = [b.mean[3] for b in each]
    assert min(means) < both.mean[3] < max(means)
    assert both.tokens[:, 3].std() > max(b.tokens[:, 3].std() for b in each)


def test_counts_and_means_move_a_belief() -> None:
    whole = belief((Labels(kind="eagle3", family="llama"),))
    counted = whole.after_counts([1000, 700, 490, 343], requests=1000)
    assert counted.mean[3] == pytest.approx(1 + 0.7 + 0.49 + 0.343, rel=0.03)
    measured = whole.after_tokens([3], [2.0])
    assert measured.mean[3] == pytest.approx(2.0, rel=0.03)
    assert measured.mean[7] < whole.mean[7]


def test_a_measurement_that_no_draw_explains_keeps_some_draws() -> None:
    whole = belief((Labels(kind="mtp", family="deepseek", drafter="mtp|deepseekr1|production"),))
    after = whole.after_tokens([1, 2, 3], [1.02, 1.03, 1.031], noise=0.03)
    assert 1 / (after.weights**2).sum() >= 24


def test_beyond_the_trained_context_less_is_expected_step_by_step() -> None:
    question = question_of(
        model="llama-3.1-8b", drafter="eagle3", contexts=(1024, 2048, 3000, 4096, 8192)
    )  # its config: 2,048 positions
    tokens = question.tokens_per_step(question.workload.contexts)[:, 3]
    assert tokens[0] == tokens[1]
    assert (np.diff(tokens[1:]) < 0).all()
    assert tokens[-1] < 1.25  # SPEED-Bench: AL(3) 1.19 at 8k of a head trained at 2k


def test_an_answer_does_not_depend_on_what_else_is_asked() -> None:
    alone = question_of(model="llama-3.1-8b", drafter="eagle3", contexts=(3000,))
    among = question_of(model="llama-3.1-8b", drafter="eagle3", contexts=(2500, 3000, 16384))
    assert alone.tokens_per_step((3000,)) == pytest.approx(among.tokens_per_step((3000,)))


def test_lookups_on_chat_find_a_draft_in_some_passes() -> None:
    """Rows between 1 + D / 10 and 1 + D / 2 for a sequence, where nobody counted."""
    labels = drafter_labels(kind="ngram", drafter="ngram", models=["llama-3.1-8b"], domain="chat")
    assert labels is not None
    made = expected_acceptance(labels, contexts=[1024], label="x", source="y")
    assert 0.1 < found_share(belief(labels.candidates), made) < 0.5


def test_a_counted_lookup_finds_at_least_what_it_accepts() -> None:
    labels = drafter_labels(kind="ngram", drafter="ngram", models=["llama-3.1-8b"])
    assert labels is not None
    for first in (0.1, 0.4, 0.95):
        share = found_share(belief(labels.candidates), from_curve({1: 1 + first}))
        assert first <= share <= 1


def test_names_of_domains_and_data_sets() -> None:
    assert prompts(domain="Coding") == Prompts(domain="code")
    assert prompts(dataset="mt_bench") == Prompts(domain="chat", dataset="mtbench")
    assert prompts(domain="chat", dataset="mt-bench").dataset == "mtbench"
    with pytest.raises(InputError, match="did you mean 'chat'"):
        prompts(domain="chatt")
    with pytest.raises(InputError, match="did you mean 'humaneval'"):
        prompts(dataset="human-eval-x")
    with pytest.raises(InputError, match="is of the domain math"):
        prompts(domain="chat", dataset="gsm8k")


def test_every_word_is_a_level_of_the_prior() -> None:
    part = acceptance_prior().part("eagle3")
    assert part is not None
    levels = {level for group, level, _ in part.names if group == "domain"}
    assert {*known_domains()} == levels
    for name in known_datasets():
        found = prompts(dataset=name)
        lookup = acceptance_prior().part("ngram")
        assert lookup is not None
        sets = {level for p in (part, lookup) for group, level in p.offsets if group == "data set"}
        assert found.dataset in sets


def test_the_domain_moves_what_is_expected() -> None:
    """The prior's own levels: code accepts more than chat in every kind that always drafts."""
    for kind in ("eagle3", "mtp", "dflash"):
        means = [
            belief((Labels(kind=kind, family="qwen", domain=domain),)).mean[3]
            for domain in ("chat", "code")
        ]
        assert means[0] < means[1]


HEAD = belief((Labels(kind="eagle3", family="llama"),))


def test_numbers_that_are_given_stand_as_they_are() -> None:
    made = learned(from_curve({1: 1.8, 2: 2.4, 3: 2.8}), HEAD, rounds=None, requests=1)
    drawn = made.drawn(8)
    assert drawn[:, :4] == pytest.approx(np.tile([1.0, 1.8, 2.4, 2.8], (DRAWS, 1)))
    assert (drawn[:, 4:].std(axis=0) > 0).all()
    assert made.continued_from == 3
    assert made.measured == {0: 1.0, 1: 1.8, 2: 2.4, 3: 2.8}


def test_a_gap_keeps_its_ends_and_is_not_certain() -> None:
    """Kimi-K2.5's golden curve (InferenceX): AL(3) 2.66 leaves AL(1) at 1.70 to 1.80."""
    made = learned(from_curve({3: 2.66}), HEAD, rounds=None, requests=1)
    assert made.table[3] == pytest.approx(2.66)
    assert 1.7 < made.table[1] < 1.8
    assert made.drawn(3)[:, 1].std() > 0.005


@pytest.mark.parametrize("curve", [{1: 1.7, 2: 2.1}, {2: 2.1}])
def test_a_few_passes_move_the_prior_and_many_decide(curve: dict[int, float]) -> None:
    """Two drafts: few passes lie between prior and count, a million are the count."""
    means, widths = [], []
    for rounds in (10.0, 200.0, 1e8):
        made = learned(from_curve(curve), HEAD, rounds=rounds, requests=rounds)
        means.append(made.table[2])
        widths.append(made.drawn(2)[:, 2].std())
    assert abs(means[0] - 2.1) > abs(means[1] - 2.1) > abs(means[2] - 2.1)
    assert means[2] == pytest.approx(2.1, abs=0.002)
    assert min(HEAD.mean[2], 2.1) < means[0] < max(HEAD.mean[2], 2.1)
    assert widths[0] > widths[1] > widths[2]


def test_the_error_of_a_count_is_that_of_its_passes() -> None:
    """400 independent passes at S = 0.7: sqrt(0.7 x 0.3 / 400) = 0.0229; the prior adds as much as
    1 / (0.21 x 0.08^2) = 744 passes that meet the family, so the error is between that and less."""
    made = learned(from_curve({1: 1.7}), HEAD, rounds=400, requests=400)
    assert 0.01 < made.drawn(1)[:, 1].std() < 0.0229
    few = learned(from_curve({1: 1.7}), HEAD, rounds=400, requests=4)  # 100 passes of each
    assert few.drawn(1)[:, 1].std() > 1.3 * made.drawn(1)[:, 1].std()


def test_early_stops_and_one_rate_are_left_alone() -> None:
    from dataclasses import replace

    from roofline.acceptance.curve import from_rates

    short = replace(from_curve({2: 2.1}), early_stops=True)
    assert learned(short, HEAD, rounds=100, requests=5) is short
    rate = from_rates([0.7], unlimited=True)
    assert learned(rate, HEAD, rounds=None, requests=1) is rate


def test_a_borrowed_curve_is_wider_than_ones_own() -> None:
    """Its mean stands; runs scatter by 0.12 logits, and drafters by 0.22 more (the prior's own)."""
    given = learned(from_curve({1: 1.8, 2: 2.4, 3: 2.8}), HEAD, rounds=None, requests=1)
    widths = [given.drawn(3)[:, 3].std()]
    for another in (False, True):
        made = of_another_run(given, "eagle3", another_model=another)
        assert made.drawn(3).mean(axis=0) == pytest.approx([1, 1.8, 2.4, 2.8], abs=0.01)
        widths.append(made.drawn(3)[:, 3].std())
    assert widths[0] == pytest.approx(0, abs=1e-9)
    # d AL(3) / d logit of all a_i = sum of (1 - a_i) (S_i + ... + S_3): 0.2 x 1.8 + 0.25 x 1.0 +
    # 0.333 x 0.4 = 0.743, so 0.122 logits are 0.09
    assert widths[1] == pytest.approx(0.09, abs=0.03)
    assert widths[2] > 1.5 * widths[1]


def test_formats_of_the_target_move_what_is_expected() -> None:
    """Paired public runs: fp8 KV takes up to 10 %, 4-bit weights under a head 2 to 13 %."""
    plain, kv, awq = (
        question_of(model="qwen3-8b", drafter="eagle3", contexts=(1024,), **formats)
        for formats in ({}, {"kv": DType.FP8}, {"weights": DType.INT4_G128})
    )
    means = [q.tokens_per_step((1024,))[0, 3] for q in (plain, kv, awq)]
    assert 0.9 < means[1] / means[0] < 1
    assert 0.87 < means[2] / means[0] < 0.98
    widths = [
        q.acceptance.drawn(3)[:, 3].std() / (m - 1)
        for q, m in zip((plain, awq), means[::2], strict=True)
    ]
    assert widths[1] > widths[0]


def test_a_hit_rate_that_is_known_scales_what_is_expected() -> None:
    """AL(D) = 1 + h (a + ... + a^D): twice the hits are twice the gain, at every draft length."""
    gains = [
        question_of(model="llama-3.1-8b", drafter="ngram", hit_rate=share).tokens_per_step((1024,))
        - 1
        for share in (0.2, 0.4)
    ]
    assert gains[1][0, 1:] == pytest.approx(2 * gains[0][0, 1:])


def test_a_lookup_that_was_counted_goes_on_as_its_drafts_did() -> None:
    """All drafts of a lookup but the first have one rate: (0.23 / 0.69)^(1/2) = 0.577.

    AL(4) = 2.31 + 0.23 x 0.577 = 2.443, AL(5) = 2.443 + 0.23 x 0.577^2 = 2.519.
    """
    asked = {"drafter": "ngram", "acceptance": "survival:0.69,0.39,0.23"}
    curve = question_of(model="llama-3.1-8b", **asked).acceptance
    assert curve.tokens_per_step([3, 4, 5]) == pytest.approx([2.31, 2.443, 2.519], abs=2e-3)
