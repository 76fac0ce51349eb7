"""Sets of images in memory, by name or from a path, and their division into training and test images."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int64, UInt8
from PIL import Image

from r2mae.catalogue import locate
from r2mae.errors import UserError, unknown
from r2mae.images.folder import SUFFIXES, read_folder
from r2mae.images.formats import Labelled, check_memory, read_idx, read_npy
from r2mae.images.parts import official_parts, read_npz
from r2mae.images.resize import ResizeMode, to_square
from r2mae.images.sets import SETS
from r2mae.masking.keys import Key, permutation

_IDX = [(f"{part}-images-idx3-ubyte.gz", f"{part}-labels-idx1-ubyte.gz") for part in ("train", "t10k")]
_FILES = (".npy", ".npz", "idx3-ubyte", "idx3-ubyte.gz")
_PATHS = "the path of a folder of images, a .npy, a .npz or an idx file"


@dataclass(frozen=True, eq=False, repr=False)
class ImageSet:
    """Images of one size, with their labels where they have any.

    Parameters
    ----------
    name : str
        Of the set, or of its file or folder.
    images : uint8 or float32 ndarray of shape (n, height, width, channels)
        0 to 255, or 0 to 1; 1 or 3 channels; C order, so that ``images[rows]`` makes a batch.
    labels : int64 ndarray of shape (n,), or None
        Indices into `classes`.
    classes : tuple of str, or None
        Names of the classes.
    attributes : uint8 ndarray of shape (n, k), or None
        0 or 1 for each of k attributes that an image may have, any number of them at once.
    attribute_names : tuple of str, or None
        Their names.

    Raises
    ------
    ValueError
        Labels without classes, attributes without names or the reverse, of another length, labels outside the classes,
        or attributes other than 0 and 1.
    """

    name: str
    images: UInt8[np.ndarray, "n height width channels"] | Float32[np.ndarray, "n height width channels"]
    labels: Int64[np.ndarray, " n"] | None = None
    classes: tuple[str, ...] | None = None
    attributes: UInt8[np.ndarray, "n k"] | None = None
    attribute_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        self._check_labels()
        if (self.attributes is None) != (self.attribute_names is None):
            raise ValueError(f"{self.name}: attributes and attribute_names come together")
        if self.attributes is None or self.attribute_names is None:
            return
        if self.attributes.shape != (len(self.images), len(self.attribute_names)):
            expected = f"{len(self.images)} images with {len(self.attribute_names)} names"
            raise ValueError(f"{self.name}: attributes of shape {self.attributes.shape} for {expected}")
        if self.attributes.size and self.attributes.max() > 1:
            raise ValueError(f"{self.name}: attributes must be 0 or 1")

    def _check_labels(self) -> None:
        if (self.labels is None) != (self.classes is None):
            raise ValueError(f"{self.name}: labels and classes come together")
        if self.labels is None or self.classes is None:
            return
        if len(self.labels) != len(self.images):
            raise ValueError(f"{self.name}: {len(self.labels)} labels for {len(self.images)} images")
        if len(self.labels) and not 0 <= self.labels.min() <= self.labels.max() < len(self.classes):
            raise ValueError(f"{self.name}: labels must be indices into the {len(self.classes)} classes")

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


@dataclass(frozen=True, eq=False, repr=False)
class Splits:
    """Training and test images of one set, and its official validation part, with the same classes and attributes."""

    train: ImageSet
    test: ImageSet
    validation: ImageSet | None = None

    def __repr__(self) -> str:
        validation = "" if self.validation is None else f", validation={self.validation!r}"
        return f"Splits(train={self.train!r}, test={self.test!r}{validation})"


def load_images(
    source: str | Path,
    *,
    resize: int | None = None,
    resize_mode: ResizeMode = "squash",
    max_bytes: int | None = None,
) -> tuple[ImageSet, ImageSet | None]:
    """Load a set of images by its name or from a path.

    Parameters
    ----------
    source : str or Path
        A name in :data:`r2mae.images.sets.SETS`; or a folder of images (:func:`~r2mae.images.folder.read_folder`)
        or of MNIST-like idx files, a .npy, a .npz, or an idx file (:mod:`r2mae.images.formats`). A name goes before
        a path of that name; ``./name`` is the path.
    resize : int or None
        Side in pixels of the square to which every image is brought, bilinear with antialiasing.
    resize_mode : {"squash", "crop"}
        What becomes of an image that is not square: see :func:`r2mae.images.resize.to_square`.
    max_bytes : int or None
        Limit of the images in memory (default: half of the machine's); beyond it a .npy is memory-mapped and
        everything else refused.

    Returns
    -------
    images : ImageSet
        All images, or the training images where there is an official split.
    test : ImageSet or None
        The official test images.

    Raises
    ------
    UserError
        An unknown name, no such path, or whatever the reader of the format refuses.
    """
    if resize is not None and resize < 1:
        raise UserError(f"resize {resize}: expected a side of at least 1 pixel")
    name = str(source)
    path = Path(source).expanduser()
    if name in SETS:
        train, test = _named(name, max_bytes)
    elif name and path.is_dir():  # Path("") would be the current folder
        name = path.resolve().name
        if idx := _idx_files(path):
            train, test = _read_split(idx, max_bytes)
        else:
            train, test = read_folder(path, resize=resize, resize_mode=resize_mode, max_bytes=max_bytes)
    elif path.is_file():
        name = path.stem
        train, test = _read_file(path, max_bytes)
    else:
        raise _not_there(name, path)
    if resize is not None:
        train = _resized(path, train, resize, resize_mode, max_bytes)
        test = None if test is None else _resized(path, test, resize, resize_mode, max_bytes)
    return ImageSet(name, *train), None if test is None else ImageSet(name, *test)


def check_source(source: str | Path) -> None:
    """Refuse a source of images that is not there; nothing is read.

    Raises
    ------
    UserError
        An unknown name, no such path, or a named set whose files are missing.
    """
    name, path = str(source), Path(source).expanduser()
    if name in SETS:
        locate(SETS[name])
    elif not name or not path.exists():
        raise _not_there(name, path)


def load_splits(
    source: str | Path,
    *,
    test_fraction: float = 0.2,
    seed: int = 0,
    resize: int | None = None,
    resize_mode: ResizeMode = "squash",
    max_bytes: int | None = None,
) -> Splits:
    """Load a set and its official split or, where it has none, a random one (:func:`held_out_rows`).

    A memory-mapped .npy (which has no labels) is not shuffled, as that would bring it into memory: its last
    images are the test images.

    Parameters
    ----------
    source, resize, resize_mode, max_bytes
        As :func:`load_images`.
    test_fraction : float
        Share of test images, between 0 and 1; of no effect on an official split.
    seed : int
        Of the random split, a pure function of seed and labels.

    Raises
    ------
    UserError
        As :func:`load_images`; a fraction outside (0, 1), fewer than two images, or only one image of each class.
    """
    if not 0 < test_fraction < 1:
        raise UserError(f"test fraction {test_fraction}: expected a number above 0 and below 1")
    full, test = load_images(source, resize=resize, resize_mode=resize_mode, max_bytes=max_bytes)
    if test is not None:
        return Splits(full, test)
    if len(full) < 2:
        raise UserError(f"{source}: holds a single image, expected at least 2 to split into training and test images")
    if isinstance(full.images, np.memmap):
        count = min(max(round(len(full) * test_fraction), 1), len(full) - 1)
        return Splits(ImageSet(full.name, full.images[:-count]), ImageSet(full.name, full.images[-count:]))
    rows = held_out_rows(len(full), full.labels, test_fraction, seed)
    if not len(rows):
        raise UserError(
            f"{source}: every class has a single image, so no class can be both trained on and tested: "
            "add images, or leave out the labels"
        )
    return _split(full, rows)


def held_out_rows(
    count: int, labels: Int64[np.ndarray, " count"] | None, test_fraction: float, seed: int
) -> Int64[np.ndarray, " test"]:
    """Draw the test images of a random split, stratified by label.

    A class of m images gives m · `test_fraction` of them, rounded such that the total is right, and always keeps
    one for training; so a class of one is not tested.

    Parameters
    ----------
    count : int
        Number of images.
    labels : int64 ndarray of shape (count,), or None
        None: all of one class.
    test_fraction : float
        In (0, 1).
    seed : int
        The result is a pure function of it, the labels and the fraction.

    Returns
    -------
    int64 ndarray of shape (test,)
        Increasing; empty only where every class has a single image.
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


def _split(full: ImageSet, rows: Int64[np.ndarray, " test"]) -> Splits:
    """Take `rows` out for testing and close the gaps in place: a second copy of a large set may not fit."""
    keep = np.delete(np.arange(len(full)), rows)
    labels = full.labels
    test = ImageSet(full.name, full.images[rows], None if labels is None else labels[rows], full.classes)
    images = full.images
    step = 4096
    for start in range(0, len(keep), step):
        part = keep[start : start + step]  # never before `start`, so nothing is overwritten unread
        images[start : start + len(part)] = images[part]
    train = images[: len(keep)]
    return Splits(ImageSet(full.name, train, None if labels is None else labels[keep], full.classes), test)


def _named(name: str, max_bytes: int | None) -> tuple[Labelled, Labelled | None]:
    places = locate(SETS[name])
    if name == "digits":
        return _digits(), None
    return _read_split([(places[f"{name}/{images}"], places[f"{name}/{labels}"]) for images, labels in _IDX], max_bytes)


def _digits() -> Labelled:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)  # 0 to 16 in the original
    return Labelled(images[..., None], bunch.target.astype(np.int64), tuple(map(str, bunch.target_names)))


def _idx_files(folder: Path) -> list[tuple[Path, Path | None]]:
    """Find the idx files of an MNIST-like folder: training images and, where they are there, test images."""
    found = []
    for images, _ in _IDX:
        for name in (images, images.removesuffix(".gz")):
            if (folder / name).is_file():
                found.append((folder / name, _idx_labels(folder / name)))
                break
    return found if found and found[0][0].name.startswith("train") else []


def _idx_labels(images: Path) -> Path | None:
    stem = images.name.removesuffix(".gz").replace("images", "labels").replace("idx3", "idx1")
    places = [images.with_name(stem + suffix) for suffix in (".gz", "")]
    return next((place for place in places if place.is_file()), None)


def _read_split(pairs: Sequence[tuple[Path, Path | None]], max_bytes: int | None) -> tuple[Labelled, Labelled | None]:
    parts = [read_idx(images, labels, max_bytes=max_bytes) for images, labels in pairs]
    if len(parts) == 1:
        return parts[0], None
    return official_parts(parts[0], parts[1], pairs[0], pairs[1])


def _read_file(path: Path, max_bytes: int | None) -> tuple[Labelled, Labelled | None]:
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return Labelled(read_npy(path, max_bytes=max_bytes)), None
    if suffix == ".npz":
        return read_npz(path, max_bytes=max_bytes)
    if "idx3" in path.name:
        return read_idx(path, _idx_labels(path), max_bytes=max_bytes), None
    if suffix in SUFFIXES:
        raise UserError(f"{path}: is a single image: give the folder that holds the images")
    raise UserError(f"{path}: {unknown('kind of image file', suffix or path.name, _FILES)}, or give a folder of images")


def _not_there(name: str, path: Path) -> UserError:
    if path.suffix or path.is_absolute() or os.sep in name or name.startswith(("~", ".")):
        return UserError(f"{path}: no such file or folder: give a name ({', '.join(SETS)}) or {_PATHS}")
    return UserError(f"{unknown('image set', name, SETS)}, or give {_PATHS}")


def _resized(path: Path, part: Labelled, side: int, mode: ResizeMode, max_bytes: int | None) -> Labelled:
    images = part.images
    count, height, width, channels = images.shape
    if (height, width) == (side, side):
        return part
    check_memory(path, count * side * side * channels * images.itemsize, max_bytes, "give a smaller --resize")
    resized = np.empty((count, side, side, channels), images.dtype)
    for row, image in enumerate(images):
        for channel in range(channels):  # PIL has floats of one channel only
            plane = Image.fromarray(np.ascontiguousarray(image[..., channel]))
            resized[row, ..., channel] = np.asarray(to_square(plane, side, mode))
    if images.dtype == np.float32:
        np.clip(resized, 0, 1, out=resized)
    return Labelled(resized, part.labels, part.classes)
