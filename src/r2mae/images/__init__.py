"""Images: arrays, folders and named sets, with the paper's MLP autoencoder."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from r2mae.images.config import ImagesConfig
    from r2mae.images.data import ImageSet, Splits, load_images, load_splits
    from r2mae.images.model import MLPAutoencoder
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

_LAZY = {
    "ImagesConfig": "r2mae.images.config",
    **dict.fromkeys(("ImageSet", "Splits", "load_images", "load_splits"), "r2mae.images.data"),
    "MLPAutoencoder": "r2mae.images.model",
    "PixelTask": "r2mae.images.task",
    "WING": "r2mae.images.wing",
    **dict.fromkeys(("element_mask", "patch_mask"), "r2mae.masking.masks"),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
