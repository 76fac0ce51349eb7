"""Work between optimiser steps: metrics, validation, early stopping, checkpoints, in this order."""

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
from r2mae.training.interrupt import StoppedBySignal, StopRequest, signal_code, signal_from_codes
from r2mae.training.metrics import COLUMNS, MetricsFile
from r2mae.training.progress import Reporter, RunProgress
from r2mae.training.rendezvous import RENDEZVOUS
from r2mae.training.run import Run
from r2mae.training.saving import save_state, save_weights
from r2mae.training.sharding import gathered
from r2mae.training.shards import all_finite, full_state
from r2mae.training.step import Pretraining
from r2mae.training.task import Batches, HasEvaluationTask
from r2mae.training.validation import masked_losses

FLUSH_EVERY = 50
_SECONDS_BETWEEN_REPORTS = 5.0
_DIVERGED_HINT = "the last checkpoint is from before it; lower --lr, or set --clip 1, with a new --out"


@dataclass
class EarlyStopping:
    """Counts validations without improvement.

    Parameters
    ----------
    patience : int, optional
        Validations without improvement after which training stops; None never stops.
    """

    patience: int | None
    best: float = float("inf")
    waited: int = 0

    @property
    def exhausted(self) -> bool:
        """Whether patience is exhausted."""
        return self.patience is not None and self.waited >= self.patience

    def update(self, loss: float) -> bool:
        """Count a validation loss, and return whether to stop."""
        if loss < self.best:
            self.best, self.waited = loss, 0
        else:
            self.waited += 1
        return self.exhausted


@dataclass
class CheckpointKeeper(Callback):
    """Keeps the files of the run folder up to date.

    Losses stay on the device and are read every :data:`FLUSH_EVERY` steps, so that the loop does not wait for the
    device. They are also read and checked before each checkpoint. Weights are checked before a checkpoint too, since
    the update after a finite loss may make them non-finite. So every checkpoint is finite.

    Parameters
    ----------
    run : Run
        The run.
    folder, metrics, reporter
        The run's folder, its metrics file, and the reporter of its progress.
    total_steps, validate_every : int
        Optimiser steps of the run, and steps between validations.
    validation : Batches, optional
        Validation samples.
    early : EarlyStopping
        Counts validations.
    stop : StopRequest
        Whether a signal has asked the run to stop.
    step : int
        Optimiser steps done.
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
        """Start the clock, and handle signals."""
        self.stop.install_handlers()
        self._began = time.perf_counter()
        self._report_time, self._report_step = self._began, self.step

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        """Tell the other processes of a signal: the step sums its code over all processes."""
        if isinstance(pl_module, Pretraining):
            pl_module.signal_code = signal_code(self.stop.number)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """After every optimiser step: record metrics, validate, save a checkpoint, each if it is due."""
        if trainer.global_step == self.step or not isinstance(pl_module, Pretraining):
            return
        self.step = trainer.global_step
        self._losses.append(pl_module.end_step())
        self._pending.append((self.step, pl_module.ratio, trainer.optimizers[0].param_groups[0]["lr"]))
        last = self.step == self.total_steps
        validate = self.validation is not None and (self.step % self.validate_every == 0 or last)
        save = self.step % self.run.config.save_every == 0 or last
        # All processes of a run must act at the same step, so they share signals and ignore their own clocks.
        single = trainer.world_size == 1
        asked = self.stop.number if single else signal_from_codes(pl_module.summed_signal_codes)
        now = asked is not None or (single and time.perf_counter() - self._report_time > _SECONDS_BETWEEN_REPORTS)
        keep = self.run.config.keep_every is not None and self.step % self.run.config.keep_every == 0
        if validate or save or keep or now or self.step % FLUSH_EVERY == 0:
            stopped = self._flush(pl_module, validate=validate)
            if single:
                asked = self.stop.number  # a signal may have come meanwhile
            else:
                stopped = trainer.strategy.broadcast(stopped)
                if asked is not None and self.stop.number is None:
                    self.stop.announce()  # another process received the signal
                    self.stop.number = asked  # so a further signal stops this process at once
            save = save or stopped or asked is not None
            if save or keep:
                self._check_finite(pl_module)
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
                raise StoppedBySignal(asked)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Add the numbers that a resumed run needs: step, early stopping, training time."""
        checkpoint[STEP] = self.step
        checkpoint[EARLY] = {"best": self.early.best, "waited": self.early.waited}
        checkpoint[SECONDS] = self.seconds

    @property
    def seconds(self) -> float:
        """Training time of the run so far in seconds, over all its calls."""
        return self.seconds_before + (time.perf_counter() - self._began if self._began else 0.0)

    def _flush(self, module: Pretraining, *, validate: bool) -> bool:
        losses = torch.stack(self._losses).float().cpu()
        if not bool(torch.isfinite(losses).all()):
            bad = int((~torch.isfinite(losses)).nonzero()[0, 0])
            step, ratio, lr = self._pending[bad]
            raise UserError(
                f"the loss is {float(losses[bad])} at step {step} (ratio {ratio:.3f}, lr {lr:g}): {_DIVERGED_HINT}"
            )
        validation_loss, stopped = None, False
        if validate and self.validation is not None:
            with gathered(module):
                validation_loss = mean_validation_loss(self.run, module, self.validation)
            if self.run.config.strategy == "fsdp":
                validation_loss = module.trainer.strategy.broadcast(validation_loss)  # all processes decide alike
            if validation_loss < self.early.best and self.run.config.keep == "best":
                self._save_best(module)
            stopped = self.early.update(validation_loss)
            if not math.isfinite(validation_loss):
                raise UserError(f"the validation loss is {validation_loss} at step {self.step}: {_DIVERGED_HINT}")
        values = losses.tolist()
        rows = [[s, r, loss, lr, None] for (s, r, lr), loss in zip(self._pending, values, strict=True)]
        rows[-1][-1] = validation_loss
        self.metrics.write(rows)
        self._latest = {k: v for k, v in zip(COLUMNS[1:], rows[-1][1:], strict=True) if v is not None}
        self._report(values[-1])
        self._pending, self._losses = [], []
        return stopped

    def _save_best(self, module: Pretraining) -> None:
        first = module.global_rank == 0
        if self.run.config.strategy == "fsdp":
            weights = full_state(module.evaluation_model, here=first)
            if first:
                save_state(self.folder.best, weights)
        elif first:
            save_weights(self.folder.best, module.evaluation_model)

    def _check_finite(self, module: Pretraining) -> None:
        if not all_finite(module.state_dict()):
            raise UserError(f"the model's weights are no longer finite at step {self.step}: {_DIVERGED_HINT}")

    def _report(self, loss: float) -> None:
        now = time.perf_counter()
        samples = (self.step - self._report_step) * self.run.config.batch_size
        pace = samples / max(now - self._report_time, 1e-9)
        self._report_time, self._report_step = now, self.step
        self.reporter.update(RunProgress(self.step, self.total_steps, loss, self._pending[-1][1], pace))


def mean_validation_loss(run: Run, module: Pretraining, data: Batches) -> float:
    """Return the validation loss: the mean over the domain's three ratios; for a run that hides nothing, at ratio 0."""
    defaults = run.config.scheme_defaults if run.config.hides else None
    ratios = (0.0,) if defaults is None else (defaults.low, defaults.ratio, defaults.high)
    task = module.task.evaluation_task if isinstance(module.task, HasEvaluationTask) else module.task
    losses = masked_losses(task, module.evaluation_model, data, ratios, device=str(module.device))
    return sum(losses) / len(losses)
