"""Put texts through SGLang's own code: read as JSON from standard input, verdicts as JSON out.

It runs beside the unpacked wheel in an environment without the package. What is executed: the
argument parser, `arg_groups/speculative_hook.py`, the loader of adaptive schedules and its choice
of steps by batch, the environment variables that hold acceptance, and the metrics collector. What
is stubbed: `STUBBED`.
"""

from __future__ import annotations

import argparse
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
    words = shlex.split(item["text"])
    variables = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
    words = [word for word in words if not re.match(r"[A-Z_]+=", word)]
    if "--speculative-draft-model-path" in words:
        at = words.index("--speculative-draft-model-path") + 1
        words[at] = folder(item["drafter"])
    if "FILE.json" in words:
        file = Path(tempfile.mkdtemp(prefix="proof-")) / "slots.json"
        file.write_text(item["meant"]["file"], "utf-8")
        words[words.index("FILE.json")] = str(file)
    return words, variables


def verdict(item: dict[str, Any]) -> dict[str, Any]:
    """Return what SGLang made of a text, or why it refused it."""
    import sglang.srt.arg_groups.speculative_hook as hook
    from sglang.srt.arg_groups.parallel_hook import handle_deprecated_dp_attention
    from sglang.srt.server_args import ServerArgs

    words, variables = command(item)
    parser = argparse.ArgumentParser(exit_on_error=False)
    ServerArgs.add_cli_args(parser)
    server = ["--model-path", folder(item["target"]), "--skip-tokenizer-init", "--device", "cuda"]
    server += ["--attention-backend", "flashinfer", "--page-size", "1", *item["arguments"]]
    kept = Kept()
    hook.logger.handlers, hook.logger.propagate = [kept], False
    hook.logger.setLevel(logging.INFO)
    os.environ.update(variables)
    try:
        given, unknown = parser.parse_known_args([*server, *words])
        if unknown:
            return {"refused": f"the argument parser does not know {' '.join(unknown)}"}
        checked, ServerArgs.__post_init__ = ServerArgs.__post_init__, lambda _: None
        try:
            args = ServerArgs.from_cli_args(given)
        finally:
            ServerArgs.__post_init__ = checked
        handle_deprecated_dp_attention(args)
        hook.handle_speculative_decoding(args)
        found = resolved(hook.resolved_view(args), item)
        found["log"] = kept.lines
        if variables:
            from sglang.srt.environ import envs

            found["tokens_per_step"] = envs.SGLANG_SIMULATE_ACC_LEN.get()
    except SystemExit:
        return {"refused": "the argument parser does not take it"}
    except (argparse.ArgumentError, AssertionError, NotImplementedError, ValueError) as error:
        return {"refused": f"{error}"[:300]}
    finally:
        for name in variables:
            os.environ.pop(name, None)
    return found


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
    json.dump({"stubbed": STUBBED, "verdicts": [verdict(item) for item in items]}, kept)


if __name__ == "__main__":
    main()
