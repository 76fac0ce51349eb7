"""The network of `vit-mae`: an encoder of kept patches, and a light decoder, computed only for the loss."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn.functional import embedding, linear

from r2mae.images.models.vit_mae.layers import NORM_EPSILON, Block, Group, join, split
from r2mae.images.patches import check_patch, patchify
from r2mae.training.units import within

_DEVIATION = 0.02  # of fresh tokens


class VisionTransformerMAE(nn.Module):
    """A masked autoencoder of patches (He et al. 2022), whose parameters have the names of the original.

    Parameters
    ----------
    shape : (int, int, int)
        Height, width and channels of the images.
    patch : int
        Side of a patch in pixels.
    width, layers, heads : int
        Sizes of the encoder.
    decoder_width, decoder_layers, decoder_heads : int
        Sizes of the decoder.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        *,
        patch: int = 16,
        width: int = 768,
        layers: int = 12,
        heads: int = 12,
        decoder_width: int = 512,
        decoder_layers: int = 8,
        decoder_heads: int = 16,
    ) -> None:
        super().__init__()
        height, across, channels = shape
        check_patch(height, across, patch)
        self.shape, self.patch = shape, patch
        self.grid = (height // patch, across // patch)
        self.patch_embed = PatchEmbedding(patch, channels, width)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(positions(width, self.grid), requires_grad=False)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width, eps=NORM_EPSILON)
        self.decoder_embed = nn.Linear(width, decoder_width)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, decoder_width))
        self.decoder_pos_embed = nn.Parameter(positions(decoder_width, self.grid), requires_grad=False)
        self.decoder_blocks = nn.ModuleList(Block(decoder_width, decoder_heads) for _ in range(decoder_layers))
        self.decoder_norm = nn.LayerNorm(decoder_width, eps=NORM_EPSILON)
        self.decoder_pred = nn.Linear(decoder_width, patch * patch * channels)
        self._initialise()

    def _initialise(self) -> None:
        """Initialise as the original: Xavier for matrices, small normal tokens, zero biases."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        nn.init.xavier_uniform_(self.patch_embed.proj.weight.data.flatten(1))
        nn.init.normal_(self.cls_token, std=_DEVIATION)
        nn.init.normal_(self.mask_token, std=_DEVIATION)

    def units(self) -> list[nn.Module]:
        """Return the layers of encoder and decoder; see :func:`r2mae.training.units.units_of`."""
        return [*self.blocks, *self.decoder_blocks]

    def encode(self, images: Float[Tensor, "batch height width channels"]) -> Float[Tensor, "batch tokens features"]:
        """Return the last hidden states of unmasked images, after the norm: the class token, then every patch.

        Parameters
        ----------
        images : tensor, shape (batch, height, width, channels)
            After :func:`r2mae.images.patches.standardised`.
        """
        return self.norm(unmasked_states(self, patchify(images, self.patch)))  # type: ignore[no-any-return]

    def forward(
        self,
        patches: Float[Tensor, "kept numbers"],
        keep: Int64[Tensor, " kept"],
        asked: Int64[Tensor, " asked"],
        groups: Sequence[Group],
    ) -> tuple[Float[Tensor, "asked numbers"], Float[Tensor, "asked decoder_width"]]:
        """Predict hidden patches from kept ones.

        Parameters
        ----------
        patches : tensor, shape (kept, numbers)
            Standardised pixels of the kept patches of all images, one image after the other.
        keep, asked : int64 tensor, shapes (kept,) and (asked,)
            Positions in their images of the kept patches, and of the patches to predict.
        groups : sequence of Group
            Images with equally many kept and predicted patches, in the order of the tokens.

        Returns
        -------
        prediction : tensor, shape (asked, numbers)
        states : tensor, shape (asked, decoder_width)
            The decoder's states from which the predictions are made.
        """
        tokens = self.patch_embed(patches) + self.pos_embed[0, 1:].index_select(0, keep)
        states = _prepend_class_token(self.cls_token[0] + self.pos_embed[0, :1], tokens, groups)
        for block in self.blocks:
            states = block(states, [(rows, 1 + kept) for rows, kept, _ in groups])
        states = self._decode(self.decoder_embed(self.norm(states)), keep, asked, groups)
        return self.decoder_pred(states), states

    def _decode(self, seen: Tensor, keep: Tensor, asked: Tensor, groups: Sequence[Group]) -> Tensor:
        """Return the normed states of asked patches.

        Before the first layer, a hidden patch is the mask token at its position, the same in all images: its norm,
        query, key and value are computed once for each position. In the last layer only asked patches have queries.
        """
        places = self.decoder_pos_embed[0]
        seen = seen + _prepend_class_token(places[:1], places[1:].index_select(0, keep), groups)
        blank = self.mask_token[0] + places[1:]
        *others, last = cast("list[Block]", list(self.decoder_blocks))
        if others:
            states = within(others[0], _first_decoder_layer, others[0], seen, blank, asked, groups)
        else:
            states = _append_asked(seen, embedding(asked, blank), groups)
        for block in others[1:]:
            states = block(states, [(rows, 1 + kept + some) for rows, kept, some in groups])
        return self.decoder_norm(within(last, _last_decoder_layer, last, states, groups))  # type: ignore[no-any-return]


class PatchEmbedding(nn.Module):
    """The linear map of flattened patches, whose weights are stored as those of a convolution.

    Parameters
    ----------
    patch, channels, width : int
        Sizes.
    """

    def __init__(self, patch: int, channels: int, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, width, patch, stride=patch)

    def forward(self, patches: Float[Tensor, "*tokens numbers"]) -> Float[Tensor, "*tokens width"]:
        """Map patches, flattened as (row, column, channel)."""
        return linear(patches, self.proj.weight.permute(0, 2, 3, 1).flatten(1), self.proj.bias)


def positions(width: int, grid: tuple[int, int]) -> Float[Tensor, "1 tokens width"]:
    """Return sines and cosines of the positions of patches, after zeros for the class token.

    The first half of the width encodes the column, the second the row; the wavelengths are 2π·10000^(4i/width).

    Parameters
    ----------
    width : int
        A multiple of 4.
    grid : (int, int)
        Patches down and across.
    """
    down, across = grid
    rates = 1 / 10000 ** (np.arange(width // 4) / (width / 4))
    rows, columns = np.divmod(np.arange(down * across), across)
    parts = [wave(place[:, None] * rates) for place in (columns, rows) for wave in (np.sin, np.cos)]
    table = np.concatenate([np.zeros((1, width)), np.concatenate(parts, axis=1)])
    return torch.from_numpy(table).float()[None]


def unmasked_states(
    encoder: Any, patches: Float[Tensor, "batch length numbers"], factors: Float[Tensor, "batch layers 2"] | None = None
) -> Float[Tensor, "batch tokens width"]:
    """Return the states of an encoder before its last norm, for the standardised patches of unmasked images.

    Parameters
    ----------
    encoder : module
        With the `patch_embed`, `cls_token`, `pos_embed` and `blocks` of :class:`VisionTransformerMAE`.
    patches : tensor, shape (batch, length, numbers)
    factors : tensor, shape (batch, layers, 2), optional
        Of the outputs of attention and MLP of each layer, for each image.
    """
    batch, length, _ = patches.shape
    tokens = encoder.patch_embed(patches) + encoder.pos_embed[:, 1:]
    first = (encoder.cls_token + encoder.pos_embed[:, :1]).expand(batch, -1, -1)
    states = torch.cat([first, tokens], 1).flatten(0, 1)
    for place, block in enumerate(encoder.blocks):
        states = block(states, [(batch, 1 + length)], None if factors is None else factors[:, place])
    return states.view(batch, 1 + length, -1)


def _first_decoder_layer(
    block: Block, seen: Tensor, blank: Tensor, asked: Tensor, groups: Sequence[Group]
) -> Float[Tensor, "tokens width"]:
    """Apply the first layer of a decoder; `blank` are hidden patches at every position."""
    of_seen, of_blank = (block.attn.qkv(block.norm1(states)) for states in (seen, blank))
    qkv = _append_asked(of_seen, embedding(asked, of_blank), groups)
    lengths = [(rows, 1 + kept + some) for rows, kept, some in groups]
    states = _append_asked(seen, embedding(asked, blank), groups)
    return block.finish(states, block.attn.self_attention(qkv, lengths))


def _last_decoder_layer(block: Block, states: Tensor, groups: Sequence[Group]) -> Float[Tensor, "asked width"]:
    """Apply the last layer of a decoder to asked patches only."""
    normed = block.norm1(states)
    lengths = [(rows, some, 1 + kept + some) for rows, kept, some in groups]
    found = block.attn.cross_attention(_asked_states(normed, groups), normed, lengths)
    return block.finish(_asked_states(states, groups), found)


def _prepend_class_token(first: Float[Tensor, "1 width"], tokens: Tensor, groups: Sequence[Group]) -> Tensor:
    """Prepend the class token to each image's kept patches."""
    made = []
    for (rows, kept, _), part in zip(groups, split(tokens, [rows * kept for rows, kept, _ in groups]), strict=True):
        front = first.to(part.dtype).expand(rows, 1, -1)
        made.append(torch.cat([front, part.view(rows, kept, -1)], 1).flatten(0, 1))
    return join(made)


def _append_asked(seen: Tensor, hidden: Tensor, groups: Sequence[Group]) -> Tensor:
    """Append each image's asked patches to its encoded tokens."""
    seen_parts = split(seen, [rows * (1 + kept) for rows, kept, _ in groups])
    hidden_parts = split(hidden, [rows * some for rows, _, some in groups])
    made = []
    for (rows, kept, some), one, other in zip(groups, seen_parts, hidden_parts, strict=True):
        both = one.view(rows, 1 + kept, -1), other.to(one.dtype).view(rows, some, -1)
        made.append(torch.cat(both, 1).flatten(0, 1))
    return join(made)


def _asked_states(states: Tensor, groups: Sequence[Group]) -> Tensor:
    """Return the states of each image's asked patches, which are its last tokens."""
    parts = split(states, [rows * (1 + kept + some) for rows, kept, some in groups])
    pairs = zip(groups, parts, strict=True)
    return join([part.view(group.rows, -1, part.shape[1])[:, 1 + group.kept :].flatten(0, 1) for group, part in pairs])
