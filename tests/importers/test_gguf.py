"""GGUF: its types as bits per weight, its header as a model, and broken headers."""

from __future__ import annotations

import random
import struct
import time
from pathlib import Path

import pytest

from roofline.base.errors import InputError
from roofline.importers.gguf import TENSOR_TYPES, read_gguf
from roofline.importers.importing import Imported, import_path
from roofline.kernels.footprint import parameters_total, weight_bytes
from roofline.specs.formats import Component, DType, bytes_per_element
from roofline.specs.network import ModelSpec, load_model
from roofline.specs.placement import Placement
from tests import gguf_file
from tests.physics import precision_of, run


def imported(tmp_path: Path, raw: bytes) -> Imported:
    """Read a GGUF file of these bytes."""
    file = tmp_path / "model.gguf"
    file.write_bytes(raw)
    return import_path(file)


# ggml's block structures: bytes of a block, weights in it.
BLOCKS = {
    "q8_0": (34, 32), "q6_k": (210, 256), "q5_k": (176, 256), "q5_1": (24, 32), "q5_0": (22, 32),
    "q4_k": (144, 256), "q4_1": (20, 32), "q4_0": (18, 32), "q3_k": (110, 256), "q2_k": (84, 256),
    "iq4_nl": (18, 32), "iq4_xs": (136, 256), "iq3_s": (110, 256), "iq3_xxs": (98, 256),
    "iq2_s": (82, 256), "iq2_xs": (74, 256), "iq2_xxs": (66, 256), "iq1_m": (56, 256),
    "iq1_s": (50, 256), "tq2_0": (66, 256), "tq1_0": (54, 256), "mxfp4": (17, 32),
    # q1_0 and q2_0 of build b11434, which have no name here
    "nvfp4": (36, 64), "1.125bpw": (18, 128), "2.25bpw": (18, 64),
}  # fmt: skip


@pytest.mark.parametrize("name", BLOCKS)
def test_bits_of_a_type(name: str) -> None:
    size, weights = BLOCKS[name]
    assert bytes_per_element(DType(name)) == size / weights
    assert (name, weights, size) in TENSOR_TYPES.values()


@pytest.mark.parametrize(
    ("kind", "gigabytes"),
    [
        # published Meta-Llama-3.1-8B-Instruct files of llama.cpp, GB
        ("q8_0", 8.54), ("q6_k", 6.60), ("q5_k_m", 5.73), ("q4_k_m", 4.92), ("q4_k_s", 4.69),
        ("q3_k_m", 4.02), ("iq3_m", 3.78), ("iq2_m", 2.95),
    ],
)  # fmt: skip
def test_weights_of_a_mixture_have_about_the_published_size(kind: str, gigabytes: float) -> None:
    count = parameters_total(load_model("llama-3.1-8b"))
    # a plain type's file keeps head and embedding wider
    slack = 0.04 if kind in ("q8_0", "q6_k") else 0.015
    assert count * bytes_per_element(DType(kind)) / 1e9 == pytest.approx(gigabytes, rel=slack)


def test_a_header_is_a_model(tmp_path: Path) -> None:
    found = imported(tmp_path, gguf_file.llama_8b())
    spec = found.spec
    assert isinstance(spec, ModelSpec)
    assert parameters_total(spec) == 8_030_261_248  # exact, as its config.json has it
    assert (spec.max_context, spec.tie_embeddings) == (131_072, False)
    assert spec.dtypes[Component.HEAD] == DType.Q6_K
    assert any("mixed" in note for note in found.notes)
    assert not any(
        told.values.get("field") == "dtype" for told in found.notices
    )  # config.json's key, not GGUF's
    # the published Q4_K_M file has 4.92 GB
    held = sum(weight_bytes(spec, precision_of(spec), Placement()).values())
    assert held / 1e9 == pytest.approx(4.92, rel=0.02)


def test_general_name_is_the_name(tmp_path: Path) -> None:
    """The key of the GGUF specification, which a file may lack; the file's own name is the id."""
    named = imported(tmp_path, gguf_file.llama_8b()).spec
    assert (named.id, named.name) == ("model", "Llama 3.1 8B")
    assert imported(tmp_path, gguf_file.mixtral()).spec.name == "model"


def test_a_mixture_of_experts(tmp_path: Path) -> None:
    spec = imported(tmp_path, gguf_file.mixtral()).spec
    assert parameters_total(spec) == 46_702_792_704
    assert spec.dtypes[Component.EXPERTS] == DType.Q8_0
    assert spec.dtypes[Component.ROUTER] == DType.FP32


def test_a_reading_that_its_tensors_contradict_is_refused(tmp_path: Path) -> None:
    raw = gguf_file.llama_8b().replace(
        gguf_file.pair("llama.feed_forward_length", 14_336),
        gguf_file.pair("llama.feed_forward_length", 11_008),
    )
    with pytest.raises(InputError, match="tensors hold"):
        imported(tmp_path, raw)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "too short"),
        (b"GGUF" + b"\x00" * 40, "version 0"),
        (b"GGML" + b"\x00" * 40, "GGUF"),
        (b"GGUF" + struct.pack(">IQQ", 3, 1, 1) + b"\x00" * 40, "little endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), "tensors"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60), "keys"),
        (gguf_file.header({"general.architecture": "rwkv7"}, []), "not known"),
        (gguf_file.header({"a": 1}, [("t", (2**40, 2**40), 0)]), "impossible"),
        (gguf_file.header({"a": 1}, [("t", (256,), 99)]), "unknown type"),
        (gguf_file.header({"a": 1}, [("t", (255,), 12)]), "whole blocks"),
        (gguf_file.header({"a": 1}, [("t", (256,), 0)] * 2), "twice"),
    ],
)
def test_headers_that_are_refused(tmp_path: Path, raw: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words):
        imported(tmp_path, raw)


def test_a_name_with_line_breaks_stays_on_one_line(tmp_path: Path) -> None:
    raw = gguf_file.header({"general.architecture": "a\nb\r\nc"}, [])
    with pytest.raises(InputError) as caught:
        imported(tmp_path, raw)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("batch", range(4))
def test_mutations_of_a_header(tmp_path: Path, batch: int) -> None:
    dice, raw = random.Random(batch), gguf_file.llama_8b()
    whole = parameters_total(load_model("llama-3.1-8b"))
    read = 0
    for _ in range(25):
        at = dice.choice([dice.randrange(24), dice.randrange(700), dice.randrange(len(raw))])
        kind = dice.choice(["flip", "cut", "zeros", "ones", "insert"])
        middle = {
            "flip": bytes([raw[at] ^ (1 << dice.randrange(8))]),
            "zeros": b"\x00" * 8, "ones": b"\xff" * 8, "insert": dice.randbytes(5), "cut": b"",
        }[kind]  # fmt: skip
        rest = b"" if kind == "cut" else raw[at + (0 if kind == "insert" else len(middle)) :]
        start = time.perf_counter()
        said = ""
        try:
            spec = imported(tmp_path, raw[:at] + middle + rest).spec
        except InputError as refused:
            said = str(refused)
        else:
            read += 1
            # a flipped bit in a name or a type may pass; the shape is checked by the tensors
            assert parameters_total(spec) == pytest.approx(whole, rel=0.03)
        assert "\n" not in said
        assert time.perf_counter() - start < 1.0
    assert read < 25


def test_long_lists_are_skipped_quickly(tmp_path: Path) -> None:
    tokens = {"tokenizer.ggml.tokens": ["token"] * 300_000, "tokenizer.ggml.scores": [1] * 300_000}
    file = tmp_path / "tokens.gguf"
    file.write_bytes(gguf_file.header(tokens, [("t", (32,), 0)]))
    start = time.perf_counter()
    assert read_gguf(file).lengths["tokenizer.ggml.tokens"] == 300_000
    assert time.perf_counter() - start < 1.0


def test_recommend_takes_a_gguf_file(tmp_path: Path) -> None:
    file = tmp_path / "llama-3.1-8b.gguf"
    file.write_bytes(gguf_file.llama_8b())
    code, out, _ = run(f"roofline recommend {file} --gpu rtx-4090 --acceptance 0.7")
    assert code == 0
    assert "draft length" in out.lower()


def test_few_bits_are_warned_of() -> None:
    code, out, _ = run(
        "roofline recommend llama-3.1-8b --weights q3_k_m --gpu rtx-4090 --acceptance 0.7 --notes"
    )
    assert code == 0
    assert "fewer than 4 bits" in out
    _, out, _ = run(
        "roofline recommend llama-3.1-8b --weights q4_k_m --gpu rtx-4090 --acceptance 0.7 --notes"
    )
    assert "fewer than 4 bits" not in out
