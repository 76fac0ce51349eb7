"""The interval of a mean over seeds and test items: both are samples, and every seed is measured on every item.

With scores x of seed s and item i, the model of two-way random effects is x = μ + a_s + b_i + e_si. The variance of the
mean over S seeds and I items is σ_a²/S + σ_b²/I + σ_e²/(S I). Intervals over seeds only omit the second term, as if the
test set were the population, and estimate the rest with only S − 1 degrees of freedom.
"""

from dataclasses import dataclass, replace
from math import nan, sqrt
from typing import Any, Literal, TypeAlias

import numpy as np
from jaxtyping import Float
from scipy import stats

from r2mae.evaluation.statistics import Difference, Interval

Method: TypeAlias = Literal["random effects", "bootstrap"]


@dataclass(frozen=True)
class Components:
    """The components of the variance of the mean of a table of seeds × items.

    Attributes
    ----------
    seeds, items, rest : float
        Contributions of seeds, items and the residual to the variance of the mean; each at least 0.
    variance : float
        Variance of the mean for the interval: at least that of seeds only, and that of items only.
    df : float
        Degrees of freedom of `variance`, after Satterthwaite; at least S − 1.
    """

    seeds: float
    items: float
    rest: float
    variance: float
    df: float


@dataclass(frozen=True)
class MeanSquares:
    """The mean squares of a table of seeds × items, which determine its :class:`Components`.

    Attributes
    ----------
    seeds, items, rest : float
        Mean squares of seeds, items and the residual, with expectations σ_e² + I σ_a², σ_e² + S σ_b² and σ_e².
    n_seeds, n_items, total_items : int
        Seeds and items of the table, and the number of items over which the means of the seeds are.
    """

    seeds: float
    items: float
    rest: float
    n_seeds: int
    n_items: int
    total_items: int

    @property
    def components(self) -> Components:
        """The components of the variance of the mean."""
        return _components(self.seeds, self.items, self.rest, self.n_seeds, self.n_items, self.total_items)

    @property
    def items_sd(self) -> float:
        """Contribution of items to the standard error of the mean, at any number of seeds: σ_b / √I."""
        return sqrt(max(self.items - self.rest, 0.0) / (self.n_seeds * self.total_items))

    def for_seeds(self, seeds: int) -> "MeanSquares":
        """Return the mean squares expected for another number of seeds and the same items.

        If the mean square of items is below the residual's, it is unchanged.
        """
        items = self.items + max(self.items - self.rest, 0.0) * (seeds / self.n_seeds - 1)
        return replace(self, items=items, n_seeds=seeds)


def components(scores: Any, *, means: Any = None, total_items: int | None = None) -> Components:
    """Return the components of the variance of a mean over seeds and items.

    Parameters and errors are those of :func:`mean_squares`.
    """
    return mean_squares(scores, means=means, total_items=total_items).components


def mean_squares(scores: Any, *, means: Any = None, total_items: int | None = None) -> MeanSquares:
    """Return the mean squares of a table of seeds × items.

    Parameters
    ----------
    scores : array-like, shape (n_seeds, n_items)
        Two or more seeds and items; for a comparison the differences of two schemes.
    means : array-like, shape (n_seeds,), optional
        Mean of each seed over all items, if `scores` has only some of them.
    total_items : int, optional
        Number of all items; by default the number in `scores`.

    Raises
    ------
    ValueError
        If a shape is wrong, `total_items` is below the items of `scores`, or a value is not finite.
    """
    table = _checked_table(scores, "scores")
    n_seeds, n_items = table.shape
    mean, by_seed, by_item = table.mean(), table.mean(axis=1), table.mean(axis=0)
    total_items = n_items if total_items is None else total_items
    full_means = by_seed if means is None else np.asarray(means, dtype=np.float64)
    if full_means.shape != by_seed.shape or total_items < n_items or not np.isfinite(full_means).all():
        raise ValueError(
            f"means must be finite, one per seed, over {n_items} or more items; "
            f"got {full_means.shape} over {total_items}"
        )
    of_seeds = total_items * float(full_means.var(ddof=1))
    of_items = n_seeds * float(by_item.var(ddof=1))
    df_rest = (n_seeds - 1) * (n_items - 1)
    of_rest = float(((table - by_seed[:, None] - by_item + mean) ** 2).sum()) / df_rest
    return MeanSquares(of_seeds, of_items, of_rest, n_seeds, n_items, total_items)


def _components(
    of_seeds: float, of_items: float, of_rest: float, n_seeds: int, n_items: int, total_items: int | None = None
) -> Components:
    """Combine mean squares to components; the mean is over `total_items`, the mean squares are of `n_items`."""
    count = n_seeds * (total_items or n_items)
    # Satterthwaite's approximation. The total is at least the larger mean square: a smaller one would claim more
    # certainty than either of them has.
    total = max(of_seeds + of_items - of_rest, of_seeds, of_items)
    squares = of_seeds**2 / (n_seeds - 1) + of_items**2 / (n_items - 1)
    squares += of_rest**2 / ((n_seeds - 1) * (n_items - 1))
    df = max(total**2 / squares, n_seeds - 1.0) if squares > 0 else n_seeds - 1.0
    return Components(
        seeds=max(of_seeds - of_rest, 0.0) / count,
        items=max(of_items - of_rest, 0.0) / count,
        rest=of_rest / count,
        variance=total / count,
        df=df,
    )


def crossed_interval(
    scores: Any,
    *,
    confidence: float = 0.95,
    method: Method = "random effects",
    draws: int = 2000,
    seed: int = 0,
) -> Interval:
    """Return the mean over seeds and items, with an interval for which both are samples.

    Parameters
    ----------
    scores : array-like, shape (n_seeds, n_items)
        Two or more seeds, each measured on the same two or more items.
    confidence : float
        Coverage.
    method : {"random effects", "bootstrap"}
        A t interval from the components of variance, or percentiles of the pigeonhole bootstrap (Owen 2007), which
        resamples seeds and items independently. With few seeds the bootstrap is too narrow if seeds vary.
    draws, seed : int
        Number of bootstrap draws, and their seed.

    Returns
    -------
    Interval
        Its `n` is the number of seeds, its `method` "crossed t" or "crossed bootstrap".

    Raises
    ------
    ValueError
        If there is one seed only, the shape is wrong, or a value is not finite.
    """
    table = _checked_table(scores, "scores")
    mean, n_seeds = float(table.mean()), len(table)
    if method == "bootstrap":
        low, high = _pigeonhole_limits(table, confidence, draws, seed)
        return Interval(mean, low, high, n_seeds, "crossed bootstrap")
    return t_interval(mean, components(table), n_seeds, confidence=confidence)


def t_interval(mean: float, parts: Components, seeds: int, *, confidence: float = 0.95) -> Interval:
    """Return the t interval of a mean with these components of variance."""
    half = float(stats.t.ppf((1 + confidence) / 2, parts.df)) * sqrt(parts.variance)
    return Interval(mean, mean - half, mean + half, seeds, "crossed t")


def crossed_difference(
    a: Any,
    b: Any,
    *,
    higher_is_better: bool = True,
    confidence: float = 0.95,
    method: Method = "random effects",
    draws: int = 2000,
    seed: int = 0,
) -> Difference:
    """Return the mean of a − b over paired seeds and items, its interval, and whether a is better.

    Seeds (equal split, order and initial weights) and items are paired by position.

    Parameters
    ----------
    a, b : array-like, shape (n_seeds, n_items)
        Score of every item for every seed: its masked error, or 1 if a probe is right and 0 if it is wrong.
    higher_is_better : bool
        Whether higher scores are better.
    confidence, method, draws, seed
        As of :func:`crossed_interval`.

    Raises
    ------
    ValueError
        If shapes differ, there is one seed only, or a value is not finite.
    """
    first, second = _checked_table(a, "a"), _checked_table(b, "b")
    if first.shape != second.shape:
        raise ValueError(f"a and b must have the same seeds and items; got shapes {first.shape} and {second.shape}")
    found = crossed_interval(first - second, confidence=confidence, method=method, draws=draws, seed=seed)
    return with_verdict(found, higher_is_better=higher_is_better)


def with_verdict(found: Interval, *, higher_is_better: bool) -> Difference:
    """Return the interval of a difference with its verdict: undecided if its width is zero or it contains 0."""
    verdict = "undecided"
    if (found.low > 0.0 or found.high < 0.0) and found.high > found.low:
        verdict = "better" if (found.low > 0.0) == higher_is_better else "worse"
    return Difference(found.mean, found.low, found.high, found.n, found.method, verdict)


def _pigeonhole_limits(
    table: Float[np.ndarray, "seeds items"], confidence: float, draws: int, seed: int
) -> tuple[float, float]:
    rng = np.random.default_rng(seed)
    n_seeds, n_items = table.shape
    times = rng.multinomial(n_seeds, np.full(n_seeds, 1 / n_seeds), size=draws)
    means = np.full(draws, nan)
    for draw in range(draws):
        items = np.bincount(rng.integers(n_items, size=n_items), minlength=n_items)
        means[draw] = times[draw] @ (table @ items) / table.size
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def _checked_table(values: Any, name: str) -> Float[np.ndarray, "seeds items"]:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or min(array.shape) < 2:
        raise ValueError(f"{name} must have two or more seeds (rows) and items (columns); got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} contains NaN or infinity: remove unfinished runs before comparing")
    return array
