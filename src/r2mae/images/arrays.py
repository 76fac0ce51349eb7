"""Labelled images in memory or on disk, the official parts of a set, and readers of .npy and .npz. No torch.

Nothing is unpickled. What a file declares is compared with the memory limit before anything of that size is read.
"""

import errno
import math
import os
import warnings
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, Int64, UInt8

from r2mae.cores import available_memory, gigabytes
from r2mae.errors import UserError

CHUNK_BYTES = 1 << 26  # of images in memory at a time where all of a set are read


class StoredImages(ABC):
    """Images on disk, with the part of an array's interface of shape (n, height, width, channels) that is used.

    `rows` are those of the images on disk that these are, in this order; `dtype` is uint8 or float32.
    """

    def __init__(self, image: tuple[int, ...], rows: Int64[np.ndarray, " n"], dtype: Any = np.uint8) -> None:
        self.rows, self.dtype = rows, np.dtype(dtype)
        self.shape = (len(rows), *image)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def size(self) -> int:
        """Numbers of all images together."""
        return math.prod(self.shape)

    def take(self, rows: Int64[np.ndarray, " batch"], axis: int = 0) -> np.ndarray:
        """Read some images into memory, in this order; along the first axis, as an array's method would."""
        return self.read(self.rows[rows])

    @abstractmethod
    def read(self, rows: Int64[np.ndarray, " batch"]) -> np.ndarray:
        """Read images by their rows on disk."""


# Axes without names: one function may take images and return others.
AnyImages = UInt8[np.ndarray, "_ _ _ _"] | Float32[np.ndarray, "_ _ _ _"] | StoredImages


class NpyImages(StoredImages):
    """Images in a .npy file of uint8 or float32 in C order.

    It is mapped again for each batch, as what was read of a map counts as memory of the process.
    """

    def __init__(self, path: Path) -> None:
        whole = np.load(path, mmap_mode="r", allow_pickle=False)
        self.path = path
        super().__init__((*whole.shape[1:], 1)[:3], np.arange(len(whole)), whole.dtype)

    def read(self, rows: Int64[np.ndarray, " batch"]) -> np.ndarray:
        """Read images by their rows in the file."""
        with reading(self.path, ".npy file", "it has changed since the run began: save it again"):
            return np.array(np.load(self.path, mmap_mode="r", allow_pickle=False)[rows]).reshape(-1, *self.shape[1:])


def pick(images: AnyImages, rows: Int64[np.ndarray, " picked"] | slice) -> AnyImages:
    """Choose images: stored ones without reading them; of an array a copy, or with a slice a view."""
    if not isinstance(images, StoredImages):
        return images[rows]
    chosen = copy(images)
    chosen.rows = images.rows[rows]
    chosen.shape = (len(chosen.rows), *images.shape[1:])
    return chosen


def in_chunks(images: AnyImages) -> Iterator[np.ndarray]:
    """Yield all images in order, as arrays of at most :data:`CHUNK_BYTES`, or of one image."""
    step = max(1, CHUNK_BYTES // max(1, math.prod(images.shape[1:]) * images.dtype.itemsize))
    for first in range(0, len(images), step):
        rows = np.arange(first, min(first + step, len(images)))
        yield images.take(rows) if isinstance(images, StoredImages) else images[first : first + step]


@dataclass(frozen=True, eq=False, repr=False)
class ImageSet:
    """Images of one size, with their labels and attributes, if they have any.

    `images` have values of 0 to 255 (uint8) or 0 to 1 (float32), and 1 or 3 channels; ``images.take(rows, axis=0)``
    returns a batch, also of stored ones. `labels` are indices into `classes`, and `attributes` have 0 or 1 for each of
    the `attribute_names`. `index` is the place of each image in the input, from 0: its row in an array, whose parts
    follow one another, or the place of its file among `files`, which broken files have, too.
    """

    name: str
    images: AnyImages
    labels: Int64[np.ndarray, " n"] | None = None
    classes: tuple[str, ...] | None = None
    attributes: UInt8[np.ndarray, "n k"] | None = None
    attribute_names: tuple[str, ...] | None = None
    index: Int64[np.ndarray, " n"] | None = None
    files: Sequence[Any] | None = None

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        size = " x ".join(map(str, self.shape))
        labels = "no labels" if self.classes is None else f"{len(self.classes)} classes"
        attributes = "" if self.attribute_names is None else f", {len(self.attribute_names)} attributes"
        return f"ImageSet({self.name!r}: {len(self):,} images of {size}, {self.images.dtype}, {labels}{attributes})"

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of an image."""
        height, width, channels = self.images.shape[1:]
        return height, width, channels

    def pick(self, rows: Int64[np.ndarray, " picked"] | slice, images: AnyImages | None = None) -> "ImageSet":
        """Return some of the images with their labels and attributes; `images` are theirs, if they are known."""
        return replace(
            self,
            images=pick(self.images, rows) if images is None else images,
            labels=None if self.labels is None else self.labels[rows],
            attributes=None if self.attributes is None else self.attributes[rows],
            index=None if self.index is None else self.index[rows],
        )


class Parts(NamedTuple):
    """All images of a set, or its official training, test and validation images."""

    train: ImageSet
    test: ImageSet | None = None
    validation: ImageSet | None = None


class Part(NamedTuple):
    """What was read of a part, apart from images: its name in errors, labels (numbers or words), attributes (0, 1).

    `rows` are the index of :class:`ImageSet`; by default the images of the parts follow one another.
    """

    place: str
    labels: np.ndarray | None = None
    attributes: np.ndarray | None = None
    rows: np.ndarray | None = None


def image_sets(
    name: str,
    parts: Sequence[tuple[Part, AnyImages]],
    attribute_names: tuple[str, ...] | None = None,
    files: Sequence[Any] | None = None,
) -> Parts:
    """Number the labels of the training part, the first, from 0 in sorted order; other parts have the same classes."""
    values = [_checked_labels(part, len(images)) for part, images in parts]
    train, images = parts[0]
    classes = None if values[0] is None else np.unique(values[0])
    made, first = [], 0
    for (part, own), labels in zip(parts, values, strict=True):
        if own.shape[1:] != images.shape[1:]:
            sizes = [" x ".join(map(str, one.shape[1:])) for one in (own, images)]
            raise UserError(
                f"{part.place}: has images of {sizes[0]}, those of {train.place} are of {sizes[1]}: take both parts "
                "from the same set"
            )
        if (labels is None) != (classes is None):
            bare, labelled = (part, train) if labels is None else (train, part)
            raise UserError(
                f"{bare.place}: its images have no labels, those of {labelled.place} have: give labels to both "
                "(folders of classes, or arrays), or to none"
            )
        numbers = None
        if labels is not None and classes is not None:
            if labels.dtype.kind != classes.dtype.kind:
                raise UserError(f"{part.place}: some labels are numbers, others words: use one kind")
            if len(foreign := np.setdiff1d(labels, classes)):
                raise UserError(
                    f"{part.place}: has the class {foreign[0]}, which {train.place} lacks: omit its images, or add "
                    "some to the training part"
                )
            numbers = np.searchsorted(classes, labels).astype(np.int64)
        names = None if classes is None else tuple(map(str, classes.tolist()))
        index = np.arange(first, first + len(own)) if part.rows is None else part.rows
        made.append(ImageSet(name, own, numbers, names, part.attributes, attribute_names, index, files))
        first += len(own)
    return Parts(*made)


def _checked_labels(part: Part, count: int) -> np.ndarray | None:
    labels = part.labels
    if labels is None:
        return None
    if labels.shape != (count,):
        raise UserError(f"{part.place}: labels of shape {labels.shape}, expected ({count},): one label an image")
    if labels.dtype.kind == "U":
        return labels
    if labels.dtype.kind not in "iu":
        raise UserError(
            f"{part.place}: labels have type {labels.dtype}, expected integers or text, y.astype(int) or y.astype(str)"
        )
    labels = labels.astype(np.int64)
    if labels.size and labels.min() < 0:
        first = int(np.argmax(labels < 0))
        raise UserError(
            f"{part.place}: image {first} has the negative label {labels[first]}: drop unlabelled images, or all labels"
        )
    return labels


_NPZ_PARTS = ("", "test_", "val_")  # before `images` and `labels`: all or the training part, and the others
_KERAS = {
    **{"train_images": "images", "train_labels": "labels"},
    **{"x_train": "images", "y_train": "labels", "x_test": "test_images", "y_test": "test_labels"},
    **{"X_train": "images", "X_test": "test_images"},
}
_SAVE_PLAIN = "save it again with numpy, as plain numbers"
_MAP_INSTEAD = "save the images as .npy of uint8 or float32, which is read image by image"


class BrokenFileError(UserError):
    """The content of a file cannot be read. A file that the system cannot open raises a plain UserError instead."""


def memory_limit() -> int:
    """Return half of the free memory (8 GiB if unknown), shared by the processes of a run on it, in bytes."""
    return (available_memory() or 8 << 30) // 2 // int(os.environ.get("LOCAL_WORLD_SIZE") or 1)  # torchrun's processes


def check_memory(path: object, size: int, hint: str) -> None:
    """Refuse what needs more memory than :func:`memory_limit`."""
    if size > (limit := memory_limit()):
        raise UserError(f"{path}: needs {gigabytes(size)} of memory, the limit is {gigabytes(limit)}: {hint}")


@contextmanager
def reading(path: object, kind: str, hint: str = "fetch or export it again") -> Iterator[None]:
    """Turn whatever a library raises on a file into one line, which begins with `path`.

    Decoders raise dozens of types on damaged bytes (zlib.error, EOFError, struct.error, SyntaxError, …). What the
    system cannot open or read raises a plain UserError, and damaged content a BrokenFileError.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        # Decoders seek to places that a damaged file names, which is EINVAL.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise UserError(f"{path}: cannot be read ({error.strerror})") from error
        reason = " ".join(str(error).partition(" <_io")[0].split())[:200] or type(error).__name__
        raise BrokenFileError(f"{path}: not a valid {kind} ({reason}): {hint}") from error


def read_npy(path: Path) -> AnyImages:
    """Read images from a .npy file: N x H x W [x C] of uint8, bool (which becomes 0 and 255), or float in [0, 1].

    Sets above :func:`memory_limit` are read from the file on access, which takes uint8 or float32 in C order.
    """
    with reading(path, ".npy file", _SAVE_PLAIN), warnings.catch_warnings(action="ignore"):
        raw = np.lib.format.open_memmap(path, mode="r")
        if raw.offset + raw.nbytes != path.stat().st_size:
            raise ValueError(f"bytes follow the array of shape {raw.shape}")
    return _as_images(path, raw)


def read_npz(name: str, path: Path) -> Parts:
    """Read images (as :func:`read_npy`) and, if present, labels (integers or strings) from a .npz file.

    The arrays are called `images` and `labels`, those of other parts `test_images`, `val_labels` and so on, or as in
    Keras `x_train` and `y_test`. `val_images` are the validation part, or the test part if there is no other.
    """
    found: dict[str, str] = {}
    with reading(path, ".npz file", _SAVE_PLAIN), zipfile.ZipFile(path) as archive:
        names = [entry.removesuffix(".npy") for entry in archive.namelist()]
        wanted = [part + kind for part in _NPZ_PARTS for kind in ("images", "labels")]
        for own in names:
            if (meant := _KERAS.get(own, own)) in found:
                raise UserError(f"{path}: has `{own}` and `{found[meant]}`, which are both {meant}: omit one of them")
            if meant in wanted:
                found[meant] = own
        if "images" not in found:
            raise UserError(
                f"{path}: has no array `images` (found: {', '.join(names[:10]) or 'nothing'}): save it by "
                "np.savez_compressed(path, images=..., labels=...)"
            )
        size = sum(archive.getinfo(f"{own}.npy").file_size for own in found.values())
        check_memory(path, size, _MAP_INSTEAD)
        arrays = {meant: _npz_array(archive, own) for meant, own in found.items()}
    parts = []
    for part in _NPZ_PARTS:
        images, labels = arrays.pop(f"{part}images", None), arrays.pop(f"{part}labels", None)
        if images is None and labels is not None:
            raise UserError(f"{path}: has `{found[f'{part}labels']}` and no `{part}images`: add them, or omit it")
        if images is not None:
            if labels is not None and labels.ndim == 2 and labels.shape[1] == 1:
                labels = labels[:, 0]
            known = Part(f"{path}, `{found[f'{part}images']}`", labels)
            parts.append((known, _as_images(known.place, images)))
    return image_sets(name, parts)


def _npz_array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(f"{name}.npy") as stream, warnings.catch_warnings(action="ignore"):
        array: np.ndarray = np.lib.format.read_array(stream, allow_pickle=False)
        if stream.read(1):
            raise ValueError(f"bytes follow the array `{name}` of shape {array.shape}")
    if array.dtype.kind == "U":
        array.tolist()  # refuses what is no character
    return array


def _as_images(place: object, raw: np.ndarray) -> AnyImages:
    """Return `raw` as uint8 or float32 in C order; a memory map as images that are read on access, or as a copy."""
    if raw.dtype.kind not in "fb" and raw.dtype != np.uint8:
        raise UserError(f"{place}: has type {raw.dtype}, expected uint8 (0 to 255), bool, or float in [0, 1]")
    if raw.ndim not in {3, 4} or (raw.ndim == 4 and raw.shape[3] not in {1, 3}):
        first = raw.ndim == 4 and raw.shape[1] in {1, 3}
        hint = "transpose(0, 2, 3, 1) puts the channels last" if first else "reshape it"
        raise UserError(
            f"{place}: has shape {raw.shape}, expected N x H x W or N x H x W x C with 1 or 3 channels: {hint}"
        )
    if not raw.size:
        raise UserError(f"{place}: holds no images (shape {raw.shape}): save it again with some, or omit it")
    dtype = np.dtype(np.float32 if raw.dtype.kind == "f" else np.uint8)
    size = raw.size * dtype.itemsize
    images: AnyImages
    if isinstance(place, Path) and raw.dtype == dtype and raw.flags.c_contiguous and size > memory_limit():
        images = NpyImages(place)
    else:
        check_memory(place, size, _MAP_INSTEAD)
        if raw.dtype == bool:  # as a bool, a byte other than 0 and 1 is undefined
            raw = raw.view(np.uint8).clip(max=1) * np.uint8(255)
        with np.errstate(over="ignore", invalid="ignore"):  # beyond float32: infinite, refused below
            images = np.array(raw, dtype, order="C", copy=isinstance(raw, np.memmap) or None)
        images = images.reshape(raw.shape if raw.ndim == 4 else (*raw.shape, 1))
    start = 0
    for chunk in in_chunks(images) if dtype == np.float32 else ():
        if not (chunk.min() >= 0 and chunk.max() <= 1):  # also for NaN
            row = int(np.argmin(((chunk >= 0) & (chunk <= 1)).all(axis=(1, 2, 3))))
            raise UserError(
                f"{place}: image {start + row} has pixels from {chunk[row].min():g} to {chunk[row].max():g}, "
                "expected floats in [0, 1]: repair or scale them, or save uint8"
            )
        start += len(chunk)
    return images
