"""Devices and kernel laws to draw: constants from the bounds that fits keep to."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from roofline.specs.laws import (
    AttentionLaw,
    CollectiveAlgorithm,
    CollectiveConstants,
    CollectiveLaw,
    GemmLaw,
    MoeLaw,
    SimpleLaw,
    StateLaw,
    VectorKernels,
)
from roofline.timing.laws.gemm import TILES
from roofline.timing.laws.simple import Device

many = settings(max_examples=150, deadline=None)
few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ROUNDING = 1e-12
growths = st.floats(min_value=1, max_value=8)


def between(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(min_value=low, max_value=high)


devices = st.builds(
    Device,
    bandwidth=between(1e11, 2e13),
    peak=between(1e13, 1e16),
    units=st.integers(min_value=20, max_value=400),
    l2=between(1e6, 3e8),
    link=between(1e10, 1e12),
)
gemm_laws = st.builds(
    GemmLaw,
    tiles=st.sampled_from(sorted(set(TILES) - {"static"})),
    floor=between(0, 1e-4),
    act=between(0, 3),
    latency=between(1e-9, 1e-6),
    compute_eff=between(0.05, 1.05),
    edge=between(0, 1e-5),
    split=between(0, 1e-5),
    traffic=between(0, 4),
    mem_eff=between(0.3, 1.05),
    r=between(1, 8),
)
attention_laws = st.builds(
    AttentionLaw,
    floor=between(0, 1e-4),
    mem_eff=between(0.3, 1.05),
    compute_eff=between(0.05, 1.05),
    p=between(1, 8),
    cta_s=between(0, 1e-5),
    token_s=between(0, 1e-7),
    max_splits=between(1, 64),
    split_s=between(0, 1e-5),
    row_s=between(0, 1e-8),
    convert_s=between(0, 1e-10),
    row_tile=st.sampled_from([16, 64, 128]),
)
moe_laws = st.builds(
    MoeLaw,
    floor=between(0, 1e-4),
    serial=between(0, 1e-6),
    mem_eff=between(0.3, 1.05),
    compute_eff=between(0.05, 1.05),
    p=between(1, 8),
    per_active=between(0, 1e-6),
    per_local=between(0, 1e-6),
    row_passes=between(0, 4),
    all_passes=between(0, 4),
    hottest_weight=between(0, 1),
)
state_laws = st.builds(
    StateLaw, floor=between(0, 1e-4), mem_eff=between(0.3, 1.05), r=between(1, 8)
)
vector_kernels = st.builds(
    VectorKernels,
    narrow=between(0, 100),
    byte=between(0, 100),
    limit=st.integers(1, 64),
    tile=st.integers(1, 64),
    tile_rows=between(0, 64),
    overlap=between(1, 8),
)
vector_laws = st.builds(
    SimpleLaw, floor=between(0, 1e-4), mem_eff=between(0.3, 1.05), serial=between(0, 1e-6)
)


@st.composite
def collective_laws(draw: st.DrawFn) -> CollectiveLaw:
    forms: set[CollectiveAlgorithm] = draw(
        st.sets(st.sampled_from(["one_shot", "two_shot", "bulk"]), min_size=1)
    )
    return CollectiveLaw(
        ranks={
            count: CollectiveConstants(
                start={form: draw(between(1e-7, 1e-4)) for form in sorted(forms)},
                share={form: draw(between(0.05, 2)) for form in sorted(forms)},
            )
            for count in (2, 8)
        }
    )
