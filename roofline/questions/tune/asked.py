"""The question of a tuning file, and what its timings teach another one beside typed options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

from roofline.advice.configuration import Configuration, Workload, question_from
from roofline.advice.question import Question, ask
from roofline.base.errors import InputError
from roofline.base.values import batches_in_order, one_size
from roofline.questions.tune.file import TuningFile, load_tuning
from roofline.questions.tune.learned import Learned, learned_from
from roofline.questions.tune.tune import tune

__all__ = [
    "BATCH",
    "CONTEXT",
    "DEPLOYED",
    "check_beside",
    "learned_in",
    "options_of",
    "question_in",
    "tuned_question",
]

BATCH, CONTEXT = "1", "4k"
#: What may differ from the file: loads, and how long drafts are looked at.
FREE = frozenset(("batch", "context", "max_draft_length"))
#: What may be written in several ways: whether it is another deployment is seen where it is known.
DEPLOYED = frozenset(("model", "gpu", "engine", "tp", "gpus", "ep", "drafter", "weights", "kv"))
#: An option that files name otherwise than `question_from`.
_SET = "overrides"


@cache
def _types() -> dict[str, Any]:
    hints = get_type_hints(question_from)
    del hints["return"], hints["gpu_hour"]
    return hints | {_SET: list[str], "batch": str, "context": str}


def options_of(tuning: TuningFile, file: Path) -> dict[str, Any]:
    """Return the options that a file was begun with, read as if they were typed."""
    found: dict[str, Any] = {}
    for name, value in tuning.question.items():
        where = f"{file}: question.{name}"
        if name not in _types():
            raise InputError(f"{where}: is no option of a question; remove it")
        found[name] = _as_typed(value, _types()[name], where)
    if "model" not in found:
        raise InputError(f"{file}: question.model: is missing; add it")
    return found


def _asked(options: Mapping[str, Any]) -> tuple[Configuration, Workload]:
    """Return the configuration and the workload of options, with their batches and context."""
    rest = dict(options)
    batch, context = (str(rest.pop(n, d)) for n, d in (("batch", BATCH), ("context", CONTEXT)))
    if _SET in rest:
        rest["set"] = rest.pop(_SET)
    configuration, workload = question_from(**rest)
    batches = batches_in_order("batch", batch)
    contexts = (one_size("context", context, "one context, such as 4k"),)
    return configuration, replace(workload, batches=batches, contexts=contexts)


def question_in(tuning: TuningFile, file: Path) -> Question:
    """Return the question of a tuning file."""
    return ask(*_asked(options_of(tuning, file)))


def learned_in(file: Path) -> tuple[Learned, dict[str, Any]]:
    """Return what the timings of a file teach, and the options that it was begun with."""
    tuning = load_tuning(file)
    if not tuning.timings:
        raise InputError(f"{file} holds no timing yet; 'roofline tune add' adds one", field="tuned")
    options = options_of(tuning, file)
    asked = ask(*_asked(options))
    tuned = tune(asked, tuning.timings, running=tuning.running, held=tuning.held)
    return learned_from(tuned, file.name), options


def tuned_question(file: Path, typed: Mapping[str, Any]) -> tuple[Configuration, Workload]:
    """Return the question of a tuning file with what it learned, under what is typed beside it.

    Loads and the longest draft may be typed; an option that says another thing than the file is
    refused.
    """
    learned, options = learned_in(file)
    for name, value in typed.items():
        check_beside(file, options, _name(name), value)
    given = {_name(name): value for name, value in typed.items() if value is not None}
    loads = {n: options[n] for n in ("batch", "context") if n in options}
    kept = {n: v for n, v in {**options, **given}.items() if n not in ("batch", "context")}
    configuration, workload = _asked(kept | loads)
    return configuration, replace(workload, tuned=learned)


def _name(option: str) -> str:
    """Return how a file names an option of `question_from`."""
    return _SET if option == "set" else option


def check_beside(file: Path, options: Mapping[str, Any], name: str, value: Any) -> None:
    """Refuse an option beside a file that says another thing than its ``options``."""
    known = name in FREE or name in DEPLOYED
    if not known and value not in (None, False, options.get(name)):
        raise InputError(
            f"{file} was begun with another value or without it, and its timings hold for that; "
            "leave it out",
            field=name if name != _SET else "set",
            value=value if isinstance(value, str | int | float) else None,
        )


def _as_typed(value: Any, kind: Any, where: str) -> Any:
    """Return a value of the file as the command line would have read it."""
    kinds = [each for each in (get_args(kind) or (kind,)) if each is not NoneType]
    if list[str] in kinds or kind == list[str]:
        if not isinstance(value, tuple):
            raise InputError(f"{where}: expected a list of texts, got {value!r}")
        return list(value)
    wanted = kinds[0]
    if wanted is str and not isinstance(value, tuple | bool):
        return str(value)
    if wanted is float and type(value) is int:
        return float(value)
    if type(value) is not wanted:
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
        raise InputError(f"{where}: expected {words.get(wanted, 'a value')}, got {value!r}")
    return value
