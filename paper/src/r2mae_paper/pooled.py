"""An average effect over several data sets, each with its own true effect: a random-effects model."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize, stats

_ROUNDING, _NEGLIGIBLE = 1e-12, 1e-6


@dataclass(frozen=True)
class Pooled:
    """The average effect over sets."""

    mean: float
    low: float
    high: float
    """`mean`, `low`, `high`: the average of the sets' true effects, and its interval, NaN for a single set."""
    between: float
    """Estimated standard deviation of the true effects between sets."""
    sets: int
    """Number of sets."""


def pooled_effect(effects: Any, errors: Any, *, confidence: float = 0.95) -> Pooled:
    """Average effects measured on several sets, with an interval that is valid for unmeasured sets, too.

    The model is eₖ = μ + uₖ + εₖ, with uₖ ~ N(0, τ²) between sets and εₖ ~ N(0, sₖ²) within. τ² is the estimate of
    Paule and Mandel. The interval of μ is that of Hartung and Knapp: its t has one degree of freedom less than the
    number of sets, and it is never narrower than the errors within sets allow. A standard error of 0 is replaced by the
    median of the others.
    """
    effect, error = np.asarray(effects, dtype=np.float64), np.asarray(errors, dtype=np.float64)
    if len(effect) == 1:
        return Pooled(float(effect[0]), float("nan"), float("nan"), float("nan"), 1)
    largest = max(float(error.max()), float(np.ptp(effect)))
    rounding = _ROUNDING * float(np.abs(effect).max())  # smaller differences are rounding errors
    if largest <= rounding:
        return Pooled(float(effect[0]), float(effect[0]), float(effect[0]), 0.0, len(effect))
    # The error of a set with equal differences is unknown: it gets the median error, not an infinite weight.
    known = error > _NEGLIGIBLE * largest
    variance = np.where(known, error, np.median(error[known]) if known.any() else _NEGLIGIBLE * largest) ** 2

    def excess(between: float) -> float:
        weight = 1 / (variance + between)
        return float((weight * (effect - np.average(effect, weights=weight)) ** 2).sum() - (len(effect) - 1))

    most = (float(np.ptp(effect)) + rounding) ** 2 * len(effect)
    between = float(optimize.brentq(excess, 0.0, most)) if excess(0.0) > 0 else 0.0
    weight = 1 / (variance + between)
    mean = float(np.average(effect, weights=weight))
    free = len(effect) - 1
    # Sets that agree better than their errors allow do so by chance: the factor is at least 1.
    scale = max((weight * (effect - mean) ** 2).sum() / free, 1.0) / weight.sum()
    half = float(stats.t.ppf((1 + confidence) / 2, free) * np.sqrt(scale))
    return Pooled(mean, mean - half, mean + half, float(np.sqrt(between)), len(effect))
