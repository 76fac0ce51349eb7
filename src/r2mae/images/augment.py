"""Augmentation of batches of tensors, in pretraining (crops and flips) and as in MAE's fine-tuning.

Every number is a pure function of the key, and of an image's row in the global batch: an image is changed alike in
every process, worker and resumed run. Draws are made on the host; the arithmetic runs on the device of the images.

RandAugment (Cubuk et al. 2019) makes two random changes of shape or colour to every image, of the fifteen of timm's
"increasing" set, with MAE's defaults: magnitude 9 of 10 with a standard deviation of 0.5, and each of the two made half
of the time. Differences to the version on PIL images: pixels are floats, and warps interpolate bilinearly.

A mixture has the same λ, and the same box, for all images of a mini-batch, as in MAE. Images are mixed in pairs, rows 0
and 1, 2 and 3 and so on of the global batch, so the mixtures do not depend on micro-batches and processes.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int64, UInt8
from PIL import Image
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, pad

from r2mae.images.arrays import AnyImages
from r2mae.images.files import DecodedImages, decode, header, in_threads
from r2mae.images.patches import MEAN
from r2mae.images.task import scaled
from r2mae.masking.keys import Key, uniforms, words
from r2mae.masking.masks import device_words

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from r2mae.images.config import FinetuneConfig

Pixels = UInt8[Tensor, "batch height width channels"] | Float[Tensor, "batch height width channels"]
Images = Float[Tensor, "batch height width channels"]
Planes = Float[Tensor, "batch channels height width"]
Amounts = Float[Tensor, "batch 1 1 1"]
Targets = Float[Tensor, "batch classes"]
Boxes = Int64[np.ndarray, "batch 4"]
Change = Callable[[Planes, Amounts], Planes]
Matrix = tuple[tuple[Tensor | float, ...], tuple[Tensor | float, ...]]
Box = tuple[int, int, int, int]

_ASPECTS = (3 / 4, 4 / 3)  # of crops, width to height
_ATTEMPTS = 10  # draws of a rectangle that fits into the image, as in the MAE recipe
_CACHE_NUMBERS = 1 << 19  # values of the images that are resized together, which fit into a CPU's cache
_CUBIC = -0.5  # parameter of Keys' kernel, as in Pillow

LEVELS = 10.0
CHANGES = 2  # to an image
SPREAD = 0.5  # standard deviation of the magnitude
_MADE = 0.5  # probability that a change is made
_LUMA = (0.299, 0.587, 0.114)
_OUTSIDE = {3: MEAN, 1: (float(np.mean(MEAN)),)}  # colour outside the image, by its channels
_DRAWS = 5  # of a change: which, whether, magnitude (two), sign

ERASED = (0.02, 1 / 3)  # of the area
_ERASED_ASPECTS = (0.3, 1 / 0.3)
_TWO_PI = 2 * math.pi


def augment(images: Tensor, targets: Tensor, key: Key, config: "FinetuneConfig") -> tuple[Tensor, Tensor]:
    """Crop, flip, change, erase and mix images, in MAE's order; the images become floats of about 0 to 1.

    They are cropped already if crops are from original images. ``key`` is that of the step; ``key.row``, here and
    below, is the row of the first image in the global batch.
    """
    if config.crop < 1 and config.crop_from == "resized":
        size = (int(images.shape[1]), int(images.shape[2]))
        made = crop_flip(images, size, key, scale=(config.crop, 1.0), flip=config.flip)
    else:
        made = random_flip(scaled(images), key) if config.flip else scaled(images)
    if config.randaugment:
        made = rand_augment(made.clamp(0, 1), key, config.randaugment)
    if config.erasing:
        made = erase(made, key, probability=config.erasing)
    return mix(made, targets, key, mixup=config.mixup, cutmix=config.cutmix)


def crop_flip(
    images: Pixels, size: int | tuple[int, int], key: Key, *, scale: tuple[float, float] = (0.2, 1.0), flip: bool = True
) -> Float32[Tensor, "batch _height _width channels"]:
    """Crop a random rectangle of every image (:func:`random_boxes`), :func:`resize` it, and flip half of the images."""
    boxes = random_boxes(len(images), tuple(images.shape[1:3]), key, scale=scale)
    return resize(images, size, boxes, draw_flips(len(images), key) if flip else None)


def crops_of_originals(
    images: AnyImages, rows: Int64[np.ndarray, " batch"], key: Key, *, scale: tuple[float, float] = (0.2, 1.0)
) -> UInt8[np.ndarray, "batch height width channels"]:
    """Crop a random rectangle of the original of every image to the shape of `images`, by Pillow."""
    assert isinstance(images, DecodedImages)
    height, width, channels = images.shape[1:]
    how = replace(images.how, resize=None, resize_mode="squash", draft=False)
    made = np.empty((len(rows), *images.shape[1:]), np.uint8)

    def cut(number: int) -> None:
        file = images.files[int(images.rows[rows[number]])]
        across, down, _ = header(file)
        left, top, wide, tall = random_boxes(1, (down, across), key.rows(key.row + number), scale=scale)[0].tolist()
        original = decode(file, (down, across, channels), how)
        picture = Image.fromarray(original if channels > 1 else original[..., 0])
        box = (left, top, left + wide, top + tall)
        crop = picture.resize((width, height), Image.Resampling.BICUBIC, box=box)
        made[number] = np.asarray(crop).reshape(made.shape[1:])

    for error in in_threads(cut, len(rows)).values():
        raise error
    return made


def random_flip(images: Tensor, key: Key) -> Tensor:
    """Flip every image left to right with probability one half; shape (batch, height, width, channels)."""
    chosen = draw_flips(len(images), key)
    if not chosen.any():
        return images
    rows = torch.from_numpy(np.flatnonzero(chosen)).to(images.device)
    return images.index_copy(0, rows, images[rows].flip(2))


def draw_flips(count: int, key: Key) -> Bool[np.ndarray, " count"]:
    """Draw which of `count` images are flipped."""
    flips: np.ndarray = words(key.fold("flip"), count, 1)[:, 0] >> np.uint64(63) == 1
    return flips


def random_boxes(count: int, image: tuple[int, ...], key: Key, *, scale: tuple[float, float] = (0.2, 1.0)) -> Boxes:
    """Draw the crops of `count` images of one size (height, width): left, top, width and height in pixels.

    `scale` is the smallest and largest fraction of the area. Area and aspect are drawn up to ten times, until the
    rectangle fits into the image. If none fits, the crop is the largest centred rectangle of a permitted aspect.
    """
    height, width = image
    draws = uniforms(key.fold("crop"), count, 2 * _ATTEMPTS + 2)
    area = height * width * (scale[0] + (scale[1] - scale[0]) * draws[:, 0 : 2 * _ATTEMPTS : 2])
    low, high = math.log(_ASPECTS[0]), math.log(_ASPECTS[1])
    ratio = np.exp(low + (high - low) * draws[:, 1 : 2 * _ATTEMPTS : 2])
    widths = np.rint(np.sqrt(area * ratio)).astype(np.int64)
    heights = np.rint(np.sqrt(area / ratio)).astype(np.int64)
    fits = (widths > 0) & (widths <= width) & (heights > 0) & (heights <= height)
    first = np.argmax(fits, axis=1)
    rows = np.arange(count)
    fitted = fits[rows, first]
    widest, tallest = min(width, round(height * _ASPECTS[1])), min(height, round(width / _ASPECTS[0]))
    wide = np.where(fitted, widths[rows, first], max(1, widest))
    tall = np.where(fitted, heights[rows, first], max(1, tallest))
    left = np.where(fitted, draws[:, -2] * (width - wide + 1), (width - wide) // 2).astype(np.int64)
    top = np.where(fitted, draws[:, -1] * (height - tall + 1), (height - tall) // 2).astype(np.int64)
    return np.stack([left, top, wide, tall], axis=1)


def resize(
    images: Pixels,
    size: int | tuple[int, int],
    boxes: Boxes | None = None,
    flip: Bool[np.ndarray, " batch"] | None = None,
) -> Float32[Tensor, "batch _height _width channels"]:
    """Resize a rectangle of every image, bicubic with antialiasing, along one axis after the other; 0 to 1, clipped.

    The same as Pillow's ``Image.resize((width, height), BICUBIC, box)`` apart from its rounding to whole levels.
    `size` is a side, or height and width, in pixels; `boxes` are as from :func:`random_boxes`, by default the whole
    images; `flip` says which results are flipped left to right.
    """
    tall, wide = (size, size) if isinstance(size, int) else size
    batch, height, width, _ = images.shape
    if boxes is None:
        boxes = np.tile(np.array([0, 0, width, height]), (batch, 1))
    lines = _kernel_taps(boxes[:, 1], boxes[:, 3], height, tall)
    columns = _kernel_taps(boxes[:, 0], boxes[:, 2], width, wide)
    if flip is not None:
        for taps in columns:
            taps[flip] = taps[flip, ::-1]
    made = (_resize_sparse if images.device.type == "cpu" else _resize_dense)(images, lines, columns)
    return made.mul_(1 / 255 if images.dtype == torch.uint8 else 1.0).clamp_(0, 1)


class _Taps(NamedTuple):
    """The source pixels of every pixel along an axis, and their weights, which sum to one; (batch, size, taps)."""

    places: np.ndarray
    weights: np.ndarray


def _kernel_taps(
    start: Int64[np.ndarray, " batch"], length: Int64[np.ndarray, " batch"], source: int, size: int
) -> _Taps:
    """Return the taps of Keys' cubic kernel (a = −½), wider where pixels are reduced, for ranges of an axis."""
    step = (length / size)[:, None]
    wider = np.maximum(step, 1)
    centres = start[:, None] + (np.arange(size) + 0.5) * step
    first = np.floor(centres - 2 * wider + 0.5).astype(np.int64)
    places = first[..., None] + np.arange(math.ceil(4 * wider.max()) + 1)
    distance = np.abs(places + 0.5 - centres[..., None]) / wider[..., None]
    near = ((_CUBIC + 2) * distance - (_CUBIC + 3)) * distance**2 + 1
    far = _CUBIC * (((distance - 5) * distance + 8) * distance - 4)
    inside = (distance < 2) & (places >= 0) & (places < source)
    weights = np.where(distance < 1, near, far) * inside
    weights /= weights.sum(axis=2, keepdims=True)
    return _Taps(places.clip(0, source - 1), weights.astype(np.float32))


def _resize_sparse(images: Tensor, lines: _Taps, columns: _Taps) -> Float32[Tensor, "batch _height _width channels"]:
    """Resize by sparse products: on a CPU faster than dense ones, and equal for any number of threads."""
    pixels = images.numpy()
    batch, height, width, channels = pixels.shape
    tall, wide = lines.weights.shape[1], columns.weights.shape[1]
    made = np.empty((batch, tall, wide, channels), np.float32)
    step = max(1, _CACHE_NUMBERS // (height * width * channels))
    for first in range(0, batch, step):
        part = slice(first, first + step)
        turned = pixels[part].swapaxes(1, 2).astype(np.float32, order="C")
        count = len(turned)
        across = _sparse_matrix(columns, part, width) @ turned.reshape(count * width, height * channels)
        turned = np.ascontiguousarray(across.reshape(count, wide, height, channels).swapaxes(1, 2))
        down = _sparse_matrix(lines, part, height) @ turned.reshape(count * height, wide * channels)
        made[part] = down.reshape(count, tall, wide, channels)
    return torch.from_numpy(made)


def _sparse_matrix(taps: _Taps, part: slice, source: int) -> "csr_matrix":
    """Return the weights along one axis as a sparse matrix, for some images stacked along this axis."""
    from scipy.sparse import csr_matrix

    places, weights = taps.places[part], taps.weights[part]
    batch, size, count = weights.shape
    places = places + source * np.arange(batch)[:, None, None]
    ends = np.arange(0, batch * size * count + 1, count)
    return csr_matrix((weights.ravel(), places.ravel(), ends), (batch * size, batch * source))


def _resize_dense(images: Tensor, lines: _Taps, columns: _Taps) -> Float32[Tensor, "batch _height _width channels"]:
    """Resize by dense products, which are fast on accelerators."""
    height, width = images.shape[1:3]
    planes = images.permute(0, 3, 1, 2).float()
    down, across = (_dense_matrix(taps, side, images.device) for taps, side in ((lines, height), (columns, width)))
    return (down @ planes @ across.transpose(2, 3)).permute(0, 2, 3, 1).contiguous()


def _dense_matrix(taps: _Taps, source: int, device: torch.device) -> Float32[Tensor, "batch 1 size {source}"]:
    batch, size, _ = taps.weights.shape
    places, weights = (torch.from_numpy(array).to(device) for array in taps)
    return torch.zeros(batch, size, source, device=device).scatter_add_(2, places, weights)[:, None]


def rand_augment(images: Images, key: Key, magnitude: float = 9.0) -> Images:
    """Change every image, of values 0 to 1, at random, with a magnitude of 0 to 10."""
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


def _auto_contrast(images: Planes, amount: Amounts) -> Planes:
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    return torch.where(high > low, (images - low) / (high - low).clamp(min=1e-6), images)


def _equalize(images: Planes, amount: Amounts) -> Planes:
    """Spread grey levels evenly: each of 256 levels becomes the share of pixels below it."""
    levels = (images * 255).round().long().flatten(2)
    counts = images.new_zeros(*levels.shape[:2], 256).scatter_add_(2, levels, images.new_ones(levels.shape))
    below = counts.cumsum(2) - counts
    last = counts.gather(2, levels.amax(2, keepdim=True))
    total = levels.shape[2] - last
    table = torch.where(total > 0, below / total.clamp(min=1), torch.arange(256, device=images.device) / 255)
    return table.gather(2, levels).view(images.shape)


def _posterize(images: Planes, amount: Amounts) -> Planes:
    step = 2.0 ** (4 + (amount.abs() * 4).floor())  # 4 bits and fewer are kept
    return ((images * 255).round() / step).floor() * step / 255


def _blend(other: Callable[[Planes], Tensor]) -> Change:
    """Return a change that moves images away from another version of them, or towards it."""

    def changed(images: Planes, amount: Amounts) -> Planes:
        base = other(images)
        return base + (images - base) * (1 + 0.9 * amount).clamp(min=0.1)

    return changed


def _grey(images: Planes) -> Tensor:
    weights = images.new_tensor(_LUMA if images.shape[1] == 3 else (1.0,))
    return (images * weights.view(1, -1, 1, 1)).sum(1, keepdim=True)


def _smooth(images: Planes) -> Tensor:
    """Return a blurred image: 5 parts of the pixel and one of each of its eight neighbours; edges stay."""
    if min(images.shape[2:]) < 3:
        return images
    wide = images.unfold(2, 3, 1).unfold(3, 3, 1).sum((4, 5))
    inner = (wide + 4 * images[:, :, 1:-1, 1:-1]) / 13
    return torch.where(pad(torch.ones_like(inner), (1, 1, 1, 1)) > 0, pad(inner, (1, 1, 1, 1)), images)


def _warp(matrix: Callable[[Tensor, float], Matrix]) -> Change:
    """Return a change that takes every pixel from another place; outside the image is ImageNet's mean colour.

    ``matrix(value, aspect)`` returns the rows of the affine map, for coordinates from −1 to 1.
    """

    def changed(images: Planes, amount: Amounts) -> Planes:
        value, (height, width) = amount.flatten(), images.shape[2:]
        rows = [[entry + torch.zeros_like(value) for entry in row] for row in matrix(value, width / height)]
        theta = torch.stack([torch.stack(row, 1) for row in rows], 1)
        grid = affine_grid(theta, list(images.shape), align_corners=False)
        fill = images.new_tensor(_OUTSIDE[images.shape[1]]).view(1, -1, 1, 1)
        return grid_sample(images - fill, grid, align_corners=False) + fill

    return changed


def _rotation(value: Tensor, aspect: float) -> Matrix:
    angle = value * (np.pi / 6)
    return (angle.cos(), -angle.sin() / aspect, 0), (angle.sin() * aspect, angle.cos(), 0)


OPERATIONS: dict[str, Change] = {
    "auto-contrast": _auto_contrast,
    "equalize": _equalize,
    "invert": lambda images, amount: 1 - images,
    "rotate": _warp(_rotation),
    "posterize": _posterize,
    "solarize": lambda images, amount: torch.where(images >= 1 - amount.abs(), 1 - images, images),
    "solarize-add": lambda images, amount: images + (images < 0.5) * amount.abs() * (110 / 255),
    "color": _blend(_grey),
    "contrast": _blend(lambda images: _grey(images).mean((2, 3), keepdim=True)),
    "brightness": _blend(torch.zeros_like),
    "sharpness": _blend(_smooth),
    "shear-x": _warp(lambda value, aspect: ((1, 0.3 * value / aspect, 0), (0, 1, 0))),
    "shear-y": _warp(lambda value, aspect: ((1, 0, 0), (0.3 * value * aspect, 1, 0))),
    "translate-x": _warp(lambda value, aspect: ((1, 0, 0.9 * value), (0, 1, 0))),
    "translate-y": _warp(lambda value, aspect: ((1, 0, 0), (0, 1, 0.9 * value))),
}
"""By name: takes images, and the magnitude from 0 to 1 with a random sign. Shifts of 0.9 are 0.45 of the side."""


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
    """Return the first rectangle within the image, or None, by numbers for area, aspect, row and column."""
    low, high = map(math.log, _ERASED_ASPECTS)
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
