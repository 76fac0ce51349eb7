"""Augmentation of batches of tensors: random resized crops and flips, drawn from a key for each row.

The draws are made on the host from (key, row in the global batch) alone, so that an image is cropped alike in every
process, worker and resumed run. The arithmetic runs on the device of the images.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing import parent_process
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int64, UInt8
from PIL import Image
from torch import Tensor

from r2mae.images.arrays import AnyImages, PickedImages
from r2mae.images.decode import DecodedImages, decode, header, in_threads
from r2mae.masking.keys import Key, uniforms, words

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_ATTEMPTS = 10  # draws of a crop that fits into the image, as in the MAE recipe
_CACHE_NUMBERS = 1 << 19  # values of the images that are resized together, which fit into a CPU's cache
_CUBIC = -0.5  # parameter of Keys' kernel, as in Pillow

Boxes = Int64[np.ndarray, "batch 4"]


def crop_flip(
    images: UInt8[Tensor, "batch height width channels"] | Float[Tensor, "batch height width channels"],
    size: int | tuple[int, int],
    key: Key,
) -> Float32[Tensor, "batch _height _width channels"]:
    """Crop every image at random, and flip half of them, with the areas and aspects of MAE's recipe.

    The result equals :func:`random_flip` of :func:`random_resized_crop`, in one pass.
    """
    height, width = images.shape[1:3]
    return resize(images, size, random_boxes(len(images), (height, width), key), draw_flips(len(images), key))


def random_resized_crop(
    images: UInt8[Tensor, "batch height width channels"] | Float[Tensor, "batch height width channels"],
    size: int | tuple[int, int],
    key: Key,
    scale: tuple[float, float] = (0.2, 1.0),
    aspect: tuple[float, float] = (3 / 4, 4 / 3),
) -> Float32[Tensor, "batch _height _width channels"]:
    """Crop a random rectangle of every image and resize it, bicubic with antialiasing.

    Parameters
    ----------
    images : tensor of shape (batch, height, width, channels)
        uint8 (0 to 255) or float (0 to 1), on any device.
    size : int or (int, int)
        Side of the crops in pixels, or their height and width.
    key : Key
        Key of the step; ``key.row`` is the row of the first image in the global batch.
    scale : (float, float)
        Smallest and largest fraction of the image's area.
    aspect : (float, float)
        Smallest and largest width over height, which is log-uniform.

    Returns
    -------
    float32 tensor of shape (batch, size, size, channels)
        0 to 1, on the device of `images`.
    """
    height, width = images.shape[1:3]
    boxes = random_boxes(len(images), (height, width), key, scale=scale, aspect=aspect)
    return resize(images, size, boxes)


def crops_of_originals(
    images: AnyImages, rows: Int64[np.ndarray, " batch"], key: Key, *, scale: tuple[float, float] = (0.2, 1.0)
) -> UInt8[np.ndarray, "batch height width channels"]:
    """Crop a random rectangle of the original of every image, and resize it, bicubic with antialiasing, by Pillow.

    Parameters
    ----------
    images : StoredImages
        Images that are decoded on access, or some of them; their shape is that of the crops.
    rows : int64 ndarray of shape (batch,)
        Which of them.
    key, scale
        As for :func:`random_resized_crop`.
    """
    source, places = (images.images, images.rows[rows]) if isinstance(images, PickedImages) else (images, rows)
    if not isinstance(source, DecodedImages):
        raise TypeError(f"{images!r} are not decoded from files on access")
    height, width = images.shape[1:3]
    made = np.empty((len(rows), *images.shape[1:]), np.uint8)

    def cut(numbers: Sequence[int]) -> None:
        for number in numbers:
            original = _original(source, int(places[number]))
            left, top, wide, tall = random_boxes(1, original.shape[:2], key.rows(key.row + number), scale=scale)[0]
            picture = Image.fromarray(original if original.shape[2] > 1 else original[..., 0])
            box = (int(left), int(top), int(left + wide), int(top + tall))
            crop = picture.resize((width, height), Image.Resampling.BICUBIC, box=box)
            made[number] = np.asarray(crop).reshape(made.shape[1:])

    for _ in in_threads(cut, range(len(rows)), threads=1 if parent_process() else None):
        pass
    return made


def _original(images: DecodedImages, row: int) -> UInt8[np.ndarray, "height width channels"]:
    """Decode an image at its own size."""
    file = images.files[row]
    width, height, _ = header(file)
    how = replace(images.how, resize=None, resize_mode="squash", draft=False)
    return decode(file, (height, width, images.shape[3]), how)


def random_flip(images: Tensor, key: Key) -> Tensor:
    """Flip every image left to right with probability one half; shape (batch, height, width, channels)."""
    chosen = draw_flips(len(images), key)
    if not chosen.any():
        return images
    rows = torch.from_numpy(np.flatnonzero(chosen)).to(images.device)
    return images.index_copy(0, rows, images[rows].flip(2))


def draw_flips(count: int, key: Key) -> Bool[np.ndarray, " count"]:
    """Draw which of `count` images, beginning at ``key.row``, :func:`random_flip` flips."""
    flips: np.ndarray = words(key.fold("flip"), count, 1)[:, 0] >> np.uint64(63) == 1
    return flips


def random_boxes(
    count: int,
    image: tuple[int, int],
    key: Key,
    *,
    scale: tuple[float, float] = (0.2, 1.0),
    aspect: tuple[float, float] = (3 / 4, 4 / 3),
) -> Boxes:
    """Draw the crops of `count` images of one size (height, width).

    Area and aspect are drawn up to ten times, until the rectangle, in whole pixels, fits into the image; then its
    position is drawn. If none fits, the crop is the largest centred rectangle with an aspect within the limits.

    Returns
    -------
    int64 ndarray of shape (count, 4)
        Left, top, width and height in pixels.

    Raises
    ------
    ValueError
        If a range is empty or not above zero, or the scale exceeds 1.
    """
    if not 0 < scale[0] <= scale[1] <= 1 or not 0 < aspect[0] <= aspect[1]:
        raise ValueError(f"no crop has a share {scale} of the area and an aspect {aspect}")
    height, width = image
    draws = uniforms(key.fold("crop"), count, 2 * _ATTEMPTS + 2)
    area = height * width * (scale[0] + (scale[1] - scale[0]) * draws[:, 0 : 2 * _ATTEMPTS : 2])
    low, high = math.log(aspect[0]), math.log(aspect[1])
    ratio = np.exp(low + (high - low) * draws[:, 1 : 2 * _ATTEMPTS : 2])
    widths = np.rint(np.sqrt(area * ratio)).astype(np.int64)
    heights = np.rint(np.sqrt(area / ratio)).astype(np.int64)
    fits = (widths > 0) & (widths <= width) & (heights > 0) & (heights <= height)
    first = np.argmax(fits, axis=1)
    rows = np.arange(count)
    fitted = fits[rows, first]
    largest = _largest_crop(image, aspect)
    wide = np.where(fitted, widths[rows, first], largest[0])
    tall = np.where(fitted, heights[rows, first], largest[1])
    left = np.where(fitted, draws[:, -2] * (width - wide + 1), (width - wide) // 2).astype(np.int64)
    top = np.where(fitted, draws[:, -1] * (height - tall + 1), (height - tall) // 2).astype(np.int64)
    return np.stack([left, top, wide, tall], axis=1)


def resize(
    images: UInt8[Tensor, "batch height width channels"] | Float[Tensor, "batch height width channels"],
    size: int | tuple[int, int],
    boxes: Boxes | None = None,
    flip: Bool[np.ndarray, " batch"] | None = None,
) -> Float32[Tensor, "batch _height _width channels"]:
    """Resize a rectangle of every image, bicubic with antialiasing, along one axis after the other.

    The same as Pillow's ``Image.resize((width, height), BICUBIC, box)`` apart from its rounding to whole levels; as
    there, pixels next to the rectangle have a part in its rim.

    Parameters
    ----------
    images : tensor of shape (batch, height, width, channels)
        uint8 (0 to 255) or float (0 to 1).
    size : int or (int, int)
        Side, or height and width, in pixels.
    boxes : int64 ndarray of shape (batch, 4), optional
        Left, top, width and height; by default the whole image.
    flip : bool ndarray of shape (batch,), optional
        Which results are flipped left to right; by default none.

    Returns
    -------
    float32 tensor of shape (batch, height, width, channels)
        0 to 1; overshoot is clipped.
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
    """The source pixels of every pixel along an axis, and their weights, which sum to one."""

    places: Int64[np.ndarray, "batch size taps"]
    weights: Float32[np.ndarray, "batch size taps"]


def _kernel_taps(
    start: Int64[np.ndarray, " batch"], length: Int64[np.ndarray, " batch"], source: int, size: int
) -> _Taps:
    """Return the taps of Keys' cubic kernel (a = −½) for ranges of an axis of `source` pixels.

    For antialiasing, the kernel is wider by the factor by which pixels are reduced.
    """
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
    made = (
        _dense_matrix(lines, height, images.device)
        @ planes
        @ _dense_matrix(columns, width, images.device).transpose(2, 3)
    )
    return made.permute(0, 2, 3, 1).contiguous()


def _dense_matrix(taps: _Taps, source: int, device: torch.device) -> Float32[Tensor, "batch 1 size {source}"]:
    batch, size, _ = taps.weights.shape
    places, weights = (torch.from_numpy(array).to(device) for array in taps)
    return torch.zeros(batch, size, source, device=device).scatter_add_(2, places, weights)[:, None]


def _largest_crop(image: tuple[int, int], aspect: tuple[float, float]) -> tuple[int, int]:
    """Return width and height of the largest crop within the limits of the aspect."""
    height, width = image
    if width / height < aspect[0]:
        return width, max(1, min(height, round(width / aspect[0])))
    if width / height > aspect[1]:
        return max(1, min(width, round(height * aspect[1]))), height
    return width, height
