"""`MaskedRidgeless`: the reduced linear model as a scikit-learn regressor."""

from numbers import Integral, Real
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from r2mae.theory.masked import Uniforms, kept_row_indices, masked_rows, minimum_norm
from r2mae.theory.rows import ratios_of_rows


class MaskedRidgeless(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Minimum-norm least squares on randomly masked rows (the paper's "Reduced linear model", section 3).

    Row i has a mask ratio pᵢ, is kept with probability pᵢ, and each of its entries is hidden with probability pᵢ.
    Predictions are for unmasked rows. Features are not scaled.

    Parameters
    ----------
    ratio : float in [0, 1), or object with ``nodes()``
        Mask ratio; with a distribution each row draws its own ratio (R²MAE). If no row is kept, as with 0, predictions
        are the mean.
    ridge : float
        λ ≥ 0; zero means the ridgeless limit.
    repetitions : int
        Number of independent masks, whose coefficients are averaged.
    fit_intercept : bool
        Centre features and target before masking, so that a hidden entry has the mean of its feature.
    keep : "ratio" or float
        Probability of keeping a row: its mask ratio, or this constant in (0, 1].
    random_state : int, RandomState or None
        Seed or generator for masks and kept rows.

    Attributes
    ----------
    coef_ : array (d,) or (targets, d)
        Coefficients.
    intercept_ : float or array (targets,)
        Prediction at zero.
    n_rows_ : float
        Mean number ñ of kept rows over the repetitions.
    n_features_in_ : int
        d.
    """

    def __init__(
        self,
        ratio: Any = 0.5,  # by scikit-learn's convention fit checks the parameters, so any type is accepted here
        *,
        ridge: Any = 0.0,
        repetitions: Any = 1,
        fit_intercept: Any = True,
        keep: Any = "ratio",
        random_state: Any = None,
    ) -> None:
        self.ratio = ratio
        self.ridge = ridge
        self.repetitions = repetitions
        self.fit_intercept = fit_intercept
        self.keep = keep
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.regressor_tags.poor_score = True  # with half of few features hidden, the score is below the checks'
        return tags

    def fit(self, X: Any, y: Any) -> "MaskedRidgeless":
        """Mask the rows and fit.

        Parameters
        ----------
        X : array-like (n, d)
            Features.
        y : array-like (n,) or (n, targets)
            Target.

        Raises
        ------
        ValueError
            If a parameter is out of range, or X and y have different lengths.
        """
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        if not (isinstance(self.ridge, Real) and 0 <= float(self.ridge) < np.inf):
            raise ValueError(f"ridge must be a finite number of 0 or more, not {self.ridge!r}")
        if not (isinstance(self.repetitions, Integral) and int(self.repetitions) >= 1):
            raise ValueError(f"repetitions must be 1 or more, not {self.repetitions!r}")
        y = y.astype(np.float64)
        centre, level = (X.mean(axis=0), y.mean(axis=0)) if self.fit_intercept else (np.zeros(X.shape[1]), 0.0 * y[0])
        coefficients, self.n_rows_ = self._masked_fits(X - centre, y - level)
        self.coef_ = coefficients.T
        intercept = level - centre @ coefficients
        self.intercept_ = float(intercept) if y.ndim == 1 else intercept
        return self

    def _masked_fits(
        self, X: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n *targets"]
    ) -> tuple[Float[np.ndarray, "d *targets"], float]:
        """Return the mean coefficients and the mean number of kept rows."""
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        fits, counts = [], []
        for repetition in range(self.repetitions):
            u = Uniforms.draw(X.shape[0], X.shape[1], seed, repetition)
            p = ratios_of_rows(self.ratio, u.ratio)
            rows = kept_row_indices(p, u, self.keep)
            fits.append(minimum_norm(masked_rows(X, u.entries, p, rows), y[rows], float(self.ridge)))
            counts.append(len(rows))
        return np.mean(fits, axis=0), float(np.mean(counts))

    def predict(self, X: Any) -> np.ndarray:
        """Return Xb̂ + intercept, of shape (n,) or (n, targets)."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray(X @ self.coef_.T + self.intercept_)
