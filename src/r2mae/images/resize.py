"""Images of any size as squares of one side."""

from typing import Literal

import numpy as np
from jaxtyping import Float32, UInt8
from PIL import Image

ResizeMode = Literal["squash", "crop"]


_TOGETHER = 4  # planes of bytes that PIL resizes as the colours of one picture, each by itself: cyan to black


def planes_to_square(
    planes: UInt8[np.ndarray, "n height width"] | Float32[np.ndarray, "n height width"], side: int, mode: ResizeMode
) -> UInt8[np.ndarray, "n side side"] | Float32[np.ndarray, "n side side"]:
    """Bring pictures of one colour to squares: the same numbers as :func:`to_square` of each.

    Most of the time for a small picture goes into making it one of PIL's. Four of bytes share that.
    """
    count, height, width = planes.shape
    squares = np.empty((count, side, side), planes.dtype)
    whole = count - count % _TOGETHER if planes.dtype == np.uint8 else 0
    for first in range(0, whole, _TOGETHER):
        block = slice(first, first + _TOGETHER)
        colours = np.ascontiguousarray(np.moveaxis(planes[block], 0, 2))
        picture = Image.frombuffer("CMYK", (width, height), colours, "raw", "CMYK", 0, 1)
        squares[block] = np.moveaxis(np.asarray(to_square(picture, side, mode)), 2, 0)
    for row in range(whole, count):
        squares[row] = np.asarray(to_square(Image.fromarray(np.ascontiguousarray(planes[row])), side, mode))
    return squares


def to_square(image: Image.Image, side: int, mode: ResizeMode) -> Image.Image:
    """Bring an image to a square, bilinear with antialiasing.

    Parameters
    ----------
    image : Image
        Of a mode that PIL can resize.
    side : int
        Pixels.
    mode : {"squash", "crop"}
        Squash: the whole image, whatever its proportions. Crop: its shorter side becomes `side`, and what is left over
        of the longer one is cut off at both ends alike.
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
