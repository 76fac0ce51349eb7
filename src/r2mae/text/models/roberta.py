"""RoBERTa as a masked language model that computes only what the loss needs.

The parameters and their names are those of transformers' ``RobertaForMaskedLM``. The forward pass is our own, since the
stock one spends half its time on unused results: logits and the last layer at tokens that are not hidden, a padding
mask without padding, and a slow dropout. Losses and gradients equal the stock ones.
"""

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding, gelu

from r2mae.text.kernels import vocabulary_losses
from r2mae.text.layers import attend_at
from r2mae.text.models import RobertaSettings as Settings
from r2mae.text.task import TokenModel, TokenTask
from r2mae.text.tokenizer import tokenizer_of
from r2mae.training.dropout import add_dropped, drop
from r2mae.training.models import saved_layers
from r2mae.training.units import within

if TYPE_CHECKING:
    from transformers import RobertaForMaskedLM

__all__ = ["MaskedLanguageModel", "Settings", "build"]

_POSITIONS = 512  # as in stock RoBERTa, so that a model pretrained on short sequences can be fine-tuned on longer ones
# The second name of each tied tensor in `RobertaForMaskedLM`, and its first name.
_TIED = {
    "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
    "lm_head.decoder.bias": "lm_head.bias",
}


class MaskedLanguageModel(TokenModel):
    """RobertaForMaskedLM with a forward pass for hidden tokens (RoBERTa appendix of the paper).

    Parameters
    ----------
    vocab_size, hidden_size, layers, heads, intermediate_size : int
        Sizes. The embedding of the tokens is tied to the vocabulary head.
    length : int
        Length of the longest sequence. There are at least 512 positions, as in stock RoBERTa.
    pad_id, bos_id, eos_id : int
        Numbers of the special tokens. RoBERTa counts positions from ``pad_id + 1``, so a tokenizer whose padding token
        has a high number gives a large table of positions.
    dropout : float
        Dropout of hidden states and attention probabilities.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        hidden_size: int = 512,
        layers: int = 8,
        heads: int = 8,
        intermediate_size: int = 2048,
        length: int = 128,
        pad_id: int = 1,
        bos_id: int = 0,
        eos_id: int = 2,
        dropout: float = 0.1,
    ) -> None:
        from transformers import RobertaConfig, RobertaForMaskedLM

        super().__init__()
        if hidden_size % heads:
            raise ValueError(f"hidden_size {hidden_size} is not a multiple of the {heads} heads")
        self.config = RobertaConfig(
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=intermediate_size,
            max_position_embeddings=pad_id + 1 + max(length, _POSITIONS),
            type_vocab_size=1,
            layer_norm_eps=1e-5,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
            pad_token_id=pad_id,
            bos_token_id=bos_id,
            eos_token_id=eos_id,
        )
        stock = RobertaForMaskedLM(self.config)
        self.roberta, self.lm_head = stock.roberta, stock.lm_head
        self.register_state_dict_post_hook(_leave_out_tied)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(_put_in_tied)  # type: ignore[no-untyped-call]

    @classmethod
    def from_architecture(cls, architecture: Mapping[str, Any]) -> "MaskedLanguageModel":
        """Build from the plain values of a run folder."""
        names = ("vocab_size", "hidden_size", "heads", "intermediate_size", "length")
        sizes = {name: int(architecture[name]) for name in (*names, "pad_id", "bos_id", "eos_id")}
        return cls(**sizes, layers=saved_layers(architecture), dropout=float(architecture["dropout"]))

    def side_files(self, architecture: Mapping[str, Any]) -> dict[str, str]:
        """Return the files of configuration and tokenizer that Hugging Face's libraries load with the weights."""
        config = copy.deepcopy(self.config)
        config.architectures = ["RobertaForMaskedLM"]
        made = {"config.json": str(config.to_json_string())}
        if "tokenizer" not in architecture:
            return made
        longest = config.max_position_embeddings - architecture["pad_id"] - 1
        files = tokenizer_of(architecture).files(max_length=longest)
        rules = architecture["tokenizer"]  # unchanged, independent of the version of the tokenizers library
        return {**made, "tokenizer_config.json": files["tokenizer_config.json"], "tokenizer.json": rules}

    def units(self) -> list[nn.Module]:
        """Return the layers; see :class:`r2mae.training.units.HasUnits`."""
        return [*self.roberta.encoder.layer]

    def stock(self) -> "RobertaForMaskedLM":
        """Return a ``RobertaForMaskedLM`` that shares these parameters."""
        from transformers import RobertaForMaskedLM

        with torch.device("meta"):
            model = RobertaForMaskedLM(self.config)
        model.roberta, model.lm_head = self.roberta, self.lm_head
        model.train(self.training)
        return model

    def forward(
        self,
        input_ids: Int[Tensor, "batch length"],
        columns: Int[Tensor, "batch most"],
        targets: Int[Tensor, " units"],
        units: Int[Tensor, " units"] | None = None,
    ) -> tuple[Float[Tensor, " units"], Float[Tensor, "units width"]]:
        """Return cross entropies of hidden tokens, and the last hidden states there; see :class:`TokenModel`."""
        module = self.roberta.embeddings
        table = module.word_embeddings.weight
        words = embedding(input_ids, table, padding_idx=module.padding_idx)
        states = self._layers(self._embed(words), None, columns).flatten(0, 1)
        if units is not None:
            states = states.index_select(0, units)
        return vocabulary_losses(self.transform(states), table, self.lm_head.decoder.bias, targets), states

    def encode(
        self,
        input_ids: Int[Tensor, "batch length"],
        *,
        columns: Int[Tensor, "batch most"] | None = None,
        attention_mask: Bool[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch places width"]:
        """Return the last hidden states; see :class:`TokenModel`. The last layer is computed only at `columns`."""
        module = self.roberta.embeddings
        words = embedding(input_ids, module.word_embeddings.weight, padding_idx=module.padding_idx)
        return self._layers(self._embed(words), attention_mask, columns)

    def _layers(self, states: Tensor, attention_mask: Tensor | None, columns: Tensor | None) -> Tensor:
        mask = None if attention_mask is None else attention_mask[:, None, None, :]
        last = len(self.roberta.encoder.layer) - 1
        for number, layer in enumerate(self.roberta.encoder.layer):
            states = within(layer, self._layer, layer, states, mask, columns if number == last else None)
        return states

    def head(self, states: Float[Tensor, "*units width"]) -> Float[Tensor, "*units words"]:
        """Return logits over the vocabulary."""
        logits: Tensor = self.lm_head.decoder(self.transform(states))
        return logits

    def transform(self, states: Float[Tensor, "*units width"]) -> Float[Tensor, "*units width"]:
        """Return the head's features of hidden states, before the product with the vocabulary."""
        features: Tensor = self.lm_head.layer_norm(gelu(self.lm_head.dense(states)))
        return features

    def _embed(self, words: Tensor) -> Tensor:
        """Add positions to embedded tokens."""
        module, length = self.roberta.embeddings, words.shape[1]
        first, positions = module.padding_idx + 1, module.position_embeddings.weight
        if length > len(positions) - first:
            raise ValueError(f"sequences have {length} tokens, and the model has {len(positions) - first} positions")
        place = positions[first : first + length] + module.token_type_embeddings.weight[0]
        rate = self.config.hidden_dropout_prob if self.training else 0.0
        return drop(module.LayerNorm(words + place), rate)

    def _layer(self, layer: nn.Module, states: Tensor, mask: Tensor | None, columns: Tensor | None) -> Tensor:
        """Apply one layer; with `columns` only at these tokens, which attend to all tokens."""
        attention: Any = layer.attention
        own, out = attention.self, attention.output
        rate = self.config.attention_probs_dropout_prob if self.training else 0.0
        context, states = attend_at(states, own, columns, mask, rate)
        states = out.LayerNorm(self._add_dropped(states, out.dense(context)))
        inner: Any = layer.intermediate
        outer: Any = layer.output
        return outer.LayerNorm(self._add_dropped(states, outer.dense(gelu(inner.dense(states)))))  # type: ignore[no-any-return]

    def _add_dropped(self, residual: Tensor, states: Tensor) -> Tensor:
        return add_dropped(residual, states, self.config.hidden_dropout_prob if self.training else 0.0)


def build(architecture: Mapping[str, Any]) -> tuple[TokenTask, MaskedLanguageModel]:
    """Return the task and a freshly initialised model; see :mod:`r2mae.text.models`."""
    model = MaskedLanguageModel.from_architecture(architecture)
    model.tokenizer = tokenizer_of(architecture)
    return TokenTask.from_architecture(architecture), model


def _leave_out_tied(module: nn.Module, state: dict[str, Any], prefix: str, metadata: object) -> None:
    for second in _TIED:
        state.pop(prefix + second, None)


def _put_in_tied(module: nn.Module, state: dict[str, Any], prefix: str, *details: object) -> None:
    for second, first in _TIED.items():
        if prefix + first in state:
            state.setdefault(prefix + second, state[prefix + first])
