"""``python -m workshop.import_tables``: fit the laws on all public tables.

The laws, with their evidence, go into one overlay file for each accelerator and engine.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import gzip
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.base.errors import InputError, did_you_mean
from roofline.base.files import write_atomically, write_bytes_atomically
from roofline.base.resources import data_file, shelf
from roofline.base.schema import dump_yaml
from roofline.calibrate.fit.core import (
    Columns,
    evidence_of,
    held_out_shapes,
    ratio_error_of,
    rounded,
)
from roofline.specs.gpu import HardwareProfile, Overlay, load_hardware
from roofline.validation.kernel_families import FAMILIES
from workshop.tables import attention, collective, gemm, moe, state
from workshop.tables.dropped import reason_to_drop
from workshop.tables.family import TableFamily, TableGroup
from workshop.tables.parquet import FOLDERS, Table, data_folder, find_tables

__all__ = [
    "ENGINES",
    "TABLE_FAMILIES",
    "ImportOutcome",
    "fit_group",
    "import_tables",
    "main",
    "write_overlays",
    "write_samples",
]

Array = NDArray[np.float64]
TABLE_FAMILIES = {
    family.kind: family
    for family in (
        gemm.FAMILY,
        attention.FAMILY,
        attention.LATENT_FAMILY,
        moe.FAMILY,
        collective.FAMILY,
        state.FAMILY,
    )
}
ENGINES = ("vllm", "sglang", "trtllm")
HOST_BOUND = 3.0  # a table's floor over this many times the other engines' was set by the host
LARGE_ENOUGH = 0.5  # a newer version with fewer than this share of the rows is a partial run
SAMPLE = 16  # held-out rows of each law that ship with the package
Progress = Callable[[int, int, str], None]
Format = tuple[tuple[str, Any], ...]


@dataclass(slots=True)
class ImportOutcome:
    """The laws that an import fitted, their samples, and why others were skipped."""

    blocks: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)
    samples: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def import_tables(
    root: Path,
    *,
    gpu: str,
    engines: Sequence[str],
    date: str,
    jobs: int = 1,
    progress: Progress = lambda *_: None,
) -> ImportOutcome:
    """Return the laws of one accelerator for each engine; nothing is written."""
    outcome = ImportOutcome()
    groups = _groups(root, gpu, engines, outcome)
    work = [(group, date) for group in groups]
    results = zip(groups, _map(_fit_one, work, jobs), strict=True)
    for done, (group, fitted) in enumerate(results, start=1):
        progress(done, len(groups), f"{group.gpu} {group.engine} {group.kind} {_name(group)}")
        if isinstance(fitted, str):
            outcome.skipped.append(f"{group.source} {_name(group)}: {fitted}")
            continue
        block, sample = fitted
        outcome.blocks.setdefault((group.gpu, group.engine), []).append(block)
        outcome.samples.append(sample)
    return outcome


def _map(function: Callable[[Any], Any], work: list[Any], jobs: int) -> Iterable[Any]:
    if jobs == 1:
        return map(function, work)
    return ProcessPoolExecutor(jobs).map(function, work)


def _groups(
    root: Path, gpu: str, engines: Sequence[str], outcome: ImportOutcome
) -> list[TableGroup]:
    """Read the newest complete table of each family and engine; name and skip what is unusable."""
    profile = load_hardware(gpu)
    # every engine is read, since only a comparison shows which table is host-bound
    tables = find_tables(root, gpus=[gpu], engines=ENGINES)
    groups: list[TableGroup] = []
    for family in TABLE_FAMILIES.values():
        for versions in _by_engine(tables, family).values():
            groups += _newest(family, versions, profile, outcome)
    for engine in engines:
        if not any(group.engine == engine for group in groups):
            outcome.skipped.append(f"{gpu} {engine}: no tables")
    kept = []
    for group in (group for group in groups if group.engine in engines):
        usual, floor = _floor_of_others(group, groups), _floor(group)
        if usual is not None and floor is not None and floor > HOST_BOUND * usual:
            outcome.skipped.append(
                f"{group.source} {_name(group)}: host-bound, its floor of {1e6 * floor:.0f} us is "
                f"over {HOST_BOUND:.0f} times the other engines' {1e6 * usual:.0f} us"
            )
            continue
        kept.append(group)
    return kept


def _by_engine(tables: list[Table], family: TableFamily) -> dict[tuple[str, str], list[Table]]:
    by_engine: dict[tuple[str, str], list[Table]] = {}
    for table in tables:
        if (table.family, table.name) in family.tables:
            by_engine.setdefault((table.name, table.engine), []).append(table)
    return by_engine


def _newest(
    family: TableFamily, versions: list[Table], profile: HardwareProfile, outcome: ImportOutcome
) -> list[TableGroup]:
    """Return the newest version's groups; older versions fill formats that it lacks.

    A format is a label without its kernel: kernels change names from version to version.
    """
    read: list[list[TableGroup]] = []
    for table in versions:
        try:
            groups = family.read_groups(table, profile)
        except InputError as error:
            outcome.skipped.append(str(error))
            continue
        read.append([])
        for group in groups:
            reason = reason_to_drop(group)
            if reason is None:
                read[-1].append(group)
            else:
                outcome.skipped.append(f"{group.source} {_name(group)}: dropped, {reason}")
    largest: dict[Format, int] = {}
    for groups in read:
        for form, rows in _rows_by_format(groups).items():
            largest[form] = max(largest.get(form, 0), rows)
    best: dict[Format, list[TableGroup]] = {}
    for groups in read:  # oldest first: a newer complete table replaces it
        for form, rows in _rows_by_format(groups).items():
            if rows >= LARGE_ENOUGH * largest[form]:
                best[form] = [group for group in groups if _format(group) == form]
    return [group for groups in best.values() for group in groups]


def _format(group: TableGroup) -> Format:
    return tuple((name, value) for name, value in group.label.items() if name != "kernel")


def _rows_by_format(groups: list[TableGroup]) -> Counter[Format]:
    rows: Counter[Format] = Counter()
    for group in groups:
        rows[_format(group)] += len(group.seconds)
    return rows


def _floor(group: TableGroup) -> float | None:
    """Return the 1st percentile of the rows that count, None without any [s]."""
    scored = FAMILIES[group.kind].scored(group.columns)
    return float(np.quantile(group.seconds[scored], 0.01)) if scored.any() else None


def _floor_of_others(group: TableGroup, groups: list[TableGroup]) -> float | None:
    """Return the median floor of the other engines for the same kind and format."""
    floors = [
        _floor(other)
        for other in groups
        if other.engine != group.engine
        and other.kind == group.kind
        and other.label.get("dtype") == group.label.get("dtype")
    ]
    known = [floor for floor in floors if floor is not None]
    return float(np.median(known)) if known else None


def _name(group: TableGroup) -> str:
    return " ".join(str(value) for value in group.label.values())


def _fit_one(work: tuple[TableGroup, str]) -> tuple[dict[str, Any], dict[str, Any]] | str:
    group, date = work
    try:
        return fit_group(group, date=date)
    except (ValueError, FloatingPointError, InputError) as error:
        return f"could not be fitted ({error})"


def fit_group(group: TableGroup, *, date: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a group's block, scored on shapes it was not fitted on, and its shipped sample."""
    family, profile = FAMILIES[group.kind], load_hardware(group.gpu)
    held = held_out_shapes(group.keys)
    if held.all() or not held.any():
        held = np.zeros(len(held), dtype=bool)
    fit_columns, fit_seconds = group.pick(~held)
    law, extras = TABLE_FAMILIES[group.kind].fit(fit_columns, group.label, fit_seconds, profile)
    scored = held & family.scored(group.columns) if held.any() else ~held
    columns, seconds = group.pick(scored)
    if not scored.any():
        raise ValueError("no row that counts")
    predicted = family.seconds(columns, group.label, law, profile)
    evidence = evidence_of(
        source=f"aiconfigurator-core {group.source}.parquet (Apache-2.0)",
        date=date,
        rows_fitted=int((~held).sum()),
        rows_held_out=len(seconds) if held.any() else 0,
        predicted=predicted,
        textbook=family.textbook(columns, group.label, profile),
        measured=seconds,
        ratio_error=_ratio_error(columns, predicted, seconds),
        rejected=group.rejected,
    )
    block = {
        "kind": group.kind,
        "engine": group.engine,
        "version": group.version,
        **group.label,
        **extras,
        "law": asdict(law),
        "evidence": evidence.model_dump(exclude_defaults=True),
    }
    return block, _sample(group, scored)


def _ratio_error(columns: Columns, predicted: Array, measured: Array) -> float | None:
    name = next((n for n in ("m", "tokens") if n in columns), None)
    if name is None:
        return None
    fixed = [values for key, values in sorted(columns.items()) if key in SHAPE_COLUMNS]
    shapes = [tuple(shape) for shape in np.stack(fixed, axis=1)]
    return ratio_error_of(shapes, columns[name].tolist(), predicted, measured)


#: Columns that name a shape; along a curve of rows they stay the same.
SHAPE_COLUMNS = ("n", "k", "top_k", "experts", "ranks", "hidden", "width", "resident")


def _sample(group: TableGroup, scored: NDArray[np.bool_]) -> dict[str, Any]:
    """Return a few scored rows, chosen by a stable hash, as the package ships them."""
    rows = np.flatnonzero(scored)
    names = [f"{group.keys[i]}/{i}" for i in rows]
    order = np.argsort([hashlib.sha256(name.encode()).hexdigest() for name in names])
    chosen = np.sort(rows[order[:SAMPLE]])
    columns, seconds = group.pick(chosen)
    return {
        "kind": group.kind,
        "gpu": group.gpu,
        "engine": group.engine,
        "version": group.version,
        "source": group.source,
        "label": dict(group.label),
        "columns": {name: [_plain(v) for v in values] for name, values in columns.items()},
        "seconds": [rounded(float(v), 6) for v in seconds],
    }


def _plain(value: float) -> float | int:
    return int(value) if float(value).is_integer() else rounded(float(value), 8)


def write_overlays(outcome: ImportOutcome, folder: Path) -> list[Path]:
    """Write one overlay file for each accelerator and engine."""
    written = []
    for (gpu, engine), blocks in sorted(outcome.blocks.items()):
        data = {"schema": 1, "gpu": gpu, "engine": engine, "calibration": blocks}
        path = folder / f"{gpu}.{engine}.yaml"
        Overlay.check(data, path.name)
        write_atomically(path, dump_yaml(data))
        written.append(path)
    return written


def write_samples(outcome: ImportOutcome, path: Path) -> None:
    """Write the shipped sample; lines of accelerators and engines not imported now are kept."""
    kept = []
    imported = {(sample["gpu"], sample["engine"]) for sample in outcome.samples}
    if path.is_file():
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
        shipped = (json.loads(line) for line in lines)
        kept = [line for line in shipped if (line["gpu"], line["engine"]) not in imported]
    rows = sorted(
        kept + outcome.samples,
        key=lambda s: (s["kind"], s["gpu"], s["engine"], json.dumps(s["label"], sort_keys=True)),
    )
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    write_bytes_atomically(path, gzip.compress(text.encode(), mtime=0))


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and import."""
    parser = argparse.ArgumentParser("python -m workshop.import_tables", description=__doc__)
    parser.add_argument("--gpu", action="append", help="only this accelerator; repeatable")
    parser.add_argument("--engine", action="append", help="only this engine; repeatable")
    parser.add_argument("--tables", type=Path, help="folder of the unpacked wheel")
    parser.add_argument("-o", "--output", type=Path, help="folder to write overlays to")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    options = parser.parse_args(arguments)
    try:
        written = _run(options.gpu, options.engine, options.tables, options.output, options.jobs)
        sys.stdout.write(written)
    except InputError as error:
        parser.exit(2, f"workshop: {error}\n")


def _run(
    gpu: list[str] | None,
    engine: list[str] | None,
    tables: Path | None,
    output: Path | None,
    jobs: int,
) -> str:
    """Import; without an output folder, the bundled overlays and sample are written anew."""
    gpus = _known("--gpu", gpu, list(FOLDERS))
    engines = _known("--engine", engine, list(ENGINES))
    root = data_folder(tables)
    if output is not None and not output.is_dir():
        raise InputError(f"-o {output}: expected a folder that exists")
    folder = output or Path(str(shelf("hardware_profiles")))
    today, count = dt.date.today().isoformat(), 0
    for name in gpus:  # an accelerator's laws are written before the next one starts
        with _progress() as progress:
            outcome = import_tables(
                root, gpu=name, engines=engines, date=today, jobs=jobs, progress=progress
            )
        write_overlays(outcome, folder)
        if output is None:
            write_samples(outcome, Path(str(data_file("validation"))) / "kernels.jsonl.gz")
        sys.stderr.writelines(f"skipped: {line}\n" for line in outcome.skipped)
        count += sum(len(blocks) for blocks in outcome.blocks.values())
    return f"{count} laws of {len(gpus)} accelerators written to {folder}\n"


def _known(flag: str, names: list[str] | None, known: list[str]) -> list[str]:
    for name in names or []:
        if name not in known:
            raise InputError(f"{flag}: no tables for '{name}': {did_you_mean(name, known)}")
    return list(dict.fromkeys(names or known))


@contextlib.contextmanager
def _progress() -> Iterator[Progress]:
    """Show a bar on stderr while laws are fitted."""
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True)) as bar:
        task = bar.add_task("reading tables", total=None)

        def progress(done: int, total: int, text: str) -> None:
            bar.update(task, completed=done, total=total, description=text[:60])

        yield progress


if __name__ == "__main__":
    main()
