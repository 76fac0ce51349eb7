"""The validation loss: frozen masks at three ratios, the same for all schemes, without learned weights."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from r2mae.masking.keys import Key
from r2mae.training.task import Batches, Task

BATCH = 512
EVALUATION_KEY = Key.root(0).fold("evaluation batches")
"""Key of batches that are measured on: whatever a wing draws while it makes one is the same in every call."""


@torch.no_grad()
def masked_losses(
    task: Task,
    model: nn.Module,
    data: Batches,
    ratios: Sequence[float],
    *,
    seed: int = 0,
    device: str = "cpu",
    prepare: Callable[[int], None] | None = None,
) -> list[float]:
    """Return the mean loss over hidden entries at each ratio, on evaluation masks that are always the same.

    Parameters
    ----------
    task, model
        The task and the model to evaluate. The model's mode (training or evaluation) is restored afterwards.
    data : Batches
        Samples.
    ratios : sequence of float
        Mask ratios.
    seed : int
        Seed of the evaluation masks and of the batches' keys; it is independent of the training seed.
    device : str
        Where the model lies.
    prepare : callable, optional
        Called with the index of a ratio before the model runs at that ratio, to change batch statistics, for example.

    Returns
    -------
    list of float, one per ratio
    """
    key, batch_key = Key.root(seed).fold("evaluation masks"), Key.root(seed).fold("evaluation batches")
    sums: list[list[Tensor]] = [[] for _ in ratios]
    counts: list[list[Tensor]] = [[] for _ in ratios]
    with evaluating(model):
        for first in range(0, len(data), BATCH):
            rows = np.arange(first, min(first + BATCH, len(data)))
            batch = to_device(data.batch(rows, batch_key.rows(first)), device)
            for number, ratio in enumerate(ratios):
                if prepare is not None:
                    prepare(number)
                corrupted = task.corrupt(batch, ratio, key.fold(number).rows(first))
                losses = task.losses(task.forward(model, corrupted), corrupted)
                weights = corrupted.weights
                sums[number].append((losses if weights is None else losses * weights).sum().double())
                hidden = corrupted.hidden if weights is None else corrupted.hidden * weights
                counts[number].append(hidden.sum().double())
    return [float(torch.stack(s).sum() / torch.stack(c).sum()) for s, c in zip(sums, counts, strict=True)]


class evaluating:  # noqa: N801  (a context manager, named as it is used)
    """Put a model into evaluation mode for a block."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def __enter__(self) -> None:
        """Remember the mode and leave training."""
        self._training = self.model.training
        self.model.eval()

    def __exit__(self, *details: object) -> None:
        """Restore the mode."""
        self.model.train(self._training)


def to_device(batch: Any, device: str | torch.device) -> Any:
    """Move a tensor, or a mapping of tensors, to a device."""
    if isinstance(batch, dict):
        return {name: value.to(device) for name, value in batch.items()}
    return batch.to(device)
