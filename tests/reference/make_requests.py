"""Write ``roofline/data/validation/requests.csv`` from collections of published measurements.

``python -m tests.reference.make_requests FOLDER``, where FOLDER holds ``e2e_a100_quantised.csv``
and ``served_by_context.csv``. What a source does not print in its rows stands here once: lengths of
prompts, numbers of requests, and what is a mean or a median. MiniMax-M2.5 at TP 8 without expert
parallelism is left out: vLLM takes no shard of 192 columns of block-fp8 experts today.
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

from roofline.base.resources import data_file

FIELDS = (
    "id", "group", "source", "gpu", "tp", "ep", "model", "weights", "kv", "engine", "clients",
    "count", "prompt", "output", "chunk", "drafter", "draft_length", "tokens_per_step", "statistic",
    "plain_ttft_ms", "ttft_ms", "plain_tpot_ms", "tpot_ms", "dataset",
)  # fmt: skip
#: Prompt tokens: the server's log counts 72 tokens/s over 10 s for each prompt of GSM8K (8 shots),
#: and 67 for each of RAG (phase2_results/server_logs/server_20260708_221106.log).
PROMPTS = {"gsm8k": 720, "rag_shared_prefix": 672}
COUNTS = {1: 64, 8: 160, 32: 320, 64: 512}  # configs/factorial/*.yaml, num_requests
#: vLLM reads 2,048 tokens a pass on an A100 behind its server, 8,192 on an H200 (EngineArgs).
CHUNKS = {"a100-sxm-80gb": 2048, "h200-sxm": 8192}
A100 = "manojarulmurugan/SpecDecoding-Study-vLLM-SGLang"
INFERENCEX = "SemiAnalysisAI/InferenceX experimental/token_position_decode_slo (Apache-2.0)"
MODELS = {
    "zai-org/GLM-5-FP8": ("glm-5-fp8", "glm-5"),
    "Qwen/Qwen3.5-397B-A17B": ("qwen3.5-397b-a17b", "qwen3.5-397b"),
    "MiniMaxAI/MiniMax-M2.5": ("minimax-m2.5", "minimax-m2.5"),
}


def main(folder: Path) -> None:
    """Write the file."""
    rows = [*_a100(folder / "e2e_a100_quantised.csv"), *_served(folder / "served_by_context.csv")]
    path = Path(str(data_file("validation"))) / "requests.csv"
    with path.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.DictWriter(opened, FIELDS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _a100(path: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for row in csv.DictReader(path.open(encoding="utf-8")):
        first = re.search(r"TTFT ms base ([\d.]+) spec ([\d.]+)", row["notes"])
        pace = re.search(r"per request base ([\d.]+) spec ([\d.]+)", row["notes"])
        if first is None or pace is None:
            continue
        weights = "int4-g128" if row["precision_weights"] == "w4a16" else ""
        found.append(
            {
                "id": row["id"],
                "group": f"a100-{weights or 'fp16'}-kv-{row['kv_dtype']}",
                "source": A100,
                "gpu": "a100-sxm-80gb",
                "tp": 1,
                "ep": 1,
                "model": "llama-3.1-8b",
                "weights": weights,
                "kv": "fp8" if row["kv_dtype"] == "fp8" else "",
                "engine": "vllm@0.24",
                "clients": row["batch_or_concurrency"],
                "count": COUNTS[int(row["batch_or_concurrency"])],
                "prompt": PROMPTS[row["dataset"]],
                "output": round(float(row["output_len"])),
                "chunk": CHUNKS["a100-sxm-80gb"],
                "drafter": "eagle3",
                "draft_length": 5,
                "tokens_per_step": row["accept_len"],
                "statistic": "mean",
                "plain_ttft_ms": first[1],
                "ttft_ms": first[2],
                "plain_tpot_ms": round(1e3 / float(pace[1]), 4),
                "tpot_ms": round(1e3 / float(pace[2]), 4),
                "dataset": row["dataset"],
            }
        )
    return found


def _served(path: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for row in csv.DictReader(path.open(encoding="utf-8")):
        model, group = MODELS[row["model"]]
        drafting = row["drafter"].startswith("MTP")
        expert = "tep8" in row["source_url_or_repo_path"]
        measured = {"ttft_ms": row["ttft_ms"], "tpot_ms": row["base_value"] or row["spec_value"]}
        named = measured if drafting else {f"plain_{key}": measured[key] for key in measured}
        if group.startswith("minimax") and not expert:
            continue
        clients = int(row["batch_or_concurrency"])
        found.append(
            {
                "id": row["id"],
                "group": f"{group}-{'tep8' if expert else 'tp8'}",
                "source": INFERENCEX,
                "gpu": "h200-sxm",
                "tp": 8,
                "ep": 8 if expert else 1,
                "model": model,
                "engine": "vllm",
                "clients": clients,
                "count": 10 * clients,
                "prompt": row["input_len"],
                "output": row["output_len"],
                "chunk": CHUNKS["h200-sxm"],
                "drafter": "mtp" if drafting else "",
                "draft_length": 1 if drafting else 0,
                "statistic": "median",
                "dataset": "random",
                **named,
            }
        )
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]))
