"""The published configs in ``model_configs/`` and the counts they are held to.

``tests/data/models.csv`` has one row per config: its origin, and parameter counts computed by a
separate script whose formulas agree with transformers 5.24 on the meta device for every class that
library has (155 files) and with keras-hub's exact presets for 42.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from roofline.importers.importing import Imported, import_path
from roofline.kernels.footprint import parameters_total
from roofline.specs.mixers import GroupedQueryAttention, LatentAttention
from roofline.specs.network import DenseMlp, DrafterSpec, ModelSpec, MoeMlp, load_model
from tests.support import ROOT

CONFIGS = ROOT / "model_configs"
with (ROOT / "tests" / "data" / "models.csv").open(encoding="utf-8", newline="") as _file:
    ROWS: Mapping[str, Mapping[str, str]] = {row["name"]: row for row in csv.DictReader(_file)}
FILES = sorted(
    path.name for path in CONFIGS.glob("*.json") if not path.name.endswith("hf_quant_config.json")
)
MODELS = [name for name in FILES if not name.startswith("drafter--")]
#: Takes a key away, where a test changes a config.
ABSENT = object()
DRAFTERS = [name for name in FILES if name.startswith("drafter--")]


@cache
def imported(name: str) -> Imported:
    """Return a published config by file name; the Medusa one is read for its 7B base."""
    target = load_model("llama-2-7b") if "medusa" in name else None
    return import_path(CONFIGS / name, target=target)


def model(name: str) -> ModelSpec:
    """Return a published model by the name of its repository's file, without ``.json``."""
    spec = imported(f"{name}.json").spec
    assert isinstance(spec, ModelSpec)
    return spec


def drafter(name: str) -> DrafterSpec:
    """Return a published drafter by ``project--name``."""
    spec = imported(f"drafter--{name}.json").spec
    assert isinstance(spec, DrafterSpec)
    return spec


def total(name: str) -> int:
    """Return the parameters of a published model."""
    return parameters_total(model(name))


def defaulted(name: str) -> dict[str, Any]:
    """Return what a config left to its class, by field."""
    return {entry.field: entry.value for entry in imported(f"{name}.json").defaults}


def dtypes(name: str) -> dict[str, str]:
    """Return the formats of components that differ from the base, and the cache's."""
    spec = model(name)
    found = {part.value: dtype.value for part, dtype in spec.dtypes.items()}
    return found | ({"kv": spec.kv_dtype.value} if spec.kv_dtype else {})


def windowed(spec: ModelSpec) -> dict[int | None, int]:
    """Return how many layers have each window."""
    found: dict[int | None, int] = {}
    for run in spec.layers:
        if isinstance(run.attention, GroupedQueryAttention):
            found[run.attention.window] = found.get(run.attention.window, 0) + run.repeat
    return found


def first(spec: ModelSpec) -> GroupedQueryAttention:
    """Return the first grouped-query attention."""
    found = (run.attention for run in spec.layers)
    return next(a for a in found if isinstance(a, GroupedQueryAttention))


def latent(spec: ModelSpec) -> list[tuple[int, LatentAttention]]:
    """Return the latent attentions with their layers."""
    return [
        (run.repeat, run.attention)
        for run in spec.layers
        if isinstance(run.attention, LatentAttention)
    ]


def experts(spec: ModelSpec) -> list[tuple[int, MoeMlp]]:
    """Return the mixtures with their layers."""
    return [(run.repeat, run.mlp) for run in spec.layers if isinstance(run.mlp, MoeMlp)]


def dense(spec: ModelSpec) -> list[tuple[int, DenseMlp]]:
    """Return the dense MLPs with their layers."""
    return [(run.repeat, run.mlp) for run in spec.layers if isinstance(run.mlp, DenseMlp)]


def changed(tmp_path: Path, name: str, changes: Mapping[str, Any]) -> Path:
    """Write a published config with some of the language model's keys changed or taken away."""
    data = json.loads((CONFIGS / f"{name}.json").read_text("utf-8"))
    inner = data.get("text_config") or data
    for key, value in changes.items():
        if value is ABSENT:
            inner.pop(key, None)
        else:
            inner[key] = value
    file = tmp_path / "config.json"
    file.write_text(json.dumps(data))
    return file
