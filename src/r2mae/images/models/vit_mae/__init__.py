"""`vit-mae`, the masked autoencoder of a vision transformer (paper: "ViT MAE models"). Settings load no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from r2mae.errors import UserError
from r2mae.fields import Size
from r2mae.images.models import ImageModelSettings
from r2mae.masking.defaults import DNA_CURRICULUM, SchemeDefaults
from r2mae.training.models import Layers

if TYPE_CHECKING:
    from r2mae.images.models.vit_mae.model import PatchTask, VisionTransformerMAE

PATCH_RATIOS = SchemeDefaults(
    ratio=0.75,
    low=0.6,
    high=0.9,
    fixed_ratios=(0.5, 0.75, 0.9),
    # The paper has no curricula of patches; these use the defaults of its token models, those of DNA.
    options={"decay_in": "epochs", **DNA_CURRICULUM},
)
"""The paper's ratios of ViT-MAE; the dynamic ratio decreases with the epoch."""


@dataclass(frozen=True, kw_only=True)
class Settings(ImageModelSettings):
    """Settings of the vision transformer; by default those of ViT-B/16 with the decoder of the masked autoencoder.

    Parameters
    ----------
    patch : int
        Side of a patch in pixels; it must divide the sides of the images.
    width, layers, heads : int
        Sizes of the encoder, which sees only kept patches.
    decoder_width, decoder_layers, decoder_heads : int
        Sizes of the decoder.
    norm_pix : bool
        Predict the pixels of a patch normalised by its own mean and deviation.
    """

    mask_tokens: ClassVar[bool] = True
    """The encoder never sees hidden patches, and the decoder has a token for them."""
    reconstructs: ClassVar[bool] = False
    ratios: ClassVar[SchemeDefaults | None] = PATCH_RATIOS

    name: str = "vit-mae"
    patch: Size = 16
    width: Size = 768
    layers: Layers = 12
    heads: Size = 12
    decoder_width: Size = 512
    decoder_layers: Layers = 8
    decoder_heads: Size = 16
    norm_pix: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for prefix in ("", "decoder_"):
            width, heads = getattr(self, f"{prefix}width"), getattr(self, f"{prefix}heads")
            if width % heads:
                raise UserError(f"model.{prefix}width {width} does not divide among {heads} heads")
            if width % 4:
                raise UserError(f"model.{prefix}width must be a multiple of 4 (sines of two axes), not {width}")

    @property
    def ignores(self) -> tuple[str, ...]:
        """Fields that count and fill pixels, or are about batch statistics."""
        return ("exact", "fill", "bn_statistics")

    @property
    def latent(self) -> int:
        """Width of the representation."""
        return self.width


def build(architecture: Mapping[str, Any]) -> "tuple[PatchTask, VisionTransformerMAE]":
    """Make the task and a fresh model; see :mod:`r2mae.images.models`."""
    from r2mae.images.models.vit_mae.model import PatchTask, VisionTransformerMAE

    height, width, channels = (int(side) for side in architecture["shape"])
    settings = Settings(**{name: architecture[name] for name in Settings.own_fields() if name in architecture})
    shape = (height, width, channels)
    sizes = {name: getattr(settings, name) for name in Settings.own_fields() if name != "norm_pix"}
    task = PatchTask(shape, settings.patch, settings.norm_pix, settings.decoder_width)
    return task, VisionTransformerMAE(shape, **sizes)
