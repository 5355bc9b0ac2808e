"""Put texts through vLLM's own code: read as JSON from standard input, verdicts as JSON out.

It runs beside vLLM's sources in an environment without the package. What is executed: the argument
parser (`EngineArgs.add_cli_args`), `SpeculativeConfig` with its checks and its overrides of
checkpoints' configs, the dynamic-schedule reader, and of `VllmConfig` the choice of the model
runner, the switches that turn schedules off and the CUDA-graph mode, and the parsers of `vllm bench
serve` and `latency`. What is stubbed: `STUBBED`.
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from workshop.proof.stubs import as_config, folder, leave_empty

STUBBED = [
    "ModelConfig inspects compiled classes of models: one that holds the config stands in",
    "libraries of structured output are empty modules",
    "what its benchmark client sends requests with: its parser needs none of it",
    "Triton and Arctic Inference are taken as there, which asks for a GPU and a compiled package",
]


#: What the client of `vllm bench serve` imports to send requests and load data sets.
CLIENT_WITHOUT = ("aiohttp", "tqdm.asyncio", "datasets")


class Checkpoint:
    """Stands in for vLLM's ModelConfig: a config, as SpeculativeConfig reads it."""

    def __init__(
        self,
        model: str,
        hf_overrides: Any = None,
        max_model_len: int | None = None,
        spec_target_max_model_len: int | None = None,
        quantization: str | None = None,
        **_: Any,
    ) -> None:
        self.model = self.model_weights = self.tokenizer = model
        raw = json.loads((Path(model) / "config.json").read_text("utf-8"))
        self.hf_config = as_config(raw)
        if callable(hf_overrides):
            self.hf_config = hf_overrides(self.hf_config)
        self.hf_text_config = self.hf_config.get_text_config()
        self.hf_overrides: dict[str, Any] = {}
        self.max_model_len = max_model_len or spec_target_max_model_len or 4096
        self.tokenizer_mode, self.config_format = "auto", "auto"
        self.trust_remote_code = self.enforce_eager = self.is_moe = False
        self.allowed_local_media_path, self.allowed_media_domains = "", None
        self.dtype = self.head_dtype = "bfloat16"
        self.seed, self.max_logprobs = 0, 20
        self.tokenizer_revision = None
        self.quantization = quantization
        self.model_arch_config = None
        inspect = staticmethod(lambda names, _: (None, names[0]))
        self.registry = type("Registry", (), {"inspect_model_cls": inspect})()

    @property
    def architectures(self) -> Any:
        """What the checkpoint says it is."""
        return self.hf_config.architectures

    def get_vocab_size(self) -> Any:
        """Return the tokens of the vocabulary."""
        return self.hf_text_config.vocab_size

    def get_hidden_size(self) -> Any:
        """Return the width of the hidden states."""
        return self.hf_text_config.hidden_size

    def get_model_arch_config(self) -> None:
        """Return nothing: what is read from it is about kernels."""

    def using_transformers_backend(self) -> bool:
        """Return whether the model runs as Transformers has it."""
        return False

    def verify_with_parallel_config(self, _: Any) -> None:
        """Check nothing: this is about heads that ranks share out."""


def parsed(text: str, arguments: list[str]) -> Any:
    """Return a command line as vLLM's own parser reads it."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    global _PARSER  # noqa: PLW0603
    if _PARSER is None:
        _PARSER = EngineArgs.add_cli_args(FlexibleArgumentParser())
    return _PARSER.parse_args([*arguments, *shlex.split(text)])


_PARSER: Any = None


def verdict(item: dict[str, Any]) -> dict[str, Any]:
    """Return what vLLM made of a text, or why it refused it."""
    from vllm.config import ParallelConfig
    from vllm.config.speculative import SpeculativeConfig

    if item["kind"] == "timing":
        return timing(item["text"])
    try:
        given = parsed(item["text"], item["arguments"])
        config = dict(given.speculative_config)
        if "model" in config:
            config["model"] = folder(item["drafter"])
        spec = SpeculativeConfig(
            **config,
            target_model_config=Checkpoint(folder(item["target"]), max_model_len=32768),
            target_parallel_config=ParallelConfig(tensor_parallel_size=given.tensor_parallel_size),
        )
        found = {
            "method": spec.method,
            "draft_length": spec.num_speculative_tokens,
            "draft_tp": spec.draft_tensor_parallel_size,
            "dp": given.data_parallel_size,
            "tp": given.tensor_parallel_size,
            "expert_parallel": given.enable_expert_parallel,
            "most": given.max_num_seqs,
        }
        if spec.method == "ngram":
            found["lookup"] = [spec.prompt_lookup_min, spec.prompt_lookup_max]
        if spec.synthetic_acceptance_rates is not None:
            found["tokens_per_step"] = 1 + sum(spec.synthetic_acceptance_rates)
        found |= in_server(spec, given)
    except SystemExit:
        return {"refused": "the argument parser does not take it"}
    except (AssertionError, NotImplementedError, TypeError, ValueError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return {"refused": " ".join(lines[1:3] if len(lines) > 1 else lines)[:300]}
    return found


def timing(text: str) -> dict[str, Any]:
    """Return what the parser of a benchmark tool made of a line."""
    from vllm.benchmarks import latency, serve
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    program, bench, tool, *words = shlex.split(text)
    assert (program, bench) == ("vllm", "bench")
    parser = FlexibleArgumentParser()
    {"serve": serve, "latency": latency}[tool].add_cli_args(parser)
    try:
        given = parser.parse_args(words)
    except SystemExit:
        return {"refused": "the argument parser does not take it"}
    if tool == "latency":
        return {
            "batch": given.batch_size,
            "context": given.input_len,
            "output": given.output_len,
            "result": given.output_json,
        }
    own = given.dataset_name == "custom"
    return {
        "batch": given.max_concurrency,
        "requests": given.num_prompts,
        "context": None if own else given.random_input_len,
        "output": given.custom_output_len if own else given.random_output_len,
        "result": given.result_filename,
        "label": dict(pair.split("=", 1) for pair in given.metadata),
    }


def in_server(spec: Any, given: Any) -> dict[str, Any]:
    """Return which model runner a server takes, and what is left of a schedule in it."""
    import vllm.config.vllm as module
    from vllm.config import CUDAGraphMode

    server = object.__new__(module.VllmConfig)
    server.__dict__.update(
        speculative_config=spec,
        attention_config=SimpleNamespace(hisparse_config=None),
        parallel_config=SimpleNamespace(
            distributed_executor_backend="mp",
            pipeline_parallel_size=1,
            data_parallel_size=given.data_parallel_size,
            use_ubatching=False,
        ),
        compilation_config=SimpleNamespace(cudagraph_mode=CUDAGraphMode.FULL_AND_PIECEWISE),
    )
    scheduled = spec.num_speculative_tokens_per_batch_size is not None
    found: dict[str, Any] = {"runner": "V2" if server.use_v2_model_runner else "V1"}
    if scheduled:
        server._maybe_disable_dynamic_sd_for_v1()
        server._maybe_disable_dynamic_sd_for_data_parallel()
        server._maybe_override_dynamic_sd_cudagraph_mode()
        found["graphs"] = server.compilation_config.cudagraph_mode.name
        found["batches"] = lengths(spec)
    return found


def lengths(spec: Any) -> list[int] | None:
    """Return the draft length of each batch from 1 on; None where the schedule is off."""
    from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

    table = spec.num_speculative_tokens_per_batch_size
    if table is None:
        return None
    read = build_dynamic_sd_schedule_lookup(table, 1024, spec.num_speculative_tokens)
    return [int(length) for length in read[1:]]


def pages() -> dict[str, Any]:
    """Return a page and log lines of vLLM's own metrics code, with what was counted."""
    import random

    import prometheus_client
    from vllm.v1.spec_decode.metrics import (
        SpecDecodingLogging,
        SpecDecodingProm,
        SpecDecodingStats,
    )

    chosen, length, rates = random.Random(7), 4, [0.8, 0.7, 0.6, 0.5]
    labels = ["model_name", "engine"]
    values = {rank: ["meta-llama/Llama-3.1-8B-Instruct", str(rank)] for rank in range(2)}
    page = SpecDecodingProm(SimpleNamespace(num_speculative_tokens=length), labels, values)
    generated = prometheus_client.Counter("vllm:generation_tokens", "Tokens.", labels)
    log = SpecDecodingLogging()
    drafts = accepted = 0
    lines: list[str] = []
    for step in range(240):
        for rank, names in values.items():
            stats = SpecDecodingStats.new(length)
            for _ in range(8):
                kept = 0
                while kept < length and chosen.random() < rates[kept]:
                    kept += 1
                stats.observe_draft(num_draft_tokens=length, num_accepted_tokens=kept)
                generated.labels(*names).inc(kept + 1)
                drafts, accepted = drafts + 1, accepted + kept
            page.observe(stats, rank)
            log.observe(stats)
        if step % 80 == 79:
            log.log(lambda form, *given: lines.append("INFO 11-30 02:00:00 " + form % given))
    text = prometheus_client.generate_latest().decode()
    return {
        "page": text,
        "log": "\n".join(lines) + "\n",
        "truth": {
            "draft_length": length,
            "metrics page": 1 + accepted / drafts,
            "log lines": 1 + accepted / drafts,
        },
    }


def main() -> None:
    """Read texts, print verdicts."""
    leave_empty("xgrammar", "llguidance", "outlines_core", "lmformatenforcer")
    import vllm.config.vllm as module
    from vllm.config import speculative

    speculative.ModelConfig = Checkpoint
    speculative.has_arctic_inference = lambda: True
    module.HAS_TRITON = True
    items = json.load(sys.stdin)
    kept, sys.stdout = sys.stdout, sys.stderr  # what vLLM prints is talk
    verdicts = [verdict(item) for item in items if item["kind"] != "timing"]
    answer = {"stubbed": STUBBED, "verdicts": verdicts, "pages": pages()}
    leave_empty(*CLIENT_WITHOUT)  # last, since others need some of it
    verdicts += [verdict(item) for item in items if item["kind"] == "timing"]
    json.dump(answer, kept)


if __name__ == "__main__":
    main()
