"""The paper's own closed forms: Theorem 1 (isotropic) and Corollary 1, which is Theorem 2 (spiked).

:func:`r2mae.theory.risk` covers all of them. They are here as in the paper, as documentation and as a reference.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from r2mae.theory.checks import check_nonnegative, numbers
from r2mae.theory.models import unit
from r2mae.theory.rows import check_rows

Vector: TypeAlias = Float[np.ndarray, " d"]


@dataclass(frozen=True)
class ClosedRisk:
    """A risk, split into bias and variance as in Lemma 1; those of theorems are over r² = ‖β‖², one for each ratio."""

    bias: float | Float[np.ndarray, " p"]
    variance: float | Float[np.ndarray, " p"]

    @property
    def risk(self) -> Float[np.ndarray, "*p"]:
        """Bias + variance."""
        return np.asarray(self.bias + self.variance)


def isotropic_risk(ratio: ArrayLike, gamma: float, kappa: float) -> ClosedRisk:
    """Return Theorem 1: Σ = I.

    Parameters
    ----------
    ratio : array (p,)
        Mask ratios, above 0 and below 1.
    gamma : float
        γ = d/n.
    kappa : float
        σ²/r².

    Raises
    ------
    ValueError
        If a ratio is not between 0 and 1, γ is not positive or κ is negative.
    """
    p = _checked_ratio(ratio)
    if not (np.isfinite(gamma) and gamma > 0):
        raise ValueError(f"gamma must be a positive number, not {gamma}")
    check_nonnegative(kappa=kappa)
    with np.errstate(divide="ignore"):
        under = (p + kappa) * gamma / ((1 - p) * (p - gamma))
        over = p * (p + kappa) / ((1 - p) * (gamma - p))
    wide = gamma > p
    return ClosedRisk(
        bias=np.where(wide, 1 - p / gamma, 0.0),
        variance=np.where(gamma == p, np.inf, np.where(wide, over, under)),
    )


def spiked_risk(
    v: ArrayLike,
    delta: float,
    beta: ArrayLike,
    n: int,
    ratio: ArrayLike,
    noise: float = 0.0,
    *,
    ridge: float = 0.0,
) -> ClosedRisk:
    """Return Corollary 1: Σ = I + δvvᵀ. Theorem 2 is another form of the same value.

    The corollary uses traces and quadratic forms of (λ★I + Σ̃)⁻¹, the theorem integrals over spectral measures of Σ̃.
    In the theorem's variance, and in its Lemma 2, the paper's δ∫…dG^vv lacks the factor 1/d that its H̃ has. With the
    factor both agree (tests/theory/test_closed.py).

    Parameters
    ----------
    v : array (d,)
        Direction of the spike; it is scaled to length one.
    delta : float
        δ > 0.
    beta : array (d,)
        Signal.
    n : int
        Rows before masking.
    ratio : array (p,)
        Mask ratios, above 0 and below 1.
    noise : float
        Variance σ².
    ridge : float
        λ_reg of the paper's appendix (it uses 1e-8): ñ − λ_reg/λ★ = Tr Σ̃(Σ̃ + λ★I)⁻¹.

    Raises
    ------
    ValueError
        If an argument is out of range or lengths differ.
    """
    v, beta = numbers(v, "v"), numbers(beta, "beta")
    if len(v) != len(beta):
        raise ValueError(f"beta must have the length of v, {len(v)}, not {len(beta)}")
    if not (np.isfinite(delta) and delta > 0):
        raise ValueError(f"delta must be a positive number, not {delta}")
    if not (np.isfinite(beta).all() and beta.any()):
        raise ValueError("beta must be finite and not zero: a zero signal cannot be learned")
    check_rows(n)
    check_nonnegative(noise=noise, ridge=ridge)
    length = float(beta @ beta)
    p = _checked_ratio(ratio)
    pairs = [_corollary(unit(v), delta, unit(beta), n, float(q), noise / length, ridge) for q in p]
    return ClosedRisk(np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs]))


def fixed_point(eigenvalues: ArrayLike, rows: float, ridge: float = 0.0) -> float:
    """Return λ★ ≥ 0 of ñ − λ_reg/λ★ = Tr Σ̃(Σ̃ + λ★I)⁻¹ by a bracketed root finder.

    Parameters
    ----------
    eigenvalues : array (d,)
        Eigenvalues of Σ̃, positive.
    rows : float
        ñ.
    ridge : float
        λ_reg. If it is 0, λ★ is 0 for ñ ≥ d.

    Raises
    ------
    ValueError
        If an argument is out of range.
    """
    eigenvalues = numbers(eigenvalues, "eigenvalues")
    if not (np.isfinite(eigenvalues).all() and (eigenvalues > 0).all()):
        raise ValueError("eigenvalues must be finite and positive")
    if not (rows > 0 and ridge >= 0):
        raise ValueError(f"rows must be positive and ridge 0 or more, not {rows} and {ridge}")
    if ridge == 0 and rows >= len(eigenvalues):
        return 0.0

    def excess(log: float) -> float:
        at = np.exp(log)
        return float((eigenvalues / (eigenvalues + at)).sum() + ridge / at - rows)

    top = np.log(eigenvalues.sum() / rows + ridge / rows) + 1.0  # Tr Σ̃(Σ̃ + λ)⁻¹ < Tr Σ̃/λ
    bottom = top - 1.0
    while excess(bottom) < 0:
        bottom -= 2.0
    return float(np.exp(brentq(excess, bottom, top, xtol=1e-14, rtol=1e-14)))


def _corollary(
    v: Vector, delta: float, beta: Vector, n: int, p: float, kappa: float, ridge: float
) -> tuple[float, float]:
    """Return bias and variance of Corollary 1, with (λ★I + Σ̃)⁻¹ = diag(1/m) − ρwwᵀ by Sherman and Morrison."""
    rows, across = n * p, float(v @ beta)
    own = (1 - p) * (1 + 0 * v) + p * (1 - p) * delta * v * v
    spike = (1 - p) ** 2 * delta
    star = fixed_point(np.linalg.eigvalsh(np.diag(own) + spike * np.outer(v, v)), rows, ridge)
    m = own + star
    w = v / m
    rho = spike / (1 + spike * float(v @ w))

    def solve(x: Vector) -> Vector:
        return np.asarray(x / m - rho * w * float(w @ x))

    nv, nb = solve(v), solve(beta)
    phi_beta, phi_v, psi = star * float(beta @ nb), star * float(v @ nv), star * float(beta @ nv)
    tr = float((1 / m).sum()) - rho * float(w @ w)  # Tr N
    tr2 = float((1 / m**2).sum()) - 2 * rho * float((w * w / m).sum()) + rho**2 * float(w @ w) ** 2  # Tr N²
    square = len(v) - 2 * star * tr + star**2 * tr2  # Tr Σ̃²N²
    # Tr ΣΣ̃N² = Tr Σ̃N² + δ vᵀΣ̃N²v, and Σ̃N = I − λ★N
    mixed = tr - star * tr2 + delta * (float(v @ nv) - star * float(nv @ nv))
    c = p * delta * across / (1 + delta * (1 - p))
    bias = phi_beta + c * c * (1 - phi_v) + delta * (c * (1 - phi_v) - psi) ** 2
    gain = mixed / (rows - square) if abs(rows - square) > 1e-12 * mixed else float("inf")  # at ñ = d
    return bias, gain * (kappa + p + c * p * across)


def _checked_ratio(ratio: ArrayLike) -> Float[np.ndarray, "*p"]:
    p = numbers(ratio, "ratio")
    if not ((p > 0) & (p < 1)).all():
        raise ValueError("ratio must be above 0 and below 1")
    return p
