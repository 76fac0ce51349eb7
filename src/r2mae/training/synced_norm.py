"""Batch normalisation over all processes of a run, on any device.

torch has such layers for GPUs alone. Here a mean and a variance are summed over the processes, and so are their
gradients: the losses are those of one process with the whole batch.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from r2mae.errors import UserError


class _Summed(torch.autograd.Function):
    """A tensor's sum over all processes; its gradient is summed, too."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        total = value.clone()
        torch.distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        total = grads[0].contiguous().clone()
        torch.distributed.all_reduce(total)
        return total


def _summed(value: Tensor) -> Tensor:
    return _Summed.apply(value)  # type: ignore[no-any-return, no-untyped-call]


def check_has_batch_statistics(model: nn.Module) -> None:
    """Refuse a model without batch normalisation.

    Raises
    ------
    UserError
        If there is none.
    """
    if not any(isinstance(layer, _BatchNorm) for layer in model.modules()):
        raise UserError("this model has no batch normalisation: omit --sync-batchnorm")


@contextmanager
def synced_batch_norms(model: nn.Module) -> Iterator[None]:
    """Within the block, let batch normalisation that trains take its statistics over all processes."""
    layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]
    for layer in layers:
        layer.forward = partial(synced, layer)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward  # the class has its own


def synced(layer: _BatchNorm, inputs: Tensor) -> Tensor:
    """Normalise over all processes, each of which has as many samples, and update the running statistics."""
    if not (layer.training and torch.distributed.is_initialized()):
        return type(layer).forward(layer, inputs)
    axes = [0, *range(2, inputs.dim())]
    shape = [1, -1, *[1] * (inputs.dim() - 2)]
    count = inputs.numel() // inputs.shape[1] * torch.distributed.get_world_size()
    values = inputs.float()
    mean = _summed(values.sum(axes)) / count
    centred = values - mean.view(shape)
    variance = _summed(centred.square().sum(axes)) / count
    out = centred * torch.rsqrt(variance + layer.eps).view(shape)
    if layer.affine:
        out = out * layer.weight.view(shape) + layer.bias.view(shape)
    if layer.track_running_stats:
        _follow(layer, mean.detach(), variance.detach() * (count / max(count - 1, 1)))
    return out.to(inputs.dtype)


@torch.no_grad()
def _follow(layer: _BatchNorm, mean: Tensor, variance: Tensor) -> None:
    assert layer.num_batches_tracked is not None
    layer.num_batches_tracked.add_(1)
    share = 1 / float(layer.num_batches_tracked) if layer.momentum is None else layer.momentum
    for running, new in ((layer.running_mean, mean), (layer.running_var, variance)):
        assert running is not None
        running.lerp_(new.to(running.dtype), share)
