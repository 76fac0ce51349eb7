"""Images: arrays, folders and named sets, the paper's MLP autoencoder and ViT-MAE, and building blocks for scripts."""

from typing import TYPE_CHECKING

from r2mae.lazy import lazy_exports

if TYPE_CHECKING:
    from r2mae.images.config import ImagesConfig
    from r2mae.images.data import ImageSet, Splits, load_images, load_splits
    from r2mae.images.domain import DOMAIN
    from r2mae.images.models import ImageModelSettings
    from r2mae.images.models.mlp import MLPAutoencoder
    from r2mae.images.models.vit_mae.model import PatchTask, VisionTransformerMAE
    from r2mae.images.patches import normalised, patchify, standardised, unpatchify
    from r2mae.images.task import PixelTask
    from r2mae.images.weights import to_mae, to_timm, to_transformers

__all__ = [
    "DOMAIN",
    "ImageModelSettings",
    "ImageSet",
    "ImagesConfig",
    "MLPAutoencoder",
    "PatchTask",
    "PixelTask",
    "Splits",
    "VisionTransformerMAE",
    "load_images",
    "load_splits",
    "normalised",
    "patchify",
    "standardised",
    "to_mae",
    "to_timm",
    "to_transformers",
    "unpatchify",
]

__getattr__, __dir__ = lazy_exports(__name__, __all__)
