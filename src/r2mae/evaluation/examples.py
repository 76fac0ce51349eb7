"""Example images for reports: original, masked and reconstructed."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32

Images = Float32[np.ndarray, "examples height width channels"]


@dataclass(frozen=True)
class Examples:
    """A few test samples: original, masked, and completed by a model.

    Parameters
    ----------
    original, masked, prediction : float32 ndarray, shape (examples, height, width, channels)
        Values 0 to 1. Hidden pixels of `masked` are what the model sees there (usually black), or grey if it sees
        nothing.
    ratio : float
        Mask ratio.
    index : tuple of int
        The place of each in the data, from 0; empty if unknown.
    files : tuple of str
        The files that they were read from, if any.
    """

    original: Images
    masked: Images
    prediction: Images
    ratio: float
    index: tuple[int, ...] = ()
    files: tuple[str, ...] = ()
