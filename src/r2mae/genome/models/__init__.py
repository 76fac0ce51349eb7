"""The models of genomes by name, one module each. No torch.

A model's module has ``Settings``, a :class:`r2mae.training.models.ModelSettings`, whose fields are the options
``--model.NAME``, and ``build(architecture)``, which returns a :class:`r2mae.genome.task.AlignmentTask` and a freshly
initialised model. The mapping is saved in the run folder: `model`, the settings, `window` (the longest), `reference`
and `species` (names; the model's species other than the reference, in the order of its embedding), `corruption`,
`exact`, `repeat_weight` and `flip`.
"""

from dataclasses import dataclass
from typing import ClassVar

from r2mae.errors import UserError
from r2mae.fields import PartialFraction, Size
from r2mae.training.models import Layers, ModelSettings

MODELS = {
    "gpn-msa": "r2mae.genome.models.gpn_msa",
}


@dataclass(frozen=True, kw_only=True)
class GpnMsaSettings(ModelSettings):
    """Settings of the default model. They are here because its module `gpn_msa` imports torch.

    Parameters
    ----------
    width : int
        Width of the hidden states (paper: 768).
    layers : int
        Transformer layers (paper: 12).
    heads : int
        Attention heads (paper: 12).
    inner : int, optional
        Inner width of a layer; by default four times the width.
    dropout : float
        Dropout of hidden states and attention.
    one_hot : bool
        Begin with one-hot vectors, filled up with zeros, as the original GPN-MSA, whose weights then fit (--init). By
        default a matrix and a norm follow them.
    """

    mask_tokens: ClassVar[bool] = True

    name: str = "gpn-msa"
    width: Size = 768
    layers: Layers = 12
    heads: Size = 12
    inner: Size | None = None
    dropout: PartialFraction = 0.1
    one_hot: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % (2 * self.heads):
            raise UserError(
                f"width {self.width} is not a multiple of 2 x {self.heads} heads (rotary positions need heads of an "
                "even width): give another width or number of heads"
            )
