"""Models of acceptance by position, and the sampling error of measured tokens per step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from roofline.acceptance.curve import gap_rate, tokens_per_step
from roofline.acceptance.files import load_acceptance
from roofline.base.numbers import normal_draws

__all__ = [
    "MODELS",
    "Fit",
    "compare_models",
    "decay_share",
    "drawn_tokens_per_step",
    "fit_all",
    "fit_constant",
    "fit_decay",
    "fit_first",
    "fit_positions",
    "rounds_covariance",
    "survival_by_position",
]

Array = NDArray[np.float64]


class Fit(NamedTuple):
    """A model, its parameters, and AL(D) as it predicts it for D = 0 ... n."""

    model: str
    parameters: dict[str, float]
    predicted: Array
    residual: float  # root mean square of predicted - measured AL, over the fitted D [tokens]

    def error(self, curve: Mapping[int, float], draft_length: int) -> float:
        """Return predicted / measured - 1 at one draft length."""
        return float(self.predicted[draft_length] / curve[draft_length] - 1)


def geometric(*, rate: float, depth: int) -> Array:
    """Return AL(0 ... depth) with one rate at every position, Leviathan et al. 2023, Eq. (1).

    DeepSeek-V4-Pro's MTP head accepts 0.79 at position 1; 8 of them would give 4.19 tokens.

    >>> round(float(geometric(rate=0.79, depth=8)[8]), 2)
    4.19
    """
    return tokens_per_step([rate] * depth)


def decaying(*, first: float, ratio: float, depth: int) -> Array:
    """Return AL(0 ... depth) with a_i = first * ratio^(i-1), each at most 1.

    a = 0.8, 0.4: AL = 1, 1.8, 1.8 + 0.32.

    >>> decaying(first=0.8, ratio=0.5, depth=2).round(2).tolist()
    [1.0, 1.8, 2.12]
    """
    return tokens_per_step(np.minimum(first * ratio ** np.arange(depth), 1.0).tolist())


def decay_share(*, rate: Array, ratio: float, draft_lengths: Sequence[int]) -> Array:
    """Return AL(D) with a_i = rate ratio^(i-1), divided by AL(D) with ``rate`` at every position.

    ``rate`` has one value for each context; the result has shape (contexts, draft lengths). Rates
    0.8, 0.4 yield AL = 2.12, and 0.8, 0.8 yield 2.44: the share is 0.869.

    >>> decay_share(rate=np.array([0.8]), ratio=0.5, draft_lengths=(0, 1, 2)).round(3).tolist()
    [[1.0, 1.0, 0.869]]
    """
    depth = max(draft_lengths)
    rows = [
        decaying(first=float(a), ratio=ratio, depth=depth) / geometric(rate=float(a), depth=depth)
        for a in rate
    ]
    return np.stack(rows)[:, list(draft_lengths)]


def fit_first(curve: Mapping[int, float], *, depth: int) -> Fit:
    """Carry the rate of position 1 to every position: a = AL(1) - 1.

    ``curve`` holds AL by D [tokens]; a = 0.8 gives AL(2) = 1 + 0.8 + 0.64, whatever was measured.

    >>> fit_first({1: 1.8, 2: 2.3}, depth=2).predicted.round(2).tolist()
    [1.0, 1.8, 2.44]
    """
    rate = curve[1] - 1 if min(curve) == 1 else math.nan
    return _fit("one rate, from AL(1)", {"a": rate}, geometric(rate=rate, depth=depth), curve)


def fit_constant(curve: Mapping[int, float], *, depth: int) -> Fit:
    """Find the one rate with the least squared error of AL over all given D.

    AL(2) = 2.19 is 1 + 0.7 + 0.49.

    >>> round(fit_constant({2: 2.19}, depth=2).parameters["a"], 4)
    0.7
    """

    def misfit(rate: float) -> float:
        return _squares(geometric(rate=rate, depth=depth), curve)

    rate = _minimise(misfit, 0.0, 1.0)
    return _fit("one rate, best", {"a": rate}, geometric(rate=rate, depth=depth), curve)


def fit_decay(curve: Mapping[int, float], *, depth: int) -> Fit:
    """Find a_1 and r of a_i = a_1 r^(i-1) with the least squared error of AL over all given D.

    Rates 0.8, 0.4, 0.2 give AL = 1.8, 2.12, 2.184.

    >>> parameters = fit_decay({1: 1.8, 2: 2.12, 3: 2.184}, depth=3).parameters
    >>> round(parameters["a1"], 3), round(parameters["r"], 3)
    (0.8, 0.5)
    """

    def best_first(ratio: float) -> float:
        return _minimise(
            lambda first: _squares(decaying(first=first, ratio=ratio, depth=depth), curve), 0.0, 1.0
        )

    def misfit(ratio: float) -> float:
        return _squares(decaying(first=best_first(ratio), ratio=ratio, depth=depth), curve)

    ratio = _minimise(misfit, 0.05, 1.2)
    first = best_first(ratio)
    predicted = decaying(first=first, ratio=ratio, depth=depth)
    return _fit("a1 r^(i-1)", {"a1": first, "r": ratio}, predicted, curve)


def fit_positions(curve: Mapping[int, float], *, depth: int) -> Fit:
    """Take S_i = AL(i) - AL(i-1), neighbours averaged where noise makes S rise, none below 0.

    Between given D one conditional rate yields the gain of AL; past the last given D the last rate
    holds. A curve that really falls is not reproduced.

    AL = 1.8, 2.36 is S = 0.8, 0.56; the rate of position 3 is 0.56 / 0.8.

    >>> fit_positions({1: 1.8, 2: 2.36}, depth=3).predicted.round(3).tolist()
    [1.0, 1.8, 2.36, 2.752]
    """
    smooth = _without_rises(curve)
    rates: list[float] = []
    survival, last, tokens = 1.0, 0, 1.0
    for length in sorted(curve):
        steps = length - last
        rate = float(gap_rate(gain=smooth[length] - tokens, survival=survival, steps=steps))
        rates += [rate] * steps
        survival *= rate**steps
        last, tokens = length, float(tokens_per_step(rates)[-1])
    rates += [rates[-1]] * (depth - last)
    parameters = {f"a{i}": rate for i, rate in enumerate(rates[:last], start=1)}
    return _fit("per position", parameters, tokens_per_step(rates[:depth]), curve)


MODELS: tuple[Callable[..., Fit], ...] = (fit_first, fit_constant, fit_positions, fit_decay)


def fit_all(curve: Mapping[int, float], *, depth: int | None = None) -> list[Fit]:
    """Fit every model to ``curve`` (AL by D, D >= 1) and predict up to ``depth``."""
    deepest = max(depth or 0, *curve)
    return [model(curve, depth=deepest) for model in MODELS]


def _without_rises(curve: Mapping[int, float]) -> dict[int, float]:
    """Return AL by D with survival that never rises.

    Isotonic regression by pooling adjacent violators (Ayer et al. 1955), weighted by positions.
    Survival 0.4, 0.1, 0.3 becomes 0.4, 0.2, 0.2.

    >>> {d: round(al, 2) for d, al in _without_rises({1: 1.4, 2: 1.5, 3: 1.8}).items()}
    {1: 1.4, 2: 1.6, 3: 1.8}
    """
    blocks: list[tuple[float, int]] = []  # gain, positions
    last, tokens = 0, 1.0
    for length in sorted(curve):
        blocks.append((curve[length] - tokens, length - last))
        last, tokens = length, curve[length]
        while len(blocks) > 1 and blocks[-1][0] / blocks[-1][1] > blocks[-2][0] / blocks[-2][1]:
            (gain, steps), (gain_before, steps_before) = blocks.pop(), blocks.pop()
            blocks.append((gain + gain_before, steps + steps_before))
    survival = [gain / steps for gain, steps in blocks for _ in range(steps)]
    return {length: 1 + sum(survival[:length]) for length in sorted(curve)}


def _minimise(misfit: Callable[[float], float], low: float, high: float) -> float:
    """Return the minimum of a function with one valley, by golden-section search (Kiefer 1953)."""
    golden = (math.sqrt(5) - 1) / 2
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = misfit(left), misfit(right)
    for _ in range(45):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = misfit(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = misfit(right)
    return (low + high) / 2


def _squares(predicted: Array, curve: Mapping[int, float]) -> float:
    return sum((float(predicted[d]) - al) ** 2 for d, al in curve.items())


def _fit(
    model: str, parameters: dict[str, float], predicted: Array, curve: Mapping[int, float]
) -> Fit:
    return Fit(
        model=model,
        parameters=parameters,
        predicted=predicted,
        residual=math.sqrt(_squares(predicted, curve) / len(curve)),
    )


def compare_models(reference: str) -> list[dict[str, Any]]:
    """Return one row per model: AL at the deepest D, its error, and the fit's residual.

    ``error`` is that of a fit to the whole curve, ``from half`` that of a fit to its first half.
    """
    curve = {d: al for d, al in load_acceptance(reference).measured.items() if d > 0}
    deepest = max(curve)
    half = {d: al for d, al in curve.items() if d <= max(deepest // 2, min(curve))}
    rows = []
    for model in MODELS:
        if min(curve) > 1 and model is fit_first:
            continue  # AL(1) is not known
        whole, from_half = model(curve, depth=deepest), model(half, depth=deepest)
        rows.append(
            {
                "curve": reference,
                "D": deepest,
                "AL": curve[deepest],
                "model": whole.model,
                "predicted": f"{whole.predicted[deepest]:.2f}",
                "error %": f"{100 * whole.error(curve, deepest):+.1f}",
                "residual": f"{whole.residual:.3f}",
                "from half %": f"{100 * from_half.error(curve, deepest):+.1f}",
            }
        )
    return rows


#: The first stream of random draws for acceptance; lower ones belong to step times.
FIRST_STREAM = 1200


def survival_by_position(draft_lengths: tuple[int, ...], tokens_per_step: Array) -> Array:
    """Return S_1 … S_n from AL at some draft lengths; survival is even within a gap.

    Survivals outside 0 … 1 are clipped, and none is larger than the one before it.

    >>> survival_by_position((0, 2, 3), np.array([1.0, 2.4, 2.9])).round(2)
    array([0.7, 0.7, 0.5])
    """
    all_lengths = np.arange(draft_lengths[-1] + 1)
    gains = np.diff(np.interp(all_lengths, draft_lengths, tokens_per_step))
    return np.minimum.accumulate(np.clip(gains, 0, 1))


def rounds_covariance(surviving: Array) -> Array:
    """Return the covariance of min(J, d) and min(J, e) in one round, for d, e = 1 … n.

    J is the number of accepted drafts: min(J, d) is the sum over i <= d of [J >= i], so that
    E[min(J, d) min(J, e)] = sum over i <= d, j <= e of S_max(i, j).

    >>> rounds_covariance(np.array([0.8]))  # a coin: 0.8 x 0.2
    array([[0.16]])
    """
    index = np.arange(len(surviving))
    product_mean = surviving[np.maximum.outer(index, index)].cumsum(axis=0).cumsum(axis=1)
    mean = surviving.cumsum()
    return np.asarray(product_mean - np.outer(mean, mean))


def drawn_tokens_per_step(
    draft_lengths: tuple[int, ...],
    tokens_per_step: Array,
    rounds: int | None,
) -> Array:
    """Return draws of AL, shape (DRAWS, 1, contexts, draft lengths).

    They have the sampling error of a count of ``rounds`` passes; without one they are exact.
    ``tokens_per_step`` has one row for each context, or one for all, and all rows share their
    draws.

    One draft at S = 0.8, counted 100 times: sqrt(0.8 x 0.2 / 100).

    >>> draws = drawn_tokens_per_step((0, 1), np.array([[1.0, 1.8]]), rounds=100)
    >>> draws.shape, round(float(draws[..., 1].std()), 2)
    ((64, 1, 1, 2), 0.04)
    """
    if len(draft_lengths) == 1 or rounds is None:
        return tokens_per_step[None, None]
    rows = [_counted(draft_lengths, row, rounds) for row in tokens_per_step]
    return np.stack(rows, axis=1)[:, None]


def _counted(draft_lengths: tuple[int, ...], tokens_per_step: Array, rounds: int) -> Array:
    covariance = rounds_covariance(survival_by_position(draft_lengths, tokens_per_step)) / rounds
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0))
    errors = _numbers(len(values)).T @ root.T  # (DRAWS, D = 1 ... n)
    lengths = np.array(draft_lengths)
    drawn = tokens_per_step + np.where(lengths > 0, errors[:, np.maximum(lengths, 1) - 1], 0.0)
    return np.asarray(np.clip(drawn, 1, 1 + lengths))


def _numbers(count: int) -> Array:
    """Return standard normal numbers of acceptance, (count, DRAWS)."""
    return np.stack([normal_draws(FIRST_STREAM + i) for i in range(count)])
