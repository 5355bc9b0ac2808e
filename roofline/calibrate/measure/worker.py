"""A device in a process of its own: a hung or crashing kernel takes that process, not the run."""

from __future__ import annotations

import os
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from roofline.base.errors import InputError
from roofline.calibrate.measure.case import Case, Menu
from roofline.calibrate.measure.device import CaseError, Samples

__all__ = ["WorkerDevice"]

START_SECONDS = 180.0  # importing a library and opening a GPU
#: Environment variables by which BLAS libraries are told their threads before they load.
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


def serve(pipe: Connection, device: str, library: str, threads: int) -> None:
    """Answer one request after the other until the other end closes."""
    from roofline.calibrate.measure.local import LocalDevice, open_backend

    try:
        local: Any = LocalDevice(open_backend(device, library, threads))
        pipe.send(("ok", None))
    except CaseError as error:
        pipe.send(("error", error))
        return
    while True:
        try:
            name, arguments, options = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(("ok", getattr(local, name)(*arguments, **options)))
        except CaseError as error:
            pipe.send(("error", error))
        except Exception as error:
            pipe.send(("error", CaseError("crashed", f"{type(error).__name__}: {error}"[:160])))


class WorkerDevice:
    """The device seen through a pipe, with a deadline for each answer."""

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
            raise InputError(f"--device {self._settings[0]}: {error.reason}") from None
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
            raise CaseError("crashed", "the measuring process ended") from None
        return self._answer(patience or self._patience)

    def _answer(self, patience: float) -> Any:
        assert self._pipe is not None
        try:
            if not self._pipe.poll(patience):
                self.close()
                raise CaseError("hung", f"no answer within {patience:.0f} s")
            status, answer = self._pipe.recv()
        except (EOFError, OSError):
            self.close()
            raise CaseError("crashed", "the measuring process ended") from None
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
