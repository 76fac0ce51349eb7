"""Data as a matrix of samples by features."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True, eq=False, repr=False)
class Matrix:
    """Data as the theory needs them: all values are finite, and every feature varies.

    Attributes
    ----------
    name : str
        Name of the set or file.
    values : float64 array (n, d)
        Rows are samples; neither centred nor scaled.
    features : tuple of str
        Names of the columns.
    notes : tuple of str
        What was done to the data, in words.
    """

    name: str
    values: Float[np.ndarray, "n d"]
    features: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Matrix({self.name!r}: {self.values.shape[0]:,} samples of {self.values.shape[1]:,} features)"


def most_variable(kept: int, of: int) -> str:
    """Return the note that features were chosen by their variance."""
    return f"the {kept:,} most variable of {of:,} features are used"
