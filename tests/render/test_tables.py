"""Tables in a terminal: whole sums, and 80 columns."""

from __future__ import annotations

import re

import pytest

from tests.support import Cli


@pytest.mark.parametrize(
    "more", [(), ("--batch", "256", "--context", "1k"), ("llama-3.1-70b", "--tp", "4")]
)
def test_a_priced_table_still_adds_up(cli: Cli, more: tuple[str, ...]) -> None:
    """step = verify + draft + overhead on screen, to the two digits that are shown."""
    model = () if more[:1] == ("llama-3.1-70b",) else ("llama-3.1-8b",)
    ask = ("recommend", *model, *more, "--acceptance", "0.7", "--gpu-hour", "2.5")
    outcome = cli(*ask)
    assert outcome.code == 0, outcome.err
    table = outcome.out.split("\n\n")[2].splitlines()
    assert "over-" in table[0]
    assert table[0].split()[-1] == "$/M"
    assert max(map(len, table)) <= 80
    for line in table[2:]:
        numbers = re.findall(r"[\d.]+", line)
        _, _, step, verify, draft, overhead = map(float, numbers[:6])
        assert step == pytest.approx(verify + draft + overhead, abs=0.016)
