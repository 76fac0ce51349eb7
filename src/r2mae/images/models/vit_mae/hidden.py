"""The choice of hidden, kept and predicted patches, and the mini-batch that results."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from r2mae.images.models.vit_mae.layers import Group
from r2mae.images.patches import block_distance, per_row_counts
from r2mae.masking.keys import Key
from r2mae.masking.masks import RatioLike, element_mask, patch_mask
from r2mae.training.task import MaskedBatch


@dataclass(frozen=True, eq=False, kw_only=True)
class HiddenPatches(MaskedBatch):
    """A mini-batch with patches hidden; images with equally many kept patches are adjacent.

    Parameters
    ----------
    inputs : Float tensor, shape (kept, numbers)
        Standardised pixels of the kept patches of all images.
    keep, asked : int64 tensor, shapes (kept,) and (asked,)
        Positions in their images of kept patches and of predicted ones.
    targets : Float tensor, shape (asked, numbers)
        Values to predict.
    groups : tuple of Group
        Images with equally many kept and predicted patches.
    order : int64 tensor, shape (batch,), optional
        Index in the batch of each image; None if the order is unchanged.
    patches : int
        Number of patches of an image.
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
        """None: all patches have the same weight."""

    @property
    def entries(self) -> int:
        """Number of patches of all images."""
        return self.patches * sum(group.rows for group in self.groups)

    @property
    def count(self) -> int:
        """Number of predicted patches, known on the host."""
        return sum(group.rows * group.asked for group in self.groups)

    @property
    def share(self) -> float:
        """Fraction of the hidden patches that are predicted."""
        return self.count / (self.entries - sum(group.rows * group.kept for group in self.groups))

    @property
    def hidden(self) -> Bool[Tensor, "batch patches"]:
        """True at predicted patches, in the order of the batch; computed on access."""
        return self._patch_flags(self.asked, [group.asked for group in self.groups])

    @property
    def kept(self) -> Bool[Tensor, "batch patches"]:
        """True at patches that the encoder sees."""
        return self._patch_flags(self.keep, [group.kept for group in self.groups])

    def loss_rows(self) -> Int64[Tensor, " asked"]:
        """Return the row in the batch of every predicted patch."""
        return self.sample_of(self.asked, [group.asked for group in self.groups])

    def sample_of(self, units: Tensor, each: Sequence[int]) -> Tensor:
        """Return the row in the batch of every unit; `each` are the units of an image, for each group."""
        rows = np.repeat(np.arange(sum(group.rows for group in self.groups)), self._repeat_counts(each))
        places = torch.from_numpy(rows).to(units.device)
        return places if self.order is None else self.order[places]

    def _repeat_counts(self, each: Sequence[int]) -> np.ndarray:
        return np.repeat(np.asarray(each, dtype=np.int64), [group.rows for group in self.groups])

    def _patch_flags(self, units: Tensor, each: Sequence[int]) -> Bool[Tensor, "batch patches"]:
        flags = torch.zeros(self.entries, dtype=torch.bool, device=units.device)
        flags[self.sample_of(units, each) * self.patches + units] = True
        return flags.view(-1, self.patches)


class Choice(NamedTuple):
    """Patches of all images of a batch; images with equally many kept patches are adjacent.

    Parameters
    ----------
    keep, asked : int64 tensor
        Positions in their images of kept patches, and of the hidden ones that are predicted.
    keep_at, asked_at : int64 tensor
        The same patches, numbered over the batch: image × patches + position.
    groups : tuple of Group
        Images with equally many kept and predicted patches.
    order : int64 tensor, shape (batch,), optional
        Index in the batch of each image; None if the order is unchanged.
    """

    keep: Int64[Tensor, " kept"]
    asked: Int64[Tensor, " asked"]
    keep_at: Int64[Tensor, " kept"]
    asked_at: Int64[Tensor, " asked"]
    groups: tuple[Group, ...]
    order: Int64[Tensor, " batch"] | None


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
        keep, hidden = patch_mask(rows, length, ratio, key, device=device)
        asked = (
            hidden
            if (part := _choose_predicted(rows, hidden.shape[1], decode, key, device)) is None
            else hidden.gather(1, part)
        )
        first = torch.arange(0, rows * length, length, device=device)[:, None]
        groups = (Group(rows, keep.shape[1], asked.shape[1]),)
        at = (keep + first).flatten(), (asked + first).flatten()
        return Choice(keep.flatten(), asked.flatten(), *at, groups, None)
    return _choose_by_row(rows, grid, ratio, key, mask, decode, device)


def _choose_by_row(
    rows: int,
    grid: tuple[int, int],
    ratio: RatioLike,
    key: Key,
    mask: Literal["random", "block"],
    decode: float,
    device: torch.device,
) -> Choice:
    """Choose on the host; images may have different counts."""
    length = grid[0] * grid[1]
    counts = per_row_counts(length, ratio, rows)
    if mask == "block":
        hidden = block_distance(rows, grid, key).argsort(1, kind="stable").argsort(1) < counts[:, None]
    else:
        hidden = element_mask((rows, length), ratio, key, exact=True).numpy()
    order = np.argsort(-counts, kind="stable")  # of few kept patches first
    groups, keep, asked = [], [], []
    for count in np.unique(counts)[::-1].tolist():
        members = order[counts[order] == count]
        keep.append(np.nonzero(~hidden[members])[1])
        wanted = np.nonzero(hidden[members])[1].reshape(len(members), -1)
        if (part := _choose_predicted(rows, count, decode, key, torch.device("cpu"))) is not None:
            wanted = np.take_along_axis(wanted, part.numpy()[members], 1)
        asked.append(wanted.flatten())
        groups.append(Group(len(members), length - count, wanted.shape[1]))
    made = (torch.from_numpy(one).to(device) for one in (np.concatenate(keep), np.concatenate(asked), order))
    flat_keep, flat_asked, places = made
    first = places * length
    keep_at = flat_keep + first.repeat_interleave(_counts_per_image(groups, 1, device), output_size=len(flat_keep))
    asked_at = flat_asked + first.repeat_interleave(_counts_per_image(groups, 2, device), output_size=len(flat_asked))
    return Choice(flat_keep, flat_asked, keep_at, asked_at, tuple(groups), places)


def _choose_predicted(
    rows: int, count: int, decode: float, key: Key, device: torch.device
) -> Int64[Tensor, "rows asked"] | None:
    """Choose which of `count` hidden patches of every image are predicted; None for all of them."""
    if decode == 1 or count < 2:
        return None
    return patch_mask(rows, count, decode, key.fold("decode"), device=device)[1]


def _counts_per_image(groups: Sequence[Group], which: int, device: torch.device) -> Int64[Tensor, " batch"]:
    """Return the number of kept (1) or asked (2) patches of every image."""
    return torch.tensor([group[which] for group in groups for _ in range(group.rows)], device=device)
