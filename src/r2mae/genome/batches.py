"""Batches of windows of an alignment: the target separate from the aligned species, on either strand."""

from collections.abc import Sequence
from typing import TypedDict

import numpy as np
import torch
from jaxtyping import Bool, Float32, UInt8
from torch import Tensor

from r2mae.errors import UserError
from r2mae.genome.store.alignment import AlignmentStore
from r2mae.genome.store.parts import WindowStarts
from r2mae.genome.store.tokens import reverse_complement
from r2mae.masking.keys import Key, uniforms
from r2mae.training.task import Batches


class WindowBatch(TypedDict):
    """A batch of windows.

    The keys: `target`, the tokens of the reference; `aligned`, those of the other species; `soft`, a mask of the
    soft-masked positions of the reference; `weights`, the weight of each position in the loss.
    """

    target: UInt8[Tensor, "batch length"]
    aligned: UInt8[Tensor, "batch length others"]
    soft: Bool[Tensor, "batch length"]
    weights: Float32[Tensor, "batch length"]


class WindowBatches(Batches):
    """The windows of a part (:class:`r2mae.training.task.Batches`).

    Parameters
    ----------
    store : AlignmentStore
        The store of the windows. Every process that reads maps its files.
    starts : WindowStarts
        The starts of the windows.
    reverse : float
        Share of windows that are replaced by their reverse complement, drawn for each row with the batch's key.
    weights : str, optional
        Name of a track with the weights of positions; without it all weights are 1.
    missing : float
        Weight of positions without a value.

    Raises
    ------
    UserError
        If there is no such track, or the share is not from 0 to 1.
    """

    def __init__(
        self,
        store: AlignmentStore,
        starts: WindowStarts,
        *,
        reverse: float = 0.5,
        weights: str | None = None,
        missing: float = 0.0,
    ) -> None:
        if not 0 <= reverse <= 1:
            raise UserError(f"the share of reverse complements must be from 0 to 1, not {reverse}")
        if weights is not None:
            store.track(weights)
        self.store, self.starts, self.reverse = store, starts, reverse
        self.weights, self.missing = weights, missing

    def __repr__(self) -> str:
        return f"WindowBatches({len(self):,} windows of {self.starts.length} x {len(self.store.species)} species)"

    def __len__(self) -> int:
        """Return the number of windows."""
        return len(self.starts)

    def batch(self, indices: Sequence[int] | np.ndarray, key: Key) -> WindowBatch:
        """Return these windows; the key draws which are on the other strand.

        Parameters
        ----------
        indices : sequence of int
        key : Key
            ``key.row`` is the row of the first window in the global batch.
        """
        contigs, first = self.starts.at(indices)
        length = self.starts.length
        tokens, soft = self.store.soft_windows(contigs, first, length)
        if self.weights is None:
            weights = np.ones(soft.shape, np.float32)
        else:
            weights = self.store.track_windows(self.weights, contigs, first, length, missing=self.missing)
        if self.reverse:
            turned = uniforms(key.fold("strand"), len(tokens)) < self.reverse
            tokens[turned] = reverse_complement(tokens[turned])
            soft[turned], weights[turned] = soft[turned, ::-1], weights[turned, ::-1]
        return {
            "target": torch.from_numpy(np.ascontiguousarray(tokens[:, :, 0])),
            "aligned": torch.from_numpy(np.ascontiguousarray(tokens[:, :, 1:])),
            "soft": torch.from_numpy(soft),
            "weights": torch.from_numpy(weights),
        }
