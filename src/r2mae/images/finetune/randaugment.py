"""RandAugment (Cubuk et al. 2019) on tensors: two random changes of shape or colour to every image.

The fifteen changes are those of the default "increasing" set, in which a larger magnitude always changes more; the
defaults are MAE's: magnitude 9 of 10 with a standard deviation of 0.5, and each of two changes made half of the time.
Differences to the version on PIL images: pixels are floats between 0 and 1, and what is turned or moved is always
interpolated bilinearly.
"""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, pad

from r2mae.images.patches import MEAN
from r2mae.masking.keys import Key, uniforms

Images = Float[Tensor, "batch channels height width"]
Amounts = Float[Tensor, "batch 1 1 1"]

LEVELS = 10.0
CHANGES = 2  # to an image
SPREAD = 0.5  # standard deviation of the magnitude
_MADE = 0.5  # probability that a change is made
_LUMA = (0.299, 0.587, 0.114)
_OUTSIDE = {3: MEAN, 1: (float(np.mean(MEAN)),)}  # what comes in from outside the image, by its channels
_DRAWS = 5  # of a change: which, whether, magnitude (two), sign


def rand_augment(
    images: Float[Tensor, "batch height width channels"], key: Key, magnitude: float = 9.0
) -> Float[Tensor, "batch height width channels"]:
    """Change every image at random.

    Parameters
    ----------
    images : tensor, shape (batch, height, width, channels)
        0 to 1; 1 or 3 channels.
    key : Key
        ``key.row`` is the row of the first image in the global batch: an image's changes depend on its row alone.
    magnitude : float
        0 to 10.

    Returns
    -------
    tensor, as `images`
    """
    made = images.permute(0, 3, 1, 2).clone(memory_format=torch.contiguous_format)
    names = list(OPERATIONS)
    for number in range(CHANGES):
        draws = uniforms(key.fold("randaugment", number), len(made), _DRAWS)
        which = np.where(draws[:, 1] < _MADE, (draws[:, 0] * len(names)).astype(np.int64), -1)
        normal = np.sqrt(-2 * np.log1p(-draws[:, 2])) * np.cos(2 * np.pi * draws[:, 3])
        level = np.clip(magnitude + SPREAD * normal, 0, LEVELS) / LEVELS
        signed = np.where(draws[:, 4] < 0.5, -level, level)
        for place in np.unique(which[which >= 0]).tolist():
            rows = torch.from_numpy(np.flatnonzero(which == place)).to(made.device)
            amount = torch.from_numpy(signed[which == place]).float().to(made.device)[:, None, None, None]
            made[rows] = OPERATIONS[names[place]](made[rows], amount).clamp_(0, 1)
    return made.permute(0, 2, 3, 1).contiguous()


def _auto_contrast(images: Images, amount: Amounts) -> Images:
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    return torch.where(high > low, (images - low) / (high - low).clamp(min=1e-6), images)


def _equalize(images: Images, amount: Amounts) -> Images:
    """Spread grey levels evenly: each of 256 levels becomes the share of pixels below it."""
    levels = (images * 255).round().long().flatten(2)
    counts = images.new_zeros(*levels.shape[:2], 256).scatter_add_(2, levels, images.new_ones(levels.shape))
    below = counts.cumsum(2) - counts
    last = counts.gather(2, levels.amax(2, keepdim=True))
    total = levels.shape[2] - last
    table = torch.where(total > 0, below / total.clamp(min=1), torch.arange(256, device=images.device) / 255)
    return table.gather(2, levels).view(images.shape)


def _invert(images: Images, amount: Amounts) -> Images:
    return 1 - images


def _posterize(images: Images, amount: Amounts) -> Images:
    """Keep 4 bits and fewer, down to none, the larger the magnitude."""
    step = 2.0 ** (4 + (amount.abs() * 4).floor())
    return ((images * 255).round() / step).floor() * step / 255


def _solarize(images: Images, amount: Amounts) -> Images:
    return torch.where(images >= 1 - amount.abs(), 1 - images, images)


def _solarize_add(images: Images, amount: Amounts) -> Images:
    return torch.where(images < 0.5, images + amount.abs() * (110 / 255), images)


def _blend(other: Callable[[Images], Tensor]) -> Callable[[Images, Amounts], Images]:
    """Return a change that moves images away from another version of them, or towards it."""

    def changed(images: Images, amount: Amounts) -> Images:
        base = other(images)
        return base + (images - base) * (1 + 0.9 * amount).clamp(min=0.1)

    return changed


def _grey(images: Images) -> Tensor:
    return (images * _channels(images, _LUMA)).sum(1, keepdim=True)


def _mean_grey(images: Images) -> Tensor:
    return _grey(images).mean((2, 3), keepdim=True)


def _smooth(images: Images) -> Tensor:
    """Return a blurred image: 5 parts of the pixel and one of each of its eight neighbours; edges stay."""
    if min(images.shape[2:]) < 3:
        return images
    wide = images.unfold(2, 3, 1).unfold(3, 3, 1).sum((4, 5))
    inner = (wide + 4 * images[:, :, 1:-1, 1:-1]) / 13
    return torch.where(pad(torch.ones_like(inner), (1, 1, 1, 1)) > 0, pad(inner, (1, 1, 1, 1)), images)


def _warp(matrix: Callable[[Tensor, float], list[list[Tensor]]]) -> Callable[[Images, Amounts], Images]:
    """Return a change that takes every pixel from another place; what lies outside has ImageNet's mean colour."""

    def changed(images: Images, amount: Amounts) -> Images:
        value, (height, width) = amount.flatten(), images.shape[2:]
        rows = matrix(value, width / height)
        theta = torch.stack([torch.stack(row, 1) for row in rows], 1)
        grid = affine_grid(theta, list(images.shape), align_corners=False)
        fill = images.new_tensor(_OUTSIDE[images.shape[1]]).view(1, -1, 1, 1)
        return grid_sample(images - fill, grid, align_corners=False) + fill

    return changed


def _rotation(value: Tensor, aspect: float) -> list[list[Tensor]]:
    angle, zero = value * (np.pi / 6), torch.zeros_like(value)
    return [[angle.cos(), -angle.sin() / aspect, zero], [angle.sin() * aspect, angle.cos(), zero]]


def _shear_x(value: Tensor, aspect: float) -> list[list[Tensor]]:
    one, zero = torch.ones_like(value), torch.zeros_like(value)
    return [[one, 0.3 * value / aspect, zero], [zero, one, zero]]


def _shear_y(value: Tensor, aspect: float) -> list[list[Tensor]]:
    one, zero = torch.ones_like(value), torch.zeros_like(value)
    return [[one, zero, zero], [0.3 * value * aspect, one, zero]]


def _shift_x(value: Tensor, aspect: float) -> list[list[Tensor]]:
    one, zero = torch.ones_like(value), torch.zeros_like(value)
    return [[one, zero, 0.9 * value], [zero, one, zero]]  # 0.45 of the width; the grid goes from −1 to 1


def _shift_y(value: Tensor, aspect: float) -> list[list[Tensor]]:
    one, zero = torch.ones_like(value), torch.zeros_like(value)
    return [[one, zero, zero], [zero, one, 0.9 * value]]


def _channels(images: Images, values: tuple[float, float, float]) -> Tensor:
    """Return numbers for the colour channels; of grey images the one channel has their sum."""
    chosen = images.new_tensor(values) if images.shape[1] == 3 else images.new_tensor([1.0])
    return chosen.view(1, -1, 1, 1)


OPERATIONS: dict[str, Callable[[Images, Amounts], Images]] = {
    "auto-contrast": _auto_contrast,
    "equalize": _equalize,
    "invert": _invert,
    "rotate": _warp(_rotation),
    "posterize": _posterize,
    "solarize": _solarize,
    "solarize-add": _solarize_add,
    "color": _blend(_grey),
    "contrast": _blend(_mean_grey),
    "brightness": _blend(torch.zeros_like),
    "sharpness": _blend(_smooth),
    "shear-x": _warp(_shear_x),
    "shear-y": _warp(_shear_y),
    "translate-x": _warp(_shift_x),
    "translate-y": _warp(_shift_y),
}
"""By name: takes images, and the magnitude from 0 to 1 with a random sign."""
