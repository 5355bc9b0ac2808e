"""The command line: it parses, calls, renders and exits. stdout is the answer, stderr the talk."""

from __future__ import annotations

import atexit
import gc
import io
import os
import re
import sys
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["main"]

#: Set to 1 before NumPy and pydantic are imported: matrices here are small, so one thread is the
#: fastest; and pydantic's search for plugins takes longer than an answer.
_SETTINGS = ("OPENBLAS_NUM_THREADS", "PYDANTIC_DISABLE_PLUGINS")


def main() -> None:
    """Run the command line and exit; an expected failure is one line on stderr."""
    gc.set_threshold(100_000)  # an answer leaves no garbage worth a tenth of its time
    atexit.register(gc.freeze)  # nor is there any use in looking for it at the end
    for name in _SETTINGS:
        os.environ.setdefault(name, "1")
    import typer  # keeps `import roofline.cli` free

    from roofline.base.errors import RooflineError
    from roofline.cli.commands import build, commands_for
    from roofline.cli.printing import typed

    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the caller; a file opened next takes its number
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115
            if name == "stdout":
                sys.stdout = io.TextIOWrapper(_ClosedStdout(), encoding="utf-8", write_through=True)
    if sys.stderr.isatty():
        from roofline.base.progress import watch_with
        from roofline.cli.bar import bar

        watch_with(bar)
    # Typer's own copy of click is private; its public BadParameter leads to the base class.
    usage_error: type[Exception] = typer.BadParameter.__mro__[2]
    try:
        code = build(commands_for(sys.argv[1:]))(prog_name="roofline", standalone_mode=False)
        sys.stdout.flush()
    except RooflineError as error:
        _stop(typed(error.text), error.exit_code)
    except usage_error as error:
        path = getattr(getattr(error, "ctx", None), "command_path", "roofline")
        message = _unknown_option(error, path) or _plain(
            error, getattr(error, "format_message", error.__str__)()
        )
        _stop(f"{message.rstrip('.')}; see '{path} --help'", 2)
    except typer.Abort:
        _stop("stopped", 130)
    except typer.Exit as done:
        sys.exit(done.exit_code)
    except (BrokenPipeError, SystemExit) as end:
        _leave_closed_pipe(end)
    except KeyboardInterrupt:
        _stop("stopped", 130)
    except OSError as error:
        _stop(f"{error.strerror or error}: {error.filename or 'input or output'}", 2)
    sys.exit(code if isinstance(code, int) else 0)


class _ClosedStdout(io.RawIOBase):
    """What stands in for a stdout that the caller closed: an answer must not get lost there."""

    def writable(self) -> bool:
        """Let text be written to it."""
        return True

    def write(self, content: Any) -> int:
        """Refuse an answer."""
        if not content:
            return 0
        from roofline.base.errors import InputError

        raise InputError(
            "stdout is closed, so the answer has no place; leave it open, or give -o FILE"
        )


def _leave_closed_pipe(end: BaseException) -> NoReturn:
    """End in peace if whoever read stdout has read enough; else go on to end.

    Where a command prints, Typer turns a closed pipe into an exit with code 1.
    """
    if not any(isinstance(each, BrokenPipeError) for each in (end, end.__context__)):
        raise end
    # Python flushes stdout at exit, and would complain
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)


#: What says the same, by command and an option that it does not take.
_INSTEAD = {
    ("roofline compare", "--acceptance"): (
        "give NAME=ACCEPTANCE for each drafter: --drafter eagle3=0.6"
    ),
}


def _unknown_option(error: Any, path: str) -> str | None:
    """Return the refusal of an option that other commands take; None for any other fault."""
    name = getattr(error, "option_name", None)
    if name is None or not hasattr(error, "possibilities"):
        return None
    from roofline.cli.commands import commands_with

    others = commands_with(name)
    if not others:
        return None
    instead = _INSTEAD.get((path, name))
    if instead is not None:
        return f"{name}: {path} does not take it; {instead}"
    some = f"{', '.join(others[:3])} and others" if len(others) > 3 else " and ".join(others)
    near = [f"; did you mean {own}?" for own in error.possibilities or () if own.startswith(name)]
    verb = "takes" if len(others) == 1 else "take"
    return f"{name}: {path} does not take it ({some} {verb} it){''.join(near[:1])}"


def _plain(error: Exception, message: str) -> str:
    """Return a usage error in this program's words if Typer gives those of its validator."""
    kind = re.search(r"Input should be a valid (integer|number).*", message)
    if kind is None:
        return message
    details = getattr(error.__cause__, "errors", None)
    got = f", got {details()[0]['input']!r}" if details else ""
    expected = "a whole number" if kind[1] == "integer" else "a number"
    if details and "," in str(details()[0]["input"]):
        got += ": one only; 'roofline sweep' takes several of most options"
    return f"{message[: kind.start()]}expected {expected}{got}"


def _stop(message: str, code: int) -> None:
    from roofline.cli.printing import refuse

    refuse(message)
    sys.exit(code)
