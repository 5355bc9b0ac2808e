"""``roofline tune``: a file from the first question to what to deploy, and hostile results."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from roofline.advice.belief import Candidate, Next
from roofline.advice.question import question_of
from roofline.questions.tune.file import Timed, load_tuning
from roofline.questions.tune.tune import tune
from tests.support import ROOT, Cli, assert_refused, write

ASK = ("qwen3-8b", "--gpu", "h100-sxm", "--batch", "8")
#: Step times [ms] and AL by draft length of an invented server: D = 3 is the fastest.
STEP = {0: 8.0, 1: 9.4, 2: 9.9, 3: 10.3, 4: 11.3, 5: 12.3, 6: 13.3, 7: 14.4, 8: 15.5}
TOKENS = {0: 1.0, 1: 1.7, 2: 2.15, 3: 2.45, 4: 2.62, 5: 2.7, 6: 2.75, 7: 2.78, 8: 2.8}


@pytest.fixture
def begun(cli: Cli, tmp_path: Path) -> Path:
    """Return a tuning file without timings."""
    file = tmp_path / "t.yaml"
    assert cli("tune", "start", *ASK, "-o", str(file)).code == 0
    return file


def timed(cli: Cli, file: Path, length: int, *more: str, batch: int = 8) -> Any:
    speed = 1e3 * batch * TOKENS[length] / STEP[length]
    tokens = ("--tokens-per-step", str(TOKENS[length])) if length else ()
    given = ("--draft-length", str(length), "--tokens-per-s", str(speed), *tokens)
    return cli("tune", "add", str(file), *given, *more)


def test_it_finds_the_fastest_in_at_most_four_timings(cli: Cli, begun: Path) -> None:
    """The best of the invented server is D = 3 by arithmetic: 2.45 / 10.3 = 0.2379 tokens/ms."""
    speed = {d: TOKENS[d] / STEP[d] for d in STEP}
    assert max(speed, key=lambda d: speed[d]) == 3
    data = cli("tune", "status", str(begun), "--format", "json").data()
    assert data["verdict"] == "start"
    for _ in range(4):
        length = data["next"]["draft_length"]
        data = timed(cli, begun, length, "--format", "json").data()
        if data["verdict"] == "deploy":
            break
    assert data["verdict"] == "deploy"
    (point,) = data["points"]
    assert speed[point["draft_length"]] >= 0.97 * speed[3]
    assert point["expected_regret"] < 0.01
    assert data["next"] is None
    shown = cli("tune", "status", str(begun))
    assert shown.out.startswith(f"Deploy D = {point['draft_length']}: expected loss")
    assert "--speculative-config" in shown.out


def test_the_first_line_is_the_answer_and_the_next_command_is_whole(cli: Cli, begun: Path) -> None:
    shown = cli("tune", "status", str(begun))
    assert shown.out.startswith("Time D = ")
    assert "num_speculative_tokens" in shown.out
    told = " ".join(shown.out.replace("\\\n", " ").split())  # a shell goes on after a backslash
    (result,) = re.findall(r"--result-filename (\S+)", told)
    assert f"roofline tune add {begun} {result}" in told
    added = timed(cli, begun, 5)
    assert added.out.startswith("Run D = ")
    assert "odds within 1 %" in added.said
    assert max(map(len, added.out.splitlines())) <= 80 + len(str(begun))
    pasted = re.sub(r"vllm serve.*\nroofline tune add [^\n]*\n", "", added.out, flags=re.DOTALL)
    assert 20 < len(pasted.splitlines()) <= 40  # beside what is pasted


@pytest.mark.parametrize("form", ["markdown", "csv", "json"])
def test_other_formats(cli: Cli, begun: Path, form: str) -> None:
    assert cli("tune", "status", str(begun), "--format", form).code == 0


def test_the_file_is_what_was_typed_and_goes_on(cli: Cli, begun: Path) -> None:
    """The answer after two timings is that of a file which somebody wrote by hand."""
    timed(cli, begun, 4)
    first = timed(cli, begun, 2, "--format", "json").data()
    text = begun.read_text("utf-8")
    assert "model: qwen3-8b" in text
    assert text.count("draft_length:") == 2
    by_hand = write(
        begun.parent,
        "hand.yaml",
        "schema: 1\nroofline: 0.1.0\nengine: vllm\n"
        "question: {model: qwen3-8b, gpu: h100-sxm, batch: 8}\n"
        "timings:\n"
        f"- {{draft_length: 4, batch: 8, tokens_per_s: {8e3 * 2.62 / 11.3}, "
        "tokens_per_step: 2.62}\n"
        f"- {{draft_length: 2, batch: 8, tokens_per_s: {8e3 * 2.15 / 9.9}, "
        "tokens_per_step: 2.15}\n",
    )
    second = cli("tune", "status", by_hand, "--format", "json").data()
    assert second["points"] == first["points"]
    assert second["next"] == first["next"]


def test_several_batches_share_what_was_learned(cli: Cli, tmp_path: Path) -> None:
    """AL(4) = 1.3 at one batch makes long drafts worth less at the other."""
    file = tmp_path / "t.yaml"
    begun = cli("tune", "start", "qwen3-8b", "--batch", "1,8", "-o", str(file), "--format", "json")
    before = begun.data()["points"]
    given = ("--draft-length", "4", "--tokens-per-s", "140", "--tokens-per-step", "1.3")
    after = cli("tune", "add", str(file), *given, "--batch", "1", "--format", "json").data()
    assert [point["batch"] for point in after["points"]] == [1, 8]
    assert after["points"][1]["draft_length"] < before[1]["draft_length"]
    assert_refused(cli("tune", "add", str(file), *given), "--batch")


def test_a_table_of_results(cli: Cli, begun: Path) -> None:
    rows = "".join(f"{d},{8e3 * TOKENS[d] / STEP[d]:.1f},{TOKENS[d]}\n" for d in (3, 5))
    result = write(begun.parent, "r.csv", f"draft_length,tokens_per_s,tokens_per_step\n{rows}")
    data = cli("tune", "add", str(begun), result, "--format", "json").data()
    assert [t["draft_length"] for t in data["timings"]] == [3, 5]
    assert data["timings"][0]["source"] == "r.csv"


def test_what_vllm_s_benchmark_saved(cli: Cli, begun: Path) -> None:
    """A real result of vLLM 0.32.0: 4 clients at D = 4, the model renamed to the one asked about.

    That server was a small one on a processor, so its speed is doubted before it is taken.
    """
    saved = json.loads(
        (ROOT / "tests/data/bench/vllm-0.32.0-serve.json").read_text("utf-8").splitlines()[0]
    )
    four = str(begun.with_name("four.yaml"))
    assert cli("tune", "start", "qwen3-8b", "--batch", "4", "-o", four).code == 0
    other = write(begun.parent, "other.json", json.dumps(saved | {"model_id": "Qwen/Qwen3-32B"}))
    assert_refused(cli("tune", "add", four, other), "Qwen3-32B", "qwen3-8b")
    result = write(begun.parent, "r.json", json.dumps(saved | {"model_id": "Qwen/Qwen3-8B"}))
    assert_refused(cli("tune", "add", four, result), "is the unit right", "--force")
    taken = cli("tune", "add", four, result, "--force", "--format", "json").data()["timings"]
    assert [(t["draft_length"], t["batch"], t["source"]) for t in taken] == [(4, 4, "r.json")]
    # 8 is asked about there; --batch cannot mend what vLLM says itself
    assert_refused(cli("tune", "add", str(begun), result), "begin another file, with --batch 4")


def test_a_file_and_typed_numbers_are_two_timings(cli: Cli, begun: Path) -> None:
    result = write(begun.parent, "r.csv", "draft_length,tokens_per_s\n3,1500\n")
    assert_refused(cli("tune", "add", str(begun), result, "--tokens-per-s", "9"), "--tokens-per-s")
    given = ("--draft-length", "3", "--tokens-per-s", "1500", "--output-tokens", "9")
    assert_refused(cli("tune", "add", str(begun), *given), "--output-tokens")


FAKE = ROOT / "tests/questions/tune/fake_engine.py"
ON_CARD = ("llama-3.1-8b", "--gpu", "rtx-4090", "--engine", "llamacpp", "--weights", "q4_k_m")


def test_it_times_an_engine_here_until_no_timing_is_worth_it(cli: Cli, tmp_path: Path) -> None:
    """Passes of 5 ms that accept min(D, 2) drafts: by arithmetic 1, 2, 3, 3, 3 tokens a pass."""
    file = tmp_path / "t.yaml"
    asked = ("--drafter", "ngram", "--context", "512", "--max-draft-length", "4")
    assert cli("tune", "start", *ON_CARD, *asked, "-o", str(file)).code == 0
    server = f"{sys.executable} {FAKE} llamacpp --pass-ms 5"
    prompts = write(tmp_path, "p.jsonl", '{"prompt": "one"}\ntwo\n')
    given = ("--server", server, "--prompts", prompts, "--requests", "6", "--output-tokens", "13")
    done = cli("tune", "run", str(file), *given, "--format", "json")
    data = done.data()
    assert data["verdict"] == "deploy"
    (point,) = data["points"]
    assert point["draft_length"] in (2, 3, 4)
    assert 1 <= len(data["timings"]) <= 4
    best = max(data["timings"], key=lambda timed: timed["tokens_per_s"])
    assert best["tokens_per_s"] == pytest.approx(3 / 0.005, rel=1e-6)
    assert "Timing draft length" in done.err
    again = cli("tune", "run", str(file), *given, "--format", "json").data()
    assert again["timings"] == data["timings"]  # it is enough
    assert (tmp_path / f"t.D{point['draft_length']}-b1.log").exists()


@pytest.mark.parametrize(
    ("more", "word"),
    [
        (("--server", "'half"), "--server"),
        (("--server", ""), "command"),
        (("--server", "/no/such/llama-server"), "llama-server"),
        (("--server", "llama-server", "--prompts", "/no/such/file"), "file"),
    ],
)
def test_what_cannot_run_is_one_line(
    cli: Cli, tmp_path: Path, more: tuple[str, ...], word: str
) -> None:
    file = tmp_path / "t.yaml"
    assert cli("tune", "start", *ON_CARD, "--drafter", "ngram", "-o", str(file)).code == 0
    before = file.read_bytes()
    refused = cli("tune", "run", str(file), *more)
    assert refused.code == 2
    assert word in refused.err.splitlines()[-1]
    assert file.read_bytes() == before


HOSTILE = {
    "half": '{"tokens_per_s": 81',
    "empty": "",
    "header": "draft_length,tokens_per_s\n",
    "negative": "draft_length,tokens_per_s\n3,-812\n",
    "huge": "draft_length,tokens_per_s\n3,1e300\n",
    "nan": "draft_length,tokens_per_s\n3,nan\n",
    "word": "draft_length,tokens_per_s\n3,fast\n",
    "part": "draft_length,tokens_per_s\n2.5,812\n",
    "other D": "draft_length,tokens_per_s\n40,812\n",
    "other batch": "draft_length,tokens_per_s,batch\n3,812,64\n",
    "too many tokens": "draft_length,tokens_per_s,tokens_per_step\n3,1500,4.5\n",
    "short row": "draft_length,tokens_per_s,tokens_per_step\n3\n",
    "long row": "draft_length,tokens_per_s\n3,812,9,9\n",
    "another model": "draft_length,tokens_per_s,model\n3,812,x\n",
    "unknown column": "draft_length,tokens_per_s,tokens_per_pass\n3,1500,2.4\n",
    "bytes": b"\xff\xfe\x00draft",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_result_is_one_line_and_changes_nothing(
    cli: Cli, begun: Path, text: str | bytes
) -> None:
    before = begun.read_bytes()
    assert_refused(cli("tune", "add", str(begun), write(begun.parent, "r.csv", text)))
    assert begun.read_bytes() == before


TYPED = (
    ("--draft-length", "3"),
    ("--tokens-per-s", "812"),
    ("--draft-length", "3", "--tokens-per-s", "-1"),
    ("--draft-length", "3", "--tokens-per-s", "inf"),
    ("--draft-length", "3", "--tokens-per-s", "nan"),
    ("--draft-length", "-1", "--tokens-per-s", "812"),
    ("--draft-length", "9", "--tokens-per-s", "812"),
    ("--draft-length", "3", "--tokens-per-s", "812", "--tokens-per-step", "0.5"),
    ("--draft-length", "3", "--tokens-per-s", "812", "--repeats", "0"),
    ("--draft-length", "3", "--tokens-per-s", "812", "--batch", "16"),
    ("--draft-length", "3", "--tokens-per-s", "812", "--batch", "-8"),
)


@pytest.mark.parametrize("given", TYPED, ids=" ".join)
def test_a_typed_result_that_cannot_be_is_refused(
    cli: Cli, begun: Path, given: tuple[str, ...]
) -> None:
    before = begun.read_bytes()
    assert_refused(cli("tune", "add", str(begun), *given))
    assert begun.read_bytes() == before


def test_a_result_is_not_counted_twice(cli: Cli, begun: Path) -> None:
    """The same file again, after an arrow up: two equal speeds would look like a certain one."""
    result = write(begun.parent, "r.csv", "draft_length,tokens_per_s\n3,1500\n")
    assert cli("tune", "add", str(begun), result).code == 0
    before = begun.read_bytes()
    renamed = write(begun.parent, "copy.csv", "draft_length,tokens_per_s\n3,1500\n")
    for again in (result, renamed):
        assert_refused(cli("tune", "add", str(begun), again), "was added before", "--force")
    assert begun.read_bytes() == before
    data = cli("tune", "add", str(begun), result, "--force", "--format", "json").data()
    assert len(data["timings"]) == 2


def test_a_length_that_is_timed_again_has_a_file_of_its_own() -> None:
    """The engines' tools append to a result, whose first run was added already."""
    asked = question_of(model="qwen3-8b", gpu="h100-sxm", batches=(8,), contexts=(512,))
    for runs, name in ((0, "vllm-D3-b8-c512.json"), (2, "vllm-3-D3-b8-c512.json")):
        timings = [Timed(draft_length=3, batch=8, tokens_per_s=1500.0 + n) for n in range(runs)]
        tuned = tune(asked, timings)
        vars(tuned)["next_timing"] = Next(Candidate(0, 3), 0.01)
        assert tuned.commands is not None
        assert tuned.commands.result == name


def test_two_who_add_at_once_lose_nothing(begun: Path) -> None:
    """Six processes add five timings each to one file: all thirty are in it."""
    code = """
import sys
from pathlib import Path
from roofline.questions.tune.file import Timed, add_timings
timed = Timed(draft_length=int(sys.argv[2]), batch=8, tokens_per_s=1500.0)
for repeat in range(5):
    add_timings(Path(sys.argv[1]), (timed,))
"""
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(begun), str(length)], cwd=ROOT)
        for length in range(6)
    ]
    assert [each.wait(120) for each in running] == [0] * 6
    lengths = [timed.draft_length for timed in load_tuning(begun).timings]
    assert sorted(lengths) == [length for length in range(6) for _ in range(5)]
    assert not list(begun.parent.glob(".t.yaml*"))


def test_a_file_that_cannot_be_written_costs_no_timing(cli: Cli, tmp_path: Path) -> None:
    """A link is refused before the server is started, not after it was timed."""
    file = tmp_path / "t.yaml"
    assert cli("tune", "start", *ON_CARD, "--drafter", "ngram", "-o", str(file)).code == 0
    link = tmp_path / "link.yaml"
    link.symlink_to(file)
    server = f"{sys.executable} {FAKE} llamacpp --record {tmp_path / 'started'}"
    refused = cli("tune", "run", str(link), "--server", server)
    assert "is a link" in assert_refused(refused, str(link))
    assert not (tmp_path / "started").exists()


def test_what_contradicts_the_belief_is_questioned(cli: Cli, begun: Path) -> None:
    """Half the speed that a first timing leads to expect, and a unit that cannot be right."""
    before = begun.read_bytes()
    far = ("--draft-length", "3", "--tokens-per-s", "3")
    assert_refused(cli("tune", "add", str(begun), *far), "unit", "--force")
    assert begun.read_bytes() == before
    timed(cli, begun, 3)
    before = begun.read_bytes()
    slow = ("--draft-length", "4", "--tokens-per-s", "900", "--tokens-per-step", "2.62")
    assert_refused(cli("tune", "add", str(begun), *slow), "times the spread", "--force")
    assert begun.read_bytes() == before
    forced = cli("tune", "add", str(begun), *slow, "--force")
    assert forced.code == 0
    assert "in spite of doubt" in forced.err
    assert begun.read_bytes() != before


BEGUN = "schema: 1\nroofline: a\nengine: vllm\n"
FILES = {
    "nothing": "schema: 1\n",
    "no such model": BEGUN + "question: {model: no-such-model}\n",
    "no model": BEGUN + "question: {gpu: h100-sxm}\n",
    "word for a number": BEGUN + "question: {model: qwen3-8b, tp: two}\n",
    "no option": BEGUN + "question: {model: qwen3-8b, speed: 3}\n",
    "text for a list": BEGUN + "question: {model: qwen3-8b, overrides: a}\n",
    "half a timing": BEGUN + "question: {model: qwen3-8b}\ntimings:\n- {batch: 1}\n",
    "other D": BEGUN + "question: {model: qwen3-8b}\n"
    "timings: [{draft_length: 99, batch: 1, tokens_per_s: 5}]\n",
    "other batch": BEGUN + "question: {model: qwen3-8b}\n"
    "timings: [{draft_length: 3, batch: 2, tokens_per_s: 5}]\n",
    "half a file": '{"schema": 1, "timings": [{"dra',
    "a list of numbers": BEGUN + "question: {model: qwen3-8b, batch: [1, 8]}\n",
    "nothing for a name": BEGUN + "question: {model: qwen3-8b, gpu: null}\n",
    "a mapping for a name": BEGUN + "question: {model: qwen3-8b, gpu: {a: b}}\n",
    "shares that grow": BEGUN + "question: {model: qwen3-8b}\n"
    "timings: [{draft_length: 3, batch: 1, tokens_per_s: 90, survival: [0.2, 0.9, 0.1]}]\n",
}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_a_hostile_tuning_file_is_one_line(cli: Cli, tmp_path: Path, text: str) -> None:
    file = write(tmp_path, "t.yaml", text)
    assert_refused(cli("tune", "status", file))


def test_a_file_is_not_begun_twice(cli: Cli, begun: Path) -> None:
    assert_refused(cli("tune", "start", *ASK, "-o", str(begun)), "exists", "--force")
    assert cli("tune", "start", *ASK, "-o", str(begun), "--force").code == 0


def test_a_missing_file_says_how_to_begin(cli: Cli, tmp_path: Path) -> None:
    assert_refused(cli("tune", "status", str(tmp_path / "none.yaml")), "no such file", "tune start")
    (tmp_path / "loop.yaml").symlink_to(tmp_path / "loop.yaml")
    for other in ("loop.yaml", ""):
        assert_refused(cli("tune", "status", str(tmp_path / other)), "is no file", "tune start")


def test_nothing_is_tuned_without_drafts(cli: Cli, tmp_path: Path) -> None:
    file = str(tmp_path / "t.yaml")
    assert_refused(cli("tune", "start", "qwen3-8b", "--drafter", "none", "-o", file), "tune")
    assert not Path(file).exists()


def test_what_runs_already_is_timed_first(cli: Cli, tmp_path: Path) -> None:
    file = str(tmp_path / "t.yaml")
    begun = cli("tune", "start", *ASK, "--running", "2", "-o", file)
    assert begun.out.startswith("Time D = 2 first: it runs already.")
    assert cli("tune", "status", file).out == begun.out
    assert_refused(cli("tune", "start", *ASK, "--running", "20", "-o", file, "--force"), "running")


def test_an_acceptance_of_ones_own_leaves_less_open(cli: Cli, tmp_path: Path) -> None:
    """With a counted curve less is left open before any timing than without one."""
    found = []
    for n, more in enumerate([(), ("--acceptance", "survival:0.72,0.5,0.36,0.26,0.2,0.15")]):
        given = ("-o", str(tmp_path / f"{n}.yaml"), "--format", "json")
        (point,) = cli("tune", "start", *ASK, *more, *given).data()["points"]
        found.append(point["expected_regret"])
    assert found[1] < found[0]


def test_an_address_is_no_acceptance_that_a_file_keeps(cli: Cli, tmp_path: Path) -> None:
    """It may hold a secret, and would be read anew every time."""
    file = tmp_path / "t.yaml"
    url = "http://127.0.0.1:9/metrics?key=abc"
    refused = cli("tune", "start", *ASK, "--acceptance", url, "-o", str(file))
    assert "abc" not in assert_refused(refused, "acceptance read")
    piped = cli("tune", "start", *ASK, "--acceptance", "-", "-o", str(file))
    assert_refused(piped, "acceptance read - -o FILE")  # it can be read once only
    assert not file.exists()


def test_every_sort_of_option_is_kept(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "a file.yaml"
    more = [
        *("--set", "gpu.memory.bandwidth=2 TB/s", "--set", "group_size=4", "--tp", "2"),
        *("--temperature", "0.5", "--max-draft-length", "5", "--context", "2k"),
    ]
    begun = cli("tune", "start", *ASK, *more, "-o", str(file))
    assert begun.code == 0
    assert "tune add '" in " ".join(begun.out.replace("\\\n", " ").split())
    shown = cli("tune", "status", str(file))
    assert shown.out == begun.out
    assert "context 2k" in shown.said


def test_survival_is_tokens_per_step_by_hand() -> None:
    """AL(D) = 1 + 0.7 + 0.5 + 0.3."""
    found = Timed(draft_length=3, batch=1, tokens_per_s=1.0, survival=(0.7, 0.5, 0.3)).tokens
    assert found == pytest.approx({1: 1.7, 2: 2.2, 3: 2.5})


def test_several_batches_end_in_a_schedule(cli: Cli, tmp_path: Path) -> None:
    """Drafts cost so much more at batch 128 that no length but a short one pays there."""
    file = tmp_path / "m.yaml"
    ask = ("qwen3-8b", "--gpu", "h100-sxm", "--batch", "2,128", "--context", "1k")
    assert cli("tune", "start", *ask, "-o", str(file)).code == 0
    points = [(2, 6), (128, 1), (2, 3), (128, 3), (2, 0), (128, 0), (128, 2)]
    data: Any = None
    while points:
        batch, length = points.pop(0)
        step = 8 + 0.2 * length + (batch > 2) * 6 * length
        speed = 1e3 * batch * TOKENS[length] / step
        tokens = ("--tokens-per-step", str(TOKENS[length])) if length else ()
        given = ("--draft-length", str(length), "--tokens-per-s", str(speed), *tokens)
        more = ("--batch", str(batch), "--force", "--format", "json")
        data = cli("tune", "add", str(file), *given, *more).data()
        if not points and data["verdict"] != "deploy" and len(data["timings"]) < 16:
            points.append((data["next"]["batch"], data["next"]["draft_length"]))
    assert data["verdict"] == "deploy"
    few, many = (point["draft_length"] for point in data["points"])
    # by hand: at batch 2 AL / T is largest from D = 4 on, at batch 128 at D = 0
    assert (few >= 3, many) == (True, 0)
    own = ("schedule", "--tuned", str(file), "--batches", "2,128", "--mix", "2:0.5,128:0.5")
    assert data["schedule"]["text"] == cli(*own, "--format", "json").data()["text"]
    shown = cli("tune", "status", str(file))
    assert data["schedule"]["headline"].split(":")[0] in " ".join(shown.out.split())


def test_held_acceptance_needs_no_data_set(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "h.yaml"
    begun = cli("tune", "start", *ASK, "--hold-acceptance", "-o", str(file))
    assert "synthetic_acceptance_length" in begun.out
    assert "PATH-TO-PROMPTS" not in begun.out
    assert "held: true" in file.read_text("utf-8")
    data = cli("tune", "status", str(file), "--format", "json").data()
    held = data["next"]["held"]
    given = ("--draft-length", str(data["next"]["draft_length"]), "--tokens-per-s", "1700")
    after = cli("tune", "add", str(file), *given, "--held", str(held), "--format", "json").data()
    before = [row["tokens_per_step"] for row in data["points"][0]["by_draft_length"]]
    assert [row["tokens_per_step"] for row in after["points"][0]["by_draft_length"]] == before
    assert after["timings"][0]["held"] == held
    more = ("--draft-length", "2", "--tokens-per-s", "1700", "--held", "4")
    assert_refused(cli("tune", "add", str(file), *more), "no pass emits more than 3")
