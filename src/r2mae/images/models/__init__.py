"""The models of images by name, one module each. This module does not import torch.

The module of a model has

- ``Settings``, which inherits from :class:`ImageModelSettings`: its fields are the options ``--model.NAME``, its
  docstring their help;
- ``build(architecture)``, which returns a task (:class:`r2mae.images.task.ImageTask`) and a freshly initialised model.
  The mapping is saved in the run folder. It has `model`; `shape` (height, width, channels); the settings; `mask_input`
  if the model gets the mask; `exact`; and `fill` if hidden pixels get those of the mean image.
- optionally the model's method ``begin_at_zero()``, which makes its output an unbounded correction of zero: then
  ``--fill gaussian`` adds it to a Gaussian's conditional mean (:mod:`r2mae.images.models.on_gaussian`).
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from r2mae.fields import Size
from r2mae.training.models import ModelSettings

MODELS = {
    "mlp": "r2mae.images.models.mlp",
    "unet": "r2mae.images.models.unet",
    "vit-mae": "r2mae.images.models.vit_mae",
}

VIT = "vit-mae"
"""The model that other libraries have, whose weights runs may start from (`init`), and that can be fine-tuned."""


@dataclass(frozen=True, kw_only=True)
class ImageModelSettings(ModelSettings):
    """Settings of a model of images."""

    reconstructs: ClassVar[bool] = True
    """Whether the model reconstructs unmasked images, with pixels from 0 to 1."""
    shares_colours: ClassVar[bool] = False
    """Whether all colours of a pixel are hidden together."""


@dataclass(frozen=True, kw_only=True)
class MLPSettings(ImageModelSettings):
    """Settings of the default model. They are here because its module `mlp` imports torch.

    Parameters
    ----------
    hidden : int
        Width of the first hidden layer (paper: 16 or 512).
    latent : int
        Width of the second hidden layer, the representation (paper: 16, 32, 64, 256 or 1024).
    norm : {"batch", "layer"}
        Batch normalisation (paper), or layer normalisation, which has no statistics that depend on the mask ratio.
    """

    takes_mask: ClassVar[bool] = True

    name: str = "mlp"
    hidden: Size = 512
    latent: Size = 256
    norm: Literal["batch", "layer"] = "batch"

    @property
    def ignores(self) -> tuple[str, ...]:
        """Fields of the configuration that do nothing: without batch statistics none are re-estimated."""
        return ("bn_statistics",) if self.norm == "layer" else ()
