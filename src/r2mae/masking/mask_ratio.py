"""One object for a training loop of one's own: the ratio of every step, and the masks, of any scheme and one seed."""

from collections.abc import Sequence
from typing import Any, SupportsIndex, TypeAlias, overload

import torch
from jaxtyping import Bool, Float32, Int64
from torch import Tensor

from r2mae.errors import UserError
from r2mae.fields import whole_number
from r2mae.masking.defaults import SchemeDefaults
from r2mae.masking.keys import Key
from r2mae.masking.masks import Device, RatioLike, column_mask, element_mask, patch_mask, token_mask
from r2mae.masking.ratios import Ratio, as_ratio
from r2mae.masking.schemes import Scheme, option_not_taken, resolve_options, scheme_kind

Whole: TypeAlias = SupportsIndex | float
"""A whole number of any type."""


class MaskRatio:
    """The mask ratio of every optimiser step, and its masks: a schedule for a training loop of any library.

    It holds nothing that changes with the step: what it draws is a function of seed, step and row. A loop that resumes
    starts at its step, and processes that train together have the same ratio. ``ratio(step)`` is what a run of this
    library with the same seed draws.

    Parameters
    ----------
    scheme : str, number, pair of numbers, or Ratio
        The name of any registered scheme, such as "r2mae"; or a fixed ratio, the ends of a uniform range, or a ratio of
        :mod:`r2mae.masking`. Of curricula this is the ratio; ``scheme.curriculum`` says how their weights are learned.
    total_steps : int, optional
        Optimiser steps of the whole run, for schemes that depend on it: those that fall, and curricula.
    steps_per_epoch : float, optional
        Optimiser steps of an epoch, for ``decay_in="epochs"``.
    batch_size : int, optional
        Samples of an optimiser step over all processes, for a ratio stratified over samples (`r2mae-per-sample`) whose
        step has several micro-batches or processes. By default those of the call.
    seed : int
        Seed of ratios and masks.
    **options
        Options of the scheme, such as ``low=0.5, high=0.9``. Its ratios have no defaults here.

    Attributes
    ----------
    scheme : Scheme
        With its schedules fixed to the run.
    seed : int
    key : Key
        The key of the seed, for what else is drawn: ``ratio.key.fold("corrupt", step)``.

    Raises
    ------
    UserError
        For an unknown scheme or option, or if `total_steps` or a ratio is missing.

    Examples
    --------
    >>> ratio = MaskRatio("r2mae", low=0.5, high=0.9, seed=0)
    >>> round(ratio(7), 3), ratio.mask((32, 784), step=7).shape
    (0.767, torch.Size([32, 784]))
    """

    def __init__(
        self,
        scheme: str | float | Sequence[float] | Ratio,
        *,
        total_steps: Whole | None = None,
        steps_per_epoch: float | None = None,
        batch_size: Whole | None = None,
        seed: Whole = 0,
        **options: Any,
    ) -> None:
        made = _made(scheme, options)
        if made.needs_total_steps and total_steps is None:
            raise UserError(f"{made.name} depends on the length of the run: give total_steps=, its optimiser steps")
        in_epochs = getattr(made.ratio, "unit", "") == "epochs" and getattr(made.ratio, "epoch", None) is None
        if in_epochs and steps_per_epoch is None:
            raise UserError(f"{made.name} falls with the epochs: give steps_per_epoch=, or decay_in='steps'")
        self.scheme = made.bind(
            None if total_steps is None else whole_number(total_steps, "total_steps"),
            steps_per_epoch,
            None if batch_size is None else whole_number(batch_size, "batch_size"),
        )
        self.seed = whole_number(seed, "seed", least=0)
        self.key = Key.root(self.seed)

    def __repr__(self) -> str:
        return f"MaskRatio({self.scheme.name!r}, {self.scheme.ratio}, seed={self.seed})"

    @property
    def per_sample(self) -> bool:
        """Whether every sample has a ratio of its own."""
        return self.scheme.ratio.per_sample

    @overload
    def __call__(self, step: Whole) -> float: ...
    @overload
    def __call__(self, step: Whole, rows: int, *, first_row: int = 0) -> float | Float32[Tensor, " rows"]: ...

    def __call__(self, step: Whole, rows: int | None = None, *, first_row: int = 0) -> float | Float32[Tensor, " rows"]:
        """Return the ratio of an optimiser step, from 0: a float, or where every sample has its own a tensor of them.

        Parameters
        ----------
        step : int
            The optimiser step, not the micro-batch.
        rows : int, optional
            Samples of the mini-batch; needed where every sample has its own ratio.
        first_row : int
            Place of its first sample among those of the step, over all processes and micro-batches.

        Raises
        ------
        UserError
            If `rows` are needed.
        """
        if self.per_sample and rows is None:
            raise UserError(f"{self.scheme.name} has a ratio for every sample: ratio(step, rows=len(batch))")
        drawn = self._draw(step, rows or 0, first_row)
        return drawn if isinstance(drawn, float) else torch.from_numpy(drawn).float()

    def mask(
        self,
        shape: tuple[int, ...],
        step: Whole,
        *,
        first_row: int = 0,
        exact: bool = False,
        device: Device = None,
    ) -> Bool[Tensor, "batch ..."]:
        """Hide single entries of every sample: :func:`~r2mae.masking.element_mask`. True is hidden.

        Parameters
        ----------
        shape : tuple of int
            (batch, …), such as ``images.shape``.
        step, first_row : int
            As above; the first row of a process with equal batches is ``rank * len(batch)``.
        exact : bool
            Hide the rounded count in every sample, instead of each entry independently. A ratio stratified over samples
            does so always, as in training.
        device : device, optional
            By default the CPU.
        """
        drawn, key = self._draw(step, shape[0], first_row), self.mask_key(step, first_row)
        exact = exact or self.scheme.ratio.stratified_per_sample
        return element_mask(tuple(shape), drawn, key, exact=exact, device=device)

    def patches(
        self, batch: int, patches: int, step: Whole, *, first_row: int = 0, device: Device = None
    ) -> tuple[Int64[Tensor, "batch kept"], Int64[Tensor, "batch hidden"]]:
        """Return the indices of kept and of hidden patches of every image: :func:`~r2mae.masking.patch_mask`.

        Raises
        ------
        UserError
            If every sample has its own ratio, and so another number of patches.
        """
        return patch_mask(batch, patches, self._one("patches", step), self.mask_key(step, first_row), device=device)

    def tokens(
        self,
        special: Bool[Tensor, "batch length"],
        step: Whole,
        *,
        first_row: int = 0,
        exact: bool = True,
    ) -> Bool[Tensor, "batch length"]:
        """Hide tokens, but none where `special` is true: :func:`~r2mae.masking.token_mask`, on its device."""
        drawn = self._draw(step, len(special), first_row)
        return token_mask(special, drawn, self.mask_key(step, first_row), exact=exact)

    def columns(self, width: int, step: Whole, *, device: Device = None) -> Bool[Tensor, " width"]:
        """Hide the same columns in all samples of a step: :func:`~r2mae.masking.column_mask`.

        Raises
        ------
        UserError
            If every sample has its own ratio.
        """
        return column_mask(width, self._one("columns", step), self.mask_key(step), device=device)

    def mask_key(self, step: Whole, first_row: int = 0) -> Key:
        """Return the key of a step's masks, for other functions that take one, such as `r2mae.integrations.masks`."""
        return self.key.fold("mask", whole_number(step, "step", least=0)).rows(first_row)

    def _draw(self, step: Whole, rows: int, first_row: int) -> RatioLike:
        return self.scheme.ratio.draw(whole_number(step, "step", least=0), self.key.fold("ratio").rows(first_row), rows)

    def _one(self, what: str, step: Whole) -> float:
        if self.per_sample:
            raise UserError(
                f"{self.scheme.name} has a ratio for every sample, and {what} need one for all: take ratio.mask(shape, "
                "step), or another scheme"
            )
        return self(step)


def _made(scheme: Any, options: dict[str, Any]) -> Scheme:
    """Return a scheme from its name and options, or from a ratio."""
    if not isinstance(scheme, str):
        ratio = as_ratio(scheme)
        if options:
            raise UserError(f"{next(iter(options))} is an option of a scheme: name one, such as 'r2mae', or omit it")
        return Scheme(type(ratio).__name__, ratio)
    kind = scheme_kind(scheme)
    if unused := next((name for name in options if name not in kind.options), None):
        raise UserError(option_not_taken(unused, [scheme]))
    missing = [name for name, default in kind.defaults.items() if default is None and options.get(name) is None]
    if missing:
        example = ", ".join(f"{name}={_EXAMPLE.for_scheme(scheme)[name]}" for name in missing)
        raise UserError(f"{scheme} needs {' and '.join(missing)}: MaskRatio({scheme!r}, {example})")
    return kind.build(**resolve_options(scheme, options, _EXAMPLE))


_EXAMPLE = SchemeDefaults(ratio=0.75, low=0.5, high=0.9)  # in an error; what a scheme needs is always given
