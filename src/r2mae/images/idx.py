"""Readers of idx files, the format of MNIST; headers are trusted as little as in :mod:`r2mae.images.formats`."""

import gzip
import math
from pathlib import Path

import numpy as np
from jaxtyping import Int64, UInt8

from r2mae.errors import UserError
from r2mae.images.formats import Labelled, check_memory, encode, reading, same_size, take

_GZIP_MAGIC = b"\x1f\x8b"
_IDX_UBYTE = 8


def read_idx_images(path: str | Path, *, max_bytes: int | None = None) -> UInt8[np.ndarray, "n height width 1"]:
    """Read greyscale images in the idx format of MNIST, plain or gzip (told by content, not by name).

    Raises
    ------
    UserError
        Not an idx file of unsigned bytes with three dimensions, truncated, followed by other bytes, or empty.
    """
    return _read_idx(Path(path), 3, "images", max_bytes)[..., None]


def read_idx_labels(path: str | Path, *, max_bytes: int | None = None) -> Int64[np.ndarray, " n"]:
    """Read labels in the idx format of MNIST; errors as :func:`read_idx_images`, with one dimension."""
    return _read_idx(Path(path), 1, "labels", max_bytes).astype(np.int64)


def read_idx(images: str | Path, labels: str | Path | None = None, *, max_bytes: int | None = None) -> Labelled:
    """Read an idx file of images and, where given, the one of its labels.

    Raises
    ------
    UserError
        As :func:`read_idx_images`, or the two differ in length.
    """
    pixels = read_idx_images(images, max_bytes=max_bytes)
    if labels is None:
        return Labelled(pixels)
    numbers = read_idx_labels(labels, max_bytes=max_bytes)
    if len(pixels) != len(numbers):
        raise UserError(
            f"{labels}: has {len(numbers):,} labels for the {len(pixels):,} images of {images}: "
            "take both files from the same set"
        )
    return Labelled(pixels, *encode(Path(labels), numbers))


def _read_idx(path: Path, ndim: int, content: str, max_bytes: int | None) -> np.ndarray:
    with reading(path, "idx file"), path.open("rb") as plain:
        packed = plain.read(2) == _GZIP_MAGIC
        plain.seek(0)
        with gzip.open(plain) if packed else plain as stream:
            magic = bytes(take(stream, 4))
            if magic != bytes([0, 0, _IDX_UBYTE, ndim]):
                raise UserError(
                    f"{path}: starts with 0x{magic.hex()}, expected 0x0000080{ndim} of an idx file of {content} "
                    f"(unsigned bytes, {ndim} dimension{'s' * (ndim > 1)})"
                )
            sizes = take(stream, 4 * ndim)
            if len(sizes) < 4 * ndim:
                raise UserError(f"{path}: truncated within its header: fetch or export it again")
            shape = tuple(int(size) for size in np.frombuffer(sizes, ">u4"))
            expected = math.prod(shape)
            if not expected:
                raise UserError(f"{path}: holds no {content} (shape {shape})")
            check_memory(path, expected, max_bytes, "check that it is the right file")
            data = take(stream, expected + 1)  # one more, to see the end and so gzip's own checksum
    same_size(path, shape, expected, len(data))
    return np.frombuffer(data, np.uint8).reshape(shape)
