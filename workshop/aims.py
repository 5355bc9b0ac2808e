"""Which kernel laws miss the errors that are aimed at: python -m workshop.aims."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import NamedTuple

from roofline.base.resources import bundled_names
from roofline.specs.gpu import GPU_SHELF, load_overlay
from roofline.specs.laws import LawBlock
from roofline.timing.lawbook import ENGINES, TRUSTED

__all__ = ["AIMS", "Aim", "MeasuredLaw", "measured_laws"]


class Aim(NamedTuple):
    """The largest errors on held-out shapes that a law should have."""

    median: float
    p90: float


#: By kind of kernel, of products by the format of their weights as well.
AIMS = {
    "gemm bf16": Aim(0.06, 0.18),
    "gemm fp8": Aim(0.07, 0.24),
    "gemm nvfp4": Aim(0.05, 0.16),
    "attention": Aim(0.07, 0.22),
    "moe": Aim(0.08, 0.26),
}


class MeasuredLaw(NamedTuple):
    """One shipped law that some answer may rest on, and its errors on all its held-out rows."""

    kind: str  # of `AIMS`
    gpu: str
    engine: str
    law: str
    rows: int
    median: float
    p90: float

    @property
    def misses(self) -> bool:
        """Whether an error is over its aim."""
        aim = AIMS[self.kind]
        return self.median > aim.median or self.p90 > aim.p90


def measured_laws() -> Iterator[MeasuredLaw]:
    """Yield every law with an aim that is good enough to be used."""
    for gpu in bundled_names(GPU_SHELF):
        for engine in ENGINES:
            overlay = load_overlay(gpu, engine)
            for block in overlay.calibration if overlay else ():
                kind, errors = _kind(block), block.evidence
                if kind in AIMS and errors.median_error <= TRUSTED:
                    yield MeasuredLaw(
                        kind=kind,
                        gpu=gpu,
                        engine=engine,
                        law=_name(block),
                        rows=errors.rows_held_out,
                        median=errors.median_error,
                        p90=errors.p90_error,
                    )


def _kind(block: LawBlock) -> str:
    if block.kind != "gemm":
        return block.kind
    return f"gemm {block.dtype.removesuffix('-block')}"


def _name(block: LawBlock) -> str:
    words = (getattr(block, name, None) for name in ("dtype", "kernel", "head_dim"))
    return " ".join(str(word) for word in words if word)


def main() -> int:
    """Print each law that misses its aim, the furthest first."""
    laws = list(measured_laws())
    missing = sorted((law for law in laws if law.misses), key=lambda law: -law.p90)
    for law in missing:
        where = f"{law.kind:10} {law.gpu}.{law.engine} {law.law}"
        sys.stdout.write(f"{where}: median {100 * law.median:.1f} %, p90 {100 * law.p90:.1f} %\n")
    sys.stdout.write(f"{len(missing)} of {len(laws)} laws\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
