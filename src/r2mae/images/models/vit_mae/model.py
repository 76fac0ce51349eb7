"""The network and the task of `vit-mae`: an encoder of kept patches, and a light decoder of all patches.

The tokens of all images are one matrix (tokens, width), on which norms and matrix products act. Only attention needs to
know the images. Images with equally many tokens are adjacent and form a group, with one call of attention for each
group. With one mask ratio for a mini-batch, which is the default, there is a single group.

The loss is the squared error at hidden patches.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention

from r2mae.images.patches import (
    EPSILON,
    as_pixels,
    check_patch,
    normalised,
    patchify,
    standardised,
    standardised_patches,
    unpatchify,
)
from r2mae.images.task import GREY, ImageTask, Pictures, scaled
from r2mae.masking.curriculum import UnitWeights
from r2mae.masking.keys import Key
from r2mae.masking.masks import RatioLike, element_mask, patch_mask
from r2mae.masking.schemes import Curriculum
from r2mae.training.task import MaskedBatch, Output

NORM_EPSILON = 1e-6
_DEVIATION = 0.02  # of fresh tokens


class Group(NamedTuple):
    """Adjacent images with equally many tokens: their number, and the kept patches of each."""

    rows: int
    kept: int


class Attention(nn.Module):
    """Self-attention, with queries, keys and values from one matrix product."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(
        self, states: Float[Tensor, "tokens width"], lengths: Sequence[tuple[int, int]]
    ) -> Float[Tensor, "tokens width"]:
        """Attend from all tokens of an image to all; `lengths` are images and tokens of each group."""
        found = []
        for (rows, length), part in zip(lengths, _split(self.qkv(states), lengths), strict=True):
            query, key, value = part.view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
            found.append(_attend(query, key, value))
        return self.proj(_join(found))  # type: ignore[no-any-return]


class Block(nn.Module):
    """A layer of the transformer: attention, then an MLP four times as wide, each after a norm and with a residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=NORM_EPSILON)
        self.attn = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=NORM_EPSILON)
        fc1, fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.mlp = nn.Sequential(OrderedDict(fc1=fc1, gelu=nn.GELU(), fc2=fc2))

    def forward(
        self,
        states: Float[Tensor, "tokens width"],
        lengths: Sequence[tuple[int, int]],
        factors: Float[Tensor, "rows 2"] | None = None,
    ) -> Float[Tensor, "tokens width"]:
        """Transform all tokens; `factors` of each image scale the outputs of attention and MLP (drop path)."""
        of_attention, of_mlp = (None, None) if factors is None else factors.unbind(1)
        states = states + _scaled(self.attn(self.norm1(states), lengths), of_attention)
        return states + _scaled(self.mlp(self.norm2(states)), of_mlp)


class VisionTransformerMAE(nn.Module):
    """A masked autoencoder of patches (He et al. 2022), whose parameters have the names of the original.

    `shape` is height, width and channels of the images, `patch` the side of a patch in pixels.
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
        # Initialised as the original: Xavier for matrices, small normal tokens, zero biases.
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        nn.init.xavier_uniform_(self.patch_embed.proj.weight.data.flatten(1))
        nn.init.normal_(self.cls_token, std=_DEVIATION)
        nn.init.normal_(self.mask_token, std=_DEVIATION)

    def units(self) -> list[nn.Module]:
        """Return the layers of encoder and decoder; see :func:`r2mae.training.task.units_of`."""
        return [*self.blocks, *self.decoder_blocks]

    def encode(self, images: Float[Tensor, "batch height width channels"]) -> Float[Tensor, "batch tokens features"]:
        """Return the last states of unmasked, standardised images, after the norm: the class token, then each patch."""
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
            Places of the kept patches, and of those to predict: the index of the image times the number of patches of
            an image, plus the index of the patch.
        groups : sequence of Group
            Images with equally many kept patches, in the order of the tokens.

        Returns
        -------
        prediction : tensor, shape (asked, numbers)
        states : tensor, shape (asked, decoder_width)
            The decoder's states from which the predictions are made.
        """
        number, batch = self.grid[0] * self.grid[1], sum(group.rows for group in groups)
        lengths = [(rows, 1 + kept) for rows, kept in groups]
        tokens = self.patch_embed(patches) + self.pos_embed[0, 1:].index_select(0, keep % number)
        first, parts = self.cls_token + self.pos_embed[:, :1], []
        for (rows, kept), part in zip(groups, _split(tokens, groups), strict=True):
            parts.append(torch.cat([first.expand(rows, -1, -1), part.view(rows, kept, -1)], 1).flatten(0, 1))
        states = _join(parts)
        for block in self.blocks:
            states = block(states, lengths)
        seen = self.decoder_embed(self.norm(states)).to(self.mask_token.dtype)  # 16 bits with autocast
        images = [part.view(*length, -1) for length, part in zip(lengths, _split(seen, lengths), strict=True)]
        everywhere = self.mask_token[0].expand(batch * number, -1)
        filled = everywhere.index_copy(0, keep, _join([part[:, 1:].flatten(0, 1) for part in images]))
        whole = torch.cat([_join([part[:, :1] for part in images]), filled.view(batch, number, -1)], 1)
        states = (whole + self.decoder_pos_embed).flatten(0, 1)
        for block in self.decoder_blocks:
            states = block(states, [(batch, 1 + number)])
        found = states.view(batch, 1 + number, -1)[:, 1:].flatten(0, 1).index_select(0, asked)
        found = self.decoder_norm(found)
        return self.decoder_pred(found), found


class PatchEmbedding(nn.Module):
    """The linear map of flattened patches, whose weights are stored as those of a convolution."""

    def __init__(self, patch: int, channels: int, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, width, patch, stride=patch)

    def forward(self, patches: Float[Tensor, "*tokens numbers"]) -> Float[Tensor, "*tokens width"]:
        """Map patches, flattened as (row, column, channel)."""
        return linear(patches, self.proj.weight.permute(0, 2, 3, 1).flatten(1), self.proj.bias)


def positions(width: int, grid: tuple[int, int]) -> Float[Tensor, "1 tokens width"]:
    """Return sines and cosines of the positions of patches, after zeros for the class token.

    The first half of the width, a multiple of 4, encodes the column, the second the row; the wavelengths are
    2π·10000^(4i/width). `grid` are the patches down and across.
    """
    down, across = grid
    if torch.get_default_device().type == "meta":  # the memory of a model is estimated
        return torch.empty(1, 1 + down * across, width)
    rates = 1 / 10000 ** (np.arange(width // 4) / (width / 4))
    rows, columns = np.divmod(np.arange(down * across), across)
    parts = [wave(place[:, None] * rates) for place in (columns, rows) for wave in (np.sin, np.cos)]
    table = np.concatenate([np.zeros((1, width)), np.concatenate(parts, axis=1)])
    return torch.from_numpy(table).float()[None]


def unmasked_states(
    encoder: Any, patches: Float[Tensor, "batch length numbers"], factors: Float[Tensor, "batch layers 2"] | None = None
) -> Float[Tensor, "batch tokens width"]:
    """Return the states of an encoder before its last norm, for the standardised patches of unmasked images.

    `encoder` has the `patch_embed`, `cls_token`, `pos_embed` and `blocks` of :class:`VisionTransformerMAE`; `factors`
    are those of the outputs of attention and MLP of each layer, for each image.
    """
    batch, length, _ = patches.shape
    tokens = encoder.patch_embed(patches) + encoder.pos_embed[:, 1:]
    first = (encoder.cls_token + encoder.pos_embed[:, :1]).expand(batch, -1, -1)
    states = torch.cat([first, tokens], 1).flatten(0, 1)
    for place, block in enumerate(encoder.blocks):
        states = block(states, [(batch, 1 + length)], None if factors is None else factors[:, place])
    return states.view(batch, 1 + length, -1)


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


def _scaled(branch: Float[Tensor, "tokens width"], factors: Float[Tensor, " rows"] | None) -> Tensor:
    """Multiply the tokens of each image, equally many for all images, by its factor."""
    if factors is None:
        return branch
    scale = factors[:, None, None].to(branch.dtype)
    return (branch.view(len(factors), -1, branch.shape[1]) * scale).view(branch.shape)


def _split(tokens: Float[Tensor, "tokens width"], lengths: Sequence[tuple[int, int]]) -> tuple[Tensor, ...]:
    """Split tokens into those of each group; `lengths` are images and tokens of each."""
    return (tokens,) if len(lengths) == 1 else torch.split(tokens, [rows * length for rows, length in lengths])


def _join(parts: list[Tensor]) -> Tensor:
    """Concatenate what all groups have."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)


class Choice(NamedTuple):
    """Kept and hidden patches of all images of a batch; images with equally many kept patches are adjacent.

    The place of a patch is the index of its image, in this order, times the number of `patches` of an image, plus the
    index of the patch. `order` is the index in the batch of each image; None if the order is unchanged.
    """

    keep: Int64[Tensor, " kept"]
    hide: Int64[Tensor, " hidden"]
    groups: tuple[Group, ...]
    patches: int
    order: Int64[Tensor, " batch"] | None

    def in_batch(self, places: Int64[Tensor, " units"]) -> Int64[Tensor, " units"]:
        """Return places in the order of the batch."""
        if self.order is None:
            return places
        return self.order[places // self.patches] * self.patches + places % self.patches


@dataclass(frozen=True, eq=False, kw_only=True)
class HiddenPatches(MaskedBatch):
    """A mini-batch with patches hidden: standardised pixels of kept patches, and values to predict of hidden ones."""

    inputs: Float[Tensor, "kept numbers"]
    targets: Float[Tensor, "hidden numbers"]
    choice: Choice
    weights: None = None  # all patches have the same

    @property
    def entries(self) -> int:
        """Number of patches of all images."""
        return len(self.choice.keep) + self.count

    @property
    def count(self) -> int:
        """Number of hidden patches, known on the host."""
        return len(self.choice.hide)

    @property
    def hidden(self) -> Bool[Tensor, "batch patches"]:
        """True at hidden patches, in the order of the batch; computed on access."""
        places = self.choice.in_batch(self.choice.hide)
        flags = torch.zeros(self.entries, dtype=torch.bool, device=places.device)
        flags[places] = True
        return flags.view(-1, self.choice.patches)

    def loss_rows(self) -> Int64[Tensor, " hidden"]:
        """Return the row in the batch of every hidden patch."""
        return self.choice.in_batch(self.choice.hide) // self.choice.patches


def choose_patches(rows: int, patches: int, ratio: RatioLike, key: Key, device: torch.device) -> Choice:
    """Hide a fixed count of the patches (the rounded one) in every one of `rows` images.

    One ratio for all images is drawn on their device, ratios of single images on the host.
    """
    if isinstance(ratio, float):
        keep, hide = patch_mask(rows, patches, ratio, key, device=device)
        first = torch.arange(rows, device=device)[:, None] * patches
        return Choice((keep + first).flatten(), (hide + first).flatten(), (Group(rows, keep.shape[1]),), patches, None)
    hidden = element_mask((rows, patches), ratio, key, exact=True).numpy()
    kept = patches - hidden.sum(1)
    order = np.argsort(kept, kind="stable")
    lengths, counts = np.unique(kept, return_counts=True)
    groups = tuple(map(Group, counts.tolist(), lengths.tolist()))
    places = np.flatnonzero(~hidden[order]), np.flatnonzero(hidden[order])
    keep, hide, moved = (torch.from_numpy(one).to(device) for one in (*places, order))
    return Choice(keep, hide, groups, patches, moved)


@dataclass(frozen=True)
class PatchTask(ImageTask["VisionTransformerMAE"]):
    """Masked autoencoding of patches (section "ViT-MAE" of the paper).

    Parameters
    ----------
    shape : (int, int, int)
        Height, width and channels of the images.
    patch : int
        Side of a patch in pixels.
    norm_pix : bool
        Targets are the pixels of a patch normalised by its own mean and deviation.
    width : int
        Width of the decoder, whose states the weight network of a curriculum takes.
    """

    shape: tuple[int, int, int]
    patch: int
    norm_pix: bool = True
    width: int = 512

    def corrupt(self, batch: Tensor, ratio: RatioLike, key: Key) -> HiddenPatches:
        """Hide a fixed count of patches (the rounded one) in every image; pixels are uint8, or floats from 0 to 1."""
        patches, channels = patchify(batch, self.patch), self.shape[2]
        choice = choose_patches(len(patches), patches.shape[1], ratio, key, batch.device)
        numbers = patches.flatten(0, 1)
        seen, wanted = (
            standardised_patches(numbers.index_select(0, choice.in_batch(places)), channels)
            for places in (choice.keep, choice.hide)
        )
        return HiddenPatches(inputs=seen, targets=normalised(wanted) if self.norm_pix else wanted, choice=choice)

    def forward(self, model: VisionTransformerMAE, corrupted: HiddenPatches) -> Output:
        """Predict hidden patches."""
        choice = corrupted.choice
        return Output(*model(corrupted.inputs, choice.keep, choice.hide, choice.groups))

    def losses(self, output: Output, corrupted: HiddenPatches) -> Float[Tensor, " hidden"]:
        """Return the mean squared error of each hidden patch."""
        return (output.prediction.float() - corrupted.targets).square().mean(1)

    @torch.no_grad()
    def embed(self, model: VisionTransformerMAE, batch: Tensor) -> Float[Tensor, "batch width"]:
        """Return the mean over the patches of unmasked images after the last norm."""
        return model.encode(standardised(batch))[:, 1:].mean(1)

    @torch.no_grad()
    def complete(self, model: VisionTransformerMAE, batch: Tensor, ratio: float, key: Key) -> Pictures:
        """Mask images and complete them: kept patches are the originals, hidden ones are predicted.

        Predictions of normalised pixels are scaled back by the mean and deviation of the true patch.
        """
        corrupted = self.corrupt(batch, ratio, key)
        made = self.forward(model, corrupted).prediction.float()
        patches = standardised_patches(patchify(batch, self.patch), self.shape[2])
        hidden = corrupted.hidden
        if self.norm_pix:
            variance, mean = torch.var_mean(patches[hidden], -1, keepdim=True)
            made = made * (variance + EPSILON).sqrt() + mean
        patches[hidden] = made
        clean = scaled(batch)
        seen = torch.where(hidden[..., None], GREY, patchify(clean, self.patch))
        completed = as_pixels(unpatchify(patches, self.patch, *self.shape[:2]))
        return clean, unpatchify(seen, self.patch, *self.shape[:2]), completed

    def weight_network(self, curriculum: Curriculum) -> nn.Module:
        """Return a network that makes one weight per hidden patch and ratio, from the decoder's state of the patch."""
        return UnitWeights(self.width, curriculum)

    def learned_weights(
        self, network: nn.Module, corrupted: HiddenPatches, output: Output
    ) -> Float[Tensor, "hidden ratios"]:
        """Return the weights of the hidden patches of this mini-batch, over which they are normalised."""
        weights: Tensor = network(output.representation.float())
        return weights
