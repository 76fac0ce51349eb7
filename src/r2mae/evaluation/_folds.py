"""Cross-validation folds in the principal axes of the data.

Rows are sorted by fold and rotated once to the principal axes of all rows. There the scatter matrix of all rows is
diagonal. That of a fold's training rows is the same less the scatter of the held-out rows, and nearly diagonal. If
there are more features than rows, there are as many coordinates as rows.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import linalg
from threadpoolctl import threadpool_limits

# Products of fewer multiplications than this are slower on several threads than on one: the threads wait for each
# other actively, which costs a factor of ten where other programs use the cores.
ONE_THREAD = 10**8
_LARGEST = 1e120
_BLOCK = 4096  # rows rotated at a time, so that no second copy of all rows is needed


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Training rows in the coordinates of `Folds`.

    Parameters
    ----------
    X : ndarray, shape (n, d)
        The features.
    mean : ndarray, shape (d,)
        Mean over the rows.
    scatter : ndarray, shape (d,)
        Diagonal of the scatter matrix ``Σᵢ (xᵢ−mean)(xᵢ−mean)ᵀ``.
    """

    X: Float[np.ndarray, "n d"]
    mean: Float[np.ndarray, " d"]
    scatter: Float[np.ndarray, " d"]


class Folds:
    """The features, sorted by fold, centred, and rotated to their principal axes.

    Parameters
    ----------
    X : ndarray, shape (n, features)
        Features, one row per sample; copied once as float64.
    fold : ndarray of int, shape (n,)
        The fold in which each row is held out.
    standardize : bool
        Divide the features by their standard deviations over all rows.

    Attributes
    ----------
    order : ndarray of int, shape (n,)
        Original index of every sorted row.
    """

    def __init__(self, X: Float[np.ndarray, "n features"], fold: Int[np.ndarray, " n"], *, standardize: bool) -> None:
        self.order = np.argsort(fold, kind="stable")
        self._bounds = np.concatenate([[0], np.cumsum(np.bincount(fold))])
        X = X[self.order].astype(np.float64, copy=False)
        self._offset = X.mean(axis=0)
        X -= self._offset
        if np.abs(X).max() > _LARGEST:
            raise ValueError(f"features beyond {_LARGEST:g} overflow when multiplied; scale them down")
        self._unit = _deviation(X, self._offset) if standardize else np.ones(X.shape[1])
        X /= self._unit
        self._axes = np.eye(X.shape[1])
        if X.shape[1] > X.shape[0]:
            self._axes, triangle = linalg.qr(X.T, mode="economic", check_finite=False)
            X = np.ascontiguousarray(triangle.T)
        values, vectors = linalg.eigh(X.T @ X, check_finite=False)
        self._axes = self._axes @ vectors
        for start in range(0, len(X), _BLOCK):
            X[start : start + _BLOCK] = X[start : start + _BLOCK] @ vectors
        self._X = X
        self._values = np.maximum(values, 0.0)

    def __len__(self) -> int:
        """Count the folds."""
        return len(self._bounds) - 1

    def held_out(self, fold: int | None) -> slice:
        """Positions, among the sorted rows, of those that `fold` holds out; an empty slice for None."""
        return slice(0, 0) if fold is None else slice(int(self._bounds[fold]), int(self._bounds[fold + 1]))

    def test(self, fold: int | None) -> Float[np.ndarray, "_ d"]:
        """Held-out features."""
        return self._X[self.held_out(fold)]

    def train(self, fold: int | None) -> TrainingRows:
        """Training rows of a fold; all rows for None."""
        out, test = self.held_out(fold), self.test(fold)
        X = self._X if fold is None else np.delete(self._X, out, axis=0)
        n = len(X)
        mean = -test.sum(axis=0) / n  # all rows sum to zero
        scatter = self._values - np.einsum("ij,ij->j", test, test) - n * mean**2
        return TrainingRows(X, mean, np.maximum(scatter, 0.0))

    def scatter_eigh(self, fold: int | None) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d d"]]:
        """Eigenvalues and eigenvectors of the whole scatter matrix of a fold's training rows."""
        if fold is None:
            return self._values, np.eye(len(self._values))
        test = self.test(fold)
        total = test.sum(axis=0)
        scatter = np.diag(self._values) - test.T @ test - np.outer(total, total) / (len(self._X) - len(test))
        values, vectors = linalg.eigh(scatter, check_finite=False)
        return np.maximum(values, 0.0), vectors

    def restore(
        self, coefficients: Float[np.ndarray, "k d"], intercepts: Float[np.ndarray, " k"]
    ) -> tuple[Float[np.ndarray, "k features"], Float[np.ndarray, " k"]]:
        """Convert to coefficients and intercepts for the features as they were given."""
        coefficients = coefficients @ self._axes.T / self._unit
        return coefficients, intercepts - coefficients @ self._offset


def blas_threads(multiplications: int) -> AbstractContextManager[Any]:
    """Limit linear algebra to one thread if its products are small."""
    return threadpool_limits(1, user_api="blas") if multiplications < ONE_THREAD else nullcontext()


def _deviation(X: Float[np.ndarray, "n d"], offset: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
    """Standard deviation of centred features; 1 for a feature that is constant up to rounding."""
    deviation = np.sqrt(np.einsum("ij,ij->j", X, X) / len(X))
    return np.where(deviation > 1e-12 * np.abs(offset), deviation, 1.0)
