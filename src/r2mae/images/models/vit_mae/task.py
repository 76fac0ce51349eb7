"""Masked patches: the encoder sees those that are kept, and the squared error is taken at hidden ones alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from torch.nn.functional import pad

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
from r2mae.images.task import GREY, Pictures, check_images, scaled
from r2mae.masking.curriculum import UnitWeights
from r2mae.masking.keys import Key
from r2mae.masking.masks import RatioLike, element_mask, patch_mask
from r2mae.masking.schemes import Curriculum
from r2mae.training.task import Output

LENGTHS = 8
"""Lengths of rows in compiled code: kept and hidden patches are padded to a multiple of an eighth of the image."""


@dataclass(frozen=True, eq=False, kw_only=True)
class HiddenPatches:
    """Images with patches hidden, images with equally many kept patches side by side.

    Parameters
    ----------
    inputs : Float tensor, shape (kept, numbers)
        Standardised pixels of the kept patches of all images.
    keep, asked : int64 tensor, shapes (kept,) and (asked,)
        Places of kept patches, and of those that are predicted, in their images.
    targets : Float tensor, shape (asked, numbers)
        What is predicted of them.
    groups : tuple of Group
        How many images have how many of them.
    order : int64 tensor, shape (batch,), optional
        Which image of the batch comes where; None where they are in their order.
    patches : int
        Of an image.
    """

    inputs: Float[Tensor, "kept numbers"]
    keep: Int64[Tensor, " kept"]
    asked: Int64[Tensor, " asked"]
    targets: Float[Tensor, "asked numbers"]
    groups: tuple[Group, ...]
    order: Int64[Tensor, " batch"] | None
    patches: int

    @property
    def weights(self) -> None:
        """None: patches weigh alike."""

    @property
    def entries(self) -> int:
        """Patches of all images."""
        return self.patches * sum(group.rows for group in self.groups)

    @property
    def count(self) -> int:
        """Patches that are predicted, known without asking the device."""
        return sum(group.rows * group.asked for group in self.groups)

    @property
    def share(self) -> float:
        """Patches that are predicted, of those that are hidden."""
        return self.count / (self.entries - sum(group.rows * group.kept for group in self.groups))

    @property
    def hidden(self) -> Bool[Tensor, "batch patches"]:
        """True at patches that are predicted, in the order of the batch; made when it is asked for."""
        return self._flags(self.asked, [group.asked for group in self.groups])

    @property
    def kept(self) -> Bool[Tensor, "batch patches"]:
        """True at patches that the encoder sees."""
        return self._flags(self.keep, [group.kept for group in self.groups])

    def rows_of(self, units: Tensor, each: Sequence[int]) -> Tensor:
        """Return the row of the batch that every unit belongs to, for `each` units in the images of a group."""
        rows = np.repeat(np.arange(sum(group.rows for group in self.groups)), self._of_rows(each))
        places = torch.from_numpy(rows).to(units.device)
        return places if self.order is None else self.order[places]

    def _of_rows(self, each: Sequence[int]) -> np.ndarray:
        return np.repeat(np.asarray(each, dtype=np.int64), [group.rows for group in self.groups])

    def _flags(self, units: Tensor, each: Sequence[int]) -> Bool[Tensor, "batch patches"]:
        flags = torch.zeros(self.entries, dtype=torch.bool, device=units.device)
        flags[self.rows_of(units, each) * self.patches + units] = True
        return flags.view(-1, self.patches)


@dataclass(frozen=True)
class PatchTask:
    """Masked autoencoding of patches (section "ViT-MAE" of the paper).

    Parameters
    ----------
    shape : (int, int, int)
        Height, width and channels of the images.
    patch : int
        Side of a patch in pixels.
    norm_pix : bool
        Targets are the pixels of a patch relative to its own mean and deviation.
    decode : float
        Share of the hidden patches that are predicted and seen by the decoder, a random part that is drawn for every
        image from the key. The mean over this part estimates the mean over all of them without bias.
    mask : {"random", "block"}
        Where patches are hidden.
    pool : {"mean", "class"}
        What :meth:`embed` returns: the mean over patches, or the class token.
    width : int
        Of the decoder, whose states a curriculum weighs patches by.
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
    def measured(self) -> "PatchTask":
        """The task as it is measured: every hidden patch is predicted."""
        return replace(self, decode=1.0)

    def check_images(self, name: str, shape: tuple[int, int, int]) -> None:
        """Refuse images of another size than the model's."""
        check_images(name, shape, self.shape)

    def corrupt(self, batch: Tensor, ratio: RatioLike, key: Key) -> HiddenPatches:
        """Hide exactly the rounded count of patches in every image.

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
        if isinstance(ratio, float) and self.mask == "random":
            keep, hidden = patch_mask(rows, length, ratio, key, device=batch.device)
            asked = self._part(hidden, key)
            groups: tuple[Group, ...] = (Group(rows, keep.shape[1], asked.shape[1]),)
            order, first = None, torch.arange(0, rows * length, length, device=batch.device)[:, None]
            kept_at, asked_at = (keep + first).flatten(), (asked + first).flatten()
            keep, asked = keep.flatten(), asked.flatten()
        else:
            keep, asked, groups, order = self._by_row(rows, ratio, key, batch.device)
            first = order * length
            kept_at = keep + first.repeat_interleave(_each(groups, 1, batch.device), output_size=len(keep))
            asked_at = asked + first.repeat_interleave(_each(groups, 2, batch.device), output_size=len(asked))
        numbers = patches.flatten(0, 1)
        targets = standardised_patches(numbers.index_select(0, asked_at), self.shape[2])
        return HiddenPatches(
            inputs=standardised_patches(numbers.index_select(0, kept_at), self.shape[2]),
            keep=keep,
            asked=asked,
            targets=normalised(targets) if self.norm_pix else targets,
            groups=groups,
            order=order,
            patches=length,
        )

    def _part(self, hidden: Int64[Tensor, "batch hidden"], key: Key) -> Int64[Tensor, "batch asked"]:
        """Choose the hidden patches that are predicted."""
        rows, count = hidden.shape
        if self.decode == 1 or count < 2:
            return hidden
        _, part = patch_mask(rows, count, self.decode, key.fold("decode"), device=hidden.device)
        return hidden.gather(1, part)

    def _by_row(
        self, rows: int, ratio: RatioLike, key: Key, device: torch.device
    ) -> tuple[Tensor, Tensor, tuple[Group, ...], Tensor]:
        """Choose on the host, image by image; those with equally many kept patches come side by side."""
        length = self.grid[0] * self.grid[1]
        counts = per_row_counts(length, ratio, rows)
        if self.mask == "block":
            distance = block_distance(rows, self.grid, key)
            hidden = distance.argsort(1, kind="stable").argsort(1) < counts[:, None]
        else:
            hidden = element_mask((rows, length), ratio, key, exact=True).numpy()
        order = np.argsort(-counts, kind="stable")  # of few kept patches first
        groups, keep, asked = [], [], []
        for count in np.unique(counts)[::-1]:
            members = order[counts[order] == count]
            keep.append(np.nonzero(~hidden[members])[1])
            part = self._part_of(np.nonzero(hidden[members])[1].reshape(len(members), -1), members, key)
            asked.append(part.flatten())
            groups.append(Group(len(members), length - int(count), part.shape[1]))
        made = (torch.from_numpy(one).to(device) for one in (np.concatenate(keep), np.concatenate(asked), order))
        flat_keep, flat_asked, places = made
        return flat_keep, flat_asked, tuple(groups), places

    def _part_of(self, hidden: np.ndarray, members: np.ndarray, key: Key) -> np.ndarray:
        """Choose as :meth:`_part` does, for images from anywhere in the batch."""
        count = hidden.shape[1]
        if self.decode == 1 or count < 2:
            return hidden
        folded = key.fold("decode")
        each = [patch_mask(1, count, self.decode, folded.rows(key.row + int(row)))[1].numpy() for row in members]
        return np.take_along_axis(hidden, np.concatenate(each), 1)

    def forward(self, model: VisionTransformerMAE, corrupted: HiddenPatches) -> Output:
        """Predict hidden patches; padding, in compiled code, is taken off again."""
        run, groups = model, corrupted.groups
        if not model.padded:
            return Output(*run(corrupted.inputs, corrupted.keep, corrupted.asked, groups))
        rows, (kept, asked) = sum(group.rows for group in groups), self.padded_lengths(groups)
        found = run(
            _filled(corrupted.inputs, groups, 1, kept),
            _filled(corrupted.keep, groups, 1, kept),
            _filled(corrupted.asked, groups, 2, asked),
            (Group(rows, kept, asked),),
            _real(groups, kept, None, corrupted.keep.device),
            _real(groups, kept, asked, corrupted.keep.device),
        )
        return Output(*(_unfilled(one, groups, asked) for one in found))

    def padded_lengths(self, groups: Sequence[Group]) -> tuple[int, int]:
        """Return to how many kept and asked patches rows are padded in compiled code."""
        length = self.grid[0] * self.grid[1]
        unit = -(-length // LENGTHS)
        most = (max(group.kept for group in groups), max(group.asked for group in groups))
        kept, asked = (min(-(-one // unit) * unit, length) for one in most)
        return kept, asked

    def losses(self, output: Output, corrupted: HiddenPatches) -> Float[Tensor, " asked"]:
        """Return the squared error of each predicted patch, the mean over its numbers."""
        return (output.prediction.float() - corrupted.targets).square().mean(1)

    @torch.no_grad()
    def embed(self, model: VisionTransformerMAE, batch: Tensor) -> Float[Tensor, "batch width"]:
        """Return the mean over the patches of whole images after the last norm, or the class token there."""
        states = model.encode(standardised(batch))
        return states[:, 0] if self.pool == "class" else states[:, 1:].mean(1)

    @torch.no_grad()
    def complete(self, model: VisionTransformerMAE, batch: Tensor, ratio: float, key: Key) -> Pictures:
        """Mask images and let the model complete them: hidden patches are its own, kept ones the images'.

        A prediction of normalised pixels is brought back with the mean and the deviation of the true patch.
        """
        corrupted = self.measured.corrupt(batch, ratio, key)
        made = self.forward(model, corrupted).prediction.float()
        channels = self.shape[2]
        patches = standardised_patches(patchify(batch, self.patch), channels)
        at = corrupted.rows_of(corrupted.asked, [group.asked for group in corrupted.groups]), corrupted.asked
        if self.norm_pix:
            variance, mean = torch.var_mean(patches[at], -1, keepdim=True)
            made = made * (variance + EPSILON).sqrt() + mean
        patches[at] = made
        clean = scaled(batch)
        seen = torch.where(corrupted.kept[..., None], patchify(clean, self.patch), GREY)
        completed = as_pixels(unpatchify(patches, self.patch, *self.shape[:2]))
        return Pictures(clean, unpatchify(seen, self.patch, *self.shape[:2]), completed)

    def weight_network(self, curriculum: Curriculum) -> nn.Module:
        """Return a network that makes one weight per hidden patch and ratio, from the decoder's state there."""
        return UnitWeights(self.width, curriculum)

    def learned_weights(
        self, network: nn.Module, corrupted: HiddenPatches, output: Output
    ) -> Float[Tensor, "asked ratios"]:
        """Return the weights of the hidden patches of this mini-batch; they are normalised over these alone."""
        weights: Tensor = network(output.representation.float())
        return weights


def _each(groups: Sequence[Group], which: int, device: torch.device) -> Int64[Tensor, " batch"]:
    """Return kept (1) or asked (2) patches of every image."""
    return torch.tensor([group[which] for group in groups for _ in range(group.rows)], device=device)


def _filled(units: Tensor, groups: Sequence[Group], which: int, most: int) -> Tensor:
    """Pad kept (1) or asked (2) patches of every image with zeros."""
    sizes, made = [group.rows * group[which] for group in groups], []
    for group, part in zip(groups, torch.split(units, sizes), strict=True):
        rows = part.reshape(group.rows, group[which], *part.shape[1:])
        made.append(pad(rows, (*(0, 0) * (part.ndim - 1), 0, most - group[which])).flatten(0, 1))
    return torch.cat(made)


def _unfilled(units: Tensor, groups: Sequence[Group], most: int) -> Tensor:
    """Take the padding of asked patches off."""
    sizes = [group.rows * most for group in groups]
    parts = zip(groups, torch.split(units, sizes), strict=True)
    return torch.cat([part.reshape(group.rows, most, -1)[:, : group.asked].flatten(0, 1) for group, part in parts])


def _real(groups: Sequence[Group], kept: int, asked: int | None, device: torch.device) -> Bool[Tensor, "rows 1 1 n"]:
    """Return False at the padding of rows: class token, kept and, where they are given, asked patches."""
    made = []
    for group in groups:
        flags = np.zeros(1 + kept + (asked or 0), dtype=bool)
        flags[: 1 + group.kept] = True
        if asked is not None:
            flags[1 + kept : 1 + kept + group.asked] = True
        made.append(np.broadcast_to(flags, (1 if len(groups) == 1 else group.rows, len(flags))))
    return torch.from_numpy(np.concatenate(made)).to(device)[:, None, None]
