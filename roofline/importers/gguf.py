"""The header of a GGUF file: its metadata and its table of tensors. No weight is ever read.

Layout (ggml's gguf specification, versions 2 and 3, little endian): magic, version, two counts,
then keys with typed values, then tensors with name, dimensions, type and offset.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from roofline.base.errors import InputError

__all__ = ["TENSOR_TYPES", "GgufHeader", "Tensor", "read_gguf"]

MetadataValue = int | float | bool | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]

#: Scalars by the number of their type; 8 is a string, 9 an array.
_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING, _ARRAY = 8, 9
#: Tensor types by number: name, weights in a block, bytes of a block (ggml's block structures).
TENSOR_TYPES: Mapping[int, tuple[str, int, int]] = {
    0: ("fp32", 1, 4),
    1: ("fp16", 1, 2),
    2: ("q4_0", 32, 18),
    3: ("q4_1", 32, 20),
    6: ("q5_0", 32, 22),
    7: ("q5_1", 32, 24),
    8: ("q8_0", 32, 34),
    10: ("q2_k", 256, 84),
    11: ("q3_k", 256, 110),
    12: ("q4_k", 256, 144),
    13: ("q5_k", 256, 176),
    14: ("q6_k", 256, 210),
    16: ("iq2_xxs", 256, 66),
    17: ("iq2_xs", 256, 74),
    18: ("iq3_xxs", 256, 98),
    19: ("iq1_s", 256, 50),
    20: ("iq4_nl", 32, 18),
    21: ("iq3_s", 256, 110),
    22: ("iq2_s", 256, 82),
    23: ("iq4_xs", 256, 136),
    24: ("int8", 1, 1),
    29: ("iq1_m", 256, 56),
    30: ("bf16", 1, 2),
    34: ("tq1_0", 256, 54),
    35: ("tq2_0", 256, 66),
    39: ("mxfp4", 32, 17),
    40: ("nvfp4", 64, 36),
    41: ("1.125bpw", 128, 18),  # q1_0
    42: ("2.25bpw", 64, 18),  # q2_0
}
MOST_KEYS = 4096
MOST_TENSORS = 200_000
MOST_STRINGS = 1_200_000
LONGEST_NAME = 1024
LONGEST_TEXT = 1 << 20
LONGEST_KEPT = 4096  # entries of an array whose values are kept; longer ones keep only the length


@dataclass(frozen=True, kw_only=True, slots=True)
class Tensor:
    """One tensor: its dimensions, innermost first, and its type."""

    name: str
    shape: tuple[int, ...]
    type: str
    bytes: float

    @property
    def parameters(self) -> int:
        """Numbers in the tensor."""
        return prod(self.shape)


@dataclass(frozen=True, kw_only=True, slots=True)
class GgufHeader:
    """The metadata and the tensor table of a GGUF file."""

    name: str
    metadata: Mapping[str, MetadataValue]
    #: Lengths of all arrays, those whose values are not kept included.
    lengths: Mapping[str, int]
    tensors: tuple[Tensor, ...]


@dataclass(slots=True)
class _Cursor:
    """A position in the file; every read is checked against the file's end."""

    file: str
    data: mmap.mmap | bytes
    position: int = 0
    strings: int = 0
    lengths: dict[str, int] = field(default_factory=dict)

    def wrong(self, what: str) -> InputError:
        return InputError(f"{self.file}: not a usable GGUF header at byte {self.position}: {what}")

    def scalar(self, code: str) -> int | float | bool:
        size = struct.calcsize(f"<{code}")
        if self.position + size > len(self.data):
            raise self.wrong("the file ends inside it")
        (value,) = struct.unpack_from(f"<{code}", self.data, self.position)
        self.position += size
        return value  # type: ignore[no-any-return]

    def count(self, most: int, what: str) -> int:
        value = int(self.scalar("Q"))
        if value > most:
            raise self.wrong(f"{value} {what}, at most {most} are sensible")
        return value

    def text(self, most: int) -> str:
        size = self.count(most, "bytes of text")
        if self.position + size > len(self.data):
            raise self.wrong("the file ends inside a text")
        raw = bytes(self.data[self.position : self.position + size])
        self.position += size
        return raw.decode("utf-8", errors="replace")

    def skip_texts(self, number: int) -> None:
        self.strings += number
        if self.strings > MOST_STRINGS:
            raise self.wrong(f"more than {MOST_STRINGS} texts")
        data, position, end = self.data, self.position, len(self.data)
        unpack = struct.Struct("<Q").unpack_from
        for _ in range(number):
            if position + 8 > end:
                raise self.wrong("the file ends inside a list of texts")
            position += 8 + unpack(data, position)[0]
        if position > end:
            raise self.wrong("the file ends inside a list of texts")
        self.position = position

    def value(self, key: str) -> MetadataValue | None:
        kind = int(self.scalar("I"))
        if kind == _STRING:
            return self.text(LONGEST_TEXT)
        if kind == _ARRAY:
            return self._array(key)
        if kind not in _SCALARS:
            raise self.wrong(f"value type {kind} of '{key[:40]}' is unknown")
        return self.scalar(_SCALARS[kind])

    def _array(self, key: str) -> MetadataValue | None:
        kind = int(self.scalar("I"))
        number = self.count(1 << 32, "entries")
        self.lengths[key] = number
        if kind == _STRING:
            if number > MOST_STRINGS:
                raise self.wrong(f"{number} texts in '{key[:40]}'")
            self.skip_texts(number)
            return None
        if kind not in _SCALARS:
            raise self.wrong(f"array type {kind} of '{key[:40]}' is unknown")
        code = _SCALARS[kind]
        size = struct.calcsize(f"<{code}") * number
        if self.position + size > len(self.data):
            raise self.wrong("the file ends inside an array")
        start, self.position = self.position, self.position + size
        if number > LONGEST_KEPT:
            return None
        return struct.unpack_from(f"<{number}{code}", self.data, start)


def read_gguf(path: Path) -> GgufHeader:
    """Read the header of a GGUF file; raise InputError in one line for everything else."""
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"{path.name}: is no regular file; give a GGUF file")
        with path.open("rb") as file:
            if path.stat().st_size < 24:
                raise InputError(f"{path.name}: too short to be a GGUF file")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _header(_Cursor(file=path.name, data=data))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path.name}: cannot be read ({reason})") from None


def _header(cursor: _Cursor) -> GgufHeader:
    if bytes(cursor.data[:4]) != b"GGUF":
        raise InputError(
            f"{cursor.file}: does not start with GGUF; give a GGUF or config.json file"
        )
    cursor.position = 4
    version = int(cursor.scalar("I"))
    if version not in (2, 3):
        raise cursor.wrong(f"version {version}; 2 and 3 are known, in little endian")
    tensors = cursor.count(MOST_TENSORS, "tensors")
    keys = cursor.count(MOST_KEYS, "keys")
    metadata: dict[str, MetadataValue] = {}
    for _ in range(keys):
        key = cursor.text(LONGEST_NAME)
        if key in metadata or key in cursor.lengths:
            raise cursor.wrong(f"key '{key[:40]}' appears twice")
        value = cursor.value(key)
        if value is not None:
            metadata[key] = value
    table = tuple(_tensor(cursor) for _ in range(tensors))
    if len({tensor.name for tensor in table}) != len(table):
        raise cursor.wrong("a tensor appears twice")
    return GgufHeader(name=cursor.file, metadata=metadata, lengths=cursor.lengths, tensors=table)


def _tensor(cursor: _Cursor) -> Tensor:
    name = cursor.text(LONGEST_NAME)
    dimensions = int(cursor.scalar("I"))
    if not 1 <= dimensions <= 4:
        raise cursor.wrong(f"tensor '{name[:40]}' has {dimensions} dimensions")
    shape = tuple(cursor.count(1 << 40, "entries") for _ in range(dimensions))
    kind = int(cursor.scalar("I"))
    cursor.scalar("Q")
    if kind not in TENSOR_TYPES:
        raise cursor.wrong(f"tensor '{name[:40]}' has the unknown type {kind}")
    if not 0 < prod(shape) <= 1 << 50:
        raise cursor.wrong(f"tensor '{name[:40]}' has an impossible size")
    label, block, size = TENSOR_TYPES[kind]
    if shape[0] % block:
        raise cursor.wrong(f"tensor '{name[:40]}' is not made of whole blocks")
    return Tensor(name=name, shape=shape, type=label, bytes=prod(shape) / block * size)
