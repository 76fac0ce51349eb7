"""Checks that an input is a covariance, before any computation; errors name the invalid entry."""

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.linalg import cholesky, eigvalsh

SINGULAR = 1e-12  # eigenvalues up to this fraction of the largest count as zero
MAX_FEATURES_CHECKED = 5000  # up to which a matrix is checked to be definite at once, by a Cholesky factorisation


def numbers(values: ArrayLike, name: str) -> Float[np.ndarray, "*shape"]:
    """Return numbers, such as a list, as an array, or raise a ValueError that names them."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be an array of numbers, not {values!r:.60}") from None


def check_spectrum(eigenvalues: ArrayLike) -> Float[np.ndarray, " d"]:
    """Return the eigenvalues, or raise a ValueError that says why they are not those of a covariance."""
    values = numbers(eigenvalues, "eigenvalues")
    if len(values) < 2:
        raise ValueError(f"eigenvalues must be at least 2 numbers, not {len(values)}")
    if not np.isfinite(values).all():
        raise ValueError("eigenvalues contain a number that is not finite")
    if (values < 0).any() or not values.any():
        raise ValueError(f"eigenvalues must not be negative, and not all zero; the smallest is {values.min():.3g}")
    return values


def check_nonnegative(**values: float) -> None:
    """Raise a ValueError that names the value, if one is negative or not finite."""
    for name, value in values.items():
        if not (np.isfinite(value) and value >= 0):
            raise ValueError(f"{name} must be a finite number of 0 or more, not {value}")


def relative_rounding(matrix: ArrayLike) -> float:
    """Return the fraction of the largest eigenvalue up to which eigenvalues are rounding errors of the data type."""
    given = np.asarray(matrix)
    return max(SINGULAR, 4 * float(np.sqrt(len(given))) * _epsilon(given))


def _epsilon(given: np.ndarray) -> float:
    return float(np.finfo(given.dtype if given.dtype.kind == "f" else np.float64).eps)


def check_matrix(matrix: ArrayLike) -> Float[np.ndarray, "d d"]:
    """Return the matrix, or raise a ValueError that says why it is not a covariance."""
    given = np.asarray(matrix)
    if given.dtype.kind not in "fiub":
        kind = f"an array of type {matrix.dtype}" if isinstance(matrix, np.ndarray) else type(matrix).__name__
        raise ValueError(f"covariance must be a square matrix of real numbers, not {kind}")
    values = given.astype(np.float64)
    if values.ndim != 2:
        raise ValueError(
            f"covariance must be a square matrix, not an array of shape {values.shape}; to give only "
            "eigenvalues, use Rotated(eigenvalues)"
        )
    if values.shape[0] != values.shape[1]:
        raise ValueError(f"covariance must be square, not {values.shape[0]} by {values.shape[1]}")
    if len(values) < 2:
        raise ValueError(f"covariance must have at least 2 features, not {len(values)}")
    if not np.isfinite(values).all():
        raise ValueError("covariance contains a number that is not finite")
    rounding = float(np.sqrt(_epsilon(given)))
    gap = float(np.abs(values - values.T).max())
    if gap > rounding * float(np.abs(values).max()):
        raise ValueError(f"covariance is not symmetric: entries differ from their mirror image by up to {gap:.3g}")
    diagonal = np.diagonal(values)
    if (diagonal <= 0).any():
        feature = int(np.argmin(diagonal))
        raise ValueError(f"covariance gives feature {feature} the variance {diagonal[feature]:.3g}; omit it")
    values = (values + values.T) / 2
    if len(values) <= MAX_FEATURES_CHECKED:
        raised = values.copy()
        raised.flat[:: len(values) + 1] *= 1 + rounding  # each feature on its own scale
        try:
            cholesky(raised, lower=True, overwrite_a=True, check_finite=False)
        except np.linalg.LinAlgError:
            smallest = float(eigvalsh(values, check_finite=False)[0])
            raise ValueError(f"covariance is indefinite: its smallest eigenvalue is {smallest:.3g}") from None
    return values
