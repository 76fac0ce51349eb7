"""Spellings of missing values in tables."""

import numpy as np
from jaxtyping import Bool

_SPELLINGS = ("", "unknown", "na", "n/a", "nan", "<na>", "none", "nat")


def is_missing(values: np.ndarray) -> Bool[np.ndarray, "..."]:
    """Return True where a text means a missing value: Unknown, None, NA, nan and others, in any case."""
    return np.isin(np.char.lower(np.char.strip(values.astype(str))), _SPELLINGS)
