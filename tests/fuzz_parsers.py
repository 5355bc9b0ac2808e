"""Everything that reads a user's file or word, each with good examples to begin fuzzing from."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from roofline.base.errors import RooflineError
from tests import gguf_file
from tests.servers import ENGINES, SERVERS

if TYPE_CHECKING:
    from roofline.advice.question import Question

ROOT = Path(__file__).resolve().parent.parent
LARGEST = 16_000  # bytes of an input: longer ones only take longer to mutate


def _answered(**question: Any) -> object:
    """Ask about what a file describes: that it was read says nothing of what comes after."""
    from roofline.advice.question import question_of
    from roofline.advice.recommend import recommend
    from roofline.render.recommendation import as_answer
    from roofline.render.writers import OutputFormat, write

    asked = {"model": "llama-3.2-1b", "gpu": "h200-sxm", "drafter": "ngram", "acceptance": "0.6"}
    answer = recommend(question_of(**(asked | question), contexts=(512,), max_draft_length=3))
    return write(as_answer(answer), OutputFormat.TABLE)


def _hardware(path: Path) -> object:
    return _answered(gpu=str(path))


def _model(path: Path) -> object:
    return _answered(model=str(path))


def _network(path: Path) -> object:
    from roofline.importers.references import open_network
    from roofline.specs.network import load_model

    return open_network(str(path), load_model("llama-3.1-8b"))


def _engine(path: Path) -> object:
    return _answered(engine=str(path))


def _curve(path: Path) -> object:
    from roofline.acceptance import load_acceptance

    load_acceptance(str(path))
    return _answered(acceptance=str(path))


def _reading(path: Path) -> object:
    from roofline.engines.acceptance_source import read_acceptance

    return read_acceptance(str(path)).acceptance()


def _word(path: Path) -> object:
    from roofline.engines.acceptance_source import acceptance_from

    text = path.read_bytes().decode("utf-8", "replace")
    if "//" in text or "-" in re.split("[*,#]", text):
        return None  # no fuzzing of the network, and of whoever feeds stdin
    return acceptance_from(text)


def _override(path: Path) -> object:
    """A line for each --set."""
    from roofline.specs.overrides import parse_override

    lines = path.read_bytes().decode("utf-8", "replace").split("\n")
    return _answered(overrides=tuple(map(parse_override, lines)))


def _grid(path: Path) -> object:
    from roofline.questions.sweep.grid import plan_for

    return plan_for({}, path)


def _histogram(path: Path) -> object:
    from roofline.questions.load.load import load_of

    load = load_of(batches_histogram=str(path))
    assert load is not None
    return load.share, load.length


def _trace(path: Path) -> object:
    from roofline.questions.request.traces import read_trace

    requests = read_trace(str(path))
    assert abs(sum(requests.shares) - 1) < 1e-9
    return requests.context


#: What divides the pages of a server in one input; the first is that of the metrics.
BETWEEN = b"\n=====\n"
PLACES = ("/metrics", "/prometheus/metrics", "/version", "/v1/models", "/server_info")


def _server(path: Path) -> object:
    from roofline.advice.configuration import Configuration
    from roofline.advice.question import Workload
    from roofline.engines import http
    from roofline.engines.server import read_server
    from roofline.questions.live import live_question

    found = path.read_bytes().split(BETWEEN)

    def fetch(url: str, *, timeout: float) -> bytes:
        place = url.removeprefix("http://server").partition("?")[0]
        page = dict(zip(PLACES, found, strict=False)).get(place)
        if not page:
            raise http.StatusError(f"{url}: answered HTTP 404 within {timeout:.0f} s", 404)
        return page

    with patch.object(http, "fetch", fetch):
        serving = read_server("http://server", interval=0.0, timeout=5.0)
    return live_question(
        serving, Configuration(model="llama-3.1-8b"), Workload(), given={"model", "gpu"}
    )


def _host(path: Path) -> object:
    return _answered(
        model="qwen3-30b-a3b",
        gpu="rtx-5090",
        engine="llamacpp",
        gpus=2,
        host=str(path),
        cpu_experts="2",
    )


def _points(path: Path) -> object:
    from roofline.questions.diagnose.points import read_points

    text = path.read_bytes().decode("utf-8", "replace")
    return read_points(text.split("\n"), batch=1, context=512, tokens_per_step={3: 2.4})


def _steps(path: Path) -> object:
    from roofline.questions.measured import read_steps

    return read_steps(path)


def _rows(path: Path) -> object:
    from roofline.calibrate.measure.rows import read_rows

    return read_rows(path)


def _passes(path: Path) -> object:
    from roofline.calibrate.llama_bench import fit_passes, read_llama_bench
    from roofline.specs.formats import DType
    from roofline.specs.network import load_model

    model = load_model("llama-3.2-1b").model_copy(update={"dtype": DType.FP32})
    with patch("roofline.calibrate.llama_bench._model", lambda *_: model):
        facts, passes = read_llama_bench(path)
        return fit_passes(passes, facts, cite="llama-bench")


def _llama_bench() -> list[bytes]:
    """Return two passes as llama-bench prints them."""
    row = {
        "build_number": 11434, "cpu_info": "AMD EPYC", "backends": "CPU", "n_threads": 1,
        "model_filename": "model.gguf", "n_prompt": 1, "n_gen": 0, "n_depth": 128,
        "test_time": "2026-12-01T05:44:21Z", "avg_ns": 132308945, "stddev_ns": 4115119,
    }  # fmt: skip
    return [json.dumps([row, row | {"n_prompt": 4, "avg_ns": 203312775}]).encode()]


def _tuning(path: Path) -> object:
    """A tuning file, and what its timings teach about one question."""
    from roofline.questions.tune.file import load_tuning
    from roofline.questions.tune.tune import tune

    tuning = load_tuning(path)
    return tune(_tuned_question(), tuning.timings, running=tuning.running).next_timing


@cache
def _tuned_question() -> Question:
    from roofline.advice.question import question_of

    return question_of(model="qwen3-8b", gpu="h100-sxm", batches=(8,), contexts=(512,))


def _timings(path: Path) -> object:
    from roofline.engines.bench import read_benches

    with suppress(RooflineError):  # a report that says its load is refused at another
        return read_benches(path, concurrency=8, output_tokens=128)
    return read_benches(path)


def _pages(path: Path) -> object:
    """Two reads of a metrics page."""
    from roofline.engines.bench import read_pages

    earlier, _, later = path.read_bytes().partition(BETWEEN)
    return read_pages(
        later.decode("utf-8", "replace"), earlier.decode("utf-8", "replace"), concurrency=8
    )


def _two_reads() -> list[bytes]:
    """Return two reads of vLLM's page, which differ in what eight clients generated meanwhile."""
    grown = {
        "generation_tokens_total": 1600,
        "time_to_first_token_seconds_count": 10,
        "inter_token_latency_seconds_sum": 12.5,
        "inter_token_latency_seconds_count": 640,
        "request_generation_tokens_count": 10,
        "spec_decode_num_drafts_total": 640,
        "spec_decode_num_draft_tokens_total": 1280,
        "spec_decode_num_accepted_tokens_total": 950,
    }
    reads = [
        "".join(
            f'vllm:{name}{{engine="0",model_name="m"}} {value * n}\n'
            for name, value in grown.items()
        )
        for n in (1, 2)
    ]
    return [BETWEEN.join(read.encode() for read in reads)]


def _prompts(path: Path) -> object:
    from roofline.questions.tune.running import read_prompts

    return read_prompts(path)


TUNING = b"""\
schema: 1
roofline: 0.1.0
engine: vllm
question: {model: qwen3-8b, batch: 8}
timings:
- {draft_length: 3, batch: 8, tokens_per_s: 812, tokens_per_step: 2.4}
- {draft_length: 2, batch: 8, tokens_per_s: 9.5, survival: [0.7, 0.4], repeats: 2}
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parser:
    """What reads a file, the name the file gets, and where good examples lie."""

    read: Callable[[Path], object]
    file: str
    examples: tuple[str, ...] = ()
    made: Callable[[], list[bytes]] = list

    def seeds(self) -> Iterator[bytes]:
        """Yield good examples that are small enough to mutate."""
        for pattern in self.examples:
            for path in sorted(ROOT.glob(pattern))[:60]:
                if path.stat().st_size <= LARGEST:
                    yield path.read_bytes()
        yield from self.made()


PARSERS = {
    "hardware": Parser(read=_hardware, file="gpu.yaml", examples=("hardware_profiles/*.yaml",)),
    "model": Parser(read=_model, file="model.yaml", examples=("model_specs/*.yaml",)),
    "config": Parser(read=_network, file="config.json", examples=("model_configs/*.json",)),
    "gguf": Parser(
        read=_model, file="m.gguf", made=lambda: [gguf_file.llama_8b(), gguf_file.mixtral()]
    ),
    "engine": Parser(read=_engine, file="e.yaml", examples=("roofline/data/engines/*.yaml",)),
    "curve": Parser(read=_curve, file="a.yaml", examples=("roofline/data/acceptance/*.yaml",)),
    "page": Parser(read=_reading, file="page.txt", examples=("tests/data/pages/*",)),
    "word": Parser(
        read=_word,
        file="word",
        made=lambda: [
            b"0.7",
            b"0.8,0.7,0.6",
            b"0.8,0.8,0.8",
            b"rate:1=0.8,3=0.54",
            b"rate:3=54%",
            b"al:2.31",
            b"conditional:0.8,0.7,0.9",
            b"survival:0.8,0.56",
            b"al:1.84,2.45",
            b"al:2=2.36,3=2.79",
            b"1e-3",
            b"mix:0.7*llama-3.1-8b-eagle3,0.3*0.5",
            b"mix:0.5*al:2=2.36,0.5*al:2=2.1",
        ],
    ),
    "tuning": Parser(
        read=_tuning,
        file="t.yaml",
        made=lambda: [
            TUNING,
        ],
    ),
    "timings": Parser(
        read=_timings,
        file="r.csv",
        examples=(
            "tests/data/bench/*.json",
            "tests/data/bench/*.jsonl",
            "tests/data/bench/*-*.[cmt]*",
        ),
        made=lambda: [
            b"draft_length,tokens_per_s,tokens_per_step\n3,812,2.4\n2,790,2.1\n",
            b"draft_length,tokens_per_s,batch,repeats,spread\n3,812,8,2,0.01\n",
        ],
    ),
    "pages": Parser(read=_pages, file="pages", made=_two_reads),
    "prompts": Parser(
        read=_prompts,
        file="p.jsonl",
        made=lambda: [b'{"prompt": "one"}\ntwo\n', b'{"prompt": ["a"]}', "\ufeffa\r\nb".encode()],
    ),
    "server": Parser(read=_server, file="server", made=lambda: list(_servers())),
    "override": Parser(
        read=_override,
        file="set",
        made=lambda: [
            b"group_size=4",
            b"layers=8\nhead_dim=64",
            b"attention.num_kv_heads=4",
            b"gpu.memory.bandwidth=4 TB/s",
            b"engine.overhead.per_step=0.5 ms",
            b"model.dtype=fp8",
            b"mlp.intermediate_size=8k",
            b"gpu.compute.peaks.bf16=1 PFLOP/s",
        ],
    ),
    "grid": Parser(
        read=_grid,
        file="grid.yaml",
        made=lambda: [
            b"schema: 1\nmodel: [llama-3.1-8b, qwen3-8b]\ntp: [1, 2]\nbatch: 1..32*2\n",
            b"schema: 1\nmodel: qwen3-8b\ncontext: [1k, 8k]\ncases:\n- {drafter: ngram, tp: 2}\n",
        ],
    ),
    "host": Parser(read=_host, file="host.yaml", examples=("roofline/data/hosts/*.yaml",)),
    "points": Parser(
        read=_points,
        file="points",
        made=lambda: [b"3@8x4k:4.1ms:2.4", b"0:7.1ms", b"3:250/s,0:100/s\n2@4:1e-3 s:1.5"],
    ),
    "histogram": Parser(
        read=_histogram,
        file="load.csv",
        made=lambda: [b"batch,share\n1,0.2\n32,0.8\n", b"8k,1\n", b'"4","0.5"\n5,.5\n'],
    ),
    "trace": Parser(
        read=_trace,
        file="trace",
        made=lambda: [
            b"input,output,time,prefix\n900,200,0,0\n12000,350,1.5,4096\n",
            b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n",
            b'{"timestamp": 0, "input_length": 1500, "output_length": 50, "hash_ids": [1, 2]}\n',
            b'{"input_lens": [100, 200], "output_lens": [10, 0]}',
        ],
    ),
    "steps": Parser(
        read=_steps,
        file="steps.csv",
        made=lambda: [b"batch,context,draft_length,step_ms\n1,1024,0,7.1\n8,1024,3,9.25\n"],
    ),
    "rows": Parser(
        read=_rows, file="run.csv", made=lambda: [_head("roofline/data/measured/*.csv", 30)]
    ),
    "passes": Parser(read=_passes, file="bench.json", made=_llama_bench),
}


def _servers() -> Iterator[bytes]:
    """Yield the recorded servers, each as one input."""
    for pages in ENGINES.values():
        found = {path: (SERVERS / names[0]).read_bytes() for path, names in pages.items()}
        yield BETWEEN.join(found.get(place, b"") for place in PLACES)


def _head(pattern: str, lines: int) -> bytes:
    first = sorted(ROOT.glob(pattern))[0]
    return b"".join(first.read_bytes().splitlines(keepends=True)[:lines])
