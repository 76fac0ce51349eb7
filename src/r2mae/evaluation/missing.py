"""Values that are none, as tables spell them."""

import numpy as np
from jaxtyping import Bool

_SPELLINGS = ("", "unknown", "na", "n/a", "nan", "<na>", "none", "nat")


def is_missing(values: np.ndarray) -> Bool[np.ndarray, "..."]:
    """Return where text stands for no value, such as Unknown, None, NA or nan in any case of letters."""
    return np.isin(np.char.lower(np.char.strip(values.astype(str))), _SPELLINGS)
