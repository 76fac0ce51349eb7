"""The risk of one masked design: Lemma 1. At eigenvectors of Σ it is Theorem 3."""

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.linalg import cho_factor, cho_solve

from r2mae.theory.checks import SINGULAR, numbers
from r2mae.theory.closed import ClosedRisk
from r2mae.theory.covariance import CovarianceLike, as_covariance


def conditional_risk(
    cov: CovarianceLike,
    beta: ArrayLike,
    masked: ArrayLike,
    kept: ArrayLike,
    noise: float,
) -> ClosedRisk:
    """Return E[‖b̂ − β‖²_Σ | X̃] of Lemma 1, for Gaussian rows.

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
    cov, kept = as_covariance(cov), np.asarray(kept, dtype=bool)
    beta, masked = numbers(beta, "beta"), numbers(masked, "masked")
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
    weight = cov.quadratic(inverse)  # ((X̃ᵀ)⁺ΣX̃⁺)_aa
    return ClosedRisk(bias=float(cov.quadratic(mean - beta)), variance=float(weight @ (w + noise)))


def _solve_regular(block: Float[np.ndarray, "z z"], right: Float[np.ndarray, "z *m"]) -> Float[np.ndarray, "z *m"]:
    """Return the solution x of Σ_ZZ x = `right`."""
    solved: Float[np.ndarray, "z *m"] = cho_solve(cho_factor(block, lower=True), right)
    return solved


def _solve_singular(block: Float[np.ndarray, "z z"], right: Float[np.ndarray, "z *m"]) -> Float[np.ndarray, "z *m"]:
    """Return the solution in the range of a singular Σ_ZZ; rows are in it, so all solutions give the same risk."""
    return np.asarray(np.linalg.pinv(block, rcond=SINGULAR, hermitian=True) @ right)
