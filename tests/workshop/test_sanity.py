"""The scan finds what physics forbids, and the laws stay within its bar."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import yaml

from workshop.sanity.__main__ import BAR, scan
from workshop.sanity.counts import CLASSES, Tally, count
from workshop.sanity.grid import SAMPLE, Combination, KernelTotal, Priced, Rise, explained

#: What the sample may not have at all.
NEVER = ("below-own-roofline", "beyond-bandwidth", "falls-with-drafts")


def priced(step: object, gpu: str = "h100-sxm", weights: str = "bf16", roof: float = 1.0) -> Priced:
    """Return a made-up combination: three batches, one context, drafts 0, 1 and 2."""
    times = np.asarray(step, dtype=np.float64).reshape(3, 1, 3)
    return Priced(
        what=Combination("llama-3.1-8b", gpu, 1, weights),
        contexts=(512,),
        batches=(1, 2, 4),
        mixture=False,
        usable=np.ones(times.shape, dtype=bool),
        step=times,
        verify=times,
        links=np.zeros(times.shape),
        own_roof=np.full(times.shape, roof),
        roof=np.full(times.shape, roof),
        beyond_bus=(),
        best=np.zeros((3, 1), dtype=np.intp),
        rises=np.zeros((2, 1), dtype=bool),
        explained_rises=np.zeros((2, 1), dtype=bool),
        by_guards=np.zeros(times.shape, dtype=bool),
        kernels={},
    )


def wrong(*of: Priced) -> dict[str, int]:
    """Return the classes with points in them, and how many."""
    return {name: tally.wrong for name, tally in count(of).items() if tally.wrong}


RISING = [2.0, 2.1, 2.2, 2.1, 2.2, 2.3, 2.2, 2.3, 2.4]


def test_nothing_is_wrong_with_times_that_rise_slowly() -> None:
    assert wrong(priced(RISING)) == {}


@pytest.mark.parametrize(
    ("step", "found"),
    [
        ([2.0, 2.1, 2.0, *RISING[3:]], {"falls-with-drafts": 1}),
        ([2.0, 2.1, 2.2, 1.9, 2.2, 2.3, *RISING[6:]], {"falls-with-batch": 1}),
        ([2.0, 2.1, 2.9, *[3.0] * 6], {"cliff-in-drafts": 1}),
        ([0.9, 2.1, 2.2, *RISING[3:]], {"below-own-roofline": 1}),
    ],
)
def test_each_fault_is_counted_once(step: list[float], found: dict[str, int]) -> None:
    assert wrong(priced(step)) == found


def test_a_better_part_and_a_narrower_format_may_not_be_slower() -> None:
    slow = 1.1 * np.array(RISING)
    assert wrong(priced(RISING), priced(slow, "h200-sxm")) == {"better-part-slower": 9}
    assert wrong(priced(RISING), priced(slow, weights="fp8")) == {"fp8-slower-than-bf16": 9}
    # 3 x 4 = 12 rows at the most: all of int4's points count, and H100 has no fp4 rate
    assert wrong(priced(RISING), priced(slow, weights="int4-g128")) == {"int4-slower-than-bf16": 9}
    assert wrong(priced(RISING, weights="fp8"), priced(slow, weights="nvfp4")) == {}


@pytest.mark.parametrize(
    ("narrow_measured", "host", "by_tables"),
    [
        (True, 0.0, 9),  # 1.2 s against 1 s, both measured: the step is 1.1 x as long by them alone
        (False, 0.0, 0),  # nobody measured the narrow kernel
        (True, -0.18, 0),  # the rest of the step makes up for all but 0.02 s
    ],
)
def test_what_tables_of_both_sides_explain_is_told_apart(
    narrow_measured: bool, host: float, by_tables: int
) -> None:
    wide = priced([2.0] * 9)
    wide = wide._replace(kernels={"experts": KernelTotal(np.array(1.0), True)})
    narrow = priced([2.2 + host] * 9, weights="fp8")
    narrow = narrow._replace(kernels={"experts": KernelTotal(np.array(1.2), narrow_measured)})
    tally = count([wide, narrow])["fp8-slower-than-bf16"]
    assert tally.measured == by_tables
    assert tally.wrong == (9 if host == 0 else 0)


@pytest.mark.parametrize(
    ("grown", "measured", "asked", "number"),
    [
        (0.8, True, False, 1),  # all of 2.1 to 2.9 s is a kernel's that a table of this part holds
        (0.8, False, True, 1),  # or whose path cites its source
        (0.8, False, False, 0),
        (0.3, True, False, 0),  # the rest goes from 1.1 to 1.6 s, over 1.3 times by itself
    ],
)
def test_a_cliff_is_explained_where_the_rest_of_the_step_makes_none(
    grown: float, measured: bool, asked: bool, number: int
) -> None:
    attention = np.array([1.0, 1.0, 1.0 + grown, *[1.0 + grown] * 6]).reshape(3, 1, 3)
    one = priced([2.0, 2.1, 2.9, *[3.0] * 6])
    tally = count(
        [one._replace(kernels={"attention": KernelTotal(attention, measured, asked=asked)})]
    )["cliff-in-drafts"]
    assert (tally.wrong, tally.measured) == (1, number)


@pytest.mark.parametrize(
    ("measured", "roof", "answer"),
    [
        (True, [0.1, 0.1, 0.1, 0.1], True),  # a table says that the draft costs 0.8 less
        (False, [0.1, 0.1, 0.1, 0.1], False),  # nothing says why it does
        (False, [0.25, 0.5, 0.4, 0.425], True),  # all experts are awake already, half as fast as
        # their bytes need: 2 x 0.25 s at one sequence and 2 x 0.025 s at two, so 0.45 less
        (False, [0.25, 0.5, 0.4, 0.65], False),  # the bytes grow as much at both
    ],
)
def test_a_rise_is_explained_where_the_longer_draft_would_not_gain_without_what_is_known(
    measured: bool, roof: list[float], answer: bool
) -> None:
    # 1 + 0.6 tokens for 1.4 or 1.2 steps gain 14 and 33 %, for 1.65 none
    step = np.array([1.0, 2.0, 1.0, 1.2]).reshape(2, 1, 2)
    kernel = KernelTotal(
        np.array([0.5, 1.5, 0.8, 1.0]).reshape(2, 1, 2),
        measured,
        roof=np.array(roof).reshape(2, 1, 2),
    )
    rise = Rise(row=1, longer=1, shorter=0, since=0)
    assert explained(step, rise, {"experts": kernel}).tolist() == [answer]


def test_every_class_has_a_bar() -> None:
    assert yaml.safe_load(BAR.read_text(encoding="utf-8")).keys() == CLASSES.keys()


@cache
def scanned(model: str) -> tuple[dict[str, Tally], int]:
    return scan(SAMPLE, model, False)


@pytest.mark.parametrize("model", SAMPLE.models)
def test_the_sample_never_beats_physics(model: str) -> None:
    tallies, points = scanned(model)
    assert points > 5_000
    for name in NEVER:
        assert tallies[name].wrong == 0, tallies[name].example


def test_the_sample_stays_within_the_bar() -> None:
    bar = yaml.safe_load(BAR.read_text(encoding="utf-8"))
    for name in CLASSES:
        whole = Tally()
        for model in SAMPLE.models:
            whole.join(scanned(model)[0][name])
        most = bar[name].get("sample", bar[name]["most"])
        assert whole.share <= most, whole.example
