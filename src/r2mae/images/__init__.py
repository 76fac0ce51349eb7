"""Images: arrays, folders and named sets, with the paper's MLP autoencoder."""

from typing import TYPE_CHECKING

from r2mae.lazy import lazily

if TYPE_CHECKING:
    from r2mae.images.config import ImagesConfig
    from r2mae.images.data import ImageSet, Splits, load_images, load_splits
    from r2mae.images.models.mlp import MLPAutoencoder
    from r2mae.images.task import PixelTask
    from r2mae.images.wing import WING
    from r2mae.masking.masks import element_mask, patch_mask

__all__ = [
    "WING",
    "ImageSet",
    "ImagesConfig",
    "MLPAutoencoder",
    "PixelTask",
    "Splits",
    "element_mask",
    "load_images",
    "load_splits",
    "patch_mask",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "config": ("ImagesConfig",),
        "data": ("ImageSet", "Splits", "load_images", "load_splits"),
        "r2mae.images.models.mlp": ("MLPAutoencoder",),
        "task": ("PixelTask",),
        "wing": ("WING",),
        "r2mae.masking.masks": ("element_mask", "patch_mask"),
    },
    __all__,
)
