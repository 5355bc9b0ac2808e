"""What is handed to an engine: the flags that start it, and a schedule of draft lengths."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from roofline.base.errors import InputError
from roofline.base.notices import Notice
from roofline.specs.engine import EngineProfile, RunningRequests, with_environment
from roofline.specs.placement import Placement

__all__ = ["Band", "DraftWeights", "EngineText", "Launch", "NoScheduleError", "insert_before_brace"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Band:
    """Batches ``first`` to ``last``, both included, and the draft length of each context."""

    first: int
    last: int
    draft_lengths: tuple[int, ...]

    @property
    def draft_length(self) -> int:
        """The draft length where there is one for all contexts."""
        (only,) = self.draft_lengths
        return only


class EngineText(NamedTuple):
    """A text in an engine's own format, and what to know before it is used.

    ``static`` says that it is the flags for one draft length at all batches, and no schedule.
    """

    text: str
    notes: tuple[Notice, ...] = ()
    static: bool = False


class NoScheduleError(InputError):
    """The engine takes no schedule for this drafter: one draft length has to do for all batches."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"no schedule: {reason}; run one D, as 'roofline recommend' advises")
        self.reason = reason


class DraftWeights(NamedTuple):
    """Where the weights of a drafter lie; unknown places get a placeholder."""

    name: str
    repository: str | None = None
    file: str | None = None  # where the drafter was read from a GGUF file

    @property
    def path(self) -> str:
        """The repository, else a placeholder."""
        return self.repository or f"PATH-TO-{self.name}"

    @property
    def gguf(self) -> str:
        """The file, else a placeholder."""
        return self.file or f"PATH-TO-{self.name}.gguf"


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """An engine, the drafter that it runs and how the target is laid over the GPUs."""

    engine: EngineProfile
    drafter_kind: str
    weights: DraftWeights | None  # None where the drafter has none
    draft_tp: int  # GPUs that each copy of the drafter is divided over
    placement: Placement  # of the target
    layers: int  # of the target
    topk: int = 1  # branches of a tree
    tree_rows: int | None = None  # that a tree is verified with
    stops_early: bool = False
    memory: float = math.inf  # of one accelerator [B]
    generation: str = ""  # of the accelerator
    captures_more: bool = False  # rows than the engine captures by itself

    def flags(self, draft_length: int, *, running: int, most: bool = False) -> str:
        """Return the flags for this draft length and ``running`` sequences, or no more of them.

        Without drafts they only divide the target over GPUs and let the sequences run; where they
        are empty, the text says which flag to leave out.
        """
        requests = self._requests(running, drafts=draft_length > 0, most=most)
        parallel = self.engine.attention_dp
        join = " " if parallel is None else parallel.join
        if draft_length == 0:
            plain = join.join(filter(None, [self._layout(), requests]))
            return f"{plain}{self.sharing()}".strip() or self.left_out
        drafting = self.engine.flag(
            self.drafter_kind,
            draft_length=draft_length,
            draft_weights="" if self.weights is None else self.weights.path,
            draft_tp=self.draft_tp,
            draft_file="" if self.weights is None else self.weights.gguf,
            topk=self.topk,
            tree_rows=self.tree_rows,
        )
        stops = self.engine.early_stops if self.stops_early else None
        if stops is not None:
            drafting = stops.apply(drafting)
        rule = self.engine.draft_parallel
        if rule is not None and self.weights is not None:
            key = rule.stated(self.draft_tp, tp=self.placement.attention_tp)
            if key and key not in drafting:
                drafting = insert_before_brace(drafting, f", {key}")
        parts = [self._layout(), drafting, requests, self._captured(running)]
        flags = join.join(filter(None, parts)) + self.sharing()
        return with_environment(flags, "" if stops is None else stops.environment)

    def flags_to_time(
        self, draft_length: int, tokens_per_step: float, *, running: int, most: bool = False
    ) -> str | None:
        """Return the flags that hold tokens per step fixed; None where the engine cannot."""
        hold = self.engine.hold_acceptance
        if draft_length == 0:
            return self.flags(0, running=running, most=most)
        if hold is None:
            return None
        held = hold.held(tokens_per_step, kind=self.drafter_kind, version=self.engine.runs_version)
        return hold.apply(
            self.flags(draft_length, running=running, most=most), tokens_per_step=held
        )

    def share_of_requests(self, running: int, *, most: bool = False) -> int | None:
        """Return the running requests of each data-parallel group; None where nothing is shared."""
        rule, groups = self.engine.running_requests, self.placement.dp
        if rule is None or groups == 1 or rule.per_group:
            return None
        return rule.share(running, groups=groups, least=1 if most else self._limit(rule))

    def _limit(self, rule: RunningRequests) -> int:
        """Return how many requests run where no flag says so."""
        return rule.limit(generation=self.generation, memory=self.memory)

    def _requests(self, running: int, *, drafts: bool, most: bool) -> str:
        """Return the flag that lets ``running`` requests run, or no more of them."""
        rule = self.engine.running_requests
        if rule is None:
            return ""
        return rule.text(
            running, groups=self.placement.dp, limit=self._limit(rule), drafts=drafts, most=most
        )

    def sharing(self) -> str:
        """Return the flags that share the model among GPUs and processor, each after a space."""
        local, split = self.engine.local, self.placement.split
        return "" if local is None else local.text(split, cards=split.cards, layers=self.layers)

    @property
    def left_out(self) -> str:
        """The sentence that says which flag is not given without drafts."""
        return self.engine.flags["none"]

    def _captured(self, running: int) -> str:
        """Return the flag that captures graphs for what is priced; empty where they are."""
        rules, graphs = self.engine.decode_graphs, self.engine.graphs
        if graphs is not None and self.captures_more:
            return graphs.capture_flag(graphs.largest)
        if rules is None:
            return ""
        groups, tp = self.placement.dp, self.placement.tp
        return rules.text(running, groups=groups, memory=self.memory, tp=tp)

    def _layout(self) -> str:
        """Return the flags of data-parallel attention, empty without it."""
        placement = self.placement
        return self.engine.parallel_flags(tp=placement.tp, dp=placement.dp, ep=placement.ep)


def insert_before_brace(text: str, addition: str) -> str:
    """Put ``addition`` before the last closing brace.

    >>> insert_before_brace("--x '{1: 2}'", ", 3: 4")
    "--x '{1: 2, 3: 4}'"
    """
    head, brace, tail = text.rpartition("}")
    return f"{head}{addition}{brace}{tail}"
