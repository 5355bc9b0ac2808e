"""What the engines' own benchmark tools report: the decoding speed, and the acceptance with it.

Read in (no code copied): ``vllm bench serve`` and ``latency`` (vllm/benchmarks/serve.py and
latency.py, 0.32.0 and 0.33.0), SGLang 0.5.23 ``bench_serving`` and ``bench_one_batch_server``
(sglang/benchmark/serving.py and one_batch_server.py), ``trtllm-bench throughput``
(tensorrt_llm/bench/dataclasses/reporting.py at 024997657), ``llama-bench`` (b11434) and the
``timings`` of llama-server (b11434, tools/server/server-context.cpp).

Output per second over a whole run holds the time of prompts and of the ends, where fewer requests
run. The time per output token (TPOT) leaves out each request's first token, so B sequences decode
B / TPOT tokens per second.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from roofline.base.errors import InputError, Option
from roofline.base.files import printable
from roofline.engines import llamacpp, sglang, trtllm, vllm
from roofline.engines.bench_result import BenchResult
from roofline.engines.counts import Reading
from roofline.engines.fields import checked_number

__all__ = ["Given", "in_json", "in_text"]

#: Share of failed requests above which a run is no measurement.
FAILED = 0.02
SERVING = "Serving Benchmark Result"
LLAMA_COLUMNS = ("n_prompt", "n_gen", "avg_ns")


class Given(NamedTuple):
    """What the reader knows of a run and its report may not say."""

    concurrency: float | None = None
    output_tokens: int | None = None  # of a request


def in_text(
    text: str, where: str, given: Given, *, columns: Sequence[str]
) -> Iterator[BenchResult]:
    """Yield the results in the text of a report; ``columns`` are those of its first line."""
    if set(LLAMA_COLUMNS) <= set(columns):
        for row in csv.DictReader(text.lstrip().splitlines()):
            yield _llama_bench({k: _typed(v) for k, v in row.items() if k}, where)
    elif SERVING in text:
        reports = [f"{SERVING}{part}" for part in text.split(SERVING)[1:]]
        for report in reports:
            yield (_sglang_text if "\nBackend:" in report else _vllm_text)(report, where, given)
    elif "Avg latency:" in text:
        latency = _field(text, "Avg latency:", where)
        yield _vllm_latency([latency], None, where, given)
    elif "last_ttft:" in text:
        for report in re.split(r"(?=^batch size: )", text, flags=re.MULTILINE):
            if "last_ttft:" in report:
                yield _one_batch_text(report, where)
    elif "= PERFORMANCE OVERVIEW" in text or "Total Output Throughput (tokens/sec):" in text:
        yield _trtllm_text(text, where, given)
    elif re.search(r"^\|.*\bt/s\b.*\|", text, re.MULTILINE):
        yield from _llama_markdown(text, where)
    else:
        raise _unknown(where, "text")


def in_json(documents: Sequence[Any], where: str, given: Given) -> Iterator[BenchResult]:
    """Yield the results in JSON: a document, a list or several lines."""
    responses, label = list[dict[str, Any]](), dict[str, str]()
    for document in documents:
        if not isinstance(document, dict):
            raise _unknown(where, "JSON")
        if set(document) == {"label"}:
            label = _label(document["label"])
        elif "error" in document and len(document) == 1:
            said = printable(json.dumps(document["error"]))
            raise InputError(
                f"a request was answered with an error: {said[:120]}; mend that and run it again",
                where=where,
            )
        elif "timings" in document:
            responses.append(_mapping(document["timings"], "timings", where))
        elif {"predicted_n", "predicted_ms"} <= set(document):
            responses.append(document)
        else:
            yield _of_document(document, where, given)
    if responses:
        yield _of_responses(responses, where, given, label)


def _of_document(document: dict[str, Any], where: str, given: Given) -> BenchResult:
    """Read one JSON report by what it holds."""
    if "avg_latency" in document and "latencies" in document:
        values = document["latencies"]
        model = document.get("model_id")
        if not isinstance(values, list) or not values:
            values = [document["avg_latency"]]
        latencies = [_positive(value, "latencies", where) for value in values]
        return _vllm_latency(latencies, model if isinstance(model, str) else None, where, given)
    if "last_ttft" in document and "batch_size" in document:
        return _one_batch_json(document, where)
    if "performance" in document and "request_info" in document:
        return _trtllm_json(document, where, given)
    if set(LLAMA_COLUMNS) <= set(document):
        return _llama_bench(document, where)
    if "completed" in document and "total_output_tokens" in document:
        ours = "model_id" in document or vllm.BENCH_KEY in document
        return _vllm_json(document, where, given) if ours else _sglang_json(document, where, given)
    raise _unknown(where, "JSON")


def _unknown(where: str, kind: str) -> InputError:
    return InputError(
        f"{kind} of no benchmark known here; expected the output of vllm bench serve or latency, "
        "SGLang's bench_serving or bench_one_batch_server, trtllm-bench, llama-bench or "
        "llama-server's timings, or a CSV with draft_length,tokens_per_s",
        where=where,
    )


# Numbers ------------------------------------------------------------------------------------------


def _positive(value: Any, what: str, where: str) -> float:
    """Return a number of a report; refuse text, NaN, 0 and below."""
    number = checked_number(value, what, where)
    if number == 0:
        raise InputError(f"{what} is 0: nothing was timed; run it again", where=where)
    return number


def _optional(document: dict[str, Any], key: str, where: str) -> float | None:
    """Return a number above 0; None where it is missing, null or 0."""
    value = document.get(key)
    return None if value is None else checked_number(value, key, where) or None


def _typed(text: str | None) -> Any:
    """Return a cell of a CSV as a number where it is one."""
    try:
        return float(text or "")
    except ValueError:
        return text


def _decimal(text: str, what: str, where: str) -> float:
    """Return a number that is written in a text; refuse what float() refuses, such as 5..1."""
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{what}: expected a number, got '{text:.40}'", where=where) from None


def _mapping(value: Any, what: str, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{what}: expected a mapping, got {value!r:.40}", where=where)
    return value


def _find(report: str, label: str, where: str) -> float | None:
    """Return the number behind a label at the beginning of a line; None where there is none."""
    match = re.search(rf"^[ \t|]*{re.escape(label)}\s*(\S+)", report, re.MULTILINE)
    if match is None or match[1] in ("not", "None", "N/A"):
        return None
    try:
        number = float(match[1])
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise InputError(
            f"'{label}' is {match[1]:.20}; expected a finite number of at least 0", where=where
        )
    return number


def _field(report: str, label: str, where: str) -> float:
    number = _find(report, label, where)
    if number is None:
        raise InputError(f"'{label}' is missing; copy the whole report", where=where)
    return _positive(number, f"'{label}'", where)


def _check_requests(completed: float | None, failed: float | None, where: str) -> None:
    """Refuse a run in which requests failed."""
    if completed == 0:
        raise InputError("no request was answered; mend that and run it again", where=where)
    if failed and failed > FAILED * (failed + (completed or 0.0)):
        raise InputError(
            f"{failed:g} of {failed + (completed or 0):g} requests failed, so fewer ran at once; "
            "mend that and run it again",
            where=where,
        )


class _Speed(NamedTuple):
    tokens_per_s: float
    prompts_inside: bool


def _speed(
    where: str,
    *,
    tool: str,
    load: float | None,
    token_ms: float | None,
    pass_ms: float | None = None,
    tokens_per_step: float | None = None,
    output: float | None = None,
) -> _Speed:
    """Return B / TPOT, else B AL / the time between passes, else the output per second.

    ``token_ms`` is TPOT, ``pass_ms`` the mean time between two chunks of a stream, one of each
    pass; ``output`` are the tokens per second over the whole run.
    """
    if load and token_ms:
        return _Speed(load * 1e3 / token_ms, prompts_inside=False)
    if load and pass_ms and tokens_per_step:
        return _Speed(load * tokens_per_step * 1e3 / pass_ms, prompts_inside=False)
    if output:
        return _Speed(output, prompts_inside=True)
    if token_ms or pass_ms:
        raise InputError(
            f"{tool} does not say how many requests ran at once; give {Option('batch')}",
            where=where,
        )
    raise InputError(f"{tool}: neither a time per token nor a speed; copy all of it", where=where)


def _standard_error(
    deviation: float | None, mean: float | None, count: float | None
) -> float | None:
    """Return s / (m sqrt(n)) of n requests with a mean m and a deviation s.

    >>> _standard_error(2.0, 20.0, 100)
    0.01
    """
    if deviation is None or not mean or not count:
        return None
    return deviation / mean / math.sqrt(count)


# vLLM ---------------------------------------------------------------------------------------------


def _vllm_text(report: str, where: str, given: Given) -> BenchResult:
    tool = "vllm bench serve"
    completed = _find(report, "Successful requests:", where)
    _check_requests(completed, _find(report, "Failed requests:", where), where)
    load = _find(report, "Maximum request concurrency:", where) or given.concurrency
    drafted = any(mark in report for mark in vllm.BENCH_MARKS)
    reading = vllm.read_bench(report.splitlines(), where) if drafted else None
    speed = _speed(
        where,
        tool=tool,
        load=load,
        token_ms=_find(report, "Mean TPOT (ms):", where),
        pass_ms=_find(report, "Mean ITL (ms):", where),
        tokens_per_step=1.0 if reading is None else reading.tokens_per_step,
        output=_find(report, "Output token throughput (tok/s):", where),
    )
    return _result("vllm", tool, where, speed, load=load, requests=completed).with_acceptance(
        reading
    )


def _vllm_json(document: dict[str, Any], where: str, given: Given) -> BenchResult:
    tool = "vllm bench serve"
    completed = checked_number(document["completed"], "completed", where)
    _check_requests(completed, _optional(document, "failed", where), where)
    load = _optional(document, "max_concurrency", where) or given.concurrency
    drafted = vllm.BENCH_KEY in document
    reading = vllm.read_bench_json([document], where) if drafted else None
    token_ms = _optional(document, "mean_tpot_ms", where)
    speed = _speed(
        where,
        tool=tool,
        load=load,
        token_ms=token_ms,
        pass_ms=_optional(document, "mean_itl_ms", where),
        tokens_per_step=1.0 if reading is None else reading.tokens_per_step,
        output=_optional(document, "output_throughput", where),
    )
    model = document.get("model_id")
    return _result(
        "vllm",
        tool,
        where,
        speed,
        load=load,
        requests=completed,
        model=model if isinstance(model, str) else None,
        spread=_standard_error(_optional(document, "std_tpot_ms", where), token_ms, completed),
        label={key: str(document.get(key)) for key in LABELS if key in document},
    ).with_acceptance(reading)


def _vllm_latency(
    latencies: Sequence[float], model: str | None, where: str, given: Given
) -> BenchResult:
    """Read the seconds of whole batches, which say neither the batch nor its tokens."""
    tool = "vllm bench latency"
    missing = [
        str(Option(name))
        for name, value in (("batch", given.concurrency), ("output_tokens", given.output_tokens))
        if not value
    ]
    if missing:
        raise InputError(
            f"{tool} writes the seconds of a batch and not how many tokens it is; give "
            + " and ".join(missing),
            where=where,
        )
    load, output = float(given.concurrency or 0), int(given.output_tokens or 0)
    mean, count = sum(latencies) / len(latencies), len(latencies)
    spread = None
    if count > 1:
        deviation = math.sqrt(sum((s / mean - 1) ** 2 for s in latencies) / (count - 1))
        spread = _standard_error(deviation, 1.0, count)
    speed = _Speed(load * output / mean, prompts_inside=True)
    requests = load * count
    return _result(
        "vllm", tool, where, speed, load=load, requests=requests, model=model, spread=spread
    )


# SGLang -------------------------------------------------------------------------------------------


def _sglang_text(report: str, where: str, given: Given) -> BenchResult:
    tool = "SGLang bench_serving"
    completed = _find(report, "Successful requests:", where)
    _check_requests(completed, None, where)
    load = (
        _find(report, "Max request concurrency:", where)
        or given.concurrency
        or _find(report, "Concurrency:", where)
    )
    reading = None
    if any(mark in report for mark in sglang.BENCH_MARKS):
        reading = sglang.read_bench(report.splitlines(), where)
    speed = _speed(
        where,
        tool=tool,
        load=load,
        token_ms=_find(report, "Mean TPOT (ms):", where),
        output=_find(report, "Output token throughput (tok/s):", where),
    )
    return _result("sglang", tool, where, speed, load=load, requests=completed).with_acceptance(
        reading
    )


def _sglang_json(document: dict[str, Any], where: str, given: Given) -> BenchResult:
    tool = "SGLang bench_serving"
    completed = checked_number(document["completed"], "completed", where)
    _check_requests(completed, None, where)
    load = (
        _optional(document, "max_concurrency", where)
        or given.concurrency
        or _optional(document, "concurrency", where)
    )
    token_ms = _optional(document, "mean_tpot_ms", where)
    speed = _speed(
        where,
        tool=tool,
        load=load,
        token_ms=token_ms,
        output=_optional(document, "output_throughput", where),
    )
    info = document.get("server_info")
    model = info.get("model_path") if isinstance(info, dict) else None
    reading = None
    if document.get(sglang.BENCH_KEY):
        reading = sglang.read_bench_json([document], where)
    return _result(
        "sglang",
        tool,
        where,
        speed,
        load=load,
        requests=completed,
        model=model if isinstance(model, str) else None,
        spread=_standard_error(_optional(document, "std_tpot_ms", where), token_ms, completed),
        label=_label(document.get("tag")),
    ).with_acceptance(reading)


def _one_batch_text(report: str, where: str) -> BenchResult:
    values = {
        "batch_size": _field(report, "batch size:", where),
        "output_throughput": _field(report, "output throughput:", where),
        "acc_length": _find(report, "acc_length:", where),
    }
    return _one_batch(values, where, label={})


def _one_batch_json(document: dict[str, Any], where: str) -> BenchResult:
    return _one_batch(document, where, label=_label(document.get("run_name")))


def _one_batch(values: dict[str, Any], where: str, *, label: dict[str, str]) -> BenchResult:
    """Read one batch; its speed counts from when all sequences had their first token.

    An accept length of -1 or 0 says that nothing was drafted.
    """
    load = _positive(values["batch_size"], "batch_size", where)
    speed = _positive(values.get("output_throughput"), "output_throughput", where)
    length = values.get("acc_length")
    result = _result(
        "sglang",
        "SGLang bench_one_batch_server",
        where,
        _Speed(speed, prompts_inside=False),
        load=load,
        requests=load,
        label=label,
    )
    if not isinstance(length, int | float) or isinstance(length, bool) or length in (-1, 0):
        return result
    reading = sglang.read_bench_json([{sglang.BENCH_KEY: length}], where)
    return result.with_acceptance(reading)


# TensorRT-LLM -------------------------------------------------------------------------------------


def _trtllm_text(text: str, where: str, given: Given) -> BenchResult:
    drafted = any(mark in text for mark in trtllm.BENCH_MARKS)
    model = re.findall(r"^Model:[ \t]+(\S+)", text, re.MULTILINE)
    return _trtllm(
        where,
        load=given.concurrency or _find(text, "Number of concurrent requests:", where),
        token_ms=_find(text, "Average time-per-output-token [TPOT] (ms):", where),
        output=_find(text, "Total Output Throughput (tokens/sec):", where),
        requests=_find(text, "Number of requests:", where),
        model=model[-1] if model else None,
        reading=trtllm.read_bench(text.splitlines(), where) if drafted else None,
    )


def _trtllm_json(document: dict[str, Any], where: str, given: Given) -> BenchResult:
    speeds = _mapping(document["performance"], "performance", where)
    requests = _mapping(document["request_info"], "request_info", where)
    streaming = _mapping(document.get("streaming_metrics") or {}, "streaming_metrics", where)
    engine = document.get("engine")
    model = engine.get("model") if isinstance(engine, dict) else None
    reading = trtllm.read_bench_json([document], where) if document.get(trtllm.BENCH_KEY) else None
    return _trtllm(
        where,
        load=given.concurrency or _optional(requests, "avg_num_concurrent_requests", where),
        token_ms=_optional(streaming, "avg_tpot_ms", where),
        output=_optional(speeds, "system_output_throughput_tok_s", where),
        requests=_optional(requests, "num_requests", where),
        model=model if isinstance(model, str) else None,
        reading=reading,
    )


def _trtllm(
    where: str,
    *,
    load: float | None,
    token_ms: float | None,
    output: float | None,
    requests: float | None,
    model: str | None,
    reading: Reading | None,
) -> BenchResult:
    """Read a report; only one of ``--streaming`` has a time per token."""
    tool = "trtllm-bench"
    speed = _speed(where, tool=tool, load=load, token_ms=token_ms, output=output)
    return _result(
        "trtllm", tool, where, speed, load=load, requests=requests, model=model
    ).with_acceptance(reading)


# llama.cpp ----------------------------------------------------------------------------------------


def _llama_bench(row: dict[str, Any], where: str) -> BenchResult:
    """Read a row of ``llama-bench``: plain decoding (tg), or a pass of q rows (pp), D = q - 1.

    It drafts nothing. A pass of q rows emits up to q tokens, so it counts as a run in which all
    were accepted.
    """
    prompt, generated = (int(checked_number(row.get(key), key, where)) for key in LLAMA_COLUMNS[:2])
    nanoseconds = _positive(row.get("avg_ns"), "avg_ns", where)
    samples = row.get("samples_ns")
    count = len(samples) if isinstance(samples, list) else 1
    model = row.get("model_filename")
    return _llama_pass(
        where,
        prompt=prompt,
        generated=generated,
        seconds=nanoseconds / 1e9,
        model=model if isinstance(model, str) else None,
        spread=_standard_error(_optional(row, "stddev_ns", where), nanoseconds, count),
    )


def _llama_markdown(text: str, where: str) -> Iterator[BenchResult]:
    """Read the table that ``llama-bench`` prints: ``pp4 @ d512 | 942.58 ± 12.3``."""
    row = re.compile(
        r"\|\s*(?P<kind>pp|tg)(?P<tokens>\d{1,6})(?: @ d\d+)?\s*\|"
        r"\s*(?P<speed>[\d.]+)(?:\s*±\s*(?P<deviation>[\d.]+))?\s*\|"
    )
    for match in row.finditer(text):
        tokens = int(match["tokens"])
        speed = _positive(_decimal(match["speed"], "t/s", where), "t/s", where)
        deviation = _decimal(match["deviation"], "t/s", where) if match["deviation"] else None
        yield _llama_pass(
            where,
            prompt=tokens if match["kind"] == "pp" else 0,
            generated=tokens if match["kind"] == "tg" else 0,
            seconds=tokens / speed if tokens else 0.0,
            model=None,
            spread=_standard_error(deviation, speed, 1),
        )


def _llama_pass(
    where: str,
    *,
    prompt: int,
    generated: int,
    seconds: float,
    model: str | None,
    spread: float | None,
) -> BenchResult:
    if (prompt > 0) is (generated > 0) or prompt > 65:
        raise InputError(
            f"a run of {prompt} prompt and {generated} generated tokens is no decode pass; run "
            "llama-bench with -p 1,2,3,4,5,6,7,8 -n 0, or with -p 0 -n 128",
            where=where,
        )
    rows, tokens = (prompt, prompt) if prompt else (1, generated)
    if seconds <= 0:
        raise InputError("a pass took no time; run it again", where=where)
    return _result(
        "llamacpp",
        "llama-bench",
        where,
        _Speed(tokens / seconds, prompts_inside=False),
        load=1.0,
        requests=None,
        model=model,
        spread=spread,
        label={"draft_length": str(rows - 1), **({"held": str(rows)} if rows > 1 else {})},
    )


def _of_responses(
    timings: Sequence[dict[str, Any]], where: str, given: Given, label: dict[str, str]
) -> BenchResult:
    """Pool the timings of llama-server's responses.

    Its clock starts with the first token, so n tokens took n - 1 steps' worth: B sequences decode
    B (sum n - 1) / (sum of times) tokens per second.
    """
    counts = [checked_number(item.get("predicted_n"), "predicted_n", where) for item in timings]
    times = [_positive(item.get("predicted_ms"), "predicted_ms", where) for item in timings]
    tokens, milliseconds, number = sum(counts) - len(counts), sum(times), len(timings)
    if tokens <= 0:
        raise InputError("no token after the first; ask for more tokens each", where=where)
    load = given.concurrency or _decimal(label.get("batch") or "0", "its label", where) or None
    if load is None and number > 1:
        raise InputError(
            f"{number} responses do not say how many ran at once; give {Option('batch')}",
            where=where,
        )
    load = load or 1.0
    pace = _positive(milliseconds / tokens, "the time of a token", where)
    each = [ms / (n - 1) for ms, n in zip(times, counts, strict=True) if n > 1]
    spread = None
    if number > 1:
        deviation = math.sqrt(sum((own / pace - 1) ** 2 for own in each) / (len(each) - 1 or 1))
        spread = _standard_error(deviation, 1.0, len(each))
    drafted = any(item.get(llamacpp.RESPONSE_KEY) for item in timings)
    none = {llamacpp.RESPONSE_KEY: 0, "draft_n_accepted": 0}  # left out where nothing was drafted
    reading = llamacpp.read_responses([none | item for item in timings], where) if drafted else None
    return _result(
        "llamacpp",
        "llama-server",
        where,
        _Speed(load * 1e3 / pace, prompts_inside=False),
        load=load,
        requests=number,
        spread=spread,
        tokens_per_step=1.0,
        label=label,
    ).with_acceptance(reading)


# What all of them become --------------------------------------------------------------------------

#: What the commands of `bench_commands` put into a result where its tool takes a label.
LABELS = ("draft_length", "held", "batch")


def _label(text: Any) -> dict[str, str]:
    """Return the label ``draft_length=3,held=2.5`` that the commands give a run.

    >>> _label("draft_length=3,held=2.5"), _label("mine"), _label(None)
    ({'draft_length': '3', 'held': '2.5'}, {}, {})
    """
    found = re.findall(r"(\w+)=([\d.]+)", text) if isinstance(text, str) else []
    return {key: value for key, value in found if key in LABELS}


def _result(
    engine: str,
    tool: str,
    where: str,
    speed: _Speed,
    *,
    load: float | None,
    requests: float | None,
    model: str | None = None,
    spread: float | None = None,
    tokens_per_step: float | None = None,
    label: dict[str, str] | None = None,
) -> BenchResult:
    stated = label or {}
    try:
        length = int(stated["draft_length"]) if "draft_length" in stated else None
        held = float(stated["held"]) if "held" in stated else None
    except ValueError:
        raise InputError(
            f"its label says {stated}; expected draft_length=3,held=2.5", where=where
        ) from None
    return BenchResult(
        engine=engine,
        draft_length=length,
        concurrency=load,
        tokens_per_s=speed.tokens_per_s,
        tokens_per_step=1.0 if length == 0 else held or tokens_per_step,
        requests=None if requests is None else round(requests),
        prompts_inside=speed.prompts_inside,
        model=model,
        spread=spread,
        held=held,
        tool=tool,
        where=where,
    )
