"""The options that every question shares, read into a configuration and a workload."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from roofline.base.errors import InputError
from roofline.base.values import DOLLARS, Choice, amount, choice
from roofline.cli import completion
from roofline.cli.panels import DRAFTER, ENGINE, EXPERT, LOAD, PLACEMENT, QUESTION, SERVER
from roofline.cli.panels import FORMATS as FORMATS_PANEL
from roofline.cli.panels import OUTPUT as OUTPUT_PANEL

if TYPE_CHECKING:
    from roofline.advice.configuration import Configuration
    from roofline.advice.question import Workload


__all__ = [
    "ANY_BATCH",
    "FORMATS",
    "GPU_HOUR",
    "INTERVAL",
    "LISTED",
    "OUTPUT",
    "TIMEOUT",
    "TUNED",
    "asks",
    "asks_grid",
    "form_option",
    "format_for",
    "given_by_flag",
    "hints",
    "option",
    "option_types",
    "price",
    "question",
    "show_parameters",
]

_DTYPES = "fp32, bf16, fp16, fp8, fp8-block, int8, int4-g128, nvfp4, mxfp4, or a GGUF type (q4_k_m)"
_ENDINGS = {".csv": "csv", ".json": "json", ".md": "markdown", ".txt": "table"}


def option(panel: str, help_text: str, *names: str, metavar: str | None = None, **more: Any) -> Any:
    """Declare an option of a panel; without ``names`` it is called as its parameter."""
    return typer.Option(*names, help=help_text, metavar=metavar, rich_help_panel=panel, **more)


#: The batch of a question that does not depend on it: commands are pasted from one to another.
ANY_BATCH = option(
    QUESTION, "Taken as other commands take it; changes nothing here.", "--batch", metavar="N,..."
)


def form_option(words: str, default: str) -> Any:
    """Declare the format of an answer."""
    return option(OUTPUT_PANEL, f"{words}.  [{default}]", "--format", metavar="WORD")


def _dtype_option(panel: str, help_text: str) -> Any:
    return option(panel, help_text, metavar="FORMAT", autocompletion=completion.formats)


OUTPUT = option(
    OUTPUT_PANEL, "Write to FILE; its ending sets the format.", "-o", "--output", metavar="FILE"
)
#: The formats of every answer.
FORMATS = form_option("table, json, csv, markdown", "by FILE; table")
#: The formats of a list or a record.
LISTED = typer.Option("--format", metavar="WORD", help="table, json, csv, markdown.")
MODEL = typer.Argument(
    metavar="MODEL",
    help="A bundled id, or a path: config.json, its folder, GGUF, YAML.",
    autocompletion=completion.models,
    rich_help_panel=QUESTION,
)
GPU = option(
    QUESTION,
    "A bundled id, or a path to a profile.",
    metavar="NAME",
    autocompletion=completion.gpus,
)
GPU_HOUR = option(LOAD, "Price of one GPU for an hour: gives $/M tokens.", metavar="USD")
TP = option(QUESTION, "Tensor-parallel GPUs.", metavar="N")


def question(
    model: Annotated[str, MODEL],
    gpu: Annotated[str, GPU] = "h100-sxm",
    tp: Annotated[int, TP] = 1,
    ep: Annotated[
        int, option(PLACEMENT, "Groups of those GPUs that experts are placed on.", metavar="N")
    ] = 1,
    dp_attention: Annotated[
        int,
        option(
            PLACEMENT,
            "Attention data-parallel groups of those GPUs.",
            metavar="N",
        ),
    ] = 1,
    gpus: Annotated[
        int,
        option(PLACEMENT, "Cards joined by the slots of one machine (llamacpp).", metavar="N"),
    ] = 1,
    split: Annotated[
        str | None,
        option(
            PLACEMENT,
            "How those cards share the model: layer, row, tensor.  [layer]",
            metavar="HOW",
        ),
    ] = None,
    tensor_split: Annotated[
        str | None,
        option(PLACEMENT, "Shares of the layers by card: 3,1.  [even]", metavar="N,N"),
    ] = None,
    cpu_experts: Annotated[
        str | None,
        option(
            PLACEMENT,
            "First layers whose experts stay in CPU memory: 24, all.",
            metavar="N",
        ),
    ] = None,
    host: Annotated[
        str | None,
        option(
            PLACEMENT,
            "The machine: desktop-ddr4, desktop-ddr5, workstation-ddr5, server-ddr5 or a "
            "YAML file.  [desktop-ddr5]",
            metavar="NAME",
            autocompletion=completion.hosts,
        ),
    ] = None,
    pp: Annotated[
        int, option(PLACEMENT, "Pipeline stages, each on --tp GPUs (experimental).", metavar="N")
    ] = 1,
    pp_in_flight: Annotated[
        int,
        option(
            PLACEMENT,
            "Micro-batches under way at once; the batch is shared among them (experimental).",
            metavar="N",
        ),
    ] = 1,
    drafter_on: Annotated[
        str | None,
        option(
            PLACEMENT,
            "Where the drafter lies: last, all (stages), own (a GPU; experimental).  [last]",
            metavar="WHERE",
        ),
    ] = None,
    link: Annotated[
        str | None,
        option(
            PLACEMENT,
            "Slots that join the GPUs: pcie4x16 (experimental).  [the GPU's own links]",
            metavar="SLOT",
        ),
    ] = None,
    nodes: Annotated[
        int, option(PLACEMENT, "Nodes that the GPUs lie on (experimental).", metavar="N")
    ] = 1,
    internode: Annotated[
        str | None,
        option(
            PLACEMENT,
            "What a link between nodes carries for each GPU, in GB/s.  [50, assumed]",
            metavar="RATE",
        ),
    ] = None,
    power_cap: Annotated[
        str | None,
        option(PLACEMENT, "Watts that each GPU may draw (experimental).", metavar="W"),
    ] = None,
    drafter: Annotated[
        str | None,
        option(
            QUESTION,
            "none, ngram, suffix, mtp, a kind of head (eagle1, eagle3, medusa, dflash, "
            "dspark, domino, peagle), a model id or a path.  [own MTP layer, else a bundled head]",
            metavar="NAME",
            autocompletion=completion.drafters,
        ),
    ] = None,
    acceptance: Annotated[
        str | None,
        typer.Option(
            help="0.8 at every position | survival:0.72,0.45,0.21 by position, as engines print "
            "it | conditional:0.8,0.7,0.6 | rate:3=0.54 accepted over drafted at D = 3 | "
            "al:3=2.31 tokens per step | drafting:... counted over drafting passes | ID | "
            "mix:0.7*ID,0.3*ID | FILE | http://HOST/metrics  "
            "[expected of public runs]",
            metavar="CURVE",
            rich_help_panel=QUESTION,
            autocompletion=completion.curves,
        ),
    ] = None,
    acceptance_rounds: Annotated[
        int | None,
        option(
            DRAFTER,
            "Verify passes behind the acceptance: its sampling error.  [exact]",
            metavar="N",
        ),
    ] = None,
    hit_rate: Annotated[
        str | None,
        option(
            DRAFTER,
            "Share of passes in which ngram or suffix finds a draft; where drafts stop early, the "
            "share that verifies a draft at each position: 0.95,0.8.  [counted, else expected]",
            metavar="SHARES",
        ),
    ] = None,
    domain: Annotated[
        str | None,
        option(
            DRAFTER,
            "What the prompts are: chat, code, math, knowledge, summary, creative, multilingual, "
            "translation, agentic, mixed.  [unknown]",
            metavar="NAME",
            autocompletion=completion.domains,
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        option(
            DRAFTER,
            "A public data set that the prompts are like: mt-bench, humaneval, gsm8k.  [unknown]",
            metavar="NAME",
            autocompletion=completion.datasets,
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        option(DRAFTER, "Temperature of sampling; 0: greedy.  [unknown]", metavar="T"),
    ] = None,
    max_draft_length: Annotated[
        int | None, option(DRAFTER, "Longest draft to consider.", metavar="D")
    ] = 8,
    extrapolate: Annotated[
        bool,
        option(DRAFTER, "Gone: curves are continued without it.", "--extrapolate", hidden=True),
    ] = False,
    weights: Annotated[str | None, _dtype_option(QUESTION, f"Layer weights: {_DTYPES}.")] = None,
    activations: Annotated[
        str | None,
        _dtype_option(FORMATS_PANEL, "Format of the products, where the GPU has it."),
    ] = None,
    kv: Annotated[str | None, _dtype_option(QUESTION, "KV cache format (storage only).")] = None,
    draft_tp: Annotated[
        int | None, option(DRAFTER, "GPUs the drafter runs on.  [as --tp]", metavar="N")
    ] = None,
    draft_weights: Annotated[
        str | None, _dtype_option(FORMATS_PANEL, "The drafter's weights.")
    ] = None,
    verify_attention: Annotated[
        str | None,
        option(
            EXPERT,
            "How verify reads KV: kv_once, tile, head_tile, kv_per_tile, kv_per_query.  "
            "[the engine's]",
            metavar="HOW",
        ),
    ] = None,
    state_handling: Annotated[
        str,
        option(
            EXPERT,
            "How verify keeps states of linear mixers: snapshots, replay.",
            metavar="HOW",
        ),
    ] = "snapshots",
    routing_skew: Annotated[
        float | None,
        option(EXPERT, "Expert popularity ~ rank^-S; 0: uniform.  [fitted]", metavar="S"),
    ] = None,
    routing_correlation: Annotated[
        float | None,
        option(EXPERT, "Chance that a draft reuses the last experts.  [0]", metavar="P"),
    ] = None,
    memory_fraction: Annotated[
        float | None,
        option(ENGINE, "Share of memory the engine takes.  [the engine's]", metavar="SHARE"),
    ] = None,
    engine: Annotated[
        str | None,
        option(
            QUESTION,
            "vllm, sglang, trtllm, llamacpp; vllm@2025 for an era; or a YAML file.",
            metavar="NAME",
            autocompletion=completion.engines,
        ),
    ] = "vllm",
    overhead_ms: Annotated[
        str | None,
        option(
            ENGINE,
            "Own ms around a plain step, a round, a draft pass: 0.5,0.7,0.15.",
            metavar="MS,MS,MS",
        ),
    ] = None,
    verify_width: Annotated[
        int | None,
        option(EXPERT, "Rows of a sequence in a tree's verify.  [1 + D]", metavar="N"),
    ] = None,
    tree_topk: Annotated[
        int, option(EXPERT, "Branches of a tree's draft passes.", metavar="N")
    ] = 1,
    draft_block: Annotated[
        int | None,
        option(EXPERT, "Block of a block drafter as deployed.  [its own]", metavar="N"),
    ] = None,
    first_pass_rows: Annotated[
        float | None,
        option(
            EXPERT, "Rows of a sequence in the first draft pass.  [padded to 1 + D]", metavar="N"
        ),
    ] = None,
    prefill_tokens_per_step: Annotated[
        float,
        option(
            ENGINE,
            "Prompt tokens of a mean pass; they ride as whole chunks in some.  [0]",
            metavar="N",
            show_default=False,
        ),
    ] = 0.0,
    overrides: Annotated[
        list[str] | None,
        option(
            EXPERT,
            "Change a value: group_size=4, attention.num_kv_heads=4, drafter.layers=2, "
            "gpu.memory.bandwidth='4 TB/s'; repeat for each.",
            "--set",
            metavar="PATH=VALUE",
        ),
    ] = None,
) -> tuple[Configuration, Workload]:
    """Return configuration and workload of these options, at the default batch and context."""
    from roofline.advice.configuration import question_from

    return question_from(
        model=model,
        gpu=gpu,
        tp=tp,
        ep=ep,
        dp_attention=dp_attention,
        gpus=gpus,
        split=split,
        tensor_split=tensor_split,
        cpu_experts=cpu_experts,
        host=host,
        pp=pp,
        pp_in_flight=pp_in_flight,
        drafter_on=drafter_on,
        link=link,
        nodes=nodes,
        internode=internode,
        power_cap=power_cap,
        drafter=drafter,
        acceptance=acceptance,
        acceptance_rounds=acceptance_rounds,
        hit_rate=hit_rate,
        domain=domain,
        dataset=dataset,
        temperature=temperature,
        max_draft_length=max_draft_length,
        extrapolate=extrapolate,
        weights=weights,
        activations=activations,
        kv=kv,
        draft_tp=draft_tp,
        draft_weights=draft_weights,
        verify_attention=verify_attention,
        state_handling=state_handling,
        routing_skew=routing_skew,
        routing_correlation=routing_correlation,
        memory_fraction=memory_fraction,
        engine=engine,
        overhead_ms=overhead_ms,
        verify_width=verify_width,
        tree_topk=tree_topk,
        draft_block=draft_block,
        first_pass_rows=first_pass_rows,
        prefill_tokens_per_step=prefill_tokens_per_step,
        set=overrides,
    )


#: The tuning file whose timings a question takes.
TUNED = Annotated[
    Path | None,
    option(
        DRAFTER,
        "Step times and acceptance after the timings of a tuning file ('roofline tune'); it says "
        "the question too, so only loads are typed beside it.",
        "--tuned",
        metavar="FILE",
    ),
]


def asks(
    *leave_out: str, tuned: bool = False, **defaults: object
) -> Callable[[Callable[..., None]], Any]:
    """Give a command the options of ``question``; it receives configuration and workload first.

    ``leave_out`` names options that the command does not take or has its own for; ``defaults`` are
    other defaults. With ``tuned`` the question may come from a tuning file.
    """
    shared = {
        name: parameter.replace(default=defaults.get(name, parameter.default))
        for name, parameter in inspect.signature(question, eval_str=False).parameters.items()
        if name not in leave_out
    }

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(command, eval_str=False).parameters.values())[2:]

        @functools.wraps(command)
        def run(**values: Any) -> None:
            file = values.pop("tuned") if tuned else None
            if file is not None:
                from roofline.questions.tune.asked import tuned_question

                typed = given_by_flag(values["options"]) & set(shared)
                asked = tuned_question(file, {n: v for n, v in values.items() if n in typed})
                command(*asked, **{n: v for n, v in values.items() if n not in shared})
                return
            no_model: dict[str, Any] = {"model": ""} if "model" in leave_out else {}
            configuration, workload = question(
                **no_model, **{name: values.pop(name) for name in shared}
            )
            command(configuration, workload, **values)

        taken = [*shared.values(), *own]
        annotations = hints(question) | hints(command)
        if tuned:
            taken.append(inspect.Parameter("tuned", inspect.Parameter.KEYWORD_ONLY, default=None))
            annotations["tuned"] = TUNED
        parameters = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in taken]
        return show_parameters(run, [p.replace(annotation=annotations[p.name]) for p in parameters])

    return wrap


def show_parameters(
    run: Callable[..., None], parameters: list[inspect.Parameter]
) -> Callable[..., None]:
    """Let Typer see these parameters on a command that takes any keywords."""
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del run.__wrapped__  # type: ignore[attr-defined]
    return run


#: What stands in for the types of a question, which Typer does not need.
_PLACEHOLDERS = {"Configuration": object, "Workload": object}


@functools.cache  # every command asks for those of the question
def hints(command: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a command's options."""
    return get_type_hints(command, localns=_PLACEHOLDERS, include_extras=True)


@functools.cache  # a sweep asks for each value of each axis
def option_types() -> dict[str, Any]:
    """Return the type of every option of a question."""
    return get_type_hints(question, localns=_PLACEHOLDERS)


def price(gpu_hour: str | None) -> float | None:
    """Read the price of a GPU for an hour [$]."""
    if gpu_hour is None:
        return None
    return amount("gpu_hour", gpu_hour, DOLLARS, "dollars such as 2.5")


def asks_grid(command: Callable[..., None]) -> Any:
    """Give a command the options of ``question``, each with several values: the axes of a grid.

    The command receives their texts by name first. Every option may be given several times; the
    model may be left to a file.
    """
    types, annotations = option_types(), hints(question)
    own = list(inspect.signature(command, eval_str=False).parameters.values())[1:]
    own_annotations = hints(command)
    shared = {}
    for name, parameter in inspect.signature(question, eval_str=False).parameters.items():
        option = annotations[name].__metadata__[0]
        kind: Any = list[str] | None
        if name == "model":
            kind = str | None
            option = typer.Argument(
                metavar=option.metavar,
                help=f"One or more, with commas. {option.help}",
                autocompletion=option.autocompletion,
                rich_help_panel=option.rich_help_panel,
            )
        elif types[name] is bool:
            kind = bool
        default = False if kind is bool else None
        shared[name] = parameter.replace(annotation=Annotated[kind, option], default=default)

    @functools.wraps(command)
    def run(**values: Any) -> None:
        flags = {name: values.pop(name) for name in shared}
        if flags["model"] is not None:
            flags["model"] = [flags["model"]]
        command(flags, **values)

    parameters = [
        *(parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in shared.values()),
        *(parameter.replace(annotation=own_annotations[parameter.name]) for parameter in own),
    ]
    return show_parameters(run, parameters)


#: The endings of charts.
_CHARTS = (".png", ".svg", ".pdf")


def format_for(
    form: str | None, output: Path | None, *, kinds: type[Choice], chart: str = ""
) -> Choice:
    """Return the output format: the one given, else that of the file's ending, else a table.

    ``chart`` is the option that draws a chart of the answer, where the command has one.
    """
    by_suffix = None
    if output is not None:
        known = set(kinds)  # equal to their words
        suffixes = {end: kind for end, kind in _ENDINGS.items() if kind in known}
        by_suffix = suffixes.get(output.suffix.lower())
        if by_suffix is None and form is None:
            drawn = f"{chart} {output}" if chart else f"'roofline plot CHART ... -o {output}'"
            how = f"; {drawn} draws a chart" if output.suffix.lower() in _CHARTS else ""
            raise InputError(
                f"-o {output}: expected a name ending in {', '.join(suffixes)}, or --format{how}"
            )
        by_name = set(suffixes.values()) - {"table"}  # a .txt may hold any text
        if by_suffix in by_name and form in set(suffixes.values()) - {by_suffix}:
            raise InputError(
                f"-o {output}: its ending says {by_suffix}, --format says {form}; give one of them"
            )
    return choice("format", form or by_suffix or "table", kinds)


INTERVAL = Annotated[
    str,
    option(
        SERVER,
        "Time that counters are watched: 30s, 5m; 0 reads once, since its start.",
        metavar="TIME",
    ),
]
TIMEOUT = Annotated[
    str,
    option(SERVER, "Time allowed for all of the server's answers together.", metavar="TIME"),
]


def given_by_flag(context: typer.Context) -> frozenset[str]:
    """Return the names of the options that the user gave."""
    return frozenset(
        name
        for name in context.params
        if (source := context.get_parameter_source(name)) is not None and source.name != "DEFAULT"
    )
