"""The inverse of M = aΣ + b·diag Σ + cI: three cheap forms, and one that stays accurate if M is nearly singular.

Every closed form of this package needs only five traces of M⁻¹, and its products with a few vectors. Each covariance
chooses the cheapest form for its structure (:meth:`r2mae.theory.Covariance.resolvent`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from jaxtyping import Float
from scipy.linalg import cho_factor, cho_solve, solve_triangular, svd
from scipy.linalg.lapack import dpocon, dpotri

from r2mae.theory.checks import SINGULAR

Vector = Float[np.ndarray, " d"]
Vectors = Float[np.ndarray, "d m"]
_MIN_RECIPROCAL_CONDITION = 1e-7  # reciprocal condition number of M below which rounding errors of M show in the traces
_MIN_DIAGONAL = 1e-2  # least mean diagonal of aΣN for which I − bDN − cN gives aΣN to ten digits


@dataclass(frozen=True)
class Traces:
    """Traces of products of N = M⁻¹ with Σ and D = diag Σ.

    Attributes
    ----------
    s, d : float
        tr ΣN and tr DN.
    ss, sd, dd : float
        tr ΣNΣN, tr ΣNDN and tr DNDN.
    """

    s: float
    d: float
    ss: float
    sd: float
    dd: float


class EigenResolvent:
    """N if D is a multiple of the identity: all matrices are diagonal in Σ's eigenbasis.

    `basis` returns the eigenvectors as columns, for :meth:`solve` and :meth:`square_diagonals`.
    """

    def __init__(
        self,
        eigenvalues: Vector,
        diagonal: float,
        a: float,
        b: float,
        c: float,
        basis: Callable[[], Float[np.ndarray, "d d"]],
    ) -> None:
        self.eigenvalues = eigenvalues
        self.diagonal = diagonal
        self.values = _inverse(a * eigenvalues, b * diagonal + c)  # of N
        self._basis = basis

    def traces(self) -> Traces:
        """Return the five traces, O(d)."""
        f, dn = self.values, self.diagonal * self.values
        sn = self.eigenvalues * f
        return Traces(float(sn.sum()), float(dn.sum()), float(sn @ sn), float(sn @ dn), float(dn @ dn))

    def solve(self, g: Vectors) -> Vectors:
        """Return N g, O(d²) a column."""
        basis = self._basis()
        return np.asarray(basis @ (self.values[:, None] * (basis.T @ g)))

    def square_diagonals(self) -> tuple[Vector, Vector, Vector]:
        """Return diag N, diag NDN and diag N²."""
        squares = self._basis() ** 2
        first, second = squares @ self.values, squares @ self.values**2
        return first, self.diagonal * second, second


class LowRankResolvent:
    """N for Σ = diag(α) + WWᵀ, by Woodbury's identity: O(dq²) with W of q columns; `own` is α and `factor` is W."""

    def __init__(
        self, diagonal: Vector, own: Vector, factor: Float[np.ndarray, "d q"], a: float, b: float, c: float
    ) -> None:
        self._d, self._own, self._factor = diagonal, own, factor
        self._f = 1.0 / (a * own + b * diagonal + c)
        fw = self._f[:, None] * factor
        # With K = I + a Wᵀ f W = L Lᵀ and U = √a·fW·L⁻ᵀ: N = diag f − U Uᵀ, and N W = f W K⁻¹.
        self._chol = np.linalg.cholesky(np.eye(factor.shape[1]) + a * (factor.T @ fw))
        self._half = solve_triangular(self._chol, fw.T, lower=True, check_finite=False).T
        self._u = np.sqrt(a) * self._half

    def traces(self) -> Traces:
        """Return the five traces; W's part is from N W, without differences of large numbers even for a small a."""
        f, u, d, own = self._f, self._u, self._d, self._own
        rows = np.einsum("dq,dq->d", u, u)
        diagonal = f - rows
        gram_d, gram_o = u.T @ (d[:, None] * u), u.T @ (own[:, None] * u)

        def pair(e: np.ndarray, g: np.ndarray, left: np.ndarray, right: np.ndarray) -> float:
            return float((e * g * f * f).sum() - 2 * (e * g * f * rows).sum() + (left * right).sum())

        nw = solve_triangular(self._chol, self._half.T, lower=True, trans="T", check_finite=False).T
        wnw = self._factor.T @ nw
        squares = np.einsum("dq,dq->d", nw, nw)
        return Traces(
            s=float(own @ diagonal) + float(np.trace(wnw)),
            d=float(d @ diagonal),
            ss=pair(own, own, gram_o, gram_o) + 2 * float(own @ squares) + float((wnw**2).sum()),
            sd=pair(own, d, gram_o, gram_d) + float(d @ squares),
            dd=pair(d, d, gram_d, gram_d),
        )

    def solve(self, g: Vectors) -> Vectors:
        """Return N g, O(dq) a column."""
        return np.asarray(self._f[:, None] * g - self._u @ (self._u.T @ g))


class DenseResolvent:
    """N for any Σ, which is `matrix`, by one Cholesky factorisation: O(d³)."""

    def __init__(self, matrix: Float[np.ndarray, "d d"], diagonal: Vector, a: float, b: float, c: float) -> None:
        self._matrix, self._coefficients = matrix, (a, b, c)
        self._d = diagonal
        m = a * matrix
        m.flat[:: len(m) + 1] += b * self._d + c
        self._scale = 1.0 / np.sqrt(np.diagonal(m))
        self._factor = cho_factor(m, lower=True, overwrite_a=True, check_finite=False)
        self._inverse: Float[np.ndarray, "d d"] | None = None

    def is_ill_conditioned(self) -> bool:
        """Return whether rounding of M, scaled to a unit diagonal, affects the traces, O(d²)."""
        a, b, c = self._coefficients
        scale = self._scale
        rows = a * (np.abs(self._matrix) @ scale) + (b * self._d + c) * scale  # at most twice the row sums of |M|
        reciprocal, info = dpocon(scale[:, None] * self._factor[0], float((scale * rows).max()), uplo="L")
        return bool(info or not reciprocal >= _MIN_RECIPROCAL_CONDITION)

    @property
    def inverse(self) -> Float[np.ndarray, "d d"]:
        """N as a matrix."""
        if self._inverse is None:
            lower, info = dpotri(self._factor[0], lower=True)
            if info:
                raise np.linalg.LinAlgError(f"dpotri failed with {info}")
            lower = np.tril(lower)
            self._inverse = lower + np.tril(lower, -1).T
        return self._inverse

    def traces(self) -> Traces:
        """Return the five traces."""
        d = self._d
        s = float(np.vdot(self._matrix, self.inverse))
        if self._coefficients[0] * s < _MIN_DIAGONAL * len(d):
            return self._traces_by_product(s)
        squares = self.inverse**2
        weighted, plain = squares @ d, squares.sum(axis=1)
        diagonal = np.diagonal(self.inverse)
        on_d, on_i = float(d @ diagonal), float(diagonal.sum())
        dd, di, ii = float(d @ weighted), float(d @ plain), float(plain.sum())
        a, b, c = self._coefficients
        # With D and I alone, because aΣN = I − bDN − cN.
        return Traces(
            s=(len(d) - b * on_d - c * on_i) / a,
            d=on_d,
            ss=(len(d) - 2 * b * on_d - 2 * c * on_i + b * b * dd + 2 * b * c * di + c * c * ii) / (a * a),
            sd=(on_d - b * dd - c * di) / a,
            dd=dd,
        )

    def _traces_by_product(self, s: float) -> Traces:
        """Return the traces by one more matrix product, for an aΣN that is small relative to I."""
        d, product = self._d, self._matrix @ self.inverse
        return Traces(
            s=s,
            d=float(d @ np.diagonal(self.inverse)),
            ss=float(np.vdot(product, product.T)),
            sd=float(d @ (product * self.inverse).sum(axis=0)),
            dd=float(d @ (self.inverse**2 @ d)),
        )

    def solve(self, g: Vectors) -> Vectors:
        """Return N g, O(d²) a column."""
        solved: Vectors = cho_solve(self._factor, g, check_finite=False)
        return solved

    def square_diagonals(self) -> tuple[Vector, Vector, Vector]:
        """Return diag N, diag NDN and diag N²."""
        squares = self.inverse**2
        return np.diagonal(self.inverse).copy(), squares @ self._d, squares.sum(axis=1)


class FactoredResolvent:
    """N for any Σ = FFᵀ by singular values: accurate even if M is nearly singular, at about 20 times the cost.

    With G = bD + cI and T = G^-½F, N = G^-½ (I + aTTᵀ)⁻¹ G^-½. Every trace is then a sum of squares. If G = 0, N is the
    pseudo-inverse of aΣ. F, which is `factor`, has at least as many columns as Σ's rank.
    """

    def __init__(self, factor: Float[np.ndarray, "d r"], diagonal: Vector, a: float, b: float, c: float) -> None:
        size, rank = factor.shape
        rest = b * diagonal + c
        alone = not rest.any()
        scale = np.ones(size) if alone else 1.0 / np.sqrt(rest)
        u, values, _ = svd(scale[:, None] * factor, full_matrices=rank < size, check_finite=False)
        self._squares = np.zeros(size)
        self._squares[: len(values)] = values**2
        self._values = _inverse(a * self._squares, 0.0 if alone else 1.0)
        self._basis = scale[:, None] * u
        self._d = diagonal

    def traces(self) -> Traces:
        """Return the five traces."""
        v, sn = self._values, self._squares * self._values
        e = self._basis.T @ (self._d[:, None] * self._basis)
        dn = np.diagonal(e) * v
        return Traces(
            s=float(sn.sum()), d=float(dn.sum()), ss=float(sn @ sn), sd=float(sn @ dn), dd=float(v @ (e * e @ v))
        )

    def solve(self, g: Vectors) -> Vectors:
        """Return N g, O(d²) a column."""
        return np.asarray(self._basis @ (self._values[:, None] * (self._basis.T @ g)))

    def square_diagonals(self) -> tuple[Vector, Vector, Vector]:
        """Return diag N, diag NDN and diag N²."""
        inverse = (self._basis * self._values) @ self._basis.T
        squares = inverse**2
        return np.diagonal(inverse).copy(), squares @ self._d, squares.sum(axis=1)


Resolvent: TypeAlias = EigenResolvent | LowRankResolvent | DenseResolvent | FactoredResolvent
"""N = (aΣ + bD + cI)⁻¹ with `diagonal` D: each form has the five ``traces()``, and ``solve(g)`` for N g."""


def resolvent_of_matrix(
    matrix: Float[np.ndarray, "d d"],
    factor: Callable[[], Float[np.ndarray, "d r"]],
    diagonal: Vector,
    a: float,
    b: float,
    c: float,
) -> DenseResolvent | FactoredResolvent:
    """Return N for a Σ without structure, in the cheap form if that is accurate enough.

    `matrix` is Σ; `factor` returns F with Σ = FFᵀ, and is called only for the accurate form.
    """
    if b > 0 or c > 0:
        try:
            dense = DenseResolvent(matrix, diagonal, a, b, c)
        except np.linalg.LinAlgError:  # rounding has made M indefinite
            pass
        else:
            if not dense.is_ill_conditioned():
                return dense
    return FactoredResolvent(factor(), diagonal, a, b, c)


def _inverse(values: Float[np.ndarray, " d"], rest: float) -> Float[np.ndarray, " d"]:
    """Return 1/(values + rest), or the pseudo-inverse of `values` if `rest` is zero."""
    if rest > 0:
        return np.asarray(1.0 / (values + rest))
    nonzero = values > SINGULAR * values.max()
    return np.asarray(np.divide(1.0, values, out=np.zeros_like(values), where=nonzero))
