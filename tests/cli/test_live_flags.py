"""Flags beside a reading: what speaks of another server, and what is missing, is said at once."""

from __future__ import annotations

import pytest

from tests.servers import engine, pages, server
from tests.support import Cli, assert_refused

#: The recorded server is vLLM with Llama-3.1-8B-Instruct and its EAGLE-3 head.
ASK = ("--interval", "0", "--format", "json")


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("qwen3-8b",), "model qwen3-8b: the server runs llama-3.1-8b"),
        (("--drafter", "ngram"), "drafter ngram: the server runs eagle3"),
        (("--drafter", "llama-3.2-1b"), "drafter llama-3.2-1b: the server runs eagle3"),
        (("--engine", "sglang"), "engine sglang: the server runs vllm"),
    ],
)
def test_a_flag_that_contradicts_the_server(cli: Cli, flags: tuple[str, ...], said: str) -> None:
    with server(engine(pages("vllm-dev"))) as url:
        outcome = cli("recommend", *flags, "--live", url, *ASK)
    assert outcome.code == 0, outcome.err
    assert outcome.err.count(said) == 1
    assert outcome.err.count("the server runs") == 1


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("llama-3.1-8b",),
        ("--drafter", "eagle3"),
        ("--drafter", "llama-3.1-8b-eagle3"),
        ("--drafter", "none"),  # asks what plain decoding would do there
        ("--engine", "vllm@2025"),
    ],
)
def test_flags_that_agree_are_not_doubted(cli: Cli, flags: tuple[str, ...]) -> None:
    with server(engine(pages("vllm-dev"))) as url:
        outcome = cli("recommend", *flags, "--live", url, *ASK)
    assert outcome.code == 0, outcome.err
    assert "the server runs" not in outcome.err


@pytest.mark.parametrize("command", ["recommend", "live"])
def test_what_waiting_cannot_bring_is_asked_for_at_once(
    cli: Cli, clock: list[float], command: str
) -> None:
    address = ("--live",) if command == "recommend" else ()
    with server(engine(pages("vllm"))) as url:
        missing = cli(command, *address, url, "--interval", "5m")
    assert_refused(missing, "accelerator", "give --gpu")
    assert clock == []
    unknown = (b'vllm:num_requests_running{model_name="own"} 1\n',)
    with server(engine({"/metrics": unknown})) as url:
        missing = cli(command, *address, url, "--interval", "5m", "--gpu", "h100-sxm")
    assert_refused(missing, "which model runs there is not known")
    assert clock == []


def test_an_empty_address_names_its_flag(cli: Cli) -> None:
    assert_refused(cli("recommend", "--live", ""), "--live: expected the address of a server")
