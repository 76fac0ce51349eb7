"""The paper's covariance models and signals (its appendix "Simulations")."""

from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from r2mae.theory.checks import numbers
from r2mae.theory.covariance import LowRank, Rotated, haar


def identity(d: int) -> LowRank:
    """Σ = I (Theorem 1, Fig. 1A)."""
    return LowRank(np.ones(_checked_size(d)))


def spiked(delta: float, v: ArrayLike) -> LowRank:
    """Σ = I + δvvᵀ (Corollary 1, Figs. 1B–D and 3); v is scaled to length one.

    Parameters
    ----------
    delta : float
        Strength δ > 0 of the spike.
    v : array (d,)
        Direction of the spike: ``uniform_direction(d, seed)``, or ``np.ones(d)``.

    Raises
    ------
    ValueError
        If δ is not positive or v is zero.
    """
    if not (np.isfinite(delta) and delta > 0):
        raise ValueError(f"delta must be a positive number, not {delta}")
    direction = unit(v)
    return LowRank(np.ones(_checked_size(len(direction))), np.sqrt(delta) * direction[:, None])


def uniform_spectrum(d: int, seed: int = 0) -> Rotated:
    """Eigenvalues from U(1, 10), Haar eigenvectors (Fig. 1E)."""
    return Rotated(np.random.default_rng([seed, 0]).uniform(1.0, 10.0, _checked_size(d)), seed)


def beta_spectrum(d: int, seed: int = 0, *, spacing: Literal["linear", "log"] = "linear") -> Rotated:
    """Eigenvalues from Beta(2, 6), scaled to have smallest 1 and largest 10, Haar eigenvectors (Fig. 1E, Tables 5, 9).

    Parameters
    ----------
    d, seed
        Number of features, and the seed of eigenvalues and eigenvectors.
    spacing : {"linear", "log"}
        Scale the draws (as the paper's text says), or the logarithm of the eigenvalues.
    """
    drawn = np.random.default_rng([seed, 0]).beta(2.0, 6.0, _checked_size(d))
    share = (drawn - drawn.min()) / np.ptp(drawn)
    if spacing == "log":
        return Rotated(10.0**share, seed)
    if spacing != "linear":
        raise ValueError(f"spacing must be 'linear' or 'log', not {spacing!r}")
    return Rotated(1.0 + 9.0 * share, seed)


def latent(d: int, seed: int = 0, *, q: int | None = None) -> LowRank:
    """Σ = I + WWᵀ, W (d × q, q = d/2) Gaussian of variance 9/(√d + √q)² (Fig. 1E, Tables 5, 9)."""
    width = _checked_size(d) // 2 if q is None else q
    if width < 1:
        raise ValueError(f"q must be at least 1, not {width}")
    deviation = 3.0 / (np.sqrt(d) + np.sqrt(width))
    return LowRank(np.ones(_checked_size(d)), np.random.default_rng([seed, 0]).standard_normal((d, width)) * deviation)


def plateau(
    d: int = 5000, q: int = 50, seed: int = 0, *, of: Literal["D", "WW"] = "D"
) -> tuple[LowRank, Float[np.ndarray, " d"]]:
    """Latent space model of Figs. 1G and 4: Σ = I + WWᵀ with W = QDRᵀ, and β = W(I + WᵀW)⁻¹θ.

    Parameters
    ----------
    d, q, seed
        Number of features, number of latent dimensions, and the seed for Q, R and θ ~ U(0, 1)^q.
    of : {"D", "WW"}
        Whether the "eigenvalue 100" of the paper's text is that of D, or of WWᵀ (then the entries of D are 10).

    Returns
    -------
    cov : LowRank
    beta : array (d,)
    """
    if of not in ("D", "WW"):
        raise ValueError(f"of must be 'D' or 'WW', not {of!r}")
    if not 1 <= q <= _checked_size(d):
        raise ValueError(f"q must be from 1 to d = {d}, not {q}")
    rng = np.random.default_rng([seed, 0])
    w = (100.0 if of == "D" else 10.0) * haar(d, q, rng) @ haar(q, q, rng).T
    theta = rng.uniform(size=q)
    return LowRank(np.ones(d), w), w @ np.linalg.solve(np.eye(q) + w.T @ w, theta)


def uniform_direction(d: int, seed: int = 0) -> Float[np.ndarray, " d"]:
    """Return a vector with entries from U(0, 1), scaled to length one."""
    return unit(np.random.default_rng([seed, 2]).uniform(size=_checked_size(d)))


def signal_at(v: ArrayLike, cosine: float, seed: int = 0) -> Float[np.ndarray, " d"]:
    """Return the unit vector β = cos θ·v + sin θ·u, u ⊥ v from a uniformly drawn vector (Figs. 1B–D and 3)."""
    if not -1 <= cosine <= 1:
        raise ValueError(f"cosine must be between -1 and 1, not {cosine}")
    direction = unit(v)
    drawn = np.random.default_rng([seed, 3]).uniform(size=len(direction))
    across = unit(drawn - (drawn @ direction) * direction)
    return np.asarray(cosine * direction + np.sqrt(1 - cosine**2) * across)


def unit(v: ArrayLike) -> Float[np.ndarray, " d"]:
    """Return v scaled to length one."""
    v = numbers(v, "v")
    length = float(np.linalg.norm(v))
    if not np.isfinite(length) or length == 0:
        raise ValueError("v must be finite and not zero: it is a direction")
    return v / length


def _checked_size(d: int) -> int:
    if d < 2:
        raise ValueError(f"d must be at least 2, not {d}")
    return d
