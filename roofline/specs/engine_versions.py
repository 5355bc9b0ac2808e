"""What holds for some versions of an engine only: names of methods, schedules, how it is timed."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field

from roofline.base.schema import Schema, placeholders

__all__ = [
    "BenchTool",
    "KnownMethod",
    "NamedFacts",
    "ScheduleRule",
    "ServerLoad",
    "Version",
    "VersionRange",
    "method_named",
    "schedule_rule",
    "version_numbers",
]

#: ``0.27``, or ``b11434`` of an engine that numbers its builds.
Version = Annotated[str, Field(pattern=r"^b?\d+(\.\d+)*$")]


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with.

    >>> version_numbers("v0.11.2rc1"), version_numbers("b11434-1a2b3c")
    ((0, 11, 2), (11434,))
    """
    match = re.match(r"[vb]?(\d{1,6}(?:\.\d{1,6})*)", version)
    return tuple(map(int, match[1].split("."))) if match else ()


class VersionRange(Schema):
    """The versions that something is known to hold for, and where that was read.

    It has ``since`` where an older version was read and lacks it, else ``seen``: the oldest that
    was read, before which it may hold or not.
    """

    since: Version | None = None  # the first
    seen: Version | None = None  # the oldest that was read
    until: Version | None = None  # the last; 0.27 includes 0.27.1
    source: str

    @property
    def dated(self) -> bool:
        """Whether it says from which version on it is known, in one of the two ways."""
        return (self.since is None) is not (self.seen is None)

    def read_in(self, version: str) -> bool:
        """Return whether a version is no older than the oldest that is known to have it.

        >>> fact = VersionRange(seen="0.22", source="here")
        >>> fact.in_range("0.11"), fact.read_in("0.11"), fact.read_in("0.22.1")
        (True, False, True)
        """
        numbers = version_numbers(version)
        return not numbers or numbers >= version_numbers(self.since or self.seen or "")

    def in_range(self, version: str) -> bool:
        """Return whether a version lies inside; one without numbers does.

        >>> held = VersionRange(since="0.28", until="0.31", source="here")
        >>> [v for v in ("0.27.1", "0.28", "0.31.2", "0.32", "dev") if held.in_range(v)]
        ['0.28', '0.31.2', 'dev']
        """
        numbers, last = version_numbers(version), version_numbers(self.until or "")
        after = self.since is None or numbers >= version_numbers(self.since)
        before = self.until is None or numbers[: len(last)] <= last
        return not numbers or (after and before)

    @property
    def words(self) -> str:
        """Say which versions these are.

        >>> VersionRange(until="0.32", source="here").words
        'up to 0.32'
        >>> VersionRange(seen="0.22", until="0.32", source="here").words
        'read from 0.22 to 0.32'
        """
        first = self.since or (f"read from {self.seen}" if self.seen else "")
        if self.until is None:
            return f"{'from ' if self.since else ''}{first} on" if first else "all versions"
        return f"{first} to {self.until}" if first else f"up to {self.until}"


class NamedFacts(VersionRange):
    """Facts that hold for the same versions and were read in one place, by their names."""

    names: Annotated[tuple[str, ...], Field(min_length=1)]


class KnownMethod(NamedFacts):
    """A name of an engine: the kind of drafter that it is priced as, or why it is not priced."""

    kind: str = ""
    refused: str = ""


def _plain(name: str) -> str:
    """Return a name without case, spaces and marks."""
    return re.sub(r"[^a-z0-9,+]", "", name.lower())


def method_named(methods: tuple[KnownMethod, ...], name: str) -> KnownMethod | None:
    """Return the method that an engine calls so; None where it is not known.

    >>> known = (KnownMethod(names=("FROZEN_KV_MTP",), kind="mtp", source="here"),)
    >>> method_named(known, "frozen-kv-mtp").kind
    'mtp'
    """
    wanted = _plain(name)
    return next((m for m in methods if wanted in map(_plain, m.names)), None)


class ScheduleRule(VersionRange):
    """What some builds do with a schedule for some kinds of drafter."""

    #: Kinds of drafter; empty for all.
    kinds: tuple[str, ...] = ()
    #: Why they take none; empty where they do.
    off: str = ""
    #: Whether steps under a schedule run in whole CUDA graphs, or in pieces between attention.
    graphs: Literal["full", "piecewise"] = "full"
    #: Share of the speed that the graph mode was seen to cost.
    cost: Annotated[float, Field(ge=0, lt=1)] = 0.0
    #: Whether a draft length of 0 may be one of the rows.
    zero: bool = True

    def holds(self, kind: str, version: str) -> bool:
        """Return whether the rule is about this kind in this version.

        >>> rule = ScheduleRule(since="0.28", until="0.31", source="here")
        >>> [v for v in ("0.27.1", "0.28", "0.31.2", "0.32") if rule.holds("mtp", v)]
        ['0.28', '0.31.2']
        """
        return (not self.kinds or kind in self.kinds) and self.in_range(version)


def schedule_rule(rules: tuple[ScheduleRule, ...], kind: str, version: str) -> ScheduleRule | None:
    """Return the first rule that holds; None where nothing is known."""
    return next((rule for rule in rules if rule.holds(kind, version)), None)


#: Values that a command line of a tool may hold.
BenchLine = Annotated[
    str,
    placeholders(
        "model",  # the target, as the engine takes it
        "file",  # the same for an engine that takes a file
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
