"""What physics and common sense forbid, counted over priced combinations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from roofline.specs.gpu import load_hardware
from workshop.sanity.grid import Combination, Priced

__all__ = ["CLASSES", "Tally", "count"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass
class Tally:
    """How many points of one class are wrong, and the worst of them.

    ``measured`` are the wrong points that are explained. Of a pair: by tables of both sides, where
    no other kernel of the first side is slower than its counterpart. Of one more draft: by kernels
    that tables of this part and engine hold, or whose path cites a source, where the rest of the
    step makes no cliff. Of a best D that rises: as `grid` says.
    """

    wrong: int = 0
    measured: int = 0
    of: int = 0
    worst: float = 0.0
    example: str = ""
    by_gpu: Counter[str] = field(default_factory=Counter)

    @property
    def share(self) -> float:
        """Wrong ones among those that could be [%]."""
        return 100 * self.wrong / max(self.of, 1)

    @property
    def unexplained(self) -> float:
        """Wrong ones that nothing explains, among those that could be [%]."""
        return 100 * (self.wrong - self.measured) / max(self.of, 1)

    def add(
        self,
        wrong: Mask,
        of: Mask,
        badness: Array,
        say: Callable[[tuple[int, ...]], str],
        gpu: str,
    ) -> None:
        """Count points; ``say`` is the command and numbers of one of them."""
        number = int(wrong.sum())
        self.wrong += number
        self.of += int(of.sum())
        if not number:
            return
        self.by_gpu[gpu] += number
        found = np.where(wrong, badness, -np.inf)
        at = tuple(int(i) for i in np.unravel_index(int(found.argmax()), found.shape))
        if found[at] > self.worst:
            self.worst, self.example = float(found[at]), say(at)

    def join(self, other: Tally) -> None:
        """Add what was counted elsewhere."""
        self.wrong += other.wrong
        self.measured += other.measured
        self.of += other.of
        self.by_gpu.update(other.by_gpu)
        if other.worst > self.worst:
            self.worst, self.example = other.worst, other.example


#: Each class by its key in the bar.
CLASSES = {
    "below-own-roofline": "passes faster than their own roofline",
    "beyond-bandwidth": "kernels above 100 % of the bandwidth, L2 residents aside",
    "falls-with-drafts": "step falls by over 2 % as D rises",
    "falls-with-batch": "step falls by over 2 % as the batch rises",
    "falls-with-context": "step falls by over 2 % as the context rises",
    "cliff-in-drafts": "one more draft costs over 1.3 x the growth of the pass's roofline",
    "changed-by-guards": "steps that the guards change by over 1 %",
    "rises-dense": "best D rises again with batch, dense",
    "rises-mixture": "best D rises again with batch, mixtures of experts",
    "better-part-slower": "a part whose roofline is no slower is slower by over 2 %",
    "fp8-slower-than-bf16": "fp8 slower than bf16 by over 5 %",
    "int4-slower-than-bf16": "int4 slower than bf16 by over 5 %, to 64 rows",
    "nvfp4-slower-than-fp8": "nvfp4 slower than fp8 by over 5 %, on parts with an fp4 rate",
}
#: (no slower, of these two): parts of one vendor in pairs that people compare.
PARTS = tuple(
    pair.split()
    for pair in """
    h200-sxm h100-sxm|b300-hgx b200-hgx|gb200 b200-hgx|gb300 gb200|gb300 b300-hgx
    a100-sxm-80gb a100-sxm-40gb|rtx-5090 rtx-4090|rtx-4090 rtx-3090|b200-hgx h200-sxm
    h100-sxm a100-sxm-80gb|h100-sxm h100-pcie|h100-sxm h20|gh200-144gb h100-sxm|h200-sxm h200-nvl
    mi325x mi300x|mi355x mi325x|l40s l4|rtx-pro-6000-blackwell-ws rtx-pro-6000-blackwell-server
    rtx-pro-6000-blackwell-server l40s|rtx-6000-ada l40s|b200-hgx b100|h200-nvl h100-nvl
    rtx-pro-6000-blackwell-ws rtx-5090|h200-sxm h20
    """.strip()
    .replace("\n", "|")
    .split("|")
)
SLOWER, FORMAT_SLOWER, CLIFF, FALL = 1.02, 1.05, 1.3, 0.98


def count(priced: Iterable[Priced]) -> dict[str, Tally]:
    """Return the tally of every class over the combinations of one model."""
    tallies = {name: Tally() for name in CLASSES}
    every = {one.what: one for one in priced}
    with np.errstate(all="ignore"):
        for one in every.values():
            _roofs(one, tallies)
            _shapes(one, tallies)
            _rises(one, tallies)
        for better, part in PARTS:
            for what, one in every.items():
                if what.gpu == part and (what.tp == 1 or not better.startswith("rtx")):
                    _pair(every, what._replace(gpu=better), one, tallies["better-part-slower"])
        for narrow, wide in (("fp8", "bf16"), ("int4-g128", "bf16"), ("nvfp4", "fp8")):
            _formats(every, narrow, wide, tallies)
    return tallies


def _point(one: Priced, at: tuple[int, ...], batch: str | None = None) -> str:
    where = f"--batch {batch or one.batches[at[0]]} --context {one.contexts[at[1]]}"
    return f"{one.what.command} {where}"


def _roofs(one: Priced, tallies: Mapping[str, Tally]) -> None:
    gpu = one.what.gpu
    changed = one.by_guards & one.usable
    tallies["changed-by-guards"].add(
        changed, one.usable, one.step, lambda at: f"{_point(one, at)}  # D {at[2]}", gpu
    )
    share = np.where(one.usable, one.own_roof / one.verify, np.nan)

    def say(at: tuple[int, ...]) -> str:
        return (
            f"{_point(one, at)}  # D {at[2]}: verify {1e3 * one.verify[at]:.2f} ms,"
            f" roofline {1e3 * one.own_roof[at]:.2f} ms"
        )

    tallies["below-own-roofline"].add(share > 1 + 1e-9, one.usable, share, say, gpu)
    worst = max((value for _, value in one.beyond_bus), default=0.0)
    beyond = np.array([worst > 0])
    tallies["beyond-bandwidth"].add(
        beyond,
        np.array([True]),
        np.array([worst]),
        lambda _: f"{one.what.command}  # {one.beyond_bus}",
        gpu,
    )


def _shapes(one: Priced, tallies: Mapping[str, Tally]) -> None:
    """Count falls and cliffs along each axis."""
    step, gpu = np.where(one.usable, one.step, np.nan), one.what.gpu
    for axis, name in enumerate(("falls-with-batch", "falls-with-context", "falls-with-drafts")):
        ratio = np.divide(*(np.delete(step, at, axis=axis) for at in (0, -1)))
        there = np.isfinite(ratio)

        def say(at: tuple[int, ...], axis: int = axis, name: str = name) -> str:
            after = tuple(i + (axis == j) for j, i in enumerate(at))
            numbers = f"{1e3 * step[at]:.2f} -> {1e3 * step[after]:.2f} ms"
            return f"{_point(one, at)}  # to the next {name[11:]}, D {at[2]}: {numbers}"

        tallies[name].add((ratio < FALL) & there, there, -ratio + 2, say, gpu)
    growth = np.maximum(one.roof[..., 1:] / one.roof[..., :-1], 1.0)
    ratio = step[..., 1:] / step[..., :-1]
    drafted = np.isfinite(ratio)
    drafting = np.arange(ratio.shape[-1]) > 0

    def cliff(at: tuple[int, ...]) -> str:
        after = (*at[:2], at[2] + 1)
        return (
            f"{_point(one, at)}  # D {at[2]} to {after[2]}: {1e3 * step[at]:.2f} ->"
            f" {1e3 * step[after]:.2f} ms"
        )

    wrong = (ratio > CLIFF * growth) & drafted & drafting
    tallies["cliff-in-drafts"].add(wrong, drafted, ratio / growth, cliff, gpu)
    known = (kernel.time for kernel in one.kernels.values() if kernel.measured or kernel.asked)
    others = step - sum(known, np.zeros(step.shape))
    asked = others[..., 1:] <= CLIFF * growth * others[..., :-1]
    tallies["cliff-in-drafts"].measured += int((wrong & asked).sum())


def _rises(one: Priced, tallies: Mapping[str, Tally]) -> None:
    there = one.usable[..., 0]
    if there.shape[0] < 3:
        return
    name = "rises-mixture" if one.mixture else "rises-dense"
    of = there[1:] & there[:-1] & (there.sum(axis=0) >= 3)

    def say(at: tuple[int, ...]) -> str:
        column = [
            f"{batch}:{best}"
            for batch, best, ok in zip(
                one.batches, one.best[:, at[1]], there[:, at[1]], strict=True
            )
            if ok
        ]
        batches = ",".join(cell.partition(":")[0] for cell in column)
        return f"{_point(one, at, batches)}  # best D {' '.join(column)}"

    wrong = one.rises & of
    change = np.diff(one.best, axis=0).astype(float)
    tallies[name].add(wrong, of, change, say, one.what.gpu)
    tallies[name].measured += int((wrong & one.explained_rises).sum())


def _pair(
    every: Mapping[Combination, Priced], better: Combination, one: Priced, tally: Tally
) -> None:
    other = every.get(better)
    if other is None or other.step.shape != one.step.shape:
        return
    ok = one.usable & other.usable & (other.roof <= one.roof)
    ratio = np.where(ok, other.step / one.step, np.nan)

    def say(at: tuple[int, ...]) -> str:
        return (
            f"{_point(other, at)}  # D {at[2]}: {1e3 * other.step[at]:.2f} ms against"
            f" {1e3 * one.step[at]:.2f} ms on {one.what.gpu}"
        )

    wrong = ratio > SLOWER
    tally.add(wrong, ok, ratio, say, f"{better.gpu} v {one.what.gpu}")
    tally.measured += int((wrong & _by_tables(other, one, SLOWER)).sum())


def _formats(
    every: Mapping[Combination, Priced], narrow: str, wide: str, tallies: Mapping[str, Tally]
) -> None:
    tally = tallies[f"{narrow.removesuffix('-g128')}-slower-than-{wide}"]
    for what, one in every.items():
        other = every.get(what._replace(weights=narrow)) if what.weights == wide else None
        if other is None or other.step.shape != one.step.shape:
            continue
        if narrow == "nvfp4" and "fp4" not in load_hardware(what.gpu).rates:
            continue
        ok = one.usable & other.usable
        if narrow.startswith("int4"):
            rows = np.array(one.batches)[:, None, None] * (1 + np.arange(one.step.shape[-1]))
            ok = ok & (rows <= 64)
        ratio = np.where(ok, other.step / one.step, np.nan)

        def say(at: tuple[int, ...], other: Priced = other, one: Priced = one) -> str:
            return (
                f"{_point(other, at)}  # D {at[2]}: {1e3 * other.step[at]:.2f} ms against"
                f" {1e3 * one.step[at]:.2f} ms in {wide}"
            )

        wrong = ratio > FORMAT_SLOWER
        tally.add(wrong, ok, ratio, say, what.gpu)
        tally.measured += int((wrong & _by_tables(other, one, FORMAT_SLOWER)).sum())


def _by_tables(slower: Priced, one: Priced, limit: float) -> Mask:
    """Return where the first step is over ``limit`` times the second by measured kernels alone.

    What is not measured on both sides, the host's time included, may help the first side, and is
    taken to be equal where it does not.
    """
    names = slower.kernels.keys() & one.kernels.keys()
    both = [
        (slower.kernels[name].time, one.kernels[name].time)
        for name in names
        if slower.kernels[name].measured and one.kernels[name].measured
    ]
    measured = sum((first - second for first, second in both), np.zeros(one.step.shape))
    other = slower.step - one.step - measured
    return np.asarray(measured + np.minimum(other, 0) > (limit - 1) * one.step)
