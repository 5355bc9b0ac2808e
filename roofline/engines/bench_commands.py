"""The lines that time one draft length with an engine's own tools, and how long they must run."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from string import Template

from roofline.acceptance.prior import BETWEEN_REQUESTS
from roofline.base.errors import InputError
from roofline.engines.writing import Launch
from roofline.specs.engine import split_environment
from roofline.specs.engine_versions import BenchTool

__all__ = [
    "OUTPUT",
    "REPEATS",
    "BenchCommands",
    "bench_commands",
    "requests_for_noise",
    "speed_variance",
    "wait_line",
]

NOISE = 0.015
#: Tokens that each request generates.
OUTPUT = 256
#: Scatter of single steps of one load, as a share: assumed, until a run says its own.
STEP_SCATTER = 0.1
#: Requests of each client at least, so that the ends, where fewer run, weigh little.
FEWEST_EACH = 4
MOST_REQUESTS = 4096
#: Repeats of a whole batch: their scatter is seen, and the first may be left out.
REPEATS = 5
#: Acceptance where none is known: each draft with this chance.
TYPICAL_RATE = 0.7
SPARE = 32
SECONDS = 1800  # a server may take so long to start [s]


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchCommands:
    """What to paste for one draft length with one tool, in this order.

    ``result`` is the file to read then; ``unsaid`` is what it does not say. ``held`` are the tokens
    per step that the engine is made to accept, None where drafts are judged as usual.
    """

    tool: str
    draft_length: int
    settings: str = ""  # writes a file of settings
    prepare: str = ""
    server: str = ""  # to be left running beside the next lines
    wait: str = ""
    run: str
    gather: str = ""
    stop: str = ""
    result: str
    requests: int
    held: float | None
    unsaid: tuple[str, ...] = ()
    prompts_hold: str = ""  # what the file of the user's prompts holds, where one is needed

    @property
    def text(self) -> str:
        """All lines, to be pasted as one."""
        lines = (
            self.settings,
            self.prepare,
            self.server,
            self.wait,
            self.run,
            self.gather,
            self.stop,
        )
        return "\n".join(line for line in lines if line)


def speed_variance(
    *, survival: Sequence[float], output: float, batch: float, held: bool = False
) -> float:
    """Return the variance of the speed of one request, as a share squared.

    var = [c_b^2 + c_w^2 AL / L] + c_s^2 B AL / L for L tokens in L / AL steps, of which B requests
    share each. c_b is the scatter of AL between requests, sigma sum_i (1 - a_i)(S_i + ... + S_D) /
    AL for a shift of all logits a_i by sigma = 0.45 (`acceptance.prior`); c_w that of the tokens of
    single steps, sqrt(E k^2 - AL^2) / AL with E k^2 = 1 + sum (2 i + 1) S_i; c_s = 0.1 that of the
    times of steps (assumed). Where acceptance is held, requests do not differ: c_b = 0.

    With D = 1 and S_1 = 0.5: AL 1.5, c_b = 0.45 x 0.5 x 0.5 / 1.5 = 0.075, E k^2 = 2.5 and
    c_w^2 = 0.25 / 2.25; with L = 150, so 100 steps, 0.005625 + 0.001111 + 0.0001.

    >>> round(speed_variance(survival=[0.5], output=150, batch=1), 6)
    0.006836
    """
    mean = 1 + sum(survival)
    between = 0.0
    if not held:
        before = [1.0, *survival]
        for at, own in enumerate(survival):
            rate = own / before[at] if before[at] else 0.0
            between += (1 - rate) * sum(survival[at:])
    between *= BETWEEN_REQUESTS / mean
    square = 1 + sum((2 * at + 1) * own for at, own in enumerate(survival, start=1))
    within = max(square - mean**2, 0.0) / mean**2
    steps = output / mean
    return between**2 + within / steps + STEP_SCATTER**2 * batch / steps


def requests_for_noise(
    *,
    survival: Sequence[float],
    output: float,
    batch: int,
    noise: float = NOISE,
    held: bool = False,
) -> int:
    """Return how many requests a speed needs to be known within ``noise`` (one deviation).

    N = var / noise^2 (`speed_variance`), but four of each client. This is the noise inside one run;
    what differs from run to run, such as clocks, no length of one run takes away.

    0.006836 / 0.015^2 = 30.4:

    >>> requests_for_noise(survival=[0.5], output=150, batch=1)
    31
    """
    variance = speed_variance(survival=survival, output=output, batch=batch, held=held)
    return min(max(math.ceil(variance / noise**2), FEWEST_EACH * batch), MOST_REQUESTS)


def wait_line(port: int, health: str) -> str:
    """Return the line that waits until a server answers, or has ended."""
    return (
        f"for n in $(seq {SECONDS}); do curl -sf http://127.0.0.1:{port}{health} > /dev/null && "
        "break; kill -0 $SERVER || break; sleep 1; done"
    )


def bench_commands(
    launch: Launch,
    *,
    model: str,
    draft_length: int,
    batch: int,
    context: int,
    output: int = OUTPUT,
    held: float | None = None,
    survival: Sequence[float] = (),
    prompts: str | None = None,
    temperature: float = 0.0,
    noise: float = NOISE,
    port: int = 8000,
    name: str = "",
    file: str = "",
) -> tuple[BenchCommands, ...]:
    """Return the commands of each tool of the engine that can time this, the best first.

    ``held`` tokens per step need neither a good drafter nor a data set; without it the prompts are
    the user's, from ``prompts``, since acceptance on random tokens says nothing. ``model`` is the
    target as the engine takes it, ``file`` for one that takes a file. The results are called after
    ``name``.
    """
    _check(
        draft_length,
        batch=batch,
        context=context,
        output=output,
        temperature=temperature,
        noise=noise,
    )
    version = launch.engine.facts_of
    tools = [tool for tool in launch.engine.bench if tool.in_range(version)]
    found = tuple(
        _commands(
            launch,
            tool,
            model=model,
            file=file or model,
            draft_length=draft_length,
            batch=batch,
            context=context,
            output=output,
            held=held if draft_length else None,
            survival=survival or [TYPICAL_RATE**at for at in range(1, draft_length + 1)],
            prompts=prompts,
            temperature=temperature,
            noise=noise,
            port=port,
            result=_file_name(name or launch.engine.id, draft_length, batch, context),
        )
        for tool in tools
        if _times(tool, launch.drafter_kind, batch=batch, held=held, draft_length=draft_length)
    )
    if not found:
        raise InputError(
            f"no tool of {launch.engine.name} {version} is known that times this; time it as you "
            "do and add a CSV with draft_length,tokens_per_s,tokens_per_step",
            field="engine",
            value=launch.engine.id,
        )
    return found


def _check(
    draft_length: int, *, batch: int, context: int, output: int, temperature: float, noise: float
) -> None:
    for field, value, least, most in (
        ("draft_length", draft_length, 0, 64),
        ("batch", batch, 1, 65_536),
        ("context", context, 1, 2**27),
        ("output", output, 2, 2**20),
        ("temperature", temperature, 0, 10),
        ("noise", noise, 1e-4, 0.5),
    ):
        if not least <= value <= most:
            raise InputError(f"expected {least:g} to {most:g}", field=field, value=f"{value:g}")


def _times(
    tool: BenchTool, kind: str, *, batch: int, held: float | None, draft_length: int
) -> bool:
    """Return whether a tool can time this."""
    if tool.largest_batch is not None and batch > tool.largest_batch:
        return False
    if tool.kinds and kind not in tool.kinds:
        return False
    return not tool.random_only or held is not None or draft_length == 0 or bool(tool.kinds)


def _file_name(name: str, draft_length: int, batch: int, context: int) -> str:
    """Return the name of a run's files: letters, digits, dots and dashes, safe to paste.

    >>> _file_name("my run/$(x)", 3, 8, 1024)
    'my-run-x-D3-b8-c1024'
    """
    plain = re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.") or "run"
    return f"{plain}-D{draft_length}-b{batch}-c{context}"


def _commands(
    launch: Launch,
    tool: BenchTool,
    *,
    model: str,
    file: str,
    draft_length: int,
    batch: int,
    context: int,
    output: int,
    held: float | None,
    survival: Sequence[float],
    prompts: str | None,
    temperature: float,
    noise: float,
    port: int,
    result: str,
) -> BenchCommands:
    running = 1 if "$batch" in tool.serve else batch  # else its own line says how many run
    environment, flags, held = _flags(launch, draft_length, running, held)
    requests = requests_for_noise(
        survival=survival, output=output, batch=batch, noise=noise, held=held is not None
    )
    placement = launch.placement
    layout = Template(tool.layout).substitute(tp=placement.tp)
    made_up = held is not None or draft_length == 0 or tool.random_only
    settings = ""
    if tool.settings:  # the flags are the lines of a file
        settings, flags = _settings(flags, f"{result}.yaml"), ""
    label = {"draft_length": str(draft_length), "batch": str(batch)}
    if held is not None:
        label["held"] = f"{held:.4g}"
    values = {
        "model": shlex.quote(model),
        "file": shlex.quote(file),
        "flags": flags,
        "layout": layout if placement.dp == 1 and placement.tp > 1 else "",
        "tp": placement.tp,
        "rows": draft_length + 1,
        "port": port,
        "batch": batch,
        "cells": batch * (context + output + draft_length + SPARE),
        "context": context,
        "output": output,
        "requests": requests,
        "repeats": REPEATS,
        "label": tool.label_join.join(f"{key}={value}" for key, value in label.items()),
        "temperature": f"{temperature:g}",
        "result": result,
        "settings": "",
    }
    if settings:
        values["settings"] = Template(tool.settings).substitute(values)
    own = shlex.quote(prompts or "PATH-TO-PROMPTS")
    source = tool.random_prompts if made_up else tool.own_prompts
    values["prompts"] = Template(source).substitute(values | {"prompts": own})

    def line(template: str, *, under: str = "") -> str:
        text = re.sub(r" {2,}", " ", Template(template).substitute(values)).strip()
        return f"{under} {text}" if under and text else text

    server = line(tool.serve, under=environment)
    return BenchCommands(
        tool=tool.name,
        draft_length=draft_length,
        settings=settings,
        prepare=line(tool.prepare) if made_up else "",
        server=f"{server} > {result}.log 2>&1 & SERVER=$!" if server else "",
        wait=wait_line(port, tool.health) if server else "",
        run=line(tool.run, under="" if server else environment),
        gather=line(tool.gather),
        stop="kill $SERVER; wait $SERVER" if server else "",
        result=line(tool.result),
        requests=batch * REPEATS if tool.whole_batches else requests,
        held=held,
        unsaid=tool.unsaid,
        prompts_hold="" if made_up else line(tool.prompts_hold),
    )


def _flags(
    launch: Launch, draft_length: int, running: int, held: float | None
) -> tuple[str, str, float | None]:
    """Return what stands before the command, the flags, and the tokens per step that are held.

    They are those of one draft length at every batch, never a schedule.
    """
    text = launch.flags(draft_length, running=running)
    if held is not None:
        timed = launch.flags_to_time(draft_length, held, running=running)
        hold = launch.engine.hold_acceptance
        if timed is None or hold is None:
            raise InputError(
                f"cannot be made to accept {held:g} tokens per step; time it with drafts that are "
                "judged",
                where=launch.engine.name,
            )
        text = timed
        held = hold.held(held, kind=launch.drafter_kind, version=launch.engine.runs_version)
    if text == launch.left_out:
        return "", "", None
    return *split_environment(text), held


def _settings(flags: str, file: str) -> str:
    r"""Return the line that writes flags, joined by plus signs, into a YAML file.

    >>> print(_settings("{a: 1, b: true} + c: {d: 2}", "run.yaml"))
    printf '%s\n' 'a: 1' 'b: true' 'c: {d: 2}' > run.yaml
    """
    if not flags:
        return ""
    lines = []
    for part in flags.split(" + "):
        inner = part[1:-1] if part.startswith("{") and part.endswith("}") else None
        lines += [part] if inner is None else inner.split(", ")
    return f"printf '%s\\n' {' '.join(map(shlex.quote, lines))} > {file}"
