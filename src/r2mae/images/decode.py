"""Decodes image files to pixels, and reports files that cannot be decoded. No torch."""

import hashlib
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from multiprocessing import parent_process
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
from jaxtyping import Int64, UInt8
from PIL import Image
from PIL.ImageFile import ImageFile

from r2mae.errors import UserError
from r2mae.images.arrays import StoredImages
from r2mae.images.formats import reading
from r2mae.images.resize import ResizeMode, to_square

SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".webp", ".tif", ".tiff", ".gif"),
    *(".ppm", ".pgm", ".pbm", ".pnm", ".avif", ".jp2", ".j2k"),
)

Cache = Literal["auto", "memory", "mmap", "none"]

# An explicit list, so that no file reaches a decoder that starts programs (EPS).
_DECODERS = ("PNG", "JPEG", "BMP", "WEBP", "TIFF", "GIF", "PPM", "AVIF", "JPEG2000")
_GREY = frozenset({"1", "L", "LA", "La"})
_DEEP_MODES = ("I", "F")  # 16- and 32-bit greyscale; PIL would clip them at 255
_BLOCK = 64  # files of one job of the pool
_ORIENTATION = 0x0112  # in EXIF
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_SWAP_SIDES = tuple(_TURNS[number] for number in (5, 6, 7, 8))
_MAX_NAMED = 5  # broken files named in a message

Result = TypeVar("Result")


@dataclass(frozen=True)
class Reading:
    """How files of images are read.

    Parameters
    ----------
    resize : int or None
        Side in pixels of the square to which every image is resized.
    resize_mode : {"squash", "crop"}
        See :func:`r2mae.images.resize.to_square`.
    max_bytes : int or None
        Limit of the images in memory (default: half of the machine's).
    cache : {"auto", "memory", "mmap", "none"}
        Where decoded images are stored: in memory; on disk, as a memory map; or not at all, so that they are decoded on
        access. "auto" is memory if they fit, else none.
    skip_broken : bool
        Skip files that cannot be decoded, and log how many.
    draft : bool
        Let the JPEG decoder reduce an image by 2, 4 or 8, if it is resized to less than that anyway.
    processes : int
        Number of processes of this machine that read the same images independently; "auto" divides the memory by it.
    advised : bool
        Whether error messages may suggest the options --resize, --cache and --skip-broken.

    Raises
    ------
    UserError
        A side below one pixel, or `draft` without a size.
    """

    resize: int | None = None
    resize_mode: ResizeMode = "squash"
    max_bytes: int | None = None
    cache: Cache = "memory"
    skip_broken: bool = False
    draft: bool = False
    processes: int = 1
    advised: bool = True

    def __post_init__(self) -> None:
        if self.resize is not None and self.resize < 1:
            raise UserError(f"resize {self.resize}: expected a side of at least 1 pixel")
        if self.draft and self.resize is None:
            raise UserError("draft needs --resize N: add it, or omit draft")


@runtime_checkable
class Encoded(Protocol):
    """Encoded images: the bytes of their files."""

    def __len__(self) -> int:
        """Return the number of images."""

    def open(self, row: int) -> BufferedIOBase:
        """Open one of them."""

    def name(self, row: int) -> str:
        """Return its name for messages."""

    def headers(self) -> Int64[np.ndarray, "n 3"] | None:
        """Return the headers of all files, as :func:`header`, if known without opening them; zeros for unknown ones."""

    def stamp(self) -> str:
        """Return a text that changes if any file changes."""


@runtime_checkable
class File(Protocol):
    """A file on disk or in an archive."""

    @property
    def name(self) -> str:
        """Its name alone."""

    def open(self, mode: Literal["rb"]) -> BufferedIOBase:
        """Open it."""


class Files:
    """Files on disk, or members of an archive, one image each."""

    def __init__(self, files: Sequence[File], *, stamp: str | None = None) -> None:
        self.files, self._stamp = files, stamp

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.files)

    def open(self, row: int) -> BufferedIOBase:
        """Open one of them."""
        return self.files[row].open("rb")

    def name(self, row: int) -> str:
        """Return its path."""
        return str(self.files[row])

    def headers(self) -> None:
        """Return None: headers are unknown without opening the files."""

    def stamp(self) -> str:
        """Return a hash of names, sizes and modification times."""
        if self._stamp is not None:
            return self._stamp
        digest = hashlib.blake2b(digest_size=16)
        for file in self.files:
            found = Path(str(file)).stat()
            digest.update(os.fsencode(f"{Path(str(file)).absolute()}\0{found.st_size}\0{found.st_mtime_ns}\0"))
        return digest.hexdigest()


class Header(NamedTuple):
    """Size in pixels of the upright image, and whether it is greyscale, from the start of a file."""

    width: int
    height: int
    grey: bool


class DecodedImages(StoredImages):
    """Images that are decoded on access.

    Parameters
    ----------
    encoded : Encoded
        Their files.
    shape : (height, width, channels)
        Shape of each decoded image.
    how : Reading
        Its resize, resize_mode and draft are used.
    """

    def __init__(self, encoded: Encoded, shape: tuple[int, int, int], how: Reading) -> None:
        self.encoded, self.how = encoded, how
        super().__init__((len(encoded), *shape))

    def take(
        self, rows: Int64[np.ndarray, " batch"], axis: int = 0
    ) -> UInt8[np.ndarray, "batch height width channels"]:
        """Decode some images; in threads, unless this is a worker process.

        Raises
        ------
        UserError
            If one of them cannot be decoded.
        """
        images = np.empty((len(rows), *self.shape[1:]), np.uint8)
        first = 0
        with strict_decoding():
            for made in in_blocks(
                self._decode_rows, [int(row) for row in rows], threads=1 if parent_process() else None
            ):
                images[first : first + len(made)] = made
                first += len(made)
        return images

    def _decode_rows(self, rows: Sequence[int]) -> list[np.ndarray]:
        height, width, channels = self.shape[1:]
        return [decode(self.encoded, row, (height, width, channels), self.how) for row in rows]


def in_blocks(
    job: Callable[[Sequence[Any]], Result], items: Sequence[Any], *, threads: int | None = None
) -> Iterator[Result]:
    """Run `job` on consecutive blocks of items in threads; yield results, and raise the first error, in order."""
    blocks = [items[start : start + _BLOCK] for start in range(0, len(items), _BLOCK)]
    threads = min(8, os.cpu_count() or 1, len(blocks)) if threads is None else threads
    if threads < 2:
        yield from map(job, blocks)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(job, blocks)  # on an error, map cancels blocks that have not started


@contextmanager
def strict_decoding() -> Iterator[None]:
    """Ignore warnings on metadata, but refuse decompression bombs.

    Use it in the thread that starts others: the filter of warnings applies to all threads.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


@contextmanager
def _open_image(encoded: Encoded, row: int) -> Iterator[Image.Image]:
    """Open an image; errors become a UserError that names it."""
    name = encoded.name(row)
    with (
        reading(name, "image", "remove or replace it"),
        encoded.open(row) as file,
        Image.open(cast("IO[bytes]", file), formats=_DECODERS) as image,
    ):
        if image.mode.startswith(_DEEP_MODES) or _is_deep_colour(image):
            raise UserError(f"{name}: has more than 8 bits a channel: save it with 8, or all as float .npy in [0, 1]")
        yield image


def _is_deep_colour(image: Image.Image) -> bool:
    """Return whether a file has 16 bits per channel that PIL would read as 8, from the encoding of its tiles."""
    tiles = cast("ImageFile", image).tile
    coding = [part for tile in tiles for part in (tile[3] if isinstance(tile[3], tuple) else (tile[3],))]
    if image.format == "PPM":  # the largest value
        return any(isinstance(part, int) and part > 255 for part in coding)
    return image.format in ("PNG", "TIFF") and any(isinstance(part, str) and ";16" in part for part in coding)


def _upright_transpose(image: Image.Image) -> Image.Transpose | None:
    """Return the transposition that makes the image upright, from its EXIF; Pillow applies that of TIFF itself."""
    if image.format == "TIFF" or "exif" not in image.info:
        return None
    return _TURNS.get(image.getexif().get(_ORIENTATION, 1))


def header(encoded: Encoded, row: int) -> Header:
    """Read size and colour without decoding."""
    with _open_image(encoded, row) as image:
        width, height = image.size
        if _upright_transpose(image) in _SWAP_SIDES:
            width, height = height, width
        return Header(width, height, image.mode in _GREY)


def decode(
    encoded: Encoded, row: int, shape: tuple[int, int, int], how: Reading
) -> UInt8[np.ndarray, "height width channels"]:
    """Decode an image: upright, greyscale or RGB, and resized.

    Transparency is dropped; the colours are unchanged.
    """
    with _open_image(encoded, row) as image:
        if how.draft and how.resize is not None and image.format in ("JPEG", "MPO"):
            image.draft(None, (how.resize, how.resize))  # None keeps the mode
        turn = _upright_transpose(image)
        decoded = image.convert("L" if shape[2] == 1 else "RGB")
        if turn is not None:
            decoded = decoded.transpose(turn)
        if how.resize is not None:
            decoded = to_square(decoded, how.resize, how.resize_mode)
        return np.asarray(decoded).reshape(shape)


class BrokenFiles:
    """The files that could not be read, in the order of reading.

    Parameters
    ----------
    count : int
        Number of all files.
    advised : bool
        Whether the error may suggest --skip-broken.
    """

    def __init__(self, count: int, *, advised: bool = True) -> None:
        self.count, self.advised = count, advised
        self.found: dict[int, UserError] = {}

    def attempt(self, row: int, job: Callable[[], Result]) -> Result | None:
        """Return the result of `job` for a file, or None if it is broken, which is recorded.

        Raises
        ------
        UserError
            If the file cannot be opened, for lack of permission or of the disk, which says nothing of the image.
        """
        try:
            return job()
        except UserError as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and cause.errno is not None:
                raise
            self.found[row] = error
            return None

    def report(self, encoded: Encoded, *, skip: bool) -> None:
        """Raise a UserError with the first names and the count of broken files; with `skip`, log them instead."""
        if not self.found:
            return
        rows = sorted(self.found)
        others = ", ".join(encoded.name(row) for row in rows[1:_MAX_NAMED])
        more = f"{others} and {len(rows) - _MAX_NAMED:,} more" if len(rows) > _MAX_NAMED else others
        if skip:
            names = ", ".join([encoded.name(rows[0]), *([more] if more else [])])
            logging.getLogger("r2mae").warning(
                "%s", f"{len(rows):,} of {self.count:,} files cannot be decoded and are omitted: {names}"
            )
        else:
            text = str(self.found[rows[0]])
            if more:
                others = (
                    f"so is 1 other of {self.count:,} files"
                    if len(rows) == 2
                    else (f"so are {len(rows) - 1:,} others of {self.count:,} files")
                )
                text = f"{text}; {others} ({more})"
            hint = ", or skip broken files with --skip-broken" if self.advised else ""
            raise UserError(text + hint)
        if len(rows) == self.count:
            raise UserError(f"{encoded.name(rows[0])}: none of the {self.count:,} files can be decoded: replace them")
