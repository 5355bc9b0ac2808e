"""What a server says, or leaves out, becomes the question: one fact changed in a recorded page."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from roofline.specs.engine import load_engine
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
    assert "drafts of 3 tokens were counted, but" in outcome.said
    assert "says 5; 3 is used" in outcome.said


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
    """4,000 sequences of 2,200 tokens need 1.15 TB of cache; a process sees 84.9 GB of an H100."""
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
    assert "how much that gains is not known" in text
    assert "the server's draft length is not known (vLLM does not say). Expected: " in text
    with server(engine(pages("vllm-dev", metrics=bodies, server_info=info))) as url:
        assert read(cli, url, "--interval", "4").data()["change"]["gain"] is None


@pytest.mark.usefixtures("clock")
def test_a_complete_reading_lists_nothing_missing(cli: Cli) -> None:
    with server(engine(pages("vllm-dev"))) as url:
        outcome = cli("live", url, "--interval", "4")
    assert "Not read" not in outcome.out
    with server(engine(pages("vllm"))) as url:
        assert "--tp" in cli("live", url, *H100).out


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
    assert "priced as vllm@2025 its version: V1 of 2025, 0.8 to 0.11" in outcome.said
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


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("model", "word", "weights", "gap"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "fp8", "fp8", False),
        ("meta-llama/Llama-3.1-8B-Instruct", None, "bf16", False),
        # 4 or 8 bits: nothing says which
        ("meta-llama/Llama-3.1-8B-Instruct", "gptq_marlin", "bf16", True),
        # published so: in blocks, which the word does not say
        ("deepseek-ai/DeepSeek-V3", "fp8", "fp8-block", False),
    ],
)
def test_how_a_checkpoint_is_quantised(
    cli: Cli, model: str, word: str | None, weights: str, gap: bool
) -> None:
    """SGLang's --quantization, as its /server_info repeats it."""
    info = _sglang(model_path=model, served_model_name=model, quantization=word)
    with server(engine(pages("sglang", server_info=info))) as url:
        data = read(cli, url, "--interval", "0", "--gpu", "b200-hgx", "--drafter", "ngram").data()
    assert data["used"]["weights"]["mlp"] == weights
    assert ("weights" in {each["what"] for each in data["not_read"]}) == gap


@pytest.mark.usefixtures("clock")
def test_an_older_release_is_named_itself(cli: Cli) -> None:
    """Not by the last one of the era that prices it (0.5.5), nor by another engine's."""
    info = _sglang(version="0.5.4")
    with server(engine(pages("sglang", server_info=info))) as url:
        said = cli("live", url, "--interval", "0", "--gpu", "b200-hgx", "--notes").said
    said = " ".join(said.split())
    assert "SGLang 0.5.4 was not read: its flags are those of SGLang 0.5.23" in said
    assert "0.5.5 was" not in said


@pytest.mark.parametrize(
    "weights", [None, "deepseek-ai/DeepSeek-V3", "/models/deepseek-v3-nextn/"]
)  # fmt: skip
@pytest.mark.usefixtures("clock")
def test_sglang_calls_the_mtp_layers_of_a_model_eagle(cli: Cli, weights: str | None) -> None:
    info = _sglang(speculative_draft_model_path=weights)
    with server(engine(pages("sglang", server_info=info))) as url:
        outcome = cli("live", url, "--interval", "0", "--gpu", "b200-hgx")
    assert re.search(r"drafter +mtp +EAGLE", outcome.out)
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
        outcome = cli(
            "live", url, "--gpu", "h100-sxm", "--interval", "7s", "--max-draft-length", "3"
        )
    said = " ".join(outcome.out.split())
    assert said.startswith("Keep draft length 3")
    assert "users predicted. Measured" in said
