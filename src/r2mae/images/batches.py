"""The images of a run, and mini-batches of them by index."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor, nn

from r2mae.errors import UserError
from r2mae.images.arrays import AnyImages, in_chunks
from r2mae.images.augment import changed
from r2mae.images.config import GAUSSIAN, ImagesConfig
from r2mae.images.data import ImageSet, Splits, load_splits
from r2mae.images.task import scaled
from r2mae.masking.keys import Key, permutation
from r2mae.training.config import RunConfig
from r2mae.training.task import Batches, Data
from r2mae.training.validation import EVALUATION_KEY

Augment = Literal["none", "crop-flip"]
MAX_NUMBERS = 1 << 23
"""Values of the images that are read at a time: 55 images of 224 x 224; a U-Net's states are many times as large."""
_PART = 4096


class ImageBatches(Batches):
    """Images of a set, by default all, read as mini-batches, with random crops and flips if `augment` says so."""

    def __init__(self, images: AnyImages, rows: np.ndarray | None = None, *, augment: Augment = "none") -> None:
        self.images = np.ascontiguousarray(images) if isinstance(images, np.ndarray) else images
        self.rows = np.arange(len(images)) if rows is None else rows
        self.augment = augment

    def __repr__(self) -> str:
        return f"ImageBatches({len(self):,} images of {' x '.join(map(str, self.images.shape[1:]))})"

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def unaugmented(self) -> "ImageBatches":
        """The same images without augmentation."""
        return ImageBatches(self.images, self.rows)

    def batch(self, indices: Sequence[int] | np.ndarray, key: Key) -> Tensor:
        """Return these images, shape (batch, height, width, channels), in the array's type, or augmented as bytes."""
        rows = self.rows[np.asarray(indices)]
        if self.augment == "none":
            return torch.from_numpy(self.images.take(rows, axis=0))
        return torch.from_numpy(changed(self.images, rows, key.fold("augment")))

    def flat_parts(self) -> Iterator[Float32[np.ndarray, "rows pixels"]]:
        """Yield all images in order, flat, 0 to 1, in parts."""
        size = max(1, min(_PART, MAX_NUMBERS // math.prod(self.images.shape[1:])))
        for first in range(0, len(self), size):
            rows = np.arange(first, min(first + size, len(self)))
            yield scaled(self.batch(rows, EVALUATION_KEY.rows(first))).flatten(1).numpy()


@dataclass(frozen=True)
class ImageData(Data):
    """The data of a run on images, and the architecture that the model is built from.

    `validation` are images for the validation loss: the official validation part, else some of the training part.
    """

    splits: Splits
    train: ImageBatches
    validation: ImageBatches | None
    architecture: dict[str, Any]

    def initialise(self, model: nn.Module) -> None:
        """Fit the Gaussian that a model begins at, if it has one."""
        if self.architecture.get("fill") == GAUSSIAN:
            from r2mae.evaluation.gaussian import GaussianConditionalMean

            model.gaussian.load(GaussianConditionalMean.fit(self.train.unaugmented.flat_parts))  # type: ignore[union-attr, operator]


def reading_of(config: RunConfig) -> dict[str, Any]:
    """Return how a configuration says that images are read, as fields of :class:`r2mae.images.files.Reading`."""
    return {name: config[name] for name in ("resize", "skip_broken", "cache")}


def load_data(config: ImagesConfig) -> ImageData:
    """Read the images of a run and split them; the split depends on the seed alone."""
    splits = load_splits(config.data.source, seed=config.seed, **reading_of(config))
    images = splits.train.images
    if math.prod(splits.train.shape) < 2:
        raise UserError(f"{config.data.source}: masking needs images of two pixels or more")
    if config.evaluation.finetune_epochs:
        check_classes(config.data.source, splits)
    rows, held_out = training_rows(splits, config.data.validation, config.seed)
    train = ImageBatches(images, rows, augment=config.data.augment)
    validation = None if held_out is None else ImageBatches(held_out[0].images, held_out[1])
    return ImageData(splits, train, validation, architecture(config, splits.train))


def training_rows(
    splits: Splits, fraction: float, seed: int
) -> tuple[Int64[np.ndarray, " train"], tuple[ImageSet, Int64[np.ndarray, " held"]] | None]:
    """Return the training images that are trained on, and a set and its rows for the validation loss, if any.

    With a `fraction` above 0 this is the official validation part, else so much of the training images, one at least.
    """
    count = len(splits.train)
    if fraction and splits.validation is not None:
        return np.arange(count), (splits.validation, np.arange(len(splits.validation)))
    if not fraction or count < 2:
        return np.arange(count), None
    order = permutation(Key.root(seed).fold("validation"), count)
    held_out = min(max(1, round(fraction * count)), count - 1)
    return np.sort(order[held_out:]), (splits.train, np.sort(order[:held_out]))


def check_classes(source: str, splits: Splits) -> None:
    """Refuse to fine-tune on images of fewer than two classes."""
    if not splits.has_classes:
        raise UserError(f"{source}: fine-tuning needs labels of two classes or more: give some, or no finetune_epochs")


def architecture(config: ImagesConfig, images: ImageSet) -> dict[str, Any]:
    """Return the description from which the model is built."""
    settings = config.model.architecture()
    made = {"model": settings.pop("model"), "shape": list(images.shape), **settings, "exact": config.task.exact}
    if config.task.fill == "mean":
        return {**made, "fill": mean_image(images.images)}
    return {**made, "fill": GAUSSIAN} if config.task.fill == GAUSSIAN else made


def mean_image(images: AnyImages) -> list[float]:
    """Return the mean of each place and colour over the images, flat, 0 to 1, to six decimals."""
    total = sum((chunk.sum(axis=0, dtype=np.float64) for chunk in in_chunks(images)), np.float64(0))
    scale = 255.0 if images.dtype == np.uint8 else 1.0
    return [round(value, 6) for value in (np.asarray(total) / (scale * images.shape[0])).ravel().tolist()]
