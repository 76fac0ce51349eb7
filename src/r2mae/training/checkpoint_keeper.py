"""Work between optimiser steps: metrics, validation, early stopping, checkpoints, in this order."""

import math
import time
from dataclasses import dataclass, field

import torch
from torch import Tensor

from r2mae.errors import UserError, warn_once
from r2mae.training.checkpoint import EARLY, SECONDS, STEP, save_checkpoint
from r2mae.training.distributed import all_finite, from_first, full_state, gathered, wait_for_all
from r2mae.training.folder import RunFolder
from r2mae.training.interrupt import StoppedBySignal, StopRequest, signal_from_codes
from r2mae.training.loggers import Tracker
from r2mae.training.metrics import COLUMNS, MetricsFile
from r2mae.training.progress import Reporter, RunProgress
from r2mae.training.run import Run
from r2mae.training.saving import save_state, save_weights
from r2mae.training.step import Pretraining
from r2mae.training.task import Batches
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
class CheckpointKeeper:
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
    tracker : Tracker, optional
        Receives the metrics, too.
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
    tracker: Tracker | None = None
    step: int = 0
    seconds_before: float = 0.0
    _began: float = 0.0
    _pending: list[tuple[int, float, float]] = field(default_factory=list)
    _losses: list[Tensor] = field(default_factory=list)

    def start(self) -> None:
        """Start the clock."""
        self._began = time.perf_counter()
        self._report_time, self._report_step = self._began, self.step
        self.reporter.start(self.step, self.total_steps)

    def after_step(self, module: Pretraining, optimizer: torch.optim.Optimizer) -> bool:
        """Record metrics, validate, save a checkpoint, each if it is due; return whether to stop early.

        Raises
        ------
        StoppedBySignal
            After a signal to one of the processes, once the step is saved.
        """
        config = self.run.config
        self.step += 1
        self._losses.append(module.end_step())
        self._pending.append((self.step, module.ratio, optimizer.param_groups[0]["lr"]))
        last = self.step == self.total_steps
        validate = self.validation is not None and (self.step % self.validate_every == 0 or last)
        save = self.step % config.machine.save_every == 0 or last
        keep = config.machine.keep_every is not None and self.step % config.machine.keep_every == 0
        # All processes of a run must act at the same step, so they share signals and ignore their own clocks.
        single = self.run.ranks == 1
        asked = self.stop.number if single else signal_from_codes(module.summed_signal_codes)
        now = asked is not None or (single and time.perf_counter() - self._report_time > _SECONDS_BETWEEN_REPORTS)
        if not (validate or save or keep or now or self.step % FLUSH_EVERY == 0):
            return False
        stopped = self._flush(module, validate=validate)
        if single:
            asked = self.stop.number  # a signal may have come meanwhile
        elif asked is not None:
            self.stop.agree(asked)
        save = save or stopped or asked is not None
        if save or keep:
            self._check_finite(module)
            self.metrics.sync()
        if save:
            self._save("last", module, optimizer)
        if keep:
            self._save(f"step-{self.step:08}", module, optimizer)
        if self.tracker is not None:
            try:
                self.tracker.log(self._latest, self.step)
            except Exception as error:  # a network that fails must not end the training
                warn_once(f"the logger {self.run.config.machine.logger!r} failed, and training goes on: {error}")
        if asked is not None and not (stopped or last):
            wait_for_all(self.run)  # torchrun ends all when the first one ends, and rank 0 may still save
            raise StoppedBySignal(asked)
        return stopped

    def _save(self, name: str, module: Pretraining, optimizer: torch.optim.Optimizer) -> None:
        """Save what a resumed run needs, with its numbers: step, early stopping, training time."""
        early = {"best": self.early.best, "waited": self.early.waited}
        counters = {STEP: self.step, EARLY: early, SECONDS: self.seconds}
        path = self.folder.checkpoint.with_name(f"{name}.ckpt")
        sharded = self.run.config.machine.strategy == "fsdp"
        save_checkpoint(path, module, optimizer, counters, rank=self.run.rank, sharded=sharded)

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
            validation_loss = from_first(self.run, validation_loss)  # all processes decide alike
            if validation_loss < self.early.best and self.run.config.optimizer.keep == "best":
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
        first = self.run.rank == 0
        if self.run.config.machine.strategy == "fsdp":
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
        samples = (self.step - self._report_step) * self.run.config.optimizer.batch_size
        pace = samples / max(now - self._report_time, 1e-9)
        self._report_time, self._report_step = now, self.step
        self.reporter.update(RunProgress(self.step, self.total_steps, loss, self._pending[-1][1], pace))


def mean_validation_loss(run: Run, module: Pretraining, data: Batches) -> float:
    """Return the validation loss: the mean over the domain's three ratios; for a run that hides nothing, at ratio 0."""
    defaults = run.config.scheme_defaults if run.config.hides else None
    ratios = (0.0,) if defaults is None else (defaults.low, defaults.ratio, defaults.high)
    task = module.task.evaluation_task
    losses = masked_losses(task, module.evaluation_model, data, ratios, device=str(run.device))
    return sum(losses) / len(losses)
