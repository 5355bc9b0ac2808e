"""The options that the questions share: their types, what they mean, and how they are read."""

from __future__ import annotations

import difflib
import inspect
import textwrap
from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import Annotated, Any, TypedDict, TypeVar, get_args, get_type_hints

from roofline.advice.configuration import LISTED, Configuration, question_from
from roofline.advice.question import Workload
from roofline.api import values
from roofline.api.values import AcceptanceLike, Name, Number, Numbers, Reference, Whole
from roofline.base.errors import InputError

__all__ = [
    "DeploymentOptions",
    "QuestionOptions",
    "UnknownOptionError",
    "asked",
    "axis",
    "question_options",
]


class DeploymentOptions(TypedDict, total=False):
    """What is deployed, and how it is looked at; all are keywords."""

    gpu: Annotated[Name, "Accelerator: a name, or the path of a profile (YAML)."]
    tp: Annotated[Whole, "Tensor-parallel GPUs."]
    ep: Annotated[Whole, "Groups of those GPUs that experts are placed on."]
    dp_attention: Annotated[Whole, "Groups of those GPUs that share out the sequences."]
    gpus: Annotated[Whole, "Cards of one machine that only its slots join (llama.cpp)."]
    split: Annotated[
        str | None,
        "How those cards share the model: 'layer', 'row' or 'tensor'. None means 'layer'.",
    ]
    tensor_split: Annotated[
        Numbers | None, "Shares of the layers by card, such as [3, 1]. None shares them evenly."
    ]
    cpu_experts: Annotated[
        Whole | None,
        "The first layers whose experts stay in the processor's memory: a number or 'all'.",
    ]
    host: Annotated[
        Name | None,
        "The machine around the cards: 'desktop-ddr4', 'desktop-ddr5', 'workstation-ddr5', "
        "'server-ddr5' or the path of a file (YAML). None means 'desktop-ddr5'.",
    ]
    pp: Annotated[Whole, "Pipeline stages, each on tp GPUs (experimental)."]
    pp_in_flight: Annotated[
        Whole, "Micro-batches under way at once; the batch is shared among them (experimental)."
    ]
    drafter_on: Annotated[
        str | None,
        "Where the drafter lies: on the 'last' stage, on 'all', or on its 'own' GPU "
        "(experimental). None means 'last'.",
    ]
    link: Annotated[
        str | None,
        "Slots that join the GPUs, such as 'pcie4x16' (experimental). None is the GPU's own links.",
    ]
    nodes: Annotated[Whole, "Nodes that the GPUs lie on (experimental)."]
    internode: Annotated[
        str | None,
        "What a link between nodes carries for each GPU: '50GB/s'. None is 50 GB/s, assumed.",
    ]
    power_cap: Annotated[
        str | None, "What each GPU may draw: '400W' (experimental). None is its rated power."
    ]
    max_draft_length: Annotated[Whole, "Longest draft to consider [tokens]."]
    weights: Annotated[
        str | None,
        "Format of the layers' weights: 'fp32', 'bf16', 'fp16', 'fp8', 'fp8-block', 'int8', "
        "'int4-g128', 'nvfp4', 'mxfp4' or a GGUF type ('q4_k_m'). None is as the model ships.",
    ]
    activations: Annotated[
        str | None, "Format that products run in, where the GPU has a rate. None follows weights."
    ]
    kv: Annotated[str | None, "Format of the KV cache (storage only). None is the model's."]
    draft_tp: Annotated[Whole | None, "GPUs that the drafter runs on. None means all."]
    draft_weights: Annotated[str | None, "Format of the drafter's weights. None is its own."]
    verify_attention: Annotated[
        str | None,
        "How a verify pass reads the KV cache: 'kv_once', 'tile', 'head_tile', 'kv_per_tile' or "
        "'kv_per_query'. None is as measured on the GPU, else as the engine does.",
    ]
    state_handling: Annotated[
        str, "How a verify pass keeps states of linear mixers: 'snapshots' or 'replay'."
    ]
    routing_skew: Annotated[
        Number | None, "Popularity of experts ~ rank^-s; 0 is uniform. None is the fitted value."
    ]
    routing_correlation: Annotated[
        Number | None,
        "Chance (0 to 1) that a draft token takes the experts of the token before. None means 0.",
    ]
    memory_fraction: Annotated[
        Number | None, "Share (0 to 1) of the GPU that the engine takes. None is the engine's."
    ]
    engine: Annotated[
        Name,
        "Serving engine: 'vllm', 'sglang', 'trtllm', 'llamacpp'; 'vllm@2025' for an era; or the "
        "path of a file (YAML).",
    ]
    overhead_ms: Annotated[
        Numbers | None,
        "Your own times around a plain step, a speculative round and a draft pass [ms], such as "
        "[0.5, 0.7, 0.15]. None is the engine's.",
    ]
    verify_width: Annotated[
        Whole | None, "Rows per sequence that a tree is verified with. None is a chain, 1 + D."
    ]
    tree_topk: Annotated[Whole, "Branches of a tree's draft passes."]
    draft_block: Annotated[
        Whole | None, "Block that a block drafter was deployed with [tokens]. None is its own."
    ]
    hit_rate: Annotated[
        Numbers | None,
        "Share of passes in which a lookup (n-gram, suffix) finds a draft; where drafts stop "
        "early, the share that verifies a draft at each position: [0.95, 0.8]. None is what the "
        "acceptance was counted with, else what public runs lead to expect; 1 without a lookup.",
    ]
    first_pass_rows: Annotated[
        Number | None, "Rows per sequence of the first draft pass. None pads to 1 + D."
    ]
    prefill_tokens_per_step: Annotated[
        Number,
        "Prompt tokens of a mean pass; they ride as whole chunks in some (chunked prefill).",
    ]
    set: Annotated[
        Mapping[str, Any] | None,
        "Values to put in place of others, by path: {'group_size': 8, "
        "'gpu.memory.bandwidth': '4 TB/s'}.",
    ]


class QuestionOptions(DeploymentOptions, total=False):
    """Options that most questions have beside their own; all are keywords."""

    drafter: Annotated[
        Reference | None,
        "What drafts: 'none', 'ngram', 'suffix', 'mtp', a kind of head ('eagle1', 'eagle3', "
        "'medusa', 'dflash', 'dspark', 'domino', 'peagle'), the name of a model, a path, or a "
        "config as a dict. None is the drafter that is known for the model.",
    ]
    acceptance: Annotated[
        AcceptanceLike | None,
        "How often drafts are accepted: 0.7 (one rate at every position), a list of rates by "
        "position (read as a bare list on the command line is), {3: 2.31} (tokens per step by "
        "draft length), any text that the command line takes ('survival:0.72,0.45', "
        "'al:3=2.31', a bundled curve, a file, an engine's metrics address), or an `Acceptance`. "
        "None is what public runs of such drafters lead to expect, with its error.",
    ]
    domain: Annotated[
        str | None,
        "What the prompts are: 'chat', 'code', 'math', 'knowledge', 'summary', 'creative', "
        "'multilingual', 'translation', 'agentic' or 'mixed'. None is unknown.",
    ]
    dataset: Annotated[
        str | None,
        "A public data set that the prompts are like, such as 'mt-bench', 'humaneval' or 'gsm8k'; "
        "it says their domain. None is unknown.",
    ]
    temperature: Annotated[
        Number | None, "Temperature of sampling, 0 for greedy decoding. None is unknown."
    ]
    acceptance_rounds: Annotated[
        Whole | None, "Verify passes that the acceptance was counted over. None takes it as exact."
    ]


class UnknownOptionError(InputError, TypeError):
    """A keyword that the function does not have."""


_REFERENCES = ("model", "drafter")
_NAMED = ("gpu", "engine", "host")
Function = TypeVar("Function", bound=Callable[..., Any])


@cache
def _kinds() -> dict[str, set[Any]]:
    """Return the types that each option of a question is read from."""
    hints = get_type_hints(question_from)
    return {name: {*(get_args(hint) or (hint,))} for name, hint in hints.items()}


def _coerced(name: str, value: object) -> object:
    """Return the value of an option as `question_from` takes it."""
    kinds = _kinds()[name]
    if name in _REFERENCES:
        return values.reference(name, value)
    if name in _NAMED:
        return values.name(name, value)
    if name == "acceptance":
        return values.acceptance(name, value)
    if name == "set":
        return values.overrides(value)
    if name in LISTED:
        return values.listed(name, value)
    if bool in kinds:
        return values.flag(name, value)
    if int in kinds:
        return values.whole(name, value)
    return values.number(name, value) if float in kinds else values.text(name, value)


def asked(
    model: object, options: Mapping[str, Any], *, tuned: object = None
) -> tuple[Configuration, Workload]:
    """Return configuration and workload of these options; None leaves an option at its default.

    ``tuned`` is a tuning file: it says the question, and its timings move the answer.
    """
    given = {name: value for name, value in options.items() if value is not None}
    plain: dict[str, Any] = {name: _coerced(name, value) for name, value in given.items()}
    if tuned is not None:
        from roofline.questions.tune.asked import tuned_question

        if model is not None:
            plain["model"] = values.reference("model", model)
        return tuned_question(values.path("tuned", tuned), plain)
    if model is None:
        raise InputError("is missing", field="model")
    return question_from(model=values.reference("model", model), **plain)


def axis(name: str, value: object) -> list[str] | bool:
    """Return the values that an option takes in a grid, each as a text: a list is several values.

    >>> axis("tp", [1, 2]), axis("acceptance", [0.7, {3: 2.31}]), axis("set", {"group_size": 8})
    (['1', '2'], ['0.7', 'al:3=2.31'], ['group_size=8'])
    """
    if name == "set":
        return values.overrides(value)
    kinds = {int} if name in ("batch", "context") else _kinds()[name]
    if bool in kinds:
        return values.flag(name, value)
    items = values.plain(value)
    items = items if isinstance(items, list) else [items]
    if not items:
        raise InputError("expected at least one value", field=name)
    return [_axis_text(name, item, kinds) for item in items]


def _axis_text(name: str, value: object, kinds: set[Any]) -> str:
    """Return one value of an option as a text."""
    if name in _REFERENCES:
        return values.reference(name, value)
    if name in _NAMED:
        return values.name(name, value)
    if name == "acceptance":
        curve = values.acceptance(name, value)
        if isinstance(curve, str):
            return curve
        raise InputError("expected numbers, a dict or a text in a sweep", field=name)
    return values.wholes(name, value) if int in kinds else values.listed(name, value)


def question_options(*leave_out: str) -> Callable[[Function], Function]:
    """Return what documents and checks the options that a function shares with the others.

    Its signature then shows them with their defaults, its help says what each means, and another
    keyword is refused. ``leave_out`` names options that the function does not have.
    """

    def document(function: Function) -> Function:
        hints = get_type_hints(QuestionOptions, include_extras=True)
        defaults = inspect.signature(question_from).parameters
        own = inspect.signature(function).parameters
        shared = {
            name: inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=defaults[name].default,
            )
            for name in defaults
            if name in hints and name not in own and name not in leave_out
        }
        fixed = [p for p in own.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        known = {*shared, *(parameter.name for parameter in fixed)}

        @wraps(function)
        def checked(*arguments: Any, **options: Any) -> Any:
            for name in options:
                if name not in known:
                    closest = difflib.get_close_matches(name, known, n=1)
                    hint = f"did you mean '{closest[0]}'?" if closest else "see help()"
                    raise UnknownOptionError(
                        f"{function.__name__} has no such option; {hint}", field=name
                    )
            try:
                return function(*arguments, **options)
            except InputError as error:
                if error.field is None:
                    named = dict(zip(("model",), arguments, strict=False)) | options
                    error.field = _refused_name(named, error.text)
                raise

        documented: Any = checked
        # the help names the types in words
        plain = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in fixed]
        documented.__signature__ = inspect.Signature([*plain, *shared.values()])
        documented.__doc__ = _documented(function, shared, hints)
        return documented  # type: ignore[no-any-return]

    return document


def _refused_name(given: Mapping[str, Any], said: str) -> str | None:
    """Return which of the names given is refused with these words, if one of them is."""
    from roofline.importers.references import open_drafter, open_model
    from roofline.specs.engine import load_engine
    from roofline.specs.gpu import load_hardware, load_host

    def drafter(reference: str) -> object:
        return open_drafter(reference, open_model(values.reference("model", given["model"]))[0])

    loaders: dict[str, Callable[[str], object]] = {
        "model": open_model,
        "gpu": load_hardware,
        "engine": load_engine,
        "host": load_host,
        "drafter": drafter,
    }
    for field, load in loaders.items():
        items = values.plain(given.get(field))
        for item in items if isinstance(items, list) else [items]:
            try:
                if item is not None:
                    load(values.reference(field, item))
            except InputError as error:
                if error.text == said:
                    return field
    return None


_RAISES = "Raises\n------\n"
_ON_BAD_INPUT = """\
InputError
    If something that was given cannot be used: `error.field` names the argument.
"""


def _documented(
    function: Callable[..., Any], shared: Mapping[str, inspect.Parameter], hints: Mapping[str, Any]
) -> str:
    """Return the function's docstring with what every question shares: options, and an error."""
    text = inspect.getdoc(function) or ""
    before, heading, after = text.partition("Returns\n-------\n")
    entries = []
    for name, parameter in shared.items():
        kind, meaning = get_args(hints[name])
        entries.append(
            f"{name} : {_named(kind)}, default {parameter.default!r}\n"
            + textwrap.fill(meaning, 92, initial_indent="    ", subsequent_indent="    ")
        )
    others = "Other Parameters\n----------------\n" + "\n".join(entries) + "\n\n"
    return f"{before}{others}{heading}{after.replace(_RAISES, _RAISES + _ON_BAD_INPUT, 1)}"


_TYPE_WORDS = {
    Whole: "whole number",
    Whole | None: "whole number or None",
    Number: "number",
    Number | None: "number or None",
    Numbers | None: "number, list of numbers or None",
    Name: "name or path",
    Name | None: "name, path or None",
    Reference | None: "name, path, dict or None",
    str: "str",
    str | None: "str or None",
    bool: "bool",
    AcceptanceLike | None: "number, list, dict, str, Acceptance or None",
    Mapping[str, Any] | None: "dict or None",
}


def _named(kind: Any) -> str:
    return _TYPE_WORDS[kind]
