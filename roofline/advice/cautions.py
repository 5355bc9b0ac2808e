"""What the laws that priced a step warn of: kernels outside their tables, slow narrow weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from roofline.advice.prepare import Setup
from roofline.specs.formats import bytes_per_element
from roofline.specs.placement import Grid
from roofline.timing.machine import Machine, OpTime
from roofline.timing.step import StepTimes, step_times

__all__ = ["limits", "slower_than_wide"]

#: A plain step with narrow weights may take this much longer before it is worth a word.
LONGER = 1.02


def limits(times: StepTimes) -> list[str]:
    """Say which kernels run outside what their tables covered."""
    passes = (*times.verify_ops, *times.first_pass_ops)
    return list(dict.fromkeys(t.chosen.limit for t in passes if t.chosen.limit is not None))


def slower_than_wide(setup: Setup, machine: Machine, times: StepTimes) -> list[str]:
    """Return a warning where a plain step would be shorter with weights in the model's own format.

    ``times`` are those of the setup's first batch and context, D = 0 first. Tables of kernels for
    narrow weights can be slow where an engine has no tuned ones for a part.
    """
    precision = setup.target.precision
    wide = dict.fromkeys(precision.weights, precision.base)
    width = bytes_per_element(precision.base)
    narrow = {d for d in precision.weights.values() if bytes_per_element(d) < width}
    if not narrow:
        return []
    plain = step_times(
        replace(setup.target, precision=replace(precision, weights=wide, activations=wide)),
        setup.drafter,
        Grid.of(setup.request.batches[:1], setup.request.contexts[:1], (0,)),
        machine,
        setup.engine.overhead,
        setup.engine.graphs,
    )
    own, other = (1e3 * float(found.total.flat[0]) for found in (times, plain))
    if own <= LONGER * other:
        return []
    names = "/".join(sorted(narrow))
    what = f"{names} weights: a plain step takes {own:.3g} ms here, {other:.3g} ms with "
    return [f"{what}{precision.base}: they save memory, not time ({_slowest(times, plain)})"]


def _slowest(times: StepTimes, plain: StepTimes) -> str:
    """Name the kernel that loses most, and where its law comes from."""
    before = _by_name(plain)
    lost = {name: seconds - before.get(name, 0.0) for name, seconds in _by_name(times).items()}
    name = max(lost, key=lambda name: lost[name])
    chosen = next(t.chosen for t in times.verify_ops if t.op.name == name)
    error = f", {100 * chosen.evidence.median_error:.0f} % off" if chosen.evidence else ""
    return f"{name}: {chosen.provenance}, {chosen.detail}{error}"


def _by_name(times: StepTimes) -> dict[str, float]:
    found: dict[str, float] = {}
    for op in times.verify_ops:
        found[op.op.name] = found.get(op.op.name, 0.0) + _first(op)
    return found


def _first(op: OpTime) -> float:
    return float(np.asarray(op.total).flat[0])
