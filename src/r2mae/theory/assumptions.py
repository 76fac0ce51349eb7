"""Warnings for inputs that violate assumptions of the closed forms, for the assumptions that are cheap to check."""

import warnings
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from r2mae.theory.covariance import Covariance, LowRank

_NEAR_PEAK = 0.05  # relative distance of ñ from d within which finite samples blur the peak
_MIN_SPREAD = 10.0  # least number of entries that a direction should be spread over (or a tenth of all entries)
_MIN_FEATURES = 20  # no warnings below: averaging over masks never works for fewer features
_MAX_SHARE = 0.05  # largest fraction of the variance that one direction should hold
_DOMINANT_MULTIPLE = 5.0  # a dominant eigenvalue is also above this multiple of the mean one (matters where d < 100)


class InterpolationWarning(UserWarning):
    """The number of kept rows is close to the number of features, where ridgeless risk diverges."""


class LocalisedWarning(UserWarning):
    """A direction is concentrated on a few features, where the formula's averaging over masks fails."""


class DominantWarning(UserWarning):
    """One direction has much of the variance: rows differ in length, and so does the noise from masking."""


def warn_interpolation(counts: Sequence[tuple[float, int]], stacklevel: int) -> None:
    """Warn once if any ñ is within 5 % of the number of dimensions; call this only if there is no ridge.

    `counts` has both for each ratio; the dimensions are d, or the rank of Σ if nothing is hidden. `stacklevel` is that
    of the user's call, as seen from the caller of this function.
    """
    near = [(count, size) for count, size in counts if abs(count / size - 1) < _NEAR_PEAK]
    if near:
        count, size = near[0]
        warnings.warn(
            f"n·E[p] = {count:.6g} kept rows are within {_NEAR_PEAK:.0%} of the {size} dimensions: the ridgeless risk "
            "diverges where they are equal, and finite samples blur that peak; use a ridge, or another n or ratio",
            InterpolationWarning,
            stacklevel=stacklevel + 1,
        )


def warn_localised_or_dominant(cov: Covariance, beta: Float[np.ndarray, "d m"], stacklevel: int) -> None:
    """Warn once for each of: a localised signal, a localised spike, a dominant direction. No warnings if d < 20.

    The largest eigenvalue is used only if it is cheap (:attr:`Covariance.leading`).
    """
    if cov.d < _MIN_FEATURES:
        return
    least = min(_MIN_SPREAD, cov.d / 10)
    spreads = {"beta": _participation_number(beta)}
    if isinstance(cov, LowRank):
        spreads["a spike of the covariance"] = _participation_number(cov.factor)
    for name, spread in spreads.items():
        if spread < least:
            warnings.warn(
                f"{name} is concentrated on about {spread:.1f} of {cov.d} features: the formula averages over masks, "
                f"which needs at least {least:.0f}; compare with simulate()",
                LocalisedWarning,
                stacklevel=stacklevel + 1,
            )
    share = 0.0 if cov.leading is None else cov.leading / float(cov.diagonal.sum())
    if share > max(_MAX_SHARE, _DOMINANT_MULTIPLE / cov.d):
        warnings.warn(
            f"one direction of the covariance has {share:.0%} of the variance: rows then differ in size, which the "
            "formula ignores: with few masks a row it may be off by half along this direction at low ratios, and by "
            "15 % for others at high ones; compare with simulate(), or use masks=inf",
            DominantWarning,
            stacklevel=stacklevel + 1,
        )


def _participation_number(vectors: Float[np.ndarray, "d m"]) -> float:
    """Return ‖v‖₂⁴/‖v‖₄⁴ of the most localised column: the number of entries if they are equal (Assumption 1)."""
    largest = np.abs(vectors).max(axis=0)
    scaled = vectors[:, largest > 0] / largest[largest > 0]
    return float(((scaled**2).sum(axis=0) ** 2 / (scaled**4).sum(axis=0)).min(initial=np.inf))
