"""Images that are no array in memory: read when they are asked for, some at a time. No torch."""

import math
import mmap
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Int64, UInt8

CHUNK_BYTES = 1 << 26  # of images that are in memory at a time where all of a set are looked at


class StoredImages(ABC):
    """Images that lie elsewhere, as far as they behave like an array of shape (n, height, width, channels).

    Parameters
    ----------
    shape : (int, int, int, int)
        As that of an array.
    dtype : dtype
        uint8 or float32.
    """

    def __init__(self, shape: tuple[int, int, int, int], dtype: Any = np.uint8) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)

    def __len__(self) -> int:
        """Return the number of images."""
        return self.shape[0]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({' x '.join(map(str, self.shape))}, {self.dtype})"

    @property
    def size(self) -> int:
        """Numbers of all images together."""
        return math.prod(self.shape)

    @abstractmethod
    def take(self, rows: Int64[np.ndarray, " batch"], axis: int = 0) -> np.ndarray:
        """Read some images into memory, in this order; along the first axis, as an array's method would.

        Raises
        ------
        IndexError
            A row that is not there.
        """


# Axes without names: one function may take images and return others.
AnyImages = UInt8[np.ndarray, "_ _ _ _"] | Float32[np.ndarray, "_ _ _ _"] | StoredImages


class MappedImages(StoredImages):
    """Images in a .npy file, which is mapped into memory in every process that reads it.

    Parameters
    ----------
    path : Path
        A file that this package has written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mapped: np.ndarray | None = None
        super().__init__(self._open().shape, self._open().dtype)

    def take(self, rows: Int64[np.ndarray, " batch"], axis: int = 0) -> np.ndarray:
        """Read some images; see :meth:`StoredImages.take`."""
        taken: np.ndarray = self._open().take(rows, axis=0)
        return taken

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_mapped": None}

    def _open(self) -> Any:
        if self._mapped is None:
            # A plain array over the map: indexing a memmap costs more than it reads.
            self._mapped = np.asarray(np.load(self.path, mmap_mode="r", allow_pickle=False))
        return self._mapped


class PickedImages(StoredImages):
    """Some images of others, by their rows.

    Parameters
    ----------
    images : ndarray or StoredImages
        The others.
    rows : int64 ndarray of shape (picked,)
        Which of them, in this order.
    """

    def __init__(self, images: AnyImages, rows: Int64[np.ndarray, " picked"]) -> None:
        self.images: AnyImages = images.images if isinstance(images, PickedImages) else images
        self.rows: np.ndarray = images.rows[rows] if isinstance(images, PickedImages) else rows
        super().__init__((len(rows), *images.shape[1:]), images.dtype)

    def take(self, rows: Int64[np.ndarray, " batch"], axis: int = 0) -> np.ndarray:
        """Read some images; see :meth:`StoredImages.take`."""
        return self.images.take(self.rows[rows], axis=0)


def pick(images: AnyImages, rows: Int64[np.ndarray, " picked"]) -> AnyImages:
    """Choose images by their rows: a copy of an array, and of stored images a view."""
    return PickedImages(images, rows) if isinstance(images, StoredImages) else images[rows]


def in_chunks(images: AnyImages) -> Iterator[np.ndarray]:
    """Give all images in order, as arrays of at most :data:`CHUNK_BYTES`, or of one image."""
    step = max(1, CHUNK_BYTES // max(1, math.prod(images.shape[1:]) * images.dtype.itemsize))
    for first in range(0, len(images), step):
        rows = np.arange(first, min(first + step, len(images)))
        yield images.take(rows) if isinstance(images, StoredImages) else images[first : first + step]
        release(images)


def release(images: AnyImages) -> None:
    """Let go of the pages of a mapped file that were read, which would count as memory of this process for good."""
    source: Any = images.images if isinstance(images, PickedImages) else images
    source = source._mapped if isinstance(source, MappedImages) else source
    if isinstance(source, np.ndarray) and not source.flags.writeable:  # changes of a private copy would be lost
        while isinstance(source, np.ndarray):
            source = source.base
        if isinstance(source, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            source.madvise(mmap.MADV_DONTNEED)
