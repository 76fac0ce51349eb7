"""The deterministic equivalent of masked ridge regression, for any Σ and any distribution of ratios.

A row of ratio p_k, masked, has the covariance C_k = (1 − p_k)²Σ + p_k(1 − p_k)D with D = diag Σ. With

    M = Σ_k π_k C_k/κ_k + cI,      κ_k = e + tr(C_k M⁻¹)/ñ,

(c, e) = (1, ℓ) covers ridge penalties ℓ ≥ 0 as long as ñ < d (ridgeless: ℓ = 0), and (0, 1) the ridgeless case of
ñ > d. Both traces in tr C_k M⁻¹ depend on M's two coefficients only, so whatever the number of ratios, the fixed point
is a system of two equations, x = (tr ΣM⁻¹, tr DM⁻¹)/ñ.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from r2mae.theory.covariance import Covariance
from r2mae.theory.resolvent import Resolvent, Traces
from r2mae.theory.rows import KeptRows

_TOLERANCE = 1e-12
_STALLED = 1e-9  # good enough where rounding allows no better
_ITERATIONS = 500
_PLAIN = 5  # plain steps after one of Newton's that did not help


@dataclass(frozen=True)
class FixedPoint:
    """The solution, and how it answers to a penalty τ‖b‖²_Σ (the derivative at τ = 0 gives the risk).

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
        """Risk for a unit of residual variance in the rows of each ratio; their sum is E tr(Σ(X̃ᵀX̃)⁺)."""
        return np.asarray(-self.rows.weight * self.d_kappa / self.kappa**2)


def solve(cov: Covariance, rows: KeptRows, ridge: float) -> FixedPoint:
    """Solve the fixed point by Newton's method in two unknowns, and differentiate it.

    Where Newton's steps do not help, plain iteration takes over for a while: it converges from anywhere, since its map
    is positive and increasing, and grows slower than its argument.

    Parameters
    ----------
    cov : Covariance
    rows : KeptRows
        A positive number of them.
    ridge : float
        λ ≥ 0 of ‖ỹ − X̃b‖² + λ‖b‖²; ℓ = λ/ñ.

    Raises
    ------
    ArithmeticError
        If the iteration does not settle, which means that ñ is too close to d without a ridge.
    """
    c, e = (1.0, ridge / rows.count) if ridge > 0 or rows.count < cov.d else (0.0, 1.0)
    x = _start(cov, rows, c, e)
    last, plain = np.inf, 0
    for _ in range(_ITERATIONS):
        kappa, a, b = _coefficients(rows, e, x)
        resolvent = cov.resolvent(a, b, c)
        traces = resolvent.traces()
        gap = np.array([traces.s, traces.d]) / rows.count - x
        error = float(np.abs(gap / x).max())
        if error <= _TOLERANCE or last <= error <= _STALLED:
            return _differentiate(rows, resolvent, traces, kappa, (a, b, c))
        plain = _PLAIN if error >= last and not plain else max(plain - 1, 0)
        last = error
        x = x + gap if plain else _newton(x, np.eye(2) - _jacobian(rows, traces, kappa), gap)
    raise ArithmeticError(
        f"no solution after {_ITERATIONS} steps: the {rows.count:.6g} kept rows are too close to the {cov.d} features; "
        "use a ridge"
    )


def _start(cov: Covariance, rows: KeptRows, c: float, e: float) -> Float[np.ndarray, " 2"]:
    """Solve the isotropic model of the same trace, whose answer has the right size."""
    mean = float(cov.diagonal.mean())
    q = float((rows.weight * (1 - rows.p)).sum()) * mean  # variance of a masked entry
    ratio = cov.d / rows.count
    # κ = e + ratio·qκ/(q + cκ)
    if c == 0:
        kappa = e / max(1 - ratio, 1e-9)
    else:
        half = e * c + ratio * q - q
        kappa = (half + np.sqrt(half * half + 4 * c * e * q)) / (2 * c) if e > 0 else max(half / c, 1e-9 * q)
    t = ratio * mean * kappa / (q + c * kappa)
    return np.array([t, t])


def _coefficients(rows: KeptRows, e: float, x: Float[np.ndarray, " 2"]) -> tuple[Float[np.ndarray, " k"], float, float]:
    kappa = e + rows.sigma * x[0] + rows.diagonal * x[1]
    share = rows.weight / kappa
    return kappa, float(share @ rows.sigma), float(share @ rows.diagonal)


def _jacobian(rows: KeptRows, traces: Traces, kappa: Float[np.ndarray, " k"]) -> Float[np.ndarray, "2 2"]:
    """Derivative of (tr ΣN, tr DN)/ñ with respect to x, through κ and M's coefficients."""
    parts = np.stack([rows.sigma, rows.diagonal])
    coefficients = -(parts * (rows.weight / kappa**2)) @ parts.T  # d(a, b)/dx
    return np.asarray(_by_coefficients(traces) @ coefficients / rows.count)


def _by_coefficients(traces: Traces) -> Float[np.ndarray, "2 2"]:
    """d(tr ΣN, tr DN)/d(a, b)."""
    return -np.array([[traces.ss, traces.sd], [traces.sd, traces.dd]])


def _newton(
    x: Float[np.ndarray, " 2"], matrix: Float[np.ndarray, "2 2"], gap: Float[np.ndarray, " 2"]
) -> Float[np.ndarray, " 2"]:
    """Take Newton's step, or where it leaves the positive numbers the plain iteration's."""
    try:
        new = x + np.linalg.solve(matrix, gap)
    except np.linalg.LinAlgError:
        return np.asarray(x + gap)
    return np.asarray(new if (new > 0).all() and np.isfinite(new).all() else x + gap)


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
