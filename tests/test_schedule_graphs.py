"""SGLang's captured CUDA-graph sizes, as the user gives them."""

from __future__ import annotations

import pytest

from tests.support import Cli, assert_refused

ASK = ("schedule", "llama-3.1-8b", "--engine", "sglang", "--batches", "1..64")


def test_the_note_is_of_the_sizes_that_were_used(cli: Cli) -> None:
    default, own = cli(*ASK), cli(*ASK, "--graph-batches", "1,2,4,8,16,32,64")
    assert default.err.count("its default CUDA-graph sizes") == 1
    assert "default" not in own.err
    assert own.err.count("the CUDA-graph sizes given") == 1


def test_sizes_may_be_given_in_any_order(cli: Cli) -> None:
    found = [cli(*ASK, "--graph-batches", sizes) for sizes in ("8,64,1,16", "1,8,16,64")]
    assert found[0] == found[1]
    assert found[0].code == 0


@pytest.mark.parametrize("sizes", ["0", "1,0", "4,4"])
def test_sizes_that_cannot_be(cli: Cli, sizes: str) -> None:
    assert_refused(cli(*ASK, f"--graph-batches={sizes}"), "--graph-batches", "at least 1")
