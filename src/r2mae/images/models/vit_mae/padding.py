"""Rows of few lengths for compiled code: without padding, every number of kept patches would build a graph."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor
from torch.nn.functional import pad

from r2mae.images.models.vit_mae.layers import Group

LENGTHS = 8
"""Lengths of rows in compiled code: kept and hidden patches are padded to a multiple of an eighth of the image."""


def padded_lengths(groups: Sequence[Group], length: int) -> tuple[int, int]:
    """Return to how many kept and asked patches the rows of images with `length` patches are padded."""
    unit = -(-length // LENGTHS)
    most = (max(group.kept for group in groups), max(group.asked for group in groups))
    kept, asked = (min(-(-one // unit) * unit, length) for one in most)
    return kept, asked


def filled(units: Tensor, groups: Sequence[Group], which: int, most: int) -> Tensor:
    """Pad kept (1) or asked (2) patches of every image with zeros."""
    sizes, made = [group.rows * group[which] for group in groups], []
    for group, part in zip(groups, torch.split(units, sizes), strict=True):
        rows = part.reshape(group.rows, group[which], *part.shape[1:])
        made.append(pad(rows, (*(0, 0) * (part.ndim - 1), 0, most - group[which])).flatten(0, 1))
    return torch.cat(made)


def unfilled(units: Tensor, groups: Sequence[Group], most: int) -> Tensor:
    """Take the padding of asked patches off."""
    sizes = [group.rows * most for group in groups]
    parts = zip(groups, torch.split(units, sizes), strict=True)
    return torch.cat([part.reshape(group.rows, most, -1)[:, : group.asked].flatten(0, 1) for group, part in parts])


def real(groups: Sequence[Group], kept: int, asked: int | None, device: torch.device) -> Bool[Tensor, "rows 1 1 n"]:
    """Return False at the padding of rows: class token, kept and, where they are given, asked patches."""
    made = []
    for group in groups:
        flags = np.zeros(1 + kept + (asked or 0), dtype=bool)
        flags[: 1 + group.kept] = True
        if asked is not None:
            flags[1 + kept : 1 + kept + group.asked] = True
        made.append(np.broadcast_to(flags, (1 if len(groups) == 1 else group.rows, len(flags))))
    return torch.from_numpy(np.concatenate(made)).to(device)[:, None, None]
