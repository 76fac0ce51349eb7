"""Cross-validation folds that share one copy of the data and one Gram matrix.

Rows are sorted by fold, so that the training rows of every fold are two contiguous views, and the scatter matrix of
a fold's training rows is the total less that of the held-out rows.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import linalg
from threadpoolctl import threadpool_limits

# Products of fewer multiplications than this are faster on one thread than handed out to several, which wait for
# each other actively: on busy cores by a factor of ten.
ONE_THREAD = 10**8


@dataclass(frozen=True, eq=False)
class Rows:
    """Training rows, their moments, and the coordinates they are in.

    Parameters
    ----------
    parts : tuple of ndarray, each of shape (rows, d)
        The features; views of the shared array wherever possible.
    mean, scale : ndarray, shape (d,)
        Mean over the rows, and the unit of each feature in the penalty (ones, or standard deviations).
    values, vectors : ndarray, shapes (d,) and (d, d)
        Eigendecomposition of the scatter matrix ``Σᵢ (xᵢ−mean)(xᵢ−mean)ᵀ`` of the features in units of `scale`.
    lift : ndarray of shape (features, d), optional
        Carries coefficients from these coordinates to those of the caller's features.
    """

    parts: tuple[Float[np.ndarray, "_ d"], ...]
    mean: Float[np.ndarray, " d"]
    scale: Float[np.ndarray, " d"]
    values: Float[np.ndarray, " d"]
    vectors: Float[np.ndarray, "d d"]
    lift: Float[np.ndarray, "features d"] | None

    @property
    def n(self) -> int:
        """Number of rows."""
        return sum(len(part) for part in self.parts)

    def times(self, coefficients: Float[np.ndarray, "k d"]) -> Float[np.ndarray, "k n"]:
        """``W Xᵀ``."""
        out = np.empty((len(coefficients), self.n))
        start = 0
        for part in self.parts:
            np.matmul(coefficients, part.T, out=out[:, start : start + len(part)])
            start += len(part)
        return out

    def gather(self, weights: Float[np.ndarray, "k n"]) -> Float[np.ndarray, "k d"]:
        """``R X``: the features summed with the given weights."""
        out = np.zeros((len(weights), len(self.mean)))
        start = 0
        for part in self.parts:
            out += weights[:, start : start + len(part)] @ part
            start += len(part)
        return out

    def lifted(self, coefficients: Float[np.ndarray, "k d"]) -> Float[np.ndarray, "k features"]:
        """Coefficients in the coordinates of the caller's features."""
        return coefficients if self.lift is None else coefficients @ self.lift.T


class Folds:
    """The features sorted by fold, centred, and reduced to their row space where that is smaller.

    Parameters
    ----------
    X : ndarray, shape (n, features)
        Features, one row a sample; copied once as float64.
    fold : ndarray of int, shape (n,)
        The fold in which each row is held out.
    standardize : bool
        Penalise coefficients in units of the features' standard deviations over the training rows of each fold, as
        a ``StandardScaler`` in a pipeline would.

    Attributes
    ----------
    order : ndarray of int, shape (n,)
        Original index of every sorted row.
    offset : ndarray, shape (features,)
        Mean that was taken off the features.
    """

    def __init__(
        self, X: Float[np.ndarray, "n features"], fold: Int[np.ndarray, " n"], *, standardize: bool
    ) -> None:
        self.order = np.argsort(fold, kind="stable")
        self._bounds = np.concatenate([[0], np.cumsum(np.bincount(fold))])
        self._standardize = standardize
        self._X = X[self.order].astype(np.float64, copy=False)
        self.offset = self._X.mean(axis=0)
        self._X -= self.offset
        self._lift: np.ndarray | None = None
        self._wide = self._X.shape[1] > self._X.shape[0]
        if self._wide and not standardize:
            self._X, self._lift = _row_space(self._X)
        self._gram = None if self._wide and standardize else self._X.T @ self._X

    def __len__(self) -> int:
        """Count the folds."""
        return len(self._bounds) - 1

    def held_out(self, fold: int) -> slice:
        """Positions, among the sorted rows, of those that `fold` holds out."""
        return slice(int(self._bounds[fold]), int(self._bounds[fold + 1]))

    def all_rows(self) -> Rows:
        """Every row, for the fit after the strength has been chosen."""
        return self._split(slice(0, 0))[0]

    def split(self, fold: int) -> tuple[Rows, Float[np.ndarray, "_ d"]]:
        """Training rows of a fold, and its held-out features in the same coordinates."""
        return self._split(self.held_out(fold))

    def _split(self, out: slice) -> tuple[Rows, Float[np.ndarray, "_ d"]]:
        X, test = self._X, self._X[out]
        parts = tuple(part for part in (X[: out.start], X[out.stop :]) if len(part))
        n = len(X) - len(test)
        mean = sum(part.sum(axis=0) for part in parts) / n
        lift = self._lift
        scale = np.ones(X.shape[1])
        if self._standardize:
            scale = _deviation(parts, mean)
        if self._gram is not None:
            scatter = self._gram - test.T @ test - n * np.outer(mean, mean)
        else:
            narrow, basis = _row_space(np.concatenate(parts) / scale)
            test, lift = test / scale @ basis, basis / scale[:, None]
            parts, mean, scale = (narrow,), narrow.mean(axis=0), np.ones(narrow.shape[1])
            scatter = narrow.T @ narrow - n * np.outer(mean, mean)
        values, vectors = linalg.eigh(scatter / np.outer(scale, scale), check_finite=False)
        # Differences of Gram matrices leave eigenvalues of the order of rounding below zero.
        return Rows(parts, mean, scale, np.maximum(values, 0.0), vectors, lift), test


def number_folds(n: int, splits: Sequence[tuple[np.ndarray, np.ndarray]]) -> Int[np.ndarray, " n"]:
    """Number the fold that holds each row out, from a splitter's (train, test) pairs."""
    fold = np.zeros(n, dtype=np.int64)
    for number, (_, test) in enumerate(splits):
        fold[test] = number
    return fold


def blas_threads(multiplications: int) -> AbstractContextManager[Any]:
    """Keep linear algebra on one thread where its products have only so many multiplications."""
    return threadpool_limits(1, user_api="blas") if multiplications < ONE_THREAD else nullcontext()


def _row_space(X: Float[np.ndarray, "n d"]) -> tuple[Float[np.ndarray, "n r"], Float[np.ndarray, "d r"]]:
    """Coordinates of the rows in an orthonormal basis of the space they span, and that basis."""
    basis, triangle = linalg.qr(X.T, mode="economic", check_finite=False)
    return np.ascontiguousarray(triangle.T), basis


def _deviation(parts: Sequence[np.ndarray], mean: np.ndarray) -> Float[np.ndarray, " d"]:
    """Standard deviation of every feature, one where it is constant (as ``StandardScaler``)."""
    n = sum(len(part) for part in parts)
    variance = sum(np.einsum("ij,ij->j", part, part) for part in parts) / n - mean**2
    return np.sqrt(np.where(variance > 1e-14 * mean**2, variance, 1.0))
