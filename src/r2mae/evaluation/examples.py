"""Example images for reports: the originals, masked, and as reconstructed."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32

Images = Float32[np.ndarray, "examples height width channels"]


@dataclass(frozen=True)
class Examples:
    """A few test samples: clean, masked, and as a model completes them.

    Parameters
    ----------
    original, masked, prediction : float32 ndarray, shape (examples, height, width, channels)
        0 to 1; hidden pixels of `masked` are what the model sees there (black, as a rule), or grey if it sees nothing.
    ratio : float
        Mask ratio.
    """

    original: Images
    masked: Images
    prediction: Images
    ratio: float
