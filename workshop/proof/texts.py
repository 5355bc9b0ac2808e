"""Every text that the package writes for vLLM and SGLang, and what each is meant to do there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from roofline.advice.configuration import Configuration
from roofline.advice.deployment import Deployment, deploy
from roofline.api.questions import schedule
from roofline.base import resources
from roofline.base.errors import RooflineError
from roofline.engines.bench_commands import REPEATS, bench_commands
from roofline.engines.writing import NoScheduleError
from roofline.importers.references import heads_for
from roofline.specs.engine import load_engine
from roofline.specs.network import MODEL_SHELF, load_model
from workshop.model_specs import Catalogue

__all__ = ["ENGINES", "TIMING", "Text", "as_json", "texts"]

ENGINES = ("vllm", "sglang")
CONFIGS = Path(__file__).resolve().parents[2] / "model_configs"
GPU = "b200-hgx"
#: The target of texts that are about a kind of drafter and not about a model.
TARGET = "llama-3.1-8b"
DRAFT_MODEL = "llama-3.2-1b"
RUNNING = 100
#: The kind of texts that run a tool of the engine and not its server.
TIMING = "timing"
LONGEST = 8  # draft lengths that are tried on each MTP layer


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    """A text for an engine, with the configs of what it names and what it is meant to do.

    ``refused`` is a word of the engine's refusal where it must refuse it: the package says so
    beside such a text, or refuses to write it.
    """

    engine: str
    about: str
    text: str
    target: dict[str, Any]
    drafter: dict[str, Any] | None = None
    kind: str
    meant: dict[str, Any] = field(default_factory=dict)
    refused: str = ""
    arguments: tuple[str, ...] = ()  # of the server, beside the text


def texts() -> Iterator[Text]:
    """Yield all of them."""
    for engine in ENGINES:
        yield from _of_kinds(engine)
        yield from _of_families(engine)
        yield from _of_module_rule(engine)
        yield from _of_heads(engine)
        yield from _of_layouts(engine)
        yield from _of_schedules(engine)
        yield from _of_timings(engine)


@cache
def _configs() -> dict[str, Path]:
    """Return the published config of each bundled model and drafter, by its id."""
    catalogue = Catalogue.load(CONFIGS / "catalogue.yaml")
    entries = (*catalogue.models, *catalogue.drafters)
    return {entry.id: CONFIGS / entry.config for entry in entries}


def _config(name: str) -> dict[str, Any]:
    """Return a published config; the template's where a name has none."""
    raw: dict[str, Any] = json.loads(_configs()[name].read_text("utf-8"))
    return raw


#: How heads without a published config of their own state their kind; the rest is the target's.
HEADS: dict[str, dict[str, Any]] = {
    "eagle1": {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1},
    "medusa": {"architectures": ["MedusaModel"], "model_type": "medusa"},
    "eagle3": {
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "draft_vocab_size": 32000,
    },
    "peagle": {
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 4,
        "draft_vocab_size": 32000,
    },
    "dflash": {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "num_hidden_layers": 5,
        "block_size": 16,
        "dflash_config": {"target_layer_ids": [1, 8, 15, 22, 29], "mask_token_id": 5},
    },
    "dspark": {
        "architectures": ["Qwen3DSparkModel"],
        "model_type": "qwen3",
        "num_hidden_layers": 5,
        "block_size": 7,
        "markov_rank": 256,
        "markov_head_type": "vanilla",
        "dflash_config": {"target_layer_ids": [1, 8, 15, 22, 29], "mask_token_id": 5},
    },
    "domino": {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "num_hidden_layers": 5,
        "block_size": 16,
        "projector_type": "domino",
        "dflash_config": {"target_layer_ids": [1, 8, 15, 22, 29], "mask_token_id": 5},
    },
}


def _drafter_config(deployment: Deployment) -> dict[str, Any] | None:
    """Return the published config of a drafter, or one of its kind's usual form."""
    drafter = deployment.drafter
    if drafter.network is None or drafter.kind == "mtp":
        return None
    if drafter.network.id in _configs():
        return _config(drafter.network.id)
    return {**_config(TARGET), **HEADS[drafter.kind]}


def _deployed(engine: str, model: str, drafter: str, **options: Any) -> Deployment:
    return deploy(Configuration(model=model, gpu=GPU, engine=engine, drafter=drafter, **options))[0]


#: The method that vLLM has each kind by, and the algorithm that SGLang runs it as.
METHODS = {
    "vllm": {
        "ngram": "ngram", "suffix": "suffix", "model": "draft_model", "mtp": "mtp",
        "eagle1": "eagle", "eagle3": "eagle3", "peagle": "eagle3", "dflash": "dflash",
        "dspark": "dspark", "medusa": "medusa",
    },
    "sglang": {
        "ngram": "NGRAM", "model": "STANDALONE", "mtp": "EAGLE", "eagle1": "EAGLE",
        "eagle3": "EAGLE3", "dflash": "DFLASH", "dspark": "DSPARK", "domino": "DFLASH",
    },
}  # fmt: skip


def _text(deployment: Deployment, about: str, draft_length: int, **more: Any) -> Text:
    """Return the flags of a deployment for one draft length."""
    target, engine = deployment.target, deployment.engine.id
    running = more.pop("running", RUNNING)
    meant = {
        "method": METHODS[engine][deployment.drafter.kind],
        "draft_length": draft_length,
        "running": running,
        **more.pop("meant", {}),
    }
    written = more.pop("text", None)
    tp = ("--tensor-parallel-size", str(target.placement.tp))
    return Text(
        engine=engine,
        about=about,
        text=deployment.launch.flags(draft_length, running=running) if written is None else written,
        target=_config(target.model.id),
        drafter=_drafter_config(deployment),
        kind=deployment.drafter.kind,
        meant=meant,
        arguments=tp if target.placement.dp == 1 else (),
        **more,
    )


def _of_kinds(engine: str) -> Iterator[Text]:
    """Yield each kind of drafter at several draft lengths, its acceptance held, its TP."""
    profile = load_engine(engine)
    for kind in profile.flags:
        if kind in ("none", "mtp"):
            continue
        if not profile.has(kind):  # it must be the engine that has it no more, not only the data
            versions = profile.versions_of(kind)
            last = f"{engine}@{versions.until if versions else ''}"
            gone = _deployed(last, TARGET, kind)
            yield _text(gone, f"{kind}, of {last}", 3, refused="method")
            continue
        drafter = DRAFT_MODEL if kind == "model" else kind
        deployment = _deployed(engine, TARGET, drafter)
        for length in (1, 3, 5):
            yield _text(deployment, f"{kind}, D = {length}", length)
        held = deployment.launch.flags_to_time(3, 2.5, running=RUNNING)
        assert held is not None
        meant = {"tokens_per_step": 2.5}
        yield _text(deployment, f"{kind}, 2.5 tokens per step held", 3, text=held, meant=meant)
    yield from _of_partial_drafts(engine)
    for draft_tp in (1, 2, 4):
        about = f"model, TP 4, drafter at TP {draft_tp}"
        try:
            deployment = _deployed(engine, TARGET, DRAFT_MODEL, tp=4, draft_tp=draft_tp)
        except RooflineError:  # so the engine must refuse the text too, where there is one
            if engine == "vllm":
                at_one = _deployed(engine, TARGET, DRAFT_MODEL, tp=4, draft_tp=1)
                key = '"draft_tensor_parallel_size": '
                text = at_one.launch.flags(3, running=RUNNING).replace(
                    key + "1", f"{key}{draft_tp}"
                )
                yield _text(at_one, about, 3, text=text, refused="draft_tensor_parallel_size")
            continue
        meant = {"draft_tp": draft_tp} if engine == "vllm" else {"tp": draft_tp}
        yield _text(deployment, about, 3, meant=meant)
    if engine == "vllm":
        deployment = _deployed(engine, TARGET, "eagle3", tp=4, draft_tp=1)
        yield _text(deployment, "eagle3, TP 4, head at TP 1", 3, meant={"draft_tp": 1})


def _of_partial_drafts(engine: str) -> Iterator[Text]:
    """Yield a tree, a block verified in part, and more requests than graphs are captured for."""
    stopping = replace(_deployed(engine, TARGET, "dspark"), hit_rate=(0.9, 0.8, 0.7))
    in_part = {"ragged_verify": "compact"} if engine == "sglang" else {}
    yield _text(stopping, "dspark, verified in part", 3, meant=in_part)
    head = _deployed(engine, TARGET, "eagle3")
    if engine == "vllm":
        for about, launched, most in (
            ("eagle3, 2000 requests at once", head, 2000),
            ("eagle3, TP 8 in 8 groups, 9600 requests at once", _grouped(engine), 1200),
        ):
            running = most * launched.target.placement.dp
            meant = {"most": most, "dp": launched.target.placement.dp}
            yield _text(launched, about, 3, running=running, meant=meant)
        text = head.launch.flags(3, running=10, most=True)
        about = "eagle3, no more than 10 requests"
        yield _text(head, about, 3, text=text, running=10, meant={"most": 10})
    if engine == "sglang":
        tree = _deployed(engine, TARGET, "eagle3", tree_topk=4, verify_width=8)
        meant = {"breadth": 4, "rows": 8}
        yield _text(tree, "eagle3, a tree of 4 branches and 8 rows", 3, meant=meant)
        yield _text(head, "eagle3, 600 requests at once", 3, running=600, meant={"captured": 600})


def _grouped(engine: str) -> Deployment:
    """Return a target with data-parallel attention in groups of one GPU."""
    return _deployed(engine, TARGET, "eagle3", tp=8, dp_attention=8)


def _of_families(engine: str) -> Iterator[Text]:
    """Yield the MTP layers of one model of each architecture at every draft length up to 8."""
    seen = set()
    for name in resources.bundled_names(MODEL_SHELF):
        if resources.stated_kind(MODEL_SHELF, name) != "model" or name not in _configs():
            continue
        model = load_model(name)
        if model.mtp is None or not model.mtp_published:
            continue
        config = _config(name)
        family = (*config["architectures"], model.mtp_modules)
        if family in seen:
            continue
        seen.add(family)
        deployment = _deployed(engine, name, "mtp")
        for length in range(1, LONGEST + 1):
            takes = deployment.engine.takes(length, kind="mtp", modules=model.mtp_modules)
            if engine == "vllm" or length in (1, 3):
                yield _text(
                    deployment,
                    f"mtp of {name}, D = {length}",
                    length,
                    refused="" if takes else "divisible",
                )


MODULES = 3  # MTP layers of a config that is changed to have them


def _of_module_rule(engine: str) -> Iterator[Text]:
    """Yield DeepSeek-V3 as if it had three MTP layers: no bundled config states more than one."""
    if engine == "vllm":
        deployment = _deployed(engine, "deepseek-v3", "mtp")
        config = _config("deepseek-v3") | {"num_nextn_predict_layers": MODULES}
        for length in range(1, LONGEST + 1):
            takes = deployment.engine.takes(length, kind="mtp", modules=MODULES)
            refused = "" if takes else "divisible"
            text = _text(deployment, f"{MODULES} MTP layers, D = {length}", length, refused=refused)
            yield replace(text, target=config)


def _of_heads(engine: str) -> Iterator[Text]:
    """Yield every bundled head on the model that it was made for."""
    profile, seen = load_engine(engine), set()
    for name in resources.bundled_names(MODEL_SHELF):
        if resources.stated_kind(MODEL_SHELF, name) != "model" or name not in _configs():
            continue
        for kind, head in heads_for(name).items():
            if profile.has(kind) and kind in profile.flags and head not in seen:
                seen.add(head)
                yield _text(_deployed(engine, name, kind), f"{head} on {name}", 3)


def _of_layouts(engine: str) -> Iterator[Text]:
    """Yield data-parallel attention with each kind of drafter, and experts on groups of ranks."""
    layout = {"tp": 8, "dp_attention": 8}
    for ep in (1, 8):
        deployment = _deployed(engine, "deepseek-v3", "mtp", ep=ep, **layout)
        meant = {"dp": 8, "ep": ep}
        yield _text(deployment, f"DeepSeek-V3, DP 8 attention, EP {ep}", 1, meant=meant)
    # vLLM takes a draft model of DeepSeek's type for an MTP head, so it is given none
    models = ("deepseek-v3",) if engine == "sglang" else ()
    for drafter in ("ngram", *models, "eagle3", "dflash", "dspark"):
        about = f"DeepSeek-V3, DP 8 attention, {drafter}"
        try:
            deployment = _deployed(engine, "deepseek-v3", drafter, **layout)
        except RooflineError:  # so the engine must refuse the text too
            without = _deployed(engine, "deepseek-v3", drafter, tp=8)
            groups = load_engine(engine).parallel_flags(tp=8, dp=8, ep=1)
            text = f"{groups} {without.launch.flags(3, running=RUNNING)}"
            yield replace(_text(without, about, 3, text=text, refused="dp attention"), arguments=())
            continue
        yield _text(deployment, about, 3, meant={"dp": 8, "ep": 1})


#: Schedules: drafter, acceptance, options.
SCHEDULES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "two bands": ("eagle3", "survival:0.72,0.45,0.21", {"batches": "1..256"}),
    "every batch on its own": (
        "eagle3",
        "survival:0.8,0.6,0.45,0.3,0.2",
        {"batches": "1..128", "tie": 0, "odds": 0},
    ),
    "down to 0": ("eagle3", "0.5", {"batches": "1..256", "tie": 0, "odds": 0}),
    "n-gram": ("ngram", "survival:0.5,0.3,0.2", {"batches": "1..256", "tie": 0, "odds": 0}),
    "MTP": ("mtp", "0.8", {"batches": "1..128", "tie": 0, "odds": 0}),
    "block drafter": ("dflash", "0.7", {"batches": "1..128", "tie": 0, "odds": 0}),
    "DSpark": ("dspark", "0.7", {"batches": "1..128", "tie": 0, "odds": 0}),
    "suffix": ("suffix", "0.5", {"batches": "1..128", "tie": 0, "odds": 0}),
    "rows of five items": (
        "eagle3",
        "survival:0.72,0.45,0.21",
        {"contexts": "1k,32k", "proposed": True},
    ),
}


def _of_schedules(engine: str) -> Iterator[Text]:
    """Yield schedules, with the draft length that each batch is meant to get."""
    flags = load_engine(engine).flags
    for about, (kind, acceptance, options) in SCHEDULES.items():
        proposed = bool(options.get("proposed"))
        if kind not in flags or (proposed and engine != "vllm"):
            continue
        model, tp = ("deepseek-v3", 8) if kind == "mtp" else (TARGET, 1)
        drafter = DRAFT_MODEL if kind == "model" else kind
        try:
            result = schedule(
                model, gpu=GPU, tp=tp, engine=engine, drafter=drafter, acceptance=acceptance,
                **{"contexts": "1k", **options},
            )  # fmt: skip
        except NoScheduleError:
            continue
        text, bands = result.engine_text or "", result.points
        lengths = [[b.batch_start, b.batch_end, b.draft_length] for b in bands]
        deployment = _deployed(engine, model, drafter, tp=tp)
        meant: dict[str, Any] = {"schedule": [] if proposed else lengths}
        file = text if engine == "sglang" and text.startswith("{") else None
        if file is not None:
            meant["file"] = file
            text = _adaptive_flags(result)
        most = max(band.draft_length for band in bands)
        yield _text(
            deployment,
            f"schedule: {about}",
            most,
            text=text,
            meant=meant,
            running=bands[-1].batch_end,
            refused="num_speculative_tokens_per_batch_size" if proposed else "",
        )


def _of_timings(engine: str) -> Iterator[Text]:
    """Yield the lines by which the engine's own tools time one draft length."""
    deployment = _deployed(engine, TARGET, "eagle3")
    asked: dict[str, dict[str, Any]] = {
        "tokens per step held": {"draft_length": 3, "held": 2.5},
        "the user's prompts": {"draft_length": 3, "prompts": "prompts.jsonl"},
        "without drafts": {"draft_length": 0},
    }
    sizes: dict[str, Any] = {"batch": 8, "context": 1024, "output": 256}
    for about, options in asked.items():
        for found in bench_commands(deployment.launch, model=TARGET, **sizes, **options):
            label = {"draft_length": str(found.draft_length), "batch": "8"}
            if found.held is not None:
                label["held"] = f"{found.held:g}"
            meant = {**sizes, "result": found.result}
            whole = found.requests == sizes["batch"] * REPEATS
            if not whole:
                meant["requests"] = found.requests
            if "draft_length" not in found.unsaid:
                meant["label"] = label
            if options.get("prompts"):
                del meant["context"]  # their own
            yield Text(
                engine=engine,
                about=f"{found.tool}, {about}",
                text=found.run,
                target=_config(TARGET),
                kind=TIMING,
                meant=meant,
            )


def _adaptive_flags(result: Any) -> str:
    """Return the flags that stand beside SGLang's file."""
    values = [item.values for item in result.written.notes]
    return next(str(value["flags"]) for value in values if "flags" in value)


def as_json(found: list[Text]) -> str:
    """Return texts for the readers."""
    return json.dumps([asdict(each) for each in found])
