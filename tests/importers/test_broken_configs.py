"""Broken configs: a spec or one clear line, quickly, and never a wrong format unsaid."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from roofline.base.errors import InputError
from roofline.importers.importing import Imported, import_path
from roofline.importers.spec_yaml import spec_text
from roofline.kernels.footprint import parameters_decode_read, parameters_total
from roofline.specs.network import load_model
from tests.published import CONFIGS, FILES, imported
from tests.support import limits

MUTATIONS = 500
BATCHES = 20
#: Keys that decide a format: an impossible value there is never read as if it were not there.
FORMATS = {
    "dtype", "torch_dtype", "quant_method", "quant_algo", "num_bits", "bits", "expert_dtype",
    "kv_cache_quant_algo", "kv_cache_scheme", "type",
}  # fmt: skip
WRONG: list[Any] = [
    "seven", "", True, False, -1, 0, 0.5, 1e308, 2**63, 10**30, [], ["a", 1, None], {}, {"a": {}},
    "Infinity", [[[]]], [2**40] * 3,
]  # fmt: skip


def places(data: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield every mapping and key, nested ones too."""
    for key, value in data.items():
        yield data, key
        if isinstance(value, dict):
            yield from places(value)


def mutated(dice: random.Random, text: str) -> tuple[bytes, str, Any]:
    """Return a broken config, the key that was broken, and what was put there."""
    data = json.loads(text)
    holder, key = dice.choice(list(places(data)))
    kind = dice.choice(["drop", "null", "wrong", "wrong", "wrong", "nest", "bytes", "constants"])
    value: Any = None
    if kind == "drop":
        del holder[key]
    elif kind == "null":
        holder[key] = None
    elif kind == "wrong":
        value = dice.choice(WRONG)
        holder[key] = value
    elif kind == "nest":
        value = 0
        for _ in range(dice.choice([3, 40, 400])):
            value = {"a": value}
        holder[key] = value
    elif kind == "constants":
        value = dice.choice([float("inf"), float("nan"), float("-inf")])
        holder[key] = value
    raw = json.dumps(data).encode()
    if kind == "bytes":
        at = dice.randrange(len(raw))
        raw = raw[:at] + dice.choice([b"\xff\xfe", b"\x00", b"", b'"a": 1, "a": 2'])
        raw += text.encode()[at + dice.randrange(40) :]
        key = ""
    return raw, key, value


def outcome(file: Path) -> Imported | None:
    """Return what a file is read as, None where it is refused in one line."""
    target = (
        load_model("llama-2-7b") if "medusa" in file.read_bytes()[:400].decode("latin1") else None
    )
    try:
        found = import_path(file, target=target)
    except InputError as refused:
        said = str(refused)
    else:
        assert 0 < parameters_decode_read(found.spec) < 1e18
        assert parameters_total(found.spec) < 1e18
        assert spec_text(found.spec)
        return found
    assert "\n" not in said
    assert 10 < len(said) < 400
    return None


@cache
def longest_read() -> float:
    """Return the processor's time for the largest published config [s], as this process runs."""
    file = max((CONFIGS / name for name in FILES), key=lambda path: path.stat().st_size)
    outcome(file)
    start = time.process_time()
    outcome(file)
    return time.process_time() - start


@pytest.mark.parametrize("batch", range(BATCHES))
def test_mutations_of_published_configs(tmp_path: Path, batch: int) -> None:
    dice = random.Random(batch)
    file = tmp_path / "config.json"
    read = 0
    for _ in range(MUTATIONS // BATCHES):
        name = dice.choice(FILES)
        raw, key, value = mutated(dice, (CONFIGS / name).read_text("utf-8"))
        file.write_bytes(raw)
        start = time.process_time()
        found = outcome(file)
        assert time.process_time() - start < 6 * longest_read(), (name, key, value)
        read += found is not None
        if found is not None and key in FORMATS and value is not None:
            before = imported(name).spec
            same = found.spec.dtypes == before.dtypes and found.spec.dtype == before.dtype
            assert same or "hf_quant_config" in str(before.notes), (name, key, value)
    assert 0 < read < MUTATIONS // BATCHES  # some are harmless, some are not


@pytest.mark.parametrize("key", sorted(FORMATS - {"type", "num_bits", "bits", "quant_algo"}))
@pytest.mark.parametrize("value", ["float99", 7, [], {"a": 1}])
def test_an_impossible_format_is_refused(tmp_path: Path, key: str, value: object) -> None:
    data = json.loads((CONFIGS / "deepseek-ai--DeepSeek-V4-Flash.json").read_text())
    outer = key in ("dtype", "torch_dtype", "expert_dtype")
    holder = data if outer else data["quantization_config"]
    if key == "torch_dtype":
        data.pop("dtype", None)
    holder[key] = value
    file = tmp_path / "config.json"
    file.write_text(json.dumps(data))
    with pytest.raises(InputError):
        import_path(file)


HUGE: dict[str, Callable[[], bytes]] = {
    "junk": lambda: b"\x93" * 50_000_000,
    "deep": lambda: b'{"a":' * 700_000,
    "wide": lambda: b'{"model_type": [' + b"[]," * 1_300_000 + b"[]]}",
    "keys": lambda: b"{" + b",".join(b'"k%d":1' % n for n in range(300_000)) + b"}",
    "digits": lambda: b'{"hidden_size": ' + b"9" * 3_000_000 + b"}",
    "text": lambda: b'{"model_type": "' + b"x" * 3_900_000 + b'"}',
    "layers": lambda: (
        b'{"model_type": "llama", "architectures": ["a"], "hidden_size": 4096, '
        b'"num_attention_heads": 32, "num_hidden_layers": 1099511627776, "vocab_size": 100}'
    ),
    "patterns": lambda: json.dumps(
        json.loads((CONFIGS / "Qwen--Qwen3-8B.json").read_text())
        | {
            "quantization_config": {
                "quant_method": "fp8",
                "ignore": [f"model.layers.{n % 36}.mlp.*{n}*" for n in range(60_000)],
            }
        }
    ).encode(),
}


@pytest.mark.parametrize("kind", HUGE)
def test_huge_configs_take_neither_time_nor_memory(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(HUGE[kind]())
    begin = time.process_time()
    with limits(memory=200_000_000):
        outcome(file)
    assert time.process_time() - begin < 1.0


@pytest.mark.parametrize("pattern", ["re:(a+)+$", "re:(.*)*x", "re:.*.*.*.*.*b", "re:[", "re:(?"])
def test_patterns_that_could_take_for_ever_are_refused(tmp_path: Path, pattern: str) -> None:
    data = json.loads((CONFIGS / "moonshotai--Kimi-K2.5.json").read_text())
    data["text_config"]["quantization_config"]["ignore"] = [pattern]
    file = tmp_path / "config.json"
    file.write_text(json.dumps(data))
    with pytest.raises(InputError, match="pattern"):
        import_path(file)
