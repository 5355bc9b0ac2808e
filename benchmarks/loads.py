"""How far the answers about a load are from an event simulation on the same step times.

    python -m benchmarks.loads

Llama 3.1 8B at D = 3 on one H100; the simulation is the tests' own (``tests/serving.py``).
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np

from roofline.advice.question import question_of
from roofline.questions import goals
from roofline.render.writers import markdown_table
from roofline.specs.placement import Chunks
from tests.serving import Clients, Engine, replicated

BATCHES = tuple(b for b in goals.GOAL_BATCHES if b <= 160)
OUTPUT = 400
#: Requests per second, or clients and what they think [s].
REQUESTS = ((8.0, 0, 0.0), (16.0, 0, 0.0), (0.0, 32, 0.0), (0.0, 64, 4.0))
#: EAGLE-3 on MT-Bench: 2.79 tokens per step at D = 3.
SURVIVAL = (0.72, 0.64, 0.43)
#: Tokens in, mean context, tokens of a chunk, chunks a prompt, at most a step; requests per second.
LOADS = (
    (1024, 1224, 1024, 1, 8, (8.0, 12.0, 16.0, 20.0)),
    (8192, 8392, 8192, 1, 1, (0.5, 1.0, 1.75)),
    (16384, 16584, 8192, 2, 1, (0.25, 0.5, 0.75)),
)


def ask(*options: str) -> Any:
    """Return the JSON of one ``recommend`` for D up to 3."""
    command = [sys.executable, "-m", "roofline", "recommend", "llama-3.1-8b", *options]
    command += ["--acceptance", "survival:" + ",".join(map(str, SURVIVAL))]
    done = subprocess.run(
        [*command, "--max-draft-length", "3", "--format", "json"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def engine(context: int, chunk: int, per_prompt: int, most: int) -> Engine:
    """Return an engine whose steps take what they are priced at without a load."""
    levels = sorted({0, 1, *(2**i for i in range(1, most.bit_length()))})
    deployment = question_of(model="llama-3.1-8b", contexts=(context,)).deployment
    table = []
    for k in levels:
        prompts = Chunks(number=float(k), tokens=chunk, before=chunk * (per_prompt - 1) / 2)
        grid = deployment.grid(
            BATCHES, (context,), range(4), prefill_tokens=chunk * k, chunks=prompts
        )
        times = deployment.price(grid).times.total[:, 0, 3]
        table.append(np.interp(np.arange(BATCHES[-1] + 1), BATCHES, times))
    known = np.array(
        [np.interp(np.arange(levels[-1] + 1), levels, column) for column in np.transpose(table)]
    )
    return Engine(
        step=lambda n, k: float(known[min(n, BATCHES[-1]), min(k, levels[-1])]),
        survival=SURVIVAL,
        slots=200,
        chunks_per_prompt=per_prompt,
        chunks_per_step=most,
    )


def percent(found: float, seen: float) -> str:
    """Return how far an answer is from the simulation, in percent."""
    return f"{round(100 * (found / seen - 1)):+d}".replace("+0", "0").replace("-0", "0")


def of_requests() -> list[list[str]]:
    """Return a row for every load: what its requests wait for, against the simulation."""
    tokens, context, chunk, per_prompt, most, _ = LOADS[0]
    served, rows = engine(context, chunk, per_prompt, most), []
    lengths = ("--input-tokens", str(tokens), "--output-tokens", str(OUTPUT))
    for rate, clients, think in REQUESTS:
        load = ("--concurrency", str(clients), "--think-time", str(think))
        load = load if clients else ("--rps", str(rate), "--slo-tpot", "1000")
        policies = ask(*load, *lengths)["policies"]
        found = next(policy for policy in policies if policy["draft_length"] == 3)
        who = Clients(count=clients, think=think) if clients else None
        seen = replicated(served, rps=rate, clients=who, output=OUTPUT, requests=6000, runs=5)
        names = {"ttft": "ttft", "ttft_most": "ttft_p95", "tpot_most": "tpot_p95",
                 "e2e_most": "e2e_p95"}  # fmt: skip
        off = [percent(found["running"], seen["running"][0])]
        off += [percent(found["tpot_ms"] / 1e3, seen["tpot"][0])]
        off += [percent(found[f"{name}_ms"] / 1e3, seen[key][0]) for name, key in names.items()]
        named = f"{clients} clients, {think:g} s" if clients else f"{rate:g} req/s"
        rows.append([named, *off])
    return rows


def main() -> None:
    """Print a row for every load, and one for what the requests of some wait for."""
    headers = ["load", "running %", "TPOT %", "TTFT %", "TTFT p95 %", "TPOT p95 %", "e2e p95 %"]
    sys.stdout.write(markdown_table(headers, of_requests()) + "\n\n")
    rows = []
    for tokens, context, chunk, per_prompt, most, rates in LOADS:
        served = engine(context, chunk, per_prompt, most)
        for rate in rates:
            seen = replicated(served, rps=rate, output=OUTPUT, requests=6000, runs=5)
            asked = ("--rps", str(rate), "--input-tokens", str(tokens))
            policies = ask(*asked, "--output-tokens", str(OUTPUT))["policies"]
            found = next(policy for policy in policies if policy["draft_length"] == 3)
            off = [found["running"] / seen["running"][0] - 1]
            names = ("tpot", "gap_p50", "gap_p99")
            off += [found[f"{name}_ms"] / 1e3 / seen[name][0] - 1 for name in names]
            shares = [f"{round(100 * share):+d}".replace("+0", "0") for share in off]
            rows.append([f"{tokens}", f"{per_prompt}", f"{rate:g}", *shares])
    headers = ["tokens in", "chunks", "req/s", "running %", "TPOT %", "gap p50 %", "gap p99 %"]
    sys.stdout.write(markdown_table(headers, rows) + "\n")


if __name__ == "__main__":
    main()
