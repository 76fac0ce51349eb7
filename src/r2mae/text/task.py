"""Masked tokens: hide a fraction of a sequence's ordinary tokens, and predict them from the rest.

A batch is an integer tensor (batch, length) of tokens, packed without padding.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor, nn

from r2mae.masking.curriculum import UnitWeights
from r2mae.masking.keys import Key
from r2mae.masking.masks import RatioLike, corrupt_tokens, hidden_count, token_mask
from r2mae.masking.schemes import Curriculum
from r2mae.training.task import Corrupted, Output, Task

if TYPE_CHECKING:
    from r2mae.text.tokenizer import TextTokenizer

Corruption = Literal["80-10-10", "mask"]
# Shares of the mask token, of random tokens, and of unchanged tokens.
SHARES: dict[Corruption, tuple[float, float, float]] = {"80-10-10": (0.8, 0.1, 0.1), "mask": (1.0, 0.0, 0.0)}


class TokenModel(nn.Module, ABC):
    """A masked language model that :class:`TokenTask` trains."""

    tokenizer: "TextTokenizer | None" = None  # set for the model of a run folder

    @abstractmethod
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
            The hidden tokens of each row; shorter rows are filled with any other tokens.
        targets : integer tensor, shape (units,)
            The clean tokens at `units`.
        units : integer tensor, shape (units,), optional
            Which of the flattened `columns` are used; all by default.

        Returns
        -------
        losses : Float tensor, shape (units,)
            Cross entropies in nats.
        states : Float tensor, shape (units, width)
            The last hidden states.
        """

    @abstractmethod
    def encode(
        self,
        input_ids: Int[Tensor, "batch length"],
        *,
        columns: Int[Tensor, "batch most"] | None = None,
        attention_mask: Bool[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch places width"]:
        """Return the last hidden states at all tokens, or only at those in `columns`.

        Parameters
        ----------
        input_ids : integer tensor, shape (batch, length)
            Tokens.
        columns : integer tensor, shape (batch, most), optional
            The tokens of each row whose states are returned.
        attention_mask : Bool tensor, shape (batch, length), optional
            False at padding, which is at the end of rows; without it there is no padding.

        Raises
        ------
        ValueError
            If the rows are longer than the model's maximum.
        """

    @abstractmethod
    def head(self, states: Float[Tensor, "*units width"]) -> Float[Tensor, "*units words"]:
        """Return logits over the vocabulary."""


class HiddenTokens(Corrupted):
    """A mini-batch with hidden tokens.

    Parameters
    ----------
    inputs : int64 tensor, shape (batch, length)
        The corrupted tokens, as the model receives them.
    hidden : Bool tensor, shape (batch, length)
        True where a token is hidden.
    special : Bool tensor, shape (batch, length)
        True where a token may not be hidden.
    columns : int64 tensor, shape (batch, most)
        The hidden tokens of each row, in increasing order, then other tokens: rows are equally long.
    targets : int64 tensor, shape (units,)
        The clean tokens at hidden places.
    units : int64 tensor, shape (units,), optional
        Which of the flattened `columns` are hidden; None with `real`.
    real : Float tensor, shape (units,), optional
        1 for hidden tokens, 0 for units that only fill a row. On a CPU the filling units are omitted. On a device
        finding them would require synchronising, so they are computed and discarded.
    """

    def __init__(
        self,
        *,
        inputs: Tensor,
        hidden: Bool[Tensor, "batch length"],
        special: Bool[Tensor, "batch length"],
        columns: Int64[Tensor, "batch most"],
        targets: Int64[Tensor, " units"],
        units: Int64[Tensor, " units"] | None,
        real: Float[Tensor, " units"] | None,
    ) -> None:
        given = locals()
        for name in ("inputs", "hidden", "special", "columns", "targets", "units", "real"):
            object.__setattr__(self, name, given[name])
        object.__setattr__(self, "weights", None)

    special: Tensor
    columns: Tensor
    units: Tensor | None
    real: Tensor | None

    @property
    def entries(self) -> int:
        """How many tokens could have been hidden. It is computed on access, since that synchronises the device."""
        return int((~self.special).sum())

    def loss_rows(self) -> Int64[Tensor, " units"]:
        """Return the row of each unit."""
        rows, most = self.columns.shape
        if self.units is not None:
            return self.units // most
        return torch.arange(rows, device=self.columns.device).repeat_interleave(most)


class TokenOutput(Output):
    """Losses and last hidden states of the units; logits are computed on access.

    Parameters
    ----------
    losses : Float tensor, shape (units,)
        Cross entropies in nats.
    representation : Float tensor, shape (units, width)
        Last hidden states.
    model : TokenModel
        The model whose head computes the logits.
    """

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
        return self.model.head(self.representation)


@dataclass(frozen=True)
class TokenTask(Task[Any, "TokenModel"]):
    """Masked language modelling (RoBERTa appendix of the paper).

    Parameters
    ----------
    vocab_size : int
        Number of tokens of the vocabulary.
    special_ids : tuple of int
        Tokens that are never hidden, and never replace another token.
    mask_id, pad_id : int
        Numbers of the mask and padding tokens.
    width : int
        Width of the hidden states.
    corruption : {"80-10-10", "mask"}
        The replacement of a hidden token: the mask token, a random one or itself, as in BERT; or always the mask token.
    exact : bool
        Hide the rounded count of each row's ordinary tokens, instead of each token independently.
    """

    vocab_size: int
    special_ids: tuple[int, ...]
    mask_id: int
    pad_id: int
    width: int
    corruption: Corruption = "80-10-10"
    exact: bool = True

    @classmethod
    def from_architecture(cls, architecture: Mapping[str, Any]) -> "TokenTask":
        """Build from the plain values of a run folder."""
        if architecture["corruption"] not in SHARES:
            raise ValueError(f"corruption is one of {', '.join(SHARES)}, not {architecture['corruption']!r}")
        return cls(
            vocab_size=int(architecture["vocab_size"]),
            special_ids=tuple(int(one) for one in architecture["special_ids"]),
            mask_id=int(architecture["mask_id"]),
            pad_id=int(architecture["pad_id"]),
            width=int(architecture["hidden_size"]),
            corruption=architecture["corruption"],
            exact=bool(architecture.get("exact", True)),  # older run folders do not record it
        )

    @property
    def with_fixed_counts(self) -> "TokenTask":
        """The same task, hiding exactly the rounded count in every row."""
        return replace(self, exact=True)

    def special(self, ids: Int[Tensor, "batch length"]) -> Bool[Tensor, "batch length"]:
        """Return a mask of special tokens and padding."""
        return special_tokens(ids, (*self.special_ids, self.pad_id))

    def corrupt(self, batch: Int[Tensor, "batch length"], ratio: RatioLike, key: Key) -> HiddenTokens:
        """Hide tokens; see :func:`r2mae.masking.token_mask` and :func:`r2mae.masking.corrupt_tokens`.

        Parameters
        ----------
        batch : integer tensor, shape (batch, length)
            Tokens.
        ratio : float or ndarray of shape (batch,)
            Fraction of each row's ordinary tokens to hide.
        key : Key
            ``key.row`` is the row of the first sequence in the global batch.
        """
        clean = batch.long()
        special = self.special(clean)
        hidden = token_mask(special, ratio, key, exact=self.exact)
        vocabulary = _ordinary_tokens(self.vocab_size, self.special_ids, clean.device)
        inputs = corrupt_tokens(
            clean,
            hidden,
            key.fold("corruption"),
            mask_id=self.mask_id,
            vocabulary=vocabulary,
            shares=SHARES[self.corruption],
        )
        columns = torch.sort(hidden.to(torch.uint8), dim=1, stable=True, descending=True).indices
        columns = columns[:, : self._column_count(hidden, ratio)]
        real, targets = hidden.gather(1, columns).flatten(), clean.gather(1, columns).flatten()
        units = None
        if hidden.device.type == "cpu":
            units = real.nonzero()[:, 0]
            targets = targets.index_select(0, units)
        return HiddenTokens(
            inputs=inputs,
            hidden=hidden,
            special=special,
            columns=columns,
            targets=targets,
            units=units,
            real=None if units is not None else real.float(),
        )

    def forward(self, model: TokenModel, corrupted: HiddenTokens) -> TokenOutput:
        """Return the losses at hidden tokens, and the last hidden states there."""
        losses, states = model(corrupted.inputs, corrupted.columns, corrupted.targets, corrupted.units)
        return TokenOutput(losses, states, model)

    def losses(self, output: TokenOutput, corrupted: HiddenTokens) -> Float[Tensor, " units"]:
        """Return the cross entropy of each hidden token, in nats; 0 for units that only fill a row."""
        return output.losses if corrupted.real is None else output.losses * corrupted.real

    @torch.no_grad()
    def embed(self, model: TokenModel, batch: Int[Tensor, "batch length"]) -> Float[Tensor, "batch width"]:
        """Return the mean of the last hidden states over the ordinary tokens of each row (0 for a row without any).

        Rows may end with padding, which no token attends to.
        """
        unpadded = batch != self.pad_id
        states = model.encode(batch, attention_mask=None if bool(unpadded.all()) else unpadded)
        ordinary = (~self.special(batch))[..., None]
        total: Tensor = (states * ordinary).sum(1) / ordinary.sum(1).clamp(min=1)
        return total

    def weight_network(self, curriculum: Curriculum) -> nn.Module:
        """Return a network from a hidden token's last hidden state to one weight per ratio."""
        return UnitWeights(self.width, curriculum)

    def learned_weights(
        self, network: nn.Module, corrupted: HiddenTokens, output: TokenOutput
    ) -> Float[Tensor, "units ratios"]:
        """Return the weights of this mini-batch's hidden tokens, normalised over them."""
        if corrupted.real is None:
            weights: Tensor = network(output.representation)
            return weights
        places = corrupted.real.nonzero()[:, 0]  # synchronises the device, with curricula only
        found: Tensor = network(output.representation.index_select(0, places))
        return found.new_zeros(len(corrupted.real), found.shape[1]).index_copy(0, places, found)

    def _column_count(self, hidden: Tensor, ratio: RatioLike) -> int:
        """Return the largest number of hidden tokens in a row, on a device an upper bound that needs no waiting."""
        if hidden.device.type == "cpu" or not self.exact:
            return max(1, int(hidden.sum(1).max()))
        return hidden_count(hidden.shape[1], float(np.max(ratio)))


def special_tokens(ids: Int[Tensor, "*shape"], special_ids: tuple[int, ...]) -> Bool[Tensor, "*shape"]:
    """Return a mask of the places with one of these tokens."""
    found = torch.zeros_like(ids, dtype=torch.bool)
    for one in sorted(set(special_ids)):
        found |= ids == one
    return found


@lru_cache(maxsize=8)
def _ordinary_tokens(vocab_size: int, special_ids: tuple[int, ...], device: torch.device) -> Tensor:
    """Return the tokens that may replace another."""
    kept = np.setdiff1d(np.arange(vocab_size), special_ids)
    return torch.from_numpy(kept).to(device)
