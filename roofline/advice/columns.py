"""One table of columns: what each is called in a file and above a table, and what it means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from roofline.kernels.ops import Part
from roofline.specs.formats import Component

__all__ = ["CATALOGUE", "Column", "ColumnKind", "cells", "columns", "printed"]


class ColumnKind(StrEnum):
    """The type of a column's values; any of them may be missing."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"


class Column(NamedTuple):
    """One column. Its key ends in the unit of its values where they have one."""

    key: str  # of JSON, CSV, Parquet and data frames
    kind: ColumnKind = ColumnKind.NUMBER
    meaning: str = ""
    heading: str = ""  # above a table; a newline may break it
    form: str = "{value}"  # of a cell in a table; it may name other keys of the row

    def cell(self, row: Mapping[str, Any]) -> str:
        """Return a row's cell, a dash where its value is missing.

        >>> Column(key="speedup", form="{value:.2f}x").cell({"speedup": 1.5})
        '1.50x'
        """
        value = row[self.key]
        return "-" if value is None else self.form.format(value=value, **row)


def cells(chosen: Iterable[Column], row: Mapping[str, Any]) -> list[str]:
    """Return a row's cells under these columns."""
    return [column.cell(row) for column in chosen]


#: What one step spends its time on, key and meaning.
_TIMES = {
    "step": "time of one step: verify + draft + overhead",
    "verify": "kernels of the target's pass over 1 + D rows per sequence",
    "draft": "kernels of the drafter's passes",
    "overhead": "the engine's time around the kernels",
}
_PARTS = {
    Part.LINEAR: "dense matrix products, verify and draft",
    Part.ATTENTION: "attention, indexers and recurrent states",
    Part.MOE: "router, experts and shared experts",
    Part.LM_HEAD: "vocabulary projections",
    Part.COMMUNICATION: "collectives between the GPUs",
    Part.OTHER: "norms, activations, sampling and the engine's overhead",
}


_TEXT, _INTEGER, _NUMBER, _BOOLEAN = ColumnKind
#: What an answer was asked about.
_ASKED = (
    Column("model", _TEXT, "id of the model, or the path given where it was refused"),
    Column("gpu", _TEXT, "id of the accelerator, as `model`"),
    Column("engine", _TEXT, "serving engine as asked, era included"),
    Column("tp", _INTEGER, "tensor-parallel GPUs"),
    Column("gpus", _INTEGER, "GPUs in all: tensor-parallel, or the cards of a machine"),
    Column("ep", _INTEGER, "groups of those GPUs that experts are placed on"),
    Column("drafter", _TEXT, "drafter; the one chosen where none was asked for"),
    Column("acceptance", _TEXT, "acceptance as asked; the curve chosen where none was"),
    Column("weights", _TEXT, "format of the MLP's (else the experts') weights"),
    Column("kv", _TEXT, "format of the KV cache"),
    Column("set", _TEXT, "what was overridden"),
    Column("gpu_hour", _NUMBER, "price of one GPU for an hour, in dollars"),
    Column("batch", _INTEGER, "sequences decoded together"),
    Column("context", _INTEGER, "tokens in the KV cache of each sequence"),
    Column(
        "draft_length",
        _INTEGER,
        "tokens drafted per target pass, D; 0 is plain decoding",
        "D",
        "{value:d}",
    ),
)
#: What is found at a batch, context and draft length.
_FOUND = (
    Column("fits", _BOOLEAN, "whether it can be run; where not, figures are missing"),
    Column("reason", _TEXT, "why it cannot be run, or a fact not be read; missing where it can"),
    Column("captured", _BOOLEAN, "whether the engine's CUDA graphs cover the pass"),
    Column("memory_needed_bytes", _NUMBER, "bytes needed on one GPU"),
    Column("memory_available_bytes", _NUMBER, "bytes that the engine can use of one GPU"),
    Column(
        "tokens_per_step",
        _NUMBER,
        "mean tokens emitted per target pass, AL",
        "tokens\nper step",
        "{value:.2f}",
    ),
    *(
        Column(f"{name}_ms", _NUMBER, meaning, f"{name}\nms", "{value:.2f}")
        for name, meaning in _TIMES.items()
    ),
    Column("by_hand_ms", _NUMBER, "part of `overhead_ms`: launching kernels one by one"),
    *(
        Column(f"{part.value}_ms", _NUMBER, f"part of `step_ms`: {meaning}")
        for part, meaning in _PARTS.items()
    ),
    Column(
        "cost_ratio",
        _NUMBER,
        "step time over that of D = 0; AL breaks even here",
        "cost ratio =\nbreak-even",
        "{value:.3f}",
    ),
    Column("speedup", _NUMBER, "tokens per second over those of D = 0", "speedup", "{value:.2f}x"),
    Column("speedup_low", _NUMBER, "10th percentile of the speedup under the laws' errors"),
    Column("speedup_high", _NUMBER, "90th percentile"),
    Column("near_best", _NUMBER, "share of draws in which this D is within 1 % of the best"),
    Column("tpot_ms", _NUMBER, "time per output token of one sequence"),
    Column("tokens_per_s_user", _NUMBER, "tokens per second of one sequence"),
    Column(
        "tokens_per_s",
        _NUMBER,
        "tokens per second of all sequences",
        "tokens/s\nbatch",
        "{value:.0f}",
    ),
    Column(
        "dollars_per_million_tokens",
        _NUMBER,
        "price of a million output tokens of all sequences, at `gpu_hour`",
        "$/M\ntokens",
        "{value:#.3g}",
    ),
    Column(
        "watts",
        _NUMBER,
        "what one GPU draws on the mean (experimental)",
        "W per\nGPU",
        "{value:.0f}",
    ),
    Column("watts_low", _NUMBER, "10th percentile"),
    Column("watts_high", _NUMBER, "90th percentile"),
    Column(
        "joules_per_token",
        _NUMBER,
        "energy of all GPUs for one output token (experimental)",
        "J per\ntoken",
        "{value:#.3g}",
    ),
    Column("joules_per_token_low", _NUMBER, "10th percentile"),
    Column("joules_per_token_high", _NUMBER, "90th percentile"),
    Column("tie", _BOOLEAN, "within 1 % of the fastest D of this batch and context"),
    Column(
        "recommended", _BOOLEAN, "whether this D is the recommended one: the smallest in the tie"
    ),
    Column("recommended_draft_length", _INTEGER, "the recommended D of this batch and context"),
    Column(
        "limited_by",
        _TEXT,
        "what ends the draft lengths, where the recommended D is the longest: `acceptance` (known "
        "no further), `search` (the longest asked about), `drafter`, `draft-block` or "
        "`verify-width`; missing where a shorter one is recommended",
    ),
    Column("confidence", _TEXT, "win, inside_error or loss, of this batch and context"),
)
#: What other answers add.
_OF_ANSWERS = (
    # a load
    Column("policy", _TEXT, "`fixed`, one D at every batch, or `schedule`"),
    Column("usable", _BOOLEAN, "whether it carries the load; numbers are missing where not"),
    Column("running", _NUMBER, "mean sequences decoded together"),
    Column("waiting", _NUMBER, "share of time in which requests wait"),
    Column("slots", _INTEGER, "sequences that run at most"),
    Column("gap_p50_ms", _NUMBER, "median time between two bursts of tokens"),
    Column("gap_p99_ms", _NUMBER, "99th percentile"),
    Column("gaps_with_prompt", _NUMBER, "share of gaps in which prompt tokens rode along"),
    Column("gaps_past_graphs", _NUMBER, "share of gaps in steps past the captured CUDA graphs"),
    Column("most_rps", _NUMBER, "requests per second that it serves at most"),
    Column("dollars_per_million_at_most", _NUMBER, "price of a million tokens at `most_rps`"),
    # a whole request
    Column("ttft_ms", _NUMBER, "time to the first token"),
    Column("ttft_low_ms", _NUMBER, "10th percentile"),
    Column("ttft_high_ms", _NUMBER, "90th percentile"),
    Column("tpot_low_ms", _NUMBER, "10th percentile of `tpot_ms`"),
    Column("tpot_high_ms", _NUMBER, "90th percentile"),
    Column("request_s", _NUMBER, "time from a request's coming to its last token"),
    Column("request_low_s", _NUMBER, "10th percentile"),
    Column("request_high_s", _NUMBER, "90th percentile"),
    Column("speedup_per_step", _NUMBER, "`speedup` of passes without prompts"),
    Column("speedup_per_step_low", _NUMBER, "10th percentile"),
    Column("speedup_per_step_high", _NUMBER, "90th percentile"),
    Column("speedup_per_token", _NUMBER, "`tpot_ms` of D = 0 over this one, prompts in both"),
    Column("speedup_per_token_low", _NUMBER, "10th percentile"),
    Column("speedup_per_token_high", _NUMBER, "90th percentile"),
    Column("prompt_share", _NUMBER, "share of a request's time that prompts take, all of them"),
    # requests of a load
    Column("ttft_most_ms", _NUMBER, "what the percentile of requests asked about has at most"),
    Column("tpot_most_ms", _NUMBER, "the same of each request's own time per token"),
    Column("e2e_most_ms", _NUMBER, "the same of the time to the last token"),
    Column("requests_per_s", _NUMBER, "requests per second that are served"),
    Column("met_percent", _NUMBER, "percent of requests that meet every limit"),
    Column("held", _NUMBER, "requests per second, or clients, that hold the limits at most"),
    # requests that start together
    Column("seconds", _NUMBER, "time until the last answer is there"),
    Column("alone_percent", _NUMBER, "percent of the time with one sequence"),
    Column("time_past_graphs", _NUMBER, "share of it in steps past the captured CUDA graphs"),
    # a schedule
    Column("batch_start", _INTEGER, "smallest batch of the band"),
    Column("batch_end", _INTEGER, "largest batch of the band"),
    Column("contexts", _TEXT, "contexts of the band, or of an acceptance, in tokens"),
    Column("smallest_speedup", _NUMBER, "`speedup` at the point of the band that gains least"),
    Column("largest_speedup", _NUMBER, "`speedup` at the point of the band that gains most"),
    Column("largest_loss", _NUMBER, "share of speed lost to the best D, at its worst point"),
    # timings
    Column("timings", _INTEGER, "timings of this D at this batch"),
    Column("relative_speed", _NUMBER, "speed as it is believed over that of the chosen D"),
    Column("worth_percent", _NUMBER, "speed that a further timing is expected to gain"),
    Column("chosen", _BOOLEAN, "whether it is the D to run"),
    # a comparison
    Column("drafter_kind", _TEXT, "sort of drafter"),
    Column("best_draft_length", _INTEGER, "the best D above 0 of this drafter: the row is of it"),
    Column("slots_lost", _NUMBER, "share of the sequences that fit without drafts"),
    Column("acceptance_source", _TEXT, "where the acceptance comes from"),
    Column("flag", _TEXT, "what to give the engine"),
    # an account of memory, on the fullest GPU
    Column("largest_batch", _INTEGER, "sequences that fit at most"),
    *(
        Column(
            f"{component.value.replace(' ', '_')}_weights_bytes", _NUMBER, "weights of this sort"
        )
        for component in Component
    ),
    Column("draft_weights_bytes", _NUMBER, "the drafter's weights on one GPU"),
    Column("target_kv_bytes", _NUMBER, "the target's KV cache"),
    Column("draft_kv_bytes", _NUMBER, "the drafter's KV cache"),
    Column("d_plus_1_slots_bytes", _NUMBER, "KV slots of the D + 1 tokens of a pass"),
    Column("block_rounding_bytes", _NUMBER, "what whole blocks of the cache add"),
    Column("state_bytes", _NUMBER, "recurrent states"),
    Column("state_snapshots_bytes", _NUMBER, "their copies, to undo rejected drafts"),
    Column("logits_bytes", _NUMBER, "logits of a pass"),
    Column("activations_bytes", _NUMBER, "activations of the largest pass"),
    Column("engine_reserve_bytes", _NUMBER, "what the engine keeps for itself"),
    Column("not_the_engines_bytes", _NUMBER, "what the engine leaves alone"),
    Column("free_bytes", _NUMBER, "what is left at `batch`"),
    Column("sequence_reserved_bytes", _NUMBER, "reserved for one sequence"),
    Column("sequence_fixed_bytes", _NUMBER, "of these, whatever its context"),
    Column("sequence_per_token_bytes", _NUMBER, "one more token of a sequence"),
    Column("sequence_read_bytes", _NUMBER, "read of one sequence's cache by a pass"),
    # variants of an architecture; `speedup_N` and `cost_ratio_N` are those of D = N
    Column("parameters", _INTEGER, "parameters in all"),
    Column("kv_bytes_per_token", _NUMBER, "KV cache of a token, each KV head once"),
    Column("kv_bytes_per_token_gpu", _NUMBER, "the share of one GPU, copies included"),
    Column("kv_copied", _BOOLEAN, "whether there are fewer KV heads than GPUs"),
    Column("plain_tpot_ms", _NUMBER, "`tpot_ms` at D = 0"),
    Column("falls_from_batch", _INTEGER, "batch from which on D is below that of the smallest"),
    Column("stops_from_batch", _INTEGER, "batch from which on D = 0 is best"),
    # a diagnosis
    *(
        Column(f"{whose}_{time}_ms", _NUMBER, f"`{time}_ms`, {whose}")
        for time in ("tpot", "step")
        for whose in ("measured", "predicted")
    ),
    Column("difference", _NUMBER, "measured over predicted, less 1"),
    Column("band", _NUMBER, "the prediction's error, as a share of it"),
    Column("explained_step_ms", _NUMBER, "`step_ms` under the best explanation"),
)
#: What the data of charts add.
_OF_CHARTS = (
    Column(
        "tokens_per_step_low", _NUMBER, "10th percentile of what is not known of the acceptance"
    ),
    Column("tokens_per_step_high", _NUMBER, "90th percentile"),
    Column("tokens_per_step_measured", _NUMBER, "as it was given"),
    Column("tokens_per_step_expected", _NUMBER, "what public runs led to expect before"),
    Column("cost_ratio_low", _NUMBER, "10th percentile of the cost ratio under the laws' errors"),
    Column("cost_ratio_high", _NUMBER, "90th percentile"),
    Column("tokens_per_s_gpu", _NUMBER, "tokens per second of all sequences, over the GPUs"),
    Column("on_plain_curve", _BOOLEAN, "no batch at D = 0 is better for users and throughput"),
    Column("on_advised_curve", _BOOLEAN, "the same of batches at their recommended D"),
    *(
        Column(f"verify_{part.value}_ms", _NUMBER, f"part of `verify_ms`: {meaning}")
        for part, meaning in _PARTS.items()
    ),
    Column("best_speculative_speedup", _NUMBER, "the largest speedup of all D above 0"),
    Column("no_draft_because", _TEXT, "`memory`, `graphs` or `acceptance`; missing where D > 0"),
    Column("group", _TEXT, "rows that belong together"),
    Column("op", _TEXT, "kernel"),
    Column("intensity_flop_per_byte", _NUMBER, "FLOP per byte moved"),
    Column("attained_tflop_per_s", _NUMBER, "TFLOP per second"),
    Column("time_ms", _NUMBER, "time of all launches of the step"),
    Column("time_us", _NUMBER, "time of one layer"),
    Column("share_of_step", _NUMBER, "share of the step's time"),
    Column("roof", _TEXT, "kernel of the roof that it stands under"),
    Column("share_of_roof", _NUMBER, "share of what that roof allows"),
    Column("mode", _TEXT, "how the cache is read"),
    Column("in_use", _BOOLEAN, "whether answers for this machine assume that mode"),
    Column("query_heads_per_kv_head", _INTEGER, "G"),
    Column("query_rows", _INTEGER, "G (1 + D) over each cache"),
    Column("tile_rows", _INTEGER, "query rows that one thread block takes"),
    Column("bandwidth_used", _NUMBER, "share of the datasheet's, the cache counted once"),
    Column("peak_used", _NUMBER, "share of the datasheet's, without padding"),
    Column("measured_us", _NUMBER, "measured time"),
    Column("predicted_us", _NUMBER, "predicted time"),
    Column("textbook_us", _NUMBER, "time by peak and bandwidth alone"),
)
#: Rules that choose a draft length, for scores of advice.
_RULES = {
    "ours": "here",
    "always_3": "where it is always 3",
    "leviathan": "by the rule of Leviathan et al.",
    "textbook": "by peak and bandwidth alone",
}
#: What lists and scores add.
_OF_LISTS = (
    Column("id", _TEXT, "what it is called"),
    Column("name", _TEXT, "what the row is about"),
    Column("kind", _TEXT, "sort of what the row is about"),
    Column("dtype", _TEXT, "format of its numbers"),
    Column("layers", _INTEGER, "layers"),
    Column("read_per_step", _INTEGER, "parameters that one decoded token reads"),
    Column("memory_GB", _NUMBER, "memory"),
    Column("bandwidth_GB/s", _NUMBER, "bandwidth of the memory"),
    *(
        Column(f"{rate}_TFLOP/s", _NUMBER, f"dense peak in {rate}")
        for rate in ("bf16", "fp8", "fp4")
    ),
    Column("domain", _INTEGER, "GPUs that reach each other without a network"),
    Column("target", _TEXT, "model that is drafted for"),
    Column("datasets", _TEXT, "what it was measured on"),
    Column("draft_lengths", _TEXT, "the D it is known at"),
    Column("temperature", _TEXT, "sampling temperatures"),
    Column("license", _TEXT, "license of the data"),
    Column("source", _TEXT, "where it comes from"),
    Column("fact", _TEXT, "what was looked for on a server"),
    Column("value", _TEXT, "what was found"),
    Column("suite", _TEXT, "measurements that a score is over"),
    Column("n", _INTEGER, "rows that a score is over"),
    *(
        Column(f"{of}{error}_abs_error", _NUMBER, "absolute error, as a share of the measurement")
        for of in ("", "textbook_", "above_floor_")
        for error in ("median", "p90")
    ),
    Column("own", _BOOLEAN, "whether the tokens per step are those of the measured rows"),
    Column("best", _INTEGER, "the measured best D"),
    *(
        Column(f"{rule}_{key}", kind, f"{meaning} {whose}")
        for rule, whose in _RULES.items()
        for key, kind, meaning in (
            ("draft_length", _INTEGER, "D that is chosen"),
            ("regret", _NUMBER, "share of the speed at the measured best D lost by the D chosen"),
        )
    ),
    Column("bias", _NUMBER, "median of predicted over measured, less 1"),
)
#: Every column of a table that a program reads, by key: no key has two meanings.
CATALOGUE: Mapping[str, Column] = {
    column.key: column for column in (*_ASKED, *_FOUND, *_OF_ANSWERS, *_OF_CHARTS, *_OF_LISTS)
}


def printed(key: str, heading: str, form: str = "{value}") -> Column:
    """Return a column that stands in a table for people alone, or under another heading there.

    >>> printed("share", "share", "{value:.0%}").cell({"share": 0.25})
    '25%'
    """
    return Column(key=key, heading=heading, form=form)


def columns(*keys: str) -> tuple[Column, ...]:
    """Return the columns of these keys.

    >>> [column.heading for column in columns("draft_length", "speedup")]
    ['D', 'speedup']
    """
    return tuple(CATALOGUE[key] for key in keys)
