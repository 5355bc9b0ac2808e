"""Inputs that fuzzing kept: each is read, or refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import attempt, kept
from tests.fuzz_parsers import PARSERS


@pytest.mark.parametrize("name", PARSERS)
def test_kept_inputs_are_read_or_refused_in_one_line(name: str, tmp_path: Path) -> None:
    parser = PARSERS[name]
    inputs = kept(name)
    assert inputs, "make fuzz keeps its inputs in tests/data/fuzz"
    for label, content in inputs.items():
        refusal = attempt(parser, content, tmp_path)
        if refusal is not None:  # the command line joins a message's lines into one
            assert len(" ".join(refusal.split())) < 2000, label


@pytest.mark.parametrize("name", PARSERS)
def test_fuzzing_starts_from_examples_that_are_read(name: str, tmp_path: Path) -> None:
    # some bundled curves hold several data sets and ask for one
    refusals = [attempt(PARSERS[name], example, tmp_path) for example in PARSERS[name].seeds()]
    assert None in refusals
