"""Lists of what is bundled: by groups where they are long, the rows that match a text, all rows."""

from __future__ import annotations

import re

import pytest

from roofline.base.resources import bundled_names
from tests.support import ROOT, Cli, assert_refused

SHELVES = {"models": "model_specs", "hardware": "hardware_profiles", "acceptance": "acceptance"}


@pytest.mark.parametrize("what", SHELVES)
def test_a_long_list_is_counted_and_points_to_its_rows(cli: Cli, what: str) -> None:
    """The files on the shelf are counted here without the program."""
    lines = cli(what, "list").out.splitlines()
    count = len(bundled_names(SHELVES[what]))
    assert lines[0].startswith(f"{count} ")
    assert "--match" in lines[0]
    assert "--all" in lines[0]
    assert len(lines) <= 45
    groups = [re.match(r"(\S+) +(\d+)  ", line) for line in lines[3:]]
    assert sum(int(group[2]) for group in groups if group) == count
    assert len(cli(what, "list", "--all").out.splitlines()) >= count


def test_match_shows_the_rows_that_hold_the_text(cli: Cli) -> None:
    """The files on the shelf whose names begin with it."""
    lines = cli("hardware", "list", "--match", "h100").out.splitlines()
    shelf = {path.stem for path in (ROOT / "hardware_profiles").glob("h100-*[a-z].yaml")}
    shelf -= {name for name in shelf if "." in name}  # of one engine
    assert {line.split()[0] for line in lines[2:]} == shelf


def test_match_takes_several_words_in_any_case_and_order(cli: Cli) -> None:
    """Files of the shelf whose names hold both words; the NVIDIA name of a card has spaces."""
    shelf = [path.stem for path in (ROOT / "model_specs").glob("llama*eagle3*.yaml")]
    found = cli("models", "list", "--match", "EAGLE3 Llama", "--format", "json").data()
    assert {row["id"] for row in found} >= set(shelf)
    card = cli("hardware", "list", "--match", "RTX 4090", "--format", "json").data()
    assert [row["id"] for row in card] == ["rtx-4090"]


@pytest.mark.parametrize("what", SHELVES)
def test_match_of_nothing_is_refused(cli: Cli, what: str) -> None:
    assert_refused(cli(what, "list", "--match", "nothing-like-it"), "--match nothing-like-it")


@pytest.mark.parametrize("what", SHELVES)
def test_json_has_every_row(cli: Cli, what: str) -> None:
    assert len(cli(what, "list", "--format", "json").data()) == len(bundled_names(SHELVES[what]))
