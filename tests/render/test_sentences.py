"""Single sentences of answers that need an odd question to be said."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from roofline.acceptance.conventions import Convention, convert
from roofline.base.schema import load_yaml
from roofline.specs.gpu import load_hardware
from roofline.specs.overrides import known_fields
from tests.support import ACCEPTANCE, ROOT, Cli, assert_refused, write


def test_kernels_in_markdown(cli: Cli) -> None:
    one = ("validate", "kernels", "--gpu", "h200-sxm", "--engine", "vllm", "--format", "markdown")
    text = cli(*one).out
    assert text.startswith("h200-sxm:\n\n| kind ")
    assert "Furthest off (at most three rows of one law):" in text
    assert {line[0] + line[-1] for line in text.splitlines() if ", h200-sxm" in line} == {"||"}


def test_a_fixed_mean_has_one_rate_at_every_position() -> None:
    """0.5, 0.5 by position: AL(2) = 1.75, which one rate of 0.5 gives as well."""
    found = convert([0.5, 0.5], source=Convention.CONDITIONAL, target=Convention.IID,
                      draft_length=None)  # fmt: skip
    assert found == [pytest.approx(0.5)]


def test_a_curve_measured_with_another_cache_is_said(cli: Cli, tmp_path: Path) -> None:
    text = ACCEPTANCE.replace("conditional: ", "curves:\n- {kv: fp8, conditional: ")
    own = write(tmp_path, "a.yaml", text.rstrip() + "}\n")
    ask = ("recommend", "llama-3.1-8b", "--acceptance", own, "--format", "json")
    assert "measured with fp8 KV, not with bf16" in cli(*ask).said
    assert "measured with" not in cli(*ask, "--kv", "fp8").said


def test_places_in_a_profile() -> None:
    """What there is to choose from below the longest start that exists."""
    file = ROOT / "hardware_profiles" / "h100-sxm.yaml"
    profile, data = load_hardware("h100-sxm"), load_yaml(file)
    start, names = known_fields(profile, data, ("memory", "bandwith"))
    assert start == "memory"
    assert "bandwidth" in names
    start, names = known_fields(profile, data, ("compute", "peaks", "fp64x"))
    assert start == "compute.peaks"
    assert {"bf16", "fp8"} <= set(names)


def test_diagnosis_of_too_many_different_loads(cli: Cli, tmp_path: Path) -> None:
    """150 batches with 150 contexts cannot be priced together."""
    rows = [f"{n},{256 * n},{n % 60},9.0" for n in range(1, 151)]
    path = write(tmp_path, "a.csv", "batch,context,draft_length,step_ms\n" + "\n".join(rows) + "\n")
    done = cli("diagnose", "llama-3.1-8b", "--measured", path, "--drafter", "ngram")
    assert_refused(done, "--measured: ", "are too many to price together; give fewer")


def test_a_drafter_that_cannot_draft_so_far(cli: Cli) -> None:
    """A block drafter of 16 positions drafts 15 tokens, none of them the last token itself."""
    done = cli("diagnose", "qwen3-8b", "--drafter", "dflash", "--measured", "40:9ms:2")
    assert_refused(done, "--measured 40: ", "drafts at most", "is the draft length right?")


def test_show_leaves_out_what_a_file_does_not_state(cli: Cli) -> None:
    """Lists are joined by commas; empty values have no line."""
    text = cli("acceptance", "show", "llama-3.1-8b-eagle1").out
    assert "null" not in text
    assert "None" not in text
    data = cli("acceptance", "show", "llama-3.1-8b-eagle1", "--format", "json").data()
    assert json.dumps(data)


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
    for line in table[2 : [line[:2] for line in table].index("*:")]:
        numbers = re.findall(r"[\d.]+", line)
        _, _, step, verify, draft, overhead = map(float, numbers[:6])
        assert step == pytest.approx(verify + draft + overhead, abs=0.016)
