"""Images of any size as squares of one side."""

from typing import Literal

from PIL import Image

ResizeMode = Literal["squash", "crop"]


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
