"""The difference that a planned number of seeds can decide, estimated from the scores of a pilot.

The plan uses the interval of the report (:mod:`r2mae.evaluation.pairing`): over seeds only, or over seeds and test
items. The contribution of items to the latter does not shrink with more seeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import nan, sqrt

import numpy as np
from jaxtyping import Float64

from r2mae.evaluation.crossed import MeanSquares
from r2mae.evaluation.items import ItemScores
from r2mae.evaluation.pairing import (
    MIN_SEEDS_FOR_ITEMS,
    SEEDS_AND_ITEMS,
    Reason,
    SampledOver,
    paired_mean_squares,
    pairing_reason,
)
from r2mae.evaluation.power import (
    MOST_SEEDS,
    detectable,
    detectable_with_error,
    smallest_sufficient,
    spread,
    upper_limit,
)


@dataclass(frozen=True)
class Pilot:
    """The spread of a pilot's paired differences.

    Parameters
    ----------
    pairs : int
        Seeds of both variants.
    difference, sd : float
        Mean and standard deviation over the pairs; `sd` is NaN if it cannot be estimated.
    reason : str
        Why the interval of such a comparison is over seeds and items, or is not: a key of
        :data:`r2mae.evaluation.pairing.REASONS`.
    squares : MeanSquares or None
        Mean squares of seeds and items, if the interval is over both.
    """

    pairs: int
    difference: float
    sd: float
    reason: Reason
    squares: MeanSquares | None

    @property
    def items_sd(self) -> float:
        """Contribution of items to the standard error, at any number of seeds; NaN if the interval ignores items."""
        return nan if self.squares is None else self.squares.items_sd

    def over(self, seeds: int) -> tuple[SampledOver, Reason]:
        """Return the samples of the interval with this number of seeds, and why."""
        if self.squares is None:
            return "seeds", self.reason
        return (SEEDS_AND_ITEMS, "shared") if seeds >= MIN_SEEDS_FOR_ITEMS else ("seeds", "few seeds")

    def with_upper_limits(self, confidence: float) -> "Pilot":
        """Return the pilot with its spread replaced by the one-sided upper limit of the spread (chi-square)."""
        squares = self.squares
        if squares is not None:
            seeds = upper_limit(sqrt(squares.seeds), squares.n_seeds, confidence=confidence) ** 2
            items = upper_limit(sqrt(squares.items), squares.n_items, confidence=confidence) ** 2
            squares = replace(squares, seeds=seeds, items=items)
        return replace(self, sd=upper_limit(self.sd, self.pairs, confidence=confidence), squares=squares)

    def smallest_detectable(self, seeds: int) -> float:
        """Return the smallest true difference that this number of seeds decides four times in five.

        NaN if it is unknown, which includes equal means of all seeds with different item scores.
        """
        if self.squares is None or seeds < MIN_SEEDS_FOR_ITEMS or not self.sd > 0:
            return detectable(self.sd, seeds)
        parts = self.squares.for_seeds(seeds).components
        return detectable_with_error(sqrt(parts.variance), parts.df)

    def seeds_needed(self, difference: float) -> int | None:
        """Return the number of seeds that decides a true difference; None if it is above ``MOST_SEEDS``.

        If the interval is over items too, it is three or more: the interval with two seeds ignores items.
        """
        if not (self.sd > 0 and difference > 0):
            return None
        least = 2 if self.squares is None else MIN_SEEDS_FOR_ITEMS
        return smallest_sufficient(lambda n: n >= least and self.smallest_detectable(n) <= difference, most=MOST_SEEDS)


def pilot_of(
    a: Float64[np.ndarray, " seeds"],
    b: Float64[np.ndarray, " seeds"],
    items_a: Sequence[ItemScores | None],
    items_b: Sequence[ItemScores | None],
    metric: str,
) -> Pilot:
    """Return the spread of a − b over two or more seeds, and over test items if both variants share them.

    Parameters
    ----------
    a, b, items_a, items_b, metric
        As of :func:`r2mae.evaluation.pairing.compare_paired`.
    """
    reason = pairing_reason(items_a, items_b, metric)
    shared = reason in ("shared", "few seeds")  # the plan has more seeds than the pilot
    squares = paired_mean_squares(a, b, items_a, items_b, metric) if shared and len(a) > 1 else None
    return Pilot(len(a), float((a - b).mean()), spread(a - b), reason, squares)
