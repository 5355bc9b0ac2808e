"""Write ``roofline/data/validation/held_out.csv`` from tables of published runs that no fit sees.

    python -m tests.reference.make_held_out OUT.csv LENGTHS.csv QUANTISED.csv PREFILL.csv

What each source's configuration means here stands below; the measured columns are copied.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from pathlib import Path

Row = dict[str, str]
COLUMNS = [
    "id", "group", "source", "gpu", "tp", "model", "linears", "kv", "engine", "batch", "context",
    "prompt", "output", "dataset", "kind", "draft_length", "tokens_per_step", "speedup", "note",
]  # fmt: skip
LLAMA = "llama-3.1-8b"
FORMATS = {"w4a16": "int4-g128", "fp16": "fp16", "fp8": "fp8"}


def lengths(row: Row) -> Row:
    """H100, vLLM: draft lengths by batch; short prompts of unstated length, or 8192 tokens."""
    long = row["input_len"]
    return {
        "group": "h100-lengths-8k" if long else "h100-lengths",
        "gpu": "h100-sxm",
        "model": "qwen3-14b" if "14B" in row["model"] else LLAMA,
        "context": long or "350",
        "note": "" if long else "context assumed",
    }


def quantised(row: Row) -> Row:
    """A100, vLLM 0.24: closed loop of clients, answers of 256 tokens, prompts inside.

    The prompts of gsm8k are eight worked examples of some 2,300 characters: about 640 tokens; those
    of rag take as long to the first token and as long a step.
    """
    weights, kv = FORMATS[row["precision_weights"]], FORMATS[row["kv_dtype"]]
    return {
        "group": f"a100-{weights}-kv-{kv}",
        "gpu": "a100-sxm-80gb",
        "model": LLAMA,
        "linears": weights,
        "kv": kv,
        "context": "768",
        "prompt": "640",
        "output": "256",
        "note": "length of the prompt assumed",
    }


def prefill(row: Row) -> Row:
    """A100, vLLM: 1024 prompts, the time to read them inside; both lengths are stated."""
    prompt, output = int(float(row["input_len"])), int(float(row["output_len"]))
    return {
        "group": "a100-prefill",
        "gpu": "a100-sxm-40gb",
        "model": LLAMA,
        "context": str(prompt + output // 2),
        "prompt": str(prompt),
        "output": str(output),
    }


def convert(row: Row, describe: Callable[[Row], Row]) -> Row | None:
    """Return one line; None without a speedup over plain decoding or a draft length."""
    if not (row["speedup"] and row["draft_tokens_D"] and row["accept_len"]):
        return None
    return dict.fromkeys(COLUMNS, "") | {
        "id": row["id"],
        "source": row["source_url_or_repo_path"].split(" (")[0],
        "tp": row["tp"],
        "engine": "vllm",
        "batch": str(int(float(row["batch_or_concurrency"]))),
        "dataset": row["dataset"],
        "kind": "eagle3",
        "draft_length": row["draft_tokens_D"],
        "tokens_per_step": row["accept_len"],
        "speedup": row["speedup"],
        **describe(row),
    }


def main(target: Path, *sources: Path) -> None:
    """Convert the tables, in the order of the describing functions."""
    rows = []
    for source, describe in zip(sources, (lengths, quantised, prefill), strict=True):
        with source.open(encoding="utf-8", newline="") as file:
            rows += [line for row in csv.DictReader(file) if (line := convert(row, describe))]
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
