"""The rows kept for training: their expected number, and the distribution of their mask ratios."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float


@runtime_checkable
class RatioLike(Protocol):
    """A distribution of mask ratios, such as ``r2mae.masking.Uniform(0.5, 0.6)`` or any ``r2mae.masking.Ratio``."""

    def nodes(self) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
        """Return ratios and weights that integrate over the distribution."""

    def quantile(self, u: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Map uniform numbers in [0, 1) to ratios."""


@runtime_checkable
class KeepRule(Protocol):
    """A user's rule for which rows are kept."""

    def kept(
        self, p: Float[np.ndarray, "*n"], ratio_uniform: Float[np.ndarray, "*n"], keep_uniform: Float[np.ndarray, "*n"]
    ) -> Bool[np.ndarray, "*n"]:
        """Return which rows are kept, given their ratios, the uniform numbers of the ratios, and a further number."""


Keep: TypeAlias = Literal["ratio"] | float | KeepRule
_GRID = 400  # grid points per axis for integrating over the two uniform numbers of a rule


@dataclass(frozen=True)
class KeptRows:
    """The training rows that are kept.

    Attributes
    ----------
    p, weight : array (k,)
        Quadrature of the ratio's distribution among kept rows; the weights sum to one.
    share : float
        Probability that a row is kept under one mask.
    count : float
        Expected number ñ of kept rows over all masks.
    """

    p: Float[np.ndarray, " k"]
    weight: Float[np.ndarray, " k"]
    share: float
    count: float


def kept_rows(n: int, ratio: float | RatioLike, keep: Keep = "ratio", masks: float = 1) -> KeptRows:
    """Reweight a ratio's distribution by the probability that a row of that ratio is kept.

    Parameters
    ----------
    n : int
        Rows before masking.
    ratio : float or distribution
        Mask ratio in [0, 1).
    keep : "ratio", float or KeepRule
        Probability of keeping a row: its mask ratio (the paper: the target must be hidden), or a constant; or a rule,
        which is integrated over its two uniform numbers.
    masks : float
        Number K of masks of each row, or inf.

    Returns
    -------
    KeptRows
        For ratio 0 its count is zero.

    Raises
    ------
    ValueError
        If n < 2, a ratio is outside [0, 1), or the expected number of kept rows is above 0 and below 1.
    """
    check_rows(n)
    p, weight = nodes_of(ratio)
    if isinstance(keep, KeepRule):
        p, weight, share = _integrate_rule(ratio, keep)
    else:
        share = p if keep == "ratio" else np.full(len(p), check_keep(keep))
    kept = weight * share
    total = float(kept.sum())
    if total == 0:
        return KeptRows(p, weight, 0.0, 0.0)
    count = n * masks * total
    if count < 1 - 1e-9:
        raise ValueError(f"ratio: too few kept rows: n·p = {count:.3g} for {ratio}; expect at least 1")
    return KeptRows(p[kept > 0], kept[kept > 0] / total, total, count)


def nodes_of(ratio: float | RatioLike, name: str = "ratio") -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """Return the quadrature of a ratio, or raise a ValueError that says why it is invalid."""
    if isinstance(ratio, RatioLike):
        p, weight = map(np.asarray, ratio.nodes())
        if len(p) != len(weight) or not len(p):
            raise ValueError(f"{name}: nodes() must return as many weights as ratios, not {len(weight)} for {len(p)}")
        if (weight < 0).any() or not np.isclose(weight.sum(), 1.0):
            raise ValueError(f"{name}: the weights of nodes() must be positive and sum to 1, not {weight.sum():.6g}")
    else:
        p, weight = np.array([_ratio_number(ratio, name)]), np.ones(1)
    if not ((p >= 0) & (p < 1)).all():
        raise ValueError(f"{name} must be at least 0 and below 1, not {p[~((p >= 0) & (p < 1))][0]:g}")
    return np.asarray(p, dtype=np.float64), np.asarray(weight, dtype=np.float64)


def ratios_of(ratio: "float | RatioLike | Sequence[float | RatioLike] | np.ndarray") -> list[float | RatioLike] | None:
    """Return the ratios of a curve as a list, or None for a single ratio; raise a ValueError for an empty list."""
    if isinstance(ratio, RatioLike) or np.ndim(ratio) == 0:  # type: ignore[arg-type]
        return None
    ratios = [entry if isinstance(entry, RatioLike) else _ratio_number(entry) for entry in ratio]  # type: ignore[union-attr]
    if not ratios:
        raise ValueError("ratios must contain at least one ratio")
    return ratios


def _ratio_number(ratio: object, name: str = "ratio") -> float:
    try:
        return float(ratio)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} must be a number or an object with nodes() and quantile(), such as an r2mae.masking.Ratio, "
            f"not {ratio!r:.100}"
        ) from None


def check_rows(n: int) -> None:
    """Raise a ValueError for fewer than two rows."""
    if not n >= 2:
        raise ValueError(f"n must be at least 2 rows, not {n}")


def ratios_of_rows(ratio: float | RatioLike, u: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Convert uniform numbers to one mask ratio per row (the paper's R²MAE in the linear model).

    Parameters
    ----------
    ratio : float or distribution
        A number is the ratio of every row. A distribution is sampled by its method ``quantile(u)``.
    u : array (n,)
        Uniform numbers in [0, 1).

    Returns
    -------
    array (n,)

    Raises
    ------
    ValueError
        If a ratio is outside [0, 1).
    """
    p, _ = nodes_of(ratio)
    if not isinstance(ratio, RatioLike):
        return np.full_like(u, p[0])
    drawn = np.asarray(ratio.quantile(u), dtype=np.float64)
    if drawn.shape != u.shape or not ((drawn >= 0) & (drawn < 1)).all():
        raise ValueError("ratio: quantile(u) must return a ratio of at least 0 and below 1 for each number in u")
    return drawn


def _integrate_rule(ratio: float | RatioLike, rule: KeepRule) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ratios, weights, and the fraction of rows that the rule keeps, integrated by the midpoint rule."""
    u = (np.arange(_GRID) + 0.5) / _GRID
    p = ratios_of_rows(ratio, u)
    square = np.broadcast_to(p[:, None], (_GRID, _GRID)), np.broadcast_to(u[:, None], (_GRID, _GRID))
    kept = rule.kept(*square, np.broadcast_to(u, (_GRID, _GRID)))
    return p, np.full(_GRID, 1 / _GRID), kept.mean(axis=1)


def check_keep(keep: object) -> float:
    """Return the constant probability of keeping a row, or raise a ValueError."""
    if not isinstance(keep, int | float) or not 0 < keep <= 1:
        raise ValueError(f"keep must be 'ratio' or a probability above 0 and up to 1, not {keep!r}")
    return float(keep)
