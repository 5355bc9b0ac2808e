"""Execution paths: which kernel an engine's own dispatch runs attention by, and how it is launched.

`data/execution_paths.yaml` holds one entry for each engine, range of versions, generation of
accelerator, kind of attention, cache format and number of rows. The first entry that matches says
how a pass reads the cache, whether a CUDA graph holds it, and whether the host has to wait for the
accelerator before it can launch. Each entry cites the engine's source, a measurement, or says that
it is assumed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from functools import cache
from typing import Literal, NamedTuple

from pydantic import Field

from roofline.base import resources
from roofline.base.schema import Bandwidth, Document, Duration, Id, PositiveInt, Schema
from roofline.specs.engine import EngineProfile, Graphs, Overhead
from roofline.specs.engine_versions import version_numbers
from roofline.specs.formats import DType, bytes_per_element
from roofline.specs.mixers import (
    Attention,
    CompressedAttention,
    CrossAttention,
    GroupedQueryAttention,
    LatentAttention,
    NoAttention,
)
from roofline.specs.network import NetworkSpec
from roofline.specs.placement import Placement, StateRows, VerifyAttention

__all__ = [
    "AttentionKind",
    "AttentionPath",
    "Basis",
    "CapturedRows",
    "ExecutionPaths",
    "GraphMode",
    "PathCosts",
    "Role",
    "Serving",
    "attention_kinds",
    "execution_paths",
    "graphs_on_path",
    "matched",
    "overhead_on_path",
]

Role = Literal["target", "drafter"]
Rows = Literal["one", "several"]
CacheFormat = Literal["wide", "narrow"]


class AttentionKind(StrEnum):
    """What a layer's attention is to the engine that picks its kernel."""

    GROUPED = "grouped"  # every head or group of heads has keys of its own, the whole context
    WINDOWED = "windowed"  # the same over a sliding window
    CHUNKED = "chunked"  # the same over the present chunk
    SPARSE = "sparse"  # the entries that an indexer picked
    LATENT = "latent"  # one latent vector for all heads (MLA)
    COMPRESSED = "compressed"  # one vector per entry, old ones compressed
    STATE = "state"  # a recurrent state


class GraphMode(StrEnum):
    """What of a pass is launched as a captured CUDA graph."""

    FULL = "full"  # all of it
    PIECEWISE = "piecewise"  # all but attention, which is launched between two pieces
    NONE = "none"  # nothing: kernel by kernel


class Basis(StrEnum):
    """What an entry rests on."""

    SOURCE = "source"  # the engine's own code
    MEASURED = "measured"
    ASSUMED = "assumed"


class Serving(NamedTuple):
    """What an engine's dispatch looks at, of one network in one deployment."""

    engine: str
    version: str  # empty is today's build
    generation: str
    role: Role
    model: str
    kv: DType


class _Entry(Schema):
    """What an entry is about."""

    engine: Id
    since: str | None = Field(default=None, pattern=r"^\d+(\.\d+)*$")
    until: str | None = Field(default=None, pattern=r"^\d+(\.\d+)*$")
    #: Generations of accelerators; every one if not stated.
    generations: tuple[str, ...] = ()
    basis: Basis
    source: str

    def covers(self, serving: Serving) -> bool:
        """Return whether the entry is about this engine, version and generation."""
        generations = self.generations
        return (
            self.engine == serving.engine
            and (not generations or serving.generation in generations)
            and in_range(serving.version, self.since, self.until)
        )


def in_range(version: str, since: str | None, until: str | None) -> bool:
    """Return whether a version lies in a range; no version is today's, which only ``until`` ends.

    >>> in_range("0.24.0", "0.12", "0.24"), in_range("0.24.0", None, "0.23")
    (True, False)
    >>> in_range("", "0.12", None), in_range("", None, "0.24")
    (True, False)
    """
    numbers = version_numbers(version)
    if not any(numbers):
        return until is None
    first, last = version_numbers(since or "0"), version_numbers(until or "")
    return numbers >= first and numbers[: len(last)] <= last if last else numbers >= first


class StateRowsEntry(Schema):
    """What several rows of a recurrent state cost, as the file writes it."""

    turn: Duration
    rate: Bandwidth
    copies: float = Field(default=0.0, ge=0)
    source: str


class AttentionPath(_Entry):
    """How one kind of attention runs."""

    id: Id
    roles: tuple[Role, ...] = ("target", "drafter")
    attention: tuple[AttentionKind, ...]
    #: Caches of 16 bits, or narrower ones; both if not stated.
    kv: CacheFormat | None = None
    #: Passes of one row per sequence, or of several; both if not stated.
    rows: Rows | None = None
    backend: str  # as the engine names it
    reads: VerifyAttention | Literal["prefill"] = VerifyAttention.KV_ONCE
    tile_rows: PositiveInt | None = None
    #: Whether each warp converts a narrow cache for its own rows of queries (FlashInfer's prefill).
    own_warps: bool = False
    graph: GraphMode = GraphMode.FULL
    #: What several rows of a recurrent state cost.
    state_rows: StateRowsEntry | None = None
    #: Whether the host reads the lengths back before each pass, and so waits for the last one.
    waits: bool = False

    def matches(self, serving: Serving, kind: AttentionKind, rows: Rows) -> bool:
        """Return whether this is how such a pass runs."""
        narrow = "narrow" if bytes_per_element(serving.kv) < NARROW else "wide"
        return (
            self.covers(serving)
            and serving.role in self.roles
            and kind in self.attention
            and self.kv in (None, narrow)
            and self.rows in (None, rows)
        )

    @property
    def several_states(self) -> StateRows | None:
        """What several rows of a recurrent state cost."""
        entry = self.state_rows
        if entry is None:
            return None
        return StateRows(turn=entry.turn, rate=entry.rate, copies=entry.copies)

    @property
    def verify_attention(self) -> VerifyAttention:
        """How its passes read the cache; a prefill kernel reads it once for all rows too."""
        return VerifyAttention.KV_ONCE if self.reads == "prefill" else self.reads


#: A cache of fewer bytes per element has kernels of its own.
NARROW = 1.5


class CapturedRows(_Entry):
    """Rows that an engine captures CUDA graphs for where that differs from its profile."""

    #: How the ids of models begin; every model if not stated.
    models: tuple[str, ...] = ()
    rows: PositiveInt


class PathCosts(Schema):
    """What the paths cost that leave the graph or make the host wait."""

    #: A pass that waits, in plain decoding, and in a step with drafts in full graphs or pieces [s].
    wait_plain: Duration
    wait_full: Duration
    wait_piecewise: Duration
    #: Launching one layer's attention between two pieces of a graph [s].
    outside_graph: Duration
    source: str


class ExecutionPaths(Document):
    """The registry."""

    attention: tuple[AttentionPath, ...]
    captured: tuple[CapturedRows, ...]
    costs: PathCosts

    def of(self, serving: Serving, kind: AttentionKind, *, several: bool) -> AttentionPath | None:
        """Return the first entry about a pass; None where the registry knows nothing."""
        rows: Rows = "several" if several else "one"
        return next((p for p in self.attention if p.matches(serving, kind, rows)), None)

    def of_most(
        self, network: NetworkSpec, serving: Serving, *, several: bool
    ) -> AttentionPath | None:
        """Return the entry about the kind of attention to a cache that most layers have."""
        kinds = [kind for kind in attention_kinds(network) if kind is not AttentionKind.STATE]
        return self.of(serving, max(kinds, key=kinds.count), several=several) if kinds else None

    def captured_rows(self, serving: Serving) -> int | None:
        """Return the rows captured where an entry says so."""
        for entry in self.captured:
            named = not entry.models or serving.model.startswith(entry.models)
            if named and entry.covers(serving):
                return entry.rows
        return None

    def placed(
        self,
        placement: Placement,
        network: NetworkSpec,
        serving: Serving,
        *,
        given: bool,
        tile_given: bool = False,
    ) -> Placement:
        """Return the placement with how a pass runs.

        ``given`` leaves how a verify pass reads a cache, and ``tile_given`` the rows of a tile.
        Where layers differ, the kind that most layers have decides.
        """
        if AttentionKind.STATE in attention_kinds(network):
            state = self.of(serving, AttentionKind.STATE, several=True)
            several = state.several_states if state is not None else None
            placement = replace(placement, state_rows=several)
        plain = self.of_most(network, serving, several=False)
        if plain is not None:
            placement = replace(placement, plain_attention=plain.verify_attention)
        path = self.of_most(network, serving, several=True)
        if path is None:
            return placement
        placement = replace(placement, own_warps=path.own_warps)
        if path.tile_rows and not tile_given:
            placement = replace(placement, tile_rows=path.tile_rows)
        if given:
            return placement
        return replace(
            placement,
            verify_attention=path.verify_attention,
            assumed_reads=path.basis is Basis.ASSUMED,
        )

    def host_seconds(
        self, network: NetworkSpec, serving: Serving, *, several: bool
    ) -> tuple[float, float]:
        """Return what one pass waits, and what its attention costs outside the graph [s].

        A network with one layer whose builder waits waits once; every layer whose attention is
        outside the graph is launched by itself.
        """
        kinds = attention_kinds(network)
        paths = [self.of(serving, kind, several=several) for kind in dict.fromkeys(kinds)]
        known = [path for path in paths if path is not None]
        # one kind of attention without full graphs takes the whole pass out of them
        outside = any(path.graph is GraphMode.PIECEWISE for path in known)
        waits = any(path.waits for path in known)
        return float(waits), len(kinds) * self.costs.outside_graph * outside


def attention_kinds(network: NetworkSpec) -> list[AttentionKind]:
    """Return the kind of each layer that attends to a cache or keeps a state."""
    found: list[AttentionKind] = []
    for run in network.layers:
        kind = _kind(run.attention)
        if kind is not None:
            found += [kind] * run.repeat
    return found


def _kind(attention: Attention) -> AttentionKind | None:
    match attention:
        case NoAttention() | CrossAttention():
            return None
        case CompressedAttention():
            return AttentionKind.COMPRESSED
        case GroupedQueryAttention() | LatentAttention() if attention.top_k is not None:
            return AttentionKind.SPARSE
        case LatentAttention():
            return AttentionKind.LATENT
        case GroupedQueryAttention():
            if attention.window is None:
                return AttentionKind.GROUPED
            chunked = attention.window_kind == "chunked"
            return AttentionKind.CHUNKED if chunked else AttentionKind.WINDOWED
        case _:
            return AttentionKind.STATE


def overhead_on_path(
    overhead: Overhead, target: NetworkSpec, drafter: NetworkSpec | None, serving: Serving
) -> Overhead:
    """Return the engine's times with what the paths of this target and drafter cost the host.

    A pass whose builder waits adds ``wait_plain`` to a plain step, and ``wait_full`` or
    ``wait_piecewise`` to every pass of a step with drafts; every layer whose attention is outside
    the graph adds its launch. Five drafts of Llama-3.1-8B (32 layers) in pieces: 6 x 1.1 ms + 32 x
    0.03 ms = 7.6 ms.
    """
    paths, costs = execution_paths(), execution_paths().costs
    drafting = serving._replace(role="drafter")
    one, plain_outside = paths.host_seconds(target, serving, several=False)
    several, outside = paths.host_seconds(target, serving, several=True)
    wait = costs.wait_piecewise if outside else costs.wait_full
    plain = one * costs.wait_plain + plain_outside
    update: dict[str, object] = {
        "per_step": overhead.per_step + plain,
        "per_spec_round": overhead.per_spec_round + several * wait - plain + outside,
    }
    if drafter is not None:
        waits, launched = paths.host_seconds(drafter, drafting, several=False)
        each = waits * several * wait + launched
        update |= {
            "per_draft_pass": overhead.per_draft_pass + each,
            "draft_passes": {kind: time + each for kind, time in overhead.draft_passes.items()},
        }
    return overhead.model_copy(update=update)


def graphs_on_path(engine: EngineProfile, serving: Serving) -> Graphs | None:
    """Return the rows that the engine captures here: an entry's, within its largest pass.

    A processor runs no captured graphs, so no pass is padded to their sizes (vLLM's CPU build logs
    ``cudagraph_mode`` NONE).
    """
    graphs, rows = engine.graphs, execution_paths().captured_rows(serving)
    if graphs is None or serving.generation == "cpu":
        return None
    update: dict[str, object] = {"most_tokens": engine.memory.prefill_chunk}
    if rows is not None:
        update["up_to"] = rows if graphs.up_to is None else max(rows, graphs.up_to)
    here = graphs.model_copy(update=update)
    return here.model_copy(update={"up_to": here.largest})


def matched(
    network: NetworkSpec, serving: Serving, *, several: bool
) -> Iterator[tuple[AttentionKind, AttentionPath | None]]:
    """Yield each kind of attention of a network with the entry that it runs by."""
    for kind in dict.fromkeys(attention_kinds(network)):
        yield kind, execution_paths().of(serving, kind, several=several)


@cache
def execution_paths() -> ExecutionPaths:
    """Return the shipped registry."""
    return ExecutionPaths.load(resources.data_file("execution_paths.yaml"))
