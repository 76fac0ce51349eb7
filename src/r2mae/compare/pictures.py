"""Pictures of examples side by side: originals, masked, and reconstructed by models (Figs. 8 and 9 of the paper)."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from r2mae.compare.style import figure_style
from r2mae.errors import UserError
from r2mae.evaluation.examples import Examples

_WIDTH = 6.4  # inches at most
_CELL = 0.75  # inches of an image at most
_LETTER, _TITLE, _NUMBERS = 0.085, 0.3, 0.15  # inches of a letter of a row's name, for a title, and for numbers
_SIDE = 96  # pixels of an image; larger ones are drawn smaller


def check_alike(examples: Mapping[str, Examples]) -> None:
    """Refuse examples of several models, by their labels, that are not of the same masked images.

    Raises a :class:`UserError` if two models have different images or different masks.
    """
    (first, one), *others = examples.items()
    for label, other in others:
        if not np.array_equal(one.original, other.original):
            raise UserError(
                f"{first} and {label} have different test images: name runs that share data, size and, for data "
                "without an official test part, the seed"
            )
        if not np.array_equal(one.masked, other.masked):
            raise UserError(
                f"{first} and {label} mask different parts of the same images: name runs of one kind of model, with "
                "the same --fill"
            )


def draw_pictures(examples: Mapping[str, Examples], *, title: str = "") -> Figure:
    """Draw rows of images: the originals, what is masked, and those of each model; below, their places in the data.

    Parameters
    ----------
    examples : mapping of label to Examples
        Of at least one model, all of the same masked images; numbers below 0 and above 1 are cut off.
    title : str
        Above the images.

    Raises
    ------
    UserError
        If two models have different images or different masks.
    """
    check_alike(examples)
    one, predictions = next(iter(examples.values())), [each.prediction for each in examples.values()]
    names = ["original", f"{one.ratio:.0%} hidden", *examples]
    stack = np.stack(list(map(_thumbnails, (one.original, one.masked, *predictions))))
    mosaic, (down, right) = _mosaic(stack)
    tall, wide = mosaic.shape[:2]
    with figure_style():
        left = 0.3 + _LETTER * max(map(len, names))
        scale = min(max(_WIDTH - left, _WIDTH / 2) / wide, _CELL / max(down, right))
        height = 0.2 + _TITLE * bool(title) + _NUMBERS * bool(one.index) + tall * scale
        figure = Figure(figsize=(left + wide * scale, height), layout="constrained")
        axes = figure.add_subplot(anchor="E")
        axes.imshow(mosaic, interpolation="none", aspect="equal")
        axes.set_xticks(
            [right * column + (right - 1) / 2 for column in range(len(one.index))], list(map(str, one.index))
        )
        axes.set_yticks([down * line + (down - 1) / 2 for line in range(len(names))], names)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_title(title)
    return figure


def _thumbnails(
    images: Float[np.ndarray, "n height width channels"],
) -> Float[np.ndarray, "n low narrow channels"]:
    """Average large images over blocks, to sides of at most 96 pixels."""
    n, height, width, channels = images.shape
    block = -(-max(height, width) // _SIDE)
    low, narrow = max(height // block, 1), max(width // block, 1)
    if block == 1:
        return images
    cut = images[:, : low * block, : narrow * block]
    blocks = cut.reshape(n, low, cut.shape[1] // low, narrow, cut.shape[2] // narrow, channels)
    return np.asarray(blocks.mean(axis=(2, 4)))


def _mosaic(
    images: Float[np.ndarray, "down across height width channels"],
) -> tuple[Float[np.ndarray, "tall wide 4"], tuple[int, int]]:
    """Lay images out, with clear gaps, in one RGBA image; return it and the distances down and across in pixels.

    One channel is grey, three are RGB, others are shown by their mean.
    """
    down, across, height, width, channels = images.shape
    gap = max(1, round(0.06 * max(height, width)))
    canvas = np.zeros((down * (height + gap) - gap, across * (width + gap) - gap, 4))
    shown = images if channels == 3 else images.mean(axis=4, keepdims=True)
    for i, line in enumerate(np.clip(shown, 0, 1)):
        for j, image in enumerate(line):
            top, left = i * (height + gap), j * (width + gap)
            canvas[top : top + height, left : left + width, :3] = image
            canvas[top : top + height, left : left + width, 3] = 1
    return canvas, (height + gap, width + gap)
