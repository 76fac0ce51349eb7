"""Attention of short rows on a CPU in bfloat16, written out with its gradient.

The backward pass of torch's own attention takes there up to twenty times as long as its forward pass, which is half
the time of a step of ``vit-mae-tiny``. Masked images are short rows: here the probabilities are kept, and the
backward pass is five small products for each head. A step then takes a bit more than half of the time. In float32,
where this would buy about 1 %, torch's own is taken, as on other devices, in compiled code, with masks, for long rows
and where no gradients are asked for. ``python -m benchmarks.images --bf16 --plain-attention`` measures what it buys.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

LONGEST = {torch.bfloat16: 256}
"""Tokens of a row up to which this is taken, by type: the kept probabilities grow with their square."""


def applies(queries: Tensor, length: int) -> bool:
    """Whether :func:`short_attention` is to be taken for rows of `length` tokens."""
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
    """Return softmax(QKᵀ/√d)V of all heads; products and softmax are made in 32 bits.

    Parameters
    ----------
    queries : tensor, shape (asking, width) or (asking, 3 · width)
        Queries of all rows, one after the other; with `others` None, also keys and values of the same tokens.
    others : tensor, shape (tokens, 2 · width), optional
        Keys and values of all tokens.
    rows, heads : int
        Images, which have equally many tokens, and heads that the width is divided among.
    """
    made: Tensor = _ShortAttention.apply(queries, others, rows, heads)  # type: ignore[no-untyped-call]
    return made


class _ShortAttention(torch.autograd.Function):
    """Keeps the probabilities, keys by queries: along columns a softmax is vectorised whatever the length."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, others: Tensor | None, rows: int, heads: int) -> Tensor:
        asking, keys, values = _parts(queries, others, rows, heads, wide=True)
        share = asking.shape[-1]
        chances = asking.new_empty(heads, rows, keys.shape[1], asking.shape[1])
        found = queries.new_empty(asking.shape)
        with torch.autocast("cpu", enabled=False):
            for head in range(heads):
                query, key, value, own = asking[:, :, head], keys[:, :, head], values[:, :, head], chances[head]
                torch.baddbmm(own, key, query.transpose(1, 2), beta=0, alpha=share**-0.5, out=own)
                torch.softmax(own, 1, out=own)
                found[:, :, head] = torch.bmm(own.transpose(1, 2), value)
        ctx.save_for_backward(queries, others, chances)
        return found.view(len(queries), -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        queries, others, chances = ctx.saved_tensors
        heads, rows = chances.shape[:2]
        asking, keys, values = _parts(queries, others, rows, heads, wide=True)
        made = torch.empty_like(queries), None if others is None else torch.empty_like(others)
        of_asking, of_keys, of_values = _parts(*made, rows, heads, wide=False)
        upper, share = gradient.view(asking.shape).to(asking.dtype), asking.shape[-1]
        with torch.autocast("cpu", enabled=False):
            for head in range(heads):
                query, key, value, own = asking[:, :, head], keys[:, :, head], values[:, :, head], chances[head]
                of_values[:, :, head] = torch.bmm(own, upper[:, :, head])
                of_own = torch.bmm(value, upper[:, :, head].transpose(1, 2))
                of_scores = torch._softmax_backward_data(of_own, own, 1, own.dtype).mul_(share**-0.5)
                of_asking[:, :, head] = torch.bmm(of_scores.transpose(1, 2), key)
                of_keys[:, :, head] = torch.bmm(of_scores, query)
        return *made, None, None


def _parts(
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
