"""The grid that is scanned, and one combination of it as priced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from roofline.advice.configuration import Configuration, Documents, load_documents
from roofline.advice.decide import SURE, TIE, smallest_within_tie
from roofline.advice.deployment import Deployment, PricedGrid, deploy
from roofline.base.errors import RooflineError
from roofline.kernels.ops import AttentionShape, Part
from roofline.specs.formats import DType, rate_name
from roofline.specs.gpu import HardwareProfile
from roofline.specs.network import load_model
from roofline.specs.priors import priors
from roofline.timing.machine import Machine, OpTime
from roofline.timing.uncertainty import drawn_row_shift

__all__ = [
    "SAMPLE",
    "WHOLE",
    "Combination",
    "Grid",
    "KernelTotal",
    "Priced",
    "Rise",
    "combinations",
    "explained",
    "price",
    "roof_of",
]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

LONGEST = 10
#: The conditional acceptance at every position that decides the best D.
RATE = 0.6
TOKENS = np.cumsum(RATE ** np.arange(LONGEST + 1))
LEAST = 1e-12  # a time that no kernel beats [s]
#: A step that differs by no more than the tie of the advice is the same.
UNCHANGED = TIE


class Combination(NamedTuple):
    """What is priced together: a model on GPUs in one format of its weights."""

    model: str
    gpu: str
    tp: int
    weights: str | None  # None: as the model ships
    engine: str = "vllm"

    @property
    def command(self) -> str:
        """The command that shows its numbers, without batch and context."""
        weights = f" --weights {self.weights}" if self.weights else ""
        return (
            f"roofline sweep {self.model} --gpu {self.gpu} --tp {self.tp} --engine {self.engine}"
            f"{weights} --drafter ngram --hit-rate 1 --acceptance conditional:{RATE}"
            f" --max-draft-length {LONGEST}"
        )


class Grid(NamedTuple):
    """Lists of what is combined."""

    models: tuple[str, ...]
    gpus: tuple[str, ...]
    tps: tuple[int, ...]
    weights: tuple[str | None, ...]
    batches: tuple[int, ...]
    contexts: tuple[int, ...]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


WHOLE = Grid(
    models=_words(
        """
        llama-3.1-8b qwen3-30b-a3b deepseek-v3 gpt-oss-120b llama-3.1-70b gemma-3-27b
        qwen3-next-80b-a3b-instruct qwen3-32b mixtral-8x7b
        llama-4-scout-17b-16e-instruct kimi-k2-instruct qwen3-235b-a22b qwen3-8b
        gpt-oss-20b qwen3.5-27b qwen3.5-35b-a3b deepseek-v3.2 minimax-m2.5 glm-4.5-air
        gemma-2-27b-it llama-2-7b qwen3-0.6b llama-3.2-1b mistral-7b-v0.3 phi-4 glm-5
        llama-3.1-405b nvidia-nemotron-3-nano-30b-a3b-bf16 deepseek-v2-lite
        deepseek-v4-flash qwen3-14b qwen3-1.7b gemma-4-26b-a4b gemma-4-31b-it
        qwen3.5-397b-a17b minimax-m3 mimo-v2-flash deepseek-v3.1-nvfp4 kimi-k2.5 glm-4.5
        qwen3.5-122b-a10b qwen3.5-9b mixtral-8x22b qwen3-4b
        devstral-small-2-24b-instruct llama-3.2-3b llama-2-13b gemma-3-12b-it
        phi-3.5-moe-instruct falcon-40b olmo-3.1-32b-instruct yi-34b deepseek-v4-pro
        llama-4-maverick-17b-128e-instruct nvidia-nemotron-3-super-120b-a12b-fp8
        qwen2.5-7b-instruct ernie-4.5-300b-a47b-pt mistral-nemo-instruct-2407
        qwen3-coder-480b-a35b-instruct gemma-2-9b
        """
    ),
    gpus=_words(
        """
        a100-sxm-40gb a100-sxm-80gb h100-pcie h100-nvl h100-sxm h200-nvl h200-sxm
        gh200-144gb h20 b100 b200-hgx b300-hgx gb200 gb300 l4 l40s rtx-3090 rtx-4090
        rtx-5090 rtx-6000-ada rtx-pro-6000-blackwell-server rtx-pro-6000-blackwell-ws
        mi300x mi325x mi355x
        """
    ),
    tps=(1, 2, 4, 8),
    weights=(None, "bf16", "fp8", "int4-g128", "nvfp4"),
    batches=(1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024),
    contexts=(512, 2048, 8192, 8193, 32768, 131072),
)
#: Five kinds of model: dense, large dense, a mixture, latent attention, linear attention.
SAMPLE = WHOLE._replace(
    models=("llama-3.1-8b", "llama-3.1-70b", "gpt-oss-120b", "deepseek-v3.2", "qwen3.5-27b"),
    tps=(1, 8),
    batches=(1, 2, 8, 16, 32, 64, 96, 128, 256),
    contexts=(2048, 8192, 8193, 131072),
)


def combinations(grid: Grid, model: str) -> Iterator[Combination]:
    """Yield what is priced of one model; as it ships only where that is not 16 bits."""
    stored = set(load_model(model).stored().values())
    plain = stored <= {DType.BF16, DType.FP16}
    for gpu in grid.gpus:
        for tp in grid.tps:
            for weights in grid.weights:
                if weights is not None or not plain:
                    yield Combination(model, gpu, tp, weights)


class KernelTotal(NamedTuple):
    """All launches of the kernels of one name in a verify pass."""

    time: Array  # s
    measured: bool  # by a table of this part under this engine
    asked: bool = False  # an entry of the engine's paths, with a source, says how it reads a cache
    roof: Array = np.zeros(1)  # max(FLOP / peak, bytes / bandwidth) [s]


class Priced(NamedTuple):
    """One combination on batches, contexts and draft lengths 0 ... LONGEST; times in s."""

    what: Combination
    contexts: tuple[int, ...]
    batches: tuple[int, ...]
    mixture: bool
    usable: Mask  # fits, and the engine's graphs cover the pass
    step: Array
    verify: Array
    links: Array  # of the step: collectives
    own_roof: Array  # no kernel takes less than this: FLOP at its own peak, bytes at the bandwidth
    roof: Array  # the same with the whole pass at the highest peak that its formats allow
    beyond_bus: tuple[tuple[str, float], ...]  # kernels above 100 % of the bandwidth
    best: NDArray[np.intp]
    rises: Mask  # (batches - 1, contexts): the best D is surely longer than that of a lower batch
    explained_rises: Mask  # those that tables, paths and the kernels' own rooflines ask for
    by_guards: (
        Mask  # the guards of `timing.machine` change the step; nowhere unless that was asked for
    )
    kernels: Mapping[str, KernelTotal]  # of the verify pass, by name


def price(what: Combination, grid: Grid, *, guards: bool = False) -> Priced | None:
    """Return one combination as priced; None where it is refused or nothing fits.

    With ``guards`` it is priced without them as well, to see where they change anything.
    """
    documents = _documents(what.model, what.gpu, what.engine)
    contexts = tuple(c for c in grid.contexts if c <= documents.model.max_context)
    try:
        deployment, _ = deploy(
            Configuration(
                model=what.model,
                gpu=what.gpu,
                tp=what.tp,
                weights=None if what.weights is None else DType(what.weights),
                engine=what.engine,
                drafter="ngram",
            ),
            documents=documents,
        )
    except RooflineError:
        return None
    priced = deployment.price(deployment.grid(grid.batches, contexts, range(LONGEST + 1)))
    usable = priced.fits & priced.times.launches.captured
    if not priced.fits[..., 0].any():
        return None
    changed = np.zeros(usable.shape, dtype=bool)
    if guards:
        with patch.object(Machine, "guarded", False):
            plain = deployment.price(priced.grid).times.total
        changed = np.abs(priced.times.total / plain - 1) > UNCHANGED
    return _priced(what, contexts, grid.batches, deployment, priced, usable, changed)


@cache
def _documents(model: str, gpu: str, engine: str) -> Documents:
    """Return what the combinations of a model on a part name, loaded once."""
    return load_documents(Configuration(model=model, gpu=gpu, engine=engine))


def _priced(  # noqa: PLR0917
    what: Combination,
    contexts: tuple[int, ...],
    batches: tuple[int, ...],
    deployment: Deployment,
    priced: PricedGrid,
    usable: Mask,
    by_guards: Mask,
) -> Priced:
    gpu, times = deployment.gpu, priced.times
    shape = priced.grid.shape
    kernels = [time for time in times.verify_ops if time.op.part is not Part.COMMUNICATION]
    moved = sum((k.op.count * k.op.bytes for k in kernels), np.zeros(shape))
    flops = sum((k.op.count * k.op.flops for k in kernels), np.zeros(shape))
    at_peak = sum((k.op.count * k.op.flops / _peak(gpu, k) for k in kernels), np.zeros(shape))
    speed = TOKENS / times.total
    best, _ = smallest_within_tie(np.where(priced.candidates, speed, np.nan))
    totals = _by_name(times.verify_ops, what.engine, gpu)
    rises, known_rises = _sure_rises(priced, speed, best, totals)
    return Priced(
        what=what,
        contexts=contexts,
        batches=batches,
        mixture=deployment.target.model.num_expert_layers > 0,
        usable=usable,
        step=times.total,
        verify=times.verify,
        links=np.broadcast_to(times.parts[Part.COMMUNICATION.value], shape),
        own_roof=np.maximum(at_peak, moved / gpu.bandwidth),
        roof=np.maximum(flops / roof_of(gpu, deployment.columns["weights"]), moved / gpu.bandwidth),
        beyond_bus=tuple(_beyond_bus(gpu, kernels, priced.fits)),
        best=best,
        rises=rises,
        explained_rises=known_rises,
        by_guards=by_guards,
        kernels=totals,
    )


def _by_name(
    kernels: Sequence[OpTime], engine: str, gpu: HardwareProfile
) -> dict[str, KernelTotal]:
    totals: dict[str, KernelTotal] = {}
    for kernel in kernels:
        chosen, op = kernel.chosen, kernel.op
        own = chosen.provenance == "calibrated" and chosen.kernel[:1] == (engine,)
        floor = np.maximum(op.flops / _peak(gpu, kernel), op.bytes / gpu.bandwidth)
        roof = op.count * floor if op.part is not Part.COMMUNICATION else np.zeros(1)
        before = totals.get(op.name, KernelTotal(time=np.zeros(1), measured=True, asked=True))
        totals[op.name] = KernelTotal(
            time=before.time + kernel.total,
            measured=before.measured and own,
            asked=before.asked and _asked(kernel),
            roof=before.roof + roof,
        )
    return totals


def _asked(kernel: OpTime) -> bool:
    """Return whether a path that cites its source says how several rows read the cache.

    By uncut blocks, by whole tiles, or converted in each warp: not once for all rows.
    """
    shape = kernel.op.shape
    if kernel.op.assumed_reads or not isinstance(shape, AttentionShape):
        return False
    return shape.own_warps or bool(np.any(shape.work)) or bool(np.any(shape.blocks))


def roof_of(gpu: HardwareProfile, weights: object) -> float:
    """Return the highest peak that a pass with these weights may use [FLOP/s]."""
    narrow = {"fp8": ("fp8",), "fp8-block": ("fp8",), "nvfp4": ("fp4", "fp8")}
    names = ("bf16", *narrow.get(str(weights), ()))
    return max((gpu.peak(name) for name in names if name in gpu.rates), default=np.inf)


def _peak(gpu: HardwareProfile, time: OpTime) -> float:
    rate = rate_name(time.op.compute)
    return gpu.peak(rate) if rate in gpu.rates else np.inf


def _beyond_bus(
    gpu: HardwareProfile, kernels: Sequence[OpTime], fits: Mask
) -> Iterator[tuple[str, float]]:
    """Yield the kernels that move more than the memory can, and how much more.

    Weights that stay in the L2 cache from launch to launch do not cross the memory bus: no kernel
    that moves less than the cache holds is counted.
    """
    cache = gpu.compute.l2.value if gpu.compute.l2 else 0.0
    for time in kernels:
        moved = np.broadcast_to(time.op.bytes, fits.shape)
        share = moved / np.maximum(time.each, 1e-12) / gpu.bandwidth
        worst = float(np.where(fits & (moved > cache), share, 0.0).max())
        if worst > 1 + 1e-9:
            yield time.op.name, worst


class Rise(NamedTuple):
    """A batch whose best D is longer than the shortest at lower batches; positions on the grid."""

    row: int
    longer: int
    shorter: int
    since: int  # the last batch at which the shorter draft was best


def _sure_rises(
    priced: PricedGrid, speed: Array, best: NDArray[np.intp], kernels: Mapping[str, KernelTotal]
) -> tuple[Mask, Mask]:
    """Return where the best D is longer than the shortest at lower batches, and surely gains.

    A rise counts where the longer draft gains over 1 % at that batch, and gains anything in at
    least 80 % of the joint draws. The second mask has those that are explained. Both have shape
    (batches - 1, contexts).
    """
    rises = np.zeros((best.shape[0] - 1, best.shape[1]), dtype=bool)
    of_known = rises.copy()
    found = _rises(priced, speed, best)
    drawn = priced.drawn.steps() if found else np.empty(0)
    for rise, contexts in found.items():
        odds = _odds(priced, drawn, rise.row, contexts, (rise.longer, rise.shorter))
        rises[rise.row - 1, contexts] = odds >= SURE
        known = explained(priced.times.total, rise, kernels)[contexts]
        of_known[rise.row - 1, contexts] = (odds >= SURE) & known
    return rises, of_known


def explained(step: Array, rise: Rise, kernels: Mapping[str, KernelTotal]) -> Mask:
    """Return whether a longer draft gains only by what is known to cost less at the larger batch.

    c(B) = (t(B, longer) - t(B, shorter)) / step(B, shorter) is what the longer draft costs in a
    kernel. Of kernels that tables of this part and engine hold, or whose path cites a source, c
    falls from the smaller batch to the larger one by as much as is known; of others by as much as
    that of their own rooflines does, at the most of them that the law reaches, as where nearly all
    experts are awake already. A rise is explained where the longer draft would not gain over 1 %
    without these falls. By context.
    """
    batches, lengths = [rise.since, rise.row], [rise.shorter, rise.longer]
    times = step[batches][..., lengths]
    fall: Array = np.zeros(step.shape[1])
    for kernel in kernels.values():
        known = kernel.time
        if not (kernel.measured or kernel.asked):
            known = kernel.roof * np.min(kernel.time / np.maximum(kernel.roof, LEAST))
        grown = np.diff(np.broadcast_to(known, step.shape)[batches][..., lengths], axis=-1)[..., 0]
        fall = fall - np.diff(grown / times[..., 0], axis=0)[0]
    ratio = times[1, :, 1] / times[1, :, 0] + fall
    return np.asarray(TOKENS[rise.longer] / TOKENS[rise.shorter] / ratio - 1 <= TIE)


def _rises(priced: PricedGrid, speed: Array, best: NDArray[np.intp]) -> dict[Rise, list[int]]:
    """Return the contexts of each rise that gains over 1 %."""
    found: dict[Rise, list[int]] = {}
    usable = priced.fits & priced.times.launches.captured
    for at in range(best.shape[1]):
        lowest: int | None = None
        since = 0
        for row in range(best.shape[0]):
            if not usable[row, at, 0]:
                continue
            here = int(best[row, at])
            if lowest is not None and here > lowest and here > best[row - 1, at]:
                gain = speed[row, at, here] / speed[row, at, lowest] - 1
                if gain > TIE:
                    found.setdefault(Rise(row, here, lowest, since), []).append(at)
            if lowest is None or here <= lowest:
                lowest, since = here, row
    return found


def _odds(
    priced: PricedGrid, steps: Array, row: int, at: list[int], lengths: tuple[int, int]
) -> Array:
    """Return the odds that the first draft length is faster than the second, as a schedule has it.

    ``steps`` are the drawn step times of the grid; a number for each context of ``at``. A draw
    moves the rows at which kernels rise by a factor, and so reads the gain at another batch.
    """
    batch, contexts = priced.grid.batch.ravel()[row], priced.grid.context.ravel()[at]
    drawn = steps[:, row, at]
    of_draws = np.log(drawn[..., lengths[1]] / drawn[..., lengths[0]])
    near = np.unique(np.maximum(np.round(batch * np.exp(np.linspace(-0.5, 0.5, 21))), 1))
    deployment = priced.deployment
    grid = deployment.grid(
        near.astype(int).tolist(), contexts.astype(int).tolist(), (0, *sorted(lengths))
    )
    expected = deployment.price(grid).times.total[..., 1:]
    of_batches = np.log(expected[..., 0] / expected[..., 1]).T
    moved = batch * drawn_row_shift(priced.times, priors().spread)
    by_rows = np.array(
        [np.interp(moved, near, gains) - np.interp(batch, near, gains) for gains in of_batches]
    )
    gain = TOKENS[lengths[0]] / TOKENS[lengths[1]]
    return np.asarray((np.log(gain) + of_draws + by_rows.T > 0).mean(axis=0))
