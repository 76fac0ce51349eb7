"""What both callbacks share: the ratio of each optimiser step, and where a model keeps its ratio."""

import inspect
from collections.abc import Iterator
from typing import Any

from torch import nn

from r2mae.errors import UserError
from r2mae.masking.keys import Key
from r2mae.masking.ratios import Ratio, as_ratio

RatioGiven = float | tuple[float, float] | Ratio
"""A fixed ratio, the ends of a uniform range, or any ratio of :mod:`r2mae.masking`."""


class StepRatio:
    """Sets a model's ratio for every optimiser step, and its own ratio again afterwards.

    The ratio is a function of seed and step alone: all processes and micro-batches of a step have the same one, and so
    has a resumed run.

    Parameters
    ----------
    ratio : number, pair or Ratio
        A pair is the range of :class:`~r2mae.masking.Uniform`.
    seed : int
    attribute : str
        Name of the ratio in the modules of the model or in their `config`; all modules that have it get the same one.

    Raises
    ------
    UserError
        If every sample would have its own ratio: such models take one number.
    """

    def __init__(self, ratio: RatioGiven, seed: int = 0, attribute: str = "mask_ratio") -> None:
        self.given = as_ratio(ratio)
        if self.given.per_sample:
            raise UserError(f"{attribute} is one number for all samples: give a ratio with per='batch'")
        self.key, self.attribute = Key.root(seed).fold("ratio"), attribute
        self._ratio = self.given
        self._places: list[Any] = []
        self._own: list[tuple[Any, Any]] = []  # the places with their values, while a step has its ratio

    def begin(self, model: nn.Module, steps: float, hint: str = "give max_steps") -> None:
        """Find where the model keeps its ratio, and bind a scheduled ratio to the number of optimiser steps.

        The number is infinite or below 1 where it is unknown; `hint` says how to make it known.

        Raises
        ------
        UserError
            If the model has no such attribute, or the ratio is scheduled and the number of steps is unknown.
        """
        self.restore()  # what an earlier training left when it was interrupted
        known = 1 <= steps < float("inf")
        if self.given.scheduled and not known:
            schedule = type(self.given).__name__
            raise UserError(f"{schedule} needs the number of optimiser steps, which is unknown: {hint}")
        self._places = list(_places(model, self.attribute))
        if not self._places:
            raise UserError(
                f"no module or config of {type(model).__name__} has a number called {self.attribute}: set "
                f"self.{self.attribute} in its __init__ (hparams do not count), name another, attribute='…', or mask "
                "with the functions of r2mae.integrations.masks"
            )
        self._ratio = self.given.bind(int(steps) if known else 1)

    def set(self, step: int) -> float:
        """Set the ratio of an optimiser step, counted from zero, and return it."""
        value = float(self._ratio(step, self.key))
        self._own = self._own or [(place, getattr(place, self.attribute)) for place in self._places]
        for place in self._places:
            setattr(place, self.attribute, value)
        return value

    def restore(self) -> None:
        """Set what the model had before the step, as for an evaluation; what is set between steps stays."""
        for place, value in self._own:
            setattr(place, self.attribute, value)
        self._own = []


def _places(model: nn.Module, attribute: str) -> Iterator[Any]:
    """Return the modules, and the configurations of modules, that have a number of this name, each once.

    A wrapper that passes on the attributes of the module in it has none itself.
    """
    seen: set[int] = set()
    for module in model.modules():
        own = module if inspect.getattr_static(module, attribute, None) is not None else None
        for place in (own, getattr(module, "config", None)):
            value = getattr(place, attribute, None)
            if isinstance(value, int | float) and not isinstance(value, bool) and id(place) not in seen:
                seen.add(id(place))
                yield place
