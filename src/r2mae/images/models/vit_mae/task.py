"""Masked patches: the encoder sees kept patches, and the loss is the squared error at hidden ones."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from r2mae.images.models.vit_mae.hidden import HiddenPatches, choose_patches
from r2mae.images.models.vit_mae.layers import Group
from r2mae.images.models.vit_mae.model import VisionTransformerMAE
from r2mae.images.models.vit_mae.padding import pad_groups, padded_lengths, token_mask, unpad_groups
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
from r2mae.masking.masks import RatioLike
from r2mae.masking.schemes import Curriculum
from r2mae.training.task import Output


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
    decode : float
        Fraction of the hidden patches that the decoder sees and predicts: a random subset, drawn for every image from
        the key. The mean loss over the subset is an unbiased estimate of the mean over all hidden patches.
    mask : {"random", "block"}
        Hide patches at random positions, or in one block.
    pool : {"mean", "class"}
        What :meth:`embed` returns: the mean over patches, or the class token.
    width : int
        Width of the decoder, whose states the weight network of a curriculum takes.
    """

    shape: tuple[int, int, int]
    patch: int
    norm_pix: bool = True
    decode: float = 1.0
    mask: Literal["random", "block"] = "random"
    pool: Literal["mean", "class"] = "mean"
    width: int = 512

    @property
    def grid(self) -> tuple[int, int]:
        """Patches down and across."""
        return self.shape[0] // self.patch, self.shape[1] // self.patch

    @property
    def evaluation_task(self) -> "PatchTask":
        """The task of evaluation: every hidden patch is predicted."""
        return replace(self, decode=1.0)

    def check_images(self, name: str, shape: tuple[int, int, int]) -> None:
        """Refuse images of another size than the model's."""
        check_images(name, shape, self.shape)

    def corrupt(self, batch: Tensor, ratio: RatioLike, key: Key) -> HiddenPatches:
        """Hide a fixed count of patches (the rounded one) in every image.

        Parameters
        ----------
        batch : tensor, shape (batch, height, width, channels)
            uint8 (0 to 255) or float (0 to 1).
        ratio : float or ndarray of shape (batch,)
            Fraction of the patches that is hidden.
        key : Key
            ``key.row`` is the row of the first image in the global batch.
        """
        patches = patchify(batch, self.patch)
        rows, length, _ = patches.shape
        found = choose_patches(rows, self.grid, ratio, key, mask=self.mask, decode=self.decode, device=batch.device)
        numbers = patches.flatten(0, 1)
        targets = standardised_patches(numbers.index_select(0, found.asked_at), self.shape[2])
        return HiddenPatches(
            inputs=standardised_patches(numbers.index_select(0, found.keep_at), self.shape[2]),
            keep=found.keep,
            asked=found.asked,
            targets=normalised(targets) if self.norm_pix else targets,
            groups=found.groups,
            order=found.order,
            patches=length,
        )

    def forward(self, model: VisionTransformerMAE, corrupted: HiddenPatches) -> Output:
        """Predict hidden patches; the padding of compiled code is removed."""
        run, groups = model, corrupted.groups
        if not model.padded:
            return Output(*run(corrupted.inputs, corrupted.keep, corrupted.asked, groups))
        rows, (kept, asked) = sum(group.rows for group in groups), padded_lengths(groups, self.grid[0] * self.grid[1])
        found = run(
            pad_groups(corrupted.inputs, groups, 1, kept),
            pad_groups(corrupted.keep, groups, 1, kept),
            pad_groups(corrupted.asked, groups, 2, asked),
            (Group(rows, kept, asked),),
            token_mask(groups, kept, None, corrupted.keep.device),
            token_mask(groups, kept, asked, corrupted.keep.device),
        )
        return Output(*(unpad_groups(one, groups, asked) for one in found))

    def losses(self, output: Output, corrupted: HiddenPatches) -> Float[Tensor, " asked"]:
        """Return the mean squared error of each predicted patch."""
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
        corrupted = self.evaluation_task.corrupt(batch, ratio, key)
        made = self.forward(model, corrupted).prediction.float()
        channels = self.shape[2]
        patches = standardised_patches(patchify(batch, self.patch), channels)
        at = corrupted.sample_of(corrupted.asked, [group.asked for group in corrupted.groups]), corrupted.asked
        if self.norm_pix:
            variance, mean = torch.var_mean(patches[at], -1, keepdim=True)
            made = made * (variance + EPSILON).sqrt() + mean
        patches[at] = made
        clean = scaled(batch)
        seen = torch.where(corrupted.kept[..., None], patchify(clean, self.patch), GREY)
        completed = as_pixels(unpatchify(patches, self.patch, *self.shape[:2]))
        return Pictures(clean, unpatchify(seen, self.patch, *self.shape[:2]), completed)

    def weight_network(self, curriculum: Curriculum) -> nn.Module:
        """Return a network that makes one weight per hidden patch and ratio, from the decoder's state of the patch."""
        return UnitWeights(self.width, curriculum)

    def learned_weights(
        self, network: nn.Module, corrupted: HiddenPatches, output: Output
    ) -> Float[Tensor, "asked ratios"]:
        """Return the weights of the hidden patches of this mini-batch, over which they are normalised."""
        weights: Tensor = network(output.representation.float())
        return weights
