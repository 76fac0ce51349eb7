"""Intervals, paired differences, and ranks over metrics."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy import stats

BOOTSTRAP_FROM = 10  # number of values from which on the bootstrap is used; below it, the t interval
AVERAGE_SCORE = "average score"
AVERAGE_RANK = "average rank"


@dataclass(frozen=True)
class Interval:
    """A mean and its confidence interval.

    Attributes
    ----------
    mean, low, high : float
        `low` and `high` are NaN if there is only one value.
    n : int
        Number of values.
    method : {"t", "bootstrap", "none"}
        ``"t"`` below ten values, ``"bootstrap"`` from ten on, ``"none"`` for one.
    """

    mean: float
    low: float
    high: float
    n: int
    method: str


@dataclass(frozen=True)
class Difference:
    """A mean paired difference, its interval, and the verdict.

    Attributes
    ----------
    mean, low, high, n, method
        As in `Interval`, for the first minus the second.
    verdict : {"better", "worse", "undecided"}
        Whether the first is better. Undecided if 0 is inside the interval, if there is no interval, or if all
        differences are equal and there are fewer than ten.
    """

    mean: float
    low: float
    high: float
    n: int
    method: str
    verdict: str


@dataclass(frozen=True, eq=False)
class BestFixed:
    """The best fixed ratio of every seed, chosen without that seed.

    Attributes
    ----------
    scores : ndarray, shape (n_seeds,)
        Score of the chosen ratio on the seed.
    chosen : ndarray of int, shape (n_seeds,)
        Its column.
    """

    scores: Float[np.ndarray, " seeds"]
    chosen: Int[np.ndarray, " seeds"]


def mean_interval(values: Any, *, confidence: float = 0.95, seed: int = 0) -> Interval:
    """Mean with a t interval (below ten values) or a BCa bootstrap interval (from ten on).

    Parameters
    ----------
    values : array-like, shape (n,)
        Independent values, such as one score per seed.
    confidence : float
        Coverage.
    seed : int
        Seed for the bootstrap.

    Raises
    ------
    ValueError
        No values, or values that are not finite.
    """
    array = _finite(values, "values", ndim=1)
    mean, n = float(array.mean()), len(array)
    if n == 1:
        return Interval(mean, float("nan"), float("nan"), 1, "none")
    method = "t" if n < BOOTSTRAP_FROM else "bootstrap"
    if np.ptp(array) == 0.0:
        constant = float(array[0])
        return Interval(constant, constant, constant, n, method)
    if method == "t":
        half = float(stats.t.ppf((1 + confidence) / 2, n - 1) * array.std(ddof=1) / np.sqrt(n))
        return Interval(mean, mean - half, mean + half, n, method)
    low, high = _bootstrap(array, confidence, seed)
    return Interval(mean, low, high, n, method)


def paired_difference(
    a: Any, b: Any, *, higher_is_better: bool = True, confidence: float = 0.95, seed: int = 0
) -> Difference:
    """Mean of a − b, paired by position (the same seed and data split), and whether a is better.

    Parameters
    ----------
    a, b : array-like, shape (n,)
        Scores.
    higher_is_better : bool
        Whether higher scores are better.
    confidence, seed : float, int
        As in `mean_interval`.

    Raises
    ------
    ValueError
        Unequal lengths, no values, or values that are not finite.
    """
    first, second = _finite(a, "a", ndim=1), _finite(b, "b", ndim=1)
    if len(first) != len(second):
        raise ValueError(f"paired scores must be as many; got {len(first)} and {len(second)}")
    interval = mean_interval(first - second, confidence=confidence, seed=seed)
    verdict = "undecided"
    # A few exactly equal differences come from scores in steps (an accuracy on few samples). They say nothing about the
    # spread, so a t interval of width zero is no evidence.
    spread, size = np.ptp(first - second), max(np.abs(first).max(), np.abs(second).max())
    known = interval.n >= BOOTSTRAP_FROM or spread > 1e-9 * size
    if known and (interval.low > 0.0 or interval.high < 0.0):  # both comparisons are false for NaN
        verdict = "better" if (interval.low > 0.0) == higher_is_better else "worse"
    return Difference(interval.mean, interval.low, interval.high, interval.n, interval.method, verdict)


def best_fixed(scores: Any, *, higher_is_better: bool = True) -> BestFixed:
    """For every seed, choose the ratio with the best mean over the other seeds, and return its score on this seed.

    A ratio that is chosen on the same seeds on which it is compared would be better partly by chance.

    Parameters
    ----------
    scores : array-like, shape (n_seeds, n_ratios)
        One score for each seed and fixed ratio; of equally good ratios the first is chosen.
    higher_is_better : bool
        Whether higher scores are better.

    Raises
    ------
    ValueError
        One seed only, no ratio, or scores that are not finite.
    """
    table = _finite(scores, "scores", ndim=2)
    n_seeds = len(table)
    if n_seeds < 2:
        raise ValueError("best_fixed needs two or more seeds: the ratio for a seed is chosen on the others")
    others = np.stack([np.delete(table, seed, axis=0).mean(axis=0) for seed in range(n_seeds)])
    chosen = np.argmax(others if higher_is_better else -others, axis=1)
    return BestFixed(table[np.arange(n_seeds), chosen], chosen)


def rank_table(
    scores: pd.DataFrame, higher_is_better: Mapping[str, bool], *, ties: Literal["min", "average"] = "min"
) -> pd.DataFrame:
    """Add average score and average rank over metrics, as in the paper's tables (2, 4 and the appendix's).

    Parameters
    ----------
    scores : DataFrame, methods × metrics
        One score for each method and metric.
    higher_is_better : mapping of str to bool
        For every metric, whether higher scores are better.
    ties : {"min", "average"}
        The rank of tied methods: the best of their ranks, as the paper prints, or the mean of their ranks.

    Returns
    -------
    DataFrame
        `scores` with the columns ``"average score"``, the mean over the metrics (NaN if higher is better for some
        metrics and lower for others, as such a mean is meaningless), and ``"average rank"``, the mean over the metrics
        of the rank (1 = best).

    Raises
    ------
    ValueError
        Scores that are not finite, no rows or columns, or a metric without a direction.
    """
    values = _finite(scores, "scores", ndim=2)
    missing = [str(column) for column in scores.columns if column not in higher_is_better]
    if missing:
        raise ValueError(f"higher_is_better has no entry for {', '.join(missing)}")
    up = np.array([higher_is_better[column] for column in scores.columns])
    ranks = stats.rankdata(np.where(up, -values, values), method=ties, axis=0)
    comparable = up.all() or not up.any()
    return scores.assign(
        **{
            AVERAGE_SCORE: values.mean(axis=1) if comparable else np.nan,
            AVERAGE_RANK: ranks.mean(axis=1),
        }
    )


def _bootstrap(values: Float[np.ndarray, " n"], confidence: float, seed: int) -> tuple[float, float]:
    """BCa limits, or percentile limits if the acceleration is undefined."""
    for method in ("BCa", "percentile"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a degenerate BCa interval warns and is NaN, which is handled below
            result = stats.bootstrap(
                (values,), np.mean, confidence_level=confidence, method=method, rng=np.random.default_rng(seed)
            )
        low, high = result.confidence_interval
        if np.isfinite(low) and np.isfinite(high):
            break
    return float(low), float(high)


def _finite(values: Any, name: str, *, ndim: int) -> Float[np.ndarray, "..."]:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != ndim or array.size == 0:
        raise ValueError(f"{name} must be a non-empty array of {ndim} dimension(s); got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds NaN or infinity: leave unfinished runs out before comparing")
    return array
