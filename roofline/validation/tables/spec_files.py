"""Writing fitted numbers around speculation into the engines' files."""

from __future__ import annotations

import re
from pathlib import Path

from roofline.base.files import write_atomically
from roofline.calibrate.fit.core import rounded
from roofline.timing.drafters import BLOCK_KINDS
from roofline.validation.engine_file import with_overhead, without_eras
from roofline.validation.spec_numbers import EraNumbers, fit_eras
from roofline.validation.spec_pricing import KINDS, WIDTHS, engine_of, price
from roofline.validation.spec_rows import load_spec_rows

__all__ = ["write_spec_numbers"]

#: What each older era's builds are, and the last version among them by the engines' releases.
BUILDS = {
    "vllm@2025": ("V1 of 2025, 0.8 to 0.11", "0.11"),
    "sglang@0.4": ("0.4, early 2025", "0.4"),
    "sglang@0.5": ("0.5.0 to 0.5.5, late 2025", "0.5.5"),
    "trtllm@2025": ("the PyTorch backend of mid 2025", "1.0"),
}
SOURCE = "fitted on published speculative runs (data/validation/steps.csv, rows marked A)"
SCALARS = ("per_spec_round", "per_draft_pass", "per_tree_round", "per_model_round",
           "per_spec_sequence", "per_expert_layer")  # fmt: skip


def write_spec_numbers(folder: Path) -> list[str]:
    """Fit every era on all rows marked A, write the engines' files, and say what was found."""
    rows = [row for row in load_spec_rows() if row.fits or (row.scored and row.trust == "A")]
    fitted, said = fit_eras(rows, price(rows)), []
    fitted = {era: numbers for era, numbers in fitted.items() if not era.endswith("@*")}
    for engine in sorted({engine_of(era) for era in fitted}):
        path = folder / f"{engine}.yaml"
        own = {era: numbers for era, numbers in fitted.items() if engine_of(era) == engine}
        text = path.read_text("utf-8")
        if engine in own:
            text = _current(text, own[engine], file=path.name)
        older = [era_lines(era, numbers) for era, numbers in own.items() if "@" in era]
        text = without_eras(text)
        text += "".join(["eras:\n", *older]) if older else ""
        write_atomically(path, text)
        said += [f"{era}: {as_yaml(numbers)}" for era, numbers in own.items()]
    return said


def as_yaml(numbers: EraNumbers) -> dict[str, str]:
    """Return the numbers as an engine file writes them."""
    named = numbers.named()
    found = {name: _us(named[name]) for name in SCALARS}
    kinds = {kind: named[kind] for kind in KINDS if abs(named[kind]) > 1e-6}
    passes = {
        name: _us(named["per_draft_pass"] + value)
        for kind, value in kinds.items()
        for name in ((*BLOCK_KINDS, "medusa") if kind == "block" else (kind,))
    }
    found["draft_passes"] = "{" + ", ".join(f"{k}: {v}" for k, v in passes.items()) + "}"
    found["spec_rows"] = str(numbers.rows)
    return found


def _us(seconds: float) -> str:
    return f"{rounded(1e6 * seconds) if seconds > 1e-7 else 0.0} us"


def _current(text: str, numbers: EraNumbers, *, file: str) -> str:
    """Replace the lines of today's numbers in an engine's overhead."""
    named, lines = numbers.named(), as_yaml(numbers)
    if re.search(r"^  vector: ", text, re.MULTILINE):  # no served runs: per_step is fitted here
        lines["per_step"] = _us(named["per_step"])
        costs = ", ".join(f"{name}: {rounded(named[name])}" for name in WIDTHS)
        lines["vector"] = f"{{{costs}}}"
    return with_overhead(text, lines, file=file, add=True)


def era_lines(era: str, numbers: EraNumbers) -> str:
    """Return an older era's entry."""
    lines = {"per_step": _us(numbers.named()["per_step"])} | as_yaml(numbers)
    body = "".join(f"  {name}: {value}\n" for name, value in lines.items())
    name = era.split("@")[1]
    builds, until = BUILDS[era]
    about = f'- id: "{name}"\n  builds: {builds}\n  until: "{until}"\n'
    return f"{about}{body}  source: {SOURCE}\n"
