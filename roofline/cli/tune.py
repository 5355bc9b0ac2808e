"""``roofline tune``: two or three timings to the best draft length."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roofline.base.errors import InputError
from roofline.base.values import batches_in_order, one_size
from roofline.cli.panels import MEASUREMENT, QUESTION
from roofline.cli.panels import OUTPUT as OUTPUT_PANEL
from roofline.cli.printing import emit_answer, help_if_bare, talk
from roofline.cli.question import (
    FORMATS,
    OUTPUT,
    asks,
    format_for,
    given_by_flag,
    option,
    option_types,
)

if TYPE_CHECKING:
    from roofline.advice.configuration import Configuration, Workload
    from roofline.advice.question import Question
    from roofline.questions.tune.file import Timed
    from roofline.questions.tune.running import Budget, Program, Prompt
    from roofline.questions.tune.tune import Doubt, Tuned

app = typer.Typer(
    help="Find the best draft length by two or three timings.\n\n"
    "start says what to time first, add takes what came out, status says what to run; run does "
    "all of it with an engine on this machine.",
    callback=help_if_bare,
    invoke_without_command=True,
)

_BATCH, _CONTEXT = "1", "4k"
#: Tokens of a prompt that is made up.
MADE_UP = 64
_FILE = typer.Argument(metavar="FILE", help="The tuning file.", rich_help_panel=QUESTION)


@app.command("start")
@asks()
def start(
    configuration: Configuration,
    workload: Workload,
    *,
    batch: Annotated[
        str,
        option(QUESTION, "Sequences decoded together: 8 or 1,8,64.", metavar="N,..."),
    ] = _BATCH,
    context: Annotated[
        str, option(QUESTION, "Tokens in the KV cache of the timings.", metavar="N")
    ] = _CONTEXT,
    running: Annotated[
        int | None,
        option(QUESTION, "The draft length that runs already: it is timed first.", metavar="D"),
    ] = None,
    hold_acceptance: Annotated[
        bool,
        option(
            QUESTION,
            "Make the engine accept what is expected: step times are timed without a data set.",
            "--hold-acceptance",
        ),
    ] = False,
    file: Annotated[
        Path,
        option(OUTPUT_PANEL, "The tuning file to write.", "-o", "--output", metavar="FILE"),
    ] = Path("tune.yaml"),
    force: Annotated[
        bool, option(OUTPUT_PANEL, "Begin anew where the file exists.", "--force")
    ] = False,
    form: Annotated[str | None, FORMATS] = None,
    options: typer.Context,
) -> None:
    """Begin a tuning file: say what to time first, why, and how.

    Example: roofline tune start qwen3-8b --gpu h100-sxm --batch 8 -o t.yaml
    """
    from roofline.questions.tune.file import TuningFile, save_tuning
    from roofline.render.tune import as_answer
    from roofline.render.writers import OutputFormat

    how = format_for(form, None, kinds=OutputFormat)
    if file.exists() and not force:
        raise InputError(f"-o {file}: exists; go on with 'roofline tune status {file}', or --force")
    acceptance = options.params.get("acceptance") or ""
    if "://" in acceptance or acceptance == "-":
        raise InputError(
            "a tuning file keeps what it was begun with; give the file that 'roofline acceptance "
            f"read {'-' if acceptance == '-' else 'URL'} -o FILE' writes",
            field="acceptance",
        )
    known = {*option_types(), "batch", "context"} - {"return"}
    typed = {
        name: options.params[name]
        for name in sorted(known)
        if name in given_by_flag(options) and options.params[name] is not None
    }
    asked = _asked(configuration, workload, batch=batch, context=context)
    tuned = _tuned(asked, (), running, hold_acceptance)
    engine = asked.deployment.engine.reference
    begun = TuningFile.begin(typed, engine=engine, running=running, held=hold_acceptance)
    save_tuning(file, begun)
    emit_answer(as_answer(tuned, file), how)
    talk([f"wrote {file}"])


@app.command("add")
def add(
    file: Annotated[Path, _FILE],
    result: Annotated[
        Path | None,
        typer.Argument(
            metavar="[RESULT]",
            help="What a benchmark wrote: vllm bench, SGLang's, trtllm-bench, llama-bench, a "
            "server's timings, a metrics page; or a CSV with draft_length and tokens_per_s.",
            rich_help_panel=MEASUREMENT,
        ),
    ] = None,
    draft_length: Annotated[
        int | None, option(MEASUREMENT, "The draft length that was timed.", metavar="D")
    ] = None,
    tokens_per_s: Annotated[
        float | None,
        option(MEASUREMENT, "Tokens per second of decoding, prompts left out.", metavar="RATE"),
    ] = None,
    tokens_per_step: Annotated[
        float | None,
        option(
            MEASUREMENT,
            "Mean tokens of a verify pass, the bonus token included, if printed.",
            metavar="AL",
        ),
    ] = None,
    held: Annotated[
        float | None,
        option(
            MEASUREMENT,
            "Tokens per step that the engine was made to accept: the speed tells of steps alone.",
            metavar="AL",
        ),
    ] = None,
    batch: Annotated[
        int | None, option(MEASUREMENT, "Sequences at once.  [the question's]", metavar="N")
    ] = None,
    repeats: Annotated[
        int | None, option(MEASUREMENT, "Runs that this is the mean of.  [1]", metavar="N")
    ] = None,
    earlier: Annotated[
        Path | None,
        option(MEASUREMENT, "The metrics page from before the run; RESULT is that after it."),
    ] = None,
    output_tokens: Annotated[
        int | None,
        option(MEASUREMENT, "Tokens that each request generated, if not said.", metavar="N"),
    ] = None,
    force: Annotated[
        bool, option(MEASUREMENT, "Take a result that contradicts what is believed.", "--force")
    ] = False,
    form: Annotated[str | None, FORMATS] = None,
    output: Annotated[Path | None, OUTPUT] = None,
) -> None:
    """Add what a timing gave, and say what to do now.

    Example: roofline tune add t.yaml --draft-length 3 --tokens-per-s 812
    """
    from roofline.questions.tune.asked import question_in
    from roofline.questions.tune.file import add_timings, load_tuning
    from roofline.questions.tune.results import check_new, typed_result
    from roofline.render.tune import as_answer, doubt_line
    from roofline.render.writers import OutputFormat

    how = format_for(form, output, kinds=OutputFormat)
    tuning = load_tuning(file)
    asked = question_in(tuning, file)
    own = asked.workload.batches
    at = batch if batch is not None else own[0] if len(own) == 1 else None
    typed = {
        "tokens_per_s": tokens_per_s,
        "tokens_per_step": tokens_per_step,
        "held": held,
        "repeats": repeats,
    }
    of_file = {"earlier": earlier, "output_tokens": output_tokens}
    for name, value in (of_file if result is None else typed).items():
        if value is not None:
            rest = "the file RESULT" if result is None else "typed timings"
            raise InputError(f"belongs to {rest}; leave one of them out", field=name)
    results = (
        (typed_result(**typed, draft_length=draft_length, batch=at),)
        if result is None
        else _read(result, asked, draft_length=draft_length, batch=batch, force=force, **of_file)
    )
    tuned = _tuned(asked, tuning.timings, tuning.running, tuning.held)
    for each in results:
        if not force:
            check_new(each, tuned.timings)
        found = _doubted(tuned, each)
        if found and not force:
            said = "; ".join(doubt_line(doubt) for doubt in found[:1])
            raise InputError(f"{said} Nothing was added; --force adds it")
        talk([f"Taken in spite of doubt: {doubt_line(doubt)}" for doubt in found])
        tuned = _tuned(asked, (*tuned.timings, each), tuning.running, tuning.held)
    add_timings(file, results)
    emit_answer(as_answer(tuned, file), how, output)


@app.command("status")
def status(
    file: Annotated[Path, _FILE],
    form: Annotated[str | None, FORMATS] = None,
    output: Annotated[Path | None, OUTPUT] = None,
) -> None:
    """Say what to run, what it promises, and what another timing is worth.

    Example: roofline tune status t.yaml
    """
    from roofline.questions.tune.asked import question_in
    from roofline.questions.tune.file import load_tuning
    from roofline.render.tune import as_answer
    from roofline.render.writers import OutputFormat

    how = format_for(form, output, kinds=OutputFormat)
    tuning = load_tuning(file)
    tuned = _tuned(question_in(tuning, file), tuning.timings, tuning.running, tuning.held)
    emit_answer(as_answer(tuned, file), how, output)


@app.command("run")
def run(
    file: Annotated[Path, _FILE],
    server: Annotated[
        str,
        option(
            MEASUREMENT,
            "What starts the engine here, without drafts and address: 'llama-server -m a.gguf'.",
            metavar="COMMAND",
        ),
    ],
    prompts: Annotated[
        Path | None,
        option(
            MEASUREMENT,
            'Your prompts, one a line, as text or {"prompt": "..."}.  [made up: no acceptance '
            "of yours]",
            metavar="FILE",
        ),
    ] = None,
    timings: Annotated[int, option(MEASUREMENT, "Timings at most.", metavar="N", min=1)] = 4,
    requests: Annotated[int, option(MEASUREMENT, "Requests of a timing.", metavar="N", min=1)] = 32,
    output_tokens: Annotated[
        int, option(MEASUREMENT, "Tokens that each request generates.", metavar="N", min=2)
    ] = 128,
    seconds: Annotated[
        float, option(MEASUREMENT, "Seconds of load of a timing at most.", metavar="S")
    ] = 300.0,
    form: Annotated[str | None, FORMATS] = None,
    output: Annotated[Path | None, OUTPUT] = None,
) -> None:
    """Time draft lengths on this machine until no timing is worth it: start, load, read, stop.

    Example: roofline tune run t.yaml --server "llama-server -m a.gguf"
    """
    from roofline.questions.tune.asked import question_in
    from roofline.questions.tune.file import add_timings, load_tuning
    from roofline.questions.tune.running import Budget, Program, read_prompts
    from roofline.questions.tune.tune import Verdict
    from roofline.render.tune import as_answer, doubt_line, timed_line
    from roofline.render.writers import OutputFormat

    how = format_for(form, output, kinds=OutputFormat)
    tuning = load_tuning(file)
    asked = question_in(tuning, file)
    program = Program(command=_words(server))
    budget = Budget(requests=requests, output=output_tokens, seconds=seconds)
    own = None if prompts is None else read_prompts(prompts)
    tuned = _tuned(asked, tuning.timings, tuning.running, tuning.held)
    for _ in range(timings):
        if tuned.verdict is Verdict.DEPLOY:
            break
        add_timings(file, ())  # refuses a file that cannot be written before the time is spent
        timed = _time(tuned, file, program=program, prompts=own, budget=budget)
        talk([timed_line(timed)])
        talk([f"Taken in spite of doubt: {doubt_line(each)}" for each in _doubted(tuned, timed)])
        tuned = _tuned(asked, add_timings(file, (timed,)).timings, tuning.running, tuning.held)
    emit_answer(as_answer(tuned, file), how, output)


def _words(command: str) -> tuple[str, ...]:
    """Return the words of a command as a shell reads them."""
    import shlex

    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        raise InputError(f"expected a command: {error}", field="server", value=command) from None


def _time(
    tuned: Tuned, file: Path, *, program: Program, prompts: list[Prompt] | None, budget: Budget
) -> Timed:
    """Time what is worth most next; the server's log lies beside the tuning file."""
    from roofline.questions.tune.results import timed_of
    from roofline.questions.tune.running import made_up_prompts, time_draft_length

    question, batch = tuned.question, tuned.next_batch
    length = tuned.next_timing.candidate.draft_length
    context = question.workload.contexts[0]
    log = file.with_suffix(f".D{length}-b{batch}.log")
    talk([f"Timing draft length {length} at batch {batch}; the server's log is {log}."])
    found = time_draft_length(
        question.deployment.launch,
        length,
        batch,
        program=program,
        prompts=prompts or made_up_prompts(budget.requests, min(context, MADE_UP)),
        context=context,
        budget=budget,
        log=log,
        held=tuned.held_tokens,
    )
    return timed_of(
        replace(found, model=None),  # it was started here
        engine=question.deployment.engine.id,
        models=(),
        batches=tuned.batches,
        batch=batch,
        source="tune run",
    )


def _read(
    result: Path,
    asked: Question,
    *,
    draft_length: int | None,
    batch: int | None,
    force: bool,
    **of_file: Any,
) -> tuple[Timed, ...]:
    """Return the timings in a benchmark's result."""
    from roofline.advice.drafter import model_names
    from roofline.engines.bench import read_benches
    from roofline.questions.tune.results import timed_of

    found = read_benches(result, draft_length=draft_length, concurrency=batch, **of_file)
    return tuple(
        timed_of(
            each,
            engine=asked.deployment.engine.id,
            models=tuple(model_names(asked.deployment.target.model)),
            batches=asked.workload.batches,
            batch=batch,
            source=result.name,
            force=force,
        )
        for each in found
    )


def _tuned(asked: Question, timings: tuple[Timed, ...], running: int | None, held: bool) -> Tuned:
    from roofline.questions.tune.tune import tune

    return tune(asked, timings, running=running, held=held)


def _doubted(tuned: Tuned, timed: Timed) -> list[Doubt]:
    from roofline.questions.tune.tune import check, doubts

    check(tuned, timed)
    return doubts(tuned, timed)


def _asked(
    configuration: Configuration, workload: Workload, *, batch: str, context: str
) -> Question:
    from roofline.advice.question import ask

    batches = batches_in_order("batch", batch)
    contexts = (one_size("context", context, "one context, such as 4k"),)
    return ask(configuration, replace(workload, batches=batches, contexts=contexts))
