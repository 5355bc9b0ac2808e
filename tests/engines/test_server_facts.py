"""What a server says, or leaves out, becomes the question: one fact changed in a recorded page."""

from __future__ import annotations

import re

import pytest

from tests.servers import LATER, SERVERS, VLLM, engine, facts, gaps, pages, read, server
from tests.support import Cli, assert_refused

H100 = ("--interval", "4", "--gpu", "h100-sxm")
INFO = (SERVERS / "vllm-server-info.json").read_bytes()
SGLANG = (SERVERS / "sglang-server-info.json").read_bytes()
RUNNING = b"vllm:num_requests_running"


def without(page: bytes, *names: bytes) -> bytes:
    """Return a page without the series of these names."""
    return b"".join(line for line in page.splitlines(keepends=True) if not line.startswith(names))


@pytest.mark.usefixtures("clock")
def test_flags_that_are_given_are_not_read(cli: Cli) -> None:
    """The page says four GPUs, one group, D = 3; the flags say otherwise."""
    with server(engine(pages("vllm-dev"))) as url:
        data = read(
            cli, url, "--interval", "0", "--dp-attention", "2", "--ep", "1", "--tp", "2",
            "--max-draft-length", "2",
        ).data()  # fmt: skip
    assert data["used"]["dp_attention"] == 2
    assert data["used"]["ep"] == 1
    drafted = {band["draft_length"] for band in data["schedule"]["bands"]}
    assert max(drafted) <= 2


@pytest.mark.usefixtures("clock")
def test_a_drafter_that_is_bundled_under_its_repository(cli: Cli) -> None:
    with server(engine(pages("vllm-dev"))) as url:
        used = read(cli, url, "--interval", "0").data()["used"]
    info = INFO.replace(b"yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", b"someone/unheard-of")
    with server(engine(pages("vllm-dev", server_info=info))) as url:
        other = read(cli, url, "--interval", "0").data()
    assert facts(other)["draft_model"] == "someone/unheard-of"
    assert used["drafter"] == other["used"]["drafter"]  # of that kind, the bundled one


@pytest.mark.usefixtures("clock")
def test_eagle_without_weights_is_the_models_own_layer(cli: Cli) -> None:
    """SGLang calls MTP layers EAGLE; GLM-4.5 has one."""
    info = SGLANG.replace(b'"EAGLE3"', b'"EAGLE"').replace(b"Qwen/Qwen3-8B", b"zai-org/GLM-4.5")
    info = re.sub(rb' "speculative_draft_model_path": [^\n]*\n', b"", info)
    with server(engine(pages("sglang-no-metrics", get_server_info=info))) as url:
        data = read(cli, url, "--gpu", "h200-sxm", "--tp", "8").data()
    assert data["used"]["drafter"] == "glm-4.5-mtp"


@pytest.mark.usefixtures("clock")
def test_another_engine_in_between(cli: Cli) -> None:
    other = (SERVERS / "sglang.prom").read_bytes()
    with server(engine(pages("vllm", metrics=[VLLM, other]))) as url:
        assert_refused(read(cli, url, *H100), "another engine answered in between", "read again")


@pytest.mark.usefixtures("clock")
def test_counts_go_before_what_was_configured(cli: Cli) -> None:
    """Three positions are counted; the configuration says five tokens."""
    info = INFO.replace(b'"num_speculative_tokens": 3', b'"num_speculative_tokens": 5')
    with server(engine(pages("vllm-dev", server_info=info))) as url:
        outcome = read(cli, url, "--interval", "4")
    assert facts(outcome.data())["draft_length"] == 3
    assert "drafts of 3 tokens were counted, but" in outcome.err
    assert "says 5; 3 is used" in outcome.err


@pytest.mark.usefixtures("clock")
def test_a_page_that_does_not_count_tokens_has_no_rate(cli: Cli) -> None:
    bodies = [without(page, b"vllm:generation_tokens") for page in (VLLM, LATER)]
    with server(engine(pages("vllm", metrics=bodies))) as url:
        data = read(cli, url, *H100).data()
    assert facts(data)["tokens_per_s"] is None
    assert "no vllm:generation_tokens" in data["server"]["facts"]["tokens_per_s"]["reason"]
    assert data["change"]["measured_tokens_per_s"] is None


@pytest.mark.usefixtures("clock")
def test_a_batch_that_nobody_knows(cli: Cli) -> None:
    """Without the gauge there is a schedule for every batch, and nothing to compare it with."""
    bodies = [without(page, RUNNING) for page in (VLLM, LATER)]
    with server(engine(pages("vllm", metrics=bodies))) as url:
        outcome = cli("live", url, *H100)
    assert outcome.code == 0
    assert outcome.out.startswith("The running batch is not known, so here is the ")
    with server(engine(pages("vllm", metrics=bodies))) as url:
        assert "batch" in gaps(read(cli, url, *H100).data())


@pytest.mark.usefixtures("clock")
def test_a_batch_that_does_not_fit_beside_the_drafter(cli: Cli) -> None:
    """4,000 sequences of 2,200 tokens need 1.15 TB of cache; an H100 has 80 GB."""
    bodies = [re.sub(rb"(num_requests_running\S+) 8\.0", rb"\1 4000.0", p) for p in (VLLM, LATER)]
    with server(engine(pages("vllm", metrics=bodies))) as url:
        outcome = cli("live", url, *H100)
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith("The running batch of 4000 does not fit beside the drafter")


@pytest.mark.usefixtures("clock")
def test_without_a_draft_length_the_gain_is_not_known(cli: Cli) -> None:
    """A page without counts of drafts, and no word of the method: only the advice is left."""
    bodies = [without(page, b"vllm:spec_decode") for page in (VLLM, LATER)]
    info = INFO.replace(b'"num_speculative_tokens": 3', b'"other": 3')
    with server(engine(pages("vllm-dev", metrics=bodies, server_info=info))) as url:
        outcome = cli("live", url, "--interval", "4")
    text = " ".join(outcome.out.split())
    assert "what the server gains cannot be said" in text
    assert "the server's draft length is not known. Expected: " in text
    with server(engine(pages("vllm-dev", metrics=bodies, server_info=info))) as url:
        assert read(cli, url, "--interval", "4").data()["change"]["gain"] is None


@pytest.mark.usefixtures("clock")
def test_nothing_missing_has_no_list_of_it(cli: Cli) -> None:
    with server(engine(pages("vllm-dev"))) as url:
        outcome = cli("live", url, "--interval", "4")
    assert "Not read" not in outcome.out
    with server(engine(pages("vllm"))) as url:
        assert "--tp" in cli("live", url, *H100).out
