"""Layers of a model that work one after the other: what sharding gathers, and what is computed again for gradients.

Sharded training (:mod:`r2mae.training.distributed`) gathers the parameters of one layer at a time. Activation
checkpointing drops what a layer made inside, and makes it again for the backward pass. Both hook calls of the layer. So
a model that reads a layer's parameters without calling it does this by :func:`within`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from r2mae.errors import UserError

_AROUND = "_r2mae_around"  # of a unit whose calls are hooked: what wraps a function that is called as the unit

_Result = TypeVar("_Result")


def units_of(model: nn.Module) -> list[nn.Module]:
    """Return the layers of a model that is, for the most part, a stack of layers; empty for other models.

    They come from its method ``units()``. None is a part of another, and their parameters are read only while they are
    called, or in a function that is called by :func:`within`.
    """
    return list(model.units()) if hasattr(model, "units") else []  # type: ignore[operator]


def within(unit: nn.Module, function: Callable[..., _Result], *arguments: Any) -> _Result:
    """Return ``function(*arguments)``, which reads a unit's parameters; if somebody hooks calls of the unit, as one.

    Activation checkpointing calls the function again in the backward pass, so it depends on its arguments alone, and on
    torch's generator.
    """
    around = getattr(unit, _AROUND, None)
    if around is None:
        return function(*arguments)
    own = unit.__dict__.get("forward")
    unit.forward = around(function)
    try:
        found: _Result = unit(*arguments)
    finally:
        if own is None:
            del unit.forward  # the class has its own
        else:
            unit.forward = own
    return found


def listen(unit: nn.Module) -> None:
    """Let :func:`within` call the unit, so that its hooks are called."""
    if not hasattr(unit, _AROUND):
        setattr(unit, _AROUND, lambda function: function)


def recompute_activations(model: nn.Module) -> None:
    """From now on, keep only what goes into each unit, and compute the rest again in the backward pass.

    Numbers stay the same: dropout draws the same ones again.

    Raises
    ------
    UserError
        For a model without a stack of layers, or whose layers count batch statistics, which a second pass would change.
    """
    units = units_of(model)
    if not units:
        raise UserError("this model is no stack of layers, and would save nothing: omit --activation-checkpointing")
    if any(isinstance(layer, _BatchNorm) for unit in units for layer in unit.modules()):
        raise UserError(
            "the layers of this model have batch normalisation, whose statistics a second pass would count twice: "
            "omit --activation-checkpointing"
        )
    for unit in units:
        setattr(unit, _AROUND, _recomputed)
        unit.forward = _recomputed(unit.forward)


def _recomputed(function: Callable[..., _Result]) -> Callable[..., _Result]:
    return partial(checkpoint, function, use_reentrant=False)
