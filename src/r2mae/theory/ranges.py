"""A uniform range of mask ratios from which each row draws its own: R²MAE in the linear model."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(9)


@dataclass(frozen=True)
class Range:
    """p ~ U(low, high).

    Parameters
    ----------
    low, high : float
        Within [0, 1].

    Raises
    ------
    ValueError
        If they are outside [0, 1], or low is above high.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high <= 1:
            raise ValueError(f"low and high must satisfy 0 <= low <= high <= 1, not {self.low:g} and {self.high:g}")

    def nodes(self) -> tuple[Float[np.ndarray, " 9"], Float[np.ndarray, " 9"]]:
        """Return Gauss–Legendre ratios and weights: exact for polynomials in p up to degree 17."""
        return self.low + (self.high - self.low) * (_NODES + 1) / 2, _WEIGHTS / 2

    def quantile(self, u: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """Return the ratios at uniform numbers in [0, 1)."""
        return np.asarray(self.low + (self.high - self.low) * u)
