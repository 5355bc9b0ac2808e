"""``python -m workshop.reference_page``: write docs/reference.md from the code.

Commands and options are those that Typer has, columns those of a sweep, constants those that ship.
The rest stands in the template beside this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from roofline.advice.decide import TIE
from roofline.base.resources import bundled_names
from roofline.cli.app import app
from roofline.questions.sweep.columns import columns_table
from roofline.specs.engine import ENGINE_SHELF, EngineProfile, load_engine
from roofline.specs.engine_versions import NamedFacts, VersionRange
from roofline.specs.priors import priors

__all__ = ["commands", "main", "page"]

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference.md"
#: A command that takes this option asks a question of a deployment.
OF_A_QUESTION = "--set"
#: More commands than this are named by those that are missing.
FEW = 6
#: The panel of options that name none.
NO_PANEL = "Of other commands"
HELP = "--help"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """Return the template with its tables filled in."""
    text = Path(__file__).with_suffix(".md").read_text("utf-8")
    parts = {
        "commands": _commands_table(),
        "options": _options(),
        "columns": columns_table(),
        "priors": _priors(),
        "generations": _generations(),
        "engines": _engines(),
        "facts": _facts(),
        "errors": _errors(),
    }
    for name, part in parts.items():
        text = text.replace(f"<!-- {name} -->", part)
    return text


def commands(command: Any = None, path: str = "roofline") -> Iterator[tuple[str, Any]]:
    """Yield (full name, command) of the program, its groups and all commands below them."""
    command = typer.main.get_command(app) if command is None else command
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, f"{path} {name}")


@dataclass
class _Row:
    """One option as one or more commands describe it."""

    name: str
    meaning: str
    defaults: set[str] = field(default_factory=set)
    commands: list[str] = field(default_factory=list)


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a pipe table whose columns lie to the left."""
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _plain(text: str) -> str:
    """Return a text of the help as one of a table, its marks taken literally."""
    return re.sub(r"([|*<])", r"\\\1", " ".join(text.split()))


def _commands_table() -> str:
    rows = []
    for path, command in commands():
        if hasattr(command, "commands"):
            continue
        names = [_argument(p) for p in command.params if p.param_type_name == "argument"]
        sentence = re.split(r"(?<=[.:])\s", command.help.strip(), maxsplit=1)[0].rstrip(":.")
        rows.append([f"`{' '.join([path, *names])}`", _plain(sentence)])
    return _table(["command", "what it does"], rows)


def _argument(parameter: Any) -> str:
    name = re.sub(r"[^\w]", "", parameter.metavar or parameter.name).upper()
    return name if parameter.required else f"[{name}]"


def _options() -> str:
    """Return a table for each panel: each option once, and the commands that take it."""
    panels: dict[str, dict[tuple[str, str], _Row]] = {}
    asking, groups = [], _groups()
    for path, command in commands():
        short = path.removeprefix("roofline").strip() or "roofline"
        if any(OF_A_QUESTION in parameter.opts for parameter in command.params):
            asking.append(short)
        for parameter in command.params:
            if HELP in parameter.opts or getattr(parameter, "hidden", False):
                continue
            name, meaning, default = _described(parameter, command)
            panel = getattr(parameter, "rich_help_panel", None) or NO_PANEL
            rows = panels.setdefault(panel, {})
            row = rows.setdefault((_flag(name), meaning), _Row(name, meaning))
            row.defaults |= {default} - {""}
            row.commands.append(short)
    panels[NO_PANEL] = panels.pop(NO_PANEL)  # stands last
    return "\n\n".join(
        f"### {panel}\n\n{_panel(rows.values(), asking, groups)}" for panel, rows in panels.items()
    )


def _groups() -> dict[str, list[str]]:
    """Return the commands of each group."""
    groups: dict[str, list[str]] = {}
    for path, _ in commands():
        _, _, name = path.partition(" ")
        if " " in name:
            groups.setdefault(name.split(" ")[0], []).append(name)
    return groups


def _panel(rows: Iterable[_Row], asking: Sequence[str], groups: Mapping[str, Sequence[str]]) -> str:
    """Return the table of a panel; what one option means to several commands stands together."""
    places: dict[str, int] = {}
    for row in rows:
        places.setdefault(_flag(row.name), len(places))
    cells = []
    for row in sorted(rows, key=lambda row: places[_flag(row.name)]):
        default = f" [{next(iter(row.defaults))}]" if len(row.defaults) == 1 else ""
        cells.append([f"`{row.name}`", row.meaning + default, _where(row.commands, asking, groups)])
    return _table(["option", "meaning [default]", "commands"], cells)


def _flag(name: str) -> str:
    """Return an option without what it takes.

    >>> _flag("-o, --output FILE"), _flag("MODEL")
    ('-o, --output', 'MODEL')
    """
    return " ".join(word for word in name.split() if word.startswith("-")) or name


def _described(parameter: Any, command: Any) -> tuple[str, str, str]:
    """Return an option's name as its help writes it, its meaning, and its default, if any."""
    if parameter.param_type_name == "argument":
        return _argument(parameter).strip("[]"), _plain(parameter.help or "").rstrip("."), ""
    name = parameter.get_help_record(typer.Context(command))[0]
    meaning = _plain(parameter.help).rstrip(".")
    default = parameter.default
    shown = default not in (None, False, (), 0.0) and "[" not in meaning
    return name, meaning, str(default) if shown else ""


def _where(names: Sequence[str], asking: Sequence[str], groups: Mapping[str, Sequence[str]]) -> str:
    """Return in words which commands take an option.

    >>> plots = {"plot": ["plot a", "plot b"]}
    >>> _where(["recommend", "plot a", "plot b"], ["recommend", "sweep"], plots)
    'recommend, all of plot'
    >>> _where(["a", "b", "c", "d", "e", "f", "g"], ["a", "b", "c", "d", "e", "f", "g", "h"], {})
    'every question but h'
    """
    missing = [name for name in asking if name not in names]
    others = [name for name in names if name not in asking]
    said = []
    if len(missing) < len(names) - len(others) > FEW or not missing:
        said = ["every question but " + ", ".join(missing) if missing else "every question"]
        names = others
    for group, members in groups.items():
        if set(members) <= set(names):
            names = [name for name in names if name not in members] + [f"all of {group}"]
    return "; ".join([*said, *([", ".join(names)] if names else [])])


def _priors() -> str:
    stated = priors()
    beside = ("cpu_experts", stated.cpu_experts)
    laws = (*stated.generic.items(), *stated.links.items(), beside)
    rows = [
        [
            f"`{name}`",
            f"{1e6 * law.floor:g}",
            f"{1e9 * law.serial:g}",
            f"{law.mem_eff:g}",
            f"{law.compute_eff:g}",
            f"{law.overlap:g}",
        ]
        for name, law in laws
    ]
    headers = ["kernel", "floor µs", "serial ns", "of bandwidth", "of peak", "overlap p"]
    return _table(headers, rows)


def _generations() -> str:
    rows = [
        [
            name,
            _by_name(prior.mem_eff),
            _by_name(prior.compute_eff),
            f"{_parts(prior.relatives)}, {100 * prior.relative_error:g} %"
            if prior.relatives
            else "-",
        ]
        for name, prior in priors().generations.items()
    ]
    headers = ["generation", "of bandwidth", "of peak", "relatives, their error"]
    return _table(headers, rows)


def _parts(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _by_name(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in values.items())


def _engines() -> str:
    """Return what each engine and era spends around the kernels, in milliseconds."""
    rows = []
    for name in bundled_names(ENGINE_SHELF):
        engine = load_engine(name)
        eras = [name, *(f"{name}@{era.id}" for era in engine.eras)]
        rows += [_engine_row(era, load_engine(era)) for era in eras]
    headers = ["engine", "step", "round", "draft pass", "of memory", "captured rows", "source"]
    return _table(headers, rows)


def _engine_row(name: str, engine: EngineProfile) -> list[str]:
    cost = engine.overhead
    times = (cost.per_step, cost.per_spec_round, cost.per_draft_pass)
    return [
        f"`{name}`",
        *(f"{1e3 * seconds:.2f}" for seconds in times),
        f"{engine.memory.fraction:g}",
        str(engine.graphs.largest) if engine.graphs else "-",
        cost.source.split()[0],
    ]


def _facts() -> str:
    """Return what is known of each engine, the versions that it holds for and where it was read."""
    rows = []
    for name in bundled_names(ENGINE_SHELF):
        groups: dict[tuple[str, str], list[str]] = {}
        for place, fact in load_engine(name).facts():
            assert fact is not None
            said = _place(place, fact)
            group = groups.setdefault((fact.words, fact.source), [])
            if said not in group:
                group.append(said)
        rows += [
            [f"`{name}`", ", ".join(places), versions, source]
            for (versions, source), places in groups.items()
        ]
    return _table(["engine", "what", "versions", "read in"], rows)


def _place(place: str, fact: VersionRange) -> str:
    """Return a fact's place in the engine's file, or the engine's names that it is about."""
    names: tuple[str, ...] = (re.sub(r"\.\d+$", "", place),)
    if isinstance(fact, NamedFacts) and place.startswith(("methods.", "metrics.")):
        names = fact.names
    return ", ".join(f"`{name}`" for name in names)


def _errors() -> str:
    spread, routing = priors().spread, priors().routing
    rows = [
        ["tie: draft lengths that count as equal", f"{100 * TIE:g} %"],
        ["spread of a calibrated law, beside its own error", f"{spread.calibrated:g}"],
        ["spread of a stated prior", f"{spread.prior:g}"],
        ["spread of t(4 M) / t(M)", f"{spread.rows:g}"],
        ["spread of the engine's overhead", f"{spread.overhead:g}"],
        ["spread of the rows at which kernels rise (`schedule`)", "that of their laws, by time"],
        ["spread of R(D) between served builds", f"{spread.served:g}"],
        ["routing skew, correlation", f"{routing.skew:g}, {routing.correlation:g}"],
    ]
    return _table(["constant", "value"], rows)


if __name__ == "__main__":
    main()
