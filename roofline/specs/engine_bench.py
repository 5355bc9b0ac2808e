"""How an engine is timed: the command lines of its own tools, and how its server is loaded."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from roofline.base.schema import placeholders
from roofline.specs.engine_versions import VersionRange

__all__ = ["BenchTool", "ServerLoad"]

#: Values that a command line of a tool may hold.
BENCH_VALUES = (
    "model",  # the target, as the engine takes it
    "flags",  # of the draft length
    "layout",  # that divides the target over GPUs
    "tp",
    "rows",  # of a verify pass of one sequence
    "port",
    "batch",
    "cells",  # tokens of cache that the whole batch takes
    "context",  # tokens of a prompt
    "output",  # tokens that each request generates
    "requests",
    "repeats",
    "prompts",  # the arguments, or the file, that prompts come from
    "label",
    "result",  # name of the file of results, without its ending
    "config",  # the argument that names a file of settings
)
BenchLine = Annotated[str, placeholders(*BENCH_VALUES)]


class BenchTool(VersionRange):
    """One of an engine's tools that times a draft length at one batch and context."""

    name: str
    #: The server that it loads; empty where it runs the engine itself.
    serve: BenchLine = ""
    #: What divides the target over several GPUs, where the launch does not say it.
    layout: BenchLine = ""
    #: A file of settings to write first, and the argument that names it.
    settings: BenchLine = ""
    config: BenchLine = ""
    #: What is run before the clock: prompts of the wanted length.
    prepare: BenchLine = ""
    run: BenchLine
    #: Arguments for prompts of random tokens, and for the user's own ($prompts).
    random_prompts: BenchLine = ""
    own_prompts: BenchLine = ""
    #: What separates the two settings of a label, and stands between a name and its value.
    label: Annotated[str, placeholders("draft_length")] = ""
    held_label: Annotated[str, placeholders("held")] = ""
    #: The file of results.
    result: BenchLine
    #: Kinds of drafter that it times; empty for all.
    kinds: tuple[str, ...] = ()
    #: The largest batch that it times; None for any.
    largest_batch: int | None = None
    #: Whether it times one batch from its first token to its last, and not a stream of requests.
    one_batch: bool = False
    #: Whether its runs need tokens per step held, since it has no prompts of the user's.
    only_held: bool = False
    #: What its result leaves out, so that whoever reads it has to be told.
    unsaid: tuple[Literal["draft_length", "batch", "output", "tokens_per_step"], ...] = ()


class ServerLoad(VersionRange):
    """How a server is put on loopback, loaded with requests and read."""

    #: What is added to the command that starts it.
    arguments: Annotated[str, placeholders("host", "port", "batch", "cells", "context", "output")]
    health: str  # the page that answers 200 once it serves
    completions: str  # the page that takes requests
    body: dict[str, Any]  # of a request, beside its prompt
    tokens_key: str  # of the tokens to generate
    #: Whether the speed is read from its responses, or between two reads of its metrics.
    read: Literal["responses", "metrics"]
    metrics: str = Field(default="/metrics")
