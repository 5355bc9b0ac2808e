"""Pages that are not what they should be: something else, absurd, endless, of two models."""

from __future__ import annotations

import json
import time
from http.server import BaseHTTPRequestHandler
from itertools import count

import pytest

from tests.servers import (
    SERVERS,
    VLLM,
    engine,
    facts,
    gaps,
    pages,
    read,
    replaced,
    send,
    server,
)
from tests.support import Cli, assert_refused


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "is empty"),
        (b"<html>log in</html>", "<html>log in</html>"),
        (b"up 1\nprocess_cpu_seconds_total 3\n", "no series", ),
        (b"[1, 2", "neither a Prometheus page nor"),
        (b"[" * 100_000, "neither a Prometheus page nor"),
        (b'{"object": "list"}', "neither a Prometheus page nor"),
        (b"\x1b[2J\x1b]0;owned\x07", "neither a Prometheus page nor"),
    ],
)  # fmt: skip
def test_pages_that_are_not_metrics(cli: Cli, body: bytes, words: str) -> None:
    words = words.replace("no series", "without series of an engine")
    with server(lambda h: send(h, body, Content_Type="text/plain; version=0.0.4")) as url:
        line = assert_refused(read(cli, url), url, words)
    assert "\x1b" not in line
    assert len(line) < 500


def test_metrics_of_a_wrong_type_are_still_metrics(cli: Cli) -> None:
    """What counts is what a page holds, not what it says that it is."""
    inner = pages("vllm-dev")

    def answer(handler: BaseHTTPRequestHandler) -> None:
        body = inner[handler.path.partition("?")[0]][0]
        send(handler, body, Content_Type="image/png")

    with server(answer) as url:
        assert facts(read(cli, url, "--interval", "0").data())["batch"] == 8


@pytest.mark.parametrize("value", ["NaN", "-3", "+Inf", "1e300"])
@pytest.mark.parametrize(
    ("series", "fact", "flag"),
    [
        ("vllm:num_requests_running", "batch", "--batch"),
        ("vllm:request_prompt_tokens_sum", "context", "--context"),
        ("vllm:spec_decode_num_accepted_tokens_total", "acceptance", "--acceptance"),
    ],
)
def test_absurd_numbers_are_not_believed(
    cli: Cli, series: str, fact: str, flag: str, value: str
) -> None:
    with server(engine(pages("vllm-dev", metrics=replaced(series, value)))) as url:
        data = read(cli, url, "--interval", "0").data()
    assert facts(data)[fact] is None
    assert gaps(data)[fact] == flag


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("value", ["NaN", "-3", "+Inf", "1e300"])
def test_absurd_rates_are_not_believed(cli: Cli, value: str) -> None:
    later = replaced("vllm:generation_tokens_total", value)
    with server(engine(pages("vllm-dev", metrics=[VLLM, later]))) as url:
        outcome = read(cli, url, "--interval", "4")
    if value == "-3":
        assert_refused(outcome, "restarted")
    else:
        assert facts(outcome.data())["tokens_per_s"] is None


def test_a_draft_length_beyond_any_engine(cli: Cli) -> None:
    """300 positions on the page, 3000 in the configuration."""
    lines = [
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name='
        f'"meta-llama/Llama-3.1-8B-Instruct",position="{p}"}} 1.0'
        for p in range(300)
    ]
    kept = [x for x in VLLM.decode().splitlines() if "per_pos" not in x]
    body = "\n".join([*kept, *lines, ""]).encode()
    info = (SERVERS / "vllm-server-info.json").read_bytes()
    info = info.replace(b'"num_speculative_tokens": 3', b'"num_speculative_tokens": 3000')
    with server(engine(pages("vllm-dev", metrics=body, server_info=info))) as url:
        data = read(cli, url, "--interval", "0").data()
    assert facts(data)["draft_length"] is None
    assert "beyond 64" in data["server"]["facts"]["acceptance"]["reason"]


@pytest.mark.parametrize(
    "name", ["llama\x1b[31m\x1b]0;owned\x07", "x" * 10_000, "a\r\nSet-Cookie: b", "\u202eevil"]
)
def test_names_that_are_no_names(cli: Cli, name: str) -> None:
    page = VLLM.replace(b"meta-llama/Llama-3.1-8B-Instruct", name.encode())
    page = page.replace(b"\r\n", b"")
    models = json.dumps({"data": [{"id": name, "root": name}]}).encode()
    bodies = pages("vllm", metrics=page) | {"/v1/models": [models]}
    with server(engine(bodies)) as url:
        line = assert_refused(
            read(cli, url, "--interval", "0", "--gpu", "h100-sxm"), "which model", "--model"
        )
        outcome = cli(
            "live", url, "--interval", "0", "--gpu", "h100-sxm", "--model", "llama-3.1-8b"
        )
    assert len(line) < 1000
    assert outcome.code == 0
    assert set(outcome.out) <= {c for c in outcome.out if c.isprintable() or c == "\n"}
    assert "owned\x07" not in outcome.err


def test_a_name_of_ten_megabytes(cli: Cli) -> None:
    long = b"x" * 9_000_000
    page = VLLM.replace(b"meta-llama/Llama-3.1-8B-Instruct", long, 1)
    with server(engine(pages("vllm", metrics=page))) as url:
        assert_refused(read(cli, url, "--interval", "0"), "at most", "no page of one engine")
    models = json.dumps({"data": [{"id": "y" * 9_000_000}]}).encode()
    bodies = pages("vllm-dev") | {"/v1/models": [models]}
    with server(engine(bodies)) as url:
        data = read(cli, url, "--interval", "0").data()
    assert data["used"]["model"] == "llama-3.1-8b"


def test_a_page_of_endless_series(cli: Cli) -> None:
    lines = (f'vllm:spec_decode_x{{a="{i}"}} 1' for i in count())
    body = "\n".join(next(lines) for _ in range(100_000)).encode()
    with server(engine(pages("vllm", metrics=body))) as url:
        start = time.monotonic()
        assert_refused(read(cli, url, "--interval", "0"), "at most 20000 lines")
    assert time.monotonic() - start < 5


@pytest.mark.parametrize(
    "models",
    [b"[]", b"null", b'{"data": 3}', b'{"data": [{"id": 5}]}', b'{"data": [[[]]]}', b"<html>", b""],
)
def test_json_of_another_shape(cli: Cli, models: bytes) -> None:
    """The name on the metrics page is left."""
    bodies = pages("vllm") | {"/v1/models": [models], "/version": [models]}
    with server(engine(bodies)) as url:
        data = read(cli, url, "--interval", "0", "--gpu", "h100-sxm").data()
    assert data["used"]["model"] == "llama-3.1-8b"


def test_an_unknown_accelerator_is_asked_for(cli: Cli) -> None:
    info = (SERVERS / "vllm-server-info.json").read_bytes().replace(b"H100 80GB HBM3", b"H999")
    with server(engine(pages("vllm-dev", server_info=info))) as url:
        assert_refused(read(cli, url, "--interval", "0"), "NVIDIA H999", "give --gpu")


def test_several_models_are_asked_about(cli: Cli) -> None:
    other = VLLM.replace(b"meta-llama/Llama-3.1-8B-Instruct", b"Qwen/Qwen3-8B")
    body = VLLM + other.replace(b" 8.0\n", b" 5.0\n")
    bodies = {"/metrics": [body]}
    with server(engine(bodies)) as url:
        assert_refused(read(cli, url, "--interval", "0"), "serves 2 models", f"{url}#Qwen/Qwen3-8B")
        data = read(cli, f"{url}#Qwen/Qwen3-8B", "--interval", "0", "--gpu", "h100-sxm").data()
    assert (data["used"]["model"], facts(data)["batch"]) == ("qwen3-8b", 5)
