"""Masked bases: hide a fraction of the target's bases, and predict them from its other bases and the aligned species.

A batch is a :class:`r2mae.genome.batches.WindowBatch`, and a model a
:class:`r2mae.genome.models.gpn_msa.AlignmentTransformer`.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from r2mae.domains.masked_tokens import MaskedTokens, MaskedTokenTask, mean_state
from r2mae.genome.batches import WindowBatch
from r2mae.genome.store.tokens import BASES, MASK
from r2mae.masking.keys import Key
from r2mae.masking.masks import RatioLike, corrupt_tokens
from r2mae.training.task import Output

_LEAST = 1e-6  # the least weight, also of repeats with weight 0: a batch that hides only such bases has a finite loss


@dataclass(frozen=True, kw_only=True)
class HiddenBases(MaskedTokens):
    """A mini-batch with hidden bases. Positions are numbered through the batch: row x length + column.

    `hidden` and `weights` have an entry for each position, and `targets` for each of the `columns`: labels, some of
    which may be flipped (0 where no base is hidden). `aligned` are the tokens of the other species, of shape (batch,
    length, others); `real` is false for columns that only fill a row.
    """

    aligned: Tensor
    real: Tensor
    weights: Tensor

    @property
    def places(self) -> Int64[Tensor, " units"]:
        """The numbers of the positions in `columns`."""
        rows, length = self.inputs.shape
        first = torch.arange(0, rows * length, length, device=self.columns.device)
        return (first[:, None] + self.columns).flatten()


@dataclass(frozen=True)
class AlignmentTask(MaskedTokenTask):
    """Masked modelling of a genome with its alignment (DNA appendix of the paper).

    Parameters
    ----------
    repeat_weight : float
        Weight of a soft-masked position in the loss; other positions have weight 1.
    flip : float
        Probability with which the label of a hidden base that is not conserved becomes a random base.
    """

    repeat_weight: float = 0.1
    flip: float = 0.0

    def corrupt(self, batch: WindowBatch, ratio: RatioLike, key: Key) -> HiddenBases:
        """Hide a fraction of the bases of each target. Gaps, unknown positions and aligned species are never hidden.

        `ratio` is one for all windows, or has the shape (batch,). ``key.row`` is the row of the first window in the
        global batch.
        """
        clean = batch["target"].long()
        candidates = clean < BASES
        inputs, hidden, columns = self.hide(clean, candidates, ratio, key, mask_id=MASK, vocabulary=BASES)
        labels = clean
        if self.flip:
            flipped, shares = hidden & batch["neutral"], (0.0, self.flip, 1 - self.flip)
            draw = key.fold("labels")
            labels = corrupt_tokens(clean, flipped, draw, mask_id=MASK, vocabulary=BASES, shares=shares)
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

    def forward(self, model: Any, corrupted: HiddenBases) -> Output:
        """Return logits of the hidden bases (batch, most, 4), and the hidden states there (batch × most, width)."""
        logits, states = model(corrupted.inputs, corrupted.aligned, corrupted.columns)
        return Output(logits, states.flatten(0, 1))

    def losses(self, output: Output, corrupted: HiddenBases) -> Float[Tensor, " positions"]:
        """Return the cross entropy over A, C, G and T of each hidden base, in nats; 0 at all other positions."""
        logits, targets = output.prediction.float().flatten(0, 1), corrupted.targets.flatten()
        found = cross_entropy(logits, targets, reduction="none") * corrupted.real.flatten()
        return found.new_zeros(len(corrupted.hidden)).scatter(0, corrupted.places, found)

    @torch.no_grad()
    def embed(self, model: Any, batch: WindowBatch) -> Float[Tensor, "batch width"]:
        """Return the mean of the last hidden states over the bases of each window (0 for a window without bases)."""
        target = batch["target"].long()
        states = model.encode(target, batch["aligned"])
        return mean_state(states, target < BASES)

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
