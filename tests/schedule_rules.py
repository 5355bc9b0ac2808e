"""What each engine makes of a schedule, written anew from the rules in their sources.

Nothing here is shared with the package: a round trip through these readers tells whether what was
written means what was meant. Sources: vLLM 0.33.0 vllm/v1/spec_decode/dynamic/utils.py and its open
PR 48944; SGLang adaptive_spec_params.py and adaptive_step_router.py; TensorRT-LLM llm_args.py of
the 1.3 line, and of the form of PR 8194.
"""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Sequence
from typing import Any

import yaml


class RefusedError(Exception):
    """The engine would stop with an error."""


def demand(truth: object, rule: str) -> None:
    if not truth:
        raise RefusedError(rule)


# vLLM -----------------------------------------------------------------------------------------


def vllm_config(text: str) -> dict[str, Any]:
    name, value = shlex.split(text)
    demand(name == "--speculative-config", "flag")
    config = json.loads(value)
    demand(isinstance(config, dict) and config["num_speculative_tokens"] > 0, "tokens > 0")
    return dict(config)


def vllm_lengths(text: str, largest: int) -> list[int]:
    """Return the K of batches 1 to ``largest`` under the rules of 0.33.0."""
    config = vllm_config(text)
    limit = config["num_speculative_tokens"]
    table = config.get("num_speculative_tokens_per_batch_size")
    if table is None:
        return [limit] * largest
    demand(isinstance(table, list) and table, "a non-empty list")
    for row in table:
        demand(isinstance(row, list) and len(row) == 3, "exactly three items")
        demand(1 <= row[0] <= row[1] and row[2] >= 0, "1 <= start <= end, K >= 0")
    ordered = sorted(table)
    demand(ordered[0][0] == 1, "the first range starts at 1")
    demand(all(b[0] > a[1] for a, b in itertools.pairwise(ordered)), "no overlap")
    lengths = []
    for batch in range(1, largest + 1):
        started = [row for row in ordered if row[0] <= batch]
        lengths.append(min(started[-1][2], limit))  # a gap and the tail carry the K before
    return lengths


def vllm_proposed(text: str, batch: int, context: int) -> int:
    """Return the K that rows of five would give (PR 48944): a full grid of ranges."""
    config = vllm_config(text)
    table = config["num_speculative_tokens_per_batch_size"]
    demand(all(len(row) == 5 for row in table), "five items")
    sizes = sorted({(row[0], row[1]) for row in table})
    contexts = sorted({(row[2], row[3]) for row in table})
    demand(len(table) == len(sizes) * len(contexts), "a full grid")
    demand(len({tuple(row[:4]) for row in table}) == len(table), "no cell twice")
    demand(sizes[0][0] == 1 and contexts[0][0] == 1, "both start at 1")
    demand(all(b[0] > a[1] for a, b in itertools.pairwise(sizes)), "no overlap")
    demand(all(b[0] == a[1] + 1 for a, b in itertools.pairwise(contexts)), "no gap")
    size = [s for s in sizes if s[0] <= batch][-1]
    bucket = next((c for c in contexts if context <= c[1]), contexts[-1])
    (length,) = (row[4] for row in table if tuple(row[:4]) == (*size, *bucket))
    return int(min(length, config["num_speculative_tokens"]))


# TensorRT-LLM ---------------------------------------------------------------------------------


def trtllm_config(text: str) -> dict[str, Any]:
    config = yaml.safe_load(text)["speculative_config"]
    demand(config["max_draft_len"] > 0, "max_draft_len > 0")
    demand(not {"max_concurrency", "draft_len_schedule"} <= set(config), "one of the two")
    return dict(config)


def trtllm_newer(text: str, largest: int) -> list[int]:
    config = trtllm_config(text)
    most = config["max_draft_len"]
    limit = config.get("max_concurrency")
    demand(limit is None or limit > 0, "max_concurrency > 0")
    table = {limit: most} if limit else config.get("draft_len_schedule")
    if table is None:
        return [most] * largest
    demand(all(key >= 1 and 0 <= value <= most for key, value in table.items()), "bounds")
    demand(table[min(table)] == most, "the smallest key holds max_draft_len")
    lengths = []
    for batch in range(1, largest + 1):
        above = [key for key in table if key >= batch]
        lengths.append(table[min(above)] if above else 0)
    return lengths


def trtllm_older(text: str, largest: int) -> list[int]:
    config = trtllm_config(text)
    most = config["max_draft_len"]
    limit = config.get("max_concurrency")
    if limit:
        return [most if batch <= limit else 0 for batch in range(1, largest + 1)]
    table = config.get("draft_len_schedule")
    if table is None:
        return [most] * largest
    demand(1 in table and table[1] == most, "key 1 holds max_draft_len")
    demand(all(0 <= value <= most for value in table.values()), "bounds")
    return [table[max(key for key in table if key <= batch)] for batch in range(1, largest + 1)]


# SGLang ---------------------------------------------------------------------------------------


def sglang_candidates(text: str, largest: int, captured: Sequence[int]) -> list[list[int]]:
    """Return the candidate steps of batches 1 to ``largest`` after padding."""
    content = json.loads(text)
    table = {int(key): entry for key, entry in content.items() if key.isdigit()}
    demand(table, "at least one slot")
    for entry in table.values():
        steps = entry["candidate_steps"]
        demand(isinstance(steps, list) and steps, "a list of steps")
        demand(all(type(step) is int and step >= 0 for step in steps), "steps >= 0")
    found = []
    for batch in range(1, largest + 1):
        padded = min((size for size in captured if size >= batch), default=batch)
        lower = [key for key in table if key <= padded]
        found.append(table[max(lower) if lower else min(table)]["candidate_steps"])
    return found
