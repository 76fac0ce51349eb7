"""Where decoded images are kept: in memory, in a .npy file on disk, or nowhere. No torch."""

import hashlib
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Int64, UInt8

from r2mae.cache import cache_folder, create_once
from r2mae.errors import UserError
from r2mae.images.decode import DecodedImages, Reading, decode, headers_of, in_threads
from r2mae.images.formats import BrokenFileError, check_memory, memory_limit
from r2mae.images.image_set import AnyImages, NpyImages, Part, Parts, image_sets, pick
from r2mae.images.listing import File, listed, stamp, warn

_PIXELS, _ROWS = "pixels.npy", "rows.npy"
_FORMAT = 3  # of the files in the cache folder
_LONG = 20_000  # images whose decoding is worth a progress bar

Shape = tuple[int, int, int]


def read_files(
    name: str,
    files: Sequence[File],
    parts: Sequence[tuple[Part, int]],
    how: Reading,
    *,
    attribute_names: tuple[str, ...] | None = None,
    headers: Int64[np.ndarray, "n 3"] | None = None,
) -> Parts:
    """Decode the images of all parts of a set, or prepare to: RGB unless all are greyscale.

    Parameters
    ----------
    name : str
        Name of the set.
    files : sequence of File
        The images of the first part, of the second, and so on.
    parts : sequence of (Part, int)
        What is known of each part, and the number of its images.
    how : Reading
        How they are decoded, and where they are kept.
    attribute_names : tuple of str, or None
        Of the attributes of all parts.
    headers : int64 ndarray of shape (n, 3), or None
        :func:`~r2mae.images.decode.header` of every image, if they are known; zeros for unknown ones.

    Raises
    ------
    UserError
        Unequal sizes without a size to bring them to, files that cannot be decoded and are not skipped, a part without
        any other, too many images for memory if they are to be kept there, or what
        :func:`~r2mae.images.image_set.image_sets` refuses.
    """
    images, rows = _gather(name, files, how, headers)
    if missing := len(files) - len(rows):
        broken = [files[row] for row in np.setdiff1d(np.arange(len(files)), rows).tolist()]
        warn(f"{missing:,} of {len(files):,} files cannot be decoded and are omitted: {listed(broken)}")
    made, start = [], 0
    for part, count in parts:
        first, last = map(int, np.searchsorted(rows, [start, start + count]))
        if first == last:
            raise UserError(f"{part.place}: none of its {count:,} files can be decoded: replace them")
        made.append((part.pick(rows[first:last] - start), pick(images, slice(first, last))))
        start += count
    return image_sets(name, made, attribute_names)


def _gather(
    name: str, files: Sequence[File], how: Reading, headers: Int64[np.ndarray, "n 3"] | None
) -> tuple[AnyImages, Int64[np.ndarray, " kept"]]:
    """Return the images that can be decoded, and which of `files` they are; for the rest see :func:`read_files`."""
    if how.cache == "mmap" and (entry := _cache_entry(files, how)).is_dir():
        return _cached(entry)
    broken: dict[int, BrokenFileError] = {}
    shape, sound = _survey(files, how, broken, headers)
    size, cache = math.prod(shape) * len(sound), how.cache
    if cache == "auto":
        cache = "memory" if size <= memory_limit(how.max_bytes) else "none"
        if cache == "none":
            warn(
                f"{name}: {size / 2**30:,.3g} GiB of images do not fit into memory and are decoded whenever they are "
                "needed: --cache mmap keeps them decoded on disk"
            )
    if cache == "memory":
        smaller = "--resize N" if how.resize is None else f"a smaller --resize than {how.resize}"
        advice = f"give {smaller}, or add --cache mmap or --cache none"
        check_memory(name, size, how.max_bytes, advice if how.advised else "give fewer or smaller images")
        images = np.empty((len(sound), *shape), np.uint8)
        kept = _fill(images, files, shape, sound, how, broken)
        return images[: len(kept)], kept
    if cache == "none" and not how.skip_broken:
        _check_broken(broken, files, how)
        return DecodedImages(files, shape, how, sound), sound
    entry = _cache_entry(files, replace(how, cache=cache))
    with create_once(entry) as unfinished:
        if unfinished is not None:
            mapped = _reserve(unfinished / _PIXELS, (len(sound), *shape)) if cache == "mmap" else None
            np.save(unfinished / _ROWS, _fill(mapped, files, shape, sound, how, broken))
            if mapped is not None:
                mapped.flush()
    if cache == "mmap":
        return _cached(entry)
    kept = np.load(entry / _ROWS, allow_pickle=False)
    return DecodedImages(files, shape, how, kept), kept


def _survey(
    files: Sequence[File], how: Reading, broken: dict[int, BrokenFileError], known: Int64[np.ndarray, "n 3"] | None
) -> tuple[Shape, Int64[np.ndarray, " sound"]]:
    """Return the common shape of the images, and which of them have a readable header."""
    headers = np.zeros((len(files), 3), np.int64) if known is None else known.copy()
    unknown = np.flatnonzero(headers[:, 0] == 0)
    headers[unknown], errors = headers_of([files[row] for row in unknown.tolist()])
    broken.update({int(unknown[place]): error for place, error in errors.items()})
    sound = np.flatnonzero(headers[:, 0])
    if not len(sound):
        _check_broken(broken, files, how)
    first = headers[sound[0]]
    channels = 1 if headers[sound, 2].all() else 3
    if how.resize is not None:
        return (how.resize, how.resize, channels), sound
    other = np.flatnonzero((headers[sound, :2] != first[:2]).any(axis=1))
    if len(other):
        width, height, _ = headers[sound[other[0]]]
        how_to = ", for example by --resize N" if how.advised else ""
        raise UserError(
            f"{files[int(sound[other[0]])]} is {width} x {height} pixels but {files[int(sound[0])]} is "
            f"{first[0]} x {first[1]}: bring all to one size{how_to}"
        )
    return (int(first[1]), int(first[0]), channels), sound


def _fill(
    images: UInt8[np.ndarray, "n height width channels"] | None,
    files: Sequence[File],
    shape: Shape,
    sound: Int64[np.ndarray, " n"],
    how: Reading,
    broken: dict[int, BrokenFileError],
) -> Int64[np.ndarray, " kept"]:
    """Decode into an array, or only to find broken files; return the rows of the images at the start of the array."""
    rows = sound.tolist()

    def decode_one(place: int) -> None:
        try:
            made = decode(files[rows[place]], shape, how)
        except BrokenFileError as error:
            broken[rows[place]] = error
        else:
            if images is not None:
                images[place] = made

    in_threads(decode_one, len(rows), label="decoding" if len(rows) >= _LONG and sys.stderr.isatty() else None)
    _check_broken(broken, files, how)
    kept = np.flatnonzero([row not in broken for row in rows])
    if images is not None and len(kept) < len(rows):
        for place, source in enumerate(kept.tolist()):  # never before `place`
            images[place] = images[source]
    return sound[kept]


def _check_broken(broken: dict[int, BrokenFileError], files: Sequence[File], how: Reading) -> None:
    """Raise a UserError with the first names and the count of broken files, unless they are skipped and not all."""
    count = len(files)
    if len(broken) == count:
        raise UserError(f"{broken[0]}; none of the {count:,} files can be decoded: replace them")
    if not broken or how.skip_broken:
        return
    rows = sorted(broken)
    hint = ", or skip broken files with --skip-broken" if how.advised else ""
    if len(rows) > 1:
        hint = f"; {len(rows):,} of {count:,} files cannot be decoded: {listed([files[row] for row in rows])}{hint}"
    raise UserError(f"{broken[rows[0]]}{hint}")


def _reserve(file: Path, shape: tuple[int, ...]) -> np.memmap:
    """Map a new .npy file, whose disk space is reserved: to write to it on a full disk would end the process."""
    mapped = np.lib.format.open_memmap(file, "w+", np.uint8, shape)
    if hasattr(os, "posix_fallocate"):
        with file.open("r+b") as opened:
            os.posix_fallocate(opened.fileno(), 0, file.stat().st_size)
    return mapped


def _cache_entry(files: Sequence[File], how: Reading) -> Path:
    """Return the cache folder of these files, read in this way: decoded, or only the rows of those that are sound."""
    key = (_FORMAT, how.cache, stamp(files), how.resize, how.resize_mode, how.draft, how.skip_broken)
    return cache_folder() / "images" / hashlib.blake2b("\0".join(map(str, key)).encode(), digest_size=16).hexdigest()


def _cached(entry: Path) -> tuple[AnyImages, Int64[np.ndarray, " kept"]]:
    """Return the decoded images of a cache folder, and which of the files they are."""
    kept: np.ndarray = np.load(entry / _ROWS, allow_pickle=False)
    return pick(NpyImages(entry / _PIXELS), slice(len(kept))), kept
