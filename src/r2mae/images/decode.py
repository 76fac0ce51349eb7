"""Decodes image files to pixels with PIL, in threads, and resizes them. No torch."""

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import parent_process
from typing import IO, Literal, cast

import numpy as np
from jaxtyping import Int64, UInt8
from PIL import ExifTags, Image
from PIL.ImageFile import ImageFile

from r2mae.errors import UserError
from r2mae.images.formats import BrokenFileError, reading
from r2mae.images.image_set import StoredImages
from r2mae.images.listing import File

Cache = Literal["auto", "memory", "mmap", "none"]
ResizeMode = Literal["squash", "crop"]

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


@dataclass(frozen=True)
class Reading:
    """How files of images are read.

    Parameters
    ----------
    resize : int or None
        Side in pixels of the square to which every image is resized.
    resize_mode : {"squash", "crop"}
        See :func:`to_square`.
    max_bytes : int or None
        Limit of the images in memory (default: half of the machine's).
    cache : {"auto", "memory", "mmap", "none"}
        Where decoded images are stored: in memory; on disk, in a .npy file; or not at all, so that they are decoded on
        access. "auto" is memory if they fit, else none.
    skip_broken : bool
        Skip files that cannot be decoded, and log how many.
    draft : bool
        Let the JPEG decoder reduce an image by 2, 4 or 8, if it is resized to less than that anyway.
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
    advised: bool = True

    def __post_init__(self) -> None:
        if self.resize is not None and self.resize < 1:
            raise UserError(f"resize {self.resize}: expected a side of at least 1 pixel")
        if self.draft and self.resize is None:
            raise UserError("draft needs --resize N: add it, or omit draft")


class DecodedImages(StoredImages):
    """Images that are decoded on access: the rows of `files`, of one shape (height, width, channels)."""

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
        height, width, channels = self.shape[1:]
        images = np.empty((len(rows), height, width, channels), np.uint8)

        def fill(place: int) -> None:
            images[place] = decode(self.files[int(rows[place])], (height, width, channels), self.how)

        in_threads(fill, len(rows))
        return images


def in_threads(job: Callable[[int], object], count: int, *, label: str | None = None) -> None:
    """Run `job` for the numbers below `count` in threads, in a worker process in its only one; raise the first error.

    Warnings on metadata are ignored, and decompression bombs are refused. With a `label`, a progress bar is shown.
    """
    blocks = [range(start, min(start + BLOCK, count)) for start in range(0, count, BLOCK)]
    threads = 1 if parent_process() else min(8, os.cpu_count() or 1, len(blocks))

    def run(block: range) -> None:
        for number in block:
            job(number)

    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())  # applies to all threads, so the one that starts them sets it
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        done: Iterable[None] = map(run, blocks)
        if threads > 1:
            done = stack.enter_context(ThreadPoolExecutor(threads)).map(run, blocks)  # an error cancels what waits
        if label is not None:
            from rich.progress import track

            from r2mae.terminal import Terminal

            done = track(done, label, len(blocks), console=Terminal(stderr=True), transient=True)
        for _ in done:
            pass


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


def header(file: File) -> tuple[int, int, bool]:
    """Read width and height of the upright image, and whether it is greyscale, without decoding."""
    with _open_image(file) as image:
        width, height = image.size
        if _upright_transpose(image) in _SWAP_SIDES:
            width, height = height, width
        return width, height, image.mode in _GREY


def headers_of(files: Sequence[File]) -> tuple[Int64[np.ndarray, "n 3"], dict[int, BrokenFileError]]:
    """Read :func:`header` of all images; zeros for broken ones, and their errors by row."""
    found, broken = np.zeros((len(files), 3), np.int64), {}

    def look(row: int) -> None:
        try:
            found[row] = header(files[row])
        except BrokenFileError as error:
            broken[row] = error

    in_threads(look, len(files))
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


def to_square(image: Image.Image, side: int, mode: ResizeMode) -> Image.Image:
    """Resize an image to a square, bilinear with antialiasing.

    "squash" takes the complete image, whatever its proportions. With "crop" its shorter side becomes `side`, and the
    rest of the longer one is cut off at both ends alike.
    """
    if image.size == (side, side):
        return image
    box = None
    if mode == "crop":
        width, height = image.size
        short = min(width, height)
        left, top = (width - short) / 2, (height - short) / 2
        box = (left, top, left + short, top + short)
    return image.resize((side, side), Image.Resampling.BILINEAR, box=box)


def array_to_square(images: np.ndarray, side: int, mode: ResizeMode) -> np.ndarray:
    """Resize every image of a uint8 or float32 array by :func:`to_square`; floats stay in [0, 1]."""
    squares = np.empty((len(images), side, side, images.shape[3]), images.dtype)
    for row, channel in np.ndindex(len(images), images.shape[3]):
        plane = Image.fromarray(np.ascontiguousarray(images[row, ..., channel]))
        squares[row, ..., channel] = to_square(plane, side, mode)
    return np.clip(squares, 0, 1, out=squares) if images.dtype == np.float32 else squares
