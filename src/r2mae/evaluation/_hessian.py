"""Models of the Hessian of multinomial logistic regression, by which the steps of :mod:`._logistic` are scaled.

The features lie along their principal axes. ``by_axis`` takes their scatter as diagonal and one weight for each class:
``w_k λ_j + 1/C`` with ``λ_j`` the scatter of feature j and ``w_k`` the mean curvature of the loss in the logit of class
k. (If all probabilities are equal, this is the Hessian itself; Böhning's bound is the same form with ``w = 1/2``.) It
costs nothing, and is enough where most rows are uncertain.

``by_class`` is the Hessian itself but for what couples the classes: for each class k the matrix
``Xᵀ diag(w_ik) X + 1/C`` with the curvature ``w_ik`` of each row. With two classes nothing else is left. It costs as
much as tens of steps, and saves hundreds where a weak penalty makes the curvature of the rows unlike.
"""

from collections.abc import Callable, Iterator

import numpy as np
from jaxtyping import Float
from scipy.linalg import blas, lapack

from r2mae.evaluation._folds import TrainingRows

InverseHessian = Callable[[Float[np.ndarray, "classes d_plus_1"]], Float[np.ndarray, "classes d_plus_1"]]
"""Applies the inverse to a gradient that sums to zero over the classes; so does what it returns."""

LARGEST = 2**26  # numbers in the inverses of all classes: 256 MiB, and several times that of one while it is made
_BLOCK = 2048  # rows scaled at a time, so that no second copy of all rows is needed
_FLATTEST = 1e-9  # least weight of a class: one whose rows are all certain has none
_JITTERS = (1e-6, 1e-4)  # on a diagonal of ones, against rounding in 32 bits


def curvatures(residuals: Float[np.ndarray, "classes n"]) -> Float[np.ndarray, "classes n"]:
    """Return p(1−p) of each class and row, scaled so that equal probabilities give 1/K.

    That is the curvature along directions that sum to zero over the classes.

    Parameters
    ----------
    residuals : ndarray, shape (classes, n)
        Probabilities less one-hot labels: p − 1 for the row's own class and p elsewhere.
    """
    size = np.abs(residuals)
    classes = len(residuals)
    return np.asarray((size - np.square(size)) * (classes / (classes - 1)))


def by_axis(rows: TrainingRows, residuals: Float[np.ndarray, "classes n"], strength: float) -> InverseHessian:
    """Return the inverse of the diagonal model; see the module."""
    weight = np.maximum(curvatures(residuals).mean(axis=1), _FLATTEST)[:, None]
    inverse = 1.0 / (weight * rows.scatter + 1.0 / strength)

    def apply(gradient: np.ndarray) -> np.ndarray:
        # Intercepts at the rows' mean do not interact with the coefficients.
        out = np.empty_like(gradient)
        out[:, :-1] = (gradient[:, :-1] - gradient[:, -1:] * rows.mean) * inverse
        out[:, -1] = gradient[:, -1] / (rows.n * weight[:, 0]) - out[:, :-1] @ rows.mean
        out -= out.mean(axis=0)
        return out

    return apply


def by_class(rows: TrainingRows, residuals: Float[np.ndarray, "classes n"], strength: float) -> InverseHessian | None:
    """Return the inverse of the model with a matrix for each class; see the module.

    None if the matrices are larger than :data:`LARGEST`, or rounding leaves one without an inverse.
    """
    classes, width = len(residuals), len(rows.mean) + 1
    own = 1 if classes == 2 else classes  # two classes have the same curvature
    if own * width**2 > LARGEST:
        return None
    units = np.empty((own, width))
    inverses = np.empty((own, width, width), np.float32)
    for k, weights in enumerate(curvatures(residuals)[:own]):
        weight = max(float(weights.mean()), _FLATTEST)
        units[k, :-1] = np.sqrt(weight * rows.scatter + 1.0 / strength)
        units[k, -1] = np.sqrt(weight * rows.n)
        if not _invert(inverses[k], rows, np.sqrt(weights), units[k], 1.0 / strength):
            return None

    def apply(gradient: np.ndarray) -> np.ndarray:
        scaled = (gradient / units).astype(np.float32)
        out = np.stack([inverses[k % own] @ row for k, row in enumerate(scaled)]) / units
        out -= out.mean(axis=0)
        return out

    return apply


def worth_it(rows: TrainingRows) -> int:
    """Return after how many steps with the diagonal model the matrices of :func:`by_class` have come for the price.

    They take about as many products as a quarter of the width in steps, but in 32 bits and in large pieces; a sixteenth
    was measured at 1,000 features.
    """
    return len(rows.mean) // 16


def _invert(
    out: Float[np.ndarray, "d_plus_1 d_plus_1"],
    rows: TrainingRows,
    roots: Float[np.ndarray, " n"],
    units: Float[np.ndarray, " d_plus_1"],
    penalty: float,
) -> bool:
    """Write the inverse of ``Xᵀ diag(roots²) X + penalty``, intercepts last, and return whether there is one.

    It is in units in which the diagonal is about one.
    """
    scatter = _scatter(rows, roots, units)
    diagonal = np.diag_indices(len(units))
    scatter[diagonal] += np.append(penalty / np.square(units[:-1]), 0.0)
    for jitter in _JITTERS:
        scatter[diagonal] += jitter
        factor, failed = lapack.dpotrf(scatter, clean=0)
        if not failed:
            upper, _ = lapack.dpotri(factor, overwrite_c=1)
            for column in range(len(units)):  # in place: there is room for one such matrix, and not for five
                out[: column + 1, column] = out[column, : column + 1] = upper[: column + 1, column]
            return True
    return False


def _scatter(
    rows: TrainingRows, roots: Float[np.ndarray, " n"], units: Float[np.ndarray, " d_plus_1"]
) -> Float[np.ndarray, "d_plus_1 d_plus_1"]:
    """Return the upper triangle of the scaled rows' scatter, summed over blocks of rows in 32 bits."""
    scatter = np.zeros((len(units), len(units)), order="F")
    for part, place in _blocks(rows):
        scaled = np.empty((len(part), len(units)), np.float32)
        np.divide(part, units[:-1], out=scaled[:, :-1], casting="same_kind")
        scaled[:, -1] = 1.0 / units[-1]
        scaled *= roots[place, None].astype(np.float32)
        scatter += blas.ssyrk(1.0, scaled.T)
    return scatter


def _blocks(rows: TrainingRows) -> Iterator[tuple[np.ndarray, slice]]:
    """Yield pieces of the rows, and where each lies among all."""
    start = 0
    for part in rows.parts:
        for first in range(0, len(part), _BLOCK):
            piece = part[first : first + _BLOCK]
            yield piece, slice(start, start + len(piece))
            start += len(piece)
