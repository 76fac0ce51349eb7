"""The deterministic equivalent of masked ridge regression, for any Σ, distribution of ratios and number of masks.

With D = diag Σ, the kept copies of a row are Gaussians of covariance u_k u_l Σ + δ_kl s_k D. With
x = (tr ΣM⁻¹, tr DM⁻¹)/n, A = e + x_D s/K and B = (diag(A) + x_Σ uuᵀ/K)⁻¹ (:mod:`r2mae.theory.copies`),

    M = E[uᵀBu]/K · Σ + E[Σ_k s_k B_kk]/K · D + cI.

(c, e) = (1, ℓ) and (ℓ, 1) are equivalent for a ridge penalty ℓ > 0 (B and M in other units). For ℓ → 0 the former
stays finite if there are fewer distinct kept rows than features, the latter if there are more. The fixed point is a
system of two equations for any number of ratios and masks.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from r2mae.theory.copies import Copies, Terms
from r2mae.theory.covariance import Covariance, Uncentred
from r2mae.theory.resolvent import Resolvent

_TOLERANCE = 1e-12  # relative change of x
_ACCEPTED_CHEAP, _ACCEPTED_EXACT = 1e-10, 1e-6  # accepted changes if rounding prevents smaller ones, by resolvent
_NEWTON_RANGE = 0.1  # relative change of x below which Newton's method should converge quadratically
_ITERATIONS, _PATIENCE = 200, 40
_INCREASE, _MAX_DECREASE = 4.0, 1000.0


@dataclass(frozen=True)
class FixedPoint:
    """The solution, and its derivatives with respect to an added penalty τ‖b‖²_Q at τ = 0, which give the risk.

    Attributes
    ----------
    copies : Copies
    resolvent : Resolvent
        N = M⁻¹.
    x : array (2,)
        tr ΣN/n and tr DN/n.
    c, e : float
        The form.
    terms : Terms
        M = aΣ + bD + cI with (a, b) = terms.coefficients, and E b̂ = terms.shrink · NΣβ.
    d_x : array (2,)
        dx/dτ.
    """

    copies: Copies
    resolvent: Resolvent
    x: Float[np.ndarray, " 2"]
    c: float
    e: float
    terms: Terms
    d_x: Float[np.ndarray, " 2"]

    @property
    def d_coefficients(self) -> Float[np.ndarray, " 2"]:
        """da/dτ and db/dτ; M itself also gains τQ."""
        return np.asarray(self.terms.d_coefficients @ self.d_x)

    @property
    def d_shrink(self) -> float:
        """Derivative of the shrinkage."""
        return float(self.terms.d_shrink @ self.d_x)

    @property
    def noise_gain(self) -> Float[np.ndarray, " J"]:
        """Risk per unit of residual variance in the rows of each pattern; their sum is that of noise in y."""
        return np.asarray(self.terms.d_residual @ self.d_x)


def solve(cov: Covariance, copies: Copies, ridge: float, use: tuple[float, float] = (1.0, 0.0)) -> FixedPoint:
    """Solve the fixed point by Newton's method in two unknowns, and differentiate it.

    The map is increasing and concave, because M⁻¹ is a parallel sum (ZᵀA(x)⁻¹Z)⁻¹ with A linear and increasing in x,
    so Newton's method always converges. If I − J is an M-matrix, a step leads to the solution or above it, and all
    later steps decrease x. Otherwise x is too small.

    Parameters
    ----------
    cov : Covariance
    copies : Copies
        Their count must be positive.
    ridge : float
        λ ≥ 0 of the mean over masks of ‖ỹ − X̃b‖², plus λ‖b‖²; ℓ = λ/n.
    use : (float, float)
        Q = use[0]·Σ + use[1]·D of the derivative.

    Raises
    ------
    ArithmeticError
        If double precision is insufficient: kept rows are too close to the number of dimensions for such a small ridge.
    """
    size = dimensions(cov, copies) if ridge == 0 else cov.d
    c, e = (1.0, ridge / copies.n) if copies.distinct < size else (ridge / copies.n, 1.0)
    x, last, exact = _isotropic_start(cov, copies, size, (c, e)), np.inf, False
    for iteration in range(_ITERATIONS):
        terms = copies.terms(e, x)
        a, b = terms.coefficients
        resolvent = cov.resolvent(a, b, c, exact=exact)
        traces = resolvent.traces()
        slopes = np.array([[traces.ss, traces.sd], [traces.sd, traces.dd]]) / copies.n  # −d(tr ΣN, tr DN)/d(a, b)/n
        matrix = np.eye(2) + slopes @ terms.d_coefficients
        if not (matrix[0, 0] > 0 and matrix[0, 0] * matrix[1, 1] > matrix[0, 1] * matrix[1, 0]):
            x = _INCREASE * x
            continue
        step = np.linalg.solve(matrix, np.array([traces.s, traces.d]) / copies.n - x)
        change = float(np.abs(step / x).max())
        # Without rounding, each step this close to the solution is about the square of the previous one.
        stalled = last / 2 <= change < _NEWTON_RANGE
        if change <= _TOLERANCE or (stalled and change <= (_ACCEPTED_EXACT if exact else _ACCEPTED_CHEAP)):
            direct = -slopes @ np.array(use) - _mean_slopes(cov, copies, resolvent)
            return FixedPoint(copies, resolvent, x, c, e, terms, np.linalg.solve(matrix, direct))
        exact = exact or stalled or iteration > _PATIENCE
        last = change
        x = np.maximum(x + step, x / _MAX_DECREASE)
    raise ArithmeticError(_singularity_message(cov, copies, size, ridge))


def _mean_slopes(cov: Covariance, copies: Copies, resolvent: Resolvent) -> Float[np.ndarray, " 2"]:
    """Return the part of −dx/dτ from the term of (μᵀb)² in the risk."""
    if not (isinstance(cov, Uncentred) and copies.shifts[1] > 0):
        return np.zeros(2)
    w = resolvent.solve(cov.mean[:, None])[:, 0]
    scale = copies.shifts[1] / (1 + copies.shifts[0] * float(cov.mean @ w)) ** 2
    return scale / copies.n * np.array([float(cov.quadratic(w)), cov.diagonal @ w**2])


def dimensions(cov: Covariance, copies: Copies) -> int:
    """Return the rank of the masked rows' covariance: d if anything is hidden (masking adds diag Σ), else Σ's rank."""
    return cov.d if copies.p.any() else cov.rank


def _singularity_message(cov: Covariance, copies: Copies, size: int, ridge: float) -> str:
    enough = max(
        1e-6 * copies.n * float(copies.share.sum(axis=1) @ copies.probability * cov.diagonal.mean()), 100 * ridge
    )
    penalty = f"with a ridge of {ridge:.3g}" if ridge else "without a ridge"
    return (
        f"the risk cannot be computed {penalty}: the {copies.distinct:.6g} kept rows are too close to the {size} "
        f"dimensions of the data; use ridge={enough:.1g} or more, or another number of rows"
    )


def _isotropic_start(cov: Covariance, copies: Copies, size: int, form: tuple[float, float]) -> Float[np.ndarray, " 2"]:
    """Return the solution of the isotropic model of equal trace and one mask, a start of the right magnitude."""
    c, e = form
    mean = float(cov.diagonal.sum()) / size
    shares = copies.probability @ copies.share
    q = float(shares @ (copies.u**2 + copies.s) / shares.sum()) * mean  # variance of a masked entry
    ratio, rows = size / copies.n, min(copies.distinct / copies.n, 1e6)
    # κ = e + ratio·qκ/(rows·q + cκ), that is cκ² = half·κ + rows·eq, without terms in ec
    half = (ratio - rows) * q
    root = np.sqrt(half * half + 4 * c * e * rows * q)
    kappa = (half + root) / (2 * c) if half > 0 and c > 0 else 2 * e * rows * q / max(root - half, 1e-9 * rows * q)
    t = ratio * mean * kappa / (rows * q + c * kappa)
    return np.array([t, t])
