"""Layers of a vision transformer for rows of several lengths, laid out one after the other without padding.

Tokens of all images lie in one matrix (tokens, width), so that norms and matrix products know nothing of rows. Only
attention does: images with equally many tokens lie side by side, and each such group is one call, which is attention
with a block-diagonal mask. Usually, with one mask ratio for a mini-batch, there is a single group.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import gelu, linear, scaled_dot_product_attention

from r2mae.images.models.vit_mae.kernels import applies, short_attention

NORM_EPSILON = 1e-6
Mask = Bool[Tensor, "#rows 1 1 _"] | None


class Group(NamedTuple):
    """Images with equally many tokens, which lie one after the other.

    Parameters
    ----------
    rows : int
        Number of images.
    kept, asked : int
        Tokens of each that the encoder sees beside the class token, and tokens that are to be predicted.
    """

    rows: int
    kept: int
    asked: int


class Attention(nn.Module):
    """Self-attention, with queries, keys and values in one product.

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

    def whole(self, states: Float[Tensor, "tokens width"], lengths: list[tuple[int, int]], mask: Mask) -> Tensor:
        """Attend from all tokens; `lengths` are rows and tokens of each group."""
        return self.proj(self.attend(self.qkv(states), lengths, mask))  # type: ignore[no-any-return]

    def attend(self, qkv: Float[Tensor, "tokens three"], lengths: list[tuple[int, int]], mask: Mask) -> Tensor:
        """Return the values that queries find, of all groups, shape (tokens, width)."""
        found = []
        for (rows, length), part in zip(lengths, _split(qkv, [r * n for r, n in lengths]), strict=True):
            if mask is None and applies(part, length):
                found.append(short_attention(part, None, rows, self.heads))
                continue
            query, key, value = part.view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
            found.append(_joint(scaled_dot_product_attention(query, key, value, attn_mask=mask)))
        return found[0] if len(found) == 1 else torch.cat(found)

    def keys_of(self, states: Float[Tensor, "tokens width"]) -> Float[Tensor, "tokens two"]:
        """Return keys and values."""
        width = states.shape[1]
        return linear(states, self.qkv.weight[width:], self.qkv.bias[width:])

    def ask(
        self,
        asking: Float[Tensor, "asked width"],
        keys: Float[Tensor, "tokens two"],
        lengths: list[tuple[int, int, int]],
        mask: Mask,
    ) -> Float[Tensor, "asked width"]:
        """Attend from some tokens to all; `lengths` are rows, asking tokens, and all tokens of each group."""
        width = asking.shape[1]
        queries = linear(asking, self.qkv.weight[:width], self.qkv.bias[:width])
        found = []
        asked, known = _split(queries, [r * a for r, a, _ in lengths]), _split(keys, [r * n for r, _, n in lengths])
        for (rows, some, length), mine, theirs in zip(lengths, asked, known, strict=True):
            if mask is None and applies(mine, length):
                found.append(short_attention(mine, theirs, rows, self.heads))
                continue
            query = mine.view(rows, some, self.heads, -1).transpose(1, 2)
            key, value = theirs.view(rows, length, 2, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
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
    """A layer of the transformer: attention, then the MLP, each after its norm and added to what came in.

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
        return self.after(states, self.attn.whole(self.norm1(states), lengths, mask))

    def after(self, states: Float[Tensor, "some width"], attended: Tensor) -> Float[Tensor, "some width"]:
        """Add what attention found, and do the rest of the layer."""
        states = states + attended
        return states + self.mlp(self.norm2(states))  # type: ignore[no-any-return]


def _split(tokens: Float[Tensor, "tokens width"], sizes: list[int]) -> tuple[Tensor, ...]:
    return (tokens,) if len(sizes) == 1 else torch.split(tokens, sizes)


def _joint(heads: Float[Tensor, "rows heads length share"]) -> Float[Tensor, "tokens width"]:
    return heads.transpose(1, 2).flatten(2).flatten(0, 1)
