"""Effective rank: how evenly a representation uses its dimensions."""

import logging
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import linalg
from scipy.special import entr

from r2mae.errors import UserError

SPECTRUM = ("effective_rank", "spectral_entropy")
"""Scores that a model lacks whose features are all zero."""


@dataclass(frozen=True)
class Spectrum:
    """Effective rank of a feature matrix.

    Attributes
    ----------
    rank : float
        ``exp(entropy)``, between 1 and min(n, d) (Roy and Vetterli 2007).
    entropy : float
        Shannon entropy, in nats, of the singular values divided by their sum: what the paper calls effective rank
        (section on spiked covariance models, Fig. 2D).
    """

    rank: float
    entropy: float


def spectrum_scores(features: Float[np.ndarray, "n d"]) -> dict[str, float]:
    """Return effective rank and spectral entropy as scores of a run.

    A collapsed model, all of whose features are zero, has neither, which a warning says.
    """
    if features.size and not features.any():
        logging.getLogger("r2mae").warning("effective rank omitted: all features are zero, so the model has collapsed")
        return {}
    spectrum = effective_rank(features)
    return dict(zip(SPECTRUM, (spectrum.rank, spectrum.entropy), strict=True))


def effective_rank(features: Float[np.ndarray, "n d"]) -> Spectrum:
    """Return the effective rank of a feature matrix, from its singular values.

    As in the paper, features are not centred: a large common mean counts as one dominant direction.

    Parameters
    ----------
    features : ndarray, shape (n, d)
        One row per sample.

    Raises
    ------
    UserError
        If a feature is NaN or infinite, or the matrix is empty or zero.

    Notes
    -----
    If one side is more than twice the other, the singular values are square roots of the eigenvalues of the Gram matrix
    of the short side, which is ten times faster. A singular value of zero may then be computed as 3e-8 of the largest,
    which adds less than 6e-7 to the entropy.
    """
    if features.size == 0:
        raise UserError(f"effective rank needs at least one row and one feature; got shape {features.shape}")
    matrix = features.astype(np.float64)
    if not np.isfinite(matrix).all():
        rows = int((~np.isfinite(matrix)).any(axis=1).sum())
        raise UserError(
            f"effective rank: {rows} of {len(matrix)} rows of features contain NaN or infinity; check the training"
        )
    largest = np.abs(matrix).max()
    if largest == 0.0:
        raise UserError("effective rank: all features are zero, so the spectrum has no shape; check the model")
    matrix /= largest
    values = _singular_values(matrix)
    entropy = float(entr(values / values.sum()).sum())
    return Spectrum(rank=float(np.exp(entropy)), entropy=entropy)


def _singular_values(matrix: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " k"]:
    if len(matrix) < matrix.shape[1]:
        matrix = matrix.T
    if len(matrix) <= 2 * matrix.shape[1]:
        return np.asarray(linalg.svdvals(matrix, check_finite=False))
    return np.asarray(np.sqrt(np.maximum(linalg.eigvalsh(matrix.T @ matrix, check_finite=False), 0.0)))
