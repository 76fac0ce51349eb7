"""The rule that chooses the interval of a paired difference: over seeds only, or over seeds and test items.

The interval over seeds and items (:mod:`r2mae.evaluation.crossed`) is used whenever it is possible: from three seeds
on, if all runs of both variants have scores of the same test items. The reason is its coverage
(``tests/evaluation/coverage.py``). Over new seeds and items it contains the truth 93 to 98 times in 100 at any number
of seeds. The interval over seeds only contains it 37 to 95 times, and less often with more seeds. If items vary little,
the interval over both is a quarter narrower with three seeds, a tenth narrower with four, and as wide from five on.
With two seeds its coverage can fall to 88 in 100, so it is not used.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from jaxtyping import Float64

from r2mae.evaluation.crossed import crossed_difference
from r2mae.evaluation.items import ItemScores
from r2mae.evaluation.power import detectable_with_error
from r2mae.evaluation.statistics import Difference, paired_difference

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
) -> PairedComparison:
    """Compare two variants, paired by seeds and, if possible, by items.

    Parameters
    ----------
    a, b : ndarray, shape (seeds,)
        Score of each variant for each seed, over all test items.
    items_a, items_b : sequence of ItemScores or None, one per seed
        Item scores of the same runs.
    metric : str
        Name of the score.
    higher_is_better, confidence
        As of :func:`r2mae.evaluation.paired_difference`.
    """
    reason = pairing_reason(items_a, items_b, metric)
    if reason != "shared":
        alone = paired_difference(a, b, higher_is_better=higher_is_better, confidence=confidence)
        return PairedComparison(alone, "seeds", reason, 0)
    total_items = next(one.total_items for one in items_a if one is not None)
    difference = crossed_difference(
        _item_table(items_a, metric),
        _item_table(items_b, metric),
        means=a - b,
        total_items=total_items,
        higher_is_better=higher_is_better,
        confidence=confidence,
    )
    return PairedComparison(difference, SEEDS_AND_ITEMS, reason, total_items)


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


def _item_table(items: Sequence[ItemScores | None], metric: str) -> Float64[np.ndarray, "seeds kept"]:
    return np.stack([one.scores[metric] for one in items if one is not None]).astype(np.float64)
