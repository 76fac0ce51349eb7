"""Targets of the regression: signals xβ, eigen-directions of Σ, or each feature from all the others.

The risk needs three quadratic forms of g = Cov(x, y), and the variance of y. Each kind of target computes them in the
cheapest way for its structure.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from jaxtyping import Float, Int

from r2mae.theory.covariance import Covariance
from r2mae.theory.resolvent import DenseResolvent, EigenResolvent, FactoredResolvent, Resolvent

Vector = Float[np.ndarray, " m"]
Forms = tuple[Vector, Vector, Vector]


@dataclass(frozen=True)
class Signals:
    """y = xβ + ε with any β.

    Parameters
    ----------
    cov : Covariance
    beta : array (d, m)
    """

    cov: Covariance
    beta: Float[np.ndarray, "d m"]

    def __post_init__(self) -> None:
        object.__setattr__(self, "_g", self.cov.apply(self.beta))

    @property
    def null(self) -> Float[np.ndarray, " m"]:
        """βᵀΣβ."""
        return np.asarray((self.beta * self._g).sum(axis=0))  # type: ignore[attr-defined]

    def forms(self, resolvent: Resolvent, a: float, b: float, c: float) -> Forms:
        """Return gᵀNg, gᵀNΣNg and gᵀNDNg, N = (aΣ + bD + cI)⁻¹, by one solve."""
        g: Float[np.ndarray, "d m"] = self._g  # type: ignore[attr-defined]
        u = resolvent.solve(g)
        return (g * u).sum(axis=0), self.cov.quadratic(u), (self.cov.diagonal[:, None] * u * u).sum(axis=0)

    def mean_forms(
        self, resolvent: Resolvent, mean: Float[np.ndarray, " d"], a: float, b: float, c: float
    ) -> tuple[Forms, Forms]:
        """Return (gᵀNμ, gᵀNΣNμ, gᵀNDNμ) and (μᵀNμ, μᵀNΣNμ, μᵀNDNμ)."""
        g: Float[np.ndarray, "d m"] = self._g  # type: ignore[attr-defined]
        u, w = resolvent.solve(g), resolvent.solve(mean[:, None])[:, 0]
        sw, dw = self.cov.apply(w), self.cov.diagonal * w
        own = np.outer([mean @ w, w @ sw, w @ dw], np.ones(g.shape[1]))
        return (g.T @ w, u.T @ sw, u.T @ dw), (own[0], own[1], own[2])


@dataclass(frozen=True)
class Directions:
    """y = xβ + ε with β a unit eigenvector of Σ, for a Σ with constant diagonal: O(1) for each direction.

    Parameters
    ----------
    cov : Covariance
        With a ``common_diagonal``.
    which : array (m,) of int
        Numbers of the eigenvalues; 0 is the largest.
    """

    cov: Covariance
    which: Int[np.ndarray, " m"]

    @property
    def null(self) -> Float[np.ndarray, " m"]:
        """The eigenvalues."""
        return np.asarray(self.cov.eigenvalues[self.which])

    def forms(self, resolvent: Resolvent, a: float, b: float, c: float) -> Forms:
        """Return the three forms."""
        assert isinstance(resolvent, EigenResolvent)
        value, f = self.null, resolvent.values[self.which]
        once = value * f
        return value * once, value * once * once, resolvent.diagonal * once * once


@dataclass(frozen=True)
class Features:
    """y = x_j from the other features, for every j: the training task of a masked autoencoder (the paper's Eq. 1).

    N without feature j is N − N_j N_jᵀ/N_jj, so that one inverse solves all d problems. The two traces of the fixed
    point are over all d features, an error of order 1/d.

    Parameters
    ----------
    cov : Covariance
    """

    cov: Covariance

    @property
    def null(self) -> Float[np.ndarray, " d"]:
        """Variance of each feature."""
        return self.cov.variances

    def forms(self, resolvent: Resolvent, a: float, b: float, c: float) -> Forms:
        """Return the three forms, O(d²) once N is known."""
        n, ndn, nn = self._whole(resolvent, a, b, c).square_diagonals()
        dia = self.cov.diagonal
        # u_j = N₋ⱼ g_j = (e_j − N_j/N_jj)/a
        first = (self.null - (1 - n * (b * dia + c)) / (a * n)) / a
        weighted = (ndn / n**2 - dia) / a**2
        plain = (nn / n**2 - 1) / a**2
        return first, (first - b * weighted - c * plain) / a, weighted

    def mean_forms(self, resolvent: Resolvent, mean: Vector, a: float, b: float, c: float) -> tuple[Forms, Forms]:
        """Return (gᵀNμ, gᵀNΣNμ, gᵀNDNμ) and (μᵀNμ, μᵀNΣNμ, μᵀNDNμ), with N₋ⱼμ = w − N_j w_j/N_jj and w = Nμ."""
        whole = self._whole(resolvent, a, b, c)
        n, ndn, nn = whole.square_diagonals()
        w = whole.solve(mean[:, None])[:, 0]
        dw, ww = whole.solve(np.column_stack([self.cov.diagonal * w, w])).T
        share = w / n
        across, across_d, across_i = mean - share, share * ndn / n - dw / n, share * nn / n - ww / n
        own = mean @ w - share * w
        own_d = self.cov.diagonal @ w**2 - 2 * share * dw + share**2 * ndn
        own_i = w @ w - 2 * share * ww + share**2 * nn
        return (
            (across / a, (across - b * across_d - c * across_i) / a**2, across_d / a),
            (own, (own - b * own_d - c * own_i) / a, own_d),
        )

    def _whole(
        self, resolvent: Resolvent, a: float, b: float, c: float
    ) -> EigenResolvent | DenseResolvent | FactoredResolvent:
        """Return the resolvent in a form that has the diagonals of its square."""
        if isinstance(resolvent, EigenResolvent | DenseResolvent | FactoredResolvent):
            return resolvent
        return DenseResolvent(self.cov.matrix(), self.cov.diagonal, a, b, c)


Target: TypeAlias = Signals | Directions | Features
"""m targets, whose risks are computed together."""
