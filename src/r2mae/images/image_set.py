"""Labelled images in memory or on disk, the official parts of a set, and how their labels become numbers. No torch."""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, Int64, UInt8

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
        """Return the number of images."""
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
    """Images in a .npy file of uint8 or float32 in C order, read one by one.

    The file has the shape (n, height, width) or (n, height, width, channels). A memory map of it would be faster, but
    what was read of that counts as memory of the process.
    """

    def __init__(self, path: Path) -> None:
        whole = np.lib.format.open_memmap(path, mode="r")
        self.path, self.offset = path, whole.offset
        super().__init__((*whole.shape[1:], 1)[:3], np.arange(len(whole)), whole.dtype)

    def read(self, rows: Int64[np.ndarray, " batch"]) -> np.ndarray:
        """Read images by their rows in the file."""
        images = np.empty((len(rows), *self.shape[1:]), self.dtype)
        size = math.prod(self.shape[1:]) * self.dtype.itemsize
        with self.path.open("rb", buffering=0) as file:
            for image, start in zip(images, (self.offset + rows * size).tolist(), strict=True):
                file.seek(start)
                if file.readinto(image) != size:
                    raise UserError(f"{self.path}: has become shorter since the run began: save it again")
        return images


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

    `images` have values of 0 to 255 (uint8) or 0 to 1 (float32), 1 or 3 channels, and C order;
    ``images.take(rows, axis=0)`` returns a batch, also of stored ones. `labels` are indices into the names of the
    `classes`; `attributes` have 0 or 1 for each of the `attribute_names`, which do not exclude each other.
    """

    name: str
    images: AnyImages
    labels: Int64[np.ndarray, " n"] | None = None
    classes: tuple[str, ...] | None = None
    attributes: UInt8[np.ndarray, "n k"] | None = None
    attribute_names: tuple[str, ...] | None = None

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
        )


class Parts(NamedTuple):
    """All images of a set, or its official training, test and validation images."""

    train: ImageSet
    test: ImageSet | None = None
    validation: ImageSet | None = None


class Part(NamedTuple):
    """What was read of a part, apart from images: its name in errors, labels (numbers or words), attributes (0, 1)."""

    place: str
    labels: np.ndarray | None = None
    attributes: np.ndarray | None = None

    def pick(self, rows: Int64[np.ndarray, " picked"]) -> "Part":
        """Return what is known of some of its images."""
        labels, attributes = (None if one is None else one[rows] for one in (self.labels, self.attributes))
        return Part(self.place, labels, attributes)


def image_sets(
    name: str, parts: Sequence[tuple[Part, AnyImages]], attribute_names: tuple[str, ...] | None = None
) -> Parts:
    """Number the labels of the training part from 0 in sorted order, and bring the other parts to its classes.

    `parts` are all images, or the training, test and, if there is one, validation part.
    """
    values = [_checked_labels(part, len(images)) for part, images in parts]
    train, images = parts[0]
    classes = None if values[0] is None else np.unique(values[0])
    made = []
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
        made.append(ImageSet(name, own, numbers, names, part.attributes, attribute_names))
    return Parts(*made)


def _checked_labels(part: Part, count: int) -> np.ndarray | None:
    labels = part.labels
    if labels is None:
        return None
    if labels.shape != (count,):
        raise UserError(f"{part.place}: labels of shape {labels.shape}, expected ({count},): one label an image")
    if labels.dtype.kind in "US":
        try:
            words = np.char.decode(labels, "utf-8") if labels.dtype.kind == "S" else labels
        except ValueError as error:
            raise UserError(f"{part.place}: labels are no text ({error}): save them as integers or text") from error
        points = np.dtype(np.uint32).newbyteorder(words.dtype.byteorder)
        if words.size and words.itemsize and np.ascontiguousarray(words).view(points).max() > sys.maxunicode:
            raise UserError(f"{part.place}: labels are no text: is the file damaged?")
        return words
    if labels.dtype.kind not in "iu":
        raise UserError(f"{part.place}: labels have type {labels.dtype}, expected integers or strings")
    labels = labels.astype(np.int64)
    if labels.size and labels.min() < 0:
        first = int(np.argmax(labels < 0))
        raise UserError(
            f"{part.place}: image {first} has the negative label {labels[first]}: drop unlabelled images, or all labels"
        )
    return labels
