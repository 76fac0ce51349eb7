"""Optimisers of a run, their parameter groups, and learning rates as pure functions of the optimiser step."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import nn

from r2mae.training.config import RunConfig
from r2mae.training.task import ParameterGroup

SCALE = "lr_scale"
"""Entry of an optimiser's group: the factor on the learning rate, where it is not 1."""

MOMENTUM = 0.9  # of sgd
Group = dict[str, Any]
Shape = Literal["constant", "linear", "cosine"]


def default_groups(model: nn.Module, config: RunConfig) -> list[Group]:
    """Return all parameters; with AdamW, biases and norms form a separate group without weight decay."""
    groups: list[Group] = [{"params": list(model.parameters())}]
    if config.optimizer.name == "adamw" and config.optimizer.weight_decay > 0:
        vectors = [parameter for parameter in model.parameters() if parameter.ndim < 2]
        groups[0]["params"] = [parameter for parameter in model.parameters() if parameter.ndim >= 2]
        groups.append({"params": vectors, "weight_decay": 0.0})
    return groups


def torch_groups(groups: Sequence[ParameterGroup], lr: float) -> list[Group]:
    """Convert a task's groups to the form of torch's optimisers, each with its learning rate."""
    made: list[Group] = []
    for group in groups:
        own: Group = {"params": group.parameters, "lr": lr * group.scale, SCALE: group.scale}
        made.append(own if group.decayed else {**own, "weight_decay": 0.0})
    return made


def make_optimizer(groups: list[Group], config: RunConfig) -> torch.optim.Optimizer:
    """Return the optimiser that a configuration names."""
    lr, decay = config.optimizer.peak_lr, config.optimizer.weight_decay
    betas = (float(config.optimizer.betas[0]), float(config.optimizer.betas[1]))
    match config.optimizer.name:
        case "sgd":
            fused = config.machine.strategy == "ddp"  # torch has no such kernel for sharded parameters
            return torch.optim.SGD(groups, lr=lr, weight_decay=decay, momentum=MOMENTUM, fused=fused)
        case "adam":
            return torch.optim.Adam(groups, lr=lr, betas=betas, weight_decay=decay, fused=True)
        case "adamw":
            return torch.optim.AdamW(groups, lr=lr, betas=betas, weight_decay=decay, fused=True)


def learning_rate_factor(step: int, total: int, shape: Shape, warmup: float, lowest: float = 0.0) -> float:
    """Return the factor on the learning rate at optimiser step `step` (from 0) of `total`.

    The factor rises linearly to 1 over the first fraction `warmup` of the run. Then it stays constant, or falls to
    `lowest` at the end of the run along a line or half a cosine.
    """
    rising = warmup * total
    if step < rising:
        return (step + 1) / math.ceil(rising)
    if shape == "constant":
        return 1.0
    done = (step - rising) / max(total - rising, 1)
    falling = 1.0 - done if shape == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
    return lowest + (1.0 - lowest) * falling
