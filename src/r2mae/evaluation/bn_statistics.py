"""Scores with re-estimated batch statistics, with those of training, or with both: their names and table notes.

Masked inputs have other means and variances than whole ones, so a model with batch normalisation is evaluated with the
wrong statistics unless they are re-estimated (:mod:`r2mae.training.bn_statistics`). The paper does not re-estimate
them.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Literal

from r2mae.evaluation.items import ItemRecorder
from r2mae.evaluation.metrics import Metric

BnStatistics = Literal["yes", "no", "both"]
"""Statistics re-estimated on the inputs of each evaluation, those of training, or scores with either."""

AS_TRAINED = "as_trained_"
"""Prefix of the names of scores with the statistics of training, if both kinds are measured."""

_WORDS = {
    "yes": "Batch statistics: re-estimated on the inputs of each evaluation.",
    "no": "Batch statistics: those of training, as in the paper.",
    "both": "Batch statistics: re-estimated on the inputs of each evaluation; “as trained”: those of training.",
}


def measured_in_words(bn_statistics: BnStatistics) -> str:
    """Return the sentence for a table that says how its scores were measured."""
    return _WORDS[bn_statistics]


def with_as_trained(metrics: Iterable[Metric], bn_statistics: BnStatistics) -> tuple[Metric, ...]:
    """Add the same metrics with the statistics of training, if both kinds are measured; these are not ranked."""
    known = tuple(metrics)
    if bn_statistics != "both":
        return known
    twins = (
        replace(metric, name=AS_TRAINED + metric.name, label=f"{metric.label}, as trained", ranked=False)
        for metric in known
    )
    return (*known, *twins)


def in_both_ways(
    bn_statistics: BnStatistics,
    measure: Callable[[bool, ItemRecorder | None], dict[str, float]],
    items: ItemRecorder | None = None,
) -> dict[str, float]:
    """Call `measure(re_estimate, items)` once, or twice for "both".

    The second time it is with the statistics of training, and its scores and those of items get the prefix.
    """
    scores = measure(bn_statistics != "no", items)
    if bn_statistics == "both":
        beside = None if items is None else items.prefixed(AS_TRAINED)
        scores |= {AS_TRAINED + name: value for name, value in measure(False, beside).items()}
    return scores
