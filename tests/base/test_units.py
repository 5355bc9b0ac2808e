"""Numbers as people type them: bare in the documented unit, or with their unit; else refused."""

from __future__ import annotations

import pytest

from tests.support import Cli, assert_refused

RECOMMEND = "recommend llama-3.1-8b --format json --acceptance 0.7"
LOAD = f"{RECOMMEND} --input-tokens 1k --output-tokens 100"
DIAGNOSE = "diagnose llama-3.1-8b --drafter none --format json"


@pytest.mark.parametrize(
    ("command", "spellings"),
    [
        (RECOMMEND, ("--slo-tpot 5", "--slo-tpot 5ms", "--slo-tpot 0.005s", "--slo-tpot 5000us")),
        (RECOMMEND, ("--gpu-hour 2.5", "--gpu-hour $2.5", "--gpu-hour 2.5$", "--gpu-hour 2.5/h")),
        (RECOMMEND, ("--target-tokens-per-s 2000", "--target-tokens-per-s 2000/s",
                     "--target-tokens-per-s 2000tokens/s")),
        (RECOMMEND, ("--overhead-ms 0.5,0.7", "--overhead-ms 0.5ms,0.7ms")),
        (LOAD, ("--rps 4", "--rps 4/s")),
        (DIAGNOSE, ("--tpot 6.4", "--tpot 6.4ms", "--tpot 0.0064s", "--measured 0:6.4",
                    "--measured 0:6.4ms")),
        (DIAGNOSE, ("--tokens-per-s 150", "--tokens-per-s 150/s", "--measured 0:150/s")),
        (f"{DIAGNOSE} --tpot 9", ("--noise 2", "--noise 2%")),
        ("schedule llama-3.1-8b --format csv --acceptance 0.7", ("--tie 2", "--tie 2%")),
    ],
)  # fmt: skip
def test_every_spelling_is_one_question(cli: Cli, command: str, spellings: tuple[str, ...]) -> None:
    found = []
    for spelling in spellings:
        outcome = cli(*command.split(), *spelling.split())
        assert outcome.code == 0, outcome.err
        found.append(outcome.out)
    assert len(set(found)) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (f"{RECOMMEND} --slo-tpot 5kg", ("--slo-tpot 5kg", "5ms")),
        (f"{RECOMMEND} --gpu-hour cheap", ("--gpu-hour cheap", "dollars")),
        (f"{RECOMMEND} --tp two", ("--tp", "a whole number", "'two'")),
        (f"{RECOMMEND} --memory-fraction much", ("--memory-fraction", "a number", "'much'")),
        (f"{RECOMMEND} --overhead-ms 0.5kg", ("--overhead-ms 0.5kg", "0.5,0.7,0.15")),
        (f"{LOAD} --rps 4 --slo-tpot 0.1", ("--slo-tpot 0.1", "alone on the engine")),
        (f"{LOAD} --rps 4 --objective latency", ("--objective", "--rps")),
        (f"{DIAGNOSE} --tpot fast", ("--tpot fast", "4.1ms")),
        (f"{DIAGNOSE} --tpot 200s", ("--tpot 200s", "1 us to 100 s")),
        (f"{DIAGNOSE} --tpot 5 --draft-length 3", ("--tpot 5:", "give --tokens-per-step")),
        (f"{DIAGNOSE} --tokens-per-s many", ("--tokens-per-s many", "1840")),
        ("recommend llama-3.1-8b --acceptance 70%", ("--acceptance 70%", "did you mean 0.7 (")),
        ("schedule llama-3.1-8b --format llamacpp", ("--drafter", "eagle3", "ngram", "llama.cpp")),
        ("live http://127.0.0.1:9 --interval soon", ("--interval soon", "30s")),
        ("calibrate measure --device cpu -o x.csv --budget 2d", ("--budget 2d", "30s")),
    ],
)
def test_refusals_name_what_was_typed(cli: Cli, arguments: str, words: tuple[str, ...]) -> None:
    line = assert_refused(cli(*arguments.split()), *words)
    assert "Input should be" not in line
    assert "--measured" not in line
    assert "--engine llamacpp" not in line


def test_swapped_arguments_are_put_right(cli: Cli) -> None:
    line = assert_refused(cli("calibrate", "fit-steps", "qwen3-8b", "f.csv"))
    assert line.endswith("FILE comes first: roofline calibrate fit-steps f.csv qwen3-8b")
