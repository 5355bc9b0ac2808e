"""Put texts through SGLang's own code: read as JSON from standard input, verdicts as JSON out.

It runs beside the unpacked wheel in an environment without the package. What is executed: the
argument parser, `arg_groups/speculative_hook.py`, the loader of adaptive schedules and its choice
of steps by batch, the environment variables that hold acceptance, the metrics collector, and the
parsers of its benchmark clients. What
is stubbed: `STUBBED`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

from workshop.proof.stubs import EmptyModule, as_config, folder, leave_empty

STUBBED = [
    "the reader of a checkpoint's config imports model code: one that holds the config stands in",
    "kernels, experts' layers and image code, none of which arguments need, are empty modules",
    "the platform is taken to be CUDA, and the checks behind the speculative ones are left out",
    "the scheduler around its reporter of metrics: a stand-in that holds eight requests",
    "what its benchmark clients send requests with: their parsers need none of it",
]
EMPTY = (
    "torchvision",
    "sglang.srt.layers.quantization",
    "sglang.srt.layers.moe",
    "sglang.srt.multimodal",
)
#: Batches that CUDA graphs are captured for by default, with speculation.
CAPTURED = [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8), *range(272, 513, 16)]  # fmt: skip  # noqa: E501


def get_config(path: str, **_: Any) -> Any:
    """Return a checkpoint's config, in place of SGLang's reader."""
    return as_config(json.loads((Path(path) / "config.json").read_text("utf-8")))


class Checkpoint:
    """Stands in for SGLang's ModelConfig: what the speculative checks read of a target."""

    def __init__(self, path: str) -> None:
        self.hf_config = get_config(path)


class Kept(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one line."""
        self.lines.append(record.getMessage())


def command(item: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Return the words of a text, with files in place of names, and its variables."""
    export, below = "", item["text"]
    if below.startswith("export "):
        export, _, below = below.partition("\n")
    variables = dict(word.split("=", 1) for word in shlex.split(export)[1:])
    words = shlex.split(below)
    if "--speculative-draft-model-path" in words:
        at = words.index("--speculative-draft-model-path") + 1
        words[at] = folder(item["drafter"])
    if "FILE.json" in words:
        file = Path(tempfile.mkdtemp(prefix="proof-")) / "slots.json"
        file.write_text(item["meant"]["file"], "utf-8")
        words[words.index("FILE.json")] = str(file)
    return words, variables


def parsed(words: list[str]) -> Any:
    """Return SGLang's arguments without the checks behind them; those are called by name."""
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser(exit_on_error=False)
    ServerArgs.add_cli_args(parser)
    given, unknown = parser.parse_known_args(words)
    if unknown:
        raise ValueError(f"the argument parser does not know {' '.join(unknown)}")
    checked, ServerArgs.__post_init__ = ServerArgs.__post_init__, lambda _: None
    try:
        return ServerArgs.from_cli_args(given)
    finally:
        ServerArgs.__post_init__ = checked


def verdict(item: dict[str, Any]) -> dict[str, Any]:
    """Return what SGLang made of a text, or why it refused it."""
    import sglang.srt.arg_groups.speculative_hook as hook
    from sglang.srt.arg_groups.parallel_hook import handle_deprecated_dp_attention

    if item["kind"] == "timing":
        return timing(item["text"])
    words, variables = command(item)
    server = ["--model-path", folder(item["target"]), "--skip-tokenizer-init", "--device", "cuda"]
    server += ["--attention-backend", "flashinfer", "--page-size", "1", *item["arguments"]]
    kept = Kept()
    hook.logger.handlers, hook.logger.propagate = [kept], False
    hook.logger.setLevel(logging.INFO)
    os.environ.update(variables)
    try:
        args = parsed([*server, *words])
        handle_deprecated_dp_attention(args)
        hook.handle_speculative_decoding(args)
        found = resolved(hook.resolved_view(args), item)
        found["log"] = kept.lines
        if variables:
            from sglang.srt.environ import envs

            found["tokens_per_step"] = envs.SGLANG_SIMULATE_ACC_LEN.get()
            found["ragged_verify"] = envs.SGLANG_RAGGED_VERIFY_MODE.get()
    except SystemExit:
        return {"refused": "the argument parser does not take it"}
    except (argparse.ArgumentError, AssertionError, NotImplementedError, ValueError) as error:
        return {"refused": f"{error}"[:300]}
    finally:
        for name in variables:
            os.environ.pop(name, None)
    return found


#: What its benchmark clients import to send requests, load data sets and launch servers.
CLIENT_WITHOUT = (
    "aiohttp",
    "datasets",
    "tabulate",
    "pybase64",
    "fastapi",
    "uvicorn",
    "uvloop",
    "sglang.srt.entrypoints",
    "sglang.srt.layers",
    "sglang.test",
)


def timing(text: str) -> dict[str, Any]:
    """Return what the parser of a benchmark tool made of a line, in place of running it."""
    from sglang.srt.server_args import ServerArgs

    inner = re.search(r"do (.*); done", text)
    python, dash, name, *words = shlex.split(inner[1] if inner else text)
    assert (python, dash) == ("python3", "-m")
    module: Any = importlib.import_module(name)
    found: list[Any] = []
    module.run_benchmark = lambda *given: found.extend(given)
    ServerArgs.resolve_once = lambda _: None
    before, sys.argv = sys.argv, [name, *words]
    try:
        module.cli_main()
    except SystemExit:
        return {"refused": "the argument parser does not take it"}
    finally:
        sys.argv = before
    given = found[-1]
    if len(found) == 2:  # the server's arguments, and its own
        values = {"batch": given.batch_size, "context": given.input_len, "output": given.output_len}
        told = {key: value[0] for key, value in values.items()}
        return {**told, "result": given.result_filename, "label": pairs(given.run_name)}
    own = given.dataset_name == "custom"
    return {
        "batch": given.max_concurrency,
        "requests": given.num_prompts,
        "context": None if own else given.random_input_len,
        "output": given.sharegpt_output_len if own else given.random_output_len,
        "result": given.output_file,
        "label": pairs(given.tag),
    }


def pairs(label: str) -> dict[str, str]:
    """Return what a label says."""
    return dict(pair.split("=", 1) for pair in label.split(","))


def resolved(view: Any, item: dict[str, Any]) -> dict[str, Any]:
    """Return what SGLang settled on."""
    tokens = view.speculative_num_draft_tokens
    steps, breadth = view.speculative_num_steps, view.speculative_eagle_topk
    found = {
        "method": view.speculative_algorithm,
        "draft_length": tokens - 1 if breadth == 1 else steps,
        "rows": tokens,
        "captured": view.cuda_graph_max_bs_decode,
        "steps": steps,
        "breadth": breadth,
        "running": view.max_running_requests,
        "adaptive": view.speculative_adaptive,
        "tp": view.tp_size,
        "dp": view.dp_size * view.attn_dp_size,
    }
    if view.speculative_adaptive:
        from sglang.srt.speculative.adaptive_spec_params import AdaptiveSpeculativeParams

        most = item["meant"]["running"]
        slots = AdaptiveSpeculativeParams(steps, view.speculative_adaptive_config)
        slots.set_cuda_graph_bs([size for size in CAPTURED if size <= most] or None)
        found["batches"] = [slots.get_steps_for_batch(batch) for batch in range(1, most + 1)]
    return found


#: What its metrics code imports beside them, of which counting needs nothing.
COUNTED_WITHOUT = (
    "sglang.srt.mem_cache",
    "sglang.srt.managers.schedule_batch",
    "sglang.srt.managers.utils",
)


def pages() -> dict[str, Any]:
    """Return a page and log lines of SGLang's own metrics code, with what was counted.

    Eight requests draft 4 tokens a round; its reporter adds up what a round accepted, divides, logs
    and sets the gauges of its collector. The scheduler around it is a stand-in.
    """
    import random
    from unittest.mock import MagicMock

    leave_empty(*COUNTED_WITHOUT)
    import prometheus_client
    import sglang.srt.managers.scheduler_components.metrics_reporter as module
    import sglang.srt.observability.metrics_collector as collectors
    from sglang.srt.runtime_context import get_context

    chosen, length, rates, running = random.Random(7), 4, [0.8, 0.7, 0.6, 0.5], 8
    labels = {"model_name": "meta-llama/Llama-3.1-8B-Instruct"}
    ranks = dict.fromkeys(("tp_rank", "pp_rank", "moe_ep_rank"), 0)
    words = f"--model-path target --speculative-num-steps {length} --speculative-eagle-topk 1"
    words += f" --speculative-algorithm EAGLE3 --speculative-num-draft-tokens {length + 1}"
    get_context().set_server_args(parsed(words.split()))
    reporter = MagicMock(
        metrics_collector=collectors.SchedulerMetricsCollector(labels | ranks, MagicMock()),
        stats=collectors.SchedulerStats(),
        is_stats_logging_rank=True,
        current_scheduler_metrics_enabled=True,
        enable_mfu_metrics=False,
        forward_ct_decode=40,
        decode_log_interval=40,
        last_decode_stats_tic=0.0,
        num_generated_tokens=0,
        _graph_backend_label="cuda graph",
        fwd_occupancy=0.0,
        num_retracted_reqs=0,
        num_paused_reqs=0,
    )
    for name in ("accept_tokens", "correct_drafts", "forward_ct", "block_accept_tokens"):
        setattr(reporter, f"spec_num_{name}", 0)
    reporter.spec_num_cap_tokens = 0
    reporter.spec_total_num_accept_tokens = reporter.spec_total_num_forward_ct = 0
    scheduler = reporter.scheduler
    scheduler.waiting_queue, scheduler.disaggregation_mode = [], None
    scheduler.enable_priority_scheduling = False
    scheduler.grammar_manager.__len__ = lambda _: 0
    scheduler.spec_algorithm.is_none.return_value = False
    scheduler.spec_algorithm.is_dspark.return_value = False
    scheduler.pool_stats_observer.get_pool_stats().get_decode_usage_msg_parts.return_value = [
        "#token: 9000",
        "token usage: 0.10",
    ]
    scheduler.pool_stats_observer.streaming_session_count.return_value = 0
    scheduler.pool_stats_observer.session_held_tokens.return_value = 0
    reporter._active_spec_config_snapshot.return_value = {
        "num_steps": length,
        "num_draft_tokens": length + 1,
    }
    request = MagicMock(routing_key=None, seqlen=1200)
    batch = MagicMock(reqs=[request] * running, seq_lens_cpu=None, dp_cooperation_info=None)
    kept = Kept()
    module.logger.handlers, module.logger.propagate = [kept], False
    module.logger.setLevel(logging.INFO)
    own = module.SchedulerMetricsReporter
    rounds = correct = last = 0
    finished = collectors.TokenizerMetricsCollector(MagicMock(), labels)
    for _ in range(3):
        interval = 0
        for _ in range(40):
            taken = 0
            for _ in range(running):
                kept_here = 0
                while kept_here < length and chosen.random() < rates[kept_here]:
                    kept_here += 1
                taken += kept_here
            own.update_spec_metrics(reporter, running, taken, taken + running)
            reporter.num_generated_tokens += taken + running
            interval += taken
        own.report_decode_stats(reporter, True, batch, interval + 40 * running)
        finished.observe_one_finished_request(
            labels, 1000, interval + 40 * running, 0, 1.0, False, spec_verify_ct=40 * running
        )
        rounds, correct, last = rounds + 40 * running, correct + interval, interval
    return {
        "page": prometheus_client.generate_latest().decode(),
        "log": "\n".join(f"[2026-11-30 02:00:00] {line}" for line in kept.lines) + "\n",
        "truth": {
            "draft_length": length,
            "metrics page": 1 + last / (40 * running),  # a gauge of the last interval
            "log lines": 1 + correct / rounds,
        },
    }


def main() -> None:
    """Read texts, print verdicts."""
    import transformers  # before torchvision is left empty, which it would take for the real one

    lazy = type(transformers).__getattr__

    def soft(module: Any, name: str) -> Any:
        try:
            return lazy(module, name)
        except (ImportError, RuntimeError):  # image processors, which arguments do not need
            return type(name, (), {"register": staticmethod(lambda *_, **__: None)})

    type(transformers).__getattr__ = soft
    _ = transformers.PretrainedConfig
    leave_empty(*EMPTY)
    reader: Any = EmptyModule("sglang.srt.utils.hf_transformers_utils")
    reader.get_config = get_config
    sys.modules[reader.__name__] = reader
    import sglang.srt.arg_groups.speculative_hook as hook

    hook.model_config_of = lambda args: Checkpoint(args.model_path)
    hook._handle_iquest_q1_mtp_draft = lambda _: False  # imports image models
    items = json.load(sys.stdin)
    kept, sys.stdout = sys.stdout, sys.stderr
    verdicts = [verdict(item) for item in items if item["kind"] != "timing"]
    counted = pages()
    leave_empty(*CLIENT_WITHOUT)  # last, since the arguments of a server need some of it
    verdicts += [verdict(item) for item in items if item["kind"] == "timing"]
    json.dump({"stubbed": STUBBED, "verdicts": verdicts, "pages": counted}, kept)


if __name__ == "__main__":
    main()
