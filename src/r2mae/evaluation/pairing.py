"""Which interval a paired difference has: over seeds alone, or over seeds and test items. The rule is here alone.

The interval over seeds and items (:mod:`r2mae.evaluation.crossed`) is taken wherever it can be: from three seeds on, if
all runs of both rows have scores of the same test items. The study of coverage (``tests/evaluation/coverage.py``) says
why. Over new seeds and items it holds the truth 93 to 98 times in 100 at any number of seeds; the interval over seeds
alone does so only 37 to 95 times, the less often the more seeds there are. With three seeds it is also a quarter
narrower unless items matter, with four a tenth; from five on both are equally wide unless items matter. With two seeds
it can fall to 88 in 100, and is not taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Literal, TypeAlias

import numpy as np
from jaxtyping import Float64

from r2mae.evaluation.crossed import MeanSquares, judged, mean_squares, t_interval
from r2mae.evaluation.items import ItemScores
from r2mae.evaluation.power import detectable, detectable_by, spread
from r2mae.evaluation.statistics import Difference, paired_difference

LEAST_SEEDS = 3
"""From so many seeds on items are taken into account."""

Over: TypeAlias = Literal["seeds", "seeds and items"]
BOTH: Over = "seeds and items"
Reason: TypeAlias = Literal["shared", "few seeds", "not kept", "no items", "split", "other items"]
WHY: dict[Reason, str] = {
    "shared": "all runs have scores of the same test items",
    "few seeds": f"there are fewer than {LEAST_SEEDS} seeds",
    "not kept": "some runs have no scores of single items",
    "no items": "runs keep no scores of single items of this measure",
    "split": "the seeds have different test items",
    "other items": "the two rows were measured on different items",
}
"""The reasons in words."""


@dataclass(frozen=True)
class Paired:
    """A paired difference, and what its interval is over.

    Parameters
    ----------
    difference : Difference
        Mean, interval and verdict.
    over : {"seeds", "seeds and items"}
        What the interval takes as samples.
    reason : str
        Why, a key of :data:`WHY`.
    items : int
        How many items the scores are means over; 0 where the interval is over seeds alone.
    decides : float
        The smallest true difference that such an interval decides four times in five; NaN where nothing tells it.
    """

    difference: Difference
    over: Over
    reason: Reason
    items: int
    decides: float


def paired(
    a: Float64[np.ndarray, " seeds"],
    b: Float64[np.ndarray, " seeds"],
    items_a: Sequence[ItemScores | None],
    items_b: Sequence[ItemScores | None],
    metric: str,
    *,
    higher_is_better: bool,
    confidence: float = 0.95,
) -> Paired:
    """Compare two rows, seed by seed, and item by item where that is possible.

    Parameters
    ----------
    a, b : ndarray, shape (seeds,)
        The score of each row under each seed, over all test items.
    items_a, items_b : sequence of ItemScores or None, one a seed
        Those of the same runs.
    metric : str
        The name of the score.
    higher_is_better, confidence
        As of :func:`r2mae.evaluation.paired_difference`.
    """
    reason = reason_for(items_a, items_b, metric)
    if reason != "shared":
        alone = paired_difference(a, b, higher_is_better=higher_is_better, confidence=confidence)
        return Paired(alone, "seeds", reason, 0, detectable(spread(a - b), len(a), confidence=confidence))
    squares = squares_of(a, b, items_a, items_b, metric)
    parts = squares.components
    found = t_interval(float((a - b).mean()), parts, len(a), confidence=confidence)
    decides = detectable_by(sqrt(parts.variance), parts.df, confidence=confidence)
    return Paired(judged(found, higher_is_better=higher_is_better), BOTH, reason, squares.of, decides)


def reason_for(items_a: Sequence[ItemScores | None], items_b: Sequence[ItemScores | None], metric: str) -> Reason:
    """Return "shared" if the interval is to be over seeds and items, or else why not."""
    runs = [*items_a, *items_b]
    known = [one for one in runs if one is not None]
    if len(known) < len(runs):
        return "not kept"
    having = [metric in one.scores for one in known]
    if not all(having):
        return "not kept" if any(having) else "no items"
    first, second = ([one.fingerprint for one in part] for part in (known[: len(items_a)], known[len(items_a) :]))
    if first != second:
        return "other items"
    if len(set(first)) > 1:
        return "split"
    if len(known[0].scores[metric]) < 2:
        return "not kept"
    return "shared" if len(items_a) >= LEAST_SEEDS else "few seeds"


def squares_of(
    a: Float64[np.ndarray, " seeds"],
    b: Float64[np.ndarray, " seeds"],
    items_a: Sequence[ItemScores | None],
    items_b: Sequence[ItemScores | None],
    metric: str,
) -> MeanSquares:
    """Return the mean squares of a − b over seeds and items, which both rows share; parameters as of :func:`paired`."""
    first, second = (_table(items, metric) for items in (items_a, items_b))
    of = next(one.of for one in items_a if one is not None)
    return mean_squares(first - second, means=a - b, of=of)


def _table(items: Sequence[ItemScores | None], metric: str) -> Float64[np.ndarray, "seeds kept"]:
    return np.stack([one.scores[metric] for one in items if one is not None]).astype(np.float64)
