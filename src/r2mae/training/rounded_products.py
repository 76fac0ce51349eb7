"""Products of numbers in bf16 on a processor that has no instructions for them.

torch's own kernels then take ten to forty times as long as products in 32 bits (``python -m benchmarks bf16``, AVX2).
But the product of two numbers in bf16 fits into 32 bits: widened, multiplied, summed in 32 bits and rounded once,
matrices give what the instructions give, up to the order of the sum. Attention in one piece keeps its probabilities in
32 bits.
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
_ATTENTION = {
    _ATEN._scaled_dot_product_flash_attention_for_cpu.default: 1,  # results that bf16 has, too; the others have 32 bits
    _ATEN._scaled_dot_product_flash_attention_for_cpu_backward.default: 3,
}
_PRODUCTS = {
    _ATEN.mm.default,
    _ATEN.addmm.default,
    _ATEN.bmm.default,
    _ATEN.baddbmm.default,
    _ATEN.addbmm.default,
    _ATEN.mv.default,
    _ATEN.addmv.default,
    _ATEN.convolution.default,
    _ATEN.convolution_backward.default,
    *_ATTENTION,
}


class RoundedProducts(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within it, products, convolutions and attention of bf16 numbers on a CPU are made in 32 bits, then rounded.

    Products that write to a given tensor (``out=``) stay torch's own, and so do all in ``torch.inference_mode``.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call an operation of torch, if it is such a product then with widened operands."""
        named = kwargs or {}
        if func not in _PRODUCTS or not _is_half(args[0]):
            return func(*args, **named)
        if func not in _ATTENTION and any(_is_single(part) for part in args):
            return func(*args, **named)  # torch refuses it
        wide = {name: _widened(part) for name, part in named.items()}
        made = func(*(_widened(part) for part in args), **wide)
        if isinstance(made, Tensor):
            return made.bfloat16()
        rounded = _ATTENTION.get(func, len(made))
        return tuple(
            part.bfloat16() if place < rounded and isinstance(part, Tensor) else part for place, part in enumerate(made)
        )


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


def _is_single(part: object) -> bool:
    return isinstance(part, Tensor) and part.dtype == torch.float32


def _widened(part: Any) -> Any:
    return part.float() if _is_half(part) else part
