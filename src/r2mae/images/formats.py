"""Readers of array files (idx, .npy, .npz) to images of shape (n, height, width, channels).

No header is trusted: what it declares is compared with the bytes that are there, and with the memory limit,
before anything of that size is allocated. Nothing is ever unpickled. Whatever is wrong with a file becomes one
:class:`~r2mae.errors.UserError`.
"""

import gzip
import math
import os
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, Int64, UInt8

from r2mae.errors import UserError
from r2mae.images.arrays import AnyImages, PickedImages, StoredImages, in_chunks

Images = UInt8[np.ndarray, "n height width channels"] | Float32[np.ndarray, "n height width channels"]

_CHUNK = 2**20
_GZIP_MAGIC = b"\x1f\x8b"
_IDX_UBYTE = 8
MAP_INSTEAD = "save the images as .npy of uint8 or float32, which is memory-mapped"


@runtime_checkable
class Stream(Protocol):
    """What the readers need of an open file, plain or packed."""

    def read(self, size: int = ..., /) -> bytes:
        """Read up to `size` bytes."""
        ...


class Labelled(NamedTuple):
    """Images with their labels, where they have any.

    Attributes
    ----------
    images : ndarray or StoredImages of shape (n, height, width, channels)
        uint8, or float32 in [0, 1]; 1 or 3 channels.
    labels : int64 ndarray of shape (n,), or None
        Indices into `classes`.
    classes : tuple of str, or None
        Sorted.
    attributes : uint8 ndarray of shape (n, k), or None
        0 or 1.
    attribute_names : tuple of str, or None
        Theirs.
    """

    images: AnyImages
    labels: np.ndarray | None = None
    classes: tuple[str, ...] | None = None
    attributes: np.ndarray | None = None
    attribute_names: tuple[str, ...] | None = None

    def rows(self, first: int, stop: int) -> "Labelled":
        """Return some of them, without copying."""
        images = self.images
        if (first, stop) == (0, len(images)):
            return self
        cut = slice(first, stop)
        return Labelled(
            PickedImages(images, np.arange(len(images))[cut]) if isinstance(images, StoredImages) else images[cut],
            None if self.labels is None else self.labels[cut],
            self.classes,
            None if self.attributes is None else self.attributes[cut],
            self.attribute_names,
        )


class Parts(NamedTuple):
    """All images of a set, or its official training, test and validation images."""

    train: Labelled
    test: Labelled | None = None
    validation: Labelled | None = None


def memory_limit() -> int:
    """Give half of this machine's memory (or of the container's), in bytes: the default of every `max_bytes`."""
    sizes = [2**33]  # where the system does not tell
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    container = Path("/sys/fs/cgroup/memory.max")
    if container.is_file() and (text := container.read_text().strip()).isdigit():
        sizes.append(int(text))
    return min(sizes) // 2


def check_memory(path: Path, size: int, max_bytes: int | None, hint: str) -> None:
    """Refuse what would take more than `max_bytes` (default :func:`memory_limit`)."""
    limit = memory_limit() if max_bytes is None else max_bytes
    if size > limit:
        raise UserError(
            f"{path}: needs {size / 2**30:,.3g} GiB of memory, the limit is {limit / 2**30:,.3g} GiB: {hint}"
        )


@contextmanager
def reading(path: Path | str, kind: str, hint: str = "fetch or export it again") -> Iterator[None]:
    """Turn whatever a library raises on a broken file into one line.

    Decoders raise dozens of types on hostile bytes (zlib.error, EOFError, struct.error, SyntaxError, ...), so
    everything is caught here; the blocks under it hold little else than calls of decoders.
    """
    try:
        yield
    except UserError:
        raise
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError) as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(f"{path}: not a valid {kind} ({reason}): {hint}") from error


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


def read_npy(path: str | Path, *, max_bytes: int | None = None) -> Images:
    """Read images from a .npy file: N x H x W [x C] of uint8, bool, or float in [0, 1].

    Parameters
    ----------
    path : str or Path
        The file.
    max_bytes : int or None
        Larger sets are memory-mapped read-only, which takes uint8 or float32 in C order (default: half of the
        machine's memory).

    Returns
    -------
    uint8 or float32 ndarray of shape (n, height, width, channels)
        Bool becomes 0 and 255, other floats float32.

    Raises
    ------
    UserError
        Broken or pickled file, another shape or type, NaN or infinite pixels, floats outside [0, 1], or too
        large for memory and not mappable.
    """
    path = Path(path)
    with reading(path, ".npy file"), path.open("rb") as stream:
        header = _npy_header(stream, path)
        offset = stream.tell()
        _same_size(path, header.shape, header.size, path.stat().st_size - offset)
    shape = image_shape(path, header)
    with reading(path, ".npy file"):
        order: Any = "F" if header.fortran else "C"
        raw = np.memmap(path, _bytes_of_bool(header.dtype), "r", offset, header.shape, order)
    result = result_type(header.dtype)
    limit = memory_limit() if max_bytes is None else max_bytes
    if math.prod(shape) * result.itemsize <= limit:
        return convert(path, raw, shape, header.dtype)
    if header.dtype == result and not header.fortran:
        mapped = raw.reshape(shape)
        start = 0
        for chunk in in_chunks(mapped):
            _check_range(path, chunk, start)
            start += len(chunk)
        return mapped
    raise UserError(
        f"{path}: {header.dtype} in {order} order does not fit into memory: "
        "save it as uint8 or float32 in C order, which is memory-mapped"
    )


class _Header(NamedTuple):
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def take(stream: Stream, size: int) -> bytearray:
    """Read up to `size` bytes piece by piece, so that memory grows with what is there, not with what is claimed."""
    data = bytearray()
    while len(data) < size and (piece := stream.read(min(_CHUNK, size - len(data)))):
        data += piece
    return data


def _same_size(path: Path, shape: tuple[int, ...], expected: int, found: int) -> None:
    """Refuse an array that ends early or is followed by other bytes; of those only the first was read."""
    if found < expected:
        raise UserError(
            f"{path}: truncated: its header declares {shape}, {expected:,} bytes, and {found:,} follow: "
            "fetch or export it again"
        )
    if found > expected:
        raise UserError(f"{path}: bytes follow the declared array of shape {shape}: fetch or export it again")


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
                raise UserError(f"{path}: holds no {content} (shape {shape}): fetch or export it again")
            check_memory(path, expected, max_bytes, "check that it is the right file")
            data = take(stream, expected + 1)  # one more, to see the end and so gzip's own checksum
    _same_size(path, shape, expected, len(data))
    return np.frombuffer(data, np.uint8).reshape(shape)


def _npy_header(stream: Stream, path: Path) -> _Header:
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's own parser warns on strange literals before it refuses them
        version = np.lib.format.read_magic(stream)
        if version not in readers:
            major, minor = version
            raise UserError(f"{path}: has .npy format {major}.{minor}, expected 1.0 or 2.0: save a plain array")
        shape, fortran, dtype = readers[version](stream)
    header = _Header(tuple(int(size) for size in shape), bool(fortran), dtype)
    if dtype.hasobject:
        raise UserError(f"{path}: holds Python objects (pickle), which are never loaded: save a plain array")
    if any(size < 0 for size in header.shape):
        raise UserError(f"{path}: declares a negative shape {header.shape}: export it again")
    return header


def member(
    archive: zipfile.ZipFile, path: Path, name: str, max_bytes: int | None, if_empty: str
) -> tuple[np.ndarray, _Header]:
    """Read an array of a .npz, never more than its header declares; `if_empty` says what to do about one of no size."""
    info = archive.getinfo(f"{name}.npy")
    check_memory(path, info.file_size, max_bytes, MAP_INSTEAD)
    with archive.open(info) as stream:
        header = _npy_header(stream, path)
        offset = stream.tell()
        _same_size(path, header.shape, header.size, info.file_size - offset)
        data = take(stream, header.size + 1)  # one more, to see the end and so the archive's checksum
    _same_size(path, header.shape, header.size, len(data))
    if not header.size:
        raise UserError(f"{path}: `{name}` is empty (shape {header.shape}): {if_empty}")
    flat = np.frombuffer(data, _bytes_of_bool(header.dtype))
    return flat.reshape(header.shape, order="F" if header.fortran else "C"), header


def image_shape(path: Path, header: _Header) -> tuple[int, int, int, int]:
    """Give (n, height, width, channels), or refuse shape or type."""
    shape, dtype = header.shape, header.dtype
    if dtype.kind not in "fb" and dtype != np.uint8:
        raise UserError(f"{path}: has type {dtype}, expected uint8 (0 to 255), bool, or float in [0, 1]: convert it")
    if len(shape) not in {3, 4} or (len(shape) == 4 and shape[3] not in {1, 3}):
        first = len(shape) == 4 and shape[1] in {1, 3}
        hint = "transpose(0, 2, 3, 1) puts the channels last" if first else "reshape it"
        raise UserError(f"{path}: has shape {shape}, expected N x H x W or N x H x W x C with 1 or 3 channels: {hint}")
    if not math.prod(shape):
        raise UserError(f"{path}: holds no images (shape {shape}): save it again with some")
    return shape[0], shape[1], shape[2], shape[3] if len(shape) == 4 else 1


def _bytes_of_bool(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Read bool as bytes: a file may hold others than 0 and 1, on which numpy's bool is undefined."""
    return np.dtype(np.uint8) if dtype.kind == "b" else dtype


def result_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return float32 for floats, and bytes for all else."""
    return np.dtype(np.float32 if dtype.kind == "f" else np.uint8)


def _rows(shape: tuple[int, int, int, int], dtype: np.dtype[Any]) -> int:
    return max(1, 16 * _CHUNK // (math.prod(shape[1:]) * dtype.itemsize))


def convert(path: Path, raw: np.ndarray, shape: tuple[int, int, int, int], dtype: np.dtype[Any]) -> np.ndarray:
    """Bring `raw` (of declared type `dtype`) to uint8 or float32 in C order, a piece at a time."""
    result = result_type(dtype)
    in_memory = not isinstance(raw, np.memmap)
    if in_memory and dtype == result and raw.flags.c_contiguous:
        raw = raw.reshape(shape)
        _check_range(path, raw, 0)
        return raw
    images = np.empty(shape, result)
    step = _rows(shape, result)
    for start in range(0, shape[0], step):
        part = raw[start : start + step].reshape(-1, *shape[1:])
        here = images[start : start + step]
        if dtype.kind == "b":
            np.multiply(part != 0, np.uint8(255), out=here)
        else:
            with np.errstate(over="ignore", invalid="ignore"):  # beyond float32: infinite, refused below
                here[...] = part
        _check_range(path, here, start)
    return images


def _check_range(path: Path, images: np.ndarray, start: int) -> None:
    """Refuse floats that are not in [0, 1], naming the first image (counted from `start`)."""
    if images.dtype.kind != "f" or (images.min() >= 0 and images.max() <= 1):  # false with a NaN, too
        return
    finite = np.isfinite(images).all(axis=(1, 2, 3))
    if not finite.all():
        first = start + int(np.argmin(finite))
        raise UserError(f"{path}: image {first} has NaN or infinite pixels: repair it or omit it")
    inside = ((images >= 0) & (images <= 1)).all(axis=(1, 2, 3))
    worst = images[int(np.argmin(inside))]
    raise UserError(
        f"{path}: image {start + int(np.argmin(inside))} has pixels from {worst.min():g} to {worst.max():g}, "
        "expected floats in [0, 1]: scale them, or save uint8"
    )


def encode(path: Path, labels: np.ndarray) -> tuple[Int64[np.ndarray, " n"], tuple[str, ...]]:
    """Number the labels 0 .. classes - 1 in sorted order."""
    if labels.dtype.kind not in "iuUS":
        raise UserError(f"{path}: labels have type {labels.dtype}, expected integers or strings")
    if labels.dtype.kind in "iu" and labels.min() < 0:
        first = int(np.argmax(labels < 0))
        raise UserError(
            f"{path}: image {first} has the negative label {labels[first]}: drop unlabelled images, or all labels"
        )
    with reading(path, "set of labels", "save them as integers or UTF-8 strings"):
        if labels.dtype.kind == "S":
            labels = np.char.decode(labels, "utf-8")
        values, index = np.unique(labels, return_inverse=True)
        return index.astype(np.int64), tuple(str(value) for value in values)
