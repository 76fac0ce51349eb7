"""Bootstrap intervals over test donors: how much a score depends on the choice of test donors."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Float64

from r2mae.cells.predictions import Predictions
from r2mae.evaluation.statistics import Interval
from r2mae.masking.keys import Key

RESAMPLES = 1000
_EQUAL = 1e-9  # limits that differ by less differ by rounding alone

Summary = Callable[[Mapping[str, Float64[np.ndarray, " resamples"]]], Float64[np.ndarray, " resamples"] | None]


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
    predictions: Sequence[Predictions],
    *,
    summary: Mapping[str, Summary] | None = None,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Interval]:
    """Percentile intervals of all scores under resampling of test donors.

    Cells of one donor are similar, so an interval over cells would be far too narrow. The probes are not fitted again:
    this interval shows how the score depends on the test donors. An interval over seeds shows how it depends on
    weights, masks and training donors. With fewer than ten donors percentile intervals, too, are too narrow.

    Parameters
    ----------
    predictions : sequence of ClassPredictions or NumberPredictions
        Predictions for one split of the donors.
    summary : mapping of str to function, optional
        Scores that are computed from the others, such as their mean.
    confidence : float
        Coverage.
    resamples : int
        Number of resamples, each of as many donors as there are.
    seed : int
        Seed for the draws.

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
    weights = donor_weights(predictions, resamples=resamples, seed=seed)
    every = np.zeros((1, weights.shape[1]))
    every[0, np.concatenate([one.donors for one in predictions])] = 1.0
    drawn: dict[str, np.ndarray] = {}
    point: dict[str, np.ndarray] = {}
    counts: dict[str, int] = {}
    for one in predictions:
        scores = one.weighted(weights)
        drawn.update(scores)
        point.update(one.weighted(every))
        counts.update(dict.fromkeys(scores, len(np.unique(one.donors))))
    for name, function in (summary or {}).items():
        score, resampled = function(point), function(drawn)
        if score is not None and resampled is not None:
            point[name], drawn[name], counts[name] = score, resampled, int(every.sum())
    return {name: _interval(float(point[name][0]), drawn[name], counts[name], confidence) for name in drawn}


def _interval(point: float, values: Float64[np.ndarray, " resamples"], donors: int, confidence: float) -> Interval:
    none = Interval(point, float("nan"), float("nan"), donors, "none")
    finite = values[np.isfinite(values)]
    if donors < 2 or 2 * len(finite) <= len(values) or not np.isfinite(point):
        return none
    tail = (1 - confidence) / 2
    low, high = np.quantile(finite, [tail, 1 - tail])
    return Interval(point, float(low), float(high), donors, "bootstrap") if high - low > _EQUAL else none
