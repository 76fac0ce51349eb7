"""Folders of image files: ``folder/<class>/*.png``, with or without ``train/`` and ``val/``, or without classes."""

import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from r2mae.errors import UserError
from r2mae.images.formats import Labelled, check_memory, reading
from r2mae.images.resize import ResizeMode, to_square

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".ppm", ".pgm", ".pbm")
HELD_OUT = ("val", "test", "valid", "validation")
"""Names of the folder of the official test split beside ``train``; the first that is there counts."""

# Named, so that a file with another content never reaches a decoder that starts programs (EPS).
_DECODERS = ("PNG", "JPEG", "BMP", "WEBP", "TIFF", "GIF", "PPM")
_GREY = frozenset({"1", "L", "LA", "La"})
_DEEP = ("I", "F")  # 16- and 32-bit greyscale; PIL would clip them at 255
_BLOCK = 64  # files of one job of the pool

Result = TypeVar("Result")


def read_folder(
    path: str | Path,
    *,
    resize: int | None = None,
    resize_mode: ResizeMode = "squash",
    max_bytes: int | None = None,
) -> tuple[Labelled, Labelled | None]:
    """Read a folder of image files, decoded by PIL in several threads.

    Three layouts: ``<class>/**/*.png``; the same below ``train/`` and one of ``val/``, ``test/``, ``valid/``,
    ``validation/``, which is an official split; files without classes. A single folder (as archives unpack to)
    is looked into, and a single class is no label. Files and classes are sorted by name; hidden ones, and files
    that are no images by their suffix, are left out. All images become RGB unless all
    are greyscale; transparency is dropped, and of an animation the first frame taken.

    Parameters
    ----------
    path : str or Path
        The folder.
    resize : int or None
        Side in pixels of the square to which every image is brought. None: all images must be of one size.
    resize_mode : {"squash", "crop"}
        See :func:`r2mae.images.resize.to_square`.
    max_bytes : int or None
        Limit of the decoded images (default: half of the machine's memory), checked before decoding.

    Returns
    -------
    train : Labelled
        uint8 of shape (n, height, width, 1 or 3).
    test : Labelled or None
        The official test split, with the classes of `train`.

    Raises
    ------
    UserError
        No images, images both with and without classes, test classes that `train` lacks, unequal sizes, more
        than 8 bits, a file that cannot be decoded or is a decompression bomb, or too large a set.
    """
    path = Path(path)
    if resize is not None and resize < 1:
        raise UserError(f"resize {resize}: expected a side of at least 1 pixel")
    with reading(path, "folder of images"):
        parts = [_scan(part) for part in _parts(path)]
    for part in parts:
        if not part.files:
            remedy = "put some there, or name another folder" if part is parts[0] else "put some there, or remove it"
            raise UserError(
                f"{part.path}: holds no images ({', '.join(SUFFIXES)}), neither directly nor in folders: {remedy}"
            )
    files = [file for part in parts for file in part.files]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PIL about odd metadata; whatever decodes is taken
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        shape = _common_shape(files, resize)
        size = math.prod(shape) * len(files)
        smaller = "--resize N" if resize is None else f"a smaller --resize than {resize}"
        check_memory(path, size, max_bytes, f"give {smaller}, or save it as .npy, which is memory-mapped")
        images = np.empty((len(files), *shape), np.uint8)
        rows = iter(range(0, len(files), _BLOCK))
        for decoded in _in_blocks(lambda block: [_decode(file, shape, resize, resize_mode) for file in block], files):
            start = next(rows)
            images[start : start + len(decoded)] = decoded
    return _labelled(parts, images)


class _Part(NamedTuple):
    """One split of a folder: its files and the class of each, by name."""

    path: Path
    files: list[Path]
    classes: list[str] | None


def _parts(path: Path) -> list[Path]:
    """Give the folders of the splits, or the folder itself; a folder around a single folder stands for that."""
    while True:
        entries = [entry for entry in path.iterdir() if not entry.name.startswith(".")]
        folders = sorted(entry for entry in entries if entry.is_dir())
        names = {folder.name for folder in folders}
        held_out = [name for name in HELD_OUT if name in names]
        if "train" in names and held_out:
            return [path / "train", path / held_out[0]]
        folders = [folder for folder in folders if any(_images(folder))]
        if len(folders) != 1 or any(_is_image(entry) for entry in entries):
            return [path]
        path = folders[0]


def _scan(path: Path) -> _Part:
    entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    direct = [entry for entry in entries if _is_image(entry)]
    by_class = {entry.name: sorted(_images(entry)) for entry in entries if entry.is_dir()}
    by_class = {name: files for name, files in by_class.items() if files}
    if direct and by_class:
        folder = next(iter(by_class))
        raise UserError(
            f"{path}: has images directly ({direct[0].name}) and in folders ({folder}/): "
            "put all into folders of their class, or none"
        )
    if direct:
        return _Part(path, direct, None)
    files = [file for found in by_class.values() for file in found]
    return _Part(path, files, [name for name, found in by_class.items() for _ in found])


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()


def _images(folder: Path) -> Iterator[Path]:
    """Walk a folder, links included (subsets are often made of links), each real folder once."""
    seen: set[str] = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(place, name) for name in names if _is_image(Path(place, name)))


def _in_blocks(job: Callable[[Sequence[Path]], Result], files: Sequence[Path]) -> Iterator[Result]:
    """Run `job` on consecutive blocks of files in threads; results, and the first error, come in order."""
    blocks = [files[start : start + _BLOCK] for start in range(0, len(files), _BLOCK)]
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        yield from pool.map(job, blocks)  # on an error, map cancels what has not begun


def _open(path: Path) -> Image.Image:
    image = Image.open(path, formats=_DECODERS)
    if image.mode.startswith(_DEEP):
        image.close()
        raise UserError(f"{path}: has more than 8 bits a channel: save it with 8, or all as float .npy in [0, 1]")
    return image


def _header(path: Path) -> tuple[tuple[int, int], bool]:
    """Give (width, height) and whether it is greyscale, without decoding."""
    with reading(path, "image", "remove or replace it"), _open(path) as image:
        return image.size, image.mode in _GREY


def _common_shape(files: Sequence[Path], resize: int | None) -> tuple[int, int, int]:
    """Give (height, width, channels) of the decoded images, or name two that differ in size."""
    headers = [
        header for block in _in_blocks(lambda block: [_header(file) for file in block], files) for header in block
    ]
    (width, height), _ = headers[0]
    channels = 1 if all(grey for _, grey in headers) else 3
    if resize is not None:
        return resize, resize, channels
    for file, (size, _) in zip(files, headers, strict=True):
        if size != (width, height):
            raise UserError(
                f"{file} is {size[0]} x {size[1]} pixels but {files[0]} is {width} x {height}: "
                "bring all to one size, for example by --resize N"
            )
    return height, width, channels


def _decode(
    path: Path, shape: tuple[int, int, int], resize: int | None, mode: ResizeMode
) -> UInt8[np.ndarray, "height width channels"]:
    with reading(path, "image", "remove or replace it"), _open(path) as image:
        decoded = image.convert("L" if shape[2] == 1 else "RGB")
        if resize is not None:
            decoded = to_square(decoded, resize, mode)
        return np.asarray(decoded).reshape(shape)


def _labelled(parts: Sequence[_Part], images: np.ndarray) -> tuple[Labelled, Labelled | None]:
    train = parts[0]
    classes = None if train.classes is None else tuple(sorted(set(train.classes)))
    number = {name: index for index, name in enumerate(classes or ())}
    splits = []
    start = 0
    for part in parts:
        if (part.classes is None) != (classes is None):
            raise UserError(f"{part.path}: expected the layout of {train.path}: both with classes, or both without")
        stop = start + len(part.files)
        labels = None
        if part.classes is not None:
            if foreign := sorted(set(part.classes) - number.keys()):
                raise UserError(f"{part.path}: has the class {foreign[0]!r}, which {train.path} lacks: move it there")
            labels = np.array([number[name] for name in part.classes], np.int64)
        if classes is not None and len(classes) > 1:
            splits.append(Labelled(images[start:stop], labels, classes))
        else:  # train/images/*.png and the like: one class tells nothing
            splits.append(Labelled(images[start:stop]))
        start = stop
    return splits[0], splits[1] if len(splits) > 1 else None
