"""How an engine is timed: the command lines of its own tools, and how its server is loaded."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from roofline.base.schema import placeholders
from roofline.specs.engine_versions import VersionRange

__all__ = ["BenchTool", "ServerLoad"]

#: Values that a command line of a tool may hold.
BenchLine = Annotated[
    str,
    placeholders(
        "model",  # the target, as the engine takes it
        "flags",  # of the draft length
        "layout",  # what divides the target over GPUs
        "tp",
        "rows",  # of a verify pass of one sequence
        "port",
        "batch",
        "cells",  # tokens of cache that the whole batch takes
        "context",  # tokens of a prompt
        "output",  # tokens that each request generates
        "requests",
        "repeats",  # of one batch
        "prompts",  # the arguments for prompts, and in them the user's file
        "label",
        "temperature",  # of sampling
        "result",  # the name of the result's file, without its ending
        "settings",  # the argument that names a file of settings
    ),
]


class BenchTool(VersionRange):
    """One of an engine's tools that times a draft length at one batch and context."""

    name: str
    #: The server that it loads, and its page that answers once it serves; empty where it runs the
    #: engine itself.
    serve: BenchLine = ""
    health: str = "/health"
    #: What divides the target over several GPUs.
    layout: BenchLine = ""
    #: The argument that names a file with the flags, where the engine takes them so.
    settings: BenchLine = ""
    #: What is run before the clock.
    prepare: BenchLine = ""
    run: BenchLine
    #: What is run after it.
    gather: BenchLine = ""
    #: Arguments for prompts of random tokens, and for the user's own.
    random_prompts: BenchLine = ""
    own_prompts: BenchLine = ""
    #: What a file of prompts holds.
    prompts_hold: str = ""
    #: What stands between a name and its value, and between two of them, in a label.
    label_join: str = ","
    #: The result's file.
    result: BenchLine
    #: Kinds of drafter that it times; empty for all.
    kinds: tuple[str, ...] = ()
    #: The largest batch that it times; None for any.
    largest_batch: int | None = None
    #: Whether it times the same batch again and again, and not a stream of requests.
    whole_batches: bool = False
    #: Whether it has prompts of random tokens only, so that tokens per step must be held.
    random_only: bool = False
    #: What its result does not say, so that whoever reads it has to be told.
    unsaid: tuple[Literal["draft_length", "batch", "output"], ...] = ()


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
    metrics: str = "/metrics"
