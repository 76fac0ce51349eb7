"""Intervals over test donors: how much a score depends on who was tested."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Float64

from r2mae.cells.predictions import Predictions
from r2mae.evaluation.statistics import Interval
from r2mae.masking.keys import Key

RESAMPLES = 1000

Summary = Callable[[Mapping[str, Float64[np.ndarray, " resamples"]]], Float64[np.ndarray, " resamples"] | None]


def donor_weights(
    predictions: Sequence[Predictions], *, resamples: int = RESAMPLES, seed: int = 0
) -> Float64[np.ndarray, "resamples donors"]:
    """Draw test donors with replacement: how often each is there.

    The draws depend on the donors and the seed alone, so that two models' resamples can be paired.
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
    """Percentile intervals of all scores under resampling of whole test donors.

    Cells of a donor are alike, so that an interval over cells would be far too narrow. The probes are not fitted anew:
    the interval says how the score depends on who was tested, and that over seeds how it depends on weights, masks and
    on who trained. With fewer than ten donors percentile intervals are too narrow themselves.

    Parameters
    ----------
    predictions : sequence of ClassPredictions or NumberPredictions
        Of one donor split.
    summary : mapping of str to function, optional
        Scores made of the others, such as their mean.
    confidence : float
        Coverage.
    resamples : int
        Draws of as many donors as there are.
    seed : int
        Of the draws.

    Returns
    -------
    dict of Interval
        By name of the score; `mean` is the score itself and `n` the number of test donors. A resample in which a score
        is undefined (one class is left) does not count. NaN limits for one donor.
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
        made = one.weighted(weights)
        drawn.update(made)
        point.update(one.weighted(every))
        counts.update(dict.fromkeys(made, len(np.unique(one.donors))))
    for name, function in (summary or {}).items():
        whole, parts = function(point), function(drawn)
        if whole is not None and parts is not None:
            point[name], drawn[name], counts[name] = whole, parts, int(every.sum())
    return {name: _interval(float(point[name][0]), drawn[name], counts[name], confidence) for name in drawn}


def _interval(point: float, values: Float64[np.ndarray, " resamples"], donors: int, confidence: float) -> Interval:
    values = values[np.isfinite(values)]
    if donors < 2 or len(values) < 2 or not np.isfinite(point):
        return Interval(point, float("nan"), float("nan"), donors, "none")
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return Interval(point, float(low), float(high), donors, "bootstrap")
