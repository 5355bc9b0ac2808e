"""How much of the decode time of the shipped runs rests on paths that cite a source.

    python -m workshop.execution_paths

Each row of decode.csv counts with its time per output token and each of steps.csv with its step
(the plain one where it drafts nothing). A row rests on a citation where every kind of attention of
its model runs by an entry of `roofline/data/execution_paths.yaml` that cites the engine's source or
a measurement; the rest is assumed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import NamedTuple

from roofline.calibrate.engine.decode_rows import load_decode_rows
from roofline.calibrate.engine.spec_rows import load_spec_rows, serving_of, target_of
from roofline.specs.formats import DType
from roofline.specs.gpu import load_hardware
from roofline.specs.network import ModelSpec, load_model
from roofline.specs.paths import Basis, Serving, matched
from roofline.specs.placement import Routing

__all__ = ["Share", "cited_share", "shares"]


class Share(NamedTuple):
    """Seconds of one kind of row, by engine and by what their paths rest on."""

    engine: str
    cited: bool
    seconds: float
    entries: tuple[str, ...]


def shares() -> Iterator[Share]:
    """Yield the time of every shipped row with the entries that it rests on."""
    for row in load_decode_rows():
        model = load_model(row.model)
        serving = Serving(
            engine=row.engine,
            version=row.version,
            generation=load_hardware(row.gpu).generation,
            role="target",
            model=row.model,
            kv=DType(row.kv) if row.kv else model.kv_dtype or model.dtype,
        )
        yield _share(model, serving, row.tpot, several=False)
    for run in load_spec_rows():
        target = target_of(run, Routing())
        seconds = run.step or run.base
        if seconds is not None:
            serving = serving_of(run, target.precision.kv)
            yield _share(target.model, serving, seconds, several=run.draft_length > 0)


def _share(model: ModelSpec, serving: Serving, seconds: float, *, several: bool) -> Share:
    paths = [path for _, path in matched(model, serving, several=several)]
    cited = all(path is not None and path.basis is not Basis.ASSUMED for path in paths)
    names = tuple("none" if path is None else path.id for path in paths)
    return Share(engine=serving.engine, cited=cited, seconds=seconds, entries=names)


def cited_share() -> float:
    """Return the share of decode time that rests on entries with a source or a measurement."""
    every = list(shares())
    return sum(s.seconds for s in every if s.cited) / sum(s.seconds for s in every)


def main() -> None:
    """Print the share, whole and by engine, and the entries that are assumed."""
    every = list(shares())
    total: dict[str, float] = {}
    cited: dict[str, float] = {}
    assumed: dict[str, float] = {}
    for share in every:
        total[share.engine] = total.get(share.engine, 0.0) + share.seconds
        cited[share.engine] = cited.get(share.engine, 0.0) + share.seconds * share.cited
        if not share.cited:
            names = " + ".join(share.entries)
            assumed[names] = assumed.get(names, 0.0) + share.seconds
    lines = [
        *(f"{name}: {cited[name] / time:.1%} of {time:.2f} s" for name, time in total.items()),
        f"all: {sum(cited.values()) / sum(total.values()):.1%} rests on a source or a measurement",
        *(f"assumed: {names}, {time:.2f} s" for names, time in assumed.items()),
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
