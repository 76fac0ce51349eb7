"""The models of images by name, one module each. This module does not import torch.

The module of a model has

- ``Settings``, a frozen dataclass: its fields are the options ``--model.NAME``, its docstring their help; `latent`, a
  field or a property, is the width of the representation. It may have more attributes: `ignores`, fields of the
  configuration that do nothing for the model, and are refused with it; `exchanged`, True for a model that other
  libraries have, so that a run may start from their weights; `reconstructs`, False for a model that does not
  reconstruct unmasked images; `ratios`, the defaults of the schemes, if not those of the domain; `error_bound`, the
  largest masked error; `takes_mask`, True for a model that can have the mask as inputs (`mask_input`); `mask_tokens`,
  True for one that is mask-aware without it; ``check_shape(shape)``, which refuses images of a height, width and number
  of channels that the model does not accept, before anything is written;
- ``build(architecture)``, which returns a task (:class:`r2mae.images.task.ImageTask`) and a freshly initialised model.
  The mapping is saved in the run folder. It has `model`; `shape` (height, width, channels); the settings; `mask_input`
  if the model gets the mask; `exact`; and `fill` if hidden pixels get the mean colour.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

MODELS = {
    "mlp": "r2mae.images.models.mlp",
    "unet": "r2mae.images.models.unet",
    "vit-mae": "r2mae.images.models.vit_mae",
}


@dataclass(frozen=True, kw_only=True)
class MLPSettings:
    """Settings of the default model, which are fields of every configuration. Here, as the module `mlp` imports torch.

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

    hidden: int = 512
    latent: int = 256
    norm: Literal["batch", "layer"] = "batch"

    @property
    def ignores(self) -> tuple[str, ...]:
        """Fields of the configuration that do nothing: without batch statistics none are re-estimated."""
        return ("bn_statistics",) if self.norm == "layer" else ()
