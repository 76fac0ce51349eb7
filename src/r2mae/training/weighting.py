"""Samples of different mask ratios that count alike: each by the mean of its own losses.

The plain mean over the hidden entries of a step weighs samples by what they hide, which does no harm where all of them
have one ratio. Where the ratios of a step are spread over its samples, one at 0.9 would count nine times as much as one
at 0.1. R²MAE takes the mean at the ratio of each mini-batch, so that all ratios count alike. Here all samples do, and
the expected objective is the same.
"""

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from r2mae.training.task import MapsLossesToSamples, MaskedBatch


def sum_of_sample_means(
    losses: Float[Tensor, "*shape"], corrupted: MaskedBatch, rows: int
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Return Σ w·ℓ/h and its normaliser Σ w/h, with h the number of hidden entries of the sample that an entry is of.

    Without weights of the task (w = 1) the normaliser is the number of samples in which anything is hidden. Both are
    sums, so those of micro-batches and processes add up.

    Parameters
    ----------
    losses : tensor
        As the task returns them, times its weights if it has any.
    corrupted : MaskedBatch
        The mini-batch.
    rows : int
        Its samples.

    Raises
    ------
    TypeError
        If nothing says which sample a loss belongs to.
    """
    counts = corrupted.hidden.reshape(rows, -1).sum(1)
    each = torch.where(counts > 0, 1 / counts.clamp(min=1), 0.0)
    hidden = corrupted.hidden if corrupted.weights is None else corrupted.weights * corrupted.hidden
    total = (losses.flatten() * _repeat_for_losses(each, losses, corrupted)).sum()
    return total, (hidden.reshape(rows, -1).sum(1) * each).sum()


def sums_by_sample(
    losses: Float[Tensor, "*shape"], corrupted: MaskedBatch, rows: int
) -> Float64[Tensor, " rows"] | None:
    """Return the sum of the losses of each sample, in double precision; None if nothing says whose each loss is.

    Parameters
    ----------
    losses, corrupted, rows
        As of :func:`sum_of_sample_means`.
    """
    flat = losses.flatten().double()
    if isinstance(corrupted, MapsLossesToSamples):
        return flat.new_zeros(rows).index_add_(0, corrupted.loss_rows(), flat)
    return flat.view(rows, -1).sum(1) if _ordered_by_sample(losses, corrupted, rows) else None


def _ordered_by_sample(losses: Tensor, corrupted: MaskedBatch, rows: int) -> bool:
    """Tell whether losses lie sample after sample, as many of each."""
    return losses.numel() == corrupted.hidden.numel() or (losses.ndim > 1 and len(losses) == rows)


def _repeat_for_losses(
    each: Float[Tensor, " rows"], losses: Tensor, corrupted: MaskedBatch
) -> Float[Tensor, " losses"]:
    """Return the number of its sample for each of the flattened losses."""
    if isinstance(corrupted, MapsLossesToSamples):
        return each[corrupted.loss_rows()]
    if _ordered_by_sample(losses, corrupted, len(each)):
        return each.repeat_interleave(losses.numel() // len(each))
    raise TypeError(
        f"{type(corrupted).__name__} does not say which sample each loss belongs to: give it a method loss_rows (see "
        "r2mae.training.task.MapsLossesToSamples)"
    )
