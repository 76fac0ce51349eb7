"""The Gaussian conditional mean: a baseline of imputation that is exact for every mask, and needs no training steps.

Samples are taken as normal, with mean μ and covariance Σ. Hidden entries h of a sample are then predicted from its kept
ones k by E[x_h | x_k] = μ_h + Σ_hk Σ_kk⁻¹ (x_k − μ_k): of all linear predictions the one of least squared error, for
each mask another one. Whatever fills in values should do better.

Mean and covariance are those of complete samples (:meth:`GaussianConditionalMean.fit`), or of samples with missing
entries, by expectation-maximisation (:meth:`GaussianConditionalMean.fit_missing`).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from scipy.linalg import cho_factor, cho_solve, eigh
from threadpoolctl import threadpool_limits
from torch import Tensor

MAX_EXACT = 2048
"""Features up to which the covariance is formed; with more it has :data:`RANK` axes and one variance for the rest."""
RANK = 512
MAX_MISSING = 300
"""Features up to which :meth:`GaussianConditionalMean.fit_missing` estimates a full covariance; beyond, factors."""
FACTORS = 32
_MAX_ROWS = 4096  # samples that the axes of many features come from
_AT_ONCE = 2**21  # entries of the systems that are solved at once

Parts: TypeAlias = Callable[[], Iterable[np.ndarray]]
"""Returns samples in parts, from the first on in every call."""


@dataclass(frozen=True, eq=False)
class GaussianConditionalMean:
    """Fill in hidden entries by a Gaussian's conditional mean. Make one by :meth:`fit` or :meth:`fit_missing`.

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
        return cls._of_covariance(mean, covariance, shrinkage, scale)

    @classmethod
    def _of_covariance(
        cls,
        mean: Float64[np.ndarray, " features"],
        covariance: Float64[np.ndarray, "features features"],
        shrinkage: float,
        scale: float,
    ) -> "GaussianConditionalMean":
        """Return the Gaussian of the covariance (1 − shrinkage) · covariance + shrinkage · scale · 1."""
        values, axes = eigh(covariance)
        floor = 1e-9 * scale or 1e-9  # a constant feature has no variance, and its own mean
        noise = max(shrinkage * scale, floor)
        return cls(mean, axes, np.maximum((1 - shrinkage) * values, 0.0), noise)

    @classmethod
    def fit_missing(
        cls,
        samples: Float[np.ndarray, "samples features"],
        *,
        prior: float | None = None,
        max_iter: int = 100,
        tolerance: float = 1e-3,
        start: "GaussianConditionalMean | None" = None,
    ) -> "GaussianConditionalMean":
        """Estimate mean and covariance of samples with missing entries, by expectation-maximisation.

        Up to :data:`MAX_MISSING` features the covariance is full. With more it is that of probabilistic principal
        components with at most :data:`FACTORS` factors, whose weights have a standard normal prior.

        Parameters
        ----------
        samples : ndarray, shape (samples, features)
            Missing entries are NaN. Features are in comparable units.
        prior : float
            The covariance is shrunk as if there were this many further samples of independent features, each with
            the mean variance; by default as many as features. Factors do not use it.
        max_iter : int
        tolerance : float
            It stops when no entry of the covariance changes by more, relative to the mean variance.
        start : GaussianConditionalMean
            Begin with this one.

        Raises
        ------
        ValueError
            If there is no observed entry, or an infinite one.
        """
        seen = ~np.isnan(samples)
        if not seen.any() or np.isinf(samples).any():
            raise ValueError("a covariance needs observed entries, and no infinite ones")
        counts = np.maximum(seen.sum(axis=0), 1)
        values = np.where(seen, samples, 0.0).astype(np.float64)
        mean = values.sum(axis=0) / counts
        scale = float((np.where(seen, values - mean, 0.0) ** 2).sum() / seen.sum()) or 1.0
        if len(mean) > MAX_MISSING:
            return cls(*_factors(values / scale**0.5, seen, mean / scale**0.5, max_iter, tolerance)).scaled(scale**0.5)
        weight = float(len(mean)) if prior is None else prior
        shrinkage = weight / (len(values) + weight)
        covariance = torch.eye(len(mean), dtype=torch.float64) * scale if start is None else start.covariance
        centre = torch.from_numpy(mean if start is None else start.mean)
        x, masks = torch.from_numpy(values), Masks.of(torch.from_numpy(~seen))
        for _ in range(max_iter):
            precision = torch.cholesky_inverse(torch.linalg.cholesky(covariance))
            centred = torch.where(masks.hidden, 0.0, x - centre)
            filled, spread = _expected(centred, masks, precision)
            change = filled.mean(0)
            filled, before = filled - change, covariance
            centre = centre + change
            unshrunk = (filled.T @ filled + spread) / len(x)
            covariance = (1 - shrinkage) * unshrunk
            covariance.diagonal().add_(max(shrinkage, 1e-9) * scale)
            if float((covariance - before).abs().max()) <= tolerance * scale:
                break
        return cls._of_covariance(centre.numpy(), unshrunk.numpy(), shrinkage, scale)

    def scaled(self, by: float) -> "GaussianConditionalMean":
        """Return the Gaussian of samples that are multiplied by a number."""
        return GaussianConditionalMean(self.mean * by, self.axes, self.variances * by**2, self.noise * by**2)

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
        elif self.axes.shape[1] == len(self.mean):
            predicted = conditional_mean(
                torch.from_numpy(filled), Masks.of(torch.from_numpy(masks)), self.covariance, self.precision
            )
            filled += predicted.numpy()
        else:
            with threadpool_limits(1, "blas"):  # threads of many small systems would wait for each other
                for row, mask in zip(filled, masks, strict=True):
                    row[mask] = self._predict(row[None], mask)[0]
        return np.asarray(filled + self.mean)

    def draw(
        self, samples: Float[np.ndarray, "rows features"], hidden: Bool[np.ndarray, "*rows features"], seed: Any
    ) -> Float64[np.ndarray, "rows features"]:
        """Return samples with their hidden entries drawn from the Gaussian, given the kept ones.

        A sample z of the whole Gaussian is drawn; hidden entries are E[x_h | x_k] + z_h − E[z_h | z_k].

        Parameters
        ----------
        samples, hidden : ndarray
            As those of :meth:`fill`.
        seed : int, SeedSequence or Generator
            What ``numpy.random.default_rng`` takes.
        """
        rng = np.random.default_rng(seed)
        drawn = rng.standard_normal((len(samples), self.axes.shape[1])) * np.sqrt(self.variances) @ self.axes.T
        drawn += self.noise**0.5 * rng.standard_normal(drawn.shape)
        return np.where(hidden, self.fill(samples - drawn, hidden) + drawn, samples)

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
            covariance = self.covariance.numpy()
            weights = _solve(covariance[np.ix_(kept, kept)], values)
            return np.asarray((covariance[np.ix_(hidden, kept)] @ weights).T)
        precision = self.precision.numpy()
        products = precision[np.ix_(hidden, kept)] @ values
        return np.asarray(-_solve(precision[np.ix_(hidden, hidden)], products).T)

    @cached_property
    def covariance(self) -> Float[Tensor, "features features"]:
        """The covariance, of a Gaussian that has as many axes as features."""
        return torch.from_numpy((self.axes * (self.variances + self.noise)) @ self.axes.T)

    @cached_property
    def precision(self) -> Float[Tensor, "features features"]:
        """The inverse of the covariance."""
        return torch.from_numpy((self.axes / (self.variances + self.noise)) @ self.axes.T)


@dataclass(frozen=True, eq=False)
class Masks:
    """Masks of rows, and the different ones among them: equal masks need one system only. Make them by :meth:`of`."""

    hidden: Bool[Tensor, "rows features"]
    """True = hidden."""
    different: Bool[Tensor, "masks features"]
    number: Int64[Tensor, " rows"]
    """Which of the different masks a row has."""

    @classmethod
    def of(cls, hidden: Bool[Tensor, "rows features"]) -> "Masks":
        """Return the masks of rows, on any device."""
        return cls(hidden, *torch.unique(hidden, dim=0, return_inverse=True))


def conditional_mean(
    centred: Float[Tensor, "rows features"],
    masks: Masks,
    covariance: Float[Tensor, "features features"],
    precision: Float[Tensor, "features features"],
) -> Float[Tensor, "rows features"]:
    """Return the conditional mean of hidden entries, minus their mean; zero at kept entries.

    It solves, many rows at once, for the smaller part of each row: with Σ at kept entries, or Σ⁻¹ at hidden ones.

    Parameters
    ----------
    centred : Tensor, shape (rows, features)
        Samples minus the mean, and zero at hidden entries.
    masks : Masks
    covariance, precision : Tensor, shape (features, features)
        Σ and Σ⁻¹, on the same device.
    """
    found = torch.zeros_like(centred)
    few = masks.different.sum(1) * 2 <= masks.different.shape[1]
    for rows, places, factor in _systems(precision, masks, masks.different, few):
        right = places.take(centred[rows] @ precision)
        found[rows] = -places.put(torch.cholesky_solve(right[..., None], factor)[..., 0])
    for rows, places, factor in _systems(covariance, masks, ~masks.different, ~few):
        solved = torch.cholesky_solve(places.take(centred[rows])[..., None], factor)[..., 0]
        found[rows] = (places.put(solved) @ covariance).masked_fill(~masks.hidden[rows], 0.0)
    return found


@dataclass(frozen=True, eq=False)
class _Places:
    """Places of the chosen features of rows, padded to the same number."""

    index: Int64[Tensor, "rows most"]
    real: Bool[Tensor, "rows most"]
    features: int

    def take(self, values: Float[Tensor, "rows features"]) -> Float[Tensor, "rows most"]:
        """Return the chosen values, and zeros."""
        return values.gather(1, self.index) * self.real

    def put(self, values: Float[Tensor, "rows most"]) -> Float[Tensor, "rows features"]:
        """Return values at their places, and zeros."""
        whole = values.new_zeros(len(values), self.features)
        return whole.scatter_add(1, self.index, values * self.real)


def _systems(
    matrix: Float[Tensor, "features features"],
    masks: Masks,
    chosen: Bool[Tensor, "masks features"],
    of: Bool[Tensor, " masks"],
) -> Iterator[tuple[Int64[Tensor, " rows"], _Places, Float[Tensor, "rows most most"]]]:
    """Yield rows, where their chosen features are, and Cholesky factors of the matrix there; largest systems first."""
    counts = chosen.sum(1).masked_fill(~of, 0)
    order = torch.argsort(counts, descending=True)[: int((counts > 0).sum())]
    rank = torch.full_like(counts, len(counts))
    rank[order] = torch.arange(len(order), device=order.device)
    rows = torch.argsort(rank[masks.number], stable=True)
    ends = torch.bincount(rank[masks.number], minlength=len(counts) + 1).cumsum(0).tolist()
    sizes, first = counts[order].tolist(), 0
    while first < len(order):
        last = min(len(order), first + max(1, _AT_ONCE // sizes[first] ** 2))
        own = chosen[order[first:last]]
        index = torch.argsort(~own, dim=1, stable=True)[:, : sizes[first]]
        real = own.gather(1, index)
        system = matrix[index[:, :, None], index[:, None, :]] * (real[:, :, None] & real[:, None, :])
        system.diagonal(dim1=1, dim2=2).add_((~real).to(matrix.dtype))
        factor = torch.linalg.cholesky(system)
        begin = ends[first - 1] if first else 0
        step = max(1, _AT_ONCE // sizes[first] ** 2)
        for start in range(begin, ends[last - 1], step):
            some = rows[start : min(start + step, ends[last - 1])]
            which = rank[masks.number[some]] - first
            yield some, _Places(index[which], real[which], matrix.shape[1]), factor[which]
        first = last


def _expected(
    centred: Float[Tensor, "rows features"], masks: Masks, precision: Float[Tensor, "features features"]
) -> tuple[Float[Tensor, "rows features"], Float[Tensor, "features features"]]:
    """Return rows with hidden entries filled in, and the sum of the conditional covariances of all rows."""
    filled, spread = centred.clone(), torch.zeros_like(precision)
    hidden = masks.different
    for rows, places, factor in _systems(precision, masks, hidden, hidden.any(1)):
        inverse = torch.cholesky_inverse(factor) * (places.real[:, :, None] & places.real[:, None, :])
        right = places.take(centred[rows] @ precision)
        filled[rows] -= places.put((inverse @ right[..., None])[..., 0])
        index = places.index[:, :, None].expand_as(inverse), places.index[:, None, :].expand_as(inverse)
        spread.index_put_(index, inverse, accumulate=True)
    return filled, spread


def _factors(
    values: Float64[np.ndarray, "rows features"],
    seen: Bool[np.ndarray, "rows features"],
    mean: Float64[np.ndarray, " features"],
    max_iter: int,
    tolerance: float,
) -> tuple[Float64[np.ndarray, " features"], Float64[np.ndarray, "features axes"], Float64[np.ndarray, " axes"], float]:
    """Return mean, axes, variances and noise of probabilistic principal components, by expectation-maximisation.

    A row is W z + mean + noise, with z standard normal. Each iteration solves a system of the factors for every row,
    and one for every feature.
    """
    n, d = values.shape
    rank = max(1, min(FACTORS, n // 4, d - 1))
    known, count = seen.astype(np.float64), np.maximum(seen.sum(axis=0), 1)
    _, sizes, vectors = np.linalg.svd(np.where(seen, values - mean, 0.0), full_matrices=False)
    w, noise = vectors[:rank].T * (sizes[:rank] / n**0.5), 1.0
    for _ in range(max_iter):
        second, first, after = np.zeros((d, rank * rank)), np.zeros((d, rank)), mean.copy()
        products, error, before = (w[:, :, None] * w[:, None, :]).reshape(d, -1), 0.0, w
        for start in range(0, n, _MAX_ROWS):
            part = slice(start, start + _MAX_ROWS)
            centred = known[part] * (values[part] - mean)
            inverse = np.linalg.inv((known[part] @ products).reshape(-1, rank, rank) + noise * np.eye(rank))
            z = (inverse @ (centred @ w)[..., None])[..., 0]
            moment = (z[:, :, None] * z[:, None, :] + noise * inverse).reshape(-1, rank * rank)
            residual = known[part] * (values[part] - mean - z @ w.T)
            second, first = second + known[part].T @ moment, first + centred.T @ z
            after += residual.sum(axis=0) / count
            error += float((residual**2).sum() + noise * (inverse.reshape(len(z), -1) * (known[part] @ products)).sum())
        system = second.reshape(d, rank, rank) + noise * np.eye(rank)
        w = np.linalg.solve(system, first[..., None])[..., 0]
        mean, noise = after, max(error / seen.sum(), 1e-9)
        if np.abs(w - before).max() <= tolerance:
            break
    axes, lengths, _ = np.linalg.svd(w, full_matrices=False)
    return mean, axes, np.maximum(lengths**2, 1e-12), noise


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
