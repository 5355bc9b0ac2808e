"""A result is a value: it can be pickled, also for another process, and copied."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import roofline as rf
from roofline.api.results import Result
from tests.support import ROOT
from tests.test_columns import ANSWERS


@pytest.mark.parametrize("name", ANSWERS)
def test_a_copy_is_equal_to_the_result(name: str) -> None:
    answer = ANSWERS[name]()
    copies = [copy.deepcopy(answer), pickle.loads(pickle.dumps(answer))]
    answer.to_frame()  # a sweep keeps its rows from now on
    copies.append(pickle.loads(pickle.dumps(answer)))
    for other in copies:
        assert type(other) is type(answer)
        pd.testing.assert_frame_equal(other.to_frame(), answer.to_frame())
        assert (str(other), other.notes, other.to_dict()) == (
            str(answer), answer.notes, answer.to_dict(),
        )  # fmt: skip
        points = getattr(answer, "points", ())
        assert pickle.loads(pickle.dumps(points)) == copy.deepcopy(points) == points


def test_every_kind_of_result_is_copied() -> None:
    kinds = {type(call()) for call in ANSWERS.values()}
    assert kinds == {getattr(rf, name) for name in rf.__all__ if name.endswith("Result")}
    assert all(issubclass(kind, Result) for kind in kinds)


@pytest.mark.parametrize("name", ["points", "explore"])
def test_another_process_reads_a_pickled_result(name: str, tmp_path: Path) -> None:
    """It has imported nothing of roofline before."""
    answer: Any = ANSWERS[name]()
    file = tmp_path / "answer.pickle"
    file.write_bytes(pickle.dumps(answer))
    read = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')).to_frame().to_csv())"
    command = [sys.executable, "-c", read, str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == answer.to_frame().to_csv().strip()
