"""Signals of the reproduced figures: eigenvectors by their number in the spectrum, spread over all features."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from r2mae.theory import Covariance, LowRank


def random_signals(d: int, count: int, seed: int = 0) -> Float[np.ndarray, "d count"]:
    """Return unit vectors with directions drawn uniformly."""
    drawn = np.random.default_rng([seed, 5]).standard_normal((d, count))
    return np.asarray(drawn / np.linalg.norm(drawn, axis=0))


def eigen_signals(cov: Covariance, places: Sequence[int], seed: int = 0) -> Float[np.ndarray, "d m"]:
    """Return unit eigenvectors by their number in the spectrum (0 for the largest eigenvalue).

    A low-rank model has many equal eigenvalues (its bulk), within which any direction is an eigenvector. A uniformly
    drawn one is used there, since one concentrated on a single feature would not average over masks.

    Parameters
    ----------
    cov : Covariance
    places : sequence of m ints
    seed : int
        Seed for the directions within a bulk.
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
