"""The answers of ``validate``: their blocks, their rows and their data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from roofline.advice.columns import printed
from roofline.base.errors import Option
from roofline.render.blocks import Answer, Block, Paragraph, Table, Tone, table
from roofline.validation.advice import RULES, Sign, SweepChoice, regret_rows, sign_rows
from roofline.validation.held_out import Outcome, SignCounts, held_out_scores, regrets
from roofline.validation.requests import FITTED_TOKENS_PER_STEP, SATURATED, request_scores
from roofline.validation.requests import Outcome as RequestOutcome
from roofline.validation.score import ScoreRow

__all__ = [
    "acceptance_answer",
    "advice_answer",
    "held_out_answer",
    "requests_answer",
    "scores_answer",
    "steps_answer",
    "tune_answer",
]

SCHEMA = "roofline.validate/1"


_PERCENT = "{value:.1f}"
_ERRORS = (
    printed("median_abs_error", "median\n%", _PERCENT),
    printed("p90_abs_error", "p90\n%", _PERCENT),
    printed("bias", "bias\n%", _PERCENT),
    printed("textbook_median_abs_error", "text-\nbook %", _PERCENT),
)
_SCORES = (
    printed("kind", "kind"),
    printed("engine", "engine"),
    printed("dtype", "dtype"),
    printed("n", "rows"),
    *_ERRORS,
)
#: Columns of attention alone, whose time above a kernel's floor is scored as well.
_ABOVE_FLOOR = (
    printed("above_floor_median_abs_error", "above\nfloor %", _PERCENT),
    printed("above_floor_p90_abs_error", "p90\n%", _PERCENT),
)
_WORST = (
    printed("law", "law"),
    printed("measured_us", "measured us", "{value:.1f}"),
    printed("predicted_us", "predicted us", "{value:.1f}"),
    printed("ratio", "ratio", "{value:.2f}"),
)
_STEPS = (
    printed("what", "kind"),
    printed("group", "group"),
    printed("dtype", "what"),
    printed("n", "rows"),
    *_ERRORS,
    printed("textbook_p90_abs_error", "p90\n%", _PERCENT),
)
_REGRETS = (
    printed("group", "group"),
    printed("n", "sweeps"),
    printed("rule", "rule"),
    printed("mean_regret", "mean\n%", _PERCENT),
    printed("p90_regret", "p90\n%", _PERCENT),
    printed("worst_regret", "worst\n%", _PERCENT),
)
_SIGNS = (
    printed("group", "group"),
    printed("n", "rows"),
    printed("right", "right"),
    printed("wrong", "wrong"),
)
_HELD_OUT = (
    printed("group", "group"),
    printed("batch", "batch"),
    printed("n", "rows"),
    *_ERRORS[:3],
)
_HELD_OUT_REGRETS = (
    printed("group", "group"),
    printed("n", "sweeps"),
    printed("mean_regret", "mean\n%", _PERCENT),
    printed("worst_regret", "worst\n%", _PERCENT),
)
_REQUESTS = (
    printed("group", "group"),
    printed("kind", "what"),
    printed("rows", "rows"),
    printed("n", "n"),
    *_ERRORS[:3],
)
_WRONG = (
    printed("id", "run"),
    printed("group", "group"),
    printed("batch", "batch"),
    printed("draft_length", "D"),
    printed("measured", "measured", "{value:.2f}x"),
    printed("predicted", "predicted", "{value:.2f}x"),
)
_ACCEPTANCE = (
    printed("kind", "what"),
    printed("known", "known of the drafter"),
    printed("n", "n"),
    printed("median_abs_error", "median\n%", _PERCENT),
    printed("p90_abs_error", "p90\n%", _PERCENT),
    printed("inside_share", "inside\n%", _PERCENT),
)
_ACCEPTANCE_REGRETS = (
    printed("known", "known of the drafter"),
    printed("n", "sweeps"),
    printed("groups", "groups"),
    printed("mean_regret", "mean of\ngroups %", _PERCENT),
    printed("sweep_mean_regret", "mean of\nsweeps %", _PERCENT),
    printed("worst_group_regret", "worst\ngroup %", _PERCENT),
    printed("worst_regret", "worst\n%", _PERCENT),
)
_TUNED = (
    printed("rule", "who chooses"),
    printed("after", "timings"),
    printed("mean_regret", "mean of\ngroups %", "{value:.2f}"),
    printed("long_mean_regret", "six and\nmore D %", "{value:.2f}"),
    printed("worst_regret", "worst\n%", _PERCENT),
)
_STOPS = (
    printed("acceptance", "acceptance"),
    printed("printed", "printed"),
    printed("part", "accelerator"),
    printed("timings", "timings", "{value:.1f}"),
    printed("mean_regret", "loss\n%", "{value:.2f}"),
    printed("promised_regret", "promised\n%", "{value:.2f}"),
    printed("bound_regret", "90 %\nbound", _PERCENT),
    printed("kept_share", "kept\n%", "{value:.0f}"),
)
_SWEEPS = ("sweep", "own AL", "D", "best", *RULES)


def _in_percent(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row whose errors and regrets are in percent."""
    ends = ("_error", "bias", "_regret", "_share")
    return {
        key: 100 * value if key.endswith(ends) and value is not None else value
        for key, value in row.items()
    }


def _scored(row: ScoreRow) -> dict[str, Any]:
    """Return every field of a score, errors in percent."""
    every = {name: getattr(row, name) for name in row.__slots__}
    return _in_percent(every | {"what": "R(D)" if row.kind == "cost-ratio" else row.kind})


def _flat(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows with the same keys, as CSV has them."""
    found = list(rows)
    keys = dict.fromkeys(key for row in found for key in row)
    return [{key: row.get(key) for key in keys} for row in found]


def scores_answer(rows: Sequence[ScoreRow], worst: Sequence[dict[str, Any]]) -> Answer:
    """Return the scores of kernels or served runs, and the worst rows, in every form."""
    above_floor = any(row.kind == "attention" for row in rows)
    columns = (*_SCORES, *_ABOVE_FLOOR) if above_floor else _SCORES
    blocks: list[Block] = [
        table(columns, [_scored(row) for row in rows if row.gpu == gpu], align="l", title=gpu)
        for gpu in dict.fromkeys(row.gpu for row in rows)
    ]
    named = [row | {"law": "{kind}, {gpu}, {engine}: {name}".format(**row)} for row in worst]
    title = "Furthest off (at most three rows of one law)"
    blocks.append(table(_WORST, named, align="l", title=title, apart=True))
    return Answer(
        blocks=lambda: blocks,
        data=lambda: {
            "schema": SCHEMA,
            "rows": [row.as_data() for row in rows],
            "worst": list(worst),
        },
        rows=lambda: _flat(row.as_data() for row in rows),
    )


def steps_answer(rows: Sequence[ScoreRow], left_out: Sequence[dict[str, Any]]) -> Answer:
    """Return the scores of published steps, and why others are left out, in every form."""
    return Answer(
        blocks=lambda: [
            table(_STEPS, map(_scored, rows), align="l"),
            Paragraph(_left_out_line(left_out), tone=Tone.QUIET),
        ],
        data=lambda: {
            "schema": SCHEMA,
            "rows": [row.as_data() for row in rows],
            "left_out": list(left_out),
        },
        rows=lambda: _flat(row.as_data() for row in rows),
    )


def _left_out_line(left_out: Sequence[dict[str, Any]]) -> str:
    if not left_out:
        return "Nothing left out."
    counts: dict[str, int] = {}
    for row in left_out:
        counts[row["left_out"]] = counts.get(row["left_out"], 0) + 1
    reasons = "; ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
    return f"Shown in {Option('format', 'json')}, never scored: {reasons}."


def _key(rule: str) -> str:
    """Return a rule as the name of a column begins with it.

    >>> _key("always 3")
    'always_3'
    """
    return rule.lower().replace(" ", "_")


def advice_answer(sweeps: Sequence[SweepChoice], signs: Sequence[Sign]) -> Answer:
    """Return the regrets, the signs of speedups and every sweep, in every form."""
    regrets, sign_counts = regret_rows(sweeps), sign_rows(signs)
    return Answer(
        blocks=lambda: [
            table(_REGRETS, map(_in_percent, regrets), align="l"),
            table(_SIGNS, sign_counts, align="l"),
            Table(
                headings=_SWEEPS,
                cells=tuple(tuple(choice.cells()) for choice in sweeps),
                align="l",
                apart=True,
            ),
        ],
        data=lambda: {
            "schema": SCHEMA,
            "rows": [*regrets, *sign_counts],
            "sweeps": [choice.as_data() for choice in sweeps],
            "wrong_signs": [sign.as_data() for sign in signs if not sign.right],
        },
        rows=lambda: [
            {
                key: value
                for key, value in choice.as_data().items()
                if not isinstance(value, dict | list | tuple)
            }
            | {f"{_key(rule)}_draft_length": choice.chosen[rule] for rule in RULES}
            | {f"{_key(rule)}_regret": choice.regret[rule] for rule in RULES}
            for choice in sweeps
        ],
    )


def acceptance_answer(rows: Sequence[Mapping[str, Any]]) -> Answer:
    """Return the scores of the prior of acceptance in every form."""
    every = _flat(rows)
    errors = [_in_percent(row) for row in every if row["mean_regret"] is None]
    regret = [_in_percent(row) for row in every if row["mean_regret"] is not None]
    return Answer(
        blocks=lambda: [
            table(_ACCEPTANCE, errors, align="l"),
            table(_ACCEPTANCE_REGRETS, regret, align="l", title="Regret of the advice"),
        ],
        data=lambda: {"schema": SCHEMA, "rows": [dict(row) for row in rows]},
        rows=lambda: every,
    )


def held_out_answer(runs: Sequence[Outcome], signs: SignCounts) -> Answer:
    """Return the errors of held-out speedups, and every sign that is wrong, in every form."""
    scores, regret = held_out_scores(runs), regrets(runs)
    wrong = [run.as_data() for run in (*signs.called_wins, *signs.called_losses)]
    counts = (
        f"Of {signs.losses} losses {len(signs.called_wins)} are called wins, and of {signs.wins} "
        f"wins {len(signs.called_losses)} losses."
    )
    return Answer(
        blocks=lambda: [
            table(_HELD_OUT, map(_in_percent, scores), align="l"),
            table(_HELD_OUT_REGRETS, map(_in_percent, regret), align="l"),
            Paragraph(counts),
            table(_WRONG, wrong, align="l"),
        ],
        data=lambda: {
            "schema": SCHEMA,
            "rows": [*scores, *regret],
            "losses": signs.losses,
            "losses_called_wins": [run.as_data() for run in signs.called_wins],
            "wins": signs.wins,
            "wins_called_losses": [run.as_data() for run in signs.called_losses],
        },
        rows=lambda: [run.as_data() for run in runs],
    )


def requests_answer(runs: Sequence[RequestOutcome]) -> Answer:
    """Return the errors of whole requests' times, in every form."""
    scores = request_scores(runs)
    fitted = ", ".join(f"{al:g} for {group}" for group, al in FITTED_TOKENS_PER_STEP.items())
    said = (
        "Closed loops of clients, replayed from their start. Below saturation: less than "
        f"{SATURATED:.0%} of the replayed time is in passes with prompts. Tokens per step that a "
        f"source does not print are fitted on the group's own TPOT: {fitted}."
    )
    return Answer(
        blocks=lambda: [
            table(_REQUESTS, map(_in_percent, scores), align="lll"),
            Paragraph(said, tone=Tone.QUIET),
        ],
        data=lambda: {"schema": SCHEMA, "rows": scores},
        rows=lambda: [run.as_data() for run in runs],
    )


def tune_answer(rows: Sequence[Mapping[str, Any]]) -> Answer:
    """Return what rules that time lose after each number of timings, in every form."""
    return Answer(
        blocks=lambda: _tune_blocks(rows),
        data=lambda: {"schema": SCHEMA, "rows": list(rows)},
        rows=lambda: _flat(rows),
    )


def _tune_blocks(rows: Sequence[Mapping[str, Any]]) -> list[Block]:
    """Return a table for each acceptance and kind of accelerator, and one of the stops."""
    keys = ("acceptance", "printed", "part")
    blocks = list[Block]()
    for about in dict.fromkeys(tuple(row[key] for key in keys) for row in rows):
        chosen = [row for row in rows if tuple(row[key] for key in keys) == about]
        acceptance, prints, part = about
        title = (
            f"{acceptance} acceptance, {prints} printed, {part}: {chosen[0]['n']} sweeps of "
            f"{chosen[0]['groups']} groups"
        )
        losses = [{"after": "all"} | _in_percent(row) for row in chosen if row["kind"] != "stop"]
        blocks.append(table(_TUNED, losses, align="l", title=title))
    stops = [_in_percent(row) for row in rows if row["kind"] == "stop"]
    blocks.append(table(_STOPS, stops, align="lll", title="Where it stops by itself"))
    blocks.append(
        Paragraph(
            "Mean loss above that of a full sweep timed once; timings and scored speeds have "
            "independent noise of 1.5 %. Accelerators with priors only are shown without a claim.",
            tone=Tone.QUIET,
        )
    )
    return blocks
