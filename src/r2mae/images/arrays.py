"""Images that are no array in memory: they are read on access, some at a time. No torch."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

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

    def __repr__(self) -> str:
        return f"{type(self).__name__}({' x '.join(map(str, self.shape))}, {self.dtype})"

    @property
    def size(self) -> int:
        """Numbers of all images together."""
        return math.prod(self.shape)

    def take(self, rows: Int64[np.ndarray, " batch"], axis: int = 0) -> np.ndarray:
        """Read some images into memory, in this order; along the first axis, as an array's method would.

        Raises
        ------
        IndexError
            If a row does not exist.
        """
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
