"""Signals of the reproduced figures: eigenvectors at given places of the spectrum, spread over all features."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from r2mae.theory import Covariance, LowRank


def random_signals(d: int, count: int, seed: int = 0) -> Float[np.ndarray, "d count"]:
    """Return unit vectors of uniformly drawn direction."""
    drawn = np.random.default_rng([seed, 5]).standard_normal((d, count))
    return np.asarray(drawn / np.linalg.norm(drawn, axis=0))


def eigen_signals(cov: Covariance, places: Sequence[int], seed: int = 0) -> Float[np.ndarray, "d m"]:
    """Return unit eigenvectors at places of the spectrum (0 the largest eigenvalue).

    Within the many equal eigenvalues of a low-rank model's bulk any direction is an eigenvector; a uniformly drawn one
    is taken, since one concentrated on a single feature would not average over masks.

    Parameters
    ----------
    cov : Covariance
    places : sequence of m ints
    seed : int
        Of the directions within a bulk.
    """
    if not isinstance(cov, LowRank) or np.ptp(cov.own) > 0:
        return cov.eigenvectors(np.array(places))
    width = cov.factor.shape[1]
    spikes = cov.eigenvectors(np.arange(width)) if width else np.zeros((cov.d, 0))
    drawn = random_signals(cov.d, len(places), seed)
    drawn -= spikes @ (spikes.T @ drawn)
    drawn /= np.linalg.norm(drawn, axis=0)
    for column, place in enumerate(places):
        if place < width:
            drawn[:, column] = spikes[:, place]
    return drawn
