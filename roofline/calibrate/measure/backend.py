"""What a library must offer to be measured: a decoder's kernels and a clock; how cases end."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from roofline.calibrate.measure.cases import Menu

__all__ = ["FAILURES", "TOLERANCE", "Backend", "CaseError", "Status", "Timed"]


class Status(StrEnum):
    """What became of a case in one round, as the file of measurements has it."""

    OK = "ok"
    NOISY = "noisy"  # its samples disagree too much to be fitted
    WRONG = "wrong"  # off the same result in fp64
    OOM = "oom"
    UNSUPPORTED = "unsupported"
    HUNG = "hung"
    CRASHED = "crashed"


#: What is not tried again in later rounds.
FAILURES = (Status.UNSUPPORTED, Status.WRONG, Status.OOM, Status.HUNG, Status.CRASHED)
#: Largest deviation from fp64, over the largest value, that a correct kernel may show.
TOLERANCE = {"fp32": 1e-3, "bf16": 3e-2, "fp16": 1e-2, "fp8": 1.5e-1, "int8-wo": 5e-2}
#: Seconds of each call, the clock, and the time spent waiting for a core over the time measured.
Timed = tuple[tuple[float, ...], str, float]


class Backend(Protocol):
    """One library on one device. Arrays are the library's; shapes are row-major.

    Attention takes queries (batch, KV heads, G q, head), keys and values (batch, KV heads, tokens,
    head), and returns rows (batch q, query heads x head). The q rows of a sequence are its last q
    tokens: row i does not see the tokens after its own.
    """

    name: str

    def facts(self) -> dict[str, Any]:
        """Return what identifies the machine and the library."""

    def menu(self) -> Menu:
        """Return the formats and attention kernels on offer."""

    def operand(self, shape: tuple[int, ...], dtype: str, index: int) -> Any:
        """Return random values; another ``index`` is another place in memory."""

    def copy(self, array: Any) -> Any:
        """Return a copy in memory of its own."""

    def cold_copies(self, count: int, dtype: str) -> int:
        """Return how many operands of ``count`` elements, used in turn, never meet in a cache."""

    def packed(self, matrix: Any, dtype: str) -> Any:
        """Return an n x k matrix as ``linear`` takes it in this format."""

    def linear(self, x: Any, weight: Any, dtype: str) -> Any:
        """Return x times the transposed weight."""

    def embedding(self, table: Any, ids: Any) -> Any:
        """Return the rows of the table."""

    def norm(self, x: Any, residual: Any, gain: Any) -> tuple[Any, Any]:
        """Return the normalised sum of both, and the sum."""

    def qk_norm(self, heads: Any, gain: Any) -> Any:
        """Return each head normalised."""

    def rope_write(self, qkv: Any, cache: Any, angles: Any, sizes: dict[str, int]) -> Any:
        """Rotate queries and keys, write keys and values, return packed queries."""

    def attention(self, queries: Any, keys: Any, values: Any, *, q: int, kernel: str) -> Any:
        """Return attention of q rows per sequence by one of the kernels on the menu."""

    def activation(self, gate_up: Any) -> Any:
        """Return silu of the first half times the second."""

    def sampling(self, logits: Any) -> Any:
        """Return the most likely token of each row."""

    def top_k(self, logits: Any, count: int) -> Any:
        """Return the ``count`` highest of each row, in any order."""

    def indices(self, array: NDArray[np.intp]) -> Any:
        """Return whole numbers as an array of the library."""

    def experts(self, x: Any, choice: Any, up: Any, down: Any, *, kernel: str) -> Any:
        """Return the mean of the chosen experts of each row by a kernel on the menu.

        x (tokens, hidden), choice (tokens, top k), up (experts, gate and linear half, hidden),
        down (experts, hidden, width). Sorting the rows by expert and back is part of it.
        """

    def ids(self, count: int, below: int) -> Any:
        """Return random whole numbers."""

    def extra(self, op: str, count: int, index: int) -> Callable[[], Any]:
        """Return a stream, launch or collective kernel."""

    def to_float64(self, array: Any) -> NDArray[np.float64]:
        """Return a copy that NumPy can compute with."""

    def time(
        self, call: Callable[[int], Any], *, repeats: int, seconds: float, graph: bool = True
    ) -> Timed:
        """Time calls with rising index; at least three, fewer than ``repeats`` if slow.

        ``graph`` off: launched one by one even where they could be captured.
        """

    def state(self) -> str:
        """Return clocks and temperature."""

    def failure(self, error: BaseException) -> Status | None:
        """Return the status of an expected failure, None for a bug."""


class CaseError(Exception):
    """One case cannot be measured; the campaign goes on without it."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return CaseError, (self.status, self.reason)
