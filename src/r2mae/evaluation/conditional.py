"""The conditional mean of :mod:`r2mae.evaluation.gaussian` for mini-batches in which every sample has its own mask."""

from functools import cache

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.linalg.lapack import dposv, sposv
from threadpoolctl import ThreadpoolController
from torch import Tensor, nn

from r2mae.evaluation.gaussian import GaussianConditionalMean

MAX_FEATURES = 1024
"""Features up to which the whole covariance is used; of more, its :data:`RANK` first axes, and one variance for the
rest."""
RANK = 64
_NUMBERS = 1 << 25  # of the covariance or the axes, a copy for each sample, that are in memory at a time
_LEAST = 1e-6  # of the largest variance that all directions have, so that systems in 32 bits have solutions


@cache
def _libraries() -> ThreadpoolController:
    """Return the libraries that have threads; to find them takes a millisecond."""
    return ThreadpoolController()


def solve_rows(
    centred: Float[np.ndarray, "rows features"],
    hidden: Bool[np.ndarray, "rows features"],
    covariance: Float[np.ndarray, "features features"],
    precision: Float[np.ndarray, "features features"],
) -> Float[np.ndarray, "rows features"]:
    """Return the conditional mean minus the mean; at kept entries it is the value given, minus the mean.

    Each row solves the smaller of two systems: that of its kept entries with the covariance, or that of its hidden ones
    with the precision. The result has the type of the covariance. `centred` is 0 at hidden entries.
    """
    solve = sposv if covariance.dtype == np.float32 else dposv
    few_kept = 2 * np.count_nonzero(hidden, axis=1) >= hidden.shape[1]
    products, weights = centred @ precision, np.zeros_like(centred)
    with _libraries().limit(limits=1, user_api="blas"):  # threads of many small systems would wait for each other
        for row, of_kept in enumerate(few_kept):
            part = np.flatnonzero(hidden[row] != of_kept)
            if len(part):
                matrix, given = (covariance, centred) if of_kept else (precision, products)
                system = matrix.take(part, axis=0).take(part, axis=1)  # a third of the time of one indexing by both
                weights[row, part] = solve(system.T, given[row, part], overwrite_a=True)[1]
    return np.where(hidden, np.where(few_kept[:, None], weights @ covariance, -weights), centred)


class ConditionalMean(nn.Module):
    """Fill in hidden entries of a batch by a Gaussian's conditional mean; :meth:`load` sets the Gaussian.

    The statistics are buffers, so they are saved with the weights of a model that has this module. Before
    :meth:`load` the mean is 0 and entries are independent.

    Attributes
    ----------
    mean : tensor, shape (features,)
    deviation : tensor, shape (features,)
        Standard deviation of each entry given all others.
    """

    mean: Tensor
    deviation: Tensor
    covariance: Tensor
    precision: Tensor
    axes: Tensor
    loads: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.whole = features <= MAX_FEATURES
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("deviation", torch.ones(features))
        if self.whole:
            self.register_buffer("covariance", torch.eye(features))
            self.register_buffer("precision", torch.eye(features))
        else:
            self.register_buffer("axes", torch.zeros(features, RANK))
            self.register_buffer("loads", torch.ones(RANK))  # noise over the variance of each axis

    def load(self, gaussian: GaussianConditionalMean) -> None:
        """Take the statistics of a fitted Gaussian."""
        mean, axes, variances = gaussian.mean, gaussian.axes, gaussian.variances
        noise = max(gaussian.noise, _LEAST * float(variances.max(initial=0.0)))
        if self.whole:
            spread = variances + noise
            found = {"covariance": (axes * spread) @ axes.T, "precision": (axes / spread) @ axes.T}
            given_others = 1 / np.diag(found["precision"])
        else:
            order = np.argsort(variances)[::-1]
            first, others = order[:RANK], order[RANK:]
            more = variances[others].sum() / (len(mean) - len(first))
            noise, axes, variances = noise + more, axes[:, first], np.maximum(variances[first] - more, 1e-9 * noise)
            missing = RANK - len(first)  # few samples have few axes; an axis of zeros predicts nothing
            loads = np.pad(noise / variances, (0, missing), constant_values=1.0)
            found = {"axes": np.pad(axes, ((0, 0), (0, missing))), "loads": loads}
            given_others = noise / (1 - (axes**2) @ (variances / (variances + noise)))
        for name, value in (found | {"mean": mean, "deviation": np.sqrt(given_others)}).items():
            getattr(self, name).copy_(torch.from_numpy(np.asarray(value)))

    @torch.no_grad()
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(
        self, values: Float[Tensor, "rows features"], hidden: Bool[Tensor, "rows features"]
    ) -> Float[Tensor, "rows features"]:
        """Return the values with hidden entries replaced by their conditional mean; what is there is not read."""
        with torch.autocast(values.device.type, enabled=False):
            centred = torch.where(hidden, 0.0, values.float() - self.mean)
            if not self.whole:
                made = self._by_axes(centred, hidden)
            elif values.device.type == "cpu":
                statistics = (self.covariance.numpy(), self.precision.numpy())
                made = torch.from_numpy(solve_rows(centred.numpy(), hidden.numpy(), *statistics))
            else:
                made = self._by_covariance(centred, hidden)
            return torch.where(hidden, made + self.mean, values.float())

    def _by_covariance(
        self, centred: Float[Tensor, "rows features"], hidden: Bool[Tensor, "rows features"]
    ) -> Float[Tensor, "rows features"]:
        """Solve for all rows at once, without waiting for sizes: hidden entries have rows of the identity."""
        size = max(1, _NUMBERS // self.covariance.numel())
        weights = []
        for part, kept in zip(torch.split(centred, size), torch.split((~hidden).float(), size), strict=True):
            matrix = kept[:, :, None] * self.covariance * kept[:, None, :]
            matrix.diagonal(dim1=1, dim2=2).add_(1 - kept)
            factor = torch.linalg.cholesky_ex(matrix)[0]
            weights.append(torch.cholesky_solve(part[:, :, None], factor)[:, :, 0])
        return torch.cat(weights) @ self.covariance

    def _by_axes(
        self, centred: Float[Tensor, "rows features"], hidden: Bool[Tensor, "rows features"]
    ) -> Float[Tensor, "rows features"]:
        """Solve a system with a row and a column for each axis (Woodbury's identity)."""
        size = max(1, _NUMBERS // self.axes.numel())
        coordinates = []
        for part, mask in zip(torch.split(centred, size), torch.split(hidden, size), strict=True):
            inner = torch.where(mask[:, :, None], 0.0, self.axes).mT @ self.axes
            inner.diagonal(dim1=1, dim2=2).add_(self.loads)
            factor = torch.linalg.cholesky_ex(inner)[0]
            coordinates.append(torch.cholesky_solve((part @ self.axes)[:, :, None], factor)[:, :, 0])
        return torch.cat(coordinates) @ self.axes.T
