"""Masked tokens of sequences: the common part of the tasks of text and DNA.

A row of a batch hides a fraction of its tokens. Models compute losses at the hidden tokens alone, so these are gathered
in columns, equally many in each row.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from r2mae.masking.curriculum import UnitWeights
from r2mae.masking.keys import Key
from r2mae.masking.masks import RatioLike, corrupt_tokens, hidden_count, span_starts, token_mask
from r2mae.masking.schemes import Curriculum
from r2mae.training.task import MaskedBatch, Task

Corruption = Literal["80-10-10", "mask"]
SHARES: dict[Corruption, tuple[float, float, float]] = {"80-10-10": (0.8, 0.1, 0.1), "mask": (1.0, 0.0, 0.0)}
"""Shares of the mask token, of random tokens, and of unchanged tokens."""
Units = Literal["tokens", "whole-word", "span"]
"""What is hidden: single tokens, all tokens of a word, or spans."""
_MARKERS = (("##",), ("▁",), ("Ġ", "Ċ", "ĉ"))  # of WordPiece: a word goes on; of others: a word begins


@lru_cache(maxsize=8)
def word_edges(vocabulary: tuple[str, ...]) -> Bool[Tensor, "2 words"]:
    """Return which tokens begin a word, and after which tokens one begins, by their spelling in the vocabulary.

    The marker that most tokens begin with tells the kind of tokenizer: ``##`` of WordPiece, ``▁`` of SentencePiece or
    ``Ġ`` of byte-level BPE. A sign such as a comma is a word. Without a marker every token is one.
    """
    counts = [sum(token.startswith(marker) for token in vocabulary) for marker in _MARKERS]
    marker = _MARKERS[int(np.argmax(counts))]
    ends = [(token[:1], token[-1:]) for token in vocabulary]
    first, last = torch.tensor([[end.isascii() and not end.isalnum() for end in pair] for pair in ends]).T
    marked = torch.tensor([token.startswith(marker) for token in vocabulary])
    if not max(counts):
        return torch.ones(2, len(vocabulary), dtype=torch.bool)
    if marker == ("##",):
        return torch.stack([~marked, torch.zeros_like(marked)])
    return torch.stack([marked | first, last])


def word_starts(
    ids: Int64[Tensor, "batch length"], special: Bool[Tensor, "batch length"], edges: Bool[Tensor, "2 words"]
) -> Bool[Tensor, "batch length"]:
    """Return where the words of sequences begin, for :func:`r2mae.masking.token_mask`; `edges`: :func:`word_edges`."""
    begins, after = edges.to(ids.device)[:, ids]
    starts: Tensor = begins | special
    starts[:, 1:] |= (after | special)[:, :-1]
    return starts


def hide_units(
    ids: Int64[Tensor, "batch length"],
    special: Bool[Tensor, "batch length"],
    ratio: RatioLike,
    key: Key,
    units: Units,
    edges: Bool[Tensor, "2 words"] | None = None,
    *,
    exact: bool = True,
) -> Bool[Tensor, "batch length"]:
    """Return the :func:`r2mae.masking.token_mask` of sequences by tokens, whole words (with their `edges`) or spans."""
    starts = None if edges is None else word_starts(ids, special, edges)
    if units == "span":
        starts = span_starts((len(ids), ids.shape[1]), key.fold("spans"), device=ids.device)
    return token_mask(special, ratio, key, exact=exact, starts=starts, cut=units == "span")


@dataclass(frozen=True, kw_only=True)
class MaskedTokens(MaskedBatch):
    """A mini-batch with hidden tokens.

    Parameters
    ----------
    inputs : int64 tensor, shape (batch, length)
        The corrupted tokens, as the model receives them.
    hidden : Bool tensor
        True where a token is hidden, in the shape of the inputs, or flattened.
    candidates : Bool tensor, shape (batch, length)
        True where a token could have been hidden.
    columns : int64 tensor, shape (batch, most)
        The hidden tokens of each row, in increasing order, then other tokens: rows are equally long.
    targets : int64 tensor
        The tokens to predict.
    weights : Float tensor, optional
        The task's own weights of the losses.
    """

    inputs: Int64[Tensor, "batch length"]
    hidden: Bool[Tensor, "..."]
    candidates: Bool[Tensor, "batch length"]
    columns: Int64[Tensor, "batch most"]
    targets: Int64[Tensor, "..."]
    weights: Float[Tensor, "..."] | None = None

    @property
    def entries(self) -> int:
        """Number of tokens that could have been hidden; computing it synchronises the device."""
        return int(self.candidates.sum())


@dataclass(frozen=True)
class MaskedTokenTask(Task[Any, Any]):
    """The common part of tasks that hide tokens.

    Parameters
    ----------
    width : int
        Width of the hidden states.
    corruption : {"80-10-10", "mask"}
        The replacement of a hidden token: the mask token, a random one or itself, as in BERT; or always the mask token.
    exact : bool
        Hide the rounded count of each row's tokens, instead of each token independently.
    units : {"tokens", "whole-word", "span"}
        What is hidden: single tokens, whole words, or spans of random length.
    """

    width: int
    corruption: Corruption = "80-10-10"
    exact: bool = True
    units: Units = "tokens"

    def __post_init__(self) -> None:
        if self.corruption not in SHARES:
            raise ValueError(f"corruption is one of {', '.join(SHARES)}, not {self.corruption!r}")

    def edges(self) -> Bool[Tensor, "2 words"]:
        """Return the :func:`word_edges` of the vocabulary, for whole words."""
        raise NotImplementedError

    @property
    def with_fixed_counts(self) -> "MaskedTokenTask":
        """The same task, hiding exactly the rounded count in every row."""
        return replace(self, exact=True)

    def hide(
        self,
        clean: Int64[Tensor, "batch length"],
        candidates: Bool[Tensor, "batch length"],
        ratio: RatioLike,
        key: Key,
        *,
        mask_id: int,
        vocabulary: int | Int64[Tensor, " tokens"],
    ) -> tuple[Int64[Tensor, "batch length"], Bool[Tensor, "batch length"], Int64[Tensor, "batch most"]]:
        """Hide a fraction of each row's candidates, and return inputs, hidden and columns of :class:`MaskedTokens`.

        Arguments are those of :func:`r2mae.masking.token_mask` and :func:`r2mae.masking.corrupt_tokens`: `vocabulary`
        has the tokens that may replace another, those below a number, or these.
        """
        edges = self.edges() if self.units == "whole-word" else None
        hidden = hide_units(clean, ~candidates, ratio, key, self.units, edges, exact=self.exact)
        shares = SHARES[self.corruption]
        draw = key.fold("corruption")
        inputs = corrupt_tokens(clean, hidden, draw, mask_id=mask_id, vocabulary=vocabulary, shares=shares)
        if hidden.device.type == "cpu" or not self.exact:
            most = max(1, int(hidden.sum(1).max()))
        else:
            most = hidden_count(hidden.shape[1], float(np.max(ratio)))  # an upper bound that needs no waiting
        columns = torch.sort(hidden.to(torch.uint8), dim=1, stable=True, descending=True).indices[:, :most]
        return inputs, hidden, columns

    def weight_network(self, curriculum: Curriculum) -> nn.Module:
        """Return a network from a hidden token's last hidden state to one weight per ratio."""
        return UnitWeights(self.width, curriculum)


def mean_state(
    states: Float[Tensor, "batch length width"], chosen: Bool[Tensor, "batch length"]
) -> Float[Tensor, "batch width"]:
    """Return the mean of the states over the chosen tokens of each row, 0 for a row without any."""
    mean: Tensor = (states * chosen[..., None]).sum(1) / chosen.sum(1, keepdim=True).clamp(min=1)
    return mean
