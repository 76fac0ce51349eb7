"""Re-estimate batch statistics for the inputs that a model is used on.

Batch normalisation stores means and variances of masked training inputs, which do not fit unmasked inputs or another
mask ratio. This module re-estimates them on training samples, unmasked or masked at a given ratio. Weights do not
change. The paper does not mention re-estimation; its results are assumed to use the training statistics.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from r2mae.masking.keys import Key, permutation
from r2mae.training.task import Batches, Task
from r2mae.training.validation import evaluating, to_device

SAMPLES = 8192  # training samples used: the standard error of means is about a hundredth of the standard deviation
_BATCH = 256
_LEAST_MASKS = 32  # if a mini-batch shares its mask, as for genes, statistics depend on the masks drawn

Statistics = Mapping[str, Tensor]
"""Running means and variances by the name of their buffer; empty for a model without batch normalisation."""


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
            parts = np.array_split(rows, max(1, len(rows) // _BATCH))
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
) -> Iterator[Callable[[int], None]]:
    """Yield a function that loads the statistics of one of several ratios into the model, by index from 0.

    They are those of :func:`estimate_statistics`, if `wanted`. At the end of the block the model has its own ones.
    """
    statistics = [estimate_statistics(task, model, data, ratio) if wanted else {} for ratio in ratios]
    own = statistics_of(model)

    def prepare(number: int) -> None:
        if statistics[number]:
            set_statistics(model, statistics[number])

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
        prepare(0)
        yield
