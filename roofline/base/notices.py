"""Notices: what to know beside an answer, as a code with values; `render` has the sentences."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

__all__ = ["ASSUMED", "Code", "Notice", "notice"]


class Code(StrEnum):
    """What a notice says."""

    # what was assumed where the question left it open
    CONFIG_DEFAULT = "config-default"
    CONFIG_NOTE = "config-note"
    NAME_TAKEN = "name-taken"
    WEIGHTS_NAMED = "weights-named"
    HEAD_ASSUMED = "head-assumed"
    PLAIN_ASSUMED = "plain-assumed"
    HEAD_DERIVED = "head-derived"
    HEAD_BY_NAME = "head-by-name"
    DRAFTER_STORED_AS_TARGET = "drafter-stored-as-target"
    HOST_ASSUMED = "host-assumed"
    NO_OWN_RATE = "no-own-rate"
    ACCEPTANCE_ASSUMED = "acceptance-assumed"
    GAPS_FILLED = "gaps-filled"
    CURVE_CONTINUED = "curve-continued"
    HIT_RATE_ASSUMED = "hit-rate-assumed"
    BEYOND_PUBLISHED_RUNS = "beyond-published-runs"
    OVER_ALL_PASSES = "over-all-passes"
    PULLED_BY_PRIOR = "pulled-by-prior"
    JOINED_WITH_PRIOR = "joined-with-prior"
    EARLY_STOPS_END = "early-stops-end"
    # what may be wrong with an acceptance
    COUNTED_ON_ANOTHER_MODEL = "counted-on-another-model"
    TOKENS_PER_STEP_FALL = "tokens-per-step-fall"
    SURVIVAL_RISES = "survival-rises"
    OUTSIDE_MEASURED_CONTEXTS = "outside-measured-contexts"
    COUNTED_WITH_ANOTHER_KV = "counted-with-another-kv"
    READ_AS_SURVIVAL = "read-as-survival"
    AMBIGUOUS_ACCEPTANCE = "ambiguous-acceptance"
    # what may be wrong with what an engine reports
    ANOTHER_DRAFT_LENGTH_GIVEN = "another-draft-length-given"
    ANOTHER_DRAFT_LENGTH_COUNTED = "another-draft-length-counted"
    DRAFTS_IN_SOME_PASSES = "drafts-in-some-passes"
    SOME_PASSES_DRAFTED = "some-passes-drafted"
    DRAFTING_PASSES_ONLY = "drafting-passes-only"
    POSITIONS_DISAGREE = "positions-disagree"
    TOKENS_DO_NOT_FIT_PASSES = "tokens-do-not-fit-passes"
    DRAFTS_CUT_SHORT = "drafts-cut-short"
    LINES_LEFT_OUT = "lines-left-out"
    SEVERAL_DRAFT_LENGTHS = "several-draft-lengths"
    TAKEN_FOR_BLOCK = "taken-for-block"
    TRIMMED_AT_STOPS = "trimmed-at-stops"
    LENGTH_CONTRADICTS_POSITIONS = "length-contradicts-positions"
    RATE_CONTRADICTS_COUNTS = "rate-contradicts-counts"
    COUNTED_AT_END = "counted-at-end"
    DRAFT_TREE = "draft-tree"
    UNUSUAL_DRAFT_LENGTH = "unusual-draft-length"
    WHAT_WAS_COUNTED = "what-was-counted"
    CONTEXTS_DISAGREE = "contexts-disagree"
    ANOTHER_SERVER_SETTING = "another-server-setting"
    # what was asked for and cannot act on the question
    CHANGES_NOTHING = "changes-nothing"
    # what may be wrong with an answer
    WEIGHTS_STORED_ONLY = "weights-stored-only"
    ANOTHER_VOCABULARY = "another-vocabulary"
    OFF_FAST_PATH = "off-fast-path"
    OUTSIDE_GRAPH = "outside-graph"
    HOST_WAITS = "host-waits"
    VERIFY_PATH_DECIDES = "verify-path-decides"
    ENGINE_ELSEWHERE = "engine-elsewhere"
    ENGINE_NEWER = "engine-newer"
    ENGINE_OLDER = "engine-older"
    FEW_BITS = "few-bits"
    GGUF_BY_PLUG_IN = "gguf-by-plug-in"
    NO_16_BIT_RATE = "no-16-bit-rate"
    PRE_RELEASE = "pre-release"
    UNKNOWN_GENERATION = "unknown-generation"
    POWER_LIMITED = "power-limited"
    EXPERIMENTAL_STAGES = "experimental-stages"
    EXPERIMENTAL_DRAFTER_GPU = "experimental-drafter-gpu"
    EXPERIMENTAL_NODES = "experimental-nodes"
    EXPERIMENTAL_WATTS = "experimental-watts"
    EXPERIMENTAL_POOLS = "experimental-pools"
    EXPERIMENTAL_LINK = "experimental-link"
    BEYOND_TRAINED_CONTEXT = "beyond-trained-context"
    LENGTHS_NOT_TAKEN = "lengths-not-taken"
    LONGEST_IS_BEST = "longest-is-best"
    LENGTHS_END = "lengths-end"
    TREE_ACCEPTANCE = "tree-acceptance"
    ONE_RATE_IN_LONG_DRAFTS = "one-rate-in-long-drafts"
    DRAFTS_DO_NOT_FIT = "drafts-do-not-fit"
    SLOWER_THAN_WIDE = "slower-than-wide"
    KV_SAVES_NO_TIME = "kv-saves-no-time"
    KV_CONVERTED_BY_WARPS = "kv-converted-by-warps"
    SHIPPED_IS_FASTER = "shipped-is-faster"
    SHIPS_AS = "ships-as"
    FORMAT_NEAREST = "format-nearest"
    PAST_GRAPHS = "past-graphs"
    PAST_GRAPHS_IN_SWEEP = "past-graphs-in-sweep"
    PAST_GRAPHS_UNDER_LOAD = "past-graphs-under-load"
    # what an engine makes of a schedule
    LAST_BAND_KEPT = "last-band-kept"
    NOTHING_DRAFTED_ABOVE = "nothing-drafted-above"
    SCHEDULE_GRAPH_MODE = "schedule-graph-mode"
    SCHEDULE_NOT_WORTH = "schedule-not-worth"
    SCHEDULE_GAINS_NOTHING = "schedule-gains-nothing"
    SCHEDULE_OFF_IN_COPIES = "schedule-off-in-copies"
    SCHEDULE_OFF_IN_GROUPS = "schedule-off-in-groups"
    FORM_REJECTED = "form-rejected"
    DEFAULT_SIZES = "default-sizes"
    GIVEN_SIZES = "given-sizes"
    NEAREST_SCHEDULE = "nearest-schedule"
    DRAFTER_CACHE_BEHIND = "drafter-cache-behind"
    OTHER_RELEASES_REFUSE = "other-releases-refuse"
    OTHER_RELEASES_DIFFER = "other-releases-differ"
    OTHER_RELEASES_AGREE = "other-releases-agree"
    # why there is no schedule
    NO_SCHEDULE = "no-schedule"
    NOTHING_TO_SCHEDULE = "nothing-to-schedule"
    NO_RELEASE_TAKES_SCHEDULES = "no-release-takes-schedules"
    SCHEDULE_OFF_UNDER_DP_ATTENTION = "schedule-off-under-dp-attention"
    DRAFTER_DOES_NOT_FIT = "drafter-does-not-fit"
    # what a schedule leaves out
    BATCHES_NOT_ASKED = "batches-not-asked"
    BATCHES_DO_NOT_FIT = "batches-do-not-fit"
    CONTEXT_DOES_NOT_FIT = "context-does-not-fit"
    LENGTH_HAS_NO_ROOM = "length-has-no-room"
    # what an answer leaves out
    VARIANT_LEFT_OUT = "variant-left-out"
    GOAL_MISSED = "goal-missed"
    # where a figure of an answer comes from
    BANDWIDTH_OF_PROFILE = "bandwidth-of-profile"
    MEMORY_SIZE_SEEN = "memory-size-seen"
    MEMORY_SIZE_OF_DATASHEET = "memory-size-of-datasheet"
    SETTING_CHANGED = "setting-changed"
    TIMINGS_TAKEN = "timings-taken"
    # what stands in for what a server does not say
    WEIGHTS_BY_NAME = "weights-by-name"
    DRAFTER_NOT_BUNDLED = "drafter-not-bundled"
    ACCEPTANCE_UNKNOWN = "acceptance-unknown"
    LENGTH_NOT_READ = "length-not-read"
    MEAN_ONLY = "mean-only"


#: Notices that state an assumption; all others warn.
ASSUMED = frozenset(
    {
        Code.CONFIG_DEFAULT,
        Code.CONFIG_NOTE,
        Code.NAME_TAKEN,
        Code.WEIGHTS_NAMED,
        Code.FORMAT_NEAREST,
        Code.HEAD_ASSUMED,
        Code.PLAIN_ASSUMED,
        Code.HEAD_DERIVED,
        Code.HEAD_BY_NAME,
        Code.DRAFTER_STORED_AS_TARGET,
        Code.HOST_ASSUMED,
        Code.POWER_LIMITED,
        Code.NO_OWN_RATE,
        Code.ACCEPTANCE_ASSUMED,
        Code.GAPS_FILLED,
        Code.HIT_RATE_ASSUMED,
        Code.OVER_ALL_PASSES,
    }
)


class Notice(NamedTuple):
    """One thing to know: its code, and the values that its sentence names."""

    code: Code
    pairs: tuple[tuple[str, Any], ...] = ()

    @property
    def values(self) -> Mapping[str, Any]:
        """The values by name."""
        return dict(self.pairs)

    @property
    def assumption(self) -> bool:
        """Whether it states an assumption; else it warns."""
        return self.code in ASSUMED


def notice(code: Code, **values: Any) -> Notice:
    """Return a notice. Its values are hashable, so that equal notices can be found."""
    return Notice(code=code, pairs=tuple(values.items()))
