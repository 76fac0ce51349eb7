"""Soft targets, mixup, cutmix and random erasing, on tensors; every number is a pure function of the key.

A mixture has the same λ, and the same box, for a whole mini-batch, as MAE's fine-tuning does it. Images are mixed in
pairs, rows 0 and 1, 2 and 3 and so on of the global batch: so the mixtures are the same however it is divided among
micro-batches and processes. The order of the data is random, and so are the pairs.
"""

import math

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from r2mae.masking.keys import Key, uniforms
from r2mae.masking.masks import device_words

Images = Float[Tensor, "batch height width channels"]
Targets = Float[Tensor, "batch classes"]
Box = tuple[int, int, int, int]

ERASED = (0.02, 1 / 3)  # of the area
_ASPECTS = (0.3, 1 / 0.3)
_ATTEMPTS = 10
_TWO_PI = 2 * math.pi


def soft_targets(labels: Int64[Tensor, " batch"], classes: int, smoothing: float = 0.0) -> Targets:
    """Return one-hot labels of which `smoothing` is spread evenly over all classes; rows sum to one."""
    even = smoothing / classes
    made = torch.full((len(labels), classes), even, device=labels.device)
    return made.scatter_(1, labels[:, None], 1.0 - smoothing + even)


def mix(
    images: Images, targets: Targets, key: Key, *, mixup: float = 0.8, cutmix: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Mix every image with its partner, by mixup or by cutmix; one of them for the whole batch, each half of the time.

    Parameters
    ----------
    images, targets
        An even number of rows, of which the first is in an even row of the global batch.
    key : Key
        Of the step. Its row does not matter: the whole global batch shares λ.
    mixup, cutmix : float
        α of the Beta(α, α) that λ is drawn from; 0 for none.

    Returns
    -------
    images, targets : tensors
        Targets are λ of the own plus 1 − λ of the partner's, where λ is the share of the own image: for cutmix one
        minus the area of the box that remained inside the image.

    Raises
    ------
    ValueError
        For rows that make no pairs.
    """
    if len(images) % 2 or key.row % 2:
        raise ValueError(f"mixing needs pairs, not {len(images)} images from row {key.row} on")
    key = key.fold("mix")
    cut = cutmix > 0 and (mixup == 0 or key.fold("cut").uniform() < 0.5)
    alpha = cutmix if cut else mixup
    if alpha == 0:
        return images, targets
    share = beta(alpha, key.fold("share").uniform())
    others = _swap_pairs(images)
    if cut:
        top, left, bottom, right = cut_box(images.shape[1], images.shape[2], share, key.fold("box"))
        mixed = images.clone()
        mixed[:, top:bottom, left:right] = others[:, top:bottom, left:right]
        share = 1 - (bottom - top) * (right - left) / (images.shape[1] * images.shape[2])
    else:
        mixed = images * share + others * (1 - share)
    return mixed, targets * share + _swap_pairs(targets) * (1 - share)


def beta(alpha: float, uniform: float) -> float:
    """Return the quantile of Beta(α, α) at `uniform`, a random number in [0, 1)."""
    from scipy.special import betaincinv

    return float(betaincinv(alpha, alpha, uniform))


def cut_box(height: int, width: int, share: float, key: Key) -> Box:
    """Return the box that is cut out: 1 − `share` of the area around a random centre, as far as it is in the image.

    Returns
    -------
    (top, left, bottom, right), the last two exclusive
    """
    side = math.sqrt(1 - share)
    tall, wide = int(height * side), int(width * side)
    row, column = int(key.fold("row").uniform() * height), int(key.fold("column").uniform() * width)
    top, left = row - tall // 2, column - wide // 2
    return max(top, 0), max(left, 0), min(top + tall, height), min(left + wide, width)


def _swap_pairs(rows: Tensor) -> Tensor:
    """Exchange rows 0 and 1, 2 and 3 and so on."""
    return rows.view(-1, 2, *rows.shape[1:]).flip(1).reshape(rows.shape)


def erase(images: Images, key: Key, *, probability: float = 0.25) -> Images:
    """Fill a random rectangle of some images with noise, each pixel and channel its own (Zhong et al. 2017).

    The rectangle has 2 % to a third of the area and an aspect ratio from 0.3 to 3.3. The noise is standard normal
    around the middle of the range of standardised pixels: 0.5 ± 0.25 for pixels from 0 to 1.

    Parameters
    ----------
    images : tensor, shape (batch, height, width, channels)
        0 to 1.
    key : Key
        ``key.row`` is the row of the first image in the global batch.
    probability : float
        Of an image to be erased.
    """
    key = key.fold("erase")
    draws = uniforms(key, len(images), 1 + 4 * _ATTEMPTS)
    chosen = np.flatnonzero(draws[:, 0] < probability)
    if not len(chosen):
        return images
    images = images.clone()
    for row in chosen.tolist():  # boxes are of different sizes, and few images have one
        box = erased_box(images.shape[1], images.shape[2], draws[row, 1:].reshape(_ATTEMPTS, 4))
        if box is not None:
            top, left, bottom, right = box
            part = images[row, top:bottom, left:right]
            # The row names the stream: as a position in one stream for all, boxes of several sizes would share numbers.
            noise = _normal(key.fold("noise", key.row + row).rows(0), part.numel(), images.device)
            images[row, top:bottom, left:right] = 0.5 + 0.25 * noise.view(part.shape)
    return images


def erased_box(height: int, width: int, draws: Float[np.ndarray, "attempts 4"]) -> Box | None:
    """Return the first rectangle that lies within the image; None if none does.

    Parameters
    ----------
    height, width : int
    draws : ndarray, shape (attempts, 4)
        Random numbers in [0, 1) for area, aspect, row and column of each attempt.
    """
    low, high = map(math.log, _ASPECTS)
    for area, shape, row, column in draws.tolist():
        size = (ERASED[0] + area * (ERASED[1] - ERASED[0])) * height * width
        aspect = math.exp(low + shape * (high - low))
        tall, wide = round(math.sqrt(size * aspect)), round(math.sqrt(size / aspect))
        if 0 < tall < height and 0 < wide < width:
            top, left = int(row * (height - tall + 1)), int(column * (width - wide + 1))
            return top, left, top + tall, left + wide
    return None


def _normal(key: Key, count: int, device: torch.device) -> Float[Tensor, " count"]:
    """Draw standard normal numbers for the key's row, by Box and Muller."""
    bits = device_words(key, 1, count, device)[0]
    radius = ((bits >> 40) & 0xFFFFFF).float().add_(1).mul_(2.0**-24)  # above zero
    angle = ((bits >> 16) & 0xFFFFFF).float().mul_(_TWO_PI * 2.0**-24)
    return radius.log_().mul_(-2).sqrt_() * angle.cos_()
