"""Readers of array files (.npy, .npz, idx), the limit of memory, and one line for each error of a library.

Nothing is unpickled. What a file declares is compared with the memory limit before anything of that size is read.
"""

import errno
import gzip
import math
import os
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from jaxtyping import Float32, UInt8

from r2mae.errors import UserError
from r2mae.images.arrays import CHUNK_BYTES, in_chunks
from r2mae.images.image_set import Part, Parts, image_sets

Images = UInt8[np.ndarray, "n height width channels"] | Float32[np.ndarray, "n height width channels"]

NPZ_PARTS = (
    (("images", "labels"), ("train_images", "train_labels"), ("x_train", "y_train"), ("X_train", "y_train")),
    (("test_images", "test_labels"), ("x_test", "y_test"), ("X_test", "y_test")),
    (("val_images", "val_labels"),),
)
"""Names of the images and labels in a .npz: of all or the training part, of the test part, of the validation part."""

_GZIP_MAGIC = b"\x1f\x8b"
_SAVE_PLAIN = "save it again with numpy, as plain numbers"
_MAP_INSTEAD = "save the images as .npy of uint8 or float32, which is memory-mapped"


class BrokenFileError(UserError):
    """The content of a file cannot be read. A file that the system cannot open raises a plain UserError instead."""


def memory_limit() -> int:
    """Return half of the memory of this machine, or of its container, in bytes: the default of every `max_bytes`."""
    sizes = [2**33]  # if the system does not report it
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    container = Path("/sys/fs/cgroup/memory.max")
    if container.is_file() and (text := container.read_text().strip()).isdigit():
        sizes.append(int(text))
    return min(sizes) // 2


def check_memory(path: object, size: int, max_bytes: int | None, hint: str) -> None:
    """Refuse what needs more than `max_bytes` of memory (default :func:`memory_limit`)."""
    limit = memory_limit() if max_bytes is None else max_bytes
    if size > limit:
        raise UserError(
            f"{path}: needs {size / 2**30:,.3g} GiB of memory, the limit is {limit / 2**30:,.3g} GiB: {hint}"
        )


@contextmanager
def reading(path: object, kind: str, hint: str = "fetch or export it again") -> Iterator[None]:
    """Turn whatever a library raises on a file into one line, which begins with `path`.

    Decoders raise dozens of types on damaged bytes (zlib.error, EOFError, struct.error, SyntaxError, …), so every type
    is caught here. The blocks inside contain little else than calls of decoders.

    Raises
    ------
    BrokenFileError
        If its content is damaged.
    UserError
        If the system cannot open or read it.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        # Decoders seek to places that a damaged file names, which is EINVAL.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise UserError(f"{path}: cannot be read ({error.strerror})") from error
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise BrokenFileError(f"{path}: not a valid {kind} ({reason}): {hint}") from error


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
    with reading(path, ".npy file", _SAVE_PLAIN), warnings.catch_warnings(action="ignore"):
        raw = np.lib.format.open_memmap(path, mode="r")
        if raw.offset + raw.nbytes != path.stat().st_size:
            raise ValueError(f"bytes follow the array of shape {raw.shape}")
    return _as_images(path, raw, max_bytes)


def read_npz(name: str, path: Path, *, max_bytes: int | None = None) -> Parts:
    """Read images (as :func:`read_npy`) and, if present, labels (integers or strings) from a .npz file.

    The arrays have names of :data:`NPZ_PARTS`, in one spelling. Labels have the shape (n,) or (n, 1). `val_images` are
    the validation part, or the test part if there is no other.

    Raises
    ------
    UserError
        As :func:`read_npy`; no `images`; names of two spellings, labels without their images; labels of another length
        or type; parts that do not go together (:func:`~r2mae.images.image_set.image_sets`); a broken archive, or one
        that unpacks to more than `max_bytes`.
    """
    with reading(path, ".npz file", _SAVE_PLAIN), zipfile.ZipFile(path) as archive:
        names = [entry.removesuffix(".npy") for entry in archive.namelist()]
        pairs = _npz_pairs(path, names)
        sizes = {one: archive.getinfo(f"{one}.npy").file_size for pair in pairs for one in pair if one in names}
        check_memory(path, sum(sizes.values()), max_bytes, _MAP_INSTEAD)
        arrays = {one: _npz_array(archive, one) for one in sizes}
    parts = []
    for images, labels in pairs:
        found = arrays.get(labels)
        if found is not None and found.ndim == 2 and found.shape[1] == 1:
            found = found[:, 0]
        part = Part(f"{path}, `{images}`", found)
        parts.append((part, _as_images(part.place, arrays.pop(images), max_bytes)))
    return image_sets(name, parts)


def read_idx(
    images: str | Path, labels: str | Path | None = None, *, max_bytes: int | None = None
) -> tuple[Part, Images]:
    """Read images in the idx format of MNIST, plain or gzip (by content, not by name), and a file of their labels.

    Raises
    ------
    UserError
        Not idx files of unsigned bytes with three dimensions and with one, truncated, followed by other bytes, or
        empty.
    """
    pixels = _read_idx(Path(images), 3, max_bytes)[..., None]
    return Part(str(images), None if labels is None else _read_idx(Path(labels), 1, max_bytes)), pixels


def _read_idx(path: Path, ndim: int, max_bytes: int | None) -> UInt8[np.ndarray, "..."]:
    with reading(path, "idx file"), path.open("rb") as plain:
        packed = plain.read(2) == _GZIP_MAGIC
        plain.seek(0)
        with gzip.open(plain) if packed else plain as stream:
            magic, sizes = stream.read(4), stream.read(4 * ndim)
            if magic != bytes([0, 0, 8, ndim]):
                raise ValueError(f"starts with 0x{magic.hex()}, expected 0x0000080{ndim}: unsigned bytes, {ndim}-d")
            shape = tuple(int(size) for size in np.frombuffer(sizes, ">u4"))
            count = math.prod(shape)
            check_memory(path, count, max_bytes, "check that it is the right file")
            data = bytearray()  # grows with what is there, and not with what is declared
            while len(data) <= count and (piece := stream.read(1 << 20)):  # to the end, where gzip has its checksum
                data += piece
        if len(shape) != ndim or not count or len(data) != count:
            raise ValueError(f"declares the shape {shape}, and {len(data):,} bytes or more follow")
    return np.frombuffer(data, np.uint8).reshape(shape)


def _npz_array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(f"{name}.npy") as stream, warnings.catch_warnings(action="ignore"):
        array: np.ndarray = np.lib.format.read_array(stream, allow_pickle=False)
        if stream.read(1):
            raise ValueError(f"bytes follow the array `{name}` of shape {array.shape}")
    return array


def _npz_pairs(path: Path, names: Sequence[str]) -> list[tuple[str, str]]:
    """Find the names of images and labels of the parts that are there: all images, or training and other parts."""
    found = [next((pair for pair in part if pair[0] in names), None) for part in NPZ_PARTS]
    if found[0] is None:
        listed = ", ".join(names[:10]) or "nothing"
        raise UserError(
            f"{path}: has no array `images` (found: {listed}): save it by "
            "np.savez_compressed(path, images=..., labels=...)"
        )
    pairs = [pair for pair in found if pair is not None]
    known = {name for part in NPZ_PARTS for pair in part for name in pair}
    used = [name for pair in pairs for name in pair]
    if unused := [name for name in names if name in known and name not in used]:
        raise UserError(
            f"{path}: has `{unused[0]}` next to `{pairs[0][0]}`, which belong to different sets of names: use "
            f"{', '.join(f'`{name}`' for name in NPZ_PARTS[0][0] + NPZ_PARTS[1][0])}, and omit other names"
        )
    return pairs


def _as_images(place: object, raw: np.ndarray, max_bytes: int | None) -> np.ndarray:
    """Return `raw` as uint8 or float32 in C order; a memory map that is so already and does not fit stays one."""
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
    boolean, result = raw.dtype.kind == "b", np.dtype(np.float32 if raw.dtype.kind == "f" else np.uint8)
    raw = raw.view(np.uint8) if boolean else raw  # a bool of a byte other than 0 and 1 is undefined
    shape, size = raw.shape if raw.ndim == 4 else (*raw.shape, 1), raw.size * result.itemsize
    fits = size <= (memory_limit() if max_bytes is None else max_bytes)
    if not boolean and raw.dtype == result and raw.flags.c_contiguous and not (fits and isinstance(raw, np.memmap)):
        images = raw.reshape(shape)
    else:
        check_memory(place, size, max_bytes, _MAP_INSTEAD)
        images = np.empty(shape, result)
        step = max(1, CHUNK_BYTES // max(1, images[:1].nbytes))
        for start in range(0, len(images), step):
            part = raw[start : start + step].reshape(-1, *shape[1:])
            with np.errstate(over="ignore", invalid="ignore"):  # beyond float32: infinite, refused below
                images[start : start + step] = np.where(part, 255, 0) if boolean else part
    start = 0
    for chunk in in_chunks(images) if result == np.float32 else ():
        _check_range(place, chunk, start)
        start += len(chunk)
    return images


def _check_range(place: object, images: np.ndarray, start: int) -> None:
    """Refuse floats that are not in [0, 1]; name the first image, counted from `start`."""
    if images.dtype.kind != "f" or (images.min() >= 0 and images.max() <= 1):  # false also for NaN
        return
    inside = ((images >= 0) & (images <= 1)).all(axis=(1, 2, 3))
    first = int(np.argmin(inside))
    raise UserError(
        f"{place}: image {start + first} has pixels from {images[first].min():g} to {images[first].max():g}, "
        "expected floats in [0, 1]: repair or scale them, or save uint8"
    )
