"""Covariances of the rows in three forms, with the operations that the theory and the simulations need."""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TypeAlias

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy.linalg import eigh

from r2mae.theory.checks import MAX_FEATURES_CHECKED, SINGULAR, check_matrix, check_spectrum, numbers, relative_rounding
from r2mae.theory.resolvent import EigenResolvent, FactoredResolvent, LowRankResolvent, Resolvent, resolvent_of_matrix

Columns: TypeAlias = Float[np.ndarray, "d *m"]
_MAX_CHEAP = 500  # largest matrix whose eigenvalues are computed only to decide on a warning


class Covariance(ABC):
    """Population covariance Σ of d features.

    Attributes
    ----------
    diagonal : array (d,)
        diag Σ, all positive.
    """

    diagonal: Float[np.ndarray, " d"]

    @property
    def d(self) -> int:
        """Number of features."""
        return len(self.diagonal)

    @abstractmethod
    def apply(self, b: Columns) -> Columns:
        """Return Σ b, for one vector or for columns."""

    @abstractmethod
    def resolvent(self, a: float, b: float, c: float, *, exact: bool = False) -> Resolvent:
        """Return (aΣ + b·diag Σ + cI)⁻¹ in the cheapest form, or with `exact` in the most accurate one."""

    @cached_property
    def _eigen(self) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d m"]]:
        """All eigenvalues, and eigenvectors of the largest."""
        return descending_eigh(self.matrix())

    @property
    def eigenvalues(self) -> Float[np.ndarray, " d"]:
        """Eigenvalues, largest first."""
        return self._eigen[0]

    def eigenvectors(self, which: Int[np.ndarray, " m"]) -> Float[np.ndarray, "d m"]:
        """Return unit eigenvectors as columns; number 0 belongs to the largest eigenvalue."""
        return np.asarray(self._eigen[1][:, which])

    def sample(self, rows: int, rng: np.random.Generator) -> Float[np.ndarray, "rows d"]:
        """Draw rows from N(0, Σ)."""
        values, vectors = self._eigen
        return np.asarray((rng.standard_normal((rows, self.d)) * np.sqrt(values)) @ vectors.T)

    @property
    def common_diagonal(self) -> float | None:
        """The value of all entries of diag Σ, or None if they differ; if equal, M is diagonal in Σ's eigenbasis."""
        return None

    @property
    def variances(self) -> Float[np.ndarray, " d"]:
        """Variance of each feature."""
        return self.diagonal

    @property
    def leading(self) -> float | None:
        """The largest eigenvalue if it is cheap to compute (for LowRank with varying α, a lower bound), else None."""
        return None

    @property
    def rank(self) -> int:
        """Rank of Σ, up to rounding."""
        return int((self.eigenvalues > SINGULAR * self.eigenvalues[0]).sum())

    def matrix(self) -> Float[np.ndarray, "d d"]:
        """Return Σ as a d × d array."""
        return self.apply(np.eye(self.d))

    def quadratic(self, b: Columns) -> Float[np.ndarray, "*m"]:
        """Return bᵀΣb, for one vector or for each column."""
        return np.asarray((b * self.apply(b)).sum(axis=0))

    def at_quantile(self, quantile: float) -> int:
        """Return the number of the eigenvector whose eigenvalue is at `quantile` from the top (0 is the largest)."""
        if not 0 <= quantile <= 1:
            raise ValueError(f"quantile must be between 0 and 1, not {quantile}")
        return min(int(quantile * self.d), self.d - 1)


CovarianceLike: TypeAlias = Covariance | ArrayLike


class Rotated(Covariance):
    """Σ = QΛQᵀ with Q drawn from Haar measure: only its eigenvalues matter.

    The theory uses diag Σ = (tr Σ/d)·I, which is exact up to fluctuations of order 1/√d. Q is drawn on demand, for rows
    or eigenvectors.

    Parameters
    ----------
    eigenvalues : array (d,)
        Λ, in any order.
    seed : int
        Seed for Q.

    Raises
    ------
    ValueError
        If an eigenvalue is not finite, negative, or all are zero.
    """

    def __init__(self, eigenvalues: ArrayLike, seed: int = 0) -> None:
        values = np.sort(check_spectrum(eigenvalues))[::-1].copy()
        self._eigenvalues = values
        self._seed = seed
        self.diagonal = np.full(len(values), values.mean())

    @property
    def eigenvalues(self) -> Float[np.ndarray, " d"]:
        """Λ, largest first."""
        return self._eigenvalues

    @property
    def common_diagonal(self) -> float:
        """tr Σ/d."""
        return float(self.diagonal[0])

    @property
    def leading(self) -> float:
        """The largest eigenvalue."""
        return float(self._eigenvalues[0])

    @cached_property
    def basis(self) -> Float[np.ndarray, "d d"]:
        """Q, drawn by a QR factorisation of Gaussian entries with R's diagonal made positive (Mezzadri, 2007)."""
        return haar(self.d, self.d, np.random.default_rng([self._seed, 1]))

    def apply(self, b: Columns) -> Columns:
        """Return Σ b."""
        return np.asarray(self.basis @ (self._eigenvalues * (self.basis.T @ b).T).T)

    @property
    def _eigen(self) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d d"]]:
        return self._eigenvalues, self.basis

    def resolvent(self, a: float, b: float, c: float, *, exact: bool = False) -> Resolvent:
        """Return the resolvent in the eigenbasis, O(d)."""
        return EigenResolvent(self._eigenvalues, self.common_diagonal, a, b, c, lambda: self.basis)


class LowRank(Covariance):
    """Σ = diag(α) + WWᵀ with W of q columns, not stored as d × d (identity: no W; spiked: one column).

    Parameters
    ----------
    own : array (d,)
        α, positive.
    factor : array (d, q), optional
        W.

    Raises
    ------
    ValueError
        If α is not positive, a value is not finite, or the lengths differ.
    """

    def __init__(self, own: ArrayLike, factor: ArrayLike | None = None) -> None:
        own = numbers(own, "own")
        if not np.isfinite(own).all() or (own <= 0).any():
            raise ValueError("own must be finite and positive: it is the features' own variance")
        factor = np.zeros((len(own), 0)) if factor is None else numbers(factor, "factor")
        if factor.shape[0] != len(own):
            raise ValueError(f"factor must have a row for each of {len(own)} features, not {factor.shape[0]} rows")
        if not np.isfinite(factor).all():
            raise ValueError("factor contains a number that is not finite")
        self.own, self.factor = own.copy(), factor.copy()
        self.diagonal = self.own + (self.factor**2).sum(axis=1)

    @property
    def rank(self) -> int:
        """The rank: d, because α is positive."""
        return self.d

    @property
    def common_diagonal(self) -> float | None:
        """The diagonal, if Σ is a multiple of the identity."""
        flat = self.factor.shape[1] == 0 and np.ptp(self.own) == 0
        return float(self.own[0]) if flat else None

    @cached_property
    def leading(self) -> float | None:
        """The largest eigenvalue, from WᵀW and α, if W has up to 500 columns."""
        q = self.factor.shape[1]
        if not 0 < q <= _MAX_CHEAP:
            return None if q else float(self.own.max())
        # scipy's option to compute only the largest eigenvalue fails if WᵀW is a multiple of I.
        top = np.linalg.eigvalsh(self.factor.T @ self.factor)
        return max(float(top[-1]) + float(self.own.min()), float(self.own.max()))

    def apply(self, b: Columns) -> Columns:
        """Return Σ b, O(dq) a column."""
        return np.asarray((self.own * b.T).T + self.factor @ (self.factor.T @ b))

    def sample(self, rows: int, rng: np.random.Generator) -> Float[np.ndarray, "rows d"]:
        """Draw rows from N(0, Σ)."""
        drawn = rng.standard_normal((rows, self.d))
        drawn *= np.sqrt(self.own)
        q = self.factor.shape[1]
        if q:
            drawn += rng.standard_normal((rows, q)) @ self.factor.T
        return drawn

    def resolvent(self, a: float, b: float, c: float, *, exact: bool = False) -> Resolvent:
        """Return the resolvent: by Woodbury's identity if W is thin, otherwise by a factorisation."""
        if self.common_diagonal is not None:
            return EigenResolvent(self.own, self.common_diagonal, a, b, c, lambda: np.eye(self.d))
        if exact:
            return FactoredResolvent(self._root(), self.diagonal, a, b, c)
        if self.factor.shape[1] * 3 > self.d:
            return resolvent_of_matrix(self._matrix, self._root, self.diagonal, a, b, c)
        return LowRankResolvent(self.diagonal, self.own, self.factor, a, b, c)

    def _root(self) -> Float[np.ndarray, "d dq"]:
        """Return F with Σ = FFᵀ."""
        return np.hstack([np.diag(np.sqrt(self.own)), self.factor])

    @cached_property
    def _matrix(self) -> Float[np.ndarray, "d d"]:
        matrix: Float[np.ndarray, "d d"] = self.factor @ self.factor.T
        matrix.flat[:: self.d + 1] += self.own
        return matrix

    def matrix(self) -> Float[np.ndarray, "d d"]:
        """Return Σ itself."""
        return self._matrix.copy()

    @cached_property
    def _eigen(self) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d m"]]:
        """All eigenvalues, and the eigenvectors of those above the bulk (all, if α is not constant)."""
        if np.ptp(self.own) > 0:
            return descending_eigh(self._matrix)
        left, singular, _ = np.linalg.svd(self.factor, full_matrices=False)
        values = np.full(self.d, self.own[0])
        values[: len(singular)] += singular**2
        return values, left

    def eigenvectors(self, which: Int[np.ndarray, " m"]) -> Float[np.ndarray, "d m"]:
        """Return eigenvectors; those of the bulk complete the basis."""
        vectors = self._eigen[1]
        if ((which < 0) | (which >= vectors.shape[1])).any():  # −1 means the last of all d, not of those above the bulk
            vectors = self._basis
        return np.asarray(vectors[:, which])

    @cached_property
    def _basis(self) -> Float[np.ndarray, "d d"]:
        """All eigenvectors."""
        vectors = self._eigen[1]
        if not vectors.shape[1]:
            return np.eye(self.d)
        basis = np.linalg.qr(vectors, mode="complete")[0]
        basis[:, : vectors.shape[1]] = vectors  # QR may have changed their signs
        return basis


class Dense(Covariance):
    """Any Σ, as a matrix.

    Parameters
    ----------
    matrix : array (d, d)
        Symmetric and positive semidefinite, with a positive diagonal, up to the rounding of its data type.
        Above d = 5000 definiteness is checked only when eigenvalues are needed.

    Raises
    ------
    ValueError
        If the matrix does not have these properties.
    """

    def __init__(self, matrix: ArrayLike) -> None:
        self._matrix = check_matrix(matrix)
        self.diagonal = np.diagonal(self._matrix).copy()
        self._rounding = relative_rounding(matrix)  # eigenvalues up to this fraction of the largest count as zero

    @property
    def common_diagonal(self) -> float | None:
        """The value of all diagonal entries if they are equal, as in a correlation matrix."""
        mean = float(self.diagonal.mean())
        return mean if np.ptp(self.diagonal) <= 1e-9 * mean else None

    @property
    def leading(self) -> float | None:
        """The largest eigenvalue, if d ≤ 500 or the eigenvalues are already computed."""
        return float(self.eigenvalues[0]) if self.d <= _MAX_CHEAP or "_eigen" in vars(self) else None

    @cached_property
    def _eigen(self) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d d"]]:
        values, vectors = descending_eigh(self._matrix)
        if self.d > MAX_FEATURES_CHECKED and values[-1] < -1e-8 * values[0]:
            raise ValueError(f"covariance is indefinite: its smallest eigenvalue is {values[-1]:.3g}")
        return np.where(values > self._rounding * values[0], values, 0.0), vectors

    @cached_property
    def _root(self) -> Float[np.ndarray, "d r"]:
        """F with Σ = FFᵀ and rank Σ columns; the rank is that of features scaled to variance one."""
        scale = np.sqrt(self.diagonal)
        values, vectors = descending_eigh(self._matrix / scale[:, None] / scale)
        r = int((values > self._rounding * values[0]).sum())
        return np.asarray(scale[:, None] * vectors[:, :r] * np.sqrt(values[:r]))

    @property
    def rank(self) -> int:
        """Rank of Σ, up to the rounding of the matrix's original data type."""
        return int((self.eigenvalues > 0).sum()) if self.common_diagonal is not None else self._root.shape[1]

    def matrix(self) -> Float[np.ndarray, "d d"]:
        """Return Σ itself."""
        return self._matrix.copy()

    def apply(self, b: Columns) -> Columns:
        """Return Σ b."""
        return np.asarray(self._matrix @ b)

    def resolvent(self, a: float, b: float, c: float, *, exact: bool = False) -> Resolvent:
        """Return the resolvent: in the eigenbasis if diag Σ is constant, otherwise by a factorisation."""
        if self.common_diagonal is not None:
            return EigenResolvent(self.eigenvalues, self.common_diagonal, a, b, c, lambda: self._eigen[1])
        if exact:
            return FactoredResolvent(self._root, self.diagonal, a, b, c)
        return resolvent_of_matrix(self._matrix, lambda: self._root, self.diagonal, a, b, c)


class Uncentred(Dense):
    """Σ of rows that are masked before they are centred: a hidden entry loses its mean, too, so D = diag Σ + μ².

    Parameters
    ----------
    cov : Covariance
        Σ.
    mean : array (d,)
        μ.

    Raises
    ------
    ValueError
        If μ has another length, or a number is not finite.
    """

    def __init__(self, cov: Covariance, mean: Float[np.ndarray, " d2"]) -> None:
        if len(mean) != cov.d or not np.isfinite(mean).all():
            raise ValueError(f"inputs: mean must be {cov.d} finite numbers, one for each feature")
        super().__init__(cov.matrix())
        self.centred, self.mean, self._variances = cov, mean.astype(np.float64), self.diagonal
        self.diagonal = self._variances + self.mean**2

    @property
    def variances(self) -> Float[np.ndarray, " d"]:
        """diag Σ."""
        return self._variances


def as_covariance(cov: CovarianceLike) -> Covariance:
    """Return a covariance unchanged, and a plain matrix as :class:`Dense`.

    Raises
    ------
    ValueError
        If a matrix is not square, finite, symmetric and positive semidefinite, up to rounding.
    """
    return cov if isinstance(cov, Covariance) else Dense(cov)


def signal_columns(cov: Covariance, beta: ArrayLike) -> Float[np.ndarray, "d m"]:
    """Return one signal or several as columns, or raise a ValueError if they do not fit or are not finite."""
    beta = numbers(beta, "beta")
    if beta.ndim not in (1, 2) or beta.shape[0] != cov.d:
        raise ValueError(f"beta must have length {cov.d}, the number of features, not shape {beta.shape}")
    if not np.isfinite(beta).all():
        raise ValueError("beta contains a number that is not finite")
    return np.ascontiguousarray(beta.reshape(cov.d, -1))


def haar(d: int, columns: int, rng: np.random.Generator) -> Float[np.ndarray, "d columns"]:
    """Draw the first columns of a Haar-distributed orthogonal matrix."""
    q, r = np.linalg.qr(rng.standard_normal((d, columns)))
    return np.asarray(q * np.where(np.diagonal(r) < 0, -1.0, 1.0))


def descending_eigh(matrix: Float[np.ndarray, "d d"]) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d d"]]:
    """Return eigenvalues, largest first, and their eigenvectors."""
    values, vectors = eigh(matrix, check_finite=False, driver="evd")
    return values[::-1].copy(), vectors[:, ::-1]
