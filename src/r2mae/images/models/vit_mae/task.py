"""Masked patches: the encoder sees kept patches, and the loss is the squared error at hidden ones."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from r2mae.images.models.vit_mae.layers import Group
from r2mae.images.models.vit_mae.model import VisionTransformerMAE
from r2mae.images.patches import (
    EPSILON,
    as_pixels,
    block_distance,
    normalised,
    patchify,
    per_row_counts,
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
    """Patches of all images of a batch; images with equally many kept patches are adjacent.

    Parameters
    ----------
    keep, asked : int64 tensor
        Positions in their images of kept patches, and of the hidden ones that are predicted.
    groups : tuple of Group
        Images with equally many kept and predicted patches.
    order : int64 tensor, shape (batch,), optional
        Index in the batch of each image; None if the order is unchanged.
    """

    keep: Int64[Tensor, " kept"]
    asked: Int64[Tensor, " asked"]
    groups: tuple[Group, ...]
    order: Int64[Tensor, " batch"] | None

    def rows_of_kept(self) -> Int64[Tensor, " kept"]:
        """Return the row in the batch of every kept patch."""
        return self._rows([group.kept for group in self.groups])

    def rows_of_asked(self) -> Int64[Tensor, " asked"]:
        """Return the row in the batch of every predicted patch."""
        return self._rows([group.asked for group in self.groups])

    def _rows(self, each: Sequence[int]) -> Int64[Tensor, " units"]:
        """Return the row in the batch of every unit; `each` are the units of an image, for each group."""
        first, parts = 0, []
        for group, count in zip(self.groups, each, strict=True):
            rows = torch.arange(first, first + group.rows, device=self.keep.device)
            parts.append(rows.repeat_interleave(count))
            first += group.rows
        return torch.cat(parts) if self.order is None else self.order[torch.cat(parts)]


@dataclass(frozen=True, eq=False, kw_only=True)
class HiddenPatches(MaskedBatch):
    """A mini-batch with patches hidden.

    Parameters
    ----------
    inputs : Float tensor, shape (kept, numbers)
        Standardised pixels of the kept patches of all images.
    targets : Float tensor, shape (asked, numbers)
        Values to predict.
    choice : Choice
        The kept and predicted patches.
    patches : int
        Number of patches of an image.
    """

    inputs: Float[Tensor, "kept numbers"]
    targets: Float[Tensor, "asked numbers"]
    choice: Choice
    patches: int

    @property
    def weights(self) -> None:
        """None: all patches have the same weight."""

    @property
    def entries(self) -> int:
        """Number of patches of all images."""
        return self.patches * sum(group.rows for group in self.choice.groups)

    @property
    def count(self) -> int:
        """Number of predicted patches, known on the host."""
        return len(self.choice.asked)

    @property
    def share(self) -> float:
        """Fraction of the hidden patches that are predicted."""
        return self.count / (self.entries - len(self.choice.keep))

    @property
    def hidden(self) -> Bool[Tensor, "batch patches"]:
        """True at predicted patches, in the order of the batch; computed on access."""
        return self._flags(self.choice.rows_of_asked(), self.choice.asked)

    @property
    def kept(self) -> Bool[Tensor, "batch patches"]:
        """True at patches that the encoder sees."""
        return self._flags(self.choice.rows_of_kept(), self.choice.keep)

    def loss_rows(self) -> Int64[Tensor, " asked"]:
        """Return the row in the batch of every predicted patch."""
        return self.choice.rows_of_asked()

    def _flags(self, rows: Tensor, places: Tensor) -> Bool[Tensor, "batch patches"]:
        flags = torch.zeros(self.entries, dtype=torch.bool, device=rows.device)
        flags[rows * self.patches + places] = True
        return flags.view(-1, self.patches)


def choose_patches(
    rows: int,
    grid: tuple[int, int],
    ratio: RatioLike,
    key: Key,
    *,
    mask: Literal["random", "block"],
    decode: float,
    device: torch.device,
) -> Choice:
    """Hide a fixed count of patches (the rounded one) in every image, and choose those that are predicted.

    One ratio for all images is drawn on the device; ratios of single images, and blocks, on the host.

    Parameters
    ----------
    rows : int
        Number of images.
    grid : (int, int)
        Patches down and across.
    ratio : float or ndarray of shape (rows,)
        Fraction of the patches that is hidden.
    key : Key
        ``key.row`` is the row of the first image in the global batch.
    mask : {"random", "block"}
        Hide patches at random positions, or in one block.
    decode : float
        Fraction of the hidden patches that are predicted.
    device : device
        Device of the images.
    """
    length = grid[0] * grid[1]
    if isinstance(ratio, float) and mask == "random":
        keep, asked = patch_mask(rows, length, ratio, key, device=device)
        if (part := _choose_predicted(rows, asked.shape[1], decode, key, device)) is not None:
            asked = asked.gather(1, part)
        return Choice(keep.flatten(), asked.flatten(), (Group(rows, keep.shape[1], asked.shape[1]),), None)
    counts = per_row_counts(length, ratio, rows)
    if mask == "block":
        hidden = block_distance(rows, grid, key).argsort(1, kind="stable").argsort(1) < counts[:, None]
    else:
        hidden = element_mask((rows, length), ratio, key, exact=True).numpy()
    order = np.argsort(-counts, kind="stable")  # of few kept patches first
    groups, kept, predicted = [], [], []
    for count in np.unique(counts)[::-1].tolist():
        members = order[counts[order] == count]
        kept.append(np.nonzero(~hidden[members])[1])
        wanted = np.nonzero(hidden[members])[1].reshape(len(members), -1)
        if (part := _choose_predicted(rows, count, decode, key, torch.device("cpu"))) is not None:
            wanted = np.take_along_axis(wanted, part.numpy()[members], 1)
        predicted.append(wanted.flatten())
        groups.append(Group(len(members), length - count, wanted.shape[1]))
    made = [torch.from_numpy(one).to(device) for one in (np.concatenate(kept), np.concatenate(predicted), order)]
    return Choice(made[0], made[1], tuple(groups), made[2])


def _choose_predicted(
    rows: int, count: int, decode: float, key: Key, device: torch.device
) -> Int64[Tensor, "rows asked"] | None:
    """Choose which of `count` hidden patches of every image are predicted; None for all of them."""
    if decode == 1 or count < 2:
        return None
    return patch_mask(rows, count, decode, key.fold("decode"), device=device)[1]


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
        rows, length, channels = patches.shape[0], patches.shape[1], self.shape[2]
        choice = choose_patches(rows, self.grid, ratio, key, mask=self.mask, decode=self.decode, device=batch.device)
        numbers = patches.flatten(0, 1)
        seen = numbers.index_select(0, choice.rows_of_kept() * length + choice.keep)
        wanted = numbers.index_select(0, choice.rows_of_asked() * length + choice.asked)
        targets = standardised_patches(wanted, channels)
        return HiddenPatches(
            inputs=standardised_patches(seen, channels),
            targets=normalised(targets) if self.norm_pix else targets,
            choice=choice,
            patches=length,
        )

    def forward(self, model: VisionTransformerMAE, corrupted: HiddenPatches) -> Output:
        """Predict hidden patches."""
        choice = corrupted.choice
        return Output(*model(corrupted.inputs, choice.keep, choice.asked, choice.groups))

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
        at = corrupted.loss_rows(), corrupted.choice.asked
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
