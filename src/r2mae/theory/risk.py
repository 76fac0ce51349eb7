"""Test risk of masked ridgeless regression in closed form, for any covariance and any distribution of ratios.

The asymptotic formula assumes Gaussian equivalence: only the first two moments of the masked rows matter. The paper
proves this for isotropic and spiked covariances and one mask a row. For general covariances, ranges of ratios and
several masks it is a conjecture, which simulations support (``paper/results/theory``, docs/theory/many-masks.md).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy.interpolate import PchipInterpolator

from r2mae.theory.assumptions import warn_interpolation, warn_localised_or_dominant
from r2mae.theory.checks import check_nonnegative
from r2mae.theory.copies import Copies, kept_copies
from r2mae.theory.covariance import Covariance, CovarianceLike, Uncentred, as_covariance, signal_columns
from r2mae.theory.equivalent import FixedPoint, dimensions, solve
from r2mae.theory.inputs import ZEROS, Inputs
from r2mae.theory.rows import Keep, RatioLike, ratios_of
from r2mae.theory.targets import Directions, Features, Signals, Target

Array = Float[np.ndarray, "..."]
Ratios = float | RatioLike | Sequence[float | RatioLike] | Float[np.ndarray, " p"]
_LOWEST_LOG_T, _HIGHEST_LOG_T = float(np.log(1e-9)), float(np.log(1e9))  # bounds of log t
_MAX_STEPS, _TOLERANCE = 60, 1e-13
_MOST_UNSEEN, _LEAST_UNSEEN = 17, 1e-9  # hidden variances computed; least probability that no copy shows an entry


@dataclass(frozen=True)
class Risk:
    """Risk curves. The first axis is the ratio (if several were given), the last the target (if several).

    Attributes
    ----------
    risk : array
        E‖b̂ − β‖²_Σ, the paper's test risk (for features: the total expected squared error); with entries missing in
        use, the expected squared error of predicting xβ from such a row.
    magnitude : array
        E‖x b̂‖², the size of predictions (Fig. 1D); of rows with entries missing, if they are in use.
    null : array
        βᵀΣβ, the risk of predicting zero.
    length : array
        ‖β‖², the paper's r² (for directions 1; for features the variance, as for `null`).
    rows : array
        Expected number ñ of kept rows over all masks, for each ratio.
    noise_gain : array
        E tr(Σ(X̃ᵀX̃)⁺) for one mask: risk per unit of noise variance, for each ratio.
    """

    risk: Array
    magnitude: Array
    null: Array
    length: Array
    rows: Array
    noise_gain: Array
    _variance: Callable[[], Array] = field(repr=False)

    @cached_property
    def variance(self) -> Array:
        """Lemma 1's variance, given all masked rows: from the noise, and from what no copy of a row shows."""
        return self._variance()

    @property
    def bias(self) -> Array:
        """Lemma 1's (squared) bias: risk − variance; NaN at ñ = d, where both are infinite."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.risk - self.variance)

    @property
    def normalised(self) -> Array:
        """Risk over the null risk: 1 is a prediction of zero.

        Raises
        ------
        ValueError
            If a null risk is zero.
        """
        if not np.all(self.null > 0):
            raise ValueError("beta has no variance under cov, so its null risk is zero: the risk cannot be normalised")
        return np.asarray(self.risk / self.null)

    @property
    def by_length(self) -> Array:
        """Risk over r² = ‖β‖², as in Theorem 1 and Corollary 1."""
        return np.asarray(self.risk / self.length)


def risk(
    cov: CovarianceLike,
    beta: ArrayLike,
    n: int,
    ratio: Ratios,
    noise: float = 0.0,
    *,
    ridge: float = 0.0,
    keep: Keep = "ratio",
    masks: float = 1,
    inputs: Inputs = ZEROS,
) -> Risk:
    """Return the test risk of masked ridgeless (or ridge) regression on y = xβ + ε.

    Parameters
    ----------
    cov : Covariance or array (d, d)
        Σ of the d features; a plain matrix is checked and used as :class:`Dense`.
    beta : array (d,) or (d, m)
        One signal, or several as columns.
    n : int
        Rows before masking.
    ratio : number, sequence, or distribution
        One mask ratio in [0, 1), several (a curve), or a distribution of ratios over rows, such as
        ``r2mae.masking.Uniform(0.5, 0.6)``. Ratio 0 keeps no rows, so that its risk is the null risk.
    noise : float
        Variance σ² of ε.
    ridge : float
        λ ≥ 0 of ‖ỹ − X̃b‖² + λ‖b‖², with the mean over the masks.
    keep : "ratio" or float
        Probability of keeping a row under a mask: its ratio (the paper), or a constant.
    masks : int or inf
        Number K of masks of each row: with K epochs of fresh masks, every row has K copies. A distribution of ratios
        gives each copy a ratio of its own.
    inputs : Inputs
        How hidden entries are filled, and what is missing in use.

    Returns
    -------
    Risk
        With arrays of shape (), (m,), (p,) or (p, m).

    Raises
    ------
    ValueError
        If an argument is out of range, lengths differ, a matrix is not a covariance, or fewer than one row is kept.
    ArithmeticError
        If double precision is insufficient: the ridge is tiny, and ñ is close to the number of dimensions of the data.

    Warns
    -----
    InterpolationWarning
        If ñ is within 5 % of d without a ridge; at ñ = d the risk is infinite for one mask.
    LocalisedWarning
        If β, or a spike of Σ, is concentrated on fewer than ten features (if d < 100, on fewer than a tenth of them).
    DominantWarning
        If one direction is known to have more than 5 % of Σ's variance (and five times the mean). Neither of these two
        for K = ∞.
    """
    cov = _covariance(cov, inputs)
    columns = signal_columns(cov, beta)
    if not columns.any(axis=0).all():
        raise ValueError("beta must not be zero: a zero signal cannot be learned")
    if masks < np.inf:  # then nothing is averaged over masks any more: the estimator is a ridge
        warn_localised_or_dominant(cov, columns, 2)
    length = (columns**2).sum(axis=0)
    return _risk_curve(
        cov, Signals(cov, columns), length, np.ndim(beta) == 2, n, ratio, noise, ridge, keep, masks, inputs
    )


def direction_risk(
    cov: CovarianceLike,
    n: int,
    ratio: Ratios,
    noise: float = 0.0,
    *,
    which: Int[np.ndarray, " m"] | None = None,
    ridge: float = 0.0,
    keep: Keep = "ratio",
    masks: float = 1,
    inputs: Inputs = ZEROS,
) -> Risk:
    """Return the risks for β = each unit eigenvector of Σ: all, or those with numbers in `which` (0: the largest).

    If diag Σ is constant, a ratio costs O(d); otherwise one factorisation and the products with the eigenvectors.
    Parameters and result are those of :func:`risk`, with m directions.
    """
    cov = _covariance(cov, inputs)
    indices = np.arange(cov.d) if which is None else which
    if ((indices < -cov.d) | (indices >= cov.d)).any():
        raise ValueError(f"which must have numbers below {cov.d}, the number of features, not {indices.max()}")
    target: Target
    if cov.common_diagonal is None or inputs.mean is not None:
        target = Signals(cov, np.ascontiguousarray(cov.eigenvectors(indices)))
    else:
        target = Directions(cov, indices)
    return _risk_curve(cov, target, np.ones(len(indices)), True, n, ratio, noise, ridge, keep, masks, inputs)


def feature_risk(
    cov: CovarianceLike,
    n: int,
    ratio: Ratios,
    *,
    ridge: float = 0.0,
    keep: Keep = "ratio",
    masks: float = 1,
    inputs: Inputs = ZEROS,
) -> Risk:
    """Return the expected squared error of predicting each feature from all the others.

    In the predicted rows only the target is hidden. A linear masked autoencoder solves this regression for every
    feature (the paper's Eq. 1 and "Reduced linear model"). Parameters and result are those of :func:`risk`, with m = d.
    """
    cov = _covariance(cov, inputs)
    return _risk_curve(cov, Features(cov), cov.variances, True, n, ratio, 0.0, ridge, keep, masks, inputs)


def _covariance(cov: CovarianceLike, inputs: Inputs) -> Covariance:
    plain = as_covariance(cov)
    return plain if inputs.mean is None else Uncentred(plain, inputs.mean)


def hidden_variance(cov: Covariance, target: Target, ratio: float) -> Float[np.ndarray, " m"]:
    """Return the variance of a target given the entries that a random mask keeps.

    The mask is given, too, so this is the w of Lemma 1, summed. For Haar eigenvectors it is ηt/(η + t) with t from
    tr Σ(Σ + t)⁻¹ = (1 − p)d; for a diagonal Σ it is p·βᵀΣβ; both are the case T = t·diag Σ used here.
    """
    t = 1e-9 if ratio == 0 else float(np.exp(_log_t(cov, ratio)))
    forms = target.forms(cov.resolvent(1.0, t, 0.0), 1.0, t, 0.0)
    return np.asarray(np.maximum(target.null - forms[0], 0.0))


def _log_t(cov: Covariance, ratio: float) -> float:
    """Return log t of :func:`hidden_variance`, by Newton's method within a bracket."""
    low, high, aim = _LOWEST_LOG_T, _HIGHEST_LOG_T, (1 - ratio) * cov.d
    if cov.resolvent(1.0, float(np.exp(low)), 0.0).traces().s < aim:
        return low  # if the rank of Σ is below (1 − p)d, the kept entries determine the hidden ones
    at = float(np.log(ratio / (1 - ratio)))  # the solution for Σ = I
    for _ in range(_MAX_STEPS):
        traces = cov.resolvent(1.0, float(np.exp(at)), 0.0).traces()
        gap = traces.s - aim
        low, high = (at, high) if gap > 0 else (low, at)
        step = gap / (float(np.exp(at)) * traces.sd)
        if abs(step) < _TOLERANCE * max(1.0, abs(at)):
            break
        at = at + step if low < at + step < high else (low + high) / 2
    return at


@dataclass(frozen=True)
class _Point:
    """The result for one ratio; its variance is computed on demand."""

    risk: Float[np.ndarray, " m"]
    magnitude: Float[np.ndarray, " m"]
    rows: float
    gain: float
    variance: Callable[[], Float[np.ndarray, " m"]]


def _risk_curve(
    cov: Covariance,
    target: Target,
    length: Float[np.ndarray, " m"],
    several: bool,
    n: int,
    ratio: Ratios,
    noise: float,
    ridge: float,
    keep: Keep,
    masks: float,
    inputs: Inputs,
) -> Risk:
    check_nonnegative(noise=noise, ridge=ridge)
    ratios = ratios_of(ratio)
    single = cast("float | RatioLike", ratio)
    copies = [kept_copies(n, entry, keep, masks, inputs) for entry in ([single] if ratios is None else ratios)]
    if ridge == 0:
        warn_interpolation([(entry.distinct, dimensions(cov, entry)) for entry in copies if entry.count > 0], 3)
    use = inputs.in_use()
    points = [_risk_at(cov, target, entry, noise, ridge, use) for entry in copies]

    def reshaped(values: Float[np.ndarray, "p m"]) -> Array:
        values = values if several else values[:, 0]
        return np.asarray(values[0] if ratios is None else values)

    def by_ratio(values: list[float]) -> Array:
        return np.asarray(values[0] if ratios is None else values)

    null = target.null
    return Risk(
        risk=reshaped(np.stack([point.risk for point in points])),
        magnitude=reshaped(np.stack([point.magnitude for point in points])),
        null=np.asarray(null if several else null[0]),
        length=np.asarray(length if several else length[0]),
        rows=by_ratio([point.rows for point in points]),
        noise_gain=by_ratio([point.gain for point in points]),
        _variance=lambda: reshaped(np.stack([point.variance() for point in points])),
    )


def _risk_at(
    cov: Covariance, target: Target, copies: Copies, noise: float, ridge: float, use: tuple[float, float, float]
) -> _Point:
    null = target.null
    if copies.count == 0:
        return _Point(null.copy(), np.zeros_like(null), 0.0, 0.0, lambda: np.zeros_like(null))
    if ridge == 0:
        size, rows = dimensions(cov, copies), copies.distinct
        if abs(rows - size) <= 1e-6 * size:
            infinite = np.full_like(null, np.inf)
            return _Point(infinite, infinite, copies.count, float("inf"), lambda: infinite)
        if isinstance(target, Features) and size < cov.d and size < rows:
            raise ValueError(
                f"cov is singular (of rank {size}) and nothing is hidden, so features are exact sums of others; "
                "give a small ridge"
            )
    solution = solve(cov, copies, ridge, use[:2])
    a, b = solution.terms.coefficients
    first, sigma, diagonal = target.forms(solution.resolvent, a, b, solution.c)
    shift: float | Float[np.ndarray, " m"] = 0.0
    if isinstance(cov, Uncentred):
        assert isinstance(target, Signals | Features)
        penalty, squared = copies.shifts
        across, own = target.mean_forms(solution.resolvent, cov.mean, a, b, solution.c)
        left = 1 / (1 + penalty * own[0])  # N loses penalty·left·NμμᵀN
        lost = penalty * left * across[0]
        first = first - lost * across[0]
        sigma, diagonal = (
            plain - 2 * lost * mixed + lost**2 * square
            for plain, mixed, square in zip((sigma, diagonal), across[1:], own[1:], strict=True)
        )
        shift = squared * (left * across[0]) ** 2
    s, gain = solution.terms.shrink, solution.noise_gain
    d_sigma, d_diagonal = np.array(use[:2]) + solution.d_coefficients
    magnitude = (
        (null + noise) * gain.sum()
        - 2 * s * solution.d_shrink * first
        + s * s * (d_sigma * sigma + d_diagonal * diagonal + shift)
    )
    total = magnitude - 2 * use[2] * s * first + null
    return _Point(total, magnitude, copies.count, float(gain.sum()), lambda: _variance(cov, target, solution, noise))


def _variance(cov: Covariance, target: Target, solution: FixedPoint, noise: float) -> Float[np.ndarray, " m"]:
    """Return Σ gain·(noise + hidden variance): at most 17 hidden variances are computed, the rest interpolated."""
    if isinstance(cov, Uncentred):
        cov = cov.centred
        assert isinstance(target, Signals | Features)
        target = replace(target, cov=cov)
    unseen = np.maximum(solution.copies.unseen, _LEAST_UNSEEN)
    at = np.unique(unseen)
    if len(at) > _MOST_UNSEEN:
        at = np.geomspace(at[0], at[-1] * (1 - 1e-12), _MOST_UNSEEN)
    values = np.stack([hidden_variance(cov, target, float(p) if p > _LEAST_UNSEEN else 0.0) for p in at])
    hidden = PchipInterpolator(np.log(at), values)(np.log(unseen)) if len(at) > 1 else values[[0] * len(unseen)]
    return np.asarray(solution.noise_gain @ (noise + hidden))
