"""Probes of frozen features, effective rank, and paired statistics.

Names are imported from their modules when first used, so that :class:`Metric` costs neither scikit-learn nor torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from r2mae.evaluation.metrics import Metric

if TYPE_CHECKING:
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
    "fit_head",
    "mean_interval",
    "paired_difference",
    "rank_table",
]

_HOMES = {
    "LinearHead": "head",
    "fit_head": "head",
    "LinearProbe": "probes",
    "RidgeProbe": "probes",
    "Spectrum": "spectrum",
    "effective_rank": "spectrum",
    "BestFixed": "statistics",
    "Difference": "statistics",
    "Interval": "statistics",
    "best_fixed": "statistics",
    "mean_interval": "statistics",
    "paired_difference": "statistics",
    "rank_table": "statistics",
}


def __getattr__(name: str) -> Any:
    """Import a name from its module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
