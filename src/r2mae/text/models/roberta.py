"""RoBERTa as a masked language model that computes only what the loss needs.

The parameters and their names are those of transformers' ``RobertaForMaskedLM``. The forward pass computes the last
layer and the logits at hidden tokens alone, where the stock one computes them at all tokens and a padding mask without
padding. Losses and gradients equal the stock ones.
"""

from collections.abc import Mapping
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import dropout, gelu, scaled_dot_product_attention

from r2mae.text.config import RobertaSettings as Settings
from r2mae.text.models.pretrained import PretrainedModel
from r2mae.text.task import Columns, Tokens, TokenTask
from r2mae.text.tokenizer import tokenizer_of
from r2mae.training.models import saved_layers
from r2mae.training.task import within

__all__ = ["MaskedLanguageModel", "Settings", "build"]

_POSITIONS = 512  # as in stock RoBERTa, so that a model pretrained on short sequences can be fine-tuned on longer ones


class MaskedLanguageModel(PretrainedModel):
    """RobertaForMaskedLM with a forward pass for hidden tokens (RoBERTa appendix of the paper).

    The embedding of the tokens is tied to the vocabulary head. RoBERTa counts positions from ``pad_id + 1``, so a
    tokenizer whose padding token has a high number gives a large table of positions.
    """

    roberta: Any
    lm_head: Any
    positions: int

    @classmethod
    def from_architecture(cls, architecture: Mapping[str, Any]) -> "MaskedLanguageModel":
        """Build from the plain values of a run folder, freshly initialised."""
        from transformers import RobertaConfig, RobertaForMaskedLM

        pad, dropout = int(architecture["pad_id"]), float(architecture["dropout"])
        config = RobertaConfig(
            vocab_size=int(architecture["vocab_size"]),
            hidden_size=int(architecture["hidden_size"]),
            num_hidden_layers=saved_layers(architecture),
            num_attention_heads=int(architecture["heads"]),
            intermediate_size=int(architecture["intermediate_size"]),
            max_position_embeddings=pad + 1 + max(int(architecture["length"]), _POSITIONS),
            type_vocab_size=1,
            layer_norm_eps=1e-5,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
            pad_token_id=pad,
            bos_token_id=int(architecture["bos_id"]),
            eos_token_id=int(architecture["eos_id"]),
        )
        return cls(RobertaForMaskedLM(config))

    def encode(
        self, input_ids: Tokens, *, columns: Columns | None = None, attention_mask: Tensor | None = None
    ) -> Float[Tensor, "batch places width"]:
        """Return the last hidden states; see :class:`TokenModel`. The last layer is computed only at `columns`."""
        module, length = self.roberta.embeddings, input_ids.shape[1]
        first, positions = module.padding_idx + 1, module.position_embeddings.weight
        if length > self.positions:
            raise ValueError(f"sequences have {length} tokens, and the model has {self.positions} positions")
        places = positions[first : first + length] + module.token_type_embeddings.weight[0]
        states = self._drop(module.LayerNorm(module.word_embeddings(input_ids) + places))
        mask = None if attention_mask is None else attention_mask[:, None, None, :]
        last = self.roberta.encoder.layer[-1]
        for layer in self.roberta.encoder.layer:
            states = within(layer, self._layer, layer, states, mask, columns if layer is last else None)
        return states

    def logits(self, states: Float[Tensor, "*units width"]) -> Float[Tensor, "*units words"]:
        """Return logits over the vocabulary."""
        features = self.lm_head.layer_norm(gelu(self.lm_head.dense(states)))
        logits: Tensor = self.lm_head.decoder(features)
        return logits

    def _layer(self, layer: nn.Module, states: Tensor, mask: Tensor | None, columns: Tensor | None) -> Tensor:
        """Apply one layer; with `columns` only at these tokens, which attend to all tokens."""
        attention: Any = layer.attention
        inner: Any = layer.intermediate
        outer: Any = layer.output
        own = attention.self
        key, value = self._split(own.key(states)), self._split(own.value(states))
        if columns is not None:
            states = states.gather(1, columns[..., None].expand(-1, -1, states.shape[-1]))
        rate = self.config.attention_probs_dropout_prob if self.training else 0.0
        query = self._split(own.query(states))
        context = scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=rate)
        context = attention.output.dense(context.transpose(1, 2).flatten(2))
        states = attention.output.LayerNorm(states + self._drop(context))
        found: Tensor = outer.LayerNorm(states + self._drop(outer.dense(gelu(inner.dense(states)))))
        return found

    def _split(self, joint: Tensor) -> Tensor:
        """Divide the width among heads."""
        return joint.view(*joint.shape[:2], self.config.num_attention_heads, -1).transpose(1, 2)

    def _drop(self, states: Tensor) -> Tensor:
        return dropout(states, self.config.hidden_dropout_prob, self.training)


def build(architecture: Mapping[str, Any]) -> tuple[TokenTask, MaskedLanguageModel]:
    """Return the task and a freshly initialised model; see :mod:`r2mae.text.models`."""
    model = MaskedLanguageModel.from_architecture(architecture)
    model.tokenizer = tokenizer_of(architecture)
    return TokenTask.from_architecture(architecture), model
