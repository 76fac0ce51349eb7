"""Masked tokens: hide a fraction of a sequence's ordinary tokens, and predict them from the rest.

A batch is an integer tensor (batch, length) of tokens, packed without padding.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from r2mae.domains.masked_tokens import MaskedTokens, MaskedTokenTask, mean_state, word_edges
from r2mae.masking.keys import Key
from r2mae.masking.masks import RatioLike
from r2mae.training.task import Output

if TYPE_CHECKING:
    from r2mae.text.tokenizer import TextTokenizer


_STATES = 2048  # whose logits are computed at a time where no gradients are kept
Tokens = Int[Tensor, "batch length"]
Columns = Int[Tensor, "batch most"]
"""Places of tokens, equally many in each row."""
Logits = Callable[[slice], Float[Tensor, "part words"]]
"""Returns the logits at a part of the units."""


class TokenModel(nn.Module, ABC):
    """A masked language model that :class:`TokenTask` trains. A model defines :meth:`encode` and :meth:`logits`."""

    tokenizer: "TextTokenizer | None" = None  # set for the model of a run folder

    @abstractmethod
    def encode(
        self, input_ids: Tokens, *, columns: Columns | None = None, attention_mask: Tensor | None = None
    ) -> Float[Tensor, "batch places width"]:
        """Return the last hidden states at all tokens, or only at the `columns` of each row.

        Parameters
        ----------
        input_ids : integer tensor, shape (batch, length)
        columns : integer tensor, shape (batch, most), optional
        attention_mask : Bool tensor, shape (batch, length), optional
            False at padding, which is at the end of rows; without it there is no padding.
        """

    @abstractmethod
    def logits(self, states: Float[Tensor, "*units width"]) -> Float[Tensor, "*units words"]:
        """Return logits over the vocabulary."""

    def forward(
        self, input_ids: Tokens, columns: Columns, targets: Int[Tensor, " units"]
    ) -> tuple[Float[Tensor, " units"], Float[Tensor, "units width"]]:
        """Return cross entropies at the flattened `columns` in nats, and the last hidden states there.

        Shorter rows of the columns are filled with any other tokens; `targets` are the clean tokens there.
        """
        states, logits = self.at_hidden(input_ids, columns)
        parts = [slice(None)]  # whole: compiled code has no other length for it
        if not torch.is_grad_enabled():
            parts = [slice(first, first + _STATES) for first in range(0, len(states) or 1, _STATES)]
        losses = [cross_entropy(logits(part).float(), targets[part], reduction="none") for part in parts]
        return torch.cat(losses), states

    def at_hidden(self, input_ids: Tokens, columns: Columns) -> tuple[Float[Tensor, "units width"], Logits]:
        """Return the last hidden states at the flattened columns, and a function from a part of them to its logits."""
        states = self.encode(input_ids, columns=columns).flatten(0, 1)
        return states, lambda part: self.logits(states[part])


@dataclass(frozen=True, kw_only=True)
class HiddenTokens(MaskedTokens):
    """A mini-batch with hidden tokens. Its units are the flattened `columns`, and `targets` are the tokens there.

    Parameters
    ----------
    real : Float tensor, shape (units,)
        1 for hidden tokens, 0 for units that only fill a row.
    """

    real: Tensor

    def loss_rows(self) -> Int64[Tensor, " units"]:
        """Return the row of each unit."""
        rows, most = self.columns.shape
        return torch.arange(rows, device=self.columns.device).repeat_interleave(most)


class TokenOutput(Output):
    """Cross entropies in nats and last hidden states of the units; the model computes logits on access."""

    def __init__(
        self, losses: Float[Tensor, " units"], representation: Float[Tensor, "units width"], model: TokenModel
    ) -> None:
        object.__setattr__(self, "losses", losses)
        object.__setattr__(self, "representation", representation)
        object.__setattr__(self, "model", model)

    losses: Tensor
    model: TokenModel

    @property
    def prediction(self) -> Float[Tensor, "units words"]:
        """Logits over the vocabulary at the units."""
        return self.model.logits(self.representation)


@dataclass(frozen=True, kw_only=True)
class TokenTask(MaskedTokenTask):
    """Masked language modelling (RoBERTa appendix of the paper).

    Parameters
    ----------
    vocab_size : int
        Number of tokens of the vocabulary.
    special_ids : tuple of int
        Tokens that are never hidden, and never replace another token.
    mask_id, pad_id : int
        Numbers of the mask and padding tokens.
    tokenizer : str
        Its tokenizer.json, for whole words.
    """

    vocab_size: int
    special_ids: tuple[int, ...]
    mask_id: int
    pad_id: int
    tokenizer: str = field(default="", repr=False)

    @classmethod
    def from_architecture(cls, architecture: Mapping[str, Any]) -> "TokenTask":
        """Build from the plain values of a run folder."""
        return cls(
            vocab_size=int(architecture["vocab_size"]),
            special_ids=tuple(int(one) for one in architecture["special_ids"]),
            mask_id=int(architecture["mask_id"]),
            pad_id=int(architecture["pad_id"]),
            width=int(architecture["hidden_size"]),
            corruption=architecture["corruption"],
            exact=bool(architecture["exact"]),
            units=architecture.get("units", "tokens"),
            tokenizer=architecture["tokenizer"] if architecture.get("units") == "whole-word" else "",
        )

    def edges(self) -> Bool[Tensor, "2 words"]:
        """Return which tokens begin and end words."""
        return _edges(self.tokenizer, self.vocab_size)

    def ordinary(self, ids: Tokens) -> Bool[Tensor, "batch length"]:
        """Return a mask of the tokens that are neither special nor padding."""
        special = torch.zeros_like(ids, dtype=torch.bool)
        for one in sorted({*self.special_ids, self.pad_id}):
            special |= ids == one
        return ~special

    def corrupt(self, batch: Tokens, ratio: RatioLike, key: Key) -> HiddenTokens:
        """Hide ordinary tokens; see :meth:`hide`."""
        clean = batch.long()
        candidates = self.ordinary(clean)
        vocabulary = _ordinary_tokens(self.vocab_size, self.special_ids, clean.device)
        inputs, hidden, columns = self.hide(clean, candidates, ratio, key, mask_id=self.mask_id, vocabulary=vocabulary)
        return HiddenTokens(
            inputs=inputs,
            hidden=hidden,
            candidates=candidates,
            columns=columns,
            targets=clean.gather(1, columns).flatten(),
            real=hidden.gather(1, columns).flatten().float(),
        )

    def forward(self, model: TokenModel, corrupted: HiddenTokens) -> TokenOutput:
        """Return the losses at hidden tokens, and the last hidden states there."""
        losses, states = model(corrupted.inputs, corrupted.columns, corrupted.targets)
        return TokenOutput(losses, states, model)

    def losses(self, output: TokenOutput, corrupted: HiddenTokens) -> Float[Tensor, " units"]:
        """Return the cross entropy of each hidden token, in nats; 0 for units that only fill a row."""
        return output.losses * corrupted.real

    @torch.no_grad()
    def embed(self, model: TokenModel, batch: Tokens) -> Float[Tensor, "batch width"]:
        """Return the mean of the last hidden states over the ordinary tokens of each row (0 for a row without any).

        Rows may end with padding, which no token attends to.
        """
        unpadded = batch != self.pad_id
        states = model.encode(batch, attention_mask=None if bool(unpadded.all()) else unpadded)
        return mean_state(states, self.ordinary(batch))

    def learned_weights(
        self, network: nn.Module, corrupted: HiddenTokens, output: TokenOutput
    ) -> Float[Tensor, "units ratios"]:
        """Return the weights of this mini-batch's hidden tokens, normalised over them."""
        places = corrupted.real.nonzero()[:, 0]  # synchronises the device, with curricula only
        found: Tensor = network(output.representation.index_select(0, places))
        return found.new_zeros(len(corrupted.real), found.shape[1]).index_copy(0, places, found)


@lru_cache(maxsize=8)
def _edges(tokenizer: str, vocab_size: int) -> Bool[Tensor, "2 words"]:
    from tokenizers import Tokenizer

    backend = Tokenizer.from_str(tokenizer)
    return word_edges(tuple(backend.id_to_token(number) or "" for number in range(vocab_size)))


@lru_cache(maxsize=8)
def _ordinary_tokens(vocab_size: int, special_ids: tuple[int, ...], device: torch.device) -> Tensor:
    """Return the tokens that may replace another."""
    kept = np.setdiff1d(np.arange(vocab_size), special_ids)
    return torch.from_numpy(kept).to(device)
