"""How far a data set is from the Gaussian rows that the formula assumes."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from r2mae.theory import Covariance

SEEN = 20  # a feature should differ from its usual value in at least this many rows
_SPARSE = 10.0  # kurtosis of a feature that differs from its usual value in about a tenth of the rows; Gaussian: 3


@dataclass(frozen=True)
class Shape:
    """Properties of the data that break Gaussian equivalence (measured in ``paper/results/theory/realdata``).

    Attributes
    ----------
    rare : int
        Features that differ from their usual value in fewer than about 20 of n rows: n over their kurtosis is below
        20, and the kurtosis above 10, which a Gaussian feature does not reach even in few rows.
    unseen : int
        Features for which that number of rows is below one.
    norm_spread : float
        Var ‖x‖² over (E ‖x‖²)², divided by what Gaussian rows have.
    top_share : float
        Fraction of the variance in the leading direction.
    rows_per_feature : float
        Number of rows from which Σ was estimated, over the number of features.
    """

    rare: int
    unseen: int
    norm_spread: float
    top_share: float
    rows_per_feature: float


def shape_of(x: Float[np.ndarray, "rows d"], cov: Covariance, n: int, *, standardised: bool) -> Shape:
    """Measure a matrix.

    Parameters
    ----------
    x : array (rows, d)
        The data, not centred.
    cov : Covariance
        Their Σ, standardised or not.
    n : int
        Number of rows of the regression.
    standardised : bool
        Whether Σ is of standardised features.
    """
    mean, deviation = x.mean(axis=0), x.std(axis=0)
    scale = deviation if standardised else np.ones_like(deviation)
    norms, fourth, step = np.empty(len(x)), np.zeros(x.shape[1]), max(1, 2**22 // x.shape[1])
    for start in range(0, len(x), step):
        centred = (x[start : start + step] - mean) / scale
        squares = centred * centred
        norms[start : start + step] = squares.sum(axis=1)
        fourth += (squares * squares).sum(axis=0)
    kurtosis = fourth / len(x) / (deviation / scale) ** 4
    sparse = kurtosis > _SPARSE
    values = cov.eigenvalues
    gaussian = 2 * (values**2).sum() / values.sum() ** 2
    return Shape(
        rare=int((sparse & (n / kurtosis < SEEN)).sum()),
        unseen=int((sparse & (n / kurtosis < 1)).sum()),
        norm_spread=float(norms.var() / norms.mean() ** 2 / gaussian),
        top_share=float(values[0] / values.sum()),
        rows_per_feature=len(x) / x.shape[1],
    )
