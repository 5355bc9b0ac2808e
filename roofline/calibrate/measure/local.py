"""A device in this process: prepare a kernel, check it, time it."""

from __future__ import annotations

from typing import Any

from roofline.calibrate.measure.backend import TOLERANCE, Backend
from roofline.calibrate.measure.case import Case, Menu
from roofline.calibrate.measure.device import CaseError, Samples
from roofline.calibrate.measure.prepared import Prepared, prepare

__all__ = ["LocalDevice", "open_backend"]

PROBE = Case(
    kind="gemm", op="probe", dtype="", kernel="linear",
    shape=(("m", 16), ("n", 1024), ("k", 1024)), flops=0.0, bytes=0.0, rows=16.0,
)  # fmt: skip


def open_backend(device: str, library: str, threads: int) -> Backend:
    """Return the library for a device; ``unsupported`` names what is missing."""
    if library == "numpy":
        from roofline.calibrate.measure.numpy_backend import NumpyBackend

        return NumpyBackend(threads=threads)
    from roofline.calibrate.measure.torch_backend import TorchBackend

    return TorchBackend(device=device, threads=threads)


class LocalDevice:
    """One library, asked directly."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._probe: Prepared | None = None

    def facts(self) -> dict[str, Any]:
        """Return what identifies the machine and the library."""
        return self._backend.facts()

    def menu(self) -> Menu:
        """Return what the library offers."""
        return self._backend.menu()

    def sample(self, case: Case, *, repeats: int, seconds: float) -> Samples:
        """Check a kernel against fp64 and time it."""
        try:
            return self._sample(case, repeats, seconds)
        except CaseError:
            raise
        except Exception as error:
            status = self._backend.failure(error)
            if status is None:
                raise
            first, kind = str(error).partition("\n")[0], type(error).__name__
            told = f"{kind}: {first}" if first and status != "oom" else first or kind
            raise CaseError(status, told[:160]) from None

    def _sample(self, case: Case, repeats: int, seconds: float) -> Samples:
        prepared = prepare(case, self._backend)
        error = prepared.error()
        allowed = TOLERANCE.get(case.dtype, 2e-1)
        if not error <= allowed:
            raise CaseError("wrong", f"off fp64 by {error:.2g} of the largest value")
        found, clock, waited = self._backend.time(
            prepared.call, repeats=repeats, seconds=seconds,
            graph=case.kernel != "eager" and case.kind != "allreduce",
        )  # fmt: skip
        return Samples(seconds=found, clock=clock, cold=prepared.cold, error=error, waited=waited)

    def probe(self) -> float:
        """Return the median time of the reference kernel: 16 x 1024 by 1024 x 1024 [s]."""
        if self._probe is None:
            from dataclasses import replace

            self._probe = prepare(replace(PROBE, dtype=self.menu().base), self._backend)
        found, _, _ = self._backend.time(self._probe.call, repeats=5, seconds=0.05)
        return sorted(found)[len(found) // 2]

    def state(self) -> str:
        """Return clocks and temperature, or the load."""
        return self._backend.state()
