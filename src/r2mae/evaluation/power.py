"""The power of the paired t test with a number of seeds, from the spread of a pilot's differences.

A difference is decided if its two-sided interval excludes 0. With `n` differences of standard deviation σ around a true
mean δ, their t statistic has a noncentral t distribution with n − 1 degrees of freedom and noncentrality δ √n / σ.
"""

from collections.abc import Callable
from functools import cache
from math import inf, isfinite, nan, sqrt

import numpy as np
from scipy import optimize, stats

POWER = 0.8
CONFIDENCE = 0.95
MOST_SEEDS = 10_000
_MAX_NONCENTRALITY = 1e3  # in units of the critical value: there every test decides


def detectable(sd: float, n: int, *, confidence: float = CONFIDENCE) -> float:
    """Return the smallest true difference that `n` paired differences decide with probability :data:`POWER`.

    Infinite for one difference; NaN if `sd` is 0 or not finite.
    """
    if not (isfinite(sd) and sd > 0):
        return nan
    return inf if n < 2 else detectable_with_error(sd / sqrt(n), n - 1, confidence=confidence)


def detectable_with_error(error: float, df: float, *, confidence: float = CONFIDENCE) -> float:
    """Return the smallest true difference that a standard error with `df` degrees of freedom decides.

    The probability is :data:`POWER`, as in :func:`detectable`. NaN if `error` is 0 or not finite.
    """
    if not (isfinite(error) and error > 0):
        return nan
    return error * _noncentrality(df, confidence)


def seeds_needed(sd: float, difference: float, *, confidence: float = CONFIDENCE) -> int | None:
    """Return the number of pairs that decide a true `difference` with probability :data:`POWER`; None above 10,000."""
    if not (isfinite(sd) and sd > 0 and difference > 0):
        return None
    return smallest_sufficient(lambda n: detectable(sd, n, confidence=confidence) <= difference)


def smallest_sufficient(enough: Callable[[int], bool]) -> int | None:
    """Return the smallest number from 2 to :data:`MOST_SEEDS` that is enough; None if the largest is not.

    The search is by bisection. It assumes that every number above a sufficient one is sufficient.
    """
    if not enough(MOST_SEEDS):
        return None
    few, many = 1, MOST_SEEDS  # 1 is never enough
    while many - few > 1:
        middle = min((few + many) // 2, 2 * few + 1)
        few, many = (few, middle) if enough(middle) else (middle, many)
    return many


@cache
def _noncentrality(df: float, confidence: float) -> float:
    most = float(stats.t.ppf((1 + confidence) / 2, df)) * _MAX_NONCENTRALITY
    return float(optimize.brentq(lambda nc: _power_at(nc, df, confidence) - POWER, 0.0, most, xtol=1e-6))


def _power_at(noncentrality: float, df: float, confidence: float) -> float:
    critical = float(stats.t.ppf((1 + confidence) / 2, df))
    above = float(stats.nct.sf(critical, df, noncentrality))
    below = float(np.nan_to_num(stats.nct.cdf(-critical, df, noncentrality)))
    return min(max(above, 0.0) + max(below, 0.0), 1.0)
