"""An average effect over several data sets, each with its own true effect: a random-effects model."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize, stats

_ROUNDING, _NONE = 1e-12, 1e-6


@dataclass(frozen=True)
class Pooled:
    """The average effect over sets.

    Attributes
    ----------
    mean, low, high : float
        The average of the sets' true effects, with its interval; the interval is NaN for a single set.
    between : float
        Estimated standard deviation of the true effects between sets.
    sets : int
        Number of sets.
    """

    mean: float
    low: float
    high: float
    between: float
    sets: int


def pooled_effect(effects: Any, errors: Any, *, confidence: float = 0.95) -> Pooled:
    """Average effects that were measured on several sets, for sets that were not measured, too.

    The model is eₖ = μ + uₖ + εₖ, with uₖ ~ N(0, τ²) between sets and εₖ ~ N(0, sₖ²) within. τ² is the estimate of
    Paule and Mandel; the interval of μ is that of Hartung and Knapp, with t of one degree of freedom less than there
    are sets, and never narrower than the errors within sets allow.

    Parameters
    ----------
    effects : array-like, shape (sets,)
        One for each set.
    errors : array-like, shape (sets,)
        Their standard errors, sₖ. For an error of 0 stands the median of the others.
    confidence : float
        Coverage.

    Raises
    ------
    ValueError
        Without a set, or if numbers are not finite, or an error is negative.
    """
    effect, error = np.asarray(effects, dtype=np.float64), np.asarray(errors, dtype=np.float64)
    if effect.ndim != 1 or not len(effect) or effect.shape != error.shape:
        raise ValueError(f"effects and errors must be as many, and at least one; got {effect.shape} and {error.shape}")
    if not (np.isfinite(effect).all() and np.isfinite(error).all()) or (error < 0).any():
        raise ValueError("effects and errors must be finite, and errors not negative")
    if len(effect) == 1:
        return Pooled(float(effect[0]), float("nan"), float("nan"), float("nan"), 1)
    largest = max(float(error.max()), float(np.ptp(effect)))
    rounding = _ROUNDING * float(np.abs(effect).max())  # differences below it are none
    if largest <= rounding:
        return Pooled(float(effect[0]), float(effect[0]), float(effect[0]), 0.0, len(effect))
    # A set all of whose differences are the same has no error that is known: it gets a usual one, no infinite weight.
    known = error > _NONE * largest
    variance = np.where(known, error, np.median(error[known]) if known.any() else _NONE * largest) ** 2

    def excess(between: float) -> float:
        weight = 1 / (variance + between)
        return float((weight * (effect - np.average(effect, weights=weight)) ** 2).sum() - (len(effect) - 1))

    most = (float(np.ptp(effect)) + rounding) ** 2 * len(effect)
    between = float(optimize.brentq(excess, 0.0, most)) if excess(0.0) > 0 else 0.0
    weight = 1 / (variance + between)
    mean = float(np.average(effect, weights=weight))
    free = len(effect) - 1
    # Where sets happen to agree better than their errors allow, that is luck: the factor is 1 at least.
    scale = max((weight * (effect - mean) ** 2).sum() / free, 1.0) / weight.sum()
    half = float(stats.t.ppf((1 + confidence) / 2, free) * np.sqrt(scale))
    return Pooled(mean, mean - half, mean + half, float(np.sqrt(between)), len(effect))
