"""The panels of a command's help, and the order of what stands in them.

An option names its panel where it is declared (``rich_help_panel``). The panels are written as
plain sections: drawn as boxes they need a third more lines, and 80 columns leave little in them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = [
    "ASKING",
    "DRAFTER",
    "DRAWING",
    "ENGINE",
    "EXPERT",
    "FORMATS",
    "LOAD",
    "LOOKING_UP",
    "MEASUREMENT",
    "MEASURING",
    "OUTPUT",
    "PLACEMENT",
    "QUESTION",
    "RUNNING",
    "SERVER",
    "in_panels",
    "write_panels",
]

QUESTION = "Question"
MEASUREMENT = "Measurement"
SERVER = "Server"
DRAFTER = "Drafter and acceptance"
FORMATS = "Formats"
PLACEMENT = "Placement"
LOAD = "Load and goals"
ENGINE = "Engine"
RUNNING = "Running"
OUTPUT = "Output"
EXPERT = "Expert"
#: Arguments and options that name no panel.
ARGUMENTS = "Arguments"
OTHERS = "Options"
PANELS = (
    ARGUMENTS,
    QUESTION,
    MEASUREMENT,
    DRAFTER,
    FORMATS,
    PLACEMENT,
    LOAD,
    SERVER,
    ENGINE,
    RUNNING,
    OUTPUT,
    EXPERT,
    OTHERS,
)

#: Panels of the commands.
ASKING = "Ask"
DRAWING = "Draw"
LOOKING_UP = "Look up"
MEASURING = "Measure"

#: The order in which a question is put; other options follow as they are declared.
_FIRST = (
    "url",
    "model",
    "measured",
    "vary",
    "gpu",
    "tp",
    "batch",
    "batches",
    "context",
    "contexts",
    "engine",
    "drafter",
    "acceptance",
    "weights",
    "kv",
)
#: The widest name beside which its help stands; below a longer one it begins a line.
_NAME = 24

Row = tuple[str, str]


def in_panels(parameters: Iterable[Any], context: Any) -> dict[str, list[Row]]:
    """Return the rows of each panel, in the order of the panels.

    Where options name panels, those that name none belong to the output, as the help itself.

    All defaults stand in brackets alone, as those that the text of an option names.
    """
    shown = [(p, row) for p in parameters if (row := p.get_help_record(context)) is not None]
    shown.sort(key=lambda each: _FIRST.index(each[0].name) if each[0].name in _FIRST else 99)
    named = any(getattr(parameter, "rich_help_panel", None) for parameter, _ in shown)
    rows: dict[str, list[Row]] = {panel: [] for panel in PANELS}
    for parameter, row in shown:
        unnamed = OUTPUT if named else OTHERS
        if parameter.param_type_name == "argument":
            unnamed = ARGUMENTS
        panel = getattr(parameter, "rich_help_panel", None) or unnamed
        rows.setdefault(panel, []).append(
            (_name(parameter, row[0]), row[1].replace("[default: ", "["))
        )
    return {panel: inside for panel, inside in rows.items() if inside}


def write_panels(panels: dict[str, list[Row]], formatter: Any) -> None:
    """Write each panel as a section."""
    for panel, rows in panels.items():
        with formatter.section(panel):
            formatter.write_dl(rows, col_max=_NAME)


def _name(parameter: Any, name: str) -> str:
    """Return an argument as the help's text names it, without its type."""
    return parameter.metavar or name if parameter.param_type_name == "argument" else name
