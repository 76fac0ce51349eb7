"""Batches of windows of an alignment: the target separate from the aligned species, on either strand."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TypedDict

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int64, UInt8
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from r2mae.genome.store.alignment import AlignmentStore
from r2mae.genome.store.intervals import WindowStarts
from r2mae.genome.store.tokens import reverse_complement
from r2mae.masking.keys import Key, uniforms
from r2mae.training.task import Batches


class WindowBatch(TypedDict):
    """A batch of windows.

    The keys: `target`, the tokens of the reference; `aligned`, those of the other species; `soft`, a mask of the
    soft-masked positions of the reference; `weights`, the weight of each position in the loss; `neutral`, a mask of the
    positions that are not conserved (of none without tracks of conservation).
    """

    target: UInt8[Tensor, "batch length"]
    aligned: UInt8[Tensor, "batch length others"]
    soft: Bool[Tensor, "batch length"]
    weights: Float32[Tensor, "batch length"]
    neutral: Bool[Tensor, "batch length"]


_REACH = 3  # positions on each side over which GPN-MSA takes the maximum of phastCons
_NEUTRAL = float(np.float16(0.1))  # tracks may be float16: a value of 0.1 is conserved, as in GPN-MSA


@dataclass(frozen=True, eq=False, repr=False)
class WindowBatches(Batches):
    """The windows of a part (:class:`r2mae.training.task.Batches`).

    Parameters
    ----------
    store : AlignmentStore
    starts : WindowStarts
    reverse : float
        Share of windows that are replaced by their reverse complement, drawn for each row with the batch's key.
    weights : str, optional
        Name of a track with the weights of positions, 0 where it has none; without it all weights are 1.
    conservation : (phyloP, phastCons), optional
        Names of tracks that weigh positions as in GPN-MSA, instead of `weights`:
        max(phyloP, 1) x (0.1 + the maximum of phastCons over 7 positions). Missing values are 0.
    columns : sequence of int, optional
        The store's aligned species to keep, in this order; by default all.
    """

    store: AlignmentStore
    starts: WindowStarts
    _: KW_ONLY
    reverse: float = 0.5
    weights: str | None = None
    conservation: Sequence[str] = ()
    columns: Sequence[int] | None = None

    def __repr__(self) -> str:
        return f"WindowBatches({len(self):,} windows of {self.starts.length} x {len(self.store.species)} species)"

    def __len__(self) -> int:
        """Return the number of windows."""
        return len(self.starts)

    def spread(self, most: int) -> "WindowBatches":
        """Return at most `most` of the windows, evenly spaced."""
        if len(self) <= most:
            return self
        places = np.linspace(0, len(self) - 1, most).round().astype(np.int64)
        return replace(self, starts=replace(self.starts, places=self.starts.places[places]))

    def batch(self, indices: Sequence[int] | np.ndarray, key: Key) -> WindowBatch:
        """Return these windows; the key draws which are on the other strand.

        ``key.row`` is the row of the first window in the global batch.
        """
        contigs, first = self.starts.at(indices)
        length = self.starts.length
        tokens, soft = self.store.soft_windows(contigs, first, length)
        weights, neutral = np.ones(soft.shape, np.float32), np.zeros(soft.shape, bool)
        if self.weights is not None:
            weights = self.store.track_windows(self.weights, contigs, first, length)
        if self.conservation:
            weights, neutral = self._conservation(contigs, first)
        if self.reverse:
            turned = uniforms(key.fold("strand"), len(tokens)) < self.reverse
            tokens[turned] = reverse_complement(tokens[turned])
            for values in (soft, weights, neutral):
                values[turned] = values[turned, ::-1]
        aligned = torch.from_numpy(np.ascontiguousarray(tokens[:, :, 1:]))
        return {
            "target": torch.from_numpy(np.ascontiguousarray(tokens[:, :, 0])),
            "aligned": aligned if self.columns is None else aligned[:, :, list(self.columns)],
            "soft": torch.from_numpy(soft),
            "weights": torch.from_numpy(weights),
            "neutral": torch.from_numpy(neutral),
        }

    def _conservation(
        self, contigs: Int64[np.ndarray, " batch"], first: Int64[np.ndarray, " batch"]
    ) -> tuple[Float32[np.ndarray, "batch length"], Bool[np.ndarray, "batch length"]]:
        """Return GPN-MSA's weights of positions, and which are not conserved."""
        length, (phylop, phastcons) = self.starts.length, self.conservation
        wide = self.store.track_windows(phastcons, contigs, first - _REACH, length + 2 * _REACH)
        largest = sliding_window_view(wide, 2 * _REACH + 1, axis=1).max(-1)
        weights = np.maximum(self.store.track_windows(phylop, contigs, first, length), 1) * (0.1 + largest)
        return weights.astype(np.float32), largest < _NEUTRAL
