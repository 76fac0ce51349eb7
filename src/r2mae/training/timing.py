"""Time a few optimiser steps of a run, and count its bytes. Nothing is written."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from r2mae.masking.keys import Key
from r2mae.training.checkpoint_keeper import mean_validation_loss
from r2mae.training.devices import cpu_threads
from r2mae.training.folder import RunFolder
from r2mae.training.loader import make_loader
from r2mae.training.loop import build, keyed_torch
from r2mae.training.memory import freed_memory_kept
from r2mae.training.order import BatchOrder
from r2mae.training.quiet import quiet_lightning
from r2mae.training.run import Run
from r2mae.training.step import Pretraining
from r2mae.training.task import Batches, Data
from r2mae.training.trainer import KNOWN_WARNINGS, make_trainer

WARM_UP, STEPS = 3, 20  # optimiser steps: first untimed, then timed, within the time limit
SECONDS = 4.0  # time limit of all steps; a started micro-batch is finished
_VALIDATION_SAMPLES = 512  # samples whose validation is timed


@dataclass(frozen=True)
class Timing:
    """Time and memory of a run.

    Parameters
    ----------
    seconds_per_step : float
        Time of an optimiser step, over all its micro-batches, including data loading.
    timed : float
        Number of timed steps; below one if a step takes too long.
    seconds_per_validation : float
        Time of a validation; 0 without validation data.
    parameters, optimizer, activations : int
        Bytes of the parameters (with a weight network and a moving average), of the optimiser's state, and of the
        tensors that the forward pass of a micro-batch saves for its gradient.
    gradients : int
        Bytes of the parameters' gradients.
    peak : int or None
        Peak of allocated bytes on a GPU; None on a CPU, where it is not measured.
    checkpoint, model : int
        Bytes of a checkpoint, and of the finished model.
    """

    seconds_per_step: float
    timed: float
    seconds_per_validation: float
    parameters: int
    gradients: int
    optimizer: int
    activations: int
    peak: int | None
    checkpoint: int
    model: int

    @property
    def memory(self) -> int:
        """Bytes of a run on its device, without the data: the peak on a GPU, the sum of the parts on a CPU."""
        return self.peak or self.parameters + self.gradients + self.optimizer + self.activations


def time_steps(run: Run, data: Data, *, seconds: float = SECONDS) -> Timing:
    """Train a run for a few steps from the middle of its schedule, with random weights, which are discarded.

    The middle is typical: the mask ratio, and with it the cost of a step, may change over the run.

    Parameters
    ----------
    run : Run
        A run of one process.
    data : Data
        The data of the run.
    seconds : float
        Approximate time limit.

    Raises
    ------
    KeyboardInterrupt
        After Ctrl-C.
    """
    run = replace(run, config=replace(run.config, logger="none"))
    folder = RunFolder(Path())  # required by the trainer, not used
    if run.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(run.device)
    with quiet_lightning(KNOWN_WARNINGS), cpu_threads(run.config.threads), freed_memory_kept(), keyed_torch(run.key):
        module, _ = build(run, data, fresh=False)
        first = module.total_steps // 2
        watch = _Stopwatch(run, data, seconds, first)
        order = BatchOrder(
            len(data.train),
            run.config.batch_size,
            module.total_steps,
            run.key,
            accumulate=run.config.accumulate,
            first_step=first,
        )
        trainer = make_trainer(run, watch, module, folder=folder)
        loader = make_loader(
            data.train, order, run.key.fold("batch"), workers=run.config.workers, device=trainer.strategy.root_device
        )
        try:
            trainer.fit(module, loader)
        except SystemExit:  # Lightning's answer to Ctrl-C
            raise KeyboardInterrupt from None
    assert watch.timing is not None
    return watch.timing


class _Stopwatch(Callback):
    """Times micro-batches, ends the training after enough of them, and then measures memory."""

    def __init__(self, run: Run, data: Data, seconds: float, first: int) -> None:
        self.run, self.data, self.seconds, self.first = run, data, seconds, first
        self.timing: Timing | None = None
        self._done = 0  # micro-batches
        self._wanted: int | None = None  # micro-batches after which to end, once known
        self._saved_bytes = _SavedBytes()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Skip to the step in the middle of the run."""
        progress = trainer.fit_loop.epoch_loop.automatic_optimization.optim_progress
        progress.optimizer.step.total.completed = self.first
        self._step = self.first
        self._saved_bytes.ignore(pl_module.parameters())
        self._began = self._from = self._now = time.perf_counter()
        self._skipped = 0

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Start to count the bytes that the first forward pass saves."""
        if not self._done:
            self._saved_bytes.__enter__()

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        """Stop counting, which takes time."""
        if not self._done:
            self._saved_bytes.__exit__()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the micro-batch, and end the training after enough of them."""
        assert isinstance(pl_module, Pretraining)
        self._done += 1
        if trainer.global_step > self._step:
            self._step = trainer.global_step
            pl_module.end_step()
        if self._wanted is None:
            self._warm_up()
        if self._wanted is not None and self._done >= self._wanted:
            self._wait()
            self._ended = time.perf_counter()
            trainer.should_stop = True

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Collect the result while the optimiser exists."""
        assert isinstance(pl_module, Pretraining)
        if not trainer.should_stop:  # the run ended before the timing
            self._wait()
            self._ended = time.perf_counter()
        if self._done == self._skipped:
            self._from, self._skipped = self._began, 0
        count = self._done - self._skipped
        accumulate = self.run.config.accumulate
        weights, optimizer = _bytes(pl_module.state_dict().values()), _state_bytes(trainer.optimizers[0])
        device = self.run.device
        peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
        trained = [parameter for parameter in pl_module.parameters() if parameter.requires_grad]
        self.timing = Timing(
            seconds_per_step=(self._ended - self._from) / count * accumulate,
            timed=count / accumulate,
            seconds_per_validation=self._seconds_per_validation(pl_module),
            parameters=_bytes([*pl_module.parameters(), *pl_module.buffers()]),
            gradients=_bytes(trained),
            optimizer=optimizer,
            activations=self._saved_bytes.bytes,
            peak=peak,
            checkpoint=weights + optimizer,
            model=_bytes(pl_module.evaluation_model.state_dict().values()),
        )

    def _warm_up(self) -> None:
        """After every untimed micro-batch, decide whether to start timing, and how many micro-batches to time."""
        self._wait()
        now, accumulate = self._now, self.run.config.accumulate
        spent = now - self._began
        if self._done < WARM_UP * accumulate and spent < self.seconds / 2:
            return
        affordable = int((self.seconds - spent) / max(now - self._last, 1e-9))
        wanted = min(STEPS * accumulate, affordable)
        if wanted > accumulate:
            wanted -= wanted % accumulate
        self._wanted, self._from, self._skipped = self._done + max(0, wanted), now, self._done

    def _wait(self) -> None:
        """Wait for the device, and store the start and the end of the last micro-batch."""
        if self.run.device.type == "cuda":
            torch.cuda.synchronize(self.run.device)
        self._last, self._now = self._now, time.perf_counter()

    def _seconds_per_validation(self, module: Pretraining) -> float:
        samples = self.data.validation
        if samples is None or not len(samples):
            return 0.0
        few = _FirstSamples(samples, min(len(samples), _VALIDATION_SAMPLES))
        began = time.perf_counter()
        mean_validation_loss(self.run, module, few)
        return (time.perf_counter() - began) * len(samples) / len(few)


class _SavedBytes(saved_tensors_hooks):
    """Counts the bytes that a forward pass saves for its gradient: each tensor once, without parameters."""

    def __init__(self) -> None:
        super().__init__(self._count, lambda tensor: tensor)
        self.bytes = 0
        self._seen: set[int] = set()

    def ignore(self, tensors: Iterable[Tensor]) -> None:
        """Do not count these tensors."""
        self._seen.update(tensor.untyped_storage().data_ptr() for tensor in tensors)

    def _count(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._seen:
            self._seen.add(storage.data_ptr())
            self.bytes += storage.nbytes()
        return tensor


class _FirstSamples:
    """The first samples of a data set."""

    def __init__(self, data: Batches, count: int) -> None:
        self.data, self.count = data, count

    def __len__(self) -> int:
        return self.count

    def batch(self, indices: Any, key: Key) -> Any:
        return self.data.batch(np.asarray(indices), key)


def _bytes(tensors: Iterable[Any]) -> int:
    return sum(value.numel() * value.element_size() for value in tensors if isinstance(value, Tensor))


def _state_bytes(optimizer: torch.optim.Optimizer) -> int:
    return sum(_bytes(state.values()) for state in optimizer.state.values())
