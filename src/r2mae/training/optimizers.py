"""Optimisers of a run, and their parameter groups."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from r2mae.training.config import RunConfig
from r2mae.training.task import ParameterGroup

SCALE = "lr_scale"
"""Entry of an optimiser's group: the factor on the learning rate, where it is not 1."""

MOMENTUM = 0.9  # of sgd and lars
_TRUST = 0.001
Group = dict[str, Any]


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
        case "lars":
            return LARS(groups, lr=lr, weight_decay=decay, momentum=MOMENTUM)
        case "adam":
            return torch.optim.Adam(groups, lr=lr, betas=betas, weight_decay=decay, fused=True)
        case "adamw":
            return torch.optim.AdamW(groups, lr=lr, betas=betas, weight_decay=decay, fused=True)


class LARS(torch.optim.Optimizer):
    """Layer-wise adaptive rate scaling (You, Gitman and Ginsburg 2017): momentum on gradients scaled to the weights.

    A matrix's gradient, with its weight decay, is multiplied by ``trust × ‖weights‖ / ‖gradient‖``; gradients of
    vectors (biases, norms) are not scaled, and have no decay.

    Parameters
    ----------
    params : list of groups
    lr, weight_decay, momentum, trust : float
    """

    def __init__(
        self,
        params: list[Group],
        lr: float,
        weight_decay: float = 0.0,
        momentum: float = MOMENTUM,
        trust: float = _TRUST,
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "trust": trust})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the weights."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            for group in self.param_groups:
                for weights in group["params"]:
                    if weights.grad is not None:
                        self._update(weights, weights.grad, group)
        return loss

    def _update(self, weights: Tensor, gradient: Tensor, group: Group) -> None:
        if weights.ndim > 1:
            gradient = gradient + group["weight_decay"] * weights
            size, length = weights.norm(), gradient.norm()
            # Zero weights and zero gradients are not scaled.
            usable = (size > 0) & (length > 0)
            gradient = gradient * torch.where(usable, group["trust"] * size / length, torch.ones_like(size))
        state = self.state[weights]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(weights)
        state["momentum"].mul_(group["momentum"]).add_(gradient)
        weights.add_(state["momentum"], alpha=-group["lr"])
