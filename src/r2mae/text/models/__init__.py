"""The models of text by name, one module each. No torch.

A model's module has

- ``Settings``, a :class:`r2mae.training.models.ModelSettings`: its fields are the options ``--model.NAME``, its
  docstring their help;
- ``build(architecture)``, which returns a :class:`r2mae.text.task.TokenTask` and a freshly initialised
  :class:`r2mae.text.task.TokenModel`. The mapping is saved in the run folder: `model`, the settings, `vocab_size`,
  `length` (of the longest sequence), the numbers of the special tokens (`bos_id`, `eos_id`, `pad_id`, `mask_id`,
  `special_ids`), `corruption`, `exact`, and the tokenizer (`tokenizer`, `roles`).
"""

from dataclasses import dataclass
from typing import ClassVar

from r2mae.errors import UserError
from r2mae.fields import PartialFraction, Size
from r2mae.training.models import Layers, ModelSettings

MODELS = {
    "roberta": "r2mae.text.models.roberta",
    "pretrained": "r2mae.text.models.pretrained",
}


@dataclass(frozen=True, kw_only=True)
class RobertaSettings(ModelSettings):
    """Settings of the default model. They are here because its module `roberta` imports torch.

    Parameters
    ----------
    hidden_size : int
        Width of the encoder (RoBERTa-medium: 512).
    layers : int
        Layers of the encoder (RoBERTa-medium: 8).
    heads : int
        Attention heads (RoBERTa-medium: 8).
    intermediate_size : int
        Inner width of a layer (RoBERTa-medium: 2048).
    dropout : float
        Dropout of hidden states and attention.
    """

    mask_tokens: ClassVar[bool] = True

    name: str = "roberta"
    hidden_size: Size = 512
    layers: Layers = 8
    heads: Size = 8
    intermediate_size: Size = 2048
    dropout: PartialFraction = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden_size % self.heads:
            raise UserError(
                f"hidden_size {self.hidden_size} is not a multiple of heads {self.heads}: give another size or number"
            )


@dataclass(frozen=True, kw_only=True)
class PretrainedSettings(ModelSettings):
    """A masked language model of transformers, with the sizes and weights of the checkpoint `init`."""

    mask_tokens: ClassVar[bool] = True

    name: str = "pretrained"
