"""``python -m workshop.engines``: fit each engine's numbers on the shipped published runs.

The numbers go into the engines' files: those of plain decoding from served decode runs, those
around speculation, era by era, from speculative runs marked A.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from roofline.base.files import write_atomically
from roofline.base.resources import shelf
from roofline.calibrate.engine.decode_numbers import GENERIC, SKEWS, EngineNumbers, fit_with_skew
from roofline.calibrate.engine.decode_rows import DecodeRow, kernel_features, load_decode_rows
from roofline.calibrate.engine.engine_file import with_overhead, without_eras
from roofline.calibrate.engine.spec_numbers import EraNumbers, fit_eras
from roofline.calibrate.engine.spec_pricing import KINDS, WIDTHS, engine_of, price_runs
from roofline.calibrate.engine.spec_rows import load_spec_rows
from roofline.calibrate.fit.core import rounded
from roofline.specs.network import load_model
from roofline.timing.drafters import ONE_PASS_KINDS

__all__ = ["main", "write_decode_numbers", "write_spec_numbers"]

Array = NDArray[np.float64]


SCALES = ("floor_scale", "expert_floor_scale")  # the numbers that are no times


def write_decode_numbers(folder: Path) -> list[str]:
    """Fit all engines on all scored rows and write their files; return a line for each."""
    rows = [row for row in load_decode_rows() if row.scored]
    skew, fitted = fit_with_skew(rows, {s: kernel_features(rows, skew=s) for s in SKEWS})
    lines_written = [f"expert popularity skew {skew:g} (priors.yaml states the one in use)"]
    for engine, numbers in fitted.items():
        path = folder / f"{engine}.yaml"
        members = [row for row in rows if row.engine == engine]
        lines = decode_lines(numbers, _layers(members))
        fitted_lines = lines | {"fitted_rows": len(members)}
        text = with_overhead(path.read_text("utf-8"), fitted_lines, file=path.name, add=False)
        write_atomically(path, text)
        lines_written.append(f"{path.name}: {lines}")
    return lines_written


def decode_lines(numbers: EngineNumbers, layers: Array) -> dict[str, float | str]:
    """Return the numbers as an engine file writes them.

    ``layers`` counts, for each model that was served, all layers, those with experts and those with
    both experts and a recurrent state. Rows of models with experts only say nothing of a dense
    layer: what they add to the generic engine's cost per layer is then charged to layers with
    experts and to those with a state too, by the smallest such costs that explain it (least squares
    of least norm). Where every served model with experts has a state, layers with experts alone are
    charged nothing, as by the engines that serve some (vLLM, TensorRT-LLM). 4 us generic and 18 us
    more in 60 layers, all with experts, 45 with a state: 18 x 60 / 45 = 24 us.

    >>> numbers = EngineNumbers(floor_scale=1.0, expert_floor_scale=1.0, per_layer=22e-6,
    ...                         per_step=0.5e-3, per_sequence=2e-6)
    >>> lines = decode_lines(numbers, np.array([[60.0, 60.0, 45.0]]))
    >>> [lines[name] for name in ("per_layer", "per_expert_layer", "per_state_layer")]
    ['4.0 us', '0.0 us', '24.0 us']
    """
    dense_seen = bool(np.any(layers[:, 1] == 0))
    per_layer = numbers.per_layer if dense_seen else min(numbers.per_layer, GENERIC.per_layer)
    extra = (numbers.per_layer - per_layer) * layers[:, 0]
    without_state = bool(np.any((layers[:, 1] > 0) & (layers[:, 2] == 0)))
    experts, states = np.linalg.lstsq(layers[:, 1:] * (without_state, True), extra)[0]
    times = asdict(numbers) | {
        "per_layer": per_layer,
        "per_expert_layer": float(experts),
        "per_state_layer": float(states),
    }
    return {
        name: value if name in SCALES else f"{rounded(1e6 * value) if value > 1e-12 else 0.0} us"
        for name, value in times.items()
    }


def _layers(rows: list[DecodeRow]) -> Array:
    """Return each model's layers: all, those with experts, those with experts and a state."""
    models = [load_model(name) for name in sorted({row.model for row in rows})]
    counts = [(m.num_layers, m.num_expert_layers, m.num_hybrid_layers) for m in models]
    return np.array(counts, dtype=np.float64)


#: What each older era's builds are, and the last version among them by the engines' releases.
BUILDS = {
    "vllm@2025": ("V1 of 2025, 0.8 to 0.11", "0.11"),
    "sglang@0.4": ("0.4, early 2025", "0.4"),
    "sglang@0.5": ("0.5.0 to 0.5.5, late 2025", "0.5.5"),
    "trtllm@2025": ("the PyTorch backend of mid 2025", "1.0"),
}
#: What else of an older era was other than today's, with its source.
STATED = {
    "vllm@2025": "  memory_fraction: 0.9  # gpu_memory_utilization of docs.vllm.ai, v0.6.4; "
    "releases from 0.12 to 0.21 were not read\n",
}
SOURCE = "fitted on published speculative runs (data/validation/steps.csv, rows marked A)"
#: Of layers: an older era's are those of today's builds.
LAYERS = ("per_expert_layer", "per_state_layer")
SCALARS = (
    "per_spec_round",
    "per_draft_pass",
    "per_tree_round",
    "per_model_round",
    "per_spec_sequence",
    *LAYERS,
)


def write_spec_numbers(folder: Path) -> list[str]:
    """Fit every era on all rows marked A and write the engines' files; return a line for each."""
    rows = [row for row in load_spec_rows() if row.counts_in_fit]
    fitted, lines_written = fit_eras(rows, price_runs(rows)).by_era, []
    for engine in sorted({engine_of(era) for era in fitted}):
        path = folder / f"{engine}.yaml"
        members = {era: numbers for era, numbers in fitted.items() if engine_of(era) == engine}
        text = path.read_text("utf-8")
        if engine in members:
            text = _with_current_numbers(text, members[engine], file=path.name)
        older = [era_lines(era, numbers) for era, numbers in members.items() if "@" in era]
        text = without_eras(text)
        text += "".join(["eras:\n", *older]) if older else ""
        write_atomically(path, text)
        lines_written += [f"{era}: {spec_lines(numbers)}" for era, numbers in members.items()]
    return lines_written


def spec_lines(numbers: EraNumbers) -> dict[str, str]:
    """Return the numbers as an engine file writes them."""
    named = numbers.named()
    lines = {name: _us(named[name]) for name in SCALARS}
    kinds = {kind: named[kind] for kind in KINDS if abs(named[kind]) > 1e-6}
    passes = {
        name: _us(named["per_draft_pass"] + value)
        for kind, value in kinds.items()
        for name in (ONE_PASS_KINDS if kind == "block" else (kind,))
    }
    lines["draft_passes"] = "{" + ", ".join(f"{k}: {v}" for k, v in passes.items()) + "}"
    lines["spec_rows"] = str(numbers.rows)
    return lines


def _us(seconds: float) -> str:
    return f"{rounded(1e6 * seconds) if seconds > 1e-7 else 0.0} us"


def _with_current_numbers(text: str, numbers: EraNumbers, *, file: str) -> str:
    """Replace the lines of today's numbers in an engine's overhead."""
    named, lines = numbers.named(), spec_lines(numbers)
    if re.search(r"^  vector: ", text, re.MULTILINE):  # no served runs
        lines["per_step"] = _us(named["per_step"])
        costs = ", ".join(f"{name}: {rounded(named[name])}" for name in WIDTHS)
        lines["vector"] = f"{{{costs}}}"
    return with_overhead(text, lines, file=file, add=True)


def era_lines(era: str, numbers: EraNumbers) -> str:
    """Return an older era's entry."""
    lines = {"per_step": _us(numbers.named()["per_step"])} | spec_lines(numbers)
    lines = {name: value for name, value in lines.items() if name not in LAYERS}
    body = "".join(f"  {name}: {value}\n" for name, value in lines.items())
    name = era.split("@")[1]
    builds, until = BUILDS[era]
    about = f'- id: "{name}"\n  builds: {builds}\n  until: "{until}"\n'
    return f"{about}{STATED.get(era, '')}{body}  source: {SOURCE}\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, fit and write."""
    parser = argparse.ArgumentParser("python -m workshop.engines", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, help="folder with engine files to rewrite")
    folder = parser.parse_args(arguments).output or Path(str(shelf("engines")))
    lines = [*write_decode_numbers(folder), *write_spec_numbers(folder)]
    sys.stdout.writelines(f"{line}\n" for line in lines)


if __name__ == "__main__":
    main()
