"""Numbers with intervals, and how many seeds would decide them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from jaxtyping import Float
from scipy import stats

from r2mae.evaluation.power import detectable_with_error, seeds_needed, smallest_sufficient
from r2mae.evaluation.statistics import mean_interval
from r2mae_paper.claims.claim import Word
from r2mae_paper.pooled import pooled_effect

Values: TypeAlias = Float[np.ndarray, " n"]
Differences: TypeAlias = Mapping[int, float]
"""By seed."""


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval."""

    mean: float
    low: float = math.nan
    high: float = math.nan
    """`mean`, `low`, `high`: the ends are NaN where there is no interval."""
    worst: tuple[float, float] | None = None
    """The ends, corrected for the worst of several cases; by default as they are."""
    spread: tuple[float, ...] = ()
    """Standard deviation over seeds, of each set of data; empty if no seeds are behind it."""
    between: float = 0.0
    """Standard deviation of the true effects between sets, which more seeds do not narrow."""
    grid: float = 0.0
    """What a grid of ratios leaves open at each end."""

    @property
    def known(self) -> bool:
        """Whether there is an interval."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def corrected(self) -> "Estimate":
        """Return the same number with the interval of the worst of several."""
        return self if self.worst is None else replace(self, low=self.worst[0], high=self.worst[1])

    def seeds(self, distance: float) -> float:
        """Return how many seeds would show, four times in five, that the number differs from one at this distance.

        Infinite if none would, or more than ten thousand; NaN if no seeds are behind the number.
        """
        left = distance - self.grid
        if left <= 0 < self.grid:
            return math.inf
        if not self.spread or not self.known:
            return math.nan
        if left <= 0:
            return math.inf
        if len(self.spread) == 1:
            return seeds_needed(self.spread[0], left) or math.inf
        variances = np.maximum(np.array(self.spread) ** 2, 1e-300)

        def enough(count: int) -> bool:
            error = math.sqrt(1 / float((1 / (self.between**2 + variances / count)).sum()))
            return detectable_with_error(error, len(variances) - 1) <= left

        return smallest_sufficient(enough) or math.inf


@dataclass(frozen=True)
class Measured:
    """What a measure finds."""

    parts: Mapping[str, Estimate] = field(default_factory=dict)
    """One number, or several that a sentence says something of."""
    note: str = ""
    """What the reason says of it."""
    same: bool = True
    """Whether data and sizes can be the paper's."""
    at_most: Word = "reproduced"
    """The best verdict that is possible, as a part of what is claimed is missing."""


def over(values: Sequence[float] | Values, comparisons: int = 1, *, worst_of: int = 1, grid: float = 0.0) -> Estimate:
    """Return the mean of independent values; equal ones say nothing of a spread, and have no interval.

    The interval, and that of the worst case, is chosen of so many numbers; both ends are uncertain by `grid`, too.
    """
    array = np.asarray(values, dtype=float)
    mean = float(mean_interval(array).mean)
    if len(array) < 2 or np.ptp(array) <= 1e-9 * max(float(np.abs(array).max()), 1e-300):
        return Estimate(mean, grid=grid)
    ends = []
    for count in (comparisons, comparisons * worst_of):
        found = mean_interval(array, confidence=1 - 0.05 / count)
        ends.append((found.low - grid, found.high + grid))
    return Estimate(mean, *ends[0], ends[1], (float(array.std(ddof=1)),), grid=grid)


def of_errors(mean: float, *errors: float, comparisons: int = 1, draws: int | None = None) -> Estimate:
    """Return a mean with the interval of independent standard errors, corrected for the best of several.

    It is normal, or, for errors that a few `draws` give, Student's.
    """
    family = stats.norm() if draws is None else stats.t(draws - 1)
    half = float(family.ppf(1 - 0.025 / comparisons)) * math.sqrt(sum(error**2 for error in errors))
    return Estimate(float(mean), float(mean - half), float(mean + half))


def share_of(count: int, total: int) -> Estimate:
    """Return a share with its exact interval."""
    exact = stats.binomtest(count, total).proportion_ci()
    return Estimate(count / total, float(exact.low), float(exact.high))


def _several(by_name: Mapping[str, Differences], comparisons: int = 1) -> tuple[list[Values], Estimate | None]:
    """Return the values of each, and what is known where there is one, or no spread in any."""
    values = [np.array(list(one.values())) for one in by_name.values()]
    if len(values) == 1:
        return values, over(values[0], comparisons)
    no_spread = min(map(len, values)) < 2 or max(map(np.ptp, values)) <= 0
    return values, Estimate(float(np.mean([one.mean() for one in values]))) if no_spread else None


def over_sets(by_set: Mapping[str, Differences], comparisons: int = 1) -> Estimate:
    """Return the average over sets, for sets that were not measured, too (a random-effects model).

    Of one set it is the interval over its seeds. See :func:`r2mae_paper.pooled.pooled_effect`.
    """
    values, alone = _several(by_set, comparisons)
    if alone is not None:
        return alone
    means = [float(one.mean()) for one in values]
    spread = [float(one.std(ddof=1)) for one in values]
    errors = [sd / math.sqrt(len(one)) for sd, one in zip(spread, values, strict=True)]
    found = pooled_effect(means, errors, confidence=1 - 0.05 / comparisons)
    return Estimate(found.mean, found.low, found.high, spread=tuple(spread), between=found.between)


def over_models(by_model: Mapping[str, Differences]) -> Estimate:
    """Return the mean over models, with the t interval from the spread of each over its seeds (Welch, Satterthwaite).

    It speaks of these models alone, which the paper names. Of one model it is the interval over its seeds.
    """
    values, alone = _several(by_model)
    if alone is not None:
        return alone
    mean = float(np.mean([one.mean() for one in values]))
    parts = np.array([one.var(ddof=1) / len(one) for one in values]) / len(values) ** 2
    freedom = parts.sum() ** 2 / sum(part**2 / (len(one) - 1) for part, one in zip(parts, values, strict=True))
    half = float(stats.t.ppf(0.975, freedom) * math.sqrt(parts.sum()))
    spread = math.sqrt(sum(float(one.var(ddof=1)) for one in values)) / len(values)
    return Estimate(mean, mean - half, mean + half, spread=(spread,))
