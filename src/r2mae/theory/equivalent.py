"""The deterministic equivalent of masked ridge regression, for any Σ and any distribution of ratios.

A masked row of ratio p_k has the covariance C_k = (1 − p_k)²Σ + p_k(1 − p_k)D with D = diag Σ. With

    M = Σ_k π_k C_k/κ_k + cI,      κ_k = e + tr(C_k M⁻¹)/ñ,

(c, e) = (1, ℓ) and (ℓ, 1) are equivalent for a ridge penalty ℓ > 0 (κ and M in other units). For ℓ → 0 the former
stays finite if ñ < d, the latter if ñ > d. The traces tr C_k M⁻¹ depend only on the two coefficients a and b of
M = aΣ + bD + cI. The fixed point is therefore a system of two equations, x = (tr ΣM⁻¹, tr DM⁻¹)/ñ, for any number of
ratios.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from r2mae.theory.covariance import Covariance
from r2mae.theory.resolvent import Resolvent, Traces
from r2mae.theory.rows import KeptRows

_TOLERANCE = 1e-12  # relative change of x
_ACCEPTED_CHEAP, _ACCEPTED_EXACT = 1e-10, 1e-6  # accepted changes if rounding prevents smaller ones, by resolvent
_NEWTON_RANGE = 0.1  # relative change of x below which Newton's method should converge quadratically
_ITERATIONS, _PATIENCE = 200, 40
_INCREASE, _MAX_DECREASE = 4.0, 1000.0


@dataclass(frozen=True)
class FixedPoint:
    """The solution, and its derivatives with respect to an added penalty τ‖b‖²_Σ at τ = 0, which give the risk.

    Attributes
    ----------
    resolvent : Resolvent
        N = M⁻¹.
    kappa : array (k,)
        κ_k.
    a, b, c : float
        M = aΣ + bD + cI.
    d_kappa : array (k,)
        dκ_k/dτ.
    d_a, d_b : float
        da/dτ and db/dτ; M itself also gains τΣ.
    """

    rows: KeptRows
    resolvent: Resolvent
    kappa: Float[np.ndarray, " k"]
    a: float
    b: float
    c: float
    d_kappa: Float[np.ndarray, " k"]
    d_a: float
    d_b: float

    @property
    def shrink(self) -> float:
        """s = Σ_k π_k (1 − p_k)/κ_k, so that E b̂ = s N Σβ."""
        return float((self.rows.weight * (1 - self.rows.p) / self.kappa).sum())

    @property
    def d_shrink(self) -> float:
        """ds/dτ."""
        return -float((self.rows.weight * (1 - self.rows.p) * self.d_kappa / self.kappa**2).sum())

    @property
    def noise_gain(self) -> Float[np.ndarray, " k"]:
        """Risk per unit of residual variance in the rows of each ratio; the sum is E tr(Σ(X̃ᵀX̃)⁺)."""
        return np.asarray(-self.rows.weight * self.d_kappa / self.kappa**2)


def solve(cov: Covariance, rows: KeptRows, ridge: float) -> FixedPoint:
    """Solve the fixed point by Newton's method in two unknowns, and differentiate it.

    The map is increasing and concave (M⁻¹ is a parallel sum), so Newton's method always converges. If I − J is an
    M-matrix, a step leads to the solution or above it, and all later steps decrease x. Otherwise x is too small.

    Parameters
    ----------
    cov : Covariance
    rows : KeptRows
        Their count must be positive.
    ridge : float
        λ ≥ 0 of ‖ỹ − X̃b‖² + λ‖b‖²; ℓ = λ/ñ.

    Raises
    ------
    ArithmeticError
        If double precision is insufficient: ñ is too close to the number of dimensions for such a small ridge.
    """
    size = dimensions(cov, rows) if ridge == 0 else cov.d
    c, e = _scaled_form(rows, size, ridge)
    x, last, exact = _isotropic_start(cov, rows, size, (c, e)), np.inf, False
    for iteration in range(_ITERATIONS):
        kappa, a, b = _coefficients(rows, e, x)
        resolvent = cov.resolvent(a, b, c, exact=exact)
        traces = resolvent.traces()
        matrix = np.eye(2) - _jacobian(rows, traces, kappa)
        if not (matrix[0, 0] > 0 and np.linalg.det(matrix) > 0):
            x = _INCREASE * x
            continue
        step = np.linalg.solve(matrix, np.array([traces.s, traces.d]) / rows.count - x)
        change = float(np.abs(step / x).max())
        # Without rounding, each step this close to the solution is about the square of the previous one.
        stalled = last / 2 <= change < _NEWTON_RANGE
        if change <= _TOLERANCE or (stalled and change <= (_ACCEPTED_EXACT if exact else _ACCEPTED_CHEAP)):
            return _differentiate(rows, resolvent, traces, kappa, (a, b, c))
        exact = exact or stalled or iteration > _PATIENCE
        last = change
        x = np.maximum(x + step, x / _MAX_DECREASE)
    raise ArithmeticError(_singularity_message(cov, rows, size, ridge))


def dimensions(cov: Covariance, rows: KeptRows) -> int:
    """Return the rank of the masked rows' covariance: d if anything is hidden (masking adds diag Σ), else Σ's rank."""
    return cov.d if rows.p.any() else cov.rank


def _scaled_form(rows: KeptRows, size: int, ridge: float) -> tuple[float, float]:
    """Return (c, e) of the form whose values stay of order one as the ridge goes to zero."""
    ell = ridge / rows.count
    return (1.0, ell) if rows.count < size else (ell, 1.0)


def _singularity_message(cov: Covariance, rows: KeptRows, size: int, ridge: float) -> str:
    enough = max(1e-6 * rows.count * float(cov.diagonal.mean()), 100 * ridge)
    penalty = f"with a ridge of {ridge:.3g}" if ridge else "without a ridge"
    return (
        f"the risk cannot be computed {penalty}: the {rows.count:.6g} kept rows are too close to the {size} dimensions "
        f"of the data; use ridge={enough:.1g} or more, or another number of rows"
    )


def _isotropic_start(cov: Covariance, rows: KeptRows, size: int, form: tuple[float, float]) -> Float[np.ndarray, " 2"]:
    """Return the solution of the isotropic model of equal trace, a starting point of the right magnitude."""
    c, e = form
    mean = float(cov.diagonal.sum()) / size
    q = float((rows.weight * (1 - rows.p)).sum()) * mean  # variance of a masked entry
    ratio = size / rows.count
    # κ = e + ratio·qκ/(q + cκ), that is cκ² = half·κ + eq
    half = ratio * q - q - e * c
    root = np.sqrt(half * half + 4 * c * e * q)
    kappa = (half + root) / (2 * c) if half > 0 and c > 0 else 2 * e * q / max(root - half, 1e-9 * q)
    t = ratio * mean * kappa / (q + c * kappa)
    return np.array([t, t])


def _coefficients(rows: KeptRows, e: float, x: Float[np.ndarray, " 2"]) -> tuple[Float[np.ndarray, " k"], float, float]:
    kappa = e + rows.sigma * x[0] + rows.diagonal * x[1]
    share = rows.weight / kappa
    return kappa, float(share @ rows.sigma), float(share @ rows.diagonal)


def _jacobian(rows: KeptRows, traces: Traces, kappa: Float[np.ndarray, " k"]) -> Float[np.ndarray, "2 2"]:
    """Return the derivative of (tr ΣN, tr DN)/ñ with respect to x, through κ and M's coefficients."""
    parts = np.stack([rows.sigma, rows.diagonal])
    coefficients = -(parts * (rows.weight / kappa**2)) @ parts.T  # d(a, b)/dx
    return np.asarray(_trace_derivatives(traces) @ coefficients / rows.count)


def _trace_derivatives(traces: Traces) -> Float[np.ndarray, "2 2"]:
    """Return d(tr ΣN, tr DN)/d(a, b)."""
    return -np.array([[traces.ss, traces.sd], [traces.sd, traces.dd]])


def _differentiate(
    rows: KeptRows,
    resolvent: Resolvent,
    traces: Traces,
    kappa: Float[np.ndarray, " k"],
    coefficients: tuple[float, float, float],
) -> FixedPoint:
    direct = -np.array([traces.ss, traces.sd]) / rows.count  # M gains τΣ
    dx = np.linalg.solve(np.eye(2) - _jacobian(rows, traces, kappa), direct)
    d_kappa = rows.sigma * dx[0] + rows.diagonal * dx[1]
    change = -rows.weight * d_kappa / kappa**2
    a, b, c = coefficients
    return FixedPoint(
        rows, resolvent, kappa, a, b, c, d_kappa, float(change @ rows.sigma), float(change @ rows.diagonal)
    )
