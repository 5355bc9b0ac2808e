"""The shipped accelerators and models: all of them load, and their numbers hold together."""

from __future__ import annotations

from inspect import signature
from pathlib import Path

import pytest

from roofline.advice.configuration import Configuration
from roofline.base.errors import InputError
from roofline.base.resources import bundled_names
from roofline.base.units import parse_quantity
from roofline.cli.recommend import recommend as recommend_command
from roofline.specs.gpu import GPU_SHELF, HardwareProfile, load_hardware
from tests.physics import run
from tests.support import GPU, write

GPUS = bundled_names(GPU_SHELF)


def peaks_of(gpu: HardwareProfile) -> dict[str, float]:
    """Return the dense peaks in TFLOP/s."""
    return {name: figure.value / 1e12 for name, figure in gpu.compute.peaks.items()}


def sixteen_bit(peaks: dict[str, float]) -> float:
    return peaks["bf16"] if "bf16" in peaks else peaks["fp16"]


def test_none_of_the_sourced_table_is_lost() -> None:
    assert len(GPUS) >= 55  # one for each row of the table, and Strix Halo; later ones add to them


@pytest.mark.parametrize("name", GPUS)
def test_a_profile_loads_under_its_own_name(name: str) -> None:
    gpu = load_hardware(name)
    assert gpu.id == name
    assert gpu.sources
    for where, figure in gpu.figures().items():
        assert figure.value > 0, where
        assert figure.source in gpu.sources, where
    assert sixteen_bit(peaks_of(gpu)) > 0


def test_no_profile_appears_twice() -> None:
    names = [load_hardware(name).name for name in GPUS]
    assert len(set(names)) == len(names)


# Dense 16-bit FLOP per clock and unit with FP32 accumulation: the vendors' architecture papers.
FLOP_PER_CLOCK = {
    **dict.fromkeys(["v100-sxm2-32gb", "t4"], 1024),
    **dict.fromkeys([name for name in GPUS if name.startswith("a100")], 2048),
    **dict.fromkeys(["a10", "a40", "rtx-a6000", "l4", "l40s", "rtx-6000-ada"], 1024),
    **dict.fromkeys([name for name in GPUS if name.startswith("rtx-pro-6000")], 1024),
    "gb10-dgx-spark": 1024,
    # half rate with FP32 accumulation
    **dict.fromkeys(["a10g", "l40", "rtx-3090", "rtx-4090", "rtx-5090"], 512),
    **dict.fromkeys([n for n in GPUS if n.startswith(("h100", "h200", "gh200", "h800"))], 4096),
    **dict.fromkeys(["b200-hgx", "gb200", "b300-hgx", "gb300", "jetson-t5000"], 8192),
    "mi250x": 1024,
    **dict.fromkeys(["mi300a", "mi300x", "mi325x"], 2048),
    **dict.fromkeys(["mi350x", "mi355x"], 4096),
}

# No clock or no units are published for these, or the rate is deliberately throttled (H20): their
# 16-bit peaks are pinned instead, in TFLOP/s.
WITHOUT_A_CLOCK = {
    "apple-m2-ultra": 27.2,  # shader rates: Apple publishes no matrix peak
    "apple-m3-max": 16.2,
    "apple-m3-ultra": 28.2,
    "apple-m4-max": 18.4,
    "b100": 1750,
    "gaudi2": 432,
    "gaudi3": 1677,
    "gb300": 2500,
    "h20": 148,
    "h800-sxm": 989.4,
    "rubin-vr-nvl72": 4000,
    "rx-7900-xtx": 122.8,
    "tpu-v5e": 197,
    "tpu-v5p": 459,
    "tpu-v6e": 918,
    "tpu-v7": 2307,
    "trainium2": 667,
}


@pytest.mark.parametrize("name", FLOP_PER_CLOCK)
def test_flop_per_clock_of_the_generation(name: str) -> None:
    figure = load_hardware(name).compute.flop_per_clock
    assert figure is not None
    assert figure.value == FLOP_PER_CLOCK[name]


def made_of(gpu: HardwareProfile) -> float | None:
    """Return units x FLOP per clock x clock in TFLOP/s, where the profile has all three."""
    compute = gpu.compute
    if compute.units is None or compute.clock is None or compute.flop_per_clock is None:
        return None
    return compute.units.value * compute.flop_per_clock.value * compute.clock.value / 1e12


@pytest.mark.parametrize("name", GPUS)
def test_units_times_clock_give_the_16_bit_peak(name: str) -> None:
    gpu = load_hardware(name)
    made, listed = made_of(gpu), sixteen_bit(peaks_of(gpu))
    if made is None:
        assert name in WITHOUT_A_CLOCK, (
            f"{name} has no compute.units, clock and flop_per_clock: give them in its profile, or "
            "add its 16-bit peak in TFLOP/s to WITHOUT_A_CLOCK in tests/specs/test_catalogue.py"
        )
        assert listed == pytest.approx(WITHOUT_A_CLOCK[name])
        assert gpu.compute.clock_note is None
        return
    assert name not in WITHOUT_A_CLOCK
    # a file explains exactly where the product does not give the peak
    assert (abs(made / listed - 1) > 0.015) is (gpu.compute.clock_note is not None)


def test_which_profiles_are_rated_off_their_clock() -> None:
    # Published peaks imply lower clocks (H100 PCIe/NVL and H200 NVL 1,620 and 1,545 MHz, HGX B200
    # 1,856 MHz, GB200 2,008 MHz); the DGX Spark's is derived from its sparse FP4 figure.
    noted = {name for name in GPUS if load_hardware(name).compute.clock_note}
    assert noted >= {
        "h100-pcie", "h100-nvl", "h200-nvl", "b200-hgx", "gb200", "b300-hgx", "gb10-dgx-spark",
    }  # fmt: skip


# (rate, dense, sparse) in TFLOP/s as vendors print them side by side.
WELL_KNOWN: dict[str, list[tuple[str, float, float]]] = {
    "a100-sxm-80gb": [("bf16", 312, 624), ("int8", 624, 1248)],
    "a100-sxm-40gb": [("bf16", 312, 624)],
    "a100-pcie-80gb": [("bf16", 312, 624)],
    "a10": [("bf16", 125, 250), ("int8", 250, 500)],
    "a10g": [("bf16", 70, 140)],
    "rtx-a6000": [("bf16", 154.8, 309.7)],
    "h100-sxm": [("bf16", 989.4, 1979), ("fp8", 1978.9, 3958), ("tf32", 494.7, 989.4)],
    "h100-pcie": [("bf16", 756.5, 1513), ("fp8", 1513, 3026)],
    "h100-nvl": [("bf16", 835.5, 1671)],
    "h200-sxm": [("bf16", 989.4, 1979), ("fp8", 1978.9, 3958)],
    "h200-nvl": [("bf16", 835.5, 1671)],
    "gh200-96gb": [("bf16", 989.4, 1979), ("fp8", 1978.9, 3958)],
    "h20": [("bf16", 148, 296), ("fp8", 296, 592)],
    "b200-hgx": [("bf16", 2250, 4500), ("fp8", 4500, 9000), ("fp4", 9000, 18_000)],
    "gb200": [("bf16", 2500, 5000), ("fp8", 5000, 10_000), ("fp4", 10_000, 20_000)],
    # FP4: sparse is 1.33 times dense here, so half of the sparse figure is wrong as well
    "b300-hgx": [("bf16", 2250, 4500), ("fp8", 4500, 9000), ("fp4", 13_500, 18_000)],
    "gb300": [("bf16", 2500, 5000), ("fp8", 5000, 10_000), ("fp4", 15_000, 20_000)],
    "l4": [("bf16", 121, 242), ("fp8", 242.5, 485)],
    "l40": [("bf16", 181.05, 362.1)],
    "l40s": [("bf16", 362.05, 733), ("fp8", 733, 1466)],
    "rtx-3090": [("bf16", 71.2, 142)],
    "rtx-4090": [("bf16", 165.2, 330.3), ("fp8", 330.3, 660.6)],
    "rtx-5090": [("bf16", 209.5, 419), ("fp4", 1676, 3352)],
    "jetson-t5000": [("fp8", 517, 1035), ("fp4", 1035, 2070)],
    "gb10-dgx-spark": [("fp4", 500, 1000)],
    "mi300x": [("bf16", 1307.4, 2614.9), ("fp8", 2614.9, 5229.8)],
    "mi355x": [("bf16", 2516.6, 5033.2), ("fp8", 5033.2, 10_066)],
    "gaudi3": [("fp8", 1677, 3670)],
    "b100": [("bf16", 1750, 3500)],
}


@pytest.mark.parametrize("name", WELL_KNOWN)
def test_well_known_peaks_are_the_dense_ones(name: str) -> None:
    peaks = peaks_of(load_hardware(name))
    for rate, dense, sparse in WELL_KNOWN[name]:
        assert peaks[rate] == pytest.approx(dense, rel=2e-3), rate
        assert peaks[rate] != pytest.approx(sparse, rel=2e-2), rate


#: Dense fp8 over 16-bit: twice, but for a chip without a faster fp8 and one beyond the usual step.
FP8_STEP = {"gaudi3": 1.0, "rubin-vr-nvl72": 4.375}
#: Dense fp4 over fp8: twice, three times on Blackwell Ultra, four where fp8 is halved (RTX 5090).
FP4_STEP = {"b300-hgx": 3.0, "gb300": 3.0, "rtx-5090": 4.0}
#: int8 over 16-bit: twice, four times on GeForce; Blackwell Ultra and Rubin give it up.
INT8_STEP = {
    "rtx-3090": 4.0, "rtx-4090": 4.0, "rtx-5090": 4.0, "mi250x": 1.0, "rx-7900-xtx": 1.0,
    "b300-hgx": 153.5 / 2250, "gb300": 165 / 2500, "rubin-vr-nvl72": 0.625,
}  # fmt: skip


@pytest.mark.parametrize("name", GPUS)
def test_no_rate_is_a_sparse_one(name: str) -> None:
    # A sparse figure beside a dense one doubles the ratio between two formats.
    peaks = peaks_of(load_hardware(name))
    base = sixteen_bit(peaks)
    if "fp8" in peaks:
        assert peaks["fp8"] / base == pytest.approx(FP8_STEP.get(name, 2.0), rel=0.03)
    if "fp4" in peaks:
        assert peaks["fp4"] / peaks["fp8"] == pytest.approx(FP4_STEP.get(name, 2.0), rel=0.03)
    if "fp6" in peaks:
        same_as = "fp4" if name in ("mi350x", "mi355x") else "fp8"  # MXFP6 = MXFP4 on CDNA 4
        assert peaks["fp6"] == peaks[same_as]
    if "int8" in peaks:
        assert peaks["int8"] / base == pytest.approx(INT8_STEP.get(name, 2.0), rel=0.03)
    if "tf32" in peaks and name != "trainium2":  # Trainium 2 has one rate for 16 bit and TF32
        assert peaks["tf32"] <= 0.52 * base
    if "fp16" in peaks and "bf16" in peaks and name != "gaudi3":
        assert peaks["fp16"] == peaks["bf16"]
    assert load_hardware(name).compute.peak_basis


@pytest.mark.parametrize("name", GPUS)
def test_a_profile_decides_between_disputed_figures(name: str) -> None:
    for where, figure in load_hardware(name).figures().items():
        if not figure.disputed:
            continue
        assert figure.note, where
        unit = "B/s" if "bandwidth" in where else "FLOP/s" if "peaks" in where else "B"
        for other in figure.disputed:
            assert parse_quantity(other.value, unit) != figure.value, where
            assert other.by, where


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("a10", "compute.peaks.bf16"),  # 125 or, with FP32 accumulation, 62.5
        ("b200-hgx", "memory.bandwidth"),  # 8.0 (DGX page) or 7.7 (datasheet)
        ("b300-hgx", "compute.peaks.fp4"),  # 13.5, 14 or 12.6 PFLOP/s
        ("gaudi3", "compute.peaks.bf16"),  # 1,835 on paper, 1,677 at the shipping clock
        ("gb200", "compute.peaks.bf16"),  # 2,500 or 2,450
        ("gb300", "compute.peaks.fp4"),  # 15.0 or 14.7 PFLOP/s
        ("h20", "compute.peaks.bf16"),  # 148 dense or sparse
        ("h100-pcie", "compute.peaks.bf16"),  # 756.5 or the preliminary 800
        ("h200-nvl", "memory.bandwidth"),  # 4.8 (page) or 4.2 (datasheet)
        ("h200-sxm", "compute.l2"),  # 60 MB (device) or 50 MB (tables)
        ("mi300x", "memory.bandwidth"),  # 5.3, not 10.3
        ("rtx-4090", "compute.peaks.fp8"),  # 330.3, first printed as 660.6
        ("rtx-pro-6000-blackwell-server", "memory.bandwidth"),  # 1,597 or 1,792
        ("rubin-vr-nvl72", "compute.peaks.fp4"),  # 35, or 50 with adaptive compression
        ("tpu-v5e", "memory.bandwidth"),  # 819 GB/s or 800 GiB/s
    ],
)
def test_known_disagreements_keep_both_values(name: str, where: str) -> None:
    figure = load_hardware(name).figures()[where]
    assert len({figure.value, *(other.value for other in figure.disputed)}) >= 2
    assert figure.note


@pytest.mark.parametrize(
    ("name", "bandwidth"),
    [
        ("a100-sxm-80gb", 2039), ("a100-pcie-80gb", 1935), ("h100-sxm", 3350),
        ("h100-pcie", 2000), ("h100-nvl", 3938), ("h200-sxm", 4800), ("b200-hgx", 8000),
        ("b300-hgx", 7700), ("l4", 300), ("l40s", 864), ("rtx-4090", 1008),
        ("rtx-pro-6000-blackwell-server", 1597), ("rtx-pro-6000-blackwell-ws", 1792),
        ("mi300x", 5325), ("mi325x", 6000), ("tpu-v5e", 819), ("h20", 4000),
    ],
)  # fmt: skip
def test_bandwidths_are_decimal_and_per_device(name: str, bandwidth: float) -> None:
    # Vendor datasheets, GB/s with GB = 1e9; the H100 NVL is one card of the pair.
    assert load_hardware(name).bandwidth == pytest.approx(bandwidth * 1e9)


@pytest.mark.parametrize(
    ("name", "per_direction"),
    [("a100-sxm-80gb", 300), ("h100-sxm", 450), ("h200-sxm", 450), ("b200-hgx", 900)],
)
def test_links_are_counted_in_one_direction(name: str, per_direction: float) -> None:
    # NVLink is advertised as the sum of both directions (600, 900, 1,800).
    assert load_hardware(name).interconnect.per_direction.value == per_direction * 1e9


def test_pre_release_parts_are_marked_and_never_a_default() -> None:
    marked = {name for name in GPUS if load_hardware(name).status == "pre-release"}
    assert marked == {"b100", "rubin-vr-nvl72"}
    defaults = {
        Configuration(model="any").gpu,
        signature(recommend_command).parameters["gpu"].default,
    }
    assert not defaults & marked
    assert all(load_hardware(name).status == "released" for name in defaults)


@pytest.mark.parametrize("name", ["b100", "rubin-vr-nvl72"])
def test_a_pre_release_part_says_so_in_the_answer(name: str) -> None:
    code, out, _ = run(f"roofline recommend llama-3.1-8b --gpu {name}")
    assert code == 0
    assert f"{name} is a pre-release part" in " ".join(out.split())


def test_a_disputed_figure_says_why_it_is_used(tmp_path: Path) -> None:
    old = "bandwidth: {value: 1 TB/s, source: here}"
    other = "disputed: [{value: 2 TB/s, by: someone}]"
    disputed = GPU.replace(old, f"bandwidth: {{value: 1 TB/s, source: here, {other}}}")
    with pytest.raises(InputError, match="a disputed figure must say why this value is used"):
        HardwareProfile.load(Path(write(tmp_path, "a.yaml", disputed)))
    decided = disputed.replace(other, f"{other}, note: measured")
    assert HardwareProfile.load(Path(write(tmp_path, "b.yaml", decided))).bandwidth == 1e12
