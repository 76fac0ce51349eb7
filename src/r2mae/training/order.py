"""The order in which samples are used, a pure function of seed and optimiser step; and the loader of their batches."""

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int64
from torch.utils.data import DataLoader, Dataset, Sampler
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from r2mae.errors import UserError
from r2mae.masking.keys import Key, permutation
from r2mae.training.task import Batches


class Share(NamedTuple):
    """One process's samples of one micro-batch, with the step (from 0) and row that select its random numbers.

    `row` is that of the first sample in the global batch: all samples of the step, over micro-batches and processes.
    """

    indices: Int64[np.ndarray, " micro"]
    step: int
    row: int


@dataclass(eq=False)
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

    samples: int
    batch_size: int
    steps: int
    key: Key
    accumulate: int = 1
    first_step: int = 0
    rank: int = 0
    ranks: int = 1

    def __post_init__(self) -> None:
        self._epochs: dict[int, Int64[np.ndarray, " n"]] = {}

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
            self._epochs[epoch] = permutation(self.key.fold("order", epoch), self.samples)
        return self._epochs[epoch]


class BatchError(UserError):
    """An error in the data of a batch, in one line.

    Torch rebuilds a worker's error in the training process from the text of its traceback; the message is at its end.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text.rpartition(f"{type(self).__name__}: ")[2].strip())


class KeyedBatches(Dataset[Any]):
    """A data set for torch's loader that returns complete batches, each made with its key.

    Each process's part of a batch gets the key of its step, folded from `key`, with rows counted in the global batch:
    samples do not depend on the number of processes or workers.
    """

    def __init__(self, data: Batches, key: Key) -> None:
        self.data, self.key = data, key

    def __getitem__(self, share: Share) -> Any:
        """Return the batch of a share."""
        try:
            return self.data.batch(share.indices, self.key.fold(share.step).rows(share.row))
        except UserError as error:
            raise BatchError(str(error)) from error


def make_loader(
    data: Batches, order: BatchOrder, key: Key, *, workers: int = 0, device: torch.device | None = None
) -> DataLoader[Any]:
    """Return the loader of a run; `workers` are processes that make batches, 0 makes them in this process.

    Without workers, samples are moved to the device if possible (:meth:`Batches.on_device`). Random numbers of batches
    are drawn from `key` (:class:`KeyedBatches`).
    """
    device = device or torch.device("cpu")
    moved = data.on_device(device) if workers == 0 else data
    return DataLoader(
        KeyedBatches(moved, key),
        batch_size=None,  # the data set makes batches itself
        sampler=order,
        num_workers=workers,
        worker_init_fn=_ignore_signals,
        pin_memory=device.type == "cuda" and moved is data,  # tensors on the device cannot be pinned
        generator=torch.Generator(),
    )


def stop_workers(batches: Iterator[Any]) -> None:
    """End the processes of a loader's iterator, also after an error.

    They ignore SIGTERM. An error in one keeps the iterator alive until Python ends, which would then wait for them.
    """
    if isinstance(batches, _MultiProcessingDataLoaderIter):
        batches._shutdown_workers()


def _ignore_signals(worker: int) -> None:
    """Ignore signals in a worker: a signal to the process group must not end the workers."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
