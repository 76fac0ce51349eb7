"""Masked bases: hide a fraction of the target's bases, and predict them from its other bases and the aligned species.

A batch is a :class:`r2mae.genome.batches.WindowBatch`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64, UInt8
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from r2mae.genome.batches import WindowBatch
from r2mae.genome.store.tokens import GAP, LETTERS
from r2mae.masking.curriculum import UnitWeights
from r2mae.masking.keys import Key
from r2mae.masking.masks import RatioLike, corrupt_tokens, hidden_count, token_mask
from r2mae.masking.schemes import Curriculum
from r2mae.training.task import Corrupted, Output, Task

BASES = GAP
"""A, C, G and T are the tokens below this number: those that can be hidden and predicted."""
MASK = len(LETTERS)
"""The token of a hidden base; only the target has it."""

Corruption = Literal["80-10-10", "mask"]
# Shares of the mask token, of random bases, and of unchanged bases.
SHARES: dict[Corruption, tuple[float, float, float]] = {"80-10-10": (0.8, 0.1, 0.1), "mask": (1.0, 0.0, 0.0)}
_LEAST = 1e-6  # the least weight, also of repeats with weight 0: a batch that hides only such bases has a finite loss


class WindowModel(nn.Module, ABC):
    """A model of windows that :class:`AlignmentTask` trains."""

    species: tuple[str, ...] = ()
    """Names of the aligned species, in the order of the model's inputs."""

    @abstractmethod
    def forward(
        self,
        target: Int64[Tensor, "batch length"],
        aligned: UInt8[Tensor, "batch length others"],
        columns: Int64[Tensor, "batch most"],
    ) -> tuple[Float[Tensor, "batch most bases"], Float[Tensor, "batch most width"]]:
        """Return logits over A, C, G and T at some positions, and the last hidden states there.

        Parameters
        ----------
        target : int64 tensor, shape (batch, length)
            A C G T - unknown and hidden as 0 to 6.
        aligned : uint8 tensor, shape (batch, length, others)
            Tokens of the aligned species, 0 to 5.
        columns : int64 tensor, shape (batch, most)
            Positions of each row.
        """

    @abstractmethod
    def encode(
        self,
        target: Int64[Tensor, "batch length"],
        aligned: UInt8[Tensor, "batch length others"],
        *,
        columns: Int64[Tensor, "batch most"] | None = None,
    ) -> Float[Tensor, "batch places width"]:
        """Return the last hidden states at all positions, or only at those in `columns`.

        Raises
        ------
        ValueError
            If the windows are longer than the model's maximum, or have a different number of species.
        """

    @abstractmethod
    def head(self, states: Float[Tensor, "*places width"]) -> Float[Tensor, "*places bases"]:
        """Return logits over A, C, G and T."""


class HiddenBases(Corrupted):
    """A mini-batch with hidden bases. Positions are numbered through the batch: row × length + column.

    Parameters
    ----------
    inputs : int64 tensor, shape (batch, length)
        The corrupted target, as the model receives it.
    aligned : uint8 tensor, shape (batch, length, others)
        The tokens of the other species.
    hidden : Bool tensor, shape (batch × length,)
        True where a base is hidden.
    candidates : Bool tensor, shape (batch, length)
        True where a base could have been hidden.
    columns : int64 tensor, shape (batch, most)
        The hidden positions of each row, in increasing order, then other positions: rows are equally long.
    targets : int64 tensor, shape (batch, most)
        Labels at `columns`: clean bases, some of which may be flipped (0 where no base is hidden).
    real : Bool tensor, shape (batch, most)
        False for columns that only fill a row.
    weights : Float tensor, shape (batch × length,)
        Weight of each position in the loss.
    """

    def __init__(
        self,
        *,
        inputs: Int64[Tensor, "batch length"],
        aligned: UInt8[Tensor, "batch length others"],
        hidden: Bool[Tensor, " positions"],
        candidates: Bool[Tensor, "batch length"],
        columns: Int64[Tensor, "batch most"],
        targets: Int64[Tensor, "batch most"],
        real: Bool[Tensor, "batch most"],
        weights: Float[Tensor, " positions"],
    ) -> None:
        given = locals()
        for name in ("inputs", "aligned", "hidden", "candidates", "columns", "targets", "real", "weights"):
            object.__setattr__(self, name, given[name])

    inputs: Tensor
    aligned: Tensor
    candidates: Tensor
    columns: Tensor
    real: Tensor
    weights: Tensor

    @property
    def entries(self) -> int:
        """How many bases could have been hidden. It is computed on access, since that synchronises the device."""
        return int(self.candidates.sum())

    @property
    def places(self) -> Int64[Tensor, " units"]:
        """The numbers of the positions in `columns`."""
        rows, length = self.inputs.shape
        first = torch.arange(0, rows * length, length, device=self.columns.device)
        return (first[:, None] + self.columns).flatten()


@dataclass(frozen=True)
class AlignmentTask(Task[Any, "WindowModel"]):
    """Masked modelling of a genome with its alignment (DNA appendix of the paper).

    Parameters
    ----------
    width : int
        Width of the hidden states.
    corruption : {"80-10-10", "mask"}
        The replacement of a hidden base: the mask token, a random base or itself, as in BERT and GPN-MSA; or always the
        mask token.
    exact : bool
        Hide the rounded count of each window's bases, instead of each base independently.
    repeat_weight : float
        Weight of a soft-masked position in the loss; other positions have weight 1.
    flip : float
        Probability with which the label of a hidden base that is not conserved becomes a random base.
    """

    width: int
    corruption: Corruption = "80-10-10"
    exact: bool = True
    repeat_weight: float = 0.1
    flip: float = 0.0

    @classmethod
    def from_architecture(cls, architecture: Mapping[str, Any]) -> "AlignmentTask":
        """Build from the plain values of a run folder."""
        if architecture["corruption"] not in SHARES:
            raise ValueError(f"corruption is one of {', '.join(SHARES)}, not {architecture['corruption']!r}")
        return cls(
            width=int(architecture["width"]),
            corruption=architecture["corruption"],
            exact=bool(architecture["exact"]),
            repeat_weight=float(architecture["repeat_weight"]),
            flip=float(architecture["flip"]),
        )

    @property
    def with_fixed_counts(self) -> "AlignmentTask":
        """The same task, hiding exactly the rounded count in every window."""
        return replace(self, exact=True)

    def corrupt(self, batch: WindowBatch, ratio: RatioLike, key: Key) -> HiddenBases:
        """Hide bases of the target. Gaps, unknown positions and the aligned species are never hidden.

        Parameters
        ----------
        batch : WindowBatch
        ratio : float or ndarray of shape (batch,)
            Fraction of each window's bases to hide.
        key : Key
            ``key.row`` is the row of the first window in the global batch.
        """
        clean = batch["target"].long()
        candidates = clean < BASES
        hidden = token_mask(~candidates, ratio, key, exact=self.exact)
        inputs = corrupt_tokens(
            clean,
            hidden,
            key.fold("corruption"),
            mask_id=MASK,
            vocabulary=BASES,
            shares=SHARES[self.corruption],
        )
        labels = clean
        if self.flip:
            flipped, shares = hidden & batch["neutral"], (0.0, self.flip, 1 - self.flip)
            draw = key.fold("labels")
            labels = corrupt_tokens(clean, flipped, draw, mask_id=MASK, vocabulary=BASES, shares=shares)
        columns = torch.sort(hidden.to(torch.uint8), dim=1, stable=True, descending=True).indices
        columns = columns[:, : self._column_count(hidden, ratio)]
        real = hidden.gather(1, columns)
        weights = batch["weights"].clamp(min=_LEAST)
        if self.repeat_weight != 1:
            weights = torch.where(batch["soft"], weights * (self.repeat_weight or _LEAST), weights)
        return HiddenBases(
            inputs=inputs,
            aligned=batch["aligned"],
            hidden=hidden.flatten(),
            candidates=candidates,
            columns=columns,
            targets=labels.gather(1, columns) * real,
            real=real,
            weights=weights.flatten(),
        )

    def forward(self, model: WindowModel, corrupted: HiddenBases) -> Output:
        """Return logits of the hidden bases (batch, most, 4), and the hidden states there (batch × most, width)."""
        logits, states = model(corrupted.inputs, corrupted.aligned, corrupted.columns)
        return Output(logits, states.flatten(0, 1))

    def losses(self, output: Output, corrupted: HiddenBases) -> Float[Tensor, " positions"]:
        """Return the cross entropy over A, C, G and T of each hidden base, in nats; 0 at all other positions."""
        found = self.entropies(output, corrupted) * corrupted.real
        return found.new_zeros(len(corrupted.hidden)).scatter(0, corrupted.places, found.flatten())

    def entropies(self, output: Output, corrupted: HiddenBases) -> Float[Tensor, "batch most"]:
        """Return the cross entropies at all `columns`, including those that only fill a row."""
        logits, targets = output.prediction.float(), corrupted.targets
        return cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)

    @torch.no_grad()
    def embed(self, model: WindowModel, batch: WindowBatch) -> Float[Tensor, "batch width"]:
        """Return the mean of the last hidden states over the bases of each window (0 for a window without bases)."""
        target = batch["target"].long()
        states = model.encode(target, batch["aligned"])
        bases = (target < BASES)[..., None]
        mean: Tensor = (states * bases).sum(1) / bases.sum(1).clamp(min=1)
        return mean

    def weight_network(self, curriculum: Curriculum) -> nn.Module:
        """Return a network from a hidden base's last hidden state to one weight per ratio."""
        return UnitWeights(self.width, curriculum)

    def learned_weights(
        self, network: nn.Module, corrupted: HiddenBases, output: Output
    ) -> Float[Tensor, "positions ratios"]:
        """Return the weights of this mini-batch: at hidden bases the network's times the task's own, 0 at others.

        Over the hidden bases the network's weights have mean one, and the task's own are divided by their mean. The
        loss is thus a weighted mean, as without a curriculum.
        """
        units = corrupted.real.flatten().nonzero()[:, 0]  # synchronises the device, with curricula only
        places = corrupted.places.index_select(0, units)
        found: Tensor = network(output.representation.index_select(0, units))
        own = corrupted.weights.index_select(0, places)
        found = found * (own / own.mean())[:, None]
        return found.new_zeros(len(corrupted.hidden), found.shape[1]).index_copy(0, places, found)

    def _column_count(self, hidden: Tensor, ratio: RatioLike) -> int:
        """Return the largest number of hidden bases in a row, on a device an upper bound that needs no waiting."""
        if hidden.device.type == "cpu" or not self.exact:
            return max(1, int(hidden.sum(1).max()))
        return hidden_count(hidden.shape[1], float(np.max(ratio)))
