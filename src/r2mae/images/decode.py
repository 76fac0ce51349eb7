"""Decodes image files to pixels with PIL, in threads. No torch."""

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import parent_process
from typing import IO, Any, Literal, NamedTuple, TypeVar, cast

import numpy as np
from jaxtyping import Int64, UInt8
from PIL import ExifTags, Image
from PIL.ImageFile import ImageFile

from r2mae.errors import UserError
from r2mae.images.arrays import StoredImages
from r2mae.images.formats import BrokenFileError, reading
from r2mae.images.listing import File
from r2mae.images.resize import ResizeMode, to_square

Cache = Literal["auto", "memory", "mmap", "none"]

# An explicit list, so that no file reaches a decoder that starts programs (EPS).
_DECODERS = ("PNG", "JPEG", "BMP", "WEBP", "TIFF", "GIF", "PPM", "AVIF", "JPEG2000")
_GREY = frozenset({"1", "L", "LA", "La"})
_DEEP_MODES = ("I", "F")  # 16- and 32-bit greyscale; PIL would clip them at 255
BLOCK = 64  # files of one job of the pool
_TURNS = {  # by the orientation in EXIF; Pillow's exif_transpose also writes the EXIF again, which fails on odd ones
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_SWAP_SIDES = tuple(_TURNS[number] for number in (5, 6, 7, 8))

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
        Where decoded images are stored: in memory; on disk, in a .npy file; or not at all, so that they are decoded on
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


class Header(NamedTuple):
    """Size in pixels of the upright image, and whether it is greyscale, from the start of a file."""

    width: int
    height: int
    grey: bool


class DecodedImages(StoredImages):
    """Images that are decoded on access.

    Parameters
    ----------
    files : sequence of File
        Files of images.
    shape : (height, width, channels)
        Shape of each decoded image.
    how : Reading
        Its resize, resize_mode and draft are used.
    rows : int64 ndarray of shape (n,)
        Which of the files these images are.
    """

    def __init__(
        self, files: Sequence[File], shape: tuple[int, int, int], how: Reading, rows: Int64[np.ndarray, " n"]
    ) -> None:
        self.files, self.how = files, how
        super().__init__(shape, rows)

    def read(self, rows: Int64[np.ndarray, " batch"]) -> UInt8[np.ndarray, "batch height width channels"]:
        """Decode some images; in threads, unless this is a worker process.

        Raises
        ------
        UserError
            If one of them cannot be decoded.
        """
        images = np.empty((len(rows), *self.shape[1:]), np.uint8)
        height, width, channels = self.shape[1:]

        def fill(places: Sequence[int]) -> None:
            for place in places:
                images[place] = decode(self.files[int(rows[place])], (height, width, channels), self.how)

        for _ in in_threads(fill, range(len(rows)), threads=1 if parent_process() else None):
            pass
        return images


def in_threads(
    job: Callable[[Sequence[Any]], Result], items: Sequence[Any], *, threads: int | None = None
) -> Iterator[Result]:
    """Run `job` on consecutive blocks of items in threads; yield results, and raise the first error, in order.

    Warnings on metadata are ignored, and decompression bombs are refused.
    """
    blocks = [items[start : start + BLOCK] for start in range(0, len(items), BLOCK)]
    threads = min(8, os.cpu_count() or 1, len(blocks)) if threads is None else threads
    with warnings.catch_warnings():  # applies to all threads, so it must be set by the one that starts them
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        if threads < 2:
            yield from map(job, blocks)
            return
        with ThreadPoolExecutor(threads) as pool:
            yield from pool.map(job, blocks)  # on an error, map cancels blocks that have not started


@contextmanager
def _open_image(file: File) -> Iterator[Image.Image]:
    """Open an image; errors become one line that names it."""
    with (
        reading(file, "image", "remove or replace it"),
        file.open() as stream,
        Image.open(cast("IO[bytes]", stream), formats=_DECODERS) as image,
    ):
        if image.mode.startswith(_DEEP_MODES) or _is_deep_colour(image):
            raise BrokenFileError(
                f"{file}: has more than 8 bits a channel: save it with 8, or all as float .npy in [0, 1]"
            )
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
    return _TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))


def header(file: File) -> Header:
    """Read size and colour without decoding."""
    with _open_image(file) as image:
        width, height = image.size
        if _upright_transpose(image) in _SWAP_SIDES:
            width, height = height, width
        return Header(width, height, image.mode in _GREY)


def headers_of(files: Sequence[File]) -> tuple[Int64[np.ndarray, "n 3"], dict[int, BrokenFileError]]:
    """Read width, height and whether it is greyscale of all images; zeros for broken ones, and their errors by row."""
    found, broken = np.zeros((len(files), 3), np.int64), {}

    def look(rows: Sequence[int]) -> None:
        for row in rows:
            try:
                found[row] = header(files[row])
            except BrokenFileError as error:
                broken[row] = error

    for _ in in_threads(look, range(len(files))):
        pass
    return found, broken


def decode(file: File, shape: tuple[int, int, int], how: Reading) -> UInt8[np.ndarray, "height width channels"]:
    """Decode an image: upright, greyscale or RGB, and resized.

    Transparency is dropped; the colours are unchanged.
    """
    with _open_image(file) as image:
        if how.draft and how.resize is not None and image.format in ("JPEG", "MPO"):
            image.draft(None, (how.resize, how.resize))  # None keeps the mode
        turn = _upright_transpose(image)
        decoded = image.convert("L" if shape[2] == 1 else "RGB")
        if turn is not None:
            decoded = decoded.transpose(turn)
        if how.resize is not None:
            decoded = to_square(decoded, how.resize, how.resize_mode)
        return np.asarray(decoded).reshape(shape)
