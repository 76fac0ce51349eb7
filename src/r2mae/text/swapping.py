"""Modules whose class is exchanged for one with another forward pass, and back again."""

import inspect
from functools import cache
from typing import Any

from torch import nn


class Swapped:
    """Mixed into the class of a module; the module is still an instance of its stock class, under the same name."""

    stock_class: type
    mixed_in: type

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Copy and pickle by the stock class, since this one has no name to be found by."""
        return _rebuild, (self.mixed_in, self.stock_class), self.__dict__


def swap(module: nn.Module, mixin: type[Swapped]) -> None:
    """Put a mixin's methods before those of the module's own class."""
    classes: tuple[Any, Any] = (mixin, type(module))
    module.__class__ = _mixed(*classes)


def unswap(module: nn.Module) -> None:
    """Give a swapped module its stock class back."""
    if isinstance(module, Swapped):
        module.__class__ = module.stock_class


@cache
def _mixed(mixin: Any, stock: Any) -> type:
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return mixin.forward(self, *args, **kwargs)

    forward.__signature__ = inspect.signature(stock.forward)  # type: ignore[attr-defined]  # Trainer reads it
    own = {"forward": forward, "stock_class": stock, "mixed_in": mixin}
    return type(stock.__name__, (mixin, stock), {"__module__": stock.__module__, "__doc__": stock.__doc__, **own})


def _rebuild(mixin: type, stock: type) -> Any:
    return object.__new__(_mixed(mixin, stock))
