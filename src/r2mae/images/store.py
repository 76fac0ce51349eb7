"""Where decoded images are kept: in memory, in a memory map on disk, or nowhere. No torch."""

import errno
import hashlib
import logging
import math
import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from r2mae.cache import cache_folder, create_once
from r2mae.errors import UserError
from r2mae.images.arrays import AnyImages, MappedImages, PickedImages
from r2mae.images.decode import BrokenFiles, DecodedImages, Encoded, Reading, decode, header, in_blocks, strict_decoding
from r2mae.images.formats import check_memory, memory_limit

_PIXELS, _ROWS = "pixels.npy", "rows.npy"
_FORMAT = 1  # of what is kept on disk
_LONG = 20_000  # images whose decoding is worth a progress bar

Shape = tuple[int, int, int]


def gather(source: Path | str, encoded: Encoded, how: Reading) -> tuple[AnyImages, Int64[np.ndarray, " kept"]]:
    """Decode images, or prepare to.

    Parameters
    ----------
    source : Path or str
        What to call the set in errors.
    encoded : Encoded
        The files of its images.
    how : Reading
        What becomes of them, and where they are kept.

    Returns
    -------
    images : ndarray or StoredImages of shape (kept, height, width, 1 or 3), uint8
        RGB unless all are greyscale. The pixels are the same wherever they are kept.
    rows : int64 ndarray of shape (kept,)
        Which of `encoded` they are: all, unless broken ones were skipped.

    Raises
    ------
    UserError
        Unequal sizes without a size to bring them to, files that cannot be decoded and are not skipped, or too many
        images for memory where they are to be kept there.
    """
    with strict_decoding():
        broken = BrokenFiles(len(encoded), advised=how.advised)
        if how.cache == "mmap" and (folder := _place(encoded, how, "decoded")).is_dir():
            return _mapped(folder, encoded, how)
        shape, sound = _survey(encoded, how, broken)
        size = math.prod(shape) * len(sound)
        cache = how.cache
        if cache == "auto":
            limit = memory_limit() // how.processes if how.max_bytes is None else how.max_bytes
            cache = "memory" if size <= limit else "none"
            if cache == "none":
                logging.getLogger("r2mae").warning(
                    "%s",
                    f"{source}: {size / 2**30:,.3g} GiB of images do not fit into memory and are decoded whenever they "
                    "are needed: --cache mmap keeps them decoded on disk",
                )
        if cache == "memory":
            smaller = "--resize N" if how.resize is None else f"a smaller --resize than {how.resize}"
            advice = f"give {smaller}, or add --cache mmap or --cache none"
            check_memory(Path(source), size, how.max_bytes, advice if how.advised else "give fewer or smaller images")
            return _in_memory(encoded, shape, sound, how, broken)
        if cache == "mmap":
            return _on_disk(encoded, shape, sound, how, broken)
        if not how.skip_broken:
            broken.report(encoded, skip=False)
        images = DecodedImages(encoded, shape, how)
        if how.skip_broken:
            sound = _sound(encoded, shape, sound, how, broken)
        return images if len(sound) == len(encoded) else PickedImages(images, sound), sound


def _survey(encoded: Encoded, how: Reading, broken: BrokenFiles) -> tuple[Shape, Int64[np.ndarray, " sound"]]:
    """Return the common shape of the images, and which of them have a beginning that can be read."""
    found = encoded.headers()
    headers = np.zeros((len(encoded), 3), np.int64) if found is None else found.copy()
    unknown = np.flatnonzero(headers[:, 0] == 0).tolist()

    def look(rows: Sequence[int]) -> list[tuple[int, int, int]]:
        return [broken.attempt(row, partial(header, encoded, row)) or (0, 0, 0) for row in rows]

    if unknown:
        headers[unknown] = [one for block in in_blocks(look, unknown) for one in block]
    sound = np.flatnonzero(headers[:, 0])
    if not len(sound):
        broken.report(encoded, skip=how.skip_broken)
    first = headers[sound[0]]
    channels = 1 if headers[sound, 2].all() else 3
    if how.resize is not None:
        return (how.resize, how.resize, channels), sound
    other = np.flatnonzero((headers[sound, :2] != first[:2]).any(axis=1))
    if len(other):
        width, height, _ = headers[sound[other[0]]]
        how_to = ", for example by --resize N" if how.advised else ""
        raise UserError(
            f"{encoded.name(int(sound[other[0]]))} is {width} x {height} pixels but {encoded.name(int(sound[0]))} is "
            f"{first[0]} x {first[1]}: bring all to one size{how_to}"
        )
    return (int(first[1]), int(first[0]), channels), sound


def _decoded(
    encoded: Encoded, shape: Shape, rows: Int64[np.ndarray, " sound"], how: Reading, broken: BrokenFiles
) -> Iterator[tuple[list[int], list[np.ndarray]]]:
    """Give the images that can be decoded, in order, some at a time with their rows."""

    def some(part: Sequence[int]) -> tuple[list[int], list[np.ndarray]]:
        made = [(row, broken.attempt(row, partial(decode, encoded, row, shape, how))) for row in part]
        return [row for row, image in made if image is not None], [image for _, image in made if image is not None]

    blocks = in_blocks(some, rows.tolist())
    if len(rows) < _LONG or not sys.stderr.isatty():
        yield from blocks
        return
    from rich.progress import Progress

    from r2mae.terminal import Terminal

    with Progress(console=Terminal(stderr=True), transient=True) as bar:
        task = bar.add_task("decoding", total=len(rows))
        for block in blocks:
            bar.advance(task, len(block[0]))
            yield block


def _fill(
    images: np.ndarray, encoded: Encoded, sound: Int64[np.ndarray, " sound"], how: Reading, broken: BrokenFiles
) -> Int64[np.ndarray, " kept"]:
    """Decode into an array from its beginning; return the rows of the images that are there."""
    kept: list[int] = []
    height, width, channels = images.shape[1:]
    for rows, made in _decoded(encoded, (height, width, channels), sound, how, broken):
        if made:
            images[len(kept) : len(kept) + len(made)] = made
        kept += rows
    broken.report(encoded, skip=how.skip_broken)
    return np.array(kept, np.int64)


def _in_memory(
    encoded: Encoded, shape: Shape, sound: Int64[np.ndarray, " sound"], how: Reading, broken: BrokenFiles
) -> tuple[AnyImages, Int64[np.ndarray, " kept"]]:
    images = np.empty((len(sound), *shape), np.uint8)
    kept = _fill(images, encoded, sound, how, broken)
    return images[: len(kept)], kept


def _on_disk(
    encoded: Encoded, shape: Shape, sound: Int64[np.ndarray, " sound"], how: Reading, broken: BrokenFiles
) -> tuple[AnyImages, Int64[np.ndarray, " kept"]]:
    """Decode once into a file, which later runs map; one that was broken off is made again."""
    folder = _place(encoded, how, "decoded")
    with create_once(folder) as unfinished:
        if unfinished is not None:
            images = np.lib.format.open_memmap(unfinished / _PIXELS, "w+", np.uint8, (len(sound), *shape))
            _reserve(unfinished / _PIXELS)
            np.save(unfinished / _ROWS, _fill(images, encoded, sound, how, broken))
            images.flush()
    return _mapped(folder, encoded, how, made=unfinished is not None)


def _reserve(file: Path) -> None:
    """Take the room of a file on the disk: writing to a map of it on a full disk would end the process by a signal."""
    if not hasattr(os, "posix_fallocate"):
        return
    with file.open("r+b") as opened:
        try:
            os.posix_fallocate(opened.fileno(), 0, file.stat().st_size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # a file system that cannot tell
                raise


def _mapped(
    folder: Path, encoded: Encoded, how: Reading, *, made: bool = False
) -> tuple[AnyImages, Int64[np.ndarray, " kept"]]:
    kept = _kept(folder, encoded, how, made=made)
    mapped = MappedImages(folder / _PIXELS)
    return mapped if len(kept) == len(mapped) else PickedImages(mapped, np.arange(len(kept))), kept


def _sound(
    encoded: Encoded, shape: Shape, sound: Int64[np.ndarray, " sound"], how: Reading, broken: BrokenFiles
) -> Int64[np.ndarray, " kept"]:
    """Find out which images can be decoded by decoding them all, once; which they are is kept on disk."""
    folder = _place(encoded, how, "sound")
    with create_once(folder) as unfinished:
        if unfinished is not None:
            kept = [row for rows, _ in _decoded(encoded, shape, sound, how, broken) for row in rows]
            broken.report(encoded, skip=True)
            np.save(unfinished / _ROWS, np.array(kept, np.int64))
    return _kept(folder, encoded, how, made=unfinished is not None)


def _place(encoded: Encoded, how: Reading, kind: str) -> Path:
    """Return where the decoded images of these files, read in this way, are kept."""
    told = "\0".join(
        map(str, (_FORMAT, kind, encoded.stamp(), how.resize, how.resize_mode, how.draft, how.skip_broken))
    )
    return cache_folder() / "images" / hashlib.blake2b(told.encode(), digest_size=16).hexdigest()


def _kept(folder: Path, encoded: Encoded, how: Reading, *, made: bool) -> Int64[np.ndarray, " kept"]:
    """Read which rows are kept, and say again how many are not."""
    kept: np.ndarray = np.load(folder / _ROWS, allow_pickle=False)
    if not made and how.skip_broken and len(kept) < len(encoded):
        again = BrokenFiles(len(encoded))
        again.found = dict.fromkeys(np.setdiff1d(np.arange(len(encoded)), kept).tolist(), UserError())
        again.report(encoded, skip=True)
    return kept
