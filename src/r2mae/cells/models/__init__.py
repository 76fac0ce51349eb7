"""The models of cells by name, one module each. This module does not import torch.

The module of a model has

- ``Settings``, a :class:`r2mae.training.models.ModelSettings`: its fields are the options ``--model.NAME``, its
  docstring their help;
- ``build(architecture)``, which returns a task (a :class:`r2mae.cells.task.GeneTask`) and a freshly initialised
  :class:`r2mae.cells.task.CountModel`. The mapping is saved in the run folder. It has `model`, the names of `genes` and
  `batches`, the settings, and `mask_input` where the model gets the mask.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from r2mae.fields import Size
from r2mae.training.models import ModelSettings

MODELS = {
    "mlp": "r2mae.cells.models.mlp",
}


@dataclass(frozen=True, kw_only=True)
class MLPSettings(ModelSettings):
    """Settings of the default model. They are here because its module `mlp` imports torch.

    Parameters
    ----------
    n_hidden : int
        Width of the hidden layers (paper: 2000).
    n_latent : int
        Width of the representation (paper: 1000).
    norm : {"batch", "layer"}
        Batch normalisation (paper), or layer normalisation, which has no statistics that depend on the mask ratio.
    """

    takes_mask: ClassVar[bool] = True

    name: str = "mlp"
    n_hidden: Size = 256
    n_latent: Size = 64
    norm: Literal["batch", "layer"] = "batch"

    @property
    def ignores(self) -> tuple[str, ...]:
        """Fields of the configuration that do nothing: without batch statistics none are re-estimated."""
        return ("bn_statistics",) if self.norm == "layer" else ()
