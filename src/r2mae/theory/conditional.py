"""The risk of one masked design: Lemma 1 for any signal, Theorem 3 for eigenvectors of Σ."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy.linalg import cho_factor, cho_solve

from r2mae.theory.checks import SINGULAR
from r2mae.theory.covariance import Covariance, CovarianceLike, as_covariance


@dataclass(frozen=True)
class ConditionalRisk:
    """E[‖b̂ − β‖²_Σ | X̃], split into bias and variance.

    Attributes
    ----------
    bias : float
        ‖E[b̂ | X̃] − β‖²_Σ.
    variance : float
        Tr(Cov(b̂ | X̃)Σ).
    """

    bias: float
    variance: float

    @property
    def risk(self) -> float:
        """Bias + variance."""
        return self.bias + self.variance


def conditional_risk(
    cov: CovarianceLike,
    beta: Float[np.ndarray, " d"],
    masked: Float[np.ndarray, "rows d"],
    kept: Bool[np.ndarray, "rows d"],
    noise: float,
) -> ConditionalRisk:
    """Return Lemma 1 for Gaussian rows.

    Parameters
    ----------
    cov : Covariance or array (d, d)
    beta : array (d,)
    masked : array (rows, d)
        X̃: hidden entries are zero.
    kept : bool array (rows, d)
        Z: True where an entry was kept.
    noise : float
        Variance σ².

    Raises
    ------
    ValueError
        If shapes do not match, a number is not finite, or a hidden entry is not zero.
    """
    cov = as_covariance(cov)
    _check_design(cov, beta, masked, kept, noise)
    sigma, solve = cov.matrix(), _solve_regular if cov.rank == cov.d else _solve_singular
    u, w = np.empty(len(masked)), np.empty(len(masked))
    for row, (x, z) in enumerate(zip(masked, kept, strict=True)):
        hidden = sigma[:, ~z] @ beta[~z]  # Σ_{·,Z^c} β_{Z^c}
        w[row] = beta[~z] @ hidden[~z]
        u[row] = 0.0
        if z.any():
            solved = solve(sigma[np.ix_(z, z)], hidden[z])
            u[row] = x[z] @ solved
            w[row] -= hidden[z] @ solved
    inverse = np.linalg.pinv(masked)  # (d, rows)
    mean = inverse @ (masked @ beta + u)
    return _bias_and_variance(cov, beta, mean, inverse, w + noise)


def eigenvector_risk(
    cov: CovarianceLike,
    place: int,
    masked: Float[np.ndarray, "rows d"],
    kept: Bool[np.ndarray, "rows d"],
    noise: float,
) -> ConditionalRisk:
    """Return Theorem 3: the risk of Lemma 1 for β = unit eigenvector number `place` (0: the largest eigenvalue).

    E[b̂ | X̃] = X̃⁺X̃'β with X̃'_{a,Z} = η X̃_{a,Z} Σ_ZZ⁻¹: masking replaces the projection of ordinary ridgeless regression
    by one that reverses the shrinkage of strong directions. Parameters and errors are those of
    :func:`conditional_risk`.
    """
    cov = as_covariance(cov)
    beta = cov.eigenvectors(np.array([place]))[:, 0]
    eta = float(cov.eigenvalues[place])
    _check_design(cov, beta, masked, kept, noise)
    sigma, solve = cov.matrix(), _solve_regular if cov.rank == cov.d else _solve_singular
    replaced, w = np.zeros_like(masked), np.empty(len(masked))
    for row, (x, z) in enumerate(zip(masked, kept, strict=True)):
        w[row] = eta * beta[~z] @ beta[~z]
        if z.any():
            # Σ_ZZᶜ β_Zᶜ = (η − Σ_ZZ) β_Z, since Σβ = ηβ
            across = eta * beta[z] - sigma[np.ix_(z, z)] @ beta[z]
            both = solve(sigma[np.ix_(z, z)], np.column_stack([x[z], across]))
            replaced[row, z] = eta * both[:, 0]
            # β_Zᶜᵀ Σ_ZᶜZᶜ β_Zᶜ = η‖β_Zᶜ‖² − β_Zᶜᵀ Σ_ZᶜZ β_Z
            w[row] += -across @ beta[z] - across @ both[:, 1]
    inverse = np.linalg.pinv(masked)
    return _bias_and_variance(cov, beta, inverse @ (replaced @ beta), inverse, w + noise)


def _solve_regular(block: Float[np.ndarray, "z z"], right: Float[np.ndarray, "z *m"]) -> Float[np.ndarray, "z *m"]:
    """Return the solution x of Σ_ZZ x = `right`."""
    solved: Float[np.ndarray, "z *m"] = cho_solve(cho_factor(block, lower=True), right)
    return solved


def _solve_singular(block: Float[np.ndarray, "z z"], right: Float[np.ndarray, "z *m"]) -> Float[np.ndarray, "z *m"]:
    """Return the solution in the range of a singular Σ_ZZ; rows are in it, so all solutions give the same risk."""
    return np.asarray(np.linalg.pinv(block, rcond=SINGULAR, hermitian=True) @ right)


def _bias_and_variance(
    cov: Covariance,
    beta: Float[np.ndarray, " d"],
    mean: Float[np.ndarray, " d"],
    inverse: Float[np.ndarray, "d rows"],
    variances: Float[np.ndarray, " rows"],
) -> ConditionalRisk:
    weight = cov.quadratic(inverse)  # ((X̃ᵀ)⁺ΣX̃⁺)_aa
    return ConditionalRisk(bias=float(cov.quadratic(mean - beta)), variance=float(weight @ variances))


def _check_design(
    cov: Covariance,
    beta: Float[np.ndarray, " d"],
    masked: Float[np.ndarray, "rows d"],
    kept: Bool[np.ndarray, "rows d"],
    noise: float,
) -> None:
    if len(beta) != cov.d or masked.shape[1] != cov.d:
        raise ValueError(f"beta and masked must have {cov.d} features, not {len(beta)} and {masked.shape[1]}")
    if masked.shape != kept.shape:
        raise ValueError(f"kept must have the shape of masked, {masked.shape}, not {kept.shape}")
    for name, values in (("beta", beta), ("masked", masked)):
        if not np.isfinite(values).all():
            raise ValueError(f"{name} contains a number that is not finite")
    if masked[~kept].any():
        raise ValueError("masked has entries that are not zero where kept is False")
    if not (np.isfinite(noise) and noise >= 0):
        raise ValueError(f"noise must be a finite number of 0 or more, not {noise}")
