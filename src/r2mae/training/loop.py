"""``fit``: from a configuration to a trained model in a run folder, resuming by itself where a run was cut off."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch import Trainer
from torch import nn
from torch.utils.data import DataLoader, Dataset

from r2mae.errors import UserError
from r2mae.masking.keys import Key
from r2mae.training.checkpoint import EARLY, SECONDS, STEP, AtomicCheckpointIO, read_checkpoint
from r2mae.training.config import RunConfig
from r2mae.training.devices import check_threads, cpu_threads, lightning_device
from r2mae.training.folder import FolderLock, RunFolder
from r2mae.training.interrupt import TOLD, Stopped, StopRequest
from r2mae.training.keeper import EarlyStopping, Keeper
from r2mae.training.launcher import WatchedStrategy, loss_of_a_process
from r2mae.training.loggers import check_logger, make_logger
from r2mae.training.memory import freed_memory_kept
from r2mae.training.metrics import MetricsFile
from r2mae.training.module import Pretraining
from r2mae.training.numbers import ratios_of
from r2mae.training.order import BatchOrder
from r2mae.training.progress import Reporter, Silent
from r2mae.training.quiet import quiet_lightning
from r2mae.training.ranks import FOLLOWING, process_rank
from r2mae.training.recalibrate import estimate_statistics
from r2mae.training.room import check_room
from r2mae.training.saving import load_weights, save_model
from r2mae.training.scheme_options import scheme_of
from r2mae.training.task import Batches, Data, MovableBatches, Trainable

# Third-party warnings that are no news to a user of this loop, one by one.
_KNOWN_WARNINGS = (
    ".*number of training batches .* is smaller than the logging interval.*",  # of a short run with a tracker
    ".*does not have many workers.*",  # batches are indexed in memory: a worker would only copy them
    ".*Consider setting `persistent_workers=True`.*",  # a run is one epoch: its workers start once as it is
    ".*your dataloader is not resumable.*",  # it is: the batch sampler starts at the restored step
    ".*You defined a `validation_step`.*",
    ".*`isinstance.treespec, LeafSpec.` is deprecated.*",  # Lightning's use of torch's pytree
    ".*Found .* module.s. in eval mode at the start of training.*",
)


@dataclass(frozen=True)
class Fitted:
    """What became of a run.

    Parameters
    ----------
    folder : RunFolder
        Where it lies.
    steps : int
        Optimiser steps of the finished run (fewer than planned after early stopping).
    resumed_from : int
        Step at which this call went on; 0 for a new run.
    worked : bool
        False if the run was already finished, so that nothing was done.
    seconds : float
        Training time of the run, over all calls that it took.
    """

    folder: RunFolder
    steps: int
    resumed_from: int
    worked: bool
    seconds: float


def fit(
    config: RunConfig, wing: Trainable, out: str | Path, *, data: Data | None = None, reporter: Reporter | None = None
) -> Fitted:
    """Pretrain a model, or go on where an earlier call was cut off.

    A run is one Lightning epoch over a loader whose batches are a pure function of seed and step; a resumed run ends
    with the same weights and metrics, byte for byte, as an undisturbed one on the same machine and thread count.

    Parameters
    ----------
    config : RunConfig
        The wing's configuration.
    wing : Trainable
        Data, task and model.
    out : path
        The run folder.
    data : Data, optional
        The wing's data, where they are loaded already.
    reporter : Reporter, optional
        Who is told of progress.

    Raises
    ------
    UserError
        For a folder of another configuration or in use, a damaged checkpoint, or a non-finite loss.
    """
    FOLLOWING.start()
    numbers = ratios_of(wing, config)
    scheme = scheme_of(config, numbers)  # mistakes are found before anything is written
    lightning_device(config.device)
    check_threads(config.threads)
    if data is not None:
        check_room(config, wing, data)
    check_logger(config.logger)
    folder, rank = RunFolder(out), process_rank(config.devices)
    with FolderLock(folder.path) if rank == 0 else nullcontext(), cpu_threads(config.threads):
        known = folder.config_file.exists() or rank > 0
        if folder.config_file.exists():
            folder.claim(config, wing.fingerprint(config), numbers)
        if folder.trained:
            there = folder.description
            return Fitted(folder, there.steps, 0, False, there.seconds)
        if data is None:
            data = wing.load(config)
            check_room(config, wing, data)
        if not known:
            folder.claim(config, wing.fingerprint(config), numbers)
        if rank == 0:
            folder.sweep()
        total = config.total_steps(len(data.train))
        with _keyed_torch(config.seed):
            task, model = wing.build(data.architecture)
            module = Pretraining(task, model, scheme.bind(total), config, total)
            if config.compile:
                model.compile()
            checkpoint = read_checkpoint(folder.checkpoint) if folder.checkpoint.exists() else None
            keeper = _train(
                module, data, wing, folder, total=total, checkpoint=checkpoint, reporter=reporter or Silent()
            )
        first = 0 if checkpoint is None else int(checkpoint[STEP])
        seconds = keeper.seconds
        description = {"wing": wing.name, "steps": keeper.step, "seconds": seconds}
        if rank == 0:
            if config.keep == "best" and keeper.early.best < float("inf"):
                load_weights(folder.best, module.kept_model)
            statistics = estimate_statistics(task, module.kept_model, data.train)
            save_model(folder, data.architecture, module.kept_model, description, statistics)
        return Fitted(folder, keeper.step, first, True, seconds)


def _train(
    module: Pretraining,
    data: Data,
    wing: Trainable,
    folder: RunFolder,
    *,
    total: int,
    checkpoint: dict[str, Any] | None,
    reporter: Reporter,
) -> Keeper:
    config = module.config
    numbers = ratios_of(wing, config)
    first = 0 if checkpoint is None else int(checkpoint[STEP])
    early, stop = EarlyStopping(config.patience), StopRequest()
    if checkpoint is not None:
        early = EarlyStopping(config.patience, checkpoint[EARLY]["best"], checkpoint[EARLY]["waited"])
    ended = first >= total or (config.patience is not None and early.waited >= config.patience)
    rank = process_rank(config.devices)
    with MetricsFile(folder.metrics_file, keep=first, rank=rank) as metrics:
        epoch = max(1, round(len(data.train) / config.batch_size))
        keeper = Keeper(
            folder=folder,
            metrics=metrics,
            config=config,
            reporter=reporter,
            total_steps=total,
            validation=data.validation,
            validate_every=config.validate_every or epoch,
            ratios=(numbers.low, numbers.fixed, numbers.high),
            early=early,
            stop=stop,
            step=first,
            seconds_before=0.0 if checkpoint is None else float(checkpoint[SECONDS]),
        )
        if ended and checkpoint is not None:
            load_state(module, checkpoint, folder)
            return keeper
        order = BatchOrder(
            len(data.train),
            config.batch_size,
            total,
            Key.root(config.seed),
            accumulate=config.accumulate,
            first_step=first,
            rank=rank,
            ranks=config.devices,
        )
        if rank:
            keeper.reporter = reporter = Silent()
        reporter.start(first, total)
        try:
            with quiet_lightning(_KNOWN_WARNINGS), stop, freed_memory_kept():
                trainer = _trainer(config, keeper, module)
                path = folder.checkpoint if checkpoint is not None else None
                with _together(trainer):
                    trainer.fit(module, _loader(data.train, order, config, trainer), ckpt_path=path, weights_only=True)
        except Stopped as stopped:
            if stopped.number == signal.SIGINT:
                raise KeyboardInterrupt(TOLD) from None
            raise SystemExit(128 + stopped.number) from None
        except (RuntimeError, KeyError) as error:
            if checkpoint is None or "state_dict" not in str(error):
                raise
            raise UserError(f"{folder.checkpoint} belongs to another model: delete it to start again") from None
        finally:
            reporter.stop()
    return keeper


@contextmanager
def _together(trainer: Trainer) -> Iterator[None]:
    """Let all processes of a run end where one of them does, with the one line of rank 0."""
    watched = trainer.strategy.watched if isinstance(trainer.strategy, WatchedStrategy) else None
    try:
        yield
    except BaseException as error:
        told = loss_of_a_process(error, watched) if trainer.world_size > 1 else None
        if watched is not None:
            watched.end_others()
        if trainer.world_size > 1 and not isinstance(error, Stopped):
            FOLLOWING.await_end()
        if told is not None:
            raise told from None
        raise
    finally:
        FOLLOWING.stop()
        if watched is not None:
            watched.over()


def load_state(module: nn.Module, checkpoint: dict[str, Any], folder: RunFolder) -> None:
    """Put a checkpoint's weights into the module."""
    try:
        module.load_state_dict(checkpoint["state_dict"])
    except (RuntimeError, KeyError, TypeError, AttributeError):
        raise UserError(f"{folder.checkpoint} belongs to another model: delete it to start again") from None


def _trainer(config: RunConfig, keeper: Keeper, module: Pretraining) -> Trainer:
    accelerator, devices = lightning_device(config.device)
    strategy: WatchedStrategy | str = "auto"
    plugins: list[Any] = [AtomicCheckpointIO()]
    if config.devices == 1:
        plugins.append(LightningEnvironment())  # a single process, whatever SLURM's variables say
    if config.devices > 1:
        if ":" in config.device:
            raise UserError(f"--device {config.device} names one device: leave the number out with --devices")
        if accelerator == "cuda" and torch.cuda.device_count() < config.devices:
            raise UserError(f"this machine has {torch.cuda.device_count()} CUDA devices, not {config.devices}")
        devices = config.devices
        # A frozen weight network has parameters without gradients, which DDP has to be told.
        strategy = WatchedStrategy(
            process_group_backend="gloo" if accelerator == "cpu" else None,
            find_unused_parameters=module.weights is not None,
        )
    bf16 = config.precision == "bf16" or (
        config.precision == "auto" and accelerator == "cuda" and torch.cuda.is_bf16_supported()
    )
    return Trainer(
        accelerator=accelerator,
        devices=devices,
        strategy=strategy,
        precision="bf16-mixed" if bf16 else "32-true",
        max_epochs=1,
        accumulate_grad_batches=config.accumulate,
        callbacks=[keeper],
        plugins=plugins,
        use_distributed_sampler=False,
        logger=make_logger(config, keeper.folder) if process_rank(config.devices) == 0 else False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=keeper.folder.path,
    )


class _Indexed(Dataset[Any]):
    """Lets a loader fetch whole batches by index, instead of collating samples."""

    def __init__(self, data: Batches) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitems__(self, indices: np.ndarray) -> Any:
        return self.data.__getitems__(indices)


def _leave_signals(worker: int) -> None:
    """Leave signals to the process that trains: one that is sent to the whole group must not end its loaders."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _as_is(batch: Any) -> Any:
    return batch


def _loader(data: Batches, order: BatchOrder, config: RunConfig, trainer: Trainer) -> DataLoader[Any]:
    device, found = trainer.strategy.root_device, data
    if config.workers == 0 and isinstance(data, MovableBatches):
        found = data.on_device(device)
    return DataLoader(
        _Indexed(found),
        batch_sampler=order,
        collate_fn=_as_is,
        num_workers=config.workers,
        worker_init_fn=_leave_signals,
        pin_memory=device.type == "cuda" and found is data,  # what lies there already cannot be pinned
        generator=torch.Generator(),
    )


@contextmanager
def _keyed_torch(seed: int) -> Iterator[None]:
    """Key weight initialisation, and leave the caller's generator as it was."""
    state = torch.get_rng_state()
    torch.manual_seed(Key.root(seed).fold("init").seed())
    try:
        yield
    finally:
        torch.set_rng_state(state)
