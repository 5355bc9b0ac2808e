"""From what a running server says to a question, and from the answer to what to change."""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from roofline.acceptance import Acceptance
from roofline.acceptance.conventions import iid_rate
from roofline.acceptance.prior import same_model
from roofline.advice.configuration import Configuration
from roofline.advice.question import MAX_DRAFT_LENGTH, Workload
from roofline.base.errors import InputError, Option
from roofline.base.names import bundled_id
from roofline.base.notices import Code, Notice, notice
from roofline.engines.server import Serving
from roofline.engines.server_facts import Read, Unread, serving_names
from roofline.importers.references import drafter_word, heads_for, known_by_runs, open_model
from roofline.questions.schedule.plan import SchedulePlan
from roofline.questions.schedule.written import WrittenSchedule
from roofline.specs.engine import ENGINE_SHELF, Era, engine_parts, load_engine
from roofline.specs.formats import DType
from roofline.specs.network import (
    HEAD_KINDS,
    HOST_DRAFTERS,
    DrafterSpec,
    load_network,
    network_named,
)

__all__ = [
    "AdvisedChange",
    "Gap",
    "LiveQuestion",
    "Substitute",
    "advised_change",
    "check_model_and_gpu",
    "contradictions",
    "live_question",
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

    ``asked`` is the user's configuration and ``given`` the options in it that the user set.
    ``model`` and ``drafter`` are the server's own, None where they are not known here. A path is
    taken for what runs there, since that is what it is given for.
    """
    notices = []
    model = None if model is None else network_id(model)
    for field in ("tp", "kv", "weights"):
        runs, wanted = serving.value(field), getattr(asked, field)
        if field in given and runs is not None and str(runs) != str(wanted):
            notices.append(_another(field, str(runs), str(wanted)))
    asked_model = network_id(asked.model) if "model" in given else None
    if asked_model is not None and model is not None and not same_model(asked_model, model):
        notices.append(_another("model", model, asked_model))
    if "drafter" in given and asked.drafter is not None and drafter is not None:
        names = {drafter} if drafter == _MODEL else _drafter_names(drafter, model)
        asked_names = _drafter_names(asked.drafter, asked_model or model)
        if drafter == _MODEL and drafter_word(asked.drafter) is None:
            asked_names &= {*HEAD_KINDS}  # which model it is that drafts is not known
        if asked_names and "none" not in asked_names and not names & asked_names:
            notices.append(_another("drafter", drafter, asked.drafter))
    engine = bundled_id(engine_parts(asked.engine)[0], ENGINE_SHELF)
    if "engine" in given and engine not in (None, serving.engine):
        notices.append(_another("engine", serving.engine, asked.engine))
    return notices


#: What a server is said to run that drafts by a whole model and does not say which.
_MODEL = "model"


def network_id(name: str) -> str | None:
    """Return the bundled model or drafter that a name means, else None."""
    named = network_named(name)
    return None if named is None else named.id


def _another(field: str, runs: str, asked: str) -> Notice:
    return notice(Code.ANOTHER_SERVER_SETTING, field=field, runs=runs, asked=asked)


def _drafter_names(name: str, model: str | None) -> set[str]:
    """Return the names that a drafter goes by: its kind and its id; nothing for a path.

    >>> sorted(_drafter_names("eagle3", "llama-3.1-8b")), _drafter_names("here/config.json", None)
    (['eagle3', 'llama-3.1-8b-eagle3'], set())
    """
    word = drafter_word(name)
    if word is not None:
        return {word, heads_for(model or "").get(word, f"{model}-{word}")}
    known = network_id(name)
    if known is None:
        return set()
    network = load_network(known)
    kind = network.kind if isinstance(network, DrafterSpec) else "model"
    return {known, kind} if heads_for(model or "").get(kind) == known else {known}


#: A release, or a build of llama.cpp, and what may stand behind it: 0.33.0+cpu, b11434-unknown.
_RELEASE = re.compile(r"v?(\d+(?:\.\d+)+|b\d+)")
#: Tokens in the cache of a sequence where neither server nor user says.
CONTEXT = 4096


class Substitute(StrEnum):
    """What stands in for something that a server does not say."""

    FORMAT = "format"  # of weights, as the name says it
    OWN_FORMAT = "own-format"  # of weights, as the model is published
    ONE_GPU = "one-gpu"
    CONTEXT = "context"
    EVERY_BATCH = "every-batch"
    BUNDLED_HEAD = "bundled-head"
    BUNDLED_CURVE = "bundled-curve"
    ONE_RATE = "one-rate"


@dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    """Something that the server did not say: why, and what is used instead."""

    what: str
    reason: str | Notice  # as the reader of the server says it
    substitute: Substitute
    field: str  # of the option that would give it
    value: str | float | None = None  # of the substitute, where it varies


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveQuestion:
    """A question about a running server. ``batch`` is None where it is unknown.

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
class AdvisedChange:
    """What the advice changes at the running batch. Speeds are those of all copies [tokens/s].

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


def check_model_and_gpu(serving: Serving, asked: Configuration, *, given: AbstractSet[str]) -> None:
    """Refuse a question whose model or accelerator is unknown: further reads would not tell."""
    _model(serving, asked, given)
    _gpu(serving, asked, given)


def live_question(
    serving: Serving,
    asked: Configuration,
    workload: Workload,
    *,
    given: AbstractSet[str],
    batches: tuple[int, ...] | None = None,
    contexts: tuple[int, ...] | None = None,
) -> LiveQuestion:
    """Return the question with what the server says, except for the options that were ``given``."""
    gaps: list[Gap] = []
    model, named = _model(serving, asked, given)
    setup: dict[str, Any] = {"model": model, "gpu": _gpu(serving, asked, given)}
    load: dict[str, Any] = {}
    if "weights" not in given and _runs(serving, model, named_by_user="model" in given):
        weights = _weights(serving, model, named, gaps)
        setup |= {} if weights is None else {"weights": weights}
    setup["engine"], era = _engine(serving, asked, given)
    groups = serving.copies if serving.value("attention_copies") else 1
    setup |= _layout(serving, asked, given, gaps, groups=groups)
    if "kv" not in given and serving.value("kv") is not None:
        setup["kv"] = DType.FP8
    if "drafter" not in given:
        setup["drafter"] = _drafter(serving, gaps, model)
    drafts = setup.get("drafter", asked.drafter) != "none"
    if "acceptance" not in given and drafts:
        load["acceptance"] = _acceptance(serving, gaps)
        if "acceptance_rounds" not in given and serving.acceptance is not None:
            counted = serving.acceptance.rounds
            load["acceptance_rounds"] = None if counted is None else max(int(counted), 1)
    if "max_draft_length" not in given:
        load["max_draft_length"] = max(MAX_DRAFT_LENGTH, serving.value("draft_length") or 0)
    if contexts is None:
        context = _fact_or(serving, "context", CONTEXT, gaps, substitute=Substitute.CONTEXT)
        contexts = (int(context),)
    batch = None
    if batches is None:
        running = _fact_or(serving, "batch", None, gaps, substitute=Substitute.EVERY_BATCH)
        batch = None if running is None else max(round(running * groups), 1)
        batches = (batch or 1,)
    elif len(batches) == 1:
        batch = batches[0]
    contradicting = contradictions(
        serving,
        asked,
        given=given,
        model=_bundled(serving)[0],
        drafter=_drafter(serving, [], model) or serving.value("method"),
    )
    return LiveQuestion(
        serving=replace(serving, notices=(*serving.notices, *contradicting)),
        configuration=replace(asked, **setup),
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
    version = str(serving.value("version") or "")
    profile = load_engine(serving.engine)
    era = profile.era_of(version)
    release = _RELEASE.match(version)
    if era is not None:
        return f"{serving.engine}=={release[1] if release else era.until}", era
    known = profile.newest and f"{version}.".startswith(f"{profile.newest}.")
    return (serving.engine if known or not release else f"{serving.engine}=={release[1]}"), None


def _fact_or(
    serving: Serving, name: str, default: Any, gaps: list[Gap], *, substitute: Substitute
) -> Any:
    """Return a fact of the server, else the default; ``gaps`` gets the gap that it fills."""
    fact = serving.facts[name]
    if isinstance(fact, Read):
        return fact.value
    gaps.append(
        Gap(what=name, reason=fact.reason, substitute=substitute, value=default, field=name)
    )
    return default


def _layout(
    serving: Serving,
    asked: Configuration,
    given: AbstractSet[str],
    gaps: list[Gap],
    *,
    groups: int,
) -> dict[str, int]:
    """Return over how many GPUs the model is laid out, and how.

    Ranks that share one model's weights are ``groups`` of its attention, no copies of it. The cards
    of a server without ranks of tensors share a model by its layers.
    """
    layout: dict[str, int] = {}
    if load_engine(serving.engine).local is not None:
        layout = {} if "tp" in given else {"tp": 1}
        unread = serving.facts["tp"]
        if "gpus" not in given and isinstance(unread, Unread):
            gaps.append(
                Gap(
                    what="gpus",
                    reason=unread.reason,
                    substitute=Substitute.ONE_GPU,
                    field="gpus",
                )
            )
    elif "tp" not in given:
        layout["tp"] = _fact_or(serving, "tp", 1, gaps, substitute=Substitute.ONE_GPU)
    if "dp_attention" not in given:
        layout["dp_attention"] = groups
    if "ep" not in given:
        layout["ep"] = serving.expert_groups(layout.get("tp", asked.tp))
    return layout


def _runs(serving: Serving, model: str, *, named_by_user: bool) -> bool:
    """Return whether the server runs this model, as far as is known, and its own format counts."""
    if not named_by_user:
        return True
    asked, own = network_named(model), _bundled(serving)[0]
    if asked is not None and asked.storage is not None:
        return False  # the user's name says the format
    known = None if own is None else network_id(own)
    return asked is None or asked.id is None or known is None or same_model(asked.id, known)


def _weights(serving: Serving, model: str, named: str | None, gaps: list[Gap]) -> DType | None:
    """Return the format of the weights that the server runs; None where it is the model's own.

    A server of files says the file's type, and a file's name the maker's own mixture of that type
    (Q4_K_XL), which has none. Another server says how it quantises a checkpoint, which is asked
    where the checkpoint is wide.
    """
    fact, of_file = serving.facts["weights"], serving_names().engines[serving.engine]
    by_name = None if named is None else DType(named)
    if Path(model).is_file():
        return None  # it lies here, with the format of each tensor
    wide = all(dtype in _WIDE for dtype in open_model(model)[0].stored().values())
    if isinstance(fact, Read) and (of_file.weights_of_file or (wide and by_name is None)):
        stated = DType(str(fact.value))
        if by_name is None or not _mixture_of(by_name, stated):
            return stated
    if by_name is not None:
        gaps.append(_format_gap(notice(Code.WEIGHTS_BY_NAME), Substitute.FORMAT, by_name))
    elif isinstance(fact, Unread) and (of_file.weights_of_file or (wide and fact.said)):
        gaps.append(_format_gap(fact.reason, Substitute.OWN_FORMAT))
    return by_name


#: Formats of checkpoints that nothing was quantised in.
_WIDE = (DType.FP32, DType.BF16, DType.FP16)


def _mixture_of(named: DType, stated: DType) -> bool:
    """Return whether a name is that of another mixture of the stated type, which has no type.

    >>> _mixture_of(DType.Q4_K_XL, DType.Q4_K_M), _mixture_of(DType.Q4_K_S, DType.Q4_K_M)
    (True, False)
    """
    types = serving_names().formats.values()
    return named not in types and named.value.split("_")[:2] == stated.value.split("_")[:2]


def _format_gap(reason: str | Notice, substitute: Substitute, value: DType | None = None) -> Gap:
    return Gap(what="weights", reason=reason, substitute=substitute, value=value, field="weights")


def _model(
    serving: Serving, asked: Configuration, given: AbstractSet[str]
) -> tuple[str, str | None]:
    """Return the model, and the format of its weights where only its name says it."""
    if "model" in given:
        return asked.model, None
    model, dtype = _bundled(serving)
    if model is not None:
        return model, dtype
    serves = f"it serves {' or '.join(serving.models)}" if serving.models else "it does not say"
    raise InputError(
        f"{serving.where}: which model runs there is not known ({serves}): give "
        f"{Option('model')}, a bundled id or the path of its config.json"
    )


def _bundled(serving: Serving) -> tuple[str | None, str | None]:
    """Return the model that the server's names mean, and the format of its weights.

    A file that lies here is that model; the name of one that does not may be a bundled model's.
    """
    for name in serving.models:
        if name.lower().endswith(".gguf") and Path(name).is_file():
            return name, None  # the server runs here
        bare = _OF_FILES.sub("", name)  # which of its files runs is said elsewhere
        named = network_named(name) or network_named(bare)
        if named is not None and named.id is not None:
            return named.id, named.storage
    return None, None


#: How a repository of GGUF files ends.
_OF_FILES = re.compile(r"-gguf/?$", re.IGNORECASE)


def _gpu(serving: Serving, asked: Configuration, given: AbstractSet[str]) -> str:
    fact = serving.facts["gpu"]
    if "gpu" in given:
        return asked.gpu
    if isinstance(fact, Unread):
        raise InputError(
            f"{serving.where}: which accelerator it runs on could not be read ({fact.reason}): "
            f"give {Option('gpu')}"
        )
    return str(fact.value)


def _drafter(serving: Serving, gaps: list[Gap], model: str) -> str | None:
    """Return the drafter that the server runs, None for the bundled head.

    The head that is bundled for the model, and one made for another, are named by their kind.
    """
    method, weights = serving.value("method"), serving.value("draft_model")
    target = network_id(model)
    own = weights if weights and method != "mtp" and method not in HOST_DRAFTERS else None
    known = network_id(own) if own else None
    if known is not None:
        head = load_network(known)
        if not isinstance(head, DrafterSpec):
            return known
        its_own = [name.lower() for name in (known, head.repository, head.published) if name]
        if head.target != target or str(own).lower() in its_own:
            return head.kind
        return own if "/" in str(own) else known
    by_runs = known_by_runs(own) if own else None
    if by_runs is not None and by_runs.target == target:
        return own
    if method not in (None, "model"):
        if own:
            gaps.append(_bundled_head(notice(Code.DRAFTER_NOT_BUNDLED, weights=own)))
        return str(method)
    fact = serving.facts["method"]
    reason: str | Notice = notice(Code.DRAFTER_NOT_BUNDLED, weights=weights)
    gaps.append(_bundled_head(fact.reason if isinstance(fact, Unread) else reason))
    return None


def _bundled_head(reason: str | Notice) -> Gap:
    return Gap(what="drafter", reason=reason, substitute=Substitute.BUNDLED_HEAD, field="drafter")


def _acceptance(serving: Serving, gaps: list[Gap]) -> Acceptance | None:
    """Return the acceptance that was read; from a mean alone, one rate for every position."""
    reading, length = serving.acceptance, serving.value("draft_length")
    if reading is not None and reading.draft_length is None and length:
        reading = reading.with_draft_length(length)
    if reading is None or reading.draft_length is None:
        fact = serving.facts["acceptance"]
        reason: str | Notice = notice(Code.ACCEPTANCE_UNKNOWN)
        if reading is not None:
            reason = notice(Code.LENGTH_NOT_READ)
        elif isinstance(fact, Unread):
            reason = fact.reason
        gaps.append(
            Gap(
                what="acceptance",
                reason=reason,
                substitute=Substitute.BUNDLED_CURVE,
                field="acceptance",
            )
        )
        return None
    if reading.survival is None and reading.curve is None:
        depth = reading.draft_length
        gaps.append(
            Gap(
                what="acceptance by position",
                reason=notice(Code.MEAN_ONLY, draft_length=depth),
                substitute=Substitute.ONE_RATE,
                value=iid_rate(tokens_per_step=reading.tokens_per_step, draft_length=depth),
                field="acceptance",
            )
        )
    return reading.acceptance()


def advised_change(
    live: LiveQuestion, plan: SchedulePlan, written: WrittenSchedule
) -> AdvisedChange | None:
    """Return what the schedule changes at the running batch, None where that is unknown.

    Both speeds are predictions at the running batch and context, so that errors they share cancel.
    """
    batch, serving = live.batch, live.serving
    if batch is None or batch > plan.batches:
        return None
    at = batch - 1
    advised = next(b for b in written.bands if b.first <= batch <= b.last).draft_lengths[0]
    never = all(d == 0 for band in written.bands for d in band.draft_lengths)
    users = batch * live.copies
    after = plan.plain[at, 0] if never else plan.speed[at, 0, plan.draft_lengths.index(advised)]
    length = serving.value("draft_length")
    speed, tokens = None, None
    if length in plan.draft_lengths:
        configured = length > 0 or serving.value("method") is not None
        column = plan.draft_lengths.index(length)
        speed = float(plan.priced[at, 0, column] if configured else plan.plain[at, 0])
        tokens = float(plan.question.acceptance.over_contexts(plan.contexts, [length])[0, 0])
    known = speed is not None and bool(np.isfinite(speed))
    return AdvisedChange(
        draft_length=length,
        advised=advised,
        step=tokens / speed if known and speed and tokens else None,
        tokens_per_step=tokens if known else None,
        before=users * speed if known and speed else None,
        after=users * float(after),
        measured=serving.value("tokens_per_s"),
    )
