"""What a planned number of seeds will decide about a paired difference, from the scores of a pilot.

The plan takes the interval that the report will take (:mod:`r2mae.evaluation.pairing`): over seeds alone, or over seeds
and test items. What items add to the latter does not shrink with more seeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import nan, sqrt

import numpy as np
from jaxtyping import Float64

from r2mae.evaluation.crossed import MeanSquares
from r2mae.evaluation.items import ItemScores
from r2mae.evaluation.pairing import BOTH, LEAST_SEEDS, Over, Reason, reason_for, squares_of
from r2mae.evaluation.power import MOST_SEEDS, detectable, detectable_by, fewest, spread, upper_limit


@dataclass(frozen=True)
class Pilot:
    """The spread of a pilot's paired differences.

    Parameters
    ----------
    pairs : int
        Seeds that both rows have.
    difference, sd : float
        Mean and standard deviation over them; NaN for a spread that says nothing.
    reason : str
        Why the interval of a comparison like it is over seeds and items, or is not; a key of
        :data:`r2mae.evaluation.pairing.WHY`.
    squares : MeanSquares or None
        Mean squares of seeds and items, where the interval is over both.
    """

    pairs: int
    difference: float
    sd: float
    reason: Reason
    squares: MeanSquares | None

    @property
    def items_sd(self) -> float:
        """What test items add to the standard error, whatever the number of seeds; NaN if they are not counted."""
        return nan if self.squares is None else self.squares.items_sd

    def over(self, seeds: int) -> tuple[Over, Reason]:
        """Return what the interval of so many seeds is over, and why."""
        if self.squares is None:
            return "seeds", self.reason
        return (BOTH, "shared") if seeds >= LEAST_SEEDS else ("seeds", "few seeds")

    def at_most(self, confidence: float) -> "Pilot":
        """Return the pilot with the one-sided upper limit of its spread (chi-square) in place of the spread."""
        squares = self.squares
        if squares is not None:
            seeds = upper_limit(sqrt(squares.seeds), squares.n_seeds, confidence=confidence) ** 2
            items = upper_limit(sqrt(squares.items), squares.n_items, confidence=confidence) ** 2
            squares = replace(squares, seeds=seeds, items=items)
        return replace(self, sd=upper_limit(self.sd, self.pairs, confidence=confidence), squares=squares)

    def decides(self, seeds: int) -> float:
        """Return the smallest true difference that so many seeds decide four times in five.

        NaN if nothing tells it: also where the means of all seeds are equal, although their items differ.
        """
        if self.squares is None or seeds < LEAST_SEEDS or not self.sd > 0:
            return detectable(self.sd, seeds)
        parts = self.squares.for_seeds(seeds).components
        return detectable_by(sqrt(parts.variance), parts.df)

    def seeds_needed(self, difference: float) -> int | None:
        """Return how many seeds decide a true difference; None if no number up to ``MOST_SEEDS`` does.

        Where items count, these are three or more: two would decide by leaving the items out.
        """
        if not (self.sd > 0 and difference > 0):
            return None
        least = 2 if self.squares is None else LEAST_SEEDS
        return fewest(lambda n: n >= least and self.decides(n) <= difference, most=MOST_SEEDS)


def pilot_of(
    a: Float64[np.ndarray, " seeds"],
    b: Float64[np.ndarray, " seeds"],
    items_a: Sequence[ItemScores | None],
    items_b: Sequence[ItemScores | None],
    metric: str,
) -> Pilot:
    """Return the spread of a − b over two or more seeds, and over test items where both rows have scores of the same.

    Parameters
    ----------
    a, b, items_a, items_b, metric
        As of :func:`r2mae.evaluation.pairing.paired`.
    """
    reason = reason_for(items_a, items_b, metric)
    shared = reason in ("shared", "few seeds")  # more seeds are planned than the pilot has
    squares = squares_of(a, b, items_a, items_b, metric) if shared and len(a) > 1 else None
    return Pilot(len(a), float((a - b).mean()), spread(a - b), reason, squares)
