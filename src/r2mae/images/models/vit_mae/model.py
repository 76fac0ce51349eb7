"""The network of `vit-mae`: an encoder of kept patches and a light decoder, which computes what the loss sees."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn.functional import embedding, linear

from r2mae.images.models.vit_mae.layers import NORM_EPSILON, Block, Group, Mask
from r2mae.images.patches import check_patch, patchify
from r2mae.training.units import within

_DEVIATION = 0.02  # of fresh tokens
_GRAPHS = 64  # that may be built for one model: pairs of lengths, with and without gradients


class VisionTransformerMAE(nn.Module):
    """A masked autoencoder of patches (He et al. 2022), whose parameters have the names of the original.

    Parameters
    ----------
    shape : (int, int, int)
        Height, width and channels of the images.
    patch : int
        Side of a patch in pixels.
    width, layers, heads : int
        Of the encoder.
    decoder_width, decoder_layers, decoder_heads : int
        Of the decoder.
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
        self.padded = False  # whether rows are padded to one of a few lengths, for compiled code
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
        """Draw fresh weights as the original does: Xavier for products, small tokens, no biases."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        nn.init.xavier_uniform_(self.patch_embed.proj.weight.data.flatten(1))
        nn.init.normal_(self.cls_token, std=_DEVIATION)
        nn.init.normal_(self.mask_token, std=_DEVIATION)

    def compile(self, *arguments: Any, **others: Any) -> None:
        """Compile the forward pass; rows are then padded to one of a few lengths, so that few graphs are built."""
        import torch._dynamo

        self.padded = True
        super().compile(*arguments, **{"dynamic": False, **others})
        compiled = self._compiled_call_impl
        assert compiled is not None

        def with_graphs(*inputs: Any, **named: Any) -> Any:
            # Only for these calls: the limit of other models of the process stays as it is.
            most = max(torch._dynamo.config.recompile_limit, _GRAPHS)
            with torch._dynamo.config.patch(recompile_limit=most):
                return compiled(*inputs, **named)

        self._compiled_call_impl = with_graphs

    def units(self) -> list[nn.Module]:
        """Return the layers of encoder and decoder; see :class:`r2mae.training.units.HasUnits`."""
        return [*self.blocks, *self.decoder_blocks]

    def encode(self, images: Float[Tensor, "batch height width channels"]) -> Float[Tensor, "batch tokens features"]:
        """Return the last hidden states of whole images, after the norm: of the class token, then of every patch.

        Parameters
        ----------
        images : tensor, shape (batch, height, width, channels)
            After :func:`r2mae.images.patches.standardised`.
        """
        patches = patchify(images, self.patch)
        batch, length, _ = patches.shape
        tokens = self.patch_embed(patches) + self.pos_embed[:, 1:]
        first = (self.cls_token + self.pos_embed[:, :1]).expand(batch, -1, -1)
        states = torch.cat([first, tokens], 1).flatten(0, 1)
        for block in self.blocks:
            states = block(states, [(batch, 1 + length)])
        return self.norm(states).view(batch, 1 + length, -1)  # type: ignore[no-any-return]

    def forward(
        self,
        patches: Float[Tensor, "kept numbers"],
        keep: Int64[Tensor, " kept"],
        asked: Int64[Tensor, " asked"],
        groups: Sequence[Group],
        encoder_mask: Mask = None,
        decoder_mask: Mask = None,
    ) -> tuple[Float[Tensor, "asked numbers"], Float[Tensor, "asked decoder_width"]]:
        """Predict hidden patches from kept ones.

        Parameters
        ----------
        patches : tensor, shape (kept, numbers)
            Standardised pixels of the kept patches of all images, one image after the other.
        keep, asked : int64 tensor, shapes (kept,) and (asked,)
            Places in their images of the kept patches, and of the patches that are to be predicted.
        groups : sequence of Group
            How many images have how many of them, in the order of the tokens.
        encoder_mask, decoder_mask : Bool tensor, shape (rows or 1, 1, 1, length), optional
            False at padding, in the order class token, kept, asked; for a single group.

        Returns
        -------
        prediction : tensor, shape (asked, numbers)
        states : tensor, shape (asked, decoder_width)
            The states of the decoder that the predictions are made of.
        """
        states = self._encoded(patches, keep, groups, encoder_mask)
        states = self._decoded(self.decoder_embed(states), keep, asked, groups, decoder_mask)
        return self.decoder_pred(states), states

    def _encoded(self, patches: Tensor, keep: Tensor, groups: Sequence[Group], mask: Mask) -> Tensor:
        tokens = self.patch_embed(patches) + self.pos_embed[0, 1:].index_select(0, keep)
        states = _with_first(self.cls_token[0] + self.pos_embed[0, :1], tokens, groups)
        lengths = [(rows, 1 + kept) for rows, kept, _ in groups]
        for block in self.blocks:
            states = block(states, lengths, mask)
        return self.norm(states)  # type: ignore[no-any-return]

    def _decoded(self, seen: Tensor, keep: Tensor, asked: Tensor, groups: Sequence[Group], mask: Mask) -> Tensor:
        """Return the normed states of asked patches.

        Before the first layer, a hidden patch is the mask token at its place, the same in all images: its norm, query,
        key and value are computed once for each place. In the last layer only asked patches have queries.
        """
        places = self.decoder_pos_embed[0]
        seen = seen + _with_first(places[:1], places[1:].index_select(0, keep), groups)
        blank = self.mask_token[0] + places[1:]
        first, *others = cast("list[Block]", list(self.decoder_blocks))
        if not others:
            return self.decoder_norm(within(first, _only, first, seen, blank, asked, groups, mask))  # type: ignore[no-any-return]
        states = within(first, _first, first, seen, blank, asked, groups, mask)
        lengths = [(rows, 1 + kept + some) for rows, kept, some in groups]
        for block in others[:-1]:
            states = block(states, lengths, mask)
        return self.decoder_norm(within(others[-1], _ask_last, others[-1], states, groups, mask))  # type: ignore[no-any-return]


class PatchEmbedding(nn.Module):
    """The linear map of flattened patches, whose weights are kept as those of a convolution.

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
    """Return sines and cosines of the places of patches, and zeros for the class token before them.

    The first half of the width tells the column, the second the row; the wavelengths are 2π·10000^(4i/width).

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


def _only(block: Block, seen: Tensor, blank: Tensor, asked: Tensor, groups: Sequence[Group], mask: Mask) -> Tensor:
    """Apply the layer of a decoder that has no other; `blank` are hidden patches at every place."""
    hidden = embedding(asked, blank)
    normed, blank = block.norm1(seen), block.norm1(blank)
    keys = _woven(block.attn.keys_of(normed), embedding(asked, block.attn.keys_of(blank)), groups)
    found = block.attn.ask(embedding(asked, blank), keys, _asking(groups), mask)
    return block.after(hidden, found)


def _first(block: Block, seen: Tensor, blank: Tensor, asked: Tensor, groups: Sequence[Group], mask: Mask) -> Tensor:
    """Apply the first layer of a decoder; `blank` are hidden patches at every place."""
    hidden = embedding(asked, blank)
    normed, blank = block.norm1(seen), block.norm1(blank)
    qkv = _woven(block.attn.qkv(normed), embedding(asked, block.attn.qkv(blank)), groups)
    lengths = [(rows, 1 + kept + some) for rows, kept, some in groups]
    return block.after(_woven(seen, hidden, groups), block.attn.proj(block.attn.attend(qkv, lengths, mask)))


def _ask_last(block: Block, states: Tensor, groups: Sequence[Group], mask: Mask) -> Tensor:
    """Apply the last layer of a decoder, at asked patches alone."""
    normed = block.norm1(states)
    found = block.attn.ask(_last(normed, groups), block.attn.keys_of(normed), _asking(groups), mask)
    return block.after(_last(states, groups), found)


def _asking(groups: Sequence[Group]) -> list[tuple[int, int, int]]:
    """Return rows, asking tokens and all tokens of each group."""
    return [(rows, some, 1 + kept + some) for rows, kept, some in groups]


def _with_first(first: Float[Tensor, "1 width"], tokens: Tensor, groups: Sequence[Group]) -> Tensor:
    """Put the class token in front of each image's kept patches."""
    made, sizes = [], [rows * kept for rows, kept, _ in groups]
    for (rows, kept, _), part in zip(groups, torch.split(tokens, sizes), strict=True):
        front = first.to(part.dtype).expand(rows, 1, -1)
        made.append(torch.cat([front, part.view(rows, kept, -1)], 1).flatten(0, 1))
    return made[0] if len(made) == 1 else torch.cat(made)


def _woven(seen: Tensor, hidden: Tensor, groups: Sequence[Group]) -> Tensor:
    """Put the asked patches of each image behind what the encoder saw of it."""
    made = []
    sizes = [rows * (1 + kept) for rows, kept, _ in groups], [rows * some for rows, _, some in groups]
    for (rows, _, _), mine, theirs in zip(
        groups, torch.split(seen, sizes[0]), torch.split(hidden, sizes[1]), strict=True
    ):
        both = [part.view(rows, len(part) // rows, -1) for part in (mine, theirs.to(mine.dtype))]
        made.append(torch.cat(both, 1).flatten(0, 1))
    return made[0] if len(made) == 1 else torch.cat(made)


def _last(states: Tensor, groups: Sequence[Group]) -> Tensor:
    """Take the asked patches of each image out of all tokens."""
    made, sizes = [], [rows * (1 + kept + some) for rows, kept, some in groups]
    for (rows, kept, _), part in zip(groups, torch.split(states, sizes), strict=True):
        made.append(part.view(rows, -1, part.shape[1])[:, 1 + kept :].flatten(0, 1))
    return made[0] if len(made) == 1 else torch.cat(made)
