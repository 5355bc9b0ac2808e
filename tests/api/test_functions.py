"""The Python functions as a package: what is offered, what help says, what is taken and refused."""

from __future__ import annotations

import dataclasses
import inspect
import pydoc
import re
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

import roofline as rf
from roofline.acceptance import Acceptance, from_curve
from roofline.advice.configuration import question_from
from roofline.api.results import frame_of
from roofline.base.errors import InputError
from tests.support import ROOT

FUNCTIONS = ("compare", "explore", "memory", "recommend", "schedule", "sweep")
#: Options that a function has no use for, as its command has none.
LEFT_OUT = {
    "compare": {"acceptance", "acceptance_rounds"},
    "explore": {"acceptance_rounds"},
    "memory": {"acceptance_rounds"},
    "recommend": set[str](),
    "schedule": {"acceptance_rounds"},
    "sweep": set[str](),
}


def run(code: str) -> str:
    """Return what a fresh process prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    return done.stdout.strip()


def test_importing_the_package_is_free() -> None:
    heavy = "{'numpy', 'pandas', 'scipy', 'pydantic', 'matplotlib', 'yaml', 'typer'}"
    code = f"import roofline, sys; print(dir(roofline) and {heavy} & set(sys.modules))"
    assert run(code) == "set()"


def test_an_answer_needs_no_pandas_before_its_frame() -> None:
    code = (
        "import roofline as rf, sys; a = rf.recommend('llama-3.1-8b'); str(a); a.to_dict(); "
        "print('pandas' in sys.modules); a.to_frame(); print('pandas' in sys.modules)"
    )
    assert run(code).split() == ["False", "True"]


def test_what_the_package_offers() -> None:
    assert dir(rf) == sorted(rf.__all__)
    assert set(FUNCTIONS) <= set(rf.__all__)
    for name in rf.__all__:
        offered = getattr(rf, name)
        assert not isinstance(offered, ModuleType)
        assert name == "__version__" or inspect.getdoc(offered)
    with pytest.raises(AttributeError, match="no attribute 'question'"):
        rf.question  # noqa: B018


@pytest.mark.parametrize("name", FUNCTIONS)
def test_help_says_every_argument(name: str) -> None:
    function = getattr(rf, name)
    said = pydoc.plain(pydoc.render_doc(function))
    parameters = inspect.signature(function).parameters
    own = {"gpu_hour", "extrapolate"}  # of some functions alone; gone
    shared = set(inspect.signature(question_from).parameters) - own - LEFT_OUT[name]
    assert shared <= set(parameters)
    assert LEFT_OUT[name].isdisjoint(parameters)
    for parameter in parameters.values():
        entry = re.search(rf"^    {parameter.name} : (.+)\n        \S", said, re.MULTILINE)
        assert entry, parameter.name
        if parameter.name == "model":
            assert parameter.kind is parameter.POSITIONAL_OR_KEYWORD
            continue
        assert parameter.kind is parameter.KEYWORD_ONLY
        if parameter.default is not parameter.empty and parameter.default is not None:
            assert f"default {parameter.default!r}" in entry[1]
    for heading in ("Parameters", "Returns", "Raises", "Examples"):
        assert f"    {heading}\n" in said
    assert "InputError" in said
    assert "DoesNotFitError" in said


@pytest.mark.parametrize("name", [name for name in rf.__all__ if name.endswith("Result")])
def test_every_property_of_a_result_is_explained(name: str) -> None:
    kind = getattr(rf, name)
    for attribute, value in inspect.getmembers(kind):
        if not attribute.startswith("_") and (inspect.isfunction(value) or is_property(value)):
            assert inspect.getdoc(value), f"{name}.{attribute}"


def is_property(value: object) -> bool:
    return isinstance(value, property)


def speedups(**options: Any) -> list[float]:
    """Return the speedups of the small question with these options."""
    answer = rf.recommend("llama-3.1-8b", **options)
    assert isinstance(answer, rf.RecommendResult)
    speeds: list[float] = answer.to_frame()["speedup"].tolist()
    return speeds


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("batch", [[1, 2, 3], (1, 2, 3), range(1, 4), np.arange(1, 4), "1,2,3", "1..3",
                   pd.Series([1, 2, 3]), iter([1, 2, 3]), [1.0, "2", np.int8(3)]]),
        ("context", ["8k", 8192, 8192.0, np.int64(8192), ["8k"], np.array([8192])]),
        ("acceptance", [0.7, "0.7", np.float64(0.7), [0.7], np.array([0.7])]),
        ("acceptance", [{3: 2.31}, "al:3=2.31", {"3": 2.31}, {np.int64(3): np.float32(2.31)},
                        from_curve({3: 2.31}, label="", source="")]),
        ("weights", ["fp8", "FP8"]),
        ("overhead_ms", ["0.5,0.7", [0.5, 0.7], (0.5, "0.7ms"), np.array([0.5, 0.7])]),
        ("set", [{"group_size": 8}, ["group_size=8"], "group_size=8", {"group_size": np.int64(8)}]),
        ("memory_fraction", [0.8, "0.8", np.float32(0.8)]),
        ("max_draft_length", [3, "3", np.uint8(3)]),
    ],
)  # fmt: skip
def test_values_are_taken_as_people_have_them(name: str, values: list[Any]) -> None:
    """The same value in every type gives the same answer."""
    first, *others = ({"acceptance": 0.7} | {name: value} for value in values)
    expected = speedups(**first)
    for other in others:
        assert speedups(**other) == pytest.approx(expected, rel=1e-5), other


def test_tokens_per_step_by_hand() -> None:
    """AL(3) is given; a rate of 0.7 gives AL(2) = 1 + 0.7 + 0.49."""
    frame = rf.recommend("llama-3.1-8b", acceptance={3: 2.31}).to_frame()
    assert frame[frame.draft_length == 3].tokens_per_step.tolist() == [2.31]
    frame = rf.recommend("llama-3.1-8b", acceptance=0.7).to_frame()
    assert frame[frame.draft_length == 2].tokens_per_step.tolist() == pytest.approx([2.19])


#: What is refused, the field at fault, and what the message says.
REFUSED: list[tuple[Callable[[], Any], str, str]] = [
    (lambda: rf.recommend("qwen3-8b", batch=0), "batch",
     "batch=0: expected a whole number of at least 1"),
    (lambda: rf.recommend("qwen3-8b", batch=[]), "batch", "batch: expected at least one number"),
    (lambda: rf.recommend("qwen3-8b", batch=1.5), "batch",
     "batch: expected a whole number such as 8 or '8k', got 1.5"),
    (lambda: rf.recommend("qwen3-8b", context=True), "context",
     "context: expected a whole number such as 8 or '8k', got True"),
    (lambda: rf.recommend("qwen3-8b", context=float("nan")), "context",
     "context: expected a whole number such as 8 or '8k', got nan"),
    (lambda: rf.recommend("qwen3-8b", context="8q"), "context",
     "context: expected a whole number such as '4096' or '8k', got '8q'"),
    (lambda: rf.recommend(""), "model",
     "model: expected a name, a path, or a config as a dict, got ''"),
    (lambda: rf.recommend({"model_type": object()}), "model",
     "model: expected a config of plain values, as in a config.json (it holds an object"),
    (lambda: rf.recommend("qwen3-8b", gpu={"id": "x"}), "gpu",  # type: ignore[arg-type]
     "gpu: expected a name or a path, got dict"),
    (lambda: rf.recommend("qwen9-8b"), "model", "model: unknown model 'qwen9-8b': did you mean"),
    (lambda: rf.memory("qwen3-8b", gpu="h101-sxm"), "gpu", "gpu: unknown GPU 'h101-sxm'"),
    (lambda: rf.schedule("qwen3-8b", engine="vlm"), "engine", "engine: unknown engine 'vlm'"),
    (lambda: rf.recommend("qwen3-8b", drafter="eagel3"), "drafter",
     "drafter: unknown drafter 'eagel3' for qwen3-8b: did you mean 'eagle3'"),
    (lambda: rf.sweep("qwen3-8b", gpu=["b200-hgx", "b201"]), "gpu", "gpu: unknown GPU 'b201'"),
    (lambda: rf.recommend("qwen3-8b", acceptance={}), "acceptance",
     "acceptance: expected tokens per step by draft length: {3: 2.31}"),
    (lambda: rf.recommend("qwen3-8b", drafter="none", acceptance=0.5), "acceptance",
     "acceptance: says nothing with drafter='none'; leave it out"),
    (lambda: rf.recommend("qwen3-8b", drafter="none", draft_tp=1), "draft_tp",
     "draft_tp: says nothing with drafter='none'; leave it out"),
    (lambda: rf.recommend("qwen3-8b", rps=2, input_tokens=10, output_tokens=10, batch=4), "batch",
     "batch: belongs to one batch; leave it out beside rps"),
    (lambda: rf.recommend("qwen3-8b", max_batch=4), "max_batch",
     "max_batch: describes a load; give rps or batches_histogram"),
    (lambda: rf.recommend("qwen3-8b", slo_tpot="5 parsecs"), "slo_tpot",
     "slo_tpot='5 parsecs': expected ms, such as 5 or 5ms"),
    (lambda: rf.recommend("qwen3-8b", objective="fun"), "objective",
     "objective: unknown value 'fun': known: latency, throughput"),
    (lambda: rf.recommend("qwen3-8b", batches=8), "batches",  # type: ignore[call-arg]
     "batches: recommend has no such option; did you mean 'batch'?"),
    (lambda: rf.schedule("qwen3-8b", batch=8), "batch",  # type: ignore[call-arg]
     "batch: schedule has no such option; did you mean 'batches'?"),
    (lambda: rf.memory("qwen3-8b", quantization="fp8"), "quantization",  # type: ignore[call-arg]
     "quantization: memory has no such option"),
    (lambda: rf.schedule("qwen3-8b", drafter="none"), "drafter",
     "drafter='none': there is nothing to schedule"),
    (lambda: rf.schedule("qwen3-8b", gate=1), "gate",  # type: ignore[arg-type]
     "gate: expected True or False, got 1"),
    (lambda: rf.schedule("qwen3-8b", mix={0: 1}), "mix",
     "mix: each batch once with a share above 0"),
    (lambda: rf.memory("qwen3-8b", draft_length=99), "draft_length",
     "draft_length=99: expected 1 to 64"),
    (lambda: rf.compare("qwen3-8b", drafter={}), "drafter", "drafter: expected at least one"),
    (lambda: rf.explore("qwen3-8b", vary=["group_size"]), "vary",  # type: ignore[arg-type]
     "vary: expected a dict such as {'group_size': [1, 2, 4]}"),
    (lambda: rf.sweep([]), "model", "model: expected at least one value"),
    (lambda: rf.sweep("qwen3-8b", tp=[1, 1]), "tp", "tp: 1 is given twice"),
    (lambda: rf.sweep("qwen3-8b").write("x.xlsx"), "output",
     "output='x.xlsx': expected a name ending in .csv, .jsonl, .parquet"),
    (lambda: rf.sweep("qwen3-8b", batch="1..1000000").to_frame(), "",
     "this grid has 9,000,000 points, more than the 5,000,000 that are held in memory"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "field", "said"), REFUSED, ids=[case[2] for case in REFUSED])
def test_refusals_name_the_argument(call: Callable[[], Any], field: str, said: str) -> None:
    with pytest.raises(rf.InputError) as error:
        call()
    assert (error.value.field or "") == field
    assert str(error.value).startswith(said)
    assert "\n" not in str(error.value)
    assert "--" not in str(error.value)


def test_an_unknown_keyword_is_a_type_error_as_in_python() -> None:
    with pytest.raises(TypeError):
        rf.recommend("qwen3-8b", batches=8)  # type: ignore[call-arg]


def test_what_does_not_fit_says_what_helps() -> None:
    """141 GB of weights on an H100, of which a process sees 84.9 GB."""
    for call in (rf.recommend, rf.schedule, rf.compare, rf.memory):
        with pytest.raises(rf.DoesNotFitError, match=r"nearest remedies: .*tp=\d"):
            call("llama-3.1-70b", gpu="h100-sxm")
    with pytest.raises(rf.DoesNotFitError, match="no point of this grid fits"):
        rf.sweep("llama-3.1-70b", gpu="h100-sxm").to_frame()


def test_answers_are_frozen() -> None:
    answer = rf.recommend("llama-3.1-8b", batch=8, acceptance=0.7)
    assert isinstance(answer, rf.RecommendResult)
    with pytest.raises(dataclasses.FrozenInstanceError):
        answer.explain = True  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        answer.best.draft_length = 2  # type: ignore[misc]
    frame = answer.to_frame()
    frame["draft_length"] = 0  # the caller's own
    assert answer.to_frame()["draft_length"].max() > 0


def test_one_point_has_a_best_and_several_have_points() -> None:
    one = rf.recommend("llama-3.1-8b", batch=8, acceptance=0.7)
    two = rf.recommend("llama-3.1-8b", batch=[8, 16], acceptance=0.7)
    assert isinstance(two, rf.RecommendResult)
    assert one.best == two.points[0]
    assert (one.draft_length, one.speedup) == (one.best.draft_length, one.best.speedup)
    best = one.to_frame().query("recommended").iloc[0]
    assert best.draft_length == one.draft_length
    assert best.speedup == pytest.approx(one.speedup)
    with pytest.raises(AttributeError, match=r"2 points: take one of \.points"):
        two.best  # noqa: B018
    assert not hasattr(two, "draft_length")
    assert two.answer.points[1].batch == 16  # the domain's own answer


def test_a_goal_chooses_the_point_that_meets_it() -> None:
    """TPOT is at most the limit, and the next batch that was tried would be above it."""
    answer = rf.recommend("llama-3.1-8b", slo_tpot=6, acceptance=0.7)
    assert isinstance(answer, rf.RecommendResult)
    assert answer.best.tpot_ms <= 6
    assert answer.best.headline.startswith("Goal (at most 6 ms per token")
    assert f"draft length {answer.draft_length}" in answer.best.headline
    assert f'"num_speculative_tokens": {answer.draft_length}' in answer.best.flag


def test_a_load_has_its_policies() -> None:
    answer = rf.recommend(
        "llama-3.1-8b", rps=4, input_tokens=512, output_tokens=128, acceptance=0.7
    )
    assert isinstance(answer, rf.LoadResult)
    assert [point.draft_length for point in answer.points][:3] == [0, 1, 2]
    assert answer.draft_length == answer.best.draft_length
    assert answer.points[0].speedup == 1
    assert answer.schedule is not None
    assert answer.refused == ()


def test_notes_tell_assumptions_from_warnings() -> None:
    answer = rf.recommend("llama-3.1-8b", context="8k")
    codes = {note.code: note for note in answer.notes}
    assert codes["head-assumed"].assumption
    assert all("--" not in note.text and "{{" not in note.text for note in answer.notes)
    assert len(answer.text(notes=True)) > len(str(answer))
    assert not any(line for line in answer.text(width=60).splitlines() if len(line) > 80)


def test_refused_points_come_with_remedies() -> None:
    answer = rf.recommend("llama-3.1-70b", tp=4, weights="fp8", batch=[10, 200], context="8k")
    (refused,) = answer.refused
    assert (refused.batch, refused.context) == (200, 8192)
    assert {remedy.field for remedy in refused.remedies} >= {"kv", "tp"}


def test_drafters_side_by_side() -> None:
    answer = rf.compare("llama-3.1-8b", drafter={"ngram": 0.3, "eagle3": 0.7}, batch=[1, 8])
    assert [point.batch for point in answer.points] == [1, 8]
    assert answer.points[0].best.drafter_kind == "eagle3"  # of the higher acceptance
    curve = from_curve({1: 1.3, 2: 1.5}, label="mine", source="counted")
    own = rf.compare("llama-3.1-8b", drafter={"ngram": curve})
    assert isinstance(curve, Acceptance)
    assert own.best.acceptance == "mine"


def test_architectures_side_by_side() -> None:
    """Llama-3.1-8B has 32 query heads, 32 layers, 8 KV heads of 128 in bf16: 131,072 B a token."""
    answer = rf.explore("llama-3.1-8b", vary={"group_size": [1, 4]}, acceptance=0.7)
    assert [dict(point.values) for point in answer.points] == [{"group_size": 1}, {"group_size": 4}]
    assert answer.points[1].kv_bytes_per_token == 131072
    assert answer.points[0].kv_bytes_per_token == 4 * 131072
    assert answer.to_frame()["group_size"].tolist() == [1, 4]


def test_bands_of_a_schedule() -> None:
    answer = rf.schedule("llama-3.1-8b", batches="1..64", contexts=["1k", "4k"], acceptance=0.7)
    assert answer.points[0].batch_start == 1
    assert answer.points[-1].batch_end == 64
    assert answer.points[0].context == (1024, 4096)
    assert "num_speculative_tokens" in answer.engine_text
    single = rf.schedule("llama-3.1-8b", batches=range(1, 9), acceptance=0.7).to_frame()
    assert single["contexts"].tolist() == ["4096"] * len(single)


def test_a_frame_of_nothing_and_of_mixed_values() -> None:
    assert frame_of([]).empty
    frame = frame_of([{"n": 1, "x": 1, "b": True}, {"n": None, "x": 2.5, "b": None}])
    assert [str(kind) for kind in frame.dtypes] == ["Int64", "float64", "boolean"]


LISTS: dict[str, list[object]] = {
    "model": ["llama-3.1-8b", "qwen3-8b"],
    "gpu": ["rtx-4090", "rtx-3090"],
    "engine": ["vllm", "sglang"],
    "drafter": ["eagle3", "mtp"],
    "weights": ["fp8", "bf16"],
    "kv": ["fp8", "bf16"],
    "draft_weights": ["fp8", "bf16"],
    "tp": [1, 2],
}


@pytest.mark.parametrize("field", LISTS)
@pytest.mark.parametrize("question", [rf.recommend, rf.memory])
def test_a_list_where_one_is_meant_is_told_of_sweep(field: str, question: Any) -> None:
    """As a list, and as the text that the command line takes of a sweep."""
    forms: list[Any] = [LISTS[field], tuple(LISTS[field])]
    forms += [",".join(map(str, LISTS[field]))] if field != "tp" else []
    for given in forms:
        with pytest.raises(InputError, match="one kind only; sweep takes several") as caught:
            question(**{"model": "llama-3.1-8b", "gpu": "h100-sxm"} | {field: given})
        assert caught.value.field == field
