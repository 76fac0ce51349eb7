"""The Gaussian conditional mean: a baseline of imputation that is exact for every mask, and needs no training steps.

Samples are taken as normal, with mean μ and covariance Σ. Hidden entries h of a sample are then predicted from its kept
ones k by E[x_h | x_k] = μ_h + Σ_hk Σ_kk⁻¹ (x_k − μ_k): of all linear predictions the one of least squared error, for
each mask another one. Whatever fills in values should do better.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Float64
from scipy.linalg import cho_factor, cho_solve, eigh
from threadpoolctl import threadpool_limits

MAX_EXACT = 2048
"""Features up to which the covariance is formed; with more it has :data:`RANK` axes and one variance for the rest."""
RANK = 512
_MAX_ROWS = 4096  # samples that the axes of many features come from

Parts: TypeAlias = Callable[[], Iterable[np.ndarray]]
"""Returns samples in parts, from the first on in every call."""


@dataclass(frozen=True, eq=False)
class GaussianConditionalMean:
    """Fill in hidden entries by a Gaussian's conditional mean. Make one by :meth:`fit`.

    Parameters
    ----------
    mean : ndarray, shape (features,)
    axes : ndarray, shape (features, axes)
        Orthonormal.
    variances : ndarray, shape (axes,)
        Variance along each axis beyond `noise`.
    noise : float
        Variance along every direction; the covariance is axes · diag(variances) · axesᵀ + noise · 1.
    """

    mean: Float64[np.ndarray, " features"]
    axes: Float64[np.ndarray, "features axes"]
    variances: Float64[np.ndarray, " axes"]
    noise: float

    @classmethod
    def fit(cls, samples: np.ndarray | Parts) -> "GaussianConditionalMean":
        """Estimate mean and covariance.

        The covariance of up to :data:`MAX_EXACT` features is shrunk towards a multiple of the identity by the formula
        of Ledoit and Wolf (2004). With more features it is that of probabilistic principal components (Tipping and
        Bishop, 1999), of at most 4,096 samples, evenly spaced.

        Parameters
        ----------
        samples : ndarray, shape (samples, features), or callable
            A callable returns the samples in parts, arrays of shape (rows, features); it is called twice.

        Raises
        ------
        ValueError
            If there are fewer than two samples, or a value is not finite.
        """
        parts: Parts = samples if callable(samples) else lambda: [samples]
        count, total = 0, np.float64(0)
        for part in parts():
            count, total = count + len(part), total + part.sum(axis=0, dtype=np.float64)
        if count < 2 or not np.isfinite(total).all():
            raise ValueError(f"a covariance needs two or more samples without NaN or infinity; got {count}")
        mean = np.asarray(total / count, dtype=np.float64)
        if len(mean) > MAX_EXACT:
            return cls(mean, *_principal_components(parts(), mean, count))
        covariance, fourth = np.zeros((len(mean), len(mean))), 0.0
        for part in parts():
            centred = part - mean
            covariance += centred.T @ centred / count
            fourth += float((centred**2).sum(axis=1) @ (centred**2).sum(axis=1))
        scale = float(np.trace(covariance)) / len(mean)
        square = float((covariance**2).sum())
        spread = square - len(mean) * scale**2
        error = (fourth / count - square) / count
        shrinkage = float(np.clip(error / spread, 0.0, 1.0)) if spread > 0 else 1.0
        values, axes = eigh(covariance)
        floor = 1e-9 * scale or 1e-9  # a constant feature has no variance, and its own mean
        noise = max(shrinkage * scale, floor)
        return cls(mean, axes, np.maximum((1 - shrinkage) * values, 0.0), noise)

    @staticmethod
    def bytes_to_fit(samples: int, features: int) -> int:
        """Return the memory that :meth:`fit` and :meth:`fill` need, in bytes, besides that of the samples."""
        rows = min(samples, _MAX_ROWS) + RANK if features > MAX_EXACT else 5 * features
        return 2 * 8 * features * rows

    def fill(
        self, samples: Float[np.ndarray, "rows features"], hidden: Bool[np.ndarray, "*rows features"]
    ) -> Float64[np.ndarray, "rows features"]:
        """Return samples with their hidden entries predicted from the kept ones.

        Parameters
        ----------
        samples : ndarray, shape (rows, features)
            Values at hidden entries are not read.
        hidden : ndarray of bool, shape (rows, features) or (features,)
            True = hidden; one mask for each sample, or for all.
        """
        masks = hidden[None] if hidden.ndim == 1 else hidden
        if len(masks) > 1 and (masks == masks[0]).all():
            masks = masks[:1]
        filled = np.where(hidden, 0.0, samples.astype(np.float64) - self.mean)
        if len(masks) == 1:
            filled[:, masks[0]] = self._predict(filled, masks[0])
        else:
            with threadpool_limits(1, "blas"):  # threads of many small systems would wait for each other
                for row, mask in zip(filled, masks, strict=True):
                    row[mask] = self._predict(row[None], mask)[0]
        return np.asarray(filled + self.mean)

    def _predict(
        self, centred: Float64[np.ndarray, "rows features"], hidden: Bool[np.ndarray, " features"]
    ) -> Float64[np.ndarray, "rows hidden"]:
        """Return the conditional mean of hidden entries, minus their mean; it solves for the smaller part."""
        kept = ~hidden
        if not hidden.any() or not kept.any():
            return np.zeros((len(centred), int(hidden.sum())))
        values = centred[:, kept].T
        if self.axes.shape[1] < len(self.mean):
            few = kept if kept.sum() <= hidden.sum() else hidden
            inner = self.axes[few].T @ self.axes[few]
            if few is hidden:
                inner = np.eye(len(inner)) - inner  # the axes are orthonormal
            inner[np.diag_indices_from(inner)] += self.noise / self.variances
            return np.asarray((self.axes[hidden] @ _solve(inner, self.axes[kept].T @ values)).T)
        if kept.sum() <= hidden.sum():
            weights = _solve(self._covariance[np.ix_(kept, kept)], values)
            return np.asarray((self._covariance[np.ix_(hidden, kept)] @ weights).T)
        products = self._precision[np.ix_(hidden, kept)] @ values
        return np.asarray(-_solve(self._precision[np.ix_(hidden, hidden)], products).T)

    @cached_property
    def _covariance(self) -> Float64[np.ndarray, "features features"]:
        return np.asarray((self.axes * (self.variances + self.noise)) @ self.axes.T)

    @cached_property
    def _precision(self) -> Float64[np.ndarray, "features features"]:
        return np.asarray((self.axes / (self.variances + self.noise)) @ self.axes.T)


def _principal_components(
    parts: Iterable[Float[np.ndarray, "_ features"]], mean: Float64[np.ndarray, " features"], count: int
) -> tuple[Float64[np.ndarray, "features axes"], Float64[np.ndarray, " axes"], float]:
    """Return axes, their variances beyond the noise, and the noise, from the shorter side of a sample."""
    wanted, first, rows = np.unique(np.linspace(0, count - 1, min(count, _MAX_ROWS)).astype(int)), 0, []
    for part in parts:
        inside = wanted[(wanted >= first) & (wanted < first + len(part))] - first
        rows.append(part[inside] - mean)
        first += len(part)
    sample = np.concatenate(rows)
    values, vectors = eigh(sample @ sample.T / len(sample))
    values, vectors = values[::-1], vectors[:, ::-1]
    if values[0] <= 0:  # constant samples
        return np.eye(len(mean), 1), np.full(1, 1e-9), 1e-9
    rank = min(RANK, max(1, int((values > 1e-9 * values[0]).sum()) - 1))
    noise = float(max(values[rank:].sum() / (len(mean) - rank), 1e-9 * values[0]))
    axes = sample.T @ (vectors[:, :rank] / np.sqrt(values[:rank] * len(sample)))
    return axes, np.maximum(values[:rank] - noise, 1e-12 * values[0]), noise


def _solve(matrix: Float64[np.ndarray, "n n"], values: Float64[np.ndarray, "n rows"]) -> Float64[np.ndarray, "n rows"]:
    return np.asarray(cho_solve(cho_factor(matrix, check_finite=False), values, check_finite=False))
