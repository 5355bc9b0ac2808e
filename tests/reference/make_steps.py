"""Write ``roofline/data/validation/steps.csv`` from the collected table of published runs.

    python -m tests.reference.make_steps E2E.csv OUT.csv

What each group's configuration means here stands in ``step_groups``; the measured columns are
copied. A row that cannot be scored keeps a code in ``left_out``, and in words the ``reason``.
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

from tests.reference.step_groups import MODELS, Row, describe

COLUMNS = [
    "id", "group", "fold", "trust", "source", "gpu", "tp", "ep", "model", "linears", "experts",
    "head", "kv", "activations", "engine", "batch", "context", "dataset", "kind", "drafter_name",
    "drafter", "draft_weights", "draft_length", "verify_width", "topk", "block",
    "tokens_per_step", "curve", "speedup", "base_speed", "speed", "base_ms", "step_ms", "total",
    "left_out", "reason", "note",
]  # fmt: skip


#: The code of each reason, as ``LeftOut`` names them.
CODES = {
    "not against plain decoding": "not-against-plain",
    "no tokens per step of its own: derived from a rate, drafts may stop early": "no-own-tokens",
    "tokens per step from another engine, same model, drafter and data": "tokens-of-another-engine",
    "tokens per step from elsewhere": "tokens-from-elsewhere",
    "tokens per step from elsewhere; GPU in doubt": "tokens-from-elsewhere",
    "prefill inside the measurement": "prefill-inside",
    "speedup and speeds disagree by up to 6 %": "speeds-disagree",
    "its authors doubt the tokens per step": "tokens-doubted",
    "drafter delivers 53-77 % of the requested depth (its authors)": "drafts-missing",
    "plain step shorter than its kernels' floors": "below-floors",
    "inconsistent in itself": "inconsistent",
    "depth and branches of the tree not stated": "tree-not-stated",
}


def reason(row: Row, group: str) -> str:
    """Return why a row is shown but not scored (README of the table, section 9)."""
    number = int(row["id"].rsplit("-", 1)[1])
    if row["trust"] == "C":
        return "trust C"
    if group == "specbundle":
        prefilled = [*range(1, 6), *range(106, 111), *range(231, 241)]
        return "prefill inside the measurement" if number in prefilled else ""
    if group == "thc-ctx" and number in (1, 2, 3, 4, 6, 8, 10):
        return "speedup and speeds disagree by up to 6 %"
    if group == "thc-phaseM-moe" and number >= 6:
        return "its authors doubt the tokens per step"
    if group == "thc-phaseM-dense" and number >= 6:
        return "drafter delivers 53-77 % of the requested depth (its authors)"
    if group == "modelopt-dflash-cat" and number in (3, 4):
        return "inconsistent in itself"
    if group == "angelslim" and number >= 21:
        return "plain step shorter than its kernels' floors"
    if group.startswith("thc-moe-"):
        return "no tokens per step of its own: derived from a rate, drafts may stop early"
    fixed = {
        "trtblog01relax": "not against plain decoding",
        "gpustack-bs": "not against plain decoding",
        "vllm48944": "prefill inside the measurement",
        "vllm-dsv4pro-dspark": "tokens per step from elsewhere",
        "sdbench": "tokens per step from elsewhere",
        "eagle3-t3": "tokens per step from another engine, same model, drafter and data",
        "eagle3-t5": "tokens per step from elsewhere; GPU in doubt",
        "dcut": "tokens per step from elsewhere",
        "vllm-amd-mm25": "tokens per step from elsewhere",
    }
    if row["id"] == "e2e-sdbench-tree-002":
        return "depth and branches of the tree not stated"
    if row["id"] == "e2e-qwen38-pr11-003":
        return "inconsistent in itself"
    return fixed.get(group, "")


def times(row: Row, total: bool, tokens: str) -> tuple[str, str]:
    """Return (plain step, step) in ms from whatever unit the source printed."""
    unit, batch = row["unit"], float(row["batch_or_concurrency"] or 1)
    base, spec = row["base_value"], row["spec_value"]
    if "ms" in unit:
        plain, value = base, float(spec or 0)
    elif "ratio" in unit or (not base and not spec):
        return "", row["itl_or_step_ms"]
    else:
        share = batch if total or "total" in unit or "aggregate" in unit else 1.0
        plain = f"{1e3 * share / float(base):.4g}" if base else ""
        value = 1e3 * share / float(spec) if spec else 0.0
    step = row["itl_or_step_ms"]
    if not step and tokens and value:
        step = f"{value * float(tokens):.4g}"
    return plain, step


def speeds(row: Row) -> Row:
    """Return the plain and the speculative speed, in whatever unit makes more better."""
    base, spec = row["base_value"], row["spec_value"]
    if "ms" in row["unit"]:
        base, spec = (f"{1e3 / float(v):.6g}" if v else "" for v in (base, spec))
    if not spec and row["speedup"]:
        base, spec = "1", row["speedup"]
    return {"base_speed": base, "speed": spec}


def convert(row: Row) -> Row | None:
    """Return one line of the shipped table."""
    group = group_of(row)
    given = describe(row, group)
    if given is None:
        return None
    batch = row["batch_or_concurrency"]
    if not batch.replace(".", "").isdigit():
        return None
    out = dict.fromkeys(COLUMNS, "")
    tokens = given.get("tokens_per_step") or row["accept_len"].lstrip("~")
    length = given.get("draft_length", row["draft_tokens_D"])
    if not re.fullmatch(r"\d+", length) and given["kind"] != "ngram":
        return None
    if length in ("", "0"):
        length, tokens = "0" if text_is_plain(row) else length, "1"
    why = reason(row, group)
    out |= {
        "id": row["id"].removeprefix("e2e-"), "group": group, "trust": row["trust"],
        "source": row["source_url_or_repo_path"][:120], "tp": str(int(float(row["tp"] or 1))),
        "ep": str(int(float(row["ep"] or 1))), "model": MODELS.get(row["model"], ""),
        "drafter_name": text_of(row["drafter"]),
        "batch": str(int(float(batch))), "dataset": row["dataset"],
        "left_out": CODES.get(why, ""), "reason": why,
        "draft_length": length, "tokens_per_step": tokens,
        "speedup": row["speedup"],
    }  # fmt: skip
    out |= {k: v for k, v in given.items() if k in COLUMNS and k != "tokens_per_step"}
    if given.get("attention"):
        out["activations"] = "attention=" + given["attention"]
    plain, step = times(row, bool(given.get("total")), tokens)
    out |= {"base_ms": plain, "step_ms": step} | speeds(row)
    return out if out["model"] and length else None


def text_of(name: str) -> str:
    """Return a drafter's name in the source, without what a mapping holds anyway."""
    return name.removeprefix("EAGLE3 ")[:60]


def text_is_plain(row: Row) -> bool:
    """Return whether a row is the run without speculation."""
    return row["draft_tokens_D"] in ("0",)


def group_of(row: Row) -> str:
    """Return the id's prefix."""
    return row["id"].removeprefix("e2e-").rsplit("-", 1)[0]


def main(source: Path, target: Path) -> None:
    """Convert the table; folds are its groups sorted by name, even and odd."""
    with source.open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    folds = {name: str(i % 2) for i, name in enumerate(sorted({group_of(row) for row in table}))}
    rows = [line | {"fold": folds[line["group"]]} for line in map(convert, table) if line]
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
