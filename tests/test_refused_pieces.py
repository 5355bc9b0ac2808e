"""Refusals of single values and files, each in one line; and small answers at their edges."""

from __future__ import annotations

import http.client
import socket
import ssl
from pathlib import Path

import pytest

from roofline.acceptance.models import compare
from roofline.advice.question import Workload, check_workload
from roofline.base import resources
from roofline.base.errors import InputError
from roofline.base.files import csv_text
from roofline.base.schema import load_yaml
from roofline.engines.http import _at_most, _exchange, _parsed, _reason
from roofline.questions.sweep.files import _files
from roofline.specs.engine import load_engine
from roofline.specs.gpu import HardwareProfile
from roofline.specs.overrides import _scalar
from tests.support import GPU, Cli, assert_refused, write

LLAMACPP = ("recommend", "qwen3-8b", "--gpu", "rtx-4090", "--engine", "llamacpp", "--gpus", "2")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('a: "x\\e[0m"\n', "a text holds a control character; remove it"),
        ('"a\\e": 1\n', "a key holds a control character; remove it"),
        ("a: [" + "1, " * 150_001 + "1]\n", "more than 150000 keys and values"),
    ],
)
def test_yaml_that_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load_yaml(Path(write(tmp_path, "a.yaml", text)))
    assert words in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_a_disputed_figure_says_why_it_is_used(tmp_path: Path) -> None:
    old = "bandwidth: {value: 1 TB/s, source: here}"
    other = "disputed: [{value: 2 TB/s, by: someone}]"
    disputed = GPU.replace(old, f"bandwidth: {{value: 1 TB/s, source: here, {other}}}")
    with pytest.raises(InputError, match="a disputed figure must say why this value is used"):
        HardwareProfile.load(Path(write(tmp_path, "a.yaml", disputed)))
    decided = disputed.replace(other, f"{other}, note: measured")
    assert HardwareProfile.load(Path(write(tmp_path, "b.yaml", decided))).bandwidth == 1e12


def test_data_are_found_in_an_installed_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel has them under ``_data``; where nothing has, it is not whole."""
    package = tmp_path / "roofline"
    (package / "_data" / "model_specs").mkdir(parents=True)
    (tmp_path / "model_specs").mkdir()  # somebody else's: there is no pyproject.toml beside it
    monkeypatch.setattr(resources, "files", lambda _: package)
    assert str(resources.shelf("model_specs")) == str(package / "_data" / "model_specs")
    with pytest.raises(InputError, match="folder 'hardware_profiles' is missing; reinstall"):
        resources.shelf("hardware_profiles")
    (tmp_path / "pyproject.toml").touch()
    assert str(resources.shelf("model_specs")) == str(tmp_path / "model_specs")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--split", "row", "--tensor-split", "3,1"), "--tensor-split 3,1: only --split layer"),
        (("--tensor-split", "3,1,1"), "expected a share for each of 2 cards"),
    ],
)
def test_shares_of_cards(cli: Cli, flags: tuple[str, ...], words: str) -> None:
    assert_refused(cli(*LLAMACPP, "--acceptance", "0.7", *flags), words)


def test_layers_without_experts_have_none_to_move(cli: Cli) -> None:
    """The first three layers of DeepSeek-V3 are dense."""
    done = cli(
        "recommend", "deepseek-v3", "--gpu", "rtx-4090", "--engine", "llamacpp", "--cpu-experts",
        "2", "--acceptance", "0.7", "--weights", "q4_k_m",
    )  # fmt: skip
    assert_refused(done, "--cpu-experts 2: the first 3 layers of deepseek-v3 have no experts")


def test_an_empty_name_of_an_engine() -> None:
    with pytest.raises(InputError, match="engine: expected an engine's name"):
        load_engine("@2025")


def test_no_batches_are_refused() -> None:
    with pytest.raises(InputError, match="batch: expected at least one number"):
        check_workload(Workload(batches=()))


def test_a_value_below_zero_is_a_number() -> None:
    """Whether it makes sense is for the place that takes it."""
    assert [_scalar(text) for text in ("-3", "-0.5", "-x")] == [-3, -0.5, "-x"]


def test_rows_that_are_none_make_an_empty_csv() -> None:
    assert csv_text([]) == ""
    assert csv_text([{"a": 1}]) == "a\n1\n"


def test_what_cannot_be_a_path_names_no_file(tmp_path: Path) -> None:
    file = write(tmp_path, "a.yaml", "x")
    assert _files("") == _files("a\0b") == []
    assert _files(file)[0] == Path(file)


def test_a_model_that_needs_al_of_one_is_left_out_without_it() -> None:
    """The published AL of EAGLE-3 on Llama 3.1 8B begin at D = 2, those of GLM-5.2's MTP at 1."""
    later = {row["model"] for row in compare("llama-3.1-8b-eagle3")}
    first = {row["model"] for row in compare("glm-5.2-mtp-coding")}
    assert len(first - later) == 1


def test_reasons_why_a_page_cannot_be_had() -> None:
    certificate = ssl.SSLCertVerificationError(1, "x")
    certificate.verify_message = "self-signed certificate"
    assert [
        _reason(error)
        for error in (
            ConnectionRefusedError(), socket.gaierror(-2, "x"), certificate,
            http.client.BadStatusLine("x"), OSError(113, "No route to host"), OSError(),
        )
    ] == [
        "nothing answers there (connection refused); is the server up?", "no such host",
        "its certificate is not trusted (self-signed certificate)", "does not answer in HTTP",
        "No route to host", "OSError",
    ]  # fmt: skip


def test_a_name_that_never_resolves_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    monkeypatch.setattr("roofline.engines.http.GRACE", 0.0)
    hold = threading.Event()

    def work() -> bytes:
        hold.wait(10)
        return b""

    with pytest.raises(InputError, match="too slow"):
        _at_most(0.01, work, InputError("too slow"))
    hold.set()
    assert _at_most(5.0, lambda: b"x", InputError("too slow")) == b"x"


def test_a_redirect_after_the_deadline_is_not_followed() -> None:
    with pytest.raises(InputError, match="no full answer within 5 s"):
        _exchange(_parsed("http://127.0.0.1:1/"), 0.0, 5.0)
