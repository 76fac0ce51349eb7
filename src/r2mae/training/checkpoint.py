"""Checkpoints, and the work between optimiser steps: metrics, validation, early stopping, checkpoints, in order."""

import math
import os
import time
import warnings
import zlib
from collections.abc import Mapping
from errno import ENOSPC
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from r2mae.errors import UserError
from r2mae.files import atomic_write, confined_file
from r2mae.progress import Reporter, RunProgress
from r2mae.training.distributed import all_finite, as_divided, gathered, highest, whole
from r2mae.training.folder import RunFolder
from r2mae.training.interrupt import StopRequest, stopped_by
from r2mae.training.metrics import COLUMNS, Log, MetricsFile
from r2mae.training.run import Run
from r2mae.training.saving import save_weights
from r2mae.training.step import Pretraining
from r2mae.training.task import Data
from r2mae.training.validation import masked_losses

STEP, SECONDS, BEST, WAITED = "r2mae_step", "r2mae_seconds", "r2mae_best", "r2mae_waited"
_CHECKSUM = "r2mae_crc32"
_FIELD_TYPES = {STEP: int, SECONDS: float, BEST: float, WAITED: int, "state_dict": dict, "optimizer": dict}
_WRITER_MESSAGES = ("PytorchStreamWriter", "unexpected pos")  # in messages of torch's archive writer
FLUSH_EVERY = 50
_SECONDS_BETWEEN_REPORTS = 5.0
_DIVERGED_HINT = "the last checkpoint is from before it; lower --lr, or set --clip 1, with a new --out"


def write_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write to a temporary file next to `path`, with a checksum, flush it to the disk, then rename it."""
    content = {**content, _CHECKSUM: checksum(content)}
    with atomic_write(path, "wb") as file:
        try:
            torch.save(content, file)
        except RuntimeError as error:  # torch's archive writer reports a full disk in this way
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            if not any(words in str(error) for words in _WRITER_MESSAGES):
                raise  # for example a device error, which appears when tensors are read
            raise OSError(ENOSPC, os.strerror(ENOSPC)) from error


def checksum(content: Any, start: int = 0) -> int:
    """Return the CRC-32 of tensors and plain values in mappings and sequences, in their order, continued from `start`.

    A file of torch has checksums of its own, which torch does not compare.
    """
    if isinstance(content, Tensor):
        return zlib.crc32(content.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data, start)
    if isinstance(content, Mapping | list | tuple):
        for part in content.items() if isinstance(content, Mapping) else content:
            start = checksum(part, start)
        return start
    return zlib.crc32(repr(content).encode(), start)


def read_checkpoint(path: Path, *, mapped: bool = False) -> dict[str, Any]:
    """Read a checkpoint onto the CPU without unpickling anything but tensors and plain types.

    With `mapped`, its tensors stay in the file, which the processes of a machine share, until they are used.

    Raises
    ------
    UserError
        If the file is truncated, changed, no checkpoint, or would run code when read.
    """
    try:
        with warnings.catch_warnings():
            confined_file(path, path.parents[1])
            warnings.simplefilter("ignore")  # torch's warnings about pickles; the error below suffices
            checkpoint = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:  # torch raises many types of errors for a broken archive
        reason = (
            "it contains objects other than numbers, which are never unpickled"
            if "weights_only" in str(error) or "Unsupported" in str(error)
            else "it is truncated or damaged"
        )
        raise UserError(f"{path} cannot be read: {reason}; delete it to start this run again from step 0") from None
    if (
        not isinstance(checkpoint, dict)
        or not all(isinstance(checkpoint.get(key), kind) for key, kind in _FIELD_TYPES.items())
        or checkpoint[STEP] < 0
    ):
        raise UserError(f"{path} is not a checkpoint of r2mae; delete it to start this run again from step 0")
    if checkpoint.pop(_CHECKSUM, None) not in (None, checksum(checkpoint)):
        raise UserError(
            f"{path} has changed since it was written (its checksum differs); delete it to start this run again from "
            "step 0"
        )
    return checkpoint


def restore(path: Path, checkpoint: dict[str, Any], module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Load a checkpoint's tensors into a module and its optimiser, which may be divided among any number of processes.

    Raises
    ------
    UserError
        If the tensors are those of another model.
    """
    weights = module.state_dict()
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    fused = [group.get("fused") for group in optimizer.param_groups]
    try:
        state = {
            number: {name: as_divided(value, parameters[number]) for name, value in entries.items()}
            for number, entries in checkpoint["optimizer"]["state"].items()
        }
        module.load_state_dict({n: as_divided(value, weights[n]) for n, value in checkpoint["state_dict"].items()})
        optimizer.load_state_dict({**checkpoint["optimizer"], "state": state})
    except (RuntimeError, KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
        if isinstance(error, RuntimeError) and "state_dict" not in str(error):
            raise
        raise UserError(f"{path} belongs to another model: delete it to start again") from None
    for group, kernel in zip(optimizer.param_groups, fused, strict=True):
        if "fused" in group:
            group["fused"] = kernel  # depends on where the parameters are


class CheckpointKeeper:
    """Keeps the files of the run folder up to date.

    Losses stay on the device and are read every :data:`FLUSH_EVERY` steps, so that the loop does not wait for the
    device. They are also read and checked before each checkpoint. Weights are checked before a checkpoint too, since
    the update after a finite loss may make them non-finite. So every checkpoint is finite.

    `step` counts the optimiser steps done, `best` is the lowest validation loss. `metrics`, `reporter` and `tracker`
    receive the metrics; of several processes, only in that of rank 0.
    """

    def __init__(
        self,
        run: Run,
        module: Pretraining,
        data: Data,
        folder: RunFolder,
        checkpoint: Mapping[str, Any] | None,
        *,
        metrics: MetricsFile | None,
        reporter: Reporter | None,
        tracker: Log | None,
        stop: StopRequest,
    ) -> None:
        self.run, self.module, self.folder, self.validation = run, module, folder, data.validation
        self.metrics, self.reporter, self.tracker, self.stop = metrics, reporter, tracker, stop
        begun = checkpoint or {STEP: 0, SECONDS: 0.0, BEST: math.inf, WAITED: 0}
        self.step, self._waited = int(begun[STEP]), int(begun[WAITED])
        self.best, self._seconds_before = float(begun[BEST]), float(begun[SECONDS])
        optimizer = run.config.optimizer
        self._validate_every = optimizer.validate_every or max(1, round(len(data.train) / optimizer.batch_size))
        self._began = 0.0
        self._pending: list[tuple[int, float, float]] = []
        self._losses: list[Tensor] = []

    @property
    def finished(self) -> bool:
        """Whether all steps are done, or validation has not improved for longer than the patience."""
        return self.step >= self.module.total_steps or self._exhausted

    @property
    def _exhausted(self) -> bool:
        patience = self.run.config.optimizer.patience
        return patience is not None and self._waited >= patience

    @property
    def seconds(self) -> float:
        """Training time of the run so far in seconds, over all its calls."""
        return self._seconds_before + (time.perf_counter() - self._began if self._began else 0.0)

    def start(self) -> None:
        """Start the clock."""
        self._began = time.perf_counter()
        self._report_time, self._report_step = self._began, self.step
        if self.reporter is not None:
            self.reporter.start(self.step, self.module.total_steps)

    def after_step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Record metrics, validate, save a checkpoint, each if it is due; return whether to stop early.

        Raises
        ------
        KeyboardInterrupt, SystemExit
            After a signal to one of the processes, once the step is saved.
        """
        machine = self.run.config.machine
        self.step += 1
        self._losses.append(self.module.end_step())
        self._pending.append((self.step, self.module.ratio, optimizer.param_groups[0]["lr"]))
        last = self.step == self.module.total_steps
        validate = self.validation is not None and (self.step % self._validate_every == 0 or last)
        save = self.step % machine.save_every == 0 or last
        keep = machine.keep_every is not None and self.step % machine.keep_every == 0
        # All processes of a run must act at the same step, so they share signals and ignore their own clocks.
        single = self.run.ranks == 1
        asked = int(highest(self.run, self.stop.number or 0)) or None
        now = asked is not None or (single and time.perf_counter() - self._report_time > _SECONDS_BETWEEN_REPORTS)
        if not (validate or save or keep or now or self.step % FLUSH_EVERY == 0):
            return False
        self._flush(validate=validate)
        if single:
            asked = self.stop.number  # a signal may have come meanwhile
        elif asked is not None:
            self.stop.agree(asked)
        save = save or self._exhausted or asked is not None
        if save or keep:
            if not all_finite(self.module.state_dict()):
                raise UserError(f"the model's weights are no longer finite at step {self.step}: {_DIVERGED_HINT}")
            if self.metrics is not None:
                self.metrics.sync()
        if save:
            self._save("last", optimizer)
        if keep:
            self._save(f"step-{self.step:08}", optimizer)
        if self.tracker is not None:
            self.tracker(self._latest, self.step)
        if asked is not None and not self.finished:
            if not single:
                torch.distributed.barrier()  # torchrun ends all when the first one ends, and rank 0 may still save
            raise stopped_by(asked)
        return self._exhausted

    def _save(self, name: str, optimizer: torch.optim.Optimizer) -> None:
        """Save what a resumed run needs: tensors, step, early stopping, training time."""
        here = self.run.rank == 0
        content = {
            STEP: self.step,
            SECONDS: self.seconds,
            BEST: self.best,
            WAITED: self._waited,
            "state_dict": whole(self.module.state_dict(), here=here),
            "optimizer": whole(optimizer.state_dict(), here=here),
        }
        if here:
            write_checkpoint(self.folder.checkpoint.with_name(f"{name}.ckpt"), content)

    def _flush(self, *, validate: bool) -> None:
        losses = torch.stack(self._losses).float().cpu()
        if not bool(torch.isfinite(losses).all()):
            bad = int((~torch.isfinite(losses)).nonzero()[0, 0])
            step, ratio, lr = self._pending[bad]
            raise UserError(
                f"the loss is {float(losses[bad])} at step {step} (ratio {ratio:.3f}, lr {lr:g}): {_DIVERGED_HINT}"
            )
        values = losses.tolist()
        rows = [[s, r, loss, lr, None] for (s, r, lr), loss in zip(self._pending, values, strict=True)]
        if validate:
            rows[-1][-1] = self._validate()
        if self.metrics is not None:
            self.metrics.write(rows)
        self._latest = {k: v for k, v in zip(COLUMNS[1:], rows[-1][1:], strict=True) if v is not None}
        if self.reporter is not None:
            self.reporter.update(self._progress(values[-1]))
        self._pending, self._losses = [], []

    def _validate(self) -> float:
        """Return the validation loss: the mean over the domain's three ratios, or at ratio 0 if nothing is hidden."""
        config, model, task = self.run.config, self.module.evaluation_model, self.module.task
        defaults = config.scheme_defaults if config.hides else None
        ratios = (0.0,) if defaults is None else (defaults.low, defaults.ratio, defaults.high)
        assert self.validation is not None
        with gathered(self.module):
            losses = masked_losses(task, model, self.validation, ratios, device=str(self.run.device))
        mine = sum(losses) / len(losses) if self.run.rank == 0 else -math.inf
        loss = highest(self.run, mine)  # all processes decide alike, by the model that is saved
        if not math.isfinite(loss):
            raise UserError(f"the validation loss is {loss} at step {self.step}: {_DIVERGED_HINT}")
        if loss >= self.best:
            self._waited += 1
            return loss
        self.best, self._waited = loss, 0
        if config.optimizer.keep == "best":
            weights = whole(model.state_dict(), here=self.run.rank == 0)
            if self.run.rank == 0:
                save_weights(self.folder.best, weights)
        return loss

    def _progress(self, loss: float) -> RunProgress:
        now = time.perf_counter()
        samples = (self.step - self._report_step) * self.run.config.optimizer.batch_size
        pace = samples / max(now - self._report_time, 1e-9)
        self._report_time, self._report_step = now, self.step
        ratio = self._pending[-1][1]
        return RunProgress(self.step, self.module.total_steps, loss, ratio, pace)
