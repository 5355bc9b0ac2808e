"""Reading running servers over real HTTP on loopback, and what is made of it.

The pages are invented after each engine's own format (tests/data/servers/README.md), with numbers
from which every expected value here follows on paper.
"""

from __future__ import annotations

import re

import pytest

from roofline.acceptance.conventions import iid_rate
from tests.servers import (
    SERVERS,
    engine,
    facts,
    gaps,
    pages,
    read,
    server,
)
from tests.support import ROOT, Cli, assert_refused


@pytest.mark.usefixtures("clock")
def test_vllm(cli: Cli) -> None:
    """Between the reads 40 % of every counter: 16,000 tokens in 4 s, 400 drafts, 664 accepted."""
    seen: list[str] = []
    with server(engine(pages("vllm"), seen)) as url:
        data = read(cli, url, "--interval", "4", "--gpu", "h100-sxm").data()
    found = facts(data)
    assert (found["version"], found["model"]) == ("0.33.0", "meta-llama/Llama-3.1-8B-Instruct")
    assert (found["batch"], found["waiting"], found["draft_length"]) == (8, 0, 3)
    assert found["acceptance"] == pytest.approx(1 + 664 / 400)
    assert found["context"] == 2000 + 400 / 2  # 80,000 / 40 prompt, 16,000 / 40 output
    assert found["tokens_per_s"] == 16_000 / 4
    assert gaps(data) == {"tp": "--tp", "drafter": "--drafter"}
    used = {
        "model": "llama-3.1-8b", "gpu": "h100-sxm", "gpus": 1, "engine": "vllm", "tp": 1, "ep": 1,
        "dp_attention": 1, "activations": "bf16", "kv": "bf16", "batch": 8, "context": 2200,
    }  # fmt: skip
    assert {name: data["used"][name] for name in used} == used
    assert all(line.startswith("GET ") for line in seen)
    assert data["change"]["measured_tokens_per_s"] == 4000


@pytest.mark.usefixtures("clock")
def test_the_change_is_that_of_the_schedule(cli: Cli) -> None:
    """Speeds of the question asked by hand: 8 x tokens per second of one sequence."""
    with server(engine(pages("vllm"))) as url:
        data = read(cli, url, "--interval", "4", "--gpu", "h100-sxm").data()
    by_hand = cli(
        "recommend", "llama-3.1-8b", "--batch", "8", "--context", "2200", "--format", "json",
        "--acceptance", "al:1=1.71,2=2.24,3=2.66",
    ).by_draft_length()  # fmt: skip
    change = data["change"]
    now = 8 * change["tokens_per_step"] / (change["step_ms"] / 1e3)
    assert change["draft_length"] == 3
    assert change["predicted_tokens_per_s"] == pytest.approx(now)
    assert change["step_ms"] == pytest.approx(by_hand[3]["step_ms"])
    assert change["gain"] == pytest.approx(
        change["advised_tokens_per_s"] / change["predicted_tokens_per_s"] - 1
    )
    band = next(b for b in data["schedule"]["bands"] if b["batch_start"] <= 8 <= b["batch_end"])
    assert band["draft_length"] == change["advised_draft_length"]


@pytest.mark.usefixtures("clock")
def test_vllm_in_development_mode_states_its_settings(cli: Cli) -> None:
    with server(engine(pages("vllm-dev"))) as url:
        data = read(cli, url, "--interval", "0").data()
    found = facts(data)
    assert (found["gpu"], found["tp"], found["method"]) == ("h100-sxm", 2, "eagle3")
    assert data["used"]["tp"] == 2
    assert data["not_read"] == []


@pytest.mark.usefixtures("clock")
def test_ranks_are_copies_with_a_batch_each(cli: Cli) -> None:
    """Ranks that run 8 and 16: 12 in each of two; 1 + 0 wait; tokens of both count."""
    with server(engine(pages("vllm-dp2"))) as url:
        data = read(cli, url, "--interval", "4", "--gpu", "h100-sxm").data()
    found = facts(data)
    assert data["server"]["copies"] == found["data_parallel"] == 2
    assert (found["batch"], found["waiting"]) == (12, 1)
    assert found["tokens_per_s"] == (16_000 + 32_000) / 4
    assert found["acceptance"] == pytest.approx(2.66)
    change = data["change"]
    alone = 12 * change["tokens_per_step"] / (change["step_ms"] / 1e3)
    assert change["predicted_tokens_per_s"] == pytest.approx(2 * alone)


@pytest.mark.usefixtures("clock")
def test_a_server_without_speculation(cli: Cli) -> None:
    with server(engine(pages("vllm-off"))) as url:
        data = read(cli, url, "--interval", "4", "--gpu", "h100-sxm").data()
    assert facts(data)["draft_length"] == 0
    # nothing finished between two equal pages: 0.04 x 27,000 blocks x 16 tokens over 8 sequences
    assert facts(data)["context"] == 2160
    assert gaps(data)["acceptance"] == "--acceptance"
    assert data["change"]["tokens_per_step"] == 1
    assert data["change"]["gain"] > 0


@pytest.mark.usefixtures("clock")
def test_sglang(cli: Cli) -> None:
    """Two ranks, each shown by two of its tensor-parallel ranks: 12 and 24 run, 1500 and 3000/s."""
    with server(engine(pages("sglang"))) as url:
        outcome = read(cli, url, "--interval", "4", "--gpu", "h200-sxm")
    data = outcome.data()
    found = facts(data)
    assert (found["model"], found["tp"], data["server"]["copies"]) == ("Qwen/Qwen3-8B", 4, 2)
    assert (found["batch"], found["context"]) == (18, (36_000 + 72_000) / (12 + 24))
    assert (found["tokens_per_s"], found["kv"]) == (4500, "fp8")
    # between the reads: 10,000 tokens over 4,000 verify calls
    assert (found["acceptance"], found["draft_length"]) == (2.5, 3)
    rate = iid_rate(tokens_per_step=2.5, draft_length=3)
    (gap,) = data["not_read"]
    assert gap["used"] == f"a rate of {rate:.3f} at every position"
    assert "secret-of-the-server" not in outcome.out + outcome.err


@pytest.mark.usefixtures("clock")
def test_ranks_that_share_weights_are_groups_of_attention(cli: Cli) -> None:
    """The same two ranks of 12 and 24, in one model on four GPUs: a batch of 36, no copies."""
    info = (SERVERS / "sglang-server-info.json").read_bytes()
    info = info.replace(b'"enable_dp_attention": false', b'"enable_dp_attention": true')
    with server(engine(pages("sglang", server_info=info))) as url:
        data = read(cli, url, "--interval", "4", "--gpu", "h200-sxm").data()
    assert (data["server"]["copies"], data["used"]["dp_attention"]) == (1, 2)
    assert data["used"]["batch"] == 36


def test_sglang_without_metrics(cli: Cli, clock: list[float]) -> None:
    with server(engine(pages("sglang-no-metrics"))) as url:
        data = read(cli, url, "--gpu", "h200-sxm").data()
    assert clock == []  # nothing counts there, so nothing is waited for
    assert facts(data)["acceptance"] == 2.61
    assert {"batch", "context"} <= gaps(data).keys()
    assert data["change"] is None


@pytest.mark.usefixtures("clock")
def test_tensorrt_llm(cli: Cli) -> None:
    """Half of every counter more: 10,000 tokens in 5 s; 1000 + 250 tokens of context."""
    with server(engine(pages("trtllm"))) as url:
        data = read(cli, url, "--interval", "5").data()
    found = facts(data)
    assert (found["gpu"], found["tp"], found["method"]) == ("b200-hgx", 8, "mtp")
    assert (found["batch"], found["context"], found["tokens_per_s"]) == (8, 1250, 2000)
    assert found["acceptance"] == pytest.approx(1 + (920 + 660 + 240) / 1000)
    assert gaps(data) == {"weights": "--weights"}
    assert data["used"]["model"] == "deepseek-r1"


@pytest.mark.usefixtures("clock")
def test_tensorrt_llm_with_iterations_alone(cli: Cli) -> None:
    """The second read holds what ran in between: 8 sequences in 512 blocks of 32 tokens."""
    with server(engine(pages("trtllm-json"))) as url:
        data = read(
            cli, url, "--interval", "5", "--gpu", "b200-hgx", "--tp", "8", "--drafter", "mtp",
        ).data()  # fmt: skip
    found = facts(data)
    assert (found["batch"], found["context"]) == (8, 512 * 32 / 8)
    assert found["acceptance"] == 2.5
    assert found["tokens_per_s"] is None


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("weights", "flag", "gap"),
    [
        # the bundled head's own; one of another maker by the public runs; one that nobody knows
        ("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", False),
        (
            "lmsys/SGLang-EAGLE3-Llama-3.1-8B-Instruct-SpecForge",
            "lmsys/SGLang-EAGLE3-Llama-3.1-8B-Instruct-SpecForge",
            False,
        ),
        ("nobody/else", "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", True),
    ],
)
def test_the_servers_own_head_stays(cli: Cli, weights: str, flag: str, gap: bool) -> None:
    info = (SERVERS / "vllm-server-info.json").read_bytes()
    info = info.replace(b"yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", weights.encode())
    with server(engine(pages("vllm-dev", server_info=info))) as url:
        data = read(cli, url, "--interval", "5", "--gpu", "h100-sxm").data()
    assert f'"model": "{flag}"' in str(data["schedule"])
    assert ("drafter" in gaps(data)) == gap


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("version", "said"), [("0.29.1", "51510"), ("0.27.1", "piecewise"), ("0.40.0", "newer")]
)
def test_the_servers_release_is_priced(cli: Cli, version: str, said: str) -> None:
    """As --engine vllm@0.29 says: builds 0.28 to 0.31 draft the longest K in every band."""
    with server(engine(pages("vllm", version=f'{{"version": "{version}"}}'.encode()))) as url:
        outcome = cli("live", url, "--interval", "5", "--gpu", "h100-sxm", "--notes")
    assert said in " ".join(outcome.out.split())
    assert ": -" not in outcome.out.splitlines()[0]  # no change to a slower draft length


@pytest.mark.usefixtures("clock")
def test_llamacpp(cli: Cli) -> None:
    """129 tokens of 79 drafts, 210 tokens in 5 s; two slots were busy, and then one."""
    with server(engine(pages("llamacpp"))) as url:
        data = read(
            cli, url, "--interval", "5", "--gpu", "rtx-4090",
            "--drafter", "llama-3.2-1b",
        ).data()  # fmt: skip
    found = facts(data)
    assert (found["version"], found["method"]) == ("b11434-unknown", "model")
    assert (found["draft_length"], found["batch"], found["waiting"]) == (4, 1.5, 0)
    assert found["acceptance"] == pytest.approx(1 + 129 / 79)
    assert found["tokens_per_s"] == 210 / 5
    assert data["used"]["model"] == "llama-3.1-8b"
    assert data["used"]["weights"]["mlp"] == "q4_k_m"  # "Q4_K - Medium" of /props
    assert gaps(data) == {"gpus": "--gpus", "context": "--context"}


@pytest.mark.usefixtures("clock")
def test_recommend_takes_the_reading_and_flags_win(cli: Cli) -> None:
    with server(engine(pages("vllm-dev"))) as url:
        outcome = cli("recommend", "--live", url, "--interval", "0", "--format", "json")
    point = outcome.point()
    assert (point["batch"], point["context"]) == (8, 2200)
    assert outcome.data()["inputs"]["tp"] == 2
    # the page counts 1000 passes that took 1660 drafts: AL = 1 + 1660 / 1000, give or take 0.03
    assert outcome.by_draft_length()[3]["tokens_per_step"] == pytest.approx(2.66, abs=0.03)
    with server(engine(pages("vllm-dev"))) as url:
        outcome = cli(
            "recommend", "qwen3-8b", "--live", url, "--interval", "0", "--format", "json",
            "--batch", "3,5", "--context", "1k", "--tp", "1", "--gpu", "h200-sxm",
            "--acceptance", "0.5", "--engine", "sglang", "--drafter", "ngram",
        )  # fmt: skip
    data = outcome.data()
    assert [(p["batch"], p["context"]) for p in data["points"]] == [(3, 1024), (5, 1024)]
    inputs = data["inputs"]
    assert (inputs["model"], inputs["gpu"], inputs["tp"]) == ("qwen3-8b", "h200-sxm", 1)
    assert (inputs["engine"], inputs["drafter"]) == ("sglang", "ngram")
    assert data["points"][0]["by_draft_length"][1]["tokens_per_step"] == 1.5


@pytest.mark.usefixtures("clock")
def test_a_load_keeps_the_context_that_was_read(cli: Cli) -> None:
    """The page's context is 2200 tokens, unless a flag says another."""
    found = []
    for flags in ((), ("--context", "4k")):
        with server(engine(pages("vllm-dev"))) as url:
            ask = ("recommend", "--batches-histogram", "8:1", "--interval", "0", "--live", url)
            found.append(cli(*ask, *flags, "--format", "json").data()["load"]["context"])
    assert found == [2200, 4096]


@pytest.mark.usefixtures("clock")
def test_a_batch_given_that_does_not_fit_is_refused(cli: Cli) -> None:
    with server(engine(pages("vllm-dev"))) as url:
        done = cli("live", url, "--interval", "0", "--batch", "5000")
    words = (
        "batch 5000 at",
        " GB usable of ",
        "the largest batch that fits is",
        "--kv fp8 (batch ",
    )
    assert_refused(done, *words, code=3)


def test_recommend_still_needs_a_model(cli: Cli) -> None:
    assert_refused(cli("recommend"), "MODEL is missing", "--live")
    assert_refused(cli("recommend", "llama-3.1-8b", "--interval", "3s"), "belong to --live")


@pytest.mark.usefixtures("clock")
def test_a_schedule_that_gains_next_to_nothing_is_not_printed(cli: Cli) -> None:
    """Found by a user: "keep 3", and six bands to paste for +0.4 %; the tie is 1 %.

    With graphs of 1,024 rows: past 128 sequences D = 3 leaves vLLM's usual 512.
    """
    asked = ("--gpu", "h100-sxm", "--interval", "7s", "--set", "engine.graphs.up_to=1024")
    with server(engine(pages("vllm"))) as url:
        outcome = cli("live", url, *asked)
    with server(engine(pages("vllm"))) as url:
        data = read(cli, url, *asked).data()
    assert 0 < data["schedule"]["gain_over_fixed"] < 0.01
    assert "num_speculative_tokens_per_batch_size" not in outcome.out
    assert "not worth its upkeep" in " ".join(outcome.out.split())
    assert "last row's K" not in outcome.said


@pytest.mark.usefixtures("clock")
def test_every_field_is_documented(cli: Cli) -> None:
    with server(engine(pages("vllm"))) as url:
        data = read(cli, url, "--gpu", "h100-sxm").data()
    page = (ROOT / "docs" / "reference.md").read_text("utf-8")
    documented = set(re.findall(r"`(\w+)(?:\[\])?`", page))
    parts = [data, *(data[name] for name in ("server", "used", "change")), *data["not_read"]]
    assert {key for part in parts for key in part} - documented == set()


def test_text_fits_the_terminal(cli: Cli) -> None:
    for name, gpu in (("vllm-dp2", "h100-sxm"), ("sglang", "h200-sxm"), ("trtllm", "b200-hgx")):
        with server(engine(pages(name))) as url:
            outcome = cli("live", url, "--interval", "0.05", "--gpu", gpu)
        assert outcome.code == 0, outcome.err
        prose = [line for line in outcome.out.splitlines() if "--speculative" not in line]
        assert max(map(len, prose)) <= 80


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
    contradicted = [text for text in outcome.data()["warnings"] if "the server runs" in text]
    assert len(contradicted) == 1
    assert contradicted[0].startswith(said)


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
    assert "the server runs" not in outcome.said


@pytest.mark.parametrize("command", ["recommend", "live"])
def test_missing_flags_are_asked_for_before_waiting(
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


@pytest.mark.parametrize("command", ["recommend", "live"])
@pytest.mark.parametrize(
    ("option", "words"),
    [
        (("--batch", "0"), "--batch 0"),
        (("--context", "0"), "--context 0"),
        (("--acceptance", "1.2"), "--acceptance"),
        (("--acceptance", "no-such-curve"), "--acceptance"),
    ],
)
def test_options_are_read_before_the_server(
    cli: Cli, command: str, option: tuple[str, ...], words: str
) -> None:
    """Nobody listens there: a refusal of the option shows that the server was not asked."""
    address = ("--live",) if command == "recommend" else ()
    assert_refused(cli(command, *address, "127.0.0.1:9", *option), words)
