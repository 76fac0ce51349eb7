"""Images of any size as squares of one side."""

from typing import Literal

import numpy as np
from jaxtyping import Float32, UInt8
from PIL import Image

ResizeMode = Literal["squash", "crop"]


def array_to_square(
    images: UInt8[np.ndarray, "n height width channels"] | Float32[np.ndarray, "n height width channels"],
    side: int,
    mode: ResizeMode,
) -> UInt8[np.ndarray, "n side side channels"] | Float32[np.ndarray, "n side side channels"]:
    """Resize every image of an array by :func:`to_square`, each colour by itself; floats stay in [0, 1].

    Most of the time for a small image is spent on making it one of PIL's, which four planes of bytes share.
    """
    count, height, width, channels = images.shape
    squares = np.empty((count, side, side, channels), images.dtype)
    together = count - count % 4 if images.dtype == np.uint8 else 0
    for channel in range(channels):
        planes, made = images[..., channel], squares[..., channel]
        for first in range(0, together, 4):
            colours = np.ascontiguousarray(np.moveaxis(planes[first : first + 4], 0, 2))
            picture = Image.frombuffer("CMYK", (width, height), colours, "raw", "CMYK", 0, 1)
            made[first : first + 4] = np.moveaxis(np.asarray(to_square(picture, side, mode)), 2, 0)
        for row in range(together, count):
            made[row] = to_square(Image.fromarray(np.ascontiguousarray(planes[row])), side, mode)
    return np.clip(squares, 0, 1, out=squares) if images.dtype == np.float32 else squares


def to_square(image: Image.Image, side: int, mode: ResizeMode) -> Image.Image:
    """Resize an image to a square, bilinear with antialiasing.

    Parameters
    ----------
    image : Image
        Of a mode that PIL can resize.
    side : int
        Pixels.
    mode : {"squash", "crop"}
        Squash: the complete image, whatever its proportions. Crop: its shorter side becomes `side`, and the rest of the
        longer one is cut off at both ends alike.
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
