"""The order in which samples are used: a pure function of seed and optimiser step."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int64
from torch.utils.data import Sampler

from r2mae.masking.keys import Key, permutation


class Share(NamedTuple):
    """One process's samples of one micro-batch, with the step and row that select its random numbers.

    Parameters
    ----------
    indices : int64 array
        The samples.
    step : int
        The optimiser step, from 0.
    row : int
        Row of the first sample in the global batch (all samples of the step, over micro-batches and processes).
    """

    indices: Int64[np.ndarray, " micro"]
    step: int
    row: int


class BatchOrder(Sampler[Any]):
    """Yields this process's share of every micro-batch of a run, from the step where the run starts or resumes.

    The samples form one endless sequence: a keyed permutation of the data set for epoch 0, then one for epoch 1, and so
    on. Optimiser step t takes the samples ``t * batch_size`` to ``(t + 1) * batch_size`` of it: all batches are
    full, each sample occurs once per epoch, and a data set smaller than a batch is no special case.

    Parameters
    ----------
    samples : int
        Size of the data set.
    batch_size : int
        Samples of an optimiser step.
    steps : int
        Optimiser steps of the complete run.
    key : Key
        The run's key.
    accumulate : int
        Micro-batches of an optimiser step.
    first_step : int
        First step to yield.
    rank, ranks : int
        Every micro-batch is divided into `ranks` parts; this process takes part `rank`.
    """

    def __init__(
        self,
        samples: int,
        batch_size: int,
        steps: int,
        key: Key,
        *,
        accumulate: int = 1,
        first_step: int = 0,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        self.samples = samples
        self.batch_size = batch_size
        self.steps = steps
        self.accumulate = accumulate
        self.first_step = first_step
        self.rank, self.ranks = rank, ranks
        self._key = key.fold("order")
        self._epochs: dict[int, Int64[np.ndarray, " n"]] = {}

    def __len__(self) -> int:
        """Return the number of micro-batches of the complete run."""
        return self.steps * self.accumulate

    def __iter__(self) -> Iterator[Share]:
        """Yield this rank's share of the micro-batches from `first_step` on."""
        size = self.batch_size // (self.accumulate * self.ranks)
        for step in range(self.first_step, self.steps):
            indices = self.indices(step)
            for part in range(self.accumulate):
                row = (part * self.ranks + self.rank) * size
                yield Share(indices[row : row + size], step, row)

    def indices(self, step: int) -> Int64[np.ndarray, " batch"]:
        """Return the samples of optimiser step `step`."""
        first, last = step * self.batch_size, (step + 1) * self.batch_size
        pieces = []
        while first < last:
            epoch, done = divmod(first, self.samples)
            count = min(last - first, self.samples - done)
            pieces.append(self._epoch_order(epoch)[done : done + count])
            first += count
        return np.concatenate(pieces)

    def _epoch_order(self, epoch: int) -> Int64[np.ndarray, " n"]:
        if epoch not in self._epochs:
            self._epochs = {old: order for old, order in self._epochs.items() if old >= epoch - 1}
            self._epochs[epoch] = permutation(self._key.fold(epoch), self.samples)
        return self._epochs[epoch]
