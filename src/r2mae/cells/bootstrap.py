"""Bootstrap intervals over test donors: how much a score depends on the choice of test donors."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64

from r2mae.cells.predictions import Predictions
from r2mae.evaluation.statistics import Interval
from r2mae.masking.keys import Key

RESAMPLES = 1000
_EQUAL = 1e-9  # limits that differ by less differ by rounding alone


def donor_weights(
    predictions: Sequence[Predictions], *, resamples: int = RESAMPLES, seed: int = 0
) -> Float64[np.ndarray, "resamples donors"]:
    """Draw test donors with replacement, and return how often each was drawn.

    The draws depend on the donors and the seed alone, so that the resamples of two models can be paired.
    """
    present = np.unique(np.concatenate([one.donors for one in predictions]))
    rng = np.random.default_rng(Key.root(seed).fold("donor bootstrap").seed())
    weights = np.zeros((resamples, int(present[-1]) + 1))
    weights[:, present] = rng.multinomial(len(present), np.full(len(present), 1 / len(present)), size=resamples)
    return weights


def cluster_bootstrap(
    predictions: Sequence[Predictions], averaged: Sequence[str] = (), *, resamples: int = RESAMPLES
) -> dict[str, Interval]:
    """Return 95 % percentile intervals of all scores, and of ``score``, the mean of some, over draws of test donors.

    Cells of one donor are similar, so an interval over cells would be far too narrow. The probes are not fitted again:
    this interval shows how the score depends on the test donors. An interval over seeds shows how it depends on
    weights, masks and training donors. With fewer than ten donors percentile intervals, too, are too narrow.

    Returns
    -------
    dict of Interval
        By name of the score; `mean` is the score itself and `n` the number of test donors. Resamples in which a score
        is undefined (with a single class, or fewer than three donors for a correlation over donors) are omitted. The
        limits are NaN if half of the resamples or more are omitted, as the rest would be a biased sample; if the limits
        coincide; and with one donor.
    """
    if not predictions:
        return {}
    weights = donor_weights(predictions, resamples=resamples)
    every = np.zeros((1, weights.shape[1]))
    every[0, np.concatenate([one.donors for one in predictions])] = 1.0
    point: dict[str, np.ndarray] = {}
    drawn: dict[str, np.ndarray] = {}
    donors: dict[str, int] = {}
    for one in predictions:
        scores = one.weighted(weights)
        drawn |= scores
        point |= one.weighted(every)
        donors |= dict.fromkeys(scores, len(np.unique(one.donors)))
    if averaged:
        donors["score"] = int(every.sum())
        point["score"], drawn["score"] = (
            np.mean([scores[name] for name in averaged], axis=0) for scores in (point, drawn)
        )
    return {name: _interval(float(point[name][0]), drawn[name], donors[name]) for name in drawn}


def _interval(point: float, values: Float64[np.ndarray, " resamples"], donors: int) -> Interval:
    finite = values[np.isfinite(values)]
    if donors > 1 and 2 * len(finite) > len(values) and np.isfinite(point):
        low, high = np.quantile(finite, [0.025, 0.975])
        if high - low > _EQUAL:
            return Interval(point, float(low), float(high), donors, "bootstrap")
    return Interval(point, float("nan"), float("nan"), donors, "none")
