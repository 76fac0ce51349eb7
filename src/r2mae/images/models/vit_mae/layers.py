"""Layers of a vision transformer for images with different numbers of tokens, concatenated without padding.

The tokens of all images are one matrix (tokens, width), on which norms and matrix products act. Only attention needs to
know the images. Images with equally many tokens are adjacent and form a group, with one call of attention for each
group. With one mask ratio for a mini-batch, which is the default, there is a single group.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import gelu, linear, scaled_dot_product_attention

from r2mae.images.models.vit_mae.kernels import short_attention, use_short_attention

NORM_EPSILON = 1e-6
Mask = Bool[Tensor, "#rows 1 1 _"] | None


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

    def self_attention(
        self, states: Float[Tensor, "tokens width"], lengths: list[tuple[int, int]], mask: Mask
    ) -> Tensor:
        """Attend from all tokens to all; `lengths` are rows and tokens of each group."""
        return self.proj(self.attend(self.qkv(states), lengths, mask))  # type: ignore[no-any-return]

    def attend(self, qkv: Float[Tensor, "tokens three"], lengths: list[tuple[int, int]], mask: Mask) -> Tensor:
        """Return the attended values of all groups, shape (tokens, width)."""
        found = []
        for (rows, length), part in zip(lengths, _split(qkv, [r * n for r, n in lengths]), strict=True):
            if mask is None and use_short_attention(part, length):
                found.append(short_attention(part, None, rows, self.heads))
                continue
            query, key, value = part.view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
            found.append(_joint(scaled_dot_product_attention(query, key, value, attn_mask=mask)))
        return found[0] if len(found) == 1 else torch.cat(found)

    def keys_and_values(self, states: Float[Tensor, "tokens width"]) -> Float[Tensor, "tokens two"]:
        """Return keys and values."""
        width = states.shape[1]
        return linear(states, self.qkv.weight[width:], self.qkv.bias[width:])

    def cross_attention(
        self,
        asking: Float[Tensor, "asked width"],
        keys: Float[Tensor, "tokens two"],
        lengths: list[tuple[int, int, int]],
        mask: Mask,
    ) -> Float[Tensor, "asked width"]:
        """Attend from some tokens to all; `lengths` are rows, query tokens and all tokens of each group."""
        width = asking.shape[1]
        queries = linear(asking, self.qkv.weight[:width], self.qkv.bias[:width])
        found = []
        asked, known = _split(queries, [r * a for r, a, _ in lengths]), _split(keys, [r * n for r, _, n in lengths])
        for (rows, some, length), own_queries, own_keys in zip(lengths, asked, known, strict=True):
            if mask is None and use_short_attention(own_queries, length):
                found.append(short_attention(own_queries, own_keys, rows, self.heads))
                continue
            query = own_queries.view(rows, some, self.heads, -1).transpose(1, 2)
            key, value = own_keys.view(rows, length, 2, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
            found.append(_joint(scaled_dot_product_attention(query, key, value, attn_mask=mask)))
        return self.proj(found[0] if len(found) == 1 else torch.cat(found))  # type: ignore[no-any-return]


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
        self, states: Float[Tensor, "tokens width"], lengths: list[tuple[int, int]], mask: Mask = None
    ) -> Float[Tensor, "tokens width"]:
        """Transform all tokens."""
        return self.finish(states, self.attn.self_attention(self.norm1(states), lengths, mask))

    def finish(self, states: Float[Tensor, "some width"], attended: Tensor) -> Float[Tensor, "some width"]:
        """Add the output of attention, and apply the MLP."""
        states = states + attended
        return states + self.mlp(self.norm2(states))  # type: ignore[no-any-return]


def _split(tokens: Float[Tensor, "tokens width"], sizes: list[int]) -> tuple[Tensor, ...]:
    return (tokens,) if len(sizes) == 1 else torch.split(tokens, sizes)


def _joint(heads: Float[Tensor, "rows heads length share"]) -> Float[Tensor, "tokens width"]:
    return heads.transpose(1, 2).flatten(2).flatten(0, 1)
