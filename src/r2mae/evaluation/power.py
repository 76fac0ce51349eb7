"""What a number of seeds can decide: power of the paired t test, from the spread of the differences of a pilot.

A difference is decided if its two-sided interval excludes 0. With `n` differences of standard deviation σ around a true
mean δ, their t statistic has a noncentral t distribution with n − 1 degrees of freedom and noncentrality δ √n / σ.
"""

from collections.abc import Callable
from functools import cache
from math import inf, isfinite, nan, sqrt
from typing import Any

import numpy as np
from scipy import optimize, stats

POWER = 0.8
CONFIDENCE = 0.95
MOST_SEEDS = 10_000
_FAR = 1e3  # noncentrality in units of the critical value, at which every test has decided


def power_of(difference: float, sd: float, n: int, *, confidence: float = CONFIDENCE) -> float:
    """Return the probability that `n` paired differences decide, if their true mean is `difference`.

    Parameters
    ----------
    difference : float
        The true mean of the differences, of either sign.
    sd : float
        Their standard deviation, in the same unit; above 0.
    n : int
        How many there are; 1 decides nothing.
    confidence : float
        Of the two-sided interval.
    """
    if n < 2:
        return 0.0
    return _power(abs(difference) * sqrt(n) / sd, n - 1, confidence)


def detectable(sd: float, n: int, *, power: float = POWER, confidence: float = CONFIDENCE) -> float:
    """Return the smallest true difference that `n` paired differences decide with probability `power`.

    Infinite for one difference; NaN for a spread that is 0 or not finite, which says nothing.
    """
    if not (isfinite(sd) and sd > 0):
        return nan
    return inf if n < 2 else sd * _noncentrality(n, power, confidence) / sqrt(n)


def detectable_by(error: float, df: float, *, power: float = POWER, confidence: float = CONFIDENCE) -> float:
    """Return what :func:`detectable` does for a difference of a known standard error and degrees of freedom.

    NaN for an error that is 0 or not finite.
    """
    if not (isfinite(error) and error > 0):
        return nan
    return error * _noncentrality(df + 1, power, confidence)


def seeds_needed(
    sd: float, difference: float, *, power: float = POWER, confidence: float = CONFIDENCE, most: int = MOST_SEEDS
) -> int | None:
    """Return how many paired differences decide a true `difference` with probability `power`; None if above `most`."""
    if not (isfinite(sd) and sd > 0 and difference > 0):
        return None
    return fewest(lambda n: detectable(sd, n, power=power, confidence=confidence) <= difference, most=most)


def fewest(enough: Callable[[int], bool], *, most: int = MOST_SEEDS) -> int | None:
    """Return the smallest number from 2 to `most` that is enough; None if `most` is not.

    It is found by halving, so that all numbers above one that is enough should be enough, too, as here they nearly are.
    """
    if not enough(most):
        return None
    few, many = 1, most  # one is never enough
    while many - few > 1:
        middle = min((few + many) // 2, 2 * few + 1)
        few, many = (few, middle) if enough(middle) else (middle, many)
    return many


def spread(differences: Any) -> float:
    """Return the standard deviation of paired differences; NaN below two, and where all are equal but for rounding.

    A few equal differences come from scores in coarse steps, and say nothing about the spread.
    """
    values = np.asarray(differences, dtype=np.float64)
    if len(values) < 2 or np.ptp(values) <= 1e-12 * max(1e-300, float(np.abs(values).max())):
        return nan
    return float(values.std(ddof=1))


@cache
def _noncentrality(n: float, power: float, confidence: float) -> float:
    critical = float(stats.t.ppf((1 + confidence) / 2, n - 1))
    root = optimize.brentq(lambda nc: _power(nc, n - 1, confidence) - power, 0.0, critical * _FAR, xtol=1e-6)
    return float(root)


def _power(noncentrality: float, df: float, confidence: float) -> float:
    critical = float(stats.t.ppf((1 + confidence) / 2, df))
    above = float(stats.nct.sf(critical, df, noncentrality))
    below = float(np.nan_to_num(stats.nct.cdf(-critical, df, noncentrality)))
    return min(max(above, 0.0) + max(below, 0.0), 1.0)
