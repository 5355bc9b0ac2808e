"""The five-number laws of matrix products: one for all, and laws of single ones where it fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from roofline.calibrate.fit.groups import Judged, bench_of, fit_group, hold_out, judge
from roofline.calibrate.fit.stepped import fit_constants, fit_simple, rounded_law
from roofline.calibrate.measure.rows import Row
from roofline.specs.laws import SimpleLaw
from roofline.timing.laws.base import Device

__all__ = ["fit_products"]

FEWEST_TOGETHER = 2  # products that a general law must serve
LEAST_OWN, OWN_BEYOND = 8, 0.05  # rows of a product, and the error beyond which it gets its own law


def fit_products(rows: Sequence[Row], device: Device, source: Mapping[str, str]) -> list[Judged]:
    """Return the law of all products; where it is over 5 % off one, that one's own beside it.

    The worst is taken out first and the general law fitted on the others again, until it serves
    them. Where it would be left with one product, it stays fitted on all. Empty where the rows are
    too few.
    """
    whole = general = fit_group(rows, device, source)
    odd: list[str] = []
    while general is not None and (worst := _worst(general)) is not None:
        odd.append(worst)
        rest = [row for row in rows if row.op not in odd]
        if len({row.op for row in rest}) < FEWEST_TOGETHER:
            general, odd = whole, list(dict.fromkeys(row.op for row in rows))
            break
        general = fit_group(rest, device, source)
    if whole is None or general is None:
        return [whole] if whole else []
    shared = _shared_steps(whole, device) if odd else SimpleLaw(floor=0.0, mem_eff=1.0)
    own = [_own([row for row in rows if row.op == op], shared, device, source) for op in odd]
    return [general, *(law for law in own if law is not None)]


def _worst(judged: Judged) -> str | None:
    """Return the product that a law is furthest off, None where it serves all that have rows."""
    off = np.abs(judged.predicted / [row.seconds for row in judged.rows] - 1)
    of = np.array([row.op for row in judged.rows])
    error = {
        op: float(np.median(off[of == op]))
        for op in dict.fromkeys(of.tolist())
        if (of == op).sum() >= LEAST_OWN
    }
    worst = max(error, key=lambda op: error[op], default=None)
    return worst if worst is not None and error[worst] > OWN_BEYOND else None


def _shared_steps(general: Judged, device: Device) -> SimpleLaw:
    """Return the law of all products with each one's own level taken out."""
    measured = np.array([row.seconds for row in general.rows])
    ratio, fitted = measured / general.predicted, ~general.held
    of = np.array([row.op for row in general.rows])
    level = np.ones(len(of))
    for op in set(of.tolist()):
        inside = (of == op) & fitted
        level[of == op] = np.median(ratio[inside]) if inside.any() else 1.0
    bench = bench_of(general.rows, device)
    return fit_simple(replace(bench, seconds=measured / level).pick(fitted))


def _own(
    rows: Sequence[Row], shared: SimpleLaw, device: Device, source: Mapping[str, str]
) -> Judged | None:
    """Return one product's law: constants on the staircase of all, or a staircase of its own.

    A staircase of its own has as many steps as rows, so only rows that it was not fitted on speak
    for it.
    """
    alone = fit_group(rows, device, source, op=rows[0].op)
    if not shared.steps or len(rows) < LEAST_OWN:
        return alone
    held, bench = hold_out(rows), bench_of(rows, device)
    names = ("floor", "mem_eff", "compute_eff")
    law = rounded_law(fit_constants(bench.pick(~held), names, shared))
    together = judge(rows, bench, law, device, source, op=rows[0].op)
    if alone is None or not held.any():
        return together
    return min(together, alone, key=lambda judged: judged.loss(everything=False))
