"""Predictions of probes for test cells, their scores, and a cluster bootstrap: how much these depend on test donors."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from r2mae.masking.keys import Key

_EQUAL = 1e-9  # limits that differ by less differ by rounding alone
_FLAT = 1e-9  # deviation of ranks, over their number, below which all ranks are taken as equal

Weights = Float64[np.ndarray, "resamples donors"]
Scores = dict[str, Float64[np.ndarray, " resamples"]]


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions of a column for test cells, of classes or of numbers.

    Parameters
    ----------
    column : str
        Column of obs.
    truth : ndarray, shape (cells,)
        Number of the true class, or the true number.
    predicted : ndarray, shape (cells, classes) or (cells,)
        Probabilities of the classes, or numbers.
    donors : ndarray of int, shape (cells,)
        Donor of each cell, as a column number of the weights; all zero if donors are unknown.
    by_donor : bool
        Whether donors are scored too: classes if all cells of a donor have one, numbers if donors are known.
    """

    column: str
    truth: np.ndarray
    predicted: np.ndarray
    donors: Int64[np.ndarray, " cells"]
    by_donor: bool

    def scores(self) -> dict[str, float]:
        """Return the scores of the test cells, and those of donors, with the means over their cells."""
        every = np.ones((1, int(self.donors.max()) + 1))
        return {name: float(value[0]) for name, value in self.weighted(every).items()}

    def weighted(self, weights: Weights) -> Scores:
        """Return the scores as if each donor's cells were there as often as its weight says; NaN where undefined.

        Of classes: balanced accuracy, macro F1 and macro AUROC, and macro AUROC over donors. As in scikit-learn, recall
        is averaged over the true classes, F1 over true and predicted classes, and AUROC (one class against the rest)
        over classes that some but not all cells have. With a single true class all are undefined.

        Of numbers, such as ages: Spearman correlation over cells, and over three or more donors. It is undefined if all
        true values are equal, and 0 if only the predicted values are, as such a model distinguishes nothing.
        """
        scores = _class_scores(self, weights) if self.predicted.ndim == 2 else _number_scores(self, weights)
        return {f"{self.column}_{name}": values for name, values in scores.items()}


def _class_scores(one: Predictions, weights: Weights) -> Scores:
    present, codes = np.unique(one.donors, return_inverse=True)
    size, used = one.predicted.shape[1], weights[:, present]
    confusion = np.zeros((len(present), size, size))
    np.add.at(confusion, (codes, one.truth, one.predicted.argmax(axis=1)), 1.0)
    balanced, macro = _confusion_scores(np.tensordot(used, confusion, axes=1))
    scores = {"bacc": balanced, "f1": macro, "auroc": _weighted_auroc(codes, one.truth, one.predicted, used)}
    if one.by_donor:
        truth, means = np.zeros(len(present), dtype=np.int64), np.zeros((len(present), size))
        truth[codes] = one.truth
        np.add.at(means, codes, one.predicted)
        means /= np.bincount(codes)[:, None]
        scores["auroc_donor"] = _weighted_auroc(np.arange(len(present)), truth, means, used)
    return scores


def _number_scores(one: Predictions, weights: Weights) -> Scores:
    scores = {"spearman_cell": _weighted_spearman(one.truth, one.predicted, one.donors, weights)}
    if one.by_donor:
        names, codes = np.unique(one.donors, return_inverse=True)
        means = [np.bincount(codes, values) / np.bincount(codes) for values in (one.truth, one.predicted)]
        few = (weights[:, names] > 0).sum(axis=1) < 3
        scores["spearman_donor"] = np.where(few, np.nan, _weighted_spearman(means[0], means[1], names, weights))
    return scores


def _confusion_scores(
    matrix: Float64[np.ndarray, "resamples classes classes"],
) -> tuple[Float64[np.ndarray, " resamples"], Float64[np.ndarray, " resamples"]]:
    """Balanced accuracy and macro F1; NaN with fewer than two true classes, which nothing can tell apart."""
    hit = np.einsum("rkk->rk", matrix)
    true, predicted = matrix.sum(axis=2), matrix.sum(axis=1)
    enough = (true > 0).sum(axis=1) > 1
    means = _mean_where(hit, true, true > 0), _mean_where(2 * hit, true + predicted, true + predicted > 0)
    return np.where(enough, means[0], np.nan), np.where(enough, means[1], np.nan)


def _mean_where(
    above: Float64[np.ndarray, "resamples classes"],
    below: Float64[np.ndarray, "resamples classes"],
    where: Bool[np.ndarray, "resamples classes"],
) -> Float64[np.ndarray, " resamples"]:
    """Return the mean fraction over the classes that count, or NaN if none does."""
    ratio = np.divide(above, below, out=np.zeros_like(above), where=where)
    count = where.sum(axis=1)
    return np.where(count > 0, ratio.sum(axis=1) / np.maximum(count, 1), np.nan)


def _weighted_auroc(
    codes: Int64[np.ndarray, " n"],
    truth: Int64[np.ndarray, " n"],
    probability: Float64[np.ndarray, "n classes"],
    weights: Float64[np.ndarray, "resamples donors"],
) -> Float64[np.ndarray, " resamples"]:
    """Macro AUROC from the number of pairs in which a donor's positive cell is ranked above a donor's negative cell.

    In a resample a pair has the product of its donors' weights. AUROC is then a quadratic form in the weights, so that
    no ranking is needed for each resample.
    """
    donors = weights.shape[1]
    above = np.zeros((len(weights), int(truth.max()) + 1))
    below = np.zeros_like(above)
    for label in np.unique(truth):
        hit, score = truth == label, probability[:, label]
        positives, negatives = (np.bincount(codes[part], minlength=donors) for part in (hit, ~hit))
        order = np.lexsort((score[~hit], codes[~hit]))
        bounds = np.cumsum(negatives)
        wins = np.zeros((donors, donors))
        for donor in np.flatnonzero(negatives):
            rivals = score[~hit][order[bounds[donor] - negatives[donor] : bounds[donor]]]
            won = np.searchsorted(rivals, score[hit], "left") + np.searchsorted(rivals, score[hit], "right")
            wins[:, donor] = np.bincount(codes[hit], won / 2, minlength=donors)
        above[:, label] = np.einsum("rd,de,re->r", weights, wins, weights, optimize=True)
        below[:, label] = (weights @ positives) * (weights @ negatives)
    return _mean_where(above, below, below > 0)


def _weighted_spearman(
    first: Float64[np.ndarray, " n"],
    second: Float64[np.ndarray, " n"],
    donors: Int64[np.ndarray, " n"],
    weights: Float64[np.ndarray, "resamples donors"],
) -> Float64[np.ndarray, " resamples"]:
    """Pearson correlation of mid-ranks of true and predicted values, each repeated by the weight of its donor."""
    codes = [np.unique(values, return_inverse=True)[1] for values in (first, second)]
    correlations = np.full(len(weights), np.nan)
    for number, row in enumerate(weights):
        weight = row[donors]
        total = weight.sum()
        if total <= 0:
            continue
        ranks, spreads = [], []
        for code in codes:
            count = np.bincount(code, weight)
            rank = (np.cumsum(count) - count / 2)[code]
            ranks.append(rank - (weight @ rank) / total)
            spreads.append(np.sqrt((weight @ ranks[-1] ** 2) / total) / total)
        if spreads[0] > _FLAT:
            product = spreads[0] * spreads[1] * total**3
            correlations[number] = (weight * ranks[0]) @ ranks[1] / product if spreads[1] > _FLAT else 0.0
    return correlations


def cluster_bootstrap(
    predictions: Sequence[Predictions], averaged: Sequence[str] = (), *, resamples: int = 1000
) -> dict[str, tuple[float, float]]:
    """Return 95 % percentile intervals of all scores, and of ``score``, the mean of some, over draws of test donors.

    Cells of one donor are similar, so an interval over cells would be far too narrow. The probes are not fitted again:
    this interval shows how the score depends on the test donors. An interval over seeds shows how it depends on
    weights, masks and training donors. With fewer than ten donors percentile intervals, too, are too narrow.

    Returns
    -------
    dict of (float, float)
        The limits by name of the score. Resamples in which a score is undefined (with a single class, or fewer than
        three donors for a correlation over donors) are omitted. There is no interval if half of the resamples or more
        are omitted, as the rest would be a biased sample; or if the limits coincide, as with one donor.
    """
    if not predictions:
        return {}
    present = np.unique(np.concatenate([one.donors for one in predictions]))
    # The draws depend on the donors alone, so that the resamples of two models can be paired.
    rng = np.random.default_rng(Key.root(0).fold("donor bootstrap").seed())
    weights = np.zeros((resamples, int(present[-1]) + 1))
    weights[:, present] = rng.multinomial(len(present), np.full(len(present), 1 / len(present)), size=resamples)
    drawn = {name: values for one in predictions for name, values in one.weighted(weights).items()}
    if averaged:
        drawn["score"] = np.mean([drawn[name] for name in averaged], axis=0)
    intervals = {}
    for name, values in drawn.items():
        defined = values[np.isfinite(values)]
        if 2 * len(defined) > resamples:
            low, high = map(float, np.quantile(defined, [0.025, 0.975]))
            if high - low > _EQUAL:
                intervals[name] = low, high
    return intervals
