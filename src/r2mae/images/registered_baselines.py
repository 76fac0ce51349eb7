"""The baselines of images by name. No torch: :mod:`r2mae.images.evaluate` measures them."""

import math
from typing import TYPE_CHECKING, Any

from r2mae.domains.baselines import baseline
from r2mae.images.config import ImagesConfig

if TYPE_CHECKING:
    from r2mae.evaluation.items import ItemRecorder
    from r2mae.images.batches import ImageData


def _of_pixels(config: ImagesConfig) -> bool:
    """Whether the model's errors are over pixels."""
    return bool(config.model.reconstructs)


def _dense_bytes(config: ImagesConfig, data: "ImageData") -> int:
    return 4 * (data.splits.train.images.size + data.splits.test.images.size)


def _gaussian_bytes(config: ImagesConfig, data: "ImageData") -> int:
    from r2mae.evaluation.gaussian import GaussianConditionalMean

    return GaussianConditionalMean.bytes_to_fit(len(data.train), math.prod(data.splits.train.shape))


@baseline("pixels", "images", gives=("features",), help="raw pixels", default=True, memory=_dense_bytes)
def pixels(
    config: ImagesConfig, domain: Any, data: "ImageData", *, items: "ItemRecorder | None" = None
) -> dict[str, float]:
    """Probe the pixels themselves."""
    from r2mae.images.evaluate import score_pixels

    return score_pixels(config, data, items)


@baseline("pca", "images", gives=("features",), help="principal components", default=True)
def pca(
    config: ImagesConfig, domain: Any, data: "ImageData", *, items: "ItemRecorder | None" = None
) -> dict[str, float]:
    """Probe as many principal components of the training images as the model's representation is wide."""
    from r2mae.images.evaluate import score_components

    return score_components(config, data, config.model.latent, items)


@baseline("mean", "images", gives=("filling",), help="the mean image", default=True, applies=_of_pixels)
def mean(
    config: ImagesConfig, domain: Any, data: "ImageData", *, items: "ItemRecorder | None" = None
) -> dict[str, float]:
    """Fill hidden pixels with those of the mean training image."""
    from r2mae.images.evaluate import score_components

    return score_components(config, data, 0, items)


@baseline(
    "gaussian", "images", gives=("filling",), help="mean given the kept pixels", default=True, applies=_of_pixels,
    memory=_gaussian_bytes,
)  # fmt: skip
def gaussian(
    config: ImagesConfig, domain: Any, data: "ImageData", *, items: "ItemRecorder | None" = None
) -> dict[str, float]:
    """Fill hidden pixels with their conditional mean of a Gaussian fitted to the training images."""
    from r2mae.images.evaluate import score_gaussian

    return score_gaussian(config, data, items)
