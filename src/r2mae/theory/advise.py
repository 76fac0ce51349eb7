"""Advice on the mask ratio of masked linear regression, from risk curves of directions and of features; its caveats."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from r2mae.theory.copies import check_masks
from r2mae.theory.covariance import Covariance, CovarianceLike, as_covariance
from r2mae.theory.inputs import ZEROS, Inputs
from r2mae.theory.risk import direction_risk, feature_risk
from r2mae.theory.rows import check_rows

_LEARNABLE = 0.05  # a target is learnable if its lowest normalised risk is below 1 by more than this
_PEAK = 0.05  # relative distance of n·p from d within which the divergence dominates the risk
_SEEN = 20  # a feature should differ from its usual value in at least this many rows
_SPARSE = 10.0  # kurtosis of a feature that differs from its usual value in about a tenth of the rows; Gaussian: 3


@dataclass(frozen=True, eq=False)
class Curves:
    """Normalised risk of m targets at P ratios: 1 is a prediction of zero.

    Attributes
    ----------
    ratios : array (P,)
    normalised : array (P, m)
        NaN at ratios where fewer than one row is kept, or n·K·p is within 5 % of d.
    variance : array (m,)
        Variance of each target.
    learnable : bool array (m,)
        Whether the lowest risk is more than 0.05 below 1.
    """

    ratios: Float[np.ndarray, " P"]
    normalised: Float[np.ndarray, "P m"]
    variance: Float[np.ndarray, " m"]
    learnable: Bool[np.ndarray, " m"]

    @property
    def best_ratio(self) -> Float[np.ndarray, " m"]:
        """Ratio of each target's lowest risk."""
        return np.asarray(self.ratios[np.nanargmin(self.normalised, axis=0)])

    @property
    def lowest(self) -> Float[np.ndarray, " m"]:
        """Lowest risk of each target."""
        return np.asarray(np.nanmin(self.normalised, axis=0))

    @property
    def mean(self) -> Float[np.ndarray, " P"]:
        """Unweighted mean over the targets."""
        return np.asarray(self.normalised.mean(axis=1))

    @property
    def weighted(self) -> Float[np.ndarray, " P"]:
        """Mean weighted by variance: over features, the loss of a masked autoencoder on unscaled data."""
        return np.asarray(self.normalised @ (self.variance / self.variance.sum()))

    @property
    def worst_excess(self) -> Float[np.ndarray, " P"]:
        """Largest risk of a learnable target above its own lowest: the cost of a mistuned ratio (zero if none is)."""
        return np.asarray((self.normalised - self.lowest)[:, self.learnable].max(axis=1, initial=0.0))

    def ratio_of_lowest(self, curve: Float[np.ndarray, " P"]) -> float:
        """Return the ratio at which a curve over `ratios` is lowest."""
        return float(self.ratios[int(np.nanargmin(curve))])


@dataclass(frozen=True, eq=False)
class Advice:
    """What the formula says of ratios.

    Attributes
    ----------
    n, d : int
        Rows before masking, and features.
    masks : float
        Number K of masks of each row; inf for many.
    inputs : Inputs
        How hidden entries are filled, and what is missing in use.
    peak : float or None
        The ratio d/(n·K) at which the ridgeless risk diverges (peaks, for K > 1), if it is below 1.
    directions : Curves
        y = x·vᵢ for the leading eigenvectors of Σ.
    features : Curves
        Each feature from all the others.
    share : float
        Fraction of the variance in the leading directions.
    """

    n: int
    d: int
    masks: float
    inputs: Inputs
    peak: float | None
    directions: Curves
    features: Curves
    share: float

    @property
    def ratio(self) -> float:
        """The ratio of the lowest variance-weighted risk of the features: the loss of a masked autoencoder."""
        return self.features.ratio_of_lowest(self.features.weighted)

    @property
    def as_good(self) -> tuple[float, float]:
        """The ratios around `ratio` whose weighted risk of the features is at most 5 % above the lowest."""
        curve, ratios = self.features.weighted, self.features.ratios
        lowest = int(np.nanargmin(curve))
        beyond = np.flatnonzero(~(curve <= 1.05 * curve[lowest]))
        place = int(np.searchsorted(beyond, lowest))
        ends = np.concatenate(([-1], beyond, [len(ratios)]))
        return float(ratios[ends[place] + 1]), float(ratios[ends[place + 1] - 1])


def advise(
    cov: CovarianceLike,
    n: int,
    *,
    directions: int = 20,
    ratios: Float[np.ndarray, " P"] | None = None,
    masks: float = 1,
    inputs: Inputs = ZEROS,
) -> Advice:
    """Return the risk of masked linear regression over the mask ratio, by the formula of :func:`~r2mae.theory.risk`.

    With one mask a row this is not advice for pretraining: it was wrong for the networks that were measured
    (docs/theory/advice.md). A network that is trained for E epochs has K = E masks a row.

    For K = ∞ a range has the risk of one fixed ratio, :func:`~r2mae.theory.effective_ratio`.

    Parameters
    ----------
    cov : Covariance or array (d, d)
        Σ. With a constant diagonal each ratio costs O(d²), otherwise some d × d factorisations.
    n : int
        Rows before masking.
    directions : int
        Number of leading eigen-directions; at most the rank of Σ.
    ratios : array (P,), optional
        Increasing, in (0, 1); by default 0.02, 0.04, …, 0.98.
    masks : int or inf
        Number K of masks of each row.
    inputs : Inputs
        How hidden entries are filled, and what is missing in use.

    Raises
    ------
    ValueError
        If an argument is out of range, or no ratio is usable.
    """
    check_rows(n)
    if directions < 1:
        raise ValueError(f"directions must be 1 or more, not {directions}")
    grid = np.arange(1, 50) / 50 if ratios is None else np.asarray(ratios, dtype=np.float64)
    if not len(grid) or not ((grid > 0) & (grid < 1)).all() or (np.diff(grid) <= 0).any():
        raise ValueError("ratios must be increasing numbers above 0 and below 1, at least one")
    cov = as_covariance(cov)
    rows = n * check_masks(masks)
    peak = cov.d / rows if cov.d < rows < math.inf else None
    usable = (rows * grid >= 1) & (np.abs(rows * grid / cov.d - 1) > _PEAK * (1 + 1e-9))
    if not usable.any():
        raise ValueError(f"ratios: the formula is valid at none of them with n = {n} rows and {cov.d} features")
    rank = int((cov.eigenvalues > 1e-10 * cov.eigenvalues[0]).sum())  # below d where data have fewer rows than features
    which = np.arange(min(directions, rank))

    def curves(values: Float[np.ndarray, "u m"], variance: Float[np.ndarray, " m"]) -> Curves:
        normalised = np.full((len(grid), values.shape[1]), np.nan)
        normalised[usable] = values
        return Curves(grid, normalised, variance, values.min(axis=0) < 1 - _LEARNABLE)

    at = grid[usable]
    of = direction_risk(cov, n, at, which=which, masks=masks, inputs=inputs)
    lead = curves(of.normalised, cov.eigenvalues[which])
    features = curves(feature_risk(cov, n, at, masks=masks, inputs=inputs).normalised, cov.diagonal)
    return Advice(
        n=n,
        d=cov.d,
        masks=masks,
        inputs=inputs,
        peak=peak,
        directions=lead,
        features=features,
        share=float(cov.eigenvalues[which].sum() / cov.diagonal.sum()),
    )


def caveats(x: Float[np.ndarray, "rows d"], cov: Covariance, n: int) -> tuple[bool, list[str]]:
    """Return whether such advice was right on data of this shape, and why it may be wrong, one sentence each.

    The formula assumes Gaussian rows (``paper/results/theory/realdata``). It was wrong where features hardly ever vary:
    with n > d the risk was 50 to 1,400 times the predicted one, and with n < d up to three features in ten had their
    best ratio elsewhere.

    Parameters
    ----------
    x : array (rows, d)
        The data, scaled as the covariance is; they need not be centred.
    cov : Covariance
        Their Σ.
    n : int
        Rows before masking.
    """
    centred, (rows, d) = x - x.mean(axis=0), x.shape
    fourth = np.einsum("ij,ij,ij,ij->j", centred, centred, centred, centred) / rows
    kurtosis = fourth / centred.var(axis=0) ** 2
    seen = np.where(kurtosis > _SPARSE, n / kurtosis, np.inf)  # rows in which a feature differs from its usual value
    least, allowed, wrong = (_SEEN, 0.0, "far larger risks") if n > d else (1, 0.05 * d, "errors of 10 % to 50 %")
    rare = int((seen < least).sum())
    norms = np.einsum("ij,ij->i", centred, centred)
    gaussian = 2 * (cov.eigenvalues**2).sum() / cov.eigenvalues.sum() ** 2
    spread = float(norms.var() / norms.mean() ** 2 / gaussian)
    notes = []
    if n > rows:
        notes.append(f"The risks are those of {n:,} rows; their covariance is estimated from the {rows:,} of the data.")
    if rare > allowed:
        notes.append(
            f"{rare:,} of {d:,} features hardly ever vary (they differ from their usual value in fewer than about "
            f"{least} of {n:,} rows): expect {wrong}, or take fewer features (the most variable)."
        )
    if spread > 3:
        much = "5 % to 15 %" if spread < 100 else "tens of percent"
        notes.append(
            f"The lengths of the rows vary {spread:,.0f} times as much as Gaussian ones would: in our trials the risks "
            f"of the leading directions were then off by {much}, mostly too low."
        )
    if rows < 2 * d:
        notes.append(f"Σ is estimated from {rows / d:.2g} rows a feature: only the leading directions are reliable.")
    return rare <= allowed, notes
