"""Images as patches: splitting, joining, and their pixels in the units of a masked autoencoder.

Images have the shape (batch, height, width, channels). A patch is flattened as (row, column, channel), as in the
original masked autoencoder, and patches are numbered row by row.
"""

from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from r2mae.errors import UserError

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation of ImageNet's red, green and blue, 0 to 1; for grey images, their means over colours."""
EPSILON = 1e-6
"""Added to the variance of a patch, so that it is above zero for a patch of one colour."""


def patchify(
    images: Shaped[Tensor, "batch height width channels"], patch: int
) -> Shaped[Tensor, "batch patches numbers"]:
    """Split images of any type into square patches of `patch` pixels a side (:func:`check_patch`)."""
    batch, height, width, channels = images.shape
    check_patch(height, width, patch)
    tiles = images.reshape(batch, height // patch, patch, width // patch, patch, channels)
    return tiles.transpose(2, 3).reshape(batch, -1, patch * patch * channels)


def unpatchify(
    patches: Shaped[Tensor, "batch patches numbers"], patch: int, height: int, width: int
) -> Shaped[Tensor, "batch height width channels"]:
    """Join patches to images: the inverse of :func:`patchify`."""
    check_patch(height, width, patch)
    tiles = patches.reshape(len(patches), height // patch, width // patch, patch, patch, -1)
    return tiles.transpose(2, 3).reshape(len(patches), height, width, -1)


def check_patch(height: int, width: int, patch: int) -> None:
    """Refuse a patch that does not divide the image into two or more."""
    if patch < 1 or height % patch or width % patch or height * width == patch * patch:
        raise UserError(
            f"patches of {patch} x {patch} do not divide images of {height} x {width} pixels into two or more: give "
            "another --model.patch or --resize"
        )


def normalised(patches: Float[Tensor, "*some numbers"]) -> Float[Tensor, "*some numbers"]:
    """Normalise each patch to mean 0 and variance 1 (the target ``norm_pix`` of the masked autoencoder)."""
    centred = patches - patches.mean(-1, keepdim=True)
    variance = centred.square().sum(-1, keepdim=True).div_(patches.shape[-1] - 1)
    return centred * variance.add_(EPSILON).rsqrt_()


def standardised(images: Shaped[Tensor, "*some channels"]) -> Float[Tensor, "*some channels"]:
    """Return pixels, uint8 (0 to 255) or float (0 to 1), in units of ImageNet's deviations from its mean colour."""
    scale, shift = _scale_and_shift(images.shape[-1], images.dtype == torch.uint8, images.device)
    return torch.addcmul(shift, images.float(), scale)


def standardised_patches(patches: Shaped[Tensor, "*some numbers"], channels: int) -> Float[Tensor, "*some numbers"]:
    """Return flattened patches as :func:`standardised` returns images."""
    return standardised(patches.reshape(*patches.shape[:-1], -1, channels)).flatten(-2)


def as_pixels(standard: Float[Tensor, "*some channels"]) -> Float[Tensor, "*some channels"]:
    """Return pixels clipped to 0 to 1: the inverse of :func:`standardised`."""
    scale, shift = _scale_and_shift(standard.shape[-1], False, standard.device)
    return ((standard - shift) / scale).clamp(0, 1)


@lru_cache(maxsize=16)
def _scale_and_shift(channels: int, from_bytes: bool, device: torch.device) -> tuple[Tensor, Tensor]:
    mean, deviation = mean_and_deviation(channels)
    scale = 1 / deviation / (255 if from_bytes else 1)
    made = [torch.tensor(one, dtype=torch.float32, device=device) for one in (scale, -mean / deviation)]
    return made[0], made[1]


def mean_and_deviation(channels: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ImageNet's mean and deviation of each colour, or for another number of channels their means."""
    mean, deviation = np.array(MEAN), np.array(DEVIATION)
    if channels == len(MEAN):
        return mean, deviation
    return np.full(channels, mean.mean()), np.full(channels, deviation.mean())
