"""Images that are no array in memory: they are read on access, some at a time. No torch."""

import math
import mmap
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Int64, UInt8

CHUNK_BYTES = 1 << 26  # of images in memory at a time where all of a set are read


class StoredImages(ABC):
    """Images on disk, with the part of an array's interface of shape (n, height, width, channels) that is used.

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
            If a row does not exist.
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


def pick(images: AnyImages, rows: Int64[np.ndarray, " picked"] | slice) -> AnyImages:
    """Choose images: stored ones without reading them; of an array a copy, or with a slice a view."""
    if not isinstance(images, StoredImages):
        return images[rows]
    chosen = np.arange(len(images))[rows] if isinstance(rows, slice) else rows
    return images if np.array_equal(chosen, np.arange(len(images))) else PickedImages(images, chosen)


def in_chunks(images: AnyImages) -> Iterator[np.ndarray]:
    """Yield all images in order, as arrays of at most :data:`CHUNK_BYTES`, or of one image."""
    step = max(1, CHUNK_BYTES // max(1, math.prod(images.shape[1:]) * images.dtype.itemsize))
    for first in range(0, len(images), step):
        rows = np.arange(first, min(first + step, len(images)))
        yield images.take(rows) if isinstance(images, StoredImages) else images[first : first + step]
        release(images)


def release(images: AnyImages) -> None:
    """Release the pages of a mapped file that were read, which would otherwise count as memory of this process."""
    source: Any = images.images if isinstance(images, PickedImages) else images
    source = source._mapped if isinstance(source, MappedImages) else source
    if isinstance(source, np.ndarray) and not source.flags.writeable:  # changes of a private copy would be lost
        while isinstance(source, np.ndarray):
            source = source.base
        if isinstance(source, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            source.madvise(mmap.MADV_DONTNEED)
