"""Layers of a model that work one after the other: sharded training gathers the parameters of one of them at a time."""

from collections.abc import Callable
from typing import Any, TypeVar

from torch import nn

_Result = TypeVar("_Result")


def units_of(model: nn.Module) -> list[nn.Module]:
    """Return the layers of a model that is, for the most part, a stack of layers; empty for other models.

    They come from its method ``units()``. None is a part of another, and their parameters are read only while they are
    called, or in a function that is called by :func:`within`.
    """
    return list(model.units()) if hasattr(model, "units") else []  # type: ignore[operator]


def within(unit: nn.Module, function: Callable[..., _Result], *arguments: Any) -> _Result:
    """Return ``function(*arguments)``, which reads a unit's parameters; of a sharded unit, as its call."""
    if not hasattr(unit, "unshard"):
        return function(*arguments)
    unit.forward = function
    try:
        found: _Result = unit(*arguments)
    finally:
        del unit.forward  # the class has its own
    return found
