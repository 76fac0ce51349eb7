"""Sets of images, by name or from a path, and their split into training and test images. No torch."""

import gzip
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt8
from PIL import Image

from r2mae.catalogue import locate
from r2mae.errors import UserError, listed, unknown
from r2mae.files import ordinary
from r2mae.images import arrays, files, folders
from r2mae.images.arrays import ImageSet, Part, Parts, StoredImages, reading
from r2mae.images.files import SUFFIXES, File, Folder, Reading, is_archive, warn
from r2mae.images.sets import SETS
from r2mae.masking.keys import Key, permutation

__all__ = ["ImageSet", "Splits", "check_source", "held_out_rows", "load_images", "load_splits"]

_FILES = (".npy", ".npz", *files.ARCHIVES)
TEST_FRACTION = 0.2
"""Of a set without an official split, the share of the images that are test images."""
_PATHS = "the path of a folder of images, a .tar, a .npy or a .npz"


@dataclass(frozen=True, eq=False)
class Splits:
    """Training and test images of one set, and its official validation part, with the same classes and attributes."""

    train: ImageSet
    test: ImageSet
    validation: ImageSet | None = None

    @property
    def has_classes(self) -> bool:
        """Whether there are labels of two classes or more."""
        return len(self.train.classes or ()) > 1


def load_images(source: str | Path, **reading: Any) -> Parts:
    """Load all images of a set, or its official training, test and validation images, by its name or from a path.

    Parameters
    ----------
    source : str or Path
        A name in :data:`r2mae.images.sets.SETS`; or a folder of images, of images with attributes, or of shards
        (:mod:`~r2mae.images.folders`); an archive of images, a .npy or a .npz (:mod:`~r2mae.images.arrays`). A name
        takes precedence over a path of that name, with a line; ``./name`` is the path.
    **reading
        Fields of :class:`r2mae.images.files.Reading`. `cache` and `skip_broken` have no effect on arrays.
    """
    path, how = ordinary(Path(source).expanduser()), Reading(**reading)
    if isinstance(source, str) and source in SETS:
        if path.exists():
            warn(f"{source} is the public set: ./{source} is the path here")
        parts = _read_named(source, how)
    elif str(source) and path.is_dir():  # Path("") would be the current folder
        parts = _read_folder(path, how)
    elif path.is_file():
        parts = _read_file(path, how)
    else:
        raise _missing_source_error(source)
    train, *others = (None if part is None else _resized(source, part, how) for part in parts)
    assert train is not None
    return Parts(train, *others)


def load_splits(source: str | Path, *, test_fraction: float = TEST_FRACTION, seed: int = 0, **reading: Any) -> Splits:
    """Load a set (:func:`load_images`) and its official split, or a random one if it has none.

    `test_fraction`, between 0 and 1, has no effect on an official split. The random split is a pure function of seed
    and labels (:func:`held_out_rows`).
    """
    if not 0 < test_fraction < 1:
        raise UserError(f"test fraction {test_fraction}: expected a number above 0 and below 1")
    whole, test, validation = load_images(source, **reading)
    if test is not None:
        return Splits(whole, test, validation)
    rows = held_out_rows(len(whole), whole.labels, test_fraction, seed)
    if not len(rows):
        hint = "add images" if whole.labels is None else "add images, or remove the labels"
        raise UserError(f"{source}: has a single image, or one of each class, and a split needs two: {hint}")
    test, keep = whole.pick(rows), np.delete(np.arange(len(whole)), rows)
    kept = None if isinstance(whole.images, StoredImages) else _compact(whole.images, keep)
    return Splits(whole.pick(keep, kept), test, validation)


def check_source(source: str | Path) -> None:
    """Refuse an unknown name, a path that does not exist, or a named set whose files are missing; nothing is read."""
    there = bool(str(source)) and ordinary(Path(source).expanduser()).exists()
    if isinstance(source, str) and source in SETS:
        try:
            locate(SETS[source])
        except UserError as error:
            raise UserError(f"{error}; ./{source} is the path here" if there else str(error)) from error
    elif not there:
        raise _missing_source_error(source)


def held_out_rows(
    count: int, labels: Int64[np.ndarray, " count"] | None, test_fraction: float, seed: int
) -> Int64[np.ndarray, " test"]:
    """Draw the test images of a random split, stratified by label.

    A class of m images has m · `test_fraction` test images, rounded such that the total is right; one is always trained
    on. The rows are in ascending order. There are none only if every class has a single image.
    """
    classes = np.zeros(count, np.int64) if labels is None else np.unique(labels, return_inverse=True)[1]
    members = np.bincount(classes)
    # Rounding the running total, not every class, so that a thousand small classes do not all round up or down.
    wanted = np.diff(np.floor(np.cumsum(members) * test_fraction + 0.5).astype(np.int64), prepend=0)
    wanted = np.minimum(wanted, members - 1)
    if not wanted.any():
        largest = int(np.argmax(members))
        wanted[largest] = min(1, members[largest] - 1)
    shuffled = permutation(Key.root(seed).fold("split"), count)
    by_class = shuffled[np.argsort(classes[shuffled], kind="stable")]
    place = np.arange(count) - np.repeat(np.cumsum(members) - members, members)
    return np.sort(by_class[place < np.repeat(wanted, members)])


def _compact(images: np.ndarray, keep: Int64[np.ndarray, " kept"]) -> np.ndarray:
    """Move the rows to keep to the start of an array, in place, as a second copy may not fit into memory."""
    step = 4096
    for start in range(0, len(keep), step):
        part = keep[start : start + step]  # never before `start`, so nothing is overwritten unread
        images[start : start + len(part)] = images[part]
    return images[: len(keep)]


def _read_named(name: str, how: Reading) -> Parts:
    paths = list(locate(SETS[name]).values())
    if name == "digits":
        from sklearn.datasets import load_digits

        found = load_digits()
        pixels = np.rint(found.images[..., None] * (255 / 16)).astype(np.uint8)  # from 0 to 16
        return arrays.image_sets(name, [(Part(name, found.target), pixels)])
    if name == "mnist":
        parts = zip(paths[::2], paths[1::2], strict=True)
        return arrays.image_sets(
            name, [(Part(str(one), _read_idx(labels)), _read_idx(one)[..., None]) for one, labels in parts]
        )
    # The archive of the images, and next to it the table of their attributes, if they have any.
    return _read_archive(name, paths[0], how, {path.name: File(str(path)) for path in paths[1:]})


def _read_folder(path: Path, how: Reading) -> Parts:
    name, folder = path.resolve().name, files.list_folder(path)
    while not folder.direct() and len(inside := folder.folders()) == 1:  # as archives unpack to
        (folder,) = inside.values()
    archives = [Path(folder.place, one) for one in folder.direct() if is_archive(one)]
    if not archives or folder.images():
        return folders.read_folder(name, folder, how)
    shards = [archive for archive in archives if folders.is_numbered(archive.name)]
    if len(shards) > 1:
        others = folder.files.keys() - {shard.name for shard in shards}
        folders.log_others(path, (Path(other).suffix for other in others if not other.endswith("/")))
        return folders.read_shards(name, shards, how)
    if len(archives) > 1:
        names = listed([archive.name for archive in archives])
        raise UserError(f"{path}: holds several archives ({names}): give the one that is meant")
    return _read_archive(name, archives[0], how, folder.files if folders.find_tables(folder) else {})


def _read_file(path: Path, how: Reading) -> Parts:
    name, suffix = path.stem, path.suffix.lower()
    if is_archive(path.name):
        return _read_archive(name, path, how)
    if suffix == ".npy":
        return arrays.image_sets(name, [(Part(str(path)), arrays.read_npy(path))])
    if suffix == ".npz":
        return arrays.read_npz(name, path)
    if suffix in SUFFIXES:
        raise UserError(f"{path}: is a single image: give the folder that holds the images")
    raise UserError(f"{path}: {unknown('kind of image file', suffix or path.name, _FILES)}, or give a folder of images")


def _read_archive(name: str, path: Path, how: Reading, next_to: Mapping[str, File] = MappingProxyType({})) -> Parts:
    """Read an archive, and tables of attributes next to it."""
    archive = files.list_archive(path)
    if folders.is_numbered(path.name) and folders.is_shard(archive):
        return folders.read_shards(name, [path], how)
    return folders.read_folder(name, Folder(archive.place, {**next_to, **archive.files}), how)


def _read_idx(path: Path) -> UInt8[np.ndarray, "..."]:
    """Read a file of MNIST: the type and number of the axes, their sizes, and bytes."""
    with reading(path, "idx file"), gzip.open(path) as stream:
        content = stream.read()
        axes = content[3]
        shape = np.frombuffer(content, ">u4", axes, 4)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


def _missing_source_error(source: str | Path) -> UserError:
    name, path = str(source), Path(source).expanduser()
    if path.suffix or path.is_absolute() or os.sep in name or name.startswith(("~", ".")):
        return UserError(f"{path}: no such file or folder: give a name ({', '.join(SETS)}) or {_PATHS}")
    return UserError(f"{unknown('image set', name, SETS)}, or give {_PATHS}")


def _resized(source: str | Path, part: ImageSet, how: Reading) -> ImageSet:
    """Bring the images of an array to the size that is asked for; those of files have it."""
    side = how.resize
    if side is None or part.shape[:2] == (side, side):
        return part
    shape = (len(part), side, side, part.shape[2])
    arrays.check_memory(source, math.prod(shape) * part.images.dtype.itemsize, "give a smaller --resize")
    squares, row = np.empty(shape, part.images.dtype), 0
    for chunk in arrays.in_chunks(part.images):
        for image in chunk:
            for channel in range(shape[3]):
                plane = Image.fromarray(np.ascontiguousarray(image[..., channel]))
                squares[row, ..., channel] = files.to_square(plane, side)
            row += 1
    if squares.dtype == np.float32:  # against rounding
        np.clip(squares, 0, 1, out=squares)
    return replace(part, images=squares)
