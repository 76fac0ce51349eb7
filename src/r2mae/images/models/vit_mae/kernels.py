"""Attention of short rows on a CPU in bfloat16, with a gradient in closed form.

There the backward pass of torch's attention takes up to twenty times as long as its forward pass, which is half of the
time of a step of ``vit-mae-tiny``. Masked images are short rows. This kernel stores the probabilities, and its backward
pass is five small products for each head; a step takes a bit more than half of the time. torch's attention is used in
float32, where the gain would be about 1 %, on other devices, in compiled code, with masks, for long rows and without
gradients. ``python -m benchmarks.images --bf16 --plain-attention`` measures the gain.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

LONGEST = {torch.bfloat16: 256}
"""Largest number of tokens of a row, by type: the stored probabilities grow with its square."""


def use_short_attention(queries: Tensor, length: int) -> bool:
    """Return whether to use :func:`short_attention` for rows of `length` tokens."""
    return (
        torch.is_grad_enabled()
        and queries.requires_grad
        and queries.device.type == "cpu"
        and length <= LONGEST.get(queries.dtype, 0)
        and not torch.compiler.is_compiling()
    )


def short_attention(
    queries: Float[Tensor, "asking some"], others: Float[Tensor, "tokens two"] | None, rows: int, heads: int
) -> Float[Tensor, "asking width"]:
    """Return softmax(QKᵀ/√d)V of all heads; products and softmax are computed in 32 bits.

    Parameters
    ----------
    queries : tensor, shape (asking, width) or (asking, 3 · width)
        Queries of all rows, one after the other; with `others` None, also keys and values of the same tokens.
    others : tensor, shape (tokens, 2 · width), optional
        Keys and values of all tokens.
    rows, heads : int
        Number of images, which have equally many tokens, and of heads, which divide the width.
    """
    made: Tensor = _ShortAttention.apply(queries, others, rows, heads)  # type: ignore[no-untyped-call]
    return made


class _ShortAttention(torch.autograd.Function):
    """Stores the probabilities, keys by queries: a softmax along columns is vectorised for any length."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, others: Tensor | None, rows: int, heads: int) -> Tensor:
        asking, keys, values = _query_key_value(queries, others, rows, heads, wide=True)
        share = asking.shape[-1]
        probabilities = asking.new_empty(heads, rows, keys.shape[1], asking.shape[1])
        found = queries.new_empty(asking.shape)
        with torch.autocast("cpu", enabled=False):
            for head in range(heads):
                query, key, value, own = asking[:, :, head], keys[:, :, head], values[:, :, head], probabilities[head]
                torch.baddbmm(own, key, query.transpose(1, 2), beta=0, alpha=share**-0.5, out=own)
                torch.softmax(own, 1, out=own)
                found[:, :, head] = torch.bmm(own.transpose(1, 2), value)
        ctx.save_for_backward(queries, others, probabilities)
        return found.view(len(queries), -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        queries, others, probabilities = ctx.saved_tensors
        heads, rows = probabilities.shape[:2]
        asking, keys, values = _query_key_value(queries, others, rows, heads, wide=True)
        made = torch.empty_like(queries), None if others is None else torch.empty_like(others)
        of_asking, of_keys, of_values = _query_key_value(*made, rows, heads, wide=False)
        upper, share = gradient.view(asking.shape).to(asking.dtype), asking.shape[-1]
        with torch.autocast("cpu", enabled=False):
            for head in range(heads):
                query, key, value, own = asking[:, :, head], keys[:, :, head], values[:, :, head], probabilities[head]
                of_values[:, :, head] = torch.bmm(own, upper[:, :, head])
                of_own = torch.bmm(value, upper[:, :, head].transpose(1, 2))
                of_scores = torch._softmax_backward_data(of_own, own, 1, own.dtype).mul_(share**-0.5)
                of_asking[:, :, head] = torch.bmm(of_scores.transpose(1, 2), key)
                of_keys[:, :, head] = torch.bmm(of_scores, query)
        return *made, None, None


def _query_key_value(
    queries: Tensor, others: Tensor | None, rows: int, heads: int, *, wide: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return views of queries, keys and values, shape (rows, tokens, heads, share); `wide` are copies in 32 bits."""
    if others is None:
        joint = queries.view(rows, len(queries) // rows, 3, heads, -1)
        joint = joint.float() if wide else joint
        return joint[:, :, 0], joint[:, :, 1], joint[:, :, 2]
    asking = queries.view(rows, len(queries) // rows, heads, -1)
    joint = others.view(rows, len(others) // rows, 2, heads, -1)
    asking, joint = (asking.float(), joint.float()) if wide else (asking, joint)
    return asking, joint[:, :, 0], joint[:, :, 1]
