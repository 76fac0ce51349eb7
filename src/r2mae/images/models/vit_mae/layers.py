"""Layers of a vision transformer for images with different numbers of tokens, concatenated without padding.

The tokens of all images are one matrix (tokens, width), on which norms and matrix products act. Only attention needs to
know the images. Images with equally many tokens are adjacent and form a group, with one call of attention for each
group. With one mask ratio for a mini-batch, which is the default, there is a single group.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import gelu, linear, scaled_dot_product_attention

NORM_EPSILON = 1e-6


class Group(NamedTuple):
    """Adjacent images with equally many tokens.

    Parameters
    ----------
    rows : int
        Number of images.
    kept, asked : int
        Tokens of each image that the encoder sees, without the class token, and tokens to predict.
    """

    rows: int
    kept: int
    asked: int


class Attention(nn.Module):
    """Self-attention, with queries, keys and values from one matrix product.

    Parameters
    ----------
    width, heads : int
        Sizes.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def self_attention(self, qkv: Float[Tensor, "tokens three"], lengths: Sequence[tuple[int, int]]) -> Tensor:
        """Attend from all tokens to all, given their queries, keys and values; `lengths` are images and tokens."""
        found = []
        for (rows, length), part in zip(lengths, split(qkv, [r * n for r, n in lengths]), strict=True):
            query, key, value = part.view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
            found.append(_attend(query, key, value))
        return self.proj(join(found))  # type: ignore[no-any-return]

    def cross_attention(
        self,
        asking: Float[Tensor, "asked width"],
        states: Float[Tensor, "tokens width"],
        lengths: Sequence[tuple[int, int, int]],
    ) -> Float[Tensor, "asked width"]:
        """Attend from some tokens to all; `lengths` are images, query tokens and all tokens of each group."""
        width = asking.shape[1]
        queries = linear(asking, self.qkv.weight[:width], self.qkv.bias[:width])
        others = linear(states, self.qkv.weight[width:], self.qkv.bias[width:])
        found = []
        asked, known = split(queries, [r * a for r, a, _ in lengths]), split(others, [r * n for r, _, n in lengths])
        for (rows, some, length), own_queries, own_keys in zip(lengths, asked, known, strict=True):
            query = own_queries.view(rows, some, self.heads, -1).transpose(1, 2)
            key, value = own_keys.view(rows, length, 2, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
            found.append(_attend(query, key, value))
        return self.proj(join(found))  # type: ignore[no-any-return]


class MLP(nn.Module):
    """Two linear layers with GELU between them.

    Parameters
    ----------
    width, inner : int
        Sizes.
    """

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, inner)
        self.fc2 = nn.Linear(inner, width)

    def forward(self, states: Float[Tensor, "*tokens width"]) -> Float[Tensor, "*tokens width"]:
        """Transform every token."""
        return self.fc2(gelu(self.fc1(states)))  # type: ignore[no-any-return]


class Block(nn.Module):
    """A layer of the transformer: attention, then the MLP, each after a norm and with a residual connection.

    Parameters
    ----------
    width, heads : int
        Sizes; the MLP is four times as wide.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=NORM_EPSILON)
        self.attn = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=NORM_EPSILON)
        self.mlp = MLP(width, 4 * width)

    def forward(
        self,
        states: Float[Tensor, "tokens width"],
        lengths: Sequence[tuple[int, int]],
        factors: Float[Tensor, "rows 2"] | None = None,
    ) -> Float[Tensor, "tokens width"]:
        """Transform all tokens; `factors` of each image scale the outputs of attention and MLP (drop path)."""
        attended = self.attn.self_attention(self.attn.qkv(self.norm1(states)), lengths)
        if factors is None:
            return self.finish(states, attended)
        states = states + _scaled(attended, factors[:, 0])
        return states + _scaled(self.mlp(self.norm2(states)), factors[:, 1])

    def finish(self, states: Float[Tensor, "some width"], attended: Tensor) -> Float[Tensor, "some width"]:
        """Add the output of attention, and apply the MLP."""
        states = states + attended
        return states + self.mlp(self.norm2(states))  # type: ignore[no-any-return]


def split(tokens: Float[Tensor, "tokens width"], sizes: list[int]) -> tuple[Tensor, ...]:
    """Split tokens into those of each group."""
    return (tokens,) if len(sizes) == 1 else torch.split(tokens, sizes)


def join(parts: list[Tensor]) -> Float[Tensor, "tokens width"]:
    """Concatenate the tokens of all groups."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _attend(query: Tensor, key: Tensor, value: Tensor) -> Float[Tensor, "tokens width"]:
    """Return softmax(QKᵀ/√d)V of all heads; tensors have the shape (rows, heads, length, share).

    In bfloat16 on a CPU it is computed in 32 bits: the gradient of torch's 16-bit attention is so slow there that a
    step of ``vit-mae-tiny`` takes 1.5 times as long.
    """
    if query.dtype == torch.bfloat16 and query.device.type == "cpu":
        with torch.autocast("cpu", enabled=False):
            found = scaled_dot_product_attention(query.float(), key.float(), value.float()).to(query.dtype)
    else:
        found = scaled_dot_product_attention(query, key, value)
    return found.transpose(1, 2).flatten(2).flatten(0, 1)


def _scaled(branch: Float[Tensor, "tokens width"], factors: Float[Tensor, " rows"]) -> Float[Tensor, "tokens width"]:
    """Multiply the tokens of each image, equally many for all images, by its factor."""
    scale = factors[:, None, None].to(branch.dtype)
    return (branch.view(len(factors), -1, branch.shape[1]) * scale).view(branch.shape)
