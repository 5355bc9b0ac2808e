"""Every published config is read, and counts as many parameters as its row says."""

from __future__ import annotations

import pytest

from roofline.kernels.footprint import parameters_decode_read, parameters_total
from roofline.specs.network import DrafterSpec
from tests.published import DRAFTERS, FILES, MODELS, ROWS, drafter, imported, total


def test_all_of_them_are_here() -> None:
    assert len(MODELS) >= 170
    assert len(DRAFTERS) >= 66
    assert {name.removesuffix(".json") for name in FILES} >= set(ROWS)


def counted(names: list[str]) -> list[str]:
    """Return those with a row; a config added without one is held to its published count alone."""
    return [name for name in names if name.removesuffix(".json") in ROWS]


@pytest.mark.parametrize("name", counted(MODELS))
def test_parameters_of_a_published_model(name: str) -> None:
    # to 0.01 %, whatever the row's confidence: no config is read another way than its row
    row, spec = ROWS[name.removesuffix(".json")], imported(name).spec
    assert parameters_total(spec) == pytest.approx(int(row["computed_total"]), rel=1e-4)
    read = int(row["computed_decode_read_params"])
    assert parameters_decode_read(spec) == pytest.approx(read, rel=1e-4)


#: Nothing published, or a shape that the row's formula does not know; and two rows whose count
#: leaves 256 query and key norms or gates out.
INEXACT = {"meta-llama--Llama-3.2-90B-Vision", "moonshotai--Kimi-K3"}


@pytest.mark.parametrize(
    "name", sorted(set(counted(MODELS)) - {f"{name}.json" for name in INEXACT})
)
def test_nearly_all_are_exact(name: str) -> None:
    row = ROWS[name.removesuffix(".json")]
    assert parameters_total(imported(name).spec) == int(row["computed_total"])


@pytest.mark.parametrize("name", counted(DRAFTERS))
def test_parameters_of_a_published_drafter(name: str) -> None:
    spec = imported(name).spec
    assert isinstance(spec, DrafterSpec)
    count = ROWS[name.removesuffix(".json")]["computed_total"]
    if count:
        # one config states a head size of 128 that its row takes for granted: 256 norm weights
        assert parameters_total(spec) == pytest.approx(int(count), abs=256)


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("specforge--llama3-8B-eagle3", 424.7),
        ("specforge--qwen3-8b-eagle3", 399.5),
        ("specforge--qwen3-32b-eagle3", 782.5),
        ("specforge--llama3-70B-eagle3", 1403),
        ("specforge--gpt-oss-120B-eagle3", 307.6),
        ("specforge--deepseek-v3-671b-eagle3", 1448),
        ("specforge--qwen3-8b-dflash", 1049),
        ("specforge--qwen3-4b-dflash", 537),
        ("specforge--qwen3.6-27b-dflash", 1730),
        ("medusa--medusa-vicuna-7b-v1.3", 739),
    ],
)
def test_counts_that_publications_print(name: str, millions: float) -> None:
    # models.md section 4, rounded as it prints them
    assert parameters_total(drafter(name)) / 1e6 == pytest.approx(millions, rel=1e-3)


def test_the_markov_head_of_dspark_is_held_beside_the_count() -> None:
    # 2 V rank, and a confidence head over hidden state and Markov state
    spec = drafter("specforge--qwen3-8b-dspark")
    assert spec.side_parameters == 2 * 151_936 * 256 + 4096 + 256 + 1


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("meta-llama--Llama-2-7b-hf", 6.738415616),
        ("mistralai--Mixtral-8x7B-v0.1", 46.702792704),
        ("Qwen--Qwen3-30B-A3B", 30.532122624),
        ("openai--gpt-oss-120b", 116.829156672),
        ("deepseek-ai--DeepSeek-V3", 671.026404352),
    ],
)
def test_exact_published_totals(name: str, billions: float) -> None:
    assert total(name) == round(billions * 1e9)
