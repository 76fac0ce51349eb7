"""What both callbacks share: they set a model's ratio for each optimiser step, where the model keeps it."""

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn

from r2mae.errors import UserError
from r2mae.masking.mask_ratio import MaskRatio
from r2mae.masking.ratios import Ratio, as_ratio

RatioGiven = float | Sequence[float] | Ratio | MaskRatio
"""A fixed ratio, the ends of a uniform range, any ratio of :mod:`r2mae.masking`, or a MaskRatio of any scheme."""


def ratio_and_seed(given: RatioGiven, seed: int) -> tuple[Ratio, int]:
    """Return the ratio and its seed; a MaskRatio has a seed of its own, so that another one is refused."""
    if not isinstance(given, MaskRatio):
        return as_ratio(given), seed
    if seed not in (0, given.seed):
        raise UserError(f"a MaskRatio has its own seed ({given.seed}): omit seed={seed}")
    if given.scheme.curriculum is not None:
        raise UserError(f"{given.scheme.name} learns weights in training, which only r2mae pretrain does: take another")
    return given.scheme.ratio, given.seed


class RatioSetter:
    """Sets a model's ratio for every optimiser step to that of a :class:`~r2mae.masking.MaskRatio`, and restores it.

    Parameters
    ----------
    ratio : MaskRatio, number, pair or Ratio
        A pair is the range of :class:`~r2mae.masking.Uniform`. A schedule is fixed to the steps of the training, unless
        a MaskRatio has its own `total_steps`.
    seed : int
    attribute : str
        Name of the ratio in the modules of the model or in their `config`; all modules that have it get the same one.

    Raises
    ------
    UserError
        If every sample would have its own ratio: such models take one number.
    """

    def __init__(self, ratio: RatioGiven, seed: int = 0, attribute: str = "mask_ratio") -> None:
        self.given, self._seed = ratio_and_seed(ratio, seed)
        if self.given.per_sample:
            raise UserError(f"{attribute} is one number for all samples: give a ratio with per='batch'")
        self.attribute = attribute
        self._ratio: MaskRatio | None = None
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
        if self.given.needs_total_steps and not known:
            schedule = type(self.given).__name__
            raise UserError(f"{schedule} needs the number of optimiser steps, which is unknown: {hint}")
        self._places = list(_places(model, self.attribute))
        if not self._places:
            raise UserError(
                f"no module or config of {type(model).__name__} has a number called {self.attribute}: set "
                f"self.{self.attribute} in its __init__ (hparams do not count), name another, attribute='…', or mask "
                "with the functions of r2mae.integrations.masks"
            )
        self._ratio = MaskRatio(
            self.given, total_steps=int(steps) if self.given.needs_total_steps else None, seed=self._seed
        )

    def set(self, step: int) -> float:
        """Set the ratio of an optimiser step, counted from zero, and return it."""
        assert self._ratio is not None, "begin() comes first"
        value = self._ratio(step)
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
