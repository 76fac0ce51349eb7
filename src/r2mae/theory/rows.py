"""The kept rows: how many there are, and how their mask ratios are distributed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Float

Keep: TypeAlias = Literal["ratio"] | float


@runtime_checkable
class RatioLike(Protocol):
    """A distribution of mask ratios, such as ``r2mae.masking.Uniform(0.5, 0.6)``."""

    def nodes(self) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
        """Return ratios and weights that integrate over the distribution."""


@dataclass(frozen=True)
class KeptRows:
    """The training rows that masking leaves.

    Attributes
    ----------
    p, weight : array (k,)
        Quadrature of the ratio's distribution among kept rows; the weights sum to one.
    count : float
        Expected number ñ of kept rows.
    """

    p: Float[np.ndarray, " k"]
    weight: Float[np.ndarray, " k"]
    count: float

    @property
    def sigma(self) -> Float[np.ndarray, " k"]:
        """(1 − p)²: what a masked row's covariance has of Σ."""
        return (1 - self.p) ** 2

    @property
    def diagonal(self) -> Float[np.ndarray, " k"]:
        """p(1 − p): what it has of diag Σ."""
        return np.asarray(self.p * (1 - self.p))


def kept_rows(n: int, ratio: float | RatioLike, keep: Keep = "ratio") -> KeptRows:
    """Reweight a ratio's distribution by the probability that a row of that ratio is kept.

    Parameters
    ----------
    n : int
        Rows before masking.
    ratio : float or object with ``nodes()``
        Mask ratio in [0, 1).
    keep : "ratio" or float
        A row is kept with its own mask ratio as probability (the paper: the target must be hidden), or with a
        constant one.

    Returns
    -------
    KeptRows
        With a count of zero for ratio 0.

    Raises
    ------
    ValueError
        If n < 2 or a ratio is outside [0, 1).
    """
    check_rows(n)
    p, weight = nodes_of(ratio)
    share = p if keep == "ratio" else np.full(len(p), check_keep(keep))
    kept = weight * share
    total = float(kept.sum())
    if total == 0:
        return KeptRows(p, weight, 0.0)
    return KeptRows(p[kept > 0], kept[kept > 0] / total, n * total)


def nodes_of(ratio: float | RatioLike) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """Return a ratio's quadrature, or raise a ValueError that says why it is none."""
    if isinstance(ratio, RatioLike):
        p, weight = ratio.nodes()
        if (weight < 0).any() or not np.isclose(weight.sum(), 1.0):
            raise ValueError(f"ratio: the weights of nodes() must be positive and sum to 1, not {weight.sum():.6g}")
    else:
        p, weight = np.array([float(ratio)]), np.ones(1)
    if not ((p >= 0) & (p < 1)).all():
        raise ValueError(f"ratio must be at least 0 and below 1, not {p[~((p >= 0) & (p < 1))][0]:g}")
    return np.asarray(p, dtype=np.float64), np.asarray(weight, dtype=np.float64)


def ratios_of(ratio: "float | RatioLike | Sequence[float | RatioLike] | np.ndarray") -> list[float | RatioLike] | None:
    """Return the ratios of a curve, or None for a single one."""
    if isinstance(ratio, RatioLike) or np.ndim(ratio) == 0:  # type: ignore[arg-type]
        return None
    return [entry if isinstance(entry, RatioLike) else float(entry) for entry in ratio]  # type: ignore[union-attr]


def check_rows(n: int) -> int:
    """Return n, or raise a ValueError."""
    if not n >= 2:
        raise ValueError(f"n must be at least 2 rows, not {n}")
    return n


def check_keep(keep: Keep) -> float:
    """Return the constant probability of keeping a row, or raise a ValueError."""
    if isinstance(keep, str) or not 0 < keep <= 1:
        raise ValueError(f"keep must be 'ratio' or a probability above 0 and up to 1, not {keep!r}")
    return float(keep)
