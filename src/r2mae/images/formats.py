"""Readers of array files (.npy, .npz), the limit of memory, and one line for each error of a library.

Nothing is unpickled. What a file declares is compared with the memory limit before anything of that size is read.
"""

import errno
import os
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from r2mae.errors import UserError
from r2mae.images.image_set import AnyImages, NpyImages, Part, Parts, image_sets, in_chunks

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


def memory_limit(max_bytes: int | None = None) -> int:
    """Return `max_bytes`, by default half of the memory of this machine or of its container, in bytes."""
    if max_bytes is not None:
        return max_bytes
    sizes = [2**33]  # if the system does not report it
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    container = Path("/sys/fs/cgroup/memory.max")
    if container.is_file() and (text := container.read_text().strip()).isdigit():
        sizes.append(int(text))
    return min(sizes) // 2


def check_memory(path: object, size: int, max_bytes: int | None, hint: str) -> None:
    """Refuse what needs more memory than :func:`memory_limit`."""
    if size > (limit := memory_limit(max_bytes)):
        raise UserError(
            f"{path}: needs {size / 2**30:,.3g} GiB of memory, the limit is {limit / 2**30:,.3g} GiB: {hint}"
        )


@contextmanager
def reading(path: object, kind: str, hint: str = "fetch or export it again") -> Iterator[None]:
    """Turn whatever a library raises on a file into one line, which begins with `path`.

    Decoders raise dozens of types on damaged bytes (zlib.error, EOFError, struct.error, SyntaxError, …), so every type
    is caught here. The blocks inside contain little else than calls of decoders.

    What the system cannot open or read raises a plain UserError, and damaged content a BrokenFileError.
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


def read_npy(path: str | Path, *, max_bytes: int | None = None) -> AnyImages:
    """Read images from a .npy file: N x H x W [x C] of uint8, bool (which becomes 0 and 255), or float in [0, 1].

    They are uint8 or float32 of shape (n, height, width, channels). Sets above :func:`memory_limit` are read from the
    file on access, which takes uint8 or float32 in C order.
    """
    path = Path(path)
    with reading(path, ".npy file", _SAVE_PLAIN), warnings.catch_warnings(action="ignore"):
        raw = np.lib.format.open_memmap(path, mode="r")
        if raw.offset + raw.nbytes != path.stat().st_size:
            raise ValueError(f"bytes follow the array of shape {raw.shape}")
    return _as_images(path, raw, max_bytes)


def read_npz(name: str, path: Path, *, max_bytes: int | None = None) -> Parts:
    """Read images (as :func:`read_npy`) and, if present, labels (integers or strings) from a .npz file.

    The arrays are called `images` and `labels`, those of other parts `test_images`, `val_labels` and so on; Keras'
    `x_train`, `y_test` and the like are known, too. Labels have the shape (n,) or (n, 1). `val_images` are the
    validation part, or the test part if there is no other.
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
        check_memory(path, size, max_bytes, _MAP_INSTEAD)
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
            parts.append((known, _as_images(known.place, images, max_bytes)))
    return image_sets(name, parts)


def _npz_array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(f"{name}.npy") as stream, warnings.catch_warnings(action="ignore"):
        array: np.ndarray = np.lib.format.read_array(stream, allow_pickle=False)
        if stream.read(1):
            raise ValueError(f"bytes follow the array `{name}` of shape {array.shape}")
    return array


def _as_images(place: object, raw: np.ndarray, max_bytes: int | None) -> AnyImages:
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
    if isinstance(place, Path) and raw.dtype == dtype and raw.flags.c_contiguous and size > memory_limit(max_bytes):
        images = NpyImages(place)
    else:
        check_memory(place, size, max_bytes, _MAP_INSTEAD)
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
