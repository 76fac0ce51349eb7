"""RoBERTa as a masked language model that computes only what the loss sees.

The parameters are those of transformers' ``RobertaForMaskedLM``, under its names; the forward pass is written out here,
since the stock one spends half its time on what is thrown away: logits and the last layer at tokens that are not
hidden, a mask for padding that is not there, and a slow dropout. Losses and gradients equal the stock ones.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout, embedding, gelu, linear, scaled_dot_product_attention

if TYPE_CHECKING:
    from transformers import RobertaForMaskedLM

    from r2mae.text.tokenizer import TextTokenizer

_POSITIONS = 512  # of stock RoBERTa, so that a model pretrained on short sequences can be fine-tuned on longer ones
_BLOCK = 1 << 25  # logits at a time where no gradients are kept, 128 MiB
# What a tied tensor is called a second time in `RobertaForMaskedLM`, and its first name.
_TIED = {
    "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
    "lm_head.decoder.bias": "lm_head.bias",
}


class MaskedLanguageModel(nn.Module):
    """RobertaForMaskedLM with a forward pass for hidden tokens (RoBERTa appendix of the paper).

    Parameters
    ----------
    vocab_size, hidden_size, layers, heads, intermediate_size : int
        Sizes. The embedding of the tokens is tied to the vocabulary head.
    length : int
        Longest sequence; there are at least 512 positions, as in stock RoBERTa.
    pad_id, bos_id, eos_id : int
        Numbers of the special tokens. RoBERTa counts its positions from ``pad_id + 1``, so that a tokenizer whose
        padding comes last makes a large table of positions.
    dropout : float
        Of hidden states and attention probabilities.
    """

    tokenizer: "TextTokenizer | None" = None  # of a run folder's model

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
        names = ("vocab_size", "hidden_size", "layers", "heads", "intermediate_size", "length")
        sizes = {name: int(architecture[name]) for name in (*names, "pad_id", "bos_id", "eos_id")}
        return cls(**sizes, dropout=float(architecture["dropout"]))

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
        """Return cross entropies of hidden tokens, and the last hidden states there.

        Parameters
        ----------
        input_ids : integer tensor, shape (batch, length)
            Corrupted tokens, without padding.
        columns : integer tensor, shape (batch, most)
            Which tokens of each row are hidden; rows are equally long, and filled with any other tokens.
        targets : integer tensor, shape (units,)
            The clean tokens at `units`.
        units : integer tensor, shape (units,), optional
            Which of the flattened `columns` count; all by default.

        Returns
        -------
        losses : Float tensor, shape (units,)
            In nats.
        states : Float tensor, shape (units, width)
        """
        module = self.roberta.embeddings
        words, table = _look_up(input_ids, module.word_embeddings.weight, module.padding_idx)
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
        """Return the last hidden states, of all tokens or of those in `columns` alone.

        Parameters
        ----------
        input_ids : integer tensor, shape (batch, length)
            Tokens.
        columns : integer tensor, shape (batch, most), optional
            Tokens of each row whose states are asked for; the last layer is computed for these alone.
        attention_mask : Bool tensor, shape (batch, length), optional
            False at padding, which comes at the end of rows; without it nothing is taken for padding.

        Raises
        ------
        ValueError
            If the rows are longer than the model has positions.
        """
        module = self.roberta.embeddings
        words = embedding(input_ids, module.word_embeddings.weight, padding_idx=module.padding_idx)
        return self._layers(self._embed(words), attention_mask, columns)

    def _layers(self, states: Tensor, attention_mask: Tensor | None, columns: Tensor | None) -> Tensor:
        mask = None if attention_mask is None else attention_mask[:, None, None, :]
        last = len(self.roberta.encoder.layer) - 1
        for number, layer in enumerate(self.roberta.encoder.layer):
            states = self._layer(layer, states, mask, columns if number == last else None)
        return states

    def head(self, states: Float[Tensor, "*units width"]) -> Float[Tensor, "*units words"]:
        """Return logits over the vocabulary."""
        logits: Tensor = self.lm_head.decoder(self.transform(states))
        return logits

    def transform(self, states: Float[Tensor, "*units width"]) -> Float[Tensor, "*units width"]:
        """Return what the head makes of hidden states before it compares them with the vocabulary."""
        features: Tensor = self.lm_head.layer_norm(gelu(self.lm_head.dense(states)))
        return features

    def _embed(self, words: Tensor) -> Tensor:
        """Add positions to embedded tokens."""
        module, length = self.roberta.embeddings, words.shape[1]
        first, positions = module.padding_idx + 1, module.position_embeddings.weight
        if length > len(positions) - first:
            raise ValueError(f"sequences of {length} tokens, and the model has {len(positions) - first} positions")
        place = positions[first : first + length] + module.token_type_embeddings.weight[0]
        return self._drop(module.LayerNorm(words + place))

    def _layer(self, layer: nn.Module, states: Tensor, mask: Tensor | None, columns: Tensor | None) -> Tensor:
        """Apply one layer; with `columns`, at these tokens alone (which attend to all)."""
        attention: Any = layer.attention
        own, out = attention.self, attention.output
        batch, length, width = states.shape
        heads = own.num_attention_heads
        if columns is None:
            projected = _joint(states, own.query, own.key, own.value).view(batch, length, 3, heads, -1)
            query, key, value = projected.permute(2, 0, 3, 1, 4)
        else:
            projected = _joint(states, own.key, own.value).view(batch, length, 2, heads, -1)
            key, value = projected.permute(2, 0, 3, 1, 4)
            rows = torch.arange(0, batch * length, length, device=columns.device)[:, None] + columns
            states = states.flatten(0, 1).index_select(0, rows.flatten()).view(batch, -1, width)
            query = own.query(states).view(batch, -1, heads, width // heads).transpose(1, 2)
        rate = self.config.attention_probs_dropout_prob if self.training else 0.0
        context = attend(query, key, value, mask, rate).transpose(1, 2).reshape(batch, -1, width)
        states = out.LayerNorm(self._drop(out.dense(context)) + states)
        inner: Any = layer.intermediate
        outer: Any = layer.output
        return outer.LayerNorm(self._drop(outer.dense(gelu(inner.dense(states)))) + states)  # type: ignore[no-any-return]

    def _drop(self, states: Tensor) -> Tensor:
        return drop(states, self.config.hidden_dropout_prob) if self.training else states


def attend(
    query: Float[Tensor, "batch heads places width"],
    key: Float[Tensor, "batch heads length width"],
    value: Float[Tensor, "batch heads length width"],
    mask: Bool[Tensor, "batch 1 1 length"] | None,
    rate: float,
) -> Float[Tensor, "batch heads places width"]:
    """Return softmax(QKᵀ/√d)V with dropout of the probabilities; False in `mask` is not attended to."""
    if rate == 0 or not _plain_cpu(query):
        return scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=rate)
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return drop(torch.softmax(scores, -1), rate) @ value


def drop(states: Float[Tensor, "*shape"], rate: float) -> Float[Tensor, "*shape"]:
    """Apply dropout; on a CPU from 16 random bits an entry, which takes a fifth of the time of torch's own.

    The rate is then a multiple of 2⁻¹⁶ (0.1 becomes 0.100006), and the scale its exact counterpart.
    """
    if rate == 0 or not _plain_cpu(states):
        return dropout(states, rate)
    count, dropped = states.numel(), round(rate * 65536)
    bits = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)[:count]
    kept = bits.ge(dropped - 32768).to(states.dtype).mul_(65536 / (65536 - dropped))
    return states * kept.view(states.shape)


def vocabulary_losses(
    features: Float[Tensor, "units width"],
    weight: Float[Tensor, "words width"],
    bias: Float[Tensor, " words"],
    targets: Int[Tensor, " units"],
) -> Float[Tensor, " units"]:
    """Return the cross entropy of each unit over the whole vocabulary, in nats.

    Without gradients the logits are made and dropped in blocks. With gradients, on a CPU, they are turned in place into
    what the backward pass needs: the memory of one array of logits, where the stock way takes four.
    """
    if not torch.is_grad_enabled():
        block = max(1, _BLOCK // len(weight))
        parts = [slice(first, first + block) for first in range(0, max(1, len(features)), block)]
        return torch.cat([_cross_entropies(features[part], weight, bias, targets[part]) for part in parts])
    if _plain_cpu(features):
        return _VocabularyLoss.apply(features, weight, bias, targets.long())  # type: ignore[no-any-return, no-untyped-call]
    return _cross_entropies(features, weight, bias, targets)


def _cross_entropies(features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(linear(features, weight, bias).float(), targets.long(), reduction="none")


class _VocabularyLoss(torch.autograd.Function):
    """Cross entropies whose logits become the softmax minus one-hot targets where they lie."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        logits = torch.addmm(bias, features, weight.t())
        at = targets[:, None]
        chosen = logits.gather(1, at)
        highest = logits.amax(1, keepdim=True)
        torch.softmax(logits, 1, out=logits)  # row by row, so that it may write where it reads
        # The logarithm of the sum of exponentials, from the largest probability: it is never rounded to 0.
        losses = (highest - logits.amax(1, keepdim=True).log() - chosen)[:, 0]
        logits.scatter_add_(1, at, torch.full_like(chosen, -1.0))
        ctx.save_for_backward(features, weight, logits)
        return losses

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        features, weight, errors = ctx.saved_tensors
        each = grads[0][:, None]
        return (errors @ weight).mul_(each), errors.t() @ (features * each), errors.t().mv(grads[0]), None


def _look_up(ids: Tensor, table: Tensor, padding: int) -> tuple[Tensor, Tensor]:
    """Embed tokens, and return the table for the head that is tied to it."""
    if torch.is_grad_enabled() and _plain_cpu(table):
        return _TiedLookup.apply(ids, table, padding)  # type: ignore[no-any-return, no-untyped-call]
    return embedding(ids, table, padding_idx=padding), table


class _TiedLookup(torch.autograd.Function):
    """Adds the gradient of the tokens' embeddings to that of the head where it lies: one table, not three."""

    @staticmethod
    def forward(ctx: Any, ids: Tensor, table: Tensor, padding: int) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(ids)
        ctx.padding = padding
        return embedding(ids, table), table.view_as(table)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, None]:
        (ids,), (words, table) = ctx.saved_tensors, grads
        words = words.masked_fill((ids == ctx.padding)[..., None], 0.0).flatten(0, 1)
        # The head's gradient was made for this pass, and nothing else holds it.
        return None, table.index_add_(0, ids.flatten(), words), None


def _plain_cpu(tensor: Tensor) -> bool:
    """Whether the hand-written kernels apply: not on other devices, in compiled code (which fuses) or autocast."""
    return not (torch.compiler.is_compiling() or tensor.device.type != "cpu" or torch.is_autocast_enabled("cpu"))


def _joint(states: Tensor, *layers: nn.Linear) -> Tensor:
    """Apply several linear layers as one product."""
    return linear(states, torch.cat([one.weight for one in layers]), torch.cat([one.bias for one in layers]))


def _leave_out_tied(module: nn.Module, state: dict[str, Any], prefix: str, metadata: object) -> None:
    for second in _TIED:
        state.pop(prefix + second, None)


def _put_in_tied(module: nn.Module, state: dict[str, Any], prefix: str, *details: object) -> None:
    for second, first in _TIED.items():
        if prefix + first in state:
            state.setdefault(prefix + second, state[prefix + first])
