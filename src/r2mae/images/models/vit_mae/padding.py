"""Padding to a few lengths for compiled code: otherwise every number of kept patches would need its own graph."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor
from torch.nn.functional import pad

from r2mae.images.models.vit_mae.layers import Group

LENGTHS = 8
"""Number of lengths in compiled code: kept and asked patches are padded to a multiple of an eighth of the image."""


def padded_lengths(groups: Sequence[Group], length: int) -> tuple[int, int]:
    """Return the padded numbers of kept and asked patches, for images with `length` patches."""
    unit = -(-length // LENGTHS)
    most = (max(group.kept for group in groups), max(group.asked for group in groups))
    kept, asked = (min(-(-one // unit) * unit, length) for one in most)
    return kept, asked


def pad_groups(units: Tensor, groups: Sequence[Group], which: int, most: int) -> Tensor:
    """Pad kept (1) or asked (2) patches of every image with zeros."""
    sizes, made = [group.rows * group[which] for group in groups], []
    for group, part in zip(groups, torch.split(units, sizes), strict=True):
        rows = part.reshape(group.rows, group[which], *part.shape[1:])
        made.append(pad(rows, (*(0, 0) * (part.ndim - 1), 0, most - group[which])).flatten(0, 1))
    return torch.cat(made)


def unpad_groups(units: Tensor, groups: Sequence[Group], most: int) -> Tensor:
    """Remove the padding of asked patches."""
    sizes = [group.rows * most for group in groups]
    parts = zip(groups, torch.split(units, sizes), strict=True)
    return torch.cat([part.reshape(group.rows, most, -1)[:, : group.asked].flatten(0, 1) for group, part in parts])


def token_mask(
    groups: Sequence[Group], kept: int, asked: int | None, device: torch.device
) -> Bool[Tensor, "rows 1 1 n"]:
    """Return True at tokens and False at padding, in the order class token, kept and, if given, asked patches."""
    made = []
    for group in groups:
        flags = np.zeros(1 + kept + (asked or 0), dtype=bool)
        flags[: 1 + group.kept] = True
        if asked is not None:
            flags[1 + kept : 1 + kept + group.asked] = True
        made.append(np.broadcast_to(flags, (1 if len(groups) == 1 else group.rows, len(flags))))
    return torch.from_numpy(np.concatenate(made)).to(device)[:, None, None]
