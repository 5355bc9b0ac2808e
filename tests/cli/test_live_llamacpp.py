"""What `live` makes of llama.cpp's own words, as build b11434 says them.

Pages are those of tests/data/servers/llamacpp*, recorded of a real server, with other values
where a test says so; names of types are those of src/llama-model-loader.cpp (llama_ftype_name).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

import pytest

from roofline.specs.formats import DType, bytes_per_element
from tests.servers import SERVERS, engine, facts, gaps, pages, read, send, server
from tests.support import Cli, Outcome, assert_refused

PROPS = (SERVERS / "llamacpp-props.json").read_bytes()
PAGE = (SERVERS / "llamacpp.prom").read_bytes()
NAME = b"/models/Llama-3.1-8B-Instruct-Q4_K_M.gguf"
ASK = ("--interval", "0", "--gpu", "rtx-4090", "--drafter", "llama-3.2-1b", "--batch", "2")


def serving(name: bytes = NAME, ftype: bytes = b"Q4_K - Medium") -> dict[str, list[bytes]]:
    """The recorded pages with another file, and another type of it."""
    found = pages("llamacpp")
    for path in ("/props", "/v1/models"):
        found[path] = [
            body.replace(NAME, name).replace(b"Q4_K - Medium", ftype) for body in found[path]
        ]
    return found


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("ftype", "weights"),
    [
        ("Q4_K - Medium", "q4_k_m"),
        ("Q8_0", "q8_0"),
        ("IQ3_S mix - 3.66 bpw", "iq3_m"),
        ("BF16", "bf16"),
        ("(guessed) Q6_K", "q6_k"),
    ],
)
def test_the_files_own_type_is_priced(cli: Cli, ftype: str, weights: str) -> None:
    """Where its name says another one: such a file was renamed."""
    with server(engine(serving(b"/m/llama-3.1-8b-instruct.gguf", ftype.encode()))) as url:
        data = read(cli, url, *ASK).data()
    assert (facts(data)["weights"], data["used"]["weights"]["mlp"]) == (weights, weights)
    assert "weights" not in gaps(data)


@pytest.mark.usefixtures("clock")
def test_a_types_width_is_that_of_its_blocks(cli: Cli) -> None:
    """ggml-common.h: block_q1_0 has 2 + 128 / 8 bytes for 128 weights, q2_0 2 + 64 / 4 for 64."""
    for ftype, size in ((b"Q1_0", 18 / 128), (b"Q2_0", 18 / 64)):
        with server(engine(serving(ftype=ftype))) as url:
            data = read(cli, url, *ASK).data()
        assert bytes_per_element(DType(data["used"]["weights"]["mlp"])) == size


@pytest.mark.usefixtures("clock")
def test_a_makers_mixture_has_no_type(cli: Cli) -> None:
    """Unsloth's Q4_K_XL says Q4_K - Medium of itself; its name says more."""
    file = b"/m/Llama-3.1-8B-Instruct-UD-Q4_K_XL.gguf"
    with server(engine(serving(file))) as url:
        data = read(cli, url, *ASK).data()
    assert data["used"]["weights"]["mlp"] == "q4_k_xl"
    assert gaps(data)["weights"] == "--weights"


@pytest.mark.usefixtures("clock")
def test_an_unknown_type_is_one_note_with_what_was_assumed(cli: Cli) -> None:
    with server(engine(serving(b"/m/llama-3.1-8b-instruct.gguf", b"Q9_Z"))) as url:
        data = read(cli, url, *ASK).data()
    (gap,) = (each for each in data["not_read"] if each["what"] == "weights")
    assert gap["reason"] == "/props says Q9_Z, which is no format known here"
    assert gap["used"] == "the model's own format"


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    "name",
    [
        "/models/Llama-3.1-8B-Instruct.Q4_K_M.gguf",
        "/models/Llama-3.1-8B-Instruct-Q4_K_M-00001-of-00002.gguf",
        "/cache/bartowski_Llama-3.1-8B-Instruct-GGUF_Llama-3.1-8B-Instruct-Q4_K_M.gguf",
        "https://huggingface.co/meta-llama/Llama-3.1-8B-Instruct",
        "meta-llama/Llama-3.1-8B-Instruct/",
        "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF",
    ],
)
def test_names_of_files_and_repositories(cli: Cli, name: str) -> None:
    with server(engine(serving(name.encode()))) as url:
        data = read(cli, url, *ASK).data()
    assert data["used"]["model"] == "llama-3.1-8b"
    assert data["used"]["weights"]["mlp"] == "q4_k_m"


def one_line(outcome: Outcome) -> str:
    assert outcome.code == 0, outcome.err
    return " ".join(outcome.out.split())


@pytest.mark.usefixtures("clock")
def test_no_request_has_ended(cli: Cli) -> None:
    """A server that runs its first request: it counts drafts when one ends."""
    idle = re.sub(
        rb"(?m)^(llamacpp:(?:spec_decode|tokens_predicted|n_decode).*) \S+$", rb"\1 0", PAGE
    )
    with server(engine(pages("llamacpp", metrics=idle))) as url:
        data = read(cli, url, *ASK).data()
        assert_refused(cli("acceptance", "read", f"{url}/metrics"), "no request has ended yet")
    (reason,) = (e["reason"] for e in data["not_read"] if e["what"] == "acceptance")
    assert "no request has ended yet" in reason
    ran = re.sub(rb"(?m)^(llamacpp:spec_decode.*) \S+$", rb"\1 0", PAGE)
    with server(engine(pages("llamacpp", metrics=ran))) as url:  # ended, and none was drafted for
        assert_refused(cli("acceptance", "read", f"{url}/metrics"), "no pass has verified a draft")


#: Counters that a server with --spec-draft-n-max 4 --spec-draft-p-min 0.2 gave.
P_MIN = {
    "tokens_predicted_total": 180, "n_decode_total": 117, "spec_decode_num_draft_tokens_total": 83,
    "spec_decode_num_accepted_tokens_total": 63, "spec_decode_num_drafts_total": 44,
    'spec_decode_num_accepted_tokens_per_pos_total{position="0"}': 37,
    'spec_decode_num_accepted_tokens_per_pos_total{position="1"}': 18,
    'spec_decode_num_accepted_tokens_per_pos_total{position="2"}': 8,
    'spec_decode_num_accepted_tokens_per_pos_total{position="3"}': 0,
    "n_busy_slots_per_decode": 1, "requests_processing": 1,
}  # fmt: skip


@pytest.mark.usefixtures("clock")
def test_drafts_that_stop_early_say_why(cli: Cli) -> None:
    page = "".join(f"llamacpp:{name} {value}\n" for name, value in P_MIN.items()).encode()
    with server(engine(pages("llamacpp", metrics=page))) as url:
        text = one_line(cli("live", url, *ASK, "--context", "512"))
        told = one_line(cli("acceptance", "read", f"{url}/metrics"))
    assert "it changes: drafts of 1.89 tokens were counted, of up to 4" in text
    assert "as --spec-draft-p-min ends them" in text
    assert "drafted and accepted" in text
    assert "1.89 tokens of up to 4 each" in text
    assert "drafted_and_accepted: 1 0.3162" in told  # 37 / 117
    assert "survival:" not in told


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("drafter", "noted"),
    [("eagle3", True), ("ngram", True), ("llama-3.2-1b", False), ("qwen3-0.6b", False)],
)
def test_a_drafter_that_contradicts_the_server(cli: Cli, drafter: str, noted: bool) -> None:
    """It drafts by draft-simple, a whole model that it does not name."""
    model = "qwen3-8b" if drafter == "qwen3-0.6b" else "llama-3.1-8b"
    asked = ("--interval", "0", "--gpu", "rtx-4090", "--batch", "1", "--context", "512")
    with server(engine(pages("llamacpp"))) as url:
        outcome = cli("live", url, *asked, "--drafter", drafter, "--model", model)
    line = f"drafter {drafter}: the server runs a draft model; {drafter} is priced, and its"
    assert (line in one_line(outcome)) == noted


@pytest.mark.usefixtures("clock")
def test_weights_that_contradict_the_server(cli: Cli) -> None:
    with server(engine(pages("llamacpp"))) as url:
        said = one_line(cli("live", url, *ASK, "--weights", "q8_0"))
    assert "weights q8_0: the server runs q4_k_m; q8_0 is priced" in said


@pytest.mark.usefixtures("clock")
def test_one_draft_length_is_no_schedule(cli: Cli) -> None:
    """Drafts that are hardly ever accepted are worth it at no batch: no band, no schedule."""
    page = re.sub(rb"(?m)^(llamacpp:spec_decode_num_accepted\S*) \S+$", rb"\1 1", PAGE)
    with server(engine(pages("llamacpp", metrics=page))) as url:
        said = one_line(cli("live", url, *ASK, "--context", "512"))
    assert "Change draft length 4 to 0" in said
    assert "with D = 0." in said
    assert "with the schedule" not in said


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(("flags", "listed"), [((), {"gpus"}), (("--gpus", "2"), set())])
def test_only_gaps_that_apply_are_listed(
    cli: Cli, flags: tuple[str, ...], listed: set[str]
) -> None:
    """It has no tensor parallelism: its cards share the layers."""
    with server(engine(pages("llamacpp"))) as url:
        data = read(cli, url, *ASK, "--context", "512", *flags).data()
    assert gaps(data).keys() == listed
    assert data["used"]["gpus"] == (2 if flags else 1)


def without_metrics(seen: Callable[[BaseHTTPRequestHandler], None]) -> Callable[..., None]:
    """A server without --metrics: its answer, and the pages that it has."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if handler.path.startswith("/metrics"):
            body = (
                b'{"error":{"code":501,"message":"This server does not support metrics endpoint. '
                b'Start it with `--metrics`","type":"not_supported_error"}}'
            )
            send(handler, body, 501)
        else:
            seen(handler)

    return answer


def test_a_server_without_metrics_names_its_own_flag(cli: Cli) -> None:
    with server(without_metrics(engine(pages("llamacpp")))) as url:
        outcomes = [cli("live", url, *ASK), cli("acceptance", "read", f"{url}/metrics")]
    for outcome in outcomes:
        assert_refused(outcome, "501", "start llama.cpp's server with --metrics")
        assert "enable-metrics" not in outcome.err


@pytest.mark.usefixtures("clock")
def test_an_unnamed_drafter_is_asked_for_by_its_own_option(cli: Cli) -> None:
    """No option that nobody typed is at fault."""
    props = PROPS.replace(b"Llama-3.1-8B-Instruct-Q4_K_M", b"qwen2.5-7b-instruct-q4_k_m")
    models = (SERVERS / "llamacpp-models.json").read_bytes()
    models = models.replace(b"Llama-3.1-8B-Instruct-Q4_K_M", b"qwen2.5-7b-instruct-q4_k_m")
    with server(engine(pages("llamacpp", props=props) | {"/v1/models": [models]})) as url:
        outcome = cli("live", url, "--interval", "0", "--gpu", "rtx-4090", "--batch", "1")
    assert_refused(outcome, "give --drafter")
    assert "--acceptance-rounds" not in outcome.err


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("model", "weights"),
    [
        ("llama-3.1-8b", "q8_0"),  # the server's name is unknown, so the user gives the model
        ("llama-3.1-8b-instruct:Q4_K_M", "q4_k_m"),  # and here its format as well
    ],
)
def test_the_type_holds_for_a_model_that_the_user_names(cli: Cli, model: str, weights: str) -> None:
    with server(engine(serving(b"/m/ours.gguf", b"Q8_0"))) as url:
        data = read(cli, url, *ASK, "--model", model).data()
    assert data["used"]["weights"]["mlp"] == weights
