"""A config.json and its companion file, read from disk under strict limits."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from roofline.base.errors import InputError
from roofline.base.schema import kind_of

__all__ = ["ConfigFiles", "companion_paths", "read_json", "read_source", "schema_error"]

#: The largest config known (22,422 quantised layers by name) has 3 MB.
MAX_BYTES = 4_000_000
MAX_DEPTH = 32
MAX_PARTS = 150_000  # objects, lists and keys
QUANT_FILE = "hf_quant_config.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigFiles:
    """A config, and the quantisation that its companion file holds."""

    name: str  # of the config, as messages print it
    data: Mapping[str, Any]
    quantization: Mapping[str, Any] = field(default_factory=dict)


def read_source(path: Path) -> ConfigFiles:
    """Read a config.json, a folder with one, or a quantised config with its companion.

    The companion is ``hf_quant_config.json`` in the same folder, or ``NAME.hf_quant_config.json``
    beside ``NAME.json``.
    """
    file = path / "config.json" if path.is_dir() else path
    if path.is_dir() and not file.is_file():
        raise InputError(f"{path}: no config.json in this folder; name the file itself")
    data = read_json(file)
    companion = next((path for path in companion_paths(file) if path.is_file()), None)
    quantization = read_json(companion) if companion is not None and companion != file else {}
    return ConfigFiles(name=file.name, data=data, quantization=quantization)


def companion_paths(config: Path) -> list[Path]:
    """Return the paths where the companion of a config may lie, in the order of preference."""
    paths = [config.with_name(f"{config.stem}.{QUANT_FILE}")]
    if config.name == "config.json":
        paths.append(config.with_name(QUANT_FILE))
    return paths


def read_json(file: Path) -> dict[str, Any]:
    """Return the object in a JSON file; raise InputError in one line for everything else.

    ``Infinity`` and ``NaN`` are accepted, as published configs hold them, but become plain text: no
    number is ever infinite.
    """
    if file.exists() and not file.is_file():
        raise InputError(f"{file}: is no regular file; name a config.json or a folder with one")
    try:
        size = file.stat().st_size
        if size > MAX_BYTES:
            raise InputError(
                f"{file.name}: {size} bytes; a config has at most {MAX_BYTES}, so this is another "
                "file"
            )
        raw = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file.name}: cannot be read ({error.strerror})") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{file.name}: not UTF-8 at byte {error.start}; save it as UTF-8 JSON"
        ) from None
    if not text.strip():
        raise InputError(f"{file.name}: is empty; expected a JSON object")
    if text.count("[") + text.count("{") + text.count('":') > MAX_PARTS:
        raise InputError(f"{file.name}: more than {MAX_PARTS} values; this is no config")
    try:
        data = json.loads(text, object_pairs_hook=_no_repeats, parse_constant=str)
        _check_depth(data)
    except _RepeatedKeyError as error:
        raise InputError(f"{file.name}: key '{error}' appears twice; keep one") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{file.name}:{error.lineno}: not valid JSON: {error.msg}") from None
    except RecursionError:
        raise InputError(f"{file.name}: nested more than {MAX_DEPTH} deep") from None
    except ValueError as error:
        raise InputError(f"{file.name}: not valid JSON: {str(error)[:80]}") from None
    if not isinstance(data, dict):
        raise InputError(f"{file.name}: expected a JSON object, got {kind_of(data)}")
    return data


def schema_error(source: ConfigFiles, error: ValidationError) -> InputError:
    """Return the error of a config whose numbers make no spec: the first that pydantic names."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return InputError(f"{source.name}: {where}: {first['msg'].lower()}")


class _RepeatedKeyError(Exception):
    """A key that is given twice."""


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise _RepeatedKeyError(next(key[:40] for key in counts if counts[key] > 1))
    return data


def _check_depth(root: object) -> None:
    stack: list[tuple[object, int]] = [(root, 0)]
    while stack:
        value, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise RecursionError
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError("a number is too large")
        if isinstance(value, dict | list):
            inner = value.values() if isinstance(value, dict) else value
            stack += [(item, depth + 1) for item in inner if isinstance(item, dict | list | float)]
