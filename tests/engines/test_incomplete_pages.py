"""Pages, logs and files that lack a part: what follows from the rest, or why nothing does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from roofline.base.errors import InputError
from roofline.base.notices import Code, notice
from roofline.engines.acceptance_source import read_acceptance
from tests.support import Cli, write

PAGES = Path(__file__).parents[1] / "data" / "pages"


def text_of(name: str) -> str:
    return (PAGES / name).read_text("utf-8")


def test_drafted_tokens_follow_from_drafts_and_positions(tmp_path: Path) -> None:
    """Of 1,000 drafts over three positions 1,660 tokens are accepted, with or without the count."""
    page = text_of("vllm-0.33.0.prom")
    kept = "\n".join(x for x in page.splitlines() if "num_draft_tokens" not in x)
    assert "num_draft_tokens" in page
    found = read_acceptance(write(tmp_path, "page.prom", kept + "\n"))
    assert (found.tokens_per_step, found.draft_length, found.drafts) == (2.66, 3, 1000)


def test_a_log_line_in_which_nothing_was_drafted_counts_for_nothing(tmp_path: Path) -> None:
    """One line of 100 passes with 50 accepted, one of an idle interval: AL = 1.5."""
    line = (
        "SpecDecoding metrics: Mean acceptance length: {}, Accepted throughput: 0.0 tokens/s, "
        "Drafted throughput: 0.0 tokens/s, Accepted: {} tokens, Drafted: {} tokens, "
        "Per-position acceptance rate: {}, Avg Draft acceptance rate: 0.0%\n"
    )
    busy, idle = line.format("1.50", 50, 100, "0.500"), line.format("1.00", 0, 0, "0.000")
    found = read_acceptance(write(tmp_path, "server.log", busy + idle))
    assert (found.tokens_per_step, found.draft_length, found.drafts) == (1.5, 1, 100)
    with pytest.raises(InputError, match="in which anything was drafted"):
        read_acceptance(write(tmp_path, "idle.log", idle))


def test_a_gauge_below_one_has_drafted_nothing(tmp_path: Path) -> None:
    page = re.sub(r"(acceptance_length\S*) [\d.]+", r"\1 0.5", text_of("trtllm-older.prom"))
    with pytest.raises(InputError, match=r"acceptance_length is 0\.5: nothing drafted"):
        read_acceptance(write(tmp_path, "page.prom", page))


def test_a_histogram_of_nothing(tmp_path: Path) -> None:
    body = json.loads(text_of("sglang-meta.json"))
    text = json.dumps(body).replace("[2, 5, 3]", "[0, 0, 0]")
    assert "[0, 0, 0]" in text
    with pytest.raises(InputError, match="no pass has verified a draft yet"):
        read_acceptance(write(tmp_path, "meta.json", text))


def test_positions_that_are_no_numbers_are_passed_over(tmp_path: Path) -> None:
    """A label of 16 digits or of letters is nobody's position."""
    page = text_of("vllm-0.33.0.prom")
    line = next(x for x in page.splitlines() if "per_pos_total" in x and 'position="0"' in x)
    odd = line.replace('position="0"', 'position="last"')
    found = read_acceptance(write(tmp_path, "page.prom", f"{page}{odd}\n"))
    assert found.survival == pytest.approx((0.71, 0.53, 0.42))


def as_tree(page: str) -> str:
    """Return SGLang's page of 8 draft tokens over 3 steps: a rate of 1.53 / 7."""
    page = re.sub(r"(sglang:spec_num_draft_tokens\S*) [\d.]+", r"\1 8.0", page)
    return re.sub(r"(sglang:spec_accept_rate\S*) [\d.]+", r"\1 0.2186", page)


def test_a_tree_is_said(tmp_path: Path) -> None:
    """Eight draft tokens over three steps are no chain of 3 + 1."""
    page = text_of("sglang-0.5.23.prom")
    assert read_acceptance(str(PAGES / "sglang-0.5.23.prom")).notices == ()
    found = read_acceptance(write(tmp_path, "page.prom", as_tree(page)))
    assert found.notices == (notice(Code.DRAFT_TREE, where=found.where, tokens=8, steps=3),)


def test_yaml_without_a_curve_is_no_acceptance(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="neither an acceptance file"):
        read_acceptance(write(tmp_path, "a.yaml", "_comment: {1: 2}\n"))


def test_a_device_is_no_source() -> None:
    with pytest.raises(InputError, match="/dev/null: is a device; give a file"):
        read_acceptance("/dev/null")


def test_an_endless_log_of_drafts_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is on the lines that are kept: 2,000 of 1 kB beside others, with 1 MB for both."""
    monkeypatch.setattr("roofline.engines.acceptance_source.MAX_BYTES", 1_000_000)
    line = f"SpecDecoding metrics: {'x' * 1000}\n"
    with pytest.raises(InputError, match=r"server\.log: more than 1 MB of such lines; cut it"):
        read_acceptance(write(tmp_path, "server.log", line * 2000))
    said = re.compile("no 'SpecDecoding metrics' line")
    with pytest.raises(InputError, match=said):  # other lines have no such limit
        read_acceptance(write(tmp_path, "server.log", line + f"{'y' * 1000}\n" * 2000))


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        # 0.8 + 0.64 + 0.512: AL = 2.952, so 0.8 at every position, and 1.952 / 3 of all drafts
        (("rate",), {"values": [pytest.approx(1.952 / 3)]}),
    ],
)
def test_a_mean_of_positions(cli: Cli, asked: tuple[str, ...], answer: dict[str, object]) -> None:
    found = cli(
        "acceptance", "convert", "0.8,0.8,0.8", "--from", "conditional", "--to", *asked,
        "--format", "json",
    ).data()  # fmt: skip
    assert found["values"] == answer["values"]


def test_a_bundled_file_of_several_curves(cli: Cli) -> None:
    """Each curve is shown under its number; with a name only that one."""
    names = {row["id"] for row in cli("acceptance", "list", "--format", "json").data()}
    shown = [cli("acceptance", "show", name, "--format", "json").data() for name in sorted(names)]
    assert any("curves" in data for data in shown)


def test_a_warning_of_a_reading_is_said(cli: Cli, tmp_path: Path) -> None:
    page = as_tree(text_of("sglang-0.5.23.prom"))
    outcome = cli("acceptance", "read", write(tmp_path, "page.prom", page))
    assert outcome.code == 0
    assert "Note: " in outcome.out
    assert "is a tree" in outcome.said
