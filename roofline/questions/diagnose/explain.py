"""Which single term, scaled, explains measured steps best, and with how little strain.

Model: log y_i = log(sum_k f_k t_ik) + e_i, with e_i the error of measurement. All terms but one
keep to their stated errors (a covariance over the points); the one is free.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from roofline.questions.diagnose.terms import Term

__all__ = ["Agreement", "Explanation", "Suspect", "agreement", "deviations", "explain", "scaled"]

Array = NDArray[np.float64]
#: Factors that are tried; where none of them fits, something else than this term is wrong.
FACTORS = np.exp(np.linspace(np.log(1 / 20), np.log(20), 1201))
#: Kernels run at rates near the datasheet's: no term is this many times its prediction or less.
LEAST_FACTOR = 0.2
UNCHANGED = len(FACTORS) // 2
#: Explanations whose misfit is within this of the best one's are as good: the 95 % quantile of
#: chi-squared with one degree of freedom, one factor.
AS_GOOD = 3.84
#: Quantile of chi-squared within which the differences may be the errors of model and measurement.
INSIDE = 0.95
#: The same for what an explanation leaves unexplained.
WELL_FITTED = 0.99
#: Chance that a factor is called needed where nothing but the others' errors is at work.
NEEDLESS = 0.01
#: A term below this share of every step cannot be what is wrong.
SMALLEST_SHARE = 0.005


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """One term scaled by ``factor`` until it explains most.

    ``strain`` is |log factor| over the term's stated error. ``misfit`` is the squared distance that
    remains, in errors of measurement and of all other terms; ``gain`` is how much the factor takes
    off it; ``residual_rms`` is the rms of the relative differences that remain.
    """

    term: Term
    factor: float
    strain: float
    misfit: float
    gain: float
    residual_rms: float
    sigma: float
    apart: float = 0.0  # as misfit, in errors of the explained step instead of the measured one
    plausible: bool = True  # the factor is one that a term may have
    as_good: bool = False  # as the best one
    fits: bool = False  # what remains is within the errors
    moves: bool = True  # the term is large enough to change anything
    needed: bool = False  # no error of the others, nor of measurement, does what the factor does


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """Whether all points together lie within the model's error; ``band`` is one sd of each."""

    distance: float  # squared, in standard deviations
    limit: float
    band: Array
    deviations: float  # `deviations` of the distance

    @property
    def chance(self) -> float:
        """The share of cases in which the errors alone lead at least as far."""
        return math.erfc(self.deviations / math.sqrt(2))

    @property
    def inside(self) -> bool:
        """Whether the whole difference may be the errors of model and measurement."""
        return self.distance <= self.limit


def distance(residual: Array, covariance: Array) -> Array:
    """Return r^T C^-1 r for residuals (..., n) and covariances (..., n, n).

    >>> float(distance(np.array([0.1, 0.2]), np.diag([0.01, 0.01])))
    5.0
    """
    solved = np.linalg.solve(covariance, residual[..., None])[..., 0]
    return np.asarray((residual * solved).sum(axis=-1))


def deviations(distance: float, points: int) -> float:
    """Return how many standard deviations of one normal variable are as far as a distance.

    P(|z| > deviations) = P(chi-squared of ``points`` degrees of freedom > distance).

    >>> round(deviations(4.0, 1), 3), round(deviations(5.991, 2), 2)  # 5.991: the 95 % quantile
    (2.0, 1.96)
    """
    from scipy.stats import chi2, norm

    # where the chance is too small for a float, that of one point is the most it can be
    return float(min(norm.isf(chi2.sf(distance, points) / 2), math.sqrt(distance)))


def scaled(total: Array, term: Array, factor: Array | float, *, added: bool) -> Array:
    """Return the step times with one term multiplied by ``factor`` [s].

    total + (factor - 1) term; where the term is not part of the total, total + factor term.

    >>> scaled(np.array([3.0]), np.array([1.0]), 2.0, added=False)
    array([4.])
    """
    return total + (np.asarray(factor) - (0.0 if added else 1.0)) * term


def _limit(points: int, share: float) -> float:
    """Return the chi-squared quantile of ``points`` degrees of freedom."""
    from scipy.stats import chi2

    return float(chi2.ppf(share, max(points, 1)))


def _noise(points: int, noise: float) -> Array:
    return noise**2 * np.eye(points)


def agreement(measured: Array, total: Array, covariance: Array, *, noise: float) -> Agreement:
    """Return whether measured steps are within the errors of the model and of measurement.

    ``measured`` and ``total``, predicted, are steps [s]; ``covariance`` is that of the whole step's
    relative error over the points, ``noise`` one relative deviation of a measurement.
    """
    error = _noise(len(measured), noise) + covariance
    off = float(distance(np.log(measured / total), error))
    return Agreement(
        distance=off,
        deviations=deviations(off, len(measured)),
        limit=_limit(len(measured), INSIDE),
        band=np.sqrt(np.diag(error)),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Suspect:
    """A term that may be wrong: its seconds at the points [s], its stated error, the others'.

    ``others`` is the covariance over the points of the step's relative error without this term.
    ``added`` says that it is no part of the predicted step.
    """

    term: Term
    seconds: Array
    sigma: float
    others: Array
    added: bool = False


def explain(
    measured: Array,
    total: Array,
    suspects: Sequence[Suspect],
    *,
    noise: float,
    within_errors: bool = False,
) -> list[Explanation]:
    """Return every suspect's explanation; ``measured`` and ``total`` are steps, shape (n,) [s].

    Those as good as the best come first, by strain; then the rest, by misfit. Where some term is
    needed, a term that is not needed is never as good: it explains by the others' errors. Where
    everything lies ``within_errors``, strain says little and misfit alone gives the order.
    """
    explanations = [_one(suspect, measured, total, noise=noise) for suspect in suspects]
    least = min((e.misfit for e in explanations if e.moves), default=0.0)
    bound = _limit(len(measured) - 1, WELL_FITTED)
    enough = _limit(1, 1 - NEEDLESS / max(sum(e.moves for e in explanations), 1))
    needed = {e.term for e in explanations if e.moves and e.gain > enough}
    judged = [
        replace(
            e,
            as_good=e.moves and e.misfit <= least + AS_GOOD and (e.term in needed or not needed),
            fits=e.moves and e.plausible and max(e.misfit, e.apart) <= bound,
            needed=e.term in needed,
        )
        for e in explanations
    ]
    if within_errors:
        return sorted(judged, key=lambda e: (not e.moves, e.misfit))
    return sorted(
        judged, key=lambda e: (not e.moves, not e.as_good, e.strain if e.as_good else e.misfit)
    )


def _one(suspect: Suspect, measured: Array, total: Array, *, noise: float) -> Explanation:
    """Return the best factor of one term, others held to their errors."""
    steps = scaled(total, suspect.seconds, FACTORS[:, None], added=suspect.added)  # (factors, n)
    residual = np.log(measured) - np.log(steps)
    noises = _noise(len(total), noise)
    # the others' errors are relative to the predicted step: here as shares of the measured one,
    # then as shares of the explained one
    of_measured = total / measured
    misfits = distance(residual, noises + suspect.others * np.outer(of_measured, of_measured))
    best = int(misfits.argmin())
    of_explained = total / steps[best]
    apart = float(
        distance(residual[best], noises + suspect.others * np.outer(of_explained, of_explained))
    )
    return Explanation(
        term=suspect.term,
        factor=float(FACTORS[best]),
        strain=float(abs(np.log(FACTORS[best])) / suspect.sigma),
        misfit=float(misfits[best]),
        gain=float(misfits[0 if suspect.added else UNCHANGED] - misfits[best]),
        residual_rms=float(np.sqrt((residual[best] ** 2).mean())),
        sigma=suspect.sigma,
        apart=apart,
        plausible=best < len(FACTORS) - 1 and (suspect.added or bool(FACTORS[best] > LEAST_FACTOR)),
        moves=bool((suspect.seconds / total).max() > SMALLEST_SHARE),
    )
