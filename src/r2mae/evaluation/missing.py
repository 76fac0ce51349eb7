"""Missing values, as tables spell them."""

import numpy as np
from jaxtyping import Bool

_SPELLINGS = ("", "unknown", "na", "n/a", "nan", "<na>", "none", "nat")


def is_missing(values: np.ndarray) -> Bool[np.ndarray, "..."]:
    """Return where text means a missing value: Unknown, None, NA, nan and the like, in upper or lower case."""
    return np.isin(np.char.lower(np.char.strip(values.astype(str))), _SPELLINGS)
