"""Scan the grid and compare the counts with the bar: python -m workshop.sanity [--sample]."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path

import yaml

from workshop.sanity.counts import CLASSES, Tally, count
from workshop.sanity.grid import SAMPLE, WHOLE, Grid, combinations, price

BAR = Path(__file__).with_name("bar.yaml")


def scan(grid: Grid, model: str, guards: bool) -> tuple[dict[str, Tally], int]:
    """Return the tallies of one model, and how many points fit."""
    every = (price(what, grid, guards=guards) for what in combinations(grid, model))
    priced = [one for one in every if one]
    return count(priced), sum(int(one.usable.sum()) for one in priced)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print every class with its bar and its worst case; 1 where a class is over its bar."""
    parser = argparse.ArgumentParser(prog="python -m workshop.sanity", description=__doc__)
    parser.add_argument("--sample", action="store_true", help="five models instead of sixty")
    parser.add_argument("--models", default="", help="only these, separated by commas")
    parser.add_argument("--gpus", default="", help="only these, separated by commas")
    parser.add_argument("--guards", action="store_true", help="count what the guards change, too")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, help="also write the counts there")
    options = parser.parse_args(arguments)
    grid = SAMPLE if options.sample else WHOLE
    if options.models:
        grid = grid._replace(models=tuple(options.models.split(",")))
    if options.gpus:
        grid = grid._replace(gpus=tuple(options.gpus.split(",")))
    tallies, points = {name: Tally() for name in CLASSES}, 0
    with ProcessPoolExecutor(options.jobs) as pool:
        scans = pool.map(scan, [grid] * len(grid.models), grid.models, repeat(options.guards))
        for model, (found, number) in zip(grid.models, scans, strict=True):
            points += number
            for name, tally in found.items():
                tallies[name].join(tally)
            sys.stderr.write(f"{model}: {points} points\n")
    sys.stdout.write(f"{points} points that fit in captured graphs\n")
    return report(tallies, options.json, sample=options.sample)


def report(tallies: dict[str, Tally], file: Path | None, *, sample: bool) -> int:
    """Print the tallies beside their bars; return 1 where one is above it."""
    bar = yaml.safe_load(BAR.read_text(encoding="utf-8"))
    over = 0
    for name, title in CLASSES.items():
        tally, most, aim = tallies[name], bar[name]["most"], bar[name]["aim"]
        unexplained = bar[name].get("unexplained", most)
        if sample:
            most = unexplained = bar[name].get("sample", most)
        over |= tally.share > most or tally.unexplained > unexplained
        share = f"{tally.wrong} of {tally.of}, {tally.share:.3f} %"
        lines = [f"\n{title}: {share} (at most {most} %, aim {aim} %)"]
        if tally.wrong:
            parts = ", ".join(f"{gpu} {number}" for gpu, number in tally.by_gpu.most_common(5))
            lines += [f"  most on {parts}", f"  worst: {tally.example}"]
        if tally.measured:
            share = f"{tally.unexplained:.3f} % (at most {unexplained} %)"
            lines.insert(1, f"  not explained by tables, paths with a source or rooflines: {share}")
        sys.stdout.write("\n".join(lines) + "\n")
    if file is not None:
        shares = {name: [tally.wrong, tally.of] for name, tally in tallies.items()}
        file.write_text(json.dumps(shares, indent=1), encoding="utf-8")
    return int(over)


if __name__ == "__main__":
    raise SystemExit(main())
