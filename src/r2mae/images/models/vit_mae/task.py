"""Masked patches: the encoder sees kept patches, and the loss is the squared error at hidden ones."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from r2mae.images.models.vit_mae.model import Group, VisionTransformerMAE
from r2mae.images.patches import (
    EPSILON,
    as_pixels,
    normalised,
    patchify,
    standardised,
    standardised_patches,
    unpatchify,
)
from r2mae.images.task import GREY, ImageTask, Pictures, check_images, scaled
from r2mae.masking.curriculum import UnitWeights
from r2mae.masking.keys import Key
from r2mae.masking.masks import RatioLike, element_mask, patch_mask
from r2mae.masking.schemes import Curriculum
from r2mae.training.task import MaskedBatch, Output


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

    @property
    def weights(self) -> None:
        """None: all patches have the same weight."""

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
    pool : {"mean", "class"}
        What :meth:`embed` returns: the mean over patches, or the class token.
    width : int
        Width of the decoder, whose states the weight network of a curriculum takes.
    """

    shape: tuple[int, int, int]
    patch: int
    norm_pix: bool = True
    pool: Literal["mean", "class"] = "mean"
    width: int = 512

    def check_images(self, name: str, shape: tuple[int, int, int]) -> None:
        """Refuse images of another size than the model's."""
        check_images(name, shape, self.shape)

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
        """Return the mean over the patches of unmasked images after the last norm, or their class token."""
        states = model.encode(standardised(batch))
        return states[:, 0] if self.pool == "class" else states[:, 1:].mean(1)

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
