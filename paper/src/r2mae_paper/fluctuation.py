"""Fluctuation of a run's loss from step to step that its trend and the mask ratio do not explain."""

import numpy as np
from jaxtyping import Float
from sklearn.preprocessing import SplineTransformer

_SKIPPED_FRACTION = 0.2  # the beginning of the run, where the trend is too steep to separate from fluctuation
_KNOTS = 6
_MIN_STEPS = 50  # steps


def loss_fluctuation(loss: Float[np.ndarray, " steps"], ratio: Float[np.ndarray, " steps"]) -> tuple[float, float]:
    """Measure the fluctuation of the training loss (which the paper mentions for ViT-MAE).

    `ratio` is the mask ratio of each step, or the mean where every sample has its own. The first fifth of the run is
    omitted. The curve of the step is a cubic spline with six knots, fitted by least squares; deviations are corrected
    for the number of fitted coefficients.

    Returned are the standard deviations of the loss of single steps around a smooth curve of the step; and around the
    sum of such a curve and a cubic of the step's mask ratio, fitted jointly, which is the noise of batches and masks.
    """
    first = int(_SKIPPED_FRACTION * len(loss))
    loss, ratio = loss[first:], ratio[first:]
    if len(loss) < _MIN_STEPS:
        raise ValueError(f"{len(loss)} steps remain after the first fifth: fluctuation needs {_MIN_STEPS} or more")
    if not (np.isfinite(loss).all() and np.isfinite(ratio).all()):
        raise ValueError("losses and ratios must be finite")
    trend = SplineTransformer(n_knots=_KNOTS, degree=3).fit_transform(np.arange(len(loss))[:, None])
    spread = np.ptp(ratio)
    centred = (ratio - ratio.mean()) / spread if spread > 0 else np.zeros_like(ratio)
    with_ratio = np.column_stack([trend, centred, centred**2, centred**3])
    return _residual_deviation(loss, trend), _residual_deviation(loss, with_ratio)


def _residual_deviation(loss: Float[np.ndarray, " steps"], features: Float[np.ndarray, "steps k"]) -> float:
    """Return the standard deviation of the residuals of a regression of the loss on features."""
    coefficients, _, rank, _ = np.linalg.lstsq(features, loss, rcond=1e-10)
    residuals = loss - features @ coefficients
    return float(np.sqrt(residuals @ residuals / (len(loss) - int(rank))))
