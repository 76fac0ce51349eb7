"""Probes of frozen features, effective rank, and paired statistics.

Names are imported from their modules on first access, so that :class:`Metric` imports neither scikit-learn nor torch.
"""

from typing import TYPE_CHECKING

from r2mae.evaluation.metrics import Metric
from r2mae.lazy import lazy_exports

if TYPE_CHECKING:
    from r2mae.evaluation.attributes import AttributeHead, fit_attributes, score_attributes
    from r2mae.evaluation.gaussian import GaussianConditionalMean
    from r2mae.evaluation.head import LinearHead, fit_head
    from r2mae.evaluation.multiple import corrected_p_values, holm, level_of_look
    from r2mae.evaluation.pairing import Components, components, crossed_difference
    from r2mae.evaluation.power import detectable, seeds_needed
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
    "BestFixed",
    "Components",
    "Difference",
    "GaussianConditionalMean",
    "Interval",
    "LinearHead",
    "LinearProbe",
    "Metric",
    "RidgeProbe",
    "Spectrum",
    "best_fixed",
    "components",
    "corrected_p_values",
    "crossed_difference",
    "detectable",
    "effective_rank",
    "fit_attributes",
    "fit_head",
    "holm",
    "level_of_look",
    "mean_interval",
    "paired_difference",
    "rank_table",
    "score_attributes",
    "seeds_needed",
]

__getattr__, __dir__ = lazy_exports(__name__, __all__)
