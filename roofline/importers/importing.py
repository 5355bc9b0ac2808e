"""The spec of a model or drafter in a config.json, a folder with one, or a GGUF file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roofline.base.errors import OPTION_MARKS, FaultsError, InputError
from roofline.base.notices import Code, Notice, notice
from roofline.importers.config_files import ConfigFiles, read_source
from roofline.importers.drafter_config import build_drafter, drafter_kind
from roofline.importers.fields import ConfigDefault, ImportLog
from roofline.importers.gguf_config import build_from_gguf
from roofline.importers.model_config import NESTED_KEYS, Identity, build_model
from roofline.specs.network import ModelSpec, NetworkSpec

__all__ = ["Imported", "identity_of", "import_path"]

#: Keys that change what a layer is. One that the model type does not read contradicts it.
_LAYER_KEYS = (
    "kv_lora_rank",
    "linear_attn_config",
    "attn_type_list",
    "compress_ratios",
    "block_configs",
    "hybrid_override_pattern",
    "hybrid_layer_pattern",
    "layers_block_type",
    "index_topk",
    "n_routed_experts",
    "num_local_experts",
    "num_experts",
    "moe_num_experts",
    "cross_attention_layers",
    "sparse_attention_config",
    "linear_num_value_heads",
    "ssm_state_size",
    "attention_k_eq_v",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """A spec, with the defaults that were taken, the keys that were ignored, and notes."""

    spec: NetworkSpec
    defaults: tuple[ConfigDefault, ...]
    ignored: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def notices(self) -> list[Notice]:
        """The defaults and notes."""
        return [
            *(
                notice(Code.CONFIG_DEFAULT, field=each.field, value=str(each.value), why=each.why)
                for each in self.defaults
            ),
            *(notice(Code.CONFIG_NOTE, note=note) for note in self.notes),
        ]


def identity_of(path: Path, data: Mapping[str, Any]) -> Identity:
    """Return the identity of a published model, from its path or the name inside the config.

    >>> identity_of(Path("meta-llama--Llama-3.2-1B.json"), {}).repository
    'meta-llama/Llama-3.2-1B'
    """
    full = path.resolve()
    folders = [full.name, *(parent.name for parent in full.parents)]
    cached = next((name for name in folders if name.startswith("models--")), None)
    stem = full.parent.name if full.name == "config.json" else full.stem
    if full.is_dir():
        stem = full.name
    stated = data.get("_name_or_path")
    text = re.sub(r"^(?:models--)?(.+?)--(.+)$", r"\1/\2", cached or stem)
    if "/" not in text and isinstance(stated, str) and re.fullmatch(r"[\w.-]+/[\w.-]+", stated):
        text = stated
    vendor, _, name = text.rpartition("/")
    name = re.sub(r"[^\w.-]+", "-", name).strip("-.") or "model"
    repository = f"{vendor}/{name}" if re.fullmatch(r"[\w.-]+", vendor) else None
    return Identity(id=name.lower(), name=name, source=path.name, repository=repository)


def import_path(
    path: Path,
    *,
    identity: Identity | None = None,
    target: ModelSpec | None = None,
    target_id: str = "",
) -> Imported:
    """Read a config or a GGUF header; refuse what is not understood in one line."""
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    try:
        return _import(path, identity, target, target_id)
    except InputError as error:  # names in a broken file may hold anything
        if isinstance(error, FaultsError):
            raise FaultsError(list(map(_shown, error.faults))) from None
        raise InputError(_shown(error.text)) from None


def _shown(text: str) -> str:
    return "".join(c if c.isprintable() or c in OPTION_MARKS else "?" for c in text)


def _import(
    path: Path, identity: Identity | None, target: ModelSpec | None, target_id: str
) -> Imported:
    if path.suffix.lower() == ".gguf":
        identity = identity or identity_of(path, {})
        spec, log = build_from_gguf(path, identity, target=target, target_id=target_id)
        return _imported(spec, log, ConfigFiles(name=path.name, data={}))
    source = read_source(path)
    identity = identity or identity_of(path, source.data)
    if drafter_kind(source.data) is not None:
        head, log = build_drafter(source, identity, target=target, target_id=target_id)
        return _imported(head, log, source)
    model, log = build_model(source, identity)
    return _imported(model, log, source)


def _imported(spec: NetworkSpec, log: ImportLog, source: ConfigFiles) -> Imported:
    return Imported(
        spec=spec,
        defaults=tuple(log.defaults),
        ignored=tuple(_ignored_keys(source.data, log)),
        notes=tuple(log.notes),
    )


def _ignored_keys(data: Mapping[str, Any], log: ImportLog) -> list[str]:
    """Return the keys that were not read; refuse one that decides what a layer is."""
    nested = [name for name in (*NESTED_KEYS, "thinker_config", "vision_config") if name in data]
    inner: Mapping[str, Any] = next(
        (data[name] for name in NESTED_KEYS if isinstance(data.get(name), dict)), {}
    )
    keys = {*data, *inner} - {*nested, "transformer_layer_config"} - log.read
    for name in sorted(keys):
        value = inner.get(name, data.get(name))
        # attn_type_list: attention in all layers
        all_ones = isinstance(value, list) and all(item == 1 for item in value)
        if name in _LAYER_KEYS and value not in (None, 0, False) and not all_ones:
            raise InputError(
                f"{name}: the config states it, but its model_type does not use it: one of the two "
                "is wrong; correct the config"
            )
    return sorted(keys)
