"""``fit``: train a model into a run folder, or resume a run that was interrupted.

``step.py`` holds one optimiser step; ``checkpoint.py`` holds what happens between steps.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from r2mae import __version__
from r2mae.environment import standard_session
from r2mae.errors import UserError
from r2mae.masking.keys import Key
from r2mae.masking.schemes import Scheme
from r2mae.progress import Reporter
from r2mae.registry import JOBS
from r2mae.spawned import check_guard, end_if_started_by_script
from r2mae.training.checkpoint import STEP, CheckpointKeeper, read_checkpoint, restore
from r2mae.training.config import RunConfig
from r2mae.training.distributed import agree, distribute, highest, join, synced_batch_norms, together, whole
from r2mae.training.folder import FolderLock, RunFolder
from r2mae.training.initial import Origin, check_initial_weights_unchanged
from r2mae.training.interrupt import StopRequest, stopped_by
from r2mae.training.metrics import MetricsFile, tracker_of
from r2mae.training.order import BatchOrder, make_loader, stop_workers
from r2mae.training.run import Run, check_fits_memory, cpu_threads
from r2mae.training.saving import load_weights, save_model
from r2mae.training.step import Pretraining
from r2mae.training.task import Data, Task, Trainable
from r2mae.training.validation import batch_norms, estimate_statistics, to_device

_OWN_FIELDS = ("device", "workers", "threads", "cache", "logger")  # may differ between processes


@dataclass(frozen=True)
class Fitted:
    """The outcome of :func:`fit`.

    Parameters
    ----------
    folder : RunFolder
    steps : int
        Optimiser steps of the finished run (fewer than planned after early stopping).
    resumed_from : int
        Step from which this call resumed the run; 0 for a new run.
    trained_now : bool
        Whether this call trained; False if the run was already finished.
    seconds : float
        Training time of the run, over all calls that it took.
    """

    folder: RunFolder
    steps: int
    resumed_from: int
    trained_now: bool
    seconds: float


@standard_session()
def fit(
    config: RunConfig, domain: Trainable, out: str | Path, *, data: Data | None = None, reporter: Reporter | None = None
) -> Fitted:
    """Pretrain a model, or resume a run where an earlier call was interrupted.

    Every batch is a pure function of seed and step. So on the same machine with the same number of threads, a resumed
    run ends with the same weights and metrics, byte for byte, as an uninterrupted one.

    Parameters
    ----------
    config, domain
        The domain's configuration, and the domain: data, task and model. With `devices` above 1, torchrun must have
        started the script (``torchrun --nproc-per-node 2 script.py``); all processes return when the model is written.
    out : path
        The run folder.
    data : Data, optional
        The domain's data, if they are loaded already.
    reporter : Reporter, optional
        Receives the progress of the run.

    Raises
    ------
    UserError
        If the folder belongs to another configuration or is in use, the checkpoint is damaged, or the loss is not
        finite.
    """
    end_if_started_by_script()
    with together(config):
        return fit_run(Run.resolve(config, domain), out, data=data, reporter=reporter)


def fit_run(run: Run, out: str | Path, *, data: Data | None = None, reporter: Reporter | None = None) -> Fitted:
    """Do what :func:`fit` does, for a :class:`Run` that exists already."""
    config, domain, folder = run.config, run.domain, RunFolder(out)
    if data is not None:
        check_fits_memory(config, domain, data)  # before anything is written
    with FolderLock(folder.path) if run.rank == 0 else nullcontext(), cpu_threads(config.machine.threads):
        begun = folder.config_file.exists()
        if begun:
            folder.claim(config, run.fingerprint)
            check_initial_weights_unchanged(folder)
        if folder.trained:
            description = folder.description
            return Fitted(folder, description.steps, 0, False, description.seconds)
        if config.machine.workers:
            check_guard()
        if data is None:
            data = domain.load(config)
            check_fits_memory(config, domain, data)
        checkpoint, step = None, 0
        if folder.checkpoint.exists():
            checkpoint = read_checkpoint(folder.checkpoint, mapped=config.machine.strategy == "fsdp")
            step = int(checkpoint[STEP])
        join(run)
        fields = {name: value for name, value in config.flat().items() if name not in _OWN_FIELDS}
        state = {"the data's fingerprint": run.fingerprint, "the checkpoint's step": step}
        agree(run, {"the version of r2mae": __version__, **fields, **state})
        with keyed_torch(config.key):
            module, origin = build(run, data, fresh=checkpoint is None)
            if run.rank == 0:
                if not begun:  # after the build: initial weights may not fit
                    folder.claim(config, run.fingerprint)
                if origin is not None:
                    origin.record(folder)
                folder.remove_unfinished()
                folder.record_machine(run.device.type, step)
            keeper = _train(run, module, data, folder, checkpoint, reporter)
        seconds = keeper.seconds
        if run.rank == 0:
            if config.optimizer.keep == "best" and keeper.best < float("inf"):
                load_weights(folder.best, module.evaluation_model.load_state_dict)
            # Early stopping may end the run before the planned steps, on which schedules are based.
            planned = {"planned_steps": module.total_steps}
            record = {"domain": domain.name, "steps": keeper.step, **planned, "seconds": seconds}
            statistics = estimate_statistics(module.task, module.evaluation_model, data.train)
            save_model(folder, data.architecture, module.evaluation_model, record, statistics)
        highest(run, 0.0)  # no process returns before the model is written
        if keeper.stop.number is not None:  # in the last step: what follows would take minutes, and is done on a rerun
            raise stopped_by(keeper.stop.number)
        return Fitted(folder, keeper.step, step, True, seconds)


def build(run: Run, data: Data, *, fresh: bool) -> tuple[Pretraining, Origin | None]:
    """Build the model and the module that trains it; for a fresh run, also return the origin of its initial weights.

    The initial weights are random, or those that the configuration names.
    """
    config, samples = run.config, len(data.train)
    total = config.optimizer.total_steps(samples)
    task, model, origin = begin(config, run.domain, data) if fresh else (*run.domain.build(data.architecture), None)
    if config.machine.sync_batchnorm and not any(isinstance(layer, _BatchNorm) for layer in model.modules()):
        raise UserError("this model has no batch normalisation: omit --sync-batchnorm")
    scheme = (
        config.scheme.bind(total, samples / config.optimizer.batch_size, config.optimizer.batch_size)
        if config.hides
        else None
    )
    if scheme and fresh and run.rank == 0:
        _warn(scheme, model, config)
    module = Pretraining(task, model, scheme, config, total, rank=run.rank)
    if config.optimizer.compile:
        model.compile()
    return module, origin


def begin(config: RunConfig, domain: Trainable, data: Data) -> tuple[Task, nn.Module, Origin | None]:
    """Return the task, and the model as a run begins with it, and where its weights are from if they are not random.

    Random weights come from torch's generator (:func:`keyed_torch`).
    """
    task, model = domain.build(data.architecture)
    origin = domain.load_initial_weights(config, model)
    data.initialise(model)
    return task, model, origin


def _warn(scheme: Scheme, model: nn.Module, config: RunConfig) -> None:
    """Log what is allowed, but hardly meant."""
    ratio, log = scheme.ratio, logging.getLogger("r2mae")
    if ratio.never_falls:
        log.warning(
            "the mask ratio falls from epoch to epoch, and this run has one epoch: the ratio stays constant "
            "(train longer, or set --decay-in steps)"
        )
    mixed = ratio.per_sample and any(one.training for one in batch_norms(model).values())
    # A comparison says it once.
    if mixed and JOBS not in os.environ and getattr(config.evaluation, "bn_statistics", None) == "yes":
        log.warning(
            "each training batch mixes mask ratios, and batch statistics re-estimated at one ratio do not fit such a "
            'model, which concerns its errors at mask ratios: measure them with bn_statistics="both" '
            '(--bn-statistics both), or, if the model has it, use norm="layer" (--norm layer)'
        )


def _train(
    run: Run,
    module: Pretraining,
    data: Data,
    folder: RunFolder,
    checkpoint: dict[str, Any] | None,
    reporter: Reporter | None,
) -> CheckpointKeeper:
    """Train from the checkpoint to the last step, or from the beginning if there is no checkpoint."""
    config, first = run.config, 0 if checkpoint is None else int(checkpoint[STEP])
    sharded = config.machine.strategy == "fsdp"
    with (
        MetricsFile(folder.metrics_file, keep=first) if run.rank == 0 else nullcontext() as metrics,
        tracker_of(config, folder, first) if run.rank == 0 else nullcontext() as tracker,
        StopRequest(run.rank, run.ranks) as stop,
        synced_batch_norms(module.model) if config.machine.sync_batchnorm else nullcontext(),
    ):
        shown = reporter if run.rank == 0 else None
        keeper = CheckpointKeeper(
            run, module, data, folder, checkpoint, metrics=metrics, reporter=shown, tracker=tracker, stop=stop
        )
        try:
            take_steps(run, module, data, keeper, checkpoint)
        except torch.OutOfMemoryError:
            raise UserError(
                f"the device's memory does not hold {config.micro_batch:,} samples at a time: double --accumulate "
                "(the same optimiser step in more parts), or take a smaller --preset"
            ) from None
        finally:
            if shown is not None:
                shown.stop()
    if sharded:
        weights = whole(module.evaluation_model.state_dict(), here=run.rank == 0)
        if run.rank == 0:
            _, model = run.domain.build(data.architecture)
            model.load_state_dict(weights)
            module.model, module.average = model, None
    return keeper


def take_steps(
    run: Run, module: Pretraining, data: Data, keeper: CheckpointKeeper, checkpoint: dict[str, Any] | None
) -> None:
    """Take the remaining optimiser steps of a run: this is the training loop."""
    config, device, accumulate = run.config, run.device, run.config.optimizer.accumulate
    network = distribute(run, module)
    optimizer = module.make_optimizer()
    if checkpoint is not None:
        restore(keeper.folder.checkpoint, checkpoint, module, optimizer)
    if keeper.finished:
        return
    order = BatchOrder(
        len(data.train),
        config.optimizer.batch_size,
        module.total_steps,
        config.key,
        accumulate=accumulate,
        first_step=keeper.step,
        rank=run.rank,
        ranks=run.ranks,
    )
    loader = make_loader(data.train, order, config.key.fold("batch"), workers=config.machine.workers, device=device)
    batches = iter(loader)
    autocast = partial(torch.autocast, device.type, torch.bfloat16, enabled=run.bf16, cache_enabled=False)
    without_sync = getattr(network, "no_sync", nullcontext)  # DDP sums gradients at the last micro-batch alone
    keeper.start()
    try:
        for step in range(keeper.step, module.total_steps):
            module.set_learning_rate(optimizer, step)
            optimizer.zero_grad()
            for part in range(accumulate):
                batch = to_device(next(batches), device)
                with nullcontext() if part == accumulate - 1 else without_sync():
                    with autocast():
                        loss = network(batch, step, part)
                    (loss / accumulate).backward()
            module.complete_gradients()
            optimizer.step()
            if keeper.after_step(optimizer):
                return
    finally:
        stop_workers(batches)


@contextmanager
def keyed_torch(key: Key) -> Iterator[None]:
    """Seed torch's generator from the run's key within the block, and restore the caller's state afterwards."""
    # An uninitialised device has no generator state to restore.
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices):
        torch.manual_seed(key.fold("init").seed())
        yield
