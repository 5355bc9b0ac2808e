"""The page of what was executed, what was stubbed and what is restated only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Template

from workshop.proof.environment import VERSIONS
from workshop.proof.judge import Judged
from workshop.proof.served import LLAMACPP, Results, TunedRun

__all__ = ["PAGE", "page", "tuned", "write_served"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explain" / "engines-proof.md"
NAMES = {"vllm": "vLLM", "sglang": "SGLang"}
#: By engine: what of its code runs, beside what stands in for the rest.
EXECUTED = {
    "vllm": (
        "argument parser; `SpeculativeConfig` with its checks and its overrides of checkpoints' "
        "configs; reader of schedules; choice of the model runner; what switches a schedule off; "
        "CUDA-graph mode; metrics page and log lines; parsers of `vllm bench serve` and `latency`"
    ),
    "sglang": (
        "argument parser; `speculative_hook`; loader of adaptive schedules and its steps by batch; "
        "the variables that hold acceptance; reporter and collectors of metrics; parsers of its "
        "benchmark clients"
    ),
}
#: By engine: what is only read in its sources.
RESTATED = {
    "vllm": "that kernels and graphs run; what a GPU does with a text",
    "sglang": "what a GPU does with a text",
}
TEMPLATE = Path(__file__).with_name("page.md")


def page(verdicts: Sequence[Judged], stubbed: Mapping[str, Sequence[str]]) -> str:
    """Return the page."""
    parts = {
        "counts": _counts(verdicts),
        "columns": _columns(stubbed),
        "stubbed": _stubbed(stubbed),
    } | _served_parts()
    texts = {name: "\n".join(lines) for name, lines in parts.items()}
    return Template(TEMPLATE.read_text("utf-8")).substitute(texts)


def _counts(verdicts: Sequence[Judged]) -> Iterator[str]:
    yield "| engine | what | texts | taken as meant | refused as said |"
    yield "|---|---|---|---|---|"
    groups = Counter((each.engine, each.group) for each in verdicts)
    for (engine, group), count in groups.items():
        own = [each for each in verdicts if (each.engine, each.group) == (engine, group)]
        refused = sum(not each.wrong and each.said.startswith("refused") for each in own)
        taken = sum(not each.wrong for each in own) - refused
        yield f"| {NAMES[engine]} {VERSIONS[engine]} | {group} | {count} | {taken} | {refused} |"


def _columns(stubbed: Mapping[str, Sequence[str]]) -> Iterator[str]:
    yield "| engine | executed | stubbed | restated |"
    yield "|---|---|---|---|"
    for engine, parts in stubbed.items():
        name = f"{NAMES[engine]} {VERSIONS[engine]}"
        listed = "; ".join(part.split(":")[0] for part in parts)
        yield f"| {name} | {EXECUTED[engine]} | {listed} | {RESTATED[engine]} |"


def _stubbed(stubbed: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for engine, parts in stubbed.items():
        yield from (f"- {NAMES[engine]}: {part}." for part in parts)


#: The heading of the part that servers fill, which ends the page.
SERVED = "## Served on a processor\n"


def write_served() -> None:
    """Write the servers' part of the page anew, and leave the rest as it is."""
    rest, _, _ = PAGE.read_text("utf-8").partition(SERVED)
    _, _, part = TEMPLATE.read_text("utf-8").partition(SERVED)
    texts = {name: "\n".join(lines) for name, lines in _served_parts().items()}
    rest = rest.rstrip("\n")
    PAGE.write_text(f"{rest}\n\n{SERVED}{Template(part).substitute(texts)}", "utf-8")


def _served_parts() -> dict[str, Iterator[str]]:
    return {
        "served": _served("vLLM", Results.load()),
        "llamacpp": _served("llama.cpp", Results.load(LLAMACPP)),
        "tuned": tuned(TunedRun.load().values()),
    }


def _served(engine: str, results: Results) -> Iterator[str]:
    yield f"| {engine} {results.version} on the CPU | what | read | counted or meant |"
    yield "|---|---|---|---|"
    for check in results.checks:
        read = check.read.replace("|", "\\|") + ("" if check.ok else " (**wrong**)")
        yield f"| {check.server} | {check.about} | {read} | {check.truth} |"
    if results.not_served:
        yield ""
        yield "Not served, by the reason that the engine or its packages give:"
        yield ""
        yield from (f"- {server}: `{why}`" for server, why in results.not_served.items())


def tuned(runs: Iterable[TunedRun]) -> Iterator[str]:
    """Yield of each run what the commands printed, and the sweep that was timed afterwards."""
    for run in runs:
        yield "```text"
        yield from run.printed
        yield "```"
        yield ""
        yield f"| {run.engine}, tokens/s | {' | '.join(f'D = {d}' for d in run.speeds)} |"
        yield "|" + "---|" * (1 + len(run.speeds))
        for number, speeds in enumerate(zip(*run.sweep.values(), strict=True), start=1):
            yield f"| round {number} | {' | '.join(f'{speed:.2f}' for speed in speeds)} |"
        yield ""
        lost = f"{100 * run.loss:.1f} % below the best of the sweep, D = {run.best}"
        chosen = "the best of the sweep" if run.choice == run.best else lost
        count = f"{run.timings} timings in {run.seconds:.0f} s"
        yield f"{run.engine}: {count} chose D = {run.choice}, {chosen}."
        yield ""
