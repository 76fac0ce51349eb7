"""Equal weights for samples of different mask ratios: each sample counts by the mean of its own losses.

The plain mean over the hidden entries of a step weights samples by their number of hidden entries. This is harmless if
all samples have the same ratio. With stratified per-sample ratios, a sample at 0.9 would count nine times as much as
one at 0.1. R²MAE takes the mean at the ratio of each mini-batch, so all ratios have equal weight. Here all samples have
equal weight, and the expected objective is the same.
"""

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from r2mae.training.task import MaskedBatch


def sum_of_sample_means(
    losses: Float[Tensor, "*shape"], corrupted: MaskedBatch, rows: int
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Return Σ w·ℓ/h and its normaliser Σ w/h; h is the number of hidden entries in the sample of the entry.

    Without weights of the task (w = 1), the normaliser is the number of samples with hidden entries. Both are sums, so
    they add up over micro-batches and processes. `losses` are those of the task, times its weights; if they cannot be
    assigned to the `rows` samples, this raises a TypeError.
    """
    counts = corrupted.hidden.reshape(rows, -1).sum(1)
    inverse = torch.where(counts > 0, 1 / counts.clamp(min=1), 0.0)
    hidden = corrupted.hidden if corrupted.weights is None else corrupted.weights * corrupted.hidden
    total = (losses.flatten() * _repeat_for_losses(inverse, losses, corrupted)).sum()
    return total, (hidden.reshape(rows, -1).sum(1) * inverse).sum()


def sums_by_sample(
    losses: Float[Tensor, "*shape"], corrupted: MaskedBatch, rows: int
) -> Float64[Tensor, " rows"] | None:
    """Return each sample's sum of losses, in double precision; None if losses cannot be assigned to samples."""
    flat = losses.flatten().double()
    places = corrupted.loss_rows()
    if places is not None:
        return flat.new_zeros(rows).index_add_(0, places, flat)
    return flat.view(rows, -1).sum(1) if _ordered_by_sample(losses, corrupted, rows) else None


def _ordered_by_sample(losses: Tensor, corrupted: MaskedBatch, rows: int) -> bool:
    """Return whether losses are ordered by sample, equally many per sample."""
    return losses.numel() == corrupted.hidden.numel() or (losses.ndim > 1 and len(losses) == rows)


def _repeat_for_losses(
    values: Float[Tensor, " rows"], losses: Tensor, corrupted: MaskedBatch
) -> Float[Tensor, " losses"]:
    """Return, for each of the flattened losses, the value of its sample."""
    places = corrupted.loss_rows()
    if places is not None:
        return values[places]
    if _ordered_by_sample(losses, corrupted, len(values)):
        return values.repeat_interleave(losses.numel() // len(values))
    raise TypeError(
        f"{type(corrupted).__name__} does not assign losses to samples: add a method loss_rows (see "
        "r2mae.training.task.MaskedBatch)"
    )
