"""One timed kernel, what a device offers, and the work that the laws count for a kernel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from roofline.kernels.forward import decode
from roofline.kernels.ops import Op
from roofline.specs.formats import resolve
from roofline.specs.network import ModelSpec
from roofline.specs.placement import Placement

__all__ = ["Case", "Menu", "case_of", "kernels"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One kernel at one shape. ``flops`` [FLOP] and ``bytes`` [B] are those the laws count."""

    kind: str
    op: str
    dtype: str
    kernel: str
    shape: tuple[tuple[str, int], ...]
    flops: float
    bytes: float
    rows: float
    tier: int = 0  # 0 first; later ones while the budget lasts

    @property
    def key(self) -> str:
        """Return the name that the case has in a file of measurements."""
        return f"{self.kind}/{self.op}/{self.dtype}/{self.kernel}/{self.shape_text}"

    @property
    def shape_text(self) -> str:
        """Return the shape as the file writes it: ``m=1 n=4096 k=4096``."""
        return " ".join(f"{name}={value}" for name, value in self.shape)

    @property
    def anchors(self) -> bool:
        """Whether the machine's bandwidth or peak is read from this case."""
        return self.kind == "stream" or self.op == "peak"

    def size(self, name: str) -> int:
        """Return one number of the shape."""
        return dict(self.shape)[name]


@dataclass(frozen=True, kw_only=True, slots=True)
class Menu:
    """What a device can be asked for."""

    base: str  # format of everything that is not named below
    products: tuple[str, ...]  # formats of matrix products
    caches: tuple[str, ...]  # formats of the KV cache
    attention: tuple[str, ...]  # kernels, the one that a model would use first
    experts: tuple[tuple[str, str], ...] = ()  # (format, kernel), the likeliest to serve first
    graphs: bool = False  # launches can be captured
    ranks: int = 1  # accelerators that can be reduced over
    long: bool = True  # M and L as large as a GPU deserves


def kernels(
    model: ModelSpec, *, batch: int, rows: int, context: int, placement: Placement | None = None
) -> list[Op]:
    """Return the kernels of one pass at plain numbers, in the model's own formats."""
    formats = {model.dtype, *model.dtypes.values()}
    precision, _ = resolve(
        stored=model.stored(), base=model.dtype, kv_stored=None, available=sorted(formats),
        gpu="any",
    )  # fmt: skip
    where = placement or Placement()
    return decode(model, precision, where, batch=batch, context=context, rows=rows)


def case_of(op: Op, dtype: str, kernel: str, shape: Iterable[tuple[str, int]], tier: int) -> Case:
    """Return the case of one kernel, with the work that the laws count for it."""
    return Case(
        kind=op.kind.value, op=op.name, dtype=dtype, kernel=kernel, shape=tuple(shape),
        flops=float(op.flops), bytes=float(op.bytes), rows=float(op.rows), tier=tier,
    )  # fmt: skip
