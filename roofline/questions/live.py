"""From what a running server says to a question, and from the answer to what to change."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from roofline.acceptance import Acceptance
from roofline.acceptance.curve import from_rates, iid_rate
from roofline.acceptance.defaults import same_model
from roofline.advice.deployment import Configuration
from roofline.advice.question import MAX_DRAFT_LENGTH, Workload
from roofline.base import resources
from roofline.base.errors import InputError, Option
from roofline.base.notices import Code, Notice, notice
from roofline.engines.server import Serving
from roofline.engines.server_facts import Unread, serving_names
from roofline.questions.schedule.plan import Plan
from roofline.questions.schedule.written import Written
from roofline.specs.engine import ENGINE_SHELF, Era, load_engine
from roofline.specs.formats import DType
from roofline.specs.network import HOST_DRAFTERS, MODEL_SHELF, DrafterSpec, load_network

__all__ = [
    "Change",
    "Gap",
    "Live",
    "Used",
    "change",
    "check_known",
    "contradictions",
    "question_from",
]


def contradictions(
    serving: Serving,
    asked: Configuration,
    *,
    given: AbstractSet[str],
    model: str | None,
    drafter: str | None,
) -> list[Notice]:
    """Return a notice for each option that names another model, drafter or engine than it runs.

    ``model`` and ``drafter`` are the server's own, None where they are not known here. A path is
    taken for what runs there, since that is what it is given for.
    """
    told = []
    model = None if model is None else resources.known(model, MODEL_SHELF)
    other = resources.known(asked.model, MODEL_SHELF) if "model" in given else None
    if other is not None and model is not None and not same_model(other, model):
        told.append(_another("model", model, other))
    if "drafter" in given and asked.drafter is not None and drafter is not None:
        own, wanted = _kinds(drafter, model), _kinds(asked.drafter, other or model)
        if wanted and "none" not in wanted and not own & wanted:
            told.append(_another("drafter", drafter, asked.drafter))
    engine = asked.engine.partition("@")[0]
    if "engine" in given and resources.known(engine, ENGINE_SHELF) and engine != serving.engine:
        told.append(_another("engine", serving.engine, asked.engine))
    return told


def _another(field: str, runs: str, asked: str) -> Notice:
    return notice(Code.ANOTHER_SERVER_SETTING, field=field, runs=runs, asked=asked)


def _kinds(name: str, model: str | None) -> set[str]:
    """Return the words that a drafter goes by: its kind and its id; nothing for a path.

    >>> sorted(_kinds("eagle3", "llama-3.1-8b")), _kinds("here/config.json", None)
    (['eagle3', 'llama-3.1-8b-eagle3'], set())
    """
    known = resources.known(name, MODEL_SHELF)
    if known is None:
        return set() if "/" in name or "." in name else {name, f"{model}-{name}"}
    network = load_network(known)
    kind = network.kind if isinstance(network, DrafterSpec) else "model"
    own = isinstance(network, DrafterSpec) and known == f"{model}-{kind}"
    return {known, kind} if own else {known}


CONTEXT = 4096


class Used(StrEnum):
    """What stands in for something that a server does not say."""

    FORMAT = "format"  # of weights, as the name says it
    ONE_GPU = "one-gpu"
    CONTEXT = "context"
    EVERY_BATCH = "every-batch"
    BUNDLED_HEAD = "bundled-head"
    BUNDLED_CURVE = "bundled-curve"
    ONE_RATE = "one-rate"


@dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    """Something that the server did not say: why, what is used instead, and who can give it."""

    what: str
    reason: str | Notice  # as the reader of the server says it
    used: Used
    field: str
    value: str | float | None = None  # of what is used, where it varies


@dataclass(frozen=True, kw_only=True, slots=True)
class Live:
    """A question about a running server. ``batch`` is None where nobody knows it.

    ``era`` are the builds that its version belongs to, where they are priced by themselves;
    ``copies`` of the whole model run beside each other, each with that batch.
    """

    serving: Serving
    configuration: Configuration
    workload: Workload
    copies: int
    batch: int | None
    gaps: tuple[Gap, ...]
    era: Era | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """What the advice changes at the running batch. Speeds are of all copies [tokens/s].

    ``before`` is None where the server's own draft length is unknown, or its acceptance is.
    """

    draft_length: int | None  # as it runs
    advised: int
    step: float | None  # predicted at the server's draft length [s]
    tokens_per_step: float | None
    before: float | None
    after: float
    measured: float | None

    @property
    def gain(self) -> float | None:
        """The change in expected speed, as a share."""
        return None if self.before is None else self.after / self.before - 1


def check_known(serving: Serving, asked: Configuration, *, given: AbstractSet[str]) -> None:
    """Refuse a question that lacks its model or its accelerator, which no waiting brings."""
    _model(serving, asked, given)
    _gpu(serving, asked, given)


def question_from(
    serving: Serving,
    asked: Configuration,
    workload: Workload,
    *,
    given: AbstractSet[str],
    batches: tuple[int, ...] | None = None,
    contexts: tuple[int, ...] | None = None,
) -> Live:
    """Fill the question with what the server says, but for what was ``given``."""
    gaps: list[Gap] = []
    model, dtype = _model(serving, asked, given)
    found: dict[str, Any] = {"model": model, "gpu": _gpu(serving, asked, given)}
    load: dict[str, Any] = {}
    if dtype is not None and "weights" not in given:
        reason = notice(Code.WEIGHTS_BY_NAME)
        gaps.append(
            Gap(what="weights", reason=reason, used=Used.FORMAT, value=dtype, field="weights")
        )
        found["weights"] = DType(dtype)
    found["engine"], era = _engine(serving, asked, given)
    if "tp" not in given:
        found["tp"] = _or(serving, "tp", 1, gaps, used=Used.ONE_GPU)
    # ranks that share one model's weights are groups of its attention, no copies of it
    groups = serving.copies if serving.value("attention_copies") else 1
    if "dp_attention" not in given:
        found["dp_attention"] = groups
    if "ep" not in given:
        found["ep"] = serving.expert_groups(found.get("tp", asked.tp))
    if "kv" not in given and serving.value("kv") is not None:
        found["kv"] = DType.FP8
    if "drafter" not in given:
        found["drafter"] = _drafter(serving, gaps)
    drafts = found.get("drafter", asked.drafter) != "none"
    if "acceptance" not in given and drafts:
        load["acceptance"] = _acceptance(serving, gaps)
        if "acceptance_rounds" not in given and serving.acceptance is not None:
            load["acceptance_rounds"] = _rounds(serving)
    if "max_draft_length" not in given:
        load["max_draft_length"] = max(MAX_DRAFT_LENGTH, serving.value("draft_length") or 0)
    if contexts is None:
        context = _or(serving, "context", CONTEXT, gaps, used=Used.CONTEXT)
        contexts = (int(context),)
    batch = None
    if batches is None:
        running = _or(serving, "batch", None, gaps, used=Used.EVERY_BATCH)
        batch = None if running is None else max(round(running * groups), 1)
        batches = (batch or 1,)
    elif len(batches) == 1:
        batch = batches[0]
    told = contradictions(
        serving,
        asked,
        given=given,
        model=_bundled(serving)[0],
        drafter=_drafter(serving, []),
    )
    return Live(
        serving=replace(serving, notices=(*serving.notices, *told)),
        configuration=replace(asked, **found),
        workload=replace(workload, **load, batches=batches, contexts=contexts),
        copies=serving.copies // groups,
        batch=batch,
        gaps=tuple(gaps),
        era=era,
    )


def _engine(
    serving: Serving, asked: Configuration, given: AbstractSet[str]
) -> tuple[str, Era | None]:
    """Return the engine to price, and the older builds that the server's version belongs to."""
    if "engine" in given:
        return asked.engine, None
    era = load_engine(serving.engine).era_of(str(serving.value("version") or ""))
    return (serving.engine if era is None else f"{serving.engine}@{era.id}"), era


def _or(serving: Serving, fact: str, default: Any, gaps: list[Gap], *, used: Used) -> Any:
    found = serving.facts[fact]
    if isinstance(found, Unread):
        gaps.append(Gap(what=fact, reason=found.reason, used=used, value=default, field=fact))
        return default
    return found.value


def _model(
    serving: Serving, asked: Configuration, given: AbstractSet[str]
) -> tuple[str, str | None]:
    """Return the model, and the format of its weights where only its name says it."""
    if "model" in given:
        return asked.model, None
    model, dtype = _bundled(serving)
    if model is not None:
        return model, dtype
    said = f"it serves {' or '.join(serving.models)}" if serving.models else "it does not say"
    raise InputError(
        f"{serving.where}: which model runs there is not known ({said}): give "
        f"{Option('model')}, a bundled id or the path of its config.json"
    )


def _bundled(serving: Serving) -> tuple[str | None, str | None]:
    """Return the bundled model that the server's names mean, and the format of its weights."""
    names = [name.rstrip("/").rsplit("/", 1)[-1] for name in serving.models]
    for name in names:
        if resources.known(name, MODEL_SHELF) is not None:
            return name, None
    for name in names:
        for ending, dtype in serving_names().formats.items():
            bare = name.lower().removesuffix(ending)
            if bare != name.lower() and resources.known(bare, MODEL_SHELF) is not None:
                return bare, dtype
    return None, None


def _gpu(serving: Serving, asked: Configuration, given: AbstractSet[str]) -> str:
    found = serving.facts["gpu"]
    if "gpu" in given:
        return asked.gpu
    if isinstance(found, Unread):
        raise InputError(
            f"{serving.where}: which accelerator it runs on could not be read ({found.reason}): "
            f"give {Option('gpu')}"
        )
    return str(found.value)


def _drafter(serving: Serving, gaps: list[Gap]) -> str | None:
    """Return the drafter as the server names it, None for the bundled head."""
    method, weights = serving.value("method"), serving.value("draft_model")
    known = resources.known(weights, MODEL_SHELF) if weights and method != "mtp" else None
    if known is not None and method not in HOST_DRAFTERS:
        return known
    if method not in (None, "model"):
        return str(method)
    why = serving.facts["method"]
    reason: str | Notice = notice(Code.DRAFTER_NOT_BUNDLED, weights=weights)
    if isinstance(why, Unread):
        reason = why.reason
    gaps.append(Gap(what="drafter", reason=reason, used=Used.BUNDLED_HEAD, field="drafter"))
    return None


def _acceptance(serving: Serving, gaps: list[Gap]) -> Acceptance | None:
    """Return the acceptance that was read; from a mean alone, one rate for every position."""
    reading, length = serving.acceptance, serving.value("draft_length")
    found = serving.facts["acceptance"]
    if reading is None:
        unknown = notice(Code.ACCEPTANCE_UNKNOWN)
        reason = found.reason if isinstance(found, Unread) else unknown
        gaps.append(
            Gap(what="acceptance", reason=reason, used=Used.BUNDLED_CURVE, field="acceptance")
        )
        return None
    if reading.draft_length is None and not length:
        reason = notice(Code.LENGTH_NOT_READ)
        gaps.append(
            Gap(what="acceptance", reason=reason, used=Used.BUNDLED_CURVE, field="acceptance")
        )
        return None
    if reading.draft_length is None:
        reading = reading.with_draft_length(length)
    made = reading.acceptance()
    if reading.survival is not None or reading.curve is not None:
        return made
    depth = reading.draft_length or 1
    rate = iid_rate(tokens_per_step=reading.tokens_per_step, draft_length=depth)
    spread = from_rates([rate] * depth, label=f"{made.label}, one rate at every position")
    gaps.append(
        Gap(
            what="acceptance by position",
            reason=notice(Code.MEAN_ONLY, draft_length=depth),
            used=Used.ONE_RATE,
            value=rate,
            field="acceptance",
        )
    )
    return replace(spread, source=made.source, drafts=made.drafts, assumed=True)


def _rounds(serving: Serving) -> int | None:
    passes = serving.acceptance.counted if serving.acceptance is not None else None
    return None if passes is None else max(int(passes), 1)


def change(live: Live, plan: Plan, written: Written) -> Change | None:
    """Return what the schedule changes at the running batch, None where that is unknown.

    Both speeds are predictions at the running batch and context, so that errors they share cancel.
    """
    batch, serving = live.batch, live.serving
    if batch is None or batch > plan.batches:
        return None
    at = batch - 1
    advised = next(b for b in written.bands if b.first <= batch <= b.last).draft_lengths[0]
    idle = all(d == 0 for band in written.bands for d in band.draft_lengths)
    users = batch * live.copies
    own = plan.plain[at, 0] if idle else plan.speed[at, 0, plan.draft_lengths.index(advised)]
    length = serving.value("draft_length")
    speed, tokens = None, None
    if length in plan.draft_lengths:
        configured = length > 0 or serving.value("method") is not None
        column = plan.draft_lengths.index(length)
        speed = float(plan.priced[at, 0, column] if configured else plan.plain[at, 0])
        tokens = float(
            plan.question.acceptance.over_contexts(
                plan.contexts, [length], extrapolate=live.workload.extrapolate
            )[0, 0]
        )
    known = speed is not None and bool(np.isfinite(speed))
    return Change(
        draft_length=length,
        advised=advised,
        step=tokens / speed if known and speed and tokens else None,
        tokens_per_step=tokens if known else None,
        before=users * speed if known and speed else None,
        after=users * float(own),
        measured=serving.value("tokens_per_s"),
    )
