"""How masked inputs are filled, in training and in use, and how much is missing in use."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from r2mae.theory.rows import RatioLike, nodes_of

Rule = Literal["zeros", "rescaled"]


@dataclass(frozen=True, eq=False)
class Inputs:
    """The rule for masked inputs, and the distribution of the missing share in use.

    Parameters
    ----------
    rule : {"zeros", "rescaled"}
        A hidden entry is zero, which is its mean if rows are centred. With "rescaled" the kept entries of a row are
        divided by 1 − p in training and by 1 − q in use.
    missing : float or distribution
        The share q of entries that is missing in use, below 1, or its distribution. By default nothing is missing.
    mean : array (d,), optional
        The mean μ of the features, if rows are not centred before entries are set to zero; the model then has an
        intercept. By default rows are centred: the mean is filled in.

    Raises
    ------
    ValueError
        If the rule is unknown or q is outside [0, 1).
    """

    rule: Rule = "zeros"
    missing: float | RatioLike = 0.0
    mean: Float[np.ndarray, " d"] | None = None

    def __post_init__(self) -> None:
        if self.rule not in ("zeros", "rescaled"):
            raise ValueError(f"inputs: rule must be 'zeros' or 'rescaled', not {self.rule!r}")
        nodes_of(self.missing, "missing")

    def factors(self, p: Float[np.ndarray, "*k"]) -> tuple[Float[np.ndarray, "*k"], Float[np.ndarray, "*k"]]:
        """Return u and s: a masked row has the covariance u²Σ + sD, and the covariance uΣβ with its target."""
        if self.rule == "rescaled":
            return np.ones_like(p), p / (1 - p)
        return 1 - p, p * (1 - p)

    def in_use(self) -> tuple[float, float, float]:
        """Return E u², E s and E u over q."""
        q, weight = nodes_of(self.missing, "missing")
        u, s = self.factors(q)
        return float(weight @ (u * u)), float(weight @ s), float(weight @ u)

    def shifts(self, p: Float[np.ndarray, " k"], weight: Float[np.ndarray, " k"]) -> tuple[float, float]:
        """Return Var u of training and E(E u − u_q)², the squares of μᵀb in the objective and in the risk."""
        if self.mean is None:
            return 0.0, 0.0
        u, level = self.factors(p)[0], float(weight @ self.factors(p)[0])
        q, share = nodes_of(self.missing, "missing")
        return float(weight @ (u - level) ** 2), float(share @ (self.factors(q)[0] - level) ** 2)


ZEROS = Inputs()


def effective_ratio(
    ratio: float | RatioLike, weighting: Literal["rows", "batches"] = "rows", rule: Rule = "zeros"
) -> float:
    """Return p_eff, the single ratio that has the estimator of a distribution of ratios for K = ∞.

    Without an intercept, or with rows centred before they are masked, both have the same estimator at any n, with any
    ridge that is scaled by E[w u] (docs/theory/many-masks.md, Theorem 1).

    Parameters
    ----------
    ratio : float or distribution
    weighting : {"rows", "batches"}
        Weight w(p) of a mask: p if each hidden entry counts alike ("rows"), 1 if each mask or batch counts alike.
    rule : {"zeros", "rescaled"}
        How hidden entries are filled: :class:`Inputs`.
    """
    if weighting not in ("rows", "batches"):
        raise ValueError(f"weighting must be 'rows' or 'batches', not {weighting!r}")
    p, weight = nodes_of(ratio)
    weight = weight * p if weighting == "rows" else weight
    if not weight.any():
        return 0.0
    u, s = Inputs(rule).factors(p)
    return float(weight @ s / (weight @ (s + u * u)))
