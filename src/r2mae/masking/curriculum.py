"""Learned loss weights of the curricula (appendix "Implementations of CL and R²MAE + CL", equation for W).

A small network makes a positive matrix W₀ of (entries × ratios). Sinkhorn's iterations scale it until its rows sum to
l (the number of ratios) and its columns to d (the number of entries), so that the weights of one ratio have mean one.
The column of the step's ratio multiplies the element-wise loss. The network learns from the same loss; its gradient is
multiplied by a factor that falls from 1 (prefer easy entries) to −1 (prefer hard entries).
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from r2mae.masking.schemes import Curriculum


def sinkhorn(matrix: Float[Tensor, "d l"], iterations: int) -> Float[Tensor, "d l"]:
    """Scale a positive matrix so that rows sum to l and columns to d, differentiably.

    Every iteration scales the rows, then the columns. The column sums are therefore exact, so that the weights of each
    ratio have mean one. The row sums are approximate; more iterations bring them closer.

    Parameters
    ----------
    matrix : tensor, shape (d, l)
        Positive entries.
    iterations : int
        K ≥ 1.
    """
    if iterations < 1:
        raise ValueError(f"Sinkhorn's normalisation needs at least one iteration, not {iterations}")
    if matrix.dtype in (torch.float16, torch.bfloat16):
        matrix = matrix.float()  # in half precision the sums are too inexact for a mean of one
    entries, ratios = matrix.shape
    for _ in range(iterations):
        matrix = matrix * (ratios / matrix.sum(1, keepdim=True))
        matrix = matrix * (entries / matrix.sum(0, keepdim=True))
    return matrix


class _ScaleGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0] * ctx.factor, None


def scale_gradient(value: Tensor, factor: float) -> Tensor:
    """Return `value` unchanged; its gradient is multiplied by `factor` (−1 turns descent into ascent)."""
    return _ScaleGradient.apply(value, factor)  # type: ignore[no-untyped-call, no-any-return]


def mean_over_ranks(clean: Float[Tensor, "batch d"]) -> Float[Tensor, " d"]:
    """Average over the samples of all ranks (equally many), so that all ranks use the same loss weights."""
    mean = clean.mean(0)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.all_reduce(mean)
        mean /= torch.distributed.get_world_size()
    return mean


class FeatureWeights(nn.Module):
    """One weight per feature and ratio, from the clean batch (cells, MLP, U-Net).

    The batch is first averaged over its samples. The weights are therefore those of the mini-batch, (d, l) rather than
    (batch, d, l), and the network's cost does not depend on the batch size.

    Parameters
    ----------
    features : int
        d.
    curriculum : Curriculum
        Its grid gives l; its `iterations` and `floor` are used.
    hidden : (int, int)
        Widths of the two hidden layers (paper: 128 and 256).
    channels : int
        Numbers per feature before the projection to l ratios (paper, for genes: 64).
    """

    def __init__(
        self, features: int, curriculum: Curriculum, hidden: tuple[int, int] = (128, 256), channels: int = 64
    ) -> None:
        super().__init__()
        self.curriculum = curriculum
        self.channels = channels
        self.trunk = nn.Sequential(
            nn.Linear(features, hidden[0]),
            nn.ReLU(),
            nn.Linear(hidden[0], hidden[1]),
            nn.ReLU(),
            nn.Linear(hidden[1], features * channels),
        )
        self.project = nn.Linear(channels, len(curriculum.grid.values))

    def forward(self, clean: Float[Tensor, "batch d"]) -> Float[Tensor, "d l"]:
        """Return the weight matrix of this batch."""
        rows = self.trunk(mean_over_ranks(clean)).view(-1, self.channels)
        positive = torch.sigmoid(self.project(rows)) + self.curriculum.floor
        return sinkhorn(positive, self.curriculum.iterations)


class UnitWeights(nn.Module):
    """One weight per hidden unit and ratio, from the model's representation of that unit (text, genome, ViT).

    Parameters
    ----------
    width : int
        Width of the representation. It is detached, so that the weights' gradient reaches only this network.
    curriculum : Curriculum
        As in :class:`FeatureWeights` (paper, for DNA: 10 iterations, floor 0.5).
    """

    def __init__(self, width: int, curriculum: Curriculum) -> None:
        super().__init__()
        self.curriculum = curriculum
        self.layers = nn.Sequential(
            nn.Linear(width, 128),  # the paper's widths
            nn.ReLU(),
            nn.Linear(128, 128),
            nn.ReLU(),
            nn.Linear(128, len(curriculum.grid.values)),
        )

    def forward(self, representation: Float[Tensor, "units width"]) -> Float[Tensor, "units l"]:
        """Return the weights of these hidden units; Sinkhorn's sums are over these units."""
        positive = torch.sigmoid(self.layers(representation.detach())) + self.curriculum.floor
        return sinkhorn(positive, self.curriculum.iterations)


def select_weights(
    weights: Float[Tensor, "d l"], curriculum: Curriculum, ratio: float, step: int
) -> Float[Tensor, " d"]:
    """Return the weights of the grid's ratio nearest to `ratio`; `step` determines the multiplier of their gradient.

    While the network is frozen the weights are detached, so that momentum does not accumulate either.
    """
    column = weights[:, curriculum.grid.nearest_column(ratio)]
    if curriculum.frozen(step):
        return column.detach()
    return scale_gradient(column, curriculum.multiplier_at(step))
