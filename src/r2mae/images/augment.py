"""Augmentation of batches by Pillow, in pretraining (crops and flips) and as in MAE's fine-tuning.

Every number is a pure function of the key, and of an image's row in the global batch: an image is changed alike in
every process, worker and resumed run.

RandAugment (Cubuk et al. 2019) makes two random changes of shape or colour to every image, of the fifteen of timm's
"increasing" set, with MAE's defaults: magnitude 9 of 10 with a standard deviation of 0.5, and each of the two made half
of the time.

A mixture has the same λ, and the same box, for all images of a mini-batch, as in MAE. Images are mixed in pairs, rows 0
and 1, 2 and 3 and so on of the global batch, so the mixtures do not depend on micro-batches and processes.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64, UInt8
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from r2mae.images.arrays import AnyImages
from r2mae.images.files import DecodedImages, decode, header, in_threads
from r2mae.images.patches import MEAN
from r2mae.images.task import scaled
from r2mae.masking.keys import Key, uniforms

if TYPE_CHECKING:
    from r2mae.images.config import FinetuneConfig

Images = Float[Tensor, "batch height width channels"]
Targets = Float[Tensor, "batch classes"]
Boxes = Int64[np.ndarray, "batch 4"]
Box = tuple[int, int, int, int]

_ASPECTS = (3 / 4, 4 / 3)  # of crops, width to height
_ATTEMPTS = 10  # draws of a rectangle that fits into the image, as in the MAE recipe
_BOX_DRAWS = 2 * _ATTEMPTS + 2  # numbers of a rectangle: area and aspect of each draw, and its place

LEVELS = 10.0
CHANGES = 2  # to an image
SPREAD = 0.5  # standard deviation of the magnitude
_MADE = 0.5  # probability that a change is made
_DRAWS = 4  # of a change: which, whether, magnitude, sign
_COLOUR = tuple(round(255 * value) for value in MEAN)  # outside the image

ERASED = (0.02, 1 / 3)  # of the area
_ERASED_ASPECTS = (0.3, 1 / 0.3)


def augment(
    images: AnyImages, rows: Int64[np.ndarray, " batch"], targets: Targets, key: Key, config: "FinetuneConfig"
) -> tuple[Images, Targets]:
    """Crop, flip, change, erase and mix some images, in MAE's order; they become floats of about 0 to 1.

    ``key`` is that of the step; ``key.row``, here and below, is the row of the first image in the global batch.
    """
    originals, scale = config.crops_files and isinstance(images, DecodedImages), (config.crop, 1.0)
    made = changed(images, rows, key, scale=scale, flip=config.flip, magnitude=config.randaugment, originals=originals)
    batch = scaled(torch.from_numpy(made))
    if config.erasing:
        batch = erase(batch, key, probability=config.erasing)
    return mix(batch, targets, key, mixup=config.mixup, cutmix=config.cutmix)


def changed(
    images: AnyImages,
    rows: Int64[np.ndarray, " batch"],
    key: Key,
    *,
    scale: tuple[float, float] = (0.2, 1.0),
    flip: bool = True,
    magnitude: float = 0.0,
    originals: bool = False,
) -> UInt8[np.ndarray, "batch height width channels"]:
    """Return some images as bytes, each cropped at random to the size that it has, flipped half of the time, changed.

    Floats from 0 to 1 are rounded to 256 levels. `scale` is the smallest and largest fraction of the area in a crop,
    (1, 1) for no crops; `magnitude` that of :func:`rand_augment`, 0 for none. With `originals`, crops are cut from the
    files of decoded images, instead of from images of the size that is kept.
    """
    count, (height, width, channels) = len(rows), images.shape[1:]
    made = np.empty((count, height, width, channels), np.uint8)
    flips = uniforms(key.fold("flip"), count) >= 0.5
    changes = [uniforms(key.fold("randaugment", number), count, _DRAWS) for number in range(CHANGES)]
    if originals:
        assert isinstance(images, DecodedImages)
        files = [images.files[int(row)] for row in images.rows[rows]]
        how = replace(images.how, resize=None)
    else:
        pixels, boxes = images.take(rows, axis=0), random_boxes(count, (height, width), key, scale=scale)
        if pixels.dtype != np.uint8:
            pixels = np.rint(pixels * 255).astype(np.uint8)

    def make(number: int) -> None:
        if originals:
            across, down, _ = header(files[number])
            array = decode(files[number], (down, across, channels), how)
            box = random_boxes(1, (down, across), key.rows(key.row + number), scale=scale)[0]
        else:
            array, box = pixels[number], boxes[number]
        picture = Image.fromarray(array if channels > 1 else array[..., 0])
        if originals or scale[0] < 1:
            left, top, wide, tall = box.tolist()
            box_of_crop = (left, top, left + wide, top + tall)
            picture = picture.resize((width, height), Image.Resampling.BICUBIC, box=box_of_crop)
        if flip and flips[number]:
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        if magnitude:
            picture = rand_augment(picture, [draws[number] for draws in changes], magnitude)
        made[number] = np.asarray(picture).reshape(made.shape[1:])

    for error in in_threads(make, count).values():
        raise error
    return made


def random_boxes(count: int, image: tuple[int, ...], key: Key, *, scale: tuple[float, float] = (0.2, 1.0)) -> Boxes:
    """Draw the crops of `count` images of one size (height, width): left, top, width and height in pixels.

    `scale` is the smallest and largest fraction of the area. If no rectangle of ten draws fits into the image, the crop
    is the largest centred one of a permitted aspect.
    """
    boxes, fitted = _boxes(uniforms(key.fold("crop"), count, _BOX_DRAWS), image, scale, _ASPECTS)
    height, width = image
    wide = max(1, min(width, round(height * _ASPECTS[1])))
    tall = max(1, min(height, round(width / _ASPECTS[0])))
    return np.where(fitted[:, None], boxes, [(width - wide) // 2, (height - tall) // 2, wide, tall])


def _boxes(
    draws: Float[np.ndarray, "count draws"],
    image: tuple[int, ...],
    scale: tuple[float, float],
    aspects: tuple[float, float],
) -> tuple[Boxes, Bool[np.ndarray, " count"]]:
    """Return the first of ten rectangles that fits into each image, by numbers from 0 to 1, and whether there is one.

    `aspects` are the smallest and largest of width to height.
    """
    height, width = image
    area = height * width * (scale[0] + (scale[1] - scale[0]) * draws[:, 0 : 2 * _ATTEMPTS : 2])
    low, high = map(math.log, aspects)
    ratio = np.exp(low + (high - low) * draws[:, 1 : 2 * _ATTEMPTS : 2])
    widths = np.rint(np.sqrt(area * ratio)).astype(np.int64)
    heights = np.rint(np.sqrt(area / ratio)).astype(np.int64)
    fits = (widths > 0) & (widths <= width) & (heights > 0) & (heights <= height)
    rows, first = np.arange(len(draws)), np.argmax(fits, axis=1)
    wide, tall = widths[rows, first], heights[rows, first]
    left = (draws[:, -2] * (width - wide + 1)).astype(np.int64)
    top = (draws[:, -1] * (height - tall + 1)).astype(np.int64)
    return np.stack([left, top, wide, tall], axis=1), fits[rows, first]


def rand_augment(picture: Image.Image, draws: "list[Float[np.ndarray, '4']]", magnitude: float = 9.0) -> Image.Image:
    """Change a picture at random, with a magnitude of 0 to 10, by four numbers from 0 to 1 for each change."""
    from scipy.special import ndtri

    names = list(OPERATIONS)
    for which, whether, normal, sign in (one.tolist() for one in draws):
        if whether < _MADE:
            level = min(max(magnitude + SPREAD * float(ndtri(normal)), 0.0), LEVELS) / LEVELS
            picture = OPERATIONS[names[int(which * len(names))]](picture, -level if sign < 0.5 else level)
    return picture


def _enhance(kind: Callable[[Image.Image], ImageEnhance._Enhance]) -> Callable[[Image.Image, float], Image.Image]:
    """Return a change that moves a picture away from another version of it, or towards it."""
    return lambda picture, amount: kind(picture).enhance(max(0.1, 1 + 0.9 * amount))


def _warp(picture: Image.Image, *matrix: float) -> Image.Image:
    """Take every pixel from another place; outside the picture is ImageNet's mean colour."""
    affine, bilinear = Image.Transform.AFFINE, Image.Resampling.BILINEAR
    return picture.transform(picture.size, affine, matrix, bilinear, fillcolor=_outside(picture))


def _outside(picture: Image.Image) -> tuple[int, ...]:
    return _COLOUR if picture.mode == "RGB" else (round(sum(_COLOUR) / 3),)


OPERATIONS: dict[str, Callable[[Image.Image, float], Image.Image]] = {
    "auto-contrast": lambda picture, amount: ImageOps.autocontrast(picture),
    "equalize": lambda picture, amount: ImageOps.equalize(picture),
    "invert": lambda picture, amount: ImageOps.invert(picture),
    "rotate": lambda picture, amount: picture.rotate(
        30 * amount, Image.Resampling.BILINEAR, fillcolor=_outside(picture)
    ),
    "posterize": lambda picture, amount: ImageOps.posterize(picture, max(1, 4 - int(4 * abs(amount)))),
    "solarize": lambda picture, amount: ImageOps.solarize(picture, 256 - int(256 * abs(amount))),
    "solarize-add": lambda picture, amount: picture.point(
        [min(255, level + int(110 * abs(amount))) if level < 128 else level for level in range(256)]
        * len(picture.getbands())
    ),
    "color": _enhance(ImageEnhance.Color),
    "contrast": _enhance(ImageEnhance.Contrast),
    "brightness": _enhance(ImageEnhance.Brightness),
    "sharpness": _enhance(ImageEnhance.Sharpness),
    "shear-x": lambda picture, amount: _warp(picture, 1, 0.3 * amount, 0, 0, 1, 0),
    "shear-y": lambda picture, amount: _warp(picture, 1, 0, 0, 0.3 * amount, 1, 0),
    "translate-x": lambda picture, amount: _warp(picture, 1, 0, 0.45 * amount * picture.width, 0, 1, 0),
    "translate-y": lambda picture, amount: _warp(picture, 1, 0, 0, 0, 1, 0.45 * amount * picture.height),
}
"""By name: takes a picture, and the magnitude from 0 to 1 with a random sign."""


def soft_targets(labels: Int64[Tensor, " batch"], classes: int, smoothing: float = 0.0) -> Targets:
    """Return one-hot labels of which `smoothing` is spread evenly over all classes; rows sum to one."""
    even = smoothing / classes
    made = torch.full((len(labels), classes), even, device=labels.device)
    return made.scatter_(1, labels[:, None], 1.0 - smoothing + even)


def mix(
    images: Images, targets: Targets, key: Key, *, mixup: float = 0.8, cutmix: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Mix every image with its partner, by mixup or by cutmix; one of them for all of them, each half of the time.

    `mixup` and `cutmix` are the α of the Beta(α, α) that λ is drawn from; 0 for none. Targets are λ of the own plus
    1 − λ of the partner's; for cutmix, 1 − λ is the area of the box as far as it is inside the image.
    """
    from scipy.special import betaincinv

    key = key.fold("mix")
    cut = cutmix > 0 and (mixup == 0 or key.fold("cut").uniform() < 0.5)
    alpha = cutmix if cut else mixup
    if alpha == 0:
        return images, targets
    share = float(betaincinv(alpha, alpha, key.fold("share").uniform()))
    others = _swap_pairs(images)
    if cut:
        top, left, bottom, right = cut_box(images.shape[1], images.shape[2], share, key.fold("box"))
        mixed = images.clone()
        mixed[:, top:bottom, left:right] = others[:, top:bottom, left:right]
        share = 1 - (bottom - top) * (right - left) / (images.shape[1] * images.shape[2])
    else:
        mixed = images * share + others * (1 - share)
    return mixed, targets * share + _swap_pairs(targets) * (1 - share)


def cut_box(height: int, width: int, share: float, key: Key) -> Box:
    """Return the box of 1 − `share` of the area around a random centre: top, left, and exclusive bottom and right."""
    side = math.sqrt(1 - share)
    tall, wide = int(height * side), int(width * side)
    row, column = int(key.fold("row").uniform() * height), int(key.fold("column").uniform() * width)
    top, left = row - tall // 2, column - wide // 2
    return max(top, 0), max(left, 0), min(top + tall, height), min(left + wide, width)


def _swap_pairs(rows: Tensor) -> Tensor:
    """Exchange rows 0 and 1, 2 and 3 and so on."""
    return rows.view(-1, 2, *rows.shape[1:]).flip(1).reshape(rows.shape)


def erase(images: Images, key: Key, *, probability: float = 0.25) -> Images:
    """Fill a random rectangle of some images (0 to 1) with normal noise, 0.5 ± 0.25 (Zhong et al. 2017).

    The rectangle has 2 % to a third of the area and an aspect ratio from 0.3 to 3.3.
    """
    from scipy.special import ndtri

    key = key.fold("erase")
    draws = uniforms(key, len(images), 1 + _BOX_DRAWS)
    boxes, fitted = _boxes(draws[:, 1:], tuple(images.shape[1:3]), ERASED, _ERASED_ASPECTS)
    images = images.clone()
    for row in np.flatnonzero(fitted & (draws[:, 0] < probability)).tolist():
        left, top, wide, tall = boxes[row].tolist()
        part = images[row, top : top + tall, left : left + wide]
        # The row names the stream: as a position in one stream for all, boxes of several sizes would share numbers.
        noise = ndtri(uniforms(key.fold("noise", key.row + row).rows(0), part.numel()).clip(2.0**-54))
        part.copy_(0.5 + 0.25 * torch.from_numpy(noise).float().view(part.shape))
    return images
