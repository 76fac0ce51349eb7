"""Scores with re-estimated batch statistics, with those of training, or with both: their names and table notes.

Masked inputs have other means and variances than unmasked ones. A model with batch normalisation is therefore evaluated
with the wrong statistics unless they are re-estimated (:mod:`r2mae.training.validation`). The paper does not
re-estimate them.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from r2mae.evaluation.metrics import Metric

if TYPE_CHECKING:
    from r2mae.evaluation.items import ItemRecorder

BnStatistics = Literal["yes", "no", "both"]
"""Statistics re-estimated on the inputs of each evaluation, those of training, or scores with both."""

AS_TRAINED = "as_trained_"
"""Prefix of the names of scores with the statistics of training, if both are measured."""

NOTES: dict[BnStatistics, str] = {
    "yes": "Batch statistics: re-estimated on the inputs of each evaluation.",
    "no": "Batch statistics: those of training, as in the paper.",
    "both": "Batch statistics: re-estimated on the inputs of each evaluation; “as trained”: those of training.",
}
"""The notes of tables on the batch statistics of their scores."""


def add_as_trained(metrics: Iterable[Metric], bn_statistics: BnStatistics) -> tuple[Metric, ...]:
    """If both statistics are measured, add the same metrics, unranked, with the statistics of training."""
    own = tuple(metrics)
    if bn_statistics != "both":
        return own
    as_trained = (
        replace(metric, name=AS_TRAINED + metric.name, label=f"{metric.label}, as trained", ranked=False)
        for metric in own
    )
    return (*own, *as_trained)


def score_with_statistics(
    bn_statistics: BnStatistics,
    measure: "Callable[[bool, ItemRecorder], dict[str, float]]",
    items: "ItemRecorder | None" = None,
) -> dict[str, float]:
    """Return the scores of `measure(re_estimate, items)`, called once, or twice for "both".

    The second call uses the statistics of training; the names of its scores and item scores get :data:`AS_TRAINED`.
    """
    from r2mae.evaluation.items import ItemRecorder

    items = items or ItemRecorder()
    scores = measure(bn_statistics != "no", items)
    if bn_statistics == "both":
        items.prefix = AS_TRAINED
        scores |= {AS_TRAINED + name: value for name, value in measure(False, items).items()}
        items.prefix = ""
    return scores
