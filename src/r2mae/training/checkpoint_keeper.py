"""What happens between optimiser steps: metrics, validation, early stopping, checkpoints, in this order."""

import math
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from r2mae.errors import UserError
from r2mae.training.checkpoint import EARLY, SECONDS, STEP
from r2mae.training.folder import RunFolder
from r2mae.training.interrupt import Stopped, StopRequest, mark_of, signal_of
from r2mae.training.metrics import COLUMNS, MetricsFile
from r2mae.training.progress import Pace, Reporter
from r2mae.training.rendezvous import RENDEZVOUS
from r2mae.training.run import Run
from r2mae.training.saving import save_state, save_weights
from r2mae.training.sharding import gathered
from r2mae.training.shards import all_finite, full_state
from r2mae.training.step import Pretraining
from r2mae.training.task import Batches, MeasuredOtherwise
from r2mae.training.validation import masked_losses

FLUSH_EVERY = 50
_SECONDS_BETWEEN_REPORTS = 5.0
_REMEDY = "the last checkpoint is from before it; lower --lr, or set --clip 1, with a new --out"


@dataclass
class EarlyStopping:
    """Counts validations without improvement.

    Parameters
    ----------
    patience : int, optional
        Validations without improvement after which to stop; None never stops.
    """

    patience: int | None
    best: float = float("inf")
    waited: int = 0

    @property
    def over(self) -> bool:
        """Whether training should stop."""
        return self.patience is not None and self.waited >= self.patience

    def stop(self, loss: float) -> bool:
        """Count a validation loss, and return whether to stop."""
        if loss < self.best:
            self.best, self.waited = loss, 0
        else:
            self.waited += 1
        return self.over


@dataclass
class CheckpointKeeper(Callback):
    """Keeps the files of the run folder up to date with the run.

    Losses stay on the device, and are read once in :data:`FLUSH_EVERY` steps, so that the loop need not wait for the
    device. A non-finite loss is found at that moment, which always comes before a checkpoint is saved. Weights are
    checked before a checkpoint, too, since the update after a finite loss may break them. So the last checkpoint is
    sound.

    Parameters
    ----------
    run : Run
        The run.
    folder, metrics, reporter
        Its folder, its metrics file, and the reporter of its progress.
    total_steps, validate_every : int
        Optimiser steps of the run, and steps between validations.
    validation : Batches, optional
        Held-out samples.
    early : EarlyStopping
        Counts validations.
    stop : StopRequest
        Says whether a signal has asked the run to stop.
    step : int
        Optimiser steps that are done.
    seconds_before : float
        Training time of earlier calls.
    """

    run: Run
    folder: RunFolder
    metrics: MetricsFile
    reporter: Reporter
    total_steps: int
    validation: Batches | None
    validate_every: int
    early: EarlyStopping
    stop: StopRequest
    step: int = 0
    seconds_before: float = 0.0
    _began: float = 0.0
    _pending: list[tuple[int, float, float]] = field(default_factory=list)
    _losses: list[Tensor] = field(default_factory=list)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock, and begin to handle signals."""
        self.stop.listen()
        self._began = time.perf_counter()
        self._clock, self._clock_step = self._began, self.step

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        """Let the other processes know of a signal: the step sums this over all of them."""
        if isinstance(pl_module, Pretraining):
            pl_module.mark = mark_of(self.stop.number)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Once in every optimiser step: record metrics, validate, save a checkpoint, each where it is due."""
        if trainer.global_step == self.step or not isinstance(pl_module, Pretraining):
            return
        self.step = trainer.global_step
        self._losses.append(pl_module.end_step())
        self._pending.append((self.step, pl_module.ratio, trainer.optimizers[0].param_groups[0]["lr"]))
        last = self.step == self.total_steps
        validate = self.validation is not None and (self.step % self.validate_every == 0 or last)
        save = self.step % self.run.config.save_every == 0 or last
        # Several processes do the same at the same step, whatever a clock or a signal says to one of them.
        alone = trainer.world_size == 1
        asked = self.stop.number if alone else signal_of(pl_module.marks)
        now = asked is not None or (alone and time.perf_counter() - self._clock > _SECONDS_BETWEEN_REPORTS)
        keep = self.run.config.keep_every is not None and self.step % self.run.config.keep_every == 0
        if validate or save or keep or now or self.step % FLUSH_EVERY == 0:
            stopped = self._flush(pl_module, validate=validate)
            if alone:
                asked = self.stop.number  # a signal may have come meanwhile
            else:
                stopped = trainer.strategy.broadcast(stopped)
                if asked is not None and self.stop.number is None:
                    self.stop.tell()  # another process has heard it
                    self.stop.number = asked  # the next one is the second here, too
            save = save or stopped or asked is not None
            if save or keep:
                self._check_sound(pl_module)
                self.metrics.sync()
            if save:
                trainer.save_checkpoint(self.folder.checkpoint)
            if keep:
                trainer.save_checkpoint(self.folder.checkpoint.with_name(f"step-{self.step:08}.ckpt"))
            for logger in trainer.loggers:
                logger.log_metrics(self._latest, step=self.step)
            if stopped:
                trainer.should_stop = True
            elif asked is not None and not last:
                RENDEZVOUS.part()
                raise Stopped(asked)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Add the plain numbers that a resumed run needs."""
        checkpoint[STEP] = self.step
        checkpoint[EARLY] = {"best": self.early.best, "waited": self.early.waited}
        checkpoint[SECONDS] = self.seconds

    @property
    def seconds(self) -> float:
        """Training time of the run so far, over all its calls."""
        return self.seconds_before + (time.perf_counter() - self._began if self._began else 0.0)

    def _flush(self, module: Pretraining, *, validate: bool) -> bool:
        losses = torch.stack(self._losses).float().cpu()
        if not bool(torch.isfinite(losses).all()):
            bad = int((~torch.isfinite(losses)).nonzero()[0, 0])
            step, ratio, lr = self._pending[bad]
            raise UserError(
                f"the loss is {float(losses[bad])} at step {step} (ratio {ratio:.3f}, lr {lr:g}): {_REMEDY}"
            )
        held_out, stopped = None, False
        if validate and self.validation is not None:
            with gathered(module):
                held_out = held_out_loss(self.run, module, self.validation)
            if self.run.config.strategy == "fsdp":
                held_out = module.trainer.strategy.broadcast(held_out)  # what follows, they do together
            if held_out < self.early.best and self.run.config.keep == "best":
                self._save_best(module)
            stopped = self.early.stop(held_out)
            if not math.isfinite(held_out):
                raise UserError(f"the validation loss is {held_out} at step {self.step}: {_REMEDY}")
        values = losses.tolist()
        rows = [[s, r, loss, lr, None] for (s, r, lr), loss in zip(self._pending, values, strict=True)]
        rows[-1][-1] = held_out
        self.metrics.write(rows)
        self._latest = {k: v for k, v in zip(COLUMNS[1:], rows[-1][1:], strict=True) if v is not None}
        self._report(values[-1])
        self._pending, self._losses = [], []
        return stopped

    def _save_best(self, module: Pretraining) -> None:
        first = module.global_rank == 0
        if self.run.config.strategy == "fsdp":
            weights = full_state(module.kept_model, here=first)
            if first:
                save_state(self.folder.best, weights)
        elif first:
            save_weights(self.folder.best, module.kept_model)

    def _check_sound(self, module: Pretraining) -> None:
        if not all_finite(module.state_dict()):
            raise UserError(f"the model's weights are no longer finite at step {self.step}: {_REMEDY}")

    def _report(self, loss: float) -> None:
        now = time.perf_counter()
        samples = (self.step - self._clock_step) * self.run.config.batch_size
        pace = samples / max(now - self._clock, 1e-9)
        self._clock, self._clock_step = now, self.step
        self.reporter.update(Pace(self.step, self.total_steps, loss, self._pending[-1][1], pace))


def held_out_loss(run: Run, module: Pretraining, data: Batches) -> float:
    """Return the validation loss: the mean over the domain's three ratios, or that of whole inputs."""
    ratios = (run.defaults.low, run.defaults.fixed, run.defaults.high) if run.config.hides else (0.0,)
    task = module.task.measured if isinstance(module.task, MeasuredOtherwise) else module.task
    losses = masked_losses(task, module.kept_model, data, ratios, device=str(module.device))
    return sum(losses) / len(losses)
