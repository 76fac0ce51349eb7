"""The theory: risk of masked ridgeless regression, in closed form and by simulation. NumPy, SciPy, scikit-learn.

A ratio is a number or a distribution (:class:`RatioLike`), such as those of ``r2mae.masking``.
"""

from r2mae.theory.advise import Advice, advise
from r2mae.theory.assumptions import DominantWarning, InterpolationWarning, LocalisedWarning
from r2mae.theory.closed import ClosedRisk, fixed_point, isotropic_risk, spiked_risk
from r2mae.theory.conditional import conditional_risk
from r2mae.theory.covariance import Covariance, CovarianceLike, Dense, LowRank, Rotated, as_covariance
from r2mae.theory.inputs import Inputs, effective_ratio
from r2mae.theory.models import (
    beta_spectrum,
    identity,
    latent,
    plateau,
    signal_at,
    spiked,
    uniform_direction,
    uniform_spectrum,
)
from r2mae.theory.risk import Risk, direction_risk, feature_risk, risk
from r2mae.theory.rows import KeptRows, RatioLike, kept_rows
from r2mae.theory.sample import from_data
from r2mae.theory.simulate import Simulation, simulate

__all__ = [
    "Advice",
    "ClosedRisk",
    "Covariance",
    "CovarianceLike",
    "Dense",
    "DominantWarning",
    "Inputs",
    "InterpolationWarning",
    "KeptRows",
    "LocalisedWarning",
    "LowRank",
    "RatioLike",
    "Risk",
    "Rotated",
    "Simulation",
    "advise",
    "as_covariance",
    "beta_spectrum",
    "conditional_risk",
    "direction_risk",
    "effective_ratio",
    "feature_risk",
    "fixed_point",
    "from_data",
    "identity",
    "isotropic_risk",
    "kept_rows",
    "latent",
    "plateau",
    "risk",
    "signal_at",
    "simulate",
    "spiked",
    "spiked_risk",
    "uniform_direction",
    "uniform_spectrum",
]
