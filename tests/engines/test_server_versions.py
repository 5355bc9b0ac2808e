"""A running server's version chooses the engine's era; SGLang's EAGLE without weights is MTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from roofline.specs.engine import load_engine
from tests.servers import SERVERS, engine, facts, pages, read, server
from tests.support import Cli


@pytest.mark.parametrize(
    ("name", "version", "era"),
    [
        # the builds that each file names: vLLM 0.8 to 0.11, SGLang 0.4 and 0.5.0 to 0.5.5
        ("vllm", "0.8.5", "2025"), ("vllm", "0.11.2", "2025"), ("vllm", "v0.11.0rc2", "2025"),
        ("vllm", "0.12.0", None), ("vllm", "0.33.0", None), ("vllm", "1.0", None),
        ("sglang", "0.4.9.post2", "0.4"), ("sglang", "0.5.0rc1", "0.5"), ("sglang", "0.5.5", "0.5"),
        ("sglang", "0.5.6", None), ("sglang", "0.5.23", None),
        ("trtllm", "1.0.0rc3", "2025"), ("trtllm", "1.3.0rc20", None),
        # builds that know no version of theirs
        ("vllm", "dev", None), ("vllm", "", None), ("sglang", "0.0.0.dev1+g4a3", None),
        ("llamacpp", "0.1", None),
    ],
)  # fmt: skip
def test_the_era_of_a_version(name: str, version: str, era: str | None) -> None:
    found = load_engine(name).era_of(version)
    assert (found and found.id) == era


@pytest.mark.usefixtures("clock")
def test_an_old_server_is_priced_as_its_builds_were(cli: Cli) -> None:
    """The same question asked by hand with --engine vllm@2025; a flag given wins."""
    old = b'{"version": "0.11.2"}'
    with server(engine(pages("vllm", version=old))) as url:
        outcome = cli("live", url, "--interval", "0", "--gpu", "h100-sxm")
    assert "vllm@2025 <- its version: V1 of 2025, 0.8 to 0.11" in outcome.out
    with server(engine(pages("vllm", version=old))) as url:
        change = read(cli, url, "--interval", "0", "--gpu", "h100-sxm").data()["change"]
    by_hand = cli(
        "recommend", "llama-3.1-8b", "--batch", "8", "--context", "2200", "--format", "json",
        "--acceptance", "al:1=1.71,2=2.24,3=2.66", "--engine", "vllm@2025",
    ).by_draft_length()  # fmt: skip
    assert change["step_ms"] == pytest.approx(by_hand[3]["step_ms"])
    with server(engine(pages("vllm", version=old))) as url:
        data = read(cli, url, "--interval", "0", "--gpu", "h100-sxm", "--engine", "vllm").data()
    assert data["used"]["engine"] == "vllm"
    with server(engine(pages("vllm", version=old))) as url:
        outcome = cli("recommend", "--live", url, "--interval", "0", "--gpu", "h100-sxm")
    assert "0.11.2 is priced as vllm@2025" in outcome.err


def _sglang(**own: Any) -> bytes:
    data = json.loads((SERVERS / "sglang-server-info.json").read_bytes())
    deepseek = {
        "model_path": "deepseek-ai/DeepSeek-V3", "served_model_name": "deepseek-v3",
        "tp_size": 8, "dp_size": 1, "speculative_algorithm": "EAGLE",
    }  # fmt: skip
    return json.dumps(data | deepseek | own).encode()


@pytest.mark.parametrize(
    "weights", [None, "deepseek-ai/DeepSeek-V3", "/models/deepseek-v3-nextn/"]
)  # fmt: skip
@pytest.mark.usefixtures("clock")
def test_sglang_calls_the_mtp_layers_of_a_model_eagle(cli: Cli, weights: str | None) -> None:
    info = _sglang(speculative_draft_model_path=weights)
    with server(engine(pages("sglang", server_info=info))) as url:
        outcome = cli("live", url, "--interval", "0", "--gpu", "b200-hgx")
    assert "drafter          mtp <- EAGLE" in outcome.out
    with server(engine(pages("sglang", server_info=info))) as url:
        data = read(cli, url, "--interval", "0", "--gpu", "b200-hgx").data()
    assert facts(data)["method"] == "mtp"
    assert data["used"]["drafter"] == "deepseek-v3-mtp"
    assert "drafter" not in {gap["what"] for gap in data["not_read"]}


@pytest.mark.usefixtures("clock")
def test_an_eagle_head_of_its_own_stays_one(cli: Cli) -> None:
    info = _sglang(speculative_draft_model_path="someone/a-head")
    with server(engine(pages("sglang", server_info=info))) as url:
        data = read(cli, url, "--interval", "0", "--gpu", "b200-hgx").data()
    assert facts(data)["method"] == data["used"]["drafter"][-6:] == "eagle1"


@pytest.mark.usefixtures("clock")
def test_a_drafter_that_takes_no_schedule_gets_one_draft_length(cli: Cli) -> None:
    """SGLang's adaptive file is for EAGLE only; its n-gram servers were refused."""
    info = _sglang(speculative_algorithm="NGRAM", speculative_draft_model_path=None)
    with server(engine(pages("sglang", server_info=info))) as url:
        outcome = cli("live", url, "--interval", "0", "--gpu", "b200-hgx")
    assert outcome.code == 0, outcome.err
    assert "no schedule: SGLang adapts EAGLE" in " ".join(outcome.out.split())
    assert "candidate_steps" not in outcome.out


@pytest.mark.usefixtures("clock")
def test_an_address_needs_no_scheme(cli: Cli) -> None:
    with server(engine(pages("vllm"))) as url:
        bare = url.removeprefix("http://")
        data = read(cli, bare, "--interval", "0", "--gpu", "h100-sxm").data()
    assert data["server"]["address"] == url


@pytest.mark.usefixtures("clock")
def test_advice_to_keep_names_no_second_speed(cli: Cli) -> None:
    """Found by a user: "3528 predicted; 3528 with D = 3" when the advice is to keep 3."""
    with server(engine(pages("vllm"))) as url:
        outcome = cli("live", url, "--gpu", "h100-sxm", "--interval", "7s")
    said = " ".join(outcome.out.split())
    assert said.startswith("Keep draft length 3")
    assert "users predicted. Measured" in said
