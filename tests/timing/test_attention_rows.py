"""Attention over one cache: more queries of a sequence never take less time than one.

The physics is the origin: the same bytes are read, more arithmetic is done. Measured factors by
band of rows come from models with other head counts and may fall from band to band.
"""

from __future__ import annotations

import numpy as np
import pytest

from roofline.kernels.ops import AttentionShape
from roofline.specs.laws import AttentionLaw
from roofline.timing.laws.attention import attention_time
from roofline.timing.laws.simple import Device
from tests.support import Cli

DEVICE = Device(bandwidth=3e12, peak=1e15, units=132, l2=50e6, link=450e9)
LAW = AttentionLaw(floor=5e-6, row_costs=(1.0, 0.5, 2.0, 0.5))


def seconds(*, rows: np.ndarray, group: int) -> np.ndarray:
    shape = AttentionShape(
        pairs=256.0, rows=rows, length=8192.0, context=8192.0, kv_width=256, mac_width=256, kv=2.0,
        group=group,
    )  # fmt: skip
    return np.asarray(attention_time(shape, DEVICE, LAW).total)


@pytest.mark.parametrize("group", [1, 4, 8, 16])
def test_more_queries_are_never_faster(group: int) -> None:
    rows = group * np.arange(1.0, 17.0)
    assert (np.diff(seconds(rows=rows, group=group)) >= 0).all()


def test_other_models_keep_their_measured_factor() -> None:
    """One query of 16 heads: the second band's factor, half of the first's, by hand.

    A body of factor x memory time; 17 GFLOP at 600 TFLOP/s at most are far below it.
    """
    one, other = seconds(rows=np.array([8.0, 16.0]), group=0) - LAW.floor
    assert other / one == pytest.approx(0.5, rel=0.05)


def test_a_verify_pass_is_not_cheaper_than_a_plain_one(cli: Cli) -> None:
    ask = ("recommend", "qwen3-8b", "--gpu", "h200-sxm", "--batch", "8", "--context", "32k")
    (point,) = cli(*ask, "--acceptance", "0.7", "--format", "json").data()["points"]
    attention = [row["breakdown_ms"]["attention"] for row in point["by_draft_length"]]
    verify = [row["verify_ms"] for row in point["by_draft_length"]]
    assert attention == sorted(attention)
    assert min(verify) == verify[0]
