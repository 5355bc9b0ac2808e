"""Options of commands that read a running server, and the reading itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from roofline.base.errors import InputError
from roofline.cli.values import SECONDS, amount

if TYPE_CHECKING:
    from roofline.advice.deployment import Configuration
    from roofline.advice.question import Workload
    from roofline.questions.live import Live

__all__ = ["INTERVAL", "TIMEOUT", "given_by_flag", "live_question", "seconds"]

LONGEST_WAIT = 3600.0
INTERVAL = Annotated[
    str,
    typer.Option(help="Time that counters are watched: 30s, 5m; 0 reads once, since its start."),
]
TIMEOUT = Annotated[
    str, typer.Option(help="Time allowed for all of the server's answers together.")
]


def given_by_flag(context: typer.Context) -> frozenset[str]:
    """Return the names of the options that the user gave."""
    return frozenset(
        name
        for name in context.params
        if (source := context.get_parameter_source(name)) is not None and source.name != "DEFAULT"
    )


def seconds(flag: str, text: str, *, least: float, most: float = LONGEST_WAIT) -> float:
    """Read ``30s``, ``5m``, ``1h`` or a plain number of seconds.

    >>> seconds("--interval", "5m", least=0), seconds("--interval", "0", least=0)
    (300.0, 0.0)
    """
    value = amount(flag, text, SECONDS, "a time such as 30s or 5m")
    if not least <= value <= most:
        raise InputError(f"{flag} {text}: expected {least:g} to {most:g} seconds")
    return value


def live_question(
    url: str,
    configuration: Configuration,
    workload: Workload,
    context: typer.Context,
    *,
    interval: str,
    timeout: str,
    batches: tuple[int, ...] | None,
    contexts: tuple[int, ...] | None,
) -> Live:
    """Read the server at ``url``; what it says fills the options that were not given."""
    from roofline.engines.server import read_server
    from roofline.questions.live import check_known, question_from

    wait = seconds("--interval", interval, least=0)
    patience = seconds("--timeout", timeout, least=0.01)
    given = given_by_flag(context)
    if "engine" in given:
        from roofline.specs.engine import load_engine

        load_engine(str(configuration.engine))  # a misspelt name need not wait for the reading
    if "gpu" in given:
        from roofline.specs.gpu import load_hardware

        load_hardware(str(configuration.gpu))
    serving = read_server(
        url,
        interval=wait,
        timeout=patience,
        check=lambda first: check_known(first, configuration, given=given),
    )
    return question_from(
        serving, configuration, workload, given=given, batches=batches, contexts=contexts
    )
