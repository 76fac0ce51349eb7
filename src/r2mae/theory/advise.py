"""Advice on the mask ratio of masked linear regression, from risk curves of directions and of features."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from r2mae.theory.covariance import CovarianceLike, as_covariance
from r2mae.theory.ranges import Range
from r2mae.theory.risk import direction_risk, feature_risk
from r2mae.theory.rows import RatioLike, check_rows

PEAK = 0.05  # relative distance of n·p from d within which the divergence dominates the risk


@dataclass(frozen=True, eq=False)
class Curves:
    """Normalised risk of m targets at P ratios: 1 is a prediction of zero.

    Attributes
    ----------
    ratios : array (P,)
    normalised : array (P, m)
        NaN at ratios that are not usable.
    variance : array (m,)
        Variance of each target.
    learnable : bool array (m,)
        Whether the lowest risk is more than the tolerance below 1.
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
    def excess(self) -> Float[np.ndarray, "P m"]:
        """Risk above the target's lowest: the cost of a mistuned ratio."""
        return np.asarray(self.normalised - self.lowest)

    @property
    def mean(self) -> Float[np.ndarray, " P"]:
        """Unweighted mean over the targets."""
        return np.asarray(self.normalised.mean(axis=1))

    @property
    def weighted(self) -> Float[np.ndarray, " P"]:
        """Mean weighted by variance: over features, the loss of a masked autoencoder on unscaled data."""
        return np.asarray(self.normalised @ (self.variance / self.variance.sum()))

    @property
    def mean_excess(self) -> Float[np.ndarray, " P"]:
        """Mean excess over the learnable targets (zero if there are none)."""
        return np.asarray(self.excess[:, self.learnable].sum(axis=1) / max(1, int(self.learnable.sum())))

    @property
    def worst_excess(self) -> Float[np.ndarray, " P"]:
        """Largest excess over the learnable targets (zero if there are none)."""
        return np.asarray(self.excess[:, self.learnable].max(axis=1, initial=0.0))

    def quantiles(self, levels: Float[np.ndarray, " q"]) -> Float[np.ndarray, "q P"]:
        """Return quantiles over the targets at each ratio."""
        return np.asarray(np.quantile(self.normalised, levels, axis=1))

    def ratio_of_lowest(self, curve: Float[np.ndarray, " P"]) -> float:
        """Return the ratio at which a curve over `ratios` is lowest."""
        return float(self.ratios[int(np.nanargmin(curve))])


@dataclass(frozen=True)
class Stakes:
    """An average risk for several ways of choosing the ratio.

    Attributes
    ----------
    best_ratio, best : float
        The best fixed ratio for this average, and its risk.
    blind : float
        Expected risk of one fixed ratio, drawn from the range for the complete run.
    blind_worst : float
        Largest risk of any ratio in the range.
    drawn : float
        Risk if each row draws its own ratio from the range (R²MAE in the linear model).
    """

    best_ratio: float
    best: float
    blind: float
    blind_worst: float
    drawn: float


@dataclass(frozen=True, eq=False)
class Advice:
    """The formula's advice on the ratio.

    Attributes
    ----------
    n, d : int
        Rows before masking, and features.
    tolerance : float
        Excess normalised risk that counts as zero.
    ridge : float
        λ.
    ratios : array (P,)
    usable : bool array (P,)
        False if fewer than one row is kept, or if n·p is within 5 % of d without a ridge.
    peak : float or None
        The ratio d/n at which the ridgeless risk diverges, if it is below 1.
    directions : Curves
        y = x·vᵢ for the leading eigenvectors of Σ.
    features : Curves
        Each feature from all the others.
    share : float
        Fraction of the variance in the leading directions.
    within : bool array (P,)
        Ratios at which no learnable direction is more than `tolerance` above its own best.
    minimax, minimax_ratio : float
        The smallest tolerance for which `within` is true at some ratio, and that ratio (the minimax regret).
    allowed : float
        Worst excess that the suggested range allows: max(tolerance, minimax + tolerance/2).
    suggested : Range or None
        For linear regression: the ratios around `minimax_ratio` whose worst excess is at most `allowed`; None if no
        direction is learnable.
    direction_stakes, feature_stakes : Stakes or None
        Unweighted mean over the leading directions, and variance-weighted mean over the features.
    """

    n: int
    d: int
    tolerance: float
    ridge: float
    ratios: Float[np.ndarray, " P"]
    usable: Bool[np.ndarray, " P"]
    peak: float | None
    directions: Curves
    features: Curves
    share: float
    within: Bool[np.ndarray, " P"]
    minimax: float
    minimax_ratio: float
    allowed: float
    suggested: Range | None
    direction_stakes: Stakes | None
    feature_stakes: Stakes | None


def advise(
    cov: CovarianceLike,
    n: int,
    *,
    directions: int = 20,
    tolerance: float = 0.05,
    ratios: Float[np.ndarray, " P"] | None = None,
    ridge: float = 0.0,
) -> Advice:
    """Recommend mask ratios for masked linear regression, by the formula of :func:`~r2mae.theory.risk`.

    This is not advice for pretraining: it was wrong for the deep model that was measured (docs/theory/advice.md).

    By the formula, the best range for one direction, or for one weighted average, is the single best fixed ratio. A
    range helps only if the best ratio is unknown. The suggested range is therefore compared with a fixed ratio drawn
    from the same range, and with the best fixed ratio.

    Parameters
    ----------
    cov : Covariance or array (d, d)
        Σ. With a constant diagonal each ratio costs O(d²), otherwise some d × d factorisations.
    n : int
        Rows before masking.
    directions : int
        Number of leading eigen-directions; at most the rank of Σ.
    tolerance : float
        Excess normalised risk that counts as zero, above 0 and below 1. A target is learnable if its lowest risk is
        below 1 by more than this.
    ratios : array (P,), optional
        Increasing, in (0, 1); by default 0.02, 0.04, …, 0.98.
    ridge : float
        λ ≥ 0.

    Raises
    ------
    ValueError
        If an argument is out of range, or no ratio is usable.
    """
    cov = as_covariance(cov)
    grid = _checked_ratios(n, directions, tolerance, ratios)
    peak = cov.d / n if cov.d < n and ridge == 0 else None
    rows = n * grid
    usable = rows >= 1
    if ridge == 0:
        usable &= np.abs(rows / cov.d - 1) > PEAK * (1 + 1e-9)
    if not usable.any():
        raise ValueError(f"ratios: the formula is valid at none of them with n = {n} rows and {cov.d} features")
    rank = int((cov.eigenvalues > 1e-10 * cov.eigenvalues[0]).sum())  # below d where data have fewer rows than features
    which = np.arange(min(directions, rank))

    def measure(chosen: list[float | RatioLike]) -> tuple[Float[np.ndarray, "p m"], Float[np.ndarray, "p d"]]:
        by_direction = direction_risk(cov, n, chosen, which=which, ridge=ridge).normalised
        return by_direction, feature_risk(cov, n, chosen, ridge=ridge).normalised

    values = measure(list(grid[usable]))
    nulls = (cov.eigenvalues[which], cov.diagonal)
    both = [_curves(grid, usable, one, null, tolerance) for one, null in zip(values, nulls, strict=True)]
    lead, features = both
    worst = np.where(usable, lead.worst_excess, np.inf)
    lowest = int(np.argmin(worst))
    minimax = float(worst[lowest])
    allowed = max(tolerance, minimax + tolerance / 2)
    suggested: Range | None = None
    stakes: list[Stakes | None] = [None, None]
    if lead.learnable.any():
        suggested = _range_around(grid, worst <= allowed, lowest, peak)
        nodes, weight = suggested.nodes()
        at, of = measure([*nodes, suggested])
        means = (at.mean(axis=1), of @ (cov.diagonal / cov.diagonal.sum()))
        curves = (lead.mean, features.weighted)
        stakes = [_compare_choices(grid, curve, nodes, mean, weight) for curve, mean in zip(curves, means, strict=True)]
    return Advice(
        n=n,
        d=cov.d,
        tolerance=tolerance,
        ridge=ridge,
        ratios=grid,
        usable=usable,
        peak=peak,
        directions=lead,
        features=features,
        share=float(cov.eigenvalues[which].sum() / cov.diagonal.sum()),
        within=worst <= tolerance,
        minimax=minimax,
        minimax_ratio=float(grid[lowest]),
        allowed=allowed,
        suggested=suggested,
        direction_stakes=stakes[0],
        feature_stakes=stakes[1],
    )


def _curves(
    ratios: Float[np.ndarray, " P"],
    usable: Bool[np.ndarray, " P"],
    values: Float[np.ndarray, "u m"],
    variance: Float[np.ndarray, " m"],
    tolerance: float,
) -> Curves:
    normalised = np.full((len(ratios), values.shape[1]), np.nan)
    normalised[usable] = values
    return Curves(ratios, normalised, variance, values.min(axis=0) < 1 - tolerance)


def _range_around(
    ratios: Float[np.ndarray, " P"], fine: Bool[np.ndarray, " P"], index: int, peak: float | None
) -> Range:
    """Return the range of consecutive ratios around `index` for which `fine` is true; it never crosses the peak."""
    if peak is not None:
        fine = fine & ((ratios > peak) == (ratios[index] > peak))
    low = high = index
    while low > 0 and fine[low - 1]:
        low -= 1
    while high + 1 < len(ratios) and fine[high + 1]:
        high += 1
    return Range(float(ratios[low]), float(ratios[high]))


def _compare_choices(
    ratios: Float[np.ndarray, " P"],
    curve: Float[np.ndarray, " P"],
    nodes: Float[np.ndarray, " k"],
    means: Float[np.ndarray, " k1"],
    weight: Float[np.ndarray, " k"],
) -> Stakes:
    """Compare the best fixed ratio, one drawn blindly (the nodes), and one per row (the last of `means`)."""
    at, risks = np.append(ratios, nodes), np.append(curve, means[:-1])
    best = int(np.nanargmin(risks))
    return Stakes(
        best_ratio=float(at[best]),
        best=float(risks[best]),
        blind=float(weight @ means[:-1]),
        blind_worst=float(means[:-1].max()),
        drawn=float(means[-1]),
    )


def _checked_ratios(
    n: int, directions: int, tolerance: float, ratios: Float[np.ndarray, " P"] | None
) -> Float[np.ndarray, " P"]:
    check_rows(n)
    if directions < 1:
        raise ValueError(f"directions must be 1 or more, not {directions}")
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance must be above 0 and below 1, not {tolerance:g}")
    if ratios is None:
        return np.arange(1, 50) / 50
    grid = np.asarray(ratios, dtype=np.float64)
    if not len(grid) or not ((grid > 0) & (grid < 1)).all() or (np.diff(grid) <= 0).any():
        raise ValueError("ratios must be increasing numbers above 0 and below 1, at least one")
    return grid
