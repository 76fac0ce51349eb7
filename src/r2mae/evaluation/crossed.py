"""The interval of a mean over seeds and test items at once: both are samples, and every seed is measured on every item.

With scores x of seed s and item i, the model of two-way random effects is x = μ + a_s + b_i + e_si. The variance of the
mean over S seeds and I items is σ_a²/S + σ_b²/I + σ_e²/(S I). Intervals over seeds alone leave out the second term, as
if the test set were all there is, and know the rest only by S − 1 degrees of freedom.
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
    """Where the variance of the mean of a table of seeds × items comes from.

    Attributes
    ----------
    seeds, items, rest : float
        The variance that seeds, items, and what is left add to the variance of the mean; each at least 0.
    variance : float
        Of the mean, as the interval uses it: not below what seeds alone or items alone show.
    df : float
        Its degrees of freedom, after Satterthwaite; at least S − 1.
    """

    seeds: float
    items: float
    rest: float
    variance: float
    df: float


@dataclass(frozen=True)
class MeanSquares:
    """The mean squares of a table of seeds × items, from which :class:`Components` follow.

    Attributes
    ----------
    seeds, items, rest : float
        Their expectations are σ_e² + I σ_a², σ_e² + S σ_b² and σ_e².
    n_seeds, n_items, of : int
        Seeds and items of the table, and how many items the means of the seeds are over.
    """

    seeds: float
    items: float
    rest: float
    n_seeds: int
    n_items: int
    of: int

    @property
    def components(self) -> Components:
        """Split the variance of the mean."""
        return _components(self.seeds, self.items, self.rest, self.n_seeds, self.n_items, self.of)

    @property
    def items_sd(self) -> float:
        """What items add to the standard error of the mean, whatever the number of seeds: σ_b / √I."""
        return sqrt(max(self.items - self.rest, 0.0) / (self.n_seeds * self.of))

    def for_seeds(self, seeds: int) -> "MeanSquares":
        """Return what is to be expected under another number of seeds, with as many items.

        Where items vary less than the rest, their mean square stays as it was found.
        """
        items = self.items + max(self.items - self.rest, 0.0) * (seeds / self.n_seeds - 1)
        return replace(self, items=items, n_seeds=seeds)


def components(scores: Any, *, means: Any = None, of: int | None = None) -> Components:
    """Split the variance of a mean over seeds and items.

    Parameters and errors are those of :func:`mean_squares`.
    """
    return mean_squares(scores, means=means, of=of).components


def mean_squares(scores: Any, *, means: Any = None, of: int | None = None) -> MeanSquares:
    """Return the mean squares of a table of seeds × items.

    Parameters
    ----------
    scores : array-like, shape (n_seeds, n_items)
        Two or more of either; for a comparison the differences of two schemes.
    means : array-like, shape (n_seeds,), optional
        The mean of each seed over all its items, where `scores` hold only some of them.
    of : int, optional
        How many items those are; by default as many as in `scores`.

    Raises
    ------
    ValueError
        For another shape, fewer items than there are scores, or values that are not finite.
    """
    table = _table(scores, "scores")
    n_seeds, n_items = table.shape
    mean, by_seed, by_item = table.mean(), table.mean(axis=1), table.mean(axis=0)
    of = n_items if of is None else of
    whole = by_seed if means is None else np.asarray(means, dtype=np.float64)
    if whole.shape != by_seed.shape or of < n_items or not np.isfinite(whole).all():
        raise ValueError(f"means must be finite, one a seed, over {n_items} items or more; got {whole.shape} over {of}")
    of_seeds = of * float(whole.var(ddof=1))
    of_items = n_seeds * float(by_item.var(ddof=1))
    df_rest = (n_seeds - 1) * (n_items - 1)
    of_rest = float(((table - by_seed[:, None] - by_item + mean) ** 2).sum()) / df_rest
    return MeanSquares(of_seeds, of_items, of_rest, n_seeds, n_items, of)


def _components(
    of_seeds: float, of_items: float, of_rest: float, n_seeds: int, n_items: int, of: int | None = None
) -> Components:
    """Combine the mean squares of seeds, items and the rest; the mean is over `of` items, of which `n_items` tell."""
    count = n_seeds * (of or n_items)
    # Satterthwaite's approximation. Mean squares are not subtracted below the larger of the two: that would pretend to
    # know the variance better than any of them does.
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
    """Return the mean over seeds and items, with an interval that takes both as samples.

    Parameters
    ----------
    scores : array-like, shape (n_seeds, n_items)
        Two or more seeds, each measured on the same two or more items.
    confidence : float
        Coverage.
    method : {"random effects", "bootstrap"}
        A t interval from the components of variance, or percentiles of the pigeonhole bootstrap (Owen 2007), which
        draws seeds and items anew, each on its own. With few seeds the bootstrap is too narrow where seeds matter.
    draws, seed : int
        Number of the bootstrap's draws, and their seed.

    Returns
    -------
    Interval
        Its `n` is the number of seeds, its `method` "crossed t" or "crossed bootstrap".

    Raises
    ------
    ValueError
        For one seed, another shape, or values that are not finite.
    """
    table = _table(scores, "scores")
    mean, n_seeds = float(table.mean()), len(table)
    if method == "bootstrap":
        low, high = _pigeonhole(table, confidence, draws, seed)
        return Interval(mean, low, high, n_seeds, "crossed bootstrap")
    return t_interval(mean, components(table), n_seeds, confidence=confidence)


def t_interval(mean: float, parts: Components, seeds: int, *, confidence: float = 0.95) -> Interval:
    """Return the t interval of a mean whose components of variance are known."""
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

    Seeds are paired by position (the same split, order and initial weights), items by position, too.

    Parameters
    ----------
    a, b : array-like, shape (n_seeds, n_items)
        A score of every item under every seed: its masked error, or 1 where a probe is right and 0 where it is wrong.
    higher_is_better : bool
        Whether higher scores are better.
    confidence, method, draws, seed
        As of :func:`crossed_interval`.

    Raises
    ------
    ValueError
        For unequal shapes, one seed, or values that are not finite.
    """
    first, second = _table(a, "a"), _table(b, "b")
    if first.shape != second.shape:
        raise ValueError(f"both must have the same seeds and items; got shapes {first.shape} and {second.shape}")
    found = crossed_interval(first - second, confidence=confidence, method=method, draws=draws, seed=seed)
    return judged(found, higher_is_better=higher_is_better)


def judged(found: Interval, *, higher_is_better: bool) -> Difference:
    """Return the interval of a difference with its verdict; one without width tells no spread, and decides nothing."""
    verdict = "undecided"
    if (found.low > 0.0 or found.high < 0.0) and found.high > found.low:
        verdict = "better" if (found.low > 0.0) == higher_is_better else "worse"
    return Difference(found.mean, found.low, found.high, found.n, found.method, verdict)


def _pigeonhole(
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


def _table(values: Any, name: str) -> Float[np.ndarray, "seeds items"]:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or min(array.shape) < 2:
        raise ValueError(f"{name} must have two or more seeds (rows) and items (columns); got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds NaN or infinity: leave unfinished runs out before comparing")
    return array
