"""Probes of frozen features, effective rank, and paired statistics.

Names are imported from their modules when first used, so that :class:`Metric` costs neither scikit-learn nor torch.
"""

from typing import TYPE_CHECKING

from r2mae.evaluation.metrics import Metric
from r2mae.lazy import lazily

if TYPE_CHECKING:
    from r2mae.evaluation.attributes import AttributeHead, AttributeScores, fit_attributes, score_attributes
    from r2mae.evaluation.head import LinearHead, fit_head
    from r2mae.evaluation.probes import LinearProbe, RidgeProbe
    from r2mae.evaluation.spectrum import Spectrum, effective_rank
    from r2mae.evaluation.statistics import (
        BestFixed,
        Difference,
        Interval,
        best_fixed,
        mean_interval,
        paired_difference,
        rank_table,
    )

__all__ = [
    "AttributeHead",
    "AttributeScores",
    "BestFixed",
    "Difference",
    "Interval",
    "LinearHead",
    "LinearProbe",
    "Metric",
    "RidgeProbe",
    "Spectrum",
    "best_fixed",
    "effective_rank",
    "fit_attributes",
    "fit_head",
    "mean_interval",
    "paired_difference",
    "rank_table",
    "score_attributes",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "attributes": ("AttributeHead", "AttributeScores", "fit_attributes", "score_attributes"),
        "head": ("LinearHead", "fit_head"),
        "probes": ("LinearProbe", "RidgeProbe"),
        "spectrum": ("Spectrum", "effective_rank"),
        "statistics": (
            "BestFixed",
            "Difference",
            "Interval",
            "best_fixed",
            "mean_interval",
            "paired_difference",
            "rank_table",
        ),
    },
    __all__,
)
