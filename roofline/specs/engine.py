"""Serving engines as data: what they cost around the kernels, and the flags they take."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from string import Template
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from roofline.base.errors import InputError, Option
from roofline.base.names import spec_file
from roofline.base.notices import Code, Notice, notice
from roofline.base.numbers import Array
from roofline.base.schema import Bytes, Document, Duration, Id, PositiveInt, Schema, placeholders
from roofline.specs.engine_versions import (
    BenchTool,
    KnownMethod,
    NamedFacts,
    ScheduleRule,
    ServerLoad,
    Version,
    VersionRange,
    method_named,
    schedule_rule,
    version_numbers,
)
from roofline.specs.formats import DType, bytes_per_element
from roofline.specs.laws import VectorKernels
from roofline.specs.network import NetworkSpec
from roofline.specs.placement import Split, SplitMode
from roofline.specs.served import (
    ExpertActivations,
    FileReader,
    ServedFormats,
    ServedKernels,
    WholeBlocks,
)

__all__ = [
    "ENGINE_SHELF",
    "DecodeGraphs",
    "DraftParallel",
    "EarlyStops",
    "EngineProfile",
    "Era",
    "Graphs",
    "HoldAcceptance",
    "IdleSpeculation",
    "MemoryRules",
    "ModuleRule",
    "Overhead",
    "RunningRequests",
    "SplitFlags",
    "VocabularyRule",
    "engine_id",
    "engine_parts",
    "load_engine",
    "split_environment",
    "with_environment",
]


class Overhead(Schema):
    """Time that no kernel's law accounts for, and how much of the kernels' launch floors shows."""

    floor_scale: float = Field(default=1.0, ge=0, le=2)  # outside the expert kernels
    expert_floor_scale: float = Field(default=1.0, ge=0, le=2)
    per_layer: Duration = 0.0  # of the target, in every pass [s]
    per_sequence: Duration = 0.0  # of the batch, in every pass [s]
    per_step: Duration  # scheduling and launching one target pass [s]
    per_spec_round: Duration  # verification and bookkeeping once drafts are in play [s]
    per_draft_pass: Duration  # launching one pass of the drafter [s]
    #: The same by kind of drafter, where measured.
    draft_passes: dict[str, Duration] = Field(default_factory=dict)
    #: A draft model's pass is a decode call of its own: it costs a plain step's time at least.
    model_pass_is_a_step: bool = False
    #: A drafter with weights makes a target with a recurrent state run a pass for each sequence.
    sequence_passes: bool = False
    per_spec_sequence: Duration = 0.0  # of the batch, once drafts are in play [s]
    #: Extra time of one layer with experts, in every pass of the target [s].
    per_expert_layer: Duration = 0.0
    #: Extra time of one layer with both a recurrent state and experts, in every pass of the target
    #: [s]. Models with a state and no experts show none.
    per_state_layer: Duration = 0.0
    per_tree_round: Duration = 0.0  # building and checking a tree instead of a chain [s]
    #: Undoing a separate model's rejected drafts in a recurrent state [s].
    per_model_round: Duration = 0.0
    #: Matrix-vector kernels that a few rows run through; None where the engine has none.
    vector: VectorKernels | None = None
    #: The same on a processor; None where they are as on an accelerator.
    cpu_vector: VectorKernels | None = None
    source: str
    note: str | None = None
    #: Served decode rows that the first five numbers were fitted on; 0 where none were.
    fitted_rows: int = 0
    #: Speculative rows that the numbers of rounds and passes were fitted on.
    spec_rows: int = 0

    def vector_on(self, generation: str) -> VectorKernels | None:
        """Return the matrix-vector kernels on a part of this generation."""
        return self.cpu_vector if generation == "cpu" and self.cpu_vector else self.vector

    def draft_pass(self, kind: str) -> float:
        """Return the time around one pass of a drafter of this kind [s].

        Kinds are those of drafters, with ``stateful_model`` for a model with recurrent layers.
        """
        if kind in self.draft_passes:
            return self.draft_passes[kind]
        if self.model_pass_is_a_step and kind in ("model", "stateful_model"):
            return max(self.per_step, self.per_draft_pass)
        return self.per_draft_pass


class Era(Schema):
    """What an older line of builds spent around the kernels; what is left out is as today."""

    id: str
    builds: str
    #: The last version of the line; 0.11 includes 0.11.2.
    until: Version | None = None
    per_step: Duration | None = None
    per_spec_round: Duration | None = None
    per_draft_pass: Duration | None = None
    draft_passes: dict[str, Duration] = Field(default_factory=dict)
    per_tree_round: Duration | None = None
    per_model_round: Duration | None = None
    per_spec_sequence: Duration | None = None
    per_expert_layer: Duration | None = None
    #: The share of an accelerator's memory that it took.
    memory_fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    spec_rows: int = 0
    source: str

    def covers(self, version: str) -> bool:
        """Return whether a build's version is of this era or older.

        >>> era = Era(id="x", builds="to 0.11", until="0.11", source="here")
        >>> era.covers("0.11.2"), era.covers("0.12.0"), era.covers("0.9.1rc1"), era.covers("dev")
        (True, False, True, False)
        """
        last = version_numbers(self.until or "")
        numbers = version_numbers(version)
        # 0.0.0 is a build that knows no version
        return any(numbers) and numbers[: len(last)] <= last

    def applied(self, overhead: Overhead) -> Overhead:
        """Return ``overhead`` with the numbers that this era states in place of today's."""
        numbers = {
            name: value
            for name, value in self.model_dump().items()
            if value is not None and name not in _ERA_LABELS
        }
        return overhead.model_copy(update={**numbers, "note": f"builds {self.builds}"})


#: Fields of an era that are no numbers of its overhead.
_ERA_LABELS = ("id", "builds", "until", "memory_fraction")


class VocabularyRule(VersionRange):
    """How far the vocabularies of a target and of a separate draft model may differ in size."""

    largest_difference: int = Field(default=0, ge=0)  # tokens
    source: str = "assumed: drafts are ids of the target's vocabulary"

    def allows(self, draft: int, target: int) -> bool:
        """Return whether an engine takes a draft model with so many tokens.

        >>> VocabularyRule(largest_difference=128).allows(151_936, 152_064)
        True
        >>> VocabularyRule().allows(151_936, 152_064)
        False
        """
        return abs(draft - target) <= self.largest_difference

    def notices(self, network: NetworkSpec, target: NetworkSpec, *, engine: str) -> list[Notice]:
        """Return the notice of a draft model whose vocabulary differs in size, if it does."""
        if network.vocab_size == target.vocab_size:
            return []
        return [
            notice(
                Code.ANOTHER_VOCABULARY,
                drafter=network.id,
                drafter_tokens=network.vocab_size,
                model=target.id,
                model_tokens=target.vocab_size,
                engine=engine,
                largest_difference=self.largest_difference,
            )
        ]


ENGINE_SHELF = "engines"


Flag = Annotated[
    str,
    placeholders(
        "draft_length",
        "verify_rows",
        "matched",
        "topk",
        "draft_weights",
        "draft_file",
        "draft_tp",
    ),
]
SharesFlag = Annotated[str, placeholders("shares")]
LayersFlag = Annotated[str, placeholders("layers")]
LayoutFlag = Annotated[str, placeholders("tp", "dp", "ep", "attention_tp")]
DraftTpKey = Annotated[str, placeholders("draft_tp")]
RequestsFlag = Annotated[str, placeholders("requests")]
RowsFlag = Annotated[str, placeholders("rows")]
BatchFlag = Annotated[str, placeholders("batch")]
HeldFlag = Annotated[str, placeholders("tokens_per_step", "accepted_drafts")]


class Graphs(VersionRange):
    """Which batches an engine has captured CUDA graphs for, in rows of one pass."""

    #: Up to each row count, the multiple that rows are padded to.
    steps: Annotated[tuple[tuple[PositiveInt, PositiveInt], ...], Field(min_length=1)]
    #: Time to launch one kernel where no graph covers the pass [s].
    eager_launch: Duration
    #: The largest rows captured, beyond the last of ``steps`` in its multiples; None for its end.
    up_to: Annotated[int, Field(ge=0, le=2**20)] | None = None
    #: Tokens of the engine's largest pass, beyond which nothing is captured; None where unknown.
    most_tokens: PositiveInt | None = None
    #: The flag that requests them, with $rows; empty where the engine has none.
    flag: RowsFlag = ""

    @property
    def largest(self) -> int:
        """Return the largest captured row count."""
        largest = self.steps[-1][0] if self.up_to is None else self.up_to
        return largest if self.most_tokens is None else min(largest, self.most_tokens)

    def capture_flag(self, rows: float) -> str:
        """Return the flag that makes the engine capture ``rows`` too; empty where it has none.

        >>> graphs = Graphs.model_validate_json('{"steps": [[512, 16]], "flag": "--max $rows",'
        ...                                      ' "eager_launch": "40 us", "source": "here"}')
        >>> graphs.capture_flag(1000)
        '--max 1008'
        """
        multiple = self.steps[-1][1]
        return Template(self.flag).substitute(rows=int(np.ceil(rows / multiple)) * multiple)

    def padded(self, rows: Array) -> Array:
        """Return ``rows`` padded to the next captured size; beyond the largest they stay.

        >>> graphs = Graphs.model_validate_json('{"steps": [[4, 1], [256, 8]],'
        ...                                      ' "eager_launch": "40 us", "source": "here"}')
        >>> graphs.padded(np.array([3.0, 9.0, 300.0]))
        array([  3.,  16., 300.])
        """
        rows = np.asarray(rows, dtype=np.float64)
        padded = rows
        for last, multiple in reversed((*self.steps, (self.largest, self.steps[-1][1]))):
            limit = min(last, self.largest)
            captured = np.minimum(np.ceil(rows / multiple) * multiple, limit)
            padded = np.where(rows <= limit, captured, padded)
        return padded


class MemoryRules(VersionRange):
    """How an engine divides an accelerator's memory."""

    fraction: float = Field(gt=0, le=1)  # of the memory that the engine takes
    reserve: Bytes  # runtime context, captured graphs, workspaces [B]
    kv_block: PositiveInt  # tokens of a cache block
    #: Whether layers with a window get only the blocks that their window spans.
    caps_windows: bool
    #: Whether an input embedding that is not also the head stays in the host's memory (of the
    #: target and of the drafter).
    embedding_on_host: bool = False
    prefill_chunk: PositiveInt  # tokens of the largest pass that activations are sized for


class ParallelFlags(VersionRange):
    """Flags of data-parallel attention, with $tp, $dp, $ep and $attention_tp."""

    attention: LayoutFlag
    experts: LayoutFlag = ""  # added where experts are placed on groups of ranks
    join: str = " "  # what separates them from the flag of the drafter
    #: Whether each group must be one GPU.
    one_gpu_groups: bool = False
    #: Kinds of drafter that the engine does not run beside it.
    not_with: tuple[str, ...] = ()


class SplitFlags(VersionRange):
    """Flags that share a model among the cards of one machine and its processor."""

    #: By mode of splitting: what is added to the drafter's flag.
    splits: dict[SplitMode, str]
    shares: SharesFlag  # with $shares
    cpu_experts: LayersFlag  # with $layers
    all_cpu_experts: str
    #: Rows from which experts' weights are copied to the card instead of computed beside them.
    copy_rows: PositiveInt

    def text(self, split: Split, *, cards: int, layers: int) -> str:
        """Return the flags of a split of a model with so many layers, each after a space."""
        parts = [self.splits[split.mode]] if cards > 1 else []
        if split.shares:
            shares = ",".join(f"{share:g}" for share in split.shares)
            parts.append(Template(self.shares).substitute(shares=shares))
        if split.cpu_layers >= layers:
            parts.append(self.all_cpu_experts)
        elif split.cpu_layers:
            parts.append(Template(self.cpu_experts).substitute(layers=split.cpu_layers))
        return "".join(f" {part}" for part in parts)


class IdleSpeculation(VersionRange):
    """What a step of draft length 0 costs where a drafter is configured but drafts nothing."""

    per_step: Duration = 0.0  # bookkeeping of a round without drafts [s]
    #: Whether the drafter still runs one pass over the new token, to keep its cache complete.
    draft_pass: bool = False


class LookupDrafts(VersionRange):
    """What an engine verifies for a sequence whose lookup (n-gram, suffix) found no draft."""

    padded: bool  # as many rows as for the others; else one
    matched: int | None = None  # most tokens that are looked up, where the flags state them


class EarlyStops(VersionRange):
    """Kinds of drafter whose drafts may end, or be verified, up to where confidence lasts."""

    kinds: tuple[str, ...]
    #: Whether the drafter stops as well; else drafts are whole and verified in part.
    drafting: bool
    #: What turns it on: put inside the JSON of the flag, behind the flag, or in the environment.
    config: str = ""
    arguments: str = ""
    environment: str = ""

    def apply(self, flag: str) -> str:
        """Return ``flag`` with early stops turned on, but for what the environment says.

        >>> EarlyStops(kinds=("mtp",), drafting=True, arguments="--p P", source="").apply("--d 3")
        '--d 3 --p P'
        """
        if self.config:
            head, brace, tail = flag.rpartition("}")
            flag = f"{head}, {self.config}{brace}{tail}"
        return " ".join(filter(None, (flag, self.arguments)))


class ModuleRule(VersionRange):
    """Kinds of drafter whose draft length is limited by their number of modules n.

    An MTP head has one module for each token that it was trained to predict. The engine drafts up
    to n tokens with them; for more it starts over with the first, and takes multiples of n only.
    """

    kinds: tuple[str, ...]

    def takes(self, draft_length: int, *, kind: str, modules: int) -> bool:
        """Return whether a drafter with ``modules`` may draft ``draft_length`` tokens.

        >>> rule = ModuleRule(kinds=("mtp",), source="here")
        >>> [d for d in range(9) if rule.takes(d, kind="mtp", modules=3)]
        [0, 1, 2, 3, 6]
        """
        return kind not in self.kinds or draft_length <= modules or draft_length % modules == 0


class DraftParallel(VersionRange):
    """Over how many GPUs an engine divides a drafter: those of its target, or one where it can."""

    one: bool  # whether one GPU may hold all of it
    #: What asks for one GPU inside the JSON of the flag, with $draft_tp.
    key: DraftTpKey = ""

    def takes(self, draft_tp: int, *, tp: int) -> bool:
        """Return whether a drafter may lie on ``draft_tp`` GPUs beside a target on ``tp``.

        >>> rule = DraftParallel(one=True, source="here")
        >>> [n for n in (1, 2, 4) if rule.takes(n, tp=4)]
        [1, 4]
        """
        return draft_tp == tp or (self.one and draft_tp == 1)

    def stated(self, draft_tp: int, *, tp: int) -> str:
        """Return what asks for ``draft_tp`` GPUs; empty where these are the target's.

        >>> rule = DraftParallel(one=True, key='"tp": $draft_tp', source="here")
        >>> rule.stated(1, tp=4), rule.stated(4, tp=4)
        ('"tp": 1', '')
        """
        return "" if draft_tp == tp else Template(self.key).substitute(draft_tp=draft_tp)


class RunningRequests(VersionRange):
    """The most requests that an engine runs at once, and the flag that says so."""

    default: PositiveInt  # where the flag is left out
    #: The same by generation of parts, where it is another.
    generations: dict[str, PositiveInt] = Field(default_factory=dict)
    #: The same below a memory of the accelerator [B].
    below: tuple[Bytes, PositiveInt] | None = None
    flag: RequestsFlag  # with $requests
    #: Whether only a drafter brings that default; then the flag stands beside it always.
    drafting: bool = False
    #: Whether the flag counts the requests of each data-parallel group, and not those of all.
    per_group: bool = False

    def limit(self, *, generation: str, memory: float) -> int:
        """Return how many requests run where the flag is left out.

        >>> cap = RunningRequests.model_validate_json('{"default": 1024, "below": ["70 GiB", 256],'
        ...           ' "generations": {"ampere": 128}, "flag": "--most $requests", "source": ""}')
        >>> parts = ("hopper", 80e9), ("ada", 48e9), ("ampere", 80e9)
        >>> [cap.limit(generation=generation, memory=memory) for generation, memory in parts]
        [1024, 256, 128]
        """
        if generation in self.generations:
            return self.generations[generation]
        return self.below[1] if self.below and memory < self.below[0] else self.default

    def text(
        self, running: int, *, groups: int, limit: int, drafts: bool = True, most: bool = False
    ) -> str:
        """Return the flag that lets ``running`` requests run; empty where ``limit`` lets them.

        Each group takes an equal share, rounded down: 100 requests in 8 groups are 13 each. With
        ``most`` no more than those may run.

        >>> cap = RunningRequests(default=48, drafting=True, flag="--most $requests", source="here")
        >>> [cap.text(n, groups=g, limit=48) for n, g in ((32, 1), (100, 8))]
        ['--most 48', '--most 104']
        >>> alone = {"groups": 1, "limit": 48}
        >>> cap.text(32, drafts=False, **alone), cap.text(32, most=True, **alone)
        ('', '--most 32')
        """
        if self.drafting and not drafts and not most:
            return ""
        counted = 1 if self.per_group else groups
        always = most or self.drafting
        share = self.share(running, groups=groups, least=limit if self.drafting and not most else 1)
        if not always and share * counted <= limit:
            return ""
        return Template(self.flag).substitute(requests=share * counted)

    @staticmethod
    def share(running: int, *, groups: int, least: int) -> int:
        """Return how many requests each data-parallel group runs at once.

        >>> RunningRequests.share(100, groups=8, least=48)
        13
        """
        return -(-max(running, least) // groups)


class DecodeGraphs(VersionRange):
    """The largest batch that decode graphs are captured for where the flag is left out."""

    #: Up to each memory of an accelerator [B], the batch below TP 4 and from it on.
    batches: Annotated[tuple[tuple[Bytes, PositiveInt, PositiveInt], ...], Field(min_length=1)]
    flag: BatchFlag  # with $batch, of each data-parallel group

    def text(self, running: int, *, groups: int, memory: float, tp: int) -> str:
        """Return the flag that captures a group's share of ``running``; empty where it is captured.

        >>> graphs = DecodeGraphs.model_validate_json('{"batches": [["60 GB", 32, 160],'
        ...                   ' ["90 GB", 256, 512]], "flag": "--most $batch", "source": ""}')
        >>> [graphs.text(64, groups=1, memory=memory, tp=1) for memory in (48e9, 80e9)]
        ['--most 64', '']
        """
        share = -(-running // groups)
        known = [row for row in self.batches if memory < row[0]] or [self.batches[-1]]
        captured = known[0][1 if tp < 4 else 2]
        return Template(self.flag).substitute(batch=share) if share > captured else ""


class HoldAcceptance(VersionRange):
    """How to hold tokens per step fixed while timing, with $tokens_per_step or $accepted_drafts."""

    environment: HeldFlag | None = None  # exported before the command
    config: HeldFlag | None = None  # put inside the JSON of the flag
    arguments: HeldFlag | None = None  # put behind the flag
    #: Kinds of drafter with which it is read as a whole number, so a fraction would be lost.
    whole: tuple[str, ...] = ()
    #: The last version that reads a whole number with every kind.
    whole_until: Version | Literal[""] = ""

    def held(self, tokens_per_step: float, *, kind: str, version: str) -> float:
        """Return the tokens per step that can be held, the nearest whole number where it must be.

        >>> hold = HoldAcceptance(environment="A=$accepted_drafts", whole=("model",), source="")
        >>> hold.held(2.6, kind="model", version=""), hold.held(2.6, kind="mtp", version="")
        (3.0, 2.6)
        """
        last = version_numbers(self.whole_until)
        older = bool(last and version) and version_numbers(version)[: len(last)] <= last
        if kind in self.whole or older:
            return float(math.floor(tokens_per_step + 0.5))
        return tokens_per_step

    def apply(self, flag: str, *, tokens_per_step: float) -> str:
        r"""Return ``flag`` with the acceptance held.

        >>> hold = HoldAcceptance(environment="ACCEPT=$accepted_drafts", source="here")
        >>> hold.apply("--draft 3", tokens_per_step=2.5)
        'export ACCEPT=1.50\n--draft 3'
        """
        text = Template(self.environment or self.config or self.arguments or "").substitute(
            tokens_per_step=_shortest(tokens_per_step),
            accepted_drafts=_shortest(tokens_per_step - 1),
        )
        if self.environment:
            return with_environment(flag, text)
        if self.arguments:
            return f"{flag} {text}"
        head, brace, tail = flag.rpartition("}")
        return f"{head}, {text}{brace}{tail}" if brace else flag


def with_environment(flag: str, settings: str) -> str:
    r"""Return flags below a line that exports ``settings`` for the command that they are for.

    On one line with the flags no shell would take them: the command stands between.

    >>> with_environment("--draft 3", "A=1")
    'export A=1\n--draft 3'
    >>> with_environment(with_environment("--draft 3", "A=1"), "B=2")
    'export A=1 B=2\n--draft 3'
    """
    if not settings:
        return flag
    first, _, rest = flag.partition("\n")
    return f"{first} {settings}\n{rest}" if rest else f"export {settings}\n{flag}"


def split_environment(flags: str) -> tuple[str, str]:
    r"""Return the settings of `with_environment`, and the flags below them.

    >>> split_environment("export A=1 B=2\n--draft 3"), split_environment("--draft 3")
    (('A=1 B=2', '--draft 3'), ('', '--draft 3'))
    """
    first, _, rest = flags.partition("\n")
    exported = first.removeprefix("export ")
    return (exported, rest) if exported != first else ("", flags)


def _shortest(number: float) -> str:
    return f"{number:.0f}" if number == int(number) else f"{number:.2f}"


#: Facts of an engine that it may be without, and fields whose bare words are facts as well.
_OPTIONAL_FACTS = (
    "graphs",
    "lookup_drafts",
    "early_stops",
    "module_rule",
    "draft_parallel",
    "running_requests",
    "decode_graphs",
    "attention_dp",
    "idle_speculation",
    "hold_acceptance",
    "local",
    "server_load",
)
_BARE_FIELDS = (
    "draft_length_name",
    "targets",
    "default_kv",
    "narrow_kv",
    "narrow_weights",
    "files",
    "vendors",
    "elsewhere",
)


def _named(facts: tuple[NamedFacts, ...], name: str) -> NamedFacts | None:
    return next((fact for fact in facts if name in fact.names), None)


class EngineProfile(Document):
    """One serving engine."""

    id: Id
    name: str
    overhead: Overhead
    memory: MemoryRules
    graphs: Graphs | None = None
    eras: tuple[Era, ...] = ()  # oldest first
    #: The era whose overhead it has; None is today's.
    era: Era | None = None
    #: The release that was asked for; empty is today's build, or an era without one.
    release: str = ""
    #: The newest version whose code was read for these facts.
    newest: Version | Literal[""] = ""
    kernels: ServedKernels = Field(default_factory=ServedKernels)
    expert_activations: tuple[ExpertActivations, ...] = ()
    draft_length_name: str
    #: By drafter kind, where the engine calls it otherwise.
    draft_length_names: dict[str, str] = Field(default_factory=dict)
    #: Flag by drafter kind, with $draft_length, $verify_rows, $draft_weights, $draft_file and
    #: $draft_tp; with $topk where the engine drafts trees of this kind.
    flags: dict[str, Flag]
    flags_source: str
    #: By drafter kind, the versions that have its flag; all where nothing is said.
    flag_versions: tuple[NamedFacts, ...] = ()
    #: By field, the versions that its bare words hold for.
    field_versions: tuple[NamedFacts, ...] = ()
    #: The series and log lines that its acceptance is read from.
    metrics: tuple[NamedFacts, ...] = ()
    #: What the engine calls its ways to draft and verify, besides the kinds.
    methods: tuple[KnownMethod, ...] = ()
    #: Formats of weights and of the KV cache; None where they are not known, so any may be asked.
    formats: ServedFormats | None = None
    #: Formats whose blocks no rank may hold a part of.
    whole_blocks: tuple[WholeBlocks, ...] = ()
    #: The format that it keeps a KV cache in where none is asked for; None is the model's own.
    default_kv: DType | None = None
    #: The narrowest format of about 8 bits that it keeps a KV cache in.
    narrow_kv: DType = DType.FP8
    #: Formats of weights that are proposed where not even one sequence fits, the widest first.
    narrow_weights: tuple[DType, ...] = (DType.FP8, DType.INT4_G128)
    #: By the format of a checkpoint's experts, that of the file which the engine runs instead.
    files: dict[DType, DType] = Field(default_factory=dict)
    #: By drafter kind, how the ids of targets begin that it is run for; every target if not stated.
    targets: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    #: None where a lookup that finds nothing leaves one row.
    lookup_drafts: LookupDrafts | None = None
    #: None where every draft is as long as D, and verified to its end.
    early_stops: EarlyStops | None = None
    #: None where every draft length may be asked for.
    module_rule: ModuleRule | None = None
    #: None where it is not known how a drafter may be divided.
    draft_parallel: DraftParallel | None = None
    #: None where it is not known how many requests run at once.
    running_requests: RunningRequests | None = None
    #: None where its decode graphs are not limited by batch.
    decode_graphs: DecodeGraphs | None = None
    #: Vendors whose accelerators alone it can run on; none where that is not so.
    vendors: tuple[str, ...] = ()
    #: By vendor whose accelerators it does not run on by itself: what to do there.
    elsewhere: dict[str, str] = Field(default_factory=dict)
    #: None where the engine has no data-parallel attention.
    attention_dp: ParallelFlags | None = None
    vocabulary: VocabularyRule = Field(default_factory=VocabularyRule)
    #: None where the engine has no schedule, or where its idle cost is not known.
    idle_speculation: IdleSpeculation | None = None
    hold_acceptance: HoldAcceptance | None = None
    #: What its builds do with a schedule; the first that holds counts.
    schedules: tuple[ScheduleRule, ...] = ()
    #: None where the engine shares models among linked accelerators only.
    local: SplitFlags | None = None
    #: The tools that time it, the best first.
    bench: tuple[BenchTool, ...] = ()
    #: None where its server cannot be started and loaded by itself.
    server_load: ServerLoad | None = None

    @model_validator(mode="after")
    def _versions_are_stated(self) -> Self:
        """Refuse a fact without versions in a file that says which of them were read."""
        if self.newest:
            undated = [name for name, fact in self.facts() if fact is None or not fact.dated]
            if undated:
                message = f"{undated[0]}: expected one of since and seen, as newest is stated"
                raise ValueError(message)
        return self

    def facts(self) -> Iterator[tuple[str, VersionRange | None]]:
        """Yield each fact but what is assumed, by its place; None for the versions not stated."""
        for kind in self.flags:
            yield f"flags.{kind}", self.versions_of(kind)
        for field in _BARE_FIELDS:
            if getattr(self, field) != type(self).model_fields[field].get_default(
                call_default_factory=True
            ):
                yield field, _named(self.field_versions, field)
        kernels, formats = self.kernels, self.formats
        several: dict[str, tuple[VersionRange, ...]] = {
            "methods": self.methods,
            "metrics": self.metrics,
            "schedules": self.schedules,
            "bench": self.bench,
            "expert_activations": self.expert_activations,
            "whole_blocks": self.whole_blocks,
            "kernels.experts": kernels.experts,
            "kernels.fused_quantisation": kernels.fused_quantisation,
            "formats.weights": () if formats is None else formats.weights,
            "formats.kv": () if formats is None else formats.kv,
            "formats.gguf_readers": () if formats is None else formats.gguf_readers,
        }
        for place, facts in several.items():
            yield from ((f"{place}.{number}", fact) for number, fact in enumerate(facts))
        for field in ("memory", "vocabulary", *_OPTIONAL_FACTS):
            fact = getattr(self, field)
            if fact is not None and not fact.source.startswith("assumed"):
                yield field, fact

    def of_version(self) -> EngineProfile:
        """Return the engine without the facts that do not hold for the version that runs."""
        facts = {field: getattr(self, field) for field in _OPTIONAL_FACTS}
        gone = [f for f, fact in facts.items() if fact and not fact.in_range(self.facts_of)]
        return self.model_copy(update=dict.fromkeys(gone))

    def experts_multiplied_in(self, stored: DType, generation: str) -> DType | None:
        """Return the activations of experts stored so; None where they are the format's own."""
        rules = (r for r in self.expert_activations if r.holds(stored, generation))
        return next((rule.activations for rule in rules), None)

    def name_of_length(self, kind: str) -> str:
        """Return what the engine calls the draft length of this kind of drafter."""
        return self.draft_length_names.get(kind, self.draft_length_name)

    def takes(self, draft_length: int, *, kind: str, modules: int) -> bool:
        """Return whether the engine takes this draft length for a drafter with ``modules``."""
        rule = self.module_rule
        return rule is None or rule.takes(draft_length, kind=kind, modules=modules)

    def check_groups(self, kind: str, *, dp: int) -> None:
        """Refuse a kind of drafter beside data-parallel attention that the engine does not take."""
        if dp > 1 and self.attention_dp is not None and kind in self.attention_dp.not_with:
            raise InputError(
                f"{self.name} does not run {kind} beside it; give another {Option('drafter')} or "
                "leave it out",
                field="dp_attention",
                value=dp,
            )

    def check_tree(self, kind: str, *, topk: int, rows: int | None = None) -> None:
        """Refuse a tree where the engine drafts chains only with this kind of drafter.

        So are ``rows`` that a chain does not verify: it verifies 1 + D.
        """
        tree = "$topk" in self.flags.get(kind, "$topk")
        if tree and (topk > 1 or rows is None):
            return
        field, value = ("tree_topk", topk) if topk > 1 else ("verify_width", rows)
        if tree:
            raise InputError(
                f"a chain verifies 1 + D rows; give {Option('tree_topk')} as well, or leave it out",
                field=field,
                value=value,
            )
        if value is not None:
            raise InputError(
                f"{self.name} drafts a chain with {kind}, no tree; leave it out, or give another "
                f"{Option('engine')} or {Option('drafter')}",
                field=field,
                value=value,
            )

    def check_draft_tp(self, draft_tp: int, *, tp: int) -> None:
        """Refuse GPUs for the drafter that the engine does not divide it over."""
        rule = self.draft_parallel
        if rule is None or rule.takes(draft_tp, tp=tp):
            return
        ways = f"1 or {tp}, as the target" if rule.one else f"{tp}, as the target"
        raise InputError(
            f"{self.name} divides a drafter over {ways}; give that or leave it out",
            field="draft_tp",
            value=draft_tp,
        )

    def runs(self, kind: str, target: str) -> bool:
        """Return whether the engine is known to run this kind of drafter for the target's id."""
        families = self.targets.get(kind)
        known = families is None or target.startswith(families)
        return kind in self.flags and known and self.has(kind)

    def has(self, kind: str) -> bool:
        """Return whether the version that runs has this kind of drafter."""
        versions = self.versions_of(kind)
        return versions is None or versions.in_range(self.facts_of)

    def versions_of(self, kind: str) -> NamedFacts | None:
        """Return the versions that have the flag of this kind of drafter; None for all."""
        return _named(self.flag_versions, kind)

    def kind_of(self, name: str) -> str:
        """Return the kind of drafter that the engine calls so, else the name; some are refused."""
        method = method_named(self.methods, name)
        if method is None:
            return name
        if not method.in_range(self.facts_of):
            raise InputError(
                f"{self.name} {self.facts_of} has no {name} (known: {method.words})",
                field="drafter",
            )
        if method.refused:
            raise InputError(f"{self.name}'s {name}: {method.refused}", field="drafter")
        return method.kind

    def serves(self, part: str, dtype: DType, generation: str) -> bool:
        """Return whether it serves a format of ``weights`` or ``kv`` on a generation of parts."""
        if self.formats is None:
            return True
        return any(
            (not rule.generations or generation in rule.generations)
            and (not self.runs_version or rule.known_in(self.runs_version))
            for rule in self.formats.rules(part, dtype)
        )

    def gguf_reader(self) -> FileReader | None:
        """Return what the version that runs needs for GGUF files; None where it needs nothing."""
        readers = () if self.formats is None else self.formats.gguf_readers
        return next((each for each in readers if each.in_range(self.facts_of)), None)

    def nearest_served(self, part: str, dtype: DType, base: DType) -> DType:
        """Return the format to use in place of one that it does not serve.

        It is the one of about as many bits among those that are proposed where memory is short and
        the model's own; of two equally near ones the wider.
        """
        usual = (base, *self.narrow_weights) if part == "weights" else (base, self.narrow_kv)
        bits = [int(8 * bytes_per_element(each)) for each in (dtype, *usual)]
        return min(usual, key=lambda each: abs(bits[1 + usual.index(each)] - bits[0]))

    def check_drafter(self, kind: str) -> None:
        """Refuse a kind of drafter that the engine does not have."""
        versions = self.versions_of(kind)
        if kind in self.flags and versions is not None and not self.has(kind):
            raise InputError(
                f"{self.name} {self.facts_of} has no {kind} drafter (known: {versions.words}); "
                f"give {Option('engine', f'{self.id}@{versions.until or versions.since}')} or "
                f"another {Option('drafter')}",
                field="drafter",
            )
        if kind not in self.flags:
            known = ", ".join(name for name in self.flags if name != "none" and self.has(name))
            raise InputError(
                f"{self.name} has no {kind} drafter; give one of a kind that it has ({known}), or "
                f"another {Option('engine')}",
                field="drafter",
            )

    def parallel_flags(self, *, tp: int, dp: int, ep: int) -> str:
        """Return the flags that lay the target out over data-parallel groups."""
        flags = self.attention_dp
        if dp == 1:
            return ""
        if flags is None:
            raise InputError(
                f"{self.name} has no data-parallel attention that is known",
                field="dp_attention",
                value=dp,
            )
        if flags.one_gpu_groups and dp != tp:
            raise InputError(
                f"{self.name} has it for every GPU: give {tp}", field="dp_attention", value=dp
            )
        parts = [flags.attention]
        if ep > 1 and flags.experts:
            parts.append(flags.experts)
        values = {"tp": tp, "dp": dp, "ep": ep, "attention_tp": tp // dp}
        return flags.join.join(Template(part).substitute(values) for part in parts)

    @property
    def reference(self) -> str:
        """The name of the engine with its era or release, as it is asked for."""
        if self.era is not None:
            return f"{self.id}@{self.era.id}"
        return f"{self.id}=={self.release}" if self.release else self.id

    @property
    def runs_version(self) -> str:
        """The version that runs: the last of its era, or the release; empty is today's build."""
        return self.release if self.era is None else self.era.until or ""

    @property
    def asked_version(self) -> str:
        """The release that was asked for, else the last version of its era."""
        return self.release or self.runs_version

    @property
    def facts_of(self) -> str:
        """The version that facts are taken for: that which runs, or the newest that was read."""
        return self.runs_version or self.newest

    @property
    def beyond_known(self) -> bool:
        """Whether the version that runs is newer than what was read."""
        numbers, newest = version_numbers(self.runs_version), version_numbers(self.newest)
        return bool(newest) and numbers[: len(newest)] > newest

    def read_from(self, kind: str) -> str:
        """Return the oldest version that was read for this drafter; empty where none older runs."""
        versions = self.versions_of(kind)
        if versions is None or versions.read_in(self.runs_version):
            return ""
        return versions.since or versions.seen or ""

    def schedule_rule(self, kind: str) -> ScheduleRule | None:
        """Return what the version that runs does with a schedule for this kind of drafter."""
        return schedule_rule(self.schedules, kind, self.facts_of)

    def at_era(self, era: str) -> EngineProfile:
        """Return the engine with the overhead of the era with this id."""
        for candidate in self.eras:
            if candidate.id == era:
                kernels = self.kernels.of_version(candidate.until or "")
                share = candidate.memory_fraction or self.memory.fraction
                return self.model_copy(
                    update={
                        "overhead": candidate.applied(self.overhead),
                        "memory": self.memory.model_copy(update={"fraction": share}),
                        "era": candidate,
                        "kernels": kernels,
                    }
                )
        known = ", ".join(f"{self.id}@{candidate.id}" for candidate in self.eras) or "none"
        raise InputError(
            f"no such era; known: {known}, or {self.id}", field="engine", value=f"{self.id}@{era}"
        )

    def parts(self, reference: str) -> tuple[str, str, str]:
        """Return the parts of a reference; ``vllm@0.30`` is a release where no era is called so.

        A build of an engine that numbers them is one with or without the b before it.
        """
        name, separator, rest = engine_parts(reference)
        eras = [era.id for era in self.eras]
        if separator and re.fullmatch(r"b?\d+", rest) and self.newest.startswith("b"):
            rest = f"b{rest.removeprefix('b')}"  # it numbers its builds
        if separator == "@" and rest not in eras and re.match(r"v?\d+\.\d|b\d", rest):
            separator = "=="
        return name, separator, rest

    def era_of(self, version: str) -> Era | None:
        """Return the first era that covers a build's version.

        None stands for today's builds, and for a version that cannot be read.
        """
        return next((era for era in self.eras if era.covers(version)), None)

    def era_of_release(self, reference: str) -> str | None:
        """Return the id of the era of ``vllm==0.10``; None for today's builds, or no release."""
        name, separator, release = self.parts(reference)
        if separator != "==":
            return None
        if not version_numbers(release):
            raise InputError(
                f"expected a release, such as {name}==0.10", field="engine", value=reference
            )
        era = self.era_of(release)
        return None if era is None else era.id

    def flag(
        self,
        drafter_kind: str,
        *,
        draft_length: int,
        draft_weights: str,
        draft_tp: int,
        draft_file: str = "",
        topk: int = 1,
        tree_rows: int | None = None,
    ) -> str:
        """Return the text to paste for this drafter at this draft length.

        A tree has ``topk`` branches and is verified with ``tree_rows``.
        """
        kind = "none" if draft_length == 0 else drafter_kind
        matched = None if self.lookup_drafts is None else self.lookup_drafts.matched
        return Template(self.flags[kind]).substitute(
            matched=min(draft_length, matched or draft_length),
            draft_length=draft_length,
            verify_rows=tree_rows if tree_rows and topk > 1 else draft_length + 1,
            topk=topk,
            draft_weights=draft_weights,
            draft_file=draft_file or draft_weights,
            draft_tp=draft_tp,
        )


def engine_parts(reference: str) -> tuple[str, str, str]:
    """Return an engine's name as given, and ``@`` with an era or ``==`` with a release behind it.

    >>> engine_parts("vllm@2025"), engine_parts("vLLM==0.10"), engine_parts("sglang")
    (('vllm', '@', '2025'), ('vLLM', '==', '0.10'), ('sglang', '', ''))
    >>> engine_parts("vLLM 0.30"), engine_parts("llama.cpp b11434")
    (('vLLM', '@', '0.30'), ('llama.cpp', '@', 'b11434'))
    """
    spaced = re.fullmatch(r"([A-Za-z][\w.-]*) +v?(b?\d[\w.]*)", reference.strip())
    reference = f"{spaced[1]}@{spaced[2]}" if spaced else reference
    name, *behind = re.split("(@|==)", reference, maxsplit=1)
    separator, rest = behind or ("", "")
    return name.strip(), separator, rest.strip()


def load_engine(reference: str) -> EngineProfile:
    """Load a bundled engine by its name, however it is written, or a YAML file by path.

    ``vllm@2025`` is an era, ``vllm@0.10`` and ``vllm==0.10`` the era that a release belongs to.
    """
    name = engine_parts(reference)[0]
    if not name:
        raise InputError("expected an engine's name, got an empty string", field="engine")
    profile = EngineProfile.load(spec_file(name, ENGINE_SHELF, "engine"))
    _, separator, rest = profile.parts(reference)
    era = rest if separator == "@" else profile.era_of_release(reference)
    if era is not None:
        profile = profile.at_era(era)
    if separator == "==":
        profile = profile.model_copy(update={"release": rest})
    return profile.of_version()


def engine_id(reference: str, profile: EngineProfile) -> str:
    """Return how an engine is called with the era that is priced: an older release's by its id."""
    name, separator, _ = profile.parts(reference)
    if separator != "==":
        return reference
    era = profile.era_of_release(reference)
    return profile.reference if era is None else f"{name}@{era}"
