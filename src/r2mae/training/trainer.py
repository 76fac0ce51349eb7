"""The Lightning trainer of a run: its device, number format and processes, all of which end together."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch import Callback, Trainer

from r2mae.errors import UserError
from r2mae.training.checkpoint import AtomicCheckpointIO
from r2mae.training.folder import RunFolder
from r2mae.training.interrupt import StoppedBySignal
from r2mae.training.launcher import WatchedStrategy, loss_of_a_process
from r2mae.training.loggers import make_logger
from r2mae.training.ranks import FOLLOWING
from r2mae.training.rendezvous import RENDEZVOUS, external_environment
from r2mae.training.run import Run
from r2mae.training.sharding import ShardedStrategy
from r2mae.training.step import Pretraining

KNOWN_WARNINGS = (
    ".*number of training batches .* is smaller than the logging interval.*",  # of a short run with a tracker
    ".*does not have many workers.*",  # batches are indexed in memory: a worker would only copy them
    ".*Consider setting `persistent_workers=True`.*",  # a run is one epoch: its workers start once as it is
    ".*your dataloader is not resumable.*",  # it is: the batch sampler starts at the restored step
    ".*You defined a `validation_step`.*",
    ".*`isinstance.treespec, LeafSpec.` is deprecated.*",  # Lightning's use of torch's pytree
    ".*Found .* module.s. in eval mode at the start of training.*",
)
"""Third-party warnings that tell a user of the loop nothing new."""


def make_trainer(run: Run, callback: Callback, module: Pretraining, *, folder: RunFolder) -> Trainer:
    """Return the trainer. It runs one epoch, and does not save: the callback saves into the folder.

    Raises
    ------
    UserError
        If several processes are requested on one device, or on more devices than exist.
    """
    config, kind = run.config, run.device.type
    devices: int | list[int] = 1 if run.device.index is None else [run.device.index]
    strategy: WatchedStrategy | str = "auto"
    plugins: list[Any] = [AtomicCheckpointIO()]
    if config.ranks == 1:
        plugins.append(LightningEnvironment())  # a single process, also under SLURM
    if config.ranks > 1:
        if (environment := external_environment()) is not None:
            plugins.append(environment)
        if ":" in config.device:
            raise UserError(f"--device {config.device} names one device: omit the number with --devices")
        if kind == "cuda" and torch.cuda.device_count() < config.devices:
            raise UserError(f"this machine has {torch.cuda.device_count()} CUDA devices, not {config.devices}")
        devices = config.devices
        backend = "gloo" if kind == "cpu" else None
        if config.strategy == "fsdp":
            strategy = ShardedStrategy(process_group_backend=backend)
        else:
            # DDP must know that a frozen weight network has parameters without gradients.
            strategy = WatchedStrategy(process_group_backend=backend, find_unused_parameters=module.weights is not None)
    return Trainer(
        accelerator=kind,
        devices=devices,
        num_nodes=config.nodes,
        strategy=strategy,
        precision="bf16-mixed" if run.bf16 else "32-true",
        max_epochs=1,
        accumulate_grad_batches=config.accumulate,
        callbacks=[callback],
        plugins=plugins,
        use_distributed_sampler=False,
        logger=make_logger(config, folder) if run.rank == 0 else False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder.path,
    )


@contextmanager
def ending_together(trainer: Trainer) -> Iterator[None]:
    """Within the block, if one process of the run ends, end all of them; rank 0 reports the reason in one line."""
    watched = trainer.strategy.watched if isinstance(trainer.strategy, WatchedStrategy) else None
    try:
        yield
    except BaseException as error:
        lost = loss_of_a_process(error, watched) if trainer.world_size > 1 else None
        if watched is not None:
            watched.end_others()
        if trainer.world_size > 1 and not isinstance(error, StoppedBySignal):
            FOLLOWING.await_end()
        if lost is not None:
            raise lost from None
        raise
    finally:
        FOLLOWING.stop()
        RENDEZVOUS.leave()
        if watched is not None:
            watched.over()
