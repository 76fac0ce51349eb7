"""Paired differences of two variants over seeds, or over seeds and test items.

With scores x of seed s and item i, the model of two-way random effects is x = μ + a_s + b_i + e_si. The variance of the
mean over S seeds and I items is σ_a²/S + σ_b²/I + σ_e²/(S I). Intervals over seeds only omit the second term, as if the
test set were the population, and estimate the rest with only S − 1 degrees of freedom.

The interval over seeds and items is used whenever it is possible: from three seeds on, if all runs of both variants
have scores of the same test items. The reason is its coverage (``tests/evaluation/coverage.py``). Over new seeds and
items it contains the truth 93 to 98 times in 100 at any number of seeds; the interval over seeds only 37 to 95 times,
and less often with more seeds. If items vary little, the interval over both is a quarter narrower with three seeds, a
tenth narrower with four, and as wide from five on. With two seeds its coverage can fall to 88 in 100.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal, TypeAlias

import numpy as np
from jaxtyping import Float, Float64
from scipy import stats

from r2mae.evaluation.items import ItemScores
from r2mae.evaluation.power import detectable_with_error
from r2mae.evaluation.statistics import Difference, Interval, finite_array, judge, paired_difference


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


def components(scores: Any) -> Components:
    """Return the components of the variance of a mean over seeds and items.

    Parameters
    ----------
    scores : array-like, shape (n_seeds, n_items)
        Two or more seeds and items; for a comparison the differences of two schemes.

    Raises
    ------
    ValueError
        If a shape is wrong, or a value is not finite.
    """
    table = _checked_table(scores, "scores")
    n_seeds, n_items = table.shape
    mean, by_seed, by_item = table.mean(), table.mean(axis=1), table.mean(axis=0)
    residual = table - by_seed[:, None] - by_item + mean
    return components_of(
        n_items * float(by_seed.var(ddof=1)),
        n_seeds * float(by_item.var(ddof=1)),
        float((residual**2).sum()) / ((n_seeds - 1) * (n_items - 1)),
        n_seeds,
        n_items,
    )


def components_of(of_seeds: float, of_items: float, of_rest: float, n_seeds: int, n_items: int) -> Components:
    """Combine mean squares to components; their expectations are σ_e² + I σ_a², σ_e² + S σ_b² and σ_e²."""
    count = n_seeds * n_items
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


def crossed_difference(a: Any, b: Any, *, higher_is_better: bool = True, confidence: float = 0.95) -> Difference:
    """Return the mean of a − b over paired seeds and items, its interval, and whether a is better.

    Seeds (equal split, order and initial weights) and items are paired by position; both are samples for Student's t
    interval. Its `n` is the number of seeds, its `method` "crossed t". An interval without width is unknown, but for
    equal scores.

    Parameters
    ----------
    a, b : array-like, shape (n_seeds, n_items)
        Score of every item for every seed: its masked error, or 1 if a probe is right and 0 if it is wrong.
    higher_is_better : bool
        Whether higher scores are better.
    confidence : float
        Coverage.

    Raises
    ------
    ValueError
        If shapes differ, there is one seed only, or a value is not finite.
    """
    first, second = _checked_table(a, "a"), _checked_table(b, "b")
    if first.shape != second.shape:
        raise ValueError(f"a and b must have the same seeds and items; got shapes {first.shape} and {second.shape}")
    scores = first - second
    parts = components(scores)
    mean, error = float(np.mean(scores)), sqrt(parts.variance)
    half = float(stats.t.ppf((1 + confidence) / 2, parts.df)) * error
    found = Interval(mean, mean - half, mean + half, len(scores), "crossed t", error, parts.df)
    return judge(found, higher_is_better=higher_is_better, known=found.high > found.low or found.mean == 0.0)


def _checked_table(values: Any, name: str) -> Float[np.ndarray, "seeds items"]:
    array = finite_array(values, name, ndim=2)
    if min(array.shape) < 2:
        raise ValueError(f"{name} must have two or more seeds (rows) and items (columns); got shape {array.shape}")
    return array


MIN_SEEDS_FOR_ITEMS = 3
"""From this number of seeds on, intervals are over seeds and items."""

SampledOver: TypeAlias = Literal["seeds", "seeds and items"]
SEEDS_AND_ITEMS: SampledOver = "seeds and items"
Reason: TypeAlias = Literal["shared", "few seeds", "not kept", "no items", "split", "other items"]
REASONS: dict[Reason, str] = {
    "shared": "all runs have scores of the same test items",
    "few seeds": f"there are fewer than {MIN_SEEDS_FOR_ITEMS} seeds",
    "not kept": "some runs have no scores of single items",
    "no items": "runs keep no scores of single items of this measure",
    "split": "the seeds have different test items",
    "other items": "the two rows were measured on different items",
}
"""The text of each reason."""


@dataclass(frozen=True)
class PairedComparison:
    """A paired difference, and the samples of its interval.

    Parameters
    ----------
    difference : Difference
        Mean, interval and verdict.
    over : {"seeds", "seeds and items"}
        The samples of the interval.
    reason : str
        Why these, a key of :data:`REASONS`.
    items : int
        Number of items over which the scores are means; 0 if the interval is over seeds only.
    """

    difference: Difference
    over: SampledOver
    reason: Reason
    items: int

    @property
    def smallest_detectable(self) -> float:
        """The smallest true difference that such an interval decides four times in five; NaN if it is unknown."""
        return detectable_with_error(self.difference.error, self.difference.df)


def compare_paired(
    a: Float64[np.ndarray, " seeds"],
    b: Float64[np.ndarray, " seeds"],
    items_a: Sequence[ItemScores | None],
    items_b: Sequence[ItemScores | None],
    metric: str,
    *,
    higher_is_better: bool,
    confidence: float = 0.95,
    scores_b: Float64[np.ndarray, " seeds"] | None = None,
) -> PairedComparison:
    """Compare two variants by their scores for each seed and, if possible, by the item scores of the same runs.

    If `b` are not the scores of the runs of `items_b`, but the values of a best fixed ratio that count its choice
    (:meth:`r2mae.evaluation.statistics.BestFixed.partner`), `scores_b` are the scores. Each seed's row of items is then
    moved by the difference. The mean and the mean squares of items and rest stay; that of seeds is the wider one.
    """
    reason = pairing_reason(items_a, items_b, metric)
    if reason != "shared":
        alone = paired_difference(a, b, higher_is_better=higher_is_better, confidence=confidence)
        return PairedComparison(alone, "seeds", reason, 0)
    first, second = _item_table(items_a, metric), _item_table(items_b, metric)
    if scores_b is not None:
        second = second + (b - scores_b)[:, None]
    difference = crossed_difference(first, second, higher_is_better=higher_is_better, confidence=confidence)
    return PairedComparison(difference, SEEDS_AND_ITEMS, reason, first.shape[1])


def pairing_reason(items_a: Sequence[ItemScores | None], items_b: Sequence[ItemScores | None], metric: str) -> Reason:
    """Return "shared" if the interval is over seeds and items, otherwise why it is not."""
    runs = [*items_a, *items_b]
    recorded = [run for run in runs if run is not None]
    if len(recorded) < len(runs):
        return "not kept"
    has_metric = [metric in run.scores for run in recorded]
    if not all(has_metric):
        return "not kept" if any(has_metric) else "no items"
    count = len(items_a)
    of_a, of_b = ([run.fingerprint for run in part] for part in (recorded[:count], recorded[count:]))
    if of_a != of_b:
        return "other items"
    if len(set(of_a)) > 1:
        return "split"
    if len(recorded[0].scores[metric]) < 2:
        return "not kept"
    return "shared" if len(items_a) >= MIN_SEEDS_FOR_ITEMS else "few seeds"


def _item_table(items: Sequence[ItemScores | None], metric: str) -> Float64[np.ndarray, "seeds items"]:
    return np.stack([one.scores[metric] for one in items if one is not None]).astype(np.float64)
