"""Facts of engines carry the versions that they hold for and where they were read.

Which version has what is from the sources themselves: vLLM's packages 0.22.0, 0.24.0, 0.26.0,
0.28.0 and 0.30.0 to 0.33.0, SGLang 0.5.23, llama.cpp b11434.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from roofline.base.errors import RooflineError
from roofline.base.resources import bundled_names
from roofline.engines import llamacpp, sglang, trtllm, vllm, vllm_log
from roofline.specs.engine import ENGINE_SHELF, load_engine
from roofline.specs.engine_versions import VersionRange
from tests.support import ENGINE, Cli, assert_refused

ENGINES = bundled_names(ENGINE_SHELF)
ASK = ("recommend", "llama-3.1-8b", "--gpu", "b200-hgx", "--context", "1k", "--acceptance", "0.7")
#: By engine, what its pages and logs are recognised and read by.
READERS: dict[str, tuple[str, ...]] = {
    "vllm": (*vllm.SERIES, vllm.PREEMPTIONS, *vllm_log.LOG_LINES, vllm.RESPONSE_KEY),
    "sglang": (
        *sglang.SERIES,
        sglang.RETRACTIONS,
        *sglang.LOG_LINES,
        sglang.RESPONSE_KEY,
        sglang.INFO_KEY,
    ),
    "trtllm": (*trtllm.SERIES, trtllm.STATISTICS_KEY, *trtllm.BENCH_MARKS),
    "llamacpp": (*llamacpp.SERIES, *llamacpp.LOG_LINES, llamacpp.RESPONSE_KEY),
}
#: Keys of benchmarks' JSON reports.
BENCHES = (trtllm.BENCH_KEY,)


@pytest.mark.parametrize("name", ENGINES)
def test_every_fact_says_its_versions_and_its_source(name: str) -> None:
    engine = load_engine(name)
    facts = list(engine.facts())
    assert engine.newest
    assert {f"flags.{kind}" for kind in engine.flags} <= {place for place, _ in facts}
    for place, fact in facts:
        assert fact is not None, place
        assert fact.dated, place
        assert not fact.source.startswith("as above"), place


@pytest.mark.parametrize("name", ENGINES)
def test_what_is_read_from_an_engine_is_among_its_facts(name: str) -> None:
    """Each beginning of a name that a reader looks for is stated, and each stated name has one."""
    stated = [each for fact in load_engine(name).metrics for each in fact.names]
    begins = READERS[name]
    assert [b for b in begins if not any(each.startswith(b) for each in stated)] == []
    assert [each for each in stated if not each.startswith((*begins, *BENCHES))] == []


def test_a_file_that_says_what_was_read_dates_its_facts(tmp_path: Path) -> None:
    """A file of one's own that names no newest version says nothing about versions."""
    path = tmp_path / "own.yaml"
    path.write_text(ENGINE)
    assert load_engine(str(path)).newest == ""
    path.write_text(ENGINE + 'newest: "1.0"\n')
    with pytest.raises(RooflineError, match=r"flags\.none: expected one of since and seen"):
        load_engine(str(path))
    kinds = "flag_versions:\n- {names: [none, ngram, eagle3, model], seen: '0.9', source: here}\n"
    path.write_text(ENGINE + 'newest: "1.0"\n' + kinds)
    with pytest.raises(RooflineError, match="draft_length_name: expected one of"):
        load_engine(str(path))


def test_a_fact_is_left_out_where_the_version_has_it_not() -> None:
    engine = load_engine("vllm@0.24")
    assert engine.hold_acceptance is not None
    rule = engine.hold_acceptance.model_copy(update={"seen": None, "since": "0.26"})
    later = engine.model_copy(update={"hold_acceptance": rule})
    assert later.of_version().hold_acceptance is None
    assert later.of_version().graphs is engine.graphs
    assert later.model_copy(update={"release": "0.26"}).of_version().hold_acceptance is rule


def test_oldest_that_was_read_is_no_first_version() -> None:
    seen = VersionRange(seen="0.22", source="here")
    since = VersionRange(since="0.22", source="here")
    assert (seen.in_range("0.11"), since.in_range("0.11")) == (True, False)
    assert not VersionRange(source="here").dated
    assert not VersionRange(since="1", seen="1", source="here").dated


#: By version and field, whether vLLM's own code has it: SpeculativeMethod, DSparkModelTypes and
#: RejectionSampleMethod of config/speculative.py, CacheDType of config/cache.py.
HAS = [
    ("0.24", "--drafter dspark", False),
    ("0.26", "--drafter dspark", True),
    ("0.32", "--drafter medusa", True),
    ("0.33", "--drafter medusa", False),
    ("0.24", "--kv int4-g128", False),
    ("0.26", "--kv int4-g128", True),
    ("0.22", "--drafter ngram_gpu --hit-rate 1", True),
]


@pytest.mark.parametrize(("version", "asked", "has"), HAS)
def test_what_a_release_of_vllm_has(cli: Cli, version: str, asked: str, has: bool) -> None:
    outcome = cli(*ASK, "--engine", f"vllm@{version}", *asked.split())
    if has:
        assert outcome.code == 0, outcome.err
    else:
        assert_refused(outcome, "vLLM")


@pytest.mark.parametrize(
    ("engine", "name", "known"),
    [
        ("vllm@0.24", "block", "from 0.26 on"),
        ("vllm@0.32", "fly", "from 0.33 on"),
        ("vllm@0.26", "enable_adaptive_verification", "from 0.28 on"),
        ("trtllm", "Lookahead", "to 1.2"),
    ],
)
def test_a_name_of_another_version_is_called_so(
    cli: Cli, engine: str, name: str, known: str
) -> None:
    """A version that lacks it says so, before why it would not be priced."""
    assert_refused(cli(*ASK, "--engine", engine, "--drafter", name), "has no", name, known)


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("vllm@9.9", "vLLM 9.9 is newer than what is known"),
        ("llamacpp@b99999", "llama.cpp b99999 is newer than what is known"),
        ("vllm@0.19", "vLLM 0.19 was not read: its flags are those of vLLM 0.22"),
        # of an era: the release that was asked for, not the era's last (0.11, 0.5.5)
        ("vllm@0.9.2", "vLLM 0.9.2 was not read: its flags are those of vLLM 0.22"),
        ("sglang@0.5.4", "SGLang 0.5.4 was not read: its flags are those of SGLang 0.5.23"),
        ("llamacpp@b6000", "llama.cpp b6000 was not read: its flags are those of llama.cpp b11434"),
    ],
)
def test_a_version_that_was_not_read_says_so(cli: Cli, engine: str, said: str) -> None:
    assert said in cli(*ASK, "--engine", engine, "--drafter", "eagle3").said
    for known in ("vllm@0.33", "vllm@0.22", "llamacpp@b11434"):
        outcome = cli(*ASK, "--engine", known, "--drafter", "eagle3")
        assert "newer than" not in outcome.said
        assert "was not read" not in outcome.said
