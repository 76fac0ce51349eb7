"""The covariance of data, as input for the theory."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from r2mae.theory.checks import numbers
from r2mae.theory.covariance import Dense


def from_data(
    x: ArrayLike, estimator: Literal["ledoit-wolf", "plain"] = "ledoit-wolf", *, scale: bool = False
) -> Dense:
    """Return the covariance of centred data.

    Parameters
    ----------
    x : array (n, d)
        Samples as rows.
    estimator : {"ledoit-wolf", "plain"}
        Shrunk towards a multiple of the identity (scikit-learn's), or the sample covariance.
    scale : bool
        Divide each feature by its standard deviation first, so that all have variance one.

    Raises
    ------
    ValueError
        If a number is not finite, there are fewer than two rows, or a feature never varies.
    """
    x = numbers(x, "x")
    if x.shape[0] < 2:
        raise ValueError(f"x must have at least 2 rows, not {x.shape[0]}")
    if not np.isfinite(x).all():
        row, column = np.argwhere(~np.isfinite(x))[0]
        raise ValueError(f"x contains a number that is not finite, at row {row}, column {column}")
    centred = x - x.mean(axis=0)
    deviation = centred.std(axis=0)
    constant = np.ptp(x, axis=0) == 0  # exact; the computed deviation of a constant may not be zero
    if constant.any():
        raise ValueError(f"x: feature {int(np.argmax(constant))} never varies: omit it")
    if scale:
        centred /= deviation
    if estimator == "plain":
        matrix = centred.T @ centred / len(x)
    elif estimator == "ledoit-wolf":
        from sklearn.covariance import LedoitWolf  # takes half a second

        matrix = LedoitWolf(assume_centered=True, store_precision=False).fit(centred).covariance_
    else:
        raise ValueError(f"estimator must be 'ledoit-wolf' or 'plain', not {estimator!r}")
    if scale:  # set to exactly one, without rounding: with a constant diagonal the theory works in the eigenbasis
        root = np.sqrt(np.diagonal(matrix))
        matrix = matrix / root[:, None] / root
        np.fill_diagonal(matrix, 1.0)
    return Dense((matrix + matrix.T) / 2)
