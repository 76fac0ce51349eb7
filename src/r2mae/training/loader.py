"""The data loader: it asks the domain for batches, each with its key, in this process or in workers."""

import signal
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from r2mae.errors import UserError
from r2mae.masking.keys import Key
from r2mae.training.order import BatchOrder, Share
from r2mae.training.task import Batches


class BatchError(UserError):
    """An error in the data of a batch, in one line.

    Torch rebuilds a worker's error in the training process from the text of its traceback; the message is at its end.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text.rpartition(f"{type(self).__name__}: ")[2].strip())


class KeyedBatches(Dataset[Any]):
    """A data set for torch's loader that returns complete batches, each made with its key.

    Parameters
    ----------
    data : Batches
        The domain's batches.
    key : Key
        The keys of the steps are folded from it. Each process's part of a batch gets the key of its step, with rows
        counted in the global batch, so that samples do not depend on the number of processes or workers.
    """

    def __init__(self, data: Batches, key: Key) -> None:
        self.data, self.key = data, key

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.data)

    def __getitems__(self, share: Share) -> Any:
        """Return the batch of a share; torch prescribes the name."""
        try:
            return self.data.batch(share.indices, self.key.fold(share.step).rows(share.row))
        except UserError as error:
            raise BatchError(str(error)) from error


def make_loader(
    data: Batches, order: BatchOrder, key: Key, *, workers: int = 0, device: torch.device | None = None
) -> DataLoader[Any]:
    """Return the loader of a run.

    Parameters
    ----------
    data : Batches
        The training samples. Without workers, they are moved to the device if possible (:meth:`Batches.on_device`).
    order : BatchOrder
        The samples of each step.
    key : Key
        Key of the random numbers drawn while batches are made; see :class:`KeyedBatches`.
    workers : int
        Processes that make batches; 0 makes them in this process.
    device : torch.device, optional
        Device of the batches; by default the CPU.
    """
    device = device or torch.device("cpu")
    moved = data.on_device(device) if workers == 0 else data
    return DataLoader(
        KeyedBatches(moved, key),
        batch_sampler=order,
        collate_fn=_return_unchanged,
        num_workers=workers,
        worker_init_fn=_ignore_signals,
        pin_memory=device.type == "cuda" and moved is data,  # tensors on the device cannot be pinned
        generator=torch.Generator(),
    )


def _ignore_signals(worker: int) -> None:
    """Ignore signals in a worker: a signal to the process group must not end the workers."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _return_unchanged(batch: Any) -> Any:
    return batch
