"""The validation loss, and the batch statistics of a finished model.

The validation loss is on frozen masks at three ratios, the same for all schemes, without learned weights.

Batch normalisation stores means and variances of masked training inputs, which do not fit unmasked inputs or another
mask ratio. They are re-estimated on training samples, unmasked or masked at a given ratio. Weights do not change. The
paper does not mention re-estimation; its results are assumed to use the training statistics.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from r2mae.environment import sum_dtype
from r2mae.evaluation.items import ItemRecorder
from r2mae.masking.keys import Key, permutation
from r2mae.training.task import Batches, MaskedBatch, Task

BATCH = 512
EVALUATION_KEY = Key.root(0).fold("evaluation batches")
"""Key of evaluation batches: what a domain draws for them is the same in every call."""
SAMPLES = 8192  # training samples used: the standard error of means is about a hundredth of the standard deviation
_STATISTICS_BATCH = 256
_LEAST_MASKS = 32  # if a mini-batch shares its mask, as for genes, statistics depend on the masks drawn

Statistics = Mapping[str, Tensor]
"""Running means and variances by the name of their buffer; empty for a model without batch normalisation."""


@torch.no_grad()
def masked_losses(
    task: Task,
    model: nn.Module,
    data: Batches,
    ratios: Sequence[float],
    *,
    device: str = "cpu",
    prepare: Callable[[float], None] = lambda ratio: None,
    by_sample: Float64[Tensor, "ratios samples"] | None = None,
) -> list[float]:
    """Return the mean loss over hidden entries at each ratio, on fixed evaluation masks.

    The model's mode (training or evaluation) is restored afterwards.

    Parameters
    ----------
    task, model, data, ratios, device
        What to evaluate, on which samples, at which mask ratios, and where.
    prepare : callable, optional
        Called with a ratio before the model runs at it, for example to change batch statistics.
    by_sample : tensor, optional
        Filled with each sample's sum of losses at each ratio; unchanged if losses cannot be assigned to samples.
    """
    key = Key.root(0).fold("evaluation masks")  # whatever the seed of training
    # Filled in place: small tensors allocated between the large ones of a batch would keep their memory from release.
    sums, counts = torch.zeros(2, len(ratios), -(-len(data) // BATCH), dtype=sum_dtype(device), device=device)
    with evaluating(model):
        for rows, given in in_order(data, EVALUATION_KEY):
            first, batch = int(rows[0]), to_device(given, device)
            for number, ratio in enumerate(ratios):
                prepare(ratio)
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


def in_order(data: Batches, key: Key) -> Iterator[tuple[Int64[np.ndarray, " rows"], Any]]:
    """Yield the rows and the content of each batch, in order."""
    for first in range(0, len(data), BATCH):
        rows = np.arange(first, min(first + BATCH, len(data)))
        yield rows, data.batch(rows, key.rows(first))


class RecordedBatches(Batches):
    """The same samples; each batch that is read identifies its items in a recorder."""

    def __init__(self, batches: Batches, items: ItemRecorder) -> None:
        self._batches, self._items = batches, items

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._batches)

    def batch(self, indices: Sequence[int] | np.ndarray, key: Key) -> Any:
        """Return the batch of these samples."""
        made = self._batches.batch(indices, key)
        self._items.identify(f"{int(indices[0]):012d} and {len(indices) - 1} others", made)
        return made


def read_all(data: Batches) -> None:
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


# Batch statistics ----------------------------------------------------------------------------------------------------


def batch_norms(model: nn.Module) -> dict[str, _BatchNorm]:
    """Return the layers with running statistics, by name."""
    return {
        name: layer
        for name, layer in model.named_modules()
        if isinstance(layer, _BatchNorm) and layer.track_running_stats
    }


def statistics_of(model: nn.Module) -> dict[str, Tensor]:
    """Return copies of a model's running means and variances."""
    return {
        f"{name}.{buffer}": getattr(layer, buffer).clone()
        for name, layer in batch_norms(model).items()
        for buffer in ("running_mean", "running_var")
    }


def set_statistics(model: nn.Module, statistics: Statistics) -> None:
    """Load running means and variances into a model; those of another one raise a KeyError or RuntimeError."""
    for name, layer in batch_norms(model).items():
        for buffer in ("running_mean", "running_var"):
            getattr(layer, buffer).copy_(statistics[f"{name}.{buffer}"])


@torch.no_grad()
def estimate_statistics(task: Task, model: nn.Module, data: Batches, ratio: float | None = None) -> dict[str, Tensor]:
    """Return the batch statistics of a model on training samples without augmentation, by the name of the buffer.

    Inputs are masked at `ratio`; by default nothing is hidden. The samples, their order and their masks are the same in
    every call. The model is unchanged afterwards. Statistics are means over batches of 256. There are none for a model
    without batch normalisation, a task that cannot run on unmasked inputs, or a single sample.
    """
    layers, device = batch_norms(model), next(model.parameters()).device
    if not layers or len(data) < 2 or not task.reconstructs:
        return {}
    data = data.unaugmented
    key = Key.root(0).fold("recalibration")
    rows = permutation(key, len(data))[: task.statistics_samples or SAMPLES]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    momenta = {name: layer.momentum for name, layer in layers.items()}
    with evaluating(model):
        try:
            for layer in layers.values():
                layer.reset_running_stats()
                layer.momentum = None  # None gives the plain mean over batches
                layer.train()
            parts = np.array_split(rows, max(1, len(rows) // _STATISTICS_BATCH))
            # Samples with spatial statistics have their own masks: one pass is enough.
            times = 1 if ratio is None or task.statistics_samples else -(-_LEAST_MASKS // len(parts))
            for number, part in enumerate(parts * times):
                batch = to_device(data.batch(part, key.fold("batch", number)), device)
                if ratio is None:
                    task.reconstruct(model, batch)
                else:
                    task.forward(model, task.corrupt(batch, ratio, key.fold("masks", number)))
            return statistics_of(model)
        finally:
            for name, layer in layers.items():
                layer.momentum = momenta[name]
            model.load_state_dict(before)


@contextmanager
def statistics_at_ratios(
    task: Task, model: nn.Module, data: Batches, ratios: Sequence[float | None], *, wanted: bool = True
) -> Iterator[Callable[[float | None], None]]:
    """Yield a function that loads the statistics of one of several ratios into the model.

    They are those of :func:`estimate_statistics`, if `wanted`. At the end of the block the model has its own ones.
    """
    statistics = {ratio: estimate_statistics(task, model, data, ratio) if wanted else {} for ratio in ratios}
    own = statistics_of(model)

    def prepare(ratio: float | None) -> None:
        if statistics[ratio]:
            set_statistics(model, statistics[ratio])

    try:
        yield prepare
    finally:
        set_statistics(model, own)


@contextmanager
def re_estimated_statistics(
    task: Task, model: nn.Module, data: Batches, ratio: float | None = None, *, wanted: bool = True
) -> Iterator[None]:
    """Run the block with statistics of :func:`estimate_statistics`, if `wanted`."""
    with statistics_at_ratios(task, model, data, [ratio], wanted=wanted) as prepare:
        prepare(ratio)
        yield
