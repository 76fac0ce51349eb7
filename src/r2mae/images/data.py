"""Sets of images, by name or from a path, and their split into training and test images."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from r2mae.errors import UserError
from r2mae.images.decode import Cache, Reading
from r2mae.images.image_set import ImageSet, Parts
from r2mae.images.resize import ResizeMode
from r2mae.images.sources import check_source, read_source
from r2mae.masking.keys import Key, permutation

__all__ = ["ImageSet", "Splits", "check_source", "held_out_rows", "load_images", "load_splits"]


@dataclass(frozen=True, eq=False, repr=False)
class Splits:
    """Training and test images of one set, and its official validation part, with the same classes and attributes.

    `official` is True if the set has an official test part.
    """

    train: ImageSet
    test: ImageSet
    validation: ImageSet | None = None
    official: bool = False

    def __repr__(self) -> str:
        validation = "" if self.validation is None else f", validation={self.validation!r}"
        return f"Splits(train={self.train!r}, test={self.test!r}{validation})"


def load_images(
    source: str | Path,
    *,
    resize: int | None = None,
    resize_mode: ResizeMode = "squash",
    max_bytes: int | None = None,
    cache: Cache = "memory",
    skip_broken: bool = False,
    draft: bool = False,
) -> tuple[ImageSet, ImageSet | None]:
    """Load a set of images by its name or from a path.

    Parameters
    ----------
    source : str or Path
        A name in :data:`r2mae.images.sets.SETS`; or a folder of images (:func:`~r2mae.images.folder.read_folder`),
        of images with attributes (:mod:`~r2mae.images.attributes`), of shards (:mod:`~r2mae.images.shards`), or of
        MNIST-like idx files; an archive (:mod:`~r2mae.images.listing`), a .npy, a .npz, or an idx file
        (:mod:`~r2mae.images.formats`). A name takes precedence over a path of that name, with a line; ``./name`` is the
        path.
    resize : int or None
        Side in pixels of the square to which every image is resized, bilinear with antialiasing.
    resize_mode : {"squash", "crop"}
        How to resize an image that is not square: see :func:`r2mae.images.resize.to_square`.
    max_bytes : int or None
        Limit of the images in memory (default: half of the machine's); above it a .npy is memory-mapped and any other
        source is refused.
    cache, skip_broken, draft
        For files of images: see :class:`r2mae.images.decode.Reading`.

    Returns
    -------
    images : ImageSet
        All images, or the training images if there is an official split.
    test : ImageSet or None
        The official test images. The official validation part is returned by :func:`load_splits` only.

    Raises
    ------
    UserError
        For an unknown name, a path that does not exist, or data that the reader of the format refuses.
    """
    how = Reading(resize, resize_mode, max_bytes, cache, skip_broken, draft)
    train, test, _ = load_parts(source, how)
    return train, test


def load_parts(source: str | Path, how: Reading) -> Parts:
    """Load all images of a set, or its official training, test and validation images, as :func:`load_images` does."""
    return read_source(source, how)


def load_splits(
    source: str | Path,
    *,
    test_fraction: float = 0.2,
    seed: int = 0,
    resize: int | None = None,
    resize_mode: ResizeMode = "squash",
    max_bytes: int | None = None,
    cache: Cache = "memory",
    skip_broken: bool = False,
    draft: bool = False,
    processes: int = 1,
) -> Splits:
    """Load a set and its official split, or a random one if it has none (:func:`held_out_rows`).

    A memory-mapped .npy, which has no labels, is not shuffled, as that would read it into memory: its last images are
    the test images.

    Parameters
    ----------
    source, resize, resize_mode, max_bytes, cache, skip_broken, draft
        As :func:`load_images`.
    test_fraction : float
        Fraction of test images, between 0 and 1; no effect on an official split.
    seed : int
        Seed of the random split, which is a pure function of seed and labels.
    processes : int
        Number of processes of this machine that read the set independently; ``cache="auto"`` divides the memory by it.

    Raises
    ------
    UserError
        As :func:`load_images`; also for a fraction outside (0, 1), fewer than two images, or one image of each class.
    """
    if not 0 < test_fraction < 1:
        raise UserError(f"test fraction {test_fraction}: expected a number above 0 and below 1")
    how = Reading(resize, resize_mode, max_bytes, cache, skip_broken, draft, processes)
    whole, test, validation = read_source(source, how)
    if test is not None:
        return Splits(whole, test, validation, official=True)
    count = len(whole)
    if count < 2:
        raise UserError(
            f"{source}: has a single image, and a split into training and test images needs 2 or more: add images"
        )
    if isinstance(whole.images, np.memmap):
        first = count - min(max(round(count * test_fraction), 1), count - 1)
        return Splits(whole.pick(slice(first)), whole.pick(slice(first, count)), validation)
    rows = held_out_rows(count, whole.labels, test_fraction, seed)
    if not len(rows):
        raise UserError(
            f"{source}: every class has a single image, and a split needs two of a class: "
            "add images, or remove the labels"
        )
    test, keep = whole.pick(rows), np.delete(np.arange(count), rows)
    images = whole.images
    kept = _compact(images, keep) if isinstance(images, np.ndarray) and images.flags.writeable else None
    return Splits(whole.pick(keep, kept), test, validation)


def fraction_notes(source: str, fraction: float, default: float, splits: Splits) -> tuple[str, ...]:
    """Return a note if `fraction` is not the default and has no effect, as the set has an official test part.

    The test part of archives and shards is known only after reading; for other sets the option is refused before.
    """
    if not splits.official or fraction == default:
        return ()
    return (f"test_fraction {fraction:g} has no effect: {source} has an official test part",)


def held_out_rows(
    count: int, labels: Int64[np.ndarray, " count"] | None, test_fraction: float, seed: int
) -> Int64[np.ndarray, " test"]:
    """Draw the test images of a random split, stratified by label.

    A class of m images has m · `test_fraction` test images, rounded such that the total is right. It always keeps one
    training image; a class of one image is not tested.

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
        In ascending order; empty only if every class has a single image.
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
