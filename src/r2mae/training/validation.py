"""The validation loss: frozen masks at three ratios, the same for all schemes, without learned weights."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor, nn

from r2mae.evaluation.items import BatchReader
from r2mae.masking.keys import Key
from r2mae.training.task import MaskedBatch, Task

BATCH = 512
EVALUATION_KEY = Key.root(0).fold("evaluation batches")
"""Key of evaluation batches: what a domain draws for them is the same in every call."""


@torch.no_grad()
def masked_losses(
    task: Task,
    model: nn.Module,
    data: BatchReader,
    ratios: Sequence[float],
    *,
    seed: int = 0,
    device: str = "cpu",
    prepare: Callable[[int], None] | None = None,
    by_sample: Float64[Tensor, "ratios samples"] | None = None,
) -> list[float]:
    """Return the mean loss over hidden entries at each ratio, on fixed evaluation masks.

    The model's mode (training or evaluation) is restored afterwards.

    Parameters
    ----------
    task, model, data, ratios, device
        What to evaluate, on which samples, at which mask ratios, and where.
    seed : int
        Seed of the evaluation masks and of the batches' keys; it is independent of the training seed.
    prepare : callable, optional
        Called with the index of a ratio before the model runs at that ratio, for example to change batch statistics.
    by_sample : tensor, optional
        Filled with each sample's sum of losses at each ratio; unchanged if losses cannot be assigned to samples.
    """
    key = Key.root(seed).fold("evaluation masks")
    # Filled in place: small tensors allocated between the large ones of a batch would keep their memory from release.
    sums, counts = torch.zeros(2, len(ratios), -(-len(data) // BATCH), dtype=torch.float64, device=device)
    with evaluating(model):
        for rows, given in in_order(data, Key.root(seed).fold("evaluation batches")):
            first, batch = int(rows[0]), to_device(given, device)
            for number, ratio in enumerate(ratios):
                if prepare is not None:
                    prepare(number)
                corrupted = task.corrupt(batch, ratio, key.fold(number).rows(first))
                losses = task.losses(task.forward(model, corrupted), corrupted)
                weights = corrupted.weights
                losses = losses if weights is None else losses * weights
                sums[number, first // BATCH] = losses.sum()
                if by_sample is not None and (found := _sums_by_sample(losses, corrupted, len(rows))) is not None:
                    by_sample[number, first : first + len(rows)] = found
                hidden = corrupted.hidden if weights is None else corrupted.hidden * weights
                counts[number, first // BATCH] = hidden.sum()
    return [float(s.sum() / c.sum()) for s, c in zip(sums, counts, strict=True)]


def _sums_by_sample(losses: Tensor, corrupted: MaskedBatch, rows: int) -> Float64[Tensor, " rows"] | None:
    """Return each sample's sum of losses, in double precision; None if losses cannot be assigned to samples."""
    flat, places = losses.flatten().double(), corrupted.loss_rows()
    if places is not None:
        return flat.new_zeros(rows).index_add_(0, places, flat)
    return flat.view(rows, -1).sum(1) if corrupted.ordered_by_sample(losses, rows) else None


def in_order(data: BatchReader, key: Key) -> Iterator[tuple[Int64[np.ndarray, " rows"], Any]]:
    """Yield the rows and the content of each batch, in order."""
    for first in range(0, len(data), BATCH):
        rows = np.arange(first, min(first + BATCH, len(data)))
        yield rows, data.batch(rows, key.rows(first))


def read_all(data: BatchReader) -> None:
    """Read all samples as :func:`masked_losses` does, for an object that records what is read."""
    for _ in in_order(data, EVALUATION_KEY):
        pass


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode for a block."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def to_device(batch: Any, device: str | torch.device) -> Any:
    """Move a tensor, or a mapping of tensors, to a device."""
    if isinstance(batch, dict):
        return {name: value.to(device, non_blocking=True) for name, value in batch.items()}
    return batch.to(device, non_blocking=True)
