"""How well scores discriminate harmful variants from others, with intervals over blocks of neighbouring positions."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Bool, Float64, Int64

from r2mae.masking.keys import Key, uniforms

MOST_FALSE = 0.001
"""The false-positive rate up to which the partial area is measured (Table 3 of the paper)."""

SPAN = 500
"""Positions of a block."""

RESAMPLES = 200
_KEY = Key.root(0).fold("blocks of variants")

Measure = Callable[[Float64[np.ndarray, " n"]], dict[str, float]]
"""From weights of the variants to metrics; 1 for each is the plain value."""


def ranking(
    labels: Bool[np.ndarray, " n"],
    scores: Float64[np.ndarray, " n"],
    only: Sequence[str] = ("auroc", "partial_auroc", "auprc"),
) -> Measure:
    """Return a function for ``auroc``, ``partial_auroc`` and ``auprc`` of scores that are high where the label is true.

    The partial area is standardised (McClish): 0.5 is chance. The area under the precision-recall curve is the average
    precision. They equal those of scikit-learn, which would sort again for each of the many weights.
    """
    order = np.argsort(-scores, kind="stable")
    sorted_labels, sorted_scores = labels[order], scores[order]
    last = np.flatnonzero(np.append(sorted_scores[1:] != sorted_scores[:-1], True))  # of each score

    def measure(weights: Float64[np.ndarray, " n"]) -> dict[str, float]:
        ordered = weights[order]
        hits = np.cumsum(ordered * sorted_labels)[last]
        misses = np.cumsum(ordered * ~sorted_labels)[last]
        if not (hits[-1] > 0 and misses[-1] > 0):
            return dict.fromkeys(only, float("nan"))
        recall, false = np.append(0.0, hits / hits[-1]), np.append(0.0, misses / misses[-1])
        precision = hits / np.maximum(hits + misses, 1e-300)
        areas = {
            "auroc": float(np.trapezoid(recall, false)),
            "partial_auroc": _partial(false, recall),
            "auprc": float((np.diff(recall) * precision).sum()),
        }
        return {name: areas[name] for name in only}

    return measure


def _partial(false: Float64[np.ndarray, " m"], recall: Float64[np.ndarray, " m"]) -> float:
    """Return the standardised area up to :data:`MOST_FALSE`."""
    stop = int(np.searchsorted(false, MOST_FALSE, "right"))
    edge = float(np.interp(MOST_FALSE, false[stop - 1 : stop + 1], recall[stop - 1 : stop + 1]))
    area = float(np.trapezoid(np.append(recall[:stop], edge), np.append(false[:stop], MOST_FALSE)))
    least = MOST_FALSE**2 / 2
    return 0.5 * (1 + (area - least) / (MOST_FALSE - least))


def correlation(labels: Float64[np.ndarray, " n"], scores: Float64[np.ndarray, " n"]) -> Measure:
    """Return a function for ``spearman``, the correlation of ranks, as that of SciPy."""
    ranked = [np.unique(values, return_inverse=True)[1] for values in (labels, scores)]

    def measure(weights: Float64[np.ndarray, " n"]) -> dict[str, float]:
        total = weights.sum()
        centred = []
        for places in ranked:
            counts = np.bincount(places, weights)
            ranks = (np.cumsum(counts) - counts / 2)[places]
            centred.append(ranks - (weights * ranks).sum() / total)
        one, other = centred
        scale = np.sqrt((weights * one**2).sum() * (weights * other**2).sum())
        return {"spearman": float((weights * one * other).sum() / scale) if scale > 0 else float("nan")}

    return measure


def blocks_of(contigs: Int64[np.ndarray, " n"], positions: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
    """Number the blocks of :data:`SPAN` neighbouring positions that variants lie in."""
    found: Int64[np.ndarray, " n"] = np.unique(contigs << 40 | positions // SPAN, return_inverse=True)[1]
    return found


def with_intervals(measure: Measure, blocks: Int64[np.ndarray, " n"]) -> dict[str, float]:
    """Measure, and add ends of 95 % intervals as ``NAME_blocks_low`` and ``NAME_blocks_high``.

    Whole blocks (each variant has the number of its block, from 0) are drawn with replacement, as variants of
    neighbouring positions are not independent. With fewer than two blocks there is no interval.
    """
    found = measure(np.ones(len(blocks)))
    count = int(blocks.max()) + 1
    drawn: dict[str, list[float]] = {name: [] for name in found}
    for number in range(RESAMPLES if count > 1 else 0):
        chosen = (uniforms(_KEY.fold(number), count) * count).astype(np.int64)
        weights = np.bincount(chosen, minlength=count)[blocks].astype(np.float64)
        for name, value in (measure(weights) if weights.any() else {}).items():
            drawn[name].append(value)
    scores: dict[str, float] = {}
    for name, value in found.items():
        scores[name] = value
        usable = [one for one in drawn[name] if np.isfinite(one)]
        if len(usable) > RESAMPLES // 2:
            low, high = np.quantile(usable, [0.025, 0.975])
            scores |= {f"{name}_blocks_low": float(low), f"{name}_blocks_high": float(high)}
    return scores
