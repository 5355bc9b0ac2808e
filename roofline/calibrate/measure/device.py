"""A device that times kernels: in this process, or in one of its own.

A process of its own confines a kernel that hangs or crashes: it ends that process, not the run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

from roofline.base.errors import InputError
from roofline.base.interrupts import ignoring_interrupts
from roofline.calibrate.measure.backend import TOLERANCE, Backend, CaseError, Status
from roofline.calibrate.measure.cases import Case, Menu
from roofline.calibrate.measure.kernel_calls import Prepared, prepare

__all__ = ["LocalDevice", "MeasuringDevice", "Samples", "WorkerDevice", "open_backend"]


START_SECONDS = 180.0  # importing a library and opening a GPU
#: Environment variables by which BLAS libraries are told their threads before they load.
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


@dataclass(frozen=True, kw_only=True, slots=True)
class Samples:
    """The timed calls of one kernel. Times in s."""

    seconds: tuple[float, ...]
    clock: str
    cold: str
    error: float  # largest deviation from fp64, over the largest value
    waited: float = 0.0  # time spent waiting for a core, over the time measured
    note: str = ""


class MeasuringDevice(Protocol):
    """A machine that can time kernels."""

    def facts(self) -> dict[str, Any]:
        """Return what identifies the machine and its software, as plain JSON values."""

    def menu(self) -> Menu:
        """Return what it can be asked for."""

    def sample(self, case: Case, *, repeats: int, seconds: float) -> Samples:
        """Check a kernel against fp64 and time it; stop early after ``seconds`` [s]."""

    def probe(self) -> float:
        """Return the time of a fixed reference kernel [s]."""

    def state(self) -> str:
        """Return clocks and temperature now, empty where they cannot be read."""


#: The reference kernel; its format is the base format of the device.
PROBE = Case(
    kind="gemm",
    op="probe",
    dtype="",
    kernel="linear",
    shape=(("m", 16), ("n", 1024), ("k", 1024)),
    flops=0.0,
    bytes=0.0,
    rows=16.0,
)


def open_backend(device: str, library: str, threads: int) -> Backend:
    """Return the library for a device; a ``CaseError`` names what is missing."""
    if library == "numpy":
        from roofline.calibrate.measure.numpy_backend import NumpyBackend

        return NumpyBackend(threads=threads)
    from roofline.calibrate.measure.torch_backend import TorchBackend

    return TorchBackend(device=device, threads=threads)


class LocalDevice:
    """One library in this process."""

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
            reason = f"{kind}: {first}" if first and status != Status.OOM else first or kind
            raise CaseError(status, reason[:160]) from None

    def _sample(self, case: Case, repeats: int, seconds: float) -> Samples:
        prepared = prepare(case, self._backend)
        error = prepared.error()
        allowed = TOLERANCE.get(case.dtype, 2e-1)
        if not error <= allowed:
            raise CaseError(Status.WRONG, f"off fp64 by {error:.2g} of the largest value")
        times, clock, waited = self._backend.time(
            prepared.call,
            repeats=repeats,
            seconds=seconds,
            graph=case.kernel != "eager" and case.kind != "allreduce",
        )
        return Samples(seconds=times, clock=clock, cold=prepared.cold, error=error, waited=waited)

    def probe(self) -> float:
        """Return the median time of the reference kernel: 16 x 1024 by 1024 x 1024 [s]."""
        if self._probe is None:
            self._probe = prepare(replace(PROBE, dtype=self.menu().base), self._backend)
        times, _, _ = self._backend.time(self._probe.call, repeats=5, seconds=0.05)
        return sorted(times)[len(times) // 2]

    def state(self) -> str:
        """Return clocks and temperature, or the load."""
        return self._backend.state()


def serve(pipe: Connection, device: str, library: str, threads: int) -> None:
    """Answer one request after the other until the other end closes."""
    try:
        local: Any = LocalDevice(open_backend(device, library, threads))
        pipe.send(("ok", None))
    except CaseError as error:
        pipe.send(("error", error))
        return
    while True:
        try:
            name, arguments, options = pipe.recv()
        except (EOFError, ConnectionError):  # the run was stopped
            return
        try:
            pipe.send(("ok", getattr(local, name)(*arguments, **options)))
        except ConnectionError:  # the same
            return
        except CaseError as error:
            pipe.send(("error", error))
        except Exception as error:
            pipe.send(
                ("error", CaseError(Status.CRASHED, f"{type(error).__name__}: {error}"[:160]))
            )


class WorkerDevice:
    """A device in a process of its own, with a deadline for each answer."""

    def __init__(
        self, *, device: str, library: str, threads: int, patience: float, target: Any = serve
    ) -> None:
        self._settings = (device, library, threads)
        self._patience = patience
        self._target = target
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    def __enter__(self) -> WorkerDevice:
        try:
            self._start()
        except CaseError as error:
            self.close()
            raise InputError(error.reason, field="device", value=self._settings[0]) from None
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process that was started here, at once if it does not answer."""
        if self._pipe is not None:
            self._pipe.close()
        if self._process is not None:
            self._process.join(0.5)
            if self._process.is_alive():
                self._process.kill()
                self._process.join(10)
        self._process = self._pipe = None

    def _start(self) -> None:
        context = get_context("spawn")
        self._pipe, other = context.Pipe()
        before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
        os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(self._settings[2])))
        try:
            self._process = context.Process(
                target=self._target, args=(other, *self._settings), daemon=True
            )
            with ignoring_interrupts():
                self._process.start()
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value
        other.close()
        self._answer(START_SECONDS)

    def _ask(
        self, name: str, *arguments: Any, patience: float | None = None, **options: Any
    ) -> Any:
        if self._pipe is None:
            self._start()
        assert self._pipe is not None
        try:
            self._pipe.send((name, arguments, options))
        except OSError:
            self.close()
            raise CaseError(Status.CRASHED, "the measuring process ended") from None
        return self._answer(patience or self._patience)

    def _answer(self, patience: float) -> Any:
        assert self._pipe is not None
        try:
            if not self._pipe.poll(patience):
                self.close()
                raise CaseError(Status.HUNG, f"no answer within {patience:.0f} s")
            status, answer = self._pipe.recv()
        except (EOFError, OSError):
            self.close()
            raise CaseError(Status.CRASHED, "the measuring process ended") from None
        if status == "error":
            raise answer
        return answer

    def facts(self) -> dict[str, Any]:
        """Return what identifies the machine and the library."""
        facts: dict[str, Any] = self._ask("facts", patience=START_SECONDS)
        return facts

    def menu(self) -> Menu:
        """Return what the library offers."""
        menu: Menu = self._ask("menu", patience=START_SECONDS)
        return menu

    def sample(self, case: Case, *, repeats: int, seconds: float) -> Samples:
        """Check and time a kernel; hung and crashed ones are named."""
        samples: Samples = self._ask("sample", case, repeats=repeats, seconds=seconds)
        return samples

    def probe(self) -> float:
        """Return the time of the reference kernel [s]."""
        return float(self._ask("probe"))

    def state(self) -> str:
        """Return clocks and temperature, or the load."""
        return str(self._ask("state"))
