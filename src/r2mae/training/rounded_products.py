"""Products of numbers in bf16 on a processor that has no instructions for them.

torch then takes ten to forty times as long for them as for products in 32 bits (``python -m benchmarks bf16``). But the
product of two numbers in bf16 fits into 32 bits: widened, multiplied, summed in 32 bits and rounded once, matrices give
what the instructions give, up to the order of the sum, in little more than the time of 32 bits.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.plugins import MixedPrecision
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_ATEN = torch.ops.aten
_PRODUCTS = frozenset(
    {
        _ATEN.mm.default,
        _ATEN.addmm.default,
        _ATEN.bmm.default,
        _ATEN.baddbmm.default,
        _ATEN.mv.default,
        _ATEN.addmv.default,
        _ATEN.convolution.default,
        _ATEN.convolution_backward.default,
    }
)


class RoundedProducts(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within it, matrix products and convolutions of bf16 numbers on a processor are made in 32 bits, then rounded.

    Attention in one piece stays as torch computes it.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call an operation of torch, if it is such a product then with widened operands."""
        named = kwargs or {}
        if func not in _PRODUCTS or not any(_is_half(part) for part in args):
            return func(*args, **named)
        made = func(*(part.float() if _is_half(part) else part for part in args), **named)
        if isinstance(made, Tensor):
            return made.bfloat16()
        return tuple(None if part is None else part.bfloat16() for part in made)


class RoundedPrecision(MixedPrecision):
    """Lightning's bf16 on a processor, in whose forward and backward passes :class:`RoundedProducts` holds."""

    def __init__(self) -> None:
        super().__init__("bf16-mixed", "cpu")

    @contextmanager
    def forward_context(self) -> Iterator[None]:
        """Enable autocast and the rounded products."""
        with super().forward_context(), RoundedProducts():
            yield

    def backward(  # type: ignore[override]
        self, tensor: Tensor, model: LightningModule, *args: Any, **kwargs: Any
    ) -> None:
        """Differentiate, with rounded products."""
        with RoundedProducts():
            super().backward(tensor, model, *args, **kwargs)


def _is_half(part: object) -> bool:
    return isinstance(part, Tensor) and part.dtype == torch.bfloat16 and part.device.type == "cpu"
