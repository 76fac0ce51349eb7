"""How much the loss of a run jumps from step to step, beside what its trend and the mask ratio explain."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from sklearn.preprocessing import SplineTransformer

_SKIPPED = 0.2  # of the run, at its beginning: there the trend is too steep to be told from jumps
_KNOTS = 6
_LEAST = 50  # steps


class Fluctuation(NamedTuple):
    """Standard deviations of the loss of single steps, in units of the loss.

    Attributes
    ----------
    around_trend : float
        After a smooth curve of the step is removed.
    beside_ratio : float
        After a smooth curve of the step and a cubic of the step's mask ratio are removed together: what is left is the
        noise of batches and masks.
    """

    around_trend: float
    beside_ratio: float


def loss_fluctuation(loss: Float[np.ndarray, " steps"], ratio: Float[np.ndarray, " steps"]) -> Fluctuation:
    """Measure how much the training loss jumps (the paper remarks on it for ViT-MAE).

    The first fifth of the run is left out. The curve of the step is a cubic spline with six knots, fitted by least
    squares; deviations are corrected for the number of fitted coefficients.

    Parameters
    ----------
    loss, ratio : float ndarrays of shape (steps,)
        Training loss of every step, and its mask ratio (the mean, where every sample has its own).

    Raises
    ------
    ValueError
        If they are not finite, or fewer than 50 steps are left.
    """
    first = int(_SKIPPED * len(loss))
    loss, ratio = loss[first:], ratio[first:]
    if len(loss) < _LEAST:
        raise ValueError(f"{len(loss)} steps are left after the first fifth: fluctuation needs {_LEAST} or more")
    if not (np.isfinite(loss).all() and np.isfinite(ratio).all()):
        raise ValueError("losses and ratios must be finite")
    trend = SplineTransformer(n_knots=_KNOTS, degree=3).fit_transform(np.arange(len(loss))[:, None])
    spread = np.ptp(ratio)
    centred = (ratio - ratio.mean()) / spread if spread > 0 else np.zeros_like(ratio)
    return Fluctuation(
        _deviation(loss, trend), _deviation(loss, np.column_stack([trend, centred, centred**2, centred**3]))
    )


def _deviation(loss: Float[np.ndarray, " steps"], features: Float[np.ndarray, "steps k"]) -> float:
    """Return the standard deviation of what is left of the loss after a regression on features."""
    coefficients, _, rank, _ = np.linalg.lstsq(features, loss, rcond=1e-10)
    left = loss - features @ coefficients
    return float(np.sqrt(left @ left / (len(loss) - int(rank))))
